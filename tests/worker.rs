//! The worker that the crate ships, as a process: what it says without a GPU, and to who does not speak its language.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use warpsmith::cache::Forge;
use warpsmith::run::Device;
use warpsmith::spec::Problem;
use warpsmith::tune::{Setup, WorkerCommand, WorkerLaboratory};

const WORKER: &str = env!("CARGO_BIN_EXE_warpsmith-trial");

/// Where this process finds a device, the worker does; where not, both say the same.
#[test]
fn it_finds_the_device_that_this_process_finds() {
    let forge = Forge::builder().no_disk().build();
    let setup = Setup::new(&Problem::gemm().n(64).k(128), 8);
    let mut laboratory = WorkerLaboratory::new(WorkerCommand::new(WORKER), &forge, setup);
    match (laboratory.device(), Device::open(0)) {
        (Ok(theirs), Ok(ours)) => assert_eq!((theirs.name(), theirs.arch()), (ours.name(), ours.arch())),
        (Err(theirs), Err(ours)) => {
            assert_eq!(theirs.to_string(), format!("in the worker process: {ours}"));
            assert_eq!(theirs.is_missing_library(), ours.is_missing_library());
        }
        (theirs, ours) => panic!("the worker: {theirs:?}, this process: {ours:?}"),
    }
    assert_eq!(laboratory.starts(), 1);
}

#[test]
fn rows_that_do_not_fit_are_refused_before_the_device_is_opened() {
    let forge = Forge::builder().no_disk().build();
    let setup = Setup::new(&Problem::gemm().n(64).k(128).grouped(2), 8).rows([8]);
    let mut laboratory = WorkerLaboratory::new(WorkerCommand::new(WORKER), &forge, setup);
    let error = laboratory.device().unwrap_err();
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
