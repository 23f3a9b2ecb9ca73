//! One product.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use warpsmith::engine::{Engine, Plan};
use warpsmith::run::{LaunchStream, Matrix, MatrixMut, Memory, MemoryMut};
use warpsmith::{Error, Result};

use crate::config::LinearConfig;
use crate::operands::{Chunk, LayerOperands, Needs, ROWS, not_in_parts, result, tokens};
use crate::product::Product;
use crate::rounded::RowQuantiser;
use crate::weights::Quantised;
use crate::workspace::{Layout, Room, room};

/// A [`LinearConfig`] with its weights and kernels.
#[derive(Debug)]
pub struct Linear {
    config: LinearConfig,
    limit: u32,
    /// Of x, where that is rounded.
    quantiser: Option<RowQuantiser>,
    product: Product,
}

impl Linear {
    /// For up to `limit` tokens. Waits for what has to be compiled.
    ///
    /// # Errors
    /// Those of [`LinearConfig::problem`], [`Engine::plan`], [`Engine::weights`] and [`Engine::quantise`]; operand, if the weights
    /// do not fit; unsupported, if x becomes NVFP4 and the engine's kernels are batch-invariant.
    pub fn new(
        engine: &Engine,
        stream: &Arc<CudaStream>,
        config: &LinearConfig,
        weights: Quantised,
        limit: u32,
    ) -> Result<Self> {
        let [k, n] = config.columns();
        let problem = config.problem(limit)?;
        let made = || {
            let product = Product::new(engine, stream, &problem, [n, k], vec![("weights", weights)])?;
            Ok((product, config.quantiser().map(|of| RowQuantiser::new(engine, &of)).transpose()?))
        };
        let (product, quantiser) = made().map_err(|error: Error| error.context(config.to_string()))?;
        Ok(Self { config: *config, limit, quantiser, product })
    }

    /// What it computes.
    pub fn config(&self) -> &LinearConfig {
        &self.config
    }

    /// Its kernels.
    pub fn plan(&self) -> &Plan {
        self.product.plan()
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
        self.put(stream, operands).map_err(|error| error.context(self.config.to_string()))
    }

    fn put(&self, stream: &impl LaunchStream, mut operands: LayerOperands<'_>) -> Result<()> {
        let (columns, format) = (self.config.columns(), self.config.token_format());
        // Where rows are copied to be padded, they may begin anywhere.
        let rows_begin = if self.is_padded() { format.bytes(1) as u64 } else { ROWS };
        operands.check(stream, &Needs { format, columns, limit: self.limit, has_residual: false, rows_begin })?;
        let room = room(self.limit, operands.workspace.elements(), |tokens| self.workspace_bytes(tokens))?;
        let [inputs, outputs] = columns;
        for chunk in Chunk::each(operands.tokens, room) {
            self.layout(room).cut(&mut operands.workspace, |mut pieces| {
                let (x, out) = (chunk.of_matrix(&operands.x, inputs)?, chunk.of_result(&mut operands.out, outputs)?);
                let x = if self.is_padded() { self.padded(stream, chunk.count, &x, &mut pieces.h)? } else { x };
                let x = match &self.quantiser {
                    None => x.into(),
                    Some(quantiser) => {
                        quantiser.launch(stream, chunk.count, x, &mut pieces.x_rounded)?;
                        quantiser.made(&pieces.x_rounded)?
                    }
                };
                let room = Room { alphas: &mut pieces.alphas, kernels: &mut pieces.kernels };
                self.product.launch(stream, chunk.count, (x, out), room, |operands| operands)
            })?;
        }
        Ok(())
    }

    fn is_padded(&self) -> bool {
        self.config.padded_depth() != self.config.columns()[0]
    }

    /// The first rows of x, with zeros behind each.
    fn padded<'p>(
        &self,
        stream: &impl LaunchStream,
        rows: u32,
        x: &Matrix<'_>,
        into: &'p mut MemoryMut<'_, u8>,
    ) -> Result<Matrix<'p>> {
        let (k, format) = (self.config.columns()[0] as usize, self.config.token_format());
        let (given, taken) = (rows as usize * k, rows as usize * self.config.padded_depth() as usize);
        into.part(0..format.bytes(taken)).ok_or_else(not_in_parts)?.clear(stream)?;
        match (x, result(into, format)?) {
            (Matrix::F16(x), MatrixMut::F16(mut to)) => copy_rows(stream, rows, x, given, &mut to, taken)?,
            (Matrix::Bf16(x), MatrixMut::Bf16(mut to)) => copy_rows(stream, rows, x, given, &mut to, taken)?,
            _ => return Err(not_in_parts()),
        }
        tokens(into, format)
    }

    fn layout(&self, tokens: u32) -> Layout {
        let x_rounded = self.quantiser.as_ref().map_or([0; 3], |quantiser| quantiser.bytes(tokens));
        let (alphas, kernels) = (self.product.alpha_bytes(), self.product.workspace_bytes(tokens));
        let padded = if self.is_padded() { tokens as usize * self.config.padded_depth() as usize } else { 0 };
        let h = self.config.token_format().bytes(padded) as u64;
        Layout { h, x_rounded, alphas, kernels, ..Layout::default() }
    }
}

fn copy_rows<T: Send + Sync + 'static>(
    stream: &impl LaunchStream,
    rows: u32,
    x: &Memory<'_, T>,
    given: usize,
    to: &mut MemoryMut<'_, T>,
    taken: usize,
) -> Result<()> {
    let x = x.part(0..given).ok_or_else(not_in_parts)?;
    x.copy_rows_to(stream, rows, &mut to.part(0..taken).ok_or_else(not_in_parts)?)
}
