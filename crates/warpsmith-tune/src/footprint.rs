//! The resource gate: what a built kernel takes of the machine, looked at before anything is launched.

use crate::Rejection;
use warpsmith::build::{Cubin, Resources};
use warpsmith::spec::Spec;

/// What the kernels of one spec take of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Whether registers are spilled to local memory.
    pub spills: bool,
    /// Bytes of spill stores in the code of all kernels; 0 if the compiler did not say.
    pub spill_store_bytes: u32,
    /// Bytes of spill loads in the code of all kernels; 0 if the compiler did not say.
    pub spill_load_bytes: u32,
    /// Static and dynamic shared memory of a block, of the kernel that takes most.
    pub shared_bytes: u32,
}

impl Footprint {
    /// Of `spec`'s cubin.
    #[must_use]
    pub fn of(spec: &Spec, cubin: &Cubin) -> Self {
        let symbol = spec.symbol();
        let kernels = cubin.resources();
        let shared = kernels.iter().map(|kernel| {
            // Only the matrix kernel has dynamic shared memory.
            let dynamic = if kernel.entry() == symbol { spec.geometry().shared_bytes } else { 0 };
            kernel.static_shared_bytes().saturating_add(dynamic)
        });
        // An entry of a cache says what it likes.
        let all = |bytes: fn(&Resources) -> Option<u32>| kernels.iter().filter_map(bytes).fold(0, u32::saturating_add);
        Self {
            spills: kernels.iter().any(|kernel| kernel.has_spills()),
            spill_store_bytes: all(Resources::spill_store_bytes),
            spill_load_bytes: all(Resources::spill_load_bytes),
            shared_bytes: shared.max().unwrap_or(0),
        }
    }

    /// Why the kernel cannot be launched, if so.
    pub(super) fn too_large(&self, spec: &Spec) -> Option<Rejection> {
        let (needs, limit) = (self.shared_bytes, spec.arch().shared_per_block());
        (needs > limit).then_some(Rejection::SharedMemory { needs, limit })
    }

    /// Why the kernel should not be chosen as long as there is another, if so.
    pub(super) fn spilling(&self) -> Option<Rejection> {
        let (store_bytes, load_bytes) = (self.spill_store_bytes, self.spill_load_bytes);
        self.spills.then_some(Rejection::Spills { store_bytes, load_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith::cache::KernelCache;
    use warpsmith::internal::spec::baseline;
    use warpsmith::spec::{Activation, Arch, Problem};

    #[test]
    fn the_gate_reads_what_the_compiler_made() {
        let problem = Problem::dual_gemm(Activation::Silu).n(128).k(256);
        let spec = Spec::new(&problem, &baseline(&problem), &Arch::H200).unwrap();
        let cache = KernelCache::builder().no_disk().build();
        if cache.toolchain().is_err() {
            eprintln!("SKIPPED the_gate_reads_what_the_compiler_made: no NVRTC here");
            return;
        }
        let footprint = Footprint::of(&spec, cache.cubin(&spec).unwrap().cubin());
        assert!(footprint.shared_bytes >= spec.geometry().shared_bytes);
        assert_eq!((footprint.too_large(&spec), footprint.spilling()), (None, None));
        let large = Footprint { shared_bytes: 240_000, ..footprint };
        assert_eq!(large.too_large(&spec), Some(Rejection::SharedMemory { needs: 240_000, limit: 232_448 }));
        let spilling = Footprint { spills: true, spill_store_bytes: 8, ..footprint };
        assert_eq!(spilling.spilling(), Some(Rejection::Spills { store_bytes: 8, load_bytes: 0 }));
    }

    #[test]
    fn sums_of_what_an_entry_says_do_not_wrap() {
        let problem = Problem::dual_gemm(Activation::Silu).n(128).k(256);
        let spec = Spec::new(&problem, &baseline(&problem), &Arch::H200).unwrap();
        let whole = warpsmith_testing::cubins::cubin(b"");
        let mut about = serde_json::to_value(warpsmith::internal::about(&whole)).unwrap();
        let mut kernel = about["resources"][0].take();
        kernel["spills"] = serde_json::json!({ "store_bytes": u32::MAX, "load_bytes": u32::MAX });
        about["resources"] = serde_json::json!([kernel, kernel]);
        let about = serde_json::from_value(about).unwrap();
        let footprint = Footprint::of(&spec, &warpsmith::internal::cubin(about, whole.image().to_vec()).unwrap());
        let (store_bytes, load_bytes) = (u32::MAX, u32::MAX);
        assert_eq!(footprint.spilling(), Some(Rejection::Spills { store_bytes, load_bytes }));
    }
}
