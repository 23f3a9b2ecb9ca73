//! What the tensor memory accelerator knows of codes: those of tokens and of weights.

use cudarc::driver::DriverError;
use cudarc::driver::sys::{CUtensorMap, CUtensorMapDataType};

use super::tensor_map::{self, Maps, NO_MAPS, Tiled};
use crate::format::Format;
use crate::path::CodeBoxes;
use crate::spec::Problem;

/// Bytes of a row of the box: as wide as the swizzle.
const BOX_BYTES: u32 = 128;

/// How a kernel reads the codes of A `[rows, K]` and of weights `[groups · N, K]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodeMaps {
    row_bytes: u64,
    /// Rows of all groups' weights.
    weight_rows: u64,
    products: usize,
    boxes: CodeBoxes,
    /// Stands for all of it.
    ordinal: usize,
}

/// Where the codes are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Codes {
    pub(super) a: u64,
    /// Bytes that may be read there.
    pub(super) readable: u64,
    pub(super) b: [u64; 2],
}

/// Keys of codes have this bit in the last word; words of boxes have it not.
const OF_CODES: u64 = 1 << 63;

impl CodeMaps {
    pub(super) fn new(problem: &Problem, boxes: &CodeBoxes) -> Self {
        Self {
            row_bytes: Format::Nvfp4.bytes(problem.depth() as usize) as u64,
            weight_rows: u64::from(problem.columns()) * u64::from(problem.groups().unwrap_or(1)),
            products: problem.operation().products() as usize,
            boxes: *boxes,
            ordinal: tensor_map::next_ordinal(),
        }
    }

    /// Calls `launch` with the maps of A and of the weights of each product, which are remembered as those of tokens are.
    pub(super) fn with_maps<R>(&self, codes: Codes, launch: impl FnOnce(&Maps) -> R) -> Result<R, DriverError> {
        // Tokens that no map is of are no part of what is remembered.
        let (a, readable) = if self.boxes.tokens.is_some() { (codes.a, codes.readable) } else { (0, 0) };
        let [b1, b2] = codes.b;
        let key = [a, readable, b1, b2, OF_CODES | self.ordinal as u64];
        tensor_map::with_maps(key, self.ordinal, || self.encode(codes), launch)
    }

    fn encode(&self, Codes { a, readable, b }: Codes) -> Result<Maps, DriverError> {
        let mut maps = NO_MAPS;
        if let Some(box_rows) = self.boxes.tokens {
            let rows = (readable / self.row_bytes).min(u64::from(Problem::M_MAX));
            maps[0] = self.map(a, rows, box_rows)?;
        }
        for (map, b) in maps[1..].iter_mut().zip(b).take(self.products) {
            *map = self.map(b, self.weight_rows, self.boxes.weights)?;
        }
        Ok(maps)
    }

    fn map(&self, address: u64, rows: u64, box_rows: u32) -> Result<CUtensorMap, DriverError> {
        tensor_map::encode(&Tiled {
            data_type: CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            address,
            extents: [self.row_bytes, rows],
            strides: [self.row_bytes],
            box_extents: [BOX_BYTES, box_rows],
        })
    }
}
