//! An engine's residency on a device that only pretends.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::call::{Call, OnMiss, Served};
use super::loader::Loader;
use super::manifest::Manifest;
use super::residency::{RECLAIM_AT, RETIRED_MAX, Residency};
use super::rows::Rows;
use super::warm_up::WarmUp;
use super::worker::Worker;
use crate::build::{Built, Source, Toolchain, testing};
use crate::cache::{KernelCache, Seal, Tier};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::pick::Picker;
use crate::run::LoadTime;
use crate::simt::Simt;
use crate::spec::{Arch, Problem, Spec, baseline};

/// Loads nothing: counts, waits while it is told to, and fails where it is told to.
#[derive(Default)]
struct Pretence {
    loads: Mutex<HashMap<Spec, usize>>,
    failing: Mutex<HashSet<Spec>>,
    is_shut: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
    /// As many as a test says.
    retired: AtomicUsize,
    reclaims: AtomicUsize,
    is_tracking: AtomicBool,
}

impl Pretence {
    fn shut(&self) {
        *self.is_shut.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.is_shut.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn loads(&self, spec: &Spec) -> usize {
        self.loads.lock().unwrap().get(spec).copied().unwrap_or(0)
    }

    fn all_loads(&self) -> usize {
        self.loads.lock().unwrap().values().sum()
    }
}

impl Loader for Pretence {
    type Kernel = Spec;
    type Simt = Simt;

    fn load(&self, built: &Built) -> Result<Spec> {
        let (spec, cubin) = (built.of(), built.cubin());
        assert!(!cubin.image().is_empty());
        self.waiting.fetch_add(1, SeqCst);
        let shut = self.opened.wait_while(self.is_shut.lock().unwrap(), |is_shut| *is_shut).unwrap();
        drop(shut);
        *self.loads.lock().unwrap().entry(*spec).or_default() += 1;
        match self.failing.lock().unwrap().contains(spec) {
            true => Err(Error::driver("this device pretends to have no room")),
            false => Ok(*spec),
        }
    }

    fn load_simt(&self, built: &Built<Simt>) -> Result<Simt> {
        Ok(*built.of())
    }

    fn retired(&self) -> usize {
        self.retired.load(SeqCst)
    }

    fn may_reclaim(&self) -> bool {
        self.is_tracking.load(SeqCst)
    }

    fn reclaim(&self) -> Result<usize> {
        self.reclaims.fetch_add(1, SeqCst);
        Ok(self.retired.swap(0, SeqCst))
    }

    fn load_time(_: &Spec) -> LoadTime {
        LoadTime::default()
    }

    fn simt_load_time(_: &Simt) -> LoadTime {
        LoadTime::default()
    }

    fn bytes(_: &Spec) -> usize {
        1000
    }

    fn simt_bytes(_: &Simt) -> usize {
        1000
    }
}

/// A small kernel under the spec's name.
fn render(spec: &Spec) -> Result<Source> {
    let (symbol, n) = (spec.symbol(), spec.problem().columns());
    let text = format!("extern \"C\" __global__ void {symbol}(int* x) {{ *x = {n}; }}\n");
    Ok(Source::new(spec.name(), text, &[], [symbol]))
}

/// The same, of one that spills.
fn render_spilling(spec: &Spec) -> Result<Source> {
    let symbol = spec.symbol();
    Ok(Source::new(spec.name(), testing::spilling(&symbol), &[], [symbol]))
}

/// None where there is no NVRTC.
fn toolchain(test: &str) -> Option<Toolchain> {
    Toolchain::find().map_err(|error| eprintln!("SKIPPED: {test}: {error}")).ok()
}

/// A residency with its worker.
struct Shop {
    residency: Arc<Residency<Pretence>>,
    worker: Worker<Pretence>,
}

impl Shop {
    /// None where there is no NVRTC.
    fn open(test: &str) -> Option<Self> {
        Some(Self::with(toolchain(test)?, Picker::new("NVIDIA H200", &Arch::H200)))
    }

