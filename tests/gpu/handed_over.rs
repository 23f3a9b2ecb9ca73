//! What the kernel before a dependent launch writes last: tokens, their scales, and how the rows are shared out.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::{self, CUlaunchConfig};
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DevicePtr};
use cudarc::nvrtc::Ptx;
use warpsmith::build::{self, Source};
use warpsmith::format::Format;
use warpsmith::run::{Kernel, MatrixMut, wait};
use warpsmith::spec::{Activation, Problem};
use warpsmith::tune::gate::{Guarded, Verdict};
use warpsmith::tune::{HostOperands, Spread};

use crate::bench::{Bench, changed};
use crate::uploaded::{Tokens, Uploaded, kernel, text};

const WAIT: Duration = Duration::from_secs(10);

/// Lets the next kernel begin, and writes what that reads only 2 ms later: time enough for the host to launch it.
const HAND_OVER: &str = r#"
struct Copies {
  unsigned char* to[3];
  const unsigned char* from[3];
  unsigned long long bytes[3];
};

extern "C" __global__ void hand_over(const __grid_constant__ Copies copies) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - begin < 2000000);
  for (int which = 0; which < 3; which++)
    for (unsigned long long i = threadIdx.x; i < copies.bytes[which]; i += blockDim.x)
      copies.to[which][i] = copies.from[which][i];
}
"#;

/// As in [`HAND_OVER`].
#[derive(Default)]
#[repr(C)]
struct Copies {
    to: [u64; 3],
    from: [u64; 3],
    bytes: [u64; 3],
}

impl Copies {
    fn add<T>(&mut self, stream: &CudaStream, to: &CudaSlice<T>, from: &CudaSlice<T>) {
        let free = self.bytes.iter().position(|bytes| *bytes == 0).unwrap();
        self.to[free] = to.device_ptr(stream).0;
        self.from[free] = from.device_ptr(stream).0;
        self.bytes[free] = to.num_bytes() as u64;
    }

    fn put(&mut self, stream: &CudaStream, function: &CudaFunction) -> Result<(), String> {
        let config = CUlaunchConfig {
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1024,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: stream.cu_stream(),
            attrs: std::ptr::null_mut(),
            numAttrs: 0,
        };
        let mut arguments = [std::ptr::from_mut(self).cast::<c_void>()];
        // SAFETY: the parameter has the layout of the device side, and its addresses are of slices that the caller keeps
        // until the stream is done.
        unsafe {
            let none = std::ptr::null_mut();
            sys::cuLaunchKernelEx(&raw const config, function.cu_function(), arguments.as_mut_ptr(), none)
        }
        .result()
        .map_err(text)
    }
}

/// What a dependent launch makes of operands that the kernel before writes while it may already run.
fn handed_over(bench: &Bench, kernel: &Arc<Kernel>, rows: &[u32]) -> Result<Verdict, String> {
    let stream = &bench.stream;
    let cubin = build::compile(
        bench.toolchain(),
        &Source::new("hand_over.cu", HAND_OVER, &[], ["hand_over"]),
        kernel.spec().arch().target(),
    )
    .map_err(text)?;
    let module = bench.device.context().load_module(Ptx::from_binary(cubin.image().to_vec())).map_err(text)?;
    let hand_over = module.load_function("hand_over").map_err(text)?;

    let problem = kernel.spec().problem();
    let mut host = HostOperands::random(problem, rows, Spread::Every, 5);
    host.alpha = vec![vec![0.01], vec![0.02]];
    let m = host.m;
    let written = Uploaded::new(bench, &host)?;
    // All zeros, and all rows of the first group, until they are written.
    let mut uploaded = Uploaded::new(bench, &host)?;
    let mut copies = Copies::default();
    match (&mut uploaded.a, &written.a) {
        (Tokens::F16(to), Tokens::F16(from)) => {
            stream.memset_zeros(to).map_err(text)?;
            copies.add(stream, to, from);
        }
        (Tokens::Nvfp4(to, to_scales), Tokens::Nvfp4(from, from_scales)) => {
            stream.memset_zeros(to).map_err(text)?;
            stream.memset_zeros(to_scales).map_err(text)?;
            copies.add(stream, to, from);
            copies.add(stream, to_scales, from_scales);
        }
        _ => return Err("tokens of two formats".to_owned()),
    }
    let offsets = match &host.offsets {
        Some(ends) => {
            let stale: Vec<i32> = (0..ends.len()).map(|group| if group == 0 { 0 } else { m as i32 }).collect();
            let (to, from) = (stream.clone_htod(&stale).map_err(text)?, stream.clone_htod(ends).map_err(text)?);
            copies.add(stream, &to, &from);
            Some((to, from))
        }
        None => None,
    };
    let guarded = Guarded::new(m as usize, problem.columns() as usize, Format::F16).map_err(text)?;
    let mut buffer = stream.clone_htod(&guarded.fill()).map_err(text)?;
    let mut workspace = kernel.workspace(stream, m).map_err(text)?;
    wait(stream, WAIT).map_err(text)?;

    copies.put(stream, &hand_over)?;
    let mut view = buffer.slice_mut(guarded.result());
    let c = MatrixMut::from_bytes(Format::F16, &mut view).map_err(text)?;
    let mut operands = uploaded.operands(m, c).workspace(workspace.as_view_mut());
    if let Some((to, _)) = &offsets {
        operands = operands.offsets(to.as_view());
    }
    kernel.launch_dependent(stream, operands).map_err(text)?;
    wait(stream, WAIT).map_err(text)?;
    let found = stream.clone_dtoh(&buffer).map_err(text)?;
    guarded.judge(&found, &host.reference().map_err(text)?).map_err(text)
}

/// Each way to share out the loading, and each way to decode NVFP4 tokens, of few rows and of as many as take the prepass
/// that does not begin early.
pub fn is_waited_for(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let single = Problem::dual_gemm(Activation::Silu).n(512).k(1024);
    let coded = single.a(Format::Nvfp4);
    let (few, many): (&[u32], &[u32]) = (&[30, 0, 65, 5], &[500, 0, 640, 20]);
    let cases: [(Problem, &[u32], &str); 12] = [
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
    ];
    for (problem, rows, variant) in cases {
        let Some(kernel) = kernel(bench, problem, variant)? else { continue };
        let verdict = handed_over(bench, &kernel, rows)?;
        if !verdict.passed() {
            return Err(format!("{variant}, {rows:?} rows: {verdict}"));
        }
        // So that this could not fail unseen.
        if rows == few && variant.ends_with("ws2.shared.prepass") {
            let source = build::render(kernel.spec()).map_err(text)?;
            let too_early = changed(&source, &[("if (!PREPASS || params.early) wait", "if (!PREPASS) wait")])?;
            let verdict = handed_over(bench, &bench.kernel_of(kernel.spec(), &too_early)?, rows)?;
            if verdict.passed() {
                return Err(format!("{variant} reads offsets without waiting, and that was not seen"));
            }
        }
    }
    Ok(())
}
