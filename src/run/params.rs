//! The one argument of every kernel.

/// Passed by value; `Params` in `templates/lib/base.cuh` has the same order and sizes. Addresses are device memory, 0
/// stands for "none".
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub(super) struct Params {
    /// Values of A.
    pub(super) a: u64,
    /// Its block scales, if NVFP4.
    pub(super) a_scales: u64,
    /// Values of B, or of B1 and B2.
    pub(super) b: [u64; 2],
    /// Their block scales, if NVFP4.
    pub(super) b_scales: [u64; 2],
    /// α in device memory, if it is there.
    pub(super) alpha: [u64; 2],
    /// G + 1 row offsets, if grouped.
    pub(super) offsets: u64,
    /// The result.
    pub(super) c: u64,
    /// Partial sums, if the variant has them.
    pub(super) workspace: u64,
    /// Decoded tokens, if the variant has a prepass.
    pub(super) decoded: u64,
    /// α where `alpha` is 0.
    pub(super) alpha_value: [f32; 2],
    /// 0: one α for all groups; 1: one a group.
    pub(super) alpha_step: [i32; 2],
    /// Rows of A and C, of all groups together.
    pub(super) m: i32,
    /// Which product a launch computes, where it computes one of two.
    pub(super) product: i32,
    /// 1 if the prepass, if there is one, may begin before what came before is done.
    pub(super) early: i32,
}

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of, size_of};

    use super::Params;

    #[test]
    fn the_layout_is_that_of_the_device_side() {
        assert_eq!((size_of::<Params>(), align_of::<Params>()), (128, 8));
        let offsets = [
            offset_of!(Params, a),
            offset_of!(Params, a_scales),
            offset_of!(Params, b),
            offset_of!(Params, b_scales),
            offset_of!(Params, alpha),
            offset_of!(Params, offsets),
            offset_of!(Params, c),
            offset_of!(Params, workspace),
            offset_of!(Params, decoded),
            offset_of!(Params, alpha_value),
            offset_of!(Params, alpha_step),
            offset_of!(Params, m),
            offset_of!(Params, product),
            offset_of!(Params, early),
        ];
        assert_eq!(offsets, [0, 8, 16, 32, 48, 64, 72, 80, 88, 96, 104, 112, 116, 120]);
    }
}
