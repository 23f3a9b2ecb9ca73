//! Settings of a [`KernelCache`] and of its [`Disk`].

use std::path::PathBuf;
use std::time::Duration;

use super::Compiler;
use super::disk::Disk;
use super::kernel_cache::KernelCache;
use super::pack::Pack;
use crate::Result;
use crate::build::{self, Source};
use crate::environment::Environment;
use crate::spec::Spec;

/// How a spec becomes CUDA.
pub(super) type Render = fn(&Spec) -> Result<Source>;

/// Settings of a [`KernelCache`].
#[derive(Debug)]
#[must_use]
pub struct KernelCacheBuilder {
    pub(super) render: Render,
    pub(super) compiler: Compiler,
    pub(super) max_entries: usize,
    pub(super) max_bytes: usize,
    pub(super) packs: Vec<Pack>,
    pub(super) disk: Option<DiskBuilder>,
}

impl Default for KernelCacheBuilder {
    fn default() -> Self {
        Self {
            render: build::render,
            compiler: Compiler::default(),
            max_entries: 1024,
            max_bytes: 256 << 20,
            packs: Vec::new(),
            disk: None,
        }
    }
}

impl KernelCacheBuilder {
    /// Renders with this function instead of the crate's own: for experiments with other kernels, and tests.
    ///
    /// # Safety
    /// What the cache gives is taken for machine code of the spec: [`Built::unproven`](build::Built::unproven) says what has
    /// to hold of it.
    pub unsafe fn render(mut self, render: Render) -> Self {
        self.render = render;
        self
    }

    /// Compiles with this toolchain.
    #[cfg(feature = "compile")]
    pub fn toolchain(mut self, toolchain: build::Toolchain) -> Self {
        self.compiler = Compiler::given(toolchain);
        self
    }

    /// Installs NVRTC if there is none; without this, its absence is an error.
    #[cfg(feature = "compile")]
    pub fn install_if_missing(mut self) -> Self {
        self.compiler = Compiler::found_or_installed();
        self
    }

    /// Keeps at most so many cubins, of so many bytes together, in memory (default: 1024 and 256 MiB).
    pub fn memory(mut self, max_entries: usize, max_bytes: usize) -> Self {
        (self.max_entries, self.max_bytes) = (max_entries, max_bytes);
        self
    }

    /// Takes kernels from this pack, before any compiler or directory is looked for; of several, the first that has
    /// one gives it.
    pub fn pack(mut self, pack: Pack) -> Self {
        self.packs.push(pack);
        self
    }

    /// Keeps cubins in this directory instead of the user's cache, and looks nowhere else.
    pub fn disk(self, root: impl Into<PathBuf>) -> Self {
        self.disk_with(Disk::builder().root(root))
    }

    /// Keeps cubins as these settings say.
    pub fn disk_with(mut self, settings: DiskBuilder) -> Self {
        self.disk = Some(settings);
        self
    }

    /// Keeps nothing on disk.
    pub fn no_disk(self) -> Self {
        self.disk_with(Disk::builder())
    }

    /// The cache. Nothing is searched for or opened yet but the cache directories.
    #[must_use]
    pub fn build(self) -> KernelCache {
        KernelCache::with(self)
    }
}

/// Settings of a [`Disk`], which is shared by processes: give them the same.
#[derive(Clone, Debug)]
#[must_use]
pub struct DiskBuilder {
    pub(super) root: Option<PathBuf>,
    pub(super) layers: Vec<PathBuf>,
    pub(super) max_bytes: u64,
    pub(super) grace: Duration,
    pub(super) wait_at_most: Duration,
    pub(super) copy_up: bool,
    /// Why there is no directory, where there should be one.
    pub(super) nowhere: Option<String>,
}

impl Default for DiskBuilder {
    fn default() -> Self {
        Self {
            root: None,
            layers: Vec::new(),
            max_bytes: DiskBuilder::MAX_BYTES,
            grace: DiskBuilder::GRACE,
            wait_at_most: DiskBuilder::WAIT_AT_MOST,
            copy_up: false,
            nowhere: None,
        }
    }
}

impl DiskBuilder {
    /// The default of [`DiskBuilder::max_bytes`]: 2 GiB, some 20 000 kernels.
    pub const MAX_BYTES: u64 = 2 << 30;
    /// The default of [`DiskBuilder::grace`].
    pub const GRACE: Duration = Duration::from_secs(600);
    /// The default of [`DiskBuilder::wait_at_most`]: ten times what the slowest compile on a busy machine takes.
    pub const WAIT_AT_MOST: Duration = Duration::from_secs(30);

