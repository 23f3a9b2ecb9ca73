//! Rendered CUDA and what the compiler makes of it; no GPU needed.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use object::{Object as _, ObjectSection as _};
use warpsmith_testing as common;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpsmith::build::{Cubin, Toolchain};
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::build::{Header, Source};
use warpsmith::internal::spec::{baseline, space};
use warpsmith::pick;
use warpsmith::spec::{Activation, Arch, MatrixPath, Problem, Spec, Variant};
use warpsmith_tune::suite::Suite;

/// One test compiles at a time, so that compile times are those of a compiler that is not disturbed by others.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The problems of the suite, with the M's they are asked for.
fn suite() -> Vec<(Problem, Vec<u32>)> {
    Suite::built_in().unwrap().problems()
}

/// The same for prepared weights.
fn prepared_suite() -> Vec<(Problem, Vec<u32>)> {
    suite().into_iter().map(|(problem, ms)| (problem.prepared(), ms)).collect()
}

/// What is chosen for all of them, each once.
fn default_picks(suite: Vec<(Problem, Vec<u32>)>, archs: &[Arch]) -> Vec<Spec> {
    let mut specs = Vec::new();
    for arch in archs {
        for (problem, ms) in &suite {
            for m in ms {
                let spec = *pick::choose(problem, *m, arch).unwrap().spec();
                if !specs.contains(&spec) {
                    specs.push(spec);
                }
            }
        }
    }
    specs
}

/// What makes a kernel slow without being wrong: registers spilled, or asynchronous products that wait for each other.
fn slow(cubin: &Cubin) -> Option<String> {
    let spilled = cubin.resources().iter().find(|entry| entry.has_spills() || entry.local_bytes() > 0);
    let serialised = cubin.log().lines().find(|line| line.contains("serialized"));
    spilled.map(ToString::to_string).or(serialised.map(str::to_owned))
}

fn warning(cubin: &Cubin) -> Option<String> {
    cubin.log().lines().find(|line| line.contains("warning")).map(str::to_owned)
}

/// Compiles every spec on all cores; returns what went wrong.
fn compile_all(
    toolchain: &Toolchain,
    specs: &[Spec],
    check: impl Fn(&Spec, &Cubin) -> Option<String> + Sync,
) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let one = |spec: &Spec| {
        let built = warpsmith::internal::build::render(spec)
            .and_then(|source| warpsmith::internal::build::compile(toolchain, &source, spec.arch().target()));
        match built {
            Ok(cubin) => check(spec, &cubin),
            Err(error) => Some(format!("{spec}: {error:?}")),
        }
    };
    let worker = || {
        let mut wrong = Vec::new();
        while let Some(spec) = specs.get(next.fetch_add(1, Relaxed)) {
            wrong.extend(one(spec));
        }
        wrong
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..std::thread::available_parallelism().map_or(2, usize::from)).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// Each operation with each of its activations.
fn every_operation() -> Vec<Problem> {
    let single = Activation::UNGATED.iter().map(|act| Problem::gemm().activation(*act));
    single.chain(Activation::GATED.iter().map(|act| Problem::dual_gemm(*act))).collect()
}

/// The same with rows that are taken, or put, by their numbers, in turn.
fn moved(problem: Problem, turn: usize) -> Problem {
    let is_taken = problem.a_format() != Format::Nvfp4 || !problem.is_prepared();
    let problem = if is_taken && turn % 3 != 1 { problem.gathered() } else { problem };
    if turn % 5 < 2 { problem.slots() } else { problem }
}

/// Every `step`th of the space, so that a few land in each part of it.
fn sampled(problem: &Problem, arch: &Arch, count: usize, seed: usize) -> Vec<Spec> {
    let all: Vec<_> = space(problem, arch).collect();
    let step = (all.len() / count).max(1);
    all.into_iter().skip(seed % step).step_by(step).collect()
}

