//! Installing NVRTC with made-up pips: whatever was interrupted is repaired, whatever fails is said in a sentence, and
//! nothing is waited for without an end.

// Helpers of tests may do what tests may.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use warpsmith_testing as common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use common::fallback::{elf, fake, make_dir, pip, python, runs, set_mode, tempdir, whole, write};
use warpsmith::build::{Search, Toolchain};

/// Held by tests that run scripts they wrote: a fork in another test would inherit the file while it is still open
/// for writing, and running it would be refused ("text file busy").
static SCRIPTS: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    SCRIPTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cache directory, and a `python3` on `PATH` whose pip is a script.
struct Machine {
    temp: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        Self { temp: tempdir() }
    }

    fn path(&self) -> PathBuf {
        self.temp.path().canonicalize().unwrap()
    }

    fn cache(&self) -> PathBuf {
        self.path().join("cache")
    }

    fn home(&self) -> PathBuf {
        self.cache().join("nvrtc")
    }

    fn site(&self) -> PathBuf {
        self.home().join("13.0.88")
    }

    fn lib(&self) -> PathBuf {
        self.site().join("nvidia/cu13/lib")
    }

    /// From now on pip is this, after what [`pip`] begins with.
    fn pip(&self, script: &str) {
        python(&self.path().join("bin"), &format!("{}{script}", pip(&self.path())));
    }

    /// With the `PATH` of this process after it, so that the scripts find their tools.
    fn search(&self) -> Search {
        let tools = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([self.path().join("bin")].into_iter().chain(std::env::split_paths(&tools)));
        Search::nowhere()
            .var("PATH", path.unwrap())
            .var("WARPSMITH_CACHE_DIR", self.cache())
            .install_limit(Duration::from_secs(30))
    }

    fn install(&self) -> warpsmith::Result<Toolchain> {
        self.search().find_or_install()
    }

    /// What an install says that fails.
    fn refusal(&self) -> String {
        let error = self.install().unwrap_err();
        assert!(error.is_missing_library());
        let text = error.to_string();
        assert_eq!(text.matches("remedy").count(), 1, "{text}");
        assert!(text.len() < 1500, "{} bytes: {text}", text.len());
        text
    }

    fn left(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.home().read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// What an interrupted, or foreign, install can have left where the wheel belongs.
#[test]
fn whatever_is_there_and_not_whole_is_replaced_once() {
    let _alone = alone();
    type Make = fn(&Machine);
    let cases: [(&str, Make); 14] = [
        ("an empty site", |machine| make_dir(&machine.site())),
        ("directories without files", |machine| make_dir(&machine.lib())),
        ("nvidia only", |machine| make_dir(&machine.site().join("nvidia"))),
        ("no builtins", |machine| drop(fake(&machine.lib(), "libnvrtc.so.13", None))),
        ("no library", |machine| {
            whole(&machine.lib());
            fs::remove_file(machine.lib().join("libnvrtc.so.13")).unwrap();
        }),
        ("a library cut short", |machine| write(&whole(&machine.lib()), &elf(64)[..50])),
        ("builtins cut short", |machine| {
            whole(&machine.lib());
            write(&machine.lib().join("libnvrtc-builtins.so.13.0"), b"\x7fELF");
        }),
        ("an empty library", |machine| write(&whole(&machine.lib()), b"")),
        ("a text file", |machine| write(&whole(&machine.lib()), b"404 not found")),
        ("a link to nothing", |machine| {
            make_dir(&machine.lib());
            symlink("nothing", machine.lib().join("libnvrtc.so.13")).unwrap();
        }),
        ("a file as site", |machine| {
            make_dir(&machine.home());
            write(&machine.site(), b"");
        }),
        ("a link to nothing as site", |machine| {
            make_dir(&machine.home());
            symlink("nothing", machine.site()).unwrap();
        }),
        ("a site that a group can write to", |machine| {
            whole(&machine.lib());
            set_mode(&machine.lib(), 0o775);
        }),
        ("a library that all can write to", |machine| set_mode(&whole(&machine.lib()), 0o666)),
    ];
    for (case, make) in cases {
        let machine = Machine::new();
        machine.pip("unpack");
        make(&machine);
        assert!(machine.search().find().is_err(), "{case}");
        for start in 0..3 {
            let found = machine.install().unwrap_or_else(|error| panic!("{case}, start {start}: {error}"));
            assert_eq!(
                (found.origin(), found.library()),
                ("installed", &*machine.lib().join("libnvrtc.so.13")),
                "{case}"
            );
        }
        assert_eq!(runs(&machine.path()), 1, "{case}: downloads");
        assert_eq!(machine.left(), ["13.0.88"], "{case}");
        assert!(machine.search().find().is_ok(), "{case}");
    }
}

/// What pip unpacked is looked at before it is put where it is found.
#[test]
fn what_pip_left_half_is_not_kept() {
    let _alone = alone();
    let cases = [
        ("unpack; rm $site/nvidia/cu13/lib/libnvrtc-builtins*", "libnvrtc-builtins"),
        ("unpack; head -c 40 /dev/zero > $site/nvidia/cu13/lib/libnvrtc.so.13", "no ELF file"),
        ("unpack; printf '\\177ELF' > $site/nvidia/cu13/lib/libnvrtc.so.13", "cut short"),
        ("mkdir -p $site/nvidia", "put no NVRTC"),
        ("rm -r $site", "No such file"),
    ];
    let machine = Machine::new();
    for (script, says) in cases {
        machine.pip(script);
        let text = machine.refusal();
        assert!(text.contains(says), "{script}: {text}");
        assert_eq!(machine.left(), [""; 0], "{script}");
    }
    // What is there stays, if nothing better is to be had.
    make_dir(&machine.lib());
    machine.refusal();
    assert_eq!(machine.left(), ["13.0.88"]);
    machine.pip("unpack");
    assert!(machine.install().is_ok());
}

#[test]
fn what_dead_processes_left_is_removed_and_nothing_else() {
    let _alone = alone();
    let machine = Machine::new();
    machine.pip("unpack");
    let left = |name: &str| {
        let dir = machine.home().join(name);
        make_dir(&dir.join("unpacked/nvidia/cu13/lib"));
        write(&dir.join("unpacked/nvidia/cu13/lib/libnvrtc.so.13"), b"half");
        dir
    };
    let age = |dir: &Path, hours: u64| {
        File::open(dir).unwrap().set_modified(SystemTime::now() - Duration::from_secs(3600 * hours)).unwrap();
    };
    write(&left(".installing-dead").join("lock"), b"");
    let alive = left(".installing-alive").join("lock");
    write(&alive, b"");
    let held = File::options().write(true).open(&alive).unwrap();
    held.lock().unwrap();
    age(&left(".installing-alive"), 5);
    age(&left(".installing-without-lock"), 5);
    left(".installing-young");
    age(&left("12.0.0"), 5);
    write(&machine.home().join(".installing-a-file"), b"");
    assert!(machine.install().is_ok());
    let stay = ["12.0.0", "13.0.88", ".installing-a-file", ".installing-alive", ".installing-young"];
    let mut stay = stay.map(str::to_owned);
    stay.sort();
    assert_eq!(machine.left(), stay);
}

/// Not a test by itself: a process that installs, to be killed.
#[test]
fn child() {
    let Some(cache) = std::env::var_os("WARPSMITH_TEST_ROOT") else { return };
    let path = std::env::var_os("PATH").unwrap();
    let found = Search::nowhere().var("PATH", path).var("WARPSMITH_CACHE_DIR", cache).find_or_install();
    println!("\n{}", found.map_or_else(|error| error.to_string(), |found| format!("found {found}")));
}

/// This test binary again, running only `child`.
fn start(machine: &Machine) -> std::process::Child {
    let path = format!("{}:{}", machine.path().join("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env("PATH", path).env("WARPSMITH_TEST_ROOT", machine.cache());
    command.stdout(Stdio::piped()).spawn().unwrap()
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process lives whose number a script wrote into this file.
fn lives(file: &Path) -> bool {
    let number = fs::read_to_string(file).unwrap();
    // A zombie that nobody waits for is dead, too.
    fs::read_to_string(format!("/proc/{}/stat", number.trim())).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_killed_install_leaves_neither_a_pip_nor_files_for_ever() {
    let _alone = alone();
    let machine = Machine::new();
    let pid = machine.path().join("pid");
    machine.pip(&format!("unpack; echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600", pid = pid.display()));
    let mut process = start(&machine);
    wait_for("pip starts", || pid.exists());
    assert!(lives(&pid));
    process.kill().unwrap();
    process.wait().unwrap();
    wait_for("pip ends with the process that started it", || !lives(&pid));
    assert_eq!(machine.left().len(), 2, "a lock and a directory: {:?}", machine.left());
    machine.pip("unpack");
    assert!(machine.install().is_ok());
    assert_eq!(machine.left(), ["13.0.88"]);
}

#[test]
fn processes_that_start_together_download_once() {
    let _alone = alone();
    let machine = Machine::new();
    machine.pip("sleep 1; unpack");
    let children: Vec<_> = (0..6).map(|_| start(&machine)).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("found nvrtc-13.0.88"), "{said}");
    }
    assert_eq!((runs(&machine.path()), machine.left()), (1, vec!["13.0.88".to_owned()]));
}

#[test]
fn a_pip_that_hangs_is_ended_with_all_that_it_started() {
    let _alone = alone();
    let machine = Machine::new();
    let pid = machine.path().join("pid");
    // The shell waits for a process of its own, which holds its output.
    machine.pip(&format!("echo 'Looking in indexes' >&2; sleep 600 & echo $! > {}; wait", pid.display()));
    let start = Instant::now();
    let error = machine.search().install_limit(Duration::from_secs(1)).find_or_install().unwrap_err().to_string();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    for part in ["did not end within 1 s", "Looking in indexes", "remedy"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    wait_for("the process that pip started ends", || !lives(&pid));
    assert_eq!(machine.left(), [""; 0]);
}

/// What pip leaves behind, and holds its output, is not waited for.
#[test]
fn a_pip_that_ends_is_not_waited_for_any_longer() {
    let _alone = alone();
    let machine = Machine::new();
    let pid = machine.path().join("pid");
    for (left, status) in [("sleep 600", 0), ("sleep 600", 1), ("setsid sleep 25", 0), ("setsid sleep 25", 1)] {
        machine.pip(&format!("unpack; {left} & echo $! > {}; exit {status}", pid.display()));
        let start = Instant::now();
        assert_eq!(machine.install().is_ok(), status == 0, "{left}");
        assert!(start.elapsed() < Duration::from_secs(15), "{left}: {:?}", start.elapsed());
        if left == "sleep 600" {
            wait_for("the process that pip started ends", || !lives(&pid));
        }
        let _ = fs::remove_dir_all(machine.site());
    }
}

#[test]
fn a_lock_is_not_waited_for_for_ever() {
    let _alone = alone();
    let machine = Machine::new();
    machine.pip("unpack");
    make_dir(&machine.home());
    let path = machine.home().join(".installing.lock");
    let install = || {
        let start = Instant::now();
        let found = machine.search().install_limit(Duration::from_secs(1)).find_or_install();
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(found.is_ok(), "{found:?}");
        fs::remove_dir_all(machine.site()).unwrap();
    };
    // By a process that is stopped, say.
    let held = File::create(&path).unwrap();
    held.lock().unwrap();
    install();
    fs::remove_file(&path).unwrap();
    // What is no lock.
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    install();
    let _ = fs::remove_file(&path);
    make_dir(&path);
    install();
    fs::remove_dir(&path).unwrap();
    symlink("/nonexistent/lock", &path).unwrap();
    install();
}

/// Each reason is the true one, with what helps against it.
#[test]
fn why_pip_failed() {
    let _alone = alone();
    let cases = [
        ("exit 3", "ended with exit status: 3 and said nothing (no network?)", "pip install --target"),
        ("kill -9 $$", "was killed by signal 9", "pip install --target"),
        ("kill -11 $$", "was killed by signal 11", "pip install --target"),
        ("echo 'error: externally-managed-environment' >&2; exit 1", "may not install", "virtual environment"),
        ("echo '[Errno 28] No space left on device' >&2; exit 1", "disk is full", "WARPSMITH_CACHE_DIR"),
        ("echo '[Errno 13] Permission denied: x' >&2; exit 1", "may not write", "WARPSMITH_CACHE_DIR"),
        ("echo '[Errno 30] Read-only file system' >&2; exit 1", "may not write", "WARPSMITH_CACHE_DIR"),
        ("echo 'THESE PACKAGES DO NOT MATCH THE HASHES' >&2; exit 1", "another file of that name", "another index"),
        ("echo 'No module named pip' >&2; exit 1", "has no pip", "pip install --target"),
        (
            "echo 'Failed to establish a new connection: [Errno 111] Connection refused' >&2; echo 'ERROR: No matching \
             distribution found' >&2; exit 1",
            "no network?",
            "where there is a network",
        ),
        (
            "echo 'ERROR: No matching distribution found for x' >&2; exit 1",
            "no wheel of that release",
            "WARPSMITH_NVRTC",
        ),
        ("echo 'Segmentation fault' >&2; exit 139", "exit status: 139: Segmentation fault", "WARPSMITH_NVRTC"),
    ];
    let machine = Machine::new();
    for (script, reason, remedy) in cases {
        machine.pip(script);
        let text = machine.refusal();
        assert!(text.contains(reason) && text.contains(remedy), "{script}: {text}");
        let guesses_at_the_network = text.contains("no network");
        assert_eq!(guesses_at_the_network, reason.contains("no network"), "{script}: {text}");
    }
    python(&machine.path().join("bin"), "");
    fs::write(machine.path().join("bin/python3"), "#!/nonexistent/interpreter\n").unwrap();
    assert!(machine.refusal().contains("No such file"));
}

/// However much pip says, its end is shown, and no password.
#[test]
fn what_pip_says_is_bounded_and_tells_no_password() {
    let _alone = alone();
    let machine = Machine::new();
    let secrets = [
        "ERROR: https://alice:secret@host/simple/ is gone",
        "https://secret@host/simple/",
        "WARNING: (\"https://alice:se/cr@et:secret@host/simple\")",
        "http://alice:secret@host,https://alice:secret@other",
        "\x1b[31mhttps://alice:secret@host/\x1b[0m",
    ];
    for line in secrets {
        let file = machine.path().join("said");
        fs::write(&file, format!("first\n{line}\n")).unwrap();
        machine.pip(&format!("cat {} >&2; exit 1", file.display()));
        let text = machine.refusal();
        assert!(!text.contains("secret") && !text.contains("alice") && text.contains("://…@"), "{text}");
        assert!(!text.contains('\x1b'));
    }
    // A line that is cut in the middle of a URL, and more than anybody wants to read.
    for length in [16 << 10, (16 << 10) - 9, 1 << 20] {
        let mut said = b"ERROR: https://alice:".to_vec();
        said.resize(length, b's');
        said.extend_from_slice(b"secret@host/simple is gone\n");
        fs::write(machine.path().join("said"), &said).unwrap();
        machine.pip(&format!("cat {} >&2; exit 1", machine.path().join("said").display()));
        let text = machine.refusal();
        assert!(!text.contains("sss") && !text.contains("secret") && text.contains("is gone"), "{text}");
    }
    let start = Instant::now();
    machine.pip("head -c 200000000 /dev/zero | tr '\\0' 'x' >&2; echo ' the end' >&2; exit 1");
    let text = machine.refusal();
    assert!(text.contains("the end") && start.elapsed() < Duration::from_secs(30), "{:?}: {text}", start.elapsed());
    machine.pip("yes 'a line' >&2");
    let start = Instant::now();
    let endless = machine.search().install_limit(Duration::from_secs(1)).find_or_install().unwrap_err().to_string();
    assert!(endless.contains("did not end within 1 s") && endless.len() < 1500, "{endless}");
    assert!(start.elapsed() < Duration::from_secs(20));
}

/// A pip may unpack one file alone, runs nothing of where this process is, and writes where it is cleaned up.
#[test]
fn how_pip_is_asked() {
    let _alone = alone();
    let machine = Machine::new();
    let asked = machine.path().join("asked");
    let script = format!(
        "{{ echo \"$*\"; pwd; echo $TMPDIR; while [ \"$1\" != --requirement ]; do shift; done; cat $2; }} > {}",
        asked.display()
    );
    python(&machine.path().join("bin"), &format!("{script}; exit 1"));
    machine.refusal();
    let said = fs::read_to_string(&asked).unwrap();
    let lines: Vec<_> = said.lines().collect();
    for option in ["-m pip install", "--no-deps", "--only-binary :all:", "--require-hashes", "--no-input"] {
        assert!(lines[0].contains(option), "{option} in {said}");
    }
    let work = machine.home().join(".installing-");
    let work = work.to_string_lossy();
    assert!(lines[1].starts_with(&*work) && lines[2] == lines[1], "{said}");
    assert!(lines[0].contains(&format!("--target {}/unpacked", lines[1])), "{said}");
    assert!(lines[3].starts_with("nvidia-cuda-nvrtc==13.0.88 --hash=sha256:"), "{said}");
    assert_eq!(lines[3].matches(" --hash=sha256:").count(), 2, "x86-64 and aarch64");
}

/// The real pip, and an index with another wheel of that name.
#[test]
fn another_file_of_that_name_is_not_unpacked() {
    let _alone = alone();
    let tools = std::env::var_os("PATH").unwrap();
    let real = std::env::split_paths(&tools).map(|dir| dir.join("python3")).find(|path| path.is_file());
    let has_pip = |python: &PathBuf| {
        Command::new(python).args(["-m", "pip", "--version"]).output().is_ok_and(|output| output.status.success())
    };
    let Some(real) = real.filter(has_pip) else {
        return common::skip("another_file_of_that_name_is_not_unpacked", "no python3 with pip");
    };
    let machine = Machine::new();
    let (index, wheel) = (machine.path().join("index"), machine.path().join("wheel"));
    make_dir(&index);
    whole(&wheel);
    let make = "import sys, zipfile\n\
        wheel = zipfile.ZipFile(sys.argv[2] + '/nvidia_cuda_nvrtc-13.0.88-py3-none-any.whl', 'w')\n\
        for name in ['libnvrtc.so.13', 'libnvrtc-builtins.so.13.0']:\n\
        \x20   wheel.write(sys.argv[1] + '/' + name, 'nvidia/cu13/lib/' + name)\n\
        info = 'nvidia_cuda_nvrtc-13.0.88.dist-info/'\n\
        wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: nvidia-cuda-nvrtc\\nVersion: 13.0.88\\n')\n\
        wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        wheel.writestr(info + 'RECORD', '')\n\
        wheel.close()\n";
    assert!(Command::new(&real).args(["-c", make]).arg(&wheel).arg(&index).status().unwrap().success());
    let script = format!(
        "export PIP_CONFIG_FILE=/nonexistent PIP_NO_INDEX=1 PIP_FIND_LINKS={}; exec {} \"$@\"",
        index.display(),
        real.display()
    );
    python(&machine.path().join("bin"), &script);
    let text = machine.refusal();
    assert!(text.contains("another file of that name"), "{text}");
    // Without the hashes it would have been taken.
    let mut asked = script.replace("exec ", "shift 3; exec ");
    asked = asked.replace("\"$@\"", "-m pip install --no-deps --target \"$site\" nvidia-cuda-nvrtc==13.0.88");
    machine.pip(&asked.replace("shift 3; ", ""));
    assert!(machine.install().is_ok(), "{asked}");
}

/// Whatever the umask, what is installed is for nobody else to write to.
#[test]
fn what_is_installed_is_the_users_alone() {
    let _alone = alone();
    let machine = Machine::new();
    machine.pip("umask 0; unpack; chmod -R a+w $site");
    let found = machine.install().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    for part in
        found.library().ancestors().chain([found.builtins().unwrap()]).take_while(|part| **part != machine.path())
    {
        assert_eq!(mode(part) & 0o022, 0, "{} {:o}", part.display(), mode(part));
    }
    for made in [machine.cache(), machine.home(), machine.site()] {
        assert_eq!(mode(&made), 0o700, "{}", made.display());
    }
}

/// Nothing is put where others can write, nor is pip even asked.
#[test]
fn no_install_where_others_can_write() {
    let _alone = alone();
    for (case, mode) in [("cache", 0o777), ("cache/nvrtc", 0o777), ("cache/nvrtc", 0o775), ("cache/nvrtc", 0o1777)] {
        let machine = Machine::new();
        machine.pip("unpack");
        make_dir(&machine.home());
        let part = machine.path().join(case);
        set_mode(&part, mode);
        let text = machine.refusal();
        let says = format!("{}: the directory's mode {mode:o} lets others write", part.display());
        for words in [&*says, "chmod go-w", "WARPSMITH_CACHE_DIR"] {
            assert!(text.contains(words), "{words} in {text}");
        }
        assert_eq!(runs(&machine.path()), 0);
        set_mode(&part, 0o700);
        assert!(machine.install().is_ok());
    }
    // Where nobody can write at all.
    let machine = Machine::new();
    machine.pip("unpack");
    let text =
        machine.search().var("WARPSMITH_CACHE_DIR", "/proc/warpsmith").find_or_install().unwrap_err().to_string();
    assert!(text.contains("/proc/warpsmith") && text.contains("set WARPSMITH_CACHE_DIR"), "{text}");
    let mut file = File::create(machine.path().join("file")).unwrap();
    file.write_all(b"x").unwrap();
    let text = machine.search().var("WARPSMITH_CACHE_DIR", machine.path().join("file/below")).find_or_install();
    assert!(text.unwrap_err().to_string().contains("set WARPSMITH_CACHE_DIR"));
    let text = machine.search().var("WARPSMITH_CACHE_DIR", "relative").find_or_install().unwrap_err().to_string();
    assert!(text.contains("WARPSMITH_CACHE_DIR=relative: no absolute path") && text.contains("remedy"), "{text}");
}
