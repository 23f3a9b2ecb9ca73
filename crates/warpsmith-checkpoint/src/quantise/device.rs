//! Groups of matrices quantised by a device: each value is copied to it once, and while it has one group the next is copied.

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;
use cudarc::driver::{
    CudaSlice, CudaStream, CudaView, DeviceRepr, HostSlice, PinnedHostSlice, SyncOnDrop, ValidAsZeroBits,
};
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

/// Bytes of values of a part, more where a row has more.
const PART: usize = 16 << 20;
/// Bytes of a group's values that stay on the device until its largest is known. What is beyond is copied once more.
const HELD: usize = 512 << 20;
/// Bytes of the pinned buffers that values go through.
const BUFFERS: usize = 32 << 20;

/// A device that quantises.
pub(super) struct OnDevice<'a> {
    engine: &'a Engine,
    how: &'a Quantise,
    ring: Ring,
    /// Groups take turns; the first is that of the next group.
    lanes: [Lane; 2],
    /// The group that the first lane has already.
    begun: Option<&'a str>,
}

/// Weights under one factor, and what they are called together.
pub(super) type Group<'a> = (&'a str, &'a [Matrix<'a>]);

impl<'a> OnDevice<'a> {
    /// With room for each of these groups, and all kernels that they need.
    pub(super) fn new(
        engine: &'a Engine,
        how: &'a Quantise,
        groups: impl Iterator<Item = &'a [Matrix<'a>]>,
    ) -> Result<Self> {
        let mut sizes = Sizes::default();
        let mut formats = Vec::new();
        for group in groups {
            sizes.widen(group);
            for format in group.iter().map(Matrix::format) {
                if !formats.contains(&format) {
                    quantiser(engine, how, format)?;
                    formats.push(format);
                }
            }
        }
        let lanes = [Lane::new(engine, &sizes)?, Lane::new(engine, &sizes)?];
        let mut ring = Ring::new(&lanes[0].stream, BUFFERS)?;
        ring.threads = how.threads;
        Ok(Self { engine, how, ring, lanes, begun: None })
    }

    /// The largest magnitude of a group, and each of its matrices as [`Matrix::coded`] makes it: the same bytes, and the same sums.
    /// What is asked for `next` is begun.
    pub(super) fn coded(&mut self, group: Group<'a>, next: Option<Group<'a>>) -> Result<(f32, Vec<Coded>)> {
        let (name, matrices) = group;
        if self.begun.take() != Some(name) {
            self.begin(matrices)?;
        }
        let [lane, _] = &mut self.lanes;
        let largest = lane.largest_of(matrices)?;
        let factor = factor(largest);
        let factors = [factor, self.how.layout.stored(factor).number()];
        let mut all: Vec<_> = matrices.iter().map(Room::of).collect();
        let mut before = None;
        for (nth, part) in lane.parts(matrices).into_iter().enumerate() {
            let matrix = &matrices[part.matrix];
            if !part.is_held {
                lane.send(&mut self.ring, matrix, &part)?;
            }
            let quantiser = quantiser(self.engine, self.how, matrix.format())?;
            lane.quantise(&quantiser, matrix, &part, factors, nth % 2)?;
            if let Some((nth, part)) = before.replace((nth % 2, part)) {
                lane.back[nth].take(&mut all, matrices, &part)?;
            }
        }
        self.lanes.swap(0, 1);
        if let Some((name, matrices)) = next {
            self.begin(matrices)?;
            self.begun = Some(name);
        }
        if let Some((nth, part)) = before {
            self.lanes[1].back[nth].take(&mut all, matrices, &part)?;
        }
        Ok((largest, all.into_iter().map(Room::coded).collect()))
    }

    /// Copies a group to the first lane's memory, and asks for its largest magnitudes.
    fn begin(&mut self, matrices: &[Matrix<'_>]) -> Result<()> {
        let [lane, _] = &mut self.lanes;
        let parts = lane.parts(matrices);
        for part in &parts {
            let matrix = &matrices[part.matrix];
            lane.send(&mut self.ring, matrix, part)?;
            let quantiser = quantiser(self.engine, self.how, matrix.format())?;
            let x = values(matrix.format(), &lane.values, part.place..part.place + part.bytes)?;
            let largest = lane.largest.slice_mut(part.before..part.before + part.rows.len());
            let [rows, k] = part.extents(matrix)?;
            quantiser.launch(&lane.stream, WeightOperands::largest(rows, k, x, largest))?;
        }
        let rows = parts.last().map_or(0, |last| last.before + last.rows.len());
        read(&lane.stream, &lane.largest.slice(..rows), &mut lane.largest_back)
    }
}

