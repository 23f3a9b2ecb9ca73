//! Layers and tokens on a device.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use half::{bf16, f16};
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::run::{LaunchStream, MatrixMut};
use warpsmith::{Error, Result};
use warpsmith_layers::{GatedMlp, LayerConfig, LayerOperands, Linear, Moe, Step};

use super::HostTokens;
use super::weights::repeated;
use crate::Numbers;
use crate::oracle::Reference;

/// Bytes before and behind what is written, and what they are.
const MARGIN: usize = 256;
const CANARY: u8 = 0x5A;
/// What is there before it is written: NaN in every format.
const NAN: u8 = 0xFF;

/// Bytes that are copied at a time.
const BLOCK: usize = 1 << 20;

/// A layer with its weights.
#[derive(Debug)]
#[non_exhaustive]
// One of each kind in a program: a box would gain nothing.
#[allow(clippy::large_enum_variant)]
pub enum DeviceLayer {
    /// One product.
    Linear(Linear),
    /// Up and down.
    Mlp(GatedMlp),
    /// Experts.
    Moe(Moe),
}

impl DeviceLayer {
    /// Bytes of workspace for so many tokens at a time.
    #[must_use]
    pub fn workspace_bytes(&self, tokens: u32) -> u64 {
        match self {
            Self::Linear(of) => of.workspace_bytes(tokens),
            Self::Mlp(of) => of.workspace_bytes(tokens),
            Self::Moe(of) => of.workspace_bytes(tokens),
        }
    }

    /// Its steps for so many tokens.
    #[must_use]
    pub fn steps(&self, tokens: u32) -> Vec<Step> {
        match self {
            Self::Linear(_) => Vec::new(),
            Self::Mlp(of) => Step::of(&LayerConfig::Mlp(*of.config())).collect(),
            Self::Moe(of) => of.steps(tokens),
        }
    }

    /// Columns of the result, and its format.
    fn result(&self) -> (usize, Format) {
        let config = match self {
            Self::Linear(of) => LayerConfig::Linear(*of.config()),
            Self::Mlp(of) => LayerConfig::Mlp(*of.config()),
            Self::Moe(of) => LayerConfig::Moe(*of.config()),
        };
        (config.columns()[1] as usize, config.token_format())
    }

    /// Puts the layer into `stream`, or one step of it.
    ///
    /// # Errors
    /// Those of the layer's.
    pub fn forward(&self, stream: &impl LaunchStream, tokens: &mut DeviceTokens, only: Option<Step>) -> Result<()> {
        self.put(stream, tokens, only.map_or(Part::Whole, Part::Step))
    }

    /// The same with ids and weights `[tokens, k]` that were chosen elsewhere, where the layer has experts.
    ///
    /// # Errors
    /// Those of the layer's.
    pub fn forward_chosen(
        &self,
        stream: &impl LaunchStream,
        tokens: &mut DeviceTokens,
        ids: &CudaSlice<i32>,
        weights: &CudaSlice<f32>,
    ) -> Result<()> {
        self.put(stream, tokens, Part::Chosen(ids, weights))
    }

    fn put(&self, stream: &impl LaunchStream, tokens: &mut DeviceTokens, part: Part<'_>) -> Result<()> {
        let (columns, format) = self.result();
        let DeviceTokens { count, x, logits, residual, out, workspace } = tokens;
        let inside = MARGIN..MARGIN + *count as usize * format.bytes(columns);
        let mut out = out.slice_mut(inside);
        let end = workspace.len() - MARGIN;
        let out = MatrixMut::from_bytes(format, &mut out)?;
        let operands = LayerOperands::new(*count, x.matrix()?, out, workspace.slice_mut(MARGIN..end));
        let of_experts = match self {
            Self::Linear(of) => return of.forward(stream, operands),
            Self::Mlp(of) => {
                return match part {
                    Part::Step(step) => of.step(stream, step, operands),
                    _ => of.forward(stream, operands),
                };
            }
            Self::Moe(of) => of,
        };
        let has_residual = of_experts.config().has_residual();
        let operands = if has_residual { operands.residual(residual.values()) } else { operands };
        match part {
            Part::Whole => of_experts.forward(stream, operands, logits.values()),
            Part::Step(step) => of_experts.step(stream, step, operands, logits.values()),
            Part::Chosen(ids, weights) => of_experts.forward_chosen(stream, operands, ids, weights),
        }
    }
}

/// What of a layer is launched.
enum Part<'a> {
    Whole,
    Step(Step),
    /// With ids and weights that are given, where there are experts.
    Chosen(&'a CudaSlice<i32>, &'a CudaSlice<f32>),
}

