//! A file of operands that accidents have changed is refused in a line, or holds operands and nothing else.

use std::collections::BTreeSet;

use rand::Rng;
use rand::rngs::SmallRng;
use safetensors::tensor::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::spec::Activation;
use warpsmith_tune::{HostMatrix, HostOperands, reference};

use warpsmith_testing::fuzz::{run, within};
use warpsmith_testing::mutate::mutate;

use super::super::safetensors_io::{Wanted, parse};
use super::{K, N, Tensors, gemm, grouped_dual, half_precision};

/// What reading may take beyond a multiple of the file's size.
const BESIDE: usize = 64 << 10;
/// Of a refusal; some context and the longest that a text of a file's may be.
const LINE_BYTES_MAX: usize = 2048;

const NAMES: [&str; 21] = [
    "a",
    "a_scale",
    "b",
    "b_scale",
    "b1",
    "b1_scale",
    "b2",
    "b2_scale",
    "alpha",
    "alpha1",
    "alpha2",
    "offsets",
    "row_scale",
    "row_scale2",
    "bias",
    "bias1",
    "c",
    "c_factor",
    "",
    "alpha_scale",
    "a\n",
];
const TYPES: [&str; 8] = ["U8", "F16", "BF16", "F32", "F8_E4M3", "I64", "I32", "BOOL"];
const EXTENTS: [u64; 12] = [0, 1, 2, 3, 16, N as u64, K as u64, 1 << 24, (1 << 24) + 1, 1 << 32, 1 << 63, u64::MAX];

/// A file to be; what it says of a tensor need not be so.
#[derive(Clone)]
struct Draft(Vec<Tensor>);

#[derive(Clone)]
struct Tensor {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    bytes: Vec<u8>,
}

impl Draft {
    fn of(tensors: &Tensors) -> Self {
        let tensor = |(name, (dtype, shape, bytes)): (&&str, &(Dtype, Vec<usize>, Vec<u8>))| Tensor {
            name: (*name).to_owned(),
            dtype: dtype.to_string(),
            shape: shape.iter().map(|extent| *extent as u64).collect(),
            bytes: bytes.clone(),
        };
        Self(tensors.0.iter().map(tensor).collect())
    }

    fn bytes(&self) -> Vec<u8> {
        let (mut header, mut data) = (Map::new(), Vec::new());
        for Tensor { name, dtype, shape, bytes } in &self.0 {
            let begin = data.len();
            data.extend_from_slice(bytes);
            let about = json!({ "dtype": dtype, "shape": shape, "data_offsets": [begin, data.len()] });
            header.insert(name.clone(), about);
        }
        let header = Value::Object(header).to_string();
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
    }

    fn change(&mut self, rng: &mut SmallRng) {
        let at = rng.random_range(0..self.0.len().max(1));
        let Some(tensor) = self.0.get_mut(at) else { return };
        match rng.random_range(0..10) {
            0 => drop(self.0.remove(at)),
            1 => {
                let name = any(rng, &NAMES).to_owned();
                let again = Tensor { name, ..tensor.clone() };
                self.0.push(again);
            }
            2 => tensor.name = any(rng, &NAMES).to_owned(),
            3 => tensor.dtype = any(rng, &TYPES).to_owned(),
            4 => tensor.shape = vec![tensor.shape.iter().fold(1, |all, extent| all.wrapping_mul(*extent))],
            5 => tensor.shape.insert(0, any(rng, &EXTENTS)),
            6 => tensor.shape.iter_mut().for_each(|extent| {
                if rng.random() {
                    *extent = any(rng, &EXTENTS);
                }
            }),
            // No elements, of any shape.
            7 => {
                let mut shape = [0, any(rng, &EXTENTS)];
                shape.rotate_left(rng.random_range(0..2));
                (tensor.shape, tensor.bytes) = (shape.into(), Vec::new());
            }
            // As many bytes as it says.
            8 => {
                let each = if tensor.dtype.ends_with("16") { 2 } else { 1 };
                let elements = tensor.shape.iter().fold(1, |all: u64, extent| all.wrapping_mul(*extent)) % (1 << 16);
                tensor.bytes.resize(each * elements as usize, rng.random());
            }
            _ => mutate(rng, &mut tensor.bytes),
        }
    }
}

