//! Prepared weights: NVFP4 or MXFP4 weights repacked once, at load, into the order that kernels read them in.
//!
//! [`PreparedLayout`] specifies every byte; `words` codes the 32-bit words of those that become 16-bit values, `e4m3` has the
//! rule and the bytes of those that become e4m3, `pack` moves whole operands.

pub(crate) mod e4m3;
mod pack;
mod words;

use std::fmt;
use std::str::FromStr;

pub use pack::{Mxfp4Weights, Nvfp4Weights, Prepared, Unpacked};
pub(crate) use words::Words;

use super::{BLOCK, Format};
use crate::error::{Error, Result};

/// Rows and columns of a block.
const ROWS: u32 = 64;
const DEPTH: u32 = 64;
/// Bytes of the codes of a block, before its scales.
const CODE_BYTES: usize = 2048;

/// How blocks are coded: by what kernels make of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Coding {
    /// 16-bit values.
    Halves(Words),
    /// e4m3 values, and a factor a row.
    E4m3,
    /// The same, as values.
    Expanded,
}

impl Coding {
    pub(crate) const ALL: [Coding; 4] =
        [Coding::Halves(Words::F16), Coding::Halves(Words::Bf16), Coding::E4m3, Coding::Expanded];

    fn of(compute: Format) -> Option<Self> {
        Self::ALL.into_iter().find(|coding| coding.compute() == compute)
    }

    pub(crate) fn compute(self) -> Format {
        match self {
            Coding::Halves(words) => words.compute(),
            Coding::E4m3 | Coding::Expanded => Format::E4m3,
        }
    }

    /// Whether rows have factors.
    pub(crate) fn has_row_factors(self) -> bool {
        self.compute() == Format::E4m3
    }
}

/// Where the bytes of prepared weights lie, and how many there are. Checked once, by its constructor.
///
/// ```
/// use warpsmith::format::{Format, PreparedLayout};
/// let layout = PreparedLayout::new(2, Format::F16, 1, 4096, 7168)?;
/// assert_eq!(layout.bytes(), 2 * 4096 * 7168 / 16 * 9, "16 values take 8 bytes of codes and a scale, as before");
/// assert_eq!(layout.to_string().parse::<PreparedLayout>()?, layout);
/// # Ok::<(), warpsmith::Error>(())
/// ```
///
#[doc = include_str!("../../docs/formats.md")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PreparedLayout {
    products: u32,
    coding: Coding,
    groups: u32,
    n: u32,
    k: u32,
    weights: Format,
    blocks: usize,
}

impl PreparedLayout {
    /// The version of the layout; part of its spelling, and refused by [`FromStr`] if it is another.
    pub const VERSION: u32 = 1;
    /// `n` is a multiple of this.
    pub const N_STEP: u32 = 16;
    /// `k` is a multiple of this.
    pub const K_STEP: u32 = DEPTH;

    /// The layout of `products` NVFP4 operands `[groups, n, k]` for kernels that multiply in `compute`.
    ///
    /// # Errors
    /// [`Error::is_unsupported`] if `products` is neither 1 nor 2, `compute` not f16, bf16 or e4m3, `groups` 0, `n` not a
    /// positive multiple of 16, `k` not one of 64, or all together more bytes than memory can have.
    pub fn new(products: u32, compute: Format, groups: u32, n: u32, k: u32) -> Result<Self> {
        if !(1..=2).contains(&products) {
            return Err(Error::unsupported(format!("{products} products: weights are prepared for 1 or 2")));
        }
        let coding = Coding::of(compute).ok_or_else(|| {
            Error::unsupported(format!("weights are prepared for f16, bf16 or e4m3, not for {compute}"))
        })?;
        if groups == 0 {
            return Err(Error::unsupported("0 groups: at least 1 is needed"));
        }
        for (name, extent, step) in [("n", n, Self::N_STEP), ("k", k, Self::K_STEP)] {
            if extent == 0 || !extent.is_multiple_of(step) {
                return Err(Error::unsupported(format!("{name} = {extent}: must be a positive multiple of {step}")));
            }
        }
        let mut layout = Self { products, coding, groups, n, k, weights: Format::Nvfp4, blocks: 0 };
        layout.blocks = layout.count_blocks().ok_or_else(|| layout.too_large())?;
        Ok(layout)
    }

