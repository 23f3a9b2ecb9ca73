//! From operands to the driver: what a launch does on the host (docs/embedding.md).

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaStream, DriverError};

use super::Kernel;
use crate::error::{Error, Result};
use crate::operand::{KernelParams, Params};
use crate::run::capture::{Captured, captured_while_tracked, is_captured, is_captured_untracked};
use crate::run::check::{self, ContextId};
use crate::run::code_maps::Codes;
use crate::run::guards::{Tracked, Untracked};
use crate::run::tensor_map::Maps;
use crate::run::tokens::BoundTokens;
use crate::run::visit::{CheckAndPlace, Place};
use crate::run::{LaunchStream, Operands, RawStream, refused};
use crate::spec::{PassKind, Spec};

impl Kernel {
    /// Computes `operands` in `stream`: checks them, puts the launches into the stream and returns. No rows are no launch.
    ///
    /// Nothing is allocated, on the host or on the device. The call can be captured into a graph, if cudarc's event
    /// tracking is off in the stream's context (it would wait for events from outside of the capture). The graph holds the
    /// kernel, prepared weights, [`Shared`](crate::run::Shared) memory, the stream's workspace and owners; views and slices
    /// of cudarc's are borrowed: whoever turned tracking off sees to it that these live as long as the graph is replayed.
    ///
    /// # Errors
    /// Operand, if a format, size, alignment or device does not fit, or an operand belongs to another `CudaContext` than
    /// the stream, before anything is launched; driver, if a launch is refused or an earlier asynchronous failure shows.
    #[inline]
    pub fn launch(&self, stream: &impl LaunchStream, mut operands: Operands<'_>) -> Result<()> {
        self.launch_in_place(stream.stream(), stream.keeper(), &mut operands, None, false)
    }

    /// As [`Kernel::launch`], but the kernel may begin while what is before it in the stream still runs (programmatic
    /// dependent launch; CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization"). It loads
    /// weights at once, and waits for the end of what was before only then, before it reads A, α or offsets, or writes.
    ///
    /// Kernels of the matrix path `mma` are launched plainly, and so is a kernel whose weights are not known to be written
    /// yet: they are when the event behind what prepared or copied them has come.
    ///
    /// # Errors
    /// As [`Kernel::launch`].
    #[inline]
    pub fn launch_dependent(&self, stream: &impl LaunchStream, mut operands: Operands<'_>) -> Result<()> {
        self.launch_in_place(stream.stream(), stream.keeper(), &mut operands, None, true)
    }

    /// Either of them, for callers that have not far to carry the operands, and may have described the tokens ahead.
    pub(crate) fn launch_in_place(
        &self,
        stream: &CudaStream,
        keeper: Option<&RawStream>,
        operands: &mut Operands<'_>,
        bound: Option<&BoundTokens>,
        is_dependent: bool,
    ) -> Result<()> {
        if tracks(stream) {
            let launched = self.tracked_launch(stream, keeper, operands, bound, is_dependent);
            return launched.map_err(|error| self.named(error));
        }
        let mut params = Params::default();
        let launched = self.check(stream, keeper, operands, &mut params).and_then(|checked| {
            let Some(Checked { readable, has_weights, keeps_owners }) = checked else { return Ok(()) };
            let is_dependent = has_weights && is_dependent;
            let submitted = self.with_maps(&mut params, readable, bound, |params, maps| {
                self.submit(stream, params, maps, is_dependent)
            });
            if keeps_owners {
                keep(keeper, operands);
            }
            submitted
        });
        launched.map_err(|error| self.named(error))
    }

    /// Describes the tokens of `operands` ahead, for launches that have them in the same place; none, if the kernel loads
    /// them itself, or there is no room for a row.
    pub(crate) fn bind(&self, stream: &CudaStream, operands: &Operands<'_>) -> Result<Option<BoundTokens>> {
        self.place(stream, operands).map_err(|error| self.named(error))
    }

