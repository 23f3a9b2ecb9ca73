//! The tuner, in measurers without a device: what it finds, what it never chooses, and that noise changes nothing.

#![allow(clippy::unwrap_used)]

mod session;
mod simulated;

use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use simulated::{Noise, Simulated, Time, Warm, passed};
use warpsmith::Result;
use warpsmith::build::Toolchain;
use warpsmith::internal::spec::{baseline, space};
use warpsmith::spec::{Activation, Arch, Problem, Spec};
use warpsmith_tune::{
    Admission, Budget, Footprint, Measure, Outcome, Progress, Rejection, Rest, Role, Stage, Standing, Tuner, Verdict,
    WhyInconclusive,
};

const M: u32 = 64;

fn problem() -> Problem {
    Problem::dual_gemm(Activation::Silu).n(4096).k(7168)
}

fn specs() -> Vec<Spec> {
    space(&problem(), &Arch::H200).collect()
}

fn no_spills(_: &Spec) -> Result<Footprint> {
    Ok(Footprint::default())
}

/// A tuner whose rests take none of this process's time.
fn tuner<'a, L: Measure>(measurer: L, build: impl Fn(&Spec) -> Result<Footprint> + Sync + 'a) -> Tuner<'a, L> {
    Tuner::new(measurer, build).clock(Time::default()).limit(Duration::from_secs(3600))
}

/// 0 to 1, by the spec and a salt.
fn chance(spec: &Spec, salt: u64) -> f64 {
    let mut hasher = DefaultHasher::new();
    (spec.variant(), salt).hash(&mut hasher);
    hasher.finish() as f64 / u64::MAX as f64
}

/// Microseconds that have a valley, some way from the baseline, and bumps of `bumps` at every step.
fn valley(spec: &Spec, bumps: f64) -> f64 {
    let variant = spec.variant();
    let off = |value: u32, best: u32| (f64::from(value) / f64::from(best)).log2().abs();
    let tile =
        0.10 * off(variant.tile.tokens, 64) + 0.07 * off(variant.tile.columns, 128) + 0.05 * off(variant.tile.k, 128);
    let rest = 0.04 * off(variant.stages, 4) + 0.06 * off(variant.split_k, 2);
    let fusion = if variant.fusion.word() == "interleaved" { 0.0 } else { 0.5 };
    40.0 * (1.0 + tile + rest + fusion) * (1.0 + bumps * chance(spec, 1))
}

/// Best first, by a prediction that is wrong by up to `error`.
fn ranked(truth: &dyn Fn(&Spec) -> f64, error: f64) -> Vec<Spec> {
    let predicted = |spec: &Spec| truth(spec) * (1.0 + error * (2.0 * chance(spec, 2) - 1.0));
    let mut specs = specs();
    specs.sort_by(|a, b| predicted(a).total_cmp(&predicted(b)));
    specs
}

fn best(specs: &[Spec], truth: &dyn Fn(&Spec) -> f64) -> f64 {
    specs.iter().map(truth).fold(f64::INFINITY, f64::min)
}

fn chosen(outcome: &Outcome) -> Spec {
    Spec::new(&outcome.problem, &outcome.choice, &Arch::H200).unwrap()
}

fn tried<'a>(outcome: &'a Outcome, spec: &Spec) -> &'a Standing {
    &outcome.tried.iter().find(|tried| tried.variant == *spec.variant()).unwrap().standing
}

