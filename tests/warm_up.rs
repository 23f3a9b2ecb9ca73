//! Closed worlds: what a manifest can need is known without a GPU, and once it is made nothing is compiled any more.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use warpsmith_testing as common;

use std::collections::HashSet;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpsmith::Result;
use warpsmith::build::Toolchain;
use warpsmith::cache::{KernelCache, KernelCacheBuilder, Seal, Share, Tier};
use warpsmith::engine::{Manifest, Progress, Rows, WarmUp};
use warpsmith::internal::build::Source;
use warpsmith::internal::engine::{KernelSet, warm_up};
use warpsmith::pick::{Picker, Policy};
use warpsmith::spec::{Activation, Arch, Problem, Spec, Variant};

use common::Renders;

/// The MLP and attention shapes of a large mixture-of-experts model.
fn moe() -> Manifest {
    Manifest::parse(include_str!("../crates/warpsmith-cli/src/warm_up/moe.toml")).unwrap()
}

fn picker() -> Picker {
    Picker::new("NVIDIA H200", &Arch::H200)
}

/// A small kernel under the spec's name, so that these tests measure warm-ups and not the kernels.
fn render(spec: &Spec) -> Result<Source> {
    let (symbol, n) = (spec.symbol(), spec.problem().columns());
    let text = format!("extern \"C\" __global__ void {symbol}(int* x) {{ *x = {n}; }}\n");
    Ok(Source::new(spec.name(), text, &[], [symbol])
        .rendered_from(spec.problem().to_string(), spec.variant().to_string()))
}

fn builder(toolchain: &Toolchain) -> KernelCacheBuilder {
    KernelCache::builder().renders(render).toolchain(toolchain.clone()).no_disk()
}

fn rows(text: &str) -> Rows {
    text.parse().unwrap()
}

#[test]
fn a_large_models_kernels_are_few_and_found_at_once() {
    let manifest = moe();
    let problems = manifest.problems().count();
    assert!(problems >= 6);
    let mut all = HashSet::new();
    for (problem, rows) in manifest.problems() {
        let one = Manifest::new().with(problem, rows);
        // Nothing is remembered: each problem is new to its picker. The best of ten, as others use the machine, too.
        let once = || {
            let (picker, start) = (picker(), Instant::now());
            (KernelSet::new(&picker, &one), start.elapsed())
        };
        let (set, took) = (0..10).map(|_| once()).min_by_key(|(_, took)| *took).unwrap();
        println!("{problem}: {} kernels in {:.2} ms", set.len(), took.as_secs_f64() * 1e3);
        assert!(set.refused().is_empty(), "{:?}", set.refused());
        if !cfg!(debug_assertions) {
            assert!(took <= Duration::from_millis(10), "{problem}: {took:?}");
        }
        all.extend(set.specs().copied());
    }
    let set = KernelSet::new(&picker(), &manifest);
    println!("{} kernels for {problems} problems", set.len());
    assert_eq!(all.len() + set.simts().count(), set.len());
    assert!(set.len() <= 60, "{} kernels", set.len());
    assert_eq!(set.simts().count(), 2, "single and dual");
}

/// Every M of a problem, one after the other: what is picked is in the set, and what is in the set is picked.
#[test]
fn a_set_is_exact() {
    let grouped = Problem::dual_gemm(Activation::Silu).n(2048).k(7168).grouped(8);
    for problem in [grouped, Problem::gemm().n(7168).k(2048).prepared(), Problem::gemm().n(512).k(512)] {
        for policy in [Policy::Fastest, Policy::BatchInvariant] {
            for range in ["1..=4096", "100..=2000, 3000", "77"] {
                let picker = Picker::builder("NVIDIA H200", &Arch::H200).policy(policy).build().unwrap();
                let set = KernelSet::new(&picker, &Manifest::new().with(&problem, &rows(range)));
                let found: HashSet<Spec> = set.specs().copied().collect();
                let range = rows(range);
                let picked: HashSet<Spec> =
                    range.ranges().flatten().map(|m| *picker.choose(&problem, m).unwrap().spec()).collect();
                // Of an interval that only some of the rows are in, the kernel is needed all the same.
                assert_eq!(found, picked, "{problem} {policy} {range}");
            }
        }
    }
}

