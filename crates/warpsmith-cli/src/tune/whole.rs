//! All that a manifest names, tuned within a time: a table by which it is served, and what of it was not measured.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde::Serialize;
use warpsmith::engine::Manifest;
use warpsmith::internal::engine::KernelSet;
use warpsmith::internal::pick::Entry;
use warpsmith::pick::{Origin, Picker, Table};
use warpsmith::spec::{Spec, Variant};
use warpsmith_tune::{
    Clock, Decided, Outcome, Point, Rejection, Standing, Turn, Verdict, WhyInconclusive, tune_within,
};

use super::record::{self, Means};
use super::report::Row;
use super::tuning::kin;
use crate::shared::list::Item;
use crate::shared::{self, Result, say};

/// A problem has at most so many kernels for the rows of a manifest, or as many as it had before.
const KERNELS: usize = 9;

/// What replaces a wrong kernel is as if it were so many times as fast.
const MOST_MISSED: f64 = 1e6;

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Whole {
    /// With what was decided.
    #[serde(skip)]
    pub table: Table,
    /// Its lines that are new, with those that they replace.
    pub decisions: Vec<String>,
    /// Decisions that were asked for, and those that are measured now or were before.
    pub points: usize,
    pub reached: usize,
    /// What keeps its choice unmeasured.
    pub unreached: Vec<Unreached>,
    /// Decisions that were taken, but for which their problem would have too many kernels.
    pub left_out: Vec<String>,
    /// Kernels that would serve and are wrong, each with why; or a problem and rows for which none is right.
    pub wrong: BTreeMap<String, String>,
    /// Every tuning.
    pub rows: Vec<Row>,
    /// Seconds in all, and that the device rested of them.
    pub seconds: f64,
    pub rested: f64,
}

/// Rows for which what was chosen stays, unmeasured.
#[derive(Debug, Serialize)]
pub struct Unreached {
    pub problem: String,
    pub rows: String,
    pub variant: String,
    /// How it was chosen.
    pub origin: String,
    pub why: String,
}

/// Where and until when it is tuned.
pub struct Session<'a> {
    pub manifest: &'a Manifest,
    /// What was decided before.
    pub table: &'a Table,
    pub means: &'a Means,
    pub clock: &'a dyn Clock,
    pub until: Duration,
}

/// Tunes an item in its turn, given what is chosen now and what else to try.
type Tune<'a> = dyn FnMut(&Item, &Spec, &[Spec], Turn) -> Result<Outcome> + 'a;

/// A decision, and how many times as fast as before it makes its rows.
struct Taken<'a> {
    entry: Entry,
    decided: &'a Decided,
    gain: f64,
}

impl Taken<'_> {
    /// Of these variants the fastest that was timed beside it, and its time as a share of that of what was decided.
    fn next_best(&self, of: &HashSet<Variant>) -> Option<(Variant, f64)> {
        let choice = self.decided.outcome()?.choice;
        let others = self.decided.others();
        // It may have been replaced before.
        let own = others.iter().find(|(variant, _)| variant == self.entry.variant()).map_or(1.0, |(_, share)| *share);
        let all = others.iter().copied().chain([(choice, 1.0)]).filter(|(variant, _)| of.contains(variant));
        all.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(variant, share)| (variant, share / own))
    }

    /// What is lost if one of these takes its place, or what was before.
    fn missed(&self, stays: &HashSet<Variant>) -> f64 {
        let loss = self.next_best(stays).map_or(self.gain.min(MOST_MISSED), |(_, share)| share);
        loss.ln() * self.decided.point.octaves()
    }
}