/// 200 tunings for each kind of noise; of 44 000 that were tried once, none changed a choice. Noise that is certain to
/// spoil the samples has to be noticed; noise that is the same for both of a pair must not.
#[test]
fn alike_kernels_never_change_a_choice() {
    let all = specs();
    let noises = [
        (Noise::White(0.003), 0..=0),
        (Noise::White(0.03), 0..=0),
        (Noise::HeavyTails, 0..=10),
        (Noise::Drift(0.02), 0..=0),
        (Noise::Drift(0.2), 190..=200),
        (Noise::Clocks(0.03), 0..=0),
        (Noise::Clocks(0.12), 10..=200),
        (Noise::Wandering(0.01), 0..=0),
        (Noise::WanderingApart(0.01), 0..=10),
        (Noise::SecondIsFaster(0.02), 0..=0),
        (Noise::Tenant, 100..=200),
    ];
    for (noise, inconclusive) in noises {
        let mut undecided = 0;
        for seed in 0..200 {
            let (incumbent, candidates) = (all[seed], all.iter().skip(seed * 7).step_by(13).copied());
            let measurer = Simulated::new(&|_| 40.0, noise, seed as u64);
            let mut tuner = tuner(measurer, no_spills).budget(Budget::Quick).threads(1);
            let outcome = tuner.tune(&incumbent, M, candidates).unwrap();
            assert_eq!(outcome.choice, *incumbent.variant(), "{noise:?} {seed}: {outcome}");
            assert_ne!(outcome.verdict, Verdict::Changed, "{noise:?} {seed}: {outcome}");
            undecided += usize::from(!outcome.is_conclusive());
        }
        assert!(inconclusive.contains(&undecided), "{noise:?}: {undecided} of 200 inconclusive");
    }
}

/// As above, but with neighbours, hundreds of alike candidates and one tuning each.
#[test]
fn hundreds_of_alike_candidates_do_not_make_a_lucky_one() {
    let all = specs();
    for seed in 0..20 {
        let noise = if seed % 2 == 0 { Noise::White(0.02) } else { Noise::HeavyTails };
        let mut tuner = tuner(Simulated::new(&|_| 40.0, noise, seed), no_spills).budget(Budget::Exhaustive).threads(1);
        let candidates: Vec<_> = all.iter().skip(1).step_by(5).copied().collect();
        let outcome = tuner.tune(&all[0], M, candidates.iter().copied()).unwrap();
        assert_eq!(
            (outcome.choice, &outcome.verdict),
            (*all[0].variant(), &Verdict::Kept),
            "{noise:?} {seed}: {outcome}"
        );
        assert!(outcome.tried.len() > candidates.len(), "{outcome}");
    }
}

#[test]
fn three_hundredths_are_found_in_nearly_all_noises() {
    let all = specs();
    let noises = [
        (Noise::White(0.003), 50),
        (Noise::White(0.01), 48),
        (Noise::HeavyTails, 48),
        (Noise::Drift(0.02), 50),
        (Noise::Clocks(0.03), 48),
        (Noise::Wandering(0.01), 48),
        (Noise::SecondIsFaster(0.01), 48),
    ];
    for (noise, at_least) in noises {
        let found = (0..50u64).filter(|&seed| {
            let candidates: Vec<Spec> = all.iter().skip(seed as usize * 7).step_by(13).take(12).copied().collect();
            let better = candidates[seed as usize % candidates.len()];
            let truth = |spec: &Spec| if *spec == better { 38.8 } else { 40.0 };
            let incumbent = all[all.len() - 1 - seed as usize];
            let mut tuner = tuner(Simulated::new(&truth, noise, seed), no_spills).budget(Budget::Quick).threads(1);
            let outcome = tuner.tune(&incumbent, M, candidates).unwrap();
            let found = outcome.choice == *better.variant();
            assert!(found || outcome.choice == *incumbent.variant(), "{noise:?} {seed}: {outcome}");
            found
        });
        let found = found.count();
        assert!(found >= at_least, "{noise:?}: {found} of 50");
    }
}

