//! Finding NVRTC in made-up directory trees, installing it with made-up pips, and compiling with the real one.

// Helpers of tests may do what tests may.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use warpsmith_testing as common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use common::fallback::{SIZES, fake, make_dir, pip, python, runs, tempdir, whole};
use warpsmith::build::{Search, Toolchain};
use warpsmith::internal::build::{Header, Source};

/// Held by tests that run scripts they wrote: a fork in another test would inherit the file while it is still open
/// for writing, and running it would be refused ("text file busy").
static SCRIPTS: Mutex<()> = Mutex::new(());

#[test]
fn each_place_is_found_and_the_earlier_wins() {
    let temp = tempdir();
    let at = |path: &str| temp.path().join(path);
    let site = |prefix: &str| at(prefix).join("lib/python3.11/site-packages/nvidia/cu13/lib");
    python(&at("py/bin"), "exit 1");
    // From last to first: each one that appears must be preferred to all that are there already.
    let places: [(&str, PathBuf); 11] = [
        ("ld.so.conf", at("root/opt/nvrtc")),
        ("loader's directory", at(&format!("root/usr/lib/{}-linux-gnu", std::env::consts::ARCH))),
        ("CUDA toolkit", at("root/usr/local/cuda-12.9/lib64")),
        ("CUDA toolkit", at("root/usr/local/cuda-13.0/lib64")),
        ("LD_LIBRARY_PATH", at("ld")),
        ("system Python", at("root/usr/lib/python3/dist-packages/nvidia/cu13/lib")),
        ("~/.local", site("home/.local")),
        ("python3 on PATH", site("py")),
        ("conda", site("conda")),
        ("virtual environment", site("venv")),
        ("installed", at("cache/nvrtc/13.0.88/nvidia/cu13/lib")),
    ];
    fs::create_dir_all(at("root/etc/ld.so.conf.d")).unwrap();
    fs::write(at("root/etc/ld.so.conf.d/nvrtc.conf"), "# NVRTC\n/opt/nvrtc\n").unwrap();
    let search = Search::nowhere()
        .root(at("root"))
        .var("HOME", at("home"))
        .var("PATH", at("py/bin"))
        .var("LD_LIBRARY_PATH", at("ld"))
        .var("CONDA_PREFIX", at("conda"))
        .var("VIRTUAL_ENV", at("venv"))
        .var("WARPSMITH_CACHE_DIR", at("cache"));
    assert!(search.find().unwrap_err().is_missing_library());
    for (origin, dir) in places {
        let expected = whole(&dir);
        let found = search.find().unwrap();
        assert_eq!((found.origin(), found.library()), (origin, expected.as_path()));
    }
    let named = whole(&at("named"));
    let search = search.var("WARPSMITH_NVRTC", at("named"));
    assert_eq!(search.find().unwrap().library(), named);
    let explicit = whole(&at("explicit"));
    assert_eq!(search.explicit(explicit.clone()).find().unwrap().library(), explicit);
}

#[test]
fn a_wrong_path_is_an_error_not_another_compiler() {
    let temp = tempdir();
    whole(&temp.path().join("ld"));
    let search = Search::nowhere().var("LD_LIBRARY_PATH", temp.path().join("ld"));
    assert!(search.find().is_ok());
    fs::write(temp.path().join("libnvrtc.alt.so.13"), "twin").unwrap();
    fs::write(temp.path().join("other.so"), "other").unwrap();
    for wrong in ["nowhere", "libnvrtc.alt.so.13", "other.so", ""] {
        let wrong = temp.path().join(wrong);
        for search in [search.clone().var("WARPSMITH_NVRTC", &wrong), search.clone().explicit(&wrong)] {
            for error in [search.find().unwrap_err(), search.find_or_install().unwrap_err()] {
                assert!(error.is_missing_library());
                let text = error.to_string();
                assert!(text.contains(&*wrong.to_string_lossy()) && text.contains("remedy"), "{text}");
            }
        }
    }
}

