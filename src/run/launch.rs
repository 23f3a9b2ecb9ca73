//! The driver's launch, with what `cuLaunchKernel` has no place for: clusters and programmatic dependent launch.

use std::mem::MaybeUninit;

use cudarc::driver::DriverError;
use cudarc::driver::sys::{self, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig};

use super::module::Function;
use crate::spec::{Launch, PassKind};

/// Those of a launch: its cluster, if it has one, then that it is dependent.
type Attributes = [CUlaunchAttribute; 2];

/// A launch with everything that does not depend on M, worked out when the kernel is loaded.
pub(super) struct Ready {
    function: Function,
    launch: Launch,
    attributes: Attributes,
    /// Attributes of a plain launch; a dependent one has one more.
    plain: u32,
}

// SAFETY: plain numbers; the union is one because the driver wants it.
unsafe impl Send for Ready {}
// SAFETY: as above.
unsafe impl Sync for Ready {}

impl Ready {
    pub(super) fn new(function: Function, launch: Launch) -> Self {
        let [x, y, z] = launch.cluster;
        let cluster = attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, |value| {
            value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        });
        let dependent =
            attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, |value| {
                value.programmaticStreamSerializationAllowed = 1;
            });
        let has_cluster = launch.cluster != [1; 3];
        let attributes = if has_cluster { [cluster, dependent] } else { [dependent, dependent] };
        Self { function, launch, attributes, plain: has_cluster.into() }
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
            blockDimX: self.launch.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.launch.shared_bytes,
            hStream: stream,
            // The driver only reads them.
            attrs: self.attributes.as_ptr().cast_mut(),
            numAttrs: self.plain + u32::from(is_dependent),
        }
    }

    /// Clusters that the device runs at a time; what the driver knows of its processor clusters, no division does. `None`
    /// without clusters.
    pub(super) fn resident_clusters(&self) -> Result<Option<u32>, DriverError> {
        if self.plain == 0 {
            return Ok(None);
        }
        let config = self.config(self.grid(1), std::ptr::null_mut(), false);
        let mut clusters = 0;
        // SAFETY: `clusters` and `config` live through the call, the function is loaded.
        unsafe { sys::cuOccupancyMaxActiveClusters(&raw mut clusters, self.function.handle(), &raw const config) }
            .result()?;
        Ok(Some(u32::try_from(clusters).unwrap_or(0)))
    }
}

fn attribute(id: CUlaunchAttributeID, set: impl FnOnce(&mut sys::CUlaunchAttributeValue)) -> CUlaunchAttribute {
    // SAFETY: all zeros is a value of this struct: `IGNORE`, and a union of plain numbers.
    let mut attribute: CUlaunchAttribute = unsafe { MaybeUninit::zeroed().assume_init() };
    attribute.id = id;
    set(&mut attribute.value);
    attribute
}