#[test]
fn evidence_says_by_how_much() {
    let all = specs();
    let (incumbent, better, first) = (all[5], all[200], all[77]);
    let truth = |spec: &Spec| match spec {
        _ if *spec == better => 30.0,
        _ if *spec == incumbent => 40.0,
        _ if *spec == first => 36.0,
        _ if *spec.variant() == baseline(&problem()) => 120.0,
        _ => 50.0,
    };
    let mut tuner = tuner(Simulated::new(&truth, Noise::White(0.003), 1), no_spills).budget(Budget::Quick);
    let outcome = tuner.tune(&incumbent, M, [first, all[6], better, all[9]]).unwrap();
    assert_eq!((&outcome.verdict, outcome.choice), (&Verdict::Changed, *better.variant()));
    let evidence = outcome.evidence.unwrap();
    let close = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 0.002, "{found}, not {expected}");
    close(evidence.us, 30.0);
    for (comparison, expected) in
        [(evidence.to_incumbent, 30.0 / 40.0), (evidence.to_first, 30.0 / 36.0), (evidence.to_baseline, 30.0 / 120.0)]
    {
        let comparison = comparison.unwrap();
        let (low, high) = comparison.interval.unwrap();
        close(comparison.ratio, expected);
        assert!(low <= comparison.ratio && comparison.ratio <= high);
    }
    close(outcome.over_baseline().unwrap(), 4.0);
    close(outcome.over_first().unwrap(), 1.2);
    assert_eq!(tried(&outcome, &better), &Standing::Stands);
    assert_eq!(tried(&outcome, &incumbent), &Standing::Lost);
    let roles: Vec<Role> = outcome.tried.iter().map(|tried| tried.role).collect();
    let candidates = (0..4).map(Role::Candidate);
    assert_eq!(roles, [Role::Incumbent, Role::Baseline].into_iter().chain(candidates).collect::<Vec<_>>());
    assert_eq!(outcome.tried.iter().map(ToString::to_string).filter(|line| line.contains('\n')).count(), 0);

    // For machines: numbers and spellings.
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(json["choice"], better.variant().to_string());
    assert_eq!(json["verdict"], "changed");
    assert!(json["evidence"]["to_baseline"]["ratio"].as_f64().unwrap() < 0.26);
    assert_eq!(json["tried"][2]["role"]["candidate"], 0);
}

#[test]
fn quick_ends_near_the_best_and_exhaustive_finds_it() {
    let truth = |spec: &Spec| valley(spec, 0.2);
    let ranked = ranked(&truth, 0.15);
    assert!(ranked.len() > 2000, "{}", ranked.len());
    let (incumbent, best) = (Spec::new(&problem(), &baseline(&problem()), &Arch::H200).unwrap(), best(&ranked, &truth));
    for seed in 0..5 {
        let tune = |budget| {
            let mut tuner = tuner(Simulated::new(&truth, Noise::White(0.003), seed), no_spills).budget(budget);
            truth(&chosen(&tuner.tune(&incumbent, M, ranked.iter().copied()).unwrap())) / best
        };
        let (quick, normal, exhaustive) = (tune(Budget::Quick), tune(Budget::Normal), tune(Budget::Exhaustive));
        assert!(quick < 1.06 && normal < 1.02 && exhaustive < 1.01, "{quick} {normal} {exhaustive}");
    }
    // What nobody predicted is found where all are tried.
    let surprise = ranked[ranked.len() * 2 / 3];
    let truth = |spec: &Spec| if *spec == surprise { best * 0.97 } else { truth(spec) };
    let mut tuner = tuner(Simulated::new(&truth, Noise::White(0.003), 9), no_spills).budget(Budget::Exhaustive);
    assert_eq!(chosen(&tuner.tune(&incumbent, M, ranked.iter().copied()).unwrap()), surprise);
}

#[test]
fn neighbours_lead_from_a_bad_place_into_the_valley() {
    let truth = |spec: &Spec| valley(spec, 0.0);
    let incumbent = Spec::new(&problem(), &baseline(&problem()), &Arch::H200).unwrap();
    let best = best(&specs(), &truth);
    let mut rounds = 0;
    let watch = |progress: &Progress<'_>| {
        if let Stage::Climbing(round) = progress.stage {
            rounds = round;
        }
        ControlFlow::Continue(())
    };
    let mut tuner = tuner(Simulated::new(&truth, Noise::White(0.003), 3), no_spills).watch(watch);
    let outcome = tuner.tune(&incumbent, M, []).unwrap();
    drop(tuner);
    let regret = truth(&chosen(&outcome)) / best;
    assert!(rounds > 3 && regret < 1.02, "{rounds} rounds, {regret} of the best: {outcome}");
}

