//! Which variants are worth measuring: what is picked today with its neighbours, a grid over the axes that matter, and a
//! random sample of everything legal.

use std::collections::HashSet;

use fastrand::Rng;
use warpsmith::internal::pick::heuristic;
use warpsmith::internal::pick::rules::Rule;
use warpsmith::internal::spec::{Axes, Epilogue, Fusion, Tile, Warps, axes, deepest, space};
use warpsmith::pick::{self, Picker};
use warpsmith::spec::{Arch, MatrixPath, Operation, Problem, Spec, Variant};

/// How many of the heuristic's ranking are looked at.
pub const RANKED: usize = 8;

/// Whoever picks where nothing was measured.
pub fn untuned(arch: &Arch) -> warpsmith::Result<Picker> {
    Picker::builder("no device", arch).without_built_in().build()
}

/// What a line of the table needs: the first pick, what of the kernels that serve all M does here, what the published rules
/// choose, and the rest of what the heuristic ranks highest.
pub fn ranked(problem: &Problem, m: u32, picker: &Picker) -> Vec<Spec> {
    let arch = picker.arch();
    let ranked = heuristic::rank(problem, m, arch, RANKED).into_iter().map(|ranked| ranked.spec);
    let mut found = Found::default();
    heuristic::first(problem, m, arch).into_iter().for_each(|first| found.add(first.spec));
    picker.choose(problem, m).into_iter().for_each(|choice| found.add(*choice.spec()));
    Rule::ALL.iter().filter_map(|rule| rule.choose(problem, m, arch)).for_each(|spec| found.add(spec));
    ranked.for_each(|spec| found.add(spec));
    found.specs
}

/// Beside what is `given`, `count` variants, the most telling first: the pick with its neighbours, then three of a grid for each
/// of a random `sample`.
pub fn more(
    problem: &Problem,
    m: u32,
    arch: &Arch,
    count: usize,
    given: &[Spec],
    sample: &[Spec],
    rng: &mut Rng,
) -> Vec<Spec> {
    if count == 0 {
        return Vec::new();
    }
    let mut found = Found::default();
    given.iter().for_each(|spec| found.add(*spec));
    if let Ok(choice) = pick::choose(problem, m, arch) {
        found.add(*choice.spec());
        neighbours(choice.spec(), m).into_iter().for_each(|spec| found.add(spec));
    }
    let count = count.saturating_add(given.len());
    let mut grid = grid(problem, m, arch);
    let mut sample = sample.to_vec();
    rng.shuffle(&mut grid);
    // Three of the grid for each of the sample.
    while found.specs.len() < count && !(grid.is_empty() && sample.is_empty()) {
        grid.drain(grid.len().saturating_sub(3)..).for_each(|spec| found.add(spec));
        sample.pop().into_iter().for_each(|spec| found.add(spec));
    }
    found.specs.truncate(count);
    found.specs.drain(given.len()..).collect()
}

/// Specs in order, each once.
#[derive(Default)]
struct Found {
    specs: Vec<Spec>,
    seen: HashSet<Spec>,
}

impl Found {
    fn add(&mut self, spec: Spec) {
        if self.seen.insert(spec) {
            self.specs.push(spec);
        }
    }
}

/// As deep as fits when an SM holds one block, two, …
fn depths(problem: &Problem, variant: &Variant, arch: &Arch) -> Vec<Spec> {
    deepest(problem, variant, arch, &|_| true).collect()
}

/// Tile heights that make sense for `m` rows: those that share them evenly, and the powers of two.
fn heights(problem: &Problem, m: u32) -> Vec<u32> {
    let groups = problem.groups().unwrap_or(1).clamp(1, m.max(1));
    let rows = m.div_ceil(groups).max(1);
    let even = (1..=8).map(|tiles| rows.div_ceil(tiles).next_multiple_of(8));
    // Groups larger than the average want more room.
    let wide = if groups > 1 { vec![rows * 3 / 2, rows * 2] } else { vec![] };
    let wide = wide.into_iter().map(|rows| rows.next_multiple_of(8));
    let plain = [8, 16, 32, 64, 96, 128].into_iter().filter(|tokens| *tokens < 2 * rows.next_multiple_of(8));
    let mut heights: Vec<u32> = even.chain(wide).chain(plain).filter(|tokens| *tokens <= 256).collect();
    heights.sort_unstable();
    heights.dedup();
    heights
}

fn widths(problem: &Problem) -> [u32; 4] {
    let path = if problem.is_prepared() { MatrixPath::Wgmma } else { MatrixPath::Mma };
    axes(path, problem).columns
}

/// Columns of an m64 tile of weights.
fn step(problem: &Problem) -> u32 {
    64 / problem.operation().products()
}

fn fused(problem: &Problem) -> Fusion {
    match problem.operation() {
        Operation::DualGemm(_) => Fusion::Interleaved,
        _ => Fusion::Single,
    }
}

