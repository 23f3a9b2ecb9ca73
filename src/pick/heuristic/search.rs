//! The best of all legal variants, without looking at most of them.
//!
//! Variants are sorted into nodes by fusion, tokens and columns, those of a node by the ways in which they share K and
//! stages, and those of a way into families, which differ in stages and epilogue only. What no variant of a tile, a node, a
//! way or a family can undercut is known without looking into it ([`bound`]); nodes are opened in that order, until the next
//! cannot have anything better than what was found. A few variants are looked at before, so that the best is nearly known
//! from the start. What comes out is what a prediction of every variant would give that has one of the [`heights`]. A first look
//! that becomes long tries what differs in one thing from the best so far ([`climb`]), and ends.

mod climb;
mod probes;

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

use super::bound::{Covers, Height, Least, Node, Question, family};
use super::cost;
use super::terms::Prediction;
use crate::format::Format;
use crate::path::cost::{Constants, stages};
use crate::routing::Load;
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
/// And of a tall group's.
const TALL_TILES: u32 = 2;

/// Variants that differ in stages and epilogue only.
#[derive(Clone, Copy)]
struct Family {
    least_us: f64,
    /// What each epilogue takes more than that.
    more_us: [f64; Epilogue::ALL.len()],
    variant: Variant,
}

impl Family {
    /// `None` if none of it can get in.
    fn new(
        question: &Question<'_>,
        variant: Variant,
        covers: &mut Covers,
        best: &Best,
        spent: &mut u32,
    ) -> Option<Self> {
        *spent += FAMILY;
        let (least_us, more_us) = family::of_family(question, &variant, covers, best.bar())?;
        (!best.is_full_below(least_us)).then_some(Self { least_us, more_us, variant })
    }
}

/// How far a search goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// Until nothing can be better.
    Whole,
    /// Until it cost as much as [`Limits`] say.
    FirstLook,
}

/// What steps of a search cost, in units of some 10 ns on a core of 2.3 GHz: the same on every machine, so that picks are, too.
const BEGIN: u32 = 700;
const TILE: u32 = 44;
const NODE: u32 = 20;
const WAY: u32 = 10;
const COMBINATION: u32 = 7;
const FAMILY: u32 = 20;
const VARIANT: u32 = 80;
const DEPTHS: u32 = 30;

/// Of a first look, by what it cost so far.
#[derive(Clone, Copy)]
struct Limits {
    /// From here on it climbs, whenever there is another best.
    climb: u32,
    /// It opens no more nodes.
    end: u32,
    /// And does not climb any further.
    climb_end: u32,
}

impl Limits {
    const FIRST_LOOK: Self = Self { climb: 10_000, end: 12_500, climb_end: 15_000 };

    /// Nodes of tokens that may be decoded before have twice the bounds of others, those of warps that are alike fewer. In per cent, of
    /// what steps cost.
    fn of(problem: &Problem, axes: &Axes) -> Self {
        let share = match problem.a_format() {
            _ if !axes.are_specialised() => 70,
            Format::Nvfp4 => 135,
            _ => 100,
        };
        let Self { climb, end, climb_end } = Self::FIRST_LOOK;
        let [climb, end, climb_end] = [climb, end, climb_end].map(|limit| limit * 100 / share);
        Self { climb, end, climb_end }
    }
}

pub(super) fn rank(
    axes: &Axes,
    problem: &Problem,
    load: &Load,
    arch: &Arch,
    (count, effort): (usize, Effort),
    accepts: &dyn Fn(&Spec) -> bool,
    constants: &Constants,
) -> Vec<Ranked> {
    let question = Question::new(problem, load, arch, axes, constants);
    let mut search = Search {
        question: &question,
        axes,
        accepts,
        combinations: HashMap::new(),
        covers: Covers::default(),
        families: Vec::new(),
        best: Best::new(count),
        spent: BEGIN,
    };
    let mut nodes = Nodes::new(&question, axes);
    search.probe(&nodes);
    let probed = search.best.found.first().copied();
    search.best = Best { limit: search.best.last(), ..Best::new(count) };
    let limits = (effort == Effort::FirstLook).then(|| Limits::of(problem, axes));
    let mut climbed = None;
    while let Some((least_us, at)) = nodes.next(search.best.bar(), &mut search.spent) {
        if search.best.is_full_below(least_us) {
            break;
        }
        let (node, least) = &nodes.made[at];
        // Without bounds those that come first are not those that are good.
        let is_long = |limits: &Limits| search.spent > limits.climb && node.is_bounded();
        if let Some(Limits { end, climb_end, .. }) = limits.filter(is_long) {
            let is_end = search.spent > end;
            // What accepts little may have found nothing yet.
            if let Some(best) = search.best.found.first().copied().or(probed) {
                if climbed != Some(best.1) {
                    climbed = Some(search.climb(best, &nodes, if is_end { climb_end } else { end }));
                }
                if is_end {
                    probed.into_iter().for_each(|probed| search.best.add(probed));
                    break;
                }
            }
        }
        search.open(node, least);
    }
    let ranked = |(_, spec): (f64, Spec)| Ranked { spec, prediction: cost::predict(&spec, load, constants) };
    search.best.found.into_iter().map(ranked).collect()
}

