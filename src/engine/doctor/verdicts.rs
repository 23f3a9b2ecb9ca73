//! What will work, from what there is.

use std::result::Result as StdResult;

use super::{Capability, DeviceFound, Directory, DirectoryUse, NvrtcFound};
use crate::run::DriverVersion;

/// What will work with these.
pub(super) fn all(
    driver: &StdResult<DriverVersion, String>,
    devices: &[DeviceFound],
    nvrtc: &StdResult<NvrtcFound, String>,
    cache: &[Directory],
    packs: &[String],
) -> Vec<Capability> {
    let verdict =
        |what: &str, trouble: StdResult<(), String>| Capability { what: what.to_owned(), trouble: trouble.err() };
    let mut verdicts = vec![verdict("choose variants and render CUDA", Ok(())), verdict("compile", compiles(nvrtc))];
    verdicts.push(verdict("keep compiled kernels for the next process", keeps(cache)));
    if !packs.is_empty() {
        verdicts.push(verdict("serve kernels from packs", Ok(())));
    }
    verdicts.push(verdict("run kernels", runs(driver, devices)));
    for device in devices {
        let Some(target) = &device.target else { continue };
        let what = format!("run what is compiled here on device {}", device.ordinal);
        verdicts.push(verdict(&what, fits(driver, nvrtc, target)));
    }
    verdicts
}

fn compiles(nvrtc: &StdResult<NvrtcFound, String>) -> StdResult<(), String> {
    const ONLY: &str = "only kernels from caches and packs are served";
    let found = nvrtc.as_ref().map_err(|_| format!("there is no NVRTC: {ONLY}"))?;
    found.architectures.as_ref().map_err(|_| format!("NVRTC cannot be opened: {ONLY}"))?;
    match found.builtins {
        Some(_) => Ok(()),
        None => Err(format!("libnvrtc-builtins is not beside {}", found.library.display())),
    }
}

fn keeps(cache: &[Directory]) -> StdResult<(), String> {
    match cache.iter().find(|directory| directory.role == DirectoryUse::Root) {
        Some(Directory { trouble: None, .. }) => Ok(()),
        Some(Directory { path, trouble: Some(why), .. }) => Err(format!("{}: {why}", path.display())),
        None => {
            Err("there is no directory for it: set WARPSMITH_CACHE_DIR to one that only you can write to".to_owned())
        }
    }
}

fn runs(driver: &StdResult<DriverVersion, String>, devices: &[DeviceFound]) -> StdResult<(), String> {
    driver.as_ref().map_err(|_| "there is no driver that can be used")?;
    match devices.iter().any(|device| device.what.is_ok()) {
        true => Ok(()),
        false if devices.is_empty() => Err("the driver finds no device (CUDA_VISIBLE_DEVICES may hide it)".to_owned()),
        false => Err("no device can be used".to_owned()),
    }
}

/// Whether a device's driver takes what the compiler makes, and the compiler makes what the device runs.
fn fits(
    driver: &StdResult<DriverVersion, String>,
    nvrtc: &StdResult<NvrtcFound, String>,
    target: &str,
) -> StdResult<(), String> {
    let (Ok(driver), Ok(nvrtc)) = (driver, nvrtc) else { return Ok(()) };
    let number = target.trim_start_matches("sm_").trim_end_matches(char::is_alphabetic).parse::<u32>();
    if let (Ok(number), Ok(architectures)) = (number, &nvrtc.architectures)
        && !architectures.contains(&number)
    {
        return Err(format!("NVRTC {} does not compile for {target}: install a newer one", nvrtc.identity));
    }
    let major = nvrtc.version.as_deref().and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    match major {
        Some(major) if major > driver.major => Err(format!(
            "NVRTC is of CUDA {major}, the driver of CUDA {driver}: it may refuse such code; install an NVRTC of CUDA {}",
            driver.major
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_driver_and_device_must_fit() {
        let nvrtc = |version: &str, architectures: &[u32]| {
            Ok(NvrtcFound {
                library: "libnvrtc.so".into(),
                builtins: None,
                version: Some(version.to_owned()),
                identity: format!("nvrtc-{version}"),
                origin: "test".to_owned(),
                architectures: Ok(architectures.to_vec()),
            })
        };
        let driver = |major| Ok(DriverVersion { major, minor: 8 });
        assert_eq!(fits(&driver(12), &nvrtc("12.9.86", &[80, 90]), "sm_90a"), Ok(()));
        assert_eq!(fits(&driver(13), &nvrtc("12.9.86", &[80, 90]), "sm_90a"), Ok(()));
        assert!(fits(&driver(12), &nvrtc("13.0.88", &[90]), "sm_90a").unwrap_err().contains("of CUDA 12.8"));
        assert!(fits(&driver(12), &nvrtc("12.9.86", &[80]), "sm_90a").unwrap_err().contains("sm_90a"));
        assert!(compiles(&nvrtc("12.9.86", &[90])).unwrap_err().contains("builtins"));
        assert!(runs(&driver(12), &[]).unwrap_err().contains("CUDA_VISIBLE_DEVICES"));
    }

    #[test]
    fn without_a_directory_nothing_is_kept() {
        assert!(keeps(&[]).unwrap_err().contains("WARPSMITH_CACHE_DIR"));
        let root = |trouble: Option<&str>| Directory {
            path: "/c".into(),
            role: DirectoryUse::Root,
            trouble: trouble.map(str::to_owned),
        };
        assert_eq!(keeps(&[root(None)]), Ok(()));
        assert_eq!(keeps(&[root(Some("full"))]).unwrap_err(), "/c: full");
    }
}
