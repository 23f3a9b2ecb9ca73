//! The second half of a tuning: the best of the screened are timed in turn with the best so far, then its neighbours.

use super::screening::failed_while_timed;
use super::{SEARCH_SHARE, Tuning};
use crate::{Comparison, Decision, Disturbance, Role, Stage, Standing, neighbours};
use warpsmith::Result;

/// A candidate is worth a closer look if its short timing is at most this much of the best. Short timings of one kernel
/// are within a few hundredths of each other.
const KEEP: f64 = 1.1;
/// Halving begins with at most so many times the finalists.
const HALVING: usize = 4;
/// Finalists of a round of neighbours.
const FINALISTS_OF_ROUND: usize = 4;
/// Pairs of a duel: enough that the interval does not need the outermost samples.
const DUEL_PAIRS: usize = 31;
/// How often a duel is tried on a device that is not left alone.
const DUEL_TRIES: usize = 3;

/// What was measured on a device that was left alone, or why it was not.
pub(super) type Undisturbed<T> = Result<T, Unmeasured>;

/// Why two entries were not compared.
#[derive(Clone, Copy)]
pub(super) enum Unmeasured {
    Disturbed(Disturbance),
    /// The time was up.
    OutOfTime,
}
/// Pairs of times in microseconds a call, the best's (or the incumbent's) first.
pub(super) type Pairs = Vec<(f64, f64)>;

