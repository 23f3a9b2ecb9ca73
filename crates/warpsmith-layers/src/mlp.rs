//! Up and down.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use warpsmith::engine::{Engine, Plan};
use warpsmith::run::{LaunchStream, Matrix, MatrixMut, MemoryMut};
use warpsmith::{Error, Result};

use crate::config::MlpConfig;
use crate::operands::{Chunk, LayerOperands, Needs, check_given, result, tokens};
use crate::product::Product;
use crate::step::Step;
use crate::weights::Quantised;
use crate::workspace::{Layout, room};

/// The weights of an [MLP](MlpConfig): gate and up `[I, H]`, down `[H, I]`; of experts each `[E, …]`.
#[derive(Debug)]
#[must_use]
pub struct MlpWeights {
    gate: Option<Quantised>,
    up: Quantised,
    down: Quantised,
}

impl MlpWeights {
    /// With a gate.
    pub fn gated(gate: Quantised, up: Quantised, down: Quantised) -> Self {
        Self { gate: Some(gate), up, down }
    }

    /// Without one.
    pub fn ungated(up: Quantised, down: Quantised) -> Self {
        Self { gate: None, up, down }
    }

    /// Those of the first products, and of the last.
    ///
    /// # Errors
    /// Operand, if there is a gate and the layer has none, or the other way round.
    pub(crate) fn split(self, is_gated: bool) -> Result<(Vec<(&'static str, Quantised)>, Quantised)> {
        let Self { gate, up, down } = self;
        check_given("gate", gate.is_some(), is_gated)?;
        let gate = gate.map(|gate| ("gate", gate));
        Ok((gate.into_iter().chain([("up", up)]).collect(), down))
    }
}

/// An [`MlpConfig`] with its weights and kernels.
#[derive(Debug)]
pub struct GatedMlp {
    config: MlpConfig,
    limit: u32,
    up: Product,
    down: Product,
}

impl GatedMlp {
    /// For up to `limit` tokens. Waits for what has to be compiled.
    ///
    /// # Errors
    /// Those of [`MlpConfig::problems`], [`Engine::plan`] and [`Engine::weights`]; operand, if the weights do not fit.
    pub fn new(
        engine: &Engine,
        stream: &Arc<CudaStream>,
        config: &MlpConfig,
        weights: MlpWeights,
        limit: u32,
    ) -> Result<Self> {
        let [up, down] = config.problems(limit)?;
        let (hidden, intermediate) = (config.hidden_size(), config.intermediate_size());
        let products = || {
            let (first, last) = weights.split(config.is_gated())?;
            let up = Product::new(engine, stream, &up, [intermediate, hidden], first)?;
            Ok((up, Product::new(engine, stream, &down, [hidden, intermediate], vec![("down", last)])?))
        };
        let (up, down) = products().map_err(|error: Error| error.context(config.to_string()))?;
        Ok(Self { config: *config, limit, up, down })
    }

    /// What it computes.
    pub fn config(&self) -> &MlpConfig {
        &self.config
    }

    /// Its kernels: up and down.
    pub fn plans(&self) -> [&Plan; 2] {
        [self.up.plan(), self.down.plan()]
    }

    /// Bytes of workspace for up to `tokens` tokens at a time; the layer's limit is enough for all.
    #[must_use]
    pub fn workspace_bytes(&self, tokens: u32) -> u64 {
        self.layout(tokens.min(self.limit)).bytes()
    }

    /// Puts the layer into `stream`. Where the workspace is not enough for all tokens, they go in chunks, as many at a time as
    /// it is enough for.
    ///
    /// # Errors
    /// Operand, if a number, format, length or alignment does not fit, or the workspace is not enough for one token: before
    /// anything is launched; those of [`Plan::launch_dependent`].
    pub fn forward(&self, stream: &impl LaunchStream, operands: LayerOperands<'_>) -> Result<()> {
        self.put(stream, operands, None)
    }

    /// One part of [`GatedMlp::forward`] alone, on what a whole one left in the same workspace: to be timed. Launches nothing for
    /// a part that only experts have.
    ///
    /// # Errors
    /// As [`GatedMlp::forward`].
    pub fn step(&self, stream: &impl LaunchStream, step: Step, operands: LayerOperands<'_>) -> Result<()> {
        self.put(stream, operands, Some(step))
    }

    fn put(&self, stream: &impl LaunchStream, operands: LayerOperands<'_>, only: Option<Step>) -> Result<()> {
        self.put_all(stream, operands, only).map_err(|error| error.context(self.config.to_string()))
    }

    fn put_all(&self, stream: &impl LaunchStream, mut operands: LayerOperands<'_>, only: Option<Step>) -> Result<()> {
        let (hidden, format) = (self.config.hidden_size(), self.config.token_format());
        operands.check(stream, &Needs { format, columns: [hidden; 2], limit: self.limit, has_residual: false })?;
        let room = room(self.limit, operands.workspace.elements(), |tokens| self.workspace_bytes(tokens))?;
        for chunk in Chunk::each(operands.tokens, room) {
            self.layout(room).cut(&mut operands.workspace, |mut pieces| {
                let (x, out) = (chunk.of_matrix(&operands.x, hidden)?, chunk.of_result(&mut operands.out, hidden)?);
                self.launch(stream, chunk.count, (x, out), (&mut pieces.h, &mut pieces.kernels), only)
            })?;
        }
        Ok(())
    }

    /// Both launches or one, with `h` and a workspace for kernels as [`GatedMlp::layout`] has them.
    pub(crate) fn launch(
        &self,
        stream: &impl LaunchStream,
        count: u32,
        (x, out): (Matrix<'_>, MatrixMut<'_>),
        (h, kernels): (&mut MemoryMut<'_, u8>, &mut MemoryMut<'_, u8>),
        only: Option<Step>,
    ) -> Result<()> {
        let format = self.config.token_format();
        let does = |step| only.is_none_or(|only| only == step);
        if does(Step::Up) {
            self.up.launch(stream, count, (x, result(h, format)?), kernels, |operands| operands)?;
        }
        if does(Step::Down) {
            self.down.launch(stream, count, (tokens(h, format)?, out), kernels, |operands| operands)?;
        }
        Ok(())
    }

    pub(crate) fn layout(&self, tokens: u32) -> Layout {
        let (h, rows) = (self.config.token_format().bytes(self.config.padded_size() as usize), u64::from(tokens));
        let kernels = self.up.workspace_bytes(tokens).max(self.down.workspace_bytes(tokens));
        Layout { h: rows * h as u64, kernels, ..Layout::default() }
    }
}
