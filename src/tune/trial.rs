//! The gate's device half: launch into poisoned and guarded memory, compare every element, and only then time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaSlice, CudaStream};
use half::{bf16, f16};

use super::gate::{Guarded, Verdict};
use super::operands::{HostMatrix, HostOperands};
use crate::error::{Error, Result};
use crate::format::Prepared;
use crate::oracle::Reference;
use crate::run::{
    Alpha, Kernel, Matrix, MatrixMut, Operands, Pace, PreparedWeights, Timer, Timing, operand_sets, wait,
};

/// No launch takes longer; a kernel that hangs makes the check an error.
const LIMIT: Duration = Duration::from_secs(20);
/// Bytes of NaN on the device, which workspaces are filled with piece by piece.
const NANS: usize = 4 << 20;

/// Operands on a device, with what the result should be: checks kernels, and times those that are right.
pub struct Trial<'a> {
    stream: Arc<CudaStream>,
    host: &'a HostOperands,
    reference: &'a Reference,
    guarded: Guarded,
    /// Canaries and poison, as every result begins.
    fill: Vec<u8>,
    /// [`NANS`] bytes.
    nans: CudaSlice<u8>,
    source: Source,
    limit: Duration,
    /// The first is checked; the others, made when something is timed, hold the same numbers.
    sets: Vec<Set>,
}

/// What a check found.
#[derive(Debug)]
#[must_use]
pub struct Checked {
    kernel: Arc<Kernel>,
    verdict: Verdict,
    repeatable: bool,
    c: Vec<u8>,
}

