//! The tuner, in laboratories without a device: what it finds, what it never chooses, and that noise changes nothing.

mod simulated;

use std::cell::{Cell, RefCell};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use simulated::{Noise, Simulated, passed};
use warpsmith::Result;
use warpsmith::build::Toolchain;
use warpsmith::spec::{Activation, Arch, Problem, Spec, baseline, space};
use warpsmith::tune::{
    Admission, Budget, Footprint, Laboratory, Outcome, Reason, Rejection, Role, Stage, Standing, Tuner, Verdict,
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

#[test]
fn alike_kernels_never_change_a_choice() {
    let all = specs();
    let noises = [
        (Noise::White(0.003), 0),
        (Noise::White(0.03), 0),
        (Noise::HeavyTails, 30),
        (Noise::Drift(0.02), 0),
        (Noise::Drift(0.2), 200),
        (Noise::Clocks(0.03), 0),
        (Noise::Clocks(0.12), 200),
        (Noise::Wandering(0.01), 0),
        (Noise::WanderingApart(0.01), 40),
        (Noise::SecondIsFaster(0.02), 0),
        (Noise::Tenant, 200),
    ];
    for (noise, inconclusive) in noises {
        let count = Cell::new(0);
        for seed in 0..200 {
            let candidates = all.iter().skip(seed as usize * 7).step_by(13).copied();
            let mut tuner =
                Tuner::new(Simulated::new(&|_| 40.0, noise, seed), no_spills).budget(Budget::Quick).threads(1);
            let outcome = tuner.tune(&all[seed as usize], M, candidates).unwrap();
            assert_eq!(outcome.choice, *all[seed as usize].variant(), "{noise:?} {seed}: {outcome}");
            assert_ne!(outcome.verdict, Verdict::Changed, "{noise:?} {seed}: {outcome}");
            count.set(count.get() + usize::from(!outcome.is_conclusive()));
        }
        println!("{noise:?}: {} of 200 inconclusive", count.get());
        assert!(count.get() <= inconclusive, "{noise:?}: {} inconclusive", count.get());
    }
}
