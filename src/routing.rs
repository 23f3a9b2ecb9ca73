//! How the rows of a grouped problem fall into its groups, as tokens choose experts.

/// What is known of the way in which rows find their groups.
///
/// Each token takes `top_k` different groups, so M rows are those of M / `top_k` tokens. Groups are as popular as each other
/// (`skew` 0), or the one of rank r as r^(−`skew` / 100): Zipf's law. With nothing stated, each row chooses for itself, and
/// popularity lies evenly between 0.41 and 1.59 of the average, as with the groups that the cost model was fitted to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Routing {
    /// Groups that each token takes.
    pub top_k: Option<u32>,
    /// A hundred times the exponent of the law by which popularity falls.
    pub skew: Option<u32>,
}

impl Routing {
    /// Beyond, one group has nearly everything.
    pub const SKEW_MAX: u32 = 400;
    /// How far from the average the most and the least popular group are, as a share of it, if nothing is said.
    pub const UNEVEN: f64 = 0.592;
}

/// M rows, and into how many groups they fall in which numbers: known, or as expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    m: u32,
    with_rows: f64,
    /// Rows of a group, and groups that have so many. None, if there are no groups.
    classes: [(f64, f64); CLASSES_MAX],
    count: usize,
    /// If rows are drawn, and not known.
    drawn: Option<Drawn>,
}

/// What is known of rows that are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drawn {
    /// Groups, those without rows among them.
    pub(crate) groups: f64,
    /// Of a group's rows, over all groups.
    pub(crate) variance: f64,
    /// Rows of a group of each class on average.
    means: [f64; CLASSES_MAX],
}

impl Drawn {
    /// Rows of a group of each class on average.
    pub(crate) fn means(&self) -> impl Iterator<Item = f64> {
        self.means.iter().copied()
    }
}

/// Numbers of rows that are told apart at most.
const CLASSES_MAX: usize = 24;
/// Tiles are multiples of so many rows: groups are not told apart by less.
const STEP: u32 = 8;
/// Popularities that stand for all, as places between the least and the greatest.
const PLACES: [f64; 10] = [-0.9, -0.7, -0.5, -0.3, -0.1, 0.1, 0.3, 0.5, 0.7, 0.9];
/// Up to this average the chances of every number of rows are added up; beyond, the bell curve is near enough.
const FEW: f64 = 24.0;
/// Standard deviations beyond which nothing is looked for.
const FAR: f64 = 4.0;
/// The height of the bell curve: 1 / √(2π).
const BELL: f64 = 0.398_942_28;
/// Where the tallest groups have so many times the rows of the shortest, steps grow.
const WIDE: f64 = 4.0;
/// So many of the shortest do not.
const EVEN: usize = 8;

impl Load {
    /// Of a problem without groups.
    pub(crate) fn whole(m: u32) -> Self {
        Self { m, with_rows: 1.0, classes: [(0.0, 0.0); CLASSES_MAX], count: 0, drawn: None }
    }

    /// Of groups with these rows.
    pub(crate) fn known(rows: &[u32]) -> Self {
        let m = rows.iter().fold(0u32, |sum, rows| sum.saturating_add(*rows));
        let with_rows = || rows.iter().copied().filter(|rows| *rows > 0);
        let [shortest, tallest] = [with_rows().min(), with_rows().max()].map(|rows| f64::from(rows.unwrap_or(0)));
        let mut histogram = Histogram::new(shortest, tallest);
        with_rows().for_each(|rows| histogram.add(f64::from(rows), 1.0));
        histogram.load(m)
    }