/// Everything that is fast is wrong, hangs, does not compile, or spills.
#[test]
fn what_is_refused_is_never_chosen() {
    let ranked = ranked(&|spec| valley(spec, 0.0), 0.0);
    let fate = |spec: &Spec| (chance(spec, 7) * 10.0) as u32;
    let truth = |spec: &Spec| valley(spec, 0.0) * if fate(spec) < 6 { 0.3 } else { 1.0 };
    let admission = |spec: &Spec| match fate(spec) {
        0 => Admission::Refused(Rejection::Wrong("wrong: 1 of 2 elements".to_owned())),
        1 => Admission::Refused(Rejection::Hangs),
        2 => Admission::Refused(Rejection::Crashes("illegal address".to_owned())),
        _ => passed(spec),
    };
    let build = |spec: &Spec| match fate(spec) {
        3 => Err("nonsense".parse::<Budget>().unwrap_err()),
        4 => Ok(Footprint { spills: true, spill_store_bytes: 4, ..Footprint::default() }),
        5 => Ok(Footprint { shared_bytes: 300_000, ..Footprint::default() }),
        _ => no_spills(spec),
    };
    let incumbent = *ranked.iter().rev().find(|spec| fate(spec) >= 6).unwrap();
    let mut measurer = Simulated::new(&truth, Noise::White(0.003), 5);
    measurer.admission = &admission;
    let mut tuner = tuner(measurer, build);
    let outcome = tuner.tune(&incumbent, M, ranked.iter().copied()).unwrap();
    assert_eq!(outcome.verdict, Verdict::Changed);
    assert!(fate(&chosen(&outcome)) >= 6, "{outcome}");
    let words: Vec<_> = outcome.refused().into_keys().collect();
    assert_eq!(words, ["build", "crashes", "hangs", "shared memory", "spills", "wrong"], "{outcome}");
    for tried in &outcome.tried {
        let refused = matches!(tried.standing, Standing::Refused(_));
        let spec = Spec::new(&problem(), &tried.variant, &Arch::H200).unwrap();
        assert_eq!(refused, fate(&spec) < 6 && tried.worst.is_none(), "{tried}");
        assert!(!refused || tried.screened_us.is_none(), "{tried}");
    }
}

#[test]
fn where_everything_else_is_refused_the_incumbent_stays() {
    let all = specs();
    let incumbent = all[17];
    let admission = |spec: &Spec| if *spec == incumbent { passed(spec) } else { Admission::Refused(Rejection::Hangs) };
    let mut measurer = Simulated::new(&|_| 40.0, Noise::White(0.003), 5);
    measurer.admission = &admission;
    let outcome = tuner(measurer, no_spills).tune(&incumbent, M, all.iter().copied()).unwrap();
    assert_eq!((&outcome.verdict, outcome.choice), (&Verdict::Kept, *incumbent.variant()));
    let evidence = outcome.evidence.unwrap();
    assert!((evidence.us - 40.0).abs() < 0.5 && evidence.to_baseline.is_none() && evidence.spread.is_none());
    assert_eq!((outcome.over_baseline(), outcome.over_first()), (None, None));
}

#[test]
fn an_incumbent_that_is_wrong_gives_way_and_without_anything_right_there_is_no_choice() {
    let all = specs();
    let incumbent = all[17];
    let wrong = |_: &Spec| Admission::Refused(Rejection::NotRepeatable);
    let admission = |spec: &Spec| if *spec == incumbent { wrong(spec) } else { passed(spec) };
    let truth = |spec: &Spec| if *spec == all[30] { 20.0 } else { 40.0 };
    let tune = |admission| {
        let mut measurer = Simulated::new(&truth, Noise::White(0.003), 5);
        measurer.admission = admission;
        let mut tuner = tuner(measurer, no_spills).budget(Budget::Quick);
        tuner.tune(&incumbent, M, all[25..35].iter().copied()).unwrap()
    };
    let outcome = tune(&admission);
    assert_eq!((&outcome.verdict, outcome.choice), (&Verdict::Changed, *all[30].variant()));
    assert!(outcome.evidence.is_some_and(|evidence| evidence.to_incumbent.is_none()));
    let outcome = tune(&wrong);
    assert_eq!(outcome.verdict, Verdict::Inconclusive(WhyInconclusive::NothingRight));
    assert_eq!(outcome.choice, *incumbent.variant());
}

