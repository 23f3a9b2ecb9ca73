//! The driver's library, and what this crate asks of it beside what cudarc's bindings have in every version.
//!
//! Which functions cudarc declares depends on the CUDA version that the build chose for it, and how they are reached on
//! its linkage. Functions that not every version declares are looked up here, by name, whatever the linkage.

use std::fmt;
use std::sync::OnceLock;

use cudarc::driver::sys::{
    CUcontext, CUevent, CUgraph, CUgraphNode, CUresult, CUstream, CUstreamCaptureStatus, cuuint64_t,
};
use libloading::Library;

use super::refused;
use crate::error::{Error, Result};

/// Where cudarc looks first and last; the names between are those of systems that this crate does not run on.
const LIBRARIES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];

/// The CUDA version that a driver supports, such as 13.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriverVersion {
    /// The part before the point.
    pub major: u32,
    /// The part behind the point.
    pub minor: u32,
}

const fn since(major: u32, minor: u32) -> DriverVersion {
    DriverVersion { major, minor }
}

/// Every function of the driver that this crate and its layers call, by themselves or through cudarc, and the version that brought it. An
/// absent one would be a panic in cudarc's loader, so they are looked for before the first call.
const FUNCTIONS: &[(&str, DriverVersion)] = &[
    ("cuCtxGetCurrent", since(4, 0)),
    ("cuCtxSetCurrent", since(4, 0)),
    ("cuCtxSynchronize", since(2, 0)),
    ("cuDeviceGet", since(2, 0)),
    ("cuDeviceGetAttribute", since(2, 0)),
    ("cuDeviceGetCount", since(2, 0)),
    ("cuDeviceGetName", since(2, 0)),
    ("cuDevicePrimaryCtxRelease_v2", since(11, 0)),
    ("cuDevicePrimaryCtxRetain", since(7, 0)),
    ("cuDriverGetVersion", since(2, 2)),
    ("cuEventCreate", since(2, 0)),
    ("cuEventDestroy_v2", since(4, 0)),
    ("cuEventElapsedTime", since(2, 0)),
    ("cuEventQuery", since(2, 0)),
    ("cuEventRecord", since(2, 0)),
    ("cuEventSynchronize", since(2, 0)),
    ("cuFuncGetAttribute", since(2, 2)),
    ("cuFuncSetAttribute", since(9, 0)),
    ("cuGetErrorName", since(6, 0)),
    ("cuGetErrorString", since(6, 0)),
    ("cuGraphDestroy", since(10, 0)),
    ("cuGraphExecDestroy", since(10, 0)),
    ("cuGraphInstantiateWithFlags", since(11, 4)),
    ("cuGraphLaunch", since(10, 0)),
    ("cuGraphRetainUserObject", since(11, 3)),
    ("cuInit", since(2, 0)),
    ("cuLaunchKernel", since(4, 0)),
    ("cuLaunchKernelEx", since(11, 8)),
    ("cuMemAllocAsync", since(11, 2)),
    ("cuMemAlloc_v2", since(3, 2)),
    ("cuMemFreeAsync", since(11, 2)),
    ("cuMemFree_v2", since(3, 2)),
    ("cuMemcpy2DAsync_v2", since(3, 2)),
    ("cuMemcpyDtoDAsync_v2", since(3, 2)),
    ("cuMemcpyDtoHAsync_v2", since(3, 2)),
    ("cuMemcpyHtoDAsync_v2", since(3, 2)),
    ("cuMemsetD8Async", since(3, 2)),
    ("cuModuleGetFunction", since(2, 0)),
    ("cuModuleLoadData", since(2, 0)),
    ("cuModuleUnload", since(2, 0)),
    ("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", since(7, 0)),
    ("cuOccupancyMaxActiveClusters", since(11, 8)),
    ("cuStreamBeginCapture_v2", since(10, 1)),
    ("cuStreamCreate", since(2, 0)),
    ("cuStreamDestroy_v2", since(4, 0)),
    ("cuStreamEndCapture", since(10, 0)),
    ("cuStreamGetCaptureInfo_v2", since(11, 3)),
    ("cuStreamIsCapturing", since(10, 0)),
    ("cuStreamSynchronize", since(2, 0)),
    ("cuStreamWaitEvent", since(3, 2)),
    ("cuTensorMapEncodeTiled", since(12, 0)),
    ("cuThreadExchangeStreamCaptureMode", since(10, 1)),
    ("cuUserObjectCreate", since(11, 3)),
    ("cuUserObjectRelease", since(11, 3)),
];

type GetCaptureInfo = unsafe extern "C" fn(
    CUstream,
    *mut CUstreamCaptureStatus,
    *mut cuuint64_t,
    *mut CUgraph,
    *mut *const CUgraphNode,
    *mut usize,
) -> CUresult;
type ElapsedTime = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
type RecordContext = unsafe extern "C" fn(CUcontext, CUevent) -> CUresult;

/// The library, opened and found to have every function that is called.
pub(super) struct Driver {
    pub(super) version: DriverVersion,
    /// `cuStreamGetCaptureInfo_v2`: later bindings declare only `_v3`, which is of CUDA 12.3.
    pub(super) capture_info: GetCaptureInfo,
    /// `cuEventElapsedTime`: later bindings declare only `_v2`, which is of CUDA 12.8.
    pub(super) elapsed_time: ElapsedTime,
    /// `cuCtxRecordEvent`, which came with CUDA 12.5.
    pub(super) record_context: Option<RecordContext>,
    /// What the functions are of.
    _library: Library,
}

impl DriverVersion {
    /// The oldest driver that has every function this crate calls.
    pub const OLDEST: DriverVersion = newest_of(FUNCTIONS);

