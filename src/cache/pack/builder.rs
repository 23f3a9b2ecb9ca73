//! Makes a pack. Needs no GPU, and no compiler but to make the cubins that go into it.

use std::collections::BTreeMap;
use std::path::Path;

use super::bytes::MAX_PART;
use super::index::{Extent, Index, PackedKernel};
use super::seal::Trailer;
use super::{MAGIC, entry};
use crate::build::Cubin;
use crate::cache::key::Key;
use crate::{Error, Result, file};

/// Collects kernels, for any number of architectures, and writes them as one file.
///
/// ```no_run
/// use warpsmith::cache::{KernelCache, PackBuilder};
/// use warpsmith::pick;
/// use warpsmith::spec::{Activation, Arch, Problem};
///
/// let (cache, mut pack) = (KernelCache::new(), PackBuilder::new());
/// let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168);
/// for arch in [Arch::H200, Arch::B200] {
///     for m in [1, 64, 512] {
///         pack.add(cache.cubin(pick::choose(&problem, m, &arch)?.spec())?.cubin())?;
///     }
/// }
/// pack.write("kernels.pack")?;
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Default)]
#[must_use]
pub struct PackBuilder {
    /// By name, target and recipe.
    kernels: BTreeMap<(String, String, String), (PackedKernelParts, Vec<u8>)>,
    tuning: Option<String>,
    manifest: Option<String>,
    #[cfg(feature = "signed-packs")]
    secret: Option<[u8; 32]>,
}

/// What the index says of a kernel but for where it is.
struct PackedKernelParts {
    problem: String,
    variant: String,
    toolchain: String,
}

impl PackBuilder {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kernel; it says itself what it is of and for. Gives whether it was not there yet: one kernel may serve
    /// several specs, and of one that two compilers have made, the first stays.
    ///
    /// # Errors
    /// Data, if it has more than 64 MiB, or control characters in its names.
    pub fn add(&mut self, cubin: &Cubin) -> Result<bool> {
        let (key, from) = (Key::of(cubin), cubin.provenance());
        let place = (from.name().to_owned(), from.target().to_owned(), key.recipe().hash().to_string());
        if self.kernels.contains_key(&place) {
            return Ok(false);
        }
        let bytes =
            entry::encode(&key, cubin).map_err(|why| Error::data(format!("{}: {why}", from.name().escape_debug())))?;
        let parts = PackedKernelParts {
            problem: from.problem().to_owned(),
            variant: from.variant().to_owned(),
            toolchain: from.toolchain().to_owned(),
        };
        self.kernels.insert(place, (parts, bytes));
        Ok(true)
    }

    /// The tuning table, as the tuner writes it.
    pub fn tuning(mut self, text: impl Into<String>) -> Self {
        self.tuning = Some(text.into());
        self
    }

    /// The manifest: what the kernels were chosen for.
    pub fn manifest(mut self, text: impl Into<String>) -> Self {
        self.manifest = Some(text.into());
        self
    }

    /// Signs the pack with this ed25519 secret key, of which the other half is what [`Pack::open_signed`] takes.
    ///
    /// [`Pack::open_signed`]: super::Pack::open_signed
    #[cfg(feature = "signed-packs")]
    pub fn sign(mut self, secret: [u8; 32]) -> Self {
        self.secret = Some(secret);
        self
    }

    /// The other half of the key that it is signed with, if it is.
    #[cfg(feature = "signed-packs")]
    #[must_use]
    pub fn signer(&self) -> Option<[u8; 32]> {
        self.secret.as_ref().map(super::seal::public_half)
    }

    /// How many kernels there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// The pack: the same bytes for the same kernels, in whatever order they were added.
    ///
    /// # Errors
    /// Data, if the tuning table, the manifest or the index has more than 64 MiB.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut pack = MAGIC.to_vec();
        let mut append = |bytes: &[u8]| {
            let extent = Extent::of(bytes, pack.len() as u64);
            pack.extend_from_slice(bytes);
            extent
        };
        let kernels = self.kernels.iter().map(|((name, target, recipe), (parts, bytes))| PackedKernel {
            name: name.clone(),
            problem: parts.problem.clone(),
            variant: parts.variant.clone(),
            target: target.clone(),
            toolchain: parts.toolchain.clone(),
            recipe: recipe.clone(),
            extent: append(bytes),
        });
        let kernels = kernels.collect();
        let tuning = self.tuning.as_ref().map(|text| append(text.as_bytes()));
        let manifest = self.manifest.as_ref().map(|text| append(text.as_bytes()));
        let index = serde_json::to_vec(&Index { kernels, tuning, manifest })
            .map_err(|error| Error::internal(format!("the pack's index: {error}")).with_source(error))?;
        for (what, text) in [("tuning table", &self.tuning), ("manifest", &self.manifest)] {
            text.iter().try_for_each(|text| check_part(what, text.as_bytes()))?;
        }
        check_part("index", &index)?;
        let trailer = self.sealed(Trailer::of(&index, pack.len() as u64));
        pack.extend_from_slice(&index);
        pack.extend_from_slice(&trailer.to_bytes());
        Ok(pack)
    }

    /// Writes the pack, as [`file::write`] does: a file of this name is always whole.
    ///
    /// # Errors
    /// Data, if it cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        file::write(path, self.to_bytes()?)
    }

    #[cfg(feature = "signed-packs")]
    fn sealed(&self, mut trailer: Trailer) -> Trailer {
        self.secret.iter().for_each(|secret| trailer.sign(secret));
        trailer
    }

    #[cfg(not(feature = "signed-packs"))]
    fn sealed(&self, trailer: Trailer) -> Trailer {
        trailer
    }
}

/// Refuses what [`Pack`](super::Pack) would not read.
fn check_part(what: &str, bytes: &[u8]) -> Result<()> {
    if bytes.len() as u64 > MAX_PART {
        return Err(Error::data(format!("the pack's {what} has {} bytes, at most {MAX_PART}", bytes.len())));
    }
    Ok(())
}

impl std::fmt::Debug for PackBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the secret.
        f.debug_struct("PackBuilder").field("kernels", &self.kernels.keys()).finish_non_exhaustive()
    }
}
