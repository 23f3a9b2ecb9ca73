//! Which tensors a matrix is made of.

use safetensors::Dtype;
use warpsmith::internal::Raise;
use warpsmith::internal::format::{BLOCK, MX_BLOCK};
use warpsmith::{Error, Result};

use super::{Factor, Grid, Stored, Weight};
use crate::folder::{Folder, Tensor};

const PLAIN: [Dtype; 3] = [Dtype::F16, Dtype::BF16, Dtype::F32];
/// What codes lie in.
const CODES: [Dtype; 1] = [Dtype::U8];
/// What a scale of `.weight` has, where tokens are to be scaled before.
const PRE_SCALE: &str = "pre_quant_scale";

/// The matrix `[N, K]` of a linear layer, if there is one of this name.
///
/// # Errors
/// Data, if its tensors do not go together; unsupported, if they are of a format that is not read.
pub(crate) fn find<'a>(folder: &'a Folder, name: &str) -> Result<Option<Weight<'a>>> {
    let tensor = |end: &str| folder.tensor(&format!("{name}.{end}"));
    let has = |end: &str| folder.has(&format!("{name}.{end}"));
    let stored = if has("weight_packed") {
        let codes = tensor("weight_packed")?.is(&CODES)?;
        if has("weight_global_scale") {
            let divisor = Factor::Divide(tensor("weight_global_scale")?.one()?);
            nvfp4(matrix(codes)?, tensor("weight_scale")?, divisor, name)?
        } else {
            mxfp4(matrix(codes)?, tensor("weight_scale")?)?
        }
    } else if has("weight") {
        let weight = tensor("weight")?;
        match weight.dtype {
            Dtype::U8 => {
                if has(PRE_SCALE) {
                    return Err(Error::unsupported(format!(
                        "`{name}.{PRE_SCALE}`: tokens that are scaled first (AWQ) are not read"
                    )));
                }
                let factor = Factor::Multiply(tensor("weight_scale_2")?.one()?);
                nvfp4(matrix(weight)?, tensor("weight_scale")?, factor, name)?
            }
            Dtype::F8_E4M3 => {
                let factor = tensor("weight_scale")?.one()?;
                Stored::Fp8 { values: Grid::of(matrix(weight)?, 1)?, factor: finite(factor, name)? }
            }
            dtype => Stored::Plain { dtype, values: Grid::of(matrix(weight.is(&PLAIN)?)?, dtype.bitsize() / 8)? },
        }
    } else {
        return Ok(None);
    };
    Ok(Some(Weight { name: name.to_owned(), stored }))
}

/// A stack of matrices, one for each expert.
#[derive(Debug)]
pub(crate) struct Stack<'a> {
    name: String,
    kind: Kind<'a>,
}

#[derive(Debug)]
enum Kind<'a> {
    Nvfp4 { codes: Tensor<'a>, scales: Tensor<'a>, factors: Vec<f32>, transposed: bool },
    Mxfp4 { codes: Tensor<'a>, scales: Tensor<'a> },
    Plain { values: Tensor<'a>, transposed: bool },
}

/// A stack of this name, `[E, N, K]`; where `columns` says which, or for plain ones where it is `transposed`, `[E, K, N]`.
///
/// # Errors
/// Data, if its tensors do not go together.
pub(crate) fn find_stack<'a>(folder: &'a Folder, name: &str, k: usize, transposed: bool) -> Result<Option<Stack<'a>>> {
    let tensor = |end: &str| folder.tensor(&format!("{name}{end}"));
    let kind = if folder.has(&format!("{name}_blocks")) {
        let (codes, scales) = (tensor("_blocks")?.is(&CODES)?.has_elements()?, tensor("_scales")?.is(&[Dtype::U8])?);
        let [experts, rows, blocks, _] = *codes.shape else {
            return Err(codes.wrong(format!("has shape {:?}, expected [E, N, K/32, 16]", codes.shape)));
        };
        Kind::Mxfp4 {
            codes: codes.has_shape(&[experts, rows, blocks, MX_BLOCK / 2])?,
            scales: scales.has_shape(&[experts, rows, blocks])?,
        }
    } else if let Some(values) = folder.find(name) {
        if values.shape.len() != 3 {
            return Err(values.wrong(format!("has shape {:?}, expected a stack of matrices", values.shape)));
        }
        let values = values.has_elements()?;
        if values.dtype == Dtype::U8 {
            let scales = tensor("_weight_scale")?.is(&[Dtype::F8_E4M3, Dtype::U8])?;
            let factors = tensor("_weight_scale_2")?.is(&[Dtype::F32])?.values()?;
            factors.iter().try_for_each(|factor| finite(*factor, name).map(drop))?;
            let [experts, outer, inner] = [values.shape[0], values.shape[1], values.shape[2]];
            if factors.len() != 1 && factors.len() != experts {
                let found = factors.len();
                return Err(
                    values.wrong(format!("has {experts} matrices and {found} factors, expected 1 or {experts}"))
                );
            }
            if !k.is_multiple_of(BLOCK) {
                return Err(values.wrong(format!("has K = {k}, expected a multiple of {BLOCK}")));
            }
            // A block of 16 is 8 bytes of codes and one scale, along K.
            let straight = [experts, outer, inner / (BLOCK / 2)];
            let across = [experts, outer / (BLOCK / 2), inner];
            let is_transposed = match scales.shape {
                shape if shape == straight && 2 * inner == k => false,
                shape if shape == across && 2 * outer == k => true,
                shape => {
                    let shapes = format!("{straight:?} or transposed {across:?}, with K = {k}");
                    return Err(scales.wrong(format!("has shape {shape:?}, expected {shapes}")));
                }
            };
            Kind::Nvfp4 { codes: values, scales, factors, transposed: is_transposed }
        } else {
            Kind::Plain { values: values.is(&PLAIN)?, transposed }
        }
    } else {
        return Ok(None);
    };
    Ok(Some(Stack { name: name.to_owned(), kind }))
}

