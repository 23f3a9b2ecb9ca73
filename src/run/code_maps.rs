//! What the tensor memory accelerator knows of codes, those of tokens and of weights, and of their block scales.

use std::cell::RefCell;

use cudarc::driver::DriverError;
use cudarc::driver::sys::{CUtensorMap, CUtensorMapDataType, CUtensorMapSwizzle};

use super::tensor_map::{self, Maps, Memo, NO_MAPS, Tiled};
use crate::format::{Format, ScaleLayout};
use crate::path::{CodeBoxes, ScaleLoads};
use crate::spec::Problem;

/// Bytes of a row of the box: as wide as the swizzle.
const BOX_BYTES: u32 = 128;
/// Block scales are seen as words of so many bytes, of which a box has those of 128 rows and 256 of K: as many as there may be.
const SCALE_WORD: u64 = 8;
const SCALE_WORDS: u32 = 256;

/// How a kernel reads the codes of A `[rows, K]` and of weights `[groups · N, K]`, and their
/// scales `[blocks of 128 rows, K / 64, 512 bytes]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodeMaps {
    row_bytes: u64,
    /// Of scales of 128 rows.
    block_bytes: u64,
    /// Rows of all groups' weights, and blocks of 128 of them: each group begins one.
    weight_rows: u64,
    weight_blocks: u64,
    products: usize,
    boxes: CodeBoxes,
    /// Stands for all of it.
    ordinal: usize,
}

/// Where the codes are, and their scales.
#[derive(Clone, Copy, Debug)]
pub(super) struct Codes {
    pub(super) a: u64,
    /// Bytes that may be read where the tokens are.
    pub(super) readable: u64,
    pub(super) a_scales: u64,
    pub(super) b: [u64; 2],
    pub(super) b_scales: [u64; 2],
}

thread_local! {
    static MEMO: RefCell<Memo<8>> = const { RefCell::new(Memo::EMPTY) };
}

impl CodeMaps {
    pub(super) fn new(problem: &Problem, boxes: &CodeBoxes) -> Self {
        let (k, groups) = (problem.depth() as usize, u64::from(problem.groups().unwrap_or(1)));
        let columns = problem.columns();
        Self {
            row_bytes: Format::Nvfp4.bytes(k) as u64,
            block_bytes: Format::Nvfp4.scale_bytes(ScaleLayout::Swizzled128x4, 128, k) as u64,
            weight_rows: u64::from(columns) * groups,
            weight_blocks: u64::from(columns.div_ceil(128)) * groups,
            products: problem.operation().products() as usize,
            boxes: *boxes,
            ordinal: tensor_map::next_ordinal(),
        }
    }

    /// Calls `launch` with the maps of A and of the weights of each product, and with those of their scales behind these. They
    /// are remembered as those of tokens are.
    pub(super) fn with_maps<R>(&self, codes: Codes, launch: impl FnOnce(&Maps) -> R) -> Result<R, DriverError> {
        let codes = self.mapped(codes);
        let Codes { a, readable, a_scales, b: [b1, b2], b_scales: [b1_scales, b2_scales] } = codes;
        let ordinal = self.ordinal;
        // Weights are somewhere, so that no key is that of an empty place.
        let key = [a, readable, a_scales, b1, b2, b1_scales, b2_scales, ordinal as u64];
        tensor_map::with_maps(&MEMO, key, ordinal, || self.encode(codes), launch)
    }

    /// What no map is of is no part of what is remembered.
    fn mapped(&self, codes: Codes) -> Codes {
        let CodeBoxes { tokens, token_scales, weight_scales, .. } = self.boxes;
        let has_tokens = tokens.is_some();
        Codes {
            a: if has_tokens { codes.a } else { 0 },
            readable: if has_tokens { codes.readable } else { 0 },
            a_scales: if token_scales == ScaleLoads::Mapped { codes.a_scales } else { 0 },
            b: codes.b,
            b_scales: if weight_scales == ScaleLoads::Mapped { codes.b_scales } else { [0; 2] },
        }
    }

    fn encode(&self, codes: Codes) -> Result<Maps, DriverError> {
        let mut maps = NO_MAPS;
        let [tokens, b1, b2, token_scales, b1_scales, b2_scales] = &mut maps;
        let rows = (codes.readable / self.row_bytes).min(u64::from(Problem::M_MAX));
        if let Some(box_rows) = self.boxes.tokens {
            *tokens = self.codes(codes.a, rows, box_rows)?;
        }
        if self.boxes.token_scales == ScaleLoads::Mapped {
            *token_scales = self.scales(codes.a_scales, rows.div_ceil(128))?;
        }
        let weights = [(b1, b1_scales), (b2, b2_scales)].into_iter().zip(codes.b.into_iter().zip(codes.b_scales));
        for ((map, scales), (b, b_scales)) in weights.take(self.products) {
            *map = self.codes(b, self.weight_rows, self.boxes.weights)?;
            if self.boxes.weight_scales == ScaleLoads::Mapped {
                *scales = self.scales(b_scales, self.weight_blocks)?;
            }
        }
        Ok(maps)
    }

    fn codes(&self, address: u64, rows: u64, box_rows: u32) -> Result<CUtensorMap, DriverError> {
        tensor_map::encode(&Tiled {
            data_type: CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            address,
            extents: [self.row_bytes, rows],
            strides: [self.row_bytes],
            box_extents: [BOX_BYTES, box_rows],
            swizzle: CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        })
    }

    fn scales(&self, address: u64, blocks: u64) -> Result<CUtensorMap, DriverError> {
        tensor_map::encode(&Tiled {
            data_type: CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT64,
            address,
            extents: [self.block_bytes / SCALE_WORD, blocks],
            strides: [self.block_bytes],
            box_extents: [SCALE_WORDS, 1],
            swizzle: CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        })
    }
}
