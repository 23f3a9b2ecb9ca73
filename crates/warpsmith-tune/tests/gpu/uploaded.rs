//! Operands on the device, from those on the host, and kernels with theirs.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use half::{bf16, f16};
use warpsmith::format::Format;
use warpsmith::run::{Kernel, Matrix, MatrixMut, Operands, PreparedWeights};
use warpsmith::spec::{Arch, MatrixPath, Operation, Problem, Spec, Variant};
use warpsmith_tune::gate::Guarded;
use warpsmith_tune::{HostMatrix, HostOperands, Spread, wait};

use crate::bench::{Bench, text};

const ALPHAS: [f32; 2] = [0.01, 0.02];
const WAIT: std::time::Duration = std::time::Duration::from_secs(10);

/// The kernel of a variant, for prepared weights if that is what its path takes; `None` where there is no such path.
pub fn kernel(bench: &Bench, problem: Problem, variant: &str) -> Result<Option<Arc<Kernel>>, String> {
    let variant: Variant = variant.parse().map_err(text)?;
    let is_wgmma = variant.path == MatrixPath::Wgmma;
    if is_wgmma && bench.arch().capability() != Arch::H200.capability() {
        return Ok(None);
    }
    let problem = if is_wgmma { problem.prepared() } else { problem };
    bench.kernel(&Spec::new(&problem, &variant, bench.arch()).map_err(text)?).map(Some)
}

pub enum DeviceMatrix {
    Nvfp4(CudaSlice<u8>, CudaSlice<u8>),
    Mxfp4(CudaSlice<u8>, CudaSlice<u8>),
    E4m3(CudaSlice<u8>, CudaSlice<f32>),
    F16(CudaSlice<f16>),
    Bf16(CudaSlice<bf16>),
}

impl DeviceMatrix {
    pub fn upload(stream: &Arc<CudaStream>, matrix: &HostMatrix) -> Result<Self, String> {
        Ok(match matrix {
            HostMatrix::Nvfp4 { codes, scales } => {
                let [codes, scales] = [codes, scales].map(|bytes| stream.clone_htod(bytes).map_err(text));
                DeviceMatrix::Nvfp4(codes?, scales?)
            }
            HostMatrix::Mxfp4 { codes, scales } => {
                let [codes, scales] = [codes, scales].map(|bytes| stream.clone_htod(bytes).map_err(text));
                DeviceMatrix::Mxfp4(codes?, scales?)
            }
            HostMatrix::E4m3 { values, factors } => {
                DeviceMatrix::E4m3(stream.clone_htod(values).map_err(text)?, stream.clone_htod(factors).map_err(text)?)
            }
            HostMatrix::F16(values) => DeviceMatrix::F16(stream.clone_htod(values).map_err(text)?),
            HostMatrix::Bf16(values) => DeviceMatrix::Bf16(stream.clone_htod(values).map_err(text)?),
        })
    }

    fn matrix(&self) -> Matrix<'_> {
        match self {
            DeviceMatrix::Nvfp4(codes, scales) => Matrix::nvfp4(codes, scales),
            DeviceMatrix::Mxfp4(codes, scales) => Matrix::mxfp4(codes, scales),
            DeviceMatrix::E4m3(values, factors) => Matrix::e4m3(values, factors),
            DeviceMatrix::F16(values) => Matrix::f16(values),
            DeviceMatrix::Bf16(values) => Matrix::bf16(values),
        }
    }
}

pub enum Weights {
    Given(Vec<DeviceMatrix>),
    Prepared(PreparedWeights),
}

impl Weights {
    pub fn upload(stream: &Arc<CudaStream>, host: &HostOperands) -> Result<Self, String> {
        Ok(match host.prepare().map_err(text)? {
            Some(prepared) => Weights::Prepared(PreparedWeights::from_host(stream, &prepared).map_err(text)?),
            None => {
                let given = host.b.iter().map(|b| DeviceMatrix::upload(stream, b)).collect::<Result<_, _>>();
                Weights::Given(given?)
            }
        })
    }

    /// With `m` rows of `a`, for a problem that does `operation`.
    pub fn operands<'a>(&'a self, operation: Operation, m: u32, a: &'a DeviceMatrix, c: MatrixMut<'a>) -> Operands<'a> {
        match (self, operation) {
            (Weights::Prepared(weights), _) => Operands::prepared(m, a.matrix(), weights, c),
            (Weights::Given(b), Operation::Gemm(_)) => Operands::gemm(m, a.matrix(), b[0].matrix(), c),
            (Weights::Given(b), _) => Operands::dual_gemm(m, a.matrix(), b[0].matrix(), b[1].matrix(), c),
        }
    }
}

