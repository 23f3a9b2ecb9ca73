//! The worker that the crate ships, as a process: what it says without a GPU, and to who does not speak its language.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use warpsmith_testing as common;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use warpsmith::cache::KernelCache;
use warpsmith::internal::spec::baseline;
use warpsmith::run::Device;
use warpsmith::spec::{Arch, Problem, Spec};
use warpsmith_tune::{Footprint, Measure, Setup, Tuner, WorkerCommand, WorkerMeasurer};

const WORKER: &str = env!("CARGO_BIN_EXE_warpsmith-trial");

/// Where this process finds a device, the worker does; where not, both say the same.
#[test]
fn it_finds_the_device_that_this_process_finds() {
    let cache = KernelCache::builder().no_disk().build();
    let setup = Setup::new(&Problem::gemm().n(64).k(128), 8);
    let mut measurer = WorkerMeasurer::new(WorkerCommand::new(WORKER), &cache, setup);
    match (measurer.device(), Device::open(0)) {
        (Ok(theirs), Ok(ours)) => assert_eq!((theirs.name(), theirs.arch()), (ours.name(), ours.arch())),
        (Err(theirs), Err(ours)) => {
            assert_eq!(theirs.to_string(), format!("in the worker process: {ours}"));
            assert_eq!(theirs.is_missing_library(), ours.is_missing_library());
        }
        (theirs, ours) => panic!("the worker: {theirs:?}, this process: {ours:?}"),
    }
    assert_eq!(measurer.starts(), 1);
}

#[test]
fn rows_that_do_not_fit_are_refused_before_the_device_is_opened() {
    let cache = KernelCache::builder().no_disk().build();
    let setup = Setup::new(&Problem::gemm().n(64).k(128).grouped(2), 8).rows([8]);
    let mut measurer = WorkerMeasurer::new(WorkerCommand::new(WORKER), &cache, setup);
    let error = measurer.device().unwrap_err();
    assert!(error.is_data() && error.to_string().contains("rows of 1 groups given"), "{error}");
}

/// Its answers to some input, and whether it ended well.
fn answers(input: &str) -> (String, String, bool) {
    let pipes = || Stdio::piped();
    let mut worker = Command::new(WORKER).stdin(pipes()).stdout(pipes()).stderr(pipes()).spawn().unwrap();
    worker.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let (mut said, mut words) = (String::new(), String::new());
    worker.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    worker.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    (said, words, worker.wait().unwrap().success())
}

#[test]
fn another_version_and_nonsense_are_answered() {
    assert_eq!(answers(""), (String::new(), String::new(), true));
    let (said, words, well) = answers("hello\n");
    assert!(said.is_empty() && words.contains("`hello` is no message") && !well, "{said} {words}");
    let setup = r#"{"problem":"gemm:f16*nvfp4>f16:n64:k128","rows":[8],"device":0,"launching":"plain","limit":{"secs":3,"nanos":0}}"#;
    let (said, words, well) = answers(&format!("{{\"open\":{{\"version\":99,\"setup\":{setup}}}}}\n"));
    assert!(said.contains("protocol version 99") && said.lines().count() == 1, "{said} {words}");
    assert!(words.is_empty() && well, "{words}");
}

/// The real worker on a driver that lacks a function: whatever kernel is asked about, it is not the kernel.
#[test]
fn a_driver_without_a_function_quarantines_nothing() {
    let test = "a_driver_without_a_function_quarantines_nothing";
    let Some(toolchain) = common::toolchain(test) else { return };
    let temp = tempfile::tempdir().unwrap();
    common::null::compile(&temp.path().join("libcuda.so"), &["NULL_WITHOUT_COPIES"]);
    let command = format!("LD_LIBRARY_PATH='{}' exec '{WORKER}'", temp.path().display());
    let command = || WorkerCommand::new("sh").arg("-c").arg(&command);

    let problem = Problem::gemm().n(64).k(128);
    let spec = |variant: &str| Spec::new(&problem, &variant.parse().unwrap(), &Arch::H200).unwrap();
    let candidates = ["mma.t32x64x64.s2.single.uniform.direct", "mma.t32x64x64.s3.single.uniform.direct"].map(spec);
    let cache = KernelCache::builder().toolchain(toolchain).disk(temp.path().join("cubins")).build();
    for _ in 0..2 {
        let mut measurer = WorkerMeasurer::new(command(), &cache, Setup::new(&problem, 8));
        let error = measurer.admit(&candidates[0]).unwrap_err();
        assert!(error.is_missing_library() && error.to_string().contains("cuMemcpyDtoDAsync"), "{error}");
        let build = |spec: &Spec| Ok(Footprint::of(spec, cache.cubin(spec)?.cubin()));
        let baseline = Spec::new(&problem, &baseline(&problem), &Arch::H200).unwrap();
        let tuned = Tuner::new(measurer, build).tune(&candidates[1], 8, [candidates[0], baseline]);
        let error = tuned.unwrap_err().to_string();
        assert!(error.contains("cuMemcpyDtoDAsync"), "{error}");
        assert!(!temp.path().join("cubins/quarantine").exists());
    }
}

/// Whoever holds its input, and whatever it waits for.
#[test]
fn a_worker_ends_with_the_process_that_started_it() {
    // The shell ends at once; this process keeps the worker's input open.
    let script = format!("'{WORKER}' <&0 & echo $!; read -r line <&0");
    let mut shell =
        Command::new("sh").arg("-c").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(shell.stdout.take().unwrap());
    let mut id = String::new();
    said.read_line(&mut id).unwrap();
    let is_worker = || {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", id.trim())).unwrap_or_default();
        name.starts_with("warpsmith-trial")
    };
    let start = Instant::now();
    while !is_worker() {
        assert!(start.elapsed() < Duration::from_secs(20), "it is not started");
        thread::sleep(Duration::from_millis(5));
    }
    // It has asked who its parent is.
    thread::sleep(Duration::from_millis(300));
    let input = shell.stdin.take().unwrap();
    shell.kill().unwrap();
    shell.wait().unwrap();
    let start = Instant::now();
    let lives =
        || std::fs::read_to_string(format!("/proc/{}/stat", id.trim())).is_ok_and(|stat| !stat.contains(") Z "));
    while lives() {
        assert!(start.elapsed() < Duration::from_secs(20), "it lives on");
        thread::sleep(Duration::from_millis(5));
    }
    drop(input);
}
