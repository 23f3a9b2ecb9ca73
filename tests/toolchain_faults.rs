//! What can be wrong with an NVRTC on disk: others can write to it, it is not whole, it is none. It is passed over or
//! refused with the reason, and never run.

// Helpers of tests may do what tests may.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use warpsmith_testing as common;

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use common::fallback::{compile, elf, has_run, make_dir, set_mode, telling, tempdir, whole, write};
use warpsmith::build::{Search, Toolchain};

/// Another user than the one who runs the tests, be it root or not.
const STRANGER: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Something that is done to a path, with the words that tell of it.
struct Fault {
    what: &'static str,
    says: &'static str,
    make: fn(&Path),
}

/// What makes a directory or a file of one's own one that others can write to.
const OPEN: [Fault; 3] = [
    Fault { what: "writable by all", says: "mode 757 lets others write", make: |path| set_mode(path, 0o757) },
    Fault { what: "sticky", says: "mode 1777 lets others write", make: |path| set_mode(path, 0o1777) },
    Fault {
        what: "another user's",
        says: "belongs to user 65534",
        make: |path| chown(path, Some(STRANGER), None).unwrap(),
    },
];

/// Faults that this user can make; those that only root can are told of.
fn faults(test: &str) -> impl Iterator<Item = &'static Fault> {
    let mine = |fault: &&Fault| is_root() || fault.what != "another user's";
    if !is_root() {
        common::skip(&format!("{test}: another user's files"), "only root gives files away");
    }
    OPEN.iter().filter(mine)
}

