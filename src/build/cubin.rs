//! Compiling: a source and a toolchain in, machine code with its resources and provenance out.

use std::fmt;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::nvrtc::{Compiled, Nvrtc};
use super::resources::{self, Resources};
use super::source::Source;
use super::target::Target;
use super::toolchain::{Toolchain, Version};
use crate::{Error, Result};

/// Where machine code came from: everything needed to make it again, and to say why two differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    name: String,
    problem: String,
    variant: String,
    target: String,
    toolchain: String,
    options: Vec<String>,
    source: String,
}

impl Provenance {
    /// The source's file name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The problem's spelling.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// The variant's spelling.
    #[must_use]
    pub fn variant(&self) -> &str {
        &self.variant
    }

    /// The compile target, e.g. `sm_90a`.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The identity of the toolchain.
    #[must_use]
    pub fn toolchain(&self) -> &str {
        &self.toolchain
    }

    /// All options that NVRTC was given.
    #[must_use]
    pub fn options(&self) -> &[String] {
        &self.options
    }

    /// Those of [`Provenance::options`] that can change the machine code.
    pub(crate) fn code_options(&self) -> impl Iterator<Item = &String> {
        self.options.iter().filter(|option| *option != OWN_CACHE_OFF)
    }

    /// The source's digest, in hexadecimal.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// What is known about machine code besides its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    provenance: Provenance,
    resources: Vec<Resources>,
    compile_us: u64,
    log: String,
}

/// Machine code for one architecture, with its resource use and provenance.
#[derive(Clone, PartialEq, Eq)]
pub struct Cubin {
    about: About,
    image: Vec<u8>,
}

impl Cubin {
    pub(crate) fn from_parts(about: About, image: Vec<u8>) -> Self {
        Self { about, image }
    }

    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    /// The ELF image that a driver loads.
    #[must_use]
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// Resource use of every kernel in the image.
    #[must_use]
    pub fn resources(&self) -> &[Resources] {
        &self.about.resources
    }

    /// Resource use of the kernel with this symbol.
    #[must_use]
    pub fn resources_of(&self, entry: &str) -> Option<&Resources> {
        self.about.resources.iter().find(|resources| resources.entry() == entry)
    }

    /// Where it came from.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.about.provenance
    }

    /// How long NVRTC took, in milliseconds, when it was made.
    #[must_use]
    pub fn compile_ms(&self) -> f64 {
        self.about.compile_us as f64 / 1e3
    }

    /// What the compiler said: warnings, and the assembler's report.
    #[must_use]
    pub fn log(&self) -> &str {
        &self.about.log
    }

    /// How much memory it takes, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.image.len() + self.about.log.len()
    }
}

impl fmt::Debug for Cubin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cubin").field("about", &self.about).field("image_bytes", &self.image.len()).finish()
    }
}

/// Turns off NVRTC's own cache: the only option that depends on the toolchain, and one that changes no code.
const OWN_CACHE_OFF: &str = "--no-cache";

/// All options that a compile of `source` for `target` gives NVRTC: a function of its arguments only.
///
/// # Errors
/// Parse, if `target` is neither `sm_NN` nor `compute_NN`.
pub fn options(toolchain: &Toolchain, source: &Source, target: &str) -> Result<Vec<String>> {
    let mut options = code_options(source, target)?;
    if toolchain.version().is_some_and(has_own_cache) {
        // NVRTC's own cache would make compile times lie and leave the assembler's report empty.
        options.push(OWN_CACHE_OFF.to_owned());
    }
    Ok(options)
}

/// Those of [`options`] that can change the machine code: the same whatever the toolchain, so that cache keys can list
/// them where there is none.
pub(crate) fn code_options(source: &Source, target: &str) -> Result<Vec<String>> {
    let target = Target::parse(target)?;
    let mut options = vec![format!("--gpu-architecture={target}"), "--std=c++17".to_owned()];
    if target.is_machine() {
        options.push("--ptxas-options=-v".to_owned());
    }
    options.extend(source.options().iter().filter(|option| *option != OWN_CACHE_OFF).cloned());
    Ok(options)
}

/// NVRTC caches by itself, and knows how not to, since 12.9.
fn has_own_cache(version: Version) -> bool {
    version.major() > 12 || (version.major() == 12 && version.minor() >= Some(9))
}

/// Compiles to machine code for `target`, such as `sm_90a`. Blocks for as long as NVRTC takes (20 to 700 ms).
///
/// # Errors
/// Compile, with NVRTC's whole log, if it refuses the source; internal, if it fails for another reason; unsupported, if
/// it does not know the target; missing library, if it or its builtins cannot be opened; parse, if `target` is not of
/// the form `sm_NN`.
pub fn compile(toolchain: &Toolchain, source: &Source, target: &str) -> Result<Cubin> {
    let parsed = Target::parse(target)?;
    if !parsed.is_machine() {
        return Err(Error::parse(format!("target {target}: machine code needs sm_NN; build::ptx gives PTX")));
    }
    let options = options(toolchain, source, target)?;
    let nvrtc = Nvrtc::open(toolchain)?;
    let start = Instant::now();
    let Compiled { image, log } = nvrtc.compile(source, &parsed, &options)?;
    let compile_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);

    let resources = resources::of_image(&image, &log).map_err(|error| error.context(source.name().to_owned()))?;
    if let Some(entry) = source.entries().iter().find(|entry| resources.iter().all(|found| found.entry() != *entry)) {
        let found: Vec<_> = resources.iter().map(Resources::entry).collect();
        return Err(Error::internal(format!("{} promises kernel {entry}, compiled are {found:?}", source.name())));
    }
    tracing::debug!(source = source.name(), target, compile_us, bytes = image.len(), "compiled");
    let provenance = Provenance {
        name: source.name().to_owned(),
        problem: source.problem().to_owned(),
        variant: source.variant().to_owned(),
        target: parsed.to_string(),
        toolchain: toolchain.identity().to_owned(),
        options,
        source: source.digest().to_string(),
    };
    Ok(Cubin { about: About { provenance, resources, compile_us, log }, image })
}

/// Compiles to PTX, for reading; `target` is `compute_90a` or, meaning the same, `sm_90a`. Never cached.
///
/// # Errors
/// As [`compile`].
pub fn ptx(toolchain: &Toolchain, source: &Source, target: &str) -> Result<String> {
    let target = Target::parse(target)?.to_ptx();
    let options = options(toolchain, source, &target.to_string())?;
    let compiled = Nvrtc::open(toolchain)?.compile(source, &target, &options)?;
    String::from_utf8(compiled.image).map_err(|error| Error::internal("NVRTC's PTX is not UTF-8").with_source(error))
}
