//! The first program of the README, on random operands: a dual GEMM on whatever GPU there is, compared with the oracle.
//!
//! ```text
//! cargo run --release --example first
//! cargo run --release --example first -- --unchecked
//! ```

#![allow(clippy::print_stdout)]

use std::error::Error;

use half::f16;
use warpsmith::cache::KernelCache;
use warpsmith::engine::Engine;
use warpsmith::run::{Device, Operands, Weights};
use warpsmith::spec::{Activation, Problem};
use warpsmith_tune::{HostMatrix, HostOperands, Spread, reference};

const N: u32 = 4096;
const K: u32 = 7168;
/// Tokens of a call, and at most.
const M: u32 = 16;
const M_MAX: u32 = 512;

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open(0)?;
    let engine = Engine::with_cache(&device, KernelCache::builder().install_if_missing().build());
    let stream = device.context().new_stream()?;
    let problem = engine.native(&Problem::dual_gemm(Activation::Silu).n(N).k(K).m_up_to(M_MAX));

    // On the host: tokens, and NVFP4 weights with a factor for each product.
    let host = HostOperands::random(&problem, &[M], Spread::Uniform, 1);
    let (HostMatrix::F16(a), [gate, up]) = (&host.a, &host.b[..]) else { return Err("other operands".into()) };
    let upload = |b: &HostMatrix| -> Result<_, Box<dyn Error>> {
        match b {
            HostMatrix::Nvfp4 { codes, scales } => Ok((stream.clone_htod(codes)?, stream.clone_htod(scales)?)),
            _ => Err("the weights are nvfp4".into()),
        }
    };
    let (gate, up) = (upload(gate)?, upload(up)?);
    let [gate_alpha, up_alpha] = [host.alpha[0][0], host.alpha[1][0]];

    // Once, at load: repacked where the GPU's kernels want that, else kept; and every kernel that any M can need.
    let weights = engine.weights(&stream, &problem, [gate, up])?;
    let plan = engine.plan(&problem)?;
    let mut workspace = plan.workspace(&stream, M_MAX)?;

    // Each call: no allocation, no lock.
    let a = stream.clone_htod(a)?;
    let mut c = stream.alloc_zeros::<f16>((M * N) as usize)?;
    let operands = Operands::new(M, &a, &weights, &mut c).alphas(gate_alpha, up_alpha).workspace(&mut workspace);
    plan.launch(&stream, operands)?;

    let c = stream.clone_dtoh(&c)?;
    stream.synchronize()?;
    let weights = if matches!(weights, Weights::Prepared(_)) { "prepared" } else { "given" };
    let (kernel, target) = (plan.kernel(M)?.spec().variant(), device.arch().target());
    println!("{device}, {target}: weights {weights}, {} kernels, m = {M} by {kernel}", plan.intervals().count());
    if std::env::args().any(|argument| argument == "--unchecked") {
        return Ok(());
    }
    let reference = reference::of(&host)?;
    let found = c.iter().zip(reference.elements());
    let wrong = found.filter(|(found, expected)| !expected.accepts(found.to_f64(), reference.output())).count();
    println!("{wrong} of {} elements are further from the exact result than they may be", c.len());
    if wrong == 0 { Ok(()) } else { Err("the result is wrong".into()) }
}