    fn too_large(&self) -> Error {
        Error::unsupported(format!("{self} takes more than the {} bytes that memory can have", isize::MAX))
    }

    /// The same for operands in another format, which is NVFP4 or MXFP4.
    ///
    /// # Errors
    /// [`Error::is_unsupported`] if it is another, or kernels make e4m3 of the weights, which are NVFP4 then.
    pub fn weights(self, format: Format) -> Result<Self> {
        // No format's blocks are larger than those that have been counted.
        match (format, self.coding) {
            (Format::Nvfp4, _) | (Format::Mxfp4, Coding::Halves(_)) => Ok(Self { weights: format, ..self }),
            (Format::Mxfp4, Coding::E4m3 | Coding::Expanded) => {
                Err(Error::unsupported("weights for e4m3 are prepared from nvfp4, not from mxfp4"))
            }
            _ => Err(Error::unsupported(format!("weights are prepared from nvfp4 or mxfp4, not from {format}"))),
        }
    }

    /// The same as e4m3 values, of which each takes a byte: nothing is left to decode.
    ///
    /// # Errors
    /// [`Error::is_unsupported`] if kernels make something else of the weights, or these are more bytes than memory can have.
    pub fn expanded(self) -> Result<Self> {
        if self.compute() != Format::E4m3 {
            return Err(Error::unsupported(format!("weights are expanded for e4m3, not for {}", self.compute())));
        }
        let layout = Self { coding: Coding::Expanded, ..self };
        if layout.count_blocks().is_none() {
            return Err(layout.too_large());
        }
        Ok(layout)
    }

    /// Whether they are e4m3 values.
    #[must_use]
    pub fn is_expanded(&self) -> bool {
        self.coding == Coding::Expanded
    }

    /// How many operands are prepared together: 1, or 2 for a dual GEMM.
    #[must_use]
    pub fn products(&self) -> u32 {
        self.products
    }

    /// What kernels make of the weights and multiply: f16, bf16 or e4m3.
    #[must_use]
    pub fn compute(&self) -> Format {
        self.coding.compute()
    }

    /// The format of the operands: NVFP4 or MXFP4.
    pub fn weights_format(&self) -> Format {
        self.weights
    }

    /// Matrices `[n, k]` in each operand.
    #[must_use]
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// Rows of a matrix.
    #[must_use]
    pub fn n(&self) -> u32 {
        self.n
    }

    /// Columns of a matrix.
    #[must_use]
    pub fn k(&self) -> u32 {
        self.k
    }

    /// Output columns of a tile: 64, or 32 where two products share its rows.
    #[must_use]
    pub fn tile_columns(&self) -> u32 {
        ROWS / self.products
    }

    /// Tiles of 64 rows (of all products together) in a group.
    #[must_use]
    pub fn tiles_per_group(&self) -> u32 {
        self.n.div_ceil(self.tile_columns())
    }

    /// Blocks in a tile.
    #[must_use]
    pub fn blocks_per_tile(&self) -> u32 {
        self.k / DEPTH
    }

