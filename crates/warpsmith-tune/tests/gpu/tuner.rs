//! A tuner whose candidates are all the same kernel changes nothing.

use warpsmith::Result;
use warpsmith::cache::KernelCache;
use warpsmith::internal::pick::heuristic;
use warpsmith::spec::{Activation, Arch, Problem, Spec};
use warpsmith_tune::{Admission, Budget, LocalMeasurer, Measure, Setup, Tuner, Verdict};

use crate::bench::Bench;

/// Tunings, unless `WARPSMITH_TEST_TUNINGS` says otherwise.
const TUNINGS: usize = 10;
const CANDIDATES: usize = 4;
const M: u32 = 16;

/// Takes every spec for the same one.
struct Alike<L> {
    measurer: L,
    one: Spec,
}

impl<L: Measure> Measure for Alike<L> {
    fn admit(&mut self, _: &Spec) -> Result<Admission> {
        self.measurer.admit(&self.one)
    }

    fn screen(&mut self, _: &Spec) -> Result<f64> {
        self.measurer.screen(&self.one)
    }

    fn duel(&mut self, _: &Spec, _: &Spec, pairs: usize) -> Result<Vec<(f64, f64)>> {
        self.measurer.duel(&self.one, &self.one, pairs)
    }
}

pub fn alike_kernels_change_nothing(bench: &Bench) -> std::result::Result<(), String> {
    let _turn = bench.alone();
    let tunings = std::env::var("WARPSMITH_TEST_TUNINGS").map_or(TUNINGS, |count| count.parse().unwrap());
    let arch = bench.arch();
    let given = Problem::dual_gemm(Activation::Silu).n(2048).k(2048);
    let problem = if arch.capability() == Arch::H200.capability() { given.prepared() } else { given };
    let candidates: Vec<Spec> =
        heuristic::rank(&problem, M, arch, CANDIDATES).iter().map(|ranked| ranked.spec).collect();
    let cache = KernelCache::builder().toolchain(bench.toolchain().clone()).build();
    let text = |error: warpsmith::Error| error.to_string();
    let measurer = LocalMeasurer::open(&cache, Setup::new(&problem, M)).map_err(text)?;
    let mut tuner = Tuner::with_cache(Alike { measurer, one: candidates[0] }, &cache).budget(Budget::Quick);
    let (mut kept, mut inconclusive) = (0, 0);
    for tuning in 0..tunings {
        let incumbent = candidates[tuning % candidates.len()];
        let outcome = tuner.tune(&incumbent, M, candidates.iter().copied()).map_err(text)?;
        match outcome.verdict {
            Verdict::Kept => kept += 1,
            Verdict::Inconclusive(_) => inconclusive += 1,
            Verdict::Changed => return Err(format!("tuning {tuning}: {outcome}")),
        }
    }
    println!("{tunings} tunings of alike candidates: {kept} kept the choice, {inconclusive} without a conclusion");
    if kept == 0 { Err("no tuning came to a conclusion".to_owned()) } else { Ok(()) }
}
