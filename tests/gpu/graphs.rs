//! What a serving engine does: captures a launch once, replays it with other group sizes; and what it must not be able
//! to do.

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use half::f16;
use warpsmith::format::Format;
use warpsmith::pick;
use warpsmith::run::{Matrix, MatrixMut, Operands, wait};
use warpsmith::spec::{Activation, Problem, Spec};
use warpsmith::tune::gate::Guarded;
use warpsmith::tune::{HostMatrix, HostOperands, Spread};

use crate::bench::Bench;

const WAIT: std::time::Duration = std::time::Duration::from_secs(10);

fn problem() -> Problem {
    Problem::dual_gemm(Activation::Silu).n(144).k(448).grouped(4)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Operands on the device, from those on the host.
struct Uploaded {
    a: cudarc::driver::CudaSlice<f16>,
    b: Vec<(cudarc::driver::CudaSlice<u8>, cudarc::driver::CudaSlice<u8>)>,
}

impl Uploaded {
    fn new(bench: &Bench, host: &HostOperands) -> Result<Self, String> {
        let HostMatrix::F16(a) = &host.a else { return Err("A is not f16".to_owned()) };
        let b = host.b.iter().map(|b| {
            let HostMatrix::Nvfp4 { codes, scales } = b else { return Err("B is not nvfp4".to_owned()) };
            Ok((bench.stream.clone_htod(codes).map_err(text)?, bench.stream.clone_htod(scales).map_err(text)?))
        });
        Ok(Self { a: bench.stream.clone_htod(a).map_err(text)?, b: b.collect::<Result<_, _>>()? })
    }

    fn operands<'a>(&'a self, m: u32, c: MatrixMut<'a>) -> Operands<'a> {
        let b = |product: usize| Matrix::nvfp4(&self.b[product].0, &self.b[product].1);
        Operands::dual_gemm(m, Matrix::f16(&self.a), b(0), b(1), c).alphas(0.01, 0.02)
    }
}

/// One capture with room for 200 rows, replayed with four other ways to share them out; with and without partial sums.
pub fn replays_with_other_sizes(bench: &Bench) -> Result<(), String> {
    let _turn = bench.turn.lock().unwrap();
    let stream = &bench.stream;
    let m = 200;
    for variant in ["mma.t16x64x64.s3.interleaved.uniform.direct", "mma.t32x64x64.s2.sequential.uniform.direct.k2"] {
        let spec = Spec::new(&problem(), &variant.parse().unwrap(), bench.arch()).map_err(text)?;
        let kernel = bench.kernel(&spec)?;
        let mut host = HostOperands::random(&problem(), &[50, 50, 50, 50], Spread::Every, 5);
        host.alpha = vec![vec![0.01], vec![0.02]];
        let uploaded = Uploaded::new(bench, &host)?;
        let mut offsets = stream.clone_htod(&[0i32, 50, 100, 150, 200]).map_err(text)?;
        let guarded = Guarded::new(m as usize, 144, Format::F16).map_err(text)?;
        let mut buffer = stream.clone_htod(&guarded.fill()).map_err(text)?;
        let mut workspace = kernel.workspace(stream, m).map_err(text)?;
        wait(stream, WAIT).map_err(text)?;

        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).map_err(text)?;
        let launched = {
            let mut view = buffer.slice_mut(guarded.result());
            let c = MatrixMut::from_bytes(Format::F16, &mut view).map_err(text)?;
            let operands = uploaded.operands(m, c).offsets(offsets.as_view()).workspace(workspace.as_view_mut());
            kernel.launch(stream, operands)
        };
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags).map_err(text)?.ok_or("nothing was captured")?;
        launched.map_err(text)?;

        for ends in [[0, 50, 100, 150, 200], [0, 200, 200, 200, 200], [0, 0, 1, 18, 200], [0, 67, 67, 133, 200]] {
            stream.memcpy_htod(&ends, &mut offsets).map_err(text)?;
            stream.memcpy_htod(&guarded.fill(), &mut buffer).map_err(text)?;
            graph.launch().map_err(text)?;
            wait(stream, WAIT).map_err(text)?;
            let found = stream.clone_dtoh(&buffer).map_err(text)?;
            host.offsets = Some(ends.to_vec());
            let verdict = guarded.judge(&found, &host.reference().map_err(text)?).map_err(text)?;
            if !verdict.passed() {
                return Err(format!("{variant}, offsets {ends:?}: {verdict}"));
            }
        }
    }
    Ok(())
}

