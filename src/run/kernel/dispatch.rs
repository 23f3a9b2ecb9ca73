//! From operands to the driver: what a launch does on the host (docs/dispatch.md).

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaStream, DriverError};

use super::Kernel;
use crate::error::{Error, Result};
use crate::run::capture::is_captured;
use crate::run::check::{self, Described};
use crate::run::guards::{Tracked, Untracked};
use crate::run::params::Params;
use crate::run::tensor_map::{Maps, NO_MAPS};
use crate::run::tokens::BoundTokens;
use crate::run::{Operands, refused};
use crate::spec::{PassKind, Spec};

impl Kernel {
    /// Computes `operands` in `stream`: checks them, puts the launches into the stream and returns.
    ///
    /// Nothing is allocated, on the host or on the device. The call can be captured into a graph, if cudarc's event
    /// tracking is off in this context (it would wait for events from outside of the capture).
    ///
    /// # Errors
    /// Operand, if a format, size, alignment or device does not fit, before anything is launched; driver, if a launch
    /// is refused or an earlier asynchronous failure shows.
    #[inline]
    pub fn launch(&self, stream: &CudaStream, mut operands: Operands<'_>) -> Result<()> {
        self.launch_in_place(stream, &mut operands, None, false)
    }

    /// As [`Kernel::launch`], but the kernel may begin while what is before it in the stream still runs (programmatic
    /// dependent launch; CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization"). It loads
    /// weights at once, and waits for the end of what was before only then, before it reads A, α or offsets, or writes.
    ///
    /// The caller promises that nothing in the stream that may still run writes the weights: whatever prepares or copies
    /// them is followed by something that is launched plainly. Kernels of the matrix path `mma` are launched plainly.
    ///
    /// # Errors
    /// As [`Kernel::launch`].
    #[inline]
    pub fn launch_dependent(&self, stream: &CudaStream, mut operands: Operands<'_>) -> Result<()> {
        self.launch_in_place(stream, &mut operands, None, true)
    }

    /// Either of them, for callers that have not far to carry the operands, and may have described the tokens ahead.
    #[inline]
    pub(crate) fn launch_in_place(
        &self,
        stream: &CudaStream,
        operands: &mut Operands<'_>,
        bound: Option<&BoundTokens>,
        is_dependent: bool,
    ) -> Result<()> {
        self.checked_launch(stream, operands, bound, is_dependent).map_err(|error| self.named(error))
    }

    /// Describes the tokens of `operands` ahead, for launches that have them in the same place; none, if the kernel loads
    /// them itself, or there is no room for a row.
    pub(crate) fn bind(&self, stream: &CudaStream, operands: &Operands<'_>) -> Result<Option<BoundTokens>> {
        self.place(stream, operands).map_err(|error| self.named(error))
    }

    fn place(&self, stream: &CudaStream, operands: &Operands<'_>) -> Result<Option<BoundTokens>> {
        self.home.check("the stream", stream.context().cu_ctx() as usize, stream.context().ordinal())?;
        for (name, buffer) in [("a", Some(operands.a().values)), ("workspace", operands.workspace())] {
            buffer.map_or(Ok(()), |buffer| self.home.check(name, buffer.context, buffer.ordinal))?;
        }
        let [a, workspace] = operands.token_addresses(stream);
        check::aligned(&[("a", a), ("workspace", workspace)], 16)?;
        let tokens = self.tokens.at(a, workspace, self.tokens.readable(operands));
        let tokens = tokens.filter(|(boxes, tokens)| boxes.rows_of(*tokens) > 0);
        tokens.map(|(boxes, tokens)| BoundTokens::new(boxes, tokens)).transpose().map_err(not_described)
    }

    #[cold]
    fn named(&self, error: Error) -> Error {
        error.context(self.name.as_str())
    }

