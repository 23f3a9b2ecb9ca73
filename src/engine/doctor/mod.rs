//! What a machine has, what it lacks, and what will work on it.

mod nvrtc;
mod verdicts;

use std::fmt;
use std::path::{Path, PathBuf};
use std::result::Result as StdResult;

use serde::Serialize;

use crate::cache::KernelCache;
use crate::error::Result;
use crate::run::{Device, DriverVersion};

pub use nvrtc::NvrtcFound;

/// What a machine has, and what will work on it. `Display` gives it as a page, serde as data.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
#[must_use]
pub struct Diagnosis {
    /// The CUDA version of the driver, or why it cannot be used.
    pub driver: StdResult<String, String>,
    /// Its devices, in the order of their ordinals.
    pub devices: Vec<DeviceFound>,
    /// The compiler, or why there is none, with the remedy.
    pub nvrtc: StdResult<NvrtcFound, String>,
    /// The directories of the cubin cache, in the order in which they are looked up.
    pub cache: Vec<Directory>,
    /// Packs of kernels, in the order in which they are asked.
    pub packs: Vec<String>,
    /// What will work, and what not.
    pub verdicts: Vec<Capability>,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeviceFound {
    /// Its ordinal.
    pub ordinal: usize,
    /// What it is, or why it cannot be used.
    pub what: StdResult<String, String>,
    /// The target that kernels are compiled for, if it can be used.
    pub target: Option<String>,
}

/// A directory of cubins.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Directory {
    /// The directory.
    pub path: PathBuf,
    /// What it is used for.
    pub role: DirectoryUse,
    /// Why it is not, if it is not.
    pub trouble: Option<String>,
}

/// What a directory of cubins is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DirectoryUse {
    /// Read and written.
    Root,
    /// Only read.
    Layer,
    /// Nothing: it was named, and cannot be used.
    Unused,
}

/// Whether something will work.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Capability {
    /// What.
    pub what: String,
    /// Why not, if not.
    pub trouble: Option<String>,
}

/// Looks at the machine as [`KernelCache::new`] and [`Device::open`] will find it. Works with no GPU, no driver and no NVRTC, and
/// never fails. Makes the cache directory, opens the driver and NVRTC, and leaves the devices alone but for asking each what
/// it is (which makes its context).
pub fn doctor() -> Diagnosis {
    Diagnosis::of(&KernelCache::new())
}

impl Diagnosis {
    /// As [`doctor`], with a cache of one's own: its compiler, directories and packs.
    pub fn of(cache: &KernelCache) -> Self {
        let driver = DriverVersion::installed();
        let devices = if driver.is_ok() { devices() } else { Ok(Vec::new()) };
        let (driver, devices) = match (driver, devices) {
            (Ok(version), Ok(devices)) => (Ok(version), devices),
            (Err(error), _) | (_, Err(error)) => (Err(error.to_string()), Vec::new()),
        };
        let nvrtc = NvrtcFound::of(cache).map_err(|error| error.to_string());
        let directories = directories(cache);
        let packs: Vec<String> = cache.packs().iter().map(ToString::to_string).collect();
        let verdicts = verdicts::all(&driver, &devices, &nvrtc, &directories, &packs);
        Self { driver: driver.map(|version| version.to_string()), devices, nvrtc, cache: directories, packs, verdicts }
    }

    /// Whether everything will work.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.trouble.is_none())
    }
}

fn devices() -> Result<Vec<DeviceFound>> {
    let found = |ordinal| match Device::open(ordinal) {
        Ok(device) => {
            let (name, arch) = (device.name(), device.arch());
            let what = format!("{name}, {} SMs, compute capability {}", arch.sms(), arch.capability());
            DeviceFound { ordinal, what: Ok(what), target: Some(arch.target().to_owned()) }
        }
        Err(error) => DeviceFound { ordinal, what: Err(error.to_string()), target: None },
    };
    Ok((0..Device::count()?).map(found).collect())
}