/// Every fifteenth for three architectures; with `WARPSMITH_TEST_ARCHS` all for all.
#[test]
fn the_default_picks_compile_without_spills() {
    let Some(toolchain) = common::toolchain("default picks") else { return };
    let _turn = turn();
    let (archs, step): (&[Arch], _) = match std::env::var_os("WARPSMITH_TEST_ARCHS") {
        Some(_) => (Arch::ALL, 1),
        None => (&[Arch::A100, Arch::L40S, Arch::H200], 15),
    };
    let specs: Vec<Spec> = default_picks(suite(), archs).into_iter().step_by(step).collect();
    let wrong = compile_all(&toolchain, &specs, |spec, cubin| slow(cubin).map(|why| format!("{spec}: {why}")));
    eprintln!("{} default picks compiled for {} architectures", specs.len(), archs.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), specs.len(), wrong.join("\n"));
}

/// Milliseconds that a compile may take.
const WORST_MS: f64 = 1200.0;

/// One in so many of those that are compiled is compiled again for its time.
const TIMED: usize = 4;

/// Every fifth; with `WARPSMITH_TEST_ARCHS` all. Those that are timed are compiled one after the other: what a first launch
/// waits for. The bounds leave room for a machine that does other things, and what takes long is compiled once more.
#[test]
fn the_default_picks_for_prepared_weights_compile_soon_and_without_spills() {
    let Some(toolchain) = common::toolchain("default picks for prepared weights") else { return };
    let _turn = turn();
    let step = if std::env::var_os("WARPSMITH_TEST_ARCHS").is_some() { 1 } else { 5 };
    let specs: Vec<Spec> = default_picks(prepared_suite(), &[Arch::H200]).into_iter().step_by(step).collect();
    let wrong = compile_all(&toolchain, &specs, |spec, cubin| {
        assert!(cubin.log().contains("registers"), "{spec}: without the assembler's report nothing is found in it");
        slow(cubin).or(warning(cubin)).map(|why| format!("{spec}: {why}"))
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), specs.len(), wrong.join("\n"));
    let time = |spec: &Spec| {
        let source = warpsmith::internal::build::render(spec).unwrap();
        warpsmith::internal::build::compile(&toolchain, &source, spec.arch().target()).unwrap().compile_ms()
    };
    let timed = specs.iter().step_by(TIMED).map(|spec| {
        let took = time(spec);
        (if took > WORST_MS { took.min(time(spec)) } else { took }, spec)
    });
    let mut times: Vec<_> = timed.collect();
    times.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (median, (worst, slowest)) = (times[times.len() / 2].0, times[times.len() - 1]);
    eprintln!("{} of {} timed: median {median:.0} ms, worst {worst:.0} ms: {slowest}", times.len(), specs.len());
    assert!(median <= 600.0 && worst <= WORST_MS, "median {median:.0} ms, worst {worst:.0} ms: {slowest}");
}

/// Kernels whose products wait for each other, and which were measured to be the fastest all the same.
const KNOWN_SLOW: [(&str, &str); 1] =
    [("dual_gemm.silu:bf16*nvfp4>bf16:n17408:k5120:prepared", "wgmma.t16x32x256.s4.interleaved.ws1.direct.dsmem2")];

/// Every fifth; with `WARPSMITH_TEST_ARCHS` all.
#[test]
fn what_the_tables_name_compiles_without_spills() {
    let Some(toolchain) = common::toolchain("what the tables name") else { return };
    let _turn = turn();
    let step = if std::env::var_os("WARPSMITH_TEST_ARCHS").is_some() { 1 } else { 5 };
    let table = pick::Table::built_in();
    let mut specs = Vec::new();
    for entry in table.entries() {
        let (problem, variant) = (entry.problem().to_string(), entry.variant().to_string());
        if KNOWN_SLOW.contains(&(&*problem, &*variant)) {
            continue;
        }
        let spec = Spec::new(entry.problem(), entry.variant(), &Arch::H200).unwrap_or_else(|error| panic!("{error}"));
        if !specs.contains(&spec) {
            specs.push(spec);
        }
    }
    let specs: Vec<Spec> = specs.into_iter().step_by(step).collect();
    let wrong = compile_all(&toolchain, &specs, |spec, cubin| slow(cubin).map(|why| format!("{spec}: {why}")));
    eprintln!("{} kernels of the tables compiled", specs.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), specs.len(), wrong.join("\n"));
}