    /// Of `m` rows that fall into `groups` as `routing` says.
    pub(crate) fn expected(groups: u32, m: u32, routing: &Routing) -> Self {
        let groups = f64::from(groups.max(1));
        let m_all = f64::from(m.max(1));
        // What is not legal is asked for, too.
        let top_k = f64::from(routing.top_k.unwrap_or(1)).clamp(1.0, groups);
        let tokens = (m_all / top_k).round().max(1.0);
        // The chance of a group of average popularity to be one of a token's.
        let average = (m_all / (groups * tokens)).min(1.0);
        let mut kinds = Kinds::new(groups, average, routing);
        kinds.cap();
        let mut histogram = {
            let reached = |(_, chance)| reach(tokens, chance);
            let tallest = kinds.chances().map(|kind| reached(kind).1).fold(0.0, f64::max);
            Histogram::new(kinds.chances().map(|kind| reached(kind).0).fold(tallest, f64::min), tallest)
        };
        for (count, chance) in kinds.chances() {
            histogram.add_drawn(tokens, chance, count);
        }
        Self { drawn: Some(histogram.drawn(groups)), ..histogram.load(m) }
    }

    /// Rows of all groups together.
    pub(crate) fn m(&self) -> u32 {
        self.m
    }

    /// Groups that have rows; 1 if there are none.
    pub(crate) fn with_rows(&self) -> f64 {
        self.with_rows
    }

    /// Rows of a group, ascending, and how many groups have about so many.
    pub(crate) fn classes(&self) -> &[(f64, f64)] {
        &self.classes[..self.count]
    }

    /// What is known of rows that fall into groups by chance.
    pub(crate) fn drawn(&self) -> Option<&Drawn> {
        self.drawn.as_ref()
    }

    /// Rows that a group has that has any, on average.
    pub(crate) fn average(&self) -> f64 {
        f64::from(self.m) / self.with_rows
    }

    /// Rows that all but a tenth of the groups with rows do not exceed.
    pub(crate) fn tall(&self) -> f64 {
        let mut below = 0.0;
        let tall = self.classes().iter().find(|(_, groups)| {
            below += groups;
            below >= 0.9 * self.with_rows
        });
        tall.map_or(f64::from(self.m), |(rows, _)| *rows)
    }

    /// Rows that no group exceeds, or hardly one.
    pub(crate) fn tallest(&self) -> f64 {
        self.classes().last().map_or(f64::from(self.m), |(rows, _)| *rows)
    }
}

/// The fewest and most rows of a group that are worth looking for, if each token is one of them by this chance.
fn reach(tokens: f64, chance: f64) -> (f64, f64) {
    let average = tokens * chance;
    let far = FAR * (average * (1.0 - chance)).sqrt() + 2.0;
    ((average - far).max(0.0), (average + far).min(tokens))
}

/// Kinds of groups: how many there are, and the chance of each to be one of a token's.
struct Kinds {
    kinds: [(f64, f64); Kinds::MAX],
    count: usize,
}

impl Kinds {
    const MAX: usize = 12;

    fn new(groups: f64, average: f64, routing: &Routing) -> Self {
        let mut kinds = Self { kinds: [(0.0, 0.0); Self::MAX], count: 0 };
        match (routing.skew, routing.top_k) {
            (None, None) => {
                let each = groups / PLACES.len() as f64;
                PLACES.into_iter().for_each(|place| kinds.add(each, average * (1.0 + Routing::UNEVEN * place)));
            }
            (None | Some(0), _) => kinds.add(groups, average),
            (Some(skew), _) => kinds.add_skewed(groups, average, f64::from(skew.min(Routing::SKEW_MAX)) / 100.0),
        }
        kinds
    }

    /// Groups of rank 1, 2, 3 to 4, 5 to 8 and so on.
    fn add_skewed(&mut self, groups: f64, average: f64, exponent: f64) {
        let up_to = |rank: f64| {
            let power = 1.0 - exponent;
            if power.abs() < 1e-6 { rank.ln() } else { rank.powf(power) / power }
        };
        let (mut from, mut until, mut all) = (0.5_f64, 1.5_f64, 0.0_f64);
        while from < groups && self.count < Self::MAX {
            let to = if self.count + 1 == Self::MAX { groups + 0.5 } else { until.min(groups + 0.5_f64) };
            let weight = up_to(to) - up_to(from);
            self.add(to - from, weight / (to - from));
            all += weight;
            (from, until) = (to, 2.0 * to - 0.5);
        }
        self.kinds[..self.count].iter_mut().for_each(|(_, chance)| *chance *= average * groups / all);
    }

