//! What a planned launch costs on the host, beside a bare one of the same kernel that has everything ready.
//!
//! A row of figures is printed: nanoseconds a call, the median of batches that the device has no trouble to keep up with.

use std::ffi::c_void;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUlaunchConfig, CUtensorMap};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, LaunchConfig};
use cudarc::nvrtc::Ptx;
use half::f16;
use warpsmith::cache::KernelCache;
use warpsmith::engine::{Engine, Plan};
use warpsmith::pick::Picker;
use warpsmith::run::{Matrix, MatrixMut, Operands, PreparedWeights, Workspace};
use warpsmith::spec::{Activation, Arch, Problem, Spec, Variant};
use warpsmith_tune::{HostOperands, Spread, wait};

use crate::bench::{Bench, text};

const WAIT: Duration = Duration::from_secs(10);
const M: u32 = 8;
const N: usize = 512;
const K: usize = 1024;
/// No clusters, one launch, one tensor map.
const VARIANT: &str = "wgmma.t8x32x256.s4.interleaved.ws4.direct";
/// Calls of a batch: the driver's queue holds more.
const CALLS: u32 = 200;
const BATCHES: usize = 300;
/// What a planned launch may cost beside a bare one.
const MORE_NS: f64 = 300.0;

/// As `Params` in `templates/common/base.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Params {
    a: u64,
    a_scales: u64,
    b: [u64; 2],
    b_scales: [u64; 2],
    alpha: [u64; 2],
    offsets: u64,
    c: u64,
    workspace: u64,
    decoded: u64,
    alpha_value: [f32; 2],
    alpha_step: [i32; 2],
    m: i32,
    product: i32,
}

struct Buffers {
    a: CudaSlice<f16>,
    weights: PreparedWeights,
    c: CudaSlice<f16>,
    workspace: Workspace,
}

impl Buffers {
    fn new(stream: &Arc<CudaStream>, plan: &Plan) -> Result<Self, String> {
        let host = HostOperands::random(plan.problem(), &[M], Spread::Every, 1);
        let prepared = host.prepare().map_err(text)?.ok_or("no prepared weights")?;
        Ok(Self {
            a: stream.alloc_zeros(M as usize * K).map_err(text)?,
            weights: PreparedWeights::from_host(stream, &prepared).map_err(text)?,
            c: stream.alloc_zeros(M as usize * N).map_err(text)?,
            workspace: plan.workspace(stream, M).map_err(text)?,
        })
    }

    fn operands(&mut self) -> Operands<'_> {
        let (a, c) = (Matrix::f16(&self.a), MatrixMut::f16(&mut self.c));
        Operands::prepared(M, a, &self.weights, c).workspace(&mut self.workspace)
    }

    fn params(&self, stream: &CudaStream) -> Params {
        let address = |pointer: (u64, cudarc::driver::SyncOnDrop<'_>)| pointer.0;
        let (a, c) = (address(self.a.device_ptr(stream)), address(self.c.device_ptr(stream)));
        let b = [address(self.weights.as_view().unwrap().device_ptr(stream)), 0];
        Params { a, b, c, alpha_value: [1.0; 2], m: M as i32, ..Params::default() }
    }
}

/// The tokens as src/run/tensor_map.rs describes them, for one width of [`M`] and a tile of 256 of K.
fn map_of(address: u64) -> Result<CUtensorMap, String> {
    use sys::{
        CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
    };
    let mut map = MaybeUninit::<CUtensorMap>::zeroed();
    let (extents, strides) = ([64, u64::from(M), K as u64 / 64], [2 * K as u64, 128]);
    // SAFETY: every pointer is to a live array of as many elements as a map of rank 3 takes.
    unsafe {
        sys::cuTensorMapEncodeTiled(
            map.as_mut_ptr(),
            CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            3,
            address as *mut c_void,
            extents.as_ptr(),
            strides.as_ptr(),
            [64, M, 4].as_ptr(),
            [1; 3].as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        .result()
        .map_err(text)?;
        Ok(map.assume_init())
    }
}

/// Nanoseconds a call: the median of batches of which all finish before the next begins.
fn timed(stream: &Arc<CudaStream>, mut call: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    let mut batches = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let start = Instant::now();
        (0..CALLS).try_for_each(|_| call())?;
        batches.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
        wait(stream, WAIT).map_err(text)?;
    }
    batches.sort_by(f64::total_cmp);
    Ok(batches[BATCHES / 2])
}