/// The check above can fail: registers of a product that is under way, read before it is waited for, are found.
#[test]
fn products_that_wait_for_each_other_are_found() {
    let Some(toolchain) = common::toolchain("serialised products") else { return };
    let _turn = turn();
    let problem = Problem::gemm().n(256).k(1024).prepared();
    let variant = "wgmma.t64x64x64.s4.single.ws1.direct".parse().unwrap();
    let spec = Spec::new(&problem, &variant, &Arch::H200).unwrap();
    let source = warpsmith::internal::build::render(&spec).unwrap();
    let (from, to) =
        ("multiply<WIDTH>(buffer,", "asm volatile(\"add.f32 sum0, sum0, sum0;\"); multiply<WIDTH>(buffer,");
    let changed: Vec<Header> = source
        .headers()
        .iter()
        .map(|header| Header { name: header.name, text: header.text.replace(from, to).leak() })
        .collect();
    assert_ne!(changed, source.headers());
    let changed = Source::new(source.name(), source.text(), changed.leak(), source.entries().to_vec());
    let compile = |source| warpsmith::internal::build::compile(&toolchain, source, spec.arch().target()).unwrap();
    assert_eq!(slow(&compile(&source)), None);
    let found = slow(&compile(&changed)).unwrap_or_default();
    assert!(found.contains("serialized"), "{found}");
}

/// The space of the path `wgmma`, thinly, over problems that fit no tile, and every format of C.
#[test]
fn sampled_variants_for_prepared_weights_compile_without_a_warning() {
    let Some(toolchain) = common::toolchain("sampled variants for prepared weights") else { return };
    let _turn = turn();
    let mut specs = Vec::new();
    let shapes = Suite::built_in().unwrap().words.shapes;
    let operations = [Problem::gemm(), Problem::dual_gemm(Activation::Silu), Problem::dual_gemm(Activation::GeluTanh)];
    let known = operations.len();
    let others = every_operation().into_iter().filter(|problem| !operations.contains(problem));
    for (index, operation) in operations.into_iter().chain(others).enumerate() {
        for (turn, a) in [Format::F16, Format::Bf16, Format::Nvfp4].into_iter().enumerate() {
            let index = 3 * index + turn;
            let c = [Format::F16, Format::Bf16, Format::F32][(index + index / 3) % 3];
            let layout = [ScaleLayout::Linear, ScaleLayout::Swizzled128x4][index % 2];
            let (n, k) = shapes[index % shapes.len()];
            let problem = operation.n(n).k(k).a(a).c(c).scales(layout).prepared();
            let problem = if index % 4 < 2 { problem.grouped(40) } else { problem };
            let problem = if index % 2 == 0 { problem } else { problem.row_scale().bias(c) };
            let problem = moved(problem, index);
            let count = if index < 3 * known { 2 } else { 1 };
            specs.extend(sampled(&problem, &Arch::H200, count, 101 * index));
        }
    }
    // The tallest tiles of tokens that the kernel itself decodes, by as many warps as there may be.
    let decoded = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).a(Format::Nvfp4).prepared();
    let tall = space(&decoded, &Arch::H200).filter(|spec| spec.variant().tile.tokens >= 192 && !spec.variant().prepass);
    let tall: Vec<Spec> = tall.collect();
    specs.extend(tall.iter().step_by((tall.len() / 6).max(1)).copied());
    let wrong = compile_all(&toolchain, &specs, |spec, cubin| warning(cubin).map(|why| format!("{spec}: {why}")));
    eprintln!("{} sampled variants for prepared weights compiled", specs.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), specs.len(), wrong.join("\n"));
}

