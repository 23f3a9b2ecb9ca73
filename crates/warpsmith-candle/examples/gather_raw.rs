//! `gather_forward_raw` of mistral.rs (see `gather.rs`) by raw handles: for a candle of another revision, whose types are others.
//!
//! A context, a stream and addresses come in. Two kernels are launched: a router, which sorts slots by their expert on the device,
//! and one grouped product, which reads each row of x where it lies and puts each row of the result where it belongs. Nothing is copied,
//! allocated or waited for, so a graph may capture it.
//!
//! ```text
//! cargo run --release --example gather_raw      # with a GPU
//! cargo test --example gather_raw               # without one
//! ```

#![allow(clippy::print_stdout)]

use std::error::Error;

use warpsmith_candle::warpsmith::Result;
use warpsmith_candle::warpsmith::engine::{Engine, Plan};
use warpsmith_candle::warpsmith::half::bf16;
use warpsmith_candle::warpsmith::run::{
    Device, Matrix, MatrixMut, Memory, MemoryMut, Operands, OwnedMemory, Owner, RawStream, RouteOperands, Router,
    Weights,
};
use warpsmith_candle::warpsmith::spec::{Problem, Route, Scoring};

/// The sizes of experts' products, bf16.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// E.
    pub experts: u32,
    /// Experts of a token.
    pub k: u32,
    /// N.
    pub columns: u32,
    /// K.
    pub inputs: u32,
    /// The most tokens of a call.
    pub limit: u32,
}

/// Addresses of weights, with what keeps them allocated.
#[derive(Clone, Debug)]
pub struct Parts {
    /// U8 `[E, N, K/2]`.
    pub weight: u64,
    /// e4m3 `[E, N, K/16]`.
    pub scales: u64,
    /// f32 `[E, N]`.
    pub factors: u64,
    /// A tensor, an `Arc` of all three, …
    pub owner: Owner,
}

/// Addresses of a call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Rows of x.
    pub tokens: u32,
    /// Whether x is `[tokens, k, K]`, and not `[tokens, K]`.
    pub has_slots: bool,
    /// bf16.
    pub x: u64,
    /// U32 `[tokens, k]`.
    pub indices: u64,
    /// bf16 `[tokens, k, N]`.
    pub out: u64,
    /// [`Gathered::workspace_bytes`] at a multiple of 256.
    pub workspace: u64,
}

/// Experts of one product.
pub struct Gathered {
    sizes: Sizes,
    route: Route,
    router: Router,
    plan: Plan,
    weights: Weights<'static>,
    factors: u64,
    owner: Owner,
}

impl Gathered {
    /// Kernels and weights, which are repacked where that is what kernels take.
    ///
    /// # Safety
    /// The parts are of the engine's device, and so large; what wrote them is before this in the stream. Nobody writes them later.
    ///
    /// # Errors
    /// Those of [`Engine::plan`], [`Engine::route`] and [`Engine::weights`].
    pub unsafe fn new(engine: &Engine, stream: &RawStream, sizes: Sizes, parts: &Parts) -> Result<Self> {
        let Sizes { experts, k, columns, inputs, limit } = sizes;
        let problem = Problem::gemm().n(columns).k(inputs).bf16().grouped(experts).experts_per_token(k);
        let problem = engine.native(&problem.row_scale().gathered().slots().m_up_to(limit * k));
        let values = experts as usize * columns as usize * inputs as usize;
        // SAFETY: the caller's promise; the owner keeps them.
        let memory = |address, bytes| unsafe {
            OwnedMemory::<u8>::from_raw(engine.device(), address, bytes, Some(parts.owner.clone()))
        };
        let given = (memory(parts.weight, values / 2), memory(parts.scales, values / 16));
        let route = Route::new(Scoring::Given).experts(experts).k(k);
        Ok(Self {
            sizes,
            route,
            router: engine.route(&route)?,
            plan: engine.plan(&problem)?,
            weights: engine.weights(stream.cudarc(), &problem, [given])?,
            factors: parts.factors,
            owner: parts.owner.clone(),
        })
    }