impl<'a> Stack<'a> {
    /// What its tensors begin with.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Matrices.
    pub(crate) fn len(&self) -> usize {
        let (Kind::Nvfp4 { codes: of, .. } | Kind::Mxfp4 { codes: of, .. } | Kind::Plain { values: of, .. }) =
            &self.kind;
        of.shape[0]
    }

    /// The matrix of an expert.
    pub(crate) fn weight(&self, expert: usize) -> Result<Weight<'a>> {
        let name = format!("{}[{expert}]", self.name);
        let of = |tensor, size, transposed| Grid::of_stack(tensor, size, expert, transposed);
        let stored = match &self.kind {
            Kind::Nvfp4 { codes, scales, factors, transposed } => {
                let factor = Factor::Multiply(if factors.len() == 1 { factors[0] } else { factors[expert] });
                Stored::Nvfp4 { codes: of(*codes, 1, *transposed)?, scales: of(*scales, 1, *transposed)?, factor }
            }
            Kind::Mxfp4 { codes, scales } => {
                Stored::Mxfp4 { codes: of(*codes, 1, false)?, scales: of(*scales, 1, false)? }
            }
            Kind::Plain { values, transposed } => {
                Stored::Plain { dtype: values.dtype, values: of(*values, values.dtype.bitsize() / 8, *transposed)? }
            }
        };
        Ok(Weight { name, stored })
    }
}

fn matrix(tensor: Tensor<'_>) -> Result<Tensor<'_>> {
    match tensor.shape {
        [_, _] => tensor.has_elements(),
        shape => Err(tensor.wrong(format!("has shape {shape:?}, expected a matrix"))),
    }
}

fn nvfp4<'a>(codes: Tensor<'a>, scales: Tensor<'a>, factor: Factor, name: &str) -> Result<Stored<'a>> {
    let (rows, bytes) = (codes.shape[0], codes.shape[1]);
    if !bytes.is_multiple_of(BLOCK / 2) {
        return Err(codes.wrong(format!("has K = {}, expected a multiple of {BLOCK}", 2 * bytes)));
    }
    let scales = scales.is(&[Dtype::F8_E4M3, Dtype::U8])?.has_shape(&[rows, bytes / (BLOCK / 2)])?;
    finite(factor.multiplier(), name)?;
    Ok(Stored::Nvfp4 { codes: Grid::of(codes, 1)?, scales: Grid::of(scales, 1)?, factor })
}

fn mxfp4<'a>(codes: Tensor<'a>, scales: Tensor<'a>) -> Result<Stored<'a>> {
    let (rows, bytes) = (codes.shape[0], codes.shape[1]);
    if !bytes.is_multiple_of(MX_BLOCK / 2) {
        return Err(codes.wrong(format!("has K = {}, expected a multiple of {MX_BLOCK}", 2 * bytes)));
    }
    let scales = scales.is(&[Dtype::U8, Dtype::F8_E8M0])?.has_shape(&[rows, bytes / (MX_BLOCK / 2)])?;
    Ok(Stored::Mxfp4 { codes: Grid::of(codes, 1)?, scales: Grid::of(scales, 1)? })
}

fn finite(factor: f32, name: &str) -> Result<f32> {
    if factor.is_finite() {
        return Ok(factor);
    }
    Err(Error::data(format!("weight `{name}`: its factor is {factor}, it must be finite")))
}
