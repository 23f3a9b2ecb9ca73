//! The composition root on a device: what was only described becomes a loaded kernel.
//!
//! [`Engine`] holds a [`Device`], a [`Forge`], a [`Picker`] and the kernels that are loaded. There is no
//! global state: two engines on two devices, or on one, do not know of each other.

mod plan;

pub use plan::Plan;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;

use crate::build::Preparation;
use crate::cache::{Forge, Memory, Tier};
use crate::error::Result;
use crate::pick::{Choice, Explanation, Picker};
use crate::run::{Device, Kernel, Matrix, PreparedWeights, Preparer};
use crate::spec::{Problem, Spec};

/// Kernels kept loaded at most. A module of one kernel takes some hundred KiB of device memory.
const LOADED_MAX: usize = 256;
/// Bytes of machine code kept loaded at most.
const LOADED_BYTES_MAX: usize = 256 << 20;

/// Picks, builds and loads kernels on one device. Shared between threads by reference.
///
/// ```no_run
/// use warpsmith::engine::Engine;
/// use warpsmith::run::Device;
/// use warpsmith::spec::{Activation, Problem};
///
/// let engine = Engine::new(&Device::open(0)?);
/// let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).m_up_to(512);
/// let selected = engine.kernel(&problem, 256)?;
/// println!("{} because {}", selected.kernel().spec().variant(), selected.choice().reason());
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub struct Engine {
    device: Device,
    forge: Arc<Forge>,
    picker: Picker,
    loaded: Memory<Spec, Kernel>,
    /// Eight at most.
    preparers: Memory<Preparation, Preparer>,
}

/// A kernel ready to launch, why it was chosen, and what it took to get it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Selected {
    choice: Choice,
    kernel: Arc<Kernel>,
    tier: Tier,
    elapsed: Duration,
}

impl Selected {
    /// The variant, with where it came from and why.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The kernel. Holding it keeps it loaded.
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.kernel
    }

    /// Where its machine code came from; memory, if the kernel was loaded already.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// How long it took to get, loading included.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

impl Engine {
    /// An engine with a forge of default settings: it finds NVRTC, and never installs it.
    #[must_use]
    pub fn new(device: &Device) -> Self {
        Self::with_forge(device, Forge::builder().build())
    }

    /// An engine with a forge of its own, or one that it shares with engines on other devices (`Arc<Forge>`), so that a
    /// kernel is compiled once for all of them; and a picker of default settings: it knows the built-in tuning table.
    #[must_use]
    pub fn with_forge(device: &Device, forge: impl Into<Arc<Forge>>) -> Self {
        Self::with_forge_and_picker(device, forge, Picker::new(device.name(), device.arch()))
    }

    /// The same with its own picker, from [`Picker::builder`] with the device's name and architecture.
    #[must_use]
    pub fn with_forge_and_picker(device: &Device, forge: impl Into<Arc<Forge>>, picker: Picker) -> Self {
        let loaded = Memory::new(LOADED_MAX, LOADED_BYTES_MAX, |kernel: &Kernel| kernel.cubin().image().len());
        let preparers = Memory::new(LOADED_MAX, LOADED_BYTES_MAX, |preparer: &Preparer| preparer.cubin().image().len());
        Self { device: device.clone(), forge: forge.into(), picker, loaded, preparers }
    }

    /// The kernel for `m` rows (of all groups together), picked by [`Picker::choose`]. Compiles, blocking, if no cache
    /// has it.
    ///
    /// # Errors
    /// Those of [`Picker::choose`], [`Forge::cubin`] and [`Kernel::load`].
    pub fn kernel(&self, problem: &Problem, m: u32) -> Result<Selected> {
        self.kernel_for(self.picker.choose(problem, m)?)
    }

    /// The kernel for a choice that was made elsewhere, by [`Choice::pinned`] say.
    ///
    /// # Errors
    /// Those of [`Forge::cubin`] and [`Kernel::load`].
    pub fn kernel_for(&self, choice: Choice) -> Result<Selected> {
        let start = Instant::now();
        let mut tier = Tier::Memory;
        let (kernel, _) = self.loaded.get_or_try_compute(choice.spec(), || {
            let forged = self.forge.cubin(choice.spec())?;
            tier = forged.tier();
            Kernel::load(&self.device, choice.spec(), forged.into_cubin()).map(Arc::new)
        })?;
        Ok(Selected { choice, kernel, tier, elapsed: start.elapsed() })
    }

    /// Why [`Engine::kernel`] picks what it does: [`Picker::explain`].
    ///
    /// # Errors
    /// Those of [`Picker::explain`].
    pub fn explain(&self, problem: &Problem, m: u32) -> Result<Explanation> {
        self.picker.explain(problem, m)
    }

    /// Repacks the NVFP4 weights of `problem`, B `[groups, n, k]` or B1 and B2, for kernels that take them prepared:
    /// once, at load. Allocates the result and launches in `stream`; asynchronous but for the first of its kind, which
    /// loads (and compiles, if no cache has it) the kernel that does it.
    ///
    /// ```no_run
    /// use warpsmith::engine::Engine;
    /// use warpsmith::run::{Device, Matrix};
    /// use warpsmith::spec::{Activation, Problem};
    ///
    /// let device = Device::open(0)?;
    /// let engine = Engine::new(&device);
    /// let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168);
    /// # let stream = device.context().default_stream();
    /// # let (gate, gate_scales, up, up_scales) = (stream.alloc_zeros(4096 * 3584)?, stream.alloc_zeros(4096 * 448)?,
    /// #     stream.alloc_zeros(4096 * 3584)?, stream.alloc_zeros(4096 * 448)?);
    /// let (gate, up) = (Matrix::nvfp4(&gate, &gate_scales), Matrix::nvfp4(&up, &up_scales));
    /// let weights = engine.prepare(&stream, &problem, &[gate, up])?;
    /// println!("{}: {} bytes", weights.layout(), weights.as_view().len());
    /// # use cudarc::driver::DeviceSlice;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Problem::prepared_layout`], [`Forge::prepare_cubin`], [`Preparer::load`] and [`Preparer::prepare`].
    pub fn prepare(&self, stream: &Arc<CudaStream>, problem: &Problem, b: &[Matrix<'_>]) -> Result<PreparedWeights> {
        let layout = problem.prepared_layout()?;
        let preparation = Preparation::new(&layout, problem.scale_layout());
        let (preparer, _) = self.preparers.get_or_try_compute(&preparation, || {
            let cubin = self.forge.prepare_cubin(preparation, self.device.arch())?.into_cubin();
            Preparer::load(&self.device, preparation, cubin).map(Arc::new)
        })?;
        preparer.prepare(stream, &layout, b)
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What picks its variants.
    #[must_use]
    pub fn picker(&self) -> &Picker {
        &self.picker
    }

    /// What makes its cubins, with its counters.
    #[must_use]
    pub fn forge(&self) -> &Forge {
        &self.forge
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kernels, _) = self.loaded.usage();
        write!(f, "engine on {} with {kernels} kernels loaded", self.device)
    }
}
