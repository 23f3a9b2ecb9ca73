//! A device, opened by its ordinal.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{CUcontext, CUdevice_attribute, CUresult};
use cudarc::driver::{CudaContext, CudaStream, DriverError};

use super::capture::{is_captured, others_are_captured};
use super::code::Modules;
use super::driver::{DriverVersion, driver};
use super::refused;
use super::retired::Owner;
use crate::error::{Error, Result};
use crate::spec::{Arch, ComputeCapability, DeviceFacts};

/// One GPU: its context, what it is, and the driver under it. Cloning shares the context.
#[derive(Clone, Debug)]
pub struct Device {
    context: Arc<CudaContext>,
    arch: Arch,
    facts: DeviceFacts,
    driver: DriverVersion,
    modules: Arc<Modules>,
}

impl Device {
    /// The number of devices; 0 where the driver finds none.
    ///
    /// # Errors
    /// Missing library, if there is no CUDA driver or it is too old ([`DriverVersion::OLDEST`]); driver, if it cannot
    /// be initialised.
    pub fn count() -> Result<usize> {
        driver()?;
        count_devices()
    }

    /// Opens a device by its ordinal, with the context that every CUDA library in the process shares (the primary one).
    ///
    /// # Errors
    /// As [`Device::count`]; driver, if there is no such device; unsupported, if no architecture row fits it.
    pub fn open(ordinal: usize) -> Result<Self> {
        let driver = driver()?.version;
        let count = count_devices()?;
        if ordinal >= count {
            return Err(Error::driver(match count {
                0 => "the CUDA driver finds no device (CUDA_VISIBLE_DEVICES may hide it)".to_owned(),
                _ => format!("there is no device {ordinal}: the CUDA driver finds {count}, counted from 0"),
            }));
        }
        let context = CudaContext::new(ordinal).map_err(|error| refused(format!("opening device {ordinal}"), error))?;
        Self::describe(context, driver, None)
    }

    /// A device of one's own with its only stream, which can be captured: [`Device::open`] without cudarc's event
    /// tracking. Whoever calls this puts all work on this device into this stream.
    pub(crate) fn open_for_one_stream(ordinal: usize) -> Result<(Self, Arc<CudaStream>)> {
        let device = Self::open(ordinal)?;
        // SAFETY: tracking orders the use of a buffer by several streams. `open` has made this cudarc context, nobody
        // else has it, and the caller uses one stream.
        unsafe { device.context.disable_event_tracking() };
        let stream = device.context.new_stream().map_err(|error| refused("making a stream", error))?;
        Ok((device, stream))
    }