struct Search<'a> {
    question: &'a Question<'a>,
    axes: &'a Axes,
    accepts: &'a dyn Fn(&Spec) -> bool,
    /// Families of a fusion and so many columns, by their [`Axes::ways`], as far as these were asked for.
    combinations: HashMap<(Fusion, u32), Vec<Option<Vec<Variant>>>>,
    covers: Covers,
    /// Of the node that is open.
    families: Vec<Family>,
    best: Best,
    /// What it cost so far.
    spent: u32,
}

impl Search<'_> {
    fn open(&mut self, node: &Node<'_>, least: &Least) {
        let Self { question, axes, combinations, covers, families, best, spent, .. } = self;
        let Variant { tile, fusion, .. } = *node.plain();
        let ways = node.ways();
        let combinations = combinations.entry((fusion, tile.columns)).or_default();
        families.clear();
        for (at, way) in axes.ways(node.plain()).enumerate() {
            if best.is_full_below(least.us_of(&way)) {
                continue;
            }
            *spent += WAY;
            let known = ways.of(&way);
            if known.as_ref().is_some_and(|way| best.is_full_below(way.least_us(best.bar()))) {
                continue;
            }
            let combinations = of_way(combinations, at, || axes.families(question.problem, &way));
            families.extend(combinations.iter().filter_map(|other| {
                *spent += COMBINATION;
                let us = known.as_ref().map_or(0.0, |way| way.least_us_with(other.tile.k, other.warps, best.bar()));
                if best.is_full_below(us) {
                    return None;
                }
                let variant = Variant { tile: Tile { tokens: tile.tokens, ..other.tile }, ..*other };
                Family::new(question, variant, covers, best, spent)
            }));
        }
        self.add_families();
    }

    /// Adds what is in `families`, what may be best first.
    fn add_families(&mut self) {
        self.families.sort_unstable_by(|a, b| a.least_us.total_cmp(&b.least_us));
        for at in 0..self.families.len() {
            let Family { least_us, more_us, variant } = self.families[at];
            if self.best.is_full_below(least_us) {
                break;
            }
            for epilogue in self.axes.epilogues {
                let variant = Variant { epilogue: *epilogue, ..variant };
                let is_worse = self.best.is_full_below(least_us + more_us[*epilogue as usize]);
                if !is_worse && Spec::can_combine(self.question.problem, &variant) {
                    self.add_depths(&variant);
                }
            }
        }
    }

    /// Adds a variant at its best depth when an SM holds one block, two, … : more stages wait less for what is under way,
    /// but where memory is the limit let SMs run further ahead of each other. So there is one best depth of those that do not
    /// hold all of K of a block's tiles, looked for from the deepest on; of those that do, which more stages do not help, it is
    /// the shallowest; both of those at which places stay their warpgroups' and of the others. Beside the best of them there
    /// is the depth at which no stage is held longer than it is multiplied.
    fn add_depths(&mut self, variant: &Variant) {
        let Self { question, accepts, covers, best, spent, .. } = self;
        *spent += VARIANT;
        let Question { problem, load, arch, constants, .. } = **question;
        // What a grid has room for does not depend on the depth.
        let fits = |spec: &Spec| spec.fits_grid(load.m()) && accepts(spec);
        for deepest in deepest(problem, variant, arch, &fits) {
            *spent += DEPTHS;
            let cover = covers.get(question, variant, &deepest.geometry().layout);
            let shared = cost::Shared::new(&deepest, load, cover, constants);
            let (deepest_us, memory_us) = shared.us(&deepest);
            if best.is_full_below(question.shallower_us(&deepest, deepest_us, memory_us)) {
                continue;
            }
            let turns = deepest.geometry().layout.turns();
            let (top, resident) = (deepest.variant().stages, deepest.geometry().blocks_per_sm);
            let mut spec = deepest;
            let mut at = |stages: u32| {
                let is_beside = spec.set_stages(stages) && spec.geometry().blocks_per_sm == resident;
                (is_beside && accepts(&spec)).then(|| (shared.us(&spec).0, stages))
            };
            let whole = shared.stages_in_row(stages(problem, variant), variant.persistent).min(top);
            let is_kind = |in_turn: bool| move |depth: &u32| depth.is_multiple_of(turns) == in_turn;
            let hold_all = [true, false].map(|in_turn| (whole..top).filter(is_kind(in_turn)).find_map(&mut at));
            let others =
                [true, false].map(|in_turn| until_worse((1..whole).rev().filter(is_kind(in_turn)).filter_map(&mut at)));
            let mut found = (deepest_us, top);
            for other in hold_all.into_iter().chain(others).flatten() {
                if other < found {
                    found = other;
                }
            }
            if turns < found.1 {
                found = at(turns).filter(|unheld| unheld.0 <= found.0).unwrap_or(found);
            }
            let (us, stages) = found;
            if spec.variant().stages == stages || spec.set_stages(stages) {
                best.add((us, spec));
            }
        }
    }
}