#[test]
fn the_error_names_what_was_tried_and_the_remedy() {
    let error = Search::nowhere().var("LD_LIBRARY_PATH", "/no/such/dir").find().unwrap_err().to_string();
    for part in ["/no/such/dir (LD_LIBRARY_PATH)", "pip install nvidia-cuda-nvrtc", "WARPSMITH_NVRTC"] {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[test]
fn the_identity_comes_from_names_and_sizes() {
    let temp = tempdir();
    let identity = |path: &Path| Toolchain::at(path).unwrap().identity().to_owned();
    let of = |version: &str| format!("nvrtc-{version}+{}.{}", SIZES[0], SIZES[1]);

    // A wheel: the version is that of the dist-info of the same major.
    let site = temp.path().join("site");
    whole(&site.join("nvidia/cu13/lib"));
    fake(&site.join("nvidia/cuda_nvrtc/lib"), "libnvrtc.so.12", Some("libnvrtc-builtins.so.12.9"));
    for info in ["nvidia_cuda_nvrtc-13.0.88.dist-info", "nvidia_cuda_nvrtc_cu12-12.9.86.dist-info"] {
        fs::create_dir_all(site.join(info)).unwrap();
    }
    assert_eq!(identity(&site), of("13.0.88"));
    assert_eq!(identity(&site.join("nvidia/cuda_nvrtc/lib")), of("12.9.86"));

    // A toolkit: links, the last of which has the version; builtins of another release beside it are not taken.
    let toolkit = temp.path().join("toolkit/lib64");
    fake(&toolkit, "libnvrtc.so.13.0.88", Some("libnvrtc-builtins.so.13.0.88"));
    fs::write(toolkit.join("libnvrtc-builtins.so.13.5.37"), "others").unwrap();
    std::os::unix::fs::symlink("libnvrtc.so.13.0.88", toolkit.join("libnvrtc.so.13")).unwrap();
    std::os::unix::fs::symlink("libnvrtc.so.13", toolkit.join("libnvrtc.so")).unwrap();
    assert_eq!(identity(&toolkit), of("13.0.88"));
    assert_eq!(identity(&toolkit.join("libnvrtc.so")), of("13.0.88"));

    // Neither: as much as the names say, whatever lies in the folders above.
    for below in
        ["bare", "site/lib", "site/nvidia/lib", "site/nvidia/cu13", "site/other/cu13/lib", "site/nvidia/cu13/lib64"]
    {
        let dir = temp.path().join("stray").join(below);
        for above in dir.ancestors().take_while(|above| above.starts_with(temp.path().join("stray"))) {
            make_dir(&above.join("nvidia_cuda_nvrtc-13.0.88.dist-info"));
        }
        assert_eq!(identity(&whole(&dir)), of("13.0"), "{below}");
    }
}

#[test]
fn without_builtins_finding_works_and_compiling_says_what_is_missing() {
    let temp = tempdir();
    let broken = temp.path().join("broken");
    fake(&broken, "libnvrtc.so.13", None);
    let search = Search::nowhere().var("LD_LIBRARY_PATH", std::env::join_paths([&broken]).unwrap());
    let found = search.find().unwrap();
    let error = warpsmith::internal::build::compile(&found, &common::axpy(), "sm_90a").unwrap_err();
    assert!(error.is_missing_library() && error.to_string().contains("libnvrtc-builtins"), "{error}");
    assert!(!found.is_open());

    // A whole one further on is preferred.
    let good = whole(&temp.path().join("good"));
    let dirs = std::env::join_paths([broken, temp.path().join("good")]).unwrap();
    let found = Search::nowhere().var("LD_LIBRARY_PATH", dirs).find().unwrap();
    assert_eq!(found.library(), good);

    // Files that are no libraries at all are an error as well.
    let error = warpsmith::internal::build::compile(&found, &common::axpy(), "sm_90a").unwrap_err();
    assert!(error.is_missing_library() && error.to_string().contains("cannot be opened"), "{error}");
}

#[test]
fn installing_fails_with_the_reason_and_the_remedy() {
    let _alone = SCRIPTS.lock().unwrap_or_else(PoisonError::into_inner);
    let temp = tempdir();
    let bin = temp.path().join("bin");
    let cases = [
        ("exit 1", "no network?"),
        (
            "echo 'Failed to establish a new connection: [Errno -2] Name or service not known' >&2; exit 1",
            "no network?",
        ),
        ("echo \"$0: No module named pip\" >&2; exit 1", "has no pip"),
        ("echo 'ERROR: no matching distribution' >&2; exit 1", "no matching distribution"),
        ("exit 0", "put no NVRTC"),
    ];
    for (number, (script, reason)) in cases.into_iter().enumerate() {
        python(&bin, script);
        let cache = temp.path().join(number.to_string());
        let search = Search::nowhere().var("PATH", &bin).var("WARPSMITH_CACHE_DIR", cache);
        let error = search.find_or_install().unwrap_err();
        assert!(error.is_missing_library());
        let text = error.to_string();
        assert!(text.contains(reason) && text.contains("remedy"), "{script}: {text}");
    }
    let no_python = Search::nowhere().var("HOME", temp.path()).find_or_install().unwrap_err().to_string();
    assert!(no_python.contains("no python3 on PATH"), "{no_python}");
    let no_home = Search::nowhere().var("PATH", &bin).find_or_install().unwrap_err().to_string();
    assert!(no_home.contains("HOME"), "{no_home}");
    let file = temp.path().join("file");
    fs::write(&file, "").unwrap();
    let no_room = Search::nowhere().var("PATH", &bin).var("WARPSMITH_CACHE_DIR", file).find_or_install().unwrap_err();
    assert!(no_room.is_missing_library(), "{no_room}");
}

#[test]
fn racing_installs_agree_and_leave_no_litter() {
    let _alone = SCRIPTS.lock().unwrap_or_else(PoisonError::into_inner);
    let temp = tempdir();
    python(&temp.path().join("bin"), &format!("{}sleep 0.1; unpack", pip(temp.path())));
    let cache = temp.path().join("cache");
    let search = Search::nowhere().var("PATH", temp.path().join("bin")).var("WARPSMITH_CACHE_DIR", &cache);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| search.find_or_install().unwrap())).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap().identity(), format!("nvrtc-13.0.88+{}.{}", SIZES[0], SIZES[1]));
        }
    });
    let names = |dir: PathBuf| -> Vec<_> { dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect() };
    assert_eq!(names(cache.join("nvrtc")), ["13.0.88"]);
    assert_eq!(names(cache.join("nvrtc/13.0.88/nvidia/cu13/lib")).len(), 2, "no .alt. twin");
    assert_eq!(search.find().unwrap().origin(), "installed");
    assert_eq!(runs(temp.path()), 1, "one download for all");
}

