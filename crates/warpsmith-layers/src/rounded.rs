//! Rows that are made e4m3 or NVFP4 before a product takes them.

use warpsmith::engine::Engine;
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::pick::Policy;
use warpsmith::run::{LaunchStream, Matrix, Memory, MemoryMut, QuantiseOperands, Quantiser};
use warpsmith::spec::Quantise;
use warpsmith::{Error, Result};

use crate::operands::{as_values, not_in_parts};

/// What makes them so.
#[derive(Debug)]
pub(crate) struct RowQuantiser(Quantiser);

impl RowQuantiser {
    /// # Errors
    /// Those of [`Engine::quantise`]; unsupported, if rows are to have the same bits beside any others, and the factor is that of all.
    pub(crate) fn new(engine: &Engine, quantise: &Quantise) -> Result<Self> {
        if quantise.is_own() && engine.picker().policy() == Policy::BatchInvariant {
            let to = quantise.to_format();
            return Err(Error::unsupported(format!(
                "{to}: the factor is that of all rows of a call, so a token's bits depend on the others: not with kernels that \
                 are batch-invariant"
            )));
        }
        engine.quantise(quantise).map(Self)
    }

    /// Of x and of h, where both are rounded.
    ///
    /// # Errors
    /// Those of [`RowQuantiser::new`].
    pub(crate) fn both(engine: &Engine, quantisers: Option<[Quantise; 2]>) -> Result<Option<[Self; 2]>> {
        let Some([x, h]) = quantisers else { return Ok(None) };
        Ok(Some([Self::new(engine, &x)?, Self::new(engine, &h)?]))
    }

    fn is_nvfp4(&self) -> bool {
        self.0.quantise().to_format() == Format::Nvfp4
    }

    /// Bytes of values, of scales (of e4m3 factors of rows) and of the factor of so many rows.
    pub(crate) fn bytes(&self, rows: u32) -> [u64; 3] {
        let (k, float) = (self.0.quantise().row_length() as usize, size_of::<f32>() as u64);
        match self.is_nvfp4() {
            true => {
                let scales = self.0.quantise().scale_layout().bytes(rows as usize, k) as u64;
                [Format::Nvfp4.bytes(rows as usize * k) as u64, scales, Quantise::OWN_LENGTH as u64 * float]
            }
            false => [u64::from(rows) * k as u64, u64::from(rows) * float, 0],
        }
    }

    /// Puts the launches for the first `rows` rows of `x` into the stream; they may begin while what is before them still runs.
    pub(crate) fn launch(
        &self,
        stream: &impl LaunchStream,
        rows: u32,
        x: Matrix<'_>,
        into: &mut RoundedRows<'_>,
    ) -> Result<()> {
        self.put(stream, self.operands(rows, x, into)?)
    }

    /// Puts those launches into the stream.
    pub(crate) fn put(&self, stream: &impl LaunchStream, operands: QuantiseOperands<'_>) -> Result<()> {
        self.0.launch_dependent(stream, operands)
    }

    /// What it works on.
    pub(crate) fn operands<'a>(
        &self,
        rows: u32,
        x: Matrix<'a>,
        into: &'a mut RoundedRows<'_>,
    ) -> Result<QuantiseOperands<'a>> {
        let RoundedRows { values, scales, factor } = into;
        let bytes = values.elements() as usize;
        let values = values.part(0..bytes).ok_or_else(not_in_parts)?;
        let x = as_values(x)?;
        Ok(match self.is_nvfp4() {
            true => {
                let bytes = scales.elements() as usize;
                let scales = scales.part(0..bytes).ok_or_else(not_in_parts)?;
                let factor = factor.numbers_mut::<f32>().ok_or_else(not_in_parts)?;
                QuantiseOperands::new(rows, x, values, scales).own_factor(factor)
            }
            false => {
                let factors = scales.numbers_mut::<f32>().ok_or_else(not_in_parts)?;
                QuantiseOperands::e4m3(rows, x, values, factors)
            }
        })
    }

    /// What it has made, to be multiplied.
    pub(crate) fn made<'a>(&self, rows: &'a RoundedRows<'_>) -> Result<Taken<'a>> {
        let RoundedRows { values, scales, factor } = rows;
        if self.is_nvfp4() {
            let factor = factor.as_numbers::<f32>().ok_or_else(not_in_parts)?;
            let factor = factor.part(0..1).ok_or_else(not_in_parts)?;
            return Ok(Taken { matrix: (values.as_memory(), scales.as_memory()).into(), factor: Some(factor) });
        }
        let factors = scales.as_numbers::<f32>().ok_or_else(not_in_parts)?;
        Ok(Matrix::e4m3(values.as_memory(), factors).into())
    }
}

/// Room in a workspace for rounded rows.
#[derive(Debug)]
pub(crate) struct RoundedRows<'a> {
    pub(crate) values: MemoryMut<'a, u8>,
    /// Block scales, or factors of rows.
    pub(crate) scales: MemoryMut<'a, u8>,
    /// Of all of NVFP4.
    pub(crate) factor: MemoryMut<'a, u8>,
}

/// What a product takes.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    pub(crate) matrix: Matrix<'a>,
    /// What multiplies all of it, where that is not in the matrix.
    pub(crate) factor: Option<Memory<'a, f32>>,
}

impl<'a> From<Matrix<'a>> for Taken<'a> {
    fn from(matrix: Matrix<'a>) -> Self {
        Self { matrix, factor: None }
    }
}
