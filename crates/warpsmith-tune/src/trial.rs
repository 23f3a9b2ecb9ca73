//! The gate's device half: launch into poisoned and guarded memory, compare every element, and only then time.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaSlice, CudaStream};
use serde::{Deserialize, Serialize};

use super::fetched::{Fetched, Spare};
use super::gate::{GateReport, Guarded};
use super::operands::HostOperands;
use super::set::{Set, refused};
use crate::oracle::Reference;
use warpsmith::internal::build::Digest;
use warpsmith::internal::{Raise, digest};
use warpsmith::run::{Kernel, MatrixMut, Operands, PreparedWeights, Workspace};
use warpsmith::{Error, Result};

use crate::timing::{Pace, Timer, Timing, operand_sets_of};
use crate::wait::wait;
use warpsmith::spec::Problem;

/// No launch takes longer, unless [`Trial::limit`] says so; a kernel that hangs makes the check an error.
const LIMIT: Duration = Duration::from_secs(20);
/// Bytes of NaN on the device, which workspaces are filled with piece by piece.
const NANS: usize = 4 << 20;

/// How calls that are timed follow each other in the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Launching {
    /// Each begins when the one before has ended ([`Kernel::launch`]).
    #[default]
    Plain,
    /// Each may begin while the one before still runs ([`Kernel::launch_dependent`]).
    Dependent,
}

impl Launching {
    /// By whether each call may begin before the one before has ended.
    #[must_use]
    pub fn of(dependent: bool) -> Self {
        if dependent { Self::Dependent } else { Self::Plain }
    }

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Dependent => "dependent",
        }
    }

    fn launch(self, kernel: &Kernel, stream: &CudaStream, operands: Operands<'_>) -> Result<()> {
        match self {
            Self::Plain => kernel.launch(stream, operands),
            Self::Dependent => kernel.launch_dependent(stream, operands),
        }
    }
}

/// Operands on a device, with what the result should be: checks kernels, and times those that are right.
pub struct Trial<'a> {
    stream: Arc<CudaStream>,
    problem: Problem,
    m: u32,
    /// Of each group.
    rows: Vec<u32>,
    /// Other ways in which they fall into groups, of sets between the first and the last.
    further_rows: Vec<Vec<u32>>,
    reference: Cow<'a, Reference>,
    guarded: Guarded,
    /// A result before the launch: canaries and poison.
    untouched: CudaSlice<u8>,
    /// [`NANS`] bytes.
    nans: CudaSlice<u8>,
    /// Weights that others use, too; none if each set has its own.
    shared: Vec<Arc<PreparedWeights>>,
    /// Weights that sets of the same problem had before; sets beyond them have copies.
    kept: Vec<Arc<PreparedWeights>>,
    /// The first is checked; the others, made when something is timed, hold the same numbers.
    sets: Vec<Set>,
    /// As many results, when something is timed.
    results: Vec<CudaSlice<u8>>,
    /// Of results on the host.
    spare: Spare,
    limit: Duration,
}

/// What a check found.
#[derive(Debug)]
#[must_use]
pub struct Checked {
    kernel: Arc<Kernel>,
    verdict: GateReport,
    repeatable: bool,
    guarded: Guarded,
    /// With what is around the result; none, if nobody asks for it.
    buffer: Option<Fetched>,
}

impl Checked {
    /// Every element was right, nothing outside was touched, and further launches gave the same bits.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.verdict.passed() && self.repeatable
    }

    /// The gate's verdict on the first launch.
    pub fn verdict(&self) -> &GateReport {
        &self.verdict
    }

    /// Whether further launches gave the same bits. If not, the kernel has a race.
    #[must_use]
    pub fn repeatable(&self) -> bool {
        self.repeatable
    }

    /// The result `[m, N]`, as bytes of its format; of NVFP4, codes and then scales.
    #[must_use]
    pub fn c(&self) -> Cow<'_, [u8]> {
        self.buffer.as_deref().map(|buffer| self.guarded.found(buffer)).unwrap_or_default()
    }

    /// The same without the bytes of the result, which may be many.
    pub fn without_result(self) -> Self {
        Self { buffer: None, ..self }
    }

    fn right(&self) -> Result<&Kernel> {
        if self.passed() {
            return Ok(&self.kernel);
        }
        Err(Error::unsupported(format!("{} is not right, so it is not timed", self.kernel.spec().name())))
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verdict)?;
        if self.repeatable { Ok(()) } else { f.write_str("; a second launch gave other bits: a race") }
    }
}