/// Prints what a launch costs in parts, and holds it to [`MORE_NS`] over a bare one. The two take turns, and the least
/// difference of three rounds counts: others use the host, too.
pub fn is_little_more_than_bare(bench: &Bench) -> Result<(), String> {
    if bench.arch().capability() != Arch::H200.capability() {
        return Ok(());
    }
    let _turn = bench.alone();
    let stream = &bench.stream;
    let problem = Problem::dual_gemm(Activation::Silu).n(N as u32).k(K as u32).prepared().m_up_to(M);
    let variant: Variant = VARIANT.parse().map_err(text)?;
    let spec = Spec::new(&problem, &variant, bench.arch()).map_err(text)?;
    let picker = Picker::builder(bench.device.name(), bench.arch()).pin(&problem, &variant).build().map_err(text)?;
    let cache = KernelCache::builder().install_if_missing().no_disk().build();
    let engine = Engine::with_cache_and_picker(&bench.device, cache, picker);
    let plan = engine.plan(&problem).map_err(text)?;
    let kernel = Arc::clone(plan.kernel(M).map_err(text)?);
    let mut buffers = Buffers::new(stream, &plan)?;

    let pass = spec.passes(M).next().ok_or("no launch")?;
    let image = kernel.cubin().image().to_vec();
    let module = bench.device.context().load_module(Ptx::from_binary(image)).map_err(text)?;
    let function = module.load_function(&spec.symbol()).map_err(text)?;
    let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    function.set_attribute(attribute, pass.shared_bytes as i32).map_err(text)?;
    let mut params = buffers.params(stream);
    let mut map = map_of(params.a)?;
    let mut arguments = [(&raw mut params).cast::<c_void>(), (&raw mut map).cast::<c_void>()];
    let [x, y, z] = pass.grid;
    let config = CUlaunchConfig {
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: pass.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: pass.shared_bytes,
        hStream: stream.cu_stream(),
        attrs: std::ptr::null_mut(),
        numAttrs: 0,
    };
    let plain =
        LaunchConfig { grid_dim: (x, y, z), block_dim: (pass.threads, 1, 1), shared_mem_bytes: pass.shared_bytes };
    let (handle, queue) = (function.cu_function(), stream.cu_stream());

    let mut rounds = Vec::new();
    for _ in 0..3 {
        // SAFETY: as the crate's own launch of this kernel; its operands live as long as `buffers`.
        let bare = timed(stream, || unsafe {
            sys::cuLaunchKernelEx(&raw const config, handle, arguments.as_mut_ptr(), std::ptr::null_mut())
                .result()
                .map_err(text)
        })?;
        let planned = timed(stream, || plan.launch(stream, buffers.operands()).map_err(text))?;
        rounds.push((bare, planned));
    }
    // SAFETY: as above.
    let bare_plain = timed(stream, || unsafe {
        let (grid, block, shared) = (plain.grid_dim, plain.block_dim, plain.shared_mem_bytes);
        cudarc::driver::result::launch_kernel(handle, grid, block, shared, queue, &mut arguments).map_err(text)
    })?;
    let direct = timed(stream, || kernel.launch(stream, buffers.operands()).map_err(text))?;
    let dependent = timed(stream, || plan.launch_dependent(stream, buffers.operands()).map_err(text))?;
    let bound = plan.bind(stream, &buffers.operands()).map_err(text)?;
    let bound = timed(stream, || bound.launch(stream, buffers.operands()).map_err(text))?;
    let encode = timed(stream, || {
        map_of(black_box(params.a)).map(|map| {
            black_box(map);
        })
    })?;
    let capturing = timed(stream, || {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: `status` is a valid place for a status.
        unsafe { sys::cuStreamIsCapturing(queue, &raw mut status) }.result().map_err(text)
    })?;
    let current = timed(stream, || cudarc::driver::result::ctx::get_current().map(drop).map_err(text))?;
    let warm = timed(stream, || engine.kernel(black_box(&problem), M).map(drop).map_err(text))?;

    let least = rounds.iter().map(|(bare, planned)| planned - bare).fold(f64::INFINITY, f64::min);
    println!(
        "dispatch, ns a call: bare cuLaunchKernelEx and plan.launch in turn {rounds:.0?}, bare cuLaunchKernel \
         {bare_plain:.0}, kernel.launch {direct:.0}, plan.launch_dependent {dependent:.0}, bound.launch {bound:.0}, \
         cuTensorMapEncodeTiled {encode:.0}, cuStreamIsCapturing {capturing:.0}, cuCtxGetCurrent {current:.0}, engine.kernel {warm:.0}"
    );
    if least <= MORE_NS {
        Ok(())
    } else {
        Err(format!("a planned launch takes {least:.0} ns more than a bare one, {MORE_NS} at most"))
    }
}
