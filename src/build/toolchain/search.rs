//! Where NVRTC is looked for, and in which order.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Toolchain;
use super::install;
use super::version::{LIBRARY, is_library_name};
use super::wheel::{self, library_in, sorted};
use crate::environment::{self, Environment};
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
/// NVRTC runs in this process, so nobody else may be able to write to it: the two files and every directory above them
/// belong to this user or to root, and others have no right to write. A group has none either, unless nobody else is in it;
/// a directory on the way may be sticky. So the tree of another user, be it an administrator's, is not taken: a copy of the
/// two files in a directory of one's own is. Both must be whole libraries for this machine. A place that fails is passed
/// over, and a log line says why; a path given by 1 or 2 that fails is an error, at the latest when it is opened.
///
/// A bare `dlopen("libnvrtc.so.13")` is not tried: the cache key must name the compiler without opening it, so only
/// files will do. The loader's own directories (`/etc/ld.so.conf` included) are read instead.
#[derive(Clone, Debug)]
pub struct Search {
    environment: Environment,
    root: PathBuf,
    explicit: Option<PathBuf>,
    install_limit: Duration,
}

/// One place to look in.
struct Place {
    origin: &'static str,
    dir: PathBuf,
}

impl Search {
    /// The default of [`Search::install_limit`].
    pub const INSTALL_LIMIT: Duration = Duration::from_secs(900);

    /// The search as the process's environment asks.
    #[must_use]
    pub fn from_env() -> Self {
        Self { environment: Environment::of_process(), root: "/".into(), ..Self::nowhere() }
    }

    /// A search with no variable set and no system directory.
    #[must_use]
    pub fn nowhere() -> Self {
        Self {
            environment: Environment::default(),
            root: "/nonexistent".into(),
            explicit: None,
            install_limit: Self::INSTALL_LIMIT,
        }
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
        self.environment.set(name.into(), value.into());
        self
    }

    /// Takes this directory for `/` when looking in system directories.
    #[must_use]
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// How long pip may take (default: 15 minutes, enough for 90 MB over a slow line). Another process that installs is
    /// waited for as long at most.
    #[must_use]
    pub fn install_limit(mut self, limit: Duration) -> Self {
        self.install_limit = limit;
        self
    }

    /// The first NVRTC. Looks at files only.
    ///
    /// # Errors
    /// Missing library; the text says where it was looked for, what was passed over and why, and the remedy.
    pub fn find(&self) -> Result<Toolchain> {
        if let Some((path, origin)) = self.named()? {
            return demanded(&path, origin);
        }
        let mut passed_over = Vec::new();
        let mut broken = None;
        let home = self.installs().inspect_err(|why| tracing::warn!("NVRTC: {why}: not looked for there")).ok();
        let installed = home.as_ref().and_then(|home| install::installed(home).transpose());
        let places = self.places();
        let found = places.iter().filter_map(|place| {
            let library = library_in(&place.dir)?;
            Some(Toolchain::identify(&library, place.origin))
        });
        for found in installed.into_iter().chain(found) {
            let found = match found {
                Ok(found) if found.builtins().is_none() => {
                    broken = broken.or(Some(found));
                    continue;
                }
                found => found.and_then(|found| found.openable().map(drop).map(|()| found)),
            };
            match found {
                Ok(found) => return Ok(found),
                Err(unfit) => {
                    tracing::warn!("NVRTC: passed over: {}", unfit.why);
                    passed_over.push(unfit.why);
                }
            }
        }
        broken.ok_or_else(|| {
            let installed = home.map(|home| Place { origin: "installed", dir: install::site(&home) });
            let tried =
                installed.iter().chain(&places).map(|place| format!("{} ({})", place.dir.display(), place.origin));
            let tried: Vec<_> = tried.collect();
            let tried = if tried.is_empty() { "no directory to look in".to_owned() } else { tried.join(", ") };
            let passed_over: String = passed_over.iter().map(|why| format!("; passed over: {why}")).collect();
            Error::missing_library(format!(
                "NVRTC ({LIBRARY}.12, .13, …) was not found; tried: {tried}{passed_over}; {REMEDY}"
            ))
        })
    }

