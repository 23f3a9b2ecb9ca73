//! What the kernel before a dependent launch writes last: tokens, their scales, factors of products, and how the rows are shared out.

use std::sync::Arc;

use cudarc::driver::{
    CudaFunction, CudaSlice, CudaStream, DevicePtr, DeviceRepr, LaunchConfig, PushKernelArg, ValidAsZeroBits,
};
use cudarc::nvrtc::Ptx;
use warpsmith::format::Format;
use warpsmith::internal::build::Source;
use warpsmith::internal::run::settled;
use warpsmith::run::{Kernel, QuantiseOperands};
use warpsmith::spec::{Activation, Problem, Quantise};

use crate::bench::{Bench, changed, text};
use crate::uploaded::{Call, DeviceMatrix, kernel};

/// Lets the next kernel begin, and writes what that reads only 2 ms later: time enough for the host to launch it.
const HAND_OVER: &str = r#"
struct Copies {
  unsigned char* to[5];
  const unsigned char* from[5];
  unsigned long long bytes[5];
};

extern "C" __global__ void hand_over(const __grid_constant__ Copies copies) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - begin < 2000000);
  for (int which = 0; which < 5; which++)
    for (unsigned long long i = threadIdx.x; i < copies.bytes[which]; i += blockDim.x)
      copies.to[which][i] = copies.from[which][i];
}
"#;

/// 448 as e4m3.
const LARGEST: u8 = 0x7E;

/// As in [`HAND_OVER`].
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Copies {
    to: [u64; 5],
    from: [u64; 5],
    bytes: [u64; 5],
}

// SAFETY: numbers only, in the order and sizes of the device side.
unsafe impl DeviceRepr for Copies {}

impl Copies {
    /// Makes `slice` zeros, to be written later from what is returned: what it was.
    fn take<T: DeviceRepr + ValidAsZeroBits>(
        &mut self,
        stream: &Arc<CudaStream>,
        slice: &mut CudaSlice<T>,
    ) -> Result<CudaSlice<u8>, String> {
        let bytes = slice.num_bytes();
        // SAFETY: any bytes are `u8`, and there are as many.
        let view = unsafe { slice.transmute::<u8>(bytes) }.ok_or("a view that is too long")?;
        let written = stream.clone_dtod(&view).map_err(text)?;
        stream.memset_zeros(slice).map_err(text)?;
        let free = self.bytes.iter().position(|bytes| *bytes == 0).ok_or("more copies than there is room for")?;
        self.to[free] = slice.device_ptr(stream).0;
        self.from[free] = written.device_ptr(stream).0;
        self.bytes[free] = bytes as u64;
        Ok(written)
    }

    /// What was taken lives until the stream is done.
    fn launch(&self, stream: &Arc<CudaStream>, hand_over: &CudaFunction) -> Result<(), String> {
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1024, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: its parameter is `Copies`, with addresses of slices that live until the stream is done.
        unsafe { stream.launch_builder(hand_over).arg(self).launch(one) }.map(drop).map_err(text)
    }
}

/// The kernel of [`HAND_OVER`].
fn compiled(bench: &Bench) -> Result<CudaFunction, String> {
    let source = Source::new("hand_over.cu", HAND_OVER, &[], ["hand_over"]);
    let cubin = warpsmith::internal::build::compile(bench.toolchain(), &source, bench.arch().target()).map_err(text)?;
    let module = bench.device.context().load_module(Ptx::from_binary(cubin.image().to_vec())).map_err(text)?;
    module.load_function("hand_over").map_err(text)
}

/// Whether a dependent launch gives the bits of a plain one if the kernel before writes its operands while it may already
/// run.
fn is_right(bench: &Bench, hand_over: &CudaFunction, kernel: Arc<Kernel>, rows: &[u32]) -> Result<bool, String> {
    let stream = &bench.stream;
    let mut call = Call::new(bench, kernel, rows)?;
    // Nothing of the first launch is left.
    call.clear_result(bench)?;
    call.poison_workspace(bench)?;
    let mut copies = Copies::default();
    let mut written = match &mut call.uploaded.a {
        DeviceMatrix::Nvfp4(codes, scales) | DeviceMatrix::Mxfp4(codes, scales) => {
            vec![copies.take(stream, codes)?, copies.take(stream, scales)?]
        }
        DeviceMatrix::E4m3(values, factors) => vec![copies.take(stream, values)?, copies.take(stream, factors)?],
        DeviceMatrix::F16(values) => vec![copies.take(stream, values)?],
        DeviceMatrix::Bf16(values) => vec![copies.take(stream, values)?],
    };
    for alpha in &mut call.uploaded.alphas {
        written.push(copies.take(stream, alpha)?);
    }
    if let Some(offsets) = &mut call.offsets {
        written.push(copies.take(stream, offsets)?);
    }
    copies.launch(stream, hand_over)?;
    call.launch(bench, Kernel::launch_dependent)?;
    let found = call.found(bench)?;
    drop(written);
    Ok(found == call.first)
}

