//! Layers of checkpoints on a GPU, which `warpsmith layer` holds to the host.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::Path;
use std::process::Command;

use safetensors::tensor::SafeTensors;
use warpsmith::run::Device;
use warpsmith_testing as common;

/// What no layer computes, and the command says so.
const REFUSALS: [&str; 3] = ["no kernel weighs", "quantise it first", "must be a multiple of 64"];

#[test]
fn layers_of_checkpoints_are_right_on_a_gpu() {
    let test = "layers_of_checkpoints_are_right_on_a_gpu";
    match Device::count() {
        Ok(1..) => {}
        Ok(_) => return common::skip(test, "the CUDA driver finds no device"),
        Err(error) => return common::skip(test, &error.to_string()),
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

fn is_right(folder: &Path, module: &str, x: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
    let within = tempfile::tempdir()?;
    let [input, output] = ["x", "y"].map(|name| within.path().join(name));
    fs::write(&input, x)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    command.args(["layer", "--module", module]).arg("--checkpoint").arg(folder);
    let ended = command.arg("--in").arg(input).arg("--out").arg(&output).output()?;
    let said = format!("{}{}", String::from_utf8_lossy(&ended.stderr), String::from_utf8_lossy(&ended.stdout));
    let is_refused = ended.status.code() == Some(2) && REFUSALS.iter().any(|refusal| said.contains(refusal));
    match is_refused || (ended.status.success() && output.is_file()) {
        true => Ok(()),
        false => Err(format!("{}: {said}", ended.status).into()),
    }
}