/// As it was before a fault.
fn undo(path: &Path, was: u32) {
    if is_root() {
        chown(path, Some(0), None).unwrap();
    }
    set_mode(path, was);
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// This test binary again, running only `child` with these variables and no others.
fn in_child(task: &str, dir: &Path, variables: &[(&str, &Path)]) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env_clear()
        .env("WARPSMITH_TEST_TASK", task)
        .env("WARPSMITH_CACHE", "off")
        .envs(variables.iter().copied())
        .current_dir(dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {said}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    said
}

/// Not a test by itself: what some tests run in a process of their own.
#[test]
fn child() {
    let Ok(task) = std::env::var("WARPSMITH_TEST_TASK") else { return };
    match task.as_str() {
        "doctor" => println!("\n{}", warpsmith::internal::engine::doctor()),
        "open" => match Toolchain::find().and_then(|found| found.architectures()) {
            Ok(known) => println!("\nopened {known:?}"),
            Err(error) => println!("\nerror {error}"),
        },
        other => panic!("{other}"),
    }
}

#[test]
fn nothing_that_others_can_write_to_is_run() {
    let temp = tempdir();
    let top = temp.path().canonicalize().unwrap();
    // Each place with the variable that names it, and how many directories above the library are a fault's to be found in.
    let places: [(&str, &str, &str, usize); 5] = [
        ("WARPSMITH_CACHE_DIR", "cache", "cache/nvrtc/13.0.88/nvidia/cu13/lib", 6),
        ("VIRTUAL_ENV", "venv", "venv/lib/python3.11/site-packages/nvidia/cu13/lib", 7),
        ("LD_LIBRARY_PATH", "ld", "ld", 1),
        ("WARPSMITH_NVRTC", "named", "named", 1),
        ("HOME", "home", "home/.cache/warpsmith/nvrtc/13.0.88/nvidia/cu13/lib", 8),
    ];
    for (variable, value, below, levels) in places {
        let (value, lib) = (top.join(value), top.join(below));
        let library = telling(&lib);
        let variables = [(variable, value.as_path())];
        let search = || Search::nowhere().var(variable, &value);
        assert!(search().find().is_ok(), "{variable}");
        let parts = [library.clone(), lib.join("libnvrtc-builtins.so.13.0")];
        let parts = parts.into_iter().chain(lib.ancestors().take(levels).map(Path::to_owned));
        for part in parts {
            for fault in faults("nothing_that_others_can_write_to_is_run") {
                let on_the_way = part.is_dir() && part != lib;
                if fault.what == "sticky" && on_the_way && !part.starts_with(value.join("nvrtc")) {
                    // Good on the way, but not in what this crate makes for itself.
                    continue;
                }
                let was = mode(&part);
                (fault.make)(&part);
                let case = format!("{variable}: {} {}", part.display(), fault.what);
                let error = search().find().expect_err(&case);
                assert!(error.is_missing_library(), "{case}");
                let text = error.to_string();
                for words in [fault.says, &*part.to_string_lossy(), "remedy"] {
                    assert!(text.contains(words), "{case}: {words} in {text}");
                }
                if fault.what == "writable by all" {
                    let said = in_child("doctor", &top, &variables);
                    assert!(said.contains(fault.says) && said.contains("NO        compile"), "{case}: {said}");
                }
                undo(&part, was);
            }
        }
        assert!(!has_run(&lib), "{variable}: it was run");
        // What is looked for is there to be found.
        let said = in_child("open", &top, &variables);
        assert!(said.contains("nvrtc") && has_run(&lib), "{variable}: {said}");
    }
}

/// What is found may be changed until it is opened.
#[test]
fn what_others_can_write_to_by_the_time_it_is_opened_is_not_run() {
    let temp = tempdir();
    let lib = temp.path().join("lib");
    let library = telling(&lib);
    let found = Toolchain::at(&library).unwrap();
    for part in [&lib, &library, &lib.join("libnvrtc-builtins.so.13.0")] {
        let was = mode(part);
        set_mode(part, 0o777);
        let error = found.architectures().unwrap_err();
        assert!(error.is_missing_library() && error.to_string().contains("mode 777 lets others write"), "{error}");
        set_mode(part, was);
    }
    // Nor if it was cut short meanwhile.
    let bytes = fs::read(&library).unwrap();
    write(&library, &bytes[..bytes.len() / 2]);
    let error = found.architectures().unwrap_err();
    assert!(error.is_missing_library() && error.to_string().contains("cut short"), "{error}");
    assert!(!has_run(&lib) && !found.is_open());
}

#[test]
fn a_good_one_is_found_past_a_bad_one() {
    let temp = tempdir();
    let [bad, good] = ["bad", "good"].map(|name| temp.path().join(name));
    whole(&bad);
    set_mode(&bad, 0o777);
    let library = whole(&good);
    let search = Search::nowhere().var("LD_LIBRARY_PATH", std::env::join_paths([&bad, &good]).unwrap());
    assert_eq!(search.find().unwrap().library(), library);
    write(&bad.join("libnvrtc.so.13"), &elf(64)[..60]);
    set_mode(&bad, 0o700);
    assert_eq!(search.find().unwrap().library(), library);
}

#[test]
fn links_are_judged_by_where_they_lead() {
    let temp = tempdir();
    let at = |name: &str| temp.path().join(name);
    let good = whole(&at("good"));
    whole(&at("open"));
    set_mode(&at("open"), 0o777);
    make_dir(&at("links"));
    let find = |to: &str| {
        let _ = fs::remove_file(at("links/to"));
        symlink(to, at("links/to")).unwrap();
        Search::nowhere().var("LD_LIBRARY_PATH", at("links/to")).find()
    };
    assert_eq!(find("../good").unwrap().library(), good);
    assert!(find("../open").unwrap_err().to_string().contains("mode 777"));
    assert!(find("../none").is_err() && find("to").is_err());

    // A file that is a link, and builtins that are.
    make_dir(&at("files"));
    symlink(at("open/libnvrtc.so.13"), at("files/libnvrtc.so.13")).unwrap();
    assert!(Toolchain::at(at("files")).unwrap_err().to_string().contains("open: the directory's mode 777"));
    make_dir(&at("half"));
    fs::copy(&good, at("half/libnvrtc.so.13")).unwrap();
    symlink(at("open/libnvrtc-builtins.so.13.0"), at("half/libnvrtc-builtins.so.13.0")).unwrap();
    assert!(Toolchain::at(at("half")).unwrap_err().to_string().contains("open: the directory's mode 777"));
}

/// Every length is an error of a library that is not all there, whichever of the two it is; none kills the process.
#[test]
fn a_library_that_is_cut_short_is_never_opened() {
    let temp = tempdir();
    let lib = temp.path().join("lib");
    let bytes = fs::read(telling(&lib)).unwrap();
    let half = bytes.len() / 2;
    for length in [0, 1, 3, 4, 20, 63, 64, 65, 200, 1000, 4096, half, bytes.len() - 4096, bytes.len() - 1] {
        for file in ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"] {
            write(&lib.join(file), &bytes[..length]);
            let passed_over = Search::nowhere().var("LD_LIBRARY_PATH", &lib).find().unwrap_err();
            let opened = Toolchain::at(&lib).unwrap().architectures().unwrap_err();
            let why = if length == 0 { "no ELF file".to_owned() } else { format!("cut short: {length} of at least ") };
            for error in [passed_over, opened] {
                let text = error.to_string();
                assert!(
                    error.is_missing_library() && text.contains(&why) && text.contains("remedy"),
                    "{length}: {text}"
                );
                assert!(text.contains(file), "{length}: {text}");
            }
            write(&lib.join(file), &bytes);
        }
    }
    assert!(!has_run(&lib));
}

