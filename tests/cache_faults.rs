//! Everything that can be wrong with the disk cache is a miss or an uncached run, with its reason in a log line; the
//! right result comes all the same, and the next write mends what can be mended.
//!
//! No NVRTC is needed: keys only look at file names and sizes, and the first entry is written here, byte by byte, as
//! the format says.

// Helpers of tests may do what tests may.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use warpsmith_testing as common;
use warpsmith_testing::cubins as cache_shared;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use warpsmith::build::Cubin;
use warpsmith::cache::{Disk, KernelCache};
use warpsmith::internal::cache::Key;
use warpsmith::spec::Arch;

use common::{Renders, Stores};

use cache_shared::{entry_of, entry_with, image, is_root, key, logged, place, render, sealed, spec, toolchain};

/// A cache directory with a key, the bytes of its entry, and the cubin in it.
struct Bench {
    root: PathBuf,
    key: Key,
    entry: Vec<u8>,
    cubin: Cubin,
    _temp: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("cubins");
        let key = key(&temp.path().join("nvrtc"), "text");
        let tail: Vec<u8> = (0..200_u8).collect();
        place(&Disk::open(&root), &key, &entry_of(&key, &tail));
        let cubin = Disk::open(&root).get(&key).expect("an entry written as the format says is read");
        assert_eq!((cubin.image(), cubin.compile_ms(), cubin.log()), (&*image(&tail), 1.5, "a log\nof lines"));
        // From here on the entry as the library writes it.
        let disk = Disk::open(&root);
        disk.stores(&key, &cubin);
        let entry = fs::read(disk.path_of(&key).unwrap()).unwrap();
        Self { root, key, entry, cubin, _temp: temp }
    }

    /// Puts `bytes` in the entry's place: it must be a miss whose reason is logged, and mended by the next write.
    fn refuses(&self, bytes: &[u8], reason: &str) {
        let disk = Disk::open(&self.root);
        place(&disk, &self.key, bytes);
        let lines = logged(|| assert!(disk.get(&self.key).is_none(), "{} bytes", bytes.len()));
        let stats = disk.stats();
        assert_eq!((stats.hits, stats.misses, stats.errors), (0, 1, 1));
        let last = stats.last_error.unwrap();
        assert!(last.contains(reason), "{last} lacks {reason:?}");
        assert!(lines.contains("WARN") && lines.contains("reading") && lines.contains(reason), "{lines}");
        disk.stores(&self.key, &self.cubin);
        assert!(disk.get(&self.key) == Some(self.cubin.clone()), "mended");
        assert_eq!(fs::read(disk.path_of(&self.key).unwrap()).unwrap(), self.entry);
    }

    fn path(&self) -> PathBuf {
        Disk::open(&self.root).path_of(&self.key).unwrap()
    }

    /// What lies in the directory of the entry.
    fn beside(&self) -> Vec<String> {
        let path = self.path();
        let entries = path.parent().unwrap().read_dir().unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// A crash of the machine can leave any beginning of a file under its final name.
#[test]
fn torn_at_every_length() {
    let bench = Bench::new();
    for length in 0..bench.entry.len() {
        bench.refuses(&bench.entry[..length], "");
    }
    bench.refuses(&[&bench.entry[..], b"x"].concat(), "damaged");
}

/// A bit flipped on disk: in the magic, the version, the header, the key, the image or the digest.
#[test]
fn a_flipped_bit_anywhere() {
    let bench = Bench::new();
    for byte in 0..bench.entry.len() {
        let mut flipped = bench.entry.clone();
        flipped[byte] ^= 1 << (byte % 8);
        bench.refuses(&flipped, "");
    }
}

/// Each section wrong by itself, under a digest that is right: the digest is not all that is checked.
#[test]
fn wrong_in_one_place_but_sealed() {
    let bench = Bench::new();
    let body = &bench.entry[..bench.entry.len() - 32];
    let replaced = |from: &str, to: &str| {
        let at = body.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        sealed(&[&body[..at], to.as_bytes(), &body[at + from.len()..]].concat())
    };
    bench.refuses(&replaced("warpsmith-cubin", "warpsmith-kubin"), "wrong magic");
    bench.refuses(&replaced("cubin 2", "cubin 1"), "this is 2");
    bench.refuses(&replaced("\"about\"", "\"abode\""), "header");
    bench.refuses(&replaced("\"key_bytes\":", "\"key_bytes\":9"), "shorter than the header says");
    bench.refuses(&replaced("\"image_bytes\":", "\"image_bytes\":1"), "the header says");
    bench.refuses(&sealed(&body[..body.len() - 1]), "the header says");
    bench.refuses(&replaced("sm_90a\noption", "sm_80a\noption"), "another key");
    bench.refuses(&replaced("\"name\":\"k.cu\"", r#""name":"\u001b[2J""#), "control characters");
    bench.refuses(&replaced("\"entry\":\"k\"", r#""entry":"\u009b""#), "control characters");
    bench.refuses(b"", "torn");
    bench.refuses(&[0xff; 100], "torn");
    bench.refuses(b"\xff\xfe\n", "not text");
}

/// Machine code under a digest that is right, but not such as a driver may be given, which reads as far as the code itself
/// says: nothing at all, text, an ELF file without its end, or without the kernel.
#[test]
fn machine_code_that_is_not_whole() {
    let bench = Bench::new();
    let whole = image(b"");
    for length in (0..whole.len()).step_by(5) {
        bench.refuses(&entry_with(&bench.key, &whole[..length]), "the image is damaged");
    }
    bench.refuses(&entry_with(&bench.key, b"// PTX\n.version 9.0\n.target sm_90a\n"), "no ELF file");
    let mut changed = whole.clone();
    changed[0x12] = 62;
    bench.refuses(&entry_with(&bench.key, &changed), "machine 62, not 190");
    let at = whole.windows(3).position(|window| window == b"\0k\0").unwrap() + 1;
    let mut changed = whole.clone();
    changed[at] = b'j';
    bench.refuses(&entry_with(&bench.key, &changed), "is not in the image");
}

/// A valid entry of another key under this key's name, as a collision of the hash would leave it.
#[test]
fn an_entry_of_another_key() {
    let bench = Bench::new();
    let other = key(&bench.root.join("../nvrtc"), "other text");
    let disk = Disk::open(&bench.root);
    disk.stores(&other, &bench.cubin);
    let valid = fs::read(disk.path_of(&other).unwrap()).unwrap();
    bench.refuses(&valid, "another key");
}

/// Something at the entry's path that is no file: opening a pipe would wait for ever.
#[test]
fn no_regular_file() {
    let bench = Bench::new();
    let disk = Disk::open(&bench.root);
    let path = disk.path_of(&bench.key).unwrap();
    fs::remove_file(&path).unwrap();
    pipe(&path);
    assert!(disk.get(&bench.key).is_none());
    assert!(disk.stats().last_error.unwrap().contains("not a regular file"));
    disk.stores(&bench.key, &bench.cubin);
    assert!(disk.get(&bench.key).is_some(), "a pipe is replaced");

    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let lines = logged(|| {
        assert!(disk.get(&bench.key).is_none());
        disk.stores(&bench.key, &bench.cubin);
    });
    assert!(lines.contains("reading") && lines.contains("writing"), "{lines}");
    assert_eq!(bench.beside().len(), 1, "no temporary file stays: {:?}", bench.beside());
}

/// Directories that cannot be made or written to: log line, uncached, no error.
#[test]
fn read_only() {
    let bench = Bench::new();
    let file = bench.root.join("../file");
    fs::write(&file, "").unwrap();
    // Fails for root as well: a file is no directory, and nothing can be made in /proc.
    for root in [file.join("cubins"), file, PathBuf::from("/proc/warpsmith")] {
        let lines = logged(|| {
            let disk = Disk::open(&root);
            disk.stores(&bench.key, &bench.cubin);
            assert!(disk.root().is_none() && disk.get(&bench.key).is_none());
            assert_eq!((disk.stats().stores, disk.stats().errors), (0, 1));
        });
        assert!(lines.contains("WARN") && lines.contains(&*root.to_string_lossy()), "{lines}");
    }
    // A shard that is a file.
    let disk = Disk::open(&bench.root);
    let shard = disk.path_of(&bench.key).unwrap().parent().unwrap().to_owned();
    fs::remove_dir_all(&shard).unwrap();
    fs::write(&shard, "").unwrap();
    let lines = logged(|| disk.stores(&bench.key, &bench.cubin));
    assert!(lines.contains("writing") && disk.get(&bench.key).is_none(), "{lines}");
    fs::remove_file(&shard).unwrap();
    disk.stores(&bench.key, &bench.cubin);
    assert!(disk.get(&bench.key).is_some());

    if is_root() {
        return common::skip("read_only: chmod", "root writes everywhere");
    }
    fs::set_permissions(&shard, fs::Permissions::from_mode(0o500)).unwrap();
    let (before, lines) = (disk.stats(), logged(|| disk.stores(&bench.key, &bench.cubin)));
    assert!(lines.contains("writing") && disk.stats().stores == before.stores, "{lines}");
    assert!(disk.get(&bench.key).is_some(), "reading still works");
    // Nor can it be swept: that is said once, not at each store.
    set_mode(&bench.root, 0o500);
    let lines = logged(|| {
        let disk = Disk::open(&bench.root);
        (0..3).for_each(|_| disk.stores(&bench.key, &bench.cubin));
    });
    let said = ["writing failed", "sweeping without"].map(|words| lines.matches(words).count());
    assert_eq!(said, [3, 1], "{lines}");
    [&bench.root, &shard].into_iter().for_each(|dir| set_mode(dir, 0o700));
}

/// Whoever can write to the directory can run code on the GPU.
#[test]
fn a_directory_of_others_is_not_used() {
    let bench = Bench::new();
    assert_eq!(fs::metadata(&bench.root).unwrap().mode() & 0o777, 0o700, "made for the user alone");
    for mode in [0o777, 0o770, 0o702] {
        fs::set_permissions(&bench.root, fs::Permissions::from_mode(mode)).unwrap();
        let lines = logged(|| assert!(Disk::open(&bench.root).get(&bench.key).is_none()));
        assert!(lines.contains("lets others write"), "{lines}");
    }
    fs::set_permissions(&bench.root, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Disk::open(&bench.root).get(&bench.key).is_some());
    if !is_root() {
        return common::skip("a_directory_of_others_is_not_used: chown", "only root can give a directory away");
    }
    chown(&bench.root, Some(12345), None).unwrap();
    assert!(Disk::open(&bench.root).stats().last_error.unwrap().contains("belongs to user 12345"));
}

#[test]
fn disabled_means_nothing_is_touched() {
    let bench = Bench::new();
    let disk = Disk::disabled();
    disk.stores(&bench.key, &bench.cubin);
    assert!(disk.get(&bench.key).is_none() && disk.path_of(&bench.key).is_none());
    assert_eq!(disk.stats(), Default::default());
}

/// This test binary again, running only `child`, told what to do.
fn process(task: &str, bench: &Bench, before: &str) -> Command {
    let mut command = Command::new("sh");
    let this = std::env::current_exe().unwrap();
    command.args(["-c", &format!("{before} exec \"$0\" --exact child --nocapture")]).arg(this);
    command.env("WARPSMITH_TEST_TASK", task).env("WARPSMITH_TEST_ROOT", &bench.root).stdout(Stdio::piped());
    command
}

/// Not a test by itself: what the tests below run in processes of their own.
#[test]
fn child() {
    let Ok(task) = std::env::var("WARPSMITH_TEST_TASK") else { return };
    let root = PathBuf::from(std::env::var_os("WARPSMITH_TEST_ROOT").unwrap());
    let key = key(&root.join("../nvrtc"), "text");
    let disk = Disk::open(root);
    let cubin = disk.get(&key).expect("the parent stored it");
    match task.as_str() {
        "write" => (0..300).for_each(|_| disk.stores(&key, &cubin)),
        "write for ever" => loop {
            disk.stores(&key, &cubin);
        },
        "read" => (0..3000).for_each(|_| assert!(disk.get(&key) == Some(cubin.clone()))),
        other => panic!("{other}"),
    }
    println!("\nstats: {}", disk.stats());
}

/// The file system takes the first bytes and refuses the rest: a limit on file sizes does exactly what a full disk
/// does, a write that fails half-way (EFBIG for ENOSPC), and needs no file system of its own.
#[test]
fn a_full_disk() {
    let mut bench = Bench::new();
    // Larger than the limit (one unit of `ulimit -f` is 512 or 1024 bytes).
    let large = entry_of(&bench.key, &vec![7; 100_000]);
    place(&Disk::open(&bench.root), &bench.key, &large);
    bench.cubin = Disk::open(&bench.root).get(&bench.key).unwrap();
    let output = process("write", &bench, "trap '' XFSZ; ulimit -f 16;").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("stats: 1 hits, 0 in layers, 0 misses, 0 stores") && said.contains("300 errors (last: writing"),
        "{said}"
    );
    assert!(said.contains("os error 27"), "EFBIG in {said}");
    assert_eq!(bench.beside().len(), 1, "no temporary file stays: {:?}", bench.beside());
    assert!(Disk::open(&bench.root).get(&bench.key) == Some(bench.cubin.clone()), "the old entry is untouched");
}

/// Writers replace the entry while readers read it: every read sees a whole entry.
#[test]
fn two_processes_write_while_others_read() {
    let bench = Bench::new();
    let start = |task| process(task, &bench, "").spawn().unwrap();
    let children: Vec<_> = ["write", "read", "write", "read"].map(start).into();
    let disk = Disk::open(&bench.root);
    for _ in 0..1000 {
        assert!(disk.get(&bench.key) == Some(bench.cubin.clone()));
    }
    for running in children {
        let output = running.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("0 misses") && said.contains("0 errors"), "{said}");
    }
    assert_eq!((disk.stats().errors, disk.stats().hits), (0, 1000));
    assert_eq!(bench.beside().len(), 1, "{:?}", bench.beside());
}

/// A writer killed at any moment leaves the entry whole, and at most a temporary file that nobody reads.
#[test]
fn a_killed_writer() {
    let bench = Bench::new();
    for delay_ms in [20, 31, 47] {
        let mut running = process("write for ever", &bench, "").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay_ms));
        running.kill().unwrap();
        assert_eq!(running.wait().unwrap().signal(), Some(9), "it wrote until then");
        let disk = Disk::open(&bench.root);
        assert!(disk.get(&bench.key) == Some(bench.cubin.clone()));
        disk.stores(&bench.key, &bench.cubin);
        assert_eq!((disk.stats().stores, disk.stats().errors), (1, 0));
    }
}

/// The clock decides what is evicted, never what is found: an entry from the future is read, and is from now on; a use is
/// written down, but not each time.
#[test]
fn a_clock_that_was_moved() {
    let bench = Bench::new();
    let disk = Disk::open(&bench.root);
    let path = disk.path_of(&bench.key).unwrap();
    let modified = || fs::metadata(&path).unwrap().modified().unwrap();
    let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
    for (set, kept) in [(now + 9000 * hour, false), (now - 2 * hour, false), (now - hour / 2, true)] {
        File::open(&path).unwrap().set_modified(set).unwrap();
        assert!(disk.get(&bench.key) == Some(bench.cubin.clone()));
        assert_eq!(modified() == set, kept);
        assert!(modified() <= SystemTime::now());
    }
    assert_eq!((disk.stats().hits, disk.stats().errors), (3, 0));
}

/// What `f` gives; it must not wait for ever.
fn soon<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (give, given) = mpsc::channel();
    std::thread::spawn(move || give.send(f()));
    given.recv_timeout(Duration::from_secs(30)).expect("it waits for ever")
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Who can write to a shard can put an entry into it, and who can write to an entry can replace its code: neither is used,
/// whatever the root's own mode. One line tells it of a directory, however many entries it has.
#[test]
fn shards_and_files_that_others_can_write_to_are_not_used() {
    let bench = Bench::new();
    let other = key(&bench.root.join("../nvrtc"), "other text");
    place(&Disk::open(&bench.root), &other, &entry_of(&other, b""));
    let (path, beside) = (bench.path(), Disk::open(&bench.root).path_of(&other).unwrap());
    let shard = path.parent().unwrap();
    assert_eq!(beside.parent().unwrap(), shard, "the same kernel, changed");
    let refuses_both = |why: &str, errors: u64| {
        let disk = Disk::open(&bench.root);
        let lines = logged(|| assert!(disk.get(&bench.key).is_none() && disk.get(&other).is_none()));
        assert_eq!((disk.stats().misses, disk.stats().errors), (2, errors));
        assert!(lines.matches("WARN").count() == 1 && lines.contains(why), "{lines}");
        disk
    };
    let serves_both = || {
        let disk = Disk::open(&bench.root);
        assert!(disk.get(&bench.key).is_some() && disk.get(&other).is_some());
    };

    for mode in [0o777, 0o770, 0o702] {
        set_mode(shard, mode);
        let disk = refuses_both(&format!("the directory's mode {mode:o} lets others write to it"), 2);
        // Nothing is written where it could not be read, and no lock is asked of it.
        let lines = logged(|| (0..2).for_each(|_| disk.stores(&bench.key, &bench.cubin)));
        assert!(disk.stats().stores == 0 && lines.matches("writing failed").count() == 1, "{lines}");
    }
    set_mode(shard, 0o755);
    serves_both();
    for mode in [0o666, 0o620, 0o602] {
        [&path, &beside].into_iter().for_each(|file| set_mode(file, mode));
        refuses_both(&format!("the file's mode {mode:o} lets others write to it"), 2).stores(&bench.key, &bench.cubin);
        assert!(Disk::open(&bench.root).get(&bench.key).is_some(), "a file is replaced");
    }
    [&path, &beside].into_iter().for_each(|file| set_mode(file, 0o644));
    serves_both();

    // A layer is anyone's, but not everyone's.
    let layered = || Disk::builder().layer(&bench.root).build();
    set_mode(&path, 0o666);
    assert!(layered().get(&bench.key).is_none() && layered().get(&other).is_some());
    set_mode(shard, 0o777);
    assert!(layered().get(&other).is_none());
    [(&*path, 0o600), (shard, 0o700)].into_iter().for_each(|(path, mode)| set_mode(path, mode));
    if !is_root() {
        return common::skip("shards_and_files_…: chown", "only root can give a file away");
    }
    for one in [shard, &path] {
        chown(one, Some(12345), None).unwrap();
        let disk = Disk::open(&bench.root);
        assert!(disk.get(&bench.key).is_none() && layered().get(&bench.key).is_some());
        assert!(disk.stats().last_error.unwrap().contains("belongs to user 12345"));
        chown(one, Some(0), None).unwrap();
    }
    serves_both();
}

/// A link leads to what others can change, or to a file that is not the cache's: nothing is read through one, and no use
/// written down.
#[test]
fn links_lead_nowhere() {
    let bench = Bench::new();
    let (path, long_ago) = (bench.path(), SystemTime::now() - Duration::from_secs(86_400));
    let elsewhere = bench.root.join("../elsewhere");
    let get = |why: &str| {
        let disk = Disk::open(&bench.root);
        let lines = logged(|| assert!(disk.get(&bench.key).is_none()));
        assert!(lines.contains(why), "{lines}");
    };
    for bytes in [&*bench.entry, b"a file of someone else's"] {
        fs::write(&elsewhere, bytes).unwrap();
        File::open(&elsewhere).unwrap().set_modified(long_ago).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&elsewhere, &path).unwrap();
        get("a symbolic link");
        assert_eq!(fs::metadata(&elsewhere).unwrap().modified().unwrap(), long_ago);
        // Written beside it, then renamed.
        Disk::open(&bench.root).stores(&bench.key, &bench.cubin);
        assert!(Disk::open(&bench.root).get(&bench.key) == Some(bench.cubin.clone()));
        assert_eq!(fs::read(&elsewhere).unwrap(), bytes);
    }
    let shard = path.parent().unwrap();
    fs::rename(shard, bench.root.join("../shard")).unwrap();
    symlink(bench.root.join("../shard"), shard).unwrap();
    get("ot a directory");
    // An eviction does not go through it, either.
    let settings = Disk::builder().root(&bench.root).max_bytes(1).grace(Duration::ZERO);
    settings.build().stores(&key(&bench.root.join("../nvrtc"), "other text"), &bench.cubin);
    assert!(bench.root.join("../shard").join(path.file_name().unwrap()).exists());
}

