//! Which of two kernels is faster, by samples that were taken in turn.
//!
//! A pair's two times are taken right after each other, so what both of them see (the clock, the heat, another tenant)
//! leaves their ratio alone. Of the ratios the median is taken, with an interval for the median that holds whatever
//! their distribution is: two of the ordered ratios themselves. Neither cares how bad the bad samples are.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A challenger has to be this much faster than the incumbent, with certainty, to take its place.
///
/// What the samples cannot show is that one of two alike kernels is luckier where it lies in memory, or in the minute
/// it was timed in. On an H200 the middle four fifths of one kernel's samples lie within ±0.1 to ±0.9 % (of one in four
/// within ±1.1 to ±4.8 %: docs/measurements/2026-11-22-h200-wgmma-bench.txt), and medians of two runs of one kernel
/// differed by 0.0 to 0.8 %, on a hotter card by 2. A hundredth is above most of that, and less than anybody would
/// change a kernel for.
pub const MARGIN: f64 = 0.01;

/// Standard deviations of the normal distribution outside of which one of a thousand lies. A search asks dozens of
/// times whether some candidate is faster; with 95 % one of twenty alike ones would be.
const DEVIATIONS: f64 = 3.29;
/// The incumbent's own median may move by so much from the first third of a duel to the last. A clock that is lowered
/// for power or heat moves it by 10 % and more.
const DRIFT_MAX: f64 = 0.05;
/// The width of the middle four fifths of the incumbent's own samples, as a share of their median. An idle device has
/// at most 0.09; one that is shared has whole multiples.
const SPREAD_MAX: f64 = 0.2;

/// What samples of two kernels in turn say. Times are in microseconds a call.
///
/// ```
/// use warpsmith_tune::{Comparison, Decision, MARGIN};
/// let pairs: Vec<_> = (0..31).map(|at| (40.0 + f64::from(at % 3) / 10.0, 38.0 + f64::from(at % 5) / 10.0)).collect();
/// let comparison = Comparison::of(&pairs).unwrap();
/// assert_eq!(comparison.to_string(), "38.20 µs against 40.10: 0.9526 (0.9478 to 0.9575)");
/// assert_eq!(comparison.decide(MARGIN), Decision::Wins);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Pairs of samples.
    pub pairs: usize,
    /// The incumbent's median.
    pub incumbent_us: f64,
    /// The challenger's median.
    pub challenger_us: f64,
    /// The median over the pairs of challenger by incumbent: below 1, the challenger is faster.
    pub ratio: f64,
    /// Where the true median of the ratios is, with 99.9 % certainty; none if there are too few pairs for that, or too
    /// few that know nothing of the one before.
    pub interval: Option<(f64, f64)>,
    /// The width of the middle four fifths of the incumbent's samples, as a share of their median.
    pub spread: f64,
    /// The same of the challenger's.
    pub challenger_spread: f64,
    /// How much slower the incumbent was in the last third than in the first, as a share.
    pub drift: f64,
}

/// What a comparison says of the challenger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Faster by more than the margin, with certainty.
    Wins,
    /// Neither: the incumbent stays.
    Ties,
    /// Slower, with certainty.
    Loses,
}

/// Why samples say nothing: the device was not left alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Disturbance {
    /// The incumbent became slower (or faster) while it was timed: the clock has changed, or somebody came or went.
    Drift(f64),
    /// The incumbent's samples are too far apart: somebody else is at work on the device.
    Spread(f64),
    /// A sample is missing, or no time at all.
    NoTime,
}

impl Comparison {
    /// Of pairs in the order in which they were taken, the incumbent's time first.
    ///
    /// # Errors
    /// A disturbance, if there is no pair, or a time in it that is not positive and finite.
    pub fn of(pairs: &[(f64, f64)]) -> Result<Self, Disturbance> {
        let is_time = |us: f64| us.is_finite() && us > 0.0;
        if pairs.is_empty() || !pairs.iter().all(|&(a, b)| is_time(a) && is_time(b)) {
            return Err(Disturbance::NoTime);
        }
        let incumbent: Vec<f64> = pairs.iter().map(|pair| pair.0).collect();
        let ratios: Vec<f64> = pairs.iter().map(|(incumbent, challenger)| challenger / incumbent).collect();
        let challenger: Vec<f64> = pairs.iter().map(|pair| pair.1).collect();
        let third = pairs.len().div_ceil(3);
        let (first, last) = (median(&incumbent[..third]), median(&incumbent[pairs.len() - third..]));
        Ok(Self {
            pairs: pairs.len(),
            incumbent_us: median(&incumbent),
            challenger_us: median(&challenger),
            ratio: median(&ratios),
            interval: interval(&ratios),
            spread: spread(&incumbent),
            challenger_spread: spread(&challenger),
            drift: last / first - 1.0,
        })
    }

