//! What the device can do at most, measured in the same run as the kernels: bytes moved and products made in a second.
//!
//! The same clock as for the kernels ([`Timer`]): medians over some 100 ms. Each ceiling is checked before it is timed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::CUfunction_attribute;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DeviceRepr, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use warpsmith::build::{Cubin, Toolchain};
use warpsmith::format::Format;
use warpsmith::spec::{Arch, Problem};
use warpsmith_tune::{Timer, wait};

use super::source::{has_products, source};
use crate::shared::Result;

/// Bytes of each of two buffers: many times any L2 cache.
const BYTES: usize = 2 << 30;
/// As in ceilings.cu.
const THREADS: u32 = 256;
const BLOCK_BYTES: usize = 8 * THREADS as usize * 16;
const SLABS: usize = 4;
const A_ROWS: usize = 128;
const B_ROWS: usize = 256;
const LINE: usize = 128;
/// Operands of a product, and room to begin at a multiple of 1024.
const PRODUCT_SHARED: u32 = (SLABS * (A_ROWS + B_ROWS) * LINE + 1024) as u32;
/// No launch takes longer.
const LIMIT: Duration = Duration::from_secs(20);

/// Bytes and floating-point operations in a second.
#[derive(Clone, Copy, Debug)]
pub struct Ceilings {
    /// A large copy, bytes read and bytes written.
    pub copy: f64,
    /// A large read.
    pub read: f64,
    /// Microseconds of a launch of a block for each SM that does nothing: no kernel takes less.
    pub launch_us: f64,
    /// Large products of f16 and of e4m3; `None` where there is no kernel to measure them, and the architecture's row says what is
    /// taken in their place.
    pub products: Option<[Product; 2]>,
    arch: Arch,
}

/// A large product.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub flop_per_s: f64,
    /// That the device holds under such a load.
    pub clock_hz: f64,
}

impl Ceilings {
    /// Microseconds that a problem's bytes take at the better bandwidth, with these rows of each group.
    pub fn memory_us(&self, problem: &Problem, rows: &[u32]) -> f64 {
        problem.bytes_of(rows) / self.copy.max(self.read) * 1e6
    }

    /// Microseconds that a problem's products take.
    pub fn matrix_us(&self, problem: &Problem, m: u32) -> f64 {
        let measured =
            self.products.map(|[f16, e4m3]| if problem.compute_format() == Format::E4m3 { e4m3 } else { f16 });
        let rate = measured.map_or_else(|| problem.flop_per_s(&self.arch), |product| product.flop_per_s);
        problem.flop(m.into()) / rate * 1e6
    }

    /// Microseconds that a problem takes at least.
    pub fn floor_us(&self, problem: &Problem, rows: &[u32]) -> f64 {
        self.memory_us(problem, rows).max(self.matrix_us(problem, rows.iter().sum()))
    }
}

impl fmt::Display for Ceilings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (copy, read, launch_us) = (self.copy / 1e9, self.read / 1e9, self.launch_us);
        write!(f, "ceilings: copy {copy:.0} GB/s (read + written), read {read:.0} GB/s, launch {launch_us:.2} µs, ")?;
        match self.products {
            Some([f16, e4m3]) => write!(f, "f16 product {f16}, e4m3 product {e4m3}"),
            None => {
                let datasheet = self.arch.matrix_flop_per_s() / 1e12;
                write!(f, "products not measured (wgmma only), datasheet {datasheet:.0} TFLOP/s of f16")
            }
        }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} TFLOP/s at {:.2} GHz", self.flop_per_s / 1e12, self.clock_hz / 1e9)
    }
}

/// The kernels, compiled.
pub fn compile(toolchain: &Toolchain, arch: &Arch) -> Result<Cubin> {
    Ok(warpsmith::internal::build::compile(toolchain, &source(arch), arch.target())?)
}

/// Measures all of them in `stream`, which must not be the default one.
pub fn measure(stream: &Arc<CudaStream>, arch: &Arch, cubin: &Cubin) -> Result<Ceilings> {
    let module = stream.context().load_module(Ptx::from_binary(cubin.image().to_vec()))?;
    let (copy, read) = memory(stream, &module)?;
    let launch_us = launch_us(stream, &module, arch.sms())?;
    let products = match has_products(arch) {
        true => Some([product::<F16>(stream, &module, arch.sms())?, product::<E4m3>(stream, &module, arch.sms())?]),
        false => None,
    };
    Ok(Ceilings { copy, read, launch_us, products, arch: *arch })
}

