//! Weights on a device.

mod pinned;

use std::fmt;
use std::num::NonZero;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use half::{bf16, f16};
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::{Error, Result};
use warpsmith_layers::{MlpWeights, MoeWeights, Quantised};

pub(crate) use pinned::Pinned;
use pinned::Sink;

use crate::module::{Bias, Mlp, Moe, Multiplier, Product, weight_format};
use crate::weight::Packed;

/// Bytes of each of two buffers, unless said otherwise.
const BUFFER: usize = 32 << 20;

/// Puts weights on a device, through two buffers of pinned memory: one is filled while the other is copied.
///
/// It uses the memory of its buffers and of one row besides, whatever the size of what it uploads. Copies are in its stream:
/// whoever uses another waits for an event of this one.
pub struct Uploader<'p> {
    stream: Arc<CudaStream>,
    pinned: Pinned,
    sent: u64,
    progress: Box<dyn FnMut(u64) + 'p>,
}

impl fmt::Debug for Uploader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uploader").field("sent", &self.sent).finish_non_exhaustive()
    }
}

impl<'p> Uploader<'p> {
    /// In this stream, through two buffers of 32 MiB.
    ///
    /// # Errors
    /// Driver, if there is no pinned memory.
    pub fn new(stream: &Arc<CudaStream>) -> Result<Self> {
        Self::with_buffers(stream, BUFFER)
    }