fn quantiser(engine: &Engine, how: &Quantise, format: Format) -> Result<WeightQuantiser> {
    let of = QuantiseWeights::new(format);
    let of = if how.scales == Scales::Search { of.searched() } else { of };
    let is_divided = matches!(how.layout.stored(1.0), Factor::Divide(_));
    quantise_weights(engine, if is_divided { of.divided() } else { of })
}

/// What the largest group and the largest part ask for.
#[derive(Default)]
struct Sizes {
    group: usize,
    group_rows: usize,
    part: usize,
    part_rows: usize,
    part_codes: usize,
}

impl Sizes {
    fn widen(&mut self, group: &[Matrix<'_>]) {
        self.group = self.group.max(group.iter().map(|matrix| matrix.bytes() as usize).sum());
        self.group_rows = self.group_rows.max(group.iter().map(Matrix::rows).sum());
        for matrix in group {
            let rows = step(matrix.row_bytes()).min(matrix.rows());
            self.part = self.part.max(rows * matrix.row_bytes());
            self.part_rows = self.part_rows.max(rows);
            self.part_codes = self.part_codes.max(rows * matrix.columns() / 2);
        }
    }
}

/// Rows of a part.
fn step(row_bytes: usize) -> usize {
    (PART / row_bytes.max(1)).max(1)
}

/// Matrices of so many rows, of so many bytes each, in parts; those that are within the first `held` bytes are held.
fn parts(matrices: impl Iterator<Item = (usize, usize)>, held: usize) -> Vec<Part> {
    let (mut parts, mut place, mut before) = (Vec::new(), 0, 0);
    for (matrix, (all, row_bytes)) in matrices.enumerate().filter(|(_, (_, row_bytes))| *row_bytes > 0) {
        let step = step(row_bytes);
        for first in (0..all).step_by(step) {
            let rows = first..all.min(first + step);
            let (count, bytes) = (rows.len(), rows.len() * row_bytes);
            let is_held = place + bytes <= held;
            parts.push(Part { matrix, rows, before, place: if is_held { place } else { held }, bytes, is_held });
            place += if is_held { bytes } else { 0 };
            before += count;
        }
    }
    parts
}

/// Some rows of a matrix.
#[derive(Debug, PartialEq)]
struct Part {
    matrix: usize,
    rows: Range<usize>,
    /// Rows of the group before them.
    before: usize,
    /// Where its values are in the lane's memory, and how many bytes; whether they stay there.
    place: usize,
    bytes: usize,
    is_held: bool,
}

impl Part {
    fn extents(&self, matrix: &Matrix<'_>) -> Result<[u32; 2]> {
        let number = |count: usize, of: &str| {
            u32::try_from(count)
                .map_err(|_| Error::unsupported(format!("{count} {of}: at most {} on a device", u32::MAX)))
        };
        Ok([number(self.rows.len(), "rows")?, number(matrix.columns(), "columns")?])
    }
}

/// A stream with the memory of a group.
struct Lane {
    stream: Arc<CudaStream>,
    /// Values that are held, and behind them those of a part that are not.
    values: CudaSlice<u8>,
    held: usize,
    largest: CudaSlice<f32>,
    largest_back: PinnedHostSlice<f32>,
    codes: CudaSlice<u8>,
    scales: CudaSlice<u8>,
    squares: CudaSlice<f64>,
    /// Parts take turns.
    back: [Back; 2],
}

impl Lane {
    fn new(engine: &Engine, sizes: &Sizes) -> Result<Self> {
        let context = engine.device().context();
        let stream = context.new_stream().map_err(|error| refused("making a stream", error))?;
        let held = sizes.group.min(HELD.max(sizes.part));
        let passing = if sizes.group > held { sizes.part } else { 0 };
        let scales = sizes.part_codes * 2 / BLOCK;
        let squares = sizes.part_rows * WeightOperands::SQUARES;
        let back = || {
            Ok::<_, Error>(Back {
                codes: pinned(&stream, sizes.part_codes)?,
                scales: pinned(&stream, scales)?,
                squares: pinned(&stream, squares)?,
            })
        };
        Ok(Self {
            values: room(&stream, held + passing)?,
            held,
            largest: room(&stream, sizes.group_rows)?,
            largest_back: pinned(&stream, sizes.group_rows)?,
            codes: room(&stream, sizes.part_codes)?,
            scales: room(&stream, scales)?,
            squares: room(&stream, squares)?,
            back: [back()?, back()?],
            stream,
        })
    }

