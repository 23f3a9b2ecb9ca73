//! How tiles cover C, and blocks the SMs.

use super::constants::Constants;
use crate::path::geometry::part_width;
use crate::routing::{Drawn, Load};

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
    /// By how many there are more or less of them, as rows are drawn: a standard deviation.
    pub(crate) spread: f64,
    /// Rows of a tile, on average.
    pub(crate) rows: f64,
    /// Tokens that a tile is multiplied as, on average.
    pub(crate) width: f64,
    /// How much more than the average the block of a wide one takes, and less that of a narrow one, as a share.
    pub(crate) unlike: f64,
}

/// So many groups of a height are taken to be there.
const LIKELY: f64 = 0.5;

impl Cover {
    /// Of a problem without groups.
    fn whole(m: f64, tokens: f64) -> Self {
        let tiles = (m / tokens).ceil().max(1.0);
        Self { tiles, spread: 0.0, rows: m / tiles, width: tokens, unlike: 0.0 }
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
        let spread = load.drawn().map_or(0.0, |drawn| deviation(load, drawn, tokens));
        Self { tiles, spread, rows: f64::from(load.m()) / tiles, width, unlike }
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

/// The standard deviation of the tiles of all groups. How many rows they have together is known, so what tiles have in common with
/// rows does not count.
fn deviation(load: &Load, drawn: &Drawn, tokens: f64) -> f64 {
    let (mut tiles, mut rows, mut squares, mut both) = (0.0, 0.0, 0.0, 0.0);
    for (&(most, groups), mean) in load.classes().iter().zip(drawn.means()) {
        let (share, count) = (groups / drawn.groups, (most / tokens).ceil());
        tiles += share * count;
        rows += share * mean;
        squares += share * count * count;
        both += share * count * mean;
    }
    let common = both - tiles * rows;
    let explained = if drawn.variance > 0.0 { common * common / drawn.variance } else { 0.0 };
    (drawn.groups * (squares - tiles * tiles - explained)).max(0.0).sqrt()
}

/// The widths that a tile may be multiplied in, ascending; empty where it is always the whole.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Widths {
    tokens: u32,
    sixteenths: &'static [u32],
    step: u32,
    any: bool,
}

/// One by one: of so few, calling `memcmp` takes longer.
impl PartialEq for Widths {
    fn eq(&self, other: &Self) -> bool {
        let own = (self.tokens, self.step, self.any) == (other.tokens, other.step, other.any);
        own && self.sixteenths.iter().eq(other.sixteenths)
    }
}

impl Widths {
    /// Whatever a tile needs: no variant has more.
    pub(crate) const ANY: Widths = Widths { tokens: 0, sixteenths: &[], step: 8, any: true };

    /// Those of a tile.
    pub(crate) fn of(tokens: u32, sixteenths: &'static [u32], step: u32) -> Self {
        Self { tokens, sixteenths, step, any: false }
    }

    /// The first that holds `rows`, or else the whole tile.
    fn fitting(&self, rows: f64, tokens: f64) -> f64 {
        if self.any {
            return rows;
        }
        let mut widths =
            self.sixteenths.iter().map(|sixteenths| f64::from(part_width(self.tokens, *sixteenths, self.step)));
        widths.find(|width| *width >= rows).unwrap_or(tokens)
    }
}

fn round_up(value: f64, step: f64) -> f64 {
    (value / step).ceil() * step
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;
    use rand::seq::index;

    use super::super::constants::{Kind, Tables};
    use super::*;
    use crate::routing::Routing;

    /// The standard deviation of tiles over many draws.
    fn drawn(groups: u32, m: u32, top_k: u32, tokens: u32) -> f64 {
        let mut rng = SmallRng::seed_from_u64(7);
        let mut draw = || {
            let mut rows = vec![0u32; groups as usize];
            let chosen = |rng: &mut SmallRng| index::sample(rng, groups as usize, top_k as usize);
            (0..m / top_k).for_each(|_| chosen(&mut rng).into_iter().for_each(|group| rows[group] += 1));
            f64::from(rows.iter().map(|rows| rows.div_ceil(tokens)).sum::<u32>())
        };
        let tiles: Vec<f64> = (0..400).map(|_| draw()).collect();
        let mean = tiles.iter().sum::<f64>() / 400.0;
        (tiles.iter().map(|tiles| (tiles - mean).powi(2)).sum::<f64>() / 400.0).sqrt()
    }

    #[test]
    fn tiles_are_as_many_more_or_less_as_in_many_draws() {
        for (groups, m, top_k, tokens) in [
            (16, 256, 2, 24),
            (16, 256, 2, 16),
            (128, 2048, 8, 24),
            (256, 16_384, 8, 80),
            (64, 3072, 6, 56),
            (128, 64, 8, 8),
        ] {
            let load = Load::expected(groups, m, &Routing { top_k: Some(top_k), skew: None });
            let cover = Cover::new(&load, tokens, &Widths::default(), Tables::BUILT_IN.get(Kind::Groups));
            let expected = drawn(groups, m, top_k, tokens);
            let ratio = cover.spread / expected;
            assert!((0.6..1.7).contains(&ratio), "{groups} {m} {top_k} {tokens}: {} for {expected}", cover.spread);
        }
        // One token takes as many as it takes, and what is known is not drawn.
        let one = Load::expected(128, 8, &Routing { top_k: Some(8), skew: None });
        let spread = |load: &Load| Cover::new(load, 16, &Widths::default(), Tables::BUILT_IN.get(Kind::Groups)).spread;
        assert!(spread(&one) < 0.1, "{}", spread(&one));
        assert_eq!(spread(&Load::known(&[5, 60, 0, 7])), 0.0);
    }
}