    fn add(&mut self, groups: f64, chance: f64) {
        self.kinds[self.count] = (groups, chance);
        self.count += 1;
    }

    /// A token takes a group once at most: what the most popular ones would have more falls to the others.
    fn cap(&mut self) {
        let kinds = &mut self.kinds[..self.count];
        for _ in 0..Self::MAX {
            let more: f64 = kinds.iter().map(|(groups, chance)| groups * (chance - 1.0).max(0.0)).sum();
            let open: f64 =
                kinds.iter().filter(|(_, chance)| *chance < 1.0).map(|(groups, chance)| groups * chance).sum();
            if more <= 1e-9 || open <= 0.0 {
                break;
            }
            let grow = |chance: f64| if chance < 1.0 { chance * (1.0 + more / open) } else { 1.0 };
            kinds.iter_mut().for_each(|(_, chance)| *chance = grow(*chance));
        }
        kinds.iter_mut().for_each(|(_, chance)| *chance = chance.min(1.0));
    }

    fn chances(&self) -> impl Iterator<Item = (f64, f64)> {
        self.kinds[..self.count].iter().copied()
    }
}

/// Groups by their rows.
struct Histogram {
    /// The most rows of each class, ascending.
    until: [f64; CLASSES_MAX],
    groups: [f64; CLASSES_MAX],
    rows: [f64; CLASSES_MAX],
    /// The squares of all groups' rows.
    squares: f64,
}

impl Histogram {
    /// For groups of `shortest` to `tallest` rows: in even steps where these are near each other, else in steps that grow.
    fn new(shortest: f64, tallest: f64) -> Self {
        let (step, classes) = (f64::from(STEP), CLASSES_MAX as f64);
        let on_step = |rows: f64| (rows / step).ceil() * step;
        let mut until = [0.0; CLASSES_MAX];
        let low = if tallest <= step * classes { 0.0 } else { (shortest / step).floor() * step };
        if tallest <= step * classes || tallest < WIDE * low {
            let wide = on_step((tallest - low) / classes).max(step);
            until.iter_mut().enumerate().for_each(|(at, until)| *until = low + wide * (at + 1) as f64);
        } else {
            let factor = (tallest / (step * EVEN as f64)).powf(1.0 / (CLASSES_MAX - EVEN) as f64);
            let mut last = 0.0_f64;
            for (at, until) in until.iter_mut().enumerate() {
                last = if at < EVEN { last + step } else { on_step(last * factor).max(last + step) };
                *until = last;
            }
        }
        Self { until, groups: [0.0; CLASSES_MAX], rows: [0.0; CLASSES_MAX], squares: 0.0 }
    }

    fn add(&mut self, rows: f64, groups: f64) {
        let at = self.until.partition_point(|until| *until < rows).min(CLASSES_MAX - 1);
        self.groups[at] += groups;
        self.rows[at] += groups * rows;
        self.squares += groups * rows * rows;
    }

    /// `groups` of which each is one of a token's by this chance: rows have the binomial distribution.
    fn add_drawn(&mut self, tokens: f64, chance: f64, groups: f64) {
        let average = tokens * chance;
        if chance > 1.0 - 1e-4 {
            self.add(tokens, groups);
        } else if average <= FEW {
            let odds = chance / (1.0 - chance);
            let mut share = (tokens * (1.0 - chance).ln()).exp();
            let (mut rows, (_, most)) = (0.0, reach(tokens, chance));
            while rows < most {
                share *= (tokens - rows) / (rows + 1.0) * odds;
                rows += 1.0;
                self.add(rows, groups * share);
            }
        } else {
            let deviation = (average * (1.0 - chance)).sqrt();
            self.squares += groups * (average * average + deviation * deviation);
            let (mut below, mut bell) = (0.0, 0.0);
            for at in 0..CLASSES_MAX {
                let place = (self.until[at] + 0.5 - average) / deviation;
                let is_last = at + 1 == CLASSES_MAX;
                let (until, end) =
                    if is_last { (1.0, 0.0) } else { (normal(place), (-0.5 * place * place).exp() * BELL) };
                let share = until - below;
                self.groups[at] += groups * share;
                self.rows[at] += groups * (average * share - deviation * (end - bell)).max(0.0);
                (below, bell) = (until, end);
            }
        }
    }

