//! Compiling: a source and a toolchain in, machine code out.

use std::sync::Arc;
use std::time::Instant;

use super::built::Built;
use super::cubin::{About, Cubin, OWN_CACHE_OFF, Provenance, code_options};
use super::image;
use super::measure;
use super::render::render;
use super::source::Source;
use super::target::Target;
use super::toolchain::{Compiled, Nvrtc, Toolchain, Version};
use crate::spec::Spec;
use crate::{Error, Result};

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

/// NVRTC caches by itself, and knows how not to, since 12.9.
fn has_own_cache(version: Version) -> bool {
    version.major() > 12 || (version.major() == 12 && version.minor() >= Some(9))
}

/// Compiles to machine code for `target`, such as `sm_90a`, or to PTX for one such as `compute_120`. Blocks for as long as
/// NVRTC takes (20 to 700 ms).
///
/// # Errors
/// Compile, with NVRTC's whole log, if it refuses the source; internal, if it fails for another reason; unsupported, if
/// it does not know the target; missing library, if it or its builtins cannot be opened; parse, if `target` is neither
/// `sm_NN` nor `compute_NN`.
pub fn compile(toolchain: &Toolchain, source: &Source, target: &str) -> Result<Cubin> {
    let parsed = Target::parse(target)?;
    let options = options(toolchain, source, target)?;
    let nvrtc = Nvrtc::open(toolchain)?;
    let start = Instant::now();
    let Compiled { mut image, log } = nvrtc.compile(source, &parsed, &options)?;
    let compile_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);

    let resources = if parsed.is_machine() {
        let resources = measure::of_image(&image, &log).map_err(|error| error.context(source.name().to_owned()))?;
        promised(source, |entry| resources.iter().any(|found| found.entry() == entry))?;
        resources
    } else {
        image.push(0);
        let text = image::ptx(&image).map_err(Error::internal)?;
        promised(source, |entry| has_entry(text, entry))?;
        Vec::new()
    };
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

impl Built {
    /// Renders and compiles `spec`. Blocks for as long as NVRTC takes (20 to 700 ms); [`KernelCache`](crate::cache::KernelCache) does it
    /// once for all.
    ///
    /// # Errors
    /// Those of [`render`] and [`compile`].
    pub fn compile(toolchain: &Toolchain, spec: &Spec) -> Result<Self> {
        Ok(Self::new(*spec, Arc::new(compile(toolchain, &render(spec)?, spec.arch().target())?)))
    }
}

/// Checks that every kernel that a source promises was compiled.
fn promised(source: &Source, is_there: impl Fn(&str) -> bool) -> Result<()> {
    match source.entries().iter().find(|entry| !is_there(entry)) {
        Some(entry) => {
            Err(Error::internal(format!("{} promises kernel {entry}, which was not compiled", source.name())))
        }
        None => Ok(()),
    }
}

/// Whether PTX has a kernel of this name.
fn has_entry(ptx: &str, name: &str) -> bool {
    let rest = |(at, word): (usize, &str)| ptx[at + word.len()..].split(['(', '\n']).next().map(str::trim);
    ptx.match_indices(".entry").filter_map(rest).any(|found| found == name)
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