    /// What a call of up to so many tokens needs.
    #[must_use]
    pub fn workspace_bytes(&self, tokens: u32) -> u64 {
        let kernels = self.router.workspace_bytes(tokens).max(self.plan.workspace_bytes(tokens * self.sizes.k));
        self.lists_bytes(tokens) + kernels.next_multiple_of(256)
    }

    fn lists_bytes(&self, tokens: u32) -> u64 {
        (4 * self.route.lists(tokens).len() as u64).next_multiple_of(256)
    }

    /// Puts the product into the stream.
    ///
    /// # Safety
    /// As for [`Memory::from_raw`] and [`MemoryMut::from_raw`], of all addresses.
    ///
    /// # Errors
    /// Those of [`Router::launch`] and [`Plan::launch_dependent`].
    pub unsafe fn gather_forward_raw(&self, stream: &RawStream, call: Call) -> Result<()> {
        let Sizes { experts, k, columns, inputs, .. } = self.sizes;
        let Call { tokens, has_slots, x, indices, out, workspace } = call;
        let (slots, n) = ((tokens * k) as usize, columns as usize);
        let rows_of_x = if has_slots { slots } else { tokens as usize };
        let bytes = [self.lists_bytes(tokens), self.workspace_bytes(tokens)].map(|bytes| bytes as usize);
        // SAFETY: the caller's promise.
        let (ids, x, out, factors, mut lists, mut kernels) = unsafe {
            (
                // Of U32 those from 2³¹ on are no experts'.
                Memory::<i32>::from_raw(indices, slots),
                Memory::<bf16>::from_raw(x, rows_of_x * inputs as usize),
                MemoryMut::<bf16>::from_raw(out, slots * n),
                Memory::<f32>::from_raw(self.factors, experts as usize * n).owner(&self.owner),
                MemoryMut::<i32>::from_raw(workspace, bytes[0] / 4),
                MemoryMut::<u8>::from_raw(workspace + bytes[0] as u64, bytes[1] - bytes[0]),
            )
        };
        let whole = 0..bytes[1] - bytes[0];
        if let (Some(lists), Some(kernels)) = (lists.part(0..bytes[0] / 4), kernels.part(whole)) {
            self.router.launch(stream, RouteOperands::given(tokens, ids, lists).workspace(kernels))?;
        }
        let places = self.route.lists(tokens);
        let list = |range| lists.as_memory().part(range);
        let from = if has_slots { places.slots.clone() } else { places.rows };
        if let (Some(rows), Some(slots_of), Some(offsets)) = (list(from), list(places.slots), list(places.offsets)) {
            let operands = Operands::new(tokens * k, Matrix::Bf16(x), &self.weights, MatrixMut::Bf16(out));
            let operands = operands.rows(rows).slots(slots_of).offsets(offsets).row_scale(factors).workspace(kernels);
            self.plan.launch_dependent(stream, operands)?;
        }
        Ok(())
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    use warpsmith_candle::warpsmith::cudarc::driver::DevicePtr;
    let device = Device::open(0)?;
    // SAFETY: all work is in one stream.
    unsafe { device.context().disable_event_tracking() };
    let stream = device.context().new_stream()?;
    // SAFETY: the owner keeps the stream.
    let raw = unsafe { device.raw_stream(stream.cu_stream().cast(), Some(stream.clone()))? };
    let engine = Engine::new(&device);
    let sizes = Sizes { experts: 128, k: 8, columns: 768, inputs: 2048, limit: 64 };
    let values = 128 * 768 * 2048;
    let (codes, scales) = (stream.alloc_zeros::<u8>(values / 2)?, stream.alloc_zeros::<u8>(values / 16)?);
    let factors = stream.alloc_zeros::<f32>(128 * 768)?;
    let address = [codes.device_ptr(&stream).0, scales.device_ptr(&stream).0, factors.device_ptr(&stream).0];
    let owner: Owner = std::sync::Arc::new((codes, scales, factors));
    let [weight, scales, factors] = address;
    // SAFETY: so large, written in the stream, and kept.
    let gathered = unsafe { Gathered::new(&engine, &raw, sizes, &Parts { weight, scales, factors, owner })? };
    let x = stream.alloc_zeros::<bf16>(64 * 2048)?;
    let ids: Vec<u32> = (0..64 * 8).map(|slot| slot * 37 % 128).collect();
    let (ids, out) = (stream.clone_htod(&ids)?, stream.alloc_zeros::<bf16>(64 * 8 * 768)?);
    let workspace = stream.alloc_zeros::<u8>(gathered.workspace_bytes(64) as usize)?;
    let call = Call {
        tokens: 64,
        has_slots: false,
        x: x.device_ptr(&stream).0,
        indices: ids.device_ptr(&stream).0,
        out: out.device_ptr(&stream).0,
        workspace: workspace.device_ptr(&stream).0,
    };
    // SAFETY: all of it lives until the stream has run it.
    unsafe { gathered.gather_forward_raw(&raw, call)? };
    stream.synchronize()?;
    println!("[64, 8, 768] by {}", gathered.plan.problem());
    Ok(())
}

/// Up to a driver without a device. With the feature `cuda` the driver is linked, so there is none to put in its place.
#[cfg(all(test, not(feature = "cuda")))]
mod tests {
    use std::sync::Arc;