impl Tuning<'_> {
    /// The incumbent or, where it is not right, whoever was screened best.
    pub(super) fn best_before(&self) -> Option<usize> {
        let right = |place: &usize| self.entries[*place].is_right();
        let incumbent = self.places.get(&self.incumbent).copied().filter(right);
        incumbent.or_else(|| self.by_share(0..self.entries.len()).first().copied())
    }

    /// Those of the entries from `from` on that are worth a duel with the best so far, the best screened first.
    /// Successive halving: the better half is timed shortly once more, until few are left.
    pub(super) fn finalists(&mut self, from: usize, best: usize, most: usize) -> Result<Vec<usize>> {
        let mut left = self.by_share((from..self.entries.len()).filter(|place| *place != best));
        let bar = left.first().map_or(f64::INFINITY, |place| self.entries[*place].share());
        let bar = bar.min(self.entries[best].share()) * KEEP;
        left.retain(|place| self.entries[*place].share() <= bar);
        left.truncate(HALVING * most);
        while left.len() > most {
            for (done, place) in left.iter().enumerate() {
                if self.is_over(SEARCH_SHARE) {
                    left.truncate(most);
                    return Ok(left);
                }
                self.screen(*place)?;
                self.tell(Stage::Halving, *place, done + 1, Some(left.len()));
            }
            let half = left.len().div_ceil(2).max(most);
            left = self.by_share(left.into_iter());
            left.truncate(half);
        }
        Ok(left)
    }

    /// Right entries, the best screened first; among equals, those that came first.
    fn by_share(&self, places: impl Iterator<Item = usize>) -> Vec<usize> {
        let right = places.filter(|place| self.entries[*place].is_right());
        let mut shares: Vec<_> = right.map(|place| (self.entries[place].share(), place)).collect();
        shares.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        shares.into_iter().map(|(_, place)| place).collect()
    }

    /// Times the rivals one after the other in turn with the best so far, which is whoever won the last time. The first
    /// of them is timed also in the time that is for the confirmation, so that screening was not for nothing.
    pub(super) fn duels(&mut self, mut best: usize, rivals: &[usize]) -> Result<usize> {
        for (done, &rival) in rivals.iter().enumerate() {
            if self.cancelled || (done > 0 && self.is_over(SEARCH_SHARE)) {
                break;
            }
            best = self.duel(best, rival)?;
            self.tell(Stage::Duels, rival, done + 1, Some(rivals.len()));
        }
        Ok(best)
    }

    /// The winner. The incumbent gives way to what seems to be better by the margin, since that has to be confirmed
    /// anyway; others to what certainly is better.
    fn duel(&mut self, best: usize, rival: usize) -> Result<usize> {
        let comparison = match self.compare(best, rival, DUEL_PAIRS)? {
            Ok(comparison) => comparison,
            Err(Unmeasured::OutOfTime) => {
                self.unsettled = true;
                return Ok(best);
            }
            Err(Unmeasured::Disturbed(disturbance)) => {
                if self.entries[rival].is_right() && self.entries[best].is_right() {
                    self.entries[rival].tried.standing = Standing::Disturbed(disturbance);
                    self.disturbed = Some(disturbance);
                }
                // A best that fails while it is timed is none.
                return Ok(if self.entries[best].is_right() { best } else { self.best_before().unwrap_or(best) });
            }
        };
        let decision = comparison.decide(0.0);
        let wins = match decision {
            _ if self.is_incumbent(best) => comparison.ratio < 1.0 - self.around.settings.margin,
            decision => decision == Decision::Wins,
        };
        let tried = &mut self.entries[rival].tried;
        tried.duel = Some(comparison);
        tried.standing = match decision {
            _ if wins => Standing::Won,
            Decision::Loses => Standing::Lost,
            Decision::Wins | Decision::Ties => Standing::Tied,
        };
        Ok(if wins { rival } else { best })
    }

    /// Times two entries in turn.
    pub(super) fn compare(&mut self, best: usize, rival: usize, pairs: usize) -> Result<Undisturbed<Comparison>> {
        let samples = self.samples(best, rival, pairs, false)?;
        Ok(samples.and_then(|samples| Comparison::of(&samples).map_err(Unmeasured::Disturbed)))
    }

    /// Pairs of times, the best's first, of a device that has rested and was left alone; tried a few times, after a longer
    /// rest each time. Exchanged, the rival is timed first. Whoever fails meanwhile is refused.
    pub(super) fn samples(
        &mut self,
        best: usize,
        rival: usize,
        pairs: usize,
        exchanged: bool,
    ) -> Result<Undisturbed<Pairs>> {
        let mut disturbance = Disturbance::NoTime;
        for again in 0..DUEL_TRIES {
            self.rest_before(best, 1 << again)?;
            if self.is_over(1.0) {
                return Ok(Err(Unmeasured::OutOfTime));
            }
            let (first, second) = if exchanged { (rival, best) } else { (best, rival) };
            let [one, other] = [first, second].map(|place| self.entries[place].spec);
            let mut samples = self.busy(|measurer| measurer.duel(&one, &other, pairs))?;
            for (place, time) in [(first, (|pair| pair.0) as fn(&(f64, f64)) -> f64), (second, |pair| pair.1)] {
                if !samples.iter().map(time).all(f64::is_finite) {
                    self.entries[place].refuse(failed_while_timed());
                }
            }
            if exchanged {
                samples.iter_mut().for_each(|pair| *pair = (pair.1, pair.0));
            }
            match Comparison::of(&samples).map(|comparison| comparison.disturbance()) {
                Ok(None) => return Ok(Ok(samples)),
                Ok(Some(why)) => disturbance = why,
                Err(why) => return Ok(Err(Unmeasured::Disturbed(why))),
            }
        }
        Ok(Err(Unmeasured::Disturbed(disturbance)))
    }

    /// From neighbour to neighbour, as long as that gains something and there is time.
    pub(super) fn climb(&mut self, mut best: usize) -> Result<usize> {
        for round in 1.. {
            if self.is_over(SEARCH_SHARE) {
                break;
            }
            let from = self.entries.len();
            let beside = neighbours(&self.entries[best].spec).into_iter().map(|spec| (spec, Role::Neighbour(round)));
            self.screen_all(Stage::Climbing(round), SEARCH_SHARE, false, beside)?;
            let rivals = self.finalists(from, best, FINALISTS_OF_ROUND)?;
            let better = self.duels(best, &rivals)?;
            if better == best {
                break;
            }
            best = better;
        }
        Ok(best)
    }

    pub(super) fn is_incumbent(&self, place: usize) -> bool {
        self.entries[place].spec == self.incumbent
    }
}