/// The families of one of the ways, made if they are not known.
fn of_way(known: &mut Vec<Option<Vec<Variant>>>, at: usize, make: impl FnOnce() -> Vec<Variant>) -> &[Variant] {
    if known.len() <= at {
        known.resize(at + 1, None);
    }
    known[at].get_or_insert_with(make)
}

/// The last one before times begin to grow; looks no further.
fn until_worse(depths: impl Iterator<Item = (f64, u32)>) -> Option<(f64, u32)> {
    let mut found: Option<(f64, u32)> = None;
    for next in depths {
        if found.is_some_and(|last| next.0 > last.0) {
            break;
        }
        found = Some(next);
    }
    found
}

/// All nodes, those that may have the best variants first; each is made when it is its turn.
struct Nodes<'a> {
    question: &'a Question<'a>,
    axes: &'a Axes,
    tokens: Vec<u32>,
    heights: Vec<Height>,
    /// What is not made yet: a height, tile and fusion with a bound, the least last.
    plain: Vec<(f64, usize, Variant)>,
    made: Vec<(Node<'a>, Least)>,
    /// Nodes that are not taken yet, by their bound: positive numbers have the order of their bits.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<'a> Nodes<'a> {
    fn new(question: &'a Question<'a>, axes: &'a Axes) -> Self {
        let tokens = heights(question.problem, question.load, axes);
        let heights: Vec<Height> = tokens.iter().map(|tokens| question.height(*tokens)).collect();
        let busiest: Vec<_> =
            heights.iter().map(|height| axes.columns.map(|columns| question.busiest(height, columns))).collect();
        let mut plain = Vec::with_capacity(heights.len() * axes.columns.len() * axes.fusions.len());
        for &fusion in axes.fusions {
            let of = |tokens, columns| axes.plainest(Tile { tokens, columns, k: axes.k[0] }, fusion);
            // Whatever the tile.
            if !Spec::can_fuse(question.problem, &of(0, 0)) {
                continue;
            }
            for (at, &tokens) in tokens.iter().enumerate() {
                for (columns, busiest) in axes.columns.into_iter().zip(busiest[at]) {
                    let least_us = question.least_us(&heights[at], busiest, columns, fusion);
                    plain.push((least_us, at, of(tokens, columns)));
                }
            }
        }
        plain.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        Self { question, axes, tokens, heights, plain, made: Vec::with_capacity(64), queue: BinaryHeap::new() }
    }

    /// Of so many columns and products beside each other what has the least bound, or is so many behind it.
    fn least(&self, columns: u32, behind: usize) -> Option<Variant> {
        let beside = |plain: &&(f64, usize, Variant)| {
            plain.2.tile.columns == columns && matches!(plain.2.fusion, Fusion::Interleaved | Fusion::Single)
        };
        self.plain.iter().rev().filter(beside).nth(behind).map(|plain| plain.2)
    }

    /// The next one's bound, or something less that is above `limit`, and where it is among those that are made.
    fn next(&mut self, limit: f64, spent: &mut u32) -> Option<(f64, usize)> {
        let least = |queue: &BinaryHeap<Reverse<(u64, usize)>>| queue.peek().map(|least| f64::from_bits(least.0.0));
        while let Some((us, height, plain)) = self.plain.last().copied() {
            if least(&self.queue).is_some_and(|least| least <= us) {
                break;
            }
            self.plain.pop();
            *spent += TILE;
            if let Some(node) = Node::new(self.question, self.axes, &plain, &self.heights[height]) {
                *spent += NODE;
                let least = node.least(limit);
                self.queue.push(Reverse((least.us().to_bits(), self.made.len())));
                self.made.push((node, least));
            }
        }
        let Reverse((us, at)) = self.queue.pop()?;
        Some((f64::from_bits(us), at))
    }
}

