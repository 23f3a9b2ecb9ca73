//! The driver's launch, with what `cuLaunchKernel` has no place for: clusters and programmatic dependent launch.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use cudarc::driver::sys::{
    self, CUfunction, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig,
};
use cudarc::driver::{CudaFunction, CudaStream, DriverError};

use crate::spec::Pass;

type Attributes = [CUlaunchAttribute; 2];

/// How a pass is launched, with `attributes` filled in.
fn config(pass: &Pass, stream: sys::CUstream, is_dependent: bool, attributes: &mut Attributes) -> CUlaunchConfig {
    let [x, y, z] = pass.cluster;
    let mut count = 0;
    let mut put = |id, set: &dyn Fn(&mut CUlaunchAttributeValue)| {
        if let Some(attribute) = attributes.get_mut(count) {
            attribute.id = id;
            set(&mut attribute.value);
            count += 1;
        }
    };
    if pass.cluster != [1; 3] {
        put(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &|value| {
            value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        });
    }
    if is_dependent {
        put(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &|value| {
            value.programmaticStreamSerializationAllowed = 1;
        });
    }
    let [grid_x, grid_y, grid_z] = pass.grid;
    CUlaunchConfig {
        gridDimX: grid_x,
        gridDimY: grid_y,
        gridDimZ: grid_z,
        blockDimX: pass.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: pass.shared_bytes,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: count as u32,
    }
}

fn no_attributes() -> Attributes {
    // SAFETY: all zeros is a value of this struct: `IGNORE`, and a union of plain numbers.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Puts a pass into a stream. `is_dependent`: it may begin before what is in the stream is done; the kernel itself waits.
///
/// # Safety
/// As for `cuLaunchKernel`: the function is loaded, in the context that is bound, and takes `arguments`, which point at
/// values that the kernel may use.
pub(super) unsafe fn launch(
    function: &CudaFunction,
    pass: &Pass,
    stream: &CudaStream,
    is_dependent: bool,
    arguments: &mut [*mut c_void],
) -> Result<(), DriverError> {
    let mut attributes = no_attributes();
    let config = config(pass, stream.cu_stream(), is_dependent, &mut attributes);
    // SAFETY: `config` and the attributes it points at live through the call; the rest is the caller's promise.
    unsafe {
        sys::cuLaunchKernelEx(&raw const config, function.cu_function(), arguments.as_mut_ptr(), std::ptr::null_mut())
    }
    .result()
}

/// Clusters of a pass that the device runs at a time; what the driver knows of its processor clusters, no division does.
pub(super) fn resident_clusters(function: CUfunction, pass: &Pass) -> Result<u32, DriverError> {
    let mut attributes = no_attributes();
    let config = config(pass, std::ptr::null_mut(), false, &mut attributes);
    let mut clusters = 0;
    // SAFETY: `clusters` and `config` live through the call, the function is loaded.
    unsafe { sys::cuOccupancyMaxActiveClusters(&raw mut clusters, function, &raw const config) }.result()?;
    Ok(u32::try_from(clusters).unwrap_or(0))
}
