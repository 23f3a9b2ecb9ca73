//! One MLP: h = silu(x·gateᵀ) ⊙ (x·upᵀ), y = h·downᵀ, with NVFP4 weights.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use half::f16;
use warpsmith::engine::{Engine, Manifest, Plan, Rows};
use warpsmith::run::{Operands, Weights, Workspace};
use warpsmith::spec::{Activation, Arch, Problem};
use warpsmith_tune::{HostMatrix, HostOperands, Spread, reference};

use super::args::Args;
use crate::shared::Result;

/// The two problems of the MLP.
#[derive(Clone, Copy, Debug)]
pub struct Mlp {
    pub gate_up: Problem,
    pub down: Problem,
    pub tokens: u32,
}

impl Mlp {
    /// Refused before weights are made that no kernel takes.
    pub fn new(args: &Args, arch: &Arch) -> Result<Self> {
        let gate_up = Problem::dual_gemm(Activation::Silu).n(args.intermediate).k(args.hidden).native(arch);
        let down = Problem::gemm().n(args.hidden).k(args.intermediate).native(arch);
        [gate_up, down].iter().try_for_each(|problem| problem.check_for(args.tokens))?;
        Ok(Self { gate_up, down, tokens: args.tokens })
    }

    /// What it will be asked for.
    pub fn manifest(&self) -> Result<Manifest> {
        let rows = Rows::new(1..=self.tokens)?;
        Ok(Manifest::new().with(&self.gate_up, &rows).with(&self.down, &rows))
    }
}

/// A linear layer on the device, with its weights on the host to check against.
pub struct Layer {
    pub plan: Plan,
    weights: Weights<'static>,
    /// For one row.
    host: HostOperands,
}

impl Layer {
    /// Random weights, as the device takes them.
    pub fn new(engine: &Engine, stream: &Arc<CudaStream>, problem: Problem, tokens: u32, seed: u64) -> Result<Self> {
        let host = HostOperands::random(&problem, &[1], Spread::Uniform, seed);
        let given = host.b.iter().map(|b| match b {
            HostMatrix::Nvfp4 { codes, scales } => Ok((stream.clone_htod(codes)?, stream.clone_htod(scales)?)),
            _ => Err("the weights are nvfp4".into()),
        });
        let weights = engine.weights(stream, &problem, given.collect::<Result<Vec<_>>>()?)?;
        Ok(Self { plan: engine.plan(&problem.m_up_to(tokens))?, weights, host })
    }

    /// C = the layer of the first `m` rows of A.
    pub fn operands<'a>(
        &'a self,
        m: u32,
        a: &'a CudaSlice<f16>,
        c: &'a mut CudaSlice<f16>,
        workspace: &'a mut Workspace,
    ) -> Operands<'a> {
        let alpha = |product: usize| self.host.alpha.get(product).map_or(1.0, |alpha| alpha[0]);
        Operands::new(m, a, &self.weights, c).alphas(alpha(0), alpha(1)).workspace(workspace)
    }

    /// How many elements of `c`, `m` rows computed from `a`, are further from the truth than they may be.
    pub fn wrong(&self, m: u32, a: &[f16], c: &[f16]) -> Result<usize> {
        let (k, n) = (self.host.problem.depth() as usize, self.host.problem.columns() as usize);
        let a = HostMatrix::F16(a[..m as usize * k].to_vec());
        let operands = HostOperands { m, a, ..self.host.clone() };
        let reference = reference::of(&operands)?;
        let found = c[..m as usize * n].iter().zip(reference.elements());
        Ok(found.filter(|(found, expected)| !expected.accepts(found.to_f64(), reference.output())).count())
    }
}
