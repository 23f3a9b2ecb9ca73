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

/// Problems of many decisions in the tables: those of an H100, which an H200 follows as far as the model agrees.
const TABLED: [&str; 3] = [
    "gemm:bf16*nvfp4>bf16:n2048:k4096:prepared",
    "dual_gemm.silu:bf16*nvfp4>bf16:n14336:k4096:prepared",
    "grouped128.dual_gemm.silu:bf16*nvfp4>bf16:n768:k2048:gathered:prepared:top8",
];

/// The first choice for a problem, of which nothing is known but the tables.
fn first_choice(criterion: &mut Criterion) {
    for (name, arch) in [("NVIDIA H200", Arch::H200), ("NVIDIA H100 80GB HBM3", Arch::H100)] {
        let mut group = criterion.benchmark_group(format!("first choice, {name}"));
        for problem in TABLED.into_iter().filter_map(|text| text.parse::<Problem>().ok()) {
            group.bench_with_input(BenchmarkId::from_parameter(problem), &problem, |bencher, problem| {
                bencher.iter_batched(
                    || Picker::new(name, &arch),
                    |picker| picker.choose(problem, 64),
                    BatchSize::PerIteration,
                );
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

criterion_group!(benches, first_look, first_choice, every_choice, known);
criterion_main!(benches);
