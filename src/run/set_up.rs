//! What is done once for each kernel of a module, so that launches need not.

use cudarc::driver::CudaContext;

use super::code::Code;
use super::launch::Ready;
use super::module::Function;
use super::refused;
use crate::error::{Error, Result};
use crate::spec::{Launch, PassKind, Problem, Spec};

/// Dynamic shared memory that every block may have without asking.
const SHARED_WITHOUT_ASKING: u32 = 48 * 1024;

/// The most rows whose blocks a grid has room for: there is for all fewer.
pub(super) fn most_rows(spec: &Spec) -> u32 {
    let (mut fits, mut beyond) = (0, Problem::M_MAX + 1);
    while beyond - fits > 1 {
        let middle = fits + (beyond - fits) / 2;
        if spec.fits_grid(middle) { fits = middle } else { beyond = middle }
    }
    fits
}

/// The kernel of a launch.
pub(super) fn ready(context: &CudaContext, code: &Code, spec: &Spec, launch: Launch) -> Result<Ready> {
    let symbol = match launch.kind {
        PassKind::Prepass => spec.prepass_symbol(),
        PassKind::Products { .. } => Some(spec.symbol()),
        PassKind::Finish => spec.finish_symbol(),
    };
    set_up(context, code, symbol, launch)
}

/// The kernel that takes the place of the prepass in dependent launches, and up to how many rows.
pub(super) fn early_prepass(context: &CudaContext, code: &Code, spec: &Spec) -> Result<Option<(Ready, u32)>> {
    let ready = |launch| set_up(context, code, spec.early_prepass_symbol(), launch);
    spec.early_prepass().map(|(launch, rows)| Ok((ready(launch)?, rows))).transpose()
}

/// A kernel of the module, set up and found to fit the device.
fn set_up(context: &CudaContext, code: &Code, symbol: Option<String>, launch: Launch) -> Result<Ready> {
    let symbol = symbol.ok_or_else(|| Error::internal("a pass without its kernel"))?;
    let function = code.entry(&symbol).map_err(|error| refused(format!("the cubin has no entry {symbol}"), error))?;
    // cudarc binds the context for what goes through it, which this does not.
    context.bind_to_thread().map_err(|error| refused("binding the context", error))?;
    let bytes = launch.most_shared_bytes();
    if bytes > SHARED_WITHOUT_ASKING {
        let refuses = |error| refused(format!("asking for {bytes} bytes of shared memory a block"), error);
        function.allow_shared(bytes).map_err(refuses)?;
    }
    fits(function, launch.threads)?;
    Ok(Ready::new(function, launch))
}

/// Checks that a block of `threads` threads can have the registers and the barriers that the compiler gave the kernel.
fn fits(function: Function, threads: u32) -> Result<()> {
    let ask = || Ok((function.max_threads()?, function.registers()?));
    let (most, registers) = ask().map_err(|error| refused("asking for the kernel's limits", error))?;
    if most < threads {
        return Err(Error::unsupported(format!(
            "a block has {threads} threads, but with {registers} registers each the device runs at most {most}"
        )));
    }
    Ok(())
}