/// A driver that is broken, say. What has failed in the measurer before is nobody's fault.
#[test]
fn where_not_even_the_baseline_runs_tuning_ends() {
    let all = specs();
    let is_baseline = |spec: &Spec| *spec.variant() == baseline(&problem());
    let tune = |admission: &dyn Fn(&Spec) -> Admission, incumbent: &Spec| {
        let mut measurer = Simulated::new(&|_| 40.0, Noise::White(0.003), 5);
        measurer.admission = admission;
        let mut tried = 0;
        let watch = |_: &Progress<'_>| {
            tried += 1;
            ControlFlow::Continue(())
        };
        let outcome = tuner(measurer, no_spills).budget(Budget::Quick).watch(watch).tune(
            incumbent,
            M,
            all[25..35].iter().copied(),
        );
        (outcome, tried)
    };
    for rejection in [Rejection::Crashes("illegal address".to_owned()), Rejection::Hangs] {
        let refused = || Admission::Refused(rejection.clone());
        let own = all.iter().find(|spec| is_baseline(spec)).unwrap();
        for (incumbent, before) in [(&all[17], 1), (own, 0)] {
            assert!(before == 0 || !is_baseline(incumbent));
            let (outcome, tried) = tune(&|_| refused(), incumbent);
            let error = outcome.unwrap_err();
            assert!(error.is_driver() && error.to_string().contains("not even the baseline runs"), "{error}");
            assert!(error.to_string().contains(&rejection.to_string()), "{error}");
            assert_eq!(tried, before, "nothing is tried after it");
        }
        // Where the incumbent runs, it is the baseline's own fault.
        let (outcome, _) = tune(&|spec| if is_baseline(spec) { refused() } else { passed(spec) }, &all[17]);
        assert_eq!(outcome.unwrap().verdict, Verdict::Kept);
    }
}

#[test]
fn kernels_that_spill_are_tried_only_where_there_is_nothing_else() {
    let all = specs();
    let truth = |spec: &Spec| if *spec == all[30] { 20.0 } else { 40.0 };
    let spills = |_: &Spec| Ok(Footprint { spills: true, ..Footprint::default() });
    let tune = |build: &(dyn Fn(&Spec) -> Result<Footprint> + Sync)| {
        let measurer = Simulated::new(&truth, Noise::White(0.003), 5);
        let mut tuner = tuner(measurer, build).budget(Budget::Quick);
        tuner.tune(&all[17], M, all[25..35].iter().copied()).unwrap()
    };
    let outcome = tune(&spills);
    assert_eq!((&outcome.verdict, outcome.choice), (&Verdict::Changed, *all[30].variant()));
    let outcome = tune(&|spec| if *spec == all[30] { spills(spec) } else { no_spills(spec) });
    assert_eq!((&outcome.verdict, outcome.choice), (&Verdict::Kept, *all[17].variant()));
    assert!(matches!(tried(&outcome, &all[30]), Standing::Refused(Rejection::Spills { .. })));
}

/// A measurer in which one kernel stops working some time after it was admitted.
struct Breaks<'a>(Simulated<'a>, Spec, u32);

impl Breaks<'_> {
    fn or_broken(&mut self, spec: &Spec, us: f64) -> f64 {
        self.2 = self.2.saturating_sub(u32::from(*spec == self.1));
        if *spec == self.1 && self.2 == 0 { f64::INFINITY } else { us }
    }
}

impl Measure for Breaks<'_> {
    fn admit(&mut self, spec: &Spec) -> Result<Admission> {
        self.0.admit(spec)
    }

    fn screen(&mut self, spec: &Spec) -> Result<f64> {
        let us = self.0.screen(spec)?;
        Ok(self.or_broken(spec, us))
    }

    fn duel(&mut self, incumbent: &Spec, challenger: &Spec, pairs: usize) -> Result<Vec<(f64, f64)>> {
        let pairs = self.0.duel(incumbent, challenger, pairs)?;
        Ok(pairs.iter().map(|pair| (self.or_broken(incumbent, pair.0), self.or_broken(challenger, pair.1))).collect())
    }
}