    /// That of the driver that is installed.
    ///
    /// # Errors
    /// Missing library, if there is none, or one that has not every function this crate calls.
    pub fn installed() -> Result<Self> {
        Ok(driver()?.version)
    }

    /// From the driver's own number, 1000 · major + 10 · minor.
    fn from_number(number: i32) -> Self {
        let number = u32::try_from(number).unwrap_or(0);
        Self { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

const fn newest_of(functions: &[(&str, DriverVersion)]) -> DriverVersion {
    let (mut newest, mut next) = (since(0, 0), 0);
    while next < functions.len() {
        let DriverVersion { major, minor } = functions[next].1;
        if major > newest.major || (major == newest.major && minor > newest.minor) {
            newest = functions[next].1;
        }
        next += 1;
    }
    newest
}

/// The driver, looked for at the first call that finds one.
pub(super) fn driver() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    match DRIVER.get() {
        Some(driver) => Ok(driver),
        None => Driver::open().map(|driver| DRIVER.get_or_init(|| driver)),
    }
}

impl Driver {
    fn open() -> Result<Self> {
        // SAFETY: it opens a shared library by name; its initialisers are the CUDA driver's own.
        let library = LIBRARIES.iter().find_map(|name| unsafe { Library::new(*name) }.ok()).ok_or_else(|| {
            Error::missing_library(
                "the CUDA driver library (libcuda.so.1) was not found: install the NVIDIA driver, or, in a container, \
                 start it with the GPU passed through (rendering, compiling and caching work without it)",
            )
        })?;
        let version = version_of(&library)?;
        let missing = FUNCTIONS.iter().filter(|(name, _)| !has(&library, name)).max_by_key(|(_, since)| *since);
        if let Some((name, since)) = missing {
            return Err(Error::missing_library(format!(
                "the CUDA driver supports CUDA {version} and has no {name}, which came with CUDA {since}: install a newer \
                 NVIDIA driver (CUDA {} or later)",
                DriverVersion::OLDEST
            )));
        }
        // SAFETY: the names are those of the types, and the library lives as long as the functions.
        unsafe {
            Ok(Self {
                version,
                capture_info: function(&library, "cuStreamGetCaptureInfo_v2")?,
                elapsed_time: function(&library, "cuEventElapsedTime")?,
                record_context: function(&library, "cuCtxRecordEvent").ok(),
                _library: library,
            })
        }
    }
}

fn version_of(library: &Library) -> Result<DriverVersion> {
    let mut number = 0;
    // SAFETY: the function has this type, may be called before cuInit, and `number` is a valid place for an int.
    unsafe {
        let ask: unsafe extern "C" fn(*mut i32) -> CUresult = function(library, "cuDriverGetVersion")?;
        ask(&raw mut number)
    }
    .result()
    .map_err(|error| refused("asking the CUDA driver for its version", error))?;
    Ok(DriverVersion::from_number(number))
}

fn has(library: &Library, name: &str) -> bool {
    // SAFETY: the address is not used.
    unsafe { library.get::<*const ()>(name) }.is_ok()
}

/// A function by its name.
///
/// # Safety
/// `F` is its type, and it is called only while the library is open.
unsafe fn function<F: Copy>(library: &Library, name: &str) -> Result<F> {
    // SAFETY: the caller's promise.
    let found = unsafe { library.get::<F>(name) };
    found.map(|function| *function).map_err(|error| {
        Error::missing_library(format!("the CUDA driver library has no {name}: install the NVIDIA driver"))
            .with_source(error)
    })
}

/// Milliseconds from one event to another, both of which have come.
///
/// # Safety
/// Both are alive.
pub(crate) unsafe fn elapsed_ms(start: CUevent, end: CUevent) -> Result<f32> {
    let mut ms = 0.0;
    // SAFETY: `ms` is a valid place for a float; the rest is the caller's promise.
    let asked = unsafe { (driver()?.elapsed_time)(&raw mut ms, start, end) };
    asked.result().map(|()| ms).map_err(|error| refused("reading the time between two events", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_number_is_read() {
        assert_eq!(DriverVersion::from_number(12_080), since(12, 8));
        assert_eq!(DriverVersion::from_number(13_000).to_string(), "13.0");
    }

    /// The null driver has what the tests call and no more, so that what is missing in the list shows there.
    #[test]
    fn the_functions_are_those_of_the_null_driver() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/null_driver.c");
        let source = std::fs::read_to_string(path).unwrap();
        let defined = source.lines().filter_map(|line| line.strip_prefix("Result ")?.split('(').next());
        // Of streams with a priority and of pinned memory, which callers may make and every driver has; of synchronous copies where
        // there is no memory pool; one that is asked for and may be missing; and one that must never be called.
        let others = [
            "cuStreamCreateWithPriority",
            "cuMemHostAlloc",
            "cuMemFreeHost",
            "cuMemcpyDtoH_v2",
            "cuMemcpyHtoD_v2",
            "cuMemsetD8_v2",
            "cuCtxRecordEvent",
            "cuCtxDestroy_v2",
        ];
        let mut defined: Vec<_> = defined.filter(|name| !others.contains(name)).collect();
        defined.sort_unstable();
        let listed: Vec<_> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
        assert_eq!(defined, listed);
    }

    #[test]
    fn the_oldest_driver_is_that_of_the_newest_function() {
        assert_eq!(DriverVersion::OLDEST, since(12, 0));
        assert!(FUNCTIONS.is_sorted_by_key(|(name, _)| *name));
        assert_eq!(newest_of(&[("a", since(12, 0)), ("b", since(11, 8)), ("c", since(12, 3))]), since(12, 3));
    }
}
