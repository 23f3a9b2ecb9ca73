//! Kernels without matrix instructions: checked, then timed with operands that are not in the L2 cache.

use std::fmt::Display;

use cudarc::driver::{CudaSlice, DeviceRepr, ValidAsZeroBits};
use half::{bf16, f16};
use warpsmith::cache::KernelCache;
use warpsmith::format::Format;
use warpsmith::internal::build::Simt;
use warpsmith::run::{MatrixMut, Values};
use warpsmith::spec::Arch;
use warpsmith_tune::Timer;

use crate::shared::gpu::Gpu;
use crate::shared::place::Place;
use crate::shared::{Result, say};

/// Microseconds of a plain and of a dependent launch, and those that its bytes take; or what is wrong.
pub(super) type Timed = std::result::Result<[f64; 3], String>;

/// Times kernels, each for all these numbers of tokens; without a device only builds them. Whether everything is right.
pub(super) fn run<T: Copy + Display + Into<Simt>>(
    all: &[T],
    kind: &str,
    tokens: &[u32],
    place: &Place,
    cache: KernelCache,
    timed: impl Fn(&Gpu, &T, u32, &Arch) -> Result<Timed>,
) -> Result<bool> {
    let Place::Device(device) = place else {
        for one in all {
            let fetched = cache.simt_cubin(*one, &place.arch())?;
            say!("{one}: built")?;
            fetched.cubin().resources().iter().try_for_each(|resources| say!("  {resources}"))?;
        }
        return Ok(true);
    };
    let gpu = Gpu::new(device, cache)?;
    let arch = *gpu.engine().device().arch();
    say!("floor: bytes at {:.0} GB/s; medians, operands not in the L2 cache", arch.memory_bytes_per_s() / 1e9)?;
    say!("{:>7} {:>9} {:>11} {:>9}  {kind}", "tokens", "plain us", "dependent", "floor us")?;
    let mut is_right = true;
    for one in all {
        for tokens in tokens {
            match timed(&gpu, one, *tokens, &arch)? {
                Ok([plain, dependent, floor]) => {
                    say!("{tokens:>7} {plain:>9.2} {dependent:>11.2} {floor:>9.2}  {one}")?;
                }
                Err(why) => {
                    is_right = false;
                    say!("{tokens:>7} WRONG: {why}  {one}")?;
                }
            }
        }
    }
    Ok(is_right)
}

/// The times of a launch that takes its operands from one set after the other and moves so many bytes.
pub(super) fn times(
    gpu: &Gpu,
    arch: &Arch,
    bytes: u64,
    sets: usize,
    mut launch: impl FnMut(usize, bool) -> warpsmith::Result<()>,
) -> Result<[f64; 3]> {
    let timer = Timer::new(gpu.stream())?;
    let plain = timer.time(sets, |set| launch(set, false))?;
    let dependent = timer.time(sets, |set| launch(set, true))?;
    Ok([plain.median_us, dependent.median_us, bytes as f64 / arch.memory_bytes_per_s() * 1e6])
}

/// Values on the device in their format.
pub(super) enum Memory {
    F32(CudaSlice<f32>),
    F16(CudaSlice<f16>),
    Bf16(CudaSlice<bf16>),
}

impl Memory {
    /// `length` values, `drawn` over and over.
    pub(super) fn new(gpu: &Gpu, format: Format, drawn: &[f32], length: usize) -> Result<Self> {
        Ok(match format {
            Format::F16 => Self::F16(repeated(gpu, drawn.iter().map(|x| f16::from_f32(*x)).collect(), length)?),
            Format::Bf16 => Self::Bf16(repeated(gpu, drawn.iter().map(|x| bf16::from_f32(*x)).collect(), length)?),
            _ => Self::F32(repeated(gpu, drawn.to_vec(), length)?),
        })
    }

    pub(super) fn values(&self) -> Values<'_> {
        match self {
            Self::F32(values) => values.into(),
            Self::F16(values) => values.into(),
            Self::Bf16(values) => values.into(),
        }
    }

    pub(super) fn result(&mut self) -> MatrixMut<'_> {
        match self {
            Self::F32(values) => values.into(),
            Self::F16(values) => values.into(),
            Self::Bf16(values) => values.into(),
        }
    }

    pub(super) fn to_host(&self, gpu: &Gpu) -> Result<Vec<f32>> {
        let stream = gpu.stream();
        Ok(match self {
            Self::F32(values) => stream.clone_dtoh(values)?,
            Self::F16(values) => stream.clone_dtoh(values)?.into_iter().map(f16::to_f32).collect(),
            Self::Bf16(values) => stream.clone_dtoh(values)?.into_iter().map(bf16::to_f32).collect(),
        })
    }
}

fn repeated<T: DeviceRepr + ValidAsZeroBits>(gpu: &Gpu, drawn: Vec<T>, length: usize) -> Result<CudaSlice<T>> {
    let stream = gpu.stream();
    let (drawn, mut all) = (stream.clone_htod(&drawn)?, stream.alloc_zeros::<T>(length)?);
    for first in (0..length).step_by(drawn.len()) {
        let count = drawn.len().min(length - first);
        stream.memcpy_dtod(&drawn.slice(..count), &mut all.slice_mut(first..first + count))?;
    }
    Ok(all)
}
