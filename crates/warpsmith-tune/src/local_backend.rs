//! A device with the operands of one setup: the backend that others run here or in another process.

use std::fmt;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use cudarc::driver::CudaStream;
use lru::LruCache;

use super::adversarial;
use super::measure::{Admission, Rejection};
use super::measurer::{Backend, Notice, Timed};
use super::operands::HostOperands;
use super::quarantine::Platform;
use super::random::Spread;
use super::setup::Setup;
use super::trial::Trial;
use warpsmith::build::Built;
use warpsmith::internal::Raise;
use warpsmith::internal::build::Digest;
use warpsmith::internal::{digest, open_for_one_stream};
use warpsmith::run::{Device, Kernel, PreparedWeights};
use warpsmith::{Error, Result};

use crate::oracle::Reference;
use crate::timing::Pace;
use crate::wait::Health;
use warpsmith::spec::Spec;

/// Kernels that stay loaded.
const HELD_MAX: NonZero<usize> = NonZero::new(64).unwrap();
/// Where the random operands begin; any number does.
const SEED: u64 = 0x0005_EED5;

/// What the driver says of a context that a kernel has broken (CUDA driver API, `CUresult`). It says other things of a
/// device or a driver that is broken, too.
const BY_KERNELS: [&str; 10] = [
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_ASSERT",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_TENSOR_MEMORY_LEAK",
];

/// Checks and times kernels for one setup on one device.
pub(super) struct LocalBackend {
    device: Device,
    stream: Arc<CudaStream>,
    setup: Setup,
    /// At the rows that are timed.
    timed: Stand,
    /// At rows that fit no tile, with nothing but subnormal scales.
    awkward: Stand,
    held: LruCache<Spec, Held>,
    condition: Condition,
}

/// Operands on the device, and on the host those that other rows are multiplied with.
struct Stand {
    host: HostOperands,
    trial: Trial<'static>,
}

impl Stand {
    /// What of it serves other rows.
    fn into_weights(self) -> (Option<HostOperands>, Vec<Arc<PreparedWeights>>) {
        (Some(self.host), self.trial.into_weights())
    }
}

/// A kernel that has passed.
struct Held {
    kernel: Arc<Kernel>,
    /// Of its result at the rows that are timed.
    c: Digest,
}

/// What the kernels so far have left of the backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It can be used.
    Sound,
    /// A wrong kernel ran: what else it has written is not known, so all operands have to be made anew.
    Tainted,
    /// A kernel hangs, or has broken the context: this process cannot use the device any more.
    Lost(String),
}

impl LocalBackend {
    /// Opens the device and puts the operands on it.
    pub(super) fn open(setup: Setup) -> Result<Self> {
        // What does not fit is refused before there is a device.
        setup.timed_rows()?;
        let (device, stream) = open_for_one_stream(setup.ordinal())?;
        Self::on(device, stream, setup, None)
    }

    /// Goes on with another setup: with the device, if it is the same, and with the weights, if those are.
    pub(super) fn turn_to(self, setup: Setup) -> Result<Self> {
        if self.condition != Condition::Sound || setup.ordinal() != self.setup.ordinal() {
            drop(self);
            return Self::open(setup);
        }
        let Self { device, stream, timed, awkward, .. } = self;
        let before = (setup.problem() == self.setup.problem()).then_some((timed, awkward));
        device.reclaim()?;
        Self::on(device, stream, setup, before)
    }