/// The same of e4m3 tokens, whose kernels have registers for sums and for what these are added to.
#[test]
fn sampled_variants_of_e4m3_tokens_compile_without_a_warning() {
    let Some(toolchain) = common::toolchain("sampled variants of e4m3 tokens") else { return };
    let _turn = turn();
    let mut specs = Vec::new();
    let shapes = Suite::built_in().unwrap().words.shapes;
    for (index, operation) in every_operation().into_iter().enumerate() {
        let c = [Format::F16, Format::Bf16, Format::F32][index % 3];
        let (n, k) = shapes[index % shapes.len()];
        let problem = moved(operation.n(n).k(k).a(Format::E4m3).c(c).prepared(), index);
        let problem = if index % 3 < 2 { problem.grouped(40) } else { problem };
        let problem = if index % 4 < 2 { problem } else { problem.row_scale().bias(c) };
        specs.extend(sampled(&problem, &Arch::H200, 2, 101 * index));
        specs.extend(sampled(&problem.k_factors(), &Arch::H200, 2, 103 * index));
        let expanded = if index % 2 == 0 { problem.expanded() } else { problem.expanded().k_factors() };
        specs.extend(sampled(&expanded, &Arch::H200, 2, 107 * index));
    }
    // Every way along K that has registers for little more.
    let dual = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).a(Format::E4m3).k_factors().prepared();
    for variant in [
        "wgmma.t16x32x256.s12.interleaved.ws4.direct",
        "wgmma.t64x32x256.s8.interleaved.ws2.shared",
        "wgmma.t128x32x256.s5.interleaved.ws2.shared",
        "wgmma.t160x32x128.s8.interleaved.ws2.shared",
        "wgmma.t256x32x256.s3.interleaved.ws1.shared",
        "wgmma.t240x64x128.s4.interleaved.ws2.shared.persistent",
        "wgmma.t240x64x256.s2.interleaved.ws2.shared.persistent",
    ] {
        specs.push(Spec::new(&dual, &variant.parse().unwrap(), &Arch::H200).unwrap());
    }
    // What is launched: the tallest tiles, which have no register to spare, are chosen, and seldom drawn.
    let picker = pick::Picker::new("NVIDIA H200", &Arch::H200);
    let dual = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).a(Format::E4m3).prepared();
    specs.extend(picker.schedule(&dual).unwrap().specs());
    specs.extend(picker.schedule(&dual.expanded()).unwrap().specs());
    let experts = Problem::dual_gemm(Activation::Silu).n(768).k(2048).a(Format::E4m3).grouped(128).gathered();
    specs.extend(picker.schedule(&experts.experts_per_token(8).expanded().m_up_to(65536)).unwrap().specs());
    let wrong = compile_all(&toolchain, &specs, |spec, cubin| {
        slow(cubin).or(warning(cubin)).map(|why| format!("{spec}: {why}"))
    });
    eprintln!("{} sampled variants of e4m3 tokens compiled", specs.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), specs.len(), wrong.join("\n"));
}

/// Products of e4m3 values in the machine code: instructions of 16 bytes, the opcode in the lowest bits.
fn products(cubin: &Cubin) -> usize {
    const OPCODES: [u16; 2] = [0xDF3, 0x9F3];
    let file = object::File::parse(cubin.image()).unwrap();
    let code = file.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".text.")));
    let opcodes = code.flat_map(|section| {
        let bytes = section.data().unwrap().chunks_exact(16);
        bytes.map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]) & 0xFFF).collect::<Vec<_>>()
    });
    opcodes.filter(|opcode| OPCODES.contains(opcode)).count()
}

