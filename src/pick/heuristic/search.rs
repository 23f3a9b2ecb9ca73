//! The best variants, by predicting a few hundred of them.
//!
//! Variants that differ in tokens, stages and epilogue only are a family. Families are few (each matrix path says which are
//! left out, and why), and so are the heights of tiles that suit M ([`Search::heights`]): the first round predicts every
//! family at every height, as deep as shared memory allows. The second round looks around the best of those: at other depths,
//! and at one step along the axes that the first leaves out.

use std::cmp::Ordering;

use super::cost;
use super::terms::Prediction;
use crate::path::cost::{Constants, Cover, Widths, stages};
use crate::path::families::{Depths, Load, TALL};
use crate::spec::{Arch, Axes, Problem, Spec, Tile, Variant, deepest};

/// A variant with its prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The variant, proven legal.
    pub spec: Spec,
    /// What it is predicted to take.
    pub prediction: Prediction,
}

/// Which variants are wanted.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// The best of all.
    Any,
    /// Those of them that it takes. It may take what is far from the best, so no way of sharing K is left out.
    Some(&'a dyn Fn(&Spec) -> bool),
}

impl Wanted<'_> {
    fn has(&self, spec: &Spec) -> bool {
        match self {
            Self::Any => true,
            Self::Some(accepts) => accepts(spec),
        }
    }
}

/// The second round looks around so many more than it needs.
const MORE: usize = 12;
/// And only around those that may get in: it gains some per cent.
const GAIN: f64 = 1.04;

/// Of one matrix path.
pub(super) fn rank(
    axes: &Axes,
    problem: &Problem,
    m: u32,
    arch: &Arch,
    count: usize,
    wanted: Wanted<'_>,
    constants: &Constants,
) -> Vec<Ranked> {
    let mut search = Search { problem, m, arch, constants, wanted, covers: Vec::new(), found: Vec::with_capacity(512) };
    let families = families(problem, axes, wanted);
    for tokens in search.heights(axes) {
        families.iter().for_each(|family| search.at_height(family, tokens));
    }
    let mut first = std::mem::take(&mut search.found);
    first.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    first.dedup();
    // Nearly twice as many: some differ in stages only.
    let enough = count.saturating_mul(2).saturating_sub(2);
    let limit = first.get(enough).map_or(f64::INFINITY, |last| GAIN * last.0);
    let near = first.iter().take(enough.saturating_add(MORE)).take_while(|one| one.0 <= limit);
    near.for_each(|(_, variant)| search.around(variant, axes));
    let mut best: Vec<(f64, Spec)> = Vec::with_capacity(search.found.len());
    for (us, variant) in std::mem::take(&mut search.found) {
        best.extend(Spec::check(problem, &variant, arch).ok().map(|spec| (us, spec)));
    }
    best.sort_unstable_by(|a, b| by_time((a.0, &a.1), (b.0, &b.1)));
    // Of those that differ in stages only and leave an SM as many blocks, the first is the best.
    let mut ranked: Vec<Ranked> = Vec::with_capacity(count.min(best.len()));
    for (_, spec) in best {
        if ranked.len() == count {
            break;
        }
        if ranked.iter().all(|before| !is_same_but_deeper(&before.spec, &spec)) {
            ranked.push(Ranked { spec, prediction: cost::predict(&spec, m, constants) });
        }
    }
    ranked
}

fn is_same_but_deeper(a: &Spec, b: &Spec) -> bool {
    let stages = a.variant().stages;
    Variant { stages, ..*b.variant() } == *a.variant() && a.geometry().blocks_per_sm == b.geometry().blocks_per_sm
}

struct Search<'a> {
    problem: &'a Problem,
    m: u32,
    arch: &'a Arch,
    constants: &'a Constants,
    wanted: Wanted<'a>,
    /// Covers that are known, by tokens and the widths that tiles come in.
    covers: Vec<(u32, Widths, Cover)>,
    /// What was predicted in this round, in µs.
    found: Vec<(f64, Variant)>,
}