#[test]
fn compiles_and_tells_what_it_made() {
    for toolchain in common::toolchains("compiles_and_tells_what_it_made") {
        let cubin =
            warpsmith::internal::build::compile(&toolchain, &common::axpy().rendered_from("p", "v"), "sm_90a").unwrap();
        assert!(cubin.image().starts_with(b"\x7fELF"));
        let from = cubin.provenance();
        assert_eq!((from.problem(), from.variant(), from.target()), ("p", "v", "sm_90a"));
        assert_eq!(from.toolchain(), toolchain.identity());
        assert!(cubin.resources_of("axpy").unwrap().registers() > 0);
        assert!(toolchain.is_open() && toolchain.architectures().unwrap().contains(&90));
        let again = warpsmith::internal::build::compile(&toolchain, &common::axpy(), "sm_90a").unwrap();
        assert_eq!(again.image(), cubin.image(), "{toolchain}: the same bytes each time");
    }
}

#[test]
fn an_error_shows_file_and_line() {
    for toolchain in common::toolchains("an_error_shows_file_and_line") {
        let source =
            Source::new("dual_gemm.silu.cu", "extern \"C\" __global__ void k() {\n    nonsense();\n}\n", &[], ["k"]);
        let error = warpsmith::internal::build::compile(&toolchain, &source, "sm_90a").unwrap_err();
        assert!(error.is_compile());
        assert!(error.compile_log().unwrap().contains("dual_gemm.silu.cu(2): error"), "{error}");
        assert!(error.to_string().contains("nonsense"), "{error}");
    }
}