    /// Why nothing should be concluded from it, if so.
    #[must_use]
    pub fn disturbance(&self) -> Option<Disturbance> {
        if self.drift.abs() > DRIFT_MAX {
            Some(Disturbance::Drift(self.drift))
        } else if self.spread > SPREAD_MAX {
            Some(Disturbance::Spread(self.spread))
        } else {
            None
        }
    }

    /// Whether the challenger is faster by more than `margin` (a share, such as [`MARGIN`]). The whole interval has to
    /// say so.
    #[must_use]
    pub fn decide(&self, margin: f64) -> Decision {
        match self.interval {
            Some((_, high)) if high < 1.0 - margin => Decision::Wins,
            Some((low, _)) if low > 1.0 => Decision::Loses,
            _ => Decision::Ties,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} µs against {:.2}: {:.4}", self.challenger_us, self.incumbent_us, self.ratio)?;
        match self.interval {
            Some((low, high)) => write!(f, " ({low:.4} to {high:.4})"),
            None => write!(f, " (uncertain after {} pairs)", self.pairs),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Decision::Wins => "wins",
            Decision::Ties => "ties",
            Decision::Loses => "loses",
        })
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: &f64| share * 100.0;
        match self {
            Disturbance::Drift(share) => {
                write!(f, "the incumbent's own time moved by {:+.1} % meanwhile (clock or contention)", percent(share))
            }
            Disturbance::Spread(share) => {
                write!(f, "the incumbent's own samples are {:.0} % apart (contention)", percent(share))
            }
            Disturbance::NoTime => f.write_str("no time was measured"),
        }
    }
}

/// The middle of some samples; of an even number, the mean of the two. NaN of none.
pub(super) fn median(samples: &[f64]) -> f64 {
    quantile(&sorted(samples), 0.5)
}

fn spread(samples: &[f64]) -> f64 {
    let ordered = sorted(samples);
    (quantile(&ordered, 0.9) - quantile(&ordered, 0.1)) / quantile(&ordered, 0.5)
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut samples = samples.to_vec();
    samples.sort_by(f64::total_cmp);
    samples
}

/// Between the two nearest of ordered samples, linearly.
fn quantile(ordered: &[f64], share: f64) -> f64 {
    let Some(last) = ordered.len().checked_sub(1) else { return f64::NAN };
    let at = share * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    ordered[below] + (ordered[above] - ordered[below]) * at.fract()
}

/// An interval for the median of what `ratios`, in the order of time, were drawn from.
///
/// Each independent sample is above the median or below it as a coin falls, so the number below is binomial, and the
/// ordered samples at `n/2 ± z·√n/2` enclose the median whatever the distribution (David & Nagaraja, Order
/// Statistics, 7.1). Samples that take after the one before them are worth fewer: by (1 + ρ)/(1 − ρ), where ρ is how
/// much their signs do.
fn interval(ratios: &[f64]) -> Option<(f64, f64)> {
    let (n, ordered) = (ratios.len() as f64, sorted(ratios));
    let alike = persistence(ratios, quantile(&ordered, 0.5));
    let half = DEVIATIONS * (n * (1.0 + alike) / (1.0 - alike)).sqrt() / 2.0;
    // Half a rank more, since the normal distribution stands in for the binomial one. Ranks count from 1.
    let rank = (n / 2.0 - half - 0.5).floor();
    if rank < 1.0 {
        return None;
    }
    let below = rank as usize - 1;
    Some((ordered[below], ordered[ordered.len() - 1 - below]))
}

