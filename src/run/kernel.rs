//! A cubin loaded on a device, and its launch.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction_attribute, CUstreamCaptureStatus};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream};
use cudarc::nvrtc::Ptx;

use super::check::{self, Home};
use super::operand::Guards;
use super::{Operands, launch, refused, tensor_map};
use crate::build::Cubin;
use crate::error::{Error, Result};
use crate::spec::{Layout, PassKind, Spec};

/// Dynamic shared memory that every block may have without asking.
const SHARED_WITHOUT_ASKING: u32 = 48 * 1024;
/// The driver allocates no empty memory.
const WORKSPACE_MIN: u64 = 16;

/// A [`Cubin`] loaded on a device, with its geometry. Holding it keeps it loaded; it can be shared between threads.
///
/// Loading may wait for the device: load ahead, not on the hot path and not while a graph is being captured.
pub struct Kernel {
    spec: Spec,
    cubin: Arc<Cubin>,
    context: Arc<CudaContext>,
    /// The matrix kernel. It holds the module, and the module the context.
    products: CudaFunction,
    /// The kernel that decodes tokens, if the variant has one.
    prepass: Option<CudaFunction>,
    /// The elementwise kernel, if the variant has one.
    finish: Option<CudaFunction>,
    /// Clusters of the matrix kernel that the device runs at a time; 0 if it has none.
    resident_clusters: u32,
    /// `PROBLEM/VARIANT`, for errors.
    name: String,
}

impl Kernel {
    /// Loads the cubin that was made for `spec` into a context.
    ///
    /// # Errors
    /// Driver, if it refuses the image (another architecture, an ABI newer than the driver) or has not enough memory;
    /// unsupported, if the device cannot run a block of it.
    pub fn load(context: &Arc<CudaContext>, spec: &Spec, cubin: Arc<Cubin>) -> Result<Self> {
        let name = spec.name();
        Self::load_named(context, spec, cubin, &name).map_err(|error| error.context(format!("loading {name}")))
    }

    fn load_named(context: &Arc<CudaContext>, spec: &Spec, cubin: Arc<Cubin>, name: &str) -> Result<Self> {
        let module = context
            .load_module(Ptx::from_binary(cubin.image().to_vec()))
            .map_err(|error| refused(format!("the driver refuses the cubin for {}", spec.arch().target()), error))?;
        let shared_bytes = spec.geometry().shared_bytes;
        let products = entry(&module, &spec.symbol())?;
        if shared_bytes > SHARED_WITHOUT_ASKING {
            allow_shared(context, &products, shared_bytes)?;
        }
        let prepass = spec.prepass_symbol().map(|symbol| entry(&module, &symbol)).transpose()?;
        let finish = spec.finish_symbol().map(|symbol| entry(&module, &symbol)).transpose()?;
        let mut kernel = Self {
            spec: *spec,
            cubin,
            context: Arc::clone(context),
            products,
            prepass,
            finish,
            resident_clusters: 0,
            name: name.to_owned(),
        };
        // Threads and clusters do not depend on M.
        for pass in spec.passes(1) {
            let function = kernel.function(pass.kind)?;
            fits(function, pass.threads)?;
            if pass.cluster != [1; 3] {
                kernel.resident_clusters = launch::resident_clusters(function.cu_function(), &pass)
                    .map_err(|error| refused("asking how many clusters are resident", error))?;
                if kernel.resident_clusters == 0 {
                    let blocks: u32 = pass.cluster.iter().product();
                    return Err(Error::unsupported(format!(
                        "the device runs no cluster of {blocks} blocks with {shared_bytes} bytes of shared memory each"
                    )));
                }
            }
        }
        Ok(kernel)
    }

    fn function(&self, kind: PassKind) -> Result<&CudaFunction> {
        let function = match kind {
            PassKind::Prepass => self.prepass.as_ref(),
            PassKind::Products { .. } => Some(&self.products),
            PassKind::Finish => self.finish.as_ref(),
        };
        function.ok_or_else(|| Error::internal("a pass without its kernel"))
    }