impl<'a> Trial<'a> {
    /// Uploads the operands.
    ///
    /// # Errors
    /// Data, if operands and reference do not fit together; driver, if the device has no room.
    pub fn new(stream: &Arc<CudaStream>, host: &HostOperands, reference: &'a Reference) -> Result<Self> {
        Self::with(stream, host, Cow::Borrowed(reference), Vec::new(), Vec::new())
    }

    /// As [`Trial::new`], with weights that are prepared on the device already, perhaps for other M, too: one for each
    /// operand set, which are gone round if there are fewer.
    ///
    /// # Errors
    /// As [`Trial::new`]; data, if there are none.
    pub fn with_weights(
        stream: &Arc<CudaStream>,
        host: &HostOperands,
        reference: &'a Reference,
        prepared: Vec<Arc<PreparedWeights>>,
    ) -> Result<Self> {
        if prepared.is_empty() {
            return Err(Error::data(format!("no prepared weights for {}", host.problem)));
        }
        Self::with(stream, host, Cow::Borrowed(reference), prepared, Vec::new())
    }

    fn with(
        stream: &Arc<CudaStream>,
        host: &HostOperands,
        reference: Cow<'a, Reference>,
        shared: Vec<Arc<PreparedWeights>>,
        kept: Vec<Arc<PreparedWeights>>,
    ) -> Result<Self> {
        host.check()?;
        let guarded = Guarded::fitting(&reference)?;
        let untouched = stream.clone_htod(&guarded.fill_for(&reference)).map_err(refused)?;
        let nans = stream.clone_htod(&vec![0xFFu8; NANS]).map_err(refused)?;
        let sets = vec![Set::upload(stream, host, shared.first().or(kept.first()).cloned())?];
        let (stream, problem, m) = (Arc::clone(stream), host.problem, host.m);
        let rows = host.groups().into_iter().map(|rows| rows.len() as u32).collect();
        let (further_rows, results, spare, limit) = (Vec::new(), Vec::new(), Spare::default(), LIMIT);
        Ok(Self {
            stream,
            problem,
            m,
            rows,
            further_rows,
            reference,
            guarded,
            untouched,
            nans,
            shared,
            kept,
            sets,
            results,
            spare,
            limit,
        })
    }

    /// What is computed.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// For how many rows, of all groups together.
    #[must_use]
    pub fn m(&self) -> u32 {
        self.m
    }

    /// How long a launch may take before it is given up (default: 20 s).
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Calls that are timed go round these ways, too, in which as many rows fall into the groups.
    #[must_use]
    pub fn further_rows(mut self, rows: Vec<Vec<u32>>) -> Self {
        self.further_rows = rows;
        self
    }

    /// Launches three times into poisoned and guarded memory, twice plainly and once as a dependent launch, compares every
    /// element of the first result with the reference, and the others with the first.
    ///
    /// # Errors
    /// Those of [`Kernel::launch`]; driver, if the kernel faults or hangs.
    pub fn check(&self, kernel: &Arc<Kernel>) -> Result<Checked> {
        let first = self.result_of(kernel, Launching::Plain)?;
        let verdict = self.guarded.judge(&first, &self.reference)?;
        let mut repeatable = true;
        for launching in [Launching::Plain, Launching::Dependent] {
            repeatable &= *self.result_of(kernel, launching)? == *first;
        }
        let (kernel, guarded) = (Arc::clone(kernel), self.guarded.clone());
        Ok(Checked { kernel, verdict, repeatable, guarded, buffer: Some(first) })
    }