impl Session<'_> {
    /// Tunes by `tune`, and lets `keep` have the table after each decision.
    pub fn run(&self, tune: &mut Tune<'_>, keep: &mut dyn FnMut(&Table) -> Result<()>) -> Result<Whole> {
        let begun = self.clock.now();
        let points = Point::all(&self.picker(self.table)?, self.manifest);
        say!("{} decisions in {:.0} s", points.len(), self.until.saturating_sub(begun).as_secs_f64())?;
        // The next tuning of a point begins with what the one before has found.
        let (current, mut rows) = (RefCell::new(self.table.clone()), Vec::new());
        let decided = tune_within(
            points,
            self.until,
            self.clock,
            |point, turn| {
                let (problem, m) = (point.problem(), point.m());
                let item = Item::new(*problem, shared::rows(problem, &[m])?)?;
                let picker = self.picker(&current.borrow())?;
                let kin = kin(&picker, problem, m)?;
                let outcome = tune(&item, picker.choose(problem, m)?.spec(), &kin, turn)?;
                say!("{outcome}")?;
                rows.push(record::row(&item.op, &outcome, problem, &item.rows, &self.means.arch));
                Ok(outcome)
            },
            |decided| {
                let Some(taken) = self.taken(decided)? else { return Ok(()) };
                current.borrow_mut().supersede(taken.entry);
                keep(&current.borrow())
            },
        )?;
        let taken = decided.iter().filter_map(|decided| self.taken(decided).transpose()).collect::<Result<Vec<_>>>()?;
        let (table, left_out) = self.with_few_kernels(taken)?;
        keep(&table)?;
        Ok(Whole {
            decisions: table.diff(self.table).iter().map(ToString::to_string).collect(),
            points: decided.len(),
            reached: decided.iter().filter(|decided| decided.outcome().is_some() || is_known(decided)).count(),
            unreached: unreached(&decided),
            left_out: left_out.iter().map(ToString::to_string).collect(),
            wrong: self.wrong(&table, &decided)?,
            seconds: self.clock.now().saturating_sub(begun).as_secs_f64(),
            rested: rows.iter().map(|row| row.rested).sum(),
            rows,
            table,
        })
    }

    /// Chooses as an engine would with a table.
    fn picker(&self, table: &Table) -> Result<Picker> {
        Ok(Picker::builder(&self.means.device, &self.means.arch).table(table).build()?)
    }

    fn taken<'a>(&self, decided: &'a Decided) -> Result<Option<Taken<'a>>> {
        let Some(outcome) = decided.outcome() else { return Ok(None) };
        let problem = decided.point.problem();
        let entry = record::entry(outcome, problem, decided.rows(), decided.candidates(), self.means)?;
        // What replaces a wrong kernel is worth anything.
        let gain = decided.gain().unwrap_or(f64::INFINITY);
        Ok(entry.map(|entry| Taken { entry, decided, gain }))
    }

    /// The table with these decisions, with few kernels for each problem; and those that were left out for that. As long as
    /// there are too many, the kernel goes that is missed least: where it was decided for, the next best takes its place that
    /// was timed there and stays, and without one there is no decision.
    fn with_few_kernels(&self, mut taken: Vec<Taken<'_>>) -> Result<(Table, Vec<Entry>)> {
        let mut left_out = Vec::new();
        for (problem, rows) in self.manifest.problems() {
            let one = Manifest::new().with(problem, rows);
            let kernels =
                |table: &Table| -> Result<usize> { Ok(KernelSet::new(&self.picker(table)?, &one).specs().count()) };
            let most = kernels(self.table)?.max(KERNELS);
            while kernels(&self.with(&taken))? > most {
                let own = || taken.iter().filter(|of| of.entry.problem() == problem);
                let used: HashSet<Variant> = own().map(|of| *of.entry.variant()).collect();
                let stays = |gone: &Variant| used.iter().copied().filter(|other| other != gone).collect::<HashSet<_>>();
                let missed = |gone: &Variant| -> f64 {
                    own().filter(|of| of.entry.variant() == gone).map(|of| of.missed(&stays(gone))).sum()
                };
                let least = used.iter().map(|gone| (missed(gone), *gone));
                let Some((_, gone)) =
                    least.min_by(|(a, x), (b, y)| a.total_cmp(b).then_with(|| x.to_string().cmp(&y.to_string())))
                else {
                    break;
                };
                let stays = stays(&gone);
                let (affected, others) =
                    taken.into_iter().partition(|of| of.entry.problem() == problem && *of.entry.variant() == gone);
                taken = others;
                for of in affected {
                    match of.next_best(&stays) {
                        Some((variant, share)) => taken.push(self.replaced(of, &variant, share)?),
                        None => left_out.push(of.entry),
                    }
                }
            }
        }
        Ok((self.with(&taken), left_out))
    }

    fn with(&self, taken: &[Taken<'_>]) -> Table {
        let mut table = self.table.clone();
        for taken in taken {
            table.supersede(taken.entry.clone());
        }
        table
    }

    /// The decision for another variant, which takes this share of its time.
    fn replaced<'a>(&self, taken: Taken<'a>, variant: &Variant, share: f64) -> Result<Taken<'a>> {
        let Taken { entry, decided, gain } = taken;
        let gain = gain / share;
        let mut evidence = entry.evidence().clone();
        let measured = &mut evidence.measured;
        (measured.us, measured.spread) = (measured.us * share, 0.0);
        measured.over_baseline /= share;
        measured.over_heuristic /= share;
        let rows = if gain.is_finite() { decided.rows_of(variant, gain) } else { decided.point.rows() };
        let (device, arch) = (&self.means.device, &self.means.arch);
        Ok(Taken { entry: Entry::new(device, arch, entry.problem(), rows, variant, evidence)?, decided, gain })
    }

    /// What would serve although it was found to be wrong.
    fn wrong(&self, table: &Table, decided: &[Decided]) -> Result<BTreeMap<String, String>> {
        let mut wrong = BTreeMap::new();
        let set = KernelSet::new(&self.picker(table)?, self.manifest);
        for Decided { point, outcomes } in decided {
            for outcome in outcomes {
                if outcome.verdict == Verdict::Inconclusive(WhyInconclusive::NothingRight) {
                    wrong.insert(format!("{} at {}", point.problem(), point.m()), "no kernel is right".to_owned());
                }
                for tried in &outcome.tried {
                    let Standing::Refused(rejection) = &tried.standing else { continue };
                    let is_it = |spec: &&Spec| *spec.problem() == outcome.problem && *spec.variant() == tried.variant;
                    if let Some(spec) = set.specs().find(is_it).filter(|_| is_wrong(rejection)) {
                        wrong.insert(spec.name(), rejection.to_string());
                    }
                }
            }
        }
        Ok(wrong)
    }
}

