//! Problems and variants as they fall, through the gate: what no list of families has beside each other.
//!
//! `WARPSMITH_TEST_SEED` is the first of the seeds (default 0): another one, other kernels.

use fastrand::Rng;
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::pick::heuristic;
use warpsmith::internal::spec::{Fusion, baseline};
use warpsmith::spec::{Activation, Arch, MatrixPath, Problem, Spec, Variant};
use warpsmith_testing::seed;
use warpsmith_tune::{HostOperands, Spread};

use crate::bench::{Bench, samples};
use crate::families;

/// How many seeds there are.
const SEEDS: usize = 4;
/// What a reference takes at most on the host.
const FLOP_MAX: f64 = 5e8;

pub fn seeds() -> impl Iterator<Item = u64> {
    (seed()..).take(SEEDS)
}

/// As many problems as a family has variants, each by what a first look picks and by two kernels of any axes.
pub fn passes_the_gate(bench: &Bench, seed: u64) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let mut wrong = Vec::new();
    for _ in 0..samples().ceil() as usize {
        let (problem, rows, specs) = drawn(&mut rng, bench.arch());
        bench.compile(&specs);
        let spread = [Spread::Exact, Spread::Every, Spread::Uniform, Spread::Subnormal][rng.usize(..4)];
        let host = HostOperands::random(&problem, &rows, spread, rng.u64(..));
        let reference = host.reference().map_err(|error| format!("{problem}, rows {rows:?}: {error}"))?;
        for spec in &specs {
            let checked = bench.checked(&bench.kernel(spec)?, &host, &reference);
            let checked = checked.map_err(|error| format!("{spec}, rows {rows:?}, {spread:?}: {error}"))?;
            bench.note(spec, rows.iter().sum(), &checked);
            if !checked.passed() {
                wrong.push(format!("{spec}, rows {rows:?}, {spread:?}: {checked}"));
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("{} wrong:\n{}", wrong.len(), wrong.join("\n"))) }
}

/// A problem with its rows and kernels for it.
fn drawn(rng: &mut Rng, arch: &Arch) -> (Problem, Vec<u32>, Vec<Spec>) {
    loop {
        let problem = problem(rng, arch);
        let paths: Vec<MatrixPath> = MatrixPath::of(&problem, arch).collect();
        if problem.check().is_err() || paths.is_empty() {
            continue;
        }
        let m = 1 + up_to(rng, &[16, 64, 300, 1500]);
        if problem.flop(m.into()) > FLOP_MAX {
            continue;
        }
        let rows = families::rows(&problem, m, rng.u64(..));
        let picked = heuristic::first(&problem, m, arch).into_iter().map(|best| best.spec);
        let specs: Vec<Spec> = picked.chain(legal(rng, &problem, &paths, arch)).collect();
        if !specs.is_empty() {
            return (problem, rows, specs);
        }
    }
}

fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

/// A number below one of these.
fn up_to(rng: &mut Rng, of: &[u32]) -> u32 {
    let end = one(rng, of);
    rng.u32(..end)
}

/// Any problem, whether it can be or not.
fn problem(rng: &mut Rng, arch: &Arch) -> Problem {
    let results = [Format::F16, Format::Bf16, Format::F32];
    let problem = match rng.bool() {
        true => Problem::gemm().activation(one(rng, Activation::UNGATED)),
        false => Problem::dual_gemm(one(rng, Activation::GATED)),
    };
    // Tokens of e4m3 are a numerics of their own, half of what is drawn on Hopper.
    let is_rounded = arch.capability() == Arch::H200.capability() && rng.bool();
    let a = if is_rounded { Format::E4m3 } else { one(rng, &[Format::F16, Format::Bf16, Format::Nvfp4]) };
    let b = if is_rounded || rng.u32(..4) > 0 { Format::Nvfp4 } else { Format::Mxfp4 };
    let c = if rng.u32(..8) == 0 { Format::Nvfp4 } else { one(rng, &results) };
    let problem = problem.n(16 * (1 + rng.u32(..40))).k(64 * (1 + rng.u32(..24))).a(a).b(b).c(c);
    let mut problem = problem.scales(one(rng, &[ScaleLayout::Linear, ScaleLayout::Swizzled128x4]));
    if rng.bool() {
        problem = problem.grouped(1 + up_to(rng, &[4, 16, 130]));
    }
    let ways: [fn(Problem) -> Problem; 3] = [Problem::gathered, Problem::slots, Problem::row_scale];
    for way in ways {
        problem = if rng.u32(..3) == 0 { way(problem) } else { problem };
    }
    if is_rounded && rng.u32(..3) == 0 {
        problem = problem.k_factors();
    }
    if rng.u32(..3) == 0 {
        problem = problem.bias(one(rng, &results));
    }
    match rng.u32(..3) {
        0 if !is_rounded => problem,
        1 if is_rounded => problem.expanded(),
        _ => problem.prepared(),
    }
}

/// Legal variants of any axes, whether they are searched or not.
fn legal(rng: &mut Rng, problem: &Problem, paths: &[MatrixPath], arch: &Arch) -> Vec<Spec> {
    let random = std::iter::repeat_with(|| {
        let variant = Variant { path: one(rng, paths), fusion: one(rng, Fusion::ALL), ..baseline(problem) };
        Spec::check(problem, &families::drawn(rng, variant, problem), arch).ok()
    });
    random.take(20_000).flatten().take(2).collect()
}