/// ptxas has left products out where a warpgroup multiplies in halves and K has no more than two stages.
#[test]
fn all_products_of_e4m3_values_are_in_the_machine_code() {
    let mut toolchains = common::toolchains("products in machine code");
    toolchains.extend(common::toolchain("products in machine code"));
    toolchains.dedup_by_key(|toolchain| toolchain.identity().to_owned());
    let _turn = turn();
    let dual = Problem::dual_gemm(Activation::Silu).n(272).a(Format::E4m3);
    let mut specs = Vec::new();
    for (index, k) in [128, 192, 256, 320, 448, 512].into_iter().enumerate() {
        for (turn, problem) in [dual.k(k).prepared(), dual.k(k).expanded()].into_iter().enumerate() {
            let problem = if (index + turn).is_multiple_of(2) { problem.gathered() } else { problem.grouped(3) };
            let tall = space(&problem, &Arch::H200).filter(|spec| {
                let Variant { tile, .. } = spec.variant();
                tile.tokens >= 192 && tile.k == if k < 256 { 128 } else { 256 }
            });
            let tall: Vec<Spec> = tall.collect();
            specs.extend(tall.iter().step_by((tall.len() / 2).max(1)).copied());
        }
    }
    // The same where K is shared by as many blocks as it has stages.
    for variant in ["t256x32x256.s1.interleaved.ws1.shared.dsmem4", "t192x32x256.s2.interleaved.ws1.direct.k4"] {
        let variant = format!("wgmma.{variant}").parse().unwrap();
        let problems = [dual.k(1024).prepared(), dual.k(1024).expanded()];
        specs.extend(problems.iter().map(|problem| Spec::new(problem, &variant, &Arch::H200).unwrap()));
    }
    for toolchain in &toolchains {
        let wrong = compile_all(toolchain, &specs, |spec, cubin| {
            let source = warpsmith::internal::build::render(spec).unwrap();
            let text = warpsmith::internal::build::ptx(toolchain, &source, spec.arch().target()).unwrap();
            let (wanted, found) = (text.matches("wgmma.mma_async").count(), products(cubin));
            (wanted == 0 || wanted != found).then(|| format!("{spec}: {found} of {wanted} products"))
        });
        assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), specs.len(), wrong.join("\n"));
    }
    eprintln!("{} kernels have all their products, by {} compilers", specs.len(), toolchains.len());
}

#[test]
fn sampled_variants_of_every_suite_problem_compile() {
    let Some(toolchain) = common::toolchain("sampled variants") else { return };
    let _turn = turn();
    let mut specs = Vec::new();
    for (seed, (problem, _)) in suite().into_iter().enumerate() {
        let arch = [Arch::A100, Arch::L40S, Arch::H200][seed % 3];
        specs.extend(sampled(&problem, &arch, 1, 37 * seed));
    }
    let wrong = compile_all(&toolchain, &specs, |_, _| None);
    eprintln!("{} sampled variants compiled", specs.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), specs.len(), wrong.join("\n"));
}

/// The path `mxf4`, which two architectures have, thinly: over every operation, both scale layouts, groups and rows that are
/// put by their numbers.
fn samples_of_mxf4() -> Vec<Spec> {
    let mut specs = Vec::new();
    let shapes = Suite::built_in().unwrap().words.shapes;
    for (index, operation) in every_operation().into_iter().enumerate() {
        let c = [Format::F16, Format::Bf16, Format::F32, Format::Nvfp4][index % 4];
        let layout = [ScaleLayout::Linear, ScaleLayout::Swizzled128x4][index % 2];
        let (n, k) = shapes[index % shapes.len()];
        let n = if c == Format::Nvfp4 { n.next_multiple_of(64) } else { n };
        let problem = moved(operation.n(n).k(k).a(Format::Nvfp4).c(c).scales(layout), index);
        let problem = if index % 3 < 2 { problem.grouped(40) } else { problem };
        let problem = if index % 4 < 2 { problem } else { problem.row_scale().bias(Format::F32) };
        let arch = [Arch::RTX5090, Arch::SPARK][index / 2 % 2];
        let all: Vec<_> = space(&problem, &arch).filter(|spec| spec.variant().path == MatrixPath::Mxf4).collect();
        specs.extend(all.iter().skip(101 * index % 53).step_by(all.len() / 2));
    }
    specs
}

/// The path `tcgen05`: so many kernels of whatever its kernels do differently.
fn samples_of_tcgen05(samples: usize) -> Vec<Spec> {
    let gemm = Problem::gemm().n(272).k(448).a(Format::Nvfp4);
    let dual = Problem::dual_gemm(Activation::Silu).n(272).k(1024).a(Format::Nvfp4);
    let problems = [
        gemm.c(Format::Bf16),
        gemm.c(Format::F32).row_scale().bias(Format::F16),
        dual,
        dual.grouped(5).slots(),
        dual.grouped(5).gathered().slots(),
        gemm.n(320).c(Format::Nvfp4),
        dual.n(320).c(Format::Nvfp4).grouped(5).gathered(),
    ];
    let mut specs = Vec::new();
    for arch in [Arch::B200, Arch::B300] {
        for layout in [ScaleLayout::Swizzled128x4, ScaleLayout::Linear] {
            for problem in problems {
                let all = space(&problem.scales(layout), &arch);
                let all: Vec<Spec> = all.filter(|spec| spec.variant().path == MatrixPath::Tcgen05).collect();
                let step = all.len() / samples;
                specs.extend(all.into_iter().skip(step / 2).step_by(step));
            }
        }
    }
    specs
}

