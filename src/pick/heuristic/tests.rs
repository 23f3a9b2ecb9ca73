use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;
use crate::format::Format;
use crate::spec::{Activation, Tile, Variant, candidates};

/// What the best of all legal variants takes that `accepts` takes, by looking at all of them.
fn least_us(problem: &Problem, m: u32, arch: &Arch, accepts: &dyn Fn(&Spec) -> bool) -> Option<f64> {
    let rows = m.div_ceil(problem.groups().unwrap_or(1).clamp(1, m));
    let families = candidates(problem, arch).map(|(variant, _)| variant);
    let mut least = None;
    for family in families.filter(|variant| variant.tile.tokens == 64 && variant.stages == 1) {
        let even = (1..=8).map(|tiles| family.path.legal_tokens(rows.div_ceil(tiles)));
        let known = family.path.axes(problem).tokens.iter().copied();
        let mut heights: Vec<u32> = known.chain(even.filter(|tokens| *tokens <= 256)).collect();
        heights.sort_unstable();
        heights.dedup();
        for tokens in heights {
            let variant = Variant { tile: Tile { tokens, ..family.tile }, ..family };
            if !Spec::can_combine(problem, &variant) {
                continue;
            }
            for stages in 1..=32 {
                let spec = Spec::check(problem, &Variant { stages, ..variant }, arch).ok();
                if let Some(spec) = spec.filter(|spec| spec.fits_grid(m) && accepts(spec)) {
                    let us = predict(&spec, m).us;
                    least = Some(least.map_or(us, |least: f64| least.min(us)));
                }
            }
        }
    }
    least
}

fn problem() -> impl Strategy<Value = Problem> {
    let formats = prop::sample::select(vec![Format::F16, Format::Bf16, Format::Nvfp4]);
    let groups = prop::sample::select(vec![None, None, Some(2), Some(8), Some(32)]);
    (any::<bool>(), any::<bool>(), formats, groups, 1u32..600, 1u32..150).prop_map(
        |(is_dual, is_prepared, a, groups, n, k)| {
            let problem = if is_dual { Problem::dual_gemm(Activation::Silu) } else { Problem::gemm() };
            let problem = problem.n(16 * n).k(64 * k).a(a);
            let problem = groups.into_iter().fold(problem, Problem::grouped);
            if is_prepared { problem.prepared() } else { problem }
        },
    )
}

/// Problems that are sampled.
const COUNT: usize = 60;
/// What none of them may lose, as a logarithm: problems with a K of a stage or two lose the most.
const WORST: f64 = 0.15;

/// How much longer each of these takes than the best that a scan of the whole model finds, as logarithms.
fn losses(count: usize, mut loss: impl FnMut(&Problem, u32) -> Option<f64>) -> Vec<f64> {
    let mut runner = TestRunner::deterministic();
    let asked = (problem(), 1u32..1500);
    let mut next = || asked.new_tree(&mut runner).unwrap().current();
    (0..count).filter_map(|_| Some(next()).and_then(|(problem, m)| loss(&problem, m))).collect()
}

#[test]
fn the_first_is_nearly_the_best_of_all() {
    let losses = losses(COUNT, |problem, m| {
        let first = rank(problem, m, &Arch::H200, 1).first()?.prediction.us;
        let loss = (first / least_us(problem, m, &Arch::H200, &|_| true)?).ln();
        assert!(loss < WORST, "{problem} {m}: {loss}");
        Some(loss)
    });
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    assert!(losses.len() == COUNT && mean < 0.003, "{mean}");
}

#[test]
fn the_first_of_a_class_is_nearly_the_best_of_it() {
    // That of the last of a list, which is not what would be chosen.
    losses(COUNT / 3, |problem, m| {
        let class = rank(problem, m, &Arch::H200, 40).last()?.spec.numerics();
        let is_of_class = |spec: &Spec| spec.numerics() == class;
        let first = rank_where(problem, m, &Arch::H200, 1, &is_of_class).first()?.prediction.us;
        let loss = (first / least_us(problem, m, &Arch::H200, &is_of_class)?).ln();
        assert!(loss < WORST, "{problem} {m} {class}: {loss}");
        Some(loss)
    });
}

#[test]
fn a_list_is_in_order_and_has_no_variant_twice() {
    losses(40, |problem, m| {
        let ranked = rank(problem, m, &Arch::H200, 64);
        assert!(ranked.is_sorted_by(|a, b| a.prediction.us <= b.prediction.us));
        let mut variants: Vec<String> = ranked.iter().map(|ranked| ranked.spec.variant().to_string()).collect();
        variants.sort_unstable();
        assert!(variants.is_sorted_by(|a, b| a != b));
        assert!(ranked.iter().all(|ranked| ranked.spec.fits_grid(m)));
        None
    });
}
