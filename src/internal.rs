//! What the other crates of this workspace need of this one. **No stability:** it changes with any release, and nobody
//! else should use it.

use std::borrow::Cow;
use std::sync::Arc;

use cudarc::driver::sys::CUevent;
use cudarc::driver::{CudaStream, DriverError};

use crate::build::cubin::About;
use crate::build::{Cubin, Digest};
use crate::error::{Error, Result};
use crate::run::Device;
use crate::spec::Problem;

/// Spec to source to machine code, a step at a time.
pub mod build {
    #[cfg(feature = "compile")]
    pub use crate::build::compile::{compile, options, ptx};
    pub use crate::build::cubin::About;
    pub use crate::build::render::render;
    pub use crate::build::source::{Digest, Header, Source};
    #[cfg(feature = "compile")]
    pub use crate::build::toolchain::Version;
    pub use crate::simt::{Experts, Preparation, QuantiseWeights, Simt};
}

/// What entries are found by, and why one was not.
pub mod cache {
    pub use crate::cache::key::{Key, Recipe};
    pub use crate::cache::memory::Memory;
    pub use crate::cache::miss::{KeyChange, Miss};
    pub use crate::cache::pack::PackedKernel;
    pub use crate::cache::sealing::SealStats;
    pub use crate::cache::stats::DiskStats;
}

/// Work that threads share.
pub mod crew {
    pub use crate::crew::each;
}

/// Processes that end with all that they have started.
#[cfg(feature = "compile")]
pub mod child {
    pub use crate::child::{end, has_ended, within};
}

/// Locks between processes.
pub mod lock {
    pub use crate::lock::Lock;
}

/// Parts of reports, what this machine has, and kernels that no server launches.
pub mod engine {
    pub use crate::engine::doctor::{DeviceFound, Diagnosis, Directory, doctor};
    pub use crate::engine::stats::BackgroundStats;
    pub use crate::engine::warm_up::{Failure, KernelSet, Warmed, warm_up};
    use crate::engine::{Engine, Manifest};
    use crate::error::Result;
    use crate::run::experts::ExpertsKernel;
    use crate::run::quantise_weights::WeightQuantiser;
    use crate::simt::{Experts, QuantiseWeights, Simt};
    use cudarc::driver::CudaStream;
    use std::sync::Arc;

    /// The kernels of a whole mixture of experts, for few tokens, loaded, as [`Engine::route`] gives its own. `stream` makes what they count
    /// in, which those have together whose rows need as much.
    ///
    /// # Errors
    /// Unsupported, if there is no such kernel ([`Experts::check`]); those of [`Engine::route`].
    pub fn experts(engine: &Engine, stream: &Arc<CudaStream>, all: &[Experts]) -> Result<Vec<ExpertsKernel>> {
        engine.experts(stream, all)
    }

    /// The same, named by a manifest.
    #[must_use]
    pub fn with_experts(manifest: Manifest, of: &Experts) -> Manifest {
        manifest.with_simt(&Simt::from(*of))
    }

    /// The kernels without matrix instructions that a manifest names.
    pub fn simts_of(manifest: &Manifest) -> impl Iterator<Item = Simt> {
        manifest.simts()
    }

    /// The kernels that make weights of checkpoints NVFP4, loaded, as [`Engine::route`] gives its own.
    ///
    /// # Errors
    /// Those of [`Engine::quantise`].
    pub fn quantise_weights(engine: &Engine, of: QuantiseWeights) -> Result<WeightQuantiser> {
        engine.quantise_weights(of)
    }
}

/// Variables that the library reads.
pub mod environment {
    pub use crate::environment::{Environment, PATH, TRIAL_WORKER};
}

/// Files that are whole or not there.
pub mod file {
    pub use crate::file::write;
}

/// The small floats of NVFP4 and MXFP4.
pub mod format {
    pub use crate::format::mxfp4::{MX_BLOCK, mxfp4_value};
    pub use crate::format::prepared::Unpacked;
    pub use crate::format::prepared::e4m3::{e4m3_value, row_exponent};
    pub use crate::format::scales::BLOCK;

    /// Values of 4 bits.
    pub mod e2m1 {
        pub use crate::format::e2m1::{MAX, decode, encode};
    }

    /// Scales of 8 bits.
    pub mod e4m3 {
        pub use crate::format::e4m3::{MAX, MIN_POSITIVE, MIN_SUBNORMAL, NAN, decode, encode, is_nan};
    }

