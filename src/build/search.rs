//! Where NVRTC is looked for, and in which order.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::install;
use super::toolchain::{LIBRARY, Toolchain, is_library_name, version_in_name};
use super::user_dir::{NO_USER_DIR, user_cache_dir};
use crate::{Error, Result};

/// The remedy every "not found" ends with.
const REMEDY: &str = "remedy: `pip install nvidia-cuda-nvrtc`, or set WARPSMITH_NVRTC to libnvrtc.so.13 or its directory, \
                      or call Toolchain::find_or_install";

/// Directories under a Python site or a toolkit that may hold the library.
const BELOW_A_DIRECTORY: [&str; 3] = ["lib", "lib64", "targets/x86_64-linux/lib"];

/// A search for NVRTC. The first place that holds it wins:
///
/// 1. an explicit path ([`Search::explicit`]);
/// 2. `WARPSMITH_NVRTC`, a file or a directory;
/// 3. what [`Search::find_or_install`] installed in the user's cache directory;
/// 4. NVIDIA's Python wheels: `VIRTUAL_ENV`, `CONDA_PREFIX`, the sites of every `python3` on `PATH`, `~/.local`,
///    then `dist-packages` of the system;
/// 5. the system: `LD_LIBRARY_PATH`, `/usr/local/cuda*`, the loader's standard and configured directories.
///
/// A path given by 1 or 2 must hold NVRTC: an error is better than silently compiling with another compiler. Among
/// the other places one that lacks the builtins library is taken only if no place is whole.
///
/// A bare `dlopen("libnvrtc.so.13")` is not tried: the cache key must name the compiler without opening it, so only
/// files will do. The loader's own directories (`/etc/ld.so.conf` included) are read instead.
#[derive(Clone, Debug)]
pub struct Search {
    vars: BTreeMap<OsString, OsString>,
    root: PathBuf,
    explicit: Option<PathBuf>,
}

/// One place to look in.
struct Place {
    origin: &'static str,
    dir: PathBuf,
}

impl Search {
    /// The search as the process's environment asks.
    #[must_use]
    pub fn from_env() -> Self {
        Self { vars: std::env::vars_os().collect(), root: "/".into(), explicit: None }
    }

    /// A search with no variable set and no system directory.
    #[must_use]
    pub fn nowhere() -> Self {
        Self { vars: BTreeMap::new(), root: "/nonexistent".into(), explicit: None }
    }

    /// Looks at this file or directory, and nowhere else.
    #[must_use]
    pub fn explicit(mut self, path: impl Into<PathBuf>) -> Self {
        self.explicit = Some(path.into());
        self
    }

    /// Searches as if this environment variable were set.
    #[must_use]
    pub fn var(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.vars.insert(name.into(), value.into());
        self
    }

    /// Takes this directory for `/` when looking in system directories.
    #[must_use]
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// The first NVRTC. Looks at files only.
    ///
    /// # Errors
    /// Missing library; the text says where it was looked for and the remedy.
    pub fn find(&self) -> Result<Toolchain> {
        if let Some(path) = &self.explicit {
            return demanded(path, "explicit path");
        }
        if let Some(path) = self.get("WARPSMITH_NVRTC") {
            return demanded(Path::new(&path), "WARPSMITH_NVRTC");
        }
        let places = self.places();
        let mut broken = None;
        for place in &places {
            let Some(library) = library_in(&place.dir) else { continue };
            match Toolchain::identify(&library, place.origin) {
                Ok(found) if found.builtins().is_some() => return Ok(found),
                Ok(found) => broken = broken.or(Some(found)),
                Err(error) => tracing::debug!(%error, "passed over"),
            }
        }
        broken.ok_or_else(|| {
            let tried: Vec<_> =
                places.iter().map(|place| format!("{} ({})", place.dir.display(), place.origin)).collect();
            let tried = if tried.is_empty() { "no directory to look in".to_owned() } else { tried.join(", ") };
            Error::missing_library(format!("NVRTC ({LIBRARY}.12, .13, …) was not found; tried: {tried}; {REMEDY}"))
        })
    }

