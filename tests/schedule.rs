//! The whole range of M of a problem: what is chosen, that it is the same whoever asks, and that few kernels serve it.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::time::Instant;

use jiff::civil::date;
use proptest::prelude::*;
use warpsmith::format::Format;
use warpsmith::internal::pick::{Entry, Evidence, Measured, Schedule};
use warpsmith::pick::{Origin, Picker, Policy, Table};
use warpsmith::spec::{Activation, Arch, Numerics, Problem, Spec, Variant};

const H200: &str = "NVIDIA H200";

fn dual() -> Problem {
    Problem::dual_gemm(Activation::Silu).n(4096).k(7168).prepared()
}

/// The MLPs of a large mixture-of-experts model, on one device and shared by eight: gate and up together, then down; the
/// experts, the shared expert, and the dense layers before them.
fn model() -> Vec<Problem> {
    let up = |n: u32| Problem::dual_gemm(Activation::Silu).n(n).k(7168).c(Format::Bf16).a(Format::Bf16).prepared();
    let down = |k: u32| Problem::gemm().n(7168).k(k).c(Format::Bf16).a(Format::Bf16).prepared();
    vec![up(2048).grouped(32), down(2048).grouped(32), up(2048), down(2048), up(18_432 / 8), down(18_432 / 8)]
}

fn evidence() -> Evidence {
    let measured = Measured { us: 20.0, over_baseline: 7.0, over_heuristic: 1.02, spread: 0.01, candidates: 412 };
    Evidence { measured, driver: "13.0".to_owned(), nvrtc: "13.0.88".to_owned(), date: date(2026, 11, 22) }
}

const MEASURED: [&str; 3] = [
    "wgmma.t64x64x128.s5.interleaved.ws2.shared",
    "wgmma.t64x64x128.s6.interleaved.ws2.direct",
    "wgmma.t32x64x128.s4.interleaved.ws4.shared.dsmem2",
];

fn picker(spans: &[(u32, u32)]) -> Picker {
    let mut table = Table::new();
    for (index, (from, more)) in spans.iter().enumerate() {
        let variant: Variant = MEASURED[index % MEASURED.len()].parse().unwrap();
        table.insert(Entry::new(H200, &Arch::H200, &dual(), *from..=from + more, &variant, evidence()).unwrap());
    }
    Picker::builder(H200, &Arch::H200).without_built_in().table(&table).build().unwrap()
}

/// Ascending, gapless, from one row to the limit; neighbours differ.
fn is_whole(schedule: &Schedule, last: u32) {
    let intervals = schedule.intervals();
    assert_eq!((intervals[0].first, intervals[intervals.len() - 1].last, schedule.last()), (1, last, last));
    for pair in intervals.windows(2) {
        assert_eq!(pair[0].last + 1, pair[1].first);
        assert_ne!(pair[0].choice, pair[1].choice);
    }
    let specs: Vec<&Spec> = schedule.specs().collect();
    assert_eq!(specs.iter().collect::<HashSet<_>>().len(), specs.len());
    assert!(intervals.iter().all(|interval| interval.first <= interval.last
        && specs.contains(&interval.choice.spec())
        && interval.choice.spec().fits_grid(interval.last)));
}

#[test]
fn every_m_has_the_choice_of_its_interval_whoever_asks_first() {
    let problems = [dual(), dual().grouped(8).a(Format::Nvfp4), Problem::gemm().n(272).k(448)];
    for problem in problems {
        let forwards = picker(&[(30, 40)]);
        let schedule = forwards.schedule(&problem).unwrap();
        is_whole(&schedule, Problem::M_MAX);
        let backwards = picker(&[(30, 40)]);
        for interval in schedule.intervals().iter().rev() {
            for m in [interval.last, interval.first] {
                assert_eq!(backwards.choose(&problem.m_up_to(9), m).unwrap(), interval.choice);
            }
        }
        let mut index = 0;
        for m in 1..=20_000 {
            index += usize::from(m > schedule.intervals()[index].last);
            assert_eq!(schedule.index(m), index);
            assert_eq!(forwards.choose(&problem, m).unwrap(), schedule.intervals()[index].choice, "{m}");
        }
        assert_eq!(schedule.at(0), schedule.at(1));
        assert_eq!(schedule.at(u32::MAX), schedule.at(Problem::M_MAX));
    }
}

