//! The best of all legal variants, without looking at most of them.
//!
//! Variants are sorted into nodes by fusion, tokens and columns, and those of a node into families, which differ in stages
//! and epilogue only. What no variant of a node, or of a family, can undercut is known without looking into it
//! ([`bound`]); nodes are opened in that order, until the next cannot have anything better than what was found. What comes
//! out is what a prediction of every variant would give.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::block;
use super::bound::{self, Covers, Height, Node, Question};
use super::constants::Constants;
use super::cost;
use super::terms::Prediction;
use crate::spec::{Arch, Axes, Epilogue, Fusion, Problem, Spec, Tile, Variant, deepest};

/// A variant with its prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The variant, proven legal.
    pub spec: Spec,
    /// What it is predicted to take.
    pub prediction: Prediction,
}

/// Most tiles that a problem's rows are divided into evenly, beside the heights that every problem has.
const EVEN_TILES: u32 = 8;

/// Variants that differ in stages and epilogue only.
struct Family {
    least_us: f64,
    /// What each epilogue takes more than that.
    more_us: [f64; Epilogue::ALL.len()],
    variant: Variant,
}

pub(super) fn rank(
    problem: &Problem,
    m: u32,
    arch: &Arch,
    count: usize,
    accepts: &dyn Fn(&Spec) -> bool,
    constants: &Constants,
) -> Vec<Ranked> {
    let axes = Axes::of(problem);
    let mut best = Best { count, found: Vec::with_capacity(count + 1) };
    let mut combinations: HashMap<(Fusion, u32), Vec<Alike>> = HashMap::new();
    let mut families = Vec::new();
    let question = Question::new(problem, m, arch, constants);
    let mut nodes = Nodes::new(&question, &axes);
    while let Some((least_us, node)) = nodes.next() {
        if best.is_full_below(least_us) {
            break;
        }
        let Variant { tile, fusion, .. } = *node.plain();
        let combinations = combinations
            .entry((fusion, tile.columns))
            .or_insert_with(|| alike(axes.families(problem, fusion, tile.columns)));
        let mut covers = Covers::default();
        families.clear();
        for Alike { shared, variants } in combinations.iter() {
            if best.is_full_below(node.least_us_like(shared)) {
                continue;
            }
            families.extend(variants.iter().filter_map(|other| {
                let variant = Variant { tile: Tile { tokens: tile.tokens, ..other.tile }, ..*other };
                let (least_us, more_us) = bound::of_family(&question, &variant, &mut covers);
                (!best.is_full_below(least_us)).then_some(Family { least_us, more_us, variant })
            }));
        }
        families.sort_by(|a, b| a.least_us.total_cmp(&b.least_us));
        for family in &families {
            if best.is_full_below(family.least_us) {
                break;
            }
            for epilogue in axes.epilogues {
                let variant = Variant { epilogue: *epilogue, ..family.variant };
                let more_us = family.more_us[*epilogue as usize];
                if best.is_full_below(family.least_us + more_us) || !Spec::can_combine(problem, &variant) {
                    continue;
                }
                depths(problem, &variant, m, arch, accepts, constants, &mut best);
            }
        }
    }
    let ranked = |(_, spec): (f64, Spec)| Ranked { spec, prediction: cost::predict(&spec, m, constants) };
    best.found.into_iter().map(ranked).collect()
}

/// Variants that share K and stages, keep their SMs and decode tokens in the same way.
struct Alike {
    /// One of them.
    shared: Variant,
    variants: Vec<Variant>,
}

fn alike(variants: Vec<Variant>) -> Vec<Alike> {
    let key = |variant: &Variant| (variant.split_k, variant.cluster, variant.persistent, variant.prepass);
    let mut all: Vec<Alike> = Vec::new();
    for variant in variants {
        match all.iter_mut().find(|alike| key(&alike.shared) == key(&variant)) {
            Some(alike) => alike.variants.push(variant),
            None => all.push(Alike { shared: variant, variants: vec![variant] }),
        }
    }
    all
}

/// All nodes, those that may have the best variants first; of a tile they are made when it is its turn.
struct Nodes<'a> {
    question: &'a Question<'a>,
    axes: &'a Axes,
    /// What is not made yet: tokens and columns with a bound, the least last.
    tiles: Vec<(f64, Height, Tile)>,
    nodes: Vec<(f64, Node<'a>)>,
}

impl<'a> Nodes<'a> {
    fn new(question: &'a Question<'a>, axes: &'a Axes) -> Self {
        let heights = heights(question.problem, question.m, axes);
        let mut tiles = Vec::with_capacity(heights.len() * axes.columns.len());
        for tokens in heights {
            let height = question.height(tokens);
            let tile = |columns| Tile { tokens, columns, k: axes.k[0] };
            tiles.extend(axes.columns.map(|columns| (question.least_us(&height, columns), height, tile(columns))));
        }
        tiles.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        Self { question, axes, tiles, nodes: Vec::new() }
    }