/// The real one, 30 MB of it.
#[test]
fn an_nvrtc_that_is_cut_short_is_never_opened() {
    let Some(toolchain) = common::toolchain("an_nvrtc_that_is_cut_short_is_never_opened") else { return };
    let temp = tempdir();
    for cut in [toolchain.library(), toolchain.builtins().unwrap()] {
        for file in [toolchain.library(), toolchain.builtins().unwrap()] {
            let to = temp.path().join(file.file_name().unwrap());
            fs::copy(file, &to).unwrap();
            if file == cut {
                let bytes = fs::metadata(&to).unwrap().len();
                fs::File::options().write(true).open(&to).unwrap().set_len(bytes.min(120_000_000) / 4).unwrap();
            }
        }
        let error = Toolchain::at(temp.path()).unwrap().architectures().unwrap_err();
        assert!(error.is_missing_library() && error.to_string().contains("cut short"), "{error}");
    }
}

#[test]
fn what_is_no_library_for_this_machine_is_said() {
    let temp = tempdir();
    let lib = temp.path().join("lib");
    whole(&lib);
    let changed = |at: usize, byte: u8| {
        let mut bytes = elf(200);
        bytes[at] = byte;
        bytes
    };
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("text", b"This is not the library that you are looking for.\n".repeat(9), "no ELF file"),
        ("script", b"#!/bin/sh\nexit 0\n".to_vec(), "no ELF file"),
        ("zeros", vec![0; 4096], "no ELF file"),
        ("32 bit", changed(4, 1), "no 64-bit ELF file"),
        ("other byte order", changed(5, 2), "another machine"),
        ("another machine", changed(18, 243), "another machine"),
        ("a program", changed(16, 2), "no shared library"),
        ("headers beyond the end", changed(40, 250), "cut short"),
        ("headers beyond 2^64", [&elf(64)[..32], &[255; 32], &[0; 64]].concat(), "damaged"),
    ];
    for (case, bytes, why) in cases {
        let bytes = match case {
            // Sections are told of only with their number.
            "headers beyond the end" => [&bytes[..58], &[64, 0, 2, 0], &bytes[62..]].concat(),
            _ => bytes,
        };
        for file in ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"] {
            let was = fs::read(lib.join(file)).unwrap();
            write(&lib.join(file), &bytes);
            let passed_over = Search::nowhere().var("LD_LIBRARY_PATH", &lib).find().unwrap_err();
            let opened = Toolchain::at(&lib).unwrap().architectures().unwrap_err();
            for error in [passed_over, opened] {
                let text = error.to_string();
                assert!(error.is_missing_library() && text.contains(why) && text.contains(file), "{case}: {text}");
            }
            write(&lib.join(file), &was);
        }
    }
}