    /// The first NVRTC, or the one that pip installs into the user's cache directory. One that is there and not whole is
    /// replaced. pip is the first `python3`'s on `PATH`, and asks the index that it is set to; what it may unpack is
    /// known by its SHA-256.
    ///
    /// # Errors
    /// Missing library; a wrong `WARPSMITH_NVRTC` or explicit path stays an error.
    pub fn find_or_install(&self) -> Result<Toolchain> {
        let demanded = self.named()?.is_some();
        match self.find() {
            Ok(found) if demanded || found.builtins().is_some() => return Ok(found),
            Err(error) if demanded => return Err(error),
            _ => {}
        }
        let home = self.installs().map_err(|why| {
            Error::missing_library(format!("NVRTC was not found and cannot be installed: {why}; {REMEDY}"))
        })?;
        install::install(&home, &self.pythons(), self.install_limit)
    }

    /// The path that somebody asked for, and how.
    fn named(&self) -> Result<Option<(PathBuf, &'static str)>> {
        if let Some(path) = &self.explicit {
            return Ok(Some((path.clone(), "explicit path")));
        }
        let path = self.environment.path(environment::NVRTC).map_err(|why| {
            Error::missing_library(format!("{why}; remedy: the full path of libnvrtc.so.13 or of its directory"))
        })?;
        Ok(path.map(|path| (path, environment::NVRTC)))
    }

    /// Where this crate installs.
    fn installs(&self) -> Result<PathBuf, String> {
        self.environment.user_dir().map(|dir| dir.join("nvrtc"))
    }

    /// Every `python3` on `PATH`.
    fn pythons(&self) -> Vec<PathBuf> {
        let dirs = self.environment.paths(environment::PATH);
        dirs.into_iter().map(|dir| dir.join("python3")).filter(|path| path.is_file()).collect()
    }

    /// All implicit places, in order, each once.
    fn places(&self) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::new();
        let mut add = |origin: &'static str, dir: PathBuf| {
            if !places.iter().any(|place| place.dir == dir) {
                places.push(Place { origin, dir });
            }
        };
        for (origin, site) in self.python_sites() {
            wheel::library_dirs(&site).into_iter().for_each(|dir| add(origin, dir));
        }
        for (origin, dir) in self.system_dirs() {
            add(origin, dir);
        }
        places
    }

    /// Directories that Python packages are installed into, without running Python.
    fn python_sites(&self) -> Vec<(&'static str, PathBuf)> {
        let mut sites = Vec::new();
        for (name, origin) in [(environment::VIRTUAL_ENV, "virtual environment"), (environment::CONDA_PREFIX, "conda")]
        {
            let prefix = self.environment.path_if_absolute(name);
            sites.extend(prefix.iter().flat_map(|prefix| sites_below(prefix)).map(|site| (origin, site)));
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
        if let Some(home) = self.environment.path_if_absolute(environment::HOME) {
            sites.extend(sites_below(&home.join(".local")).into_iter().map(|site| ("~/.local", site)));
        }
        for prefix in ["usr/local", "usr"] {
            sites.extend(sites_below(&self.root.join(prefix)).into_iter().map(|site| ("system Python", site)));
        }
        sites
    }

    fn system_dirs(&self) -> Vec<(&'static str, PathBuf)> {
        let paths = self.environment.paths(environment::LD_LIBRARY_PATH);
        let mut dirs: Vec<_> = paths.into_iter().map(|dir| ("LD_LIBRARY_PATH", dir)).collect();
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
        let dirs = std::iter::once(path.to_owned()).chain(below).chain(wheel::library_dirs(path));
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
    Toolchain::identify(&library, origin).map_err(|unfit| Error::from(unfit).context(origin))
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
    // Only of files: a pipe, say, might not answer.
    let texts = files.iter().filter(|file| file.is_file()).filter_map(|file| std::fs::read_to_string(file).ok());
    let mut dirs = Vec::new();
    for text in texts {
        let lines = text.lines().map(str::trim).filter(|line| line.starts_with('/'));
        dirs.extend(lines.map(|line| root.join(&line[1..])));
    }
    dirs
}
