//! Real operands in, results out. Every file that cannot be used ends in one sentence that says why.

use std::fs;
use std::path::Path;

use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::file;
use warpsmith::internal::format::e4m3;
use warpsmith::spec::{Activation, Problem};
use warpsmith_tune::oracle::Reference;
use warpsmith_tune::{HostColumns, HostMatrix, HostOperands, HostRows};

use crate::shared::Result;

/// What the file does not say.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// How the block scales lie.
    pub scales: ScaleLayout,
    /// The activation; without one a dual GEMM has silu.
    pub activation: Option<Activation>,
    /// Format of the result.
    pub c: Format,
}

/// Every tensor that there can be.
const NAMES: [&str; 19] = [
    "offsets",
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
    "row_scale",
    "row_scale1",
    "row_scale2",
    "bias",
    "bias1",
    "bias2",
    "c_factor",
];

/// What goes with a product: its B, and what is done to it.
struct Product {
    b: &'static str,
    alpha: &'static str,
    row_scale: &'static str,
    bias: &'static str,
}

const SINGLE: [Product; 1] = [Product { b: "b", alpha: "alpha", row_scale: "row_scale", bias: "bias" }];
const DUAL: [Product; 2] = [
    Product { b: "b1", alpha: "alpha1", row_scale: "row_scale1", bias: "bias1" },
    Product { b: "b2", alpha: "alpha2", row_scale: "row_scale2", bias: "bias2" },
];

/// Characters of a refusal at most.
const LINE_MAX: usize = 500;

/// Reads and checks operands. The problem follows from the tensors that are there and their shapes.
pub fn read(path: &Path, wanted: Wanted) -> Result<HostOperands> {
    let read = || parse(&fs::read(path)?, wanted);
    read().map_err(|error| format!("{}: {error}", path.display()).into())
}

/// The operands in a file's bytes.
pub fn parse(bytes: &[u8], wanted: Wanted) -> Result<HostOperands> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| format!("not a whole safetensors file: {error}").into());
    file.and_then(|file| operands(&file, wanted)).map_err(|error: Box<_>| line(&error.to_string()).into())
}

/// One line, and no endless one, whatever a file calls its tensors.
fn line(text: &str) -> String {
    let (shown, rest) = text.split_at(text.char_indices().nth(LINE_MAX).map_or(text.len(), |(at, _)| at));
    let end = if rest.is_empty() { "" } else { "…" };
    shown.replace(char::is_control, "\u{FFFD}") + end
}

fn operands(file: &SafeTensors<'_>, wanted: Wanted) -> Result<HostOperands> {
    let dual = file.tensor("b1").is_ok() || file.tensor("b2").is_ok();
    if dual && file.tensor("b").is_ok() {
        return Err("both `b` (gemm) and `b1`, `b2` (dual GEMM) are there".into());
    }
    let products: &[Product] = if dual { &DUAL } else { &SINGLE };
    let first = products[0].b;
    belong(file, products)?;

    let (a_format, a_shape) = extents(file, "a")?;
    let (b_format, b_shape) = extents(file, first)?;
    let &[m, k] = &a_shape[..] else {
        return Err(format!("`a` has shape {a_shape:?} in elements, expected [M, K]").into());
    };
    let (groups, n) = match b_shape[..] {
        [n, _] => (None, n),
        [groups, n, _] => (Some(groups), n),
        _ => return Err(format!("`{first}` has shape {b_shape:?}, expected [N, K] or [G, N, K]").into()),
    };

    let problem = if dual { Problem::dual_gemm(Activation::Silu) } else { Problem::gemm() };
    let problem = wanted.activation.map_or(problem, |activation| problem.activation(activation));
    let problem = problem.a(a_format).b(b_format).c(wanted.c).scales(wanted.scales);
    let problem = problem.n(extent("N", n)?).k(extent("K", k)?);
    let problem = match groups {
        Some(groups) => problem.grouped(extent("G", groups)?),
        None => problem,
    };
    let (row_scales, row_scale) = columns(file, products, |product| product.row_scale, groups, n, &[Dtype::F32])?;
    let (biases, bias) =
        columns(file, products, |product| product.bias, groups, n, &[Dtype::F16, Dtype::BF16, Dtype::F32])?;
    let problem = if row_scale.is_some() { problem.row_scale() } else { problem };
    let problem = bias.map_or(problem, |format| problem.bias(format));

    let a = matrix(file, "a", &[m, k], a_format, wanted.scales)?;
    let shape: Vec<usize> = groups.into_iter().chain([n, k]).collect();
    let b = products.iter().map(|product| matrix(file, product.b, &shape, b_format, wanted.scales));
    let c_factor = match wanted.c {
        Format::Nvfp4 => factor(file, "c_factor", groups)?,
        c if file.tensor("c_factor").is_ok() => {
            return Err(format!("`c_factor` does not go with a result in {c}").into());
        }
        _ => Vec::new(),
    };
    if let Some(index) = c_factor.iter().position(|factor| !(factor.is_normal() && *factor > 0.0)) {
        return Err(format!("`c_factor` is {} at {index}: must be positive and normal", c_factor[index]).into());
    }
    let alpha = products.iter().map(|product| factor(file, product.alpha, groups));
    Ok(HostOperands {
        problem,
        m: extent("M", m)?,
        offsets: offsets(file, groups, m)?,
        a,
        b: b.collect::<Result<_>>()?,
        alpha: alpha.collect::<Result<_>>()?,
        c_factor,
        columns: HostColumns { row_scale: row_scales, bias: biases },
        rows: HostRows::default(),
    })
}

