//! Up and down.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use warpsmith::engine::{Engine, Plan};
use warpsmith::run::{LaunchStream, MatrixMut, MemoryMut};
use warpsmith::{Error, Result};

use crate::config::MlpConfig;
use crate::operands::{Chunk, LayerOperands, Needs, ROWS, check_given, result, tokens};
use crate::product::Product;
use crate::rounded::{RoundedRows, RowQuantiser, Taken};
use crate::step::Step;
use crate::weights::Quantised;
use crate::workspace::{Layout, Pieces, Room, room};

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
    /// Of x and of h, where these are rounded.
    quantisers: Option<[RowQuantiser; 2]>,
}

/// Pieces of a workspace that both launches use.
pub(crate) struct Between<'a, 'b> {
    pub(crate) h: &'a mut MemoryMut<'b, u8>,
    pub(crate) h_rounded: &'a mut RoundedRows<'b>,
    pub(crate) room: Room<'a, 'b>,
}

impl GatedMlp {
    /// For up to `limit` tokens. Waits for what has to be compiled.
    ///
    /// # Errors
    /// Those of [`MlpConfig::problems`], [`Engine::plan`], [`Engine::weights`] and [`Engine::quantise`]; operand, if the weights
    /// do not fit; unsupported, if x becomes NVFP4 and the engine's kernels are batch-invariant.
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
            let down = Product::new(engine, stream, &down, [hidden, intermediate], vec![("down", last)])?;
            Ok((up, down, RowQuantiser::both(engine, config.quantisers())?))
        };
        let (up, down, quantisers) = products().map_err(|error: Error| error.context(config.to_string()))?;
        Ok(Self { config: *config, limit, up, down, quantisers })
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
    /// anything is launched; those of [`Plan::launch_dependent`] and
    /// [`Quantiser::launch_dependent`](warpsmith::run::Quantiser::launch_dependent).
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
        operands.check(
            stream,
            &Needs { format, columns: [hidden; 2], limit: self.limit, has_residual: false, rows_begin: ROWS },
        )?;
        let room = room(self.limit, operands.workspace.elements(), |tokens| self.workspace_bytes(tokens))?;
        for chunk in Chunk::each(operands.tokens, room) {
            self.layout(room).cut(&mut operands.workspace, |mut pieces| {
                let Pieces { h, x_rounded, h_rounded, alphas, kernels, .. } = &mut pieces;
                let (x, out) = (chunk.of_matrix(&operands.x, hidden)?, chunk.of_result(&mut operands.out, hidden)?);
                let x = match &self.quantisers {
                    None => x.into(),
                    Some([quantiser, _]) => {
                        if only.is_none_or(|only| only == Step::Up) {
                            quantiser.launch(stream, chunk.count, x, x_rounded)?;
                        }
                        quantiser.made(x_rounded)?
                    }
                };
                let between = Between { h, h_rounded, room: Room { alphas, kernels } };
                self.launch(stream, chunk.count, (x, out), between, only)
            })?;
        }
        Ok(())
    }

    /// Up and down or one of them, from `x` as products take it, with pieces as [`GatedMlp::layout`] has them.
    pub(crate) fn launch(
        &self,
        stream: &impl LaunchStream,
        count: u32,
        (x, out): (Taken<'_>, MatrixMut<'_>),
        Between { h, h_rounded, mut room }: Between<'_, '_>,
        only: Option<Step>,
    ) -> Result<()> {
        let format = self.config.token_format();
        let does = |step| only.is_none_or(|only| only == step);
        if does(Step::Up) {
            // A step alone has nothing behind it.
            let next = only.is_none().then(|| self.down.reads_first(count)).flatten();
            self.up.launch(stream, count, (x, result(h, format)?), room.again(), |operands| operands.next(next))?;
        }
        if does(Step::Down) {
            let h = tokens(h, format)?;
            let h = match &self.quantisers {
                None => h.into(),
                Some([_, quantiser]) => {
                    quantiser.launch(stream, count, h, h_rounded)?;
                    quantiser.made(h_rounded)?
                }
            };
            self.down.launch(stream, count, (h, out), room, |operands| operands)?;
        }
        Ok(())
    }

    pub(crate) fn layout(&self, tokens: u32) -> Layout {
        let (h, rows) = (self.config.token_format().bytes(self.config.padded_size() as usize), u64::from(tokens));
        let kernels = self.up.workspace_bytes(tokens).max(self.down.workspace_bytes(tokens));
        let alphas = self.up.alpha_bytes().max(self.down.alpha_bytes());
        let [x_rounded, h_rounded] = match &self.quantisers {
            None => [[0; 3]; 2],
            Some(quantisers) => quantisers.each_ref().map(|quantiser| quantiser.bytes(tokens)),
        };
        Layout { h: rows * h as u64, x_rounded, h_rounded, alphas, kernels, ..Layout::default() }
    }
}
