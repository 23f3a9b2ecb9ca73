//! Kernels that are to stay what they are: rendered source, and machine code.

use std::sync::Mutex;

use object::{Object as _, ObjectSection as _};
use warpsmith::build::Cubin;
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::spec::baseline;
use warpsmith::spec::{Activation, Arch, Problem, Spec};
use warpsmith_testing as common;

use crate::blackwell::{samples_of_mxf4, samples_of_tcgen05};
use crate::{compile_all, default_picks, prepared_suite, sampled, suite, turn};

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
