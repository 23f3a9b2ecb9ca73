//! Which tensors become what, file by file.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use safetensors::Dtype;
use serde_json::{Map, Value};
use warpsmith::internal::Raise;
use warpsmith::internal::format::BLOCK;
use warpsmith::{Error, Result};

use super::matrix::Matrix;
use super::{Factors, Quantise};
use crate::config::{Architecture, is_within};
use crate::folder::{Folder, Tensor};
use crate::weight::{find, find_stack};

/// Stacks of experts' matrices, and what each matrix of one holds, one row in turn or one half below the other.
const STACKS: [(&str, &[&str]); 4] = [
    ("gate_up_proj", &["gate_proj", "up_proj"]),
    ("gate_proj", &["gate_proj"]),
    ("up_proj", &["up_proj"]),
    ("down_proj", &["down_proj"]),
];
/// Products that engines make one of: they have one factor.
const FUSED: [&[&str]; 4] =
    [&["q_proj", "k_proj", "v_proj"], &["gate_proj", "up_proj"], &["w1", "w3"], &["q_a_proj", "kv_a_proj_with_mqa"]];
/// What a name with this in it is of: a table, a norm, what chooses experts.
const OTHERS: [&str; 3] = ["embed", "norm", "router"];
/// And what is called so.
const OTHER: [&str; 3] = ["lm_head", "gate", "shared_expert_gate"];

/// All files of tensors.
#[derive(Debug, Default)]
pub(super) struct Plan<'a> {
    pub(super) files: Vec<Planned<'a>>,
    /// Linear layers that stay as they are.
    pub(super) ignored: BTreeSet<String>,
    /// Those that have one factor, by what they have in common.
    pub(super) groups: BTreeMap<String, Vec<Matrix<'a>>>,
}

/// A file of tensors.
#[derive(Debug)]
pub(super) struct Planned<'a> {
    pub(super) name: String,
    pub(super) notes: BTreeMap<String, String>,
    pub(super) items: Vec<Item<'a>>,
}

/// What becomes of a tensor, or of a part of one.
#[derive(Debug)]
pub(super) enum Item<'a> {
    /// It stays as it is.
    Kept { name: String, dtype: Dtype, shape: Vec<usize>, bytes: Cow<'a, [u8]> },
    /// It is quantised: the so many-th of a group, under its factor.
    Coded { module: String, matrix: Matrix<'a>, group: String, place: usize },
}

impl Item<'_> {
    /// Bytes of what is read.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Kept { bytes, .. } => bytes.len() as u64,
            Self::Coded { matrix, .. } => matrix.bytes(),
        }
    }
}

/// Finds what becomes of tensors.
struct Planner<'a> {
    folder: &'a Folder,
    config: &'a Map<String, Value>,
    how: &'a Quantise,
    plan: Plan<'a>,
}

impl<'a> Plan<'a> {
    /// # Errors
    /// Data, if there is nothing to quantise, or a pattern names nothing; unsupported, if a weight has a format that is not
    /// quantised, or experts lie as is not known.
    pub(super) fn new(folder: &'a Folder, config: &'a Map<String, Value>, how: &'a Quantise) -> Result<Self> {
        for pattern in &how.excluded {
            if !folder.names().any(|name| is_within(name, pattern)) {
                return Err(Error::data(format!("`{pattern}` is excluded: no tensor is called so")));
            }
        }
        let mut planner = Planner { folder, config, how, plan: Self::default() };
        // A head that is tied to a table has no tensor.
        planner.plan.ignored.insert("lm_head".to_owned());
        for (name, tensors) in folder.files() {
            let mut items = Vec::new();
            for tensor in tensors {
                planner.add(tensor, &mut items)?;
            }
            planner.plan.files.push(Planned { name: name.to_owned(), notes: folder.notes(name), items });
        }
        if planner.plan.groups.is_empty() {
            return Err(Error::data("no weight is to be quantised: none is of a linear layer with K a multiple of 16"));
        }
        Ok(planner.plan)
    }
}