impl Checked {
    /// Every element was right, nothing outside was touched, and a second launch gave the same bits.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.verdict.passed() && self.repeatable
    }

    /// The gate's verdict on the first launch.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Whether a second launch gave the same bits. If not, the kernel has a race.
    #[must_use]
    pub fn repeatable(&self) -> bool {
        self.repeatable
    }

    /// The result `[m, N]`, as bytes of its format.
    #[must_use]
    pub fn c(&self) -> &[u8] {
        &self.c
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
    pub fn new(stream: &Arc<CudaStream>, host: &'a HostOperands, reference: &'a Reference) -> Result<Self> {
        let source = host.prepare()?.map_or(Source::Given, Source::Host);
        Self::from_source(stream, host, reference, source)
    }

    /// As [`Trial::new`], with weights that are prepared on the device already, perhaps for other M, too: one for each
    /// operand set, which are gone round if there are fewer.
    ///
    /// # Errors
    /// As [`Trial::new`]; data, if there are none and the problem takes them.
    pub fn with_weights(
        stream: &Arc<CudaStream>,
        host: &'a HostOperands,
        reference: &'a Reference,
        prepared: Vec<Arc<PreparedWeights>>,
    ) -> Result<Self> {
        if prepared.is_empty() {
            return Err(Error::data(format!("no prepared weights for {}", host.problem)));
        }
        Self::from_source(stream, host, reference, Source::Device(prepared))
    }

    fn from_source(
        stream: &Arc<CudaStream>,
        host: &'a HostOperands,
        reference: &'a Reference,
        source: Source,
    ) -> Result<Self> {
        host.check()?;
        let guarded = Guarded::fitting(reference)?;
        let nans = stream.clone_htod(&vec![0xFFu8; NANS]).map_err(refused)?;
        let first = Set::upload(stream, host, source.weights(stream, host, 0)?)?;
        let (stream, fill) = (Arc::clone(stream), guarded.fill());
        Ok(Self { stream, host, reference, guarded, fill, nans, source, limit: LIMIT, sets: vec![first] })
    }

    /// How long to wait for the device before it is given up, at each step; 20 seconds unless said otherwise.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// What its launches read.
    #[must_use]
    pub fn operands(&self) -> &'a HostOperands {
        self.host
    }

    /// Launches twice into poisoned and guarded memory, compares every element of the first result with the reference,
    /// and the second with the first.
    ///
    /// # Errors
    /// Those of [`Kernel::launch`]; driver, if the kernel faults or hangs.
    pub fn check(&self, kernel: &Arc<Kernel>) -> Result<Checked> {
        let mut workspace = self.workspace(kernel)?;
        let first = self.result_of(kernel, &mut workspace)?;
        let verdict = self.guarded.judge(&first, self.reference)?;
        let repeatable = self.result_of(kernel, &mut workspace)? == first;
        let c = first[self.guarded.result()].to_vec();
        Ok(Checked { kernel: Arc::clone(kernel), verdict, repeatable, c })
    }

    /// Times a kernel that has passed, in microseconds per call, with operands that are not in the L2 cache.
    ///
    /// # Errors
    /// Unsupported, if the check did not pass; those of [`Timer::time`].
    pub fn time(&mut self, checked: &Checked) -> Result<Timing> {
        self.time_by(checked, Pace::NORMAL, Kernel::launch)
    }

    /// As [`Trial::time`], at another pace.
    ///
    /// # Errors
    /// As [`Trial::time`].
    pub fn time_at(&mut self, checked: &Checked, pace: Pace) -> Result<Timing> {
        self.time_by(checked, pace, Kernel::launch)
    }

    /// As [`Trial::time`], but each call may begin while the one before it still runs ([`Kernel::launch_dependent`]).
    ///
    /// # Errors
    /// As [`Trial::time`].
    pub fn time_dependent(&mut self, checked: &Checked) -> Result<Timing> {
        self.time_by(checked, Pace::NORMAL, Kernel::launch_dependent)
    }

    fn time_by(
        &mut self,
        checked: &Checked,
        pace: Pace,
        launch: impl Fn(&Kernel, &CudaStream, Operands<'_>) -> Result<()>,
    ) -> Result<Timing> {
        let kernel = &checked.kernel;
        if !checked.passed() {
            return Err(Error::unsupported(format!("{} is not right, so it is not timed", kernel.spec().name())));
        }
        let (stream, host) = (Arc::clone(&self.stream), self.host);
        let bytes = host.problem.bytes(host.m.into()) as u64;
        let needed = operand_sets(bytes, kernel.spec().arch().l2_bytes());
        while self.sets.len() < needed {
            let weights = self.source.weights(&stream, host, self.sets.len())?;
            self.sets.push(Set::upload(&stream, host, weights)?);
        }
        let mut results = (0..needed)
            .map(|_| stream.alloc_zeros::<u8>(self.guarded.result().len()).map_err(refused))
            .collect::<Result<Vec<_>>>()?;
        let mut workspace = self.workspace(kernel)?;
        Timer::new(&stream)?.limit(self.limit).pace(pace).time(needed, |set| {
            let mut view = results[set].as_view_mut();
            let c = MatrixMut::from_bytes(host.problem.c_format(), &mut view)?;
            launch(kernel, &stream, self.sets[set].operands(host, c, &mut workspace))
        })
    }

    fn result_of(&self, kernel: &Kernel, workspace: &mut CudaSlice<u8>) -> Result<Vec<u8>> {
        let stream = &self.stream;
        let mut buffer = stream.clone_htod(&self.fill).map_err(refused)?;
        let mut view = buffer.slice_mut(self.guarded.result());
        let c = MatrixMut::from_bytes(self.host.problem.c_format(), &mut view)?;
        kernel.launch(stream, self.sets[0].operands(self.host, c, workspace))?;
        wait(stream, self.limit)?;
        let found = stream.clone_dtoh(&buffer).map_err(refused)?;
        wait(stream, self.limit)?;
        Ok(found)
    }

    /// Workspace full of NaN: partial sums that are read before they are written show.
    fn workspace(&self, kernel: &Kernel) -> Result<CudaSlice<u8>> {
        let mut workspace = kernel.workspace(&self.stream, self.host.m)?;
        for start in (0..workspace.len()).step_by(NANS) {
            let end = workspace.len().min(start + NANS);
            let nans = self.nans.slice(..end - start);
            self.stream.memcpy_dtod(&nans, &mut workspace.slice_mut(start..end)).map_err(refused)?;
        }
        Ok(workspace)
    }
}

impl fmt::Debug for Trial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trial of {} with m = {}", self.host.problem, self.host.m)
    }
}

fn refused(error: cudarc::driver::DriverError) -> Error {
    Error::driver(format!("operands of a trial: {error}")).with_source(error)
}