/// Bytes in a second of a copy and of a read.
fn memory(stream: &Arc<CudaStream>, module: &Arc<CudaModule>) -> Result<(f64, f64)> {
    let [fill, read, copy] =
        [module.load_function("fill")?, module.load_function("read")?, module.load_function("copy")?];
    const { assert!(BYTES.is_multiple_of(BLOCK_BYTES) && BYTES / BLOCK_BYTES <= i32::MAX as usize) };
    let blocks = BYTES / BLOCK_BYTES;
    let config = LaunchConfig { grid_dim: (blocks as u32, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 };
    let mut buffers = [stream.alloc_zeros::<u8>(BYTES)?, stream.alloc_zeros::<u8>(BYTES)?];
    let mut sums = stream.alloc_zeros::<u32>(blocks * THREADS as usize / 32)?;

    // Every block of `blocks` touches BLOCK_BYTES of buffers that have BYTES, at multiples of 16.
    let filled = |buffer: &mut CudaSlice<u8>| {
        // SAFETY: the buffer is as large as the launch writes, and aligned as every allocation of the driver is (256).
        unsafe { stream.launch_builder(&fill).arg(buffer).launch(config) }
    };
    let read = |from: &CudaSlice<u8>, sums: &mut CudaSlice<u32>| {
        // SAFETY: the buffer is as large as the launch reads; each warp writes one of `sums`.
        unsafe { stream.launch_builder(&read).arg(from).arg(sums).launch(config) }
            .map(|_| ())
            .map_err(warpsmith::Error::from)
    };
    let copy = |from: &CudaSlice<u8>, to: &mut CudaSlice<u8>| {
        // SAFETY: both buffers are as large as the launch reads and writes.
        unsafe { stream.launch_builder(&copy).arg(from).arg(to).launch(config) }
            .map(|_| ())
            .map_err(warpsmith::Error::from)
    };

    let [from, to] = &mut buffers;
    filled(from)?;
    copy(from, to)?;
    let expected = (0..(BYTES / 4) as u32).map(mix).fold(0, u32::wrapping_add);
    for (buffer, what) in [(&*from, "read"), (&*to, "copy")] {
        read(buffer, &mut sums)?;
        let sum = fetched(stream, &sums)?.into_iter().fold(0, u32::wrapping_add);
        if sum != expected {
            return Err(format!("{what} of {BYTES} bytes: the words add up to {sum:#x}, expected {expected:#x}").into());
        }
    }

    // Two sets: what one call leaves in the L2 cache is not what the next one begins with.
    let timer = Timer::new(stream)?;
    let reading = timer.time(2, |set| read(&buffers[set], &mut sums))?;
    let copying = timer.time(2, |set| {
        let [first, second] = &mut buffers;
        if set == 0 { copy(first, second) } else { copy(second, first) }
    })?;
    let rate = |bytes: usize, us: f64| bytes as f64 / us * 1e6;
    Ok((rate(2 * BYTES, copying.median_us), rate(BYTES, reading.median_us)))
}

/// Microseconds of a launch that does nothing.
fn launch_us(stream: &Arc<CudaStream>, module: &Arc<CudaModule>, sms: u32) -> Result<f64> {
    let empty = module.load_function("empty")?;
    let config = LaunchConfig { grid_dim: (sms, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 };
    let launch = |_: usize| {
        // SAFETY: it has no parameters, and touches nothing.
        unsafe { stream.launch_builder(&empty).launch(config) }.map(|_| ()).map_err(warpsmith::Error::from)
    };
    Ok(Timer::new(stream)?.time(1, launch)?.median_us)
}

/// What a product is of, as in ceilings.cu.
trait Values {
    const KERNEL: &str;
    const BYTES: usize;
    /// K of a tile in slabs, and tiles in a launch: some 3 ms.
    const K_SLABS: usize;
    const TILES: usize;
    /// Of a sum of all 128 that a thread has, as a share of its magnitudes.
    const BOUND: f64;

    fn element(bits: u32) -> f64;
}

struct F16;
struct E4m3;

impl Values for F16 {
    const KERNEL: &str = "product";
    const BYTES: usize = 2;
    const K_SLABS: usize = 64;
    const TILES: usize = 64;
    /// The oracle's bound on accumulation (K/16 + 16 steps of 2⁻²² each), and as much again for the 128 additions.
    const BOUND: f64 = 2.0 * ((Self::K_SLABS * LINE / Self::BYTES) as f64 / 16.0 + 16.0) / (1 << 22) as f64;

    fn element(bits: u32) -> f64 {
        f64::from((bits >> 20) as i32 - 2048) / 1024.0
    }
}

impl Values for E4m3 {
    const KERNEL: &str = "product_e4m3";
    const BYTES: usize = 1;
    /// Few enough that sums have 11 bits or 12, of 14 that the tensor core keeps.
    const K_SLABS: usize = 16;
    const TILES: usize = 256;
    const BOUND: f64 = 0.0;

    fn element(bits: u32) -> f64 {
        f64::from((bits >> 29) as i32 - 4)
    }
}

/// A product on all SMs.
fn product<V: Values>(stream: &Arc<CudaStream>, module: &Arc<CudaModule>, sms: u32) -> Result<Product> {
    let function = module.load_function(V::KERNEL)?;
    allow_shared(stream.context(), &function)?;
    let config = LaunchConfig { grid_dim: (sms, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: PRODUCT_SHARED };
    let mut sums = stream.alloc_zeros::<f32>(sms as usize * THREADS as usize)?;
    let mut cycles = stream.alloc_zeros::<i64>(1)?;
    let (tiles, k_slabs) = (V::TILES as i32, V::K_SLABS as i32);
    let mut launch = |sums: &mut CudaSlice<f32>| {
        // SAFETY: every thread of `sms` blocks writes one of `sums`, one of them `cycles`, and shared memory is what the launch asks for.
        unsafe { stream.launch_builder(&function).arg(sums).arg(&mut cycles).arg(&tiles).arg(&k_slabs).launch(config) }
            .map(|_| ())
            .map_err(warpsmith::Error::from)
    };
    launch(&mut sums)?;
    let expected = product_sums::<V>();
    for (index, sum) in fetched(stream, &sums)?.into_iter().enumerate() {
        let (block, thread) = (index / THREADS as usize, index % THREADS as usize);
        let (value, bound) = expected[thread];
        // So that NaN is no pass.
        let is_right = (f64::from(sum) - value).abs() <= bound;
        if !is_right {
            let kernel = V::KERNEL;
            return Err(format!("{kernel}: block {block}, thread {thread}: {sum}, expected {value} ± {bound}").into());
        }
    }
    let timing = Timer::new(stream)?.time(1, |_| launch(&mut sums))?;
    let tile_flop = (2 * A_ROWS * B_ROWS * V::K_SLABS * LINE / V::BYTES) as f64;
    let cycles = fetched(stream, &cycles)?.iter().sum::<i64>() as f64;
    let per_s = |number: f64| number / timing.median_us * 1e6;
    Ok(Product { flop_per_s: per_s(tile_flop * V::TILES as f64 * f64::from(sms)), clock_hz: per_s(cycles) })
}

/// What each thread of a block of a product should write, and how far it may be from it: of the tile, rows 16·w + l/4
/// and 8 further, columns 8·j + 2·(l % 4) and the next for all j (PTX ISA, "Register Fragments for
/// wgmma.mma_async.m64nNk16", matrix D), with w its warp and l its lane.
fn product_sums<V: Values>() -> Vec<(f64, f64)> {
    let slab_k = LINE / V::BYTES;
    let element = |slab: usize, row: usize, k: usize| {
        let index = (slab * (A_ROWS + B_ROWS) + row) * slab_k + k;
        V::element(mix(index as u32))
    };
    // Of all columns that the lanes l % 4 = quad hold.
    let column_sum = |slab: usize, quad: usize, k: usize, of: &dyn Fn(f64) -> f64| -> f64 {
        (0..B_ROWS).filter(|column| column % 8 / 2 == quad).map(|column| of(element(slab, A_ROWS + column, k))).sum()
    };
    let mut sums = vec![(0.0, 0.0); THREADS as usize];
    for slab in 0..SLABS {
        for k in 0..slab_k {
            let values = [0, 1, 2, 3].map(|quad| column_sum(slab, quad, k, &|value| value));
            let magnitudes = [0, 1, 2, 3].map(|quad| column_sum(slab, quad, k, &f64::abs));
            for (thread, (value, magnitude)) in sums.iter_mut().enumerate() {
                let (row, quad) = (thread / 32 * 16 + thread % 32 / 4, thread % 4);
                let (upper, lower) = (element(slab, row, k), element(slab, row + 8, k));
                *value += (upper + lower) * values[quad];
                *magnitude += (upper.abs() + lower.abs()) * magnitudes[quad];
            }
        }
    }
    let rounds = (V::K_SLABS / SLABS) as f64;
    sums.into_iter().map(|(value, magnitude)| (rounds * value, rounds * magnitude * V::BOUND)).collect()
}

/// As in ceilings.cu.
fn mix(index: u32) -> u32 {
    let index = (index ^ index >> 16).wrapping_mul(0x85EB_CA6B);
    let index = (index ^ index >> 13).wrapping_mul(0xC2B2_AE35);
    index ^ index >> 16
}

/// What a kernel in `stream` has left.
fn fetched<T: DeviceRepr>(stream: &Arc<CudaStream>, from: &CudaSlice<T>) -> Result<Vec<T>> {
    wait(stream, LIMIT)?;
    let found = stream.clone_dtoh(from)?;
    wait(stream, LIMIT)?;
    Ok(found)
}

fn allow_shared(context: &CudaContext, function: &CudaFunction) -> Result<()> {
    // cudarc's setter does not bind the context.
    context.bind_to_thread()?;
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    Ok(function.set_attribute(attribute, PRODUCT_SHARED as i32)?)
}