/// The correlation of the signs of neighbours, as far as it is more than chance: 0 to 0.95.
fn persistence(ratios: &[f64], median: f64) -> f64 {
    let sign = |ratio: &f64| f64::from(i8::from(*ratio > median) - i8::from(*ratio < median));
    let signs: Vec<f64> = ratios.iter().map(sign).collect();
    let neighbours = signs.len().saturating_sub(1).max(1) as f64;
    let alike = signs.windows(2).map(|two| two[0] * two[1]).sum::<f64>() / neighbours;
    (alike - 1.0 / neighbours.sqrt()).clamp(0.0, 0.95)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(n: usize, pair: impl Fn(usize) -> (f64, f64)) -> Vec<(f64, f64)> {
        (0..n).map(pair).collect()
    }

    /// A ripple without a period, ±`size`.
    fn ripple(at: usize, size: f64) -> f64 {
        let mixed = (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11;
        1.0 + size * (2.0 * mixed as f64 / (1u64 << 53) as f64 - 1.0)
    }

    #[test]
    fn a_comparison_is_of_medians() {
        let comparison =
            Comparison::of(&pairs(31, |at| (10.0 * ripple(at, 0.002), 9.5 * ripple(at + 99, 0.002)))).unwrap();
        assert!((comparison.ratio - 0.95).abs() < 0.002 && (comparison.incumbent_us - 10.0).abs() < 0.01);
        let (low, high) = comparison.interval.unwrap();
        assert!(low < comparison.ratio && comparison.ratio < high && high - low < 0.006);
        assert_eq!((comparison.decide(0.01), comparison.decide(0.06)), (Decision::Wins, Decision::Ties));
        assert_eq!(comparison.disturbance(), None);
        assert!(comparison.to_string().starts_with("9.5"), "{comparison}");
    }

    #[test]
    fn the_whole_interval_has_to_clear_the_margin() {
        let decide = |low, high| {
            let comparison = Comparison::of(&pairs(31, |_| (1.0, 1.0))).unwrap();
            Comparison { interval: Some((low, high)), ..comparison }.decide(0.01)
        };
        assert_eq!(decide(0.95, 0.989), Decision::Wins);
        assert_eq!(decide(0.95, 0.990_1), Decision::Ties);
        assert_eq!(decide(0.95, 1.05), Decision::Ties);
        assert_eq!(decide(1.001, 1.05), Decision::Loses);
        // A clock may be so coarse that all samples are alike.
        assert_eq!(Comparison::of(&pairs(31, |_| (1.0, 0.5))).unwrap().decide(0.01), Decision::Wins);
        let few = Comparison::of(&pairs(16, |_| (1.0, 0.5))).unwrap();
        assert_eq!((few.interval, few.decide(0.0)), (None, Decision::Ties));
    }

    /// Exact: the number of samples below the median is binomial.
    #[test]
    fn the_interval_holds_as_often_as_it_says() {
        for n in 17..400u32 {
            let samples: Vec<f64> = (0..n).map(f64::from).collect();
            // Alternately from both ends, so that neighbours are not alike.
            let ends = samples.iter().zip(samples.iter().rev()).flat_map(|(low, high)| [*low, *high]);
            let (low, _) = interval(&ends.take(n as usize).collect::<Vec<_>>()).unwrap();
            let (mut term, mut outside) = (0.5f64.powi(n as i32), 0.0);
            for below in 0..=low as u32 {
                outside += term;
                term *= f64::from(n - below) / f64::from(below + 1);
            }
            assert!(2.0 * outside <= 0.001, "{n} samples: {}", 2.0 * outside);
        }
    }

    #[test]
    fn samples_that_take_after_their_neighbours_are_worth_less() {
        let steps = |length: usize| {
            let level = |at: usize| if (at / length).is_multiple_of(2) { 0.90 } else { 0.97 };
            Comparison::of(&pairs(60, |at| (1.0, level(at) * ripple(at, 0.001)))).unwrap()
        };
        // The same two levels as often: at each step, and once.
        let (fast, slow) = (steps(1), steps(30));
        assert!(fast.interval.is_some_and(|(low, high)| low < 0.91 && high > 0.96 && high < 0.98));
        assert_eq!((fast.decide(0.01), slow.interval, slow.decide(0.01)), (Decision::Wins, None, Decision::Ties));
    }

    #[test]
    fn a_change_of_the_clock_or_another_tenant_is_seen() {
        let clock = Comparison::of(&pairs(30, |at| if at < 15 { (10.0, 9.0) } else { (11.2, 10.1) })).unwrap();
        assert!(matches!(clock.disturbance(), Some(Disturbance::Drift(by)) if (by - 0.12).abs() < 0.001));
        let shared = Comparison::of(&pairs(30, |at| if at % 4 == 0 { (22.0, 9.0) } else { (10.0, 9.0) })).unwrap();
        assert!(matches!(shared.disturbance(), Some(Disturbance::Spread(_))));
        assert_eq!(Comparison::of(&[]), Err(Disturbance::NoTime));
        for wrong in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            assert_eq!(Comparison::of(&[(1.0, wrong)]), Err(Disturbance::NoTime));
            assert_eq!(Comparison::of(&[(wrong, 1.0)]), Err(Disturbance::NoTime));
        }
    }
}
