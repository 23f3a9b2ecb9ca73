//! Why a choice is what it is.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use super::choice::{Choice, Origin};
use super::entry::Measured;
use super::heuristic::{self, Prediction};
use super::picker::Picker;
use super::policy::Policy;
use crate::error::Result;
use crate::spec::{Numerics, PassKind, Problem, Spec, Variant, baseline, candidates};

/// What was considered for a problem and an M, what was refused and by which limit, and the choice; text for people
/// (`Display`), serde for machines.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[must_use]
pub struct Explanation {
    /// What is to be computed.
    pub problem: Problem,
    /// For how many rows, of all groups together.
    pub m: u32,
    /// What the driver calls the device.
    pub device: String,
    /// Its SMs.
    pub sms: u32,
    /// Its architecture's row.
    pub arch: &'static str,
    /// Whether tuning may change bits.
    pub policy: Policy,
    /// The numerics that choices are kept to, if they are.
    pub class: Option<Numerics>,
    /// Combinations of axis values that were looked at.
    pub considered: usize,
    /// Of them, those that are legal.
    pub legal: usize,
    /// Of the legal ones, those of the class (all, if there is none) whose grid has room for the rows.
    pub eligible: usize,
    /// Why the others are not legal, the most frequent limit first.
    pub refused: Vec<RefusedBy>,
    /// Decisions of the tuning table for this problem and M that are not followed.
    pub ignored: Vec<IgnoredDecision>,
    /// The choice first, then the variants that it was, or could have been, chosen before.
    pub candidates: Vec<Candidate>,
    /// Where the choice comes from.
    #[serde(serialize_with = "as_text")]
    pub origin: Origin,
    /// How much there was to go by.
    pub confidence: &'static str,
    /// The numbers behind the choice, as a clause.
    pub reason: String,
}

/// A limit, and how many combinations it refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedBy {
    /// The limit ([`Refusal::limit`](crate::spec::Refusal::limit)).
    pub limit: &'static str,
    /// Combinations that it was the first to refuse.
    pub count: usize,
    /// One of them.
    pub example: Variant,
    /// What it was told, with both numbers.
    pub refusal: String,
}

/// A decision of the tuning table that is not followed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IgnoredDecision {
    /// What was decided.
    pub variant: Variant,
    /// On which model of device.
    pub device: String,
    /// Why it is not followed.
    pub why: String,
}

/// Of a decision of another device, or for a like problem, that is not followed here.
const LOSES_HERE: &str = "measured elsewhere, predicted to lose here";
/// What the heuristic would choose if kernels were made for single M; the choice is for the rows of an
/// [`Interval`](super::Interval).
const FOR_THESE_ROWS: &str = "heuristic for these rows";
/// So many of them are told, the best first.
const RANKED: usize = 8;

/// A variant with what is known of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The variant.
    pub variant: Variant,
    /// Its order of addition.
    pub numerics: Numerics,
    /// What speaks for it: chosen, pinned, tuned, similar (or measured elsewhere, predicted to lose here), heuristic, heuristic
    /// for these rows, baseline.
    pub roles: Vec<&'static str>,
    /// What the heuristic's cost model makes of it.
    pub prediction: Prediction,
    /// What it needs and has to do.
    pub terms: Vec<Term>,
    /// What was measured.
    pub measured: Option<Measured>,
}

/// A number that is known of a variant before it is run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Term {
    /// What it is.
    pub name: &'static str,
    /// How much of it.
    pub value: f64,
    /// In this unit; empty for a count.
    pub unit: &'static str,
}

