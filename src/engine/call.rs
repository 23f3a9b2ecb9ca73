//! What is asked of a residency, what becomes of a miss, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use crate::cache::Tier;
use crate::error::{Error, Result};
use crate::pick::Choice;
use crate::run::LoadTime;
use crate::spec::{Problem, Spec};
use crate::spelling::{spelled, words};

/// What becomes of a call whose kernel is not loaded yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnMiss {
    /// It waits until the kernel is compiled, if need be, and loaded.
    #[default]
    Block,
    /// It is served at once by another loaded kernel of the same problem, chosen for the nearest other M; the right one
    /// is compiled and loaded behind it, and later calls get that. Where no kernel of the problem is loaded, it is an
    /// error at once ([`Error::is_not_loaded`](crate::Error::is_not_loaded)), and the kernel is made all the same.
    Fallback,
    /// It is an error at once ([`Error::is_not_loaded`](crate::Error::is_not_loaded)), and nothing is made.
    Error,
}

words!(OnMiss, "policy of a miss", { Block => "block", Fallback => "fallback", Error => "error" });

spelled!(OnMiss);

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
    /// By a kernel that was loaded already.
    pub fn resident(choice: &Choice, kernel: &Arc<K>) -> Self {
        let (choice, kernel) = (*choice, Arc::clone(kernel));
        Self { choice, wanted: None, kernel, tier: Tier::Memory, elapsed: Duration::ZERO }
    }
}

// Not derived: the kernel is shared, whatever it is.
impl<K> Clone for Served<K> {
    fn clone(&self) -> Self {
        let Self { choice, wanted, kernel, tier, elapsed } = self;
        Self { choice: *choice, wanted: wanted.clone(), kernel: Arc::clone(kernel), tier: *tier, elapsed: *elapsed }
    }
}
