//! One problem, all M: everything that takes time is done ahead.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use cudarc::driver::CudaStream;

use super::Engine;
use super::interval_index::IntervalIndex;
use super::recorder::Seen;
use crate::crew;
use crate::error::{Error, Result};
use crate::pick::{Choice, Interval, Schedule};
use crate::run::{Kernel, LaunchStream, NextWeights, Operands, Weights, Workspace};
use crate::spec::Problem;

/// The kernels of a problem for its whole range of M, compiled, loaded and set up: what a serving loop launches.
///
/// A launch looks up the interval of M, checks the operands, fills in their addresses and calls the driver. It allocates
/// nothing, takes no lock, hashes no text and reads no environment. Clones share the kernels; a plan may be used by many
/// threads and streams at a time, and while a stream is being captured (if cudarc's event tracking is off in the context).
/// A graph holds the kernels that were captured into it for itself, so the plan may be dropped before it.
///
/// A captured launch is replayed with the M, the addresses and the grid that it was captured with. For a grouped problem
/// that M is the room that A and C have: offsets are read on the device, so that groups may have other sizes at each
/// replay, up to M rows in all.
///
/// The matrix path `wgmma` describes A to the tensor memory accelerator, which a thread does once for a view of A, or of a
/// workspace, that it launches with again. So views of the whole buffers are better than views of M rows that change. A
/// thread remembers 64 of these; [`Plan::bind`] describes those of buffers that stay once for all threads.
///
/// ```no_run
/// use warpsmith::engine::Engine;
/// use warpsmith::half::f16;
/// use warpsmith::run::{Device, Operands};
/// use warpsmith::spec::{Activation, Problem};
///
/// let device = Device::open(0)?;
/// let engine = Engine::new(&device);
/// let problem = engine.native(&Problem::dual_gemm(Activation::Silu).n(4096).k(7168).m_up_to(512));
/// let plan = engine.plan(&problem)?;                                  // may take a while, once
/// # let stream = device.context().default_stream();
/// # let (gate, gate_scales, up, up_scales) = (stream.alloc_zeros(4096 * 3584)?, stream.alloc_zeros(4096 * 448)?,
/// #     stream.alloc_zeros(4096 * 3584)?, stream.alloc_zeros(4096 * 448)?);
/// # let weights = engine.weights(&stream, &problem, [(gate, gate_scales), (up, up_scales)])?;
/// let (a, mut c) = (stream.alloc_zeros::<f16>(512 * 7168)?, stream.alloc_zeros::<f16>(512 * 4096)?);
/// let mut workspace = plan.workspace(&stream, 512)?;
/// for m in [1, 300, 17] {
///     let operands = Operands::new(m, &a, &weights, &mut c);
///     plan.launch(&stream, operands.workspace(&mut workspace))?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Plan(Arc<Inner>);

struct Inner {
    problem: Problem,
    schedule: Arc<Schedule>,
    /// Those of its intervals.
    ends: IntervalIndex,
    /// One an interval.
    kernels: Box<[Arc<Kernel>]>,
    /// Where the engine's recorder looks.
    seen: Arc<Seen>,
}

impl Plan {
    /// Puts the launch for the operands' M into `stream`: [`Kernel::launch`].
    ///
    /// # Errors
    /// Operand, if the plan is not for so many rows; those of [`Kernel::launch`].
    #[inline]
    pub fn launch(&self, stream: &impl LaunchStream, mut operands: Operands<'_>) -> Result<()> {
        self.kernel(operands.m())?.launch_in_place(stream.stream(), stream.keeper(), &mut operands, None, false)
    }

    /// The same, but the kernel may begin while what is before it in the stream still runs:
    /// [`Kernel::launch_dependent`].
    ///
    /// # Errors
    /// Those of [`Plan::launch`].
    #[inline]
    pub fn launch_dependent(&self, stream: &impl LaunchStream, mut operands: Operands<'_>) -> Result<()> {
        self.kernel(operands.m())?.launch_in_place(stream.stream(), stream.keeper(), &mut operands, None, true)
    }

    /// The kernel for `m` rows.
    ///
    /// # Errors
    /// Operand, if the plan is not for so many rows.
    #[inline]
    pub fn kernel(&self, m: u32) -> Result<&Arc<Kernel>> {
        self.index(m).map(|index| self.kernel_at(index))
    }

    /// The index of the interval of `m` rows, which are noted. No rows are served by the first.
    #[inline]
    pub(super) fn index(&self, m: u32) -> Result<usize> {
        let Inner { ends, kernels, seen, .. } = &*self.0;
        if m > 0 {
            seen.note(m);
        }
        let index = ends.index(m);
        if index < kernels.len() { Ok(index) } else { Err(self.too_many(m)) }
    }

