//! A cubin loaded on a device, and its launch.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError};

use super::capture::is_captured;
use super::check::{self, Contract, Described, Home};
use super::code::{Code, Modules};
use super::guards::{Tracked, Untracked};
use super::launch::Ready;
use super::params::Params;
use super::set_up::{most_rows, ready};
use super::tensor_map::{NO_MAPS, TokenBoxes, Tokens};
use super::{Device, LoadTime, Operands, refused};
use crate::build::Cubin;
use crate::error::{Error, Result};
use crate::spec::{Layout, PassKind, Spec};

/// The driver allocates no empty memory.
const WORKSPACE_MIN: u64 = 16;

/// A [`Cubin`] loaded on a device, with its geometry. Holding it keeps it loaded; it can be shared between threads.
///
/// Loading may wait for the device: load ahead, not on the hot path. It does not disturb graphs that other threads
/// capture. A graph that a launch was captured into holds the kernel for itself. The last holder may drop it at any time,
/// also while it runs: it is unloaded by [`Device::reclaim`].
pub struct Kernel {
    spec: Spec,
    cubin: Arc<Cubin>,
    contract: Contract,
    home: Home,
    /// In their order.
    launches: Vec<Ready>,
    /// Rows whose blocks a grid has room for.
    most_rows: u32,
    tokens: TokensFrom,
    /// Whether kernels of one call wait for each other by themselves.
    can_depend: bool,
    /// Clusters of the matrix kernel that the device runs at a time, if it has any.
    resident_clusters: Option<u32>,
    load_time: LoadTime,
    /// `PROBLEM/VARIANT`, for errors.
    name: String,
    code: Arc<Code>,
    /// Behind the code, which comes here when it goes.
    modules: Arc<Modules>,
}

/// Where the matrix kernel reads tokens.
#[derive(Clone, Copy, Debug)]
enum TokensFrom {
    /// It loads A itself.
    A,
    /// The tensor memory accelerator does.
    Mapped(TokenBoxes),
    /// It does so from the front of the workspace, where a row that the prepass has decoded takes so many bytes.
    Decoded(TokenBoxes, u64),
}

impl Kernel {
    /// Loads the cubin that was made for `spec` onto a device.
    ///
    /// # Errors
    /// Driver, if it refuses the image (another architecture, an ABI newer than the driver) or has not enough memory;
    /// unsupported, if the device cannot run a block of it.
    pub fn load(device: &Device, spec: &Spec, cubin: Arc<Cubin>) -> Result<Self> {
        let name = spec.name();
        Self::load_named(device.modules(), spec, cubin, &name).map_err(|error| error.context(format!("loading {name}")))
    }

