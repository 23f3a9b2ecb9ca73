//! A driver that is missing, too old or without a device is a sentence with the remedy, never a panic.
//!
//! What is loaded cannot be unloaded, so every case is a process of its own: this test binary, started again with a
//! library path on which the null driver lies, or nothing.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use warpsmith_testing as common;

use std::process::Command;

use warpsmith::run::Device;

/// Says in the child which case it is.
const CHILD: &str = "WARPSMITH_DRIVER_CHILD";

/// What opening a device says in a process that finds the null driver, compiled so, as this device; or no driver.
fn open_with(driver: Option<(&[&str], &str)>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    if let Some((defines, device)) = driver {
        common::null::compile(&folder.path().join("libcuda.so"), defines);
        command.env("NULL_DRIVER_DEVICE", device);
    }
    let output = command
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, "1")
        .env("LD_LIBRARY_PATH", folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The child's part; in the parent there is nothing to do.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_some() {
        match Device::open(0) {
            Ok(device) => println!("opened {device}; {} reclaimed", device.reclaim().unwrap()),
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
fn a_driver_that_lacks_a_function_is_told_the_oldest_that_has_it() {
    let found = open_with(Some((&["NULL_WITHOUT_TENSOR_MAPS"], "NVIDIA H200;11080;1")));
    assert!(found.contains("missing=true"), "{found}");
    assert!(found.contains("11.8") && found.contains("cuTensorMapEncodeTiled") && found.contains("12.0"), "{found}");
}

/// What a driver calls itself does not count.
#[test]
fn a_driver_that_has_every_function_is_taken() {
    let found = open_with(Some((&["NULL_WITHOUT_RECORD_CONTEXT"], "NVIDIA H200;12000;1")));
    assert!(found.contains("opened device 0: NVIDIA H200, 132 SMs, driver CUDA 12.0; 0 reclaimed"), "{found}");
}

#[test]
fn no_device_is_said() {
    let found = open_with(Some((&[], "NVIDIA H200;13000;0")));
    assert!(found.contains("driver=true") && found.contains("finds no device"), "{found}");
}
