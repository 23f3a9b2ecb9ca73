//! Layers of checkpoints on a GPU, which `warpsmith layer` holds to the host. Without a GPU they
//! are counted as ignored.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use safetensors::tensor::SafeTensors;
use warpsmith::run::Device;

/// What no layer computes, and the command says so.
const REFUSALS: [&str; 3] = ["no kernel weighs", "quantise it first", "must be a multiple of 64"];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let why = match Device::count() {
        Ok(1..) => None,
        Ok(_) => Some("the CUDA driver finds no device".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = &why {
        eprintln!("SKIPPED: no layer is launched: {why}");
    }
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../warpsmith-checkpoint/tests/fixtures");
    let mut folders: Vec<PathBuf> = fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let mut trials = Vec::new();
    for folder in folders {
        let Ok(bytes) = fs::read(folder.join("io.safetensors")) else { continue };
        let all = SafeTensors::deserialize(&bytes).unwrap();
        for name in all.names() {
            let Some(module) = name.strip_suffix("/x").map(str::to_owned) else { continue };
            let x = safetensors::serialize([("x", all.tensor(name).unwrap())], None).unwrap();
            let folder = folder.clone();
            let title = format!("checkpoints: {}: {module}", folder.file_name().unwrap().display());
            let trial = Trial::test(title, move || is_right(&folder, &module, &x));
            trials.push(trial.with_ignored_flag(why.is_some()));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn is_right(folder: &Path, module: &str, x: &[u8]) -> Result<(), Failed> {
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
