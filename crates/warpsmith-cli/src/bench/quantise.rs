//! Quantisers: checked against the oracle, then timed with tensors that are not in the L2 cache.

use std::time::Duration;

use cudarc::driver::CudaSlice;
use warpsmith::cache::KernelCache;
use warpsmith::format::Format;
use warpsmith::run::{QuantiseOperands, Quantiser};
use warpsmith::spec::{Arch, Quantise};
use warpsmith_tune::oracle::combine::rounded;
use warpsmith_tune::oracle::quantise::{quantise as expected, to_e4m3};
use warpsmith_tune::{Numbers, operand_sets, wait};

use super::Args;
use super::small;
use crate::shared::Result;
use crate::shared::gpu::Gpu;
use crate::shared::place::Place;

/// Numbers of rows where none are said.
const TOKENS: [u32; 6] = [1, 8, 32, 128, 1024, 8192];
/// Rows that the oracle quantises at most.
const CHECKED: u32 = 16;
/// Values that are drawn; longer tensors repeat them.
const DRAWN: usize = 1 << 20;
/// Where it is given.
const FACTOR: f32 = 3.0e-4;
const LIMIT: Duration = Duration::from_secs(10);

/// Whether everything is right.
pub fn run(args: &Args, place: &Place, cache: KernelCache) -> Result<bool> {
    for quantise in &args.quantise {
        quantise.check()?;
    }
    let tokens = if args.tokens.is_empty() { &TOKENS[..] } else { &args.tokens };
    small::run(&args.quantise, "quantise", tokens, place, cache, |gpu, quantise, tokens, arch| {
        let quantiser = gpu.engine().quantise(quantise)?;
        let drawn = drawn(quantise.x_format());
        Ok(match is_as_expected(gpu, &quantiser, tokens.min(CHECKED), &drawn)? {
            true => Ok(timed(gpu, &quantiser, tokens, &drawn, arch)?),
            false => Err("other bits than the oracle's".to_owned()),
        })
    })
}

fn drawn(format: Format) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(0x5EED);
    (0..DRAWN).map(|_| rounded(format, random.f32() * 2.0 - 1.0)).collect()
}

/// The operands of one launch.
struct Set {
    x: Numbers,
    codes: CudaSlice<u8>,
    scales: CudaSlice<u8>,
    factor: CudaSlice<f32>,
    row_factors: CudaSlice<f32>,
}

impl Set {
    fn new(gpu: &Gpu, quantise: &Quantise, tokens: u32, drawn: &[f32]) -> Result<Self> {
        let (stream, m, k) = (gpu.stream(), tokens as usize, quantise.row_length() as usize);
        Ok(Self {
            x: Numbers::new(stream, quantise.x_format(), drawn, m * k)?,
            codes: stream.alloc_zeros(quantise.to_format().bytes(m * k))?,
            scales: stream.alloc_zeros(quantise.scale_layout().bytes(m, k))?,
            factor: stream.alloc_zeros(Quantise::OWN_LENGTH)?,
            row_factors: stream.alloc_zeros(m * quantise.row_factors().max(1) as usize)?,
        })
    }

    fn operands(&mut self, quantise: &Quantise, tokens: u32) -> QuantiseOperands<'_> {
        if quantise.to_format() == Format::E4m3 {
            return QuantiseOperands::e4m3(tokens, self.x.values(), &mut self.codes, &mut self.row_factors);
        }
        let operands = QuantiseOperands::new(tokens, self.x.values(), &mut self.codes, &mut self.scales);
        if quantise.is_own() { operands.own_factor(&mut self.factor) } else { operands.factor(FACTOR) }
    }
}

fn is_as_expected(gpu: &Gpu, quantiser: &Quantiser, tokens: u32, drawn: &[f32]) -> Result<bool> {
    let (quantise, stream) = (quantiser.quantise(), gpu.stream());
    let mut set = Set::new(gpu, quantise, tokens, drawn)?;
    quantiser.launch(stream, set.operands(quantise, tokens))?;
    wait(stream, LIMIT)?;
    if quantise.to_format() == Format::E4m3 {
        let expected = to_e4m3(quantise, tokens, &set.x.to_host(stream)?)?;
        let factors = stream.clone_dtoh(&set.row_factors)?;
        return Ok(stream.clone_dtoh(&set.codes)? == expected.values && factors == expected.factors);
    }
    let given = (!quantise.is_own()).then_some(FACTOR);
    let expected = expected(quantise, tokens, &set.x.to_host(stream)?, given)?;
    let is_factor = given.is_some() || stream.clone_dtoh(&set.factor)?.first() == Some(&expected.factor);
    let codes = stream.clone_dtoh(&set.codes)?;
    Ok(is_factor && codes == expected.codes && stream.clone_dtoh(&set.scales)? == expected.scales)
}

/// Microseconds of a plain and of a dependent launch, and those that its bytes take: x is read twice for a factor of its own.
fn timed(gpu: &Gpu, quantiser: &Quantiser, tokens: u32, drawn: &[f32], arch: &Arch) -> Result<[f64; 3]> {
    let quantise = quantiser.quantise();
    let (m, k) = (tokens as usize, quantise.row_length() as usize);
    let of_x = quantise.x_format().bytes(m * k);
    // A row that is read again is near.
    let reads = if quantise.is_own() { 2 } else { 1 };
    let scales = match quantise.to_format() {
        Format::E4m3 => Format::F32.bytes(m * quantise.row_factors() as usize),
        _ => quantise.scale_layout().bytes(m, k),
    };
    let bytes = (reads * of_x + quantise.to_format().bytes(m * k) + scales) as u64;
    let sets = (0..operand_sets(bytes, arch.l2_bytes())).map(|_| Set::new(gpu, quantise, tokens, drawn));
    let mut sets = sets.collect::<Result<Vec<_>>>()?;
    small::times(gpu, arch, bytes, sets.len(), |set, is_dependent| {
        let operands = sets[set].operands(quantise, tokens);
        match is_dependent {
            true => quantiser.launch_dependent(gpu.stream(), operands),
            false => quantiser.launch(gpu.stream(), operands),
        }
    })
}
