//! What is chosen, by heuristics and by the tables.

use warpsmith::internal::build::{Source, compile, render};
use warpsmith::pick;
use warpsmith::spec::{Arch, Spec};
use warpsmith_testing as common;

use crate::{assert_compiled, compile_all, default_picks, prepared_suite, slow, slow_or_warning, suite, turn};

/// Default picks that spill a few bytes; README says so.
const KNOWN_SPILLS: [(Arch, &str, &str); 2] = [
    (Arch::THOR, "gemm:nvfp4*nvfp4>f16:n7168:k2048", "mma.t256x128x64.s3.single.uniform.direct"),
    (Arch::THOR, "grouped2.gemm:f16*nvfp4>f16:n3072:k4096", "mma.t128x256x64.s3.single.uniform.direct"),
];

fn is_known(spec: &Spec) -> bool {
    let (problem, variant) = (spec.problem().to_string(), spec.variant().to_string());
    KNOWN_SPILLS.iter().any(|known| (&known.0, known.1, known.2) == (spec.arch(), &*problem, &*variant))
}

/// Every thirtieth for three architectures, or all for all.
#[test]
fn the_default_picks_compile_without_spills() {
    let Some(toolchain) = common::toolchain("default picks") else { return };
    let _turn = turn();
    let archs: &[Arch] = if common::is_thorough() { Arch::ALL } else { &[Arch::A100, Arch::L40S, Arch::H200] };
    let (known, specs): (Vec<_>, Vec<_>) = default_picks(suite(), archs).into_iter().partition(is_known);
    let said = compile_all(&toolchain, &known, |spec, cubin| Some(format!("{spec}: {:?}", slow(cubin))));
    eprintln!("{} known to spill: {}", known.len(), said.join("\n"));
    let specs = common::thinned(specs, 40);
    assert_compiled(&toolchain, &specs, &format!("default picks for {} architectures", archs.len()), slow);
}

/// What a compile may take, in compiles of [`REFERENCE`]: in the median, and at most. Machines, and one machine from hour to
/// hour, differ twofold; on one that compiles the reference in 100 ms these are 0.45 and 1 s.
const MEDIAN: f64 = 4.5;
const WORST: f64 = 10.0;
/// What takes longer is compiled so many times in all: others use the machine, too.
const TRIES: usize = 4;

/// The unit.
const REFERENCE: &str = include_str!("reference.cu");

/// Every fifteenth, or all. One is compiled after the other: what a first launch waits for.
#[test]
fn the_default_picks_for_prepared_weights_compile_soon_and_without_spills() {
    let Some(toolchain) = common::toolchain("default picks for prepared weights") else { return };
    let _turn = turn();
    let specs = common::thinned(default_picks(prepared_suite(), &[Arch::H200]), 15);
    let compile = |source: &Source| compile(&toolchain, source, Arch::H200.target()).unwrap();
    let reference = Source::new("reference", REFERENCE, &[], vec!["reference".to_owned()]);
    let (mut times, mut units) = (Vec::new(), Vec::new());
    for spec in &specs {
        units.push(compile(&reference).compile_ms());
        let cubin = compile(&render(spec).unwrap());
        assert!(cubin.log().contains("registers"), "{spec}: without the assembler's report nothing is found in it");
        assert_eq!(slow_or_warning(&cubin), None, "{spec}");
        times.push((cubin.compile_ms(), spec));
    }
    units.sort_by(f64::total_cmp);
    let unit = units[units.len() / 2];
    for (took, spec) in &mut times {
        for _ in 1..TRIES {
            if *took > WORST * unit {
                *took = took.min(compile(&render(spec).unwrap()).compile_ms());
            }
        }
    }
    times.sort_by(|one, other| one.0.total_cmp(&other.0));
    let ((median, _), (worst, slowest)) = (times[times.len() / 2], times[times.len() - 1]);
    let found = format!("median {median:.0} ms, worst {worst:.0} ms: {slowest}; reference {unit:.0} ms");
    eprintln!("{} timed: {found}", times.len());
    assert!(median <= MEDIAN * unit && worst <= WORST * unit, "{found}");
}

/// Kernels whose products wait for each other, and which were measured to be the fastest all the same.
const KNOWN_SLOW: [(&str, &str); 1] =
    [("dual_gemm.silu:bf16*nvfp4>bf16:n17408:k5120:prepared", "wgmma.t16x32x256.s4.interleaved.ws1.direct.dsmem2")];

/// Every twenty-fourth, or all.
#[test]
fn what_the_tables_name_compiles_without_spills() {
    let Some(toolchain) = common::toolchain("what the tables name") else { return };
    let _turn = turn();
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
    let specs = common::thinned(specs, 36);
    assert_compiled(&toolchain, &specs, "kernels of the tables", slow);
}