    /// What a group is cut into, always the same.
    fn parts(&self, matrices: &[Matrix<'_>]) -> Vec<Part> {
        parts(matrices.iter().map(|matrix| (matrix.rows(), matrix.row_bytes())), self.held)
    }

    fn send(&mut self, ring: &mut Ring, matrix: &Matrix<'_>, part: &Part) -> Result<()> {
        let to = self.values.slice_mut(part.place..part.place + part.bytes);
        ring.send(&self.stream, &mut [to], &[vec![matrix.part(part.rows.clone())?]], &mut |_| ())
    }

    /// Waits for what was begun.
    fn largest_of(&self, matrices: &[Matrix<'_>]) -> Result<f32> {
        let back = self.largest_back.as_slice().map_err(|error| refused("waiting for the largest values", error))?;
        let mut of_rows: Vec<_> = matrices.iter().map(|matrix| vec![0.0; matrix.rows()]).collect();
        for part in self.parts(matrices) {
            let rows = part.rows.len();
            of_rows[part.matrix][part.rows].copy_from_slice(&back[part.before..][..rows]);
        }
        let each = matrices.iter().zip(of_rows).map(|(matrix, of_rows)| matrix.amax(&of_rows));
        each.into_iter().try_fold(0.0f32, |largest, of_one| Ok(largest.max(of_one?)))
    }

    fn quantise(
        &mut self,
        quantiser: &WeightQuantiser,
        matrix: &Matrix<'_>,
        part: &Part,
        factors: [f32; 2],
        back: usize,
    ) -> Result<()> {
        let count = part.rows.len() * matrix.columns();
        let x = values(matrix.format(), &self.values, part.place..part.place + part.bytes)?;
        let [codes, scales, squares] = [count / 2, count / BLOCK, part.rows.len() * WeightOperands::SQUARES];
        let operands = WeightOperands::quantised(
            part.extents(matrix)?,
            x,
            factors,
            self.codes.slice_mut(..codes),
            self.scales.slice_mut(..scales),
            self.squares.slice_mut(..squares),
        );
        quantiser.launch(&self.stream, operands)?;
        let back = &mut self.back[back];
        read(&self.stream, &self.codes.slice(..codes), &mut back.codes)?;
        read(&self.stream, &self.scales.slice(..scales), &mut back.scales)?;
        read(&self.stream, &self.squares.slice(..squares), &mut back.squares)
    }
}

/// What becomes of a part, on the host.
struct Back {
    codes: PinnedHostSlice<u8>,
    scales: PinnedHostSlice<u8>,
    squares: PinnedHostSlice<f64>,
}

impl Back {
    /// Waits for a part.
    fn take(&self, all: &mut [Room], matrices: &[Matrix<'_>], part: &Part) -> Result<()> {
        fn into<T: Copy + ValidAsZeroBits>(to: &mut [T], from: &PinnedHostSlice<T>) -> Result<()> {
            let from = from.as_slice().map_err(|error| refused("waiting for a copy", error))?;
            to.copy_from_slice(&from[..to.len()]);
            Ok(())
        }
        let columns = matrices[part.matrix].columns();
        let of = |each: usize| part.rows.start * each..part.rows.end * each;
        let room = &mut all[part.matrix];
        into(&mut room.codes[of(columns / 2)], &self.codes)?;
        into(&mut room.scales[of(columns / BLOCK)], &self.scales)?;
        into(&mut room.squares[of(WeightOperands::SQUARES)], &self.squares)
    }
}

/// What becomes of a matrix.
struct Room {
    codes: Vec<u8>,
    scales: Vec<u8>,
    /// Of each row.
    squares: Vec<f64>,
}

impl Room {
    fn of(matrix: &Matrix<'_>) -> Self {
        let (rows, count) = (matrix.rows(), matrix.rows() * matrix.columns());
        let squares = vec![0.0; rows * WeightOperands::SQUARES];
        Self { codes: vec![0; count / 2], scales: vec![0; count / BLOCK], squares }
    }

    fn coded(self) -> Coded {
        let mut sums = Squares::default();
        for [values, error, plain] in self.squares.as_chunks::<{ WeightOperands::SQUARES }>().0 {
            sums += Squares { values: *values, error: *error, plain: *plain };
        }
        Coded { codes: self.codes, scales: self.scales, squares: sums }
    }
}

/// Memory that a kernel or a copy writes.
fn room<T: DeviceRepr + ValidAsZeroBits>(stream: &Arc<CudaStream>, count: usize) -> Result<CudaSlice<T>> {
    stream.alloc_zeros(count).map_err(|error| refused(format!("allocating {count} elements"), error))
}

fn pinned<T: DeviceRepr + ValidAsZeroBits>(stream: &Arc<CudaStream>, count: usize) -> Result<PinnedHostSlice<T>> {
    let doing = |error| refused(format!("allocating {count} elements of pinned memory"), error);
    // SAFETY: any bits are a value of these types; what is read of them has been written.
    unsafe { stream.context().alloc_pinned_with_flags::<T>(count.max(1), CU_MEMHOSTALLOC_PORTABLE) }.map_err(doing)
}

/// Copies to the first elements of pinned memory, in the stream.
fn read<T: DeviceRepr>(stream: &Arc<CudaStream>, from: &CudaView<'_, T>, to: &mut PinnedHostSlice<T>) -> Result<()> {
    if from.len() > to.len() {
        return Err(Error::internal(format!("{} elements for a place of {}", from.len(), to.len())));
    }
    let doing = |error| refused(format!("copying {} elements", from.len()), error);
    stream.memcpy_dtoh(from, &mut First(to, from.len())).map_err(doing)
}

/// The first elements of pinned memory.
struct First<'a, T>(&'a mut PinnedHostSlice<T>, usize);

impl<T> HostSlice<T> for First<'_, T> {
    fn len(&self) -> usize {
        self.1
    }

    unsafe fn stream_synced_slice<'s>(&'s self, stream: &'s CudaStream) -> (&'s [T], SyncOnDrop<'s>) {
        // SAFETY: the caller's promise.
        let (all, synced) = unsafe { self.0.stream_synced_slice(stream) };
        (&all[..self.1], synced)
    }

