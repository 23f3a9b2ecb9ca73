//! One file with kernels for several architectures: made without a GPU, opened without NVRTC.
//!
//! ```text
//! warpsmith-pack 1\n
//! entries         one after another, each as it would lie on disk
//! sections        tuning table, manifest
//! index           JSON: of each entry and section what it is, where it is, and its BLAKE3 digest
//! trailer         where the index is, its digest, perhaps a signature over both (seal.rs)
//! ```
//!
//! The trailer vouches for the index and the index for everything else, so opening reads the two and a kernel is
//! verified when it is asked for.

mod builder;
mod bytes;
mod index;
mod seal;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

pub use builder::PackBuilder;
pub use index::PackedKernel;

use self::bytes::Bytes;
use self::index::{Extent, Index};
use self::seal::{Key as PublicKey, TRAILER_BYTES};
use super::entry;
use super::key::Recipe;
use crate::build::{Cubin, Provenance};
use crate::{Error, Result};

/// The first line, with the version of the format.
const MAGIC: &[u8] = b"warpsmith-pack 1\n";
/// What every version begins with.
const MAGIC_STEM: &[u8] = b"warpsmith-pack ";

/// Kernels from one file, which is read as they are asked for. Shared between threads by reference.
///
/// ```no_run
/// use warpsmith::cache::{KernelCache, Pack};
///
/// // static PACK: &[u8] = include_bytes!("kernels.pack");    and Pack::from_static(PACK), to have it in the binary
/// let cache = KernelCache::builder().pack(Pack::open("/opt/engine/kernels.pack")?).build();
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub struct Pack {
    place: String,
    bytes: Bytes,
    index: Index,
    by_recipe: HashMap<String, usize>,
    signed: bool,
}

impl Pack {
    /// The pack in this file. A signature, if it has one, is not looked at: the file is trusted as a library is that one
    /// links to.
    ///
    /// # Errors
    /// Data, if it cannot be read, is cut short, damaged, or of another version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let (place, bytes) = file(path.as_ref())?;
        Self::read(place, bytes, None)
    }

    /// The pack in these bytes, which `include_bytes!` puts into a binary.
    ///
    /// # Errors
    /// As [`Pack::open`].
    pub fn from_static(bytes: &'static [u8]) -> Result<Self> {
        Self::read("pack in memory".to_owned(), Bytes::Static(bytes), None)
    }

    /// The pack in this file, if whoever has the secret half of the ed25519 key `signer` has signed it.
    ///
    /// # Errors
    /// As [`Pack::open`]; untrusted, if it is not signed, or not by that key.
    #[cfg(feature = "signed-packs")]
    pub fn open_signed(path: impl AsRef<Path>, signer: &[u8; 32]) -> Result<Self> {
        let (place, bytes) = file(path.as_ref())?;
        Self::read(place, bytes, Some(signer))
    }

    /// The pack in these bytes, if whoever has the secret half of the ed25519 key `signer` has signed it.
    ///
    /// # Errors
    /// As [`Pack::open_signed`].
    #[cfg(feature = "signed-packs")]
    pub fn from_static_signed(bytes: &'static [u8], signer: &[u8; 32]) -> Result<Self> {
        Self::read("pack in memory".to_owned(), Bytes::Static(bytes), Some(signer))
    }

    fn read(place: String, bytes: Bytes, signer: Option<&PublicKey>) -> Result<Self> {
        let (index, signed) = read_index(&bytes, signer).map_err(|error| error.context(place.clone()))?;
        let mut by_recipe = HashMap::new();
        for (at, kernel) in index.kernels.iter().enumerate() {
            // The first, as a builder keeps it.
            by_recipe.entry(kernel.recipe().to_owned()).or_insert(at);
        }
        tracing::debug!(place, kernels = index.kernels.len(), signed, "kernel pack opened");
        Ok(Self { place, bytes, index, by_recipe, signed })
    }

    /// The kernel of `recipe`, whoever compiled it.
    ///
    /// # Errors
    /// Data, if the pack has it and it is damaged.
    pub fn get(&self, recipe: &Recipe) -> Result<Option<Cubin>> {
        let Some(at) = self.by_recipe.get(&recipe.hash().to_string()) else { return Ok(None) };
        self.cubin(&self.index.kernels[*at]).map(Some)
    }

    /// What is in it, sorted by name and target.
    #[must_use]
    pub fn kernels(&self) -> &[PackedKernel] {
        &self.index.kernels
    }

    /// The tuning table that came with the kernels; its form is for the tuner to say.
    ///
    /// # Errors
    /// Data, if it is damaged.
    pub fn tuning(&self) -> Result<Option<String>> {
        self.section(self.index.tuning.as_ref())
    }

    /// The manifest that came with the kernels: what they were chosen for.
    ///
    /// # Errors
    /// Data, if it is damaged.
    pub fn manifest(&self) -> Result<Option<String>> {
        self.section(self.index.manifest.as_ref())
    }

    /// Reads everything: what is wrong with kernels and sections, one error each. Of two kernels with one recipe, the
    /// second is, since it is never served.
    #[must_use]
    pub fn damaged(&self) -> Vec<Error> {
        let kernels = self.index.kernels.iter().enumerate().filter_map(|(at, kernel)| {
            let first = self.by_recipe.get(kernel.recipe()).filter(|first| **first != at);
            first
                .map_or_else(|| self.cubin(kernel).err(), |first| Some(self.twice(kernel, &self.index.kernels[*first])))
        });
        kernels.chain(self.tuning().err()).chain(self.manifest().err()).collect()
    }

    /// Whether it has a signature; whether that is right, only the functions that take a key have looked.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.signed
    }

    /// Where it was opened from, in words.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Kernels of the name and target of `recipe`, and what they were made from; damaged ones are left out.
    pub(super) fn kin_of<'a>(&'a self, recipe: &'a Recipe) -> impl Iterator<Item = (String, Provenance)> + 'a {
        let same = |kernel: &&PackedKernel| kernel.name() == recipe.name() && kernel.target() == recipe.target();
        let kin = self.index.kernels.iter().filter(same).filter_map(|kernel| self.cubin(kernel).ok());
        kin.map(|cubin| (self.place.clone(), cubin.provenance().clone()))
    }

    fn cubin(&self, kernel: &PackedKernel) -> Result<Cubin> {
        let wrong = |why: String| Error::data(format!("{}: {}: {why}", self.place, kernel.name()));
        let bytes = kernel.extent.verified(&self.bytes).map_err(wrong)?;
        let cubin = entry::decode(&bytes).map_err(wrong)?.cubin;
        if kernel.is(&cubin) { Ok(cubin) } else { Err(wrong("not what the index says".to_owned())) }
    }

    fn twice(&self, kernel: &PackedKernel, first: &PackedKernel) -> Error {
        let (name, recipe) = (kernel.name(), kernel.recipe());
        Error::data(format!("{}: {name}: its recipe {recipe} is that of {} before it", self.place, first.name()))
    }

    fn section(&self, extent: Option<&Extent>) -> Result<Option<String>> {
        let read = |extent: &Extent| {
            let text = extent.verified(&self.bytes)?.into_owned();
            String::from_utf8(text).map_err(|_| "not text".to_owned())
        };
        extent.map(read).transpose().map_err(|why| Error::data(format!("{}: a section: {why}", self.place)))
    }
}