/// What would not answer is not opened.
#[test]
fn pipes_and_directories_are_not_waited_for() {
    let temp = tempdir();
    let (lib, root) = (temp.path().join("lib"), temp.path().join("root"));
    let fifo = |path: &Path| {
        let _ = fs::remove_file(path);
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    make_dir(&root.join("etc/ld.so.conf.d"));
    fifo(&root.join("etc/ld.so.conf"));
    fifo(&root.join("etc/ld.so.conf.d/nvrtc.conf"));
    whole(&lib);
    fifo(&lib.join("libnvrtc-builtins.so.13.0"));
    let search = Search::nowhere().root(&root).var("LD_LIBRARY_PATH", &lib);
    let (done, answer) = mpsc::channel();
    let looking = std::thread::spawn({
        let (search, lib) = (search.clone(), lib.clone());
        move || {
            let opened = Toolchain::at(&lib).and_then(|found| found.architectures());
            done.send([search.find().unwrap_err(), opened.unwrap_err()]).unwrap();
        }
    });
    let errors = answer.recv_timeout(Duration::from_secs(20)).expect("it waits for a pipe");
    looking.join().unwrap();
    errors.iter().for_each(|error| assert!(error.to_string().contains("not a regular file"), "{error}"));

    fifo(&lib.join("libnvrtc.so.13"));
    assert!(search.find().unwrap_err().to_string().contains("was not found"));
    assert!(Toolchain::at(lib.join("libnvrtc.so.13")).is_err());
    fs::remove_file(lib.join("libnvrtc.so.13")).unwrap();
    make_dir(&lib.join("libnvrtc.so.13"));
    assert!(search.find().is_err());
}

/// The loader's own sentence is in the text.
#[test]
fn what_the_loader_says_is_said() {
    let temp = tempdir();
    let top = temp.path().canonicalize().unwrap();
    let lib = top.join("lib");
    make_dir(&lib);
    compile(&top, "libwarpsmith-needed.so", "int needed;", &["-Wl,-soname,libwarpsmith-needed.so"]);
    let below = format!("-L{}", top.display());
    let link = ["-Wl,--no-as-needed", &below, "-lwarpsmith-needed"];
    compile(&lib, "libnvrtc.so.13", "int x;", &[]);
    compile(&lib, "libnvrtc-builtins.so.13.0", "int x;", &link);
    let error = Toolchain::at(&lib).unwrap().architectures().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("libwarpsmith-needed.so") && text.contains("cannot open shared object file"), "{text}");

    // A library that opens and is not NVRTC.
    let other = top.join("other");
    telling(&other);
    let text = Toolchain::at(&other).unwrap().architectures().unwrap_err().to_string();
    assert!(text.contains("nvrtcGetErrorString") && text.contains("remedy"), "{text}");
}

/// NVRTC 12.9 asks for libpthread.so.0 in the working directory before the system's.
#[test]
fn nothing_is_run_from_the_working_directory() {
    let temp = tempdir();
    let top = temp.path().canonicalize().unwrap();
    let (lib, here) = (top.join("lib"), top.join("here"));
    make_dir(&lib);
    make_dir(&here);
    // A library of every system, and one that only the working directory has.
    for (needed, says) in
        [("libpthread.so.0", "has no nvrtcGetErrorString"), ("libstray.so.1", "libstray.so.1: cannot open")]
    {
        let marker = here.join(format!("{needed} was run"));
        let code = format!(
            "#include <fcntl.h>\n__attribute__((constructor)) static void run(void) {{ open(\"{}\", O_CREAT, 0600); }}\n",
            marker.display()
        );
        let planted = compile(&here, needed, &code, &[&format!("-Wl,-soname,{needed}")]);
        let planted = planted.to_string_lossy();
        for run_path in ["-Wl,-rpath,$ORIGIN:", "-Wl,-rpath,:$ORIGIN", "-Wl,-rpath,.", "-Wl,-rpath,lib:/usr/lib"] {
            let link = ["-Wl,--no-as-needed", &planted, run_path];
            compile(&lib, "libnvrtc.so.13", "int x;", &link);
            compile(&lib, "libnvrtc-builtins.so.13.0", "int x;", &[]);
            let said = in_child("open", &here, &[("WARPSMITH_NVRTC", &lib)]);
            assert!(said.contains(says), "{run_path}: {said}");
            assert!(!marker.exists(), "{run_path}: {needed} was taken from the working directory");
        }
        fs::remove_file(here.join(needed)).unwrap();
    }
}

