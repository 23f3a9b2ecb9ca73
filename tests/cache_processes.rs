//! Many processes, one cache: each kernel is compiled once between them, whoever dies or hangs meanwhile, and evicting
//! never disturbs a reader.

// Helpers of tests may do what tests may.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::incompatible_msrv)]

use warpsmith_testing as common;
use warpsmith_testing::cubins as cache_shared;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use warpsmith::Result;
use warpsmith::build::{Cubin, Toolchain};
use warpsmith::cache::{Disk, DiskBuilder, KernelCache, Share, Tier};
use warpsmith::internal::build::Source;
use warpsmith::internal::cache::Key;
use warpsmith::spec::{Arch, Spec};

use common::{Renders, Stores};

use cache_shared::{cubin_of, entry_of, key, place, render, spec};

/// What a child may do before it gives up on anything.
const LONG: Duration = Duration::from_secs(60);

/// As [`render`], but with a kernel that takes NVRTC some hundred milliseconds.
fn render_slow(spec: &Spec) -> Result<Source> {
    let symbol = spec.symbol();
    let text = format!(
        "extern \"C\" __global__ void {symbol}(float* x) {{\n    float y = *x;\n    #pragma unroll\n    \
         for (int i = 0; i < 600; ++i) y = y * x[i] + 1.0f;\n    *x = y;\n}}\n"
    );
    Ok(Source::new(spec.name(), text, &[], [symbol]))
}

fn specs(count: u32) -> Vec<Spec> {
    (1..=count).map(|n| spec(64 * n, &Arch::H200)).collect()
}