proptest! {
    /// A stated limit cuts the schedule and changes no choice; what was measured holds exactly where it was measured.
    #[test]
    fn a_limit_cuts_and_measurements_hold(
        spans in prop::collection::vec((1u32..300, 0u32..200), 0..6),
        limit in 1u32..600,
    ) {
        let picker = picker(&spans);
        let whole = picker.schedule(&dual()).unwrap();
        let cut = picker.schedule(&dual().m_up_to(limit)).unwrap();
        is_whole(&cut, limit);
        for m in 1..=limit {
            prop_assert_eq!(whole.at(m), cut.at(m));
            let is_measured = spans.iter().any(|(from, more)| (*from..=from + more).contains(&m));
            prop_assert_eq!(whole.at(m).origin() == Origin::Tuned, is_measured, "{}", m);
        }
    }
}

#[test]
fn pins_and_classes_are_schedules_too() {
    let variant: Variant = MEASURED[0].parse().unwrap();
    let pinned = Picker::builder(H200, &Arch::H200).pin(&dual(), &variant).build().unwrap();
    let schedule = pinned.schedule(&dual().m_up_to(512)).unwrap();
    assert_eq!((schedule.intervals().len(), schedule.last(), schedule.specs().count()), (1, 512, 1));
    assert_eq!(schedule.at(77).origin(), Origin::Pinned);

    let invariant = Picker::builder(H200, &Arch::H200).policy(Policy::BatchInvariant).build().unwrap();
    let schedule = invariant.schedule(&dual()).unwrap();
    is_whole(&schedule, Problem::M_MAX);
    let class = invariant.class(&dual()).unwrap().unwrap();
    assert!(schedule.specs().all(|spec| spec.numerics() == class));

    // Two blocks that share K need a place in the grid for each tile of tokens: there is none for so many rows.
    let class: Numerics = "wgmma.k16.f16.f32.g2x128.cluster2x3584".parse().unwrap();
    let named = Picker::builder(H200, &Arch::H200).class(&dual(), class).build().unwrap();
    let whole = named.schedule(&dual()).unwrap();
    is_whole(&whole, whole.last());
    assert!(whole.last() < Problem::M_MAX);
    assert!(named.choose(&dual(), whole.last()).is_ok());
    let error = named.choose(&dual(), whole.last() + 1).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("adds up as"), "{error}");
    assert!(named.schedule(&dual().m_up_to(whole.last() + 1)).unwrap_err().is_unsupported());
    // What is not legal at all says so.
    assert!(named.schedule(&dual().n(17)).unwrap_err().is_unsupported());
}

#[test]
fn a_large_models_kernels_are_few_and_soon_known() {
    let picker = Picker::new(H200, &Arch::H200);
    let (mut kernels, mut cells) = (0, 0);
    for problem in model() {
        let start = Instant::now();
        let schedule = picker.schedule(&problem.m_up_to(8192)).unwrap();
        let elapsed = start.elapsed();
        is_whole(&schedule, 8192);
        eprintln!(
            "{problem}: {} intervals, {} kernels, {elapsed:?}",
            schedule.intervals().len(),
            schedule.specs().count()
        );
        kernels += schedule.specs().count();
        cells += schedule.intervals().len();
        // An optimised build takes a tenth.
        assert!(elapsed.as_millis() < 100, "{problem}: {elapsed:?}");
    }
    assert!(kernels <= 60, "{kernels} kernels in {cells} intervals");
}
