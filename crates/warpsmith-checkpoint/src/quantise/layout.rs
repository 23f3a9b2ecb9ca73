//! What a quantised weight's tensors are called, and what configurations say of them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use safetensors::Dtype;
use serde_json::{Value, json};
use warpsmith::Error;
use warpsmith::internal::format::BLOCK;

use super::matrix::Matrix;
use crate::weight::Factor;

/// Whose names a checkpoint has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layout {
    /// NVIDIA ModelOpt's: `weight`, `weight_scale`, `weight_scale_2`, which multiplies; `hf_quant_config.json`.
    #[default]
    ModelOpt,
    /// compressed-tensors': `weight_packed`, `weight_scale`, `weight_global_scale`, which divides.
    CompressedTensors,
}

const LAYOUTS: [(Layout, &str); 2] =
    [(Layout::ModelOpt, "modelopt"), (Layout::CompressedTensors, "compressed-tensors")];

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        super::spelled(&LAYOUTS, self, f)
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        super::parsed(&LAYOUTS, "layout", text)
    }
}

/// A tensor that is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
}

impl Shape {
    pub(super) fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }
}

impl Layout {
    /// Codes, scales and factor of a module's matrix.
    pub(super) fn tensors(self, module: &str, matrix: &Matrix<'_>) -> [Shape; 3] {
        let (names, of_factor) = match self {
            Self::ModelOpt => (["weight", "weight_scale", "weight_scale_2"], Vec::new()),
            Self::CompressedTensors => (["weight_packed", "weight_scale", "weight_global_scale"], vec![1]),
        };
        let (rows, columns) = (matrix.rows(), matrix.columns());
        let types = [Dtype::U8, Dtype::F8_E4M3, Dtype::F32];
        let mut shapes = [vec![rows, columns / 2], vec![rows, columns / BLOCK], of_factor].into_iter();
        let mut all = types.into_iter();
        names.map(|name| Shape {
            name: format!("{module}.{name}"),
            dtype: all.next().unwrap_or(Dtype::F32),
            shape: shapes.next().unwrap_or_default(),
        })
    }

    /// A multiplier as a reader applies it.
    pub(super) fn stored(self, factor: f32) -> Factor {
        match self {
            Self::ModelOpt => Factor::Multiply(factor),
            Self::CompressedTensors => Factor::Divide(1.0 / factor),
        }
    }

    /// What `config.json` says, where these modules are not quantised.
    pub(super) fn config(self, ignored: &BTreeSet<String>) -> Value {
        match self {
            Self::ModelOpt => json!({
                "config_groups": {"group_0": {
                    "targets": ["Linear"],
                    "weights": {"dynamic": false, "num_bits": 4, "type": "float", "group_size": BLOCK},
                }},
                "group_size": BLOCK,
                "ignore": ignored,
                "producer": producer(),
                "quant_algo": "W4A16_NVFP4",
                "quant_method": "modelopt",
            }),
            Self::CompressedTensors => json!({
                "config_groups": {"group_0": {
                    "targets": ["Linear"],
                    "weights": {
                        "num_bits": 4,
                        "type": "float",
                        "strategy": "tensor_group",
                        "group_size": BLOCK,
                        "symmetric": true,
                        "dynamic": false,
                        "scale_dtype": "torch.float8_e4m3fn",
                    },
                    "input_activations": null,
                    "output_activations": null,
                    "format": "nvfp4-pack-quantized",
                }},
                "format": "nvfp4-pack-quantized",
                "global_compression_ratio": null,
                "ignore": ignored,
                "kv_cache_scheme": null,
                "quant_method": "compressed-tensors",
                "quantization_status": "compressed",
                "version": "0.12.2",
            }),
        }
    }

    /// What ModelOpt says in a file of its own.
    pub(super) fn own_config(self, ignored: &BTreeSet<String>) -> Option<Value> {
        let said = json!({
            "producer": producer(),
            "quantization": {
                "quant_algo": "W4A16_NVFP4",
                "kv_cache_quant_algo": null,
                "group_size": BLOCK,
                "exclude_modules": ignored,
            },
        });
        (self == Self::ModelOpt).then_some(said)
    }
}

fn producer() -> Value {
    json!({"name": "warpsmith", "version": env!("CARGO_PKG_VERSION")})
}
