//! What of a checkpoint is done, so that it can be gone on with.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use warpsmith::internal::Raise;
use warpsmith::internal::lock::Lock;
use warpsmith::{Error, Result};

use super::QuantisedWeight;
use super::file::{self, Whole, unwritten};
use super::matrix::Squares;
use crate::folder::object;

/// The file that says so.
pub(super) const STATE: &str = ".quantize.json";

/// The file that a run holds a lock on.
const LOCK: &str = ".quantize.lock";

/// The arguments of a run, and what it has done.
#[derive(Debug)]
pub(super) struct State {
    folder: PathBuf,
    all: Map<String, Value>,
    /// As long as this run has the folder. The system takes it back when the process dies.
    _lock: Lock,
}

impl State {
    /// Of a folder, which is made if it is not there, and is this run's until the state is dropped.
    ///
    /// # Errors
    /// Data, if the folder holds something else, another run has it, or it was begun with other arguments.
    pub(super) fn open(folder: &Path, arguments: &Map<String, Value>) -> Result<Self> {
        let shown = folder.display();
        fs::create_dir_all(folder).map_err(|error| unwritten(folder, error))?;
        // Before anything is written there. A run writes its state before all that is not its own: who sees that sees this.
        if holds_others(folder).map_err(|error| unwritten(folder, error))? && !folder.join(STATE).exists() {
            return Err(Error::data(format!("{shown} is not empty, and without {STATE}: name another folder")));
        }
        let lock = locked(folder)?;
        if let Some(mut all) = object(folder, STATE).map_err(|error| error.context(shown.to_string()))? {
            let Some(Value::Object(begun)) = all.get("arguments") else {
                return Err(Error::data(format!("{shown}: {STATE} names no arguments: name another folder")));
            };
            let differing = arguments.iter().find(|(name, value)| begun.get(*name) != Some(value));
            if let Some((name, asked)) = differing {
                let had = begun.get(name).unwrap_or(&Value::Null);
                let (had, asked) = match name.as_str() {
                    "source" => ("other files".to_owned(), "these".to_owned()),
                    _ => (had.to_string(), asked.to_string()),
                };
                return Err(Error::data(format!(
                    "{shown} was begun with `{name}` {had}, not {asked}: name another folder"
                )));
            }
            if !all.get("files").is_some_and(Value::is_object) {
                all.insert("files".to_owned(), json!({}));
            }
            return Ok(Self { folder: folder.to_owned(), all, _lock: lock });
        }
        let mut all = Map::new();
        all.insert("arguments".to_owned(), Value::Object(arguments.clone()));
        all.insert("files".to_owned(), json!({}));
        let state = Self { folder: folder.to_owned(), all, _lock: lock };
        state.save()?;
        Ok(state)
    }

    /// What is lost in the weights of a file, if that is there and whole.
    pub(super) fn done(&self, name: &str) -> Option<Vec<QuantisedWeight>> {
        let file = self.all.get("files")?.get(name)?;
        let whole = Whole { length: file.get("length")?.as_u64()?, digest: file.get("digest")?.as_str()?.to_owned() };
        let path = self.folder.join(name);
        // Its digest takes longer.
        if path.metadata().ok()?.len() != whole.length || Whole::of(&path).ok()? != whole {
            return None;
        }
        file.get("weights")?.as_array()?.iter().map(weight).collect()
    }

    /// A file is whole.
    pub(super) fn add(&mut self, name: &str, whole: &Whole, weights: &[QuantisedWeight]) -> Result<()> {
        let weights: Vec<_> = weights.iter().map(told).collect();
        let file = json!({"length": whole.length, "digest": whole.digest, "weights": weights});
        if let Some(Value::Object(files)) = self.all.get_mut("files") {
            files.insert(name.to_owned(), file);
        }
        self.save()
    }

    fn save(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.all)
            .map_err(|error| Error::internal(format!("{STATE}: {error}")).with_source(error))?;
        file::text(&self.folder, STATE, &text)
    }
}

/// Whether there is something that no run leaves before there is a [`STATE`].
fn holds_others(folder: &Path) -> io::Result<bool> {
    let own = [LOCK.to_owned(), file::part_name(STATE)];
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if !own.iter().any(|own| name == **own) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn locked(folder: &Path) -> Result<Lock> {
    let (path, shown) = (folder.join(LOCK), folder.display());
    let taken = Lock::try_take(&path).map_err(|error| {
        let remedy = "name a folder that files can be locked in";
        Error::data(format!("{} cannot be locked: {error}: {remedy}", path.display())).with_source(error)
    })?;
    taken.ok_or_else(|| {
        Error::data(format!("another run is writing {shown}: wait until it ends, or name another folder"))
    })
}

fn told(weight: &QuantisedWeight) -> Value {
    let Squares { values, error, plain } = weight.squares;
    // As texts, which are read as exactly the numbers that they were.
    let squares = [values, error, plain].map(|sum| format!("{sum:e}"));
    json!({"name": weight.name, "rows": weight.rows, "columns": weight.columns, "squares": squares})
}

fn weight(told: &Value) -> Option<QuantisedWeight> {
    let number = |name: &str| told.get(name)?.as_u64()?.try_into().ok();
    let square = |at: usize| told.get("squares")?.get(at)?.as_str()?.parse().ok();
    Some(QuantisedWeight {
        name: told.get("name")?.as_str()?.to_owned(),
        rows: number("rows")?,
        columns: number("columns")?,
        squares: Squares { values: square(0)?, error: square(1)?, plain: square(2)? },
    })
}