impl<'a> Planner<'a> {
    fn add(&mut self, tensor: Tensor<'a>, items: &mut Vec<Item<'a>>) -> Result<()> {
        if let Some((experts, parts)) = stack(tensor.name) {
            if tensor.shape.len() == 3 {
                return self.add_stack(tensor, experts, parts, items);
            }
        } else if let Some((experts, parts)) = tensor.name.strip_suffix("_bias").and_then(stack)
            && tensor.shape.len() == 2
            && self.is_split(experts)
        {
            return self.add_biases(tensor, experts, parts, items);
        }
        if let Some(module) = tensor.name.strip_suffix(".weight")
            && tensor.shape.len() == 2
        {
            if is_linear(module) && tensor.shape[1].is_multiple_of(BLOCK) && !self.is_excluded(module) {
                let Some(weight) = find(self.folder, module)? else {
                    return Err(Error::internal(format!("tensor `{}` is lost", tensor.name)));
                };
                self.code(module.to_owned(), Matrix::of(&weight, module)?, items);
                return Ok(());
            }
            if !module.split('.').any(|part| OTHERS[..2].iter().any(|other| part.contains(other))) {
                self.plan.ignored.insert(module.to_owned());
            }
        }
        items.push(Item::Kept {
            name: tensor.name.to_owned(),
            dtype: tensor.dtype,
            shape: tensor.shape.to_vec(),
            bytes: Cow::Borrowed(tensor.bytes),
        });
        Ok(())
    }

    fn code(&mut self, module: String, matrix: Matrix<'a>, items: &mut Vec<Item<'a>>) {
        let group = match self.how.factors {
            Factors::Shared => group(&module),
            Factors::Own => module.clone(),
        };
        let all = self.plan.groups.entry(group.clone()).or_default();
        let place = all.len();
        all.push(matrix.clone());
        items.push(Item::Coded { module, matrix, group, place });
    }

    /// A stack `[E, N, K]`, or of some architectures `[E, K, N]`: one matrix for each expert, as those that have no stacks call
    /// them.
    fn add_stack(
        &mut self,
        tensor: Tensor<'a>,
        experts: &str,
        parts: &[&str],
        items: &mut Vec<Item<'a>>,
    ) -> Result<()> {
        let is_transposed = Architecture::of(self.config)?.is_transposed();
        if !self.is_split(experts) {
            self.plan.ignored.insert(experts.to_owned());
            let Tensor { name, dtype, shape, bytes } = tensor;
            items.push(Item::Kept { name: name.to_owned(), dtype, shape: shape.to_vec(), bytes: Cow::Borrowed(bytes) });
            return Ok(());
        }
        let Some(stack) = find_stack(self.folder, tensor.name, tensor.shape[2], is_transposed)? else {
            return Err(Error::internal(format!("tensor `{}` is lost", tensor.name)));
        };
        for expert in 0..stack.len() {
            let both = stack.weight(expert)?;
            let name = both.name().to_owned();
            Matrix::of(&both, name.clone())?;
            if !both.columns().is_multiple_of(BLOCK) || !both.rows().is_multiple_of(parts.len()) {
                return Err(Error::unsupported(format!(
                    "weight `{name}` is {}×{}, expected {} equal parts of rows and K a multiple of {BLOCK}; exclude \
                     `{experts}`",
                    both.rows(),
                    both.columns(),
                    parts.len()
                )));
            }
            for (at, part) in parts.iter().enumerate() {
                let (rows, step) = self.rows(both.rows(), at, parts.len())?;
                let of_part = both.clone().every(rows, step)?;
                let matrix = Matrix::of(&of_part, format!("{name}, {part}"))?;
                self.code(format!("{experts}.{expert}.{part}"), matrix, items);
            }
        }
        Ok(())
    }

    /// Biases `[E, N]` of a stack that is split.
    fn add_biases(&self, tensor: Tensor<'a>, experts: &str, parts: &[&str], items: &mut Vec<Item<'a>>) -> Result<()> {
        let [count, of_one] = self.of_biases(tensor)?;
        let tensor = tensor.is(&[Dtype::F16, Dtype::BF16, Dtype::F32])?.has_shape(&[count, of_one])?;
        let size = tensor.dtype.bitsize() / 8;
        for expert in 0..count {
            for (at, part) in parts.iter().enumerate() {
                let (rows, step) = self.rows(of_one, at, parts.len())?;
                let elements = rows.step_by(step).map(|row| (expert * of_one + row) * size);
                let bytes: Vec<u8> = elements.flat_map(|from| &tensor.bytes[from..from + size]).copied().collect();
                items.push(Item::Kept {
                    name: format!("{experts}.{expert}.{part}.bias"),
                    dtype: tensor.dtype,
                    shape: vec![bytes.len() / size],
                    bytes: Cow::Owned(bytes),
                });
            }
        }
        Ok(())
    }