    /// Powers of two of 8 bits.
    pub mod e8m0 {
        pub use crate::format::e8m0::{BIAS, NAN, decode, encode, is_nan};
    }
}

/// The host's memory.
pub mod host_memory {
    pub use crate::host_memory::available;
}

/// The cost model, lines of the tuning table, and parts of an explanation.
pub mod pick {
    pub use crate::pick::choice::Reason;
    pub use crate::pick::entry::{Entry, Evidence, Measured};
    pub use crate::pick::explain::{Candidate, IgnoredDecision, RefusedBy, Term};
    pub use crate::pick::picker::Ignored;
    pub use crate::pick::schedule::Schedule;
    pub use crate::pick::table::{Skipped, TableChange};

    /// The cost model.
    pub mod heuristic {
        pub use crate::pick::heuristic::{
            Constants, Kind, Prediction, Ranked, Tables, Terms, first, first_for, predict, predict_for, predict_with,
            rank, rank_for, rank_where, tile_efficiency, wave_efficiency,
        };
        pub use crate::routing::Load;
        use crate::spec::Problem;

        /// `m` rows, which fall into a problem's groups as expected.
        #[must_use]
        pub fn load(problem: &Problem, m: u32) -> Load {
            problem.load(m)
        }

        /// Groups that have rows, as expected; 1 where there are none.
        #[must_use]
        pub fn with_rows(load: &Load) -> f64 {
            load.with_rows()
        }

        /// These rows of each group; one number if the problem has no groups.
        #[must_use]
        pub fn load_of(problem: &Problem, rows: &[u32]) -> Load {
            problem.load_of(rows)
        }
    }

    /// Published rules, to compare with.
    pub mod rules {
        pub use crate::pick::rules::Rule;
    }
}

/// Kernels that make and prepare weights, and how long a load took.
pub mod run {
    use crate::build::Built;
    use crate::error::Result;
    pub use crate::run::experts::{ExpertsKernel, ExpertsOperands};
    pub use crate::run::given::GivenMemory;
    pub use crate::run::load_lock::LoadTime;
    use crate::run::places::Places;
    pub use crate::run::prepare::Preparer;
    pub use crate::run::quantise::settled;
    pub use crate::run::quantise_weights::{WeightOperands, WeightQuantiser};
    use crate::run::{Combiner, Device, Quantiser, Router, SimtKernel};
    use crate::simt::{Combine, Experts, Quantise, QuantiseWeights, Route, Simt};
    use cudarc::driver::CudaStream;
    use std::sync::Arc;

    /// That of [`Experts`] from machine code of one's own.
    ///
    /// # Errors
    /// Driver, if it refuses the image; those of [`Experts::check`].
    pub fn experts(
        device: &Device,
        stream: &Arc<CudaStream>,
        experts: Experts,
        built: &Built<Simt>,
    ) -> Result<ExpertsKernel> {
        let places = Places::new(stream, &experts)?;
        ExpertsKernel::new(experts, Arc::new(SimtKernel::load(device, built)?), places, device.arch().sms())
    }

    /// What the first place has that the kernel was launched in: what its blocks count in, and of the cells that they give each other
    /// rows of h in, each half.
    ///
    /// # Errors
    /// Driver, if it refuses the copy.
    pub fn first_place(kernel: &ExpertsKernel, stream: &Arc<CudaStream>) -> Result<(Vec<i32>, [Vec<i32>; 2])> {
        kernel.places().first(stream)
    }

    /// A router from machine code of one's own.
    ///
    /// # Errors
    /// Driver, if it refuses the image.
    pub fn router(device: &Device, route: Route, built: &Built<Simt>) -> Result<Router> {
        Ok(Router::new(route, Arc::new(SimtKernel::load(device, built)?)))
    }

    /// A combiner from machine code of one's own.
    ///
    /// # Errors
    /// Driver, if it refuses the image.
    pub fn combiner(device: &Device, combine: Combine, built: &Built<Simt>) -> Result<Combiner> {
        Ok(Combiner::new(combine, Arc::new(SimtKernel::load(device, built)?)))
    }

    /// A quantiser from machine code of one's own.
    ///
    /// # Errors
    /// Driver, if it refuses the image.
    pub fn quantiser(device: &Device, quantise: Quantise, built: &Built<Simt>) -> Result<Quantiser> {
        Ok(Quantiser::new(quantise, Arc::new(SimtKernel::load(device, built)?)))
    }