/// Operands of a dual GEMM but for C.
pub struct Uploaded {
    operation: Operation,
    pub a: DeviceMatrix,
    /// Of the first product, and of the second.
    pub alphas: [CudaSlice<f32>; 2],
    weights: Weights,
}

impl Uploaded {
    pub fn new(bench: &Bench, host: &HostOperands) -> Result<Self, String> {
        let a = DeviceMatrix::upload(&bench.stream, &host.a)?;
        let [first, second] = ALPHAS.map(|alpha| bench.stream.clone_htod(&[alpha]).map_err(text));
        let weights = Weights::upload(&bench.stream, host)?;
        Ok(Self { operation: host.problem.operation(), a, alphas: [first?, second?], weights })
    }

    pub fn operands<'a>(&'a self, m: u32, c: MatrixMut<'a>) -> Operands<'a> {
        let [first, second] = &self.alphas;
        self.weights.operands(self.operation, m, &self.a, c).alphas(first, second)
    }
}

/// A kernel of a dual GEMM with its operands, and what it wrote when it was launched plainly and alone.
pub struct Call {
    pub kernel: Arc<Kernel>,
    m: u32,
    pub uploaded: Uploaded,
    pub offsets: Option<CudaSlice<i32>>,
    workspace: CudaSlice<u8>,
    guarded: Guarded,
    buffer: CudaSlice<u8>,
    pub first: Vec<u8>,
}

impl Call {
    /// Launches once and judges the result.
    pub fn new(bench: &Bench, kernel: Arc<Kernel>, rows: &[u32]) -> Result<Self, String> {
        let stream = &bench.stream;
        let problem = *kernel.spec().problem();
        let mut host = HostOperands::random(&problem, rows, Spread::Every, 5);
        host.alpha = ALPHAS.map(|alpha| vec![alpha]).to_vec();
        let guarded = Guarded::new(host.m as usize, problem.columns() as usize, Format::F16).map_err(text)?;
        let mut call = Self {
            m: host.m,
            uploaded: Uploaded::new(bench, &host)?,
            offsets: host.offsets.as_ref().map(|ends| stream.clone_htod(ends)).transpose().map_err(text)?,
            workspace: stream.alloc_zeros(kernel.spec().workspace_bytes(host.m).max(1) as usize).map_err(text)?,
            buffer: stream.clone_htod(&guarded.fill()).map_err(text)?,
            kernel,
            guarded,
            first: Vec::new(),
        };
        call.launch(bench, Kernel::launch)?;
        call.first = call.found(bench)?;
        let reference = host.reference().map_err(text)?;
        let verdict = call.guarded.judge(&call.first, &reference).map_err(text)?;
        if verdict.passed() { Ok(call) } else { Err(format!("{}: {verdict}", call.kernel.spec())) }
    }

    /// As it was before the first launch.
    pub fn clear_result(&mut self, bench: &Bench) -> Result<(), String> {
        bench.stream.memcpy_htod(&self.guarded.fill(), &mut self.buffer).map_err(text)
    }

    /// NaN in every format.
    pub fn poison_workspace(&mut self, bench: &Bench) -> Result<(), String> {
        let nans = vec![0xFFu8; self.workspace.len()];
        bench.stream.memcpy_htod(&nans, &mut self.workspace).map_err(text)
    }

    pub fn launch(
        &mut self,
        bench: &Bench,
        launch: fn(&Kernel, &CudaStream, Operands<'_>) -> warpsmith::Result<()>,
    ) -> Result<(), String> {
        let mut view = self.buffer.slice_mut(self.guarded.result());
        let c = MatrixMut::from_bytes(Format::F16, &mut view).map_err(text)?;
        let operands = self.uploaded.operands(self.m, c).workspace(&mut self.workspace);
        let operands = match &self.offsets {
            Some(offsets) => operands.offsets(offsets.as_view()),
            None => operands,
        };
        launch(&self.kernel, &bench.stream, operands).map_err(text)
    }

    pub fn found(&self, bench: &Bench) -> Result<Vec<u8>, String> {
        wait(&bench.stream, WAIT).map_err(text)?;
        bench.stream.clone_dtoh(&self.buffer).map_err(text)
    }
}