#[test]
fn sampled_variants_of_nvfp4_tokens_compile_without_spills() {
    let Some(toolchain) = common::toolchain("sampled variants of NVFP4 tokens") else { return };
    let _turn = turn();
    let specs = samples_of_mxf4();
    let wrong = compile_all(&toolchain, &specs, |spec, cubin| {
        slow(cubin).or(warning(cubin)).map(|why| format!("{spec}: {why}"))
    });
    eprintln!("{} sampled variants of NVFP4 tokens compiled", specs.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), specs.len(), wrong.join("\n"));
}

/// With `WARPSMITH_TEST_ARCHS` more of them.
#[test]
fn every_nvrtc_compiles_tcgen05_without_spills() {
    let toolchains = common::toolchains("every NVRTC compiles tcgen05");
    let _turn = turn();
    let specs = samples_of_tcgen05(if std::env::var_os("WARPSMITH_TEST_ARCHS").is_some() { 6 } else { 1 });
    for toolchain in toolchains {
        let wrong = compile_all(&toolchain, &specs, |spec, cubin| slow(cubin).map(|why| format!("{spec}: {why}")));
        eprintln!("{} kernels of tcgen05 compiled by {}", specs.len(), toolchain.identity());
        assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), specs.len(), wrong.join("\n"));
    }
}

/// MXFP4 weights the same way, over both 16-bit formats and the oldest and newer targets.
#[test]
fn sampled_variants_of_mxfp4_weights_compile_without_spills() {
    let Some(toolchain) = common::toolchain("sampled variants of MXFP4 weights") else { return };
    let _turn = turn();
    let mut specs = Vec::new();
    let shapes = Suite::built_in().unwrap().words.shapes;
    for (index, operation) in every_operation().into_iter().enumerate() {
        let a = [Format::Bf16, Format::F16][index % 2];
        let (n, k) = shapes[index % shapes.len()];
        let problem = moved(operation.n(n).k(k).a(a).b(Format::Mxfp4).c(a), index);
        let problem = if index % 3 < 2 { problem.grouped(40) } else { problem };
        let problem = if index % 4 < 2 { problem } else { problem.row_scale().bias(a) };
        specs.extend(sampled(&problem, &[Arch::A100, Arch::L40S, Arch::H200, Arch::RTX5090][index % 4], 2, index));
        specs.extend(sampled(&problem.prepared(), &Arch::H200, 2, index));
    }
    let wrong = compile_all(&toolchain, &specs, |spec, cubin| {
        slow(cubin).or(warning(cubin)).map(|why| format!("{spec}: {why}"))
    });
    eprintln!("{} sampled variants of MXFP4 weights compiled", specs.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), specs.len(), wrong.join("\n"));
}

/// Prepared MXFP4 weights take hardly more registers than NVFP4's in the same kernel.
#[test]
fn prepared_mxfp4_takes_hardly_more_registers() {
    let Some(toolchain) = common::toolchain("registers of prepared MXFP4 weights") else { return };
    let _turn = turn();
    let registers = Mutex::new(Vec::new());
    let mut pairs = Vec::new();
    for (index, operation) in every_operation().into_iter().enumerate().step_by(2) {
        let a = [Format::Bf16, Format::F16][index / 2 % 2];
        let problem = moved(operation.n(272).k(448).a(a).b(Format::Mxfp4).c(a).prepared(), index);
        for spec in sampled(&problem, &Arch::H200, 2, index) {
            pairs.push(Spec::new(&problem.b(Format::Nvfp4), spec.variant(), &Arch::H200).unwrap());
            pairs.push(spec);
        }
    }
    let note = |spec: &Spec, cubin: &Cubin| {
        let most = cubin.resources().iter().map(|entry| entry.registers()).max().unwrap();
        registers.lock().unwrap().push((*spec, most));
        slow(cubin)
    };
    assert_eq!(compile_all(&toolchain, &pairs, note), Vec::<String>::new());
    let registers = registers.into_inner().unwrap();
    let of = |spec: &Spec| registers.iter().find(|(known, _)| known == spec).unwrap().1;
    for pair in pairs.chunks(2) {
        let (nvfp4, mxfp4) = (of(&pair[0]), of(&pair[1]));
        eprintln!("{}: {mxfp4} registers, of NVFP4 {nvfp4}", pair[1]);
        // f16's large scales have a way of their own.
        let more = if pair[1].problem().compute_format() == Format::F16 { 3 } else { 1 };
        assert!(mxfp4 <= nvfp4 + more, "{}: {mxfp4} registers, of NVFP4 {nvfp4}", pair[1]);
    }
}

