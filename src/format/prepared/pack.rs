//! Whole operands: from checkpoints into blocks, and back.

mod rounded;

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

use super::words::{Words, e4m3, e5m3};
use super::{CODE_BYTES, Coding, DEPTH, PreparedLayout};
use crate::crew;
use crate::error::{Error, Result};
use crate::format::mxfp4::MX_BLOCK;
use crate::format::{Format, ScaleLayout, e8m0};

/// A thread for each so many blocks: fewer are packed sooner than one has begun.
const BLOCKS_A_THREAD: usize = 256;
/// Row pairs, threads of a row pair and steps of 16 columns in a block.
const PAIRS: usize = 32;
const QUAD: usize = 4;
const STEPS: usize = 4;
/// Halves of a block that MXFP4 has a scale of a row for.
const HALVES: usize = DEPTH as usize / MX_BLOCK;
/// Bytes of code words that belong to a row pair: four threads' words.
const PAIR_CODE_BYTES: usize = CODE_BYTES / PAIRS;

const CODE_SIGNS: u8 = 0x88;
const SCALE_SIGN: u8 = 0x80;

/// NVFP4 weights `[groups, n, k]` on the host, as a checkpoint holds them; borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Nvfp4Weights<'a> {
    /// e2m1 codes, `groups · n · k/2` bytes, two codes a byte (low nibble = even k).
    pub codes: &'a [u8],
    /// e4m3fn block scales in `layout`; in 128x4 each group apart, padded to whole atoms.
    pub scales: &'a [u8],
    /// How the scales lie.
    pub layout: ScaleLayout,
}

/// MXFP4 weights `[groups, n, k]` on the host, as a checkpoint holds them; borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Mxfp4Weights<'a> {
    /// e2m1 codes, `groups · n · k/2` bytes, two codes a byte (low nibble = even k).
    pub codes: &'a [u8],
    /// e8m0 block scales, `groups · n · k/32` bytes.
    pub scales: &'a [u8],
}

/// Weights in a format that can be prepared.
trait Weights: Sync {
    const FORMAT: Format;

    fn codes(&self) -> &[u8];

    /// Those of scales that `groups` matrices `[n, k]` take, those that there are, and what they are.
    fn scale_bytes(&self, groups: usize, n: usize, k: usize) -> (usize, usize, String);

    /// The scales of 64 elements of a row of all groups together, as they are given.
    fn scales(&self, layout: &PreparedLayout, row: usize, depth: usize) -> &[u8];

    /// Makes of codes under a scale, and of the scale, what is stored for 16-bit values.
    fn settle(codes: &mut [u8], scale: &mut u8);
}

impl Weights for Nvfp4Weights<'_> {
    const FORMAT: Format = Format::Nvfp4;

    fn codes(&self) -> &[u8] {
        self.codes
    }

    fn scale_bytes(&self, groups: usize, n: usize, k: usize) -> (usize, usize, String) {
        (groups * self.layout.bytes(n, k), self.scales.len(), format!("{} scales", self.layout))
    }

    fn scales(&self, layout: &PreparedLayout, row: usize, depth: usize) -> &[u8] {
        let (n, k) = (layout.n() as usize, layout.k() as usize);
        // In both layouts the four scales of 64 elements lie together.
        let first = row / n * self.layout.bytes(n, k) + self.layout.offset(k, row % n, depth * STEPS);
        &self.scales[first..first + STEPS]
    }

    fn settle(codes: &mut [u8], scale: &mut u8) {
        settle_signs(codes, scale);
        *scale = e5m3(*scale);
    }
}

/// Moves the sign of an e4m3 scale into the codes, clears codes under a zero scale.
fn settle_signs(codes: &mut [u8], scale: &mut u8) {
    if *scale & !SCALE_SIGN == 0 {
        codes.fill(0);
    } else if *scale & SCALE_SIGN != 0 {
        codes.iter_mut().for_each(|pair| *pair ^= CODE_SIGNS);
    }
    *scale &= !SCALE_SIGN;
}

impl Weights for Mxfp4Weights<'_> {
    const FORMAT: Format = Format::Mxfp4;

    fn codes(&self) -> &[u8] {
        self.codes
    }

    fn scale_bytes(&self, groups: usize, n: usize, k: usize) -> (usize, usize, String) {
        (groups * n * (k / MX_BLOCK), self.scales.len(), "e8m0 scales".to_owned())
    }

    fn scales(&self, layout: &PreparedLayout, row: usize, depth: usize) -> &[u8] {
        let first = row * (layout.k() as usize / MX_BLOCK) + depth * HALVES;
        &self.scales[first..first + HALVES]
    }

    /// Clears codes under NaN, which kernels take for infinity: 0 times that is NaN.
    fn settle(codes: &mut [u8], scale: &mut u8) {
        if e8m0::is_nan(*scale) {
            codes.fill(0);
        }
    }
}

