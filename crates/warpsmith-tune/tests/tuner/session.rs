//! A time shared among what a manifest asks for, on cards that there are not.

use std::collections::HashSet;
use std::time::Duration;

use warpsmith::Result;
use warpsmith::engine::Manifest;
use warpsmith::internal::pick::heuristic::{load, predict_for, rank};
use warpsmith::pick::Picker;
use warpsmith::spec::{Activation, Arch, Problem, Spec};
use warpsmith_tune::{
    Budget, Clock, Comparison, Decided, Outcome, Point, Tuner, Turn, Verdict, WhyInconclusive, tune_within,
};

use crate::simulated::{Time, Warm};
use crate::{chance, no_spills};

fn manifest() -> Manifest {
    let dual = Problem::dual_gemm(Activation::Silu).n(2048).k(7168).prepared();
    let rows = "1..=1024".parse().unwrap();
    let experts = dual.grouped(8).experts_per_token(2);
    Manifest::new().with(&dual, &rows).with(&Problem::gemm().n(7168).k(2048).prepared(), &rows).with(&experts, &rows)
}

fn picker() -> Picker {
    Picker::builder("NVIDIA H100", &Arch::H100).without_built_in().build().unwrap()
}

/// What opening a card for a point takes.
fn opening(point: &Point) -> Duration {
    Duration::from_millis(300) + Duration::from_secs_f64(point.problem().flop(point.m().into()) / 30e9)
}

/// The model is off by up to a sixth.
fn tune(point: &Point, turn: Turn, time: &Time) -> Result<Outcome> {
    let (problem, m) = (point.problem(), point.m());
    let truth =
        |spec: &Spec| (predict_for(spec, &load(problem, m)).us * (1.0 + (chance(spec, m.into()) - 0.5) / 3.0), 0.05);
    let measurer = Warm::new(&truth, time.clone(), 0.0).opening(opening(point));
    let mut tuner =
        Tuner::new(measurer, no_spills).clock(time.clone()).budget(turn.budget).limit(turn.limit).threads(1);
    let candidates = rank(problem, m, &Arch::H100, turn.budget.candidates());
    tuner.tune(point.choice().spec(), m, candidates.into_iter().map(|ranked| ranked.spec))
}

fn all_within(seconds: f64) -> (Vec<Decided>, Vec<Turn>, Duration) {
    let (time, mut turns, mut told) = (Time::default(), Vec::new(), 0);
    let tuned = |point: &Point, turn| -> Result<Outcome> {
        turns.push(turn);
        tune(point, turn, &time)
    };
    let found = |decided: &Decided| {
        assert!(decided.outcomes.last().unwrap().problem == *decided.point.choice().spec().problem());
        told += 1;
        Ok(())
    };
    let points = Point::all(&picker(), &manifest());
    let decided = tune_within(points, Duration::from_secs_f64(seconds), &time, tuned, found).unwrap();
    assert_eq!(told, turns.len());
    (decided, turns, time.now())
}

#[test]
fn a_stated_time_is_kept_and_shared() {
    let longest = Point::all(&picker(), &manifest()).iter().map(opening).max().unwrap() + Warm::LONGEST;
    let mut before = 0;
    for seconds in [0.0, 0.1, 2.0, 5.0, 20.0, 60.0, 120.0, 1200.0] {
        let (decided, turns, took) = all_within(seconds);
        assert!(took <= Duration::from_secs_f64(seconds) + longest, "{took:?} for {seconds} s");
        let reached: Vec<&Decided> = decided.iter().filter(|decided| decided.outcome().is_some()).collect();
        println!("{seconds} s: {took:?}, {} of {} reached, {} turns", reached.len(), decided.len(), turns.len());
        assert!(reached.len() >= before, "{} after {before}", reached.len());
        before = reached.len();
        assert!(turns.iter().is_sorted_by_key(|turn| turn.budget == Budget::Normal));
        let problems: HashSet<String> = reached.iter().map(|decided| decided.point.problem().to_string()).collect();
        match seconds as u32 {
            0 => assert!(reached.is_empty() && turns.is_empty() || seconds > 0.0),
            // Where it is short, some of each problem.
            20 => assert!(problems.len() == 3 && reached.len() < decided.len()),
            120 => assert!(reached.len() == decided.len() && turns.len() > decided.len()),
            1200 => assert!(decided.iter().all(|decided| decided.outcomes.len() == 2)),
            _ => {}
        }
    }
}

/// Every problem has its first turn before any has a second, and then turns of a problem follow each other: their weights are
/// made once.
#[test]
fn points_of_a_problem_follow_each_other() {
    let (time, points) = (Time::default(), Point::all(&picker(), &manifest()));
    let mut turns: Vec<(Problem, f64)> = Vec::new();
    let quick = |point: &Point, turn: Turn| -> Result<Outcome> {
        if turn.budget == Budget::Quick {
            turns.push((*point.problem(), point.octaves()));
        }
        tune(point, turn, &time)
    };
    tune_within(points.clone(), Duration::from_secs(1200), &time, quick, |_| Ok(())).unwrap();
    assert_eq!(turns.len(), points.len());
    let problems: HashSet<String> = turns.iter().map(|(problem, _)| problem.to_string()).collect();
    let first: HashSet<String> = turns[..problems.len()].iter().map(|(problem, _)| problem.to_string()).collect();
    assert_eq!(first, problems);
    let rounds = (points.len() / problems.len() + 1).ilog2() as usize + 1;
    let changes = turns.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
    assert!(changes <= rounds * (problems.len() - 1), "{changes} for {} turns", turns.len());
    for problem in &problems {
        assert!(turns.iter().filter(|(of, _)| of.to_string() == *problem).is_sorted_by(|a, b| a.1 >= b.1));
    }
}