/// What columns have of their own, of every product, with its format: all products have it, or none.
fn columns(
    file: &SafeTensors<'_>,
    products: &[Product],
    name: impl Fn(&Product) -> &'static str,
    groups: Option<usize>,
    n: usize,
    dtypes: &[Dtype],
) -> Result<(Vec<Vec<f32>>, Option<Format>)> {
    if products.iter().all(|product| file.tensor(name(product)).is_err()) {
        return Ok((Vec::new(), None));
    }
    let (mut all, mut format) = (Vec::new(), None);
    for name in products.iter().map(name) {
        let view = tensor(file, name)?;
        dtype(&view, name, dtypes)?;
        let (found, values) = reals(&view);
        let shapes = [Some(vec![n]), groups.map(|groups| vec![groups, n])];
        if !shapes.iter().flatten().any(|shape| view.shape() == shape) {
            let expected: Vec<_> = shapes.iter().flatten().map(|shape| format!("{shape:?}")).collect();
            return Err(format!("`{name}` has shape {:?}, expected {}", view.shape(), expected.join(" or ")).into());
        }
        if *format.get_or_insert(found) != found {
            return Err(format!("`{name}` is {found}, the first is another format").into());
        }
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            return Err(format!("`{name}` is {} at {index}", values[index]).into());
        }
        all.push(values);
    }
    Ok((all, format))
}

/// The values of an F16, BF16 or F32 tensor, and which it is.
pub fn reals(view: &TensorView<'_>) -> (Format, Vec<f32>) {
    let pairs = || view.data().as_chunks::<2>().0.iter().copied();
    match view.dtype() {
        Dtype::F16 => (Format::F16, pairs().map(|pair| f16::from_le_bytes(pair).to_f32()).collect()),
        Dtype::BF16 => (Format::Bf16, pairs().map(|pair| bf16::from_le_bytes(pair).to_f32()).collect()),
        _ => (Format::F32, view.data().as_chunks::<4>().0.iter().copied().map(f32::from_le_bytes).collect()),
    }
}

/// Refuses a tensor that would be left out.
fn belong(file: &SafeTensors<'_>, products: &[Product]) -> Result<()> {
    let mut found = file.names();
    found.sort_unstable();
    let first = products[0].b;
    for name in found {
        if !NAMES.contains(&name) {
            return Err(format!("tensor `{name}` is not known: expected {}", NAMES.join(", ")).into());
        }
        if products.iter().any(|product| [product.alpha, product.row_scale, product.bias].contains(&name)) {
            continue;
        }
        let matrix = name.strip_suffix("_scale").unwrap_or(name);
        if !["a", "offsets", "c_factor"].contains(&matrix) && products.iter().all(|product| product.b != matrix) {
            return Err(format!("`{name}` does not go with `{first}`").into());
        }
        // Only codes have scales. All of B is of one format; what is missing or of no format is refused elsewhere.
        let of = if matrix == "a" { "a" } else { first };
        if matrix != name
            && let Ok((format, _)) = extents(file, of)
            && format != Format::Nvfp4
        {
            return Err(format!("`{name}` does not go with `{of}`, which is {format}").into());
        }
    }
    Ok(())
}