#[test]
fn after_a_warm_up_nothing_is_compiled() {
    let Some(toolchain) = common::toolchain("after_a_warm_up_nothing_is_compiled") else { return };
    let (cache, picker, manifest) = (builder(&toolchain).build(), picker(), moe());
    let report = warm_up(&cache, &picker, &manifest);
    assert!(report.is_complete(), "{report}");
    let compiles = cache.stats().compiles;
    assert_eq!((report.compiles(), report.kernels), (report.kernels, compiles as usize), "{report}");

    cache.seal(Seal::Refuse);
    let problems: Vec<&Problem> = manifest.problems().map(|(problem, _)| problem).collect();
    let mut random = SmallRng::seed_from_u64(7);
    for _ in 0..100_000 {
        let problem = problems[random.random_range(0..problems.len())];
        let choice = picker.choose(problem, random.random_range(1..=8192)).unwrap();
        assert_eq!(cache.cubin(choice.spec()).unwrap().tier(), Tier::Memory);
    }
    assert_eq!((cache.stats().compiles, cache.stats().sealed.refusals), (compiles, 0));
    let again = warm_up(&cache, &picker, &manifest);
    assert_eq!((again.from(Tier::Memory), again.is_complete()), (again.kernels, true), "{again}");
}

#[test]
fn a_second_start_compiles_nothing() {
    let Some(toolchain) = common::toolchain("a_second_start_compiles_nothing") else { return };
    let temp = tempfile::tempdir().unwrap();
    let start = || warm_up(&builder(&toolchain).disk(temp.path().join("cubins")).build(), &picker(), &moe());
    let (first, second) = (start(), start());
    assert_eq!((first.compiles(), second.compiles()), (first.kernels, 0), "{second}");
    assert_eq!(second.from(Tier::Disk), second.kernels);
    println!("{second}");
}

#[test]
fn a_seal_is_kept() {
    let Some(toolchain) = common::toolchain("a_seal_is_kept") else { return };
    let (cache, picker) = (builder(&toolchain).build(), picker());
    let [known, other, third] =
        [512, 1024, 2048].map(|n| *picker.choose(&Problem::gemm().n(n).k(512), 9).unwrap().spec());
    let _ = cache.cubin(&known).unwrap();
    cache.seal(Seal::Refuse);
    assert_eq!(cache.cubin(&known).unwrap().tier(), Tier::Memory);
    let error = cache.cubin(&other).unwrap_err();
    let text = error.to_string();
    assert!(error.is_sealed() && text.starts_with(&other.name()) && text.contains("remedy: warm up"), "{text}");
    assert!(text.contains("not in cache"), "{text}");
    let layout = Problem::gemm().n(64).k(64).prepared_layout().unwrap();
    let preparation = warpsmith::internal::build::Preparation::new(&layout, Default::default());
    assert!(cache.simt_cubin(preparation, &Arch::H200).unwrap_err().is_sealed());
    cache.seal(Seal::Warn);
    assert_eq!(cache.cubin(&third).unwrap().tier(), Tier::Compiled);
    let sealed = cache.stats().sealed;
    assert_eq!((sealed.seal, sealed.compiles, sealed.refusals), (Seal::Warn, 1, 2));
    cache.seal(Seal::Open);
    assert_eq!(cache.cubin(&other).unwrap().tier(), Tier::Compiled);
    assert_eq!(cache.stats().sealed.compiles, 1);
}

