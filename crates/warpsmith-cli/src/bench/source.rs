//! The CUDA of the ceilings.

use warpsmith::internal::build::Source;
use warpsmith::spec::Arch;

/// The source for an architecture: [`has_products`] says whether those are among its kernels that multiply.
pub fn source(arch: &Arch) -> Source {
    let kernels = ["fill", "read", "copy", "empty", "product", "product_e4m3"];
    let count = if has_products(arch) { 6 } else { 4 };
    Source::new("ceilings.cu", include_str!("ceilings.cu"), &[], kernels.into_iter().take(count))
}

/// Whether matrix rates can be measured: with wgmma, which sm_90a alone has.
pub fn has_products(arch: &Arch) -> bool {
    arch.target() == "sm_90a"
}
