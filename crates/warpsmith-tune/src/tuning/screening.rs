//! The first half of a tuning: through the gates, and a short timing.

use std::collections::HashSet;
use std::iter;
use std::ops::ControlFlow;

use super::{Candidate, ScreenReference, Tuning};
use crate::ahead::build_ahead;
use crate::statistics::median;
use crate::{Admission, Footprint, Rejection, Role, Stage, Standing, Tried};
use warpsmith::internal::Raise;
use warpsmith::internal::spec::baseline;
use warpsmith::spec::Spec;
use warpsmith::{Error, Result};

/// Of the limit, the share after which no more candidates are begun, so that there is time to compare them.
const SCREENING_SHARE: f64 = 0.65;
/// Short timings that a reference is the median of, and candidates until it is taken anew: short timings are taken
/// minutes apart, in which clocks change, and so are compared as shares of the reference's.
const REFERENCE_SAMPLES: usize = 3;
const REFERENCE_USES: usize = 32;

impl Tuning<'_> {
    /// The incumbent, the baseline and as many candidates as the budget has.
    pub(super) fn screen_candidates(&mut self, candidates: impl IntoIterator<Item = Spec>) -> Result<()> {
        let (incumbent, most) = (self.incumbent, self.around.settings.budget.candidates());
        let mut candidates = candidates.into_iter().take(most).peekable();
        self.first = candidates.peek().copied();
        let baseline = Spec::new(incumbent.problem(), &baseline(incumbent.problem()), incumbent.arch())?;
        let always = [(incumbent, Role::Incumbent), (baseline, Role::Baseline)];
        let all = always.into_iter().chain(candidates.zip((0..).map(Role::Candidate)));
        self.screen_all(Stage::Screening, SCREENING_SHARE, false, all)?;

        // Spilling kernels only where there is nothing else.
        if !self.entries.iter().any(|entry| entry.is_right() && !entry.spills) {
            let spilling = self.entries.iter().filter(|entry| entry.spills && !entry.is_right());
            let again: Vec<_> = spilling.map(|entry| (entry.spec, entry.tried.role)).collect();
            self.screen_all(Stage::Screening, SCREENING_SHARE, true, again.into_iter())?;
        }
        Ok(())
    }

    /// Builds, checks and times shortly what has not been in the tuning yet, or was refused for its spills and may now
    /// spill.
    pub(super) fn screen_all(
        &mut self,
        stage: Stage,
        share: f64,
        may_spill: bool,
        all: impl Iterator<Item = (Spec, Role)>,
    ) -> Result<()> {
        let mut seen: HashSet<Spec> = if may_spill { HashSet::new() } else { self.places.keys().copied().collect() };
        let (least, most) = all.size_hint();
        let of = most.filter(|most| *most == least);
        let (build, threads) = (self.around.build, self.around.settings.threads);
        let mut done = 0;
        build_ahead(build, threads, all.filter(|(spec, _)| seen.insert(*spec)), |spec, role, built| {
            let place = self.enter(spec, role)?;
            self.pass_gates(place, built, may_spill || role == Role::Incumbent)?;
            self.screen(place)?;
            self.ready.get_or_insert(self.around.clock.now().saturating_sub(self.begun));
            done += 1;
            self.tell(stage, place, done, of);
            Ok(if self.is_over(share) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
    }

    /// The place of a spec in the tuning, new or not.
    fn enter(&mut self, spec: Spec, role: Role) -> Result<usize> {
        if let Some(place) = self.places.get(&spec) {
            return Ok(*place);
        }
        if (spec.problem(), spec.arch()) != (self.incumbent.problem(), self.incumbent.arch()) {
            return Err(Error::unsupported(format!("{spec} is no candidate for {}", self.incumbent)));
        }
        let place = self.entries.len();
        let (variant, standing) = (*spec.variant(), Standing::Screened);
        let coolest = f64::INFINITY;
        let tried = Tried { variant, role, standing, worst: None, screened_us: None, duel: None };
        self.entries.push(Candidate { spec, tried, spills: false, screened: Vec::new(), shares: Vec::new(), coolest });
        self.places.insert(spec, place);
        Ok(place)
    }

    fn pass_gates(&mut self, place: usize, built: Result<Footprint>, may_spill: bool) -> Result<()> {
        let entry = &mut self.entries[place];
        let footprint = match built {
            Err(error) if error.is_missing_library() => return Err(error),
            Err(error) => {
                let log = error.compile_log().and_then(|log| log.lines().next()).unwrap_or_default();
                entry.refuse(Rejection::Build(format!("{error} {log}").trim_end().to_owned()));
                return Ok(());
            }
            Ok(footprint) => footprint,
        };
        entry.spills = footprint.spills;
        let spilling = footprint.spilling().filter(|_| !may_spill);
        if let Some(rejection) = footprint.too_large(&entry.spec).or(spilling) {
            entry.refuse(rejection);
            return Ok(());
        }
        match self.around.measurer.admit(&entry.spec)? {
            Admission::Refused(rejection) => {
                entry.refuse(rejection);
                self.suspect_surroundings(place)
            }
            Admission::Passed { worst } => {
                (entry.tried.worst, entry.tried.standing) = (Some(worst), Standing::Screened);
                Ok(())
            }
        }
    }

    /// Where even the baseline brings its process or the device down, and nothing else has run, it is not the kernels.
    fn suspect_surroundings(&self, place: usize) -> Result<()> {
        let Candidate { spec, tried, .. } = &self.entries[place];
        match &tried.standing {
            Standing::Refused(rejection @ (Rejection::Crashes(_) | Rejection::Hangs))
                if tried.variant == baseline(spec.problem()) && !self.entries.iter().any(Candidate::is_right) =>
            {
                Err(Error::driver(format!(
                    "not even the baseline runs ({rejection}), so it is not the kernels; remedy: see to the driver, and \
                     to what else uses the device"
                )))
            }
            _ => Ok(()),
        }
    }

    /// A short timing of an entry that has passed the gates, as a share of the reference's.
    pub(super) fn screen(&mut self, place: usize) -> Result<()> {
        while self.reference.is_none_or(|reference| reference.uses >= REFERENCE_USES) && self.passed(place) {
            self.renew_reference(place)?;
        }
        if !self.passed(place) {
            return Ok(());
        }
        let us = self.time(place)?;
        if let (Some(us), Some(reference)) = (us, &mut self.reference) {
            reference.uses += 1;
            let entry = &mut self.entries[place];
            entry.shares.push(us / reference.us);
            entry.screened.push(us);
            entry.coolest = entry.coolest.min(us);
            entry.tried.screened_us = Some(median(&entry.screened));
            self.best_us = Some(self.best_us.map_or(us, |best| best.min(us)));
        }
        Ok(())
    }

    /// The incumbent's or, where it is not right, the first right one's.
    fn renew_reference(&mut self, otherwise: usize) -> Result<()> {
        let place = self.reference.map_or(otherwise, |reference| reference.place);
        self.reference = None;
        let times = iter::repeat_with(|| self.time(place)).take(REFERENCE_SAMPLES).collect::<Result<Option<Vec<_>>>>();
        self.reference = times?.map(|times| ScreenReference { place, us: median(&times), uses: 0 });
        Ok(())
    }

    fn passed(&self, place: usize) -> bool {
        self.entries[place].tried.worst.is_some()
    }

    /// A short timing; none, if it has no end, and then the entry is refused.
    pub(super) fn time(&mut self, place: usize) -> Result<Option<f64>> {
        let spec = self.entries[place].spec;
        let us = self.busy(|measurer| measurer.screen(&spec))?;
        if us.is_finite() && us > 0.0 {
            return Ok(Some(us));
        }
        self.entries[place].refuse(failed_while_timed());
        Ok(None)
    }
}

pub(super) fn failed_while_timed() -> Rejection {
    Rejection::Crashes("it was right, but failed while it was timed".to_owned())
}
