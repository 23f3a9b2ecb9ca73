//! Kernels of the path tcgen05, compiled: there is no device of it here. `WARPSMITH_TEST_ARCHS` compiles more of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::build::{compile, render};
use warpsmith::internal::spec::space;
use warpsmith::spec::{Activation, Arch, Problem, Spec};
use warpsmith_testing::toolchains;

/// Problems that differ in what the kernels do.
fn problems() -> Vec<Problem> {
    let gemm = Problem::gemm().n(272).k(448).a(Format::Nvfp4);
    let dual = Problem::dual_gemm(Activation::Silu).n(272).k(1024).a(Format::Nvfp4);
    let mut problems = Vec::new();
    for layout in [ScaleLayout::Swizzled128x4, ScaleLayout::Linear] {
        for problem in
            [gemm.c(Format::Bf16), gemm.c(Format::F32).row_scale().bias(Format::F16), dual, dual.grouped(5).slots()]
        {
            problems.push(problem.scales(layout));
        }
    }
    problems
}

#[test]
fn kernels_compile_without_spills() {
    let toolchains = toolchains("kernels_compile_without_spills");
    for arch in [Arch::B200, Arch::B300] {
        for toolchain in &toolchains {
            let mut times = Vec::new();
            for problem in problems() {
                let all: Vec<Spec> =
                    space(&problem, &arch).filter(|spec| spec.variant().path.to_string() == "tcgen05").collect();
                let samples = if std::env::var_os("WARPSMITH_TEST_ARCHS").is_some() { 6 } else { 1 };
                let step = (all.len() / samples).max(1);
                println!("{problem}: {}", all.len());
                for spec in all.iter().skip(step / 2).step_by(step) {
                    let source = render(spec).unwrap();
                    let cubin =
                        compile(toolchain, &source, arch.target()).unwrap_or_else(|error| panic!("{spec}: {error:?}"));
                    for resources in cubin.resources() {
                        assert!(!resources.has_spills(), "{spec}: {resources}");
                    }
                    println!("{spec}: {:.0} ms, {}", cubin.compile_ms(), cubin.resources()[0]);
                    times.push(cubin.compile_ms());
                }
            }
            times.sort_by(f64::total_cmp);
            println!("{arch}, {}: median {:.0} ms of {}", toolchain.identity(), times[times.len() / 2], times.len());
        }
    }
}
