//! What is measured: problems with their rows, as data. Half of them are held out: no constant is fitted to them.

use warpsmith::format::Format;
use warpsmith::spec::{Activation, Problem};

/// A problem with the rows that it is measured at.
#[derive(Clone, Debug)]
pub struct Item {
    pub problem: Problem,
    /// Of each group, for every M; one number each if there are no groups.
    pub rows: Vec<Vec<u32>>,
    /// Not fitted to.
    pub held_out: bool,
}

/// The built-in list: calibration has the public benchmarks' N and K, the other half has others.
pub fn list() -> Vec<Item> {
    let fit = |problem, rows| Item { problem, rows, held_out: false };
    let hold = |problem, rows| Item { problem, rows, held_out: true };
    let spread = |groups, ms: &[u32]| ms.iter().map(|m| uneven(groups, *m)).collect();
    vec![
        fit(gemm(4096, 1536).grouped(2), vec![vec![128, 384]]),
        fit(dual(3072, 4096).grouped(2), vec![vec![192, 320]]),
        fit(dual(4096, 7168), each(&[1, 8, 16, 32, 64, 128, 256, 512, 1024])),
        hold(dual(2048, 5120), each(&[1, 16, 48, 96, 192, 384, 1024])),
        fit(dual(7168, 2048), each(&[8, 48, 64, 128, 256])),
        hold(dual(5120, 3584), each(&[8, 32, 128, 256, 512])),
        fit(dual(3072, 4096), each(&[16, 96, 192, 256, 512])),
        hold(dual(14_336, 4096), each(&[1, 32, 96, 256, 512])),
        fit(gemm(7168, 2048), each(&[1, 16, 64, 192, 512])),
        hold(gemm(8192, 3072), each(&[1, 32, 128, 384, 1024])),
        fit(dual(3072, 7168), each(&[32, 128, 384, 512])),
        hold(dual(1536, 6144), each(&[8, 64, 256, 512])),
        fit(gemm(4096, 7168).grouped(8), vec![uneven(8, 128), vec![80, 176, 128, 72, 64, 248, 96, 160]]),
        hold(gemm(5120, 3584).grouped(8), spread(8, &[256, 2048])),
        fit(dual(7168, 2048).grouped(8), vec![uneven(8, 128), vec![40, 76, 168, 72, 164, 148, 196, 160]]),
        hold(dual(1408, 2048).grouped(32), spread(32, &[128, 512, 2048])),
        fit(dual(4096, 7168).a(Format::Nvfp4), each(&[16, 128, 256, 512])),
        hold(dual(2048, 5120).a(Format::Nvfp4), each(&[32, 192, 512])),
        fit(gemm(4096, 1536), each(&[8, 48, 256, 1024])),
        hold(gemm(2816, 1408), each(&[16, 128, 512])),
        fit(dual(4096, 1536).a(Format::Bf16).c(Format::Bf16), each(&[8, 64, 256])),
        hold(gemm(6144, 2560).a(Format::Bf16).c(Format::Bf16), each(&[16, 256])),
        hold(dual(2048, 2816).grouped(8), spread(8, &[64, 1024])),
        fit(gemm(3072, 4096).grouped(32), spread(32, &[256, 1024])),
        fit(given(dual(4096, 7168)), each(&[1, 64, 256])),
        hold(given(dual(2816, 3584)), each(&[16, 128, 512])),
        fit(given(gemm(7168, 2048)), each(&[16, 256])),
    ]
}

fn dual(n: u32, k: u32) -> Problem {
    Problem::dual_gemm(Activation::Silu).n(n).k(k).prepared()
}

fn gemm(n: u32, k: u32) -> Problem {
    Problem::gemm().n(n).k(k).prepared()
}

/// The same with weights as they are given.
fn given(problem: Problem) -> Problem {
    match problem.operation().products() {
        1 => Problem::gemm().n(problem.columns()).k(problem.depth()),
        _ => Problem::dual_gemm(problem.operation().activation()).n(problem.columns()).k(problem.depth()),
    }
}

fn each(ms: &[u32]) -> Vec<Vec<u32>> {
    ms.iter().map(|m| vec![*m]).collect()
}

/// `m` rows shared out unevenly, as a router does: 0.4 to 1.6 times the average, the same every time.
pub fn uneven(groups: u32, m: u32) -> Vec<u32> {
    let mut rng = fastrand::Rng::with_seed(u64::from(groups) << 32 | u64::from(m));
    let weights: Vec<f64> = (0..groups).map(|_| 0.4 + 1.2 * rng.f64()).collect();
    let all: f64 = weights.iter().sum();
    let ends = weights.iter().scan(0.0, |end, weight| {
        *end += weight;
        Some((f64::from(m) * *end / all).round() as u32)
    });
    let starts = std::iter::once(0).chain(ends.clone());
    starts.zip(ends).map(|(start, end)| end - start).collect()
}
