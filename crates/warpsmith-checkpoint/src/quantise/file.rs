//! Files that are written as their tensors are made, and appear whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use memmap2::Mmap;
use serde_json::{Map, Value, json};
use warpsmith::internal::{self, Raise};
use warpsmith::{Error, Result};

use super::layout::Shape;

/// What a whole file is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) length: u64,
    pub(super) digest: String,
}

impl Whole {
    /// Of a file that nobody writes.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        if length == 0 {
            return Ok(Self { length, digest: internal::digest(&[]).to_string() });
        }
        // SAFETY: the file is one that this program has made in a folder of its own, and it is read at once.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self { length, digest: internal::digest(&map).to_string() })
    }
}

/// A file that is not whole yet, under another name.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    path: PathBuf,
    /// What it will be called.
    whole: PathBuf,
}

impl Part {
    pub(super) fn new(folder: &Path, name: &str) -> Result<Self> {
        let (whole, path) = (folder.join(name), folder.join(part_name(name)));
        let file = made_anew(&path).map_err(|error| unwritten(&whole, error))?;
        Ok(Self { file, path, whole })
    }

    fn put(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, at).map_err(|error| unwritten(&self.whole, error))
    }

    /// Everything is in it.
    pub(super) fn finish(self) -> Result<Whole> {
        let finish = || {
            let about = thread::scope(|scope| {
                let digest = scope.spawn(|| Whole::of(&self.path));
                self.file.sync_all()?;
                digest.join().unwrap_or_else(|_| Err(io::Error::other("its digest cannot be made")))
            })?;
            fs::rename(&self.path, &self.whole)?;
            Ok(about)
        };
        finish().map_err(|error| unwritten(&self.whole, error))
    }
}

/// What a file is called until it is whole.
pub(super) fn part_name(name: &str) -> String {
    format!(".quantize-{name}.part")
}

/// In place of what was there: a link would lead elsewhere.
fn made_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(path),
    }
}

/// A copy of a file.
pub(super) fn copy(from: &Path, to: &Path, name: &str) -> Result<Whole> {
    let part = Part::new(to, name)?;
    let source = from.join(name);
    let copied = File::open(&source).and_then(|mut source| io::copy(&mut source, &mut &part.file));
    copied
        .map_err(|error| Error::data(format!("{} cannot be copied: {error}", source.display())).with_source(error))?;
    part.finish()
}

/// A text. What is killed leaves nothing but what the next run writes over.
pub(super) fn text(folder: &Path, name: &str, text: &str) -> Result<()> {
    let part = Part::new(folder, name)?;
    part.put(0, text.as_bytes())?;
    part.finish().map(drop)
}

pub(super) fn unwritten(path: &Path, error: io::Error) -> Error {
    Error::data(format!("{} cannot be written: {error}", path.display())).with_source(error)
}

/// A safetensors file.
#[derive(Debug)]
pub(super) struct Tensors {
    part: Part,
    /// Where each tensor begins, and its bytes.
    places: BTreeMap<String, (u64, usize)>,
}

impl Tensors {
    /// With the header written, and nothing behind it: larger elements first, so that all are aligned, and each kind by its
    /// names.
    pub(super) fn new(folder: &Path, name: &str, notes: &BTreeMap<String, String>, tensors: &[Shape]) -> Result<Self> {
        let mut order: Vec<&Shape> = tensors.iter().collect();
        order.sort_by(|x, y| y.dtype.bitsize().cmp(&x.dtype.bitsize()).then_with(|| x.name.cmp(&y.name)));
        let mut header = Map::new();
        if !notes.is_empty() {
            header.insert("__metadata__".to_owned(), json!(notes));
        }
        let (mut places, mut end) = (BTreeMap::new(), 0);
        for tensor in order {
            let (from, bytes) = (end, tensor.bytes());
            end += bytes as u64;
            let about = json!({"dtype": tensor.dtype.to_string(), "shape": tensor.shape, "data_offsets": [from, end]});
            if header.insert(tensor.name.clone(), about).is_some() {
                return Err(Error::data(format!("{name}: there would be two tensors `{}`", tensor.name)));
            }
            places.insert(tensor.name.clone(), (from, bytes));
        }
        let mut header = Value::Object(header).to_string();
        while !header.len().is_multiple_of(8) {
            header.push(' ');
        }
        let part = Part::new(folder, name)?;
        part.put(0, &(header.len() as u64).to_le_bytes())?;
        part.put(8, header.as_bytes())?;
        let data = 8 + header.len() as u64;
        part.file.set_len(data + end).map_err(|error| unwritten(&part.whole, error))?;
        places.values_mut().for_each(|(from, _)| *from += data);
        Ok(Self { part, places })
    }

    /// A tensor's bytes.
    pub(super) fn put(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        match self.places.remove(name) {
            Some((from, length)) if length == bytes.len() => self.part.put(from, bytes),
            found => {
                let found = found.map(|(_, length)| length);
                Err(Error::internal(format!("tensor `{name}` has {} bytes, expected {found:?}", bytes.len())))
            }
        }
    }

    /// All tensors are in it.
    pub(super) fn finish(self) -> Result<Whole> {
        match self.places.keys().next() {
            Some(missing) => Err(Error::internal(format!("tensor `{missing}` is not written"))),
            None => self.part.finish(),
        }
    }
}
