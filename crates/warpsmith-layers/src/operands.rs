//! What a layer works on.

use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::run::{LaunchStream, Matrix, MatrixMut, Memory, MemoryMut, Values};
use warpsmith::{Error, Result};

use crate::workspace::{ALIGNMENT, chunks};

/// The tokens of one forward, all on the layer's device. Nothing of it is looked at by the host.
#[derive(Debug)]
#[must_use]
pub struct LayerOperands<'a> {
    pub(crate) tokens: u32,
    pub(crate) x: Matrix<'a>,
    pub(crate) residual: Option<Values<'a>>,
    pub(crate) out: MatrixMut<'a>,
    pub(crate) workspace: MemoryMut<'a, u8>,
}

impl<'a> LayerOperands<'a> {
    /// `x` `[tokens, H]` in, `out` `[tokens, H]` (of a linear layer `[tokens, N]`), both in the layer's format and with room for
    /// more; and a `workspace` at a multiple of 256 bytes, whose contents before and after mean nothing.
    pub fn new(
        tokens: u32,
        x: impl Into<Matrix<'a>>,
        out: impl Into<MatrixMut<'a>>,
        workspace: impl Into<MemoryMut<'a, u8>>,
    ) -> Self {
        Self { tokens, x: x.into(), residual: None, out: out.into(), workspace: workspace.into() }
    }

    /// `[tokens, H]` in the layer's format: needed where the layer adds a residual, and only there.
    pub fn residual(mut self, residual: impl Into<Values<'a>>) -> Self {
        self.residual = Some(residual.into());
        self
    }

    /// Refuses what does not fit, before anything is launched.
    pub(crate) fn check(&self, stream: &impl LaunchStream, needs: &Needs) -> Result<()> {
        let Self { tokens, x, residual, out, workspace } = self;
        let Needs { format, columns: [inputs, outputs], limit, has_residual, rows_begin } = *needs;
        if *tokens > limit {
            return Err(Error::operand(format!("{tokens} tokens: the layer is for {limit} at most")));
        }
        let rows = u64::from(*tokens);
        is_enough("x", of_matrix(x), format, rows * u64::from(inputs))?;
        let found = match out {
            MatrixMut::F16(values) => (Format::F16, values.elements()),
            MatrixMut::Bf16(values) => (Format::Bf16, values.elements()),
            MatrixMut::F32(values) => (Format::F32, values.elements()),
            _ => return Err(Error::operand("out is in a format of its own")),
        };
        is_enough("out", found, format, rows * u64::from(outputs))?;
        check_given("residual", residual.is_some(), has_residual)?;
        if let Some(residual) = residual {
            is_enough("residual", of_values(residual)?, format, rows * u64::from(outputs))?;
        }
        let places = Places { stream, has_tokens: *tokens > 0 };
        match x {
            Matrix::F16(values) => places.check("x", values, rows_begin)?,
            Matrix::Bf16(values) => places.check("x", values, rows_begin)?,
            _ => {}
        }
        residual.as_ref().map_or(Ok(()), |residual| places.check_values("residual", residual, ROWS))?;
        match out {
            MatrixMut::F16(values) => places.check("out", &values.as_memory(), ROWS)?,
            MatrixMut::Bf16(values) => places.check("out", &values.as_memory(), ROWS)?,
            MatrixMut::F32(values) => places.check("out", &values.as_memory(), ROWS)?,
            _ => {}
        }
        let places = Places { has_tokens: places.has_tokens && workspace.elements() > 0, ..places };
        places.check("the workspace", &workspace.as_memory(), ALIGNMENT)
    }
}

/// Where operands may lie: before the first of several launches, not before that which takes them.
pub(crate) struct Places<'a, S> {
    pub(crate) stream: &'a S,
    /// Else it does not matter where they begin.
    pub(crate) has_tokens: bool,
}

impl<S: LaunchStream> Places<'_, S> {
    /// Refuses memory of another context, and such as does not begin at a multiple of so many bytes.
    pub(crate) fn check<T>(&self, name: &str, memory: &Memory<'_, T>, bytes: u64) -> Result<()> {
        memory.check_context(self.stream, name)?;
        if self.has_tokens { memory.check_alignment(self.stream, name, bytes) } else { Ok(()) }
    }

    pub(crate) fn check_values(&self, name: &str, values: &Values<'_>, bytes: u64) -> Result<()> {
        match values {
            Values::F16(values) => self.check(name, values, bytes),
            Values::Bf16(values) => self.check(name, values, bytes),
            Values::F32(values) => self.check(name, values, bytes),
            _ => Ok(()),
        }
    }
}

/// What a layer needs of its operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) format: Format,
    pub(crate) columns: [u32; 2],
    pub(crate) limit: u32,
    pub(crate) has_residual: bool,
    /// What x begins at a multiple of, in bytes.
    pub(crate) rows_begin: u64,
}

/// What kernels load and store at once of rows.
pub(crate) const ROWS: u64 = 16;

fn of_matrix(matrix: &Matrix<'_>) -> (Format, u64) {
    match matrix {
        Matrix::F16(values) => (Format::F16, values.elements()),
        Matrix::Bf16(values) => (Format::Bf16, values.elements()),
        // As many pairs of codes, of a format that no layer has.
        _ => (Format::Nvfp4, 0),
    }
}

