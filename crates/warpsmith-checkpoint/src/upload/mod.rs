//! Weights on a device.

mod fill;
mod ring;

use std::fmt;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaSlice, CudaStream};
use half::{bf16, f16};
use warpsmith::format::Format;
use warpsmith::internal::{Raise, refused};
use warpsmith::{Error, Result};
use warpsmith_layers::{MlpWeights, MoeWeights, Quantised};

pub(crate) use ring::Ring;
use ring::timed;

use crate::module::{Bias, Mlp, Moe, Multiplier, Product, weight_format};
use crate::weight::{Packed, Source};

/// Bytes of all buffers, unless said otherwise: they stay in a processor's last cache.
const BUFFERS: usize = 32 << 20;

/// Puts weights on a device, through buffers of pinned memory that take turns: threads fill some while others are copied.
///
/// It uses the memory of its buffers and of a row a thread besides, whatever the size of what it uploads. Copies are in its
/// stream: whoever uses another waits for an event of this one.
pub struct Uploader<'p> {
    stream: Arc<CudaStream>,
    ring: Ring,
    sent: u64,
    progress: Box<dyn FnMut(u64) + Send + 'p>,
    allocating: Duration,
}

/// Where an [`Uploader`]'s time went so far. What of a call is none of this is planning.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct UploadTimes {
    /// Getting memory of the device.
    pub allocating: Duration,
    /// Until buffers were full; the calling thread helps.
    pub filling: Duration,
    /// Until buffers that were filled before were copied.
    pub waiting: Duration,
    /// Asking for copies.
    pub copying: Duration,
    /// What all threads together filled buffers for.
    pub threads: Duration,
}

impl fmt::Debug for Uploader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uploader").field("sent", &self.sent).finish_non_exhaustive()
    }
}

impl<'p> Uploader<'p> {
    /// In this stream, through buffers of 32 MiB in all.
    ///
    /// # Errors
    /// Driver, if there is no pinned memory.
    pub fn new(stream: &Arc<CudaStream>) -> Result<Self> {
        Self::with_buffers(stream, BUFFERS)
    }

