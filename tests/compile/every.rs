//! Every path, word and compiler, thinly.

use warpsmith::format::{Format, ScaleLayout};
use warpsmith::pick;
use warpsmith::spec::{Activation, Arch, Problem};
use warpsmith_testing as common;
use warpsmith_tune::suite::Suite;

use crate::{
    assert_compiled, compile_all, every_operation, moved, sampled, slow_or_warning, suite, turn, varied, warning,
};

#[test]
fn sampled_variants_of_every_suite_problem_compile() {
    let Some(toolchain) = common::toolchain("sampled variants") else { return };
    let _turn = turn();
    let mut specs = Vec::new();
    for (seed, (problem, _)) in suite().into_iter().enumerate() {
        let arch = [Arch::A100, Arch::L40S, Arch::H200][seed % 3];
        specs.extend(sampled(&problem, &arch, 1, 37 * seed));
    }
    let specs = common::thinned(specs, 9);
    assert_compiled(&toolchain, &specs, "sampled variants", |_| None);
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
        let problem = varied(operation.n(n).k(k).a(a).b(Format::Mxfp4).c(a), index, a);
        specs.extend(sampled(&problem, &[Arch::A100, Arch::L40S, Arch::H200, Arch::RTX5090][index % 4], 2, index));
        specs.extend(sampled(&problem.prepared(), &Arch::H200, 2, index));
    }
    let specs = common::thinned(specs, 9);
    assert_compiled(&toolchain, &specs, "sampled variants of MXFP4 weights", slow_or_warning);
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
        // Half of the pairs with every operation, or all.
        let half = |(pair, _): &(usize, _)| (index / 2 + pair).is_multiple_of(common::step(2));
        for (pair, &(a, b)) in pairs.iter().enumerate().filter(half) {
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
    assert_compiled(&toolchain, &specs, "words", warning);
}

/// One problem through every NVRTC there is (`WARPSMITH_TEST_NVRTCS`).
#[test]
fn every_nvrtc_compiles_the_same_kernels() {
    let dual = Problem::dual_gemm(Activation::Silu).n(4096).k(7168);
    let samples = 4 / common::step(2);
    let specs: Vec<_> = [Arch::A100, Arch::L40S, Arch::H200]
        .iter()
        .flat_map(|arch| sampled(&dual, arch, samples / 2, 11))
        .chain(sampled(&dual.prepared(), &Arch::H200, samples, 11))
        .chain(sampled(&dual.a(Format::Nvfp4), &Arch::RTX5090, samples, 11))
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
