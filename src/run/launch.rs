//! The driver's launch, with what `cuLaunchKernel` has no place for: clusters and programmatic dependent launch.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use cudarc::driver::sys::{self, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig};
use cudarc::driver::{CudaStream, DriverError};

use super::module::Function;
use crate::spec::{Launch, PassKind};

/// Those of a launch: its cluster, if it has one, then that it is dependent.
type Attributes = [CUlaunchAttribute; 2];

/// A kernel in blocks and clusters of a size.
pub(super) struct Blocks {
    function: Function,
    threads: u32,
    shared_bytes: u32,
    attributes: Attributes,
    /// Attributes of a plain launch; a dependent one has one more.
    plain: u32,
}

// SAFETY: plain numbers; the union is one because the driver wants it.
unsafe impl Send for Blocks {}
// SAFETY: as above.
unsafe impl Sync for Blocks {}

impl Blocks {
    pub(super) fn new(function: Function, threads: u32, shared_bytes: u32, cluster: [u32; 3]) -> Self {
        let [x, y, z] = cluster;
        let cluster = attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, |value| {
            value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        });
        let dependent =
            attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, |value| {
                value.programmaticStreamSerializationAllowed = 1;
            });
        let has_cluster = [x, y, z] != [1; 3];
        let attributes = if has_cluster { [cluster, dependent] } else { [dependent, dependent] };
        Self { function, threads, shared_bytes, attributes, plain: has_cluster.into() }
    }

    pub(super) fn function(&self) -> sys::CUfunction {
        self.function.handle()
    }

    /// For the driver, for as long as `self` is there. `is_dependent`: it may begin before what is in the stream is done;
    /// the kernel itself waits.
    #[inline]
    pub(super) fn config(&self, [x, y, z]: [u32; 3], stream: sys::CUstream, is_dependent: bool) -> CUlaunchConfig {
        CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: self.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared_bytes,
            hStream: stream,
            // The driver only reads them.
            attrs: self.attributes.as_ptr().cast_mut(),
            numAttrs: self.plain + u32::from(is_dependent),
        }
    }

    /// Clusters that the device runs at a time; what the driver knows of its processor clusters, no division does.
    pub(super) fn resident_clusters(&self, grid: [u32; 3]) -> Result<u32, DriverError> {
        let config = self.config(grid, std::ptr::null_mut(), false);
        let mut clusters = 0;
        // SAFETY: `clusters` and `config` live through the call, the function is loaded.
        unsafe { sys::cuOccupancyMaxActiveClusters(&raw mut clusters, self.function.handle(), &raw const config) }
            .result()?;
        Ok(u32::try_from(clusters).unwrap_or(0))
    }

    /// Puts it into a stream. `is_dependent`: it may begin before what is in the stream is done; the kernel itself waits.
    ///
    /// # Safety
    /// As for `cuLaunchKernel`: the function is loaded, in the context that is bound, and takes `arguments`, which point
    /// at values that the kernel may use.
    pub(super) unsafe fn launch(
        &self,
        grid: [u32; 3],
        stream: &CudaStream,
        is_dependent: bool,
        arguments: &mut [*mut c_void],
    ) -> Result<(), DriverError> {
        let config = self.config(grid, stream.cu_stream(), is_dependent);
        let (function, arguments) = (self.function.handle(), arguments.as_mut_ptr());
        // SAFETY: `config` and the attributes it points at live through the call; the rest is the caller's promise.
        unsafe { sys::cuLaunchKernelEx(&raw const config, function, arguments, std::ptr::null_mut()) }.result()
    }
}

/// A launch with everything that does not depend on M, worked out when the kernel is loaded.
pub(super) struct Ready {
    blocks: Blocks,
    launch: Launch,
}

impl Ready {
    pub(super) fn new(function: Function, launch: Launch) -> Self {
        Self { blocks: Blocks::new(function, launch.threads, launch.shared_bytes, launch.cluster), launch }
    }

    pub(super) fn kind(&self) -> PassKind {
        self.launch.kind
    }

    pub(super) fn threads(&self) -> u32 {
        self.launch.threads
    }

    /// Blocks in x, y, z for `m` rows.
    #[inline(always)]
    pub(super) fn grid(&self, m: u32) -> [u32; 3] {
        self.launch.grid(m)
    }

    pub(super) fn function(&self) -> sys::CUfunction {
        self.blocks.function()
    }

    /// As [`Blocks::config`].
    #[inline]
    pub(super) fn config(&self, grid: [u32; 3], stream: sys::CUstream, is_dependent: bool) -> CUlaunchConfig {
        let config = self.blocks.config(grid, stream, is_dependent);
        if is_dependent {
            CUlaunchConfig { sharedMemBytes: self.launch.dependent_shared_bytes(grid), ..config }
        } else {
            config
        }
    }

    /// Clusters that the device runs at a time; `None` without clusters.
    pub(super) fn resident_clusters(&self) -> Result<Option<u32>, DriverError> {
        if self.blocks.plain == 0 { Ok(None) } else { self.blocks.resident_clusters(self.grid(1)).map(Some) }
    }
}

fn attribute(id: CUlaunchAttributeID, set: impl FnOnce(&mut sys::CUlaunchAttributeValue)) -> CUlaunchAttribute {
    // SAFETY: all zeros is a value of this struct: `IGNORE`, and a union of plain numbers.
    let mut attribute: CUlaunchAttribute = unsafe { MaybeUninit::zeroed().assume_init() };
    attribute.id = id;
    set(&mut attribute.value);
    attribute
}