    fn next(&mut self) -> Option<(f64, Node<'a>)> {
        loop {
            let least = (0..self.nodes.len()).min_by(|a, b| self.nodes[*a].0.total_cmp(&self.nodes[*b].0));
            match (least, self.tiles.last()) {
                (Some(least), Some(tile)) if self.nodes[least].0 <= tile.0 => return Some(self.nodes.swap_remove(least)),
                (least, None) => return Some(self.nodes.swap_remove(least?)),
                (_, Some(_)) => self.open_tile(),
            }
        }
    }

    fn open_tile(&mut self) {
        let Some((_, height, tile)) = self.tiles.pop() else { return };
        for fusion in fusions(self.question.problem, self.axes) {
            let node = Node::new(self.question, &self.axes.plainest(tile, fusion), &height);
            self.nodes.extend(node.map(|node| (node.least_us(), node)));
        }
    }
}

/// Adds a variant at its best depth when an SM holds one block, two, … : more stages wait less for what is under way, but
/// where memory is the limit let SMs run further ahead of each other. So there is one best depth, which is looked for from
/// the deepest on; beside it there is the depth at which no stage is held longer than it is multiplied.
fn depths(
    problem: &Problem,
    variant: &Variant,
    m: u32,
    arch: &Arch,
    accepts: &dyn Fn(&Spec) -> bool,
    constants: &Constants,
    best: &mut Best,
) {
    let accepts = |spec: &Spec| spec.fits_grid(m) && accepts(spec);
    for deepest in deepest(problem, variant, arch, &accepts) {
        let at = |stages: u32| {
            let spec = Spec::check(problem, &Variant { stages, ..*variant }, arch).ok()?;
            let is_beside = spec.geometry().blocks_per_sm == deepest.geometry().blocks_per_sm;
            (is_beside && accepts(&spec)).then(|| (cost::us(&spec, m, constants), spec))
        };
        let mut found = (cost::us(&deepest, m, constants), deepest);
        for shallower in (1..deepest.variant().stages).rev().filter_map(at) {
            if shallower.0 > found.0 {
                break;
            }
            found = shallower;
        }
        let turns = block::turns(&deepest.geometry().layout);
        if turns < found.1.variant().stages {
            best.add(at(turns).filter(|unheld| unheld.0 <= found.0).unwrap_or(found));
        } else {
            best.add(found);
        }
    }
}

/// Tile heights: those of every problem, and those that share the rows of this one evenly.
pub(super) fn heights(problem: &Problem, m: u32, axes: &Axes) -> Vec<u32> {
    let groups = problem.groups().unwrap_or(1).clamp(1, m.max(1));
    let rows = m.div_ceil(groups).max(1);
    let even = (1..=EVEN_TILES).map(|tiles| rows.div_ceil(tiles).next_multiple_of(8));
    let most = axes.tokens.last().copied().unwrap_or(0);
    let mut heights: Vec<u32> = axes.tokens.iter().copied().chain(even.filter(|tokens| *tokens <= most)).collect();
    heights.sort_unstable();
    heights.dedup();
    heights
}

/// Fusions that go with the operation.
fn fusions(problem: &Problem, axes: &Axes) -> impl Iterator<Item = Fusion> {
    let is_single = problem.operation().products() == 1;
    axes.fusions.iter().copied().filter(move |fusion| (*fusion == Fusion::Single) == is_single)
}

/// The best so far with their µs, in order.
struct Best {
    count: usize,
    found: Vec<(f64, Spec)>,
}

impl Best {
    /// Whether nothing from `us` on can get in.
    fn is_full_below(&self, us: f64) -> bool {
        self.found.len() == self.count && self.found.last().is_none_or(|last| last.0 < us)
    }

    fn add(&mut self, one: (f64, Spec)) {
        let place = self.found.partition_point(|other| compare((other.0, &other.1), (one.0, &one.1)) == Ordering::Less);
        if place < self.count {
            self.found.truncate(self.count - 1);
            self.found.insert(place, one);
        }
    }
}

/// By time; where that is the same, the simpler variant first.
pub(super) fn compare(a: (f64, &Spec), b: (f64, &Spec)) -> Ordering {
    a.0.total_cmp(&b.0).then_with(|| simplicity(a.1).cmp(&simplicity(b.1)))
}

fn simplicity(spec: &Spec) -> [u32; 12] {
    let Variant { tile, stages, fusion, warps, epilogue, split_k, cluster, persistent, prepass, path: _ } =
        *spec.variant();
    [
        u32::from(persistent),
        u32::from(prepass),
        cluster.blocks(),
        cluster.multicast(),
        split_k,
        fusion as u32,
        epilogue as u32,
        warps.order(),
        tile.columns,
        tile.tokens,
        tile.k,
        stages,
    ]
}