    use warpsmith_candle::warpsmith::cache::KernelCache;
    use warpsmith_candle::warpsmith::internal::build::Source;
    use warpsmith_candle::warpsmith::spec::Spec;
    use warpsmith_testing::null::Null;

    use super::*;

    /// One kernel in the place of all matrix kernels: this driver finds whatever it is asked for.
    fn small(_: &Spec) -> Result<Source> {
        Ok(Source::new("small", "extern \"C\" __global__ void small(int* x) { *x = 1; }\n", &[], ["small"]))
    }

    #[test]
    fn a_call_is_a_router_and_a_product() {
        let null = Null::driver();
        let device = Device::open(0).unwrap();
        // SAFETY: nothing runs.
        unsafe { device.context().disable_event_tracking() };
        let stream = device.context().new_stream().unwrap();
        // SAFETY: the owner keeps the stream.
        let raw = unsafe { device.raw_stream(stream.cu_stream().cast(), Some(stream.clone())).unwrap() };
        // SAFETY: the null driver runs nothing.
        let cache = unsafe { KernelCache::builder().install_if_missing().render(small) }.build();
        let engine = Engine::with_cache(&device, cache);
        let sizes = Sizes { experts: 8, k: 2, columns: 96, inputs: 128, limit: 300 };
        let owner: Owner = Arc::new(());
        let (weight, scales, factors) = (1 << 20, 2 << 20, 3 << 20);
        // SAFETY: nothing runs, so nothing is read or written.
        let gathered = unsafe { Gathered::new(&engine, &raw, sizes, &Parts { weight, scales, factors, owner }) };
        let gathered = gathered.unwrap();
        for (tokens, has_slots) in [(0, false), (1, false), (5, true), (300, false), (300, true)] {
            let (x, indices, out, workspace) = (4 << 20, 5 << 20, 6 << 20, 7 << 20);
            let before = (null.launches(), null.allocations());
            let call = Call { tokens, has_slots, x, indices, out, workspace };
            // SAFETY: as above.
            unsafe { gathered.gather_forward_raw(&raw, call).unwrap() };
            let products = gathered.plan.kernel((tokens * 2).max(1)).unwrap().spec().passes(tokens * 2).count() as u64;
            // Many tokens are routed by two launches.
            let routers = if tokens > 256 { 2 } else { 1 };
            let expected = if tokens > 0 { routers + products } else { 1 };
            assert_eq!((null.launches() - before.0, null.allocations()), (expected, before.1), "{tokens} tokens");
        }
        // SAFETY: as above.
        let refused = unsafe {
            let call =
                Call { tokens: 301, has_slots: false, x: 1 << 22, indices: 1 << 22, out: 1 << 22, workspace: 1 << 22 };
            gathered.gather_forward_raw(&raw, call)
        };
        assert!(refused.unwrap_err().to_string().contains("602"));
    }
}