    /// The first NVRTC, or the one that pip installs into the user's cache directory.
    ///
    /// # Errors
    /// Missing library; a wrong `WARPSMITH_NVRTC` or explicit path stays an error.
    pub fn find_or_install(&self) -> Result<Toolchain> {
        let demanded = self.explicit.is_some() || self.get("WARPSMITH_NVRTC").is_some();
        match self.find() {
            Ok(found) if demanded || found.builtins().is_some() => return Ok(found),
            Err(error) if demanded => return Err(error),
            _ => {}
        }
        let home = self.installs().ok_or_else(|| {
            Error::missing_library(format!("NVRTC was not found and cannot be installed: {NO_USER_DIR}; {REMEDY}"))
        })?;
        let site = install::install(&home, &self.pythons())?;
        let lib = wheel_dirs(&site)
            .iter()
            .find_map(|dir| library_in(dir))
            .ok_or_else(|| Error::missing_library(format!("pip put no NVRTC into {}; {REMEDY}", site.display())))?;
        Toolchain::identify(&lib, "installed")
    }

    fn get(&self, name: &str) -> Option<OsString> {
        self.vars.get(OsStr::new(name)).filter(|value| !value.is_empty()).cloned()
    }

    fn list(&self, name: &str) -> Vec<PathBuf> {
        let value = self.get(name).unwrap_or_default();
        std::env::split_paths(&value).filter(|path| path.is_absolute()).collect()
    }

    fn installs(&self) -> Option<PathBuf> {
        user_cache_dir(|name| self.get(name)).map(|dir| dir.join("nvrtc"))
    }

    /// Every `python3` on `PATH`.
    fn pythons(&self) -> Vec<PathBuf> {
        self.list("PATH").into_iter().map(|dir| dir.join("python3")).filter(|path| path.is_file()).collect()
    }

    /// All implicit places, in order, each once.
    fn places(&self) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::new();
        let mut add = |origin: &'static str, dir: PathBuf| {
            if !places.iter().any(|place| place.dir == dir) {
                places.push(Place { origin, dir });
            }
        };
        let installed = self.installs().map(|home| install::site(&home));
        let sites = installed.into_iter().map(|site| ("installed", site)).chain(self.python_sites());
        for (origin, site) in sites {
            wheel_dirs(&site).into_iter().for_each(|dir| add(origin, dir));
        }
        for (origin, dir) in self.system_dirs() {
            add(origin, dir);
        }
        places
    }

    /// Directories that Python packages are installed into, without running Python.
    fn python_sites(&self) -> Vec<(&'static str, PathBuf)> {
        let mut sites = Vec::new();
        for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
            let origin = if name == "VIRTUAL_ENV" { "virtual environment" } else { "conda" };
            sites
                .extend(self.get(name).into_iter().flat_map(|p| sites_below(Path::new(&p))).map(|site| (origin, site)));
        }
        for python in self.pythons() {
            // The link first: a virtual environment's `bin/python3` points at the interpreter it was made from.
            for binary in [Some(python.clone()), python.canonicalize().ok()].into_iter().flatten() {
                let Some(prefix) = binary.parent().and_then(Path::parent) else { continue };
                sites.extend(sites_below(prefix).into_iter().map(|site| ("python3 on PATH", site)));
                // pyenv's `shims/python3` is a script; its interpreters are beside it.
                if binary.parent().is_some_and(|dir| dir.ends_with("shims")) {
                    let versions = sorted(&prefix.join("versions"), |_| true).into_iter().rev();
                    sites.extend(versions.flat_map(|dir| sites_below(&dir)).map(|site| ("python3 on PATH", site)));
                }
            }
        }
        if let Some(home) = self.get("HOME") {
            sites.extend(sites_below(&Path::new(&home).join(".local")).into_iter().map(|site| ("~/.local", site)));
        }
        for prefix in ["usr/local", "usr"] {
            sites.extend(sites_below(&self.root.join(prefix)).into_iter().map(|site| ("system Python", site)));
        }
        sites
    }

    fn system_dirs(&self) -> Vec<(&'static str, PathBuf)> {
        let mut dirs: Vec<_> = self.list("LD_LIBRARY_PATH").into_iter().map(|dir| ("LD_LIBRARY_PATH", dir)).collect();
        // `cuda`, then the versions, newest first.
        let mut toolkits = sorted(&self.root.join("usr/local"), |name| name.starts_with("cuda-"));
        toolkits.push(self.root.join("usr/local/cuda"));
        for toolkit in toolkits.iter().rev() {
            dirs.extend(BELOW_A_DIRECTORY[1..].iter().map(|below| ("CUDA toolkit", toolkit.join(below))));
        }
        let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
        for dir in [format!("usr/lib/{machine}"), format!("lib/{machine}"), "usr/lib64".into(), "usr/lib".into()] {
            dirs.push(("loader's directory", self.root.join(dir)));
        }
        for dir in configured(&self.root) {
            dirs.push(("ld.so.conf", dir));
        }
        dirs
    }
}

