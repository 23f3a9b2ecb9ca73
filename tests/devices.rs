//! Every GPU from compute capability 8.0 on: what is picked for it compiles, and one program runs on all of them, up to a
//! driver that runs nothing.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use warpsmith_testing as common;

use std::process::Command;

use warpsmith::build::Built;
use warpsmith::format::Format;
use warpsmith::internal::build::render;
use warpsmith::internal::spec::space;
use warpsmith::pick;
use warpsmith::spec::{Activation, Arch, ComputeCapability, DeviceFacts, MatrixPath, Problem, Spec};

/// A problem of each kind, as a device takes its weights, and the M that it is picked for.
fn problems(arch: &Arch) -> Vec<(Problem, u32)> {
    let dual = Problem::dual_gemm(Activation::Silu).n(4096).k(7168);
    let grouped = Problem::gemm().n(7168).k(2048).grouped(8);
    let problems =
        [(dual, 1), (dual, 64), (dual, 512), (dual.a(Format::Nvfp4), 16), (dual.bf16(), 256), (grouped, 1024)];
    problems.into_iter().map(|(problem, m)| (problem.native(arch), m)).collect()
}

/// The picks for every `step`th of them.
fn compiles(toolchain: &warpsmith::build::Toolchain, arch: &Arch, step: usize) {
    for (problem, m) in problems(arch).into_iter().step_by(step) {
        let spec = *pick::choose(&problem, m, arch).unwrap().spec();
        let built = Built::compile(toolchain, &spec).unwrap();
        let spilled = built.cubin().resources().iter().find(|kernel| kernel.has_spills() || kernel.local_bytes() > 0);
        assert!(spilled.is_none(), "{spec}: {spilled:?}");
        assert_eq!(built.cubin().provenance().target(), arch.target());
    }
}

#[test]
fn what_is_picked_for_every_preset_compiles_without_spills() {
    let test = "what_is_picked_for_every_preset_compiles_without_spills";
    let Some(toolchain) = common::toolchain(test) else { return };
    let mut capabilities: Vec<_> = Arch::ALL.iter().map(|arch| arch.capability().to_string()).collect();
    capabilities.sort_unstable();
    capabilities.dedup();
    assert_eq!(capabilities, ["10.0", "10.3", "11.0", "12.0", "12.1", "8.0", "8.6", "8.7", "8.9", "9.0"]);
    common::on_all_cores(Arch::ALL, |arch| compiles(&toolchain, arch, common::step(3)));
}

/// What is right on an H200 is what every other device runs: kernels of the path `mma` have one text for all.
#[test]
fn mma_has_one_text() {
    let gemm = Problem::gemm().n(320).k(704);
    let dual = Problem::dual_gemm(Activation::Silu).n(320).k(704).a(Format::Nvfp4).grouped(5);
    let problems =
        [gemm, gemm.bf16().grouped(5).gathered().slots(), gemm.b(Format::Mxfp4), dual, dual.c(Format::Nvfp4)];
    let mut compared = 0;
    for problem in problems {
        // What fits the least shared memory.
        for spec in space(&problem, &Arch::RTX3090).step_by(97) {
            let variant = spec.variant();
            let texts = Arch::ALL.iter().map(|arch| {
                let source = render(&Spec::new(&problem, variant, arch).unwrap()).unwrap();
                // Registers are bounded by how many blocks are to share an SM.
                let lines = source.text().lines().filter(|line| !line.contains("int BLOCKS_PER_SM ="));
                let headers = source.headers().iter().map(|header| header.text);
                lines.chain(headers).map(str::to_owned).collect::<Vec<_>>()
            });
            let texts: Vec<_> = texts.collect();
            assert!(texts.windows(2).all(|pair| pair[0] == pair[1]), "{spec}");
            compared += 1;
        }
    }
    assert!(compared >= 20, "{compared}");
}

/// Devices that nobody has seen yet, as plain machine code of their kin or as PTX.
#[test]
fn what_is_picked_for_a_newer_device_compiles() {
    let Some(toolchain) = common::toolchain("what_is_picked_for_a_newer_device_compiles") else { return };
    for (major, minor) in [(8, 8), (9, 5), (10, 7), (12, 4), (14, 0)] {
        let capability = ComputeCapability { major, minor };
        let facts = DeviceFacts { name: "NVIDIA New".to_owned(), capability, ..DeviceFacts::of_preset(&Arch::L40S) };
        compiles(&toolchain, &Arch::of_device(&facts).unwrap(), 3);
    }
}

/// README's first program, unchanged, on devices of every kind. No kernel runs here, so it is told not to look at results.
#[test]
fn one_program_serves_every_device() {
    let Some(_) = common::toolchain("one_program_serves_every_device") else { return };
    let folder = tempfile::tempdir().unwrap();
    common::null::compile(&folder.path().join("libcuda.so"), &[]);
    let program = common::examples(&["first"]).join("first");
    let devices = [
        ("NVIDIA A100-SXM4-80GB;13000;1;108;41943040;8;0;166912;1410000;1593000;5120", "sm_80", MatrixPath::Mma),
        ("NVIDIA GeForce RTX 3090;13000;1;82;6291456;8;6;101376;1695000;9751000;384", "sm_86", MatrixPath::Mma),
        ("NVIDIA L40S;13000;1;142;100663296;8;9;101376;2520000;9001000;384", "sm_89", MatrixPath::Mma),
        ("NVIDIA H200;13000;1;132;62914560;9;0;232448;1980000;3201000;6144", "sm_90a", MatrixPath::Wgmma),
        ("NVIDIA GeForce RTX 5090;13000;1;170;100663296;12;0;101376;2407000;14001000;512", "sm_120a", MatrixPath::Mma),
        ("NVIDIA GB10;13000;1;48;25165824;12;1;101376;2418000;0;0", "sm_121a", MatrixPath::Mma),
    ];
    for (device, target, path) in devices {
        let mut command = Command::new(&program);
        command.arg("--unchecked").env("NULL_DRIVER_DEVICE", device).env("LD_LIBRARY_PATH", folder.path());
        let output = command.env("WARPSMITH_CACHE_DIR", env!("CARGO_TARGET_TMPDIR")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{device}: {said}\n{}", String::from_utf8_lossy(&output.stderr));
        let (name, weights) =
            (device.split(';').next().unwrap(), if path == MatrixPath::Wgmma { "prepared" } else { "given" });
        assert!(said.contains(name) && said.contains(target) && said.contains(&format!("weights {weights}")), "{said}");
    }
}