    /// Times a kernel that has passed, in microseconds per call, with operands that are not in the L2 cache.
    ///
    /// # Errors
    /// Unsupported, if the check did not pass; those of [`Timer::time`].
    pub fn time(&mut self, checked: &Checked) -> Result<Timing> {
        self.time_at(checked, Launching::Plain, Pace::NORMAL)
    }

    /// As [`Trial::time`], launched in one of two ways, at another pace.
    ///
    /// # Errors
    /// As [`Trial::time`].
    pub fn time_at(&mut self, checked: &Checked, launching: Launching, pace: Pace) -> Result<Timing> {
        self.time_one(checked.right()?, launching, pace)
    }

    /// As [`Trial::time`], but each call may begin while the one before it still runs ([`Kernel::launch_dependent`]).
    ///
    /// # Errors
    /// As [`Trial::time`].
    pub fn time_dependent(&mut self, checked: &Checked) -> Result<Timing> {
        self.time_at(checked, Launching::Dependent, Pace::NORMAL)
    }

    /// Times kernels that have passed in turn ([`Timer::time_in_turn`]), with operands that are not in the L2 cache:
    /// gives `turns` times the microseconds per call of every kernel, `[turn][kernel]`.
    ///
    /// # Errors
    /// As [`Trial::time`].
    pub fn time_in_turn(
        &mut self,
        kernels: &[&Checked],
        turns: usize,
        launching: Launching,
        pace: Pace,
    ) -> Result<Vec<Vec<f64>>> {
        let right = kernels.iter().map(|checked| checked.right()).collect::<Result<Vec<_>>>()?;
        self.time_all(&right, turns, launching, pace)
    }

    pub(super) fn time_one(&mut self, kernel: &Kernel, launching: Launching, pace: Pace) -> Result<Timing> {
        let (sets, timer) = (self.make_sets(&[kernel])?, self.timer(pace)?);
        let mut workspace = kernel.workspace(&self.stream, self.m)?;
        timer.time(sets, |set| self.launch(kernel, launching, set, &mut workspace))
    }

    pub(super) fn time_all(
        &mut self,
        kernels: &[&Kernel],
        turns: usize,
        launching: Launching,
        pace: Pace,
    ) -> Result<Vec<Vec<f64>>> {
        let (sets, timer) = (self.make_sets(kernels)?, self.timer(pace)?.cold(self.cold_sets(kernels)));
        let workspaces = kernels.iter().map(|kernel| kernel.workspace(&self.stream, self.m));
        let mut workspaces = workspaces.collect::<Result<Vec<_>>>()?;
        timer.time_in_turn(sets, kernels.len(), turns, |kernel, set| {
            self.launch(kernels[kernel], launching, set, &mut workspaces[kernel])
        })
    }

    /// Of the result of the last call that was timed, as [`Checked::c`]: of the rows that are checked.
    pub(super) fn digest_of_last(&self) -> Result<Digest> {
        let last = self.results.last().ok_or_else(|| Error::internal("nothing was timed"))?;
        Ok(digest(&self.guarded.found(&self.fetch(last)?)))
    }

    fn timer(&self, pace: Pace) -> Result<Timer> {
        Ok(Timer::new(&self.stream)?.limit(self.limit).pace(pace))
    }

    fn launch(&mut self, kernel: &Kernel, launching: Launching, set: usize, workspace: &mut Workspace) -> Result<()> {
        let Self { stream, problem, guarded, sets, results, .. } = self;
        with_result(problem, guarded, &mut results[set], |c| {
            launching.launch(kernel, stream, sets[set].operands(c, workspace))
        })
    }

    /// Operand sets that keep the kernels' operands out of the L2 cache.
    fn cold_sets(&self, kernels: &[&Kernel]) -> usize {
        let sets = |kernel: &&Kernel| operand_sets_of(&self.problem, &self.rows, kernel.spec().arch().l2_bytes());
        kernels.iter().map(sets).max().unwrap_or(1)
    }