/// What [`Prepared::unpack`] gives of an operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// e2m1 codes, `[groups, n, k/2]` bytes, two codes a byte (low nibble = even k).
    pub codes: Vec<u8>,
    /// e4m3fn block scales, `[groups, n, k/16]` bytes, linear; of MXFP4 e8m0 ones, `[groups, n, k/32]`.
    pub scales: Vec<u8>,
}

impl Unpacked {
    /// Borrowed, as [`Prepared::pack`] takes it.
    #[must_use]
    pub fn as_weights(&self) -> Nvfp4Weights<'_> {
        Nvfp4Weights { codes: &self.codes, scales: &self.scales, layout: ScaleLayout::Linear }
    }

    /// The same of MXFP4, as [`Prepared::pack_mxfp4`] takes it.
    #[must_use]
    pub fn as_mxfp4(&self) -> Mxfp4Weights<'_> {
        Mxfp4Weights { codes: &self.codes, scales: &self.scales }
    }
}

/// Prepared weights on the host: the bytes that [`PreparedLayout`] specifies.
///
/// ```
/// use warpsmith::format::{Format, Nvfp4Tensor, Nvfp4Weights, Prepared, PreparedLayout};
/// let values: Vec<f32> = (0..64 * 64).map(|i| (i % 101) as f32).collect();
/// let tensor = Nvfp4Tensor::quantise(64, 64, &values)?;
/// let weights = Nvfp4Weights { codes: tensor.codes(), scales: tensor.scales(), layout: tensor.layout() };
/// let prepared = Prepared::pack(PreparedLayout::new(1, Format::F16, 1, 64, 64)?, &[weights])?;
/// assert_eq!(prepared.bytes().len(), 2304);
/// assert_eq!(prepared.unpack()?[0].scales, tensor.scales());
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    layout: PreparedLayout,
    bytes: Vec<u8>,
}