/// A use is written down of what was used.
#[test]
fn a_damaged_entry_keeps_its_time() {
    let bench = Bench::new();
    let long_ago = SystemTime::now() - Duration::from_secs(86_400);
    fs::write(bench.path(), "torn").unwrap();
    File::open(bench.path()).unwrap().set_modified(long_ago).unwrap();
    assert!(Disk::open(&bench.root).get(&bench.key).is_none());
    assert_eq!(fs::metadata(bench.path()).unwrap().modified().unwrap(), long_ago);
}

/// A file has any length that its owner says, and takes no space: it is not read.
#[test]
fn a_sparse_entry() {
    let bench = Bench::new();
    for length in [(64 << 20) + 1, 1 << 40] {
        File::options().write(true).open(bench.path()).unwrap().set_len(length).unwrap();
        let disk = Disk::open(&bench.root);
        assert!(disk.get(&bench.key).is_none());
        let why = disk.stats().last_error.unwrap();
        assert!(why.ends_with(&format!("{length} bytes, an entry has at most 67108864")), "{why}");
    }
}

/// Where a lock should be there is something else: a pipe, which would be waited for, a link, a directory. That is as on a
/// file system without locks: a log line, and on.
#[test]
fn locks_that_are_none() {
    type Make = fn(&Path);
    let kinds: [(&str, Make); 4] = [
        // With nobody at its other end.
        ("not a regular file", pipe),
        ("not a regular file", |path| {
            pipe(path);
            // With somebody, so that opening it succeeds.
            let reader = File::options().read(true).write(true).open(path).unwrap();
            std::mem::forget(reader);
        }),
        ("a symbolic link", |path| symlink(path.with_file_name("made through the link"), path).unwrap()),
        ("s a directory", |path| fs::create_dir(path).unwrap()),
    ];
    for (why, make) in kinds {
        let bench = Bench::new();
        let (temp, specs) = (bench.root.parent().unwrap(), [256, 512].map(|n| spec(n, &Arch::H200)));
        let cache =
            KernelCache::builder().renders(render).toolchain(toolchain(temp, "13.0.88")).disk(&bench.root).build();
        let locks = specs.each_ref().map(|spec| {
            let path = cache.disk().path_of(&cache.key(spec).unwrap()).unwrap();
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            set_mode(path.parent().unwrap(), 0o700);
            PathBuf::from(format!("{}.lock", path.display()))
        });
        locks.iter().for_each(|lock| make(lock));
        let lines = soon(move || {
            logged(|| specs.iter().for_each(|spec| assert!(cache.cubin(spec).unwrap_err().is_missing_library())))
        });
        assert_eq!(lines.matches("no lock, compiling without").count(), 1, "{lines}");
        assert!(lines.contains(why), "{lines}");
        assert!(!locks[0].with_file_name("made through the link").exists());

        // The lock of those who evict: still one line, and the limit holds.
        make(&bench.root.join(".sweeping"));
        let disk = Disk::builder().root(&bench.root).max_bytes(1).grace(Duration::ZERO).build();
        let (key, cubin) = (bench.key.clone(), bench.cubin.clone());
        let (lines, stats) = soon(move || {
            let lines = logged(|| (0..3).for_each(|_| disk.stores(&key, &cubin)));
            (lines, disk.stats())
        });
        assert_eq!(lines.matches("WARN").count(), lines.matches("no lock, sweeping without").count(), "{lines}");
        assert!(stats.evictions > 0 && stats.errors == 0 && !bench.path().exists(), "{stats}\n{lines}");
    }
}

/// A process that is stopped while it compiles many kernels: they are waited for in turn, but not each for the longest time.
#[test]
fn a_holder_that_hangs_costs_twice_the_longest_wait() {
    let temp = tempfile::tempdir().unwrap();
    let specs = [256, 512, 1024, 2048, 4096].map(|n| spec(n, &Arch::H200));
    let longest = Duration::from_millis(400);
    let settings = Disk::builder().root(temp.path().join("cubins")).wait_at_most(longest);
    let cache =
        KernelCache::builder().renders(render).toolchain(toolchain(temp.path(), "13.0.88")).disk_with(settings).build();
    let _held = specs.each_ref().map(|spec| {
        let path = cache.disk().path_of(&cache.key(spec).unwrap()).unwrap();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap()).unwrap();
        let file = File::create(format!("{}.lock", path.display())).unwrap();
        file.lock().unwrap();
        file
    });
    specs.iter().for_each(|spec| assert!(cache.cubin(spec).unwrap_err().is_missing_library()));
    let stats = cache.stats().disk;
    assert_eq!((stats.waits, stats.gave_up), (5, 5));
    // 400, 200, 100, 50, 25.
    assert!((775.0..1500.0).contains(&stats.wait_ms), "{stats}");
}
