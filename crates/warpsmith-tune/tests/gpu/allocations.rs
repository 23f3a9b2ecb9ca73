//! A launch allocates nothing on the host.

use half::f16;
use warpsmith::format::{Format, Nvfp4Weights, Prepared};
use warpsmith::run::{Matrix, MatrixMut, Operands, PreparedWeights};
use warpsmith::spec::{Activation, Arch, Problem, Spec};
use warpsmith_tune::wait;

use crate::bench::Bench;
use crate::counting::allocations;

pub fn a_launch_makes_none(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let stream = &bench.stream;
    let problem = Problem::dual_gemm(Activation::Silu).n(256).k(1024);
    // Two launches are the harder case.
    let variant = "mma.t16x64x64.s3.interleaved.uniform.direct.k2".parse().unwrap();
    let kernel = bench.kernel(&Spec::new(&problem, &variant, bench.arch()).unwrap())?;
    let a = stream.alloc_zeros::<f16>(16 * 1024).unwrap();
    let (codes, scales) = (stream.alloc_zeros::<u8>(256 * 512).unwrap(), stream.alloc_zeros::<u8>(256 * 64).unwrap());
    let mut c = stream.alloc_zeros::<f16>(16 * 256).unwrap();
    let mut workspace = kernel.workspace(stream, 16).unwrap();
    let mut launch = || {
        let b = || Matrix::nvfp4(&codes, &scales);
        let operands = Operands::dual_gemm(16, Matrix::f16(&a), b(), b(), MatrixMut::f16(&mut c));
        kernel.launch(stream, operands.workspace(&mut workspace))
    };
    none_in(bench, &mut launch)
}

/// Nor does a launch with prepared weights: of a cluster with a tensor map, and of a prepass before.
pub fn a_prepared_launch_makes_none(bench: &Bench) -> Result<(), String> {
    if bench.arch().capability() != Arch::H200.capability() {
        return Ok(());
    }
    let _turn = bench.alone();
    let stream = &bench.stream;
    let problem = Problem::dual_gemm(Activation::Silu).n(256).k(1024).prepared();
    let zeros = Nvfp4Weights { codes: &[0; 256 * 512], scales: &[0; 256 * 64], layout: problem.scale_layout() };
    let weights = Prepared::pack(problem.prepared_layout().unwrap(), &[zeros; 2]).unwrap();
    let weights = PreparedWeights::from_host(stream, &weights).unwrap();
    let values = stream.alloc_zeros::<f16>(16 * 1024).unwrap();
    let (codes, scales) = (stream.alloc_zeros::<u8>(16 * 512).unwrap(), stream.alloc_zeros::<u8>(16 * 64).unwrap());
    let mut c = stream.alloc_zeros::<f16>(16 * 256).unwrap();
    for (a, variant) in [
        (Format::F16, "wgmma.t16x64x128.s4.interleaved.ws4.shared.dsmem2"),
        (Format::Nvfp4, "wgmma.t16x64x128.s4.interleaved.ws4.shared.prepass"),
        (Format::Nvfp4, "wgmma.t16x64x128.s4.interleaved.ws4.direct.k2.prepass"),
    ] {
        let spec =
            Spec::new(&problem.a(a), &variant.parse().unwrap(), bench.arch()).map_err(|error| error.to_string())?;
        let kernel = bench.kernel(&spec)?;
        let mut workspace = kernel.workspace(stream, 16).unwrap();
        let mut dependent = false;
        none_in(bench, &mut || {
            let a = if a == Format::F16 { Matrix::f16(&values) } else { Matrix::nvfp4(&codes, &scales) };
            let operands = Operands::prepared(16, a, &weights, MatrixMut::f16(&mut c)).workspace(&mut workspace);
            dependent = !dependent;
            if dependent { kernel.launch_dependent(stream, operands) } else { kernel.launch(stream, operands) }
        })
        .map_err(|error| format!("{variant}: {error}"))?;
    }
    Ok(())
}

/// Launches a hundred times and counts.
fn none_in(bench: &Bench, launch: &mut dyn FnMut() -> warpsmith::Result<()>) -> Result<(), String> {
    launch().map_err(|error| error.to_string())?;
    let before = allocations();
    for _ in 0..100 {
        launch().map_err(|error| error.to_string())?;
    }
    let made = allocations() - before;
    wait(&bench.stream, std::time::Duration::from_secs(10)).map_err(|error| error.to_string())?;
    if made == 0 { Ok(()) } else { Err(format!("{made} allocations in 100 launches")) }
}