    /// Blocks of all groups together.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Bytes of a block of 64 rows × 64 columns: codes and scales 2304, of MXFP4 2176; expanded 4096.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        Self::block_bytes_of(self.coding, self.weights)
    }

    pub(crate) fn block_bytes_of(coding: Coding, weights: Format) -> usize {
        match coding {
            Coding::Expanded => (ROWS * DEPTH) as usize,
            _ => CODE_BYTES + 2 * CODE_BYTES / weights.scale_block().unwrap_or(BLOCK),
        }
    }

    /// Bytes of all groups together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.factors_offset() + 4 * self.row_factors()
    }

    /// Where rows' factors begin, behind the blocks of all groups; the end, where there are none.
    #[must_use]
    pub fn factors_offset(&self) -> usize {
        self.blocks * self.block_bytes()
    }

    /// Factors of rows behind the blocks, f32 `[groups, products, n]`: none but for e4m3.
    #[must_use]
    pub fn row_factors(&self) -> usize {
        let rows = self.groups as usize * self.products as usize * self.n as usize;
        if self.coding.has_row_factors() { rows } else { 0 }
    }

    /// Which product (from 0) and which of its rows is row `row` (0 to 63) of tile `tile` of a group; none, if it is
    /// padding.
    #[must_use]
    pub fn source(&self, tile: u32, row: u32) -> Option<(u32, u32)> {
        let (product, row) = match self.products {
            1 => (0, row),
            // Rows of the two products alternate in eights.
            _ => (row / 8 % 2, row / 16 * 8 + row % 8),
        };
        let row = tile.checked_mul(self.tile_columns())?.checked_add(row)?;
        (row < self.n).then_some((product, row))
    }

    pub(crate) fn coding(&self) -> Coding {
        self.coding
    }

    /// How many blocks there are, if their bytes can be counted.
    fn count_blocks(&self) -> Option<usize> {
        let tiles = u64::from(self.groups).checked_mul(self.tiles_per_group().into())?;
        let blocks = tiles.checked_mul(self.blocks_per_tile().into())?;
        // A row's factor is less than its block.
        let bytes = blocks.checked_mul(self.block_bytes() as u64 + 4 * u64::from(ROWS))?;
        isize::try_from(bytes).ok().and(usize::try_from(blocks).ok())
    }
}

/// The word for weights that are values.
const EXPANDED: &str = "expanded";
/// The words for one and for two products.
const PRODUCTS: [&str; 2] = ["single", "dual"];

impl fmt::Display for PreparedLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let products = if self.products == 1 { PRODUCTS[0] } else { PRODUCTS[1] };
        let Self { groups, n, k, .. } = self;
        write!(f, "prepared{}.{products}.{}:g{groups}:n{n}:k{k}", Self::VERSION, self.compute())?;
        if self.weights != Format::Nvfp4 {
            write!(f, ":{}", self.weights)?;
        }
        if self.is_expanded() { write!(f, ":{EXPANDED}") } else { Ok(()) }
    }
}

impl FromStr for PreparedLayout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).map_err(|error| error.context(format!("prepared layout `{text}`")))
    }
}

fn parse(text: &str) -> Result<PreparedLayout> {
    let wrong = || {
        let version = PreparedLayout::VERSION;
        Error::parse(format!("expected prepared{version}.single|dual.f16|bf16|e4m3:gG:nN:kK[:mxfp4|:expanded]"))
    };
    let (version, rest) = text.strip_prefix("prepared").and_then(|rest| rest.split_once('.')).ok_or_else(wrong)?;
    let version: u32 = version.parse().map_err(|_| wrong())?;
    if version != PreparedLayout::VERSION {
        let known = PreparedLayout::VERSION;
        return Err(Error::unsupported(format!("layout version {version}: only version {known} is known here")));
    }
    let (products, rest) = rest.split_once('.').ok_or_else(wrong)?;
    let products = (1..).zip(PRODUCTS).find(|(_, word)| *word == products).ok_or_else(wrong)?.0;
    let mut segments = rest.split(':');
    let compute: Format = segments.next().ok_or_else(wrong)?.parse()?;
    let mut extent = |letter: char| {
        let digits = segments.next().and_then(|segment| segment.strip_prefix(letter)).ok_or_else(wrong)?;
        digits.parse().map_err(|_| wrong())
    };
    let layout = PreparedLayout::new(products, compute, extent('g')?, extent('n')?, extent('k')?)?;
    let layout = match segments.next() {
        Some(word) if word == Format::Mxfp4.word() => layout.weights(Format::Mxfp4)?,
        Some(EXPANDED) => layout.expanded()?,
        _ => layout,
    };
    // One spelling only: no further segment, no sign, no leading zero.
    if layout.to_string() == text { Ok(layout) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests;
