//! How tiles cover C, and blocks the SMs.

use super::constants::Constants;
use crate::path::geometry::WIDTHS_MAX;
use crate::routing::Load;

/// Share of the SMs' time that has a block if every block takes the same: 1 if the last wave is full.
#[must_use]
pub fn wave_efficiency(blocks: f64, capacity: f64) -> f64 {
    if blocks <= 0.0 || capacity <= 0.0 {
        return 0.0;
    }
    blocks / ((blocks / capacity).ceil() * capacity)
}

/// Share of the tiles along one dimension that is inside of it.
#[must_use]
pub fn tile_efficiency(extent: f64, tile: f64) -> f64 {
    if extent <= 0.0 || tile <= 0.0 {
        return 0.0;
    }
    extent / ((extent / tile).ceil() * tile)
}

/// Tiles of tokens for M rows, all groups together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cover {
    /// Tiles that have rows.
    pub(crate) tiles: f64,
    /// Rows of a tile, on average.
    pub(crate) rows: f64,
    /// Tokens that a tile is multiplied as, on average.
    pub(crate) width: f64,
    /// How much more than the average the block of a wide one takes, and less that of a narrow one, as a share.
    pub(crate) unlike: f64,
    /// Next to no group has a second tile.
    pub(crate) alone: bool,
}

/// So many groups of a height are taken to be there.
const LIKELY: f64 = 0.5;
/// Tiles for each group with rows, up to which none is taken to have a second one.
const SECOND: f64 = 1.02;

impl Cover {
    /// Of a problem without groups.
    fn whole(m: f64, tokens: f64) -> Self {
        let tiles = (m / tokens).ceil().max(1.0);
        Self { tiles, rows: m / tiles, width: tokens, unlike: 0.0, alone: true }
    }

    fn grouped(load: &Load, tokens: f64, widths: &Widths, constants: &Constants) -> Self {
        let (mut tiles, mut room) = (0.0, 0.0);
        let (mut narrowest, mut widest) = (f64::INFINITY, 0.0_f64);
        // What is not to be expected once makes nobody wait.
        let few = LIKELY.min(load.with_rows() / 2.0);
        for &(rows, groups) in load.classes() {
            let count = (rows / tokens).ceil();
            let height = round_up(rows / count, 8.0);
            let width = widths.fitting(height, tokens);
            tiles += groups * count;
            room += groups * count * width;
            if groups >= few {
                (narrowest, widest) = (narrowest.min(width), widest.max(width));
            }
        }
        let tiles = tiles.max(1.0);
        let width = if room > 0.0 { room / tiles } else { tokens };
        // All decode alike, whatever their width.
        let by_width = constants.decode_width * width;
        let spread = if widest > 0.0 { (widest - narrowest) / (widest + narrowest) } else { 0.0 };
        let unlike = if widths.any { 1.0 } else { spread * by_width / (constants.decode + by_width) };
        let alone = tiles <= SECOND * load.with_rows();
        Self { tiles, rows: f64::from(load.m()) / tiles, width, unlike, alone }
    }

    /// Of tiles of this many tokens.
    pub(crate) fn new(load: &Load, tokens: u32, widths: &Widths, constants: &Constants) -> Self {
        let tokens = f64::from(tokens);
        if load.classes().is_empty() {
            return Self::whole(f64::from(load.m().max(1)), tokens);
        }
        Self::grouped(load, tokens, widths, constants)
    }
}

/// The widths that a tile may be multiplied in, ascending; empty where it is always the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Widths {
    tokens: [f64; WIDTHS_MAX],
    count: usize,
    any: bool,
}

impl Widths {
    /// Whatever a tile needs: no variant has more.
    pub(crate) const ANY: Widths = Widths { tokens: [0.0; WIDTHS_MAX], count: 0, any: true };

    /// Those of a tile.
    pub(crate) fn of(widths: impl Iterator<Item = u32>) -> Self {
        widths.zip(0..WIDTHS_MAX).fold(Self::default(), |mut widths, (tokens, at)| {
            widths.tokens[at] = f64::from(tokens);
            widths.count = at + 1;
            widths
        })
    }

    /// The first that holds `rows`, or else the whole tile.
    fn fitting(&self, rows: f64, tokens: f64) -> f64 {
        if self.any {
            return rows;
        }
        self.tokens[..self.count].iter().copied().find(|width| *width >= rows).unwrap_or(tokens)
    }
}

fn round_up(value: f64, step: f64) -> f64 {
    (value / step).ceil() * step
}