/// Tiles × warps × what blocks share × persistence, at their deepest; stores and fusion as they mostly win.
fn grid(problem: &Problem, m: u32, arch: &Arch) -> Vec<Spec> {
    let prepass = problem.is_prepared() && problem.a_format() == warpsmith::format::Format::Nvfp4;
    let Axes { warps, sharing, .. } = axes(MatrixPath::Wgmma, problem);
    let mut variants = Vec::new();
    for tokens in heights(problem, m) {
        for columns in widths(problem) {
            for k in [64, 128, 256] {
                let tile = Tile { tokens, columns, k };
                if !problem.is_prepared() {
                    variants.extend([1, 2, 4, 8].map(|splits| Variant::mma(tile, 1, fused(problem), splits)));
                    continue;
                }
                for &warps in warps {
                    let plain = Variant::wgmma(tile, 1, fused(problem), 1);
                    let plain = Variant { warps, prepass, epilogue: Epilogue::Direct, ..plain };
                    let sharing = sharing.iter().map(|(split_k, cluster)| {
                        let epilogue = if cluster.splits() > 1 { Epilogue::Shared } else { Epilogue::Direct };
                        Variant { split_k: *split_k, cluster: *cluster, epilogue, ..plain }
                    });
                    variants.extend(sharing);
                    variants.push(Variant { persistent: true, ..plain });
                    variants.push(Variant { persistent: true, epilogue: Epilogue::Shared, ..plain });
                }
            }
        }
    }
    variants.into_iter().flat_map(|variant| depths(problem, &variant, arch)).collect()
}

/// Random ones of all legal variants, each at a depth that is as much as fits.
pub fn sample(problem: &Problem, arch: &Arch, count: usize, rng: &mut Rng) -> Vec<Spec> {
    if count == 0 {
        return Vec::new();
    }
    let shallow: Vec<Variant> = space(problem, arch)
        .map(|spec| Variant { stages: 1, ..*spec.variant() })
        .collect::<HashSet<_>>()
        .into_iter()
        .collect();
    let mut shallow = shallow;
    // A set has no order of its own; the spelling gives one.
    shallow.sort_by_cached_key(ToString::to_string);
    rng.shuffle(&mut shallow);
    shallow.into_iter().take(count).flat_map(|variant| depths(problem, &variant, arch)).collect()
}

/// Variants that differ by a step along one axis.
pub fn neighbours(spec: &Spec, m: u32) -> Vec<Spec> {
    let (problem, arch, base) = (spec.problem(), spec.arch(), *spec.variant());
    let Tile { tokens, columns, k } = base.tile;
    let Axes { warps, sharing, .. } = axes(MatrixPath::Wgmma, problem);
    let mut steps: Vec<Variant> = Vec::new();
    let mut tile = |tile: Tile| steps.push(Variant { tile, ..base });

    let heights = heights(problem, m);
    let near = heights.iter().rev().filter(|height| **height < tokens).take(2);
    let near = near.chain(heights.iter().filter(|height| **height > tokens).take(2));
    near.copied().chain([tokens.saturating_sub(8), tokens + 8]).for_each(|tokens| tile(Tile { tokens, ..base.tile }));
    widths(problem).into_iter().filter(|wide| *wide != columns).for_each(|columns| tile(Tile { columns, ..base.tile }));
    [k / 2, k * 2].into_iter().for_each(|k| tile(Tile { k, ..base.tile }));
    // A wider tile with as many warpgroups a column as before.
    if let (Warps::Specialised(consumers), MatrixPath::Wgmma) = (base.warps, base.path) {
        let tiles = columns / step(problem);
        for more in (1..=4).filter(|more| *more != tiles && (consumers * more).is_multiple_of(tiles.max(1))) {
            let tile = Tile { columns: more * step(problem), ..base.tile };
            steps.push(Variant { tile, warps: Warps::Specialised(consumers * more / tiles.max(1)), ..base });
        }
    }
    if base.path == MatrixPath::Wgmma {
        steps.extend(warps.iter().map(|&warps| Variant { warps, ..base }));
        steps.extend(Epilogue::ALL.iter().map(|epilogue| Variant { epilogue: *epilogue, ..base }));
        steps.push(Variant { persistent: !base.persistent, ..base });
        steps.push(Variant { prepass: !base.prepass, ..base });
    }
    steps.extend(Fusion::ALL.iter().map(|fusion| Variant { fusion: *fusion, ..base }));
    for &(split_k, cluster) in sharing {
        steps.push(Variant { split_k, cluster, ..base });
        if split_k > 1 {
            steps.push(Variant { split_k, cluster, epilogue: Epilogue::Direct, ..base });
        }
    }
    let mut found = Found::default();
    for variant in steps.into_iter().filter(|variant| *variant != base) {
        depths(problem, &variant, arch).into_iter().take(2).for_each(|spec| found.add(spec));
    }
    let depths = [1, 2, 3, 4].iter().flat_map(|by| [base.stages.saturating_sub(*by), base.stages + by]);
    let depths = depths.filter_map(|stages| Spec::check(problem, &Variant { stages, ..base }, arch).ok());
    depths.for_each(|spec| found.add(spec));
    found.specs
}
