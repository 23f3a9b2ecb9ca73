//! One safetensors file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::Metadata;
use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

use super::Tensor;

/// Bytes before the header: its length.
const LENGTH: usize = 8;

/// A file in memory. Its header has been checked: all tensors lie within it, and have the bytes that their types and shapes ask
/// for.
#[derive(Debug)]
pub(super) struct File {
    name: String,
    map: Mmap,
    /// Of the tensors, in the order in which they lie.
    names: Vec<String>,
    header: usize,
    metadata: Metadata,
}

impl File {
    /// # Safety
    /// As long as it lives, nobody changes or shortens the file.
    pub(super) unsafe fn map(folder: &Path, name: &str) -> Result<Self> {
        let wrong = |why: String| Error::data(format!("{name}: {why}"));
        let path = folder.join(name);
        // Opening a pipe would wait for a writer.
        match path.metadata() {
            Ok(found) if found.is_file() => {}
            Ok(_) => return Err(wrong("not a file".to_owned())),
            Err(error) => return Err(wrong(format!("cannot be opened: {error}"))),
        }
        // SAFETY: the caller's promise.
        let map = fs::File::open(path).and_then(|file| unsafe { Mmap::map(&file) });
        let map = map.map_err(|error| wrong(format!("cannot be mapped: {error}")))?;
        let read = SafeTensors::read_metadata(&map);
        let (header, metadata) = read.map_err(|error| wrong(format!("not a whole safetensors file: {error}")))?;
        let names = metadata.offset_keys();
        Ok(Self { name: name.to_owned(), map, names, header: LENGTH + header, metadata })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What it says beside its tensors.
    pub(super) fn notes(&self) -> BTreeMap<String, String> {
        self.metadata.metadata().iter().flatten().map(|(name, text)| (name.clone(), text.clone())).collect()
    }

    pub(super) fn has(&self, tensor: &str) -> bool {
        self.metadata.info(tensor).is_some()
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// In the order in which they lie.
    pub(super) fn tensors(&self) -> Vec<Tensor<'_>> {
        self.names.iter().filter_map(|name| self.tensor(name)).collect()
    }

    pub(super) fn tensor<'a>(&'a self, name: &'a str) -> Option<Tensor<'a>> {
        let info = self.metadata.info(name)?;
        let (from, to) = info.data_offsets;
        let bytes = self.map.get(self.header + from..self.header + to)?;
        Some(Tensor { name, dtype: info.dtype, shape: &info.shape, bytes })
    }
}
