//! The environment variables that the library reads: nothing else reads any. docs/environment.md has the table.
//!
//! A value that is empty is as good as none. A path must be absolute, since a relative one means another file wherever
//! the process happens to be started.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// NVRTC: the library or its directory.
pub(crate) const NVRTC: &str = "WARPSMITH_NVRTC";
/// Where the user's files of this crate are.
const CACHE_DIR: &str = "WARPSMITH_CACHE_DIR";
/// Directories of cubins that are only read.
const CACHE_LAYERS: &str = "WARPSMITH_CACHE_LAYERS";
/// Whether cubins are kept on disk.
const CACHE: &str = "WARPSMITH_CACHE";
/// `1` in a process that is to be a worker, whatever program it is.
pub const TRIAL_WORKER: &str = "WARPSMITH_TRIAL_WORKER";
/// Whether a panic tells where it came from.
const RUST_BACKTRACE: &str = "RUST_BACKTRACE";
pub(crate) const VIRTUAL_ENV: &str = "VIRTUAL_ENV";
pub(crate) const CONDA_PREFIX: &str = "CONDA_PREFIX";
pub(crate) const HOME: &str = "HOME";
/// Where programs are.
pub const PATH: &str = "PATH";
pub(crate) const LD_LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";

const ALL: [&str; 12] = [
    NVRTC,
    CACHE_DIR,
    CACHE_LAYERS,
    CACHE,
    TRIAL_WORKER,
    RUST_BACKTRACE,
    VIRTUAL_ENV,
    CONDA_PREFIX,
    HOME,
    PATH,
    LD_LIBRARY_PATH,
    XDG_CACHE_HOME,
];

/// Variables and their values: those of the process, or made up.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    values: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// As this process has it now.
    pub fn of_process() -> Self {
        let values = ALL.into_iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
        Self { values: values.collect() }
    }

    #[cfg(any(feature = "compile", test))]
    pub(crate) fn set(&mut self, name: OsString, value: OsString) {
        self.values.insert(name, value);
    }

    /// Whether this process was started to be a worker.
    pub fn asks_for_worker(&self) -> bool {
        self.get(TRIAL_WORKER).is_some_and(|value| value == "1")
    }

    fn get(&self, name: &str) -> Option<&OsStr> {
        self.values.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// As the standard library takes it.
    pub fn asks_for_backtraces(&self) -> bool {
        self.get(RUST_BACKTRACE).is_some_and(|value| value != "0")
    }

    /// The path that a variable names, if it is set.
    ///
    /// # Errors
    /// The sentence that says that it is no absolute path.
    pub fn path(&self, name: &str) -> Result<Option<PathBuf>, String> {
        let Some(path) = self.get(name).map(PathBuf::from) else { return Ok(None) };
        if path.is_absolute() { Ok(Some(path)) } else { Err(relative(name, &path)) }
    }

    /// As [`Environment::path`], but what is no absolute path is a log line, and done without.
    pub fn path_if_absolute(&self, name: &str) -> Option<PathBuf> {
        self.path(name).unwrap_or_else(|why| {
            tracing::warn!("{why}: ignored");
            None
        })
    }

    /// The paths of a variable that is spelt as `PATH` is. What is no absolute path is a log line, and done without.
    pub fn paths(&self, name: &str) -> Vec<PathBuf> {
        let paths = std::env::split_paths(self.get(name).unwrap_or_default());
        let stay = |path: &PathBuf| {
            let empty = path.as_os_str().is_empty();
            if !empty && path.is_relative() {
                tracing::warn!("{}: ignored", relative(name, path));
            }
            path.is_absolute()
        };
        paths.filter(stay).collect()
    }

    /// Where the user's files of this crate are: `$WARPSMITH_CACHE_DIR`, else `$XDG_CACHE_HOME/warpsmith`, else
    /// `~/.cache/warpsmith`.
    ///
    /// # Errors
    /// Why there is no such place. A relative `WARPSMITH_CACHE_DIR` asks for a place of its own, so none of the others is
    /// taken instead; a relative `XDG_CACHE_HOME` is ignored, as its specification asks.
    pub fn user_dir(&self) -> Result<PathBuf, String> {
        if let Some(dir) = self.path(CACHE_DIR)? {
            return Ok(dir);
        }
        if let Some(dir) = self.path_if_absolute(XDG_CACHE_HOME) {
            return Ok(dir.join("warpsmith"));
        }
        let home = self.path(HOME)?;
        let home = home.ok_or_else(|| format!("none of {CACHE_DIR}, {XDG_CACHE_HOME} and {HOME} is set"))?;
        Ok(home.join(".cache/warpsmith"))
    }

    /// Directories of cubins below the user's own.
    pub fn cache_layers(&self) -> Vec<PathBuf> {
        self.paths(CACHE_LAYERS)
    }

    /// Whether cubins are kept on disk. A word that is neither yes nor no is a log line, and changes nothing.
    pub fn keeps_cubins(&self) -> bool {
        let Some(value) = self.get(CACHE) else { return true };
        let word = value.to_string_lossy().to_lowercase();
        match word.as_str() {
            "off" | "0" | "false" | "no" => false,
            "on" | "1" | "true" | "yes" => true,
            _ => {
                tracing::warn!("{CACHE}={}: neither off, 0, false, no nor on, 1, true, yes: ignored", value.display());
                true
            }
        }
    }
}

