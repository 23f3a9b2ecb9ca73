//! Extents that no kernel has, and numbers of rows at both ends: a refusal that names them, and no arithmetic before it.
//! Tests are built with overflow checks, so that a number which does not hold a product would show.

use std::ops::RangeInclusive;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use warpsmith::engine::{Manifest, Recorder};
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::engine::KernelSet;
use warpsmith::internal::pick::heuristic;
use warpsmith::internal::pick::rules::Rule;
use warpsmith::internal::spec::{Tile, baseline, candidates, deepest};
use warpsmith::pick::{self, Picker};
use warpsmith::spec::{Activation, Arch, Problem, Variant};
use warpsmith_tune::{Setup, even_rows};

const EXTENTS: [u32; 16] = [
    0,
    1,
    15,
    16,
    17,
    64,
    1024,
    1025,
    4096,
    1 << 20,
    (1 << 20) + 64,
    1 << 24,
    (1 << 24) + 1,
    1 << 31,
    u32::MAX - 63,
    u32::MAX,
];
const ROWS: [u32; 9] = [0, 1, 77, 1 << 24, (1 << 24) + 1, 1 << 31, u32::MAX - 5, u32::MAX - 1, u32::MAX];
const LIMITS: [u32; 5] = [0, 1, 7, Activation::LIMIT_MAX, u32::MAX];
const PROBLEMS: usize = 4000;

fn problem(random: &mut SmallRng) -> Problem {
    let activation = match *Activation::ALL.choose(random).unwrap() {
        Activation::SiluClamp(_) => Activation::SiluClamp(*LIMITS.choose(random).unwrap()),
        other => other,
    };
    let mut problem =
        if random.random() { Problem::gemm().activation(activation) } else { Problem::dual_gemm(activation) };
    let extent = |random: &mut SmallRng| match random.random_range(0..4) {
        0 => random.random(),
        1 => 64 * random.random_range(1..200),
        _ => *EXTENTS.choose(random).unwrap(),
    };
    problem = problem.n(extent(random)).k(extent(random));
    if random.random() {
        problem = problem.grouped(extent(random));
    }
    if random.random_range(0..4) == 0 {
        problem = problem.m_up_to(extent(random));
    }
    let formats = [Format::Nvfp4, Format::F16, Format::Bf16, Format::F32];
    let [a, b, c] = std::array::from_fn(|_| *formats.choose(random).unwrap());
    problem = problem.a(a).b(b).c(c);
    if random.random() {
        problem = problem.scales(ScaleLayout::Swizzled128x4);
    }
    if random.random() { problem.b(Format::Nvfp4).prepared() } else { problem }
}

fn variant(random: &mut SmallRng, problem: &Problem) -> Variant {
    let mut extent = || *EXTENTS.choose(random).unwrap();
    let tile = Tile { tokens: extent(), columns: extent(), k: extent() };
    let (stages, split_k) = (extent(), extent());
    let all: Vec<Variant> =
        candidates(problem, &Arch::H200).map(|(variant, _)| variant).step_by(997).take(20).collect();
    // Weights that are prepared for the one path that does not store NVFP4 have none.
    let of = all.choose(random).copied().unwrap_or_else(|| baseline(problem));
    Variant { tile, stages, split_k, ..of }
}

#[test]
fn what_is_not_legal_is_refused_before_anything_is_computed() {
    let mut random = SmallRng::seed_from_u64(12);
    let picker = Picker::new("NVIDIA H200", &Arch::H200);
    let recorder = Recorder::new();
    let mut refused = 0;
    for _ in 0..PROBLEMS {
        let problem = problem(&mut random);
        // What has no refusal has an answer, whatever it is asked for.
        for m in [0, 1, u64::from(u32::MAX), u64::MAX] {
            assert!(problem.bytes(m) >= 0.0 && problem.flop(m) >= 0.0);
        }
        let _ = problem.prepared_layout();
        let variant = variant(&mut random, &problem);
        let _ = deepest(&problem, &variant, &Arch::H200, &|_| true).count();
        for m in ROWS {
            recorder.note(&problem, m);
            let Err(refusal) = problem.check_for(m) else { continue };
            refused += 1;
            assert!(refusal.is_unsupported());
            let same = |what: &str, error: Option<warpsmith::Error>| {
                let said = error.unwrap_or_else(|| panic!("{what} of {problem} for {m} rows")).to_string();
                assert_eq!(said, refusal.to_string(), "{what} of {problem} for {m} rows");
            };
            same("choose", pick::choose(&problem, m, &Arch::H200).err());
            same("choose", pick::choose(&problem, m, &Arch::A100).err());
            same("Picker::choose", picker.choose(&problem, m).err());
            same("explain", picker.explain(&problem, m).err());
            same("even_rows", even_rows(&problem, m).err());
            assert!(heuristic::rank(&problem, m, &Arch::H200, usize::MAX).is_empty());
            assert!(Rule::ALL.iter().all(|rule| rule.choose(&problem, m, &Arch::H200).is_none()));
            let _ = Setup::new(&problem, m);
        }
        if let Err(refusal) = problem.check() {
            assert_eq!(picker.schedule(&problem).unwrap_err().to_string(), refusal.to_string());
        }
    }
    assert!(refused > PROBLEMS * ROWS.len() / 2, "{refused}");
    let manifest = recorder.manifest();
    assert_eq!(Manifest::parse(&manifest.to_string()).unwrap(), manifest);
    assert!(manifest.problems().count() > 10, "{manifest}");
}

/// Legal problems at the limits of all extents: choices for the least and the most rows, without an overflow.
#[test]
fn the_largest_problems_are_chosen_for() {
    let picker = Picker::new("NVIDIA H200", &Arch::H200);
    let edge = |value: u32, step: u32| [step, value - step, value];
    let within: RangeInclusive<u32> = 1..=Problem::M_MAX;
    for n in edge(Problem::EXTENT_MAX, Problem::N_STEP) {
        for k in [Problem::K_STEP, Problem::EXTENT_MAX] {
            for prepared in [false, true] {
                let problem = Problem::dual_gemm(Activation::Silu).n(n).k(k).a(Format::Nvfp4);
                let problem = if prepared { problem.prepared() } else { problem };
                for problem in [problem, problem.grouped(Problem::GROUPS_MAX)] {
                    for m in [*within.start(), *within.end()] {
                        let chosen = pick::choose(&problem, m, &Arch::H200);
                        assert_eq!(chosen.is_ok(), picker.choose(&problem, m).is_ok(), "{problem} for {m} rows");
                    }
                    for m in [0, *within.end() + 1] {
                        let error = picker.choose(&problem, m).unwrap_err().to_string();
                        assert!(error.contains(&format!("M = {m}: must be 1 to 16777216")), "{error}");
                    }
                }
            }
        }
    }
    let manifest =
        Manifest::new().with(&Problem::gemm().n(u32::MAX).k(u32::MAX).grouped(u32::MAX), &"1".parse().unwrap());
    assert_eq!(KernelSet::new(&picker, &manifest).refused().len(), 1);
}