type Driven<T> = std::result::Result<T, cudarc::driver::DriverError>;

/// Where the weights of a set come from.
enum Source {
    /// The host's operands, as they are.
    Given,
    /// Prepared on the host, to be copied for each set.
    Host(Prepared),
    /// Prepared on the device, taken in turn.
    Device(Vec<Arc<PreparedWeights>>),
}

impl Source {
    /// The weights of a set, by its number.
    fn weights(&self, stream: &Arc<CudaStream>, host: &HostOperands, set: usize) -> Result<Weights> {
        Ok(match self {
            Source::Given => {
                let given = host.b.iter().map(|b| DeviceMatrix::upload(stream, b));
                Weights::Given(given.collect::<Driven<_>>().map_err(refused)?)
            }
            Source::Host(prepared) => Weights::Prepared(PreparedWeights::from_host(stream, prepared)?.into()),
            Source::Device(prepared) => Weights::Prepared(Arc::clone(&prepared[set % prepared.len()])),
        })
    }
}

/// One set of operands on the device.
struct Set {
    a: DeviceMatrix,
    b: Weights,
    /// Those that differ by group.
    alpha: Vec<Option<CudaSlice<f32>>>,
    offsets: Option<CudaSlice<i32>>,
}

enum Weights {
    Given(Vec<DeviceMatrix>),
    Prepared(Arc<PreparedWeights>),
}

impl Set {
    fn upload(stream: &Arc<CudaStream>, host: &HostOperands, b: Weights) -> Result<Self> {
        let alpha = host.alpha.iter().map(|alpha| match &alpha[..] {
            [_] => Ok(None),
            _ => stream.clone_htod(alpha).map(Some),
        });
        Ok(Self {
            a: DeviceMatrix::upload(stream, &host.a).map_err(refused)?,
            b,
            alpha: alpha.collect::<Driven<_>>().map_err(refused)?,
            offsets: host.offsets.as_ref().map(|offsets| stream.clone_htod(offsets)).transpose().map_err(refused)?,
        })
    }

    fn operands<'a>(&'a self, host: &HostOperands, c: MatrixMut<'a>, workspace: &'a mut CudaSlice<u8>) -> Operands<'a> {
        let alpha = |product: usize| match self.alpha.get(product) {
            Some(Some(alpha)) => Alpha::from(alpha),
            Some(None) => Alpha::from(host.alpha[product][0]),
            None => Alpha::default(),
        };
        let a = self.a.view();
        let operands = match &self.b {
            Weights::Prepared(weights) => Operands::prepared(host.m, a, weights, c),
            Weights::Given(b) => match &b[..] {
                [b1, b2] => Operands::dual_gemm(host.m, a, b1.view(), b2.view(), c),
                _ => Operands::gemm(host.m, a, b[0].view(), c),
            },
        };
        let operands = operands.alphas(alpha(0), alpha(1)).workspace(workspace.as_view_mut());
        match &self.offsets {
            Some(offsets) => operands.offsets(offsets.as_view()),
            None => operands,
        }
    }
}

enum DeviceMatrix {
    Nvfp4 { codes: CudaSlice<u8>, scales: CudaSlice<u8> },
    F16(CudaSlice<f16>),
    Bf16(CudaSlice<bf16>),
}

impl DeviceMatrix {
    fn upload(stream: &Arc<CudaStream>, host: &HostMatrix) -> Driven<Self> {
        Ok(match host {
            HostMatrix::Nvfp4 { codes, scales } => {
                Self::Nvfp4 { codes: stream.clone_htod(codes)?, scales: stream.clone_htod(scales)? }
            }
            HostMatrix::F16(values) => Self::F16(stream.clone_htod(values)?),
            HostMatrix::Bf16(values) => Self::Bf16(stream.clone_htod(values)?),
        })
    }

    fn view(&self) -> Matrix<'_> {
        match self {
            Self::Nvfp4 { codes, scales } => Matrix::nvfp4(codes, scales),
            Self::F16(values) => Matrix::f16(values),
            Self::Bf16(values) => Matrix::bf16(values),
        }
    }
}