fn relative(name: &str, path: &std::path::Path) -> String {
    format!("{name}={}: no absolute path", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Environment {
        let values = variables.iter().map(|(name, value)| (name.into(), value.into()));
        Environment { values: values.collect() }
    }

    #[test]
    fn the_most_specific_variable_says_where_the_users_files_are() {
        let all = [("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("WARPSMITH_CACHE_DIR", "/w")];
        let dir = |variables: &[(&str, &str)]| of(variables).user_dir();
        assert_eq!(dir(&all), Ok("/w".into()));
        assert_eq!(dir(&all[..2]), Ok("/x/warpsmith".into()));
        assert_eq!(dir(&all[..1]), Ok("/h/.cache/warpsmith".into()));
        assert_eq!(dir(&[("HOME", "/h"), ("XDG_CACHE_HOME", "x"), ("WARPSMITH_CACHE_DIR", "")]), dir(&all[..1]));
        assert_eq!(dir(&[]), Err("none of WARPSMITH_CACHE_DIR, XDG_CACHE_HOME and HOME is set".to_owned()));
    }

    #[test]
    fn no_relative_path_is_taken() {
        let home = ("HOME", "/h");
        for value in ["w", "./w", "../w", "~/w"] {
            let why = of(&[home, ("WARPSMITH_CACHE_DIR", value)]).user_dir().unwrap_err();
            assert_eq!(why, format!("WARPSMITH_CACHE_DIR={value}: no absolute path"));
        }
        assert_eq!(of(&[("HOME", "h")]).user_dir(), Err("HOME=h: no absolute path".to_owned()));
        let both = of(&[("VIRTUAL_ENV", "v"), ("CONDA_PREFIX", "/c"), ("PATH", "/a::b:/c:.")]);
        assert_eq!(
            (both.path_if_absolute(VIRTUAL_ENV), both.path_if_absolute(CONDA_PREFIX)),
            (None, Some("/c".into()))
        );
        assert_eq!(both.paths(PATH), [PathBuf::from("/a"), "/c".into()]);
        assert_eq!(both.paths(LD_LIBRARY_PATH), Vec::<PathBuf>::new());
    }

    #[test]
    fn the_words_for_yes_and_no() {
        let keeps = |value| of(&[("WARPSMITH_CACHE", value)]).keeps_cubins();
        assert!(["off", "OFF", "Off", "0", "false", "False", "no", "NO"].iter().all(|word| !keeps(word)));
        assert!(["", "on", "1", "TRUE", "yes", "/a/directory", "of"].iter().all(|word| keeps(word)));
        assert!(of(&[]).keeps_cubins());
    }
}