#[test]
fn headers_are_given_in_memory() {
    static HEADERS: &[Header] = &[
        Header { name: "load/two.cuh", text: "#include \"three.cuh\"\n__device__ int two() { return three() - 1; }\n" },
        Header { name: "three.cuh", text: "#pragma once\n__device__ int three() { return 3; }\n" },
    ];
    let text = "#include \"load/two.cuh\"\nextern \"C\" __global__ void k(int* x) { *x = two(); }\n";
    for toolchain in common::toolchains("headers_are_given_in_memory") {
        let source = Source::new("k.cu", text, HEADERS, ["k"]);
        assert!(warpsmith::internal::build::compile(&toolchain, &source, "sm_80").is_ok());
        let error = warpsmith::internal::build::compile(&toolchain, &Source::new("k.cu", text, &[], ["k"]), "sm_80")
            .unwrap_err();
        assert!(error.compile_log().unwrap().contains("load/two.cuh"), "{error}");
    }
}

#[test]
fn ptx_on_request() {
    for toolchain in common::toolchains("ptx_on_request") {
        for target in ["compute_90a", "sm_90a"] {
            let ptx = warpsmith::internal::build::ptx(&toolchain, &common::axpy(), target).unwrap();
            assert!(ptx.contains(".target sm_90a") && ptx.contains(".entry axpy") && !ptx.ends_with('\0'));
        }
        // As an image for a driver that knows a newer device than the compiler.
        let cubin = warpsmith::internal::build::compile(&toolchain, &common::axpy(), "compute_90a").unwrap();
        let text = std::str::from_utf8(cubin.image()).unwrap().strip_suffix('\0').unwrap();
        assert!(
            text.contains(".entry axpy")
                && cubin.resources().is_empty()
                && cubin.provenance().target() == "compute_90a"
        );
        let promise = Source::new("k.cu", common::axpy().text(), &[], ["axp"]);
        let error = warpsmith::internal::build::compile(&toolchain, &promise, "compute_90a").unwrap_err();
        assert!(error.to_string().contains("promises kernel axp"), "{error}");
    }
}

#[test]
fn what_cannot_be_compiled_is_said_in_words() {
    for toolchain in common::toolchains("what_cannot_be_compiled_is_said_in_words") {
        let error = warpsmith::internal::build::compile(&toolchain, &common::axpy(), "sm_35").unwrap_err();
        assert!(error.is_unsupported() && error.to_string().contains("90"), "{error}");
        let option = common::axpy().with_option("--no-such-option");
        let error = warpsmith::internal::build::compile(&toolchain, &option, "sm_80").unwrap_err();
        assert!(error.is_compile() && error.to_string().contains("no-such-option"), "{error}");
        let promise = Source::new("k.cu", common::axpy().text(), &[], ["other"]);
        let error = warpsmith::internal::build::compile(&toolchain, &promise, "sm_80").unwrap_err();
        assert!(error.to_string().contains("other"), "{error}");
        let nul = Source::new("k.cu", "int x;\0", &[], ["k"]);
        assert!(warpsmith::internal::build::compile(&toolchain, &nul, "sm_80").is_err());
    }
}
