//! Tokens in, results out.

use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use warpsmith::format::Format;
use warpsmith::internal::file;

use crate::run::reals;
use crate::shared::Result;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Tokens, each value exactly as it is in its format.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) count: usize,
    pub(super) columns: usize,
    pub(super) format: Format,
    pub(super) values: Vec<f32>,
}

/// A tensor of a file: the only one, or the one of this name.
fn tensor<T>(path: &Path, name: &str, read: impl FnOnce(TensorView<'_>) -> Result<T>) -> Result<T> {
    let whole = || {
        let bytes = fs::read(path)?;
        let file =
            SafeTensors::deserialize(&bytes).map_err(|error| format!("not a whole safetensors file: {error}"))?;
        let names = file.names();
        let only = if let [only] = names[..] { only } else { name };
        let view = file.tensor(only).map_err(|_| format!("tensor `{name}` is missing"))?;
        read(view)
    };
    whole().map_err(|error: Error| format!("{}: {error}", path.display()).into())
}

fn shape(view: &TensorView<'_>, name: &str, expected: &str, columns: Option<usize>) -> Result<[usize; 2]> {
    match *view.shape() {
        [rows, found] if columns.is_none_or(|columns| columns == found) => Ok([rows, found]),
        ref found => Err(format!("`{name}` has shape {found:?}, expected {expected}").into()),
    }
}

fn refused(view: &TensorView<'_>, name: &str, expected: &str) -> Error {
    format!("`{name}` is {}, expected {expected}", view.dtype()).into()
}

/// `x`, with so many columns.
pub(super) fn tokens(path: &Path, columns: usize) -> Result<Tokens> {
    tensor(path, "x", |view| {
        let [count, columns] = shape(&view, "x", &format!("[tokens, {columns}]"), Some(columns))?;
        if ![Dtype::F16, Dtype::BF16].contains(&view.dtype()) {
            return Err(refused(&view, "x", "F16 or BF16"));
        }
        let (format, values) = reals(&view);
        Ok(Tokens { count, columns, format, values })
    })
}

/// A matrix of reals, a row for each token, and its columns.
pub(super) fn matrix(path: &Path, name: &str, rows: usize) -> Result<(Vec<f32>, usize)> {
    tensor(path, name, |view| {
        let expected = format!("[{rows}, …]: a row for each token");
        match shape(&view, name, &expected, None)? {
            [found, _] if found == rows && ![Dtype::F32, Dtype::F16, Dtype::BF16].contains(&view.dtype()) => {
                Err(refused(&view, name, "F32, F16 or BF16"))
            }
            [found, columns] if found == rows => Ok((reals(&view).1, columns)),
            found => Err(format!("`{name}` has shape {found:?}, expected {expected}").into()),
        }
    })
}

/// `ids`, a row for each token, and their columns.
pub(super) fn ids(path: &Path, rows: usize) -> Result<(Vec<i64>, usize)> {
    tensor(path, "ids", |view| {
        let expected = format!("[{rows}, k]");
        let [found, columns] = shape(&view, "ids", &expected, None)?;
        if found != rows {
            return Err(format!("`ids` has shape {:?}, expected {expected}", view.shape()).into());
        }
        let ids = match view.dtype() {
            Dtype::I32 => {
                view.data().as_chunks::<4>().0.iter().copied().map(|id| i32::from_le_bytes(id).into()).collect()
            }
            Dtype::I64 => view.data().as_chunks::<8>().0.iter().copied().map(i64::from_le_bytes).collect(),
            _ => return Err(refused(&view, "ids", "I32 or I64")),
        };
        Ok((ids, columns))
    })
}

/// Writes `y` `[tokens, columns]`, bytes of values in the tokens' format.
pub(super) fn write(path: &Path, tokens: &Tokens, columns: usize, y: &[u8]) -> Result<()> {
    let dtype = if tokens.format == Format::F16 { Dtype::F16 } else { Dtype::BF16 };
    let view = TensorView::new(dtype, vec![tokens.count, columns], y)?;
    Ok(file::write(path, safetensors::serialize([("y", view)], None)?)?)
}
