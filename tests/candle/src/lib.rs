//! The first half of a SwiGLU MLP as a layer of candle's: silu(x·gateᵀ) ⊙ (x·upᵀ) with NVFP4 weights, in one kernel.
//!
//! warpsmith works in the context and stream that candle has, on candle's tensors, and what it computes is a tensor. It is
//! only checked: `tests/candle/check` links and runs nothing.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::cuda::CudaStorageSlice;
use candle_core::{CpuStorage, CudaDevice, CudaStorage, CustomOp1, Error, Layout, Module, Result, Shape};
use candle_core::{Storage, Tensor};
use half::bf16;
use warpsmith::cudarc::driver::{CudaSlice, CudaStream};
use warpsmith::engine::{Engine, Plan};
use warpsmith::run::{Device, Operands, Weights, Workspace};
use warpsmith::spec::{Activation, Problem};

/// Weights of one linear layer as a checkpoint has them.
#[derive(Clone, Debug)]
pub struct Nvfp4 {
    /// Two e2m1 codes a byte, U8 `[N, K/2]`.
    pub codes: Tensor,
    /// A scale for 16 codes, F8E4M3 `[N, K/16]`.
    pub scales: Tensor,
    /// The factor of the whole tensor (`weight_scale_2`).
    pub factor: f32,
}

/// silu(x·gateᵀ) ⊙ (x·upᵀ) for bf16 x `[…, K]` on one device: the result is bf16 `[…, N]`.
#[derive(Debug)]
pub struct SwiGlu {
    plan: Plan,
    weights: Weights<'static>,
    factors: [f32; 2],
    /// Of the device's stream. An operation has `&self`, and launches may come from any thread.
    workspace: Mutex<Workspace>,
}

/// An engine in the context of a device of candle's: one for all layers.
///
/// # Errors
/// If no kernels are written for the device.
pub fn engine(device: &CudaDevice) -> Result<Engine> {
    Device::of_context(stream(device).context()).map(|device| Engine::new(&device)).map_err(failed)
}

impl SwiGlu {
    /// Kernels and weights for up to `rows` rows. The weights are copied: the tensors may be dropped.
    ///
    /// # Errors
    /// If a tensor is not on a GPU, is not contiguous, or is of another type or size; those of the engine and the plan.
    pub fn new(engine: &Engine, device: &CudaDevice, gate: &Nvfp4, up: &Nvfp4, rows: u32) -> Result<Self> {
        let (n, half_k) = gate.codes.dims2()?;
        let dimension = |size: usize| u32::try_from(size).map_err(Error::wrap);
        let stream = stream(device);
        let problem = Problem::dual_gemm(Activation::Silu).n(dimension(n)?).k(dimension(2 * half_k)?);
        let problem = engine.native(&problem.bf16().m_up_to(rows));
        let b = [gate.copied(&stream)?, up.copied(&stream)?];
        let weights = engine.weights(&stream, &problem, b).map_err(failed)?;
        let plan = engine.plan(&problem).map_err(failed)?;
        let workspace = Mutex::new(plan.workspace(&stream, rows).map_err(failed)?);
        Ok(Self { plan, weights, factors: [gate.factor, up.factor], workspace })
    }
}

impl CustomOp1 for SwiGlu {
    fn name(&self) -> &'static str {
        "warpsmith-swiglu"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        candle_core::bail!("{} runs on CUDA devices only", self.name())
    }

    fn cuda_fwd(&self, x: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let problem = self.plan.problem();
        let [n, k] = [problem.columns(), problem.depth()].map(|size| size as usize);
        let (from, to) = layout.contiguous_offsets().ok_or(Error::RequiresContiguous { op: self.name() })?;
        let a = x.as_cuda_slice::<bf16>()?.slice(from..to);
        let rows = (to - from) / k;
        let m = u32::try_from(rows).map_err(Error::wrap)?;
        let mut dims = layout.dims().to_vec();
        match dims.last_mut() {
            Some(last) if *last == k => *last = n,
            _ => {
                let (expected, got) = (Shape::from((rows, k)), layout.shape().clone());
                return Err(Error::UnexpectedShape { msg: format!("x of {}", self.name()), expected, got });
            }
        }
        // SAFETY: the launch writes every element.
        let mut c = unsafe { x.device.alloc::<bf16>(rows * n) }?;
        // What is in a workspace means nothing, so a launch that panicked leaves nothing wrong there.
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let [gate, up] = self.factors;
        let operands = Operands::new(m, a, &self.weights, &mut c).alphas(gate, up).workspace(&mut *workspace);
        self.plan.launch(&stream(&x.device), operands).map_err(failed)?;
        Ok((CudaStorage::wrap_cuda_slice(c, x.device.clone()), Shape::from(dims)))
    }
}

impl Module for SwiGlu {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.apply_op1_no_bwd(self)
    }
}

impl Nvfp4 {
    /// Codes and scales in memory that can be given away, which a tensor's cannot.
    fn copied(&self, stream: &Arc<CudaStream>) -> Result<(CudaSlice<u8>, CudaSlice<u8>)> {
        let copied = |tensor: &Tensor, name| {
            let (storage, layout) = tensor.storage_and_layout();
            let (from, to) = layout.contiguous_offsets().ok_or(Error::RequiresContiguous { op: name })?;
            let Storage::Cuda(storage) = &*storage else { candle_core::bail!("{name} are not on a CUDA device") };
            match &storage.slice {
                CudaStorageSlice::U8(bytes) => stream.clone_dtod(&bytes.slice(from..to)).map_err(Error::wrap),
                CudaStorageSlice::F8E4M3(scales) => {
                    // SAFETY: a scale is one byte, and every byte is a u8.
                    let bytes = unsafe { scales.slice(from..to).transmute::<u8>(to - from) };
                    let bytes = bytes.ok_or_else(|| Error::msg("less memory than the layout says"))?;
                    stream.clone_dtod(&bytes).map_err(Error::wrap)
                }
                _ => Err(Error::UnsupportedDTypeForOp(tensor.dtype(), name)),
            }
        };
        Ok((copied(&self.codes, "codes")?, copied(&self.scales, "scales")?))
    }
}

/// The device's stream: candle's cudarc is warpsmith's, so its types are the same.
fn stream(device: &CudaDevice) -> Arc<CudaStream> {
    device.cuda_stream()
}

/// As an error of candle's, in which `downcast_ref::<warpsmith::Error>()` finds the other.
fn failed(error: warpsmith::Error) -> Error {
    Error::Cuda(Box::new(error))
}

/// What an engine asks of a layer.
const _: fn() = || {
    fn layer<T: Module + Send + Sync + 'static>() {}
    layer::<SwiGlu>();
};