/// The toolchain at a path that somebody asked for.
fn demanded(path: &Path, origin: &str) -> Result<Toolchain> {
    let library = if path.is_dir() {
        let below = BELOW_A_DIRECTORY.iter().map(|below| path.join(below));
        let dirs = std::iter::once(path.to_owned()).chain(below).chain(wheel_dirs(path));
        dirs.into_iter().find_map(|dir| library_in(&dir))
    } else {
        let named = path.file_name().and_then(OsStr::to_str).is_some_and(is_library_name);
        (named && path.is_file()).then(|| path.to_owned())
    };
    let library = library.ok_or_else(|| {
        let path = path.display();
        Error::missing_library(format!(
            "{origin} {path} is no libnvrtc.so.* and holds none (`.alt.` twins do not count); {REMEDY}"
        ))
    })?;
    Toolchain::identify(&library, origin)
}

/// The newest NVRTC in this very directory.
fn library_in(dir: &Path) -> Option<PathBuf> {
    let libraries = dir.read_dir().ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        (is_library_name(path.file_name()?.to_str()?) && path.is_file()).then_some(path)
    });
    libraries.max_by_key(|path| version_in_name(path, LIBRARY))
}

/// Where NVIDIA's wheels put libraries below a site: `nvidia/cu13/lib` (13 and later), `nvidia/cuda_nvrtc/lib` (12).
fn wheel_dirs(site: &Path) -> Vec<PathBuf> {
    let is_major = |name: &str| name.strip_prefix("cu").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let mut majors = sorted(&site.join("nvidia"), is_major);
    majors.reverse();
    if majors.is_empty() {
        majors.push(site.join("nvidia/cu13")); // For the list of what was tried.
    }
    majors.push(site.join("nvidia/cuda_nvrtc"));
    majors.into_iter().map(|dir| dir.join("lib")).collect()
}

/// `PREFIX/lib/python3*/{site,dist}-packages` that exist, newest Python first.
fn sites_below(prefix: &Path) -> Vec<PathBuf> {
    let pythons = sorted(&prefix.join("lib"), |name| name.starts_with("python3")).into_iter().rev();
    let sites = pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|packages| python.join(packages)));
    sites.filter(|site| site.is_dir()).collect()
}

/// The directories that the loader's configuration adds.
fn configured(root: &Path) -> Vec<PathBuf> {
    let mut files = vec![root.join("etc/ld.so.conf")];
    files.extend(sorted(&root.join("etc/ld.so.conf.d"), |name| name.ends_with(".conf")));
    let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    let mut dirs = Vec::new();
    for text in texts {
        let lines = text.lines().map(str::trim).filter(|line| line.starts_with('/'));
        dirs.extend(lines.map(|line| root.join(&line[1..])));
    }
    dirs
}

/// The entries of a directory whose names fit, in the order of the numbers in their names (so that 3.9 < 3.11).
fn sorted(dir: &Path, fits: impl Fn(&str) -> bool) -> Vec<PathBuf> {
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
