//! The device's part: kernels are checked, and those that are right are timed in turn.

use std::collections::HashMap;

use warpsmith::pick::Choice;
use warpsmith::spec::Spec;
use warpsmith_tune::oracle::Reference;
use warpsmith_tune::{Checked, HostOperands, Launching, Pace, Trial};

use super::cases::Case;
use super::experiment::{Fault, Found, Timed};
use crate::shared::Result;
use crate::shared::gpu::Gpu;

/// Operands of every case on a device.
pub struct Lab<'a> {
    gpu: &'a Gpu,
    cases: &'a [Case],
    trials: Vec<Trial<'a>>,
    turns: usize,
    launching: Launching,
}

impl<'a> Lab<'a> {
    /// Uploads the operands of `cases`, which are in the same order as their `truths`.
    pub fn new(
        gpu: &'a Gpu,
        cases: &'a [Case],
        truths: &'a [(HostOperands, Reference)],
        turns: u32,
        launching: Launching,
    ) -> Result<Self> {
        let trials = truths.iter().map(|(operands, reference)| Trial::new(gpu.stream(), operands, reference));
        let trials = trials.collect::<warpsmith::Result<Vec<_>>>()?;
        Ok(Self { gpu, cases, trials, turns: turns as usize, launching })
    }

    /// Checks these kernels of one case, and times those that are right in turn.
    pub fn measure(&mut self, case: usize, specs: &[Spec]) -> Result<HashMap<Spec, Found>> {
        let mut found = HashMap::new();
        let mut right: Vec<(Spec, Checked, u32)> = Vec::new();
        for spec in specs {
            if found.contains_key(spec) || right.iter().any(|(other, ..)| other == spec) {
                continue;
            }
            match self.check(case, spec) {
                Ok((checked, blocks)) if checked.passed() => right.push((*spec, checked, blocks)),
                Ok((checked, _)) => drop(found.insert(*spec, Err(Fault::Wrong(checked.to_string())))),
                Err(error) => drop(found.insert(*spec, Err(Fault::Failed(error.to_string())))),
            }
        }
        let checked: Vec<&Checked> = right.iter().map(|(_, checked, _)| checked).collect();
        let turns = self.trials[case].time_in_turn(&checked, self.turns, self.launching, Pace::NORMAL)?;
        for (index, (spec, checked, blocks_per_sm)) in right.iter().enumerate() {
            let us = turns.iter().map(|turn| turn[index]).collect();
            let timed = Timed { us, worst: checked.verdict().worst(), blocks_per_sm: *blocks_per_sm };
            found.insert(*spec, Ok(timed));
        }
        Ok(found)
    }

    /// A kernel, loaded and checked, and how many of its blocks an SM holds.
    fn check(&self, case: usize, spec: &Spec) -> Result<(Checked, u32)> {
        let choice = Choice::pinned(&self.cases[case].problem, spec.variant(), spec.arch())?;
        let selected = self.gpu.engine().kernel_for(choice)?;
        let blocks = selected.kernel().resident_blocks_per_sm()?;
        Ok((self.gpu.check(&self.trials[case], &choice)?, blocks))
    }
}