    /// Classes that are more than a rounding error.
    fn classes(&self) -> impl Iterator<Item = usize> {
        let with_rows: f64 = self.groups.iter().sum();
        (0..CLASSES_MAX).filter(move |at| self.groups[*at] > 1e-6 * with_rows)
    }

    fn drawn(&self, groups: f64) -> Drawn {
        let mut means = [0.0; CLASSES_MAX];
        // Not zipped: LLVM would unroll that for minutes.
        self.classes().enumerate().for_each(|(place, at)| means[place] = self.rows[at] / self.groups[at]);
        let mean = self.rows.iter().sum::<f64>() / groups;
        Drawn { groups, variance: (self.squares / groups - mean * mean).max(0.0), means }
    }

    fn load(&self, m: u32) -> Load {
        let mut load = Load::whole(m);
        let with_rows: f64 = self.groups.iter().sum();
        for at in self.classes() {
            let (until, groups) = (self.until[at], self.groups[at]);
            let before = if at > 0 { self.until[at - 1] } else { 0.0 };
            // Tiles do not tell rows of one step apart; of a wider class they have the average.
            let narrow = until - before <= f64::from(STEP);
            let rows = if narrow { until } else { (self.rows[at] / groups).clamp(before + 1.0, until) };
            load.classes[load.count] = (rows, groups);
            load.count += 1;
        }
        load.with_rows = with_rows.clamp(1.0, f64::from(m.max(1)));
        load
    }
}

