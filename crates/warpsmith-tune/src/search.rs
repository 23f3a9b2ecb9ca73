//! How far a search goes, and what is near the best so far.

use std::fmt;
use std::iter;
use std::str::FromStr;
use std::time::Duration;

use warpsmith::internal::Raise;
use warpsmith::internal::spec::{Axes, Cluster, Rows, Tile, axes};
use warpsmith::spec::{Spec, Variant};
use warpsmith::{Error, Result};

/// How far to search. Whatever it is, the wall-clock limit ends the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Budget {
    /// The first few candidates, as predicted: seconds.
    Quick,
    /// The first dozens, then from neighbour to neighbour while that gains something: minutes.
    Normal,
    /// All candidates, then neighbours: hours.
    Exhaustive,
}

impl Budget {
    /// All of them, the smallest first.
    pub const ALL: [Budget; 3] = [Budget::Quick, Budget::Normal, Budget::Exhaustive];

    /// Candidates that are tried, from the first.
    #[must_use]
    pub fn candidates(self) -> usize {
        match self {
            Budget::Quick => 12,
            Budget::Normal => 64,
            Budget::Exhaustive => usize::MAX,
        }
    }

    /// Candidates that are timed in turn with the best so far, after screening.
    #[must_use]
    pub fn finalists(self) -> usize {
        match self {
            Budget::Quick => 3,
            Budget::Normal => 6,
            Budget::Exhaustive => 12,
        }
    }

    /// The wall-clock limit, unless another is set.
    #[must_use]
    pub fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Budget::Quick => 8,
            Budget::Normal => 4 * 60,
            Budget::Exhaustive => 4 * 60 * 60,
        })
    }

    /// Whether neighbours of the best are tried at the end.
    #[must_use]
    pub fn climbs(self) -> bool {
        self != Budget::Quick
    }

    fn word(self) -> &'static str {
        match self {
            Budget::Quick => "quick",
            Budget::Normal => "normal",
            Budget::Exhaustive => "exhaustive",
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Budget {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|budget| budget.word() == text)
            .ok_or_else(|| Error::parse(format!("unknown budget `{text}`: expected quick, normal, exhaustive")))
    }
}

/// Legal variants that differ from `spec` in one step along one axis: numbers by a step to the next value that the axis
/// has (tokens and stages also to the next that is legal at all: 8 tokens, one stage), words to any other. A step that
/// is not legal alone takes along what it needs: other warps (more columns need more of them), another epilogue,
/// persistent blocks, fewer stages (a larger tile leaves room for fewer). In the order of the axes; without `spec`
/// itself, and each once.
#[must_use]
pub fn neighbours(spec: &Spec) -> Vec<Spec> {
    let axes = axes(spec.variant().path, spec.problem());
    let mut found: Vec<Spec> = Vec::new();
    for step in steps(spec.variant(), &axes) {
        let legal = repairs(step, &axes).find_map(|variant| Spec::check(spec.problem(), &variant, spec.arch()).ok());
        found.extend(legal.filter(|legal| legal != spec && !found.contains(legal)));
    }
    found
}

/// One step along each axis, legal or not.
fn steps(from: &Variant, axes: &Axes) -> Vec<Variant> {
    let (base, tile) = (*from, from.tile);
    let tokens = nearest(axes.tokens, tile.tokens, 8).map(|tokens| with_tile(base, Tile { tokens, ..tile }));
    let columns = nearest(&axes.columns, tile.columns, 0).map(|columns| with_tile(base, Tile { columns, ..tile }));
    let k = nearest(axes.k, tile.k, 0).flat_map(|k| {
        // With as many stages, and with as many bytes in flight.
        let stages = (base.stages * tile.k / k).max(1);
        let step = with_tile(base, Tile { k, ..tile });
        [step, Variant { stages, ..step }]
    });
    let stages = nearest(axes.stages, base.stages, 1).map(|stages| Variant { stages, ..base });
    let fusions = axes.fusions.iter().map(|&fusion| Variant { fusion, ..base });
    let warps = axes.warps.iter().map(|&warps| Variant { warps, ..base });
    let epilogues = axes.epilogues.iter().map(|&epilogue| Variant { epilogue, ..base });
    let sharing = axes.sharing.iter().map(|&(split_k, cluster)| shared(base, split_k, cluster));
    let rows = axes.rows.iter().map(|&rows| turned(base, rows, &axes.columns));
    let persistent = axes.persistent.iter().map(|&persistent| Variant { persistent, ..base });
    let prepass = axes.prepass.iter().map(|&prepass| Variant { prepass, ..base });
    let numbers = tokens.chain(columns).chain(k).chain(stages);
    numbers
        .chain(fusions)
        .chain(warps)
        .chain(epilogues)
        .chain(sharing)
        .chain(persistent)
        .chain(prepass)
        .chain(rows)
        .collect()
}