/// Every operand format, output, activation, scale layout and operation goes through the compiler at least once, on the
/// oldest and on newer targets, and the compiler has nothing to warn about.
#[test]
fn every_word_compiles_without_a_warning() {
    let Some(toolchain) = common::toolchain("every word") else { return };
    let _turn = turn();
    let mut specs = Vec::new();
    let small = |problem: Problem| problem.n(272).k(448);
    let pairs = Suite::built_in().unwrap().words.operands;
    for (index, operation) in every_operation().into_iter().enumerate() {
        for (pair, &(a, b)) in pairs.iter().enumerate() {
            let turn = index + pair;
            let c = [Format::F16, Format::Bf16, Format::F32][turn % 3];
            let layout = [ScaleLayout::Linear, ScaleLayout::Swizzled128x4][turn % 2];
            let problem = small(operation).a(a).b(b).c(c).scales(layout);
            let problem = if turn % 4 < 2 { problem } else { problem.grouped(3) };
            let problem = match turn % 5 {
                1 => problem.row_scale(),
                3 => problem.bias([Format::F16, Format::Bf16, Format::F32][turn / 5 % 3]).row_scale(),
                _ => problem,
            };
            let problem = moved(problem, turn);
            let arch = [Arch::A100, Arch::H200, Arch::L40S, Arch::B200, Arch::RTX5090][turn % 5];
            specs.extend(sampled(&problem, &arch, 1, 101 * turn));
        }
    }
    let wrong = compile_all(&toolchain, &specs, |spec, cubin| warning(cubin).map(|why| format!("{spec}: {why}")));
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), specs.len(), wrong.join("\n"));
}

/// One problem through every NVRTC there is (`WARPSMITH_TEST_NVRTCS`).
#[test]
fn every_nvrtc_compiles_the_same_kernels() {
    let dual = Problem::dual_gemm(Activation::Silu).n(4096).k(7168);
    let specs: Vec<_> = [Arch::A100, Arch::L40S, Arch::H200]
        .iter()
        .flat_map(|arch| sampled(&dual, arch, 2, 11))
        .chain(sampled(&dual.prepared(), &Arch::H200, 4, 11))
        .chain(sampled(&dual.a(Format::Nvfp4), &Arch::RTX5090, 4, 11))
        .chain([dual, dual.prepared()].iter().map(|dual| *pick::choose(dual, 64, &Arch::H200).unwrap().spec()))
        .collect();
    let _turn = turn();
    for toolchain in common::toolchains("every NVRTC") {
        let wrong = compile_all(&toolchain, &specs, |spec, cubin| {
            let entries = 1 + usize::from(spec.finish_symbol().is_some());
            (cubin.resources().len() != entries).then(|| format!("{spec}: {} entries", cubin.resources().len()))
        });
        assert!(wrong.is_empty(), "{}:\n{}", toolchain.identity(), wrong.join("\n"));
    }
}

/// All of a cubin but the names of its symbols.
fn code_digest(image: &[u8]) -> String {
    let elf = object::File::parse(image).unwrap();
    let mut hasher = blake3::Hasher::new();
    for section in elf.sections().filter(|section| !matches!(section.name(), Ok(".symtab" | ".strtab"))) {
        let (name, data) = (section.name_bytes().unwrap(), section.data().unwrap());
        hasher.update(&name.len().to_le_bytes()).update(name).update(&data.len().to_le_bytes()).update(data);
    }
    hasher.finalize().to_hex().to_string()
}