/// A kernel that the compiler refuses, and a problem that the architecture refuses: said, with what serves instead, and
/// the others are there.
#[test]
fn a_failure_loses_nothing_else() {
    const N: u32 = 4096;
    fn failing() -> Spec {
        *picker().choose(&Problem::gemm().n(N).k(N), 1).unwrap().spec()
    }
    fn partly(spec: &Spec) -> Result<Source> {
        match *spec == failing() {
            true => Ok(Source::new(spec.name(), "nonsense", &[], [spec.symbol()])),
            false => render(spec),
        }
    }
    let Some(toolchain) = common::toolchain("a_failure_loses_nothing_else") else { return };
    let problem = Problem::gemm().n(N).k(N);
    let picker = picker();
    let manifest = Manifest::new().with(&problem, &rows("1..=8192"));
    let report = warm_up(&builder(&toolchain).renders(partly).build(), &picker, &manifest);
    assert!(!report.is_complete() && report.kernels > 1, "{report}");
    assert_eq!((report.failures.len(), report.warm.len()), (1, report.kernels - 1), "{report}");
    let failure = &report.failures[0];
    assert_eq!(failure.kernel, failing().name());
    assert!(failure.serves[0].starts_with(&format!("{problem} at 1..=")), "{failure}");
    let instead: Variant = failure.instead.as_ref().unwrap().parse().unwrap();
    assert!(report.warm.iter().any(|warmed| warmed.kernel.ends_with(&instead.to_string())), "{failure}");
    assert!(report.to_string().contains("FAILED"), "{report}");

    let a100 = Picker::new("NVIDIA A100", &Arch::A100);
    let manifest = manifest.with(&problem.prepared(), &rows("5"));
    let report = warm_up(&builder(&toolchain).build(), &a100, &manifest);
    assert_eq!((report.failures.len(), report.warm.len()), (1, report.kernels), "{report}");
    assert_eq!(report.failures[0].kernel, problem.prepared().to_string());
    assert_eq!(report.failures[0].serves, [format!("{} at 5", problem.prepared())]);
}

#[test]
fn it_is_watched_and_can_be_cancelled() {
    let Some(toolchain) = common::toolchain("it_is_watched_and_can_be_cancelled") else { return };
    let (cache, picker, manifest) = (builder(&toolchain).build(), picker(), moe());
    let seen = AtomicUsize::new(0);
    let watch = |step: &Progress<'_>| {
        assert!(step.outcome.is_ok() && step.done <= step.total);
        match seen.fetch_add(1, SeqCst) {
            4 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    let one = NonZero::new(1).unwrap();
    let report = WarmUp::new().threads(one).progress(&watch).run(&cache, &picker, &manifest);
    assert_eq!((seen.into_inner(), report.warm.len(), report.left_out), (5, 5, report.kernels - 5), "{report}");
    assert!(!report.is_complete() && report.to_string().contains("cancelled"), "{report}");
    // The memory of one compile is that of one thread.
    let report = WarmUp::new().memory(WarmUp::COMPILE_BYTES).run(&cache, &picker, &manifest);
    assert_eq!((report.threads, report.from(Tier::Memory)), (1, 5));
    assert!(report.is_complete(), "{report}");
}

/// Two processes' worth of shares on one disk: each kernel is compiled once between them.
#[test]
fn shares_are_compiled_once() {
    let Some(toolchain) = common::toolchain("shares_are_compiled_once") else { return };
    let temp = tempfile::tempdir().unwrap();
    let compiled: usize = std::thread::scope(|scope| {
        let rank = |rank| {
            let cache = builder(&toolchain).disk(temp.path().join("cubins")).build();
            scope.spawn(move || {
                let report = WarmUp::new().share(Share::new(rank, 2).unwrap()).run(&cache, &picker(), &moe());
                assert!(report.is_complete(), "{report}");
                report.compiles()
            })
        };
        [rank(0), rank(1)].map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert_eq!(compiled, KernelSet::new(&picker(), &moe()).len());
}