    fn place(&self, stream: &CudaStream, operands: &Operands<'_>) -> Result<Option<BoundTokens>> {
        operands.tokens_are_in(self.context_id(stream)?)?;
        let [a, workspace] = operands.token_addresses(stream);
        check::aligned(&[("a", a), ("workspace", workspace)], 16)?;
        let tokens = self.tokens.at(a, workspace, self.tokens.readable(operands.token_room()), operands.m());
        let tokens = tokens.filter(|(boxes, tokens)| boxes.rows_of(*tokens) > 0);
        tokens.map(|(boxes, tokens)| BoundTokens::new(boxes, tokens)).transpose().map_err(not_described)
    }

    /// The stream's context, which has to have the kernel's handle.
    #[inline]
    fn context_id(&self, stream: &CudaStream) -> Result<ContextId> {
        match stream.context().cu_ctx() as usize == self.context {
            true => Ok(ContextId::of(stream)),
            false => Err(self.elsewhere(stream)),
        }
    }

    #[cold]
    fn elsewhere(&self, stream: &CudaStream) -> Error {
        let (here, there) = (self.context().ordinal(), stream.context().ordinal());
        Error::operand(match here == there {
            true => format!("the stream is of another context of device {here} than the kernel"),
            false => format!("the stream is on device {there}, the kernel on device {here}"),
        })
    }

    #[cold]
    fn named(&self, error: Error) -> Error {
        error.context(self.name.as_str())
    }

    /// Checks operands, orders the launch behind what writes them, and notes them in `params`; none, if they are of no rows.
    #[inline(always)]
    fn check(
        &self,
        stream: &CudaStream,
        keeper: Option<&RawStream>,
        operands: &mut Operands<'_>,
        params: &mut Params,
    ) -> Result<Option<Checked>> {
        let context_id = self.context_id(stream)?;
        let m = operands.m();
        if !(1..=self.most_rows).contains(&m) {
            return self.refuse(stream, keeper, operands, context_id);
        }
        let mut guards = Untracked::default();
        operands.note(self.spec.problem(), params);
        let place = Place::new(stream, &mut guards, params);
        let mut both = CheckAndPlace::new(self.operand_spec.begin(context_id, m), place);
        let takes_factor = self.operand_spec.takes_c_factor(operands.c_factor_value());
        let fits = operands.visit(&mut both).is_ok() && both.check.is_complete() && takes_factor;
        let (is_ordered, has_weights) = (both.is_ordered, both.has_weights);
        let readable = self.tokens.readable([both.a, both.workspace]);
        let has_owners = guards.has_owners;
        if !fits || (has_owners && keeper.is_none()) {
            return self.refuse(stream, keeper, operands, context_id);
        }
        let is_captured = is_captured_untracked(stream)?;
        if is_captured {
            self.hold_by_graph(stream, operands)?;
        }
        let has_weights = if is_ordered { has_weights } else { operands.order(stream, is_captured)? };
        self.make_current()?;
        Ok(Some(Checked { readable, has_weights, keeps_owners: has_owners && !is_captured }))
    }

    /// Says what is wrong with operands that cannot be launched as they are. Nothing is, if they are of no rows.
    #[cold]
    #[inline(never)]
    fn refuse(
        &self,
        stream: &CudaStream,
        keeper: Option<&RawStream>,
        operands: &mut Operands<'_>,
        context_id: ContextId,
    ) -> Result<Option<Checked>> {
        if !self.has_rows(operands, context_id)? {
            return Ok(None);
        }
        let (mut params, mut guards) = (Params::default(), Untracked::default());
        let Ok(()) = operands.visit(&mut Place::new(stream, &mut guards, &mut params));
        self.operand_spec.aligned(params)?;
        can_hold(keeper, guards.has_owners)?;
        Err(Error::internal("operands were refused that there is nothing wrong with"))
    }

    /// Checks operands, but for their addresses; whether there are any rows.
    fn has_rows(&self, operands: &mut Operands<'_>, context_id: ContextId) -> Result<bool> {
        let m = operands.m();
        let mut check = self.operand_spec.check(context_id, m)?;
        operands.visit(&mut check)?;
        check.finish()?;
        self.operand_spec.check_c_factor(operands.c_factor_value())?;
        if m > self.most_rows { Err(self.too_many_blocks(m)) } else { Ok(m > 0) }
    }

