//! Everything that can be wrong with the disk cache is a miss or an uncached run, with its reason in a log line; the
//! right result comes all the same, and the next write mends what can be mended.
//!
//! No NVRTC is needed: keys only look at file names and sizes, and the first entry is written here, byte by byte, as
//! the format says.

// Helpers of tests may do what tests may.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod cache_shared;
mod common;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use warpsmith::build::Cubin;
use warpsmith::cache::{Disk, Key};

use cache_shared::{entry_of, entry_with, image, is_root, key, logged, place, sealed};

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
        disk.put(&key, &cubin);
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
        disk.put(&self.key, &self.cubin);
        assert!(disk.get(&self.key) == Some(self.cubin.clone()), "mended");
        assert_eq!(fs::read(disk.path_of(&self.key).unwrap()).unwrap(), self.entry);
    }

    /// What lies in the directory of the entry.
    fn beside(&self) -> Vec<String> {
        let path = Disk::open(&self.root).path_of(&self.key).unwrap();
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
    disk.put(&other, &bench.cubin);
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
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert!(disk.get(&bench.key).is_none());
    assert!(disk.stats().last_error.unwrap().contains("not a regular file"));
    disk.put(&bench.key, &bench.cubin);
    assert!(disk.get(&bench.key).is_some(), "a pipe is replaced");

    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let lines = logged(|| {
        assert!(disk.get(&bench.key).is_none());
        disk.put(&bench.key, &bench.cubin);
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
            disk.put(&bench.key, &bench.cubin);
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
    let lines = logged(|| disk.put(&bench.key, &bench.cubin));
    assert!(lines.contains("writing") && disk.get(&bench.key).is_none(), "{lines}");
    fs::remove_file(&shard).unwrap();
    disk.put(&bench.key, &bench.cubin);
    assert!(disk.get(&bench.key).is_some());

    if is_root() {
        return common::skip("read_only: chmod", "root writes everywhere");
    }
    fs::set_permissions(&shard, fs::Permissions::from_mode(0o500)).unwrap();
    let (before, lines) = (disk.stats(), logged(|| disk.put(&bench.key, &bench.cubin)));
    assert!(lines.contains("writing") && disk.stats().stores == before.stores, "{lines}");
    assert!(disk.get(&bench.key).is_some(), "reading still works");
    fs::set_permissions(&shard, fs::Permissions::from_mode(0o700)).unwrap();
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
    std::os::unix::fs::chown(&bench.root, Some(12345), None).unwrap();
    assert!(Disk::open(&bench.root).stats().last_error.unwrap().contains("belongs to user 12345"));
}

#[test]
fn disabled_means_nothing_is_touched() {
    let bench = Bench::new();
    let disk = Disk::disabled();
    disk.put(&bench.key, &bench.cubin);
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
        "write" => (0..300).for_each(|_| disk.put(&key, &cubin)),
        "write for ever" => loop {
            disk.put(&key, &cubin);
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
        disk.put(&bench.key, &bench.cubin);
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