impl Prepared {
    /// Prepares the one operand, or the two (B1, the gate, first).
    ///
    /// # Errors
    /// [`Error::is_data`] if the layout is for operands in another format, there are more or fewer of them than it has products,
    /// or an operand's codes or scales have not the bytes that `[groups, n, k]` takes.
    pub fn pack(layout: PreparedLayout, operands: &[Nvfp4Weights<'_>]) -> Result<Self> {
        Self::packed(layout, operands)
    }

    /// The same of MXFP4.
    ///
    /// # Errors
    /// As [`Prepared::pack`].
    pub fn pack_mxfp4(layout: PreparedLayout, operands: &[Mxfp4Weights<'_>]) -> Result<Self> {
        Self::packed(layout, operands)
    }

    fn packed<W: Weights>(layout: PreparedLayout, operands: &[W]) -> Result<Self> {
        check(&layout, operands)?;
        let mut bytes = vec![0; layout.bytes()];
        let (of_blocks, factors) = bytes.split_at_mut(layout.factors_offset());
        let exponents = rounded::exponents(&layout, operands);
        rounded::write_factors(&exponents, factors);
        let pack = |first: usize, bytes: &mut [u8]| {
            for (bytes, block) in bytes.chunks_exact_mut(layout.block_bytes()).zip(blocks(&layout).skip(first)) {
                match layout.coding() {
                    Coding::Halves(words) => pack_block(words, &layout, operands, block, bytes),
                    Coding::E4m3 => rounded::pack_block(&layout, operands, &exponents, block, bytes),
                    Coding::Expanded => rounded::expand_block(&layout, operands, &exponents, block, bytes),
                }
            }
        };
        let cores = available_parallelism().map_or(1, NonZero::get);
        let share = layout.blocks().div_ceil(cores).max(BLOCKS_A_THREAD);
        let parts = of_blocks.chunks_mut(share * layout.block_bytes()).enumerate().map(Mutex::new).collect::<Vec<_>>();
        crew::each(&parts, cores, |part| {
            let (part, bytes) = &mut *part.lock().unwrap_or_else(PoisonError::into_inner);
            pack(*part * share, bytes);
            ControlFlow::Continue(())
        });
        Ok(Self { layout, bytes })
    }

    /// Takes bytes that were prepared before, on a device say.
    ///
    /// # Errors
    /// [`Error::is_data`] if the length is not [`PreparedLayout::bytes`].
    pub fn from_bytes(layout: PreparedLayout, bytes: Vec<u8>) -> Result<Self> {
        if bytes.len() != layout.bytes() {
            return Err(Error::data(format!("{layout} has {} bytes, found {}", layout.bytes(), bytes.len())));
        }
        Ok(Self { layout, bytes })
    }

    /// The operands again, scales linear. Values are what they were; bytes are too, but for this: codes under a zero
    /// scale come back as 0, negative scales as their magnitudes with the signs of their codes flipped (a negative zero
    /// as 0, a negative NaN as 0x7F). Of MXFP4, codes under NaN come back as 0.
    ///
    /// # Errors
    /// [`Error::is_data`] if a scale is one that [`Prepared::pack`] never writes: these are no prepared weights.
    /// [`Error::is_unsupported`] if they are expanded: codes and scales are no longer there.
    pub fn unpack(&self) -> Result<Vec<Unpacked>> {
        let rows = self.layout.groups() as usize * self.layout.n() as usize;
        let k = self.layout.k() as usize;
        let depths = self.layout.blocks_per_tile() as usize;
        let empty =
            Unpacked { codes: vec![0; rows * (k / 2)], scales: vec![0; rows * depths * segments(&self.layout)] };
        let mut operands = vec![empty; self.layout.products() as usize];
        let (of_blocks, factors) = self.bytes.split_at(self.layout.factors_offset());
        let exponents = rounded::read_factors(factors)?;
        for (bytes, block) in of_blocks.chunks_exact(self.layout.block_bytes()).zip(blocks(&self.layout)) {
            match self.layout.coding() {
                Coding::Halves(words) => unpack_block(words, &self.layout, &mut operands, block, bytes)?,
                Coding::E4m3 => rounded::unpack_block(&self.layout, &mut operands, &exponents, block, bytes)?,
                Coding::Expanded => {
                    return Err(Error::unsupported(format!(
                        "{} has values, not the codes and scales that they were",
                        self.layout
                    )));
                }
            }
        }
        Ok(operands)
    }

    /// Where the bytes lie.
    #[must_use]
    pub fn layout(&self) -> &PreparedLayout {
        &self.layout
    }

    /// The bytes, [`PreparedLayout::bytes`] of them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes alone.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Scales of 64 elements of a row.
fn segments(layout: &PreparedLayout) -> usize {
    DEPTH as usize / layout.weights_format().scale_block().unwrap_or(DEPTH as usize)
}

/// How scale words are made: those of MXFP4, which are exponents, lie in one way.
fn scale_words(words: Words, layout: &PreparedLayout) -> Words {
    if layout.weights_format() == Format::Mxfp4 { Words::F16 } else { words }
}

fn check<W: Weights>(layout: &PreparedLayout, operands: &[W]) -> Result<()> {
    if layout.weights_format() != W::FORMAT {
        let (needed, found) = (layout.weights_format(), W::FORMAT);
        return Err(Error::data(format!("{layout} is made of {needed} operands, these are {found}")));
    }
    let (products, found) = (layout.products() as usize, operands.len());
    if found != products {
        return Err(Error::data(format!("{layout} is made of {products} operands, found {found}")));
    }
    let (groups, n, k) = (layout.groups() as usize, layout.n() as usize, layout.k() as usize);
    for (index, operand) in (1..).zip(operands) {
        let (scale_bytes, scales, name) = operand.scale_bytes(groups, n, k);
        let checks =
            [("e2m1 codes".to_owned(), groups * n * (k / 2), operand.codes().len()), (name, scale_bytes, scales)];
        if let Some((what, needed, found)) = checks.into_iter().find(|(_, needed, found)| needed != found) {
            let shape = format!("{groups}×{n}×{k}");
            return Err(Error::data(format!("operand {index}: {shape} has {needed} bytes of {what}, found {found}")));
        }
    }
    Ok(())
}

/// Where a block lies among all.
#[derive(Clone, Copy)]
struct Block {
    group: usize,
    tile: u32,
    /// Along k, in units of 64.
    depth: usize,
}

/// All blocks, in the order of their bytes.
fn blocks(layout: &PreparedLayout) -> impl Iterator<Item = Block> + use<> {
    let (groups, tiles, depths) =
        (layout.groups() as usize, layout.tiles_per_group(), layout.blocks_per_tile() as usize);
    (0..groups).flat_map(move |group| {
        (0..tiles).flat_map(move |tile| (0..depths).map(move |depth| Block { group, tile, depth }))
    })
}

impl Block {
    /// Row pair `pair` of the block: product, and row of all groups together, of its low and its high row.
    fn rows(self, layout: &PreparedLayout, pair: usize) -> [Option<(usize, usize)>; 2] {
        let low = pair as u32 / 8 * 16 + pair as u32 % 8;
        [low, low + 8].map(|row| {
            let (product, row) = layout.source(self.tile, row)?;
            Some((product as usize, self.group * layout.n() as usize + row as usize))
        })
    }
}

/// 64 elements of a row with their scales, four or as many as there are; first as in a checkpoint, then as they are stored.
#[derive(Clone, Copy, Default)]
struct Segment {
    codes: [u8; 32],
    scales: [u8; STEPS],
}

impl Segment {
    fn settled<W: Weights>(
        layout: &PreparedLayout,
        operand: &W,
        row: usize,
        depth: usize,
        settle: fn(&mut [u8], &mut u8),
    ) -> Self {
        let (codes, scales) = (row * (layout.k() as usize / 2) + depth * 32, operand.scales(layout, row, depth));
        let mut segment = Self::default();
        segment.codes.copy_from_slice(&operand.codes()[codes..codes + 32]);
        segment.scales[..scales.len()].copy_from_slice(scales);
        let each = segment.codes.len() / scales.len();
        let under = segment.codes.chunks_exact_mut(each).zip(&mut segment.scales);
        under.for_each(|(codes, scale)| settle(codes, scale));
        segment
    }
}

fn pack_block<W: Weights>(coding: Words, layout: &PreparedLayout, operands: &[W], block: Block, bytes: &mut [u8]) {
    let of_scales = scale_words(coding, layout);
    let (codes, scales) = bytes.split_at_mut(CODE_BYTES);
    let pair_scale_bytes = scales.len() / PAIRS;
    let places = codes.chunks_exact_mut(PAIR_CODE_BYTES).zip(scales.chunks_exact_mut(pair_scale_bytes));
    for (pair, (codes, scales)) in places.enumerate() {
        let [low, high] = block.rows(layout, pair).map(|row| {
            row.map(|(product, row)| Segment::settled(layout, &operands[product], row, block.depth, W::settle))
                .unwrap_or_default()
        });
        for (index, word) in codes.chunks_exact_mut(4).enumerate() {
            let (thread, step) = (index / STEPS, index % STEPS);
            let [first, second] = [8 * step + thread, 8 * step + thread + QUAD];
            let natural = [low.codes[first], high.codes[first], low.codes[second], high.codes[second]];
            word.copy_from_slice(&coding.encode(u32::from_le_bytes(natural)).to_le_bytes());
        }
        for (index, word) in scales.chunks_exact_mut(4).enumerate() {
            let steps = [2 * index, 2 * index + 1].map(|step| [low.scales[step], high.scales[step]]);
            word.copy_from_slice(&of_scales.encode_scales(steps).to_le_bytes());
        }
    }
}

fn unpack_block(
    coding: Words,
    layout: &PreparedLayout,
    operands: &mut [Unpacked],
    block: Block,
    bytes: &[u8],
) -> Result<()> {
    let (of_scales, count) = (scale_words(coding, layout), segments(layout));
    let (k, depths) = (layout.k() as usize, layout.blocks_per_tile() as usize);
    let (codes, scales) = bytes.split_at(CODE_BYTES);
    let places = codes.chunks_exact(PAIR_CODE_BYTES).zip(scales.chunks_exact(scales.len() / PAIRS));
    for (pair, (codes, scales)) in places.enumerate() {
        let mut segments = [Segment::default(); 2];
        for (index, word) in words(codes).enumerate() {
            let (thread, step) = (index / STEPS, index % STEPS);
            let natural = coding.decode(word).to_le_bytes();
            for (half, segment) in segments.iter_mut().enumerate() {
                segment.codes[8 * step + thread] = natural[half];
                segment.codes[8 * step + thread + QUAD] = natural[half + 2];
            }
        }
        for (index, word) in words(scales).enumerate() {
            for (step, scales) in (2 * index..).zip(of_scales.decode_scales(word)) {
                for (segment, scale) in segments.iter_mut().zip(scales) {
                    segment.scales[step] = scale;
                }
            }
        }
        for (segment, place) in segments.iter().zip(block.rows(layout, pair)) {
            let Some((product, row)) = place else { continue };
            let operand = &mut operands[product];
            operand.codes[row * (k / 2) + block.depth * 32..][..32].copy_from_slice(&segment.codes);
            let scales = &mut operand.scales[(row * depths + block.depth) * count..][..count];
            for (scale, stored) in scales.iter_mut().zip(segment.scales) {
                if layout.weights_format() == Format::Mxfp4 {
                    *scale = stored;
                    continue;
                }
                *scale = e4m3(stored).ok_or_else(|| no_scale(layout, block, product, row, stored))?;
            }
        }
    }
    Ok(())
}

fn no_scale(layout: &PreparedLayout, block: Block, product: usize, row: usize, stored: u8) -> Error {
    let (group, product, row) = (block.group, product + 1, row % layout.n() as usize);
    Error::data(format!("{stored:#04x} is no scale of prepared weights (operand {product}, group {group}, row {row})"))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}
