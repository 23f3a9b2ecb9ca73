//! Which program a worker is.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use warpsmith::internal::Raise;
use warpsmith::internal::environment::{self, Environment};
use warpsmith::{Error, Result};

/// The program that the crate ships.
const SHIPPED: &str = "warpsmith-trial";

/// Whether this process was started to be a worker.
pub(super) fn is_asked() -> bool {
    Environment::of_process().asks_for_worker()
}

/// How a worker process is started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct WorkerCommand {
    program: PathBuf,
    args: Vec<OsString>,
}

impl WorkerCommand {
    /// The program that runs now, whose `main` begins with [`serve_if_asked`](super::serve_if_asked).
    ///
    /// # Errors
    /// Unsupported, if this process is a worker itself: its `main` does not begin so, and would start workers for ever.
    /// Internal, if the system does not tell which program this is.
    pub fn this_binary() -> Result<Self> {
        if is_asked() {
            return Err(Error::unsupported(
                "this process was started as a worker and would start another: call `tune::serve_if_asked()` first in main",
            ));
        }
        let program = env::current_exe()
            .map_err(|error| Error::internal("the system does not tell which program this is").with_source(error))?;
        Ok(Self::new(program))
    }

    /// The worker that the crate ships, `warpsmith-trial`: beside the program that runs now, in the folder above
    /// (where Cargo puts it beside examples and tests), or in `PATH`.
    ///
    /// # Errors
    /// Unsupported, if it is in none of these places; with the remedy.
    pub fn shipped() -> Result<Self> {
        let here = env::current_exe().ok();
        let beside = here.iter().flat_map(|program| program.ancestors().skip(1).take(2).map(Path::to_path_buf));
        let path = Environment::of_process().paths(environment::PATH);
        Self::shipped_in(beside.chain(path))
    }

    fn shipped_in(places: impl Iterator<Item = PathBuf>) -> Result<Self> {
        let found = places.map(|place| place.join(SHIPPED)).find(|program| program.is_file());
        found.map(Self::new).ok_or_else(|| {
            Error::unsupported(format!(
                "{SHIPPED} is neither beside this program nor in PATH; remedy: `cargo build --bin {SHIPPED}`, or let \
                 this program be its own worker (`WorkerCommand::this_binary`)"
            ))
        })
    }

    /// Another program that does what [`serve`](super::serve) does.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: Vec::new() }
    }

    /// With one more argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env(environment::TRIAL_WORKER, "1");
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_worker_is_found_or_there_is_a_remedy() {
        let temp = tempfile::tempdir().unwrap();
        let [empty, full] = ["empty", "full"].map(|name| temp.path().join(name));
        std::fs::create_dir(&empty).unwrap();
        std::fs::create_dir(&full).unwrap();
        let missing = WorkerCommand::shipped_in([empty.clone()].into_iter()).unwrap_err();
        assert!(missing.is_unsupported() && missing.to_string().contains("cargo build --bin warpsmith-trial"));
        std::fs::write(full.join(SHIPPED), "").unwrap();
        let found = WorkerCommand::shipped_in([empty, full.clone()].into_iter()).unwrap();
        assert_eq!(found, WorkerCommand::new(full.join(SHIPPED)));
    }

    #[test]
    fn a_worker_knows_that_it_is_one() {
        assert!(!is_asked());
        let command = WorkerCommand::this_binary().unwrap().arg("--quiet").command();
        assert!(command.get_envs().any(|(name, value)| name == environment::TRIAL_WORKER && value.is_some()));
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["--quiet"]);
    }
}