#[test]
fn a_kernel_that_fails_while_it_is_timed_is_never_chosen() {
    let all = specs();
    let truth = |spec: &Spec| if *spec == all[30] { 20.0 } else { 40.0 };
    for after in [1, 2, 20, 33, 60, 90, 130] {
        let measurer = Breaks(Simulated::new(&truth, Noise::White(0.003), 5), all[30], after);
        let mut tuner = tuner(measurer, no_spills).budget(Budget::Quick);
        let outcome = tuner.tune(&all[17], M, all[25..35].iter().copied()).unwrap();
        assert_eq!(outcome.choice, *all[17].variant(), "after {after}: {outcome}");
        assert!(
            matches!(tried(&outcome, &all[30]), Standing::Refused(Rejection::Crashes(_))),
            "after {after}: {outcome}"
        );
    }
    // The incumbent itself: whatever is chosen instead, it is not that.
    for after in [1, 2, 4, 20] {
        let measurer = Breaks(Simulated::new(&truth, Noise::White(0.003), 5), all[17], after);
        let mut tuner = tuner(measurer, no_spills).budget(Budget::Quick);
        let outcome = tuner.tune(&all[17], M, all[25..35].iter().copied()).unwrap();
        assert_eq!((outcome.verdict, outcome.choice), (Verdict::Changed, *all[30].variant()), "after {after}");
    }
}

#[test]
fn the_same_samples_give_the_same_outcome_on_any_number_of_threads() {
    let truth = |spec: &Spec| valley(spec, 0.2);
    let ranked = ranked(&truth, 0.1);
    let tune = |threads| {
        let measurer = Simulated::new(&truth, Noise::HeavyTails, 11);
        let outcome = tuner(measurer, no_spills).threads(threads).tune(&ranked[900], M, ranked.iter().copied());
        let mut json = serde_json::to_value(outcome.unwrap()).unwrap();
        json["wall_s"] = 0.into();
        json
    };
    assert_eq!(tune(1), tune(1));
    assert_eq!(tune(1), tune(7));
}

#[test]
fn whoever_watches_can_stop_it() {
    let all = specs();
    let seen = RefCell::new(Vec::new());
    let watch = |progress: &Progress<'_>| {
        seen.borrow_mut().push((progress.stage, progress.done, progress.of));
        if seen.borrow().len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let measurer = Simulated::new(&|_| 40.0, Noise::White(0.003), 5);
    let outcome = tuner(measurer, no_spills).watch(watch).tune(&all[0], M, all[20..30].to_vec()).unwrap();
    assert_eq!(outcome.verdict, Verdict::Inconclusive(WhyInconclusive::Cancelled));
    assert!(outcome.tried.len() == 3 && outcome.evidence.is_none());
    assert_eq!(*seen.borrow(), [1, 2, 3].map(|done| (Stage::Screening, done, Some(12))));
}

#[test]
fn the_limit_ends_a_search_and_what_was_found_counts() {
    let truth = |spec: &Spec| valley(spec, 0.0);
    let ranked = ranked(&truth, 0.0);
    let slow = |spec: &Spec| {
        thread::sleep(Duration::from_millis(5));
        no_spills(spec)
    };
    let begun = Instant::now();
    let measurer = Simulated::new(&truth, Noise::White(0.003), 5);
    let mut tuner = Tuner::new(measurer, slow)
        .rest(Rest::NONE)
        .budget(Budget::Exhaustive)
        .limit(Duration::from_millis(400))
        .threads(1);
    let outcome = tuner.tune(&ranked[1500], M, ranked.iter().copied()).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5) && outcome.out_of_time, "{outcome}");
    assert!(outcome.tried.len() < 100, "{outcome}");
    assert_eq!(outcome.verdict, Verdict::Changed, "{outcome}");

    // Too little time for anything at all.
    let measurer = Simulated::new(&truth, Noise::White(0.003), 5);
    let mut tuner = Tuner::new(measurer, slow).limit(Duration::ZERO);
    let outcome = tuner.tune(&ranked[1500], M, ranked.iter().copied()).unwrap();
    assert_eq!(outcome.verdict, Verdict::Inconclusive(WhyInconclusive::OutOfTime));
}