fn as_text<S: Serializer>(value: &impl fmt::Display, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl Picker {
    /// Tells why [`Picker::choose`] chooses what it does. Looks at every combination there is, so it takes its time.
    ///
    /// # Errors
    /// Those of [`Picker::choose`].
    pub fn explain(&self, problem: &Problem, m: u32) -> Result<Explanation> {
        let choice = self.choose(problem, m)?;
        let class = self.class(problem)?;
        let survey = Survey::new(problem, m, self, class);
        let of_table = |entry: &super::Entry| entry.is_for(problem) && entry.m().contains(&m);
        let ignored = self.ignored().iter().filter(|ignored| of_table(&ignored.entry)).map(|ignored| IgnoredDecision {
            variant: *ignored.entry.variant(),
            device: ignored.entry.device().to_owned(),
            why: ignored.why.clone(),
        });
        Ok(Explanation {
            problem: *problem,
            m,
            device: self.device().to_owned(),
            sms: self.arch().sms(),
            arch: self.arch().name(),
            policy: self.policy(),
            class,
            considered: survey.considered,
            legal: survey.legal,
            eligible: survey.eligible,
            refused: survey.refused,
            ignored: ignored.collect(),
            candidates: self.shortlist(problem, m, class.as_ref(), &choice)?,
            origin: choice.origin(),
            confidence: choice.origin().confidence(),
            reason: choice.reason().to_string(),
        })
    }

    /// The choice, every decision of the table, what the heuristic would choose for exactly these rows, with and without a
    /// class, the baseline.
    fn shortlist(
        &self,
        problem: &Problem,
        m: u32,
        class: Option<&Numerics>,
        choice: &Choice,
    ) -> Result<Vec<Candidate>> {
        let mut list = vec![Candidate::new(choice.spec(), problem, m, "chosen")];
        let mut add = |spec: &Spec, role: &'static str, measured: Option<Measured>| {
            let present = list.iter().position(|candidate: &Candidate| candidate.variant == *spec.variant());
            let index = present.unwrap_or_else(|| {
                list.push(Candidate::new(spec, problem, m, role));
                list.len() - 1
            });
            let candidate = &mut list[index];
            if !candidate.roles.contains(&role) {
                candidate.roles.push(role);
            }
            candidate.measured = candidate.measured.or(measured);
        };
        add(choice.spec(), choice.origin().word(), None);
        let here = |entry: &&super::Entry| {
            let is_for = entry.is_for_kin(problem) && entry.target() == self.arch().target();
            is_for && entry.m().contains(&m)
        };
        // What was measured for this problem on this model first: its numbers count, where several have some.
        let mut decisions: Vec<_> = self.table().entries().filter(here).collect();
        decisions.sort_by_key(|entry| (!self.is_exact(entry), !entry.is_for(problem)));
        for entry in decisions {
            let Ok(decision) = self.decide(entry, if entry.is_for(problem) { entry.problem() } else { problem }) else {
                continue;
            };
            let is_followed = decision.carries_over(self.arch(), class);
            let role = if is_followed { decision.choice.origin().word() } else { LOSES_HERE };
            add(decision.choice.spec(), role, Some(entry.evidence().measured));
        }
        let is_of_class = |spec: &Spec| class.is_none_or(|class| spec.numerics() == *class);
        for ranked in heuristic::rank_where(problem, m, self.arch(), RANKED, &is_of_class) {
            add(&ranked.spec, FOR_THESE_ROWS, None);
        }
        if class.is_some()
            && let Some(ranked) = heuristic::first(problem, m, self.arch())
        {
            add(&ranked.spec, "heuristic for these rows, without a class", None);
        }
        add(&Spec::new(problem, &baseline(problem), self.arch())?, "baseline", None);
        Ok(list)
    }
}

/// What becomes of all combinations of axis values.
struct Survey {
    considered: usize,
    legal: usize,
    eligible: usize,
    refused: Vec<RefusedBy>,
}

impl Survey {
    fn new(problem: &Problem, m: u32, picker: &Picker, class: Option<Numerics>) -> Self {
        let (mut considered, mut legal, mut eligible) = (0, 0, 0);
        let mut refused: BTreeMap<&'static str, RefusedBy> = BTreeMap::new();
        for (variant, checked) in candidates(problem, picker.arch()) {
            considered += 1;
            match checked {
                Ok(spec) => {
                    legal += 1;
                    let is_of_class = class.is_none_or(|class| spec.numerics() == class);
                    eligible += usize::from(is_of_class && spec.fits_grid(m));
                }
                Err(refusal) => {
                    let limit = refusal.limit();
                    let first = || RefusedBy { limit, count: 0, example: variant, refusal: refusal.to_string() };
                    refused.entry(limit).or_insert_with(first).count += 1;
                }
            }
        }
        let mut refused: Vec<_> = refused.into_values().collect();
        refused.sort_by_key(|by| std::cmp::Reverse(by.count));
        Self { considered, legal, eligible, refused }
    }
}

