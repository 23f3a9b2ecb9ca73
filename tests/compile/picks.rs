//! What is chosen, by heuristics and by the tables.

use warpsmith::pick;
use warpsmith::spec::{Arch, Spec};
use warpsmith_testing as common;

use crate::{assert_compiled, compile_all, default_picks, prepared_suite, slow, slow_or_warning, suite, turn};

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
    assert_compiled(&toolchain, &specs, &format!("default picks for {} architectures", archs.len()), slow);
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
        slow_or_warning(cubin).map(|why| format!("{spec}: {why}"))
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

/// Every eighth; with `WARPSMITH_TEST_ARCHS` all.
#[test]
fn what_the_tables_name_compiles_without_spills() {
    let Some(toolchain) = common::toolchain("what the tables name") else { return };
    let _turn = turn();
    let step = if std::env::var_os("WARPSMITH_TEST_ARCHS").is_some() { 1 } else { 8 };
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
    assert_compiled(&toolchain, &specs, "kernels of the tables", slow);
}
