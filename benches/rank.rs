//! How long ranking takes: a first look at a problem, over all its legal variants, and a choice for one that is known.
//!
//! ```text
//! cargo bench --bench rank
//! ```

#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use warpsmith::pick::{Picker, heuristic};
use warpsmith::spec::{Arch, Problem};

const PROBLEMS: [(&str, &str); 5] = [
    ("dual", "dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared"),
    ("dual, nvfp4 tokens", "dual_gemm.silu:nvfp4*nvfp4>f16:n4096:k7168:prepared"),
    ("gemm", "gemm:f16*nvfp4>f16:n4096:k7168:prepared"),
    ("8 groups, dual", "grouped8.dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared"),
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

criterion_group!(benches, first_look, known);
criterion_main!(benches);