/// Else NVRTC would be another one wherever the process is started.
#[test]
fn a_relative_variable_names_nothing() {
    let temp = tempdir();
    let top = temp.path().canonicalize().unwrap();
    let cases: [(&str, &str, &str); 6] = [
        ("VIRTUAL_ENV", "v", "v/lib/python3.11/site-packages/nvidia/cu13/lib"),
        ("CONDA_PREFIX", "v", "v/lib/python3.11/site-packages/nvidia/cu13/lib"),
        ("LD_LIBRARY_PATH", "v", "v"),
        ("HOME", "v", "v/.cache/warpsmith/nvrtc/13.0.88/nvidia/cu13/lib"),
        ("WARPSMITH_CACHE_DIR", "v", "v/nvrtc/13.0.88/nvidia/cu13/lib"),
        ("WARPSMITH_NVRTC", "v", "v"),
    ];
    for (variable, value, lib) in cases {
        let dir = top.join(variable);
        telling(&dir.join(lib));
        let said = in_child("open", &dir, &[(variable, Path::new(value))]);
        assert!(said.contains("error") && !has_run(&dir.join(lib)), "{variable}: {said}");
        let absolute = in_child("open", &dir, &[(variable, &dir.join(value))]);
        assert!(absolute.contains("nvrtcGetErrorString") && has_run(&dir.join(lib)), "{variable}: {absolute}");
        if variable == "WARPSMITH_NVRTC" {
            assert!(said.contains("WARPSMITH_NVRTC=v: no absolute path") && said.contains("remedy"), "{said}");
        }
    }
}

#[test]
fn a_group_that_is_not_ones_own_may_not_write() {
    let temp = tempdir();
    let lib = temp.path().join("lib");
    whole(&lib);
    if !is_root() {
        return common::skip("a_group_that_is_not_ones_own_may_not_write", "only root gives a directory to any group");
    }
    // No system tells who is in this one.
    chown(&lib, None, Some(4_000_000)).unwrap();
    assert!(Toolchain::at(&lib).is_ok());
    set_mode(&lib, 0o775);
    let text = Toolchain::at(&lib).unwrap_err().to_string();
    assert!(text.contains("mode 775 lets others write"), "{text}");
}

/// Where root has no number, `/` and `/home` are nobody's, as seen from there; one's own files below are found all the
/// same, and other people's are not.
#[test]
fn a_container_without_root() {
    let test = "a_container_without_root";
    let unshare = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-user=1000"]).args(arguments);
        command
    };
    if !is_root() || !unshare(&["true"]).status().is_ok_and(|status| status.success()) {
        return common::skip(test, "only root makes another user's files, and not every machine makes containers");
    }
    let temp = tempdir();
    let top = temp.path().canonicalize().unwrap();
    let (home, lib) = (top.join("home"), top.join("home/lib"));
    let library = telling(&lib);
    let builtins = lib.join("libnvrtc-builtins.so.13.0");
    [&home, &lib].into_iter().for_each(|dir| set_mode(dir, 0o755));
    let this = std::env::current_exe().unwrap();
    let open = || {
        let mut command = unshare(&[this.to_str().unwrap(), "--exact", "child", "--nocapture"]);
        command.env("WARPSMITH_TEST_TASK", "open").env("WARPSMITH_NVRTC", &lib);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    // 65534 is what users are shown as there that it does not know.
    for (given_away, says) in [
        (&library, "the file belongs to user 65534"),
        (&builtins, "the file belongs to user 65534"),
        (&lib, "the directory belongs to user 65534"),
    ] {
        chown(given_away, Some(4321), None).unwrap();
        let said = open();
        assert!(said.contains(says) && !has_run(&lib), "{}: {said}", given_away.display());
        chown(given_away, Some(0), None).unwrap();
    }
    chown(&home, Some(4321), None).unwrap();
    assert!(Toolchain::at(&lib).unwrap_err().to_string().contains("home: the directory belongs to user 4321"));
    let said = open();
    assert!(said.contains("nvrtcGetErrorString") && has_run(&lib), "{said}");
}