    /// The kernel of an interval.
    #[inline]
    pub(super) fn kernel_at(&self, index: usize) -> &Arc<Kernel> {
        &self.0.kernels[index]
    }

    #[cold]
    pub(super) fn too_many(&self, m: u32) -> Error {
        let Inner { problem, schedule, .. } = &*self.0;
        Error::operand(format!("m = {m}: the plan of {problem} is for 1 to {} rows", schedule.last()))
    }

    /// What a launch for `m` rows reads first of its weights: for the launch before it ([`Operands::next`]). None, where weights
    /// are not prepared, or less than a block of each tile would be asked for.
    #[must_use]
    #[inline]
    pub fn reads_first<'a>(&self, m: u32, weights: &'a Weights<'a>) -> Option<NextWeights<'a>> {
        let Inner { ends, kernels, .. } = &*self.0;
        kernels.get(ends.index(m)).and_then(|kernel| NextWeights::of(kernel.spec(), m, weights))
    }

    /// The most bytes of workspace that a launch of up to `m` rows needs.
    #[must_use]
    pub fn workspace_bytes(&self, m: u32) -> u64 {
        let within = self.intervals().filter(|(interval, _)| interval.first <= m.max(1));
        within.map(|(interval, kernel)| kernel.spec().workspace_bytes(interval.last.min(m))).max().unwrap_or(0)
    }

    /// A workspace for launches of up to `m` rows in `stream`: to be made ahead and used again, also for other plans
    /// ([`Workspace::reserve`]). A few bytes where no kernel needs any.
    ///
    /// # Errors
    /// Driver, if the device has no room.
    pub fn workspace(&self, stream: &Arc<CudaStream>, m: u32) -> Result<Workspace> {
        Workspace::of_bytes(stream, self.workspace_bytes(m)).map_err(|error| error.context(self.0.problem.to_string()))
    }

    /// What it is for.
    pub fn problem(&self) -> &Problem {
        &self.0.problem
    }

    /// The most rows that it is for.
    #[must_use]
    pub fn last(&self) -> u32 {
        self.0.schedule.last()
    }

    /// Its intervals of M with their choices and kernels, ascending, without gaps.
    pub fn intervals(&self) -> impl Iterator<Item = (&Interval, &Arc<Kernel>)> {
        self.0.schedule.intervals().iter().zip(&self.0.kernels)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { problem, schedule, kernels, .. } = &*self.0;
        write!(f, "plan of {problem} for 1 to {} rows, {} intervals", schedule.last(), kernels.len())
    }
}

impl Engine {
    /// Picks, compiles and loads every kernel that a problem can need, up to its stated limit of M (or else
    /// [`Problem::M_MAX`]); what is missing on all cores at a time. Not while a stream is being captured.
    ///
    /// # Errors
    /// Those of [`Picker::schedule`](crate::pick::Picker::schedule) and [`Engine::kernel`].
    pub fn plan(&self, problem: &Problem) -> Result<Plan> {
        let schedule = self.picker().schedule(problem)?;
        let mut choices: Vec<Choice> = Vec::new();
        let mut indices = Vec::with_capacity(schedule.intervals().len());
        for Interval { choice, .. } in schedule.intervals() {
            let known = choices.iter().position(|known| known.spec() == choice.spec());
            indices.push(known.unwrap_or(choices.len()));
            if known.is_none() {
                choices.push(*choice);
            }
        }
        let kernels = self.kernels_for(&choices).map_err(|error| error.context(format!("planning {problem}")))?;
        let kernels = indices.into_iter().map(|index| Arc::clone(&kernels[index])).collect();
        let seen = self.record().seen(problem);
        let ends = IntervalIndex::new(schedule.intervals().iter().map(|interval| interval.last));
        Ok(Plan(Arc::new(Inner { problem: *problem, schedule, ends, kernels, seen })))
    }

    /// The kernels of choices, in their order; the first error, after which nothing more is begun.
    fn kernels_for(&self, choices: &[Choice]) -> Result<Vec<Arc<Kernel>>> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let made = crew::each(choices, cores, |choice| match self.kernel_for(*choice) {
            Ok(selected) => ControlFlow::Continue(Ok(Arc::clone(selected.kernel()))),
            Err(error) => ControlFlow::Break(Err(error)),
        });
        made.into_iter().map(|(_, kernel)| kernel).collect()
    }
}