    /// In this stream, through buffers of so many bytes in all.
    ///
    /// # Errors
    /// Driver, if there is no pinned memory; operand, if they have less than 2 bytes.
    pub fn with_buffers(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self> {
        let ring = Ring::new(stream, bytes)?;
        Ok(Self { stream: stream.clone(), ring, sent: 0, progress: Box::new(|_| {}), allocating: Duration::ZERO })
    }

    /// Fills buffers by so many threads: one copies from mapped files slower than a device takes it. As many as there are
    /// cores, 16 at most, unless said otherwise.
    #[must_use]
    pub fn threads(mut self, threads: NonZero<usize>) -> Self {
        self.ring.threads = threads.get();
        self
    }

    /// Where the time went so far.
    #[must_use]
    pub fn times(&self) -> UploadTimes {
        let (spent, threads) = self.ring.spent();
        let (filling, waiting, copying) = (spent.filling, spent.waiting, spent.copying);
        UploadTimes { allocating: self.allocating, filling, waiting, copying, threads }
    }

    /// Tells how many bytes have been copied so far, after each copy: [`Module::bytes`](crate::Module::bytes) in the end.
    #[must_use]
    pub fn progress(mut self, tell: impl FnMut(u64) + Send + 'p) -> Self {
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
        let [codes, scales] = self.pair(&parts)?;
        let weights = self.with_bias(quantised(format, codes, scales), product.bias().as_slice())?;
        Ok(match multiplier(&parts) {
            Multiplier::All(factor) => weights.alpha(factor),
            Multiplier::Rows(factors) => weights.row_scale(self.stream.clone_htod(&factors)?),
        })
    }

    /// Codes `[N, K/2]` and scales `[N, K/16]` of a product alone, in NVFP4, for who makes layers of their own. What multiplies them is
    /// the [factor](Packed::factor) of each part, which [`Product::multiplier`] has for all where MXFP4 does not stay so.
    ///
    /// # Errors
    /// As for [`Uploader::product`].
    pub fn uploaded(&mut self, product: &Product<'_>) -> Result<[CudaSlice<u8>; 2]> {
        self.pair(&packed(product, Format::Nvfp4)?)
    }

    /// The weights of an MLP, as [`GatedMlp`](warpsmith_layers::GatedMlp) takes them.
    ///
    /// # Errors
    /// As for [`Uploader::product`].
    pub fn mlp(&mut self, mlp: &Mlp<'_>) -> Result<MlpWeights> {
        let all = std::slice::from_ref(mlp);
        let stacks = Stack::of_mlps(all, weight_format(all, None)?)?;
        self.stacks(&stacks).and_then(mlp_weights)
    }

    /// The weights of experts, as [`Moe`](warpsmith_layers::Moe) takes them.
    ///
    /// # Errors
    /// As for [`Uploader::product`].
    pub fn moe(&mut self, moe: &Moe<'_>) -> Result<MoeWeights> {
        let mut stacks = Stack::of_mlps(moe.experts(), weight_format(moe.experts(), None)?)?;
        let of_experts = stacks.len();
        if let Some(shared) = moe.shared() {
            stacks.extend(Stack::of_mlps(std::slice::from_ref(shared), Format::Nvfp4)?);
        }
        let mut all = self.stacks(&stacks)?;
        let shared = all.split_off(of_experts);
        let mut weights = MoeWeights::new(mlp_weights(all)?).scale(moe.rule().scale());
        if moe.shared().is_some() {
            weights = weights.shared(mlp_weights(shared)?);
        }
        if let Some(gate) = moe.shared_gate() {
            weights = weights.shared_gate(self.stream.clone_htod(&gate.dequantised()?)?);
        }
        if !moe.router_bias().is_empty() {
            weights = weights.router_bias(self.stream.clone_htod(moe.router_bias())?);
        }
        Ok(weights)
    }

    fn stacks(&mut self, all: &[Stack<'_>]) -> Result<Vec<Quantised>> {
        let parts: Vec<_> = all.iter().map(|stack| &stack.parts[..]).collect();
        let sent = self.send(&parts)?;
        let weights = all.iter().zip(sent).map(|(stack, [codes, scales])| {
            let weights = self.with_bias(quantised(stack.format, codes, scales), &stack.biases)?;
            Ok(match stack.factors[..] {
                [one] => weights.alpha(one),
                _ => weights.alpha(self.stream.clone_htod(&stack.factors)?),
            })
        });
        weights.collect()
    }

    fn pair(&mut self, parts: &[Packed<'_>]) -> Result<[CudaSlice<u8>; 2]> {
        self.send(&[parts])?.pop().ok_or_else(|| Error::internal("nothing was uploaded"))
    }

    /// Codes and scales of each, in one go.
    fn send(&mut self, all: &[&[Packed<'_>]]) -> Result<Vec<[CudaSlice<u8>; 2]>> {
        let sources: Vec<Vec<_>> = all
            .iter()
            .flat_map(|parts| [parts.iter().map(Packed::codes).collect(), parts.iter().map(Packed::scales).collect()])
            .collect();
        let Self { stream, ring, sent, progress, allocating } = self;
        let memory = timed(allocating, || {
            let memory = sources.iter().map(|sources| {
                let bytes = sources.iter().map(Source::bytes).sum();
                // SAFETY: all of it is written below, or it is freed.
                let memory = unsafe { stream.alloc::<u8>(bytes) };
                memory.map_err(|error| refused(format!("allocating {bytes} bytes"), error))
            });
            memory.collect::<Result<Vec<_>>>()
        });
        let mut memory = memory?;
        let mut tell = |copied| {
            *sent += copied;
            progress(*sent);
        };
        let mut to: Vec<_> = memory.iter_mut().map(|memory| memory.slice_mut(..)).collect();
        let done = ring.send(stream, &mut to, &sources, &mut tell);
        // Where one is that is NaN, is asked for once it is known to be there.
        let named = |error| all.iter().copied().flatten().find_map(|part| part.check_scales().err()).unwrap_or(error);
        done.map_err(named)?;
        let mut memory = memory.into_iter();
        let mut pairs = Vec::with_capacity(all.len());
        while let (Some(codes), Some(scales)) = (memory.next(), memory.next()) {
            pairs.push([codes, scales]);
        }
        Ok(pairs)
    }

    fn with_bias(&self, weights: Quantised, all: &[&Bias]) -> Result<Quantised> {
        let Some(first) = all.first() else { return Ok(weights) };
        let values = all.iter().flat_map(|bias| bias.values.iter().copied());
        Ok(match first.format {
            Format::F16 => weights.bias(self.stream.clone_htod(&values.map(f16::from_f32).collect::<Vec<_>>())?),
            Format::Bf16 => weights.bias(self.stream.clone_htod(&values.map(bf16::from_f32).collect::<Vec<_>>())?),
            _ => weights.bias(self.stream.clone_htod(&values.collect::<Vec<_>>())?),
        })
    }
}

/// Products of the same shape, one of each expert, or one.
struct Stack<'a> {
    format: Format,
    parts: Vec<Packed<'a>>,
    factors: Vec<f32>,
    biases: Vec<&'a Bias>,
}

impl<'a> Stack<'a> {
    /// Of gates, if there are any, of ups and of downs.
    fn of_mlps(all: &'a [Mlp<'_>], format: Format) -> Result<Vec<Self>> {
        let gates: Vec<_> = all.iter().filter_map(Mlp::gate).collect();
        let (ups, downs): (Vec<_>, Vec<_>) = all.iter().map(|mlp| (mlp.up(), mlp.down())).unzip();
        [gates, ups, downs].iter().filter(|all| !all.is_empty()).map(|all| Self::of(all, format)).collect()
    }

    fn of(all: &[&'a Product<'_>], format: Format) -> Result<Self> {
        let mut stack = Self { format, parts: Vec::new(), factors: Vec::new(), biases: Vec::new() };
        for product in all {
            let parts = packed(product, format)?;
            let Multiplier::All(factor) = multiplier(&parts) else {
                let name = product.name();
                return Err(Error::unsupported(format!(
                    "`{name}`: an MLP whose projections are of parts with factors of their own"
                )));
            };
            stack.factors.push(factor);
            stack.parts.extend(parts);
            stack.biases.extend(product.bias());
        }
        Ok(stack)
    }
}

/// Of a gate, if there is one, up and down.
fn mlp_weights(mut all: Vec<Quantised>) -> Result<MlpWeights> {
    match (all.pop(), all.pop(), all.pop()) {
        (Some(down), Some(up), Some(gate)) => Ok(MlpWeights::gated(gate, up, down)),
        (Some(down), Some(up), None) => Ok(MlpWeights::ungated(up, down)),
        _ => Err(Error::internal("an MLP without products")),
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
