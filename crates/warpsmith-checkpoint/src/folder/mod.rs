//! A folder of safetensors files. Their tensors lie in memory that is mapped: nothing is read before it is looked at.

mod file;
mod tensor;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

use file::File;
pub(crate) use tensor::{Tensor, decoded};

/// Names files of tensors.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// What ends their names.
const END: &str = ".safetensors";
/// Bytes of a text at most.
const TEXT_MAX: u64 = 1 << 28;

/// The tensors of a folder's files, by their names.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    files: Vec<File>,
    /// The file of each tensor.
    tensors: BTreeMap<String, usize>,
}

impl Folder {
    /// The files that the index names, or without an index all of the folder's.
    ///
    /// # Safety
    /// As long as the folder lives, nobody changes or shortens its files.
    pub(crate) unsafe fn map(path: &Path) -> Result<Self> {
        let names = if path.join(INDEX).exists() { indexed(path)? } else { found(path)? };
        let mut folder =
            Self { path: path.to_owned(), files: Vec::with_capacity(names.len()), tensors: BTreeMap::new() };
        for (at, (name, listed)) in names.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            let file = unsafe { File::map(path, &name)? };
            if let Some(missing) = listed.iter().flatten().find(|tensor| !file.has(tensor)) {
                return Err(Error::data(format!(
                    "{INDEX}: tensor `{missing}` is said to be in {name}, which lacks it"
                )));
            }
            for tensor in file.names() {
                if let Some(other) = folder.tensors.insert(tensor.to_owned(), at) {
                    let other = folder.files[other].name();
                    return Err(Error::data(format!("tensor `{tensor}` is in {other} and in {name}")));
                }
            }
            folder.files.push(file);
        }
        Ok(folder)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The tensor of this name.
    pub(crate) fn find(&self, name: &str) -> Option<Tensor<'_>> {
        let (name, file) = self.tensors.get_key_value(name)?;
        self.files[*file].tensor(name)
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// Data, if there is none.
    pub(crate) fn tensor(&self, name: &str) -> Result<Tensor<'_>> {
        self.find(name).ok_or_else(|| Error::data(format!("tensor `{name}` is missing")))
    }

    /// Whether there is a tensor of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Whether there is a tensor whose name begins so.
    pub(crate) fn has_any(&self, prefix: &str) -> bool {
        self.tensors.range(prefix.to_owned()..).next().is_some_and(|(name, _)| name.starts_with(prefix))
    }

    /// The names of all tensors, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Files, each with its tensors in the order in which they lie.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, Vec<Tensor<'_>>)> {
        self.files.iter().map(|file| (file.name(), file.tensors()))
    }

    /// What a file says beside its tensors.
    pub(crate) fn notes(&self, file: &str) -> BTreeMap<String, String> {
        self.files.iter().find(|found| found.name() == file).map(File::notes).unwrap_or_default()
    }
}

/// The JSON object in a folder's file; nothing, if there is no such file.
pub(crate) fn object(path: &Path, name: &str) -> Result<Option<serde_json::Map<String, Value>>> {
    let path = path.join(name);
    if !path.exists() {
        return Ok(None);
    }
    let read = || -> std::result::Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        if !path.metadata()?.is_file() {
            return Err("not a file".into());
        }
        let mut text = Vec::new();
        fs::File::open(&path)?.take(TEXT_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > TEXT_MAX {
            return Err(format!("more than {TEXT_MAX} bytes").into());
        }
        Ok(serde_json::from_slice(&text)?)
    };
    match read() {
        Ok(Value::Object(object)) => Ok(Some(object)),
        Ok(_) => Err(Error::data(format!("{name}: not a JSON object"))),
        Err(error) => Err(Error::data(format!("{name} cannot be read: {error}")).with_source(error)),
    }
}

/// Files, with the tensors that each must have.
type Listed = Vec<(String, Option<Vec<String>>)>;

/// What the index names.
fn indexed(path: &Path) -> Result<Listed> {
    let index = object(path, INDEX)?.unwrap_or_default();
    let Some(Value::Object(all)) = index.get("weight_map") else {
        return Err(Error::data(format!("{INDEX}: `weight_map` is no object")));
    };
    let mut files: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (tensor, file) in all {
        let Value::String(file) = file else {
            return Err(Error::data(format!("{INDEX}: the file of tensor `{tensor}` is no name")));
        };
        if file.contains(['/', '\\', '\0']) || [".", "..", ""].contains(&file.as_str()) {
            return Err(Error::data(format!(
                "{INDEX}: tensor `{tensor}` is said to be in {file:?}: no file of this folder"
            )));
        }
        // So that it is none that quantising writes besides.
        if !file.ends_with(END) {
            return Err(Error::data(format!("{INDEX}: tensor `{tensor}` is said to be in {file:?}: not a {END} file")));
        }
        files.entry(file).or_default().push(tensor.clone());
    }
    Ok(files.into_iter().map(|(file, tensors)| (file.to_owned(), Some(tensors))).collect())
}

/// What lies there.
fn found(path: &Path) -> Result<Listed> {
    let entries = fs::read_dir(path).map_err(|error| Error::data(format!("the folder cannot be read: {error}")))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Error::data(format!("the folder cannot be read: {error}")))?;
        match entry.file_name().into_string() {
            Ok(name) if name.ends_with(END) => names.push((name, None)),
            _ => {}
        }
    }
    if names.is_empty() {
        return Err(Error::data(format!("neither {INDEX} nor a {END} file is there")));
    }
    names.sort();
    Ok(names)
}

/// There is no such file.
pub(crate) fn missing(name: &str) -> Error {
    Error::data(format!("{name} is missing"))
}
