//! Kernels without matrix instructions: checked, then timed with operands that are not in the L2 cache.

use std::fmt::Display;

use warpsmith::cache::KernelCache;
use warpsmith::internal::build::Simt;
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
