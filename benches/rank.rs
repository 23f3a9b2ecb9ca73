//! How long ranking takes: a first look at a problem, over all its legal variants; every choice that there is for a problem;
//! and a choice for one that is known.
//!
//! ```text
//! cargo bench -p benches --bench rank
//! ```

#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use warpsmith::internal::pick::heuristic;
use warpsmith::pick::Picker;
use warpsmith::spec::{Arch, Problem};

const PROBLEMS: [(&str, &str); 6] = [
    ("dual", "dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared"),
    ("dual, nvfp4 tokens", "dual_gemm.silu:nvfp4*nvfp4>f16:n4096:k7168:prepared"),
    ("gemm", "gemm:f16*nvfp4>f16:n4096:k7168:prepared"),
    ("8 groups, dual", "grouped8.dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared"),
    ("128 experts, dual", "grouped128.dual_gemm.silu:f16*nvfp4>f16:n768:k2048:prepared:top8"),
    ("dual, mma", "dual_gemm.silu:f16*nvfp4>f16:n4096:k7168"),
];
const ROWS: [u32; 4] = [1, 64, 256, 1024];

fn problems() -> impl Iterator<Item = (&'static str, Problem)> {
    PROBLEMS.into_iter().filter_map(|(name, text)| Some((name, text.parse().ok()?)))
}

/// Nothing is remembered from one call to the next.
fn first_look(criterion: &mut Criterion) {
    for count in [1, 8] {
        let mut group = criterion.benchmark_group(format!("first look, best {count}"));
        for (name, problem) in problems() {
            for m in ROWS {
                group.bench_with_input(BenchmarkId::new(name, m), &m, |bencher, m| {
                    bencher.iter(|| heuristic::rank(black_box(&problem), *m, &Arch::H200, count));
                });
            }
        }
    }
}

fn known(criterion: &mut Criterion) {
    let picker = Picker::new("NVIDIA H200", &Arch::H200);
    let mut group = criterion.benchmark_group("known problem");
    for (name, problem) in problems() {
        for m in ROWS {
            group.bench_with_input(BenchmarkId::new(name, m), &m, |bencher, m| {
                bencher.iter(|| picker.choose(black_box(&problem), *m));
            });
        }
    }
}

/// What a GPU of eight computes for a large mixture-of-experts model, from one token to a prompt of 8192.
const SERVED: [&str; 6] = [
    "grouped32.dual_gemm.silu:bf16*nvfp4>bf16:n2048:k7168:prepared",
    "grouped32.gemm:bf16*nvfp4>bf16:n7168:k2048:prepared",
    "dual_gemm.silu:bf16*nvfp4>bf16:n2048:k7168:prepared",
    "gemm:bf16*nvfp4>bf16:n7168:k2048:prepared",
    "dual_gemm.silu:bf16*nvfp4>bf16:n2304:k7168:prepared",
    "gemm:bf16*nvfp4>bf16:n7168:k2304:prepared",
];

fn every_choice(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("every choice");
    for problem in SERVED.into_iter().filter_map(|text| text.parse::<Problem>().ok()) {
        let problem = problem.m_up_to(8192);
        group.bench_with_input(BenchmarkId::from_parameter(problem), &problem, |bencher, problem| {
            let forgetful = || Picker::new("NVIDIA H200", &Arch::H200);
            bencher.iter_batched(forgetful, |picker| picker.schedule(problem), BatchSize::PerIteration);
        });
    }
}

criterion_group!(benches, first_look, every_choice, known);
criterion_main!(benches);
