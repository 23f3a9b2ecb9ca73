//! What the tests of measurers share: kernels that nobody compiles or runs.

use std::fs;
use std::path::Path;

use warpsmith::build::{Cubin, Toolchain};
use warpsmith::cache::KernelCache;
use warpsmith::spec::{Arch, Problem, Spec};

pub fn problem() -> Problem {
    Problem::gemm().n(64).k(128)
}

/// Specs that differ in their stages only.
pub fn specs<const N: usize>() -> [Spec; N] {
    let spec = |stages: usize| {
        let variant = format!("mma.t32x64x64.s{}.single.uniform.direct", stages + 1).parse().unwrap();
        Spec::new(&problem(), &variant, &Arch::H200).unwrap()
    };
    std::array::from_fn(spec)
}

/// Machine code, as far as its bytes go.
pub fn cubin() -> Cubin {
    warpsmith_testing::cubins::cubin(b"an image\nof two lines")
}

/// A cache whose disk has cubins of these specs; it has no compiler.
pub fn cache(dir: &Path, specs: &[Spec]) -> KernelCache {
    let library = dir.join("libnvrtc.so.13.0.88");
    fs::write(&library, "").unwrap();
    let toolchain = Toolchain::at(library).unwrap();
    let cache = KernelCache::builder().toolchain(toolchain).disk(dir.join("cubins")).build();
    // SAFETY: nobody loads it.
    specs.iter().for_each(|spec| unsafe { cache.disk().put(&cache.key(spec).unwrap(), &cubin()) });
    cache
}