    unsafe fn stream_synced_mut_slice<'s>(&'s mut self, stream: &'s CudaStream) -> (&'s mut [T], SyncOnDrop<'s>) {
        // SAFETY: the caller's promise.
        let (all, synced) = unsafe { self.0.stream_synced_mut_slice(stream) };
        (&mut all[..self.1], synced)
    }
}

/// Bytes as the values that they are.
fn values(format: Format, all: &CudaSlice<u8>, range: Range<usize>) -> Result<Values<'_>> {
    fn of<'v, T>(bytes: &CudaView<'v, u8>) -> Result<CudaView<'v, T>> {
        // SAFETY: any bits are a value of these types, and rows begin on multiples of 32 bytes.
        let view = unsafe { bytes.transmute(bytes.len() / size_of::<T>()) };
        view.ok_or_else(|| Error::internal("a view that is larger than its memory"))
    }
    let bytes = all.slice(range);
    Ok(match format {
        Format::F16 => of::<f16>(&bytes)?.into(),
        Format::Bf16 => of::<bf16>(&bytes)?.into(),
        _ => of::<f32>(&bytes)?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_memory_comes_once_more_behind_it() {
        // Of 4 rows of 4 MiB, but for the last of each matrix.
        let found = parts([(9, 4 << 20), (0, 32), (5, 0), (17, 4 << 20)].into_iter(), 100 << 20);
        let at = |part: &Part| (part.matrix, part.rows.clone(), part.before, part.place >> 20, part.is_held);
        let expected = [
            (0, 0..4, 0, 0, true),
            (0, 4..8, 4, 16, true),
            (0, 8..9, 8, 32, true),
            (3, 0..4, 9, 36, true),
            (3, 4..8, 13, 52, true),
            (3, 8..12, 17, 68, true),
            (3, 12..16, 21, 84, true),
            (3, 16..17, 25, 100, false),
        ];
        assert!(found.iter().map(at).eq(expected), "{found:?}");
        // A row that is larger than a part is one.
        assert!(parts([(2, 100 << 20)].into_iter(), 200 << 20).iter().all(|part| part.is_held && part.rows.len() == 1));
    }
}