    fn on(device: Device, stream: Arc<CudaStream>, setup: Setup, before: Option<(Stand, Stand)>) -> Result<Self> {
        let (timed_rows, awkward_rows) = (setup.timed_rows()?.to_vec(), setup.awkward_rows()?);
        let (timed, awkward) =
            before.map(|(timed, awkward)| (timed.into_weights(), awkward.into_weights())).unwrap_or_default();
        let problem = setup.problem();
        let make = |before, rows: &[u32], spread, seed| match before {
            Some(host) => adversarial::with_rows(host, rows, spread, seed),
            None => adversarial::operands(problem, rows, spread, seed),
        };
        // Both at once: what one core does alone (drawing, packing) takes longest.
        let (timed_host, awkward_host) = thread::scope(|scope| {
            let awkward = scope.spawn(|| make(awkward.0, &awkward_rows, Spread::Subnormal, SEED + 1));
            let timed = make(timed.0, &timed_rows, Spread::Every, SEED);
            (timed, awkward.join().unwrap_or_else(|_| Err(Error::internal("making operands panicked"))))
        });
        let stand = |(host, reference): (HostOperands, Reference), kept| -> Result<_> {
            let trial = Trial::owning(&stream, &host, reference, kept)?.limit(setup.longest());
            Ok(Stand { host, trial })
        };
        let mut timed = stand(timed_host?, timed.1)?;
        timed.trial = timed.trial.further_rows(setup.further_timed_rows()?.to_vec());
        let awkward = stand(awkward_host?, awkward.1)?;
        let held = LruCache::new(HELD_MAX);
        Ok(Self { device, stream, setup, timed, awkward, held, condition: Condition::Sound })
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Makes everything anew after a wrong kernel, and room after others.
    fn recover(&mut self) -> Result<()> {
        match &self.condition {
            Condition::Sound => self.device.reclaim().map(drop),
            Condition::Tainted => {
                *self = Self::open(self.setup.clone())?;
                Ok(())
            }
            Condition::Lost(why) => Err(Error::driver(format!("{} cannot be used any more: {why}", self.device))),
        }
    }

    fn check(&mut self, kernel: &Arc<Kernel>) -> Result<Admission> {
        let mut worst = 0.0f64;
        let mut c = digest(&[]);
        for Stand { trial, .. } in [&self.awkward, &self.timed] {
            let checked = trial.check(kernel)?;
            if !checked.verdict().passed() {
                self.condition = Condition::Tainted;
                return Ok(Admission::Refused(Rejection::Wrong(format!("{} (m = {})", checked.verdict(), trial.m()))));
            }
            if !checked.repeatable() {
                return Ok(Admission::Refused(Rejection::NotRepeatable));
            }
            worst = worst.max(checked.verdict().worst());
            c = digest(&checked.c());
        }
        self.held.push(*kernel.spec(), Held { kernel: Arc::clone(kernel), c });
        Ok(Admission::Passed { worst })
    }

    /// What a failure says of the kernel that ran.
    ///
    /// # Errors
    /// Driver, if the device is lost for another reason.
    fn rejection(&mut self, kernel: &Arc<Kernel>, error: &Error) -> Result<Rejection> {
        let (why, rejection) = match Health::of(&self.stream) {
            Health::Sound => return Ok(Rejection::Load(error.to_string())),
            Health::Busy => ("hangs".to_owned(), Ok(Rejection::Hangs)),
            Health::Lost(code) if BY_KERNELS.contains(&code.as_str()) => {
                (format!("crashed ({code})"), Ok(Rejection::Crashes(format!("{code} ({error})"))))
            }
            Health::Lost(code) => {
                (format!("ran last ({code})"), Err(Error::driver(format!("{} is lost: {code} ({error})", self.device))))
            }
        };
        self.condition = Condition::Lost(format!("{} {why}", kernel.spec().name()));
        // Closing the device would wait for it, perhaps for ever.
        std::mem::forget(Arc::clone(kernel));
        rejection
    }

    fn held(&mut self, spec: &Spec) -> Option<(Arc<Kernel>, Digest)> {
        self.held.get(spec).map(|held| (Arc::clone(&held.kernel), held.c))
    }
}

impl Backend for LocalBackend {
    fn platform(&mut self) -> Result<Platform> {
        Ok(Platform::new(self.device.name(), self.device.driver_version()))
    }

    fn admit(&mut self, built: &Built, launching: Notice<'_>) -> Result<Admission> {
        let spec = built.of();
        self.recover()?;
        self.setup.check(spec)?;
        if spec.arch() != self.device.arch() {
            return Err(Error::unsupported(format!("{spec} was given to {}", self.device)));
        }
        let kernel = match Kernel::load(&self.device, built) {
            Ok(kernel) => Arc::new(kernel),
            Err(error) => match Health::of(&self.stream) {
                Health::Sound => return Ok(Admission::Refused(Rejection::Load(error.to_string()))),
                _ => return Err(error),
            },
        };
        launching()?;
        match self.check(&kernel) {
            Ok(admission) => Ok(admission),
            Err(error) => Ok(Admission::Refused(self.rejection(&kernel, &error)?)),
        }
    }

    fn screen(&mut self, spec: &Spec, launching: Notice<'_>) -> Result<Timed<f64>> {
        self.recover()?;
        let Some((kernel, c)) = self.held(spec) else { return Ok(Timed::Absent) };
        launching()?;
        let timed = self.timed.trial.time_one(&kernel, self.setup.way(), Pace::BRIEF);
        match timed.and_then(|timing| Ok((timing, self.timed.trial.digest_of_last()?))) {
            // Launched closely, perhaps dependently, it still gives the bits that were checked.
            Ok((timing, last)) if last == c => Ok(Timed::Took(timing.median_us)),
            Ok(_) => Ok(Timed::Failed(Rejection::NotRepeatable)),
            Err(error) => Ok(Timed::Failed(self.rejection(&kernel, &error)?)),
        }
    }

    fn duel(
        &mut self,
        incumbent: &Spec,
        challenger: &Spec,
        pairs: usize,
        launching: Notice<'_>,
    ) -> Result<Timed<Vec<(f64, f64)>>> {
        self.recover()?;
        let (Some((incumbent, _)), Some((challenger, _))) = (self.held(incumbent), self.held(challenger)) else {
            return Ok(Timed::Absent);
        };
        launching()?;
        match self.timed.trial.time_all(&[&incumbent, &challenger], pairs, self.setup.way(), Pace::BRIEF) {
            Ok(turns) => Ok(Timed::Took(turns.iter().map(|turn| (turn[0], turn[1])).collect())),
            Err(error) => Ok(Timed::Failed(self.rejection(&challenger, &error)?)),
        }
    }
}

impl fmt::Debug for LocalBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on {}, {} kernels, {:?}", self.setup, self.device, self.held.len(), self.condition)
    }
}