impl Candidate {
    fn new(spec: &Spec, problem: &Problem, m: u32, role: &'static str) -> Self {
        let (variant, numerics) = (*spec.variant(), spec.numerics());
        Self {
            variant,
            numerics,
            roles: vec![role],
            prediction: heuristic::predict(spec, problem, m),
            terms: terms(spec, problem, m),
            measured: None,
        }
    }
}

/// What is known of a variant before it is run.
fn terms(spec: &Spec, problem: &Problem, m: u32) -> Vec<Term> {
    let (arch, geometry) = (spec.arch(), spec.geometry());
    let (flop, bytes) = (problem.flop(m.into()), problem.bytes(m.into()));
    let roofline = (flop / problem.flop_per_s(arch)).max(bytes / arch.memory_bytes_per_s());
    let is_matrix = |kind: &PassKind| matches!(kind, PassKind::Products { .. });
    let matrix = spec.passes(m).filter(|pass| is_matrix(&pass.kind));
    let blocks: f64 = matrix.map(|pass| pass.grid.iter().map(|extent| f64::from(*extent)).product::<f64>()).sum();
    let slots = f64::from(arch.sms()) * f64::from(geometry.blocks_per_sm);
    let term = |name, value, unit| Term { name, value, unit };
    vec![
        term("blocks", blocks, ""),
        term("blocks at once", slots, ""),
        term("launches", spec.passes(m).count() as f64, ""),
        term("shared memory", f64::from(geometry.shared_bytes) / 1024.0, "KiB a block"),
        term("registers", f64::from(geometry.registers), "a thread"),
        term("workspace", spec.workspace_bytes(m) as f64 / 1e6, "MB"),
        term("bytes at least", bytes / 1e6, "MB"),
        term("FLOP", flop / 1e9, "GFLOP"),
        term("roofline", roofline * 1e6, "us"),
    ]
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = if self.value.fract() == 0.0 { 0 } else { 2 };
        write!(f, "{} {:.decimals$}", self.name, self.value)?;
        if self.unit.is_empty() { Ok(()) } else { write!(f, " {}", self.unit) }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {} ({})", self.variant, self.roles.join(", "))?;
        writeln!(f, "    adds up as {}", self.numerics)?;
        writeln!(f, "    predicted: {}", self.prediction)?;
        let terms: Vec<_> = self.terms.iter().map(Term::to_string).collect();
        write!(f, "    {}", terms.join(", "))?;
        match self.measured {
            Some(measured) => write!(f, "\n    measured: {measured}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { problem, m, device, sms, arch, policy, considered, legal, eligible, .. } = self;
        writeln!(f, "{problem}, {m} rows, on {device} ({sms} SMs, as {arch})")?;
        match &self.class {
            Some(class) => writeln!(f, "policy {policy}: only variants that add up as {class}")?,
            None => writeln!(f, "policy {policy}: any order of addition")?,
        }
        writeln!(f, "considered: {considered} combinations, {legal} legal, {eligible} eligible")?;
        for RefusedBy { limit, count, example, refusal } in &self.refused {
            writeln!(f, "  {count:>8} refused by {limit}: {example}: {refusal}")?;
        }
        for IgnoredDecision { variant, device, why } in &self.ignored {
            writeln!(f, "not followed: {variant} of {device}: {why}")?;
        }
        let is_any = self.candidates.iter().any(|candidate| candidate.measured.is_some());
        writeln!(f, "candidates{}:", if is_any { "" } else { ", none of them measured on this GPU" })?;
        self.candidates.iter().try_for_each(|candidate| writeln!(f, "{candidate}"))?;
        let chosen = self.candidates.first().map(|candidate| candidate.variant.to_string()).unwrap_or_default();
        write!(f, "chosen: {chosen}\n  {} ({}): {}", self.origin, self.confidence, self.reason)
    }
}