fn any<T: Copy>(rng: &mut SmallRng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

#[test]
fn what_is_damaged_is_refused_in_a_line() {
    let padded = |tensors: Tensors| tensors.padded(&[("a_scale", 1, 5), ("b1_scale", 3, N), ("b2_scale", 3, N)]);
    let drafts = [gemm(3), grouped_dual(), padded(grouped_dual()), half_precision()].map(|tensors| Draft::of(&tensors));
    run("operands", |rng| {
        let mut draft = drafts[rng.random_range(0..drafts.len())].clone();
        (0..rng.random_range(0..4)).for_each(|_| draft.change(rng));
        let mut bytes = draft.bytes();
        if rng.random() {
            mutate(rng, &mut bytes);
        }
        let wanted = Wanted {
            scales: any(rng, &[ScaleLayout::Linear, ScaleLayout::Swizzled128x4]),
            activation: any(rng, &[None, Some(Activation::SwigluOai), Some(Activation::Gelu)]),
            c: any(rng, &[Format::F16, Format::Bf16, Format::F32, Format::Nvfp4]),
        };
        match within(32 * bytes.len() + BESIDE, || parse(&bytes, wanted)) {
            Ok(operands) => whole(&bytes, &operands),
            Err(error) => {
                let line = error.to_string();
                assert!(
                    !line.is_empty() && line.len() <= LINE_BYTES_MAX && !line.contains(char::is_control),
                    "{line:?}"
                );
            }
        }
    });
}

/// The operands are all of the file, and all of a product.
fn whole(bytes: &[u8], operands: &HostOperands) {
    let HostOperands { problem, m, offsets, a, b, alpha, c_factor, columns, rows: _ } = operands;
    let products: &[_] = if b.len() == 2 { &[("b1", "alpha1"), ("b2", "alpha2")] } else { &[("b", "alpha")] };
    let matrices = std::iter::once(("a", a)).chain(products.iter().map(|(name, _)| *name).zip(b));
    let mut needed: BTreeSet<String> = offsets.iter().map(|_| "offsets".to_owned()).collect();
    for (name, matrix) in matrices {
        needed.insert(name.to_owned());
        if matches!(matrix, HostMatrix::Nvfp4 { .. }) {
            needed.insert(format!("{name}_scale"));
        }
    }
    let file = SafeTensors::deserialize(bytes).unwrap();
    let found: BTreeSet<String> = file.names().into_iter().map(str::to_owned).collect();
    for (name, is_there) in [("row_scale", problem.has_row_scale()), ("bias", problem.bias_format().is_some())] {
        let of_each: &[_] = if b.len() == 2 { &["1", "2"] } else { &[""] };
        needed.extend(of_each.iter().filter(|_| is_there).map(|product| format!("{name}{product}")));
    }
    assert!([&columns.row_scale, &columns.bias].into_iter().flatten().flatten().all(|value| value.is_finite()));
    let mut may: BTreeSet<String> = products.iter().map(|(_, alpha)| (*alpha).to_owned()).collect();
    may.extend((!c_factor.is_empty()).then(|| "c_factor".to_owned()));
    assert!(c_factor.is_empty() == (problem.c_format() != Format::Nvfp4));
    assert!(c_factor.iter().all(|factor| factor.is_normal() && *factor > 0.0));
    assert!(needed.is_subset(&found) && found.is_subset(&(&needed | &may)), "{found:?}, {needed:?} are needed");

    let (groups, n, k) = (problem.groups().unwrap_or(1) as usize, problem.columns() as usize, problem.depth() as usize);
    let m = *m as usize;
    let elements = |matrix: &HostMatrix| match matrix {
        HostMatrix::Nvfp4 { codes, .. } | HostMatrix::Mxfp4 { codes, .. } => 2 * codes.len(),
        HostMatrix::E4m3 { values, .. } => values.len(),
        HostMatrix::F16(values) => values.len(),
        HostMatrix::Bf16(values) => values.len(),
    };
    assert!(elements(a) == m * k && b.iter().all(|b| elements(b) == groups * n * k));
    assert!(alpha.len() == b.len() && alpha.iter().flatten().all(|alpha| alpha.is_finite()));
    if let Some(offsets) = offsets {
        assert!(offsets.len() == groups + 1 && offsets.is_sorted() && (offsets[0], offsets[groups] as usize) == (0, m));
    }
    if problem.check().is_ok() {
        assert_eq!(reference::of(operands).unwrap().elements().len(), m * n);
    }
}
