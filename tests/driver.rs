//! A driver that is missing, too old or without a device is a sentence with the remedy, never a panic.
//!
//! What is loaded cannot be unloaded, so every case is a process of its own: this test binary, started again with a
//! library path on which a stand-in for libcuda lies that answers just what it is asked.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;
use std::process::Command;

use warpsmith::run::Device;

/// Says in the child which case it is.
const CHILD: &str = "WARPSMITH_DRIVER_CHILD";

const STAND_IN: &str = "\
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = VERSION; return 0; }
int cuDeviceGetCount(int *count) { *count = 0; return 0; }
int cuGetErrorName(int error, const char **name) { *name = \"CUDA_ERROR\"; return 0; }
int cuGetErrorString(int error, const char **text) { *text = \"an error\"; return 0; }
";

/// What opening a device says in a process that finds this driver, or none.
fn open_with(version: Option<u32>) -> String {
    let folder = tempfile::tempdir().unwrap();
    if let Some(version) = version {
        stand_in(folder.path(), version);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, "1")
        .env("LD_LIBRARY_PATH", folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn stand_in(folder: &Path, version: u32) {
    let source = folder.join("stand_in.c");
    std::fs::write(&source, STAND_IN).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(compiler)
        .args(["-shared", "-fPIC", "-w"])
        .arg(format!("-DVERSION={version}"))
        .arg("-o")
        .args([&folder.join("libcuda.so"), &source])
        .status()
        .unwrap();
    assert!(status.success());
}

/// The child's part; in the parent there is nothing to do.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_some() {
        match Device::open(0) {
            Ok(device) => println!("opened {device}"),
            Err(error) => println!("missing={} driver={} {error}", error.is_missing_library(), error.is_driver()),
        }
    }
}

#[test]
fn no_driver_is_a_missing_library() {
    let found = open_with(None);
    if found.contains("opened") {
        eprintln!("SKIPPED: this machine has a driver");
        return;
    }
    assert!(found.contains("missing=true"), "{found}");
    assert!(found.contains("libcuda.so.1") && found.contains("install the NVIDIA driver"), "{found}");
}

#[test]
fn an_old_driver_is_named_with_the_oldest_that_works() {
    let found = open_with(Some(12_020));
    assert!(found.contains("missing=true"), "{found}");
    assert!(found.contains("12.2") && found.contains("12.8"), "{found}");
}

#[test]
fn no_device_is_said() {
    let found = open_with(Some(13_000));
    assert!(found.contains("driver=true") && found.contains("finds no device"), "{found}");
}