/// Offsets that run backwards, are negative or go past the end: rows may be wrong, memory outside is not touched.
pub fn wrong_offsets_stay_inside(bench: &Bench) -> Result<(), String> {
    let _turn = bench.turn.lock().unwrap();
    let stream = &bench.stream;
    let m = 100;
    for variant in ["mma.t16x64x64.s3.interleaved.uniform.direct", "mma.t32x64x64.s2.two_pass.uniform.direct"] {
        let spec = Spec::new(&problem(), &variant.parse().unwrap(), bench.arch()).map_err(text)?;
        let kernel = bench.kernel(&spec)?;
        let host = HostOperands::random(&problem(), &[25, 25, 25, 25], Spread::Every, 5);
        let uploaded = Uploaded::new(bench, &host)?;
        let guarded = Guarded::new(m as usize, 144, Format::F16).map_err(text)?;
        for ends in
            [[0, 90, 10, 95, 100], [-5, 20, 40, 60, 1_000_000], [i32::MIN, i32::MAX, 0, 7, -1], [100, 0, 100, 0, 100]]
        {
            let offsets = stream.clone_htod(&ends).map_err(text)?;
            let mut buffer = stream.clone_htod(&guarded.fill()).map_err(text)?;
            let mut workspace = kernel.workspace(stream, m).map_err(text)?;
            let mut view = buffer.slice_mut(guarded.result());
            let c = MatrixMut::from_bytes(Format::F16, &mut view).map_err(text)?;
            let operands = uploaded.operands(m, c).offsets(offsets.as_view()).workspace(workspace.as_view_mut());
            kernel.launch(stream, operands).map_err(text)?;
            wait(stream, WAIT).map_err(text)?;
            let found = stream.clone_dtoh(&buffer).map_err(text)?;
            let (before, result) = (guarded.fill(), guarded.result());
            if found[..result.start] != before[..result.start] || found[result.end..] != before[result.end..] {
                return Err(format!("{variant}, offsets {ends:?}: memory outside C was written"));
            }
        }
    }
    Ok(())
}

/// Sizes and formats that do not fit end in a sentence with both numbers, and nothing is launched.
pub fn bad_operands_are_refused(bench: &Bench) -> Result<(), String> {
    let _turn = bench.turn.lock().unwrap();
    let stream = &bench.stream;
    let choice = pick::choose(&Problem::gemm().n(64).k(128), 16, bench.arch()).map_err(text)?;
    let kernel = bench.kernel(choice.spec())?;
    let a = stream.alloc_zeros::<f16>(16 * 128).map_err(text)?;
    let (codes, scales) =
        (stream.alloc_zeros::<u8>(64 * 64).map_err(text)?, stream.alloc_zeros::<u8>(64 * 8).map_err(text)?);
    let mut c = stream.alloc_zeros::<f16>(16 * 64).map_err(text)?;
    let mut refusal = |m: u32| {
        let operands = Operands::gemm(m, Matrix::f16(&a), Matrix::nvfp4(&codes, &scales), MatrixMut::f16(&mut c));
        kernel.launch(stream, operands).err().map_or_else(String::new, |error| error.to_string())
    };
    for (m, expected) in [(17, "2176"), (0, "m = 0: must be 1 to 16777216"), (1 << 25, "16777216")] {
        let found = refusal(m);
        if !found.contains(expected) {
            return Err(format!("m = {m}: `{found}` does not name {expected}"));
        }
    }
    Ok(())
}