/// Tokens, room for a result, and a workspace, with margins around what is written.
#[derive(Debug)]
pub struct DeviceTokens {
    count: u32,
    x: Numbers,
    logits: Numbers,
    residual: Numbers,
    out: CudaSlice<u8>,
    workspace: CudaSlice<u8>,
}

impl DeviceTokens {
    /// For a layer, with a workspace of so many bytes.
    ///
    /// # Errors
    /// Driver, if the device has no room.
    pub fn new(stream: &Arc<CudaStream>, layer: &DeviceLayer, host: &HostTokens, workspace: u64) -> Result<Self> {
        let (columns, format) = layer.result();
        let of_logits = match layer {
            DeviceLayer::Moe(of) => of.config().route().logits_format().unwrap_or(Format::F32),
            _ => Format::F32,
        };
        let (nan, canary) = (stream.clone_htod(&vec![NAN; BLOCK])?, [CANARY; MARGIN]);
        let guarded = |bytes: usize| -> Result<CudaSlice<u8>> {
            let mut all = repeated(stream, &nan, 0, bytes + 2 * MARGIN)?;
            stream.memcpy_htod(&canary, &mut all.slice_mut(..MARGIN))?;
            stream.memcpy_htod(&canary, &mut all.slice_mut(MARGIN + bytes..))?;
            Ok(all)
        };
        Ok(Self {
            count: host.count() as u32,
            x: Numbers::guarded(stream, format, &host.x, 1)?,
            logits: Numbers::guarded(stream, of_logits, &host.logits, 1)?,
            residual: Numbers::guarded(stream, format, &host.residual, 1)?,
            out: guarded(host.count() * format.bytes(columns))?,
            workspace: guarded(workspace as usize)?,
        })
    }

    /// Other logits, where the old ones were.
    ///
    /// # Errors
    /// Driver, if it refuses the copy; data, if there are not as many.
    pub fn set_logits(&mut self, stream: &Arc<CudaStream>, logits: &[f32]) -> Result<()> {
        let numbers = Numbers::guarded(stream, self.logits.format(), logits, 1)?;
        self.logits.set(stream, &numbers)
    }

    /// Other tokens, where the old ones were.
    ///
    /// # Errors
    /// As for [`DeviceTokens::set_logits`].
    pub fn set_x(&mut self, stream: &Arc<CudaStream>, x: &[f32]) -> Result<()> {
        let numbers = Numbers::guarded(stream, self.x.format(), x, 1)?;
        self.x.set(stream, &numbers)
    }

    /// What is there after a forward, which is waited for.
    ///
    /// # Errors
    /// Driver, if it refuses the copy or something in the stream failed.
    pub fn found(&self, stream: &Arc<CudaStream>, layer: &DeviceLayer) -> Result<Found> {
        let (columns, format) = layer.result();
        let out = stream.clone_dtoh(&self.out)?;
        let margins = [0..MARGIN, self.workspace.len() - MARGIN..self.workspace.len()];
        let mut outside = [&out[..MARGIN], &out[out.len() - MARGIN..]].concat();
        for margin in margins {
            outside.extend(stream.clone_dtoh(&self.workspace.slice(margin))?);
        }
        stream.synchronize()?;
        let bytes = out[MARGIN..out.len() - MARGIN].to_vec();
        Ok(Found { is_inside: outside.iter().all(|byte| *byte == CANARY), bytes, columns, format })
    }
}

/// What a forward left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whether nothing outside is written.
    pub is_inside: bool,
    /// Of the result.
    pub bytes: Vec<u8>,
    columns: usize,
    format: Format,
}

impl Found {
    fn value(&self, token: usize, column: usize) -> f64 {
        let at = 2 * (token * self.columns + column);
        let bytes = [self.bytes[at], self.bytes[at + 1]];
        if self.format == Format::F16 {
            f16::from_le_bytes(bytes).to_f64()
        } else {
            bf16::from_le_bytes(bytes).to_f64()
        }
    }

    /// What is wrong with some tokens in some columns, where `reference` says what should be there; or the worst error, in
    /// bounds.
    ///
    /// # Errors
    /// Data, in one sentence.
    pub fn check(&self, reference: &Reference, which: &[usize], columns: &[usize]) -> Result<f64> {
        if !self.is_inside {
            return Err(Error::data("memory outside of the result or the workspace is written"));
        }
        let places = which.iter().flat_map(|token| columns.iter().map(move |column| (*token, *column)));
        let mut worst = 0.0;
        for ((token, column), expected) in places.zip(reference.elements()) {
            let found = self.value(token, column);
            let error = expected.error(found, self.format);
            if error > 1.0 {
                let (value, bound) = (expected.value, expected.bound);
                return Err(Error::data(format!("token {token}, column {column}: {found}, not {value} ± {bound:e}")));
            }
            worst = f64::max(worst, error);
        }
        Ok(worst)
    }
}
