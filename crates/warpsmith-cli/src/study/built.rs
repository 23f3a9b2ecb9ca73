//! Kernels, built ahead of everything else, and what they take of an SM.

use std::collections::HashMap;

use warpsmith::cache::KernelCache;
use warpsmith::spec::Spec;

use super::report::Resources;
use crate::shared::bar;
use crate::shared::compile::{self, Made};

/// Kernels that were built, or why not.
#[derive(Default)]
pub struct Built(HashMap<Spec, Made>);

impl Built {
    /// Builds those that are not yet there, on all cores.
    pub fn add(&mut self, cache: &KernelCache, specs: impl Iterator<Item = Spec>) {
        let new: Vec<Spec> = specs.filter(|spec| !self.0.contains_key(spec)).collect();
        let progress = bar(new.len(), "kernels built");
        let made = compile::all(cache, &new, &progress);
        progress.finish_and_clear();
        self.0.extend(new.into_iter().zip(made));
    }

    fn get(&self, spec: &Spec) -> std::result::Result<&Made, String> {
        self.0.get(spec).ok_or_else(|| "not built".to_owned())
    }

    /// Why a kernel was not built.
    pub fn failure(&self, spec: &Spec) -> Option<String> {
        match self.get(spec) {
            Ok(made) => made.as_ref().err().cloned(),
            Err(why) => Some(why),
        }
    }

    /// What a kernel takes of an SM that holds `blocks` of its blocks; by the architecture's numbers if nobody has asked a
    /// device.
    pub fn resources(&self, spec: &Spec, blocks: Option<u32>) -> Option<Resources> {
        let fetched = self.get(spec).ok()?.as_ref().ok()?;
        let found = fetched.cubin().resources_of(&spec.symbol())?;
        let (geometry, arch) = (spec.geometry(), spec.arch());
        let (threads, shared, registers) = (geometry.threads, geometry.shared_bytes, found.registers());
        let blocks_per_sm = blocks.unwrap_or_else(|| arch.blocks_per_sm(threads, shared, registers));
        Some(Resources {
            registers,
            spill_bytes: found.spill_bytes(),
            threads,
            shared,
            blocks_per_sm,
            registers_per_sm: registers.saturating_mul(threads * blocks_per_sm),
            shared_per_sm: shared * blocks_per_sm,
            occupancy_percent: 100.0 * f64::from(threads * blocks_per_sm) / f64::from(arch.threads_per_sm()),
        })
    }
}