    /// The device of a context that something else has opened with this cudarc: then operands, streams and kernels all
    /// belong to that one.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn of_context(context: &Arc<CudaContext>) -> Result<Self> {
        Self::describe(Arc::clone(context), driver()?.version, None)
    }

    /// The device of a context that another cudarc, a framework or a C program has made: its primary one, mostly. Launches
    /// go into [raw streams](Device::raw_stream), and cudarc's event tracking is off.
    ///
    /// # Safety
    /// `context` is a context (`CUcontext`) of device `ordinal`. It stays alive until this device, its clones and
    /// everything that was made from them are dropped; `owner` sees to that, if it is given. Whoever makes streams and
    /// slices from [`Device::context`] orders their use, as
    /// [`disable_event_tracking`](CudaContext::disable_event_tracking) asks.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub unsafe fn from_raw(ordinal: usize, context: *mut c_void, owner: Option<Owner>) -> Result<Self> {
        let driver = driver()?.version;
        let refuses = |error| refused(format!("taking over a context of device {ordinal}"), error);
        let handle: CUcontext = context.cast();
        let primary = CudaContext::new(ordinal).map_err(refuses)?;
        let context = if primary.cu_ctx() == handle {
            primary
        } else {
            // SAFETY: the caller's promise. cudarc would destroy it with its last holder: one is never dropped.
            let other = unsafe { CudaContext::from_raw_context(ordinal, primary.cu_device(), handle) };
            let other = other.map_err(refuses)?;
            std::mem::forget(Arc::clone(&other));
            other
        };
        // SAFETY: nobody else has this object yet, and the caller promises for what is made from it.
        unsafe { context.disable_event_tracking() };
        Self::describe(context, driver, owner)
    }

    fn describe(context: Arc<CudaContext>, driver: DriverVersion, owner: Option<Owner>) -> Result<Self> {
        let doing = || format!("asking device {} what it is", context.ordinal());
        let facts = facts(&context).map_err(|error| refused(doing(), error))?;
        let arch = Arch::of_device(&facts)?;
        let modules = Modules::new(&context, owner);
        Ok(Self { context, arch, facts, driver, modules })
    }

    /// The context that operands, streams and kernels of this device belong to.
    #[must_use]
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Unloads kernels that were dropped, as far as nothing uses them any more; how many modules that were. A kernel is
    /// dropped when its last holder drops it: a cache that evicts it, a caller, a graph that it was captured into. What
    /// runs then may still be running, so the first call marks what is under way on the whole device, and this one or a
    /// later one unloads what was dropped before the mark. It waits for nothing that runs.
    ///
    /// Dropped kernels take some hundred KiB of device memory each until then. It is for a quiet moment: after a
    /// manifest was replaced, say, or between problems that are tuned.
    ///
    /// Not while a stream of this context is being captured: the mark would lose the capture (CUDA driver API,
    /// `cuCtxRecordEvent`). The driver tells of captures of streams that wait for the default stream, and then nothing is
    /// done; it does not tell of others, so whoever may be capturing one names it to [`Device::reclaim_beside`].
    ///
    /// # Errors
    /// Operand, if the driver tells of a capture: nothing was done, and the capture goes on; driver, if it refuses the
    /// mark.
    pub fn reclaim(&self) -> Result<usize> {
        self.reclaim_beside(&[])
    }

    /// As [`Device::reclaim`], where some of `streams`, of this context, may be being captured now.
    ///
    /// # Errors
    /// As [`Device::reclaim`]; operand, if one of `streams` is being captured: nothing was done, and the capture goes on.
    pub fn reclaim_beside(&self, streams: &[&CudaStream]) -> Result<usize> {
        let doing = "unloading kernels that were dropped";
        let is_captured = |streams: &[&CudaStream]| -> Result<bool> {
            let waiting = others_are_captured(&self.context).map_err(|error| refused(doing, error))?;
            streams.iter().try_fold(waiting, |found, stream| Ok(found || is_captured(stream)?))
        };
        if is_captured(streams)? {
            return Err(Error::operand(format!(
                "{doing}: a stream is being captured, and would lose that; call it later"
            )));
        }
        self.modules.retired().reclaim(&self.context).map_err(|error| error.context(doing))
    }

    /// How many modules of dropped kernels are still loaded.
    #[must_use]
    pub fn retired(&self) -> usize {
        self.modules.retired().modules()
    }

    /// What is loaded.
    pub(super) fn modules(&self) -> &Arc<Modules> {
        &self.modules
    }

    /// Its row of hardware numbers, with its own sizes and clocks.
    #[must_use]
    pub fn arch(&self) -> &Arch {
        &self.arch
    }

    /// What the driver says of it.
    #[must_use]
    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// What the driver calls it, such as `NVIDIA H200`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// Its ordinal.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.context.ordinal()
    }

    /// The CUDA version of its driver.
    #[must_use]
    pub fn driver_version(&self) -> DriverVersion {
        self.driver
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}: {}, {} SMs, driver CUDA {}", self.ordinal(), self.name(), self.arch.sms(), self.driver)
    }
}

fn facts(context: &CudaContext) -> Result<DeviceFacts, DriverError> {
    use CUdevice_attribute::*;
    let number = |attribute| context.attribute(attribute).map(|value| u32::try_from(value).unwrap_or(0));
    // A driver that does not know a number may refuse the question: a missing clock is no reason to refuse the device.
    let or_unknown = |attribute| number(attribute).unwrap_or(0);
    let memory_khz = u64::from(or_unknown(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE));
    let bus_bits = u64::from(or_unknown(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH));
    Ok(DeviceFacts {
        name: context.name()?,
        capability: ComputeCapability {
            major: number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            minor: number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        },
        sms: number(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_per_block: number(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        shared_per_sm: or_unknown(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        threads_per_sm: or_unknown(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
        l2_bytes: or_unknown(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE).into(),
        clock_mhz: or_unknown(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000,
        // Two bits a line and clock.
        memory_gb_per_s: u32::try_from(2 * memory_khz * bus_bits / 8 / 1_000_000).unwrap_or(0),
    })
}

fn count_devices() -> Result<usize> {
    match CudaContext::device_count() {
        Ok(count) => Ok(usize::try_from(count).unwrap_or(0)),
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => Ok(0),
        Err(error) => Err(refused("initialising the CUDA driver", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_is_told_the_remedy() {
        // On a machine with a driver this opens the device or says that there is none: no panic either way.
        match Device::open(0) {
            Ok(device) => assert!(device.arch().sms() > 0),
            Err(error) if error.is_missing_library() => assert!(error.to_string().contains("install"), "{error}"),
            Err(error) => assert!(error.is_driver() || error.is_unsupported(), "{error}"),
        }
    }
}