    /// With choices that take no time.
    fn open_pinned(test: &str, problems: &[Problem]) -> Option<Self> {
        let toolchain = toolchain(test)?;
        let builder = Picker::builder("NVIDIA H200", &Arch::H200);
        let pinned = problems.iter().fold(builder, |builder, problem| builder.pin(problem, &baseline(problem)));
        Some(Self::with(toolchain, pinned.build().unwrap()))
    }

    fn with(toolchain: Toolchain, picker: Picker) -> Self {
        Self::rendering(render, toolchain, picker)
    }

    fn rendering(render: fn(&Spec) -> Result<Source>, toolchain: Toolchain, picker: Picker) -> Self {
        // SAFETY: nobody loads what it makes.
        let cache = unsafe { KernelCache::builder().render(render) }.toolchain(toolchain).no_disk().build();
        let residency = Arc::new(Residency::new(Pretence::default(), Arc::new(cache), picker));
        let worker = Worker::new(Arc::clone(&residency));
        Self { residency, worker }
    }

    fn ask(&self, problem: &Problem, m: u32, on_miss: OnMiss) -> Result<Served<Spec>> {
        self.ask_if(problem, m, on_miss, &|| Ok(()))
    }

    fn ask_if(
        &self,
        problem: &Problem,
        m: u32,
        on_miss: OnMiss,
        may_load: &dyn Fn() -> Result<()>,
    ) -> Result<Served<Spec>> {
        let wake = || self.worker.wake();
        self.residency.serve(&Call { problem: *problem, m, on_miss, may_load, wake: &wake })
    }

    fn warm(&self, problem: &Problem, rows: &str) {
        let report =
            WarmUp::new().residency(&self.residency, &Manifest::new().with(problem, &rows.parse::<Rows>().unwrap()));
        assert!(report.is_complete(), "{report}");
    }

    fn chosen(&self, problem: &Problem, m: u32) -> Spec {
        *self.residency.picker.choose(problem, m).unwrap().spec()
    }