fn of_values(values: &Values<'_>) -> Result<(Format, u64)> {
    Ok(match values {
        Values::F16(values) => (Format::F16, values.elements()),
        Values::Bf16(values) => (Format::Bf16, values.elements()),
        Values::F32(values) => (Format::F32, values.elements()),
        _ => return Err(Error::operand("values are in a format of their own")),
    })
}

/// Refuses values of another format, and too few.
pub(crate) fn are_enough(name: &str, values: &Values<'_>, format: Format, needed: u64) -> Result<()> {
    is_enough(name, of_values(values)?, format, needed)
}

/// Refuses what is given and not wanted, or wanted and not given.
pub(crate) fn check_given(name: &str, is_given: bool, is_wanted: bool) -> Result<()> {
    match (is_given, is_wanted) {
        (true, false) => Err(Error::operand(format!("{name}: given, the layer has none"))),
        (false, true) => Err(Error::operand(format!("{name}: not given, the layer has one"))),
        _ => Ok(()),
    }
}

/// Refuses another format, and too few elements.
pub(crate) fn is_enough(name: &str, (found, elements): (Format, u64), format: Format, needed: u64) -> Result<()> {
    if found != format {
        return Err(Error::operand(format!("{name} is {found}, the layer is for {format}")));
    }
    if elements < needed {
        return Err(Error::operand(format!("{name} has {elements} elements, {needed} are needed")));
    }
    Ok(())
}

/// Some tokens of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// One chunk is all: then views stay what they are, and so do the tensor maps of them.
    pub(crate) is_whole: bool,
}

impl Chunk {
    /// All tokens, `room` at a time.
    pub(crate) fn each(tokens: u32, room: u32) -> impl Iterator<Item = Self> {
        chunks(tokens, room).map(move |(first, count)| Self { first, count, is_whole: count == tokens })
    }

    /// Rows of it, of so many columns.
    pub(crate) fn of<'a, T>(&self, memory: &Memory<'a, T>, columns: u32) -> Result<Memory<'a, T>> {
        let (begin, end) = self.ends(columns);
        let all = memory.elements() as usize;
        memory.part(if self.is_whole { 0..all } else { begin..end }).ok_or_else(not_in_parts)
    }

    fn of_mut<'a, T>(&self, memory: &'a mut MemoryMut<'_, T>, columns: u32) -> Result<MemoryMut<'a, T>> {
        let (begin, end) = self.ends(columns);
        let all = memory.elements() as usize;
        memory.part(if self.is_whole { 0..all } else { begin..end }).ok_or_else(not_in_parts)
    }

    pub(crate) fn of_matrix<'a>(&self, matrix: &Matrix<'a>, columns: u32) -> Result<Matrix<'a>> {
        match matrix {
            Matrix::F16(values) => self.of(values, columns).map(Matrix::F16),
            Matrix::Bf16(values) => self.of(values, columns).map(Matrix::Bf16),
            _ => Err(not_in_parts()),
        }
    }

    pub(crate) fn of_values<'a>(&self, values: &Values<'a>, columns: u32) -> Result<Values<'a>> {
        match values {
            Values::F16(values) => self.of(values, columns).map(Values::F16),
            Values::Bf16(values) => self.of(values, columns).map(Values::Bf16),
            Values::F32(values) => self.of(values, columns).map(Values::F32),
            _ => Err(not_in_parts()),
        }
    }

    pub(crate) fn of_result<'a>(&self, result: &'a mut MatrixMut<'_>, columns: u32) -> Result<MatrixMut<'a>> {
        match result {
            MatrixMut::F16(values) => self.of_mut(values, columns).map(MatrixMut::F16),
            MatrixMut::Bf16(values) => self.of_mut(values, columns).map(MatrixMut::Bf16),
            MatrixMut::F32(values) => self.of_mut(values, columns).map(MatrixMut::F32),
            _ => Err(not_in_parts()),
        }
    }

    fn ends(&self, columns: u32) -> (usize, usize) {
        let columns = columns as usize;
        (self.first as usize * columns, (self.first + self.count) as usize * columns)
    }
}

#[cold]
pub(crate) fn not_in_parts() -> Error {
    Error::operand("an operand cannot be taken in parts: give more workspace, or another kind of memory")
}

/// 16-bit values in a piece of the workspace, to be read.
pub(crate) fn tokens<'a>(piece: &'a MemoryMut<'_, u8>, format: Format) -> Result<Matrix<'a>> {
    let matrix = match format {
        Format::F16 => piece.as_numbers().map(Matrix::F16),
        _ => piece.as_numbers().map(Matrix::Bf16),
    };
    matrix.ok_or_else(not_in_parts)
}

/// The same, as values.
pub(crate) fn values<'a>(piece: &'a MemoryMut<'_, u8>, format: Format) -> Result<Values<'a>> {
    as_values(tokens(piece, format)?)
}

/// 16-bit values as such.
pub(crate) fn as_values(matrix: Matrix<'_>) -> Result<Values<'_>> {
    match matrix {
        Matrix::F16(values) => Ok(Values::F16(values)),
        Matrix::Bf16(values) => Ok(Values::Bf16(values)),
        _ => Err(not_in_parts()),
    }
}

/// The same, to be written.
pub(crate) fn result<'a>(piece: &'a mut MemoryMut<'_, u8>, format: Format) -> Result<MatrixMut<'a>> {
    let matrix = match format {
        Format::F16 => piece.numbers_mut().map(MatrixMut::F16),
        _ => piece.numbers_mut().map(MatrixMut::Bf16),
    };
    matrix.ok_or_else(not_in_parts)
}
