//! What a serving engine does: captures a launch once, replays it with other group sizes; and what it must not be able
//! to do.

use half::f16;
use warpsmith::format::Format;
use warpsmith::pick;
use warpsmith::run::{Kernel, Matrix, MatrixMut, Operands};
use warpsmith::spec::{Activation, Problem};
use warpsmith_tune::gate::Guarded;
use warpsmith_tune::{HostOperands, Spread, wait};

use crate::bench::{Bench, text};
use crate::uploaded::{Call, Uploaded, kernel};

const WAIT: std::time::Duration = std::time::Duration::from_secs(10);

fn problem() -> Problem {
    Problem::dual_gemm(Activation::Silu).n(144).k(448).grouped(4)
}

/// Of the path wgmma: each schedule of groups, and both ways to split K.
const PREPARED: [&str; 4] = [
    "wgmma.t64x64x128.s2.interleaved.ws2.shared",
    "wgmma.t64x64x64.s4.interleaved.ws2.shared.persistent",
    "wgmma.t32x32x64.s2.interleaved.ws1.direct.k2",
    "wgmma.t32x64x64.s4.interleaved.ws4.shared.dsmem2",
];

/// One capture with room for 200 rows, replayed with four other ways to share them out; with and without partial sums.
pub fn replays_with_other_sizes(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let stream = &bench.stream;
    let m = 200;
    let others = ["mma.t16x64x64.s3.interleaved.uniform.direct", "mma.t32x64x64.s2.sequential.uniform.direct.k2"];
    for variant in others.into_iter().chain(PREPARED) {
        let Some(kernel) = kernel(bench, problem(), variant)? else { continue };
        let mut host = HostOperands::random(kernel.spec().problem(), &[50, 50, 50, 50], Spread::Every, 5);
        host.alpha = vec![vec![0.01], vec![0.02]];
        let uploaded = Uploaded::new(bench, &host)?;
        let mut offsets = stream.clone_htod(&[0i32, 50, 100, 150, 200]).map_err(text)?;
        let guarded = Guarded::new(m as usize, 144, Format::F16).map_err(text)?;
        let mut buffer = stream.clone_htod(&guarded.fill()).map_err(text)?;
        let mut workspace = kernel.workspace(stream, m).map_err(text)?;
        wait(stream, WAIT).map_err(text)?;

        let graph = bench.captured(|| {
            let mut view = buffer.slice_mut(guarded.result());
            let c = MatrixMut::from_bytes(Format::F16, &mut view).map_err(text)?;
            let operands = uploaded.operands(m, c).offsets(offsets.as_view()).workspace(&mut workspace);
            kernel.launch(stream, operands).map_err(text)
        })?;

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
    let _turn = bench.alone();
    let stream = &bench.stream;
    let m = 100;
    let others = ["mma.t16x64x64.s3.interleaved.uniform.direct", "mma.t32x64x64.s2.two_pass.uniform.direct"];
    for variant in others.into_iter().chain(PREPARED) {
        let Some(kernel) = kernel(bench, problem(), variant)? else { continue };
        let host = HostOperands::random(kernel.spec().problem(), &[25, 25, 25, 25], Spread::Every, 5);
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
            let operands = uploaded.operands(m, c).offsets(offsets.as_view()).workspace(&mut workspace);
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

/// Launches that may begin while those before still run, each kernel three times in one graph: the bits are those of the
/// first launch, however often it is replayed.
pub fn replays_are_bit_identical(bench: &Bench) -> Result<(), String> {
    const ROUNDS: usize = 10;
    const REPLAYS: usize = 1000;
    let _turn = bench.alone();
    let single = Problem::dual_gemm(Activation::Silu).n(512).k(1024);
    let coded = single.a(Format::Nvfp4);
    let kernels: [(Problem, &[u32], &str); 7] = [
        (single, &[8], "wgmma.t8x32x256.s4.interleaved.ws4.direct"),
        (single, &[100], "wgmma.t64x64x128.s4.interleaved.ws2.shared.dsmem2"),
        (single, &[300], "wgmma.t64x64x64.s4.interleaved.ws2.tma.persistent"),
        (single.grouped(4), &[30, 0, 65, 5], "wgmma.t64x64x128.s2.interleaved.ws2.shared"),
        (coded, &[8], "wgmma.t8x32x256.s4.interleaved.ws4.direct.prepass"),
        (coded, &[100], "wgmma.t64x64x128.s4.interleaved.ws2.shared.dsmem2.prepass"),
        (coded.grouped(4), &[30, 0, 65, 5], "wgmma.t64x64x128.s2.interleaved.ws2.shared.prepass"),
    ];
    let mut all = kernels
        .into_iter()
        .map(|(problem, rows, variant)| {
            Call::new(bench, kernel(bench, problem, variant)?.ok_or("this is for Hopper")?, rows)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let graph = bench.captured(|| {
        for _ in 0..3 {
            all.iter_mut().try_for_each(|call| call.launch(bench, Kernel::launch_dependent))?;
        }
        Ok(())
    })?;
    for round in 0..ROUNDS {
        // Once with the results of the replay before in place, once with none.
        for (replays, poisoned) in [(REPLAYS - 1, false), (1, true)] {
            for call in all.iter_mut().filter(|_| poisoned) {
                call.clear_result(bench)?;
            }
            (0..replays).try_for_each(|_| graph.launch()).map_err(text)?;
            for call in &all {
                if call.found(bench)? != call.first {
                    return Err(format!("{:?}: other bits after {} replays", call.kernel, (round + 1) * REPLAYS));
                }
            }
        }
    }
    Ok(())
}

/// Sizes and formats that do not fit end in a sentence with both numbers, and nothing is launched.
pub fn bad_operands_are_refused(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
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
    // No rows are no launch, and no error.
    for (m, expected) in [(17, "2176"), (0, ""), (1 << 25, "m = 33554432: must be at most 16777216")] {
        let found = refusal(m);
        if !found.contains(expected) || found.is_empty() != expected.is_empty() {
            return Err(format!("m = {m}: `{found}` does not name `{expected}`"));
        }
    }
    Ok(())
}
