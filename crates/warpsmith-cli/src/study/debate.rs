//! The experiments, in order: every proposal on every ground.

use warpsmith::cache::KernelCache;
use warpsmith::pick::Picker;
use warpsmith::spec::{Arch, Spec};

use super::built::Built;
use super::cases::Case;
use super::experiment::{Clock, Experiment};
use super::nearest::Shape;
use super::proposals::{GROUNDS, Ground, PROPOSALS, WORTH_STACKING};
use super::report::{GroundReport, ProposalReport, ValueReport};
use super::show;
use crate::shared::{Result, say};

/// All experiments on all cases.
pub struct Debate<'a> {
    arch: &'a Arch,
    cases: &'a [Case],
    baselines: Vec<Spec>,
    picks: Vec<Spec>,
    built: Built,
}

impl<'a> Debate<'a> {
    /// Of these cases on the picker's architecture.
    pub fn new(picker: &'a Picker, cases: &'a [Case]) -> Result<Self> {
        let arch = picker.arch();
        let baselines = cases.iter().map(|case| case.baseline(arch));
        let picks = cases.iter().map(|case| Ok(*picker.choose(&case.problem, case.m())?.spec()));
        Ok(Self {
            arch,
            cases,
            baselines: baselines.collect::<warpsmith::Result<_>>()?,
            picks: picks.collect::<warpsmith::Result<_>>()?,
            built: Built::default(),
        })
    }

    /// The kernels that a ground begins with.
    fn shapes(&self, ground: Ground) -> Vec<Shape> {
        let specs = if ground == Ground::Pick { &self.picks } else { &self.baselines };
        specs.iter().map(Shape::of).collect()
    }

    /// Builds what does not depend on what is measured.
    pub fn build_ahead(&mut self, cache: &KernelCache) {
        let fixed = [Ground::Baseline, Ground::Pick].map(|ground| (ground, self.shapes(ground)));
        let experiments = fixed.iter().flat_map(|(ground, shapes)| {
            PROPOSALS.iter().map(|proposal| Experiment::new(proposal, *ground, shapes, self.cases, self.arch))
        });
        let specs: Vec<Spec> = experiments.flat_map(|experiment| experiment.specs().collect::<Vec<_>>()).collect();
        self.built.add(cache, specs.into_iter());
    }

    /// All grounds; without a clock there is nothing to stack by.
    pub fn run(&mut self, cache: &KernelCache, mut clock: Option<&mut Clock<'_>>) -> Result<Vec<GroundReport>> {
        let (mut stacked, has_times) = (Vec::new(), clock.is_some());
        let mut reports = Vec::new();
        for ground in GROUNDS.into_iter().filter(|ground| has_times || *ground != Ground::Stack) {
            say!("== {}: {}\n", ground.name(), ground.meaning())?;
            let mut shapes = self.shapes(ground);
            let mut proposals = Vec::new();
            for proposal in &PROPOSALS {
                let experiment = Experiment::new(proposal, ground, &shapes, self.cases, self.arch);
                let report = self.compare(&experiment, ground.name(), cache, clock.as_deref_mut())?;
                if ground == Ground::Stack {
                    self.stack(&experiment, &report, &mut shapes, &mut stacked);
                }
                proposals.push(report);
            }
            if ground == Ground::Stack {
                proposals.push(self.compare_whole(&stacked, ground.name(), cache, clock.as_deref_mut())?);
            }
            reports.push(GroundReport { ground: ground.name(), meaning: ground.meaning(), proposals });
        }
        Ok(reports)
    }

    fn compare(
        &mut self,
        experiment: &Experiment,
        ground: &str,
        cache: &KernelCache,
        clock: Option<&mut Clock<'_>>,
    ) -> Result<ProposalReport> {
        self.built.add(cache, experiment.specs());
        let report = experiment.run(self.cases, &self.built, clock)?;
        show::proposal(ground, &report, self.cases.len()).iter().try_for_each(|line| say!("{line}"))?;
        show::notes(&report).iter().try_for_each(|line| say!("{line}"))?;
        say!("")?;
        Ok(report)
    }

    /// Puts the best value of a proposal on top, if it is worth it.
    fn stack(&self, experiment: &Experiment, report: &ProposalReport, shapes: &mut [Shape], stacked: &mut Vec<Spec>) {
        if stacked.is_empty() {
            stacked.extend(&self.baselines);
        }
        let is_worth_it = |value: &&ValueReport| value.summary.speed_up.unwrap_or(0.0) >= WORTH_STACKING;
        let Some(best) = report.best().filter(is_worth_it) else { return };
        let changed = experiment.changed(&best.value);
        for ((spec, shape), changed) in stacked.iter_mut().zip(shapes).zip(changed) {
            if let Some(changed) = changed {
                (*spec, *shape) = (changed, Shape::of(&changed));
            }
        }
    }

    /// What it all comes to: the stack, and what is picked, over the baseline.
    fn compare_whole(
        &mut self,
        stacked: &[Spec],
        ground: &str,
        cache: &KernelCache,
        clock: Option<&mut Clock<'_>>,
    ) -> Result<ProposalReport> {
        let claims = PROPOSALS.iter().filter_map(|proposal| proposal.claim);
        let claim = claims.reduce(|all, claim| (all.0 * claim.0, all.1 * claim.1));
        let values = [("the stack", stacked), ("the pick", &self.picks[..])];
        let experiment = Experiment::whole(claim, ("the baseline", &self.baselines), &values);
        self.compare(&experiment, ground, cache, clock)
    }
}
