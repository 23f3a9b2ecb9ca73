//! Matrices quantised by a device, some rows at a time: while it has one part, the next is copied.

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, DeviceRepr, ValidAsZeroBits};
use half::{bf16, f16};
use warpsmith::engine::Engine;
use warpsmith::format::Format;
use warpsmith::internal::build::QuantiseWeights;
use warpsmith::internal::engine::quantise_weights;
use warpsmith::internal::format::BLOCK;
use warpsmith::internal::run::{WeightOperands, WeightQuantiser};
use warpsmith::internal::{Raise, refused};
use warpsmith::run::Values;
use warpsmith::{Error, Result};

use super::block::factor;
use super::matrix::{Coded, Matrix, Squares};
use super::{Quantise, Scales};
use crate::upload::Ring;
use crate::weight::Factor;

/// Bytes of values of a part, more where a row has more; and of each pinned buffer, of which a stream has two.
const PART: usize = 16 << 20;

/// A device that quantises.
pub(super) struct OnDevice<'a> {
    engine: &'a Engine,
    how: &'a Quantise,
    /// Parts take turns, so that what becomes of one is read while the other is under way.
    lanes: [Lane; 2],
}

/// A stream, and what it copies from.
struct Lane {
    stream: Arc<CudaStream>,
    ring: Ring,
}

impl Lane {
    fn new(engine: &Engine, threads: usize) -> Result<Self> {
        let context = engine.device().context();
        let stream = context.new_stream().map_err(|error| refused("making a stream", error))?;
        let mut ring = Ring::new(&stream, 2 * PART)?;
        ring.threads = threads;
        Ok(Self { stream, ring })
    }
}

impl<'a> OnDevice<'a> {
    /// With its streams and buffers, and all kernels that values in these formats need.
    pub(super) fn new(engine: &'a Engine, how: &'a Quantise, formats: impl Iterator<Item = Format>) -> Result<Self> {
        let lanes = [Lane::new(engine, how.threads)?, Lane::new(engine, how.threads)?];
        let device = Self { engine, how, lanes };
        for format in formats {
            device.quantiser(format)?;
        }
        Ok(device)
    }

    fn quantiser(&self, format: Format) -> Result<WeightQuantiser> {
        let of = QuantiseWeights::new(format);
        let of = if self.how.scales == Scales::Search { of.searched() } else { of };
        let is_divided = matches!(self.how.layout.stored(1.0), Factor::Divide(_));
        quantise_weights(self.engine, if is_divided { of.divided() } else { of })
    }