    fn checked_launch(
        &self,
        stream: &CudaStream,
        operands: &mut Operands<'_>,
        bound: Option<&BoundTokens>,
        is_dependent: bool,
    ) -> Result<()> {
        self.home.check("the stream", stream.context().cu_ctx() as usize, stream.context().ordinal())?;
        self.contract.check(self.home, operands)?;
        if operands.m() > self.most_rows {
            return Err(self.too_many_blocks(operands.m()));
        }
        let (context, readable) = (self.context(), self.tokens.readable(operands));
        let is_captured = is_captured(stream)?;
        if context.is_managing_stream_synchronization() {
            if is_captured {
                // Before the capture is spoilt.
                return Err(Error::operand(
                    "the stream is being captured while cudarc tracks events in its context: call \
                     `CudaContext::disable_event_tracking` first",
                ));
            }
            // Waits for earlier users of the buffers, and records this use when dropped.
            let mut guards = Tracked::default();
            let mut params = operands.params(stream, &mut guards);
            check::alignment(&params)?;
            // Shows what those waits may have met, too.
            context.bind_to_thread().map_err(|error| refused("binding the context", error))?;
            return self.submit(stream, &mut params, readable, bound, is_dependent);
        }
        let mut params = operands.params(stream, &mut Untracked);
        check::alignment(&params)?;
        self.make_current()?;
        if is_captured {
            self.code.hold_by_graph(stream).map_err(|error| refused("making the captured graph hold it", error))?;
        }
        self.submit(stream, &mut params, readable, bound, is_dependent)
    }

    /// Makes the context the calling thread's, if it is not yet. cudarc's own way to do so writes to its record of errors,
    /// which all threads share; without its events nothing is recorded there.
    #[inline]
    fn make_current(&self) -> Result<()> {
        let mut current = std::ptr::null_mut();
        // SAFETY: `current` is a valid place for a handle.
        let asked = unsafe { sys::cuCtxGetCurrent(&raw mut current) };
        if asked == CUresult::CUDA_SUCCESS && current as usize == self.home.context {
            return Ok(());
        }
        self.context().bind_to_thread().map_err(|error| refused("binding the context", error))
    }

    /// Describes the tokens, unless that was done, and puts all launches into the stream.
    #[inline]
    fn submit(
        &self,
        stream: &CudaStream,
        params: &mut Params,
        readable: u64,
        bound: Option<&BoundTokens>,
        is_dependent: bool,
    ) -> Result<()> {
        let Some((boxes, tokens)) = self.tokens.at(params.a, params.workspace, readable) else {
            // The kernel has maps as a parameter all the same, and looks no further.
            return self.put(stream, params, &NO_MAPS, is_dependent);
        };
        if let Some(row) = self.tokens.decoded_row() {
            params.decoded = params.workspace;
            params.workspace += params.m as u64 * row;
        }
        match bound.and_then(|bound| bound.maps(tokens)) {
            Some(maps) => self.put(stream, params, maps, is_dependent),
            None => {
                boxes.with_maps(tokens, |maps| self.put(stream, params, maps, is_dependent)).map_err(not_described)?
            }
        }
    }

    /// Puts all launches into the stream. `maps` are the matrix kernel's.
    fn put(&self, stream: &CudaStream, params: &mut Params, maps: &Maps, is_dependent: bool) -> Result<()> {
        let mut is_dependent = self.can_depend && is_dependent;
        for mut ready in &self.launches {
            match ready.kind() {
                PassKind::Prepass => {
                    let early =
                        self.early_prepass.as_ref().filter(|(_, rows)| is_dependent && params.m as u32 <= *rows);
                    is_dependent = early.is_some();
                    params.early = is_dependent.into();
                    ready = early.map_or(ready, |(early, _)| early);
                }
                PassKind::Products { product } => params.product = i32::from(product != 0),
                PassKind::Finish => {}
            }
            let grid = ready.grid(params.m as u32);
            // The second is of the matrix kernel of the path wgmma only; others have one parameter and look no further.
            let mut arguments = [(&raw mut *params).cast::<c_void>(), (&raw const *maps).cast_mut().cast()];
            // SAFETY: the function is of a module that `self` keeps loaded, in the context that is bound. Its parameters
            // have the layout of `Params` (checked in params.rs against templates/lib/base.cuh) and of the driver's
            // tensor maps, and the driver copies them before it returns. Every address in them is of live memory of this
            // context, as large as the kernel reads or writes for M rows (check.rs); what is written is borrowed
            // mutably, and cudarc's guards order this use before the memory is released or used in another stream.
            unsafe { ready.launch(grid, stream, is_dependent, &mut arguments) }
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

#[cold]
fn not_described(error: DriverError) -> Error {
    refused("describing the tokens to the tensor memory accelerator", error)
}

#[cold]
fn not_launched([x, y, z]: [u32; 3], threads: u32, error: DriverError) -> Error {
    refused(format!("launching {x}×{y}×{z} blocks of {threads} threads"), error)
}
