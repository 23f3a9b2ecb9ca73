//! An engine over a driver without a device, weights, and operands.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaSlice, CudaStream};
use half::bf16;
use warpsmith::cache::KernelCache;
use warpsmith::engine::{Engine, Plan};
use warpsmith::internal::build::Source;
use warpsmith::run::Device;
use warpsmith::spec::Spec;
use warpsmith_layers::{LayerOperands, MlpWeights, Moe, MoeConfig, MoeWeights, Quantised};
use warpsmith_testing::null::Null;

pub const MOE: &str = "moe.silu:bf16:h256:i96:softmax:e8:k2:renormalised:shared64:residual";
pub const MOE_E4M3: &str = "moe.silu:bf16:h256:i96:softmax:e8:k2:renormalised:shared64:e4m3:residual";
pub const MOE_NVFP4: &str = "moe.silu:bf16:h256:i96:softmax:e8:k2:renormalised:shared64:nvfp4:residual";
pub const HIDDEN: usize = 256;
pub const EXPERTS: usize = 8;
pub const K: usize = 2;
pub const TOKENS: u32 = 4500;

/// One kernel in the place of all matrix kernels: this driver finds whatever it is asked for.
pub fn small(_: &Spec) -> warpsmith::Result<Source> {
    Ok(Source::new("small", "extern \"C\" __global__ void small(int* x) { *x = 1; }\n", &[], ["small"]))
}

/// The null driver's counters are for the whole process, so tests take turns.
pub struct Bench {
    pub null: &'static Null,
    pub engine: Engine,
    pub stream: Arc<CudaStream>,
    _turn: MutexGuard<'static, ()>,
}

impl Bench {
    pub fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let null = Null::driver();
        let device = Device::open(0).unwrap();
        // SAFETY: nothing runs.
        unsafe { device.context().disable_event_tracking() };
        let stream = device.context().new_stream().unwrap();
        let disk = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layers");
        // SAFETY: the null driver runs nothing.
        let cache = unsafe { KernelCache::builder().install_if_missing().render(small) }.disk(disk).build();
        Self { null, engine: Engine::with_cache(&device, cache), stream, _turn: turn }
    }

    pub fn quantised(&self, rows: usize, k: usize) -> Quantised {
        let zeros = |bytes| self.stream.alloc_zeros(bytes).unwrap();
        Quantised::new(zeros(rows * k / 2), zeros(rows * k / 16))
    }

    pub fn mlp_weights(&self, groups: usize, hidden: usize, intermediate: usize) -> MlpWeights {
        let first = || self.quantised(groups * intermediate, hidden);
        MlpWeights::gated(first(), first(), self.quantised(groups * hidden, intermediate))
    }

    pub fn moe(&self) -> Moe {
        self.moe_of(MOE)
    }

    pub fn moe_of(&self, spelling: &str) -> Moe {
        let config: MoeConfig = spelling.parse().unwrap();
        let weights = MoeWeights::new(self.mlp_weights(EXPERTS, HIDDEN, 96));
        let weights = match config.shared_expert() {
            Some(_) => weights.shared(self.mlp_weights(1, HIDDEN, 64)),
            None => weights,
        };
        let weights = weights.scale(2.5);
        Moe::new(&self.engine, &self.stream, &config, weights, TOKENS).unwrap()
    }
}

/// Operands of `TOKENS` tokens.
pub struct Buffers {
    pub x: CudaSlice<bf16>,
    pub logits: CudaSlice<f32>,
    pub residual: CudaSlice<bf16>,
    pub out: CudaSlice<bf16>,
    pub workspace: CudaSlice<u8>,
}

impl Buffers {
    pub fn new(stream: &Arc<CudaStream>, bytes: u64) -> Self {
        let tokens = TOKENS as usize;
        Self {
            x: stream.alloc_zeros(tokens * HIDDEN).unwrap(),
            logits: stream.alloc_zeros(tokens * EXPERTS).unwrap(),
            residual: stream.alloc_zeros(tokens * HIDDEN).unwrap(),
            out: stream.alloc_zeros(tokens * HIDDEN).unwrap(),
            workspace: stream.alloc_zeros(bytes as usize).unwrap(),
        }
    }

    pub fn operands(&mut self, tokens: u32) -> LayerOperands<'_> {
        LayerOperands::new(tokens, &self.x, &mut self.out, &mut self.workspace).residual(&self.residual)
    }
}

pub fn passes(plan: &Plan, m: u32) -> u64 {
    plan.kernel(m).unwrap().spec().passes(m).count() as u64
}
