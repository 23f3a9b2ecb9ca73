//! One product of a layer: its plan and its weights.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use warpsmith::engine::{Engine, Plan};
use warpsmith::internal::Raise;
use warpsmith::run::{
    Alpha, LaunchStream, MatrixMut, MemoryMut, NextWeights, Operands, PreparedWeights, Shared, Weights,
};
use warpsmith::spec::Problem;
use warpsmith::{Error, Result};

use crate::rounded::Taken;
use crate::scaler::Scaler;
use crate::weights::{Beside, Padding, Quantised};
use crate::workspace::Room;

/// A problem with its weights.
#[derive(Debug)]
pub(crate) struct Product {
    plan: Plan,
    weights: Weights<'static>,
    beside: Beside,
    /// Of a dual GEMM.
    second: Option<Beside>,
    /// Where tokens have a factor of their own.
    scaler: Option<Scaler>,
}

impl Product {
    /// Every kernel loaded, weights padded and in the form of the device's kernels. `given` are those of B, or of B1 (the gate)
    /// and B2; `extents` are N and K as the weights have them.
    ///
    /// # Errors
    /// Those of [`Engine::plan`] and [`Engine::weights`]; operand, if what is given does not fit the problem.
    pub(crate) fn new(
        engine: &Engine,
        stream: &Arc<CudaStream>,
        problem: &Problem,
        [n, k]: [u32; 2],
        given: Vec<(&str, Quantised)>,
    ) -> Result<Self> {
        let problem = engine.native(problem);
        let groups = problem.groups().unwrap_or(1) as usize;
        let padding = Padding {
            groups,
            n: [n as usize, problem.columns() as usize],
            k: [k as usize, problem.depth() as usize],
            format: problem.b_format(),
        };
        let plan = engine.plan(&problem)?;
        let (mut matrices, mut beside) = (Vec::new(), Vec::new());
        for (name, quantised) in given {
            let padded = quantised.padded(stream, name, &padding)?;
            check(name, &padded.beside, &problem)?;
            matrices.push(padded.matrix);
            beside.push(padded.beside);
        }
        let weights = engine.weights(stream, &problem, matrices)?;
        let mut beside = beside.into_iter();
        let first = beside.next().ok_or_else(|| Error::operand(format!("{problem} without weights")))?;
        let second = beside.next();
        let alphas = [&first].into_iter().chain(&second).map(|beside| beside.alpha.alpha());
        let scaler = Scaler::new(engine, stream, &problem, alphas)?;
        Ok(Self { plan, weights, beside: first, second, scaler })
    }

    /// The most bytes of workspace that a launch of up to `rows` rows needs.
    pub(crate) fn workspace_bytes(&self, rows: u32) -> u64 {
        self.plan.workspace_bytes(rows)
    }

    /// Bytes for factors that a launch makes of its weights' and its tokens'.
    pub(crate) fn alpha_bytes(&self) -> u64 {
        self.scaler.as_ref().map_or(0, Scaler::bytes)
    }

    /// Its weights, where they are prepared.
    pub(crate) fn prepared(&self) -> Option<&PreparedWeights> {
        match &self.weights {
            Weights::Prepared(weights) => Some(weights),
            _ => None,
        }
    }

    /// What multiplies each product, where tokens have no factor.
    pub(crate) fn alphas(&self) -> impl Iterator<Item = Alpha<'_>> {
        [&self.beside].into_iter().chain(&self.second).map(|beside| beside.alpha.alpha())
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What a launch for `m` rows reads first, for the product before it.
    pub(crate) fn reads_first(&self, m: u32) -> Option<NextWeights<'_>> {
        self.plan.reads_first(m, &self.weights)
    }

    /// Puts the launch for `m` rows into the stream; it may begin while what is before it still runs. `with` adds operands.
    pub(crate) fn launch<'a>(
        &'a self,
        stream: &impl LaunchStream,
        m: u32,
        (a, c): (Taken<'a>, MatrixMut<'a>),
        Room { alphas, kernels }: Room<'a, '_>,
        with: impl FnOnce(Operands<'a>) -> Operands<'a>,
    ) -> Result<()> {
        let Taken { matrix, factor } = a;
        if let (Some(scaler), Some(factor)) = (&self.scaler, factor) {
            scaler.launch(stream, factor, alphas)?;
        }
        let alphas: &'a MemoryMut<'_, u8> = alphas;
        let alpha = |nth, beside: &'a Beside| match &self.scaler {
            Some(scaler) => scaler.made(nth, alphas),
            None => Ok(beside.alpha.alpha()),
        };
        let operands = Operands::new(m, matrix, &self.weights, c);
        let Beside { row_scale, bias, .. } = &self.beside;
        let operands = match &self.second {
            None => operands.alpha(alpha(0, &self.beside)?),
            Some(second) => operands.alphas(alpha(0, &self.beside)?, alpha(1, second)?),
        };
        let operands = match (bias, self.second.as_ref().and_then(|second| second.bias.as_ref())) {
            (Some(first), Some(second)) => operands.biases(first.values(), second.values()),
            (Some(only), None) => operands.bias(only.values()),
            (None, _) => operands,
        };
        let operands = match row_scale {
            Some(factors) => operands.row_scale(factors),
            None => operands,
        };
        let bytes = kernels.elements() as usize;
        let operands = kernels.part(0..bytes).into_iter().fold(operands, Operands::workspace);
        self.plan.launch_dependent(stream, with(operands))
    }
}

fn check(name: &str, beside: &Beside, problem: &Problem) -> Result<()> {
    let parts = [
        ("a bias", beside.bias.is_some(), problem.bias_format().is_some()),
        ("row factors", beside.row_scale.is_some(), problem.has_row_scale()),
    ];
    match parts.into_iter().find(|(_, is_given, is_wanted)| is_given != is_wanted) {
        Some((what, true, _)) => return Err(Error::operand(format!("{name}: {what} given, the layer has none"))),
        Some((what, ..)) => return Err(Error::operand(format!("{name}: {what} not given, the layer has it"))),
        None => {}
    }
    if let (Some(bias), Some(wanted)) = (&beside.bias, problem.bias_format()) {
        let found = bias.format();
        if found != wanted {
            return Err(Error::operand(format!("{name}: the bias is {found}, the layer is for {wanted}")));
        }
    }
    let groups = problem.groups().unwrap_or(1);
    // α may be one for all; a factor of a row may not.
    let numbers = [
        ("alpha", beside.alpha.given(), [1, u64::from(groups)]),
        ("row factors", beside.row_scale.as_ref().map(Shared::elements), [u64::from(problem.columns()); 2]),
    ];
    for (what, given, [one, each]) in numbers {
        if let Some(given) = given.filter(|given| ![one, each].contains(given)) {
            let needed = if one == each { format!("{one} are needed") } else { format!("{one} or {each} are needed") };
            return Err(Error::operand(format!("{name}: {what} has {given} elements, {needed}")));
        }
    }
    Ok(())
}