    /// The user's own cache: `cubins` in `$WARPSMITH_CACHE_DIR`, else in `$XDG_CACHE_HOME/warpsmith`, else in
    /// `~/.cache/warpsmith`; below it `cubins` in each directory of `$WARPSMITH_CACHE_LAYERS`, which is spelt as `PATH`
    /// is. Nothing, if `WARPSMITH_CACHE` is `off`, `0`, `false` or `no`. A relative path is a log line, and done without.
    pub fn user() -> Self {
        Self::of(&Environment::of_process())
    }

    fn of(environment: &Environment) -> Self {
        if !environment.keeps_cubins() {
            return Self::default();
        }
        let cubins = |dir: PathBuf| dir.join("cubins");
        let (root, nowhere) = match environment.user_dir() {
            Ok(dir) => (Some(cubins(dir)), None),
            Err(why) => (None, Some(why)),
        };
        let layers = environment.cache_layers().into_iter().map(cubins).collect();
        Self { root, layers, nowhere, ..Self::default() }
    }

    /// The directory that entries are written to; made if need be.
    pub fn root(mut self, dir: impl Into<PathBuf>) -> Self {
        self.root = Some(dir.into());
        self
    }

    /// A directory that is looked up after those before it, and only read. It may belong to another user, but be
    /// writable by its owner only, who is trusted as the author of a library is that one links to.
    pub fn layer(mut self, dir: impl Into<PathBuf>) -> Self {
        self.layers.push(dir.into());
        self
    }

    /// Writes what is found in a layer to the root, too: for layers that are slow to reach (default: no).
    pub fn copy_up(mut self, copy: bool) -> Self {
        self.copy_up = copy;
        self
    }

    /// Bytes of the root's entries together, 0 for any number. Above it, the least recently used go until four fifths
    /// are left. A soft limit: every process that writes looks again after some 1/64 of it, and what was used within the
    /// [grace](DiskBuilder::grace) stays.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// An entry that was used in this time is not evicted (default: ten minutes). A use is written down once an hour at
    /// most, so what is read all the time may look an hour old.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long another process's compile is waited for before this one compiles for itself (default: 30 s). A process
    /// that dies is not waited for. A wait in vain halves the longest of those to come, so all of them together cost twice
    /// as long at most.
    pub fn wait_at_most(mut self, wait: Duration) -> Self {
        self.wait_at_most = wait;
        self
    }

    /// The cache. A directory that cannot be used is a log line, and done without.
    #[must_use]
    pub fn build(self) -> Disk {
        Disk::with(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_environment_says() {
        let of = |variables: &[(&str, &str)]| {
            let mut environment = Environment::default();
            variables.iter().for_each(|(name, value)| environment.set(name.into(), value.into()));
            DiskBuilder::of(&environment)
        };
        let settings = of(&[("HOME", "/h"), ("WARPSMITH_CACHE_LAYERS", "/a::/b")]);
        assert_eq!(settings.root, Some("/h/.cache/warpsmith/cubins".into()));
        assert_eq!(settings.layers, [PathBuf::from("/a/cubins"), "/b/cubins".into()]);
        assert!(settings.nowhere.is_none() && settings.max_bytes == 2 << 30 && !settings.copy_up);

        let settings = of(&[("WARPSMITH_CACHE_LAYERS", "/a")]);
        assert!(settings.root.is_none() && settings.nowhere.is_some() && settings.layers.len() == 1);
        let settings = of(&[("HOME", "/h"), ("WARPSMITH_CACHE_LAYERS", "/a"), ("WARPSMITH_CACHE", "off")]);
        assert!(settings.root.is_none() && settings.layers.is_empty() && settings.nowhere.is_none());
        assert!(of(&[("HOME", "/h")]).layers.is_empty());

        // Nothing is taken from the working directory, nor put there.
        let settings = of(&[("HOME", "/h"), ("WARPSMITH_CACHE_DIR", "w"), ("WARPSMITH_CACHE_LAYERS", "/a:b")]);
        assert_eq!((settings.root, settings.layers), (None, vec![PathBuf::from("/a/cubins")]));
        assert_eq!(settings.nowhere.as_deref(), Some("WARPSMITH_CACHE_DIR=w: no absolute path"));
        for word in ["OFF", "0", "no", "false"] {
            assert!(of(&[("HOME", "/h"), ("WARPSMITH_CACHE", word)]).root.is_none(), "{word}");
        }
    }
}
