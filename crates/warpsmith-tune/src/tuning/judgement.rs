//! The end of a tuning: the winner has to beat the incumbent once more, and the choice gets its evidence.

use super::Tuning;
use super::duels::{Pairs, Undisturbed, Unmeasured};
use crate::statistics::median;
use crate::{Comparison, Decision, Disturbance, Measurements, Outcome, Stage, Standing, Verdict, WhyInconclusive};
use warpsmith::Result;
use warpsmith::internal::spec::baseline;
use warpsmith::spec::Spec;

/// Pairs of each half of the confirmation, and pairs at most if so many leave it open.
const CONFIRMATION_PAIRS: usize = 41;
const CONFIRMATION_PAIRS_MAX: usize = 3 * CONFIRMATION_PAIRS;
/// Pairs that tell the ratio to kernels that are no rivals any more.
const EVIDENCE_PAIRS: usize = 21;
/// Comparisons of this stage at most: two halves of the confirmation count as one.
const CONFIRMATIONS: usize = 3;

impl Tuning<'_> {
    /// The outcome, where `best` has won the duels.
    pub(super) fn judge(mut self, best: Option<usize>) -> Result<Outcome> {
        let incumbent = self.places.get(&self.incumbent).copied();
        let incumbent = incumbent.filter(|place| self.entries[*place].is_right());
        let Some(best) = best.filter(|_| !self.cancelled) else {
            let reason = if self.cancelled { WhyInconclusive::Cancelled } else { WhyInconclusive::NothingRight };
            return Ok(self.inconclusive(reason));
        };
        let to_incumbent = match incumbent {
            Some(incumbent) if best != incumbent => self.confirm(incumbent, best)?,
            _ => None,
        };
        let choice = if to_incumbent.is_some() { best } else { incumbent.unwrap_or(best) };
        let changed = Some(choice) != incumbent;
        match self.disturbed {
            // One of those that were not decided may be better.
            Some(disturbance) if !changed => return Ok(self.inconclusive(WhyInconclusive::Disturbed(disturbance))),
            None if !changed && (self.unsettled || self.out_of_time && self.entries.len() == 1) => {
                return Ok(self.inconclusive(WhyInconclusive::OutOfTime));
            }
            _ => {}
        }
        let evidence = self.evidence(choice, to_incumbent)?;
        if self.cancelled {
            return Ok(self.inconclusive(WhyInconclusive::Cancelled));
        }
        if !self.entries[choice].is_right() {
            return Ok(self.inconclusive(WhyInconclusive::Disturbed(Disturbance::NoTime)));
        }
        if let Some(incumbent) = incumbent.filter(|_| changed) {
            self.entries[incumbent].tried.standing = Standing::Lost;
        }
        self.entries[choice].tried.standing = Standing::Stands;
        let verdict = if changed { Verdict::Changed } else { Verdict::Kept };
        let choice = self.entries[choice].spec;
        Ok(self.outcome(choice, verdict, Some(evidence)))
    }

    /// Two duels of the winner with the incumbent, one with their places exchanged, so that whatever favours the first
    /// or the second of a pair favours both once. The comparison of all their samples, if each of the two was won by
    /// the margin.
    fn confirm(&mut self, incumbent: usize, winner: usize) -> Result<Option<Comparison>> {
        let (mut all, mut won) = (Vec::new(), true);
        for exchanged in [false, true] {
            match self.confirm_half(incumbent, winner, exchanged)? {
                Ok((half, decision)) => {
                    all.extend(half);
                    won &= decision == Decision::Wins;
                }
                Err(why) => {
                    match why {
                        Unmeasured::Disturbed(disturbance) => self.disturbed = Some(disturbance),
                        Unmeasured::OutOfTime => self.unsettled = true,
                    }
                    return Ok(None);
                }
            }
        }
        let comparison = Comparison::of(&all).ok();
        let tried = &mut self.entries[winner].tried;
        tried.duel = comparison;
        if !won {
            tried.standing = Standing::Tied;
        }
        self.tell(Stage::Confirming, winner, 1, Some(CONFIRMATIONS));
        Ok(comparison.filter(|_| won))
    }

    /// Samples and what they say; more of them, as long as the winner seems to win but it is not certain.
    fn confirm_half(
        &mut self,
        incumbent: usize,
        winner: usize,
        exchanged: bool,
    ) -> Result<Undisturbed<(Pairs, Decision)>> {
        let (margin, mut half) = (self.around.settings.margin, Vec::new());
        loop {
            match self.samples(incumbent, winner, CONFIRMATION_PAIRS, exchanged)? {
                Ok(samples) => half.extend(samples),
                Err(why) => return Ok(Err(why)),
            }
            let comparison = match Comparison::of(&half) {
                Ok(comparison) => comparison,
                Err(disturbance) => return Ok(Err(Unmeasured::Disturbed(disturbance))),
            };
            let decision = comparison.decide(margin);
            let open = decision == Decision::Ties && comparison.ratio < 1.0 - margin;
            if !open || half.len() >= CONFIRMATION_PAIRS_MAX {
                return Ok(Ok((half, decision)));
            }
        }
    }

    /// How fast the choice is, alone and beside the first candidate and the baseline.
    fn evidence(&mut self, choice: usize, to_incumbent: Option<Comparison>) -> Result<Measurements> {
        let baseline = Spec::new(self.incumbent.problem(), &baseline(self.incumbent.problem()), self.incumbent.arch())?;
        let mut beside = [None; 2];
        for (done, (spec, beside)) in [self.first, Some(baseline)].into_iter().zip(&mut beside).enumerate() {
            let Some(place) = spec.and_then(|spec| self.places.get(&spec).copied()) else { continue };
            *beside = match to_incumbent.filter(|_| self.is_incumbent(place)) {
                None => self.beside(place, choice)?,
                known => known,
            };
            self.tell(Stage::Confirming, place, done + 2, Some(CONFIRMATIONS));
        }
        let [to_first, to_baseline] = beside;
        let longest = [to_incumbent, to_first, to_baseline].into_iter().flatten().next();
        let (us, spread) = match longest {
            Some(comparison) => (comparison.challenger_us, Some(comparison.challenger_spread)),
            None => (median(&self.entries[choice].screened), None),
        };
        Ok(Measurements { us, spread, to_incumbent, to_first, to_baseline })
    }

    /// The choice against another that is right.
    fn beside(&mut self, other: usize, choice: usize) -> Result<Option<Comparison>> {
        if other == choice || self.cancelled || !self.entries[other].is_right() {
            return Ok(None);
        }
        Ok(self.compare(other, choice, EVIDENCE_PAIRS)?.ok())
    }

    fn inconclusive(self, reason: WhyInconclusive) -> Outcome {
        let incumbent = self.incumbent;
        self.outcome(incumbent, Verdict::Inconclusive(reason), None)
    }

    fn outcome(self, choice: Spec, verdict: Verdict, evidence: Option<Measurements>) -> Outcome {
        Outcome {
            problem: *self.incumbent.problem(),
            m: self.m,
            incumbent: *self.incumbent.variant(),
            choice: *choice.variant(),
            first: self.first.map(|first| *first.variant()),
            verdict,
            evidence,
            wall: self.elapsed(),
            ready: self.ready.unwrap_or_default(),
            rested: self.rested,
            tried: self.entries.into_iter().map(|entry| entry.tried).collect(),
            out_of_time: self.out_of_time,
        }
    }
}
