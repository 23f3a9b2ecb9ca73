//! One directory to write to, or none, above any number that are only read.
//!
//! No NVRTC is needed: cubins are made up, byte by byte.

// Helpers of tests may do what tests may.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use warpsmith_testing as common;
use warpsmith_testing::cubins as cache_shared;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use warpsmith::build::Cubin;
use warpsmith::cache::{Disk, KernelCache, Tier};
use warpsmith::internal::cache::Key;
use warpsmith::spec::{Arch, Spec};

use common::{Renders, Stores};

use cache_shared::{cubin_of, is_root, logged, render, spec, toolchain};

/// Directories `upper` and `lower`, each with a kernel of its own and one that both have, but not the same; below
/// `temp`, with the specs and cubins.
struct Bench {
    temp: tempfile::TempDir,
    specs: [Spec; 3],
    upper: Vec<Cubin>,
    lower: Vec<Cubin>,
}

impl Bench {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let specs = [256, 512, 1024].map(|n| spec(n, &Arch::H200));
        let made = |layer: &str, which: &[usize], byte| -> Vec<Cubin> {
            let disk = Disk::open(temp.path().join(layer));
            let make = |index: &usize| {
                cubin_of(temp.path(), "13.0.88", &render(&specs[*index]).unwrap(), "sm_90a", &[byte; 150])
            };
            let cubins: Vec<_> = which.iter().map(make).collect();
            cubins.iter().for_each(|cubin| disk.stores(&Key::of(cubin), cubin));
            cubins
        };
        let (upper, lower) = (made("upper", &[0, 1], 1), made("lower", &[1, 2], 2));
        Self { upper, lower, specs, temp }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = dir.read_dir() else { return Vec::new() };
    let mut files: Vec<_> = entries
        .flat_map(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() { files_below(&path) } else { vec![path] }
        })
        .collect();
    files.sort();
    files
}

#[test]
fn the_first_that_has_it_wins_and_nothing_is_copied() {
    let bench = Bench::new();
    let layers = || Disk::builder().layer(bench.path("upper")).layer(bench.path("lower"));
    let before = [files_below(&bench.path("upper")), files_below(&bench.path("lower"))];
    for settings in [layers(), layers().root(bench.path("root"))] {
        let cache = KernelCache::builder().renders(render).toolchain(toolchain(bench.temp.path(), "13.0.88"));
        let cache = cache.disk_with(settings).build();
        let expected = [&bench.upper[0], &bench.upper[1], &bench.lower[1]];
        for (spec, cubin) in bench.specs.iter().zip(expected) {
            let fetched = cache.cubin(spec).unwrap();
            assert_eq!((fetched.tier(), &**fetched.cubin()), (Tier::Layer, cubin));
        }
        let stats = cache.stats();
        assert_eq!((stats.layer_hits, stats.disk_hits, stats.disk.stores, stats.disk.errors), (3, 0, 0, 0), "{stats}");
    }
    assert!(files_below(&bench.path("root")).is_empty());
    assert_eq!([files_below(&bench.path("upper")), files_below(&bench.path("lower"))], before, "no lock, no touch");
    assert_eq!(Disk::builder().layer(bench.path("upper")).build().layers().count(), 1);
}

#[test]
fn copied_up_when_asked() {
    let bench = Bench::new();
    let disk = Disk::builder().root(bench.path("root")).layer(bench.path("lower")).copy_up(true).build();
    let key = Key::of(&bench.lower[1]);
    assert!(disk.get(&key).is_some() && disk.get(&key).is_some());
    assert_eq!((disk.stats().layer_hits, disk.stats().stores, disk.stats().hits), (1, 1, 1));
    let old = fs::metadata(disk.path_of(&key).unwrap()).unwrap().modified().unwrap();
    assert!(old.elapsed().unwrap() < Duration::from_secs(60));
}

/// A layer may be read-only, so a use is never written down there.
#[test]
fn a_layer_is_not_touched() {
    let bench = Bench::new();
    let key = Key::of(&bench.lower[1]);
    let path = Disk::open(bench.path("lower")).path_of(&key).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(86_400);
    File::open(&path).unwrap().set_modified(long_ago).unwrap();
    assert!(Disk::builder().layer(bench.path("lower")).build().get(&key).is_some());
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), long_ago);
}

/// One that is missing, no directory, or open to everyone is a log line, and the others serve.
#[test]
fn layers_that_cannot_be_used() {
    let bench = Bench::new();
    let key = Key::of(&bench.lower[1]);
    fs::write(bench.path("file"), "").unwrap();
    let open = bench.path("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    for (layer, why) in [("none", "No such file"), ("file", "not a directory"), ("open", "lets others write")] {
        let settings = Disk::builder().layer(bench.path(layer)).layer(bench.path("lower"));
        let lines = logged(|| {
            let disk = settings.build();
            assert!(disk.get(&key).is_some());
            assert_eq!((disk.stats().errors, disk.layers().count()), (1, 1));
        });
        assert!(lines.contains("WARN") && lines.contains(why), "{layer}: {lines}");
    }
    // A damaged entry in a layer gives way to the one below.
    let both = Key::of(&bench.upper[1]);
    fs::write(Disk::open(bench.path("upper")).path_of(&both).unwrap(), "torn").unwrap();
    let disk = Disk::builder().layer(bench.path("upper")).layer(bench.path("lower")).build();
    assert_eq!(disk.get(&both).as_ref(), Some(&bench.lower[0]));
}

/// A directory that may be read but not written to still serves, and what is compiled is simply not kept.
#[test]
fn a_root_that_cannot_be_written_to() {
    let Some(nvrtc) = common::toolchain("a_root_that_cannot_be_written_to") else { return };
    let bench = Bench::new();
    if is_root() {
        return common::skip("a_root_that_cannot_be_written_to: chmod", "root writes everywhere");
    }
    let root = bench.path("upper");
    for dir in [root.clone()].into_iter().chain(root.read_dir().unwrap().map(|entry| entry.unwrap().path())) {
        fs::set_permissions(dir, Permissions::from_mode(0o500)).unwrap();
    }
    let disk = Disk::open(&root);
    assert!(disk.get(&Key::of(&bench.upper[0])).is_some() && disk.stats().errors == 0);
    let cache = KernelCache::builder().renders(render).toolchain(nvrtc).disk(&root).build();
    assert_eq!(cache.cubin(&bench.specs[2]).unwrap().tier(), Tier::Compiled);
    assert_eq!((cache.stats().disk.stores, cache.stats().disk.waits), (0, 0));
    assert!(cache.stats().disk.errors > 0);
    for dir in [root.clone()].into_iter().chain(root.read_dir().unwrap().map(|entry| entry.unwrap().path())) {
        fs::set_permissions(dir, Permissions::from_mode(0o700)).unwrap();
    }
}