    fn load_named(modules: &Arc<Modules>, spec: &Spec, cubin: Arc<Cubin>, name: &str) -> Result<Self> {
        let context = modules.context();
        let refuses = |error| refused(format!("the driver refuses the cubin for {}", spec.arch().target()), error);
        let set_up = |code: Arc<Code>| {
            let launches =
                spec.launches().map(|launch| ready(context, &code, spec, launch)).collect::<Result<Vec<_>>>()?;
            let resident = launches.iter().map(Ready::resident_clusters).find_map(Result::transpose).transpose();
            let resident = resident.map_err(|error| refused("asking how many clusters are resident", error))?;
            Ok((code, launches, resident))
        };
        let ((code, launches, resident_clusters), load_time) = modules.load(&cubin, refuses, set_up)?;
        if resident_clusters == Some(0) {
            let (blocks, shared) = (spec.variant().cluster.blocks(), spec.geometry().shared_bytes);
            return Err(Error::unsupported(format!(
                "the device runs no cluster of {blocks} blocks with {shared} bytes of shared memory each"
            )));
        }
        let tokens = match spec.geometry().layout {
            Layout::Wgmma(layout) if spec.variant().prepass => {
                TokensFrom::Decoded(TokenBoxes::new(spec, &layout), spec.decoded_row_bytes())
            }
            Layout::Wgmma(layout) if !layout.decodes_tokens => TokensFrom::Mapped(TokenBoxes::new(spec, &layout)),
            _ => TokensFrom::A,
        };
        Ok(Self {
            spec: *spec,
            cubin,
            contract: Contract::new(spec)?,
            home: Home::of(context),
            launches,
            most_rows: most_rows(spec),
            tokens,
            can_depend: matches!(spec.geometry().layout, Layout::Wgmma(_)),
            resident_clusters,
            load_time,
            name: name.to_owned(),
            code,
            modules: Arc::clone(modules),
        })
    }

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
        self.launch_in_place(stream, &mut operands, false)
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
        self.launch_in_place(stream, &mut operands, true)
    }

    /// Either of them, for callers that have not far to carry the operands.
    #[inline]
    pub(crate) fn launch_in_place(
        &self,
        stream: &CudaStream,
        operands: &mut Operands<'_>,
        is_dependent: bool,
    ) -> Result<()> {
        self.checked_launch(stream, operands, is_dependent).map_err(|error| self.named(error))
    }

    #[cold]
    fn named(&self, error: Error) -> Error {
        error.context(self.name.as_str())
    }

    fn checked_launch(&self, stream: &CudaStream, operands: &mut Operands<'_>, is_dependent: bool) -> Result<()> {
        let context = self.context();
        self.home.check("the stream", stream.context().cu_ctx() as usize, stream.context().ordinal())?;
        self.contract.check(self.home, operands)?;
        if operands.m() > self.most_rows {
            return Err(self.too_many_blocks(operands.m()));
        }
        let readable = self.readable(operands);
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
            return self.submit(stream, &mut params, readable, is_dependent);
        }
        let mut params = operands.params(stream, &mut Untracked);
        check::alignment(&params)?;
        self.bind()?;
        if is_captured {
            self.code.hold_by_graph(stream).map_err(|error| refused("making the captured graph hold it", error))?;
        }
        self.submit(stream, &mut params, readable, is_dependent)
    }

    /// Bytes that may be read where the tensor memory accelerator reads tokens.
    #[inline]
    fn readable(&self, operands: &Operands<'_>) -> u64 {
        match self.tokens {
            TokensFrom::A => 0,
            TokensFrom::Mapped(_) => 2 * operands.a().values.elements,
            TokensFrom::Decoded(..) => operands.workspace().map_or(0, |workspace| workspace.elements),
        }
    }

    /// Makes the context the calling thread's, if it is not yet. cudarc's own way to do so writes to its record of errors,
    /// which all threads share; without its events nothing is recorded there.
    #[inline]
    fn bind(&self) -> Result<()> {
        let mut current = std::ptr::null_mut();
        // SAFETY: `current` is a valid place for a handle.
        let asked = unsafe { sys::cuCtxGetCurrent(&raw mut current) };
        if asked == CUresult::CUDA_SUCCESS && current as usize == self.home.context {
            return Ok(());
        }
        self.context().bind_to_thread().map_err(|error| refused("binding the context", error))
    }

    /// Describes the tokens, and puts all launches into the stream.
    #[inline]
    fn submit(&self, stream: &CudaStream, params: &mut Params, readable: u64, is_dependent: bool) -> Result<()> {
        let (boxes, address) = match &self.tokens {
            // The kernel has them as a parameter all the same, and looks no further.
            TokensFrom::A => return self.put(stream, params, (&raw const NO_MAPS).cast(), is_dependent),
            TokensFrom::Mapped(boxes) => (boxes, params.a),
            TokensFrom::Decoded(boxes, row) => {
                params.decoded = params.workspace;
                params.workspace += params.m as u64 * row;
                (boxes, params.decoded)
            }
        };
        boxes
            .with_maps(Tokens { address, bytes: readable }, |maps| {
                self.put(stream, params, (&raw const *maps).cast(), is_dependent)
            })
            .map_err(|error| refused("describing the tokens to the tensor memory accelerator", error))?
    }

    /// Puts all launches into the stream. `maps` are the matrix kernel's.
    fn put(&self, stream: &CudaStream, params: &mut Params, maps: *const c_void, is_dependent: bool) -> Result<()> {
        // A prepass has nothing to do before it waits, and was measured to start later if launched early.
        let mut is_dependent = self.can_depend && is_dependent && !matches!(self.tokens, TokensFrom::Decoded(..));
        for ready in &self.launches {
            if let PassKind::Products { product } = ready.kind() {
                params.product = i32::from(product != 0);
            }
            let grid = ready.grid(params.m as u32);
            // The second is of the matrix kernel of the path wgmma only; others have one parameter and look no further.
            let mut arguments = [(&raw mut *params).cast::<c_void>(), maps.cast_mut()];
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

    /// Device memory for the partial sums of launches of up to `m` rows, one launch at a time: to be allocated ahead and
    /// used again. A few bytes where the variant has no partial sums.
    ///
    /// # Errors
    /// Driver, if the device has no room.
    pub fn workspace(&self, stream: &Arc<CudaStream>, m: u32) -> Result<CudaSlice<u8>> {
        allocate_workspace(stream, self.spec.workspace_bytes(m)).map_err(|error| error.context(self.name.as_str()))
    }

    /// What it was made for.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The machine code, with its resource use and provenance.
    #[must_use]
    pub fn cubin(&self) -> &Arc<Cubin> {
        &self.cubin
    }

    /// What loading it took: modules of one context are loaded one after the other.
    #[must_use]
    pub fn load_time(&self) -> LoadTime {
        self.load_time
    }

    /// Blocks of clusters that the device runs at a time, for a variant that has clusters: an H200 runs 132 blocks in
    /// clusters of 2, but only 120 in clusters of 4.
    #[must_use]
    pub fn resident_cluster_blocks(&self) -> Option<u32> {
        self.resident_clusters.map(|clusters| clusters * self.spec.variant().cluster.blocks())
    }

    /// Blocks of the matrix kernel that one SM holds at a time, as the driver counts them from its registers, threads and
    /// shared memory.
    ///
    /// # Errors
    /// Driver, if it does not say.
    pub fn resident_blocks_per_sm(&self) -> Result<u32> {
        let geometry = self.spec.geometry();
        self.code
            .entry(&self.spec.symbol())
            .and_then(|function| {
                let (threads, shared) = (geometry.threads, geometry.shared_bytes as usize);
                function.occupancy_max_active_blocks_per_multiprocessor(threads, shared, None)
            })
            .map_err(|error| refused(format!("{}: asking how many blocks an SM holds", self.name), error))
    }

    /// The context it is loaded in.
    #[must_use]
    pub fn context(&self) -> &Arc<CudaContext> {
        self.modules.context()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on device {}", self.name, self.home.ordinal)
    }
}

/// Device memory for `bytes` bytes of workspace.
pub(crate) fn allocate_workspace(stream: &Arc<CudaStream>, bytes: u64) -> Result<CudaSlice<u8>> {
    let bytes = bytes.max(WORKSPACE_MIN);
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    stream.alloc_zeros(length).map_err(|error| refused(format!("allocating {bytes} bytes of workspace"), error))
}

#[cold]
fn not_launched([x, y, z]: [u32; 3], threads: u32, error: DriverError) -> Error {
    refused(format!("launching {x}×{y}×{z} blocks of {threads} threads"), error)
}