#[test]
fn what_is_not_a_candidates_fault_is_an_error() {
    let all = specs();
    let measurer = || Simulated::new(&|_| 40.0, Noise::White(0.003), 5);
    let other = space(&problem().n(2048), &Arch::H200).next().unwrap();
    assert!(tuner(measurer(), no_spills).tune(&all[0], M, [other]).unwrap_err().is_unsupported());
    let no_compiler = |_: &Spec| Toolchain::at("/nowhere").map(|_| Footprint::default());
    assert!(tuner(measurer(), no_compiler).tune(&all[0], M, []).unwrap_err().is_missing_library());

    struct NoDevice;
    impl Measure for NoDevice {
        fn admit(&mut self, _: &Spec) -> Result<Admission> {
            Err("no device".parse::<Budget>().unwrap_err())
        }
        fn screen(&mut self, _: &Spec) -> Result<f64> {
            Ok(1.0)
        }
        fn duel(&mut self, _: &Spec, _: &Spec, _: usize) -> Result<Vec<(f64, f64)>> {
            Ok(Vec::new())
        }
    }
    assert!(tuner(NoDevice, no_spills).tune(&all[0], M, []).is_err());
}

/// Two kernels on a card whose clock falls when it is hot: the one that is the faster on a cool one minds that more.
#[test]
fn a_hot_card_decides_like_a_cool_one() {
    let all = specs();
    let (hungry, frugal) = (all[30], all[17]);
    let cool = |spec: &Spec| match spec {
        _ if *spec == hungry => (38.0, 0.10),
        _ if *spec == frugal => (40.0, 0.02),
        _ => (60.0, 0.05),
    };
    let tune = |incumbent: &Spec, heat: f64, rest: Rest| {
        let time = Time::default();
        let measurer = Warm::new(&cool, time.clone(), heat);
        let mut tuner = Tuner::new(measurer, no_spills).budget(Budget::Quick).clock(time).rest(rest).threads(1);
        tuner.tune(incumbent, M, [frugal, hungry].into_iter().chain(all[20..28].iter().copied())).unwrap()
    };
    for incumbent in [&hungry, &frugal] {
        for heat in [0.0, 0.3, 1.0] {
            let outcome = tune(incumbent, heat, Rest::NORMAL);
            assert_eq!(outcome.choice, *hungry.variant(), "at {heat}: {outcome}");
            assert!(outcome.rested > Duration::from_millis(500) && outcome.wall > outcome.rested, "{outcome}");
            assert!(outcome.to_string().contains("at rest"), "{outcome}");
            assert!(serde_json::to_value(&outcome).unwrap()["rested_s"].as_f64().unwrap() > 0.5);
        }
        // Without rests it is hot, by what it was before or by what it does.
        let outcome = tune(incumbent, 1.0, Rest::NONE);
        assert_eq!((outcome.choice, outcome.rested), (*frugal.variant(), Duration::ZERO), "{outcome}");
    }
}

/// The time is up at any moment: what is done then is the last.
#[test]
fn nothing_is_begun_after_the_limit() {
    let all = specs();
    let truth = |spec: &Spec| (if *spec == all[30] { 36.0 } else { 40.0 }, 0.0);
    let (mut changed, mut longest) = (0, Duration::ZERO);
    for ms in (60..3000).step_by(20) {
        let (time, limit) = (Time::default(), Duration::from_millis(ms));
        let measurer = Warm::new(&truth, time.clone(), 0.0);
        let mut tuner = Tuner::new(measurer, no_spills).budget(Budget::Quick).clock(time).threads(1).limit(limit);
        let outcome = tuner.tune(&all[17], M, all[25..35].iter().copied()).unwrap();
        let over = outcome.wall.saturating_sub(limit);
        assert!(over <= Warm::LONGEST, "{over:?} over {limit:?}: {outcome}");
        longest = longest.max(over);
        match outcome.verdict {
            Verdict::Changed => changed += 1,
            // Once it has been found there is time to be sure.
            _ => assert_eq!((changed, &outcome.verdict), (0, &Verdict::Inconclusive(WhyInconclusive::OutOfTime))),
        }
    }
    assert!(changed > 0 && longest > Duration::ZERO);
}
