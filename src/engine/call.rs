//! What is asked of a residency, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use super::on_miss::OnMiss;
use super::problem_kernels::Found;
use crate::cache::Tier;
use crate::error::{Error, Result};
use crate::pick::Choice;
use crate::run::LoadTime;
use crate::spec::{Problem, Spec};

/// What the background thread makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
// A queue holds few of them.
#[allow(clippy::large_enum_variant)]
pub(super) enum Job {
    /// A kernel.
    Kernel(Spec),
    /// The choices for a problem that was never asked for before, then the kernel for the most rows it was asked for.
    First(Problem),
}

impl Job {
    /// Of the kernel, or the problem.
    pub fn name(&self) -> String {
        match self {
            Self::Kernel(spec) => spec.name(),
            Self::First(problem) => problem.to_string(),
        }
    }
}

/// A call for a kernel.
pub(super) struct Call<'a> {
    /// Without its stated range of M.
    pub problem: Problem,
    pub m: u32,
    pub on_miss: OnMiss,
    /// Refuses to load now.
    pub may_load: &'a dyn Fn() -> Result<()>,
    /// Says that there is something for the background thread.
    pub wake: &'a dyn Fn(),
}

impl Call<'_> {
    pub fn context(&self, error: Error) -> Error {
        error.context(format!("{} for {} rows", self.problem, self.m))
    }
}

/// A loaded kernel, and what it took.
#[derive(Debug)]
pub(super) struct Served<K> {
    pub choice: Choice,
    /// What is chosen, where `choice` only stands in for it. Boxed, as most calls only carry it along.
    pub wanted: Option<Box<Choice>>,
    pub kernel: Arc<K>,
    pub tier: Tier,
    pub elapsed: Duration,
}

/// A kernel that was made or found, and what that took.
#[derive(Debug)]
pub(super) struct Made<V> {
    pub value: Arc<V>,
    /// Where its machine code came from; memory, if it was loaded already.
    pub tier: Tier,
    pub fetched: Duration,
    /// None, if it was loaded already.
    pub loaded: Option<LoadTime>,
}

impl<K> Served<K> {
    pub fn resident(found: Found<'_, K>, wanted: Option<Box<Choice>>) -> Self {
        let Found { choice, kernel } = found;
        Self { choice: *choice, wanted, kernel: Arc::clone(kernel), tier: Tier::Memory, elapsed: Duration::ZERO }
    }
}
