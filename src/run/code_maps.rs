//! What the tensor memory accelerator knows of codes: those of tokens and of weights.

use cudarc::driver::DriverError;
use cudarc::driver::sys::{CUtensorMap, CUtensorMapDataType};

use super::tensor_map::{self, Maps, NO_MAPS, Tiled};
use crate::format::Format;
use crate::operand::KernelParams;
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
}

impl CodeMaps {
    pub(super) fn new(problem: &Problem, boxes: &CodeBoxes) -> Self {
        Self {
            row_bytes: Format::Nvfp4.bytes(problem.depth() as usize) as u64,
            weight_rows: u64::from(problem.columns()) * u64::from(problem.groups().unwrap_or(1)),
            products: problem.operation().products() as usize,
            boxes: *boxes,
        }
    }

    /// The maps of A, of which so many bytes may be read, and of the weights of each product. They are encoded at each launch:
    /// arithmetic on the host, some tenths of a microsecond.
    pub(super) fn encode(&self, params: &KernelParams, readable: u64) -> Result<Maps, DriverError> {
        let mut maps = NO_MAPS;
        let rows = (readable / self.row_bytes).min(u64::from(Problem::M_MAX));
        maps[0] = self.map(params.a, rows, self.boxes.tokens)?;
        for (map, b) in maps[1..].iter_mut().zip(params.b).take(self.products) {
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