    /// Computes `operands` in `stream`: checks them, puts the launches into the stream and returns.
    ///
    /// Nothing is allocated, on the host or on the device. The call can be captured into a graph, if cudarc's event
    /// tracking is off in this context (it would wait for events from outside of the capture).
    ///
    /// # Errors
    /// Operand, if a format, size, alignment or device does not fit, before anything is launched; driver, if a launch
    /// is refused or an earlier asynchronous failure shows.
    pub fn launch(&self, stream: &CudaStream, mut operands: Operands<'_>) -> Result<()> {
        self.checked_launch(stream, &mut operands, false).map_err(|error| error.context(self.name.as_str()))
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
    pub fn launch_dependent(&self, stream: &CudaStream, mut operands: Operands<'_>) -> Result<()> {
        self.checked_launch(stream, &mut operands, true).map_err(|error| error.context(self.name.as_str()))
    }

    fn checked_launch(&self, stream: &CudaStream, operands: &mut Operands<'_>, is_dependent: bool) -> Result<()> {
        let home = Home { context: self.context.cu_ctx() as usize, ordinal: self.context.ordinal() };
        home.check("the stream", stream.context().cu_ctx() as usize, stream.context().ordinal())?;
        let sizes = operands.sizes();
        check::sizes(&self.spec, home, &sizes)?;
        self.check_capture(stream)?;

        // Waits for earlier users of the buffers where cudarc tracks them, and records this use when dropped.
        let mut guards = Guards::default();
        let mut params = operands.params(stream, &mut guards);
        check::alignment(&params)?;
        // Shows what those waits may have met, too.
        self.context.bind_to_thread().map_err(|error| refused("binding the context", error))?;

        let mut maps = tensor_map::NO_TOKENS;
        let layout = if let Layout::Wgmma(layout) = self.spec.geometry().layout { Some(layout) } else { None };
        if let Some(layout) = layout {
            params.decoded = params.workspace + self.spec.partial_bytes(sizes.m);
            if !layout.decodes_tokens {
                let tokens = if self.prepass.is_some() { params.decoded } else { params.a };
                maps = tensor_map::tokens(&self.spec, &layout, tokens, sizes.m)
                    .map_err(|error| refused("describing the tokens to the tensor memory accelerator", error))?;
            }
        }
        let passes = self.spec.passes(sizes.m);
        if let Some(pass) = passes.clone().find(|pass| pass.grid[1].max(pass.grid[2]) > Spec::GRID_YZ_MAX) {
            let ([x, y, z], most) = (pass.grid, Spec::GRID_YZ_MAX);
            return Err(Error::operand(format!(
                "m = {}: {x}×{y}×{z} blocks, a grid has at most {most} in y and z; a persistent variant takes any m",
                sizes.m
            )));
        }
        for (index, pass) in passes.enumerate() {
            let function = self.function(pass.kind)?;
            if let PassKind::Products { product } = pass.kind {
                params.product = i32::from(product != 0);
            }
            // The second is of the matrix kernel of the path wgmma only; others have one parameter and look no further.
            let mut arguments = [(&raw mut params).cast::<c_void>(), (&raw mut maps).cast::<c_void>()];
            // Kernels of one call wait for each other by themselves. A prepass has nothing to do before that wait, and
            // was measured to start later if launched early.
            let is_dependent = layout.is_some() && (index > 0 || (is_dependent && self.prepass.is_none()));
            // SAFETY: the function is of a module that `self` keeps loaded, in the context that is bound. Its parameters
            // have the layout of `Params` (checked in params.rs against templates/lib/base.cuh) and of the driver's
            // tensor maps, and the driver copies them before it returns. Every address in them is of live memory of this
            // context, as large as the kernel reads or writes for `sizes.m` rows (check.rs); what is written is borrowed
            // mutably, and cudarc's guards order this use before the memory is released or used in another stream.
            unsafe { launch::launch(function, &pass, stream, is_dependent, &mut arguments) }.map_err(|error| {
                let [x, y, z] = pass.grid;
                refused(format!("launching {x}×{y}×{z} blocks of {} threads", pass.threads), error)
            })?;
        }
        Ok(())
    }

    /// Event tracking and capture do not go together: refuse before the capture is spoilt.
    fn check_capture(&self, stream: &CudaStream) -> Result<()> {
        if !self.context.is_managing_stream_synchronization() {
            return Ok(());
        }
        match stream.capture_status() {
            Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE) => Ok(()),
            Ok(_) => Err(Error::operand(
                "the stream is being captured while cudarc tracks events in its context: call \
                 `CudaContext::disable_event_tracking` first",
            )),
            Err(error) => Err(refused("asking whether the stream is being captured", error)),
        }
    }