/// The tallest tile that may be of use: above the one that holds all rows of any group, some tiles have registers only with
/// one width more, and e4m3 values are multiplied in halves.
fn tallest(load: &Load, axes: &Axes) -> u32 {
    const MORE: u32 = 8;
    let last = axes.tokens.last().copied().unwrap_or(0);
    let rows = load.tallest().ceil().min(last.into()) as u32;
    rows.next_power_of_two().max(axes.path.legal_tokens(rows + MORE)).max(axes.tokens_always).min(last)
}

/// Tile heights: those of every problem, those that share the rows of this one evenly, and of groups those that hold a tall
/// one; few that hold more rows than any group has.
pub(super) fn heights(problem: &Problem, load: &Load, axes: &Axes) -> Vec<u32> {
    let shared = |rows: f64, tiles: u32| axes.path.legal_tokens((rows.ceil().max(1.0) as u32).div_ceil(tiles));
    // Of more rows than the tallest tile has, as many ways from the fewest tiles on.
    let is_more = load.average() > f64::from(axes.tokens.last().copied().unwrap_or(0));
    let fewest = if is_more { (load.average() / f64::from(axes.tokens_even)).ceil() as u32 } else { 1 };
    let even = (fewest..fewest + EVEN_TILES).map(|tiles| shared(load.average(), tiles));
    let even = even.flat_map(|tokens| [tokens, tokens.next_multiple_of(axes.tokens_step)]);
    let tall = problem.groups().map(|_| (1..=TALL_TILES).map(|tiles| shared(load.tall(), tiles)));
    let all = axes.tokens.iter().copied().chain(even).chain(tall.into_iter().flatten());
    let tallest = tallest(load, axes);
    let mut heights: Vec<u32> = all.filter(|tokens| *tokens <= tallest).collect();
    heights.sort_unstable();
    heights.dedup();
    heights
}

/// The best so far with their µs, in order.
struct Best {
    count: usize,
    /// There are as many as are asked for that take no more than this.
    limit: f64,
    found: Vec<(f64, Spec)>,
}

impl Best {
    fn new(count: usize) -> Self {
        Self { count, limit: f64::INFINITY, found: Vec::new() }
    }

    /// What the last takes, if there are as many as are asked for.
    fn last(&self) -> f64 {
        self.found.get(self.count.saturating_sub(1)).map_or(f64::INFINITY, |last| last.0)
    }

    /// Nothing above can get in.
    fn bar(&self) -> f64 {
        if self.count == 0 { f64::NEG_INFINITY } else { self.limit.min(self.last()) }
    }

    /// Whether nothing from `us` on can get in.
    fn is_full_below(&self, us: f64) -> bool {
        self.bar() < us
    }

    fn add(&mut self, one: (f64, Spec)) {
        let place = self.found.partition_point(|other| by_time((other.0, &other.1), (one.0, &one.1)) == Ordering::Less);
        if place < self.count {
            self.found.truncate(self.count - 1);
            self.found.insert(place, one);
        }
    }
}

/// In the order in which they come out.
pub(super) fn compare(a: &Ranked, b: &Ranked) -> Ordering {
    by_time((a.prediction.us, &a.spec), (b.prediction.us, &b.spec))
}

/// By time; where that is the same, the simpler variant first.
fn by_time(a: (f64, &Spec), b: (f64, &Spec)) -> Ordering {
    a.0.total_cmp(&b.0).then_with(|| simplicity(a.1).cmp(&simplicity(b.1)))
}

fn simplicity(spec: &Spec) -> [u32; 13] {
    let Variant { tile, stages, fusion, warps, epilogue, split_k, cluster, persistent, prepass, rows, path: _ } =
        *spec.variant();
    [
        u32::from(persistent),
        u32::from(prepass),
        rows as u32,
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
