//! The CUDA of the ceilings.

use warpsmith::internal::build::Source;
use warpsmith::spec::Arch;

/// The source for an architecture: [`has_product`] says whether `product` is among its kernels.
pub fn source(arch: &Arch) -> Source {
    let kernels = ["fill", "read", "copy", "empty", "product"];
    let count = if has_product(arch) { 5 } else { 4 };
    Source::new("ceilings.cu", include_str!("ceilings.cu"), &[], kernels.into_iter().take(count))
}

/// Whether the matrix rate can be measured: with wgmma, which sm_90a alone has.
pub fn has_product(arch: &Arch) -> bool {
    arch.target() == "sm_90a"
}