    /// Where cudarc tracks events: waits for earlier users of the buffers, and records this use.
    #[inline(never)]
    fn tracked_launch(
        &self,
        stream: &CudaStream,
        keeper: Option<&RawStream>,
        operands: &mut Operands<'_>,
        bound: Option<&BoundTokens>,
        is_dependent: bool,
    ) -> Result<()> {
        if !self.has_rows(operands, self.context_id(stream)?)? {
            return Ok(());
        }
        if is_captured(stream)? {
            // Before the capture is spoilt, by waiting for events from outside of it; and without tracking, whoever turned
            // it off vouches for the life of what a graph reads.
            return Err(captured_while_tracked());
        }
        let is_dependent = operands.order(stream, false)? && is_dependent;
        let readable = self.tokens.readable(operands.token_room());
        let (mut params, mut guards) = (Params::default(), Tracked::default());
        operands.note(self.spec.problem(), &mut params);
        let Ok(()) = operands.visit(&mut Place::new(stream, &mut guards, &mut params));
        self.operand_spec.aligned(params)?;
        let has_owners = guards.has_owners;
        can_hold(keeper, has_owners)?;
        // Shows what those waits may have met, too.
        stream.context().bind_to_thread().map_err(|error| refused("binding the context", error))?;
        let submitted = self
            .with_maps(&mut params, readable, bound, |params, maps| self.submit(stream, params, maps, is_dependent));
        drop(guards);
        if has_owners {
            keep(keeper, operands);
        }
        submitted
    }

    /// Makes the graph that is being captured hold the kernel, and of the operands what can be held.
    #[cold]
    fn hold_by_graph(&self, stream: &CudaStream, operands: &mut Operands<'_>) -> Result<()> {
        let captured = Captured::of(stream)?;
        self.code.hold_by_graph(&captured)?;
        let owners = operands.held_by_graph();
        let retired = self.modules.retired();
        if owners.is_empty() { Ok(()) } else { captured.hold(retired.when_dropped(owners)) }
    }

    /// Makes the context the calling thread's, if it is not yet. cudarc's own way to do so writes to its record of errors,
    /// which all threads share; without its events nothing is recorded there.
    #[inline]
    fn make_current(&self) -> Result<()> {
        let mut current = ptr::null_mut();
        // SAFETY: `current` is a valid place for a handle.
        let asked = unsafe { sys::cuCtxGetCurrent(&raw mut current) };
        if asked == CUresult::CUDA_SUCCESS && current as usize == self.context {
            return Ok(());
        }
        self.context().bind_to_thread().map_err(|error| refused("binding the context", error))
    }

    /// Calls `submit` with the maps of the tokens, which are described now, unless that was done.
    #[inline]
    fn with_maps(
        &self,
        params: &mut Params,
        readable: u64,
        bound: Option<&BoundTokens>,
        submit: impl FnOnce(&mut Params, &Maps) -> Result<()>,
    ) -> Result<()> {
        let KernelParams { a, a_scales, b, b_scales, workspace, m, .. } = params.kernel;
        let codes = Codes { a, readable, a_scales, b, b_scales };
        if let Some(row) = self.tokens.decoded_row() {
            let params = &mut params.kernel;
            params.decoded = params.workspace;
            params.workspace += params.m as u64 * row;
        }
        self.tokens.with_maps(codes, workspace, m as u32, bound, |maps| submit(params, maps)).map_err(not_described)?
    }