fn extent(what: &str, value: usize) -> Result<u32> {
    // Everything finer is for `Spec::new` to refuse; this keeps all sizes far from overflow.
    let max = Problem::M_MAX as usize;
    match u32::try_from(value) {
        Ok(extent) if (1..=max).contains(&value) => Ok(extent),
        _ => Err(format!("{what} = {value}: must be 1 to {max}").into()),
    }
}

fn tensor<'data>(file: &SafeTensors<'data>, name: &str) -> Result<TensorView<'data>> {
    file.tensor(name).map_err(|_| format!("tensor `{name}` is missing").into())
}

fn dtype(view: &TensorView<'_>, name: &str, expected: &[Dtype]) -> Result<()> {
    if expected.contains(&view.dtype()) {
        return Ok(());
    }
    let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
    Err(format!("`{name}` is {}, expected {}", view.dtype(), expected.join(" or ")).into())
}

/// Format and shape of a matrix, in elements (two a byte for codes).
fn extents(file: &SafeTensors<'_>, name: &str) -> Result<(Format, Vec<usize>)> {
    let view = tensor(file, name)?;
    dtype(&view, name, &[Dtype::U8, Dtype::F16, Dtype::BF16])?;
    let mut shape = view.shape().to_vec();
    let format = match view.dtype() {
        Dtype::F16 => Format::F16,
        Dtype::BF16 => Format::Bf16,
        _ => Format::Nvfp4,
    };
    if format == Format::Nvfp4
        && let Some(last) = shape.last_mut()
    {
        // A tensor without elements has any shape.
        *last = last.saturating_mul(2);
    }
    Ok((format, shape))
}

/// A matrix of this format and shape (in elements), with its scales.
fn matrix(
    file: &SafeTensors<'_>,
    name: &str,
    shape: &[usize],
    format: Format,
    layout: ScaleLayout,
) -> Result<HostMatrix> {
    let (found_format, found) = extents(file, name)?;
    if found_format != format {
        return Err(format!("`{name}` is {found_format}, expected {format}").into());
    }
    if found != shape {
        return Err(format!("`{name}` has shape {found:?} in elements, expected {shape:?}").into());
    }
    let view = tensor(file, name)?;
    let pairs = view.data().as_chunks::<2>().0.iter().copied();
    match format {
        Format::F16 => Ok(HostMatrix::F16(pairs.map(f16::from_le_bytes).collect())),
        Format::Bf16 => Ok(HostMatrix::Bf16(pairs.map(bf16::from_le_bytes).collect())),
        _ => {
            let scales = scales(file, &format!("{name}_scale"), shape, layout)?;
            Ok(HostMatrix::Nvfp4 { codes: view.data().to_vec(), scales })
        }
    }
}

fn scales(file: &SafeTensors<'_>, name: &str, shape: &[usize], layout: ScaleLayout) -> Result<Vec<u8>> {
    let (groups, rows, k) = match *shape {
        [groups, rows, k] => (groups, rows, k),
        [rows, k] => (1, rows, k),
        _ => return Err(format!("`{name}` belongs to a matrix of shape {shape:?}").into()),
    };
    if !k.is_multiple_of(16) {
        return Err(format!("K = {k}: must be a multiple of 16 for block scales").into());
    }
    let view = tensor(file, name)?;
    dtype(&view, name, &[Dtype::F8_E4M3, Dtype::U8])?;
    let each = layout.bytes(rows, k);
    let mut expected = shape.to_vec();
    expected[shape.len() - 1] = k / 16;
    if layout == ScaleLayout::Linear && view.shape() != expected {
        return Err(format!("`{name}` has shape {:?}, expected {expected:?}", view.shape()).into());
    }
    if view.data().len() != groups * each {
        let (found, needed) = (view.data().len(), groups * each);
        return Err(format!("`{name}` has {found} bytes, {needed} are needed for {expected:?} in {layout}").into());
    }
    for (group, scales) in view.data().chunks_exact(each.max(1)).enumerate() {
        for row in 0..rows {
            if let Some(block) = (0..k / 16).find(|block| e4m3::is_nan(scales[layout.offset(k, row, *block)])) {
                let group = if shape.len() == 3 { format!("group {group}, ") } else { String::new() };
                return Err(format!("`{name}` is NaN at {group}row {row}, block {block}").into());
            }
        }
    }
    Ok(view.data().to_vec())
}

