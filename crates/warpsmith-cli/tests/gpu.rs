//! Layers of checkpoints on a GPU, which `warpsmith layer` holds to the host.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::Path;
use std::process::Command;

use half::f16;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use warpsmith::run::Device;
use warpsmith_testing as common;

/// What no layer computes, and the command says so.
const REFUSAL: &str = "quantise it first";

/// Whether there is a GPU; else it says that this test is none.
fn has_gpu(test: &str) -> bool {
    match Device::count() {
        Ok(1..) => return true,
        Ok(_) => common::skip(test, "the CUDA driver finds no device"),
        Err(error) => common::skip(test, &error.to_string()),
    }
    false
}

/// q, k and v in MXFP4 become NVFP4 over different powers of two.
#[test]
fn fused_mxfp4_is_right_on_a_gpu() {
    if !has_gpu("fused_mxfp4_is_right_on_a_gpu") {
        return;
    }
    let within = tempfile::tempdir().unwrap();
    common::checkpoints::mxfp4_qkv(within.path(), [127, 120, 131]);
    let x: Vec<u8> = (0..3 * 64).flat_map(|at| f16::from_f32((at % 7) as f32 - 3.0).to_le_bytes()).collect();
    let x = TensorView::new(Dtype::F16, vec![3, 64], &x).unwrap();
    let x = safetensors::serialize([("x", x)], None).unwrap();
    is_right(within.path(), common::checkpoints::QKV, &x).unwrap();
}

#[test]
fn layers_of_checkpoints_are_right_on_a_gpu() {
    if !has_gpu("layers_of_checkpoints_are_right_on_a_gpu") {
        return;
    }
    let (mut layers, mut wrong) = (0, Vec::new());
    for folder in common::checkpoints::fixtures() {
        let bytes = fs::read(folder.join("io.safetensors")).unwrap();
        let all = SafeTensors::deserialize(&bytes).unwrap();
        for name in all.names() {
            let Some(module) = name.strip_suffix("/x") else { continue };
            let x = safetensors::serialize([("x", all.tensor(name).unwrap())], None).unwrap();
            layers += 1;
            wrong.extend(
                is_right(&folder, module, &x).err().map(|why| format!("{}: {module}: {why}", folder.display())),
            );
        }
    }
    assert!(layers >= 35 && wrong.is_empty(), "{} of {layers}: {}", wrong.len(), wrong.join("\n"));
}

/// The same checkpoint as by the CPU, and the same sums of errors.
#[test]
fn checkpoints_are_quantised_alike_on_a_gpu() {
    if !has_gpu("checkpoints_are_quantised_alike_on_a_gpu") {
        return;
    }
    let within = tempfile::tempdir().unwrap();
    let from = within.path().join("model");
    common::checkpoints::checkpoint(&from, 2, [48, 80]);
    let quantised = |name: &str, more: &[&str]| -> (serde_json::Value, Vec<_>) {
        let to = within.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
        let ended = command.args(["quantize", "--json"]).args(more).arg(&from).arg(&to).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let paths = fs::read_dir(to).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> =
            paths.map(|path| (path.file_name().unwrap().to_owned(), fs::read(path).unwrap())).collect();
        files.sort();
        (serde_json::from_slice(&ended.stdout).unwrap(), files)
    };
    let (cpu, expected) = quantised("cpu", &[]);
    let (gpu, found) = quantised("gpu", &["--device", "0"]);
    assert!(found == expected);
    assert_eq!(gpu["weights"], cpu["weights"]);
    assert!(cpu["device"].is_null() && gpu["device"].is_string() && gpu["seconds"].is_number(), "{gpu}");
}

fn is_right(folder: &Path, module: &str, x: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
    let within = tempfile::tempdir()?;
    let [input, output] = ["x", "y"].map(|name| within.path().join(name));
    fs::write(&input, x)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    command.args(["layer", "--module", module]).arg("--checkpoint").arg(folder);
    let ended = command.arg("--in").arg(input).arg("--out").arg(&output).output()?;
    let said = format!("{}{}", String::from_utf8_lossy(&ended.stderr), String::from_utf8_lossy(&ended.stdout));
    let is_refused = ended.status.code() == Some(2) && said.contains(REFUSAL);
    match is_refused || (ended.status.success() && output.is_file()) {
        true => Ok(()),
        false => Err(format!("{}: {said}", ended.status).into()),
    }
}