/// Each way to share out the loading, and each way to decode NVFP4 tokens, of few rows and of as many as take the prepass
/// that does not begin early.
pub fn is_waited_for(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let hand_over = compiled(bench)?;
    let single = Problem::dual_gemm(Activation::Silu).n(512).k(1024);
    let coded = single.a(Format::Nvfp4);
    let rounded = single.a(Format::E4m3);
    let (few, many): (&[u32], &[u32]) = (&[30, 0, 65, 5], &[500, 0, 640, 20]);
    let cases: [(Problem, &[u32], &str); 17] = [
        (single, &[100], "mma.t32x64x64.s3.interleaved.uniform.direct"),
        (single, &[100], "wgmma.t64x64x128.s4.interleaved.ws2.shared.dsmem2"),
        (single, &[100], "wgmma.t64x64x128.s2.interleaved.uniform.shared"),
        (single.grouped(4), few, "wgmma.t64x64x128.s2.interleaved.ws2.shared"),
        (coded, &[8], "wgmma.t8x32x256.s4.interleaved.ws4.direct.prepass"),
        (coded, &[1160], "wgmma.t64x64x128.s4.interleaved.ws2.shared.dsmem2.prepass"),
        (coded, &[100], "wgmma.t64x64x128.s4.interleaved.ws2.shared"),
        (coded.grouped(4), few, "wgmma.t64x64x128.s2.interleaved.ws2.shared.prepass"),
        (coded.grouped(4), many, "wgmma.t64x64x128.s2.interleaved.ws2.shared.prepass"),
        (coded.grouped(4), few, "wgmma.t64x64x64.s4.interleaved.ws2.shared.persistent.prepass"),
        (coded.grouped(4), few, "wgmma.t64x64x128.s2.interleaved.uniform.shared.prepass"),
        (coded.grouped(4), many, "wgmma.t64x64x128.s2.interleaved.uniform.shared.prepass"),
        (rounded, &[100], "wgmma.t64x64x128.s4.interleaved.ws2.shared"),
        (rounded.k_factors(), &[100], "wgmma.t64x64x128.s4.interleaved.ws2.shared.dsmem2"),
        (rounded.grouped(4), few, "wgmma.t64x64x256.s2.interleaved.ws2.shared.persistent"),
        (rounded.grouped(4), few, "wgmma.t32x32x256.s4.ping_pong.ws2.direct.persistent"),
        (rounded.k_factors().grouped(4), few, "wgmma.t64x64x256.s2.interleaved.ws2.shared.persistent"),
    ];
    for (problem, rows, variant) in cases {
        let Some(kernel) = kernel(bench, problem, variant)? else { continue };
        if !is_right(bench, &hand_over, Arc::clone(&kernel), rows)? {
            return Err(format!("{variant}, {rows:?} rows: other bits than when it was launched plainly"));
        }
        // So that this could not fail unseen.
        let (what, from, to) = match () {
            () if rows == few && variant.ends_with("ws2.shared.prepass") => {
                ("offsets", "if ((!PREPASS || params.early) &&", "if (!PREPASS &&")
            }
            // Nobody else waits before a tile is multiplied that has no offsets.
            () if problem == rounded => {
                ("factors", "  wait_for_dependencies();\n  ask_for_alphas(", "  ask_for_alphas(")
            }
            () => continue,
        };
        let source = warpsmith::internal::build::render(kernel.spec()).map_err(text)?;
        let too_early = changed(&source, &[(from, to)])?;
        if is_right(bench, &hand_over, bench.kernel_of(kernel.spec(), &too_early)?, rows)? {
            return Err(format!("{variant} reads {what} without waiting, and that was not seen"));
        }
    }
    Ok(())
}

/// A quantiser waits for who writes x, unless it is said that x is settled: then it takes what was there before.
pub fn x_is_waited_for(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let (hand_over, stream) = (compiled(bench)?, &bench.stream);
    for of in [Quantise::new().k(1088).e4m3(), Quantise::new().k(1088).e4m3().k_factors()] {
        let quantiser = bench.engine().quantise(&of).map_err(text)?;
        for is_settled in [false, true] {
            let mut x = stream.clone_htod(&vec![half::f16::ONE; 1088]).map_err(text)?;
            let mut values = stream.alloc_zeros::<u8>(1088).map_err(text)?;
            let mut factors = stream.alloc_zeros::<f32>(of.row_factors() as usize).map_err(text)?;
            let mut copies = Copies::default();
            let written = copies.take(stream, &mut x)?;
            copies.launch(stream, &hand_over)?;
            let operands = QuantiseOperands::e4m3(1, &x, &mut values, &mut factors);
            // SAFETY: nobody else uses what is written, and any x will do.
            let operands = if is_settled { unsafe { settled(operands) } } else { operands };
            quantiser.launch_dependent(stream, operands).map_err(text)?;
            let values = stream.clone_dtoh(&values).map_err(text)?;
            drop(written);
            let expected = if is_settled { 0 } else { LARGEST };
            if values.iter().any(|value| *value != expected) {
                return Err(format!("{of}: x is {} early", if is_settled { "not read" } else { "read" }));
            }
        }
    }
    Ok(())
}