fn directories(cache: &KernelCache) -> Vec<Directory> {
    let disk = cache.disk();
    let used = |path: &Path, role, trouble| Directory { path: path.to_owned(), role, trouble };
    let root =
        disk.root().map(|root| used(root, DirectoryUse::Root, writing(root).err().map(|error| error.to_string())));
    let layers = disk.layers().map(|layer| {
        used(layer, DirectoryUse::Layer, layer.read_dir().err().map(|error| format!("it cannot be read: {error}")))
    });
    let unused = disk.refused().iter().map(|(path, why)| used(path, DirectoryUse::Unused, Some(why.clone())));
    root.into_iter().chain(layers).chain(unused).collect()
}

/// Tries to write to a directory.
fn writing(dir: &Path) -> std::io::Result<()> {
    tempfile::Builder::new().prefix(".doctor-").tempfile_in(dir).map(drop)
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { driver, devices, nvrtc, cache, packs, verdicts } = self;
        match driver {
            Ok(version) => writeln!(f, "driver    CUDA {version}")?,
            Err(why) => writeln!(f, "driver    none: {why}")?,
        }
        for DeviceFound { ordinal, what, .. } in devices {
            match what {
                Ok(what) => writeln!(f, "device    {ordinal}: {what}")?,
                Err(why) => writeln!(f, "device    {ordinal}: cannot be used: {why}")?,
            }
        }
        match nvrtc {
            Ok(found) => write!(f, "{found}")?,
            Err(why) => writeln!(f, "NVRTC     none: {why}")?,
        }
        if cache.is_empty() {
            writeln!(f, "cache     no directory")?;
        }
        for Directory { path, role, trouble } in cache {
            let role = match role {
                DirectoryUse::Root => "read and written",
                DirectoryUse::Layer => "read",
                DirectoryUse::Unused => "not used",
            };
            let trouble = trouble.iter().map(|why| format!("; {why}")).collect::<String>();
            writeln!(f, "cache     {} ({role}{trouble})", path.display())?;
        }
        packs.iter().try_for_each(|pack| writeln!(f, "pack      {pack}"))?;
        let lines = verdicts.iter().map(|Capability { what, trouble }| match trouble {
            None => format!("yes       {what}"),
            Some(why) => format!("NO        {what}: {why}"),
        });
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_nothing_is_described() {
        let nowhere = KernelCache::builder().disk("/proc/warpsmith").build();
        let diagnosis = Diagnosis::of(&nowhere);
        assert_eq!(diagnosis.cache.len(), 1);
        assert_eq!(
            (diagnosis.cache[0].role, &*diagnosis.cache[0].path),
            (DirectoryUse::Unused, Path::new("/proc/warpsmith"))
        );
        assert!(diagnosis.cache[0].trouble.is_some() && !diagnosis.is_well());
        let text = diagnosis.to_string();
        assert!(text.contains("/proc/warpsmith (not used; "), "{text}");
        assert!(
            text.contains("NO        keep compiled kernels") && text.contains("yes       choose variants"),
            "{text}"
        );
        match &diagnosis.driver {
            Ok(version) => assert!(text.contains(&format!("driver    CUDA {version}")), "{text}"),
            Err(_) => assert!(text.contains("driver    none: ") && text.contains("NO        run kernels"), "{text}"),
        }
        let json = serde_json::to_value(&diagnosis).unwrap();
        assert_eq!(json["cache"][0]["role"], "unused");
    }

    #[test]
    fn a_directory_that_can_be_used_leaves_nothing_behind() {
        let temp = tempfile::tempdir().unwrap();
        let cache = KernelCache::builder().disk(temp.path().join("cubins")).build();
        let [directory] = directories(&cache).try_into().unwrap();
        assert_eq!((directory.role, directory.trouble), (DirectoryUse::Root, None));
        assert_eq!(temp.path().join("cubins").read_dir().unwrap().count(), 0);
        assert!(Diagnosis::of(&cache).to_string().contains("yes       keep compiled kernels"));
    }
}
