//! Memory ▸ disk ▸ compile: each spec is compiled once, by one thread, and a later process opens no compiler.

// Helpers of tests may do what tests may.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use warpsmith_testing as common;

use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

use warpsmith::build::Toolchain;
use warpsmith::cache::{KernelCache, KernelCacheBuilder, Tier};
use warpsmith::format::Format;
use warpsmith::internal::build::Source;
use warpsmith::internal::spec::baseline;
use warpsmith::spec::{Arch, Problem, Spec};
use warpsmith::{Error, Result};

use common::Renders;

fn spec(n: u32) -> Spec {
    let problem = Problem::gemm().n(n).k(1024).a(Format::F16).b(Format::F16).c(Format::F16);
    Spec::new(&problem, &baseline(&problem), &Arch::H200).unwrap()
}

/// A small kernel under the spec's name, so that these tests measure the caches and not the kernels.
fn render(spec: &Spec) -> Result<Source> {
    let (symbol, n) = (spec.symbol(), spec.problem().columns());
    let text = format!("extern \"C\" __global__ void {symbol}(int* x) {{ *x = {n}; }}\n");
    Ok(Source::new(spec.name(), text, &[], [symbol])
        .rendered_from(spec.problem().to_string(), spec.variant().to_string()))
}

fn builder(toolchain: &Toolchain) -> KernelCacheBuilder {
    KernelCache::builder().renders(render).toolchain(toolchain.clone())
}

#[test]
fn each_tier_in_turn() {
    let Some(toolchain) = common::toolchain("each_tier_in_turn") else { return };
    let temp = tempfile::tempdir().unwrap();
    let cache = builder(&toolchain).disk(temp.path().join("cubins")).build();
    let tier = |cache: &KernelCache, n| cache.cubin(&spec(n)).unwrap().tier();
    assert_eq!(
        [tier(&cache, 256), tier(&cache, 256), tier(&cache, 512)],
        [Tier::Compiled, Tier::Memory, Tier::Compiled]
    );
    let stats = cache.stats();
    assert_eq!((stats.memory_hits, stats.disk_hits, stats.compiles, stats.failures, stats.kept), (1, 0, 2, 0, 2));
    assert_eq!((stats.disk.misses, stats.disk.stores, stats.disk.errors), (2, 2, 0));
    assert!(stats.compile_ms > 0.0 && stats.kept_bytes > 0, "{stats}");

    let later = builder(&toolchain).disk(temp.path().join("cubins")).memory(1, 1 << 20).build();
    let fetched = later.cubin(&spec(256)).unwrap();
    assert_eq!(fetched.tier(), Tier::Disk);
    assert_eq!(fetched.cubin(), cache.cubin(&spec(256)).unwrap().cubin(), "bytes, resources, provenance and log");
    assert_eq!(fetched.cubin().provenance().problem(), spec(256).problem().to_string());
    // Only one is kept in memory here; the other comes from disk again.
    assert_eq!([tier(&later, 512), tier(&later, 256), tier(&later, 256)], [Tier::Disk, Tier::Disk, Tier::Memory]);
    assert_eq!(later.stats().compiles, 0);
}

#[test]
fn sixteen_threads_one_compile() {
    let Some(toolchain) = common::toolchain("sixteen_threads_one_compile") else { return };
    let (cache, start) = (builder(&toolchain).no_disk().build(), Barrier::new(16));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                start.wait();
                cache.cubin(&spec(256)).unwrap()
            });
        }
    });
    assert_eq!((cache.stats().compiles, cache.stats().memory_hits), (1, 15));
}

#[test]
fn without_a_disk_everything_still_works() {
    let Some(toolchain) = common::toolchain("without_a_disk_everything_still_works") else { return };
    let cache = builder(&toolchain).disk("/proc/warpsmith").build();
    assert_eq!(cache.cubin(&spec(256)).unwrap().tier(), Tier::Compiled);
    assert_eq!((cache.stats().disk.stores, cache.stats().disk.errors), (0, 1));
}

#[test]
fn failures_are_not_remembered() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    fn second_time_lucky(spec: &Spec) -> Result<Source> {
        match CALLS.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(Source::new("wrong.cu", "nonsense", &[], ["k"])),
            _ => render(spec),
        }
    }
    let Some(toolchain) = common::toolchain("failures_are_not_remembered") else { return };
    let cache = builder(&toolchain).renders(second_time_lucky).no_disk().build();
    let error = cache.cubin(&spec(256)).unwrap_err();
    assert!(error.is_compile() && error.to_string().starts_with(&spec(256).name()), "{error}");
    assert_eq!(cache.cubin(&spec(256)).unwrap().tier(), Tier::Compiled);
    assert_eq!((cache.stats().failures, cache.stats().compiles), (1, 1));
}

#[test]
fn no_compiler_is_an_error_with_the_remedy() {
    let error: Error = Toolchain::at("/no/such/place").unwrap_err();
    assert!(error.is_missing_library() && error.to_string().contains("remedy"), "{error}");
}

/// Not a test by itself: the later process of the test below.
#[test]
fn child() {
    let (Ok(root), Ok(nvrtc)) = (std::env::var("WARPSMITH_TEST_ROOT"), std::env::var("WARPSMITH_TEST_NVRTC")) else {
        return;
    };
    let toolchain = Toolchain::at(nvrtc).unwrap();
    let cache = builder(&toolchain).disk(root).build();
    let fetched = cache.cubin(&spec(256)).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    println!("\ntier {}, open {}, mapped {}", fetched.tier(), toolchain.is_open(), maps.contains("libnvrtc"));
}

/// After a warm-up, no compile happens, nor is NVRTC even opened.
#[test]
fn a_later_process_opens_no_compiler() {
    let Some(toolchain) = common::toolchain("a_later_process_opens_no_compiler") else { return };
    let temp = tempfile::tempdir().unwrap();
    let run = || {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env("WARPSMITH_TEST_ROOT", temp.path().join("cubins"))
            .env("WARPSMITH_TEST_NVRTC", toolchain.library())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (cold, warm) = (run(), run());
    assert!(cold.contains("tier compiled, open true, mapped true"), "{cold}");
    assert!(warm.contains("tier disk, open false, mapped false"), "{warm}");
}