impl fmt::Display for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signed = if self.signed { "signed" } else { "not signed" };
        write!(f, "{}: {} kernels, {} B, {signed}", self.place, self.index.kernels.len(), self.bytes.len())
    }
}

impl fmt::Debug for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pack({self})")
    }
}

fn file(path: &Path) -> Result<(String, Bytes)> {
    let place = format!("pack {}", path.display());
    let bytes = Bytes::open(path)
        .map_err(|error| Error::data(format!("{place} cannot be opened: {error}")).with_source(error))?;
    Ok((place, bytes))
}

/// The index, proven whole and, if there must be a signer, signed; and whether there is a signature.
fn read_index(bytes: &Bytes, signer: Option<&PublicKey>) -> Result<(Index, bool)> {
    let begins = bytes.read(0, (MAGIC.len() as u64).min(bytes.len())).map_err(Error::data)?;
    if *begins != *MAGIC {
        return Err(Error::data(if begins.starts_with(MAGIC_STEM) {
            format!("another version of the format: it begins with {}, not {}", shown(&begins), shown(MAGIC))
        } else {
            format!("no pack: it begins with {}, not {}", shown(&begins), shown(MAGIC))
        }));
    }
    let trailer_at = bytes.len().checked_sub(TRAILER_BYTES).ok_or_else(|| Error::data("cut short: no trailer"))?;
    let trailer = seal::Trailer::parse(&bytes.read(trailer_at, TRAILER_BYTES).map_err(Error::data)?)?;
    if let Some(signer) = signer {
        trailer.verify(signer)?;
    }
    if trailer.index_at.checked_add(trailer.index_bytes) != Some(trailer_at) {
        return Err(Error::data("damaged: the index does not end where the trailer begins"));
    }
    let text = bytes.read(trailer.index_at, trailer.index_bytes).map_err(Error::data)?;
    trailer.check(&text)?;
    let index: Index =
        serde_json::from_slice(&text).map_err(|error| Error::data(format!("the index: {error}")).with_source(error))?;
    index.check(MAGIC.len() as u64..trailer.index_at).map_err(Error::data)?;
    Ok((index, trailer.signature.is_some()))
}

fn shown(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(bytes))
}
