use std::collections::HashMap;

use proptest::prelude::*;

use super::search::compare;
use super::*;
use crate::format::Format;
use crate::spec::{Activation, Tile, Variant};

/// Every legal variant at its best depths, by looking at all of them.
fn all(problem: &Problem, m: u32, arch: &Arch, accepts: &dyn Fn(&Spec) -> bool) -> Vec<Ranked> {
    let mut best: HashMap<(Variant, u32), Ranked> = HashMap::new();
    let mut add = |variant: Variant| {
        let Ok(spec) = Spec::check(problem, &variant, arch) else { return };
        if !accepts(&spec) {
            return;
        }
        let ranked = Ranked { spec, prediction: predict(&spec, m) };
        let key = (Variant { stages: 0, ..variant }, spec.geometry().blocks_per_sm);
        let known = best.entry(key).or_insert(ranked);
        if compare(&ranked, known).is_lt() {
            *known = ranked;
        }
    };
    for axes in MatrixPath::of(problem, arch).map(|path| path.axes(problem)) {
        for fusion in axes.fusions {
            for tokens in search::heights(problem, m, &axes) {
                for columns in axes.columns {
                    for k in axes.k {
                        let node = axes.plainest(Tile { tokens, columns, k }, *fusion);
                        for variant in axes.of_node(&node) {
                            (1..=32).for_each(|stages| add(Variant { stages, ..variant }));
                        }
                    }
                }
            }
        }
    }
    let mut all: Vec<Ranked> = best.into_values().collect();
    all.sort_by(compare);
    all
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

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    /// Looking at few nodes finds what looking at all variants finds, in the same order.
    #[test]
    fn the_search_misses_nothing(problem in problem(), m in 1u32..1500, odd in any::<bool>()) {
        let accepts = move |spec: &Spec| !odd || spec.variant().stages % 2 == 1;
        let all = all(&problem, m, &Arch::H200, &accepts);
        let found = rank_where(&problem, m, &Arch::H200, 8, &accepts);
        let shown = |ranked: &[Ranked]| -> Vec<String> {
            ranked.iter().map(|ranked| format!("{} {}", ranked.prediction.us, ranked.spec.variant())).collect()
        };
        prop_assert_eq!(shown(&found), shown(&all[..all.len().min(8)]));
    }
}
