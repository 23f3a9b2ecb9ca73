//! NVIDIA's Python wheels: where below a site they put NVRTC, and which release it is.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::version::{LIBRARY, Version, is_library_name, version_in_name};

/// Where the wheels put libraries below a site: `nvidia/cu13/lib` (13 and later), `nvidia/cuda_nvrtc/lib` (12).
pub(super) fn library_dirs(site: &Path) -> Vec<PathBuf> {
    let is_major = |name: &str| name.strip_prefix("cu").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let mut majors = sorted(&site.join("nvidia"), is_major);
    majors.reverse();
    if majors.is_empty() {
        majors.push(site.join("nvidia/cu13")); // For the list of what was tried.
    }
    majors.push(site.join("nvidia/cuda_nvrtc"));
    majors.into_iter().map(|dir| dir.join("lib")).collect()
}

/// The newest NVRTC in this very directory.
pub(super) fn library_in(dir: &Path) -> Option<PathBuf> {
    let libraries = dir.read_dir().ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        (is_library_name(path.file_name()?.to_str()?) && path.is_file()).then_some(path)
    });
    libraries.max_by_key(|path| version_in_name(path, LIBRARY))
}

/// The version of the wheel that put the library where it is: `SITE/nvidia/cu13/lib/libnvrtc.so.13` belongs to
/// `SITE/nvidia_cuda_nvrtc-13.0.88.dist-info`. A site may hold the wheels of two majors; `named` tells them apart.
pub(super) fn version_of(library: &Path, named: Option<Version>) -> Option<Version> {
    let lib = library.parent().filter(|dir| dir.ends_with("lib"))?;
    let site = lib.parent()?.parent().filter(|dir| dir.ends_with("nvidia"))?.parent()?;
    let versions = site.read_dir().ok()?.filter_map(|entry| {
        let name = entry.ok()?.file_name();
        let rest = name.to_str()?.strip_prefix("nvidia_cuda_nvrtc")?.strip_suffix(".dist-info")?;
        Version::parse(rest.rsplit_once('-')?.1)
    });
    versions.filter(|version| named.is_none_or(|named| named.agrees(version))).max()
}

/// The entries of a directory whose names fit, in the order of the numbers in their names (so that 3.9 < 3.11).
pub(super) fn sorted(dir: &Path, fits: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = dir.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> =
        entries.filter(|path| path.file_name().and_then(OsStr::to_str).is_some_and(&fits)).collect();
    found.sort_by_cached_key(|path| (numbers(path), path.clone()));
    found
}

fn numbers(path: &Path) -> Vec<u64> {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}