impl Search<'_> {
    /// Tile heights that suit M: those that share the rows evenly, and of those that every problem has the ones near the rows
    /// of a group, which differ, the tall ones where there are more rows than a few tiles hold, and all that leave SMs free.
    fn heights(&self, axes: &Axes) -> Vec<u32> {
        let Self { problem, m, arch, wanted, constants, .. } = *self;
        let (rows, _) = rows(problem, m);
        let most = axes.tokens.last().copied().unwrap_or(0);
        // The first that holds the largest group is the last.
        let largest = (f64::from(rows) * (1.0 + constants.uneven)) as u32;
        let holding = axes.tokens.iter().copied().find(|tokens| *tokens >= largest).unwrap_or(most);
        // A path may have low ones only.
        let tall = TALL.min(most);
        let is_worth = |tokens: &u32| {
            let are_many = rows > EVEN_TILES * *tokens;
            let is_near = match problem.groups() {
                Some(_) => (tall.min(rows / 2)..=holding).contains(tokens),
                None => rows > EVEN_TILES * tall && *tokens >= tall,
            };
            is_near || are_many && blocks(problem, m, *tokens, axes.columns[0]) <= 2 * arch.sms()
        };
        let is_kept = |tokens: &u32| matches!(wanted, Wanted::Some(_)) || is_worth(tokens);
        let even = (1..=EVEN_TILES).map(|tiles| axes.path.legal_tokens(rows.div_ceil(tiles)));
        let mut heights: Vec<u32> = even.filter(|tokens| *tokens <= most).collect();
        heights.extend(axes.tokens.iter().copied().filter(is_kept));
        heights.sort_unstable();
        heights.dedup();
        heights
    }

    /// Predicts one of a family, if it may be worth it: as deep as can be when an SM has one block, two, … of those that it
    /// would have.
    fn at_height(&mut self, family: &Variant, tokens: u32) {
        let Self { problem, m, arch, .. } = *self;
        let path = family.path;
        let Some(tokens) = path.likely_height(problem, family, tokens) else { return };
        let blocks = blocks(problem, m, tokens, family.tile.columns);
        let load = Load { tokens, rows: rows(problem, m).0, blocks, sms: arch.sms() };
        if matches!(self.wanted, Wanted::Any) && !path.is_worth(family, &load) {
            return;
        }
        let variant = Variant { tile: Tile { tokens, ..family.tile }, ..*family };
        let variant = Variant { epilogue: path.likely_epilogue(problem, &variant), ..variant };
        match path.likely_depths() {
            Depths::Of(depths) => {
                let legal = depths.iter().filter(|&&stages| self.predict(&Variant { stages, ..variant }));
                legal.take(2).for_each(drop);
            }
            Depths::Deepest => {
                let splits = family.split_k * family.cluster.splits();
                let beside = blocks.saturating_mul(splits).div_ceil(arch.sms());
                let fits = |spec: &Spec| spec.fits_grid(m);
                for spec in deepest(problem, &variant, arch, &fits) {
                    if spec.geometry().blocks_per_sm > beside.max(1) {
                        break;
                    }
                    self.add(&spec);
                }
            }
        }
    }

    /// Predicts what is near a variant: other depths, then other values of the axes of which families have one.
    fn around(&mut self, variant: &Variant, axes: &Axes) {
        let Ok(spec) = Spec::check(self.problem, variant, self.arch) else { return };
        let whole = stages(self.problem, variant);
        let depths = spec.geometry().layout.depths_around(variant.stages, whole);
        let before = self.found.len();
        for stages in depths {
            self.predict(&Variant { stages, ..*variant });
        }
        let best = self.found[before..].iter().min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, best)) = best.copied() else { return };
        for &epilogue in axes.epilogues {
            self.predict(&Variant { epilogue, ..best });
        }
        for &fusion in axes.fusions {
            self.predict(&Variant { fusion, ..best });
        }
        for &(_, cluster) in axes.sharing.iter().filter(|(_, cluster)| cluster.multicast() > 1) {
            self.predict(&Variant { cluster, ..best });
        }
    }

    /// Predicts a variant if it is legal, and says whether it is.
    fn predict(&mut self, variant: &Variant) -> bool {
        let spec = Spec::check(self.problem, variant, self.arch).ok().filter(|spec| spec.fits_grid(self.m));
        spec.iter().for_each(|spec| self.add(spec));
        spec.is_some()
    }

    fn add(&mut self, spec: &Spec) {
        if !self.wanted.has(spec) {
            return;
        }
        let variant = spec.variant();
        let (tokens, widths) = (variant.tile.tokens, spec.geometry().layout.widths(variant));
        let known = self.covers.iter().rev().find(|known| known.0 == tokens && known.1 == widths);
        let cover = match known {
            Some((.., cover)) => *cover,
            None => {
                let cover = Cover::new(self.problem, self.m, tokens, &widths, self.constants);
                self.covers.push((tokens, widths, cover));
                cover
            }
        };
        self.found.push((cost::us(spec, self.m, &cover, self.constants), *variant));
    }
}

/// The families that are worth a look, each by its variant with one stage.
fn families(problem: &Problem, axes: &Axes, wanted: Wanted<'_>) -> Vec<Variant> {
    // So many that they can be shared out evenly.
    const TOKENS: u32 = 64;
    let fusions = axes.path.likely_fusions(problem);
    let mut families = Vec::with_capacity(128);
    let tiles = axes.columns.into_iter().flat_map(|columns| axes.k.map(|k| Tile { tokens: TOKENS, columns, k }));
    for plain in tiles.flat_map(|tile| fusions.iter().map(move |fusion| axes.plainest(tile, *fusion))) {
        for &warps in axes.warps {
            // Tokens that one block has loaded are in the L2 cache for the others: sending them gains little.
            for &(split_k, cluster) in axes.sharing.iter().filter(|(_, cluster)| cluster.multicast() == 1) {
                for &persistent in axes.persistent {
                    for &prepass in axes.prepass {
                        let family = Variant { warps, split_k, cluster, persistent, prepass, ..plain };
                        let is_kept = matches!(wanted, Wanted::Some(_)) || axes.path.is_likely(problem, &family);
                        if is_kept && Spec::can_combine(problem, &family) {
                            families.push(family);
                        }
                    }
                }
            }
        }
    }
    families
}

fn blocks(problem: &Problem, m: u32, tokens: u32, columns: u32) -> u32 {
    let (rows, groups) = rows(problem, m);
    rows.div_ceil(tokens).saturating_mul(groups).saturating_mul(problem.columns().div_ceil(columns))
}

/// The rows of a group, if all that have any have the same number, and those groups.
fn rows(problem: &Problem, m: u32) -> (u32, u32) {
    let groups = problem.groups().unwrap_or(1).clamp(1, m.max(1));
    (m.div_ceil(groups).max(1), groups)
}

/// Most tiles that rows are divided into evenly.
const EVEN_TILES: u32 = 8;
/// In the order in which they come out.
pub(super) fn compare(a: &Ranked, b: &Ranked) -> Ordering {
    by_time((a.prediction.us, &a.spec), (b.prediction.us, &b.spec))
}

/// By time; where that is the same, the simpler variant first.
fn by_time(a: (f64, &Spec), b: (f64, &Spec)) -> Ordering {
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
