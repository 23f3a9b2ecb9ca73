//! The simple published rules, as named alternatives to compare the [heuristic](super::heuristic) with.
//!
//! They say which tile, and nothing of the rest, which is as usual here: both products at once, warps that load, stores from
//! registers, as many stages as fit. Where a rule's tile is not legal, the next narrower one that is stands for it.

use std::fmt;

use super::heuristic::{tile_efficiency, wave_efficiency};
use crate::spec::{Arch, Axes, Epilogue, Fusion, MatrixPath, Operation, Problem, Spec, Tile, Variant, Warps, deepest};

/// A published rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// Of all tiles the one with the largest [`wave_efficiency`] × [`tile_efficiency`] of both dimensions, the largest
    /// and then the squarest tile if several have it.
    Efficiency,
    /// M ≤ 64: 64×64; M ≤ 128: 64×128; N ≥ 4096: 128×256; else 128×128.
    Ladder,
}

impl Rule {
    /// Every rule.
    pub const ALL: &'static [Rule] = &[Rule::Efficiency, Rule::Ladder];

    /// The variant for `m` rows (of all groups together); `None` if [`Problem::check_for`] refuses them, or no tile of the
    /// rule, nor a narrower one, is legal.
    #[must_use]
    pub fn choose(self, problem: &Problem, m: u32, arch: &Arch) -> Option<Spec> {
        problem.check_for(m).ok()?;
        match self {
            Rule::Efficiency => efficiency(problem, m, arch),
            Rule::Ladder => ladder(problem, m, arch),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Rule::Efficiency => "efficiency",
            Rule::Ladder => "ladder",
        })
    }
}

/// Rows of a group, if all had the same number, and groups.
fn rows(problem: &Problem, m: u32) -> (f64, f64) {
    let groups = f64::from(problem.groups().unwrap_or(1).clamp(1, m.max(1)));
    ((f64::from(m) / groups).ceil(), groups)
}

fn efficiency(problem: &Problem, m: u32, arch: &Arch) -> Option<Spec> {
    let ((rows, groups), columns) = (rows(problem, m), f64::from(problem.columns()));
    let paths = MatrixPath::of(problem, arch).map(|path| path.axes(problem));
    let tiles = paths.flat_map(|axes| {
        axes.tokens.iter().flat_map(move |&tokens| axes.columns.map(|columns| (axes, tokens, columns)))
    });
    let score = |(tokens, width): (u32, u32)| {
        let (high, wide) = (f64::from(tokens), f64::from(width));
        let blocks = groups * (rows / high).ceil() * (columns / wide).ceil();
        wave_efficiency(blocks, arch.sms().into()) * tile_efficiency(rows, high) * tile_efficiency(columns, wide)
    };
    let legal = tiles.filter_map(|(axes, tokens, columns)| {
        Some((score((tokens, columns)), plain(&axes, problem, tokens, columns, arch)?))
    });
    let size = |spec: &Spec| {
        let Tile { tokens, columns, .. } = spec.variant().tile;
        (tokens * columns, tokens.min(columns))
    };
    legal.max_by(|a, b| a.0.total_cmp(&b.0).then(size(&a.1).cmp(&size(&b.1)))).map(|(_, spec)| spec)
}

fn ladder(problem: &Problem, m: u32, arch: &Arch) -> Option<Spec> {
    let (tokens, columns) = match rows(problem, m).0 {
        ..=64.0 => (64, 64),
        ..=128.0 => (64, 128),
        _ if problem.columns() >= 4096 => (128, 256),
        _ => (128, 128),
    };
    MatrixPath::of(problem, arch).map(|path| path.axes(problem)).find_map(|axes| {
        let mut narrower = axes.columns.into_iter().rev().filter(|width| *width <= columns);
        narrower.find_map(|columns| plain(&axes, problem, tokens, columns, arch))
    })
}

/// The usual variant with a tile, if there is one with at least two stages.
fn plain(axes: &Axes, problem: &Problem, tokens: u32, columns: u32, arch: &Arch) -> Option<Spec> {
    let fusion = match problem.operation() {
        Operation::Gemm(_) => Fusion::Single,
        Operation::DualGemm(_) => Fusion::Interleaved,
    };
    // Before the kernel, where the path has that.
    let prepass = axes.prepass.contains(&true);
    let of = |k: u32, warps: Warps| {
        let base = axes.plainest(Tile { tokens, columns, k }, fusion);
        let variant = Variant { warps, prepass, epilogue: Epilogue::Direct, ..base };
        deepest(problem, &variant, arch, &|spec| spec.variant().stages > 1).next()
    };
    // The fewest warpgroups that have the tile's columns between them.
    [128, 64].into_iter().find_map(|k| axes.warps.iter().find_map(|warps| of(k, *warps)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(rule: Rule, problem: &str, m: u32) -> String {
        rule.choose(&problem.parse().unwrap(), m, &Arch::H200).unwrap().variant().to_string()
    }

    #[test]
    fn the_ladder_has_its_four_rungs() {
        let gemm = "gemm:f16*nvfp4>f16:n4096:k7168:prepared";
        assert_eq!(tile(Rule::Ladder, gemm, 1), "wgmma.t64x64x128.s10.single.ws1.direct");
        assert_eq!(tile(Rule::Ladder, gemm, 65), "wgmma.t64x128x128.s9.single.ws2.direct");
        assert_eq!(tile(Rule::Ladder, gemm, 129), "wgmma.t128x256x128.s4.single.uniform.direct");
        let narrow = "gemm:f16*nvfp4>f16:n2048:k7168:prepared";
        assert_eq!(tile(Rule::Ladder, narrow, 129), "wgmma.t128x128x128.s5.single.ws2.direct");
        // 256 columns of both products are more than a block has.
        let dual = "dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared";
        assert_eq!(tile(Rule::Ladder, dual, 129), "wgmma.t128x128x128.s4.interleaved.uniform.direct");
    }

    #[test]
    fn the_fullest_wave_wins() {
        // 128 of 132 SMs with whole tiles.
        let dual = "dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared";
        assert_eq!(tile(Rule::Efficiency, dual, 256), "wgmma.t128x64x128.s5.interleaved.ws2.direct");
        let mma = "dual_gemm.silu:f16*nvfp4>f16:n4096:k7168";
        assert!(tile(Rule::Efficiency, mma, 256).starts_with("mma."));
    }
}
