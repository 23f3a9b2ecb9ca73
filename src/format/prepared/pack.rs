//! Whole operands: from checkpoints into blocks, and back.

use super::words::{Words, e4m3, e5m3};
use super::{CODE_BYTES, Coding, PreparedLayout, e4m3 as rounded};
use crate::error::{Error, Result};
use crate::format::ScaleLayout;

/// Row pairs, threads of a row pair and steps of 16 columns in a block.
const PAIRS: usize = 32;
const QUAD: usize = 4;
const STEPS: usize = 4;
/// Bytes of code and scale words that belong to a row pair: four threads' words, and two scale words.
const PAIR_CODE_BYTES: usize = CODE_BYTES / PAIRS;
const PAIR_SCALE_BYTES: usize = 8;

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

/// What [`Prepared::unpack`] gives of an operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// e2m1 codes, `[groups, n, k/2]` bytes, two codes a byte (low nibble = even k).
    pub codes: Vec<u8>,
    /// e4m3fn block scales, `[groups, n, k/16]` bytes; linear.
    pub scales: Vec<u8>,
}

impl Unpacked {
    /// Borrowed, as [`Prepared::pack`] takes it.
    #[must_use]
    pub fn as_weights(&self) -> Nvfp4Weights<'_> {
        Nvfp4Weights { codes: &self.codes, scales: &self.scales, layout: ScaleLayout::Linear }
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
    /// [`Error::is_data`] if there are more or fewer operands than the layout has products, or an operand's codes or
    /// scales have not the bytes that `[groups, n, k]` takes.
    pub fn pack(layout: PreparedLayout, operands: &[Nvfp4Weights<'_>]) -> Result<Self> {
        check(&layout, operands)?;
        let mut bytes = vec![0; layout.bytes()];
        let (block_bytes, factors) = bytes.split_at_mut(layout.block_bytes());
        let exponents = row_exponents(&layout, operands);
        for (factor, exponent) in factors.chunks_exact_mut(4).zip(&exponents) {
            factor.copy_from_slice(&rounded::exp2(*exponent).to_le_bytes());
        }
        for (bytes, block) in block_bytes.chunks_exact_mut(PreparedLayout::BLOCK_BYTES).zip(blocks(&layout)) {
            match layout.coding() {
                Coding::Halves(words) => pack_block(words, &layout, operands, block, bytes),
                Coding::E4m3 => pack_rounded(&layout, operands, &exponents, block, bytes),
            }
        }
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
    /// as 0, a negative NaN as 0x7F).
    ///
    /// # Errors
    /// [`Error::is_data`] if a scale is one that [`Prepared::pack`] never writes: these are no prepared weights.
    pub fn unpack(&self) -> Result<Vec<Unpacked>> {
        let rows = self.layout.groups() as usize * self.layout.n() as usize;
        let k = self.layout.k() as usize;
        let empty = Unpacked { codes: vec![0; rows * (k / 2)], scales: vec![0; rows * (k / 16)] };
        let mut operands = vec![empty; self.layout.products() as usize];
        let (block_bytes, factors) = self.bytes.split_at(self.layout.block_bytes());
        let exponents = factors.chunks_exact(4).map(exponent_of).collect::<Result<Vec<_>>>()?;
        for (bytes, block) in block_bytes.chunks_exact(PreparedLayout::BLOCK_BYTES).zip(blocks(&self.layout)) {
            match self.layout.coding() {
                Coding::Halves(words) => unpack_block(words, &self.layout, &mut operands, block, bytes)?,
                Coding::E4m3 => unpack_rounded(&self.layout, &mut operands, &exponents, block, bytes)?,
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

fn check(layout: &PreparedLayout, operands: &[Nvfp4Weights<'_>]) -> Result<()> {
    let (products, found) = (layout.products() as usize, operands.len());
    if found != products {
        return Err(Error::data(format!("{layout} is made of {products} operands, found {found}")));
    }
    let (groups, n, k) = (layout.groups() as usize, layout.n() as usize, layout.k() as usize);
    for (index, operand) in (1..).zip(operands) {
        let scales = operand.layout;
        let checks = [
            ("e2m1 codes".to_owned(), groups * n * (k / 2), operand.codes.len()),
            (format!("{scales} scales"), groups * scales.bytes(n, k), operand.scales.len()),
        ];
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

/// 64 elements of a row with their four scales; first as in a checkpoint, then as they are stored.
#[derive(Clone, Copy, Default)]
struct Segment {
    codes: [u8; 32],
    scales: [u8; STEPS],
}

impl Segment {
    fn read(layout: &PreparedLayout, operand: &Nvfp4Weights<'_>, row: usize, depth: usize) -> Self {
        let (n, k) = (layout.n() as usize, layout.k() as usize);
        let codes = row * (k / 2) + depth * 32;
        // In both layouts the four scales of 64 elements lie together.
        let scales = row / n * operand.layout.bytes(n, k) + operand.layout.offset(k, row % n, depth * STEPS);
        let mut segment = Self::default();
        segment.codes.copy_from_slice(&operand.codes[codes..codes + 32]);
        segment.scales.copy_from_slice(&operand.scales[scales..scales + STEPS]);
        segment
    }

    /// Moves signs of scales into the codes, clears codes under zero scales.
    fn settled_signs(mut self) -> Self {
        for (codes, scale) in self.codes.chunks_exact_mut(8).zip(&mut self.scales) {
            if *scale & !SCALE_SIGN == 0 {
                codes.fill(0);
            } else if *scale & SCALE_SIGN != 0 {
                codes.iter_mut().for_each(|pair| *pair ^= CODE_SIGNS);
            }
            *scale &= !SCALE_SIGN;
        }
        self
    }

    /// The same, and makes E5M3 of e4m3.
    fn settled(self) -> Self {
        let mut segment = self.settled_signs();
        segment.scales = segment.scales.map(e5m3);
        segment
    }
}

fn pack_block(coding: Words, layout: &PreparedLayout, operands: &[Nvfp4Weights<'_>], block: Block, bytes: &mut [u8]) {
    let (codes, scales) = bytes.split_at_mut(CODE_BYTES);
    let places = codes.chunks_exact_mut(PAIR_CODE_BYTES).zip(scales.chunks_exact_mut(PAIR_SCALE_BYTES));
    for (pair, (codes, scales)) in places.enumerate() {
        let [low, high] = block.rows(layout, pair).map(|row| {
            row.map(|(product, row)| Segment::read(layout, &operands[product], row, block.depth).settled())
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
            word.copy_from_slice(&coding.encode_scales(steps).to_le_bytes());
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
    let k = layout.k() as usize;
    let (codes, scales) = bytes.split_at(CODE_BYTES);
    let places = codes.chunks_exact(PAIR_CODE_BYTES).zip(scales.chunks_exact(PAIR_SCALE_BYTES));
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
            for (step, scales) in (2 * index..).zip(coding.decode_scales(word)) {
                for (segment, scale) in segments.iter_mut().zip(scales) {
                    segment.scales[step] = scale;
                }
            }
        }
        for (segment, place) in segments.iter().zip(block.rows(layout, pair)) {
            let Some((product, row)) = place else { continue };
            let operand = &mut operands[product];
            operand.codes[row * (k / 2) + block.depth * 32..][..32].copy_from_slice(&segment.codes);
            let scales = &mut operand.scales[row * (k / 16) + block.depth * STEPS..][..STEPS];
            for (scale, stored) in scales.iter_mut().zip(segment.scales) {
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

/// The exponents of rows, `[groups, products, n]`; none where kernels take no factors of rows.
fn row_exponents(layout: &PreparedLayout, operands: &[Nvfp4Weights<'_>]) -> Vec<i32> {
    let (n, k) = (layout.n() as usize, layout.k() as usize);
    let exponent = |index: usize| {
        let (group, operand, row) = (index / (operands.len() * n), &operands[index / n % operands.len()], index % n);
        let scales = &operand.scales[group * operand.layout.bytes(n, k)..];
        rounded::row_exponent((0..k / 16).map(|block| scales[operand.layout.offset(k, row, block)]))
    };
    (0..layout.row_factors()).map(exponent).collect()
}

/// Where the exponent of a row of a product is, the row being counted through all groups.
fn exponent_index(layout: &PreparedLayout, product: usize, row: usize) -> usize {
    let (n, products) = (layout.n() as usize, layout.products() as usize);
    (row / n * products + product) * n + row % n
}

/// The exponent of a row's factor.
fn exponent_of(factor: &[u8]) -> Result<i32> {
    let bits = words(factor).next().unwrap_or_default();
    let exponent = (bits >> 23) as i32 - 127;
    if (-15..=3).contains(&exponent) && f32::from_bits(bits) == rounded::exp2(exponent) {
        return Ok(exponent);
    }
    Err(Error::data(format!("{} is no factor of a row of prepared weights", f32::from_bits(bits))))
}

/// Words and scale bytes of a thread.
const THREAD_CODE_BYTES: usize = CODE_BYTES / (PAIRS * QUAD);
const THREAD_SCALE_BYTES: usize = 2;

/// A block of weights that become e4m3: thread `4 · pair + t` has the block scale t of its two rows, and the 16 codes under it.
fn pack_rounded(
    layout: &PreparedLayout,
    operands: &[Nvfp4Weights<'_>],
    exponents: &[i32],
    block: Block,
    bytes: &mut [u8],
) {
    let (codes, scales) = bytes.split_at_mut(CODE_BYTES);
    let threads = codes.chunks_exact_mut(THREAD_CODE_BYTES).zip(scales.chunks_exact_mut(THREAD_SCALE_BYTES));
    for (thread, (codes, scales)) in threads.enumerate() {
        let (pair, t) = (thread / QUAD, thread % QUAD);
        for (half, place) in block.rows(layout, pair).into_iter().enumerate() {
            scales[half] = rounded::scale_byte(0, 0);
            let Some((product, row)) = place else { continue };
            let segment = Segment::read(layout, &operands[product], row, block.depth).settled_signs();
            scales[half] = rounded::scale_byte(segment.scales[t], exponents[exponent_index(layout, product, row)]);
            for (word, codes) in codes[8 * half..][..8].chunks_exact_mut(4).zip(words(&segment.codes[8 * t..][..8])) {
                word.copy_from_slice(&rounded::code_word(codes).to_le_bytes());
            }
        }
    }
}

fn unpack_rounded(
    layout: &PreparedLayout,
    operands: &mut [Unpacked],
    exponents: &[i32],
    block: Block,
    bytes: &[u8],
) -> Result<()> {
    let k = layout.k() as usize;
    let (codes, scales) = bytes.split_at(CODE_BYTES);
    let threads = codes.chunks_exact(THREAD_CODE_BYTES).zip(scales.chunks_exact(THREAD_SCALE_BYTES));
    for (thread, (codes, scales)) in threads.enumerate() {
        let (pair, t) = (thread / QUAD, thread % QUAD);
        for (half, place) in block.rows(layout, pair).into_iter().enumerate() {
            let Some((product, row)) = place else { continue };
            let exponent = exponents[exponent_index(layout, product, row)];
            let scale = rounded::scale_of(scales[half], exponent)
                .ok_or_else(|| no_scale(layout, block, product, row, scales[half]))?;
            let operand = &mut operands[product];
            operand.scales[row * (k / 16) + block.depth * STEPS + t] = scale;
            let to = &mut operand.codes[row * (k / 2) + block.depth * 32 + 8 * t..][..8];
            for (to, word) in to.chunks_exact_mut(4).zip(words(&codes[8 * half..][..8])) {
                to.copy_from_slice(&rounded::codes_of(word).to_le_bytes());
            }
        }
    }
    Ok(())
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}