/// This test binary again, running only `child`, told what to do.
fn start(task: &str, root: &Path, nvrtc: Option<&Toolchain>, argument: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env("WARPSMITH_TEST_TASK", task)
        .env("WARPSMITH_TEST_ROOT", root)
        .env("WARPSMITH_TEST_ARGUMENT", argument)
        .envs(nvrtc.map(|nvrtc| ("WARPSMITH_TEST_NVRTC", nvrtc.library())))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a child counted, once it has ended well.
fn counted(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let line = said.lines().find_map(|line| line.strip_prefix("counted ")).unwrap_or_else(|| panic!("{said}"));
    serde_json::from_str(line).unwrap()
}

fn sum(all: &[Value], field: &str) -> u64 {
    all.iter().map(|one| one.pointer(field).unwrap_or_else(|| panic!("{field} in {one}")).as_u64().unwrap()).sum()
}

/// Not a test by itself: what the tests below run in processes of their own.
#[test]
fn child() {
    let Ok(task) = std::env::var("WARPSMITH_TEST_TASK") else { return };
    let root = PathBuf::from(std::env::var_os("WARPSMITH_TEST_ROOT").unwrap());
    let argument = std::env::var("WARPSMITH_TEST_ARGUMENT").unwrap();
    let cache = |render, settings: DiskBuilder| {
        let nvrtc = Toolchain::at(std::env::var_os("WARPSMITH_TEST_NVRTC").unwrap()).unwrap();
        KernelCache::builder().renders(render).toolchain(nvrtc).disk_with(settings.root(&root)).build()
    };
    let show = |cache: &KernelCache| println!("\ncounted {}", serde_json::to_string(&cache.stats()).unwrap());
    match task.as_str() {
        // One after another, all processes in the same order, from the same moment on.
        "all" => {
            let cache = cache(render_slow, Disk::builder());
            wait_for(|| root.join("go").exists());
            specs(argument.parse().unwrap()).iter().for_each(|spec| assert!(cache.cubin(spec).is_ok()));
            show(&cache);
        }
        "share" => {
            let numbers: Vec<usize> = argument.split(' ').map(|number| number.parse().unwrap()).collect();
            let (cache, specs) = (cache(render, Disk::builder()), specs(numbers[2] as u32));
            wait_for(|| root.join("go").exists());
            let made = cache.cubins(&specs, Share::new(numbers[0], numbers[1]).unwrap(), 2, |_, _| ());
            assert!(made.len() == specs.len() && made.iter().all(Result::is_ok));
            show(&cache);
        }
        "one" => {
            let wait = Duration::from_millis(argument.parse().unwrap());
            let cache = cache(render_slow, Disk::builder().wait_at_most(wait));
            println!("\ntier {}", cache.cubin(&specs(1)[0]).unwrap().tier());
            show(&cache);
        }
        "evict" => {
            let (disk, cubin) = (small(&root).build(), cubin_in_every_entry(&root));
            for _ in 0..20 {
                keys(&root).iter().skip(1).for_each(|key| disk.stores(key, &cubin));
            }
            println!("\ncounted {}", serde_json::to_string(&disk.stats()).unwrap());
        }
        "read" => {
            let (disk, cubin) = (Disk::open(&root), cubin_in_every_entry(&root));
            let keys = keys(&root);
            for _ in 0..20 {
                keys.iter().filter_map(|key| disk.get(key)).for_each(|found| assert!(found == cubin));
            }
            println!("\ncounted {}", serde_json::to_string(&disk.stats()).unwrap());
        }
        "use" => {
            let (disk, kernels) = (small(&root).build(), kernels(&root));
            let (start, time) = (Instant::now(), Duration::from_millis(argument.parse().unwrap()));
            while start.elapsed() < time {
                for (key, cubin) in &kernels {
                    disk.get(key).map_or_else(|| disk.stores(key, cubin), |found| assert!(found == *cubin));
                }
            }
            println!("\ncounted {}", serde_json::to_string(&disk.stats()).unwrap());
        }
        other => panic!("{other}"),
    }
}

fn wait_for(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "waited too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Files whose name ends so, in the directories of a root.
fn files(root: &Path, end: &str) -> Vec<PathBuf> {
    let shards = root.read_dir().into_iter().flatten().filter_map(|shard| shard.unwrap().path().read_dir().ok());
    let files = shards.flatten().map(|file| file.unwrap().path());
    files.filter(|path| path.to_str().unwrap().ends_with(end)).collect()
}

/// Eight processes × six kernels: six compiles in all.
#[test]
fn eight_processes_compile_each_kernel_once() {
    let Some(nvrtc) = common::toolchain("eight_processes_compile_each_kernel_once") else { return };
    let temp = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..8).map(|_| start("all", temp.path(), Some(&nvrtc), "6")).collect();
    fs::write(temp.path().join("go"), "").unwrap();
    let all: Vec<_> = children.into_iter().map(counted).collect();
    assert_eq!(sum(&all, "/compiles"), 6, "{all:#?}");
    assert_eq!((sum(&all, "/disk_hits"), sum(&all, "/disk/stores")), (42, 6));
    assert_eq!((sum(&all, "/disk/errors"), sum(&all, "/disk/gave_up")), (0, 0));
    assert!(sum(&all, "/disk/waits") > 0, "they all began with the same kernel");
    assert!(files(temp.path(), ".lock").is_empty(), "no lock outlives its holder");
}

/// The same between caches of one process, which know nothing of each other.
#[test]
fn sixteen_threads_with_a_cache_each_compile_once() {
    let Some(nvrtc) = common::toolchain("sixteen_threads_with_a_cache_each_compile_once") else { return };
    let (temp, barrier, spec) = (tempfile::tempdir().unwrap(), Barrier::new(16), specs(1)[0]);
    let ask = || {
        let cache = KernelCache::builder().renders(render_slow).toolchain(nvrtc.clone()).disk(temp.path()).build();
        barrier.wait();
        cache.cubin(&spec).unwrap().tier()
    };
    let tiers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(tiers.iter().filter(|tier| **tier == Tier::Compiled).count(), 1, "{tiers:?}");
    assert_eq!(tiers.iter().filter(|tier| **tier == Tier::Disk).count(), 15, "{tiers:?}");
}

/// Ranks with the same list: every kernel once between them, and none is missing when a rank is.
#[test]
fn ranks_share_a_list() {
    let Some(nvrtc) = common::toolchain("ranks_share_a_list") else { return };
    for (ranks, of) in [(0..4, 4), (1..4, 4)] {
        let temp = tempfile::tempdir().unwrap();
        let ranks: Vec<usize> = ranks.collect();
        let child = |rank: &usize| start("share", temp.path(), Some(&nvrtc), &format!("{rank} {of} 20"));
        let children: Vec<_> = ranks.iter().map(child).collect();
        fs::write(temp.path().join("go"), "").unwrap();
        let all: Vec<_> = children.into_iter().map(counted).collect();
        assert_eq!(sum(&all, "/compiles"), 20, "{ranks:?}: {all:#?}");
        assert_eq!(sum(&all, "/disk_hits"), 20 * (ranks.len() as u64 - 1));
        assert!(all.iter().all(|one| one["compiles"].as_u64().unwrap() < 20), "the work was shared: {all:#?}");
    }
}

/// A process that compiles, stopped in the middle of it.
fn stopped_holder(root: &Path, nvrtc: &Toolchain) -> Child {
    let holder = start("one", root, Some(nvrtc), "30000");
    let is_held =
        || files(root, ".lock").iter().any(|path| File::open(path).is_ok_and(|file| file.try_lock().is_err()));
    wait_for(is_held);
    signal(&holder, "STOP");
    assert!(is_held() && files(root, ".lock").len() == 1, "it was stopped too late");
    holder
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
    assert!(sent.success());
}

/// kill -9 of a compiling holder: whoever waits for it takes over at once.
#[test]
fn a_survivor_takes_over_from_a_killed_holder() {
    let Some(nvrtc) = common::toolchain("a_survivor_takes_over_from_a_killed_holder") else { return };
    let temp = tempfile::tempdir().unwrap();
    let mut holder = stopped_holder(temp.path(), &nvrtc);
    let survivors: Vec<_> = (0..3).map(|_| start("one", temp.path(), Some(&nvrtc), "60000")).collect();
    std::thread::sleep(Duration::from_millis(400));
    holder.kill().unwrap();
    holder.wait().unwrap();
    let all: Vec<_> = survivors.into_iter().map(counted).collect();
    assert_eq!((sum(&all, "/compiles"), sum(&all, "/disk_hits")), (1, 2), "{all:#?}");
    assert_eq!(
        (sum(&all, "/disk/waits"), sum(&all, "/disk/gave_up"), sum(&all, "/disk/errors")),
        (3, 0, 0),
        "{all:#?}"
    );
    assert!(files(temp.path(), ".lock").is_empty());
}

/// A holder that hangs costs a request the longest wait and no more.
#[test]
fn a_stuck_holder_is_not_waited_for_for_ever() {
    let Some(nvrtc) = common::toolchain("a_stuck_holder_is_not_waited_for_for_ever") else { return };
    let temp = tempfile::tempdir().unwrap();
    let mut holder = stopped_holder(temp.path(), &nvrtc);
    let one = counted(start("one", temp.path(), Some(&nvrtc), "200"));
    let all = [one];
    assert_eq!((sum(&all, "/compiles"), sum(&all, "/disk/gave_up"), sum(&all, "/disk/stores")), (1, 1, 1), "{all:#?}");
    let waited = all[0]["disk"]["wait_ms"].as_f64().unwrap();
    assert!((200.0..5000.0).contains(&waited), "{waited} ms");
    // Whoever comes now has no need to wait, and the holder, awake again, does no harm.
    let later = [counted(start("one", temp.path(), Some(&nvrtc), "60000"))];
    assert_eq!((sum(&later, "/disk_hits"), sum(&later, "/disk/waits")), (1, 0), "{later:#?}");
    signal(&holder, "CONT");
    assert!(holder.wait().unwrap().success());
    let last = [counted(start("one", temp.path(), Some(&nvrtc), "60000"))];
    assert_eq!((sum(&last, "/disk_hits"), sum(&last, "/disk/errors")), (1, 0), "{last:#?}");
}

/// Where there can be no lock, every process compiles for itself, and the last to store wins.
#[test]
fn without_locks_everyone_compiles_and_all_is_right() {
    let Some(nvrtc) = common::toolchain("without_locks_everyone_compiles_and_all_is_right") else { return };
    let (temp, spec) = (tempfile::tempdir().unwrap(), specs(1)[0]);
    let cache = || KernelCache::builder().renders(render_slow).toolchain(nvrtc.clone()).disk(temp.path()).build();
    let key = Key::new(&nvrtc, &render_slow(&spec).unwrap(), spec.arch().target()).unwrap();
    // A directory where the lock's file should be cannot be opened for writing.
    let mut lock = Disk::open(temp.path()).path_of(&key).unwrap().into_os_string();
    lock.push(".lock");
    fs::create_dir_all(&lock).unwrap();
    let (first, second) = (cache(), cache());
    std::thread::scope(|scope| {
        for cache in [&first, &second] {
            scope.spawn(|| assert!(cache.cubin(&spec).is_ok()));
        }
    });
    let later = cache();
    assert_eq!(later.cubin(&spec).unwrap().tier(), Tier::Disk);
    assert_eq!(later.cubin(&spec).unwrap().cubin().image(), first.cubin(&spec).unwrap().cubin().image());
    assert_eq!((first.stats().disk.errors, second.stats().disk.errors), (0, 0));
}

const KEYS: usize = 40;
const ENTRY_BYTES: usize = 4000;

fn keys(root: &Path) -> Vec<Key> {
    (0..KEYS).map(|index| key(&root.join("../nvrtc"), &format!("text {index}"))).collect()
}

fn cubin_in_every_entry(root: &Path) -> Cubin {
    let source = render(&specs(1)[0]).unwrap();
    // Each process makes it where no other does.
    let dir = root.join(format!("../made-{}", std::process::id()));
    cubin_of(&dir, "13.0.88", &source, "sm_90a", &[7; ENTRY_BYTES])
}

/// Room for a quarter of the entries, none of which is too young to go.
fn small(root: &Path) -> DiskBuilder {
    Disk::builder().root(root).max_bytes((KEYS * ENTRY_BYTES / 4) as u64).grace(Duration::ZERO)
}

/// Two processes write and evict while two read: no error, no torn read, and the limit holds.
#[test]
fn two_processes_evict_while_others_read() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("cubins");
    let (disk, cubin) = (Disk::open(&root), cubin_in_every_entry(&root));
    keys(&root).iter().for_each(|key| disk.stores(key, &cubin));
    let all: Vec<_> = ["evict", "read", "evict", "read"].map(|task| start(task, &root, None, "")).into();
    let all: Vec<_> = all.into_iter().map(counted).collect();
    assert_eq!((sum(&all, "/errors"), sum(&all, "/stores")), (0, 2 * 20 * (KEYS as u64 - 1)), "{all:#?}");
    for (one, evicts) in all.iter().zip([true, false, true, false]) {
        assert_eq!(one["evictions"].as_u64().unwrap() > 0, evicts, "{one:#}");
        assert_eq!(one["hits"].as_u64().unwrap() > 0, !evicts, "{one:#}");
    }
    // The last to write swept after it, but for what may be written between two sweeps.
    small(&root).build().stores(&keys(&root)[1], &cubin);
    let bytes: u64 = files(&root, "").iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes <= (KEYS * ENTRY_BYTES / 4) as u64, "{bytes}");
    assert!(files(&root, ".lock").is_empty());
}