/// α, or the factor of the result: one for all groups, or one for each; 1, where the file has none.
fn factor(file: &SafeTensors<'_>, name: &str, groups: Option<usize>) -> Result<Vec<f32>> {
    let Ok(view) = file.tensor(name) else { return Ok(vec![1.0]) };
    dtype(&view, name, &[Dtype::F32])?;
    let values: Vec<f32> = view.data().as_chunks::<4>().0.iter().copied().map(f32::from_le_bytes).collect();
    if values.len() != 1 && Some(values.len()) != groups {
        let expected = groups.map_or("1".to_owned(), |groups| format!("1 or {groups}"));
        return Err(format!("`{name}` has {} elements, expected {expected}", values.len()).into());
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(format!("`{name}` is {} at {index}", values[index]).into()),
        None => Ok(values),
    }
}

fn offsets(file: &SafeTensors<'_>, groups: Option<usize>, m: usize) -> Result<Option<Vec<i32>>> {
    let Some(groups) = groups else {
        return match file.tensor("offsets") {
            Ok(_) => Err("`offsets` is there, but the matrices have no groups".into()),
            Err(_) => Ok(None),
        };
    };
    let view = tensor(file, "offsets")?;
    dtype(&view, "offsets", &[Dtype::I64])?;
    if view.shape() != [groups + 1] {
        return Err(format!("`offsets` has shape {:?}, expected [{}]", view.shape(), groups + 1).into());
    }
    let offsets: Vec<i64> = view.data().as_chunks::<8>().0.iter().copied().map(i64::from_le_bytes).collect();
    if offsets[0] != 0 || offsets[groups] != m as i64 {
        let (first, last) = (offsets[0], offsets[groups]);
        return Err(format!("`offsets` goes from {first} to {last}, expected from 0 to the {m} rows of `a`").into());
    }
    if let Some(group) = offsets.windows(2).position(|pair| pair[1] < pair[0]) {
        let (from, to) = (offsets[group], offsets[group + 1]);
        return Err(format!("`offsets` runs backwards at group {group}: from {from} to {to}").into());
    }
    // All of them lie between 0 and M now.
    Ok(Some(offsets.into_iter().map(|offset| offset as i32).collect()))
}

/// The exact values rounded to the result's format, as bytes; of NVFP4, codes and then scales.
pub fn rounded(reference: &Reference) -> Vec<u8> {
    let values = reference.elements().iter().map(|element| element.value);
    match reference.output() {
        Format::Nvfp4 => reference.quantised().unwrap_or_default(),
        Format::F16 => values.flat_map(|value| f16::from_f64(value).to_le_bytes()).collect(),
        Format::Bf16 => values.flat_map(|value| bf16::from_f64(value).to_le_bytes()).collect(),
        _ => values.flat_map(|value| (value as f32).to_le_bytes()).collect(),
    }
}

/// Writes the result `c` `[m, n]`; of NVFP4, codes `c` `[m, n/2]` and scales `c_scale`, as they lie.
pub fn write(path: &Path, problem: &Problem, m: usize, c: &[u8]) -> Result<()> {
    let (format, n) = (problem.c_format(), problem.columns() as usize);
    if format == Format::Nvfp4 {
        let (codes, scales) = c.split_at(format.bytes(m * n));
        let shape = match problem.scale_layout() {
            ScaleLayout::Linear => vec![m, n / 16],
            _ => vec![scales.len()],
        };
        let tensors = [
            ("c", TensorView::new(Dtype::U8, vec![m, n / 2], codes)?),
            ("c_scale", TensorView::new(Dtype::F8_E4M3, shape, scales)?),
        ];
        return Ok(file::write(path, safetensors::serialize(tensors, None)?)?);
    }
    let dtype = match format {
        Format::Bf16 => Dtype::BF16,
        Format::F32 => Dtype::F32,
        _ => Dtype::F16,
    };
    let view = TensorView::new(dtype, vec![m, n], c)?;
    Ok(file::write(path, safetensors::serialize([("c", view)], None)?)?)
}