/// Share of a normal distribution below a number of standard deviations, to a thousandth.
fn normal(deviations: f64) -> f64 {
    1.0 / (1.0 + (-deviations * (1.5976 + 0.070_566 * deviations * deviations)).exp())
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const TOP: fn(u32) -> Routing = |top_k| Routing { top_k: Some(top_k), skew: None };

    /// Groups with rows, and tiles of so many rows, of tokens that are drawn: the average of many draws.
    fn drawn(groups: u32, m: u32, top_k: u32, skew: u32, tile: u32) -> (f64, f64) {
        let mut rng = SmallRng::seed_from_u64(7);
        let draws = 400;
        let (mut with_rows, mut tiles) = (0u32, 0u32);
        for _ in 0..draws {
            let mut rows = vec![0u32; groups as usize];
            for _ in 0..m / top_k {
                // The k largest of popularity's logarithm with Gumbel noise are a draw without replacement.
                let key = |group: u32, rng: &mut SmallRng| {
                    let noise = -(-rng.random::<f64>().max(1e-300).ln()).ln();
                    noise - f64::from(skew) / 100.0 * f64::from(group + 1).ln()
                };
                let mut keys: Vec<(f64, u32)> = (0..groups).map(|group| (key(group, &mut rng), group)).collect();
                keys.sort_by(|a, b| b.0.total_cmp(&a.0));
                keys[..top_k as usize].iter().for_each(|(_, group)| rows[*group as usize] += 1);
            }
            with_rows += rows.iter().filter(|rows| **rows > 0).count() as u32;
            tiles += rows.iter().map(|rows| rows.div_ceil(tile)).sum::<u32>();
        }
        (f64::from(with_rows) / f64::from(draws), f64::from(tiles) / f64::from(draws))
    }

    fn tiles(load: &Load, tile: u32) -> f64 {
        load.classes().iter().map(|(rows, groups)| groups * (rows / f64::from(tile)).ceil()).sum()
    }

    #[test]
    fn groups_and_tiles_are_those_of_many_draws() {
        for (groups, m, top_k) in [
            (128, 8, 8),
            (128, 64, 8),
            (128, 256, 8),
            (256, 512, 8),
            (8, 64, 2),
            (64, 64, 1),
            (16, 2048, 4),
            (8, 4096, 2),
        ] {
            let load = Load::expected(groups, m, &TOP(top_k));
            for tile in [8, 16, 32, 64] {
                let (with_rows, expected) = drawn(groups, m, top_k, 0, tile);
                assert!(
                    (load.with_rows() / with_rows - 1.0).abs() < 0.02,
                    "{groups} {m} {top_k}: {with_rows} {load:?}"
                );
                let found = tiles(&load, tile);
                assert!((found / expected - 1.0).abs() < 0.03, "{groups} {m} {top_k} {tile}: {found} for {expected}");
            }
        }
    }

    #[test]
    fn skewed_groups_are_about_those_of_many_draws() {
        for (groups, m, top_k, skew) in [(128, 256, 8, 80), (64, 512, 2, 100), (256, 2048, 8, 50)] {
            let load = Load::expected(groups, m, &Routing { top_k: Some(top_k), skew: Some(skew) });
            let (with_rows, expected) = drawn(groups, m, top_k, skew, 16);
            let found = tiles(&load, 16);
            assert!(
                (load.with_rows() / with_rows - 1.0).abs() < 0.08,
                "{groups} {m}: {} {with_rows}",
                load.with_rows()
            );
            assert!((found / expected - 1.0).abs() < 0.08, "{groups} {m}: {found} for {expected}");
        }
    }

    #[test]
    fn one_token_has_as_many_groups_as_it_takes() {
        for (groups, top_k) in [(128, 8), (8, 2), (256, 1), (8, 8)] {
            let load = Load::expected(groups, top_k, &TOP(top_k));
            assert!((load.with_rows() - f64::from(top_k)).abs() < 1e-6, "{load:?}");
            assert_eq!(load.classes().len(), 1);
        }
        let nothing_said = Load::expected(128, 8, &Routing::default());
        assert!((7.5..8.0).contains(&nothing_said.with_rows()), "{nothing_said:?}");
    }

    #[test]
    fn rows_that_are_known_are_counted() {
        let load = Load::known(&[0, 1, 8, 9, 0, 200]);
        assert_eq!((load.m(), load.with_rows()), (218, 4.0));
        assert_eq!(load.classes(), [(8.0, 2.0), (16.0, 1.0), (200.0, 1.0)]);
        assert_eq!(tiles(&load, 8), 1.0 + 1.0 + 2.0 + 25.0);
        // One that has nearly everything is none of the others.
        let mut rows = vec![1; 63];
        rows.push(5000);
        assert_eq!(Load::known(&rows).classes(), [(8.0, 63.0), (5000.0, 1.0)]);
        assert_eq!(Load::known(&[]), Load::whole(0));
    }

    #[test]
    fn nothing_is_not_a_number() {
        for groups in [0, 1, 2, 1024, u32::MAX] {
            for m in [0, 1, 7, 8192, 1 << 24, u32::MAX] {
                for top_k in [None, Some(0), Some(1), Some(8), Some(u32::MAX)] {
                    for skew in [None, Some(0), Some(100), Some(Routing::SKEW_MAX), Some(u32::MAX)] {
                        let load = Load::expected(groups, m, &Routing { top_k, skew });
                        assert!(
                            load.with_rows() >= 1.0 && load.with_rows() <= f64::from(groups.max(1)) * 1.001,
                            "{load:?}"
                        );
                        let rows: f64 = load.classes().iter().map(|(rows, groups)| rows * groups).sum();
                        assert!(
                            m == 0 || (rows.is_finite() && rows > 0.0),
                            "{groups} {m} {top_k:?} {skew:?}: {load:?}"
                        );
                    }
                }
            }
        }
    }
}