/// With another split and cluster. Blocks that have a tile together have the instruction's rows each.
fn shared(base: Variant, split_k: u32, cluster: Cluster) -> Variant {
    let of_all = |rows: u32| rows / base.cluster.tile_blocks() * cluster.tile_blocks();
    let tile = if base.rows == Rows::Tokens {
        Tile { tokens: of_all(base.tile.tokens), ..base.tile }
    } else {
        Tile { columns: of_all(base.tile.columns), ..base.tile }
    };
    Variant { split_k, cluster, tile, ..base }
}

/// With that operand as the instruction's rows: its side of the tile is as long as the other's was.
fn turned(base: Variant, rows: Rows, columns: &[u32]) -> Variant {
    if rows == base.rows {
        return base;
    }
    let Tile { tokens, columns: own, k } = base.tile;
    let columns = columns.iter().copied().min_by_key(|other| other.abs_diff(tokens)).unwrap_or(tokens);
    Variant { rows, tile: Tile { tokens: own, columns, k }, ..base }
}

fn with_tile(base: Variant, tile: Tile) -> Variant {
    Variant { tile, ..base }
}

/// The axis values next to `value`, which itself need not be one, and those `step` away.
fn nearest(axis: &[u32], value: u32, step: u32) -> impl Iterator<Item = u32> + use<> {
    let below = axis.iter().copied().filter(|other| *other < value).max();
    let above = axis.iter().copied().filter(|other| *other > value).min();
    let between = [value.checked_sub(step), value.checked_add(step)].into_iter().flatten();
    below.into_iter().chain(above).chain(between).filter(move |other| *other != value && *other > 0)
}

