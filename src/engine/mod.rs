//! The composition root on a device: what was only described becomes a loaded kernel.
//!
//! [`Engine`] holds a [`Device`], a [`Forge`] and the kernels that are loaded; picking is a pure function. There is no
//! global state: two engines on two devices, or on one, do not know of each other.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cache::{Forge, Memory, Tier};
use crate::error::Result;
use crate::pick::{self, Choice};
use crate::run::{Device, Kernel};
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
    forge: Forge,
    loaded: Memory<Spec, Kernel>,
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

    /// An engine with its own forge.
    #[must_use]
    pub fn with_forge(device: &Device, forge: Forge) -> Self {
        let loaded = Memory::new(LOADED_MAX, LOADED_BYTES_MAX, |kernel: &Kernel| kernel.cubin().image().len());
        Self { device: device.clone(), forge, loaded }
    }

    /// The kernel for `m` rows (of all groups together), picked by [`pick::choose`]. Compiles, blocking, if no cache
    /// has it.
    ///
    /// # Errors
    /// Unsupported, if no variant is legal; those of [`Forge::cubin`] and [`Kernel::load`].
    pub fn kernel(&self, problem: &Problem, m: u32) -> Result<Selected> {
        self.kernel_for(pick::choose(problem, m, self.device.arch())?)
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
            Kernel::load(self.device.context(), choice.spec(), forged.into_cubin()).map(Arc::new)
        })?;
        Ok(Selected { choice, kernel, tier, elapsed: start.elapsed() })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
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
