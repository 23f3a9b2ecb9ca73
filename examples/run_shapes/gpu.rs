//! The device's part: upload, launch into poisoned and guarded memory, compare every element, and only then time.

use std::process;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaSlice, CudaStream, CudaViewMut};
use half::{bf16, f16};
use warpsmith::cache::Forge;
use warpsmith::engine::Engine;
use warpsmith::oracle::Reference;
use warpsmith::pick::Choice;
use warpsmith::run::{Alpha, Device, Kernel, Matrix, MatrixMut, Operands, Timer, Timing, operand_sets, wait};
use warpsmith::tune::gate::{Guarded, Verdict};

use crate::Result;
use crate::operands::{HostMatrix, HostOperands};

/// No launch here takes longer; a kernel that hangs ends the run.
const LIMIT: Duration = Duration::from_secs(20);

/// A device with an engine and a stream of its own.
pub struct Gpu {
    engine: Engine,
    stream: Arc<CudaStream>,
}

/// What came of a kernel.
pub struct Measured {
    /// What the gate says.
    pub verdict: Verdict,
    /// Microseconds per call; none if the gate did not pass it.
    pub timing: Option<Timing>,
    /// The result `[m, N]`, as bytes of its format.
    pub c: Vec<u8>,
}

impl Gpu {
    /// An engine on a device.
    pub fn new(device: &Device, forge: Forge) -> Result<Self> {
        // SAFETY: this program uses one stream for everything, so no buffer is shared between streams or released
        // while another stream uses it. (Timing captures graphs, which event tracking would break.)
        unsafe { device.context().disable_event_tracking() };
        Ok(Self { engine: Engine::with_forge(device, forge), stream: device.context().new_stream()? })
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Uploads operands for any number of kernels.
    pub fn session<'a>(&'a self, operands: &'a HostOperands, reference: &'a Reference) -> Result<Session<'a>> {
        let first = Set::upload(&self.stream, operands)?;
        let guarded = Guarded::fitting(reference)?;
        Ok(Session { gpu: self, operands, reference, guarded, sets: vec![first] })
    }
}

/// Operands on the device, with what their results should be.
pub struct Session<'a> {
    gpu: &'a Gpu,
    operands: &'a HostOperands,
    reference: &'a Reference,
    guarded: Guarded,
    /// The first is checked; the others, made when something is timed, hold the same numbers.
    sets: Vec<Set>,
}

impl Session<'_> {
    /// Loads, checks and, if it is right, times a kernel.
    pub fn measure(&mut self, choice: &Choice) -> Result<Measured> {
        let selected = self.gpu.engine.kernel_for(choice.clone())?;
        let kernel = selected.kernel();
        let stream = &self.gpu.stream;
        // Partial sums that are read before they are written show up as NaN.
        let workspace_bytes = kernel.spec().workspace_bytes(self.operands.m) as usize;
        let mut workspace = stream.clone_htod(&vec![0xFFu8; workspace_bytes.max(16)])?;

        let mut c = stream.clone_htod(&self.guarded.fill())?;
        let range = self.guarded.result();
        let first = &self.sets[0];
        launch(kernel, stream, self.operands, first, &mut c.slice_mut(range.clone()), &mut workspace)?;
        finish(stream, choice);
        let found = stream.clone_dtoh(&c)?;
        finish(stream, choice);
        let verdict = self.guarded.judge(&found, self.reference)?;
        let timing = if verdict.passed() { Some(self.time(kernel, &mut workspace)?) } else { None };
        Ok(Measured { verdict, timing, c: found[range].to_vec() })
    }

    fn time(&mut self, kernel: &Kernel, workspace: &mut CudaSlice<u8>) -> Result<Timing> {
        let stream = &self.gpu.stream;
        let problem = &self.operands.problem;
        let bytes = problem.bytes(self.operands.m.into()) as u64;
        let needed = operand_sets(bytes, self.gpu.engine.device().arch().l2_bytes());
        while self.sets.len() < needed {
            let another = self.sets[0].duplicate(stream)?;
            self.sets.push(another);
        }
        let mut results = (0..needed)
            .map(|_| stream.alloc_zeros::<u8>(self.guarded.result().len()))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let (sets, operands) = (&self.sets, self.operands);
        let timer = Timer::new(stream)?.limit(LIMIT);
        Ok(timer.time(needed, |set| {
            launch(kernel, stream, operands, &sets[set], &mut results[set].as_view_mut(), workspace)
        })?)
    }
}

