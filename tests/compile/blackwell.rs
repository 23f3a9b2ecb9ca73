//! The paths that multiply NVFP4 as it is.

use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::spec::space;
use warpsmith::spec::{Activation, Arch, MatrixPath, Problem, Spec};
use warpsmith_testing as common;
use warpsmith_tune::suite::Suite;

use crate::{assert_compiled, every_operation, slow, slow_or_warning, turn, varied};

/// The path `mxf4`, which two architectures have, thinly: over every operation, both scale layouts, groups and rows that are
/// put by their numbers.
pub fn samples_of_mxf4() -> Vec<Spec> {
    let mut specs = Vec::new();
    let shapes = Suite::built_in().unwrap().words.shapes;
    for (index, operation) in every_operation().into_iter().enumerate() {
        let c = [Format::F16, Format::Bf16, Format::F32, Format::Nvfp4][index % 4];
        let layout = [ScaleLayout::Linear, ScaleLayout::Swizzled128x4][index % 2];
        let (n, k) = shapes[index % shapes.len()];
        let n = if c == Format::Nvfp4 { n.next_multiple_of(64) } else { n };
        let problem = varied(operation.n(n).k(k).a(Format::Nvfp4).c(c).scales(layout), index, Format::F32);
        let arch = [Arch::RTX5090, Arch::SPARK][index / 2 % 2];
        let all: Vec<_> = space(&problem, &arch).filter(|spec| spec.variant().path == MatrixPath::Mxf4).collect();
        specs.extend(all.iter().skip(101 * index % 53).step_by(all.len() / 2));
    }
    specs
}

#[test]
fn sampled_variants_of_nvfp4_tokens_compile_without_spills() {
    let Some(toolchain) = common::toolchain("sampled variants of NVFP4 tokens") else { return };
    let _turn = turn();
    let specs = common::thinned(samples_of_mxf4(), 2);
    assert_compiled(&toolchain, &specs, "sampled variants of NVFP4 tokens", slow_or_warning);
}

/// The path `tcgen05`: so many kernels of whatever its kernels do differently.
pub fn samples_of_tcgen05(samples: usize) -> Vec<Spec> {
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

/// Each by one of the compilers in turn, or more of them by all.
#[test]
fn every_nvrtc_compiles_tcgen05_without_spills() {
    let toolchains = common::toolchains("every NVRTC compiles tcgen05");
    let _turn = turn();
    let specs = samples_of_tcgen05(6 / common::step(6));
    for (toolchain, specs) in common::shares(toolchains, &common::thinned(specs, 2)) {
        assert_compiled(&toolchain, &specs, "kernels of tcgen05", slow);
    }
}