/// Whether it was measured before, on this model of device, or nothing else is wanted.
fn is_known(decided: &Decided) -> bool {
    matches!(decided.point.choice().origin(), Origin::Pinned | Origin::Tuned)
}

/// Whether the kernel is to blame, and not how much registers it takes or what the driver has room for.
fn is_wrong(rejection: &Rejection) -> bool {
    !matches!(rejection, Rejection::Spills { .. } | Rejection::SharedMemory { .. } | Rejection::Load(_))
}

/// What keeps its choice: there was no time, or no conclusion, or a decision does not reach so far.
fn unreached(decided: &[Decided]) -> Vec<Unreached> {
    let mut all = Vec::new();
    for decided in decided {
        let (first, m) = decided.point.rows().into_inner();
        let (rows, why) = match (decided.outcome(), decided.outcomes.last()) {
            (Some(_), _) if *decided.rows().start() > first => {
                (first..=decided.rows().start() - 1, "decided for more rows only".to_owned())
            }
            (Some(_), _) => continue,
            (None, _) if is_known(decided) => continue,
            (None, Some(Outcome { verdict: Verdict::Inconclusive(why), .. })) => (first..=m, why.to_string()),
            (None, _) => (first..=m, "there was no time".to_owned()),
        };
        let choice = decided.point.choice();
        all.push(Unreached {
            problem: decided.point.problem().to_string(),
            rows: format!("{}..={}", rows.start(), rows.end()),
            variant: choice.spec().variant().to_string(),
            origin: choice.origin().to_string(),
            why,
        });
    }
    all
}

impl Whole {
    /// Says what was decided, and what not.
    pub fn show(&self) -> Result<()> {
        say!("\ndecisions")?;
        self.decisions.iter().try_for_each(|line| say!("{line}"))?;
        for line in &self.left_out {
            say!("left out, for its problem to have few kernels: {line}")?;
        }
        for Unreached { problem, rows, variant, origin, why } in &self.unreached {
            say!("{problem} m {rows} keeps {variant} ({origin}): {why}")?;
        }
        for (kernel, why) in &self.wrong {
            say!("WRONG: {kernel}: {why}")?;
        }
        let Self { points, reached, seconds, rested, .. } = self;
        Ok(say!("\n{reached} of {points} decided, {seconds:.1} s, {rested:.1} of them at rest\n")?)
    }
}