fn launch(
    kernel: &Kernel,
    stream: &CudaStream,
    host: &HostOperands,
    set: &Set,
    c: &mut CudaViewMut<'_, u8>,
    workspace: &mut CudaSlice<u8>,
) -> warpsmith::Result<()> {
    let c = MatrixMut::from_bytes(host.problem.c_format(), c)?;
    let operands = match &set.b[..] {
        [b1, b2] => Operands::dual_gemm(host.m, set.a.view(), b1.view(), b2.view(), c)
            .alphas(set.alpha(host, 0), set.alpha(host, 1)),
        _ => Operands::gemm(host.m, set.a.view(), set.b[0].view(), c).alpha(set.alpha(host, 0)),
    };
    let operands = operands.workspace(workspace.as_view_mut());
    let operands = match &set.offsets {
        Some(offsets) => operands.offsets(offsets.as_view()),
        None => operands,
    };
    kernel.launch(stream, operands)
}

/// Waits for the stream. A kernel that hangs, or that broke the context, leaves nothing to go on with, not even the
/// release of memory: the process ends here.
fn finish(stream: &CudaStream, choice: &Choice) {
    if let Err(error) = wait(stream, LIMIT) {
        eprintln!("error: {}: {error}", choice.spec().name());
        process::exit(3);
    }
}

/// One set of operands on the device.
struct Set {
    a: DeviceMatrix,
    b: Vec<DeviceMatrix>,
    /// Those that differ by group.
    alpha: Vec<Option<CudaSlice<f32>>>,
    offsets: Option<CudaSlice<i32>>,
}

impl Set {
    fn upload(stream: &Arc<CudaStream>, host: &HostOperands) -> Result<Self> {
        let alpha = host.alpha.iter().map(|alpha| match &alpha[..] {
            [_] => Ok(None),
            _ => stream.clone_htod(alpha).map(Some),
        });
        Ok(Self {
            a: DeviceMatrix::upload(stream, &host.a)?,
            b: host.b.iter().map(|b| DeviceMatrix::upload(stream, b)).collect::<Result<_>>()?,
            alpha: alpha.collect::<std::result::Result<_, _>>()?,
            offsets: host.offsets.as_ref().map(|offsets| stream.clone_htod(offsets)).transpose()?,
        })
    }

    fn duplicate(&self, stream: &Arc<CudaStream>) -> Result<Self> {
        let copy = |alpha: &Option<CudaSlice<f32>>| alpha.as_ref().map(|alpha| stream.clone_dtod(alpha)).transpose();
        Ok(Self {
            a: self.a.duplicate(stream)?,
            b: self.b.iter().map(|b| b.duplicate(stream)).collect::<Result<_>>()?,
            alpha: self.alpha.iter().map(copy).collect::<std::result::Result<_, _>>()?,
            offsets: self.offsets.as_ref().map(|offsets| stream.clone_dtod(offsets)).transpose()?,
        })
    }

    fn alpha(&self, host: &HostOperands, product: usize) -> Alpha<'_> {
        match &self.alpha[product] {
            Some(alpha) => alpha.into(),
            None => host.alpha[product][0].into(),
        }
    }
}

enum DeviceMatrix {
    Nvfp4 { codes: CudaSlice<u8>, scales: CudaSlice<u8> },
    F16(CudaSlice<f16>),
    Bf16(CudaSlice<bf16>),
}

impl DeviceMatrix {
    fn upload(stream: &Arc<CudaStream>, host: &HostMatrix) -> Result<Self> {
        Ok(match host {
            HostMatrix::Nvfp4 { codes, scales } => {
                Self::Nvfp4 { codes: stream.clone_htod(codes)?, scales: stream.clone_htod(scales)? }
            }
            HostMatrix::F16(values) => Self::F16(stream.clone_htod(values)?),
            HostMatrix::Bf16(values) => Self::Bf16(stream.clone_htod(values)?),
        })
    }

    fn duplicate(&self, stream: &Arc<CudaStream>) -> Result<Self> {
        Ok(match self {
            Self::Nvfp4 { codes, scales } => {
                Self::Nvfp4 { codes: stream.clone_dtod(codes)?, scales: stream.clone_dtod(scales)? }
            }
            Self::F16(values) => Self::F16(stream.clone_dtod(values)?),
            Self::Bf16(values) => Self::Bf16(stream.clone_dtod(values)?),
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