    /// Makes as many operand sets as keep the kernels' operands out of the L2 cache, and says how many those are.
    fn make_sets(&mut self, kernels: &[&Kernel]) -> Result<usize> {
        let cold = self.cold_sets(kernels);
        let further = &self.further_rows;
        // The last has the rows of the first, whose result is known.
        let needed = if further.is_empty() { cold } else { cold.max(further.len() + 2) };
        while self.sets.len() < needed {
            let number = self.sets.len();
            let own = (number >= cold).then(|| self.sets[number % cold].prepared()).flatten();
            let shared = self.shared.get(number % self.shared.len().max(1)).cloned();
            let weights = shared.or(own).or_else(|| self.kept.get(number).cloned());
            let mut another = self.sets[0].copy(weights)?;
            if number + 1 < needed && !further.is_empty() {
                another = another.with_rows(&self.stream, &self.problem, &further[(number - 1) % further.len()])?;
            }
            self.sets.push(another);
        }
        while self.results.len() < needed {
            let another = self.untouched.try_clone().map_err(refused)?;
            self.results.push(another);
        }
        Ok(needed)
    }

    fn result_of(&self, kernel: &Kernel, launching: Launching) -> Result<Fetched> {
        let stream = &self.stream;
        let mut workspace = self.poisoned_workspace(kernel)?;
        let mut buffer = self.untouched.try_clone().map_err(refused)?;
        with_result(&self.problem, &self.guarded, &mut buffer, |c| {
            launching.launch(kernel, stream, self.sets[0].operands(c, &mut workspace))
        })?;
        wait(stream, self.limit)?;
        self.fetch(&buffer)
    }

    fn fetch(&self, result: &CudaSlice<u8>) -> Result<Fetched> {
        let found = self.spare.fetch(&self.stream, result)?;
        wait(&self.stream, self.limit)?;
        Ok(found)
    }

    /// Workspace full of NaN: partial sums that are read before they are written show.
    fn poisoned_workspace(&self, kernel: &Kernel) -> Result<CudaSlice<u8>> {
        let bytes = kernel.spec().workspace_bytes(self.m).max(1) as usize;
        let mut workspace = self.stream.alloc_zeros::<u8>(bytes).map_err(refused)?;
        for start in (0..workspace.len()).step_by(NANS) {
            let end = workspace.len().min(start + NANS);
            let nans = self.nans.slice(..end - start);
            self.stream.memcpy_dtod(&nans, &mut workspace.slice_mut(start..end)).map_err(refused)?;
        }
        Ok(workspace)
    }
}

/// Calls `launch` with the result within a buffer.
fn with_result(
    problem: &Problem,
    guarded: &Guarded,
    buffer: &mut CudaSlice<u8>,
    launch: impl FnOnce(MatrixMut<'_>) -> Result<()>,
) -> Result<()> {
    let Some(scales) = guarded.scales() else {
        let mut view = buffer.slice_mut(guarded.result());
        return launch(MatrixMut::from_bytes(problem.c_format(), &mut view)?);
    };
    let (mut codes, mut rest) = buffer.split_at_mut(scales.start);
    launch(MatrixMut::nvfp4(codes.slice_mut(guarded.result()), rest.slice_mut(..scales.len())))
}

impl fmt::Debug for Trial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trial of {} with m = {}", self.problem, self.m)
    }
}

impl Trial<'static> {
    /// As [`Trial::new`], with a reference of its own, and weights that another trial of the same weights had
    /// ([`Trial::into_weights`]).
    ///
    /// # Errors
    /// As [`Trial::new`].
    pub(super) fn owning(
        stream: &Arc<CudaStream>,
        host: &HostOperands,
        reference: Reference,
        kept: Vec<Arc<PreparedWeights>>,
    ) -> Result<Self> {
        Self::with(stream, host, Cow::Owned(reference), Vec::new(), kept)
    }

    /// The weights of its sets, if they are prepared, each once.
    pub(super) fn into_weights(self) -> Vec<Arc<PreparedWeights>> {
        let mut weights = self.kept;
        for set in self.sets {
            weights.extend(set.prepared().filter(|own| !weights.iter().any(|other| Arc::ptr_eq(own, other))));
        }
        weights
    }
}