/// Kernels that differ, each with its key, made where no other process makes them.
fn kernels(root: &Path) -> Vec<(Key, Cubin)> {
    let dir = root.join(format!("../made-{}", std::process::id()));
    let made = |(index, spec): (usize, &Spec)| {
        let cubin = cubin_of(&dir, "13.0.88", &render(spec).unwrap(), "sm_90a", &[index as u8; ENTRY_BYTES]);
        (Key::of(&cubin), cubin)
    };
    specs(20).iter().enumerate().map(made).collect()
}

/// Processes read, write and evict; some are killed in the middle of it, while bits are flipped and files cut short in
/// place, under those who read them. Whoever lives ends well and had nothing but what was stored, and what is left serves.
#[test]
fn processes_are_killed_while_bits_flip() {
    let temp = tempfile::tempdir().unwrap();
    let (root, mut rng, mut killed) = (temp.path().join("cubins"), SmallRng::seed_from_u64(7), 0);
    let (mut all, mut flipped) = (Vec::new(), 0);
    for _ in 0..6 {
        let mut children: Vec<_> = (0..4).map(|_| start("use", &root, None, "400")).collect();
        let (start, doomed) = (Instant::now(), Duration::from_millis(rng.random_range(50..400)));
        while start.elapsed() < Duration::from_millis(400) {
            let files = files(&root, "");
            if let Some(path) = files.get(rng.random_range(0..files.len().max(1))) {
                // Gone meanwhile, or of a process that was killed.
                flipped += usize::from(spoil(path, &mut rng).is_ok());
            }
            if start.elapsed() > doomed && children.len() > 2 {
                for mut child in children.split_off(2) {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    killed += 1;
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        all.extend(children.into_iter().map(counted));
    }
    assert!(flipped > 100 && killed > 0 && sum(&all, "/hits") > 100, "{flipped} {killed} {all:#?}");
    for one in &all {
        assert!(one["last_error"].as_str().is_none_or(|why| why.starts_with("reading ")), "{one:#}");
    }
    // Then a last one.
    let disk = Disk::open(&root);
    for (key, cubin) in &kernels(&root) {
        assert!(disk.get(key).is_none_or(|found| found == *cubin));
        disk.stores(key, cubin);
        assert!(disk.get(key) == Some(cubin.clone()));
    }
    assert!(files(&root, "").iter().filter(|path| path.to_str().unwrap().contains(".writing-")).count() <= killed);
}

/// Flips a bit of a file, or cuts it short, where it is.
fn spoil(path: &Path, rng: &mut SmallRng) -> std::io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let at = rng.random_range(0..file.metadata()?.len().max(1));
    if rng.random_ratio(1, 5) {
        return file.set_len(at);
    }
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    byte[0] ^= 1 << rng.random_range(0..8);
    file.write_all_at(&byte, at)
}

/// What is used stays, what is not goes: by the last use, not by the first write.
#[test]
fn the_least_recently_used_go_first() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("cubins");
    let keys = keys(&root);
    let disk = Disk::open(&root);
    let hours = |hours: u64| std::time::SystemTime::now() - Duration::from_secs(3600 * hours);
    for (index, key) in keys.iter().enumerate() {
        place(&disk, key, &entry_of(key, &[7; ENTRY_BYTES]));
        let written = hours(200 - index as u64);
        File::open(disk.path_of(key).unwrap()).unwrap().set_modified(written).unwrap();
    }
    // The oldest of all is used now.
    let cubin = disk.get(&keys[0]).unwrap();
    let disk = small(&root).build();
    disk.stores(&keys[KEYS - 1], &cubin);
    assert!(disk.get(&keys[0]).is_some() && disk.get(&keys[1]).is_none() && disk.get(&keys[KEYS - 2]).is_some());
    let stats = disk.stats();
    assert!(stats.evictions > 30 && stats.evicted_bytes > 30 * ENTRY_BYTES as u64, "{stats}");
    // Unbounded, and within the grace of the default settings, nothing goes.
    let left = files(&root, "").len();
    Disk::builder().root(&root).max_bytes(0).grace(Duration::ZERO).build().stores(&keys[1], &cubin);
    assert_eq!(files(&root, "").len(), left + 1);
}
