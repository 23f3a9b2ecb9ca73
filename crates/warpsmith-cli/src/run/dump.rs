//! What `--dump` writes.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use warpsmith::cache::KernelCache;
use warpsmith::internal::file;
use warpsmith::spec::Spec;

use crate::shared::Result;
use crate::shared::compile::Made;

/// Writes source, PTX, cubin and log of every spec as `SYMBOL.cu`, `.ptx`, `.cubin`, `.log`.
pub fn dump(cache: &KernelCache, specs: &[Spec], made: &[Made], to: &Path) -> Result<()> {
    let write = |name: String, bytes: &[u8]| file::write(to.join(name), bytes);
    fs::create_dir_all(to).map_err(|error| format!("{}: {error}", to.display()))?;
    let mut seen = HashSet::new();
    for (spec, made) in specs.iter().zip(made).filter(|(spec, _)| seen.insert(**spec)) {
        let (symbol, source) = (spec.symbol(), warpsmith::internal::build::render(spec)?);
        write(format!("{symbol}.cu"), source.text().as_bytes())?;
        if let Ok(fetched) = made {
            let cubin = fetched.cubin();
            write(format!("{symbol}.cubin"), cubin.image())?;
            write(format!("{symbol}.log"), cubin.log().as_bytes())?;
            let ptx = warpsmith::internal::build::ptx(cache.toolchain()?, &source, spec.arch().target())?;
            write(format!("{symbol}.ptx"), ptx.as_bytes())?;
        }
    }
    Ok(())
}