/// The step itself, and then with more and more of what it may need.
fn repairs(step: Variant, axes: &Axes) -> impl Iterator<Item = Variant> {
    let first = |own, all: &'static [_]| iter::once(own).chain(all.iter().copied().filter(move |other| *other != own));
    let epilogues = first(step.epilogue, axes.epilogues);
    let warps = iter::once(step.warps).chain(axes.warps.iter().copied().filter(move |warps| *warps != step.warps));
    let persistent = axes.persistent.iter().map(move |other| step.persistent ^ other);
    persistent.flat_map(move |persistent| {
        let warps = warps.clone();
        epilogues.clone().flat_map(move |epilogue| {
            warps.clone().flat_map(move |warps| {
                (1..=step.stages).rev().map(move |stages| Variant { persistent, epilogue, warps, stages, ..step })
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use warpsmith::format::Format;
    use warpsmith::internal::spec::space;
    use warpsmith::spec::{Activation, Arch, MatrixPath, Problem};
    use warpsmith_testing::{is_thorough, on_all_cores};

    fn dual() -> Problem {
        Problem::dual_gemm(Activation::Silu).n(4096).k(7168)
    }

    fn spellings(problem: &Problem, variant: &str) -> Vec<String> {
        let spec = Spec::new(problem, &variant.parse().unwrap(), &Arch::H200).unwrap();
        neighbours(&spec).iter().map(|spec| spec.variant().to_string()).collect()
    }

    #[test]
    fn neighbours_are_one_step_away() {
        let found = spellings(&dual(), "mma.t64x64x128.s3.interleaved.uniform.direct.k2");
        let expected = [
            "mma.t32x64x128.s3.interleaved.uniform.direct.k2",
            "mma.t128x64x128.s3.interleaved.uniform.direct.k2",
            "mma.t56x64x128.s3.interleaved.uniform.direct.k2",
            "mma.t64x32x128.s3.interleaved.uniform.direct.k2",
            "mma.t64x128x128.s3.interleaved.uniform.direct.k2",
            "mma.t64x64x64.s3.interleaved.uniform.direct.k2",
            "mma.t64x64x64.s6.interleaved.uniform.direct.k2",
            "mma.t64x64x256.s3.interleaved.uniform.direct.k2",
            "mma.t64x64x256.s1.interleaved.uniform.direct.k2",
            "mma.t64x64x128.s2.interleaved.uniform.direct.k2",
            "mma.t64x64x128.s4.interleaved.uniform.direct.k2",
            "mma.t64x64x128.s3.two_pass.uniform.direct.k2",
            "mma.t64x64x128.s3.sequential.uniform.direct.k2",
            "mma.t64x64x128.s3.interleaved.uniform.direct",
            "mma.t64x64x128.s3.interleaved.uniform.direct.k4",
            "mma.t64x64x128.s3.interleaved.uniform.direct.k8",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_step_takes_along_what_it_needs() {
        let found = spellings(&dual().prepared(), "wgmma.t64x64x128.s8.interleaved.ws2.shared");
        let has = |variant: &str| assert!(found.iter().any(|other| other == variant), "{variant} of {found:#?}");
        // Three m64 tiles of weights need three warpgroups and a stage less, ping-pong needs persistent blocks, partial sums leave
        // directly, and twice the depth needs half the stages.
        has("wgmma.t64x96x128.s7.interleaved.ws3.shared");
        has("wgmma.t64x64x128.s8.ping_pong.ws4.shared.persistent");
        has("wgmma.t64x64x128.s8.interleaved.ws2.direct.k2");
        has("wgmma.t64x64x256.s4.interleaved.ws2.shared");
        has("wgmma.t72x64x128.s8.interleaved.ws2.shared");
    }

    /// Whatever the search begins with, it can get to everything that is right of a hill.
    #[test]
    fn every_variant_can_be_reached_from_a_small_one() {
        let nvfp4 = dual().n(128).k(512).a(Format::Nvfp4);
        let paths = [
            (dual().n(128).k(512), MatrixPath::Mma, Arch::H200),
            (
                if is_thorough() { dual() } else { Problem::gemm() }.n(128).k(256).prepared(),
                MatrixPath::Wgmma,
                Arch::H200,
            ),
            (nvfp4, MatrixPath::Mxf4, Arch::RTX5090),
            (nvfp4, MatrixPath::Tcgen05, Arch::B200),
        ];
        on_all_cores(&paths, |(problem, path, arch)| {
            let all: HashSet<Spec> = space(problem, arch).filter(|spec| spec.variant().path == *path).collect();
            let first = *all.iter().min_by_key(|spec| (spec.variant().stages, spec.variant().tile.tokens)).unwrap();
            let (mut seen, mut next) = (HashSet::from([first]), vec![first]);
            while let Some(spec) = next.pop() {
                for other in neighbours(&spec) {
                    assert_ne!(other, spec);
                    // Only through axis values; those between are steps, too, but not searched from here.
                    if all.contains(&other) && seen.insert(other) {
                        next.push(other);
                    }
                }
            }
            let missed: Vec<_> = all.difference(&seen).map(|spec| spec.variant().to_string()).collect();
            assert!(missed.is_empty(), "{} of {}, such as {}", missed.len(), all.len(), missed[0]);
        });
    }

    #[test]
    fn a_budget_is_a_word() {
        for budget in Budget::ALL {
            assert_eq!(budget.to_string().parse::<Budget>().unwrap(), budget);
        }
        assert!("thorough".parse::<Budget>().unwrap_err().is_parse());
        assert!(Budget::ALL.is_sorted_by_key(|budget| (budget.candidates(), budget.finalists(), budget.limit())));
    }
}
