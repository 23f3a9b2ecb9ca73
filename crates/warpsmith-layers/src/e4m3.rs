//! Rows that are made e4m3 before a product takes them.

use warpsmith::Result;
use warpsmith::engine::Engine;
use warpsmith::run::{LaunchStream, Matrix, MemoryMut, QuantiseOperands, Quantiser};
use warpsmith::spec::Quantise;

use crate::operands::{as_values, not_in_parts};

/// What makes them so.
#[derive(Debug)]
pub(crate) struct ToE4m3(Quantiser);

impl ToE4m3 {
    /// # Errors
    /// Those of [`Engine::quantise`].
    pub(crate) fn new(engine: &Engine, quantise: &Quantise) -> Result<Self> {
        engine.quantise(quantise).map(Self)
    }

    /// Of x and of h, where both become e4m3.
    ///
    /// # Errors
    /// Those of [`Engine::quantise`].
    pub(crate) fn both(engine: &Engine, quantisers: Option<[Quantise; 2]>) -> Result<Option<[Self; 2]>> {
        let Some([x, h]) = quantisers else { return Ok(None) };
        Ok(Some([Self::new(engine, &x)?, Self::new(engine, &h)?]))
    }

    /// Bytes of values and of factors of so many rows.
    pub(crate) fn bytes(&self, rows: u32) -> [u64; 2] {
        let rows = u64::from(rows);
        [rows * u64::from(self.0.quantise().row_length()), rows * size_of::<f32>() as u64]
    }

    /// Puts the launch for the first `rows` rows of `x` into the stream; it may begin while what is before it still runs.
    pub(crate) fn launch(
        &self,
        stream: &impl LaunchStream,
        rows: u32,
        x: Matrix<'_>,
        into: &mut E4m3Rows<'_>,
    ) -> Result<()> {
        let E4m3Rows { values, factors } = into;
        let bytes = values.elements() as usize;
        let values = values.part(0..bytes).ok_or_else(not_in_parts)?;
        let factors = factors.numbers_mut::<f32>().ok_or_else(not_in_parts)?;
        self.0.launch_dependent(stream, QuantiseOperands::e4m3(rows, as_values(x)?, values, factors))
    }
}

/// Room in a workspace for rows in e4m3.
#[derive(Debug)]
pub(crate) struct E4m3Rows<'a> {
    pub(crate) values: MemoryMut<'a, u8>,
    pub(crate) factors: MemoryMut<'a, u8>,
}

impl E4m3Rows<'_> {
    /// What is there, to be multiplied.
    pub(crate) fn matrix(&self) -> Result<Matrix<'_>> {
        let factors = self.factors.as_numbers::<f32>().ok_or_else(not_in_parts)?;
        Ok(Matrix::e4m3(self.values.as_memory(), factors))
    }
}
