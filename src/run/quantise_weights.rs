//! Weights of checkpoints made NVFP4 on the device.

use std::fmt;
use std::sync::Arc;

use super::LaunchStream;
use super::check;
use super::memory::MemoryMut;
use super::operand::Values;
use super::simt::{Line, Pieces, SimtKernel, SimtLaunch, Visit};
use crate::error::{Error, Result};
use crate::format::BLOCK;
use crate::simt::QuantiseWeights;

/// Threads of a block: each warp has a row at a time.
const THREADS: u32 = 128;
/// Blocks at most: each warp of so many takes several rows.
const GRID_MAX: u32 = 1 << 14;
/// The kernel's entries, in the order of `Simt::entries`.
const QUANTISE: usize = 0;
const LARGEST: usize = 1;

/// The loaded kernels of a [`QuantiseWeights`]. Holding it keeps them loaded; it can be shared between threads.
#[derive(Clone)]
pub struct WeightQuantiser {
    of: QuantiseWeights,
    kernel: Arc<SimtKernel>,
}

/// What a [`WeightQuantiser`] works on, all on its device.
#[derive(Debug)]
#[must_use]
pub struct WeightOperands<'a> {
    rows: u32,
    k: u32,
    x: Values<'a>,
    factor: f32,
    stored: f32,
    made: Option<[MemoryMut<'a, u8>; 2]>,
    squares: Option<MemoryMut<'a, f64>>,
    largest: Option<MemoryMut<'a, f32>>,
}

impl<'a> WeightOperands<'a> {
    /// Numbers of a row of `squares`: the sums of squares of its values, of its errors, of the plain rule's errors.
    pub const SQUARES: usize = 3;

    /// From `x`, `[rows, k]`, to `largest`, `[rows]`: the largest magnitude of each row, NaN or infinite where a value is.
    pub fn largest(rows: u32, k: u32, x: impl Into<Values<'a>>, largest: impl Into<MemoryMut<'a, f32>>) -> Self {
        let (factor, stored) = (1.0, 1.0);
        Self { rows, k, x: x.into(), factor, stored, made: None, squares: None, largest: Some(largest.into()) }
    }

    /// From `x`, `[rows, k]`, all finite, under a factor, and as a reader applies that, to `codes`, `[rows, k/2]`, `scales`,
    /// `[rows, k/16]`, and `squares`, [`WeightOperands::SQUARES`] for each row.
    pub fn quantised(
        [rows, k]: [u32; 2],
        x: impl Into<Values<'a>>,
        [factor, stored]: [f32; 2],
        codes: impl Into<MemoryMut<'a, u8>>,
        scales: impl Into<MemoryMut<'a, u8>>,
        squares: impl Into<MemoryMut<'a, f64>>,
    ) -> Self {
        let (made, squares) = (Some([codes.into(), scales.into()]), Some(squares.into()));
        Self { rows, k, x: x.into(), factor, stored, made, squares, largest: None }
    }
}

const PIECES: usize = 5;

impl Pieces for WeightOperands<'_> {
    fn visit<'b, V: Visit<'b>>(&'b mut self, visitor: &mut V) -> Result<()> {
        let Self { x, made, squares, largest, .. } = self;
        visitor.values(0, x)?;
        if let Some([codes, scales]) = made {
            visitor.write(1, codes)?;
            visitor.write(2, scales)?;
        }
        if let Some(squares) = squares {
            visitor.write(3, squares)?;
        }
        largest.as_mut().map_or(Ok(()), |largest| visitor.write(4, largest))
    }
}

impl WeightQuantiser {
    pub(crate) fn new(of: QuantiseWeights, kernel: Arc<SimtKernel>) -> Self {
        Self { of, kernel }
    }

    /// Which it is.
    pub fn of(&self) -> QuantiseWeights {
        self.of
    }

    /// Does in `stream` what the operands were made for: checks them, puts one launch into the stream and returns; no values are
    /// no launch. Nothing is allocated.
    ///
    /// # Errors
    /// Operand, if a format, size, alignment, factor or device does not fit, before anything is launched; driver, if the launch
    /// is refused or an earlier asynchronous failure shows.
    pub fn launch(&self, stream: &impl LaunchStream, mut operands: WeightOperands<'_>) -> Result<()> {
        self.put(stream, &mut operands).map_err(|error| error.context(self.of.symbol()))
    }

    fn put(&self, stream: &impl LaunchStream, operands: &mut WeightOperands<'_>) -> Result<()> {
        let WeightOperands { rows, k, factor, stored, .. } = *operands;
        let (given, taken) = (operands.x.format(), self.of.x_format());
        if given != taken {
            return Err(Error::operand(format!("x is {given}, the kernel is for {taken}")));
        }
        if !(k as usize).is_multiple_of(BLOCK) {
            return Err(Error::operand(format!("k = {k}: must be a multiple of {BLOCK}")));
        }
        check::positive("the factor", factor)?;
        check::positive("the stored factor", stored)?;
        if rows == 0 || k == 0 {
            return Ok(());
        }
        let (elements, blocks) = (u64::from(rows) * u64::from(k), k / BLOCK as u32);
        let is_quantised = operands.made.is_some();
        let made = |name, needed, alignment| Line { name, needed: if is_quantised { needed } else { 0 }, alignment };
        let lines = [
            Line { name: "x", needed: elements, alignment: 16 },
            made("codes", elements / 2, 8),
            made("scales", elements / BLOCK as u64, 1),
            made("squares", u64::from(rows) * WeightOperands::SQUARES as u64, 8),
            Line { name: "largest", needed: if is_quantised { 0 } else { u64::from(rows) }, alignment: 4 },
        ];
        let params = |[x, codes, scales, squares, largest]: [u64; PIECES]| Params {
            x,
            codes,
            scales,
            squares,
            largest,
            factor,
            stored,
            rows,
            blocks,
        };
        let entry = if is_quantised { QUANTISE } else { LARGEST };
        let grid = rows.div_ceil(THREADS / 32).min(GRID_MAX);
        let launch = SimtLaunch::new(entry, grid, THREADS);
        // SAFETY: the entries' only parameter has the layout of `Params` (checked below against the template), and each reads and
        // writes as many elements of each piece as its line says.
        unsafe { self.kernel.launch(stream, operands, &lines, params, &[launch], false) }
    }
}

impl fmt::Debug for WeightQuantiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernel.fmt(f)
    }
}

/// Passed by value; `QuantiseWeightsParams` in `templates/simt/quantise_weights/params.cuh` has the same order and sizes. Addresses
/// are device memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Params {
    x: u64,
    codes: u64,
    scales: u64,
    squares: u64,
    largest: u64,
    factor: f32,
    stored: f32,
    rows: u32,
    blocks: u32,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;
    use crate::run::simt::fields_of;

    #[test]
    fn the_parameters_lie_as_on_the_device_side() {
        let source = include_str!("../../templates/simt/quantise_weights/params.cuh");
        let names = fields_of(source, "QuantiseWeightsParams");
        let expected = ["x", "codes", "scales", "squares", "largest", "factor", "stored", "rows", "blocks"];
        assert_eq!(names, expected);
        assert_eq!((size_of::<Params>(), offset_of!(Params, largest), offset_of!(Params, blocks)), (56, 32, 52));
        let kernel = include_str!("../../templates/simt/quantise_weights.cu");
        assert!(kernel.contains(&format!("THREADS = {THREADS};")));
        assert!(kernel.contains(&format!("SUMS = {};", WeightOperands::SQUARES)));
    }
}