/// Experts that take longer to make than there is time for keep nothing from the others.
#[test]
fn a_point_that_takes_too_long_waits_for_the_others() {
    let small = Problem::gemm().n(7168).k(2048).prepared();
    let large = Problem::dual_gemm(Activation::Silu).n(4096).k(8192).grouped(128).experts_per_token(8).prepared();
    let manifest = Manifest::new().with(&large, &"65536".parse().unwrap()).with(&small, &"1..=1024".parse().unwrap());
    let (time, points) = (Time::default(), Point::all(&picker(), &manifest));
    let tuned = |point: &Point, turn| tune(point, turn, &time);
    let decided = tune_within(points, Duration::from_secs(120), &time, tuned, |_| Ok(())).unwrap();
    for of in decided {
        assert_eq!(of.outcome().is_some(), *of.point.problem() == small, "{} {}", of.point.problem(), of.point.m());
    }
    assert!(time.now() < Duration::from_secs(130), "{:?}", time.now());
}

/// What is left goes first to those that were not decided, then to those whose time was up.
#[test]
fn what_is_left_goes_to_the_least_sure() {
    let (time, points) = (Time::default(), Point::all(&picker(), &manifest()));
    let (odd, hurried, hopeless) = (points[3].clone(), points[7].clone(), points[9].clone());
    let is = |point: &Point, other: &Point| (point.problem(), point.m()) == (other.problem(), other.m());
    let mut again = Vec::new();
    let odd_ones = |point: &Point, turn: Turn| -> Result<Outcome> {
        let mut outcome = tune(point, turn, &time)?;
        if turn.budget == Budget::Normal {
            again.push(point.clone());
        } else if is(point, &odd) {
            outcome.verdict = Verdict::Inconclusive(WhyInconclusive::OutOfTime);
        } else if is(point, &hopeless) {
            outcome.verdict = Verdict::Inconclusive(WhyInconclusive::NothingRight);
        } else {
            outcome.out_of_time = is(point, &hurried);
        }
        Ok(outcome)
    };
    let decided = tune_within(points.clone(), Duration::from_secs(400), &time, odd_ones, |_| Ok(()));
    assert!(is(&again[0], &odd) && is(&again[1], &hurried));
    assert!(again.iter().all(|point| !is(point, &hopeless)), "nothing is right, whatever is tried");
    let decided: Vec<Decided> = decided.unwrap();
    assert!(decided[9].outcome().is_none() && decided[3].outcome().is_some());
    assert_eq!(decided[3].outcomes.len(), 2);

    // Whoever stops it stops all of it.
    let mut turns = 0;
    let stopped = |point: &Point, turn: Turn| -> Result<Outcome> {
        let mut outcome = tune(point, turn, &Time::default())?;
        turns += 1;
        if turns == 3 {
            outcome.verdict = Verdict::Inconclusive(WhyInconclusive::Cancelled);
        }
        Ok(outcome)
    };
    let decided = tune_within(points, Duration::from_secs(4000), &time, stopped, |_| Ok(()));
    assert_eq!((turns, decided.unwrap().iter().filter(|decided| decided.outcome().is_some()).count()), (3, 2));
}

/// A decision at the most rows speaks for fewer as far as the model, corrected, says that it holds there.
#[test]
fn a_decision_reaches_as_far_as_it_holds() {
    let ratio = |point: &Point, spec: &Spec, m: u32| {
        let us = |spec: &Spec| predict_for(spec, &load(point.problem(), m)).us;
        us(spec) / us(point.choice().spec())
    };
    let rises =
        |(point, spec): &(Point, Spec)| ratio(point, spec, *point.rows().start()) / ratio(point, spec, point.m());
    let all = Point::all(&picker(), &manifest()).into_iter().flat_map(|point| {
        let ranked = rank(point.problem(), point.m(), &Arch::H100, 64);
        ranked.into_iter().map(move |ranked| (point.clone(), ranked.spec))
    });
    let (point, other) = all.max_by(|a, b| rises(a).total_cmp(&rises(b))).unwrap();
    let (first, m) = point.rows().into_inner();
    let turn = Turn { budget: Budget::Quick, limit: Duration::from_secs(60) };
    let mut outcome = tune(&point, turn, &Time::default()).unwrap();
    let decided = |outcome: &Outcome| Decided { point: point.clone(), outcomes: vec![outcome.clone()] };
    (outcome.verdict, outcome.choice) = (Verdict::Kept, *point.choice().spec().variant());
    assert_eq!((decided(&outcome).rows(), decided(&outcome).gain()), (point.rows(), Some(1.0)));
    (outcome.verdict, outcome.choice) = (Verdict::Changed, *other.variant());
    let mut with = |ratio: f64| {
        let pairs: Vec<_> = (0..31).map(|_| (100.0, 100.0 * ratio)).collect();
        outcome.evidence.as_mut().unwrap().to_incumbent = Some(Comparison::of(&pairs).unwrap());
        decided(&outcome)
    };
    assert!((with(0.8).gain().unwrap() - 1.25).abs() < 1e-9);
    assert_eq!(with(0.1).rows(), point.rows(), "so much faster that no model is off by as much");
    let near = with(0.999).rows();
    assert!(near.contains(&m) && *near.start() > first, "{near:?}");
    outcome.evidence.as_mut().unwrap().to_incumbent = None;
    assert_eq!((decided(&outcome).rows(), decided(&outcome).gain()), (point.rows(), None), "what was there is wrong");
}
