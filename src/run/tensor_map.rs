//! What the tensor memory accelerator knows of the tokens.

use std::mem::MaybeUninit;

use cudarc::driver::DriverError;
use cudarc::driver::sys::{
    self, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle,
};

use crate::format::Format;
use crate::spec::{Spec, WgmmaLayout};

/// Elements along K of a row of the box: 128 bytes, as wide as the swizzle.
const BOX_K: u32 = 64;

/// A map for each width; the others are not looked at.
pub(super) type TokenMaps = [CUtensorMap; WgmmaLayout::WIDTHS_MAX];

pub(super) const NO_TOKENS: TokenMaps = [CUtensorMap { opaque: [0; 16] }; WgmmaLayout::WIDTHS_MAX];

/// The maps of tokens `[m, K]` at `address`, one for each width that a tile may have.
pub(super) fn tokens(spec: &Spec, layout: &WgmmaLayout, address: u64, m: u32) -> Result<TokenMaps, DriverError> {
    let mut maps = NO_TOKENS;
    for (map, width) in maps.iter_mut().zip(layout.widths(spec.variant())) {
        *map = box_of(spec, address, m, width)?;
    }
    Ok(maps)
}

/// The tokens `[m, K]` seen as `[K/64][m][64]`, so that one box is a whole stage of `rows` rows. Rows from `m` on are read
/// as zeros.
///
/// Encoding is arithmetic on the host: nothing is allocated, and the driver is not asked to wait.
fn box_of(spec: &Spec, address: u64, m: u32, mut rows: u32) -> Result<CUtensorMap, DriverError> {
    let (problem, variant) = (spec.problem(), spec.variant());
    let (k, row) = (problem.depth(), u64::from(problem.depth()) * 2);
    let mut blocks = variant.tile.k / BOX_K;
    // Each block of a multicasting cluster loads a part of the stage.
    let parts = variant.cluster.multicast();
    if blocks == 1 {
        rows /= parts
    } else {
        blocks /= parts
    }
    let data_type = match problem.compute_format() {
        Format::Bf16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        _ => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    };
    let extents = [u64::from(BOX_K), u64::from(m), u64::from(k / BOX_K)];
    let strides = [row, 2 * u64::from(BOX_K)];
    let (box_extents, element_strides) = ([BOX_K, rows, blocks], [1; 3]);
    let mut map = MaybeUninit::<CUtensorMap>::zeroed();
    // SAFETY: every pointer is to a live array of as many elements as a map of rank 3 takes; the address is not followed.
    unsafe {
        sys::cuTensorMapEncodeTiled(
            map.as_mut_ptr(),
            data_type,
            3,
            address as *mut std::ffi::c_void,
            extents.as_ptr(),
            strides.as_ptr(),
            box_extents.as_ptr(),
            element_strides.as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    }
    .result()?;
    // SAFETY: it was all zeros, and now is what the driver wrote: plain words either way.
    Ok(unsafe { map.assume_init() })
}