    fn loader(&self) -> &Pretence {
        &self.residency.loader
    }
}

fn problem() -> Problem {
    Problem::gemm().n(4096).k(4096)
}

/// Tries until it holds: for what another thread does.
fn soon(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_kernel_that_spills_is_told_once() {
    let Some(toolchain) = toolchain("a_kernel_that_spills_is_told_once") else { return };
    for (render, told) in [(render as fn(&Spec) -> Result<Source>, 0), (render_spilling, 1)] {
        let shop = Shop::rendering(render, toolchain.clone(), Picker::new("NVIDIA H200", &Arch::H200));
        let spec = shop.chosen(&problem(), 64);
        let lines = warpsmith_testing::cubins::logged(|| {
            for _ in 0..2 {
                assert_eq!(*shop.residency.kernel(&spec).unwrap().value, spec);
            }
        });
        assert_eq!(lines.matches("registers are spilled").count(), told, "{lines}");
    }
}

#[test]
fn after_a_warm_up_every_call_finds_its_kernel() {
    let Some(shop) = Shop::open("after_a_warm_up_every_call_finds_its_kernel") else { return };
    let problem = problem();
    shop.warm(&problem, "1..=512");
    shop.residency.cache.seal(Seal::Refuse);
    let loads = shop.loader().all_loads();
    for m in (1..=512).chain([1, 512]) {
        for on_miss in [OnMiss::Block, OnMiss::Fallback, OnMiss::Error] {
            let served = shop.ask(&problem, m, on_miss).unwrap();
            assert_eq!(
                (*served.kernel, served.tier, served.elapsed),
                (shop.chosen(&problem, m), Tier::Memory, Duration::ZERO)
            );
            assert!(served.wanted.is_none() && served.choice.spec() == &*served.kernel);
        }
    }
    let stats = shop.residency.stats();
    assert_eq!((stats.resident, stats.fallbacks, stats.unserved), (3 * 514, 0, 0), "{stats}");
    assert_eq!((stats.loads, shop.loader().all_loads()), (loads as u64, loads), "{stats}");
    assert_eq!((stats.problems, stats.kernels, stats.kernel_bytes), (1, loads, 1000 * loads), "{stats}");
    assert_eq!((stats.cache.sealed.refusals, stats.background.asked), (0, 0), "{stats}");
    assert_eq!(shop.residency.recorder.manifest(), Manifest::new().with(&problem, &Rows::new(1..=512).unwrap()));
    // Beyond what any kernel takes.
    assert!(shop.ask(&problem, Problem::M_MAX + 1, OnMiss::Block).unwrap_err().is_unsupported());
}

#[test]
fn what_is_not_legal_is_refused_at_once_and_not_recorded() {
    let Some(shop) = Shop::open("what_is_not_legal_is_refused_at_once_and_not_recorded") else { return };
    let legal = problem();
    let illegal = [legal.n(17), legal.k(0), legal.grouped(0), legal.grouped(u32::MAX), legal.c(Format::Mxfp4)];
    let calls = illegal.map(|problem| (problem, 7)).into_iter().chain([0, Problem::M_MAX + 1].map(|m| (legal, m)));
    for (problem, m) in calls {
        let refusal = problem.check_for(m).unwrap_err().to_string();
        for on_miss in [OnMiss::Block, OnMiss::Fallback, OnMiss::Error] {
            let error = shop.ask(&problem, m, on_miss).unwrap_err();
            assert!(error.is_unsupported() && error.to_string() == refusal, "{on_miss}: {error}");
        }
    }
    let stats = shop.residency.stats();
    assert_eq!((stats.background.asked, stats.background.on_its_way, stats.unserved), (0, 0, 0), "{stats}");
    assert!(shop.residency.problem_index.read().is_empty());
    assert_eq!(shop.residency.recorder.manifest(), Manifest::new());
    // Also of a problem that is known.
    shop.warm(&legal, "1..=64");
    for (m, on_miss) in [(0, OnMiss::Error), (0, OnMiss::Fallback), (Problem::M_MAX + 1, OnMiss::Fallback)] {
        let error = shop.ask(&legal, m, on_miss).unwrap_err().to_string();
        assert_eq!(error, legal.check_for(m).unwrap_err().to_string());
    }
    let _ = shop.ask(&legal, 9, OnMiss::Error).unwrap();
    let manifest = shop.residency.recorder.manifest();
    assert_eq!(manifest.rows(&legal).unwrap().to_string(), "9");
    assert_eq!(Manifest::parse(&manifest.to_string()).unwrap(), manifest);
}

/// Behind a seal every problem fails, however many there are.
#[test]
fn what_is_kept_of_many_problems_is_bounded() {
    let all: Vec<Problem> = (0..5000u32).map(|at| problem().n(16 * (at % 250 + 1)).k(64 * (at / 250 + 1))).collect();
    let Some(shop) = Shop::open_pinned("what_is_kept_of_many_problems_is_bounded", &all) else { return };
    shop.warm(&problem(), "1..=64");
    shop.residency.cache.seal(Seal::Refuse);
    for problem in &all {
        assert!(shop.ask(problem, 8, OnMiss::Block).unwrap_err().is_sealed());
    }
    assert!(shop.residency.problem_index.read().len() <= 1024 + 1);
    let stats = shop.residency.stats();
    // The warmed-up problem is in use.
    assert_eq!((stats.forgotten, stats.problems), (5001 - 4096, 1), "{stats}");
    assert_eq!(shop.residency.recorder.manifest().problems().count(), 4096 - 1);
    // The latest are known.
    assert!(shop.residency.recorder.manifest().rows(&all[4999]).is_some());
    assert!(shop.residency.recorder.manifest().rows(&all[0]).is_none());

    // And so do failures in the background.
    for (done, problem) in all[..2500].iter().enumerate() {
        assert!(shop.ask(problem, 8, OnMiss::Fallback).unwrap_err().is_not_loaded());
        if done % 500 == 499 {
            soon("they were refused", || shop.residency.queue.on_its_way() == 0);
        }
    }
    let stats = shop.residency.stats();
    assert_eq!(stats.background.failures.len(), 1024, "{}", stats.background.failures.len());
    assert_eq!(stats.background.forgotten, 2500 - 1024);
    assert!(shop.residency.problem_index.read().len() <= 1024 + 1);
    assert_eq!(shop.ask(&problem(), 8, OnMiss::Error).unwrap().tier, Tier::Memory, "what is warm stays");
}

#[test]
fn dropped_kernels_are_unloaded_or_nothing_more_is_loaded() {
    let all: Vec<Problem> = (1..20).map(|n| problem().n(16 * n)).collect();
    let Some(shop) = Shop::open_pinned("dropped_kernels_are_unloaded_or_nothing_more_is_loaded", &all) else { return };
    let loader = shop.loader();
    let mut problems = all.iter();
    let mut load = || shop.ask(problems.next().unwrap(), 8, OnMiss::Block);
    let reclaims = || loader.reclaims.load(SeqCst);

    loader.is_tracking.store(true, SeqCst);
    loader.retired.store(RECLAIM_AT - 1, SeqCst);
    let _ = load().unwrap();
    assert_eq!((reclaims(), loader.retired.load(SeqCst)), (0, RECLAIM_AT - 1), "few can wait");
    loader.retired.store(RECLAIM_AT, SeqCst);
    let _ = load().unwrap();
    assert_eq!((reclaims(), loader.retired.load(SeqCst)), (1, 0));
    assert_eq!(shop.residency.stats().reclaimed, RECLAIM_AT as u64);

    // Where something may be captured nothing is unloaded, and so many may wait only.
    loader.is_tracking.store(false, SeqCst);
    loader.retired.store(RETIRED_MAX - 1, SeqCst);
    let _ = load().unwrap();
    loader.retired.store(RETIRED_MAX, SeqCst);
    let compiles = shop.residency.cache.stats().compiles;
    let error = load().unwrap_err();
    assert!(error.is_not_loaded() && error.to_string().contains("remedy: `Device::reclaim`"), "{error}");
    assert!(error.to_string().contains("1024 kernels that were dropped are still loaded"), "{error}");
    // Nor is it in the background, which says nothing of the kernel.
    let last = all.last().unwrap();
    assert!(shop.ask(last, 8, OnMiss::Fallback).unwrap_err().is_not_loaded());
    soon("it was refused", || shop.residency.queue.on_its_way() == 0);
    let stats = shop.residency.stats();
    assert_eq!((reclaims(), stats.cache.compiles, stats.retired), (1, compiles, RETIRED_MAX));
    assert!(stats.background.failures.is_empty(), "{stats}");

    // Whatever was said holds.
    shop.residency.set_reclaims(true);
    let _ = load().unwrap();
    assert_eq!((reclaims(), loader.retired.load(SeqCst)), (2, 0));
    assert!(shop.ask(last, 8, OnMiss::Fallback).is_err());
    soon("it is there", || shop.ask(last, 8, OnMiss::Error).is_ok());
    loader.is_tracking.store(true, SeqCst);
    shop.residency.set_reclaims(false);
    loader.retired.store(RETIRED_MAX, SeqCst);
    assert!(load().unwrap_err().is_not_loaded());
}

#[test]
fn a_miss_is_served_by_its_neighbour_until_its_own_is_there() {
    let Some(shop) = Shop::open("a_miss_is_served_by_its_neighbour_until_its_own_is_there") else { return };
    let problem = problem();
    shop.warm(&problem, "1..=64");
    let (wanted, near) = (shop.chosen(&problem, 8192), shop.chosen(&problem, 64));
    assert_ne!(wanted, near, "the test needs two kernels");

    shop.loader().shut();
    for _ in 0..10 {
        let served = shop.ask(&problem, 8192, OnMiss::Fallback).unwrap();
        assert_eq!((*served.kernel, *served.choice.spec()), (near, near));
        assert_eq!(served.wanted.unwrap().spec(), &wanted);
    }
    let stats = shop.residency.stats();
    assert_eq!((stats.fallbacks, stats.background.asked, stats.background.on_its_way), (10, 1, 1), "{stats}");
    shop.loader().open();
    soon("it is published", || shop.ask(&problem, 8192, OnMiss::Fallback).unwrap().wanted.is_none());
    assert_eq!(*shop.ask(&problem, 8192, OnMiss::Error).unwrap().kernel, wanted);
    soon("it is counted", || shop.residency.stats().background.made == 1);
    assert_eq!((shop.loader().loads(&wanted), shop.residency.stats().background.on_its_way), (1, 0));
}

#[test]
fn a_problem_that_nobody_knows_is_an_error_and_made_behind() {
    let Some(shop) = Shop::open("a_problem_that_nobody_knows_is_an_error_and_made_behind") else { return };
    let problem = problem();
    let error = shop.ask(&problem, 100, OnMiss::Error).unwrap_err();
    assert!(error.is_not_loaded() && error.to_string().contains("remedy: warm up"), "{error}");
    assert_eq!((shop.loader().all_loads(), shop.residency.cache.stats().compiles), (0, 0), "nothing is made");
    shop.loader().shut();
    let error = shop.ask(&problem, 100, OnMiss::Fallback).unwrap_err();
    assert!(error.is_not_loaded() && error.to_string().contains("is being made"), "{error}");
    assert!(error.to_string().starts_with(&format!("{problem} for 100 rows: ")), "{error}");
    shop.loader().open();
    soon("it is made for the rows that were asked for", || shop.ask(&problem, 100, OnMiss::Error).is_ok());
    assert_eq!(shop.loader().loads(&shop.chosen(&problem, 100)), 1);
    assert!(shop.residency.stats().unserved >= 2);
}

#[test]
fn a_failure_is_tried_once_until_the_next_warm_up() {
    let Some(shop) = Shop::open("a_failure_is_tried_once_until_the_next_warm_up") else { return };
    let problem = problem();
    shop.warm(&problem, "1..=64");
    let wanted = shop.chosen(&problem, 8192);
    shop.loader().failing.lock().unwrap().insert(wanted);
    let _ = shop.ask(&problem, 8192, OnMiss::Fallback).unwrap();
    soon("it failed", || shop.residency.stats().background.failures.len() == 1);
    for on_miss in [OnMiss::Fallback, OnMiss::Block].repeat(5) {
        assert_eq!(shop.ask(&problem, 8192, on_miss).unwrap().wanted.unwrap().spec(), &wanted);
    }
    assert!(shop.ask(&problem, 8192, OnMiss::Error).unwrap_err().is_not_loaded());
    assert_eq!(shop.loader().loads(&wanted), 1);
    let stats = shop.residency.stats();
    let (name, why) = &stats.background.failures[0];
    assert!(*name == wanted.name() && why.contains("no room"), "{stats}");

    // A warm-up tries again, and remembers, too.
    let manifest = Manifest::new().with(&problem, &"8192".parse().unwrap());
    let report = WarmUp::new().residency(&shop.residency, &manifest);
    assert_eq!((report.failures.len(), shop.loader().loads(&wanted)), (1, 2), "{report}");
    let _ = shop.ask(&problem, 8192, OnMiss::Block).unwrap();
    assert_eq!(shop.loader().loads(&wanted), 2);
    shop.loader().failing.lock().unwrap().clear();
    shop.warm(&problem, "8192");
    assert_eq!(*shop.ask(&problem, 8192, OnMiss::Block).unwrap().kernel, wanted);
    assert!(shop.residency.stats().background.failures.is_empty());
}

/// A problem whose only kernel fails: calls get the reason, at once.
#[test]
fn without_a_fallback_a_failure_is_an_error() {
    let Some(shop) = Shop::open("without_a_fallback_a_failure_is_an_error") else { return };
    let problem = problem();
    let wanted = shop.chosen(&problem, 8);
    shop.loader().failing.lock().unwrap().insert(wanted);
    assert!(shop.ask(&problem, 8, OnMiss::Block).unwrap_err().is_driver(), "who waits gets the error itself");
    assert!(shop.ask(&problem, 8, OnMiss::Fallback).unwrap_err().is_not_loaded());
    soon("it failed", || shop.residency.stats().background.failures.len() == 1);
    for on_miss in [OnMiss::Fallback, OnMiss::Block] {
        let error = shop.ask(&problem, 8, on_miss).unwrap_err();
        assert!(error.is_not_loaded() && error.to_string().contains("no room"), "{error}");
    }
    assert_eq!(shop.loader().loads(&wanted), 2);
}

#[test]
fn a_seal_holds_for_the_background_too() {
    let Some(shop) = Shop::open("a_seal_holds_for_the_background_too") else { return };
    let problem = problem();
    shop.warm(&problem, "1..=64");
    shop.residency.cache.seal(Seal::Refuse);
    let compiles = shop.residency.cache.stats().compiles;
    let error = shop.ask(&problem, 8192, OnMiss::Block).unwrap_err();
    assert!(error.is_sealed() && error.to_string().contains("for 8192 rows"), "{error}");
    let _ = shop.ask(&problem, 8192, OnMiss::Fallback).unwrap();
    soon("it was refused", || shop.residency.stats().background.failures.len() == 1);
    let _ = shop.ask(&problem, 8192, OnMiss::Fallback).unwrap();
    let stats = shop.residency.stats();
    assert_eq!((stats.cache.compiles, stats.cache.sealed.refusals), (compiles, 2), "{stats}");
}

#[test]
fn what_may_not_load_is_an_error_or_served_by_another() {
    let Some(shop) = Shop::open("what_may_not_load_is_an_error_or_served_by_another") else { return };
    let problem = problem();
    let captured = || Err(Error::not_loaded("the stream is being captured"));
    let error = shop.ask_if(&problem, 64, OnMiss::Block, &captured).unwrap_err();
    assert!(error.is_not_loaded() && error.to_string().contains("captured"), "{error}");
    assert_eq!(shop.loader().all_loads(), 0);
    shop.warm(&problem, "1..=64");
    assert!(shop.ask_if(&problem, 64, OnMiss::Block, &captured).is_ok(), "what is loaded needs no loading");
    assert!(shop.ask_if(&problem, 8192, OnMiss::Fallback, &captured).unwrap().wanted.is_some());
}

#[test]
fn sixteen_threads_of_every_policy_make_it_once() {
    let Some(shop) = Shop::open("sixteen_threads_of_every_policy_make_it_once") else { return };
    let (problem, start) = (problem(), Barrier::new(16));
    shop.warm(&problem, "1..=64");
    let before = shop.residency.cache.stats().compiles;
    thread::scope(|scope| {
        for thread in 0..16 {
            let (shop, problem, start) = (&shop, &problem, &start);
            scope.spawn(move || {
                start.wait();
                let on_miss = [OnMiss::Fallback, OnMiss::Block][thread % 2];
                (0..100).for_each(|_| drop(shop.ask(problem, 8192, on_miss).unwrap()));
            });
        }
    });
    let wanted = shop.chosen(&problem, 8192);
    assert_eq!((shop.residency.cache.stats().compiles, shop.loader().loads(&wanted)), (before + 1, 1));
    // Who made it hands it on when it comes to it.
    soon("it is there for all", || shop.ask(&problem, 8192, OnMiss::Error).is_ok_and(|found| *found.kernel == wanted));
}

#[test]
fn the_end_waits_for_what_is_being_made_and_begins_nothing() {
    let Some(shop) = Shop::open("the_end_waits_for_what_is_being_made_and_begins_nothing") else { return };
    let problem = problem();
    shop.warm(&problem, "1..=64");
    let loads = shop.loader().all_loads();
    let far: Vec<u32> =
        [512, 2048, 8192].into_iter().filter(|m| shop.chosen(&problem, *m) != shop.chosen(&problem, 64)).collect();
    assert!(far.len() >= 2, "{far:?}");
    shop.loader().shut();
    shop.loader().waiting.store(0, SeqCst);
    far.iter().for_each(|m| drop(shop.ask(&problem, *m, OnMiss::Fallback).unwrap()));
    soon("the first is being loaded", || shop.loader().waiting.load(SeqCst) == 1);
    let residency = Arc::clone(&shop.residency);
    let opener = thread::spawn({
        let residency = Arc::clone(&residency);
        move || {
            thread::sleep(Duration::from_millis(50));
            assert_eq!(residency.loader.all_loads(), loads, "the drop below waits");
            residency.loader.open();
        }
    });
    drop(shop);
    assert_eq!(residency.loader.all_loads(), loads + 1, "one was under way, the others were not begun");
    let compiles = residency.cache.stats().compiles;
    opener.join().unwrap();
    thread::sleep(Duration::from_millis(20));
    assert_eq!((residency.loader.all_loads(), residency.cache.stats().compiles), (loads + 1, compiles));
    assert_eq!(Arc::strong_count(&residency), 1, "nobody else holds it");
}