    /// In this stream, through two buffers of so many bytes.
    ///
    /// # Errors
    /// Driver, if there is no pinned memory; operand, if they have no byte.
    pub fn with_buffers(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self> {
        let pinned = Pinned::new(stream, bytes)?;
        Ok(Self { stream: stream.clone(), pinned, sent: 0, progress: Box::new(|_| {}) })
    }

    /// Fills buffers by so many threads: one copies from mapped files slower than a device takes it. As many as there are
    /// cores, 8 at most, unless said otherwise.
    #[must_use]
    pub fn threads(mut self, threads: NonZero<usize>) -> Self {
        self.pinned.threads = threads.get();
        self
    }

    /// Tells how many bytes have been copied so far, after each copy: [`Module::bytes`](crate::Module::bytes) in the end.
    #[must_use]
    pub fn progress(mut self, tell: impl FnMut(u64) + 'p) -> Self {
        self.progress = Box::new(tell);
        self
    }

    /// The weights of a product, as [`Linear`](warpsmith_layers::Linear) takes them.
    ///
    /// # Errors
    /// Unsupported, if a weight is in no format that kernels take; data, if a scale is NaN; driver, if the device has no room.
    pub fn product(&mut self, product: &Product<'_>) -> Result<Quantised> {
        let format = product.weight_format(None)?;
        let parts = packed(product, format)?;
        let (codes, scales, bias) = self.sent(&[product], &parts)?;
        let all = with_bias(quantised(format, codes, scales), bias);
        Ok(match multiplier(&parts) {
            Multiplier::All(factor) => all.alpha(factor),
            Multiplier::Rows(factors) => all.row_scale(self.stream.clone_htod(&factors)?),
        })
    }

    /// Codes `[N, K/2]` and scales `[N, K/16]` of a product alone, in NVFP4, for who makes layers of their own. What multiplies them is
    /// the [factor](Packed::factor) of each part, which [`Product::multiplier`] has for all where MXFP4 does not stay so.
    ///
    /// # Errors
    /// As for [`Uploader::product`].
    pub fn uploaded(&mut self, product: &Product<'_>) -> Result<[CudaSlice<u8>; 2]> {
        let (codes, scales, _) = self.sent(&[product], &packed(product, Format::Nvfp4)?)?;
        Ok([codes, scales])
    }

    /// The weights of an MLP, as [`GatedMlp`](warpsmith_layers::GatedMlp) takes them.
    ///
    /// # Errors
    /// As for [`Uploader::product`].
    pub fn mlp(&mut self, mlp: &Mlp<'_>) -> Result<MlpWeights> {
        let all = std::slice::from_ref(mlp);
        self.mlps(all, weight_format(all, None)?)
    }

    /// The weights of experts, as [`Moe`](warpsmith_layers::Moe) takes them.
    ///
    /// # Errors
    /// As for [`Uploader::product`].
    pub fn moe(&mut self, moe: &Moe<'_>) -> Result<MoeWeights> {
        let mut weights =
            MoeWeights::new(self.mlps(moe.experts(), weight_format(moe.experts(), None)?)?).scale(moe.rule().scale());
        if let Some(shared) = moe.shared() {
            weights = weights.shared(self.mlps(std::slice::from_ref(shared), Format::Nvfp4)?);
        }
        if let Some(gate) = moe.shared_gate() {
            weights = weights.shared_gate(self.stream.clone_htod(&gate.dequantised()?)?);
        }
        if !moe.router_bias().is_empty() {
            weights = weights.router_bias(self.stream.clone_htod(moe.router_bias())?);
        }
        Ok(weights)
    }

    fn mlps(&mut self, all: &[Mlp<'_>], format: Format) -> Result<MlpWeights> {
        let (ups, downs): (Vec<_>, Vec<_>) = all.iter().map(|mlp| (mlp.up(), mlp.down())).unzip();
        let gates: Vec<_> = all.iter().filter_map(Mlp::gate).collect();
        let gate = if gates.is_empty() { None } else { Some(self.stack(&gates, format)?) };
        let (up, down) = (self.stack(&ups, format)?, self.stack(&downs, format)?);
        Ok(match gate {
            Some(gate) => MlpWeights::gated(gate, up, down),
            None => MlpWeights::ungated(up, down),
        })
    }

    /// Products of the same shape, one of each expert, or one.
    fn stack(&mut self, all: &[&Product<'_>], format: Format) -> Result<Quantised> {
        let mut parts = Vec::with_capacity(all.len());
        let mut factors = Vec::with_capacity(all.len());
        for product in all {
            let of = packed(product, format)?;
            let Multiplier::All(factor) = multiplier(&of) else {
                let name = product.name();
                return Err(Error::unsupported(format!(
                    "`{name}`: an MLP whose projections are of parts with factors of their own"
                )));
            };
            factors.push(factor);
            parts.extend(of);
        }
        let (codes, scales, bias) = self.sent(all, &parts)?;
        let weights = with_bias(quantised(format, codes, scales), bias);
        Ok(match factors[..] {
            [one] => weights.alpha(one),
            _ => weights.alpha(self.stream.clone_htod(&factors)?),
        })
    }

    /// Codes, scales, biases.
    fn sent(
        &mut self,
        of: &[&Product<'_>],
        parts: &[Packed<'_>],
    ) -> Result<(CudaSlice<u8>, CudaSlice<u8>, Option<OnDevice>)> {
        let values: usize = parts.iter().map(|part| part.rows() * part.columns()).sum();
        let mut room = Vec::new();
        let codes = self.send(values / 2, |sink| {
            parts.iter().try_for_each(|part| match part.all_codes() {
                Some(all) => sink.push_lasting(all, None),
                None => (0..part.rows()).try_for_each(|row| sink.push(part.codes_of(row, &mut room))),
            })
        })?;
        let mut room = Vec::new();
        let blocks = |part: &Packed<'_>| part.rows() * part.columns() / part.format().scale_block().unwrap_or(1);
        let scales = self.send(parts.iter().map(blocks).sum(), |sink| {
            parts.iter().try_for_each(|part| match part.all_scales() {
                Some((all, nan)) => sink.push_lasting(all, Some(nan)),
                None => (0..part.rows()).try_for_each(|row| sink.push(part.scales_of(row, &mut room)?)),
            })
        });
        // Where one is that is NaN, is asked for once it is known to be there.
        let named = |error| parts.iter().find_map(|part| part.check_scales().err()).unwrap_or(error);
        let scales = scales.map_err(named)?;
        let biases: Vec<_> = of.iter().filter_map(|product| product.bias()).collect();
        Ok((codes, scales, self.bias(&biases)?))
    }

    fn send<'d>(&mut self, bytes: usize, write: impl FnOnce(&mut Sink<'_, 'd>) -> Result<()>) -> Result<CudaSlice<u8>> {
        let Self { stream, pinned, sent, progress } = self;
        let mut tell = |copied| {
            *sent += copied;
            progress(*sent);
        };
        pinned.send(stream, bytes, &mut tell, write)
    }

    fn bias(&self, all: &[&Bias]) -> Result<Option<OnDevice>> {
        let Some(first) = all.first() else { return Ok(None) };
        let values = all.iter().flat_map(|bias| bias.values.iter().copied());
        Ok(Some(match first.format {
            Format::F16 => OnDevice::F16(self.stream.clone_htod(&values.map(f16::from_f32).collect::<Vec<_>>())?),
            Format::Bf16 => OnDevice::Bf16(self.stream.clone_htod(&values.map(bf16::from_f32).collect::<Vec<_>>())?),
            _ => OnDevice::F32(self.stream.clone_htod(&values.collect::<Vec<_>>())?),
        }))
    }
}

/// A bias, in the format that it was stored in.
enum OnDevice {
    F16(CudaSlice<f16>),
    Bf16(CudaSlice<bf16>),
    F32(CudaSlice<f32>),
}

fn with_bias(weights: Quantised, bias: Option<OnDevice>) -> Quantised {
    match bias {
        None => weights,
        Some(OnDevice::F16(values)) => weights.bias(values),
        Some(OnDevice::Bf16(values)) => weights.bias(values),
        Some(OnDevice::F32(values)) => weights.bias(values),
    }
}

fn quantised(format: Format, codes: CudaSlice<u8>, scales: CudaSlice<u8>) -> Quantised {
    if format == Format::Mxfp4 { Quantised::mxfp4(codes, scales) } else { Quantised::new(codes, scales) }
}

fn packed<'a>(product: &Product<'a>, format: Format) -> Result<Vec<Packed<'a>>> {
    product.parts().iter().map(|part| part.packed_in(format)).collect()
}

fn multiplier(parts: &[Packed<'_>]) -> Multiplier {
    Multiplier::of(parts.iter().map(|part| (part.factor(), part.rows())))
}