    /// A quantiser of weights from machine code of one's own.
    ///
    /// # Errors
    /// Driver, if it refuses the image.
    pub fn weight_quantiser(device: &Device, of: QuantiseWeights, built: &Built<Simt>) -> Result<WeightQuantiser> {
        Ok(WeightQuantiser::new(of, Arc::new(SimtKernel::load(device, built)?)))
    }
}

/// The parts of a variant, the space of variants, and what follows from one.
pub mod spec {
    pub use crate::path::{Axes, Cluster, Epilogue, Fusion, Geometry, Rows, Tile, Warps};
    pub use crate::routing::Routing;
    pub use crate::spec::depth::deepest;
    pub use crate::spec::passes::{Pass, PassKind};
    pub use crate::spec::space::{baseline, candidates, space, thinned};
    use crate::spec::{MatrixPath, Problem};

    /// The axes of a matrix path for a problem.
    #[must_use]
    pub fn axes(path: MatrixPath, problem: &Problem) -> Axes {
        path.axes(problem)
    }
}

/// Parts of spellings.
pub mod spelling {
    pub use crate::spelling::{number, prefixed};
}

/// The problems that are run, timed, tuned and tested, as TOML.
pub const SUITE: &str = include_str!("../tests/suite.toml");

/// Makes errors of each class.
pub trait Raise: Sized {
    /// A spelling that is not in the grammar.
    fn parse(message: impl Into<Cow<'static, str>>) -> Self;
    /// What there is not.
    fn unsupported(message: impl Into<Cow<'static, str>>) -> Self;
    /// A shared library that is not there; the message ends with the remedy.
    fn missing_library(message: impl Into<Cow<'static, str>>) -> Self;
    /// An operand that does not fit.
    fn operand(message: impl Into<Cow<'static, str>>) -> Self;
    /// Host data that does not have the form it must have.
    fn data(message: impl Into<Cow<'static, str>>) -> Self;
    /// The CUDA driver refused a call.
    fn driver(message: impl Into<Cow<'static, str>>) -> Self;
    /// A promise of this workspace that did not hold.
    fn internal(message: impl Into<Cow<'static, str>>) -> Self;
    /// Adds what caused it.
    #[must_use]
    fn with_source(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self;
}

impl Raise for Error {
    fn parse(message: impl Into<Cow<'static, str>>) -> Self {
        Error::parse(message)
    }

    fn unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        Error::unsupported(message)
    }

    fn missing_library(message: impl Into<Cow<'static, str>>) -> Self {
        Error::missing_library(message)
    }

    fn operand(message: impl Into<Cow<'static, str>>) -> Self {
        Error::operand(message)
    }

    fn data(message: impl Into<Cow<'static, str>>) -> Self {
        Error::data(message)
    }

    fn driver(message: impl Into<Cow<'static, str>>) -> Self {
        Error::driver(message)
    }

    fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Error::internal(message)
    }

    fn with_source(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.with_source(source)
    }
}

/// Wraps what the driver said.
pub fn refused(doing: impl std::fmt::Display, error: DriverError) -> Error {
    crate::run::refused(doing, error)
}

/// The time between two events.
///
/// # Safety
/// Both are alive.
///
/// # Errors
/// Driver, if it refuses.
pub unsafe fn elapsed_ms(start: CUevent, end: CUevent) -> Result<f32> {
    // SAFETY: the caller's promise.
    unsafe { crate::run::elapsed_ms(start, end) }
}

/// A device of one's own with its only stream, which can be captured: [`Device::open`] without cudarc's event
/// tracking. Whoever calls this puts all work on this device into this stream.
///
/// # Errors
/// Those of [`Device::open`]; driver, if there is no stream.
pub fn open_for_one_stream(ordinal: usize) -> Result<(Device, Arc<CudaStream>)> {
    Device::open_for_one_stream(ordinal)
}

/// The problem without what is no part of a kernel.
pub fn for_kernel(problem: &Problem) -> Problem {
    problem.for_kernel()
}

/// The digest of some bytes.
#[must_use]
pub fn digest(bytes: &[u8]) -> Digest {
    Digest::of(bytes)
}

/// What is known of machine code besides its bytes.
#[must_use]
pub fn about(cubin: &Cubin) -> &About {
    cubin.about()
}

/// Machine code that was compiled before.
///
/// # Errors
/// Data, if it is not what it is said to be.
pub fn cubin(about: About, image: Vec<u8>) -> Result<Cubin> {
    Cubin::from_parts(about, image)
}
