//! Installs NVIDIA's wheel of NVRTC into the user's cache directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::{Error, Result};

/// The release that is installed: the compiler of the CUDA 13.0 toolkit, so that both give the same machine code.
const VERSION: &str = "13.0.88";

/// Where the wheel is, or will be, below `home`.
pub(super) fn site(home: &Path) -> PathBuf {
    home.join(VERSION)
}

/// Installs the wheel into [`site`] and returns that directory.
///
/// The wheel is unpacked under another name and renamed, so no process ever sees half of it. Of two processes that do
/// this at once, the second to finish keeps what the first put there.
pub(super) fn install(home: &Path, pythons: &[PathBuf]) -> Result<PathBuf> {
    let site = site(home);
    let cannot = |why: String| {
        let by_hand = format!("pip install --target {} nvidia-cuda-nvrtc=={VERSION}", site.display());
        Error::missing_library(format!(
            "NVRTC was not found and could not be installed: {why}; remedy: run `{by_hand}` where there is a network, or \
             set WARPSMITH_NVRTC to an existing libnvrtc.so.13"
        ))
    };
    let Some(python) = pythons.first() else {
        return Err(cannot("there is no python3 on PATH to run pip with".into()));
    };
    std::fs::create_dir_all(home).map_err(|error| cannot(format!("{}: {error}", home.display())))?;
    let unpacked = tempfile::Builder::new()
        .prefix(".installing-")
        .tempdir_in(home)
        .map_err(|error| cannot(format!("{}: {error}", home.display())))?;

    tracing::info!(version = VERSION, into = %site.display(), "installing NVRTC with pip");
    let output = pip(python, unpacked.path()).map_err(|error| cannot(format!("{}: {error}", python.display())))?;
    if !output.status.success() {
        return Err(cannot(reason(python, &output)));
    }
    remove_twins(unpacked.path());

    match std::fs::rename(unpacked.path(), &site) {
        Ok(()) => {
            // Renamed away: there is nothing left to remove when `unpacked` goes.
            let _ = unpacked.keep();
            Ok(site)
        }
        // The other process won; a directory that is not empty cannot be renamed over.
        Err(_) if site.join("nvidia").is_dir() => Ok(site),
        Err(error) => Err(cannot(format!("{}: {error}", site.display()))),
    }
}

fn pip(python: &Path, target: &Path) -> std::io::Result<Output> {
    Command::new(python)
        .args(["-m", "pip", "install", "--no-deps", "--no-compile", "--disable-pip-version-check", "--no-input"])
        .arg("--target")
        .arg(target)
        .arg(format!("nvidia-cuda-nvrtc=={VERSION}"))
        .stdin(Stdio::null())
        .output()
}

/// The sentence that says why pip failed: what it printed last, or that there is no pip.
fn reason(python: &Path, output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("No module named pip") {
        return format!("{} has no pip (Debian and Ubuntu: install python3-pip)", python.display());
    }
    let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(3)..].join(" | ");
    format!("pip of {} ended with {} (no network?): {last}", python.display(), output.status)
}

/// The wheel carries each library twice; the `.alt.` twins are half of its 228 MB and never used.
fn remove_twins(site: &Path) {
    let files = site.join("nvidia/cu13/lib").read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    for twin in files.filter(|path| path.to_string_lossy().contains(".alt.so")) {
        if let Err(error) = std::fs::remove_file(&twin) {
            tracing::debug!(%error, twin = %twin.display(), "an unused file stays");
        }
    }
}