    /// `[E, N]` of the stack that biases are of.
    fn of_biases(&self, biases: Tensor<'a>) -> Result<[usize; 2]> {
        let stack = biases.name.strip_suffix("_bias").unwrap_or(biases.name);
        let stack = self.folder.tensor(stack)?.has_elements()?;
        let [experts, outer, inner] = *stack.shape else {
            return Err(stack.wrong(format!("has shape {:?}, expected a stack of matrices", stack.shape)));
        };
        Ok([experts, if Architecture::of(self.config)?.is_transposed() { inner } else { outer }])
    }

    /// The rows of a part, and their distance.
    fn rows(&self, all: usize, at: usize, parts: usize) -> Result<(std::ops::Range<usize>, usize)> {
        if parts > 1 && Architecture::of(self.config)?.is_interleaved() {
            return Ok((at..all, parts));
        }
        let own = all / parts;
        Ok((at * own..(at + 1) * own, 1))
    }

    /// Whether stacks of experts become matrices: all of a layer's or none.
    fn is_split(&self, experts: &str) -> bool {
        let names = STACKS.iter().map(|(stack, _)| format!("{experts}.{stack}"));
        !names.filter(|name| self.folder.has(name)).any(|name| self.is_excluded(&name))
            && STACKS.iter().any(|(stack, _)| {
                self.folder.find(&format!("{experts}.{stack}")).is_some_and(|found| found.shape.len() == 3)
            })
    }

    fn is_excluded(&self, module: &str) -> bool {
        let weight = format!("{module}.weight");
        self.how.excluded.iter().any(|pattern| is_within(&weight, pattern))
    }
}

/// The experts that a stack is of, and what a matrix of it holds.
fn stack(name: &str) -> Option<(&str, &'static [&'static str])> {
    let (experts, last) = name.rsplit_once('.')?;
    let is_of_experts = experts == "experts" || experts.ends_with(".experts");
    STACKS.iter().find(|(stack, _)| is_of_experts && *stack == last).map(|(_, parts)| (experts, *parts))
}

/// Whether a module is a product of a layer.
fn is_linear(module: &str) -> bool {
    let last = module.rsplit('.').next().unwrap_or(module);
    let is_product = last.ends_with("_proj") || ["w1", "w2", "w3", "kv_a_proj_with_mqa"].contains(&last);
    let is_other = |part: &str| OTHER.contains(&part) || OTHERS.iter().any(|other| part.contains(other));
    is_product && !module.split('.').any(is_other)
}

/// What modules with one factor have in common.
fn group(module: &str) -> String {
    let (within, last) = module.rsplit_once('.').unwrap_or(("", module));
    match FUSED.iter().find(|names| names.contains(&last)) {
        Some(names) => format!("{within}.{}", names.join("+")),
        None => module.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_layers_are_known_by_their_names() {
        for (module, expected) in [
            ("model.layers.0.self_attn.q_proj", true),
            ("model.layers.0.self_attn.kv_a_proj_with_mqa", true),
            ("model.layers.0.mlp.experts.7.down_proj", true),
            ("model.layers.0.block_sparse_moe.experts.7.w1", true),
            ("backbone.layers.3.mixer.in_proj", true),
            ("model.layers.0.mlp.gate", false),
            ("model.layers.0.mlp.shared_expert_gate", false),
            ("model.layers.0.block_sparse_moe.gate", false),
            ("model.layers.0.mlp.router", false),
            ("model.layers.0.input_layernorm", false),
            ("model.embed_tokens", false),
            ("model.embed_vision.embedding_proj", false),
            ("lm_head", false),
        ] {
            assert_eq!(is_linear(module), expected, "{module}");
        }
    }

    #[test]
    fn what_engines_fuse_is_one_group() {
        assert_eq!(group("a.0.q_proj"), group("a.0.v_proj"));
        assert_eq!(group("a.experts.1.gate_proj"), group("a.experts.1.up_proj"));
        assert_ne!(group("a.experts.1.gate_proj"), group("a.experts.2.up_proj"));
        assert_eq!(group("a.0.o_proj"), "a.0.o_proj");
    }
}