/// Changes that are to change no kernel: `WARPSMITH_TEST_CUBINS` names a file that is written where there is none, and
/// whose kernels are compiled and compared where there is one. With the same NVRTC.
#[test]
fn kernels_are_byte_for_byte_those_of_a_file() {
    let Some(path) = std::env::var_os("WARPSMITH_TEST_CUBINS") else {
        return common::skip("kernels as before", "WARPSMITH_TEST_CUBINS names no file");
    };
    let Some(toolchain) = common::toolchain("kernels as before") else { return };
    let _turn = turn();
    let lines = Mutex::new(Vec::new());
    let digest = |spec: &Spec, cubin: &Cubin| {
        let line = format!("{}\t{}\t{}", spec.problem(), spec.arch(), spec.variant());
        let digest = code_digest(cubin.image());
        lines.lock().unwrap().push(format!("{line}\t{digest}"));
        None
    };
    let Ok(known) = std::fs::read_to_string(&path) else {
        let mut specs = default_picks(suite(), &[Arch::A100, Arch::L40S, Arch::H200]);
        specs.extend(default_picks(prepared_suite(), &[Arch::H200]));
        for (seed, (problem, _)) in suite().into_iter().chain(prepared_suite()).enumerate() {
            specs.extend(sampled(&problem, &Arch::H200, 3, 53 * seed));
        }
        specs.extend(samples_of_mxf4());
        specs.extend(samples_of_tcgen05(2));
        assert_eq!(compile_all(&toolchain, &specs, digest), Vec::<String>::new());
        let mut lines = lines.into_inner().unwrap();
        lines.sort();
        return std::fs::write(path, lines.join("\n")).unwrap();
    };
    let spec = |line: &str| {
        let mut words = line.split('\t');
        let mut word = || words.next().unwrap();
        let (problem, arch, variant) = (word().parse().unwrap(), word().parse().unwrap(), word().parse().unwrap());
        Spec::new(&problem, &variant, &arch).unwrap()
    };
    let specs: Vec<Spec> = known.lines().map(spec).collect();
    assert_eq!(compile_all(&toolchain, &specs, digest), Vec::<String>::new());
    let lines = lines.into_inner().unwrap();
    let other: Vec<_> = lines.iter().filter(|line| !known.lines().any(|known| known == *line)).collect();
    eprintln!("{} kernels compared", specs.len());
    assert!(other.is_empty(), "{} of {} are other kernels: {other:#?}", other.len(), specs.len());
}

#[test]
fn rendered_source_is_the_reviewed_one() {
    let h200 = |problem: Problem, variant: &str| Spec::new(&problem, &variant.parse().unwrap(), &Arch::H200).unwrap();
    let dual = Problem::dual_gemm(Activation::Silu).n(4096).k(7168);
    let specs = [
        Spec::new(
            &dual.a(Format::Nvfp4).grouped(8).scales(ScaleLayout::Swizzled128x4),
            &"mxf4.t32x128x128.s4.interleaved.uniform.direct".parse().unwrap(),
            &Arch::RTX5090,
        )
        .unwrap(),
        h200(dual, "mma.t64x128x64.s3.interleaved.uniform.direct"),
        h200(
            dual.a(Format::Nvfp4).c(Format::Bf16).grouped(8).scales(ScaleLayout::Swizzled128x4),
            "mma.t16x64x128.s4.sequential.uniform.direct.k2",
        ),
        Spec::new(&Problem::gemm().n(64).k(64).a(Format::Bf16), &baseline(&Problem::gemm()), &Arch::A100).unwrap(),
        h200(dual.a(Format::E4m3).prepared(), "wgmma.t64x64x128.s4.interleaved.ws2.shared"),
        h200(dual.a(Format::E4m3).k_factors().prepared(), "wgmma.t24x64x256.s4.interleaved.ws2.shared"),
        h200(dual.a(Format::Nvfp4).grouped(8).prepared(), "wgmma.t16x64x128.s4.interleaved.ws4.direct.dsmem2.prepass"),
    ];
    for spec in specs {
        insta::assert_snapshot!(spec.symbol(), warpsmith::internal::build::render(&spec).unwrap().text());
    }
}