    /// Device memory for the partial sums of launches of up to `m` rows, one launch at a time: to be allocated ahead and
    /// used again. A few bytes where the variant has no partial sums.
    ///
    /// # Errors
    /// Driver, if the device has no room.
    pub fn workspace(&self, stream: &Arc<CudaStream>, m: u32) -> Result<CudaSlice<u8>> {
        let bytes = self.spec.workspace_bytes(m).max(WORKSPACE_MIN);
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let doing = || format!("{}: allocating {bytes} bytes of workspace", self.name);
        stream.alloc_zeros(length).map_err(|error| refused(doing(), error))
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

    /// Blocks of clusters that the device runs at a time, for a variant that has clusters: an H200 runs 132 blocks in
    /// clusters of 2, but only 120 in clusters of 4.
    #[must_use]
    pub fn resident_cluster_blocks(&self) -> Option<u32> {
        (self.resident_clusters > 0).then(|| self.resident_clusters * self.spec.variant().cluster.blocks())
    }

    /// Blocks of the matrix kernel that one SM holds at a time, as the driver counts them from its registers, threads and
    /// shared memory.
    ///
    /// # Errors
    /// Driver, if it does not say.
    pub fn resident_blocks_per_sm(&self) -> Result<u32> {
        let geometry = self.spec.geometry();
        self.products
            .occupancy_max_active_blocks_per_multiprocessor(geometry.threads, geometry.shared_bytes as usize, None)
            .map_err(|error| refused(format!("{}: asking how many blocks an SM holds", self.name), error))
    }

    /// The context it is loaded in.
    #[must_use]
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on device {}", self.name, self.context.ordinal())
    }
}

fn entry(module: &Arc<CudaModule>, symbol: &str) -> Result<CudaFunction> {
    module.load_function(symbol).map_err(|error| refused(format!("the cubin has no entry {symbol}"), error))
}

/// Checks that a block of `threads` threads can have the registers and the barriers that the compiler gave the kernel.
fn fits(function: &CudaFunction, threads: u32) -> Result<()> {
    let ask = || Ok((function.max_threads_per_block()?, function.num_regs()?));
    let (most, registers) = ask().map_err(|error| refused("asking for the kernel's limits", error))?;
    if u32::try_from(most).unwrap_or(0) < threads {
        return Err(Error::unsupported(format!(
            "a block has {threads} threads, but with {registers} registers each the device runs at most {most}"
        )));
    }
    Ok(())
}

fn allow_shared(context: &CudaContext, function: &CudaFunction, bytes: u32) -> Result<()> {
    let value = i32::try_from(bytes).map_err(|_| Error::internal("shared memory beyond 2 GiB"))?;
    // cudarc binds the context in its getters, not in this setter.
    context
        .bind_to_thread()
        .and_then(|()| {
            function.set_attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, value)
        })
        .map_err(|error| refused(format!("asking for {bytes} bytes of shared memory a block"), error))
}