    /// Puts all launches into the stream: calls the driver. `maps` are the matrix kernel's.
    #[inline(never)]
    fn submit(&self, stream: &CudaStream, params: &mut Params, maps: &Maps, is_dependent: bool) -> Result<()> {
        let mut is_dependent = self.can_depend && is_dependent;
        for mut ready in &self.launches {
            match ready.kind() {
                PassKind::Prepass => {
                    let early =
                        self.early_prepass.as_ref().filter(|(_, rows)| is_dependent && params.kernel.m as u32 <= *rows);
                    is_dependent = early.is_some();
                    params.kernel.early = is_dependent.into();
                    ready = early.map_or(ready, |(early, _)| early);
                }
                PassKind::Products { product } => params.kernel.product = i32::from(product != 0),
                PassKind::Finish => {}
            }
            let grid = ready.grid(params.kernel.m as u32);
            let config = ready.config(grid, stream.cu_stream(), is_dependent);
            // The second is of matrix kernels with maps only; others have one parameter and look no further.
            let mut arguments = [(&raw mut *params).cast::<c_void>(), (&raw const *maps).cast_mut().cast()];
            let arguments = arguments.as_mut_ptr();
            // SAFETY: `config` and what it points at live through the call. The function is of a module that `self`
            // keeps loaded, in the context that is bound. Its parameters have the layout of `Params`, of which their
            // text in CUDA is made (operand.rs), and of the driver's tensor maps, and the driver copies them before it
            // returns. Every address in them is of live memory of this context, as large as the kernel reads or writes
            // for M rows (check.rs). Of cudarc's and shared memory what is written is borrowed mutably, and where
            // cudarc tracks events the guards order this use before the memory is released or used in another stream,
            // whichever stream reads it beside this one (guards.rs); where it does not, whoever turned that off has
            // promised that order. For raw memory the caller has. A dependent launch reads nothing early but weights,
            // which are known to be written and are written only once (shared.rs), and offsets that the caller calls settled:
            // whatever they are, kernels clamp them.
            unsafe { sys::cuLaunchKernelEx(&raw const config, ready.function(), arguments, ptr::null_mut()) }
                .result()
                .map_err(|error| not_launched(grid, ready.threads(), error))?;
            is_dependent = self.can_depend;
        }
        Ok(())
    }

    #[cold]
    fn too_many_blocks(&self, m: u32) -> Error {
        let [x, y, z] = self.spec.passes(m).map(|pass| pass.grid).max_by_key(|[_, y, z]| *y.max(z)).unwrap_or_default();
        let most = Spec::GRID_YZ_MAX;
        Error::operand(format!(
            "m = {m}: {x}×{y}×{z} blocks, a grid has at most {most} in y and z; a persistent variant takes any m"
        ))
    }
}

/// Operands that can be launched.
struct Checked {
    /// Bytes that may be read where the tokens are.
    readable: u64,
    /// Whether weights are known to be there, so that a launch may read them early.
    has_weights: bool,
    /// Whether they have owners that the stream is to hold.
    keeps_owners: bool,
}

/// Whether cudarc tracks what is done in the stream. It knows of the streams that it has made only; what is in the default
/// stream is ordered by that.
#[inline]
fn tracks(stream: &CudaStream) -> bool {
    let context = stream.context();
    context.is_event_tracking() && (context.is_in_multi_stream_mode() || !stream.cu_stream().is_null())
}

/// Holds owners, also after an error: a launch of several kernels may have got half way.
#[inline(never)]
fn keep(keeper: Option<&RawStream>, operands: &mut Operands<'_>) {
    if let Some(keeper) = keeper {
        operands.each_owner(|owner| keeper.keep(owner));
    }
}

/// Refuses owners where nothing holds them.
pub(in crate::run) fn can_hold(keeper: Option<&RawStream>, has_owners: bool) -> Result<()> {
    if has_owners && keeper.is_none() { Err(nothing_holds()) } else { Ok(()) }
}

#[cold]
fn nothing_holds() -> Error {
    Error::operand("operands with owners are launched in a RawStream, which holds them")
}

#[cold]
fn not_described(error: DriverError) -> Error {
    refused("describing the tokens to the tensor memory accelerator", error)
}

#[cold]
fn not_launched([x, y, z]: [u32; 3], threads: u32, error: DriverError) -> Error {
    refused(format!("launching {x}×{y}×{z} blocks of {threads} threads"), error)
}