    /// As [`Matrix::largest`].
    pub(super) fn largest(&mut self, matrix: &Matrix<'_>) -> Result<Vec<f32>> {
        let mut all = vec![0.0; matrix.rows()];
        let quantiser = self.quantiser(matrix.format())?;
        let launch = |stream: &Arc<CudaStream>, [rows, k]: [u32; 2], x: Values<'_>| {
            let mut largest = room::<f32>(stream, rows as usize)?;
            quantiser.launch(stream, WeightOperands::largest(rows, k, x, &mut largest))?;
            Ok(largest)
        };
        self.parts(matrix, launch, |stream, rows, largest| read(stream, &largest, &mut all[rows]))?;
        Ok(all)
    }

    /// As [`Matrix::coded`]: the same bytes, and the same sums.
    pub(super) fn coded(&mut self, matrix: &Matrix<'_>, amax: f32) -> Result<Coded> {
        let factor = factor(amax);
        let factors = [factor, self.how.layout.stored(factor).number()];
        let quantiser = self.quantiser(matrix.format())?;
        let (rows, columns) = (matrix.rows(), matrix.columns());
        let mut codes = vec![0; rows * columns / 2];
        let mut scales = vec![0; rows * columns / BLOCK];
        let mut squares = vec![0.0; rows * WeightOperands::SQUARES];
        let launch = |stream: &Arc<CudaStream>, [rows, k]: [u32; 2], x: Values<'_>| {
            let values = rows as usize * k as usize;
            let mut codes = room::<u8>(stream, values / 2)?;
            let mut scales = room::<u8>(stream, values / BLOCK)?;
            let mut squares = room::<f64>(stream, rows as usize * WeightOperands::SQUARES)?;
            let operands = WeightOperands::quantised([rows, k], x, factors, &mut codes, &mut scales, &mut squares);
            quantiser.launch(stream, operands)?;
            Ok((codes, scales, squares))
        };
        self.parts(matrix, launch, |stream, rows, made| {
            let of = |each: usize| rows.start * each..rows.end * each;
            read(stream, &made.0, &mut codes[of(columns / 2)])?;
            read(stream, &made.1, &mut scales[of(columns / BLOCK)])?;
            read(stream, &made.2, &mut squares[of(WeightOperands::SQUARES)])
        })?;
        let mut sums = Squares::default();
        for [values, error, plain] in squares.as_chunks::<{ WeightOperands::SQUARES }>().0 {
            sums += Squares { values: *values, error: *error, plain: *plain };
        }
        Ok(Coded { codes, scales, squares: sums })
    }

    /// Some rows of a matrix after the other: `launch` puts into a stream what makes something of them, and `take` has that
    /// when the next part is in the other stream.
    fn parts<T>(
        &mut self,
        matrix: &Matrix<'_>,
        launch: impl Fn(&Arc<CudaStream>, [u32; 2], Values<'_>) -> Result<T>,
        mut take: impl FnMut(&Arc<CudaStream>, Range<usize>, T) -> Result<()>,
    ) -> Result<()> {
        let (all, columns) = (matrix.rows(), matrix.columns());
        let of_row = matrix.bytes() as usize / all.max(1);
        if of_row == 0 {
            return Ok(());
        }
        let k = number(columns, "columns")?;
        let step = (PART / of_row).max(1);
        let mut before: Option<(Arc<CudaStream>, Range<usize>, T)> = None;
        for first in (0..all).step_by(step) {
            let rows = first..all.min(first + step);
            self.lanes.swap(0, 1);
            let [Lane { stream, ring }, _] = &mut self.lanes;
            let part = matrix.part(rows.clone())?;
            let mut x = room::<u8>(stream, part.bytes())?;
            ring.send(stream, &mut [&mut x], &[vec![part]], &mut |_| ())?;
            let made = launch(stream, [number(rows.len(), "rows")?, k], values(matrix.format(), &x)?)?;
            if let Some((stream, rows, made)) = before.replace((stream.clone(), rows, made)) {
                take(&stream, rows, made)?;
            }
        }
        before.map_or(Ok(()), |(stream, rows, made)| take(&stream, rows, made))
    }
}

fn number(count: usize, of: &str) -> Result<u32> {
    u32::try_from(count).map_err(|_| Error::unsupported(format!("{count} {of}: at most {} on a device", u32::MAX)))
}

/// Memory that a kernel writes.
fn room<T: DeviceRepr + ValidAsZeroBits>(stream: &Arc<CudaStream>, count: usize) -> Result<CudaSlice<T>> {
    stream.alloc_zeros(count).map_err(|error| refused(format!("allocating {count} elements"), error))
}

/// Waits for what is in the stream: the memory of `to` is pageable, and the driver returns when it has been copied.
fn read<T: DeviceRepr>(stream: &Arc<CudaStream>, from: &CudaSlice<T>, to: &mut [T]) -> Result<()> {
    if from.len() != to.len() {
        return Err(Error::internal(format!("{} elements for a place of {}", from.len(), to.len())));
    }
    stream.memcpy_dtoh(from, to).map_err(|error| refused(format!("copying {} elements", from.len()), error))
}

/// Bytes as the values that they are.
fn values(format: Format, bytes: &CudaSlice<u8>) -> Result<Values<'_>> {
    fn of<T>(bytes: &CudaSlice<u8>) -> Result<CudaView<'_, T>> {
        // SAFETY: any bits are a value of these types, and memory of its own begins on a multiple of 256.
        let view = unsafe { bytes.transmute(bytes.len() / size_of::<T>()) };
        view.ok_or_else(|| Error::internal("a view that is larger than its memory"))
    }
    Ok(match format {
        Format::F16 => of::<f16>(bytes)?.into(),
        Format::Bf16 => of::<bf16>(bytes)?.into(),
        _ => of::<f32>(bytes)?.into(),
    })
}
