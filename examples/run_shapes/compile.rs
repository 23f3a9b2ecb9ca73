//! Cubins ahead of everything else, on all cores; and what `--dump` writes.

use std::collections::HashSet;
use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use indicatif::ProgressBar;
use warpsmith::build;
use warpsmith::cache::{Forge, Forged};
use warpsmith::spec::Spec;

use crate::Result;

/// What came of a spec; the error as text, since it is shown in several places.
pub type Made = std::result::Result<Forged, String>;

/// The cubin of every spec, in order.
pub fn all(forge: &Forge, specs: &[Spec], progress: &ProgressBar) -> Vec<Made> {
    let made: Vec<OnceLock<Made>> = specs.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get).min(specs.len()) {
            scope.spawn(|| {
                while let Some((spec, slot)) = pair(specs, &made, next.fetch_add(1, Ordering::Relaxed)) {
                    // Every slot is visited once.
                    let _ = slot.set(forge.cubin(spec).map_err(|error| format!("{error:?}")));
                    progress.inc(1);
                }
            });
        }
    });
    made.into_iter().map(|slot| slot.into_inner().unwrap_or_else(|| Err("not built".to_owned()))).collect()
}

fn pair<'a, A, B>(a: &'a [A], b: &'a [B], index: usize) -> Option<(&'a A, &'a B)> {
    a.get(index).zip(b.get(index))
}

/// Writes source, PTX, cubin and log of every spec as `SYMBOL.cu`, `.ptx`, `.cubin`, `.log`.
pub fn dump(forge: &Forge, specs: &[Spec], made: &[Made], to: &Path) -> Result<()> {
    let write = |name: String, bytes: &[u8]| {
        let path = to.join(name);
        fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))
    };
    fs::create_dir_all(to).map_err(|error| format!("{}: {error}", to.display()))?;
    let mut seen = HashSet::new();
    for (spec, made) in specs.iter().zip(made).filter(|(spec, _)| seen.insert(**spec)) {
        let (symbol, source) = (spec.symbol(), build::render(spec)?);
        write(format!("{symbol}.cu"), source.text().as_bytes())?;
        if let Ok(forged) = made {
            let cubin = forged.cubin();
            write(format!("{symbol}.cubin"), cubin.image())?;
            write(format!("{symbol}.log"), cubin.log().as_bytes())?;
            let ptx = build::ptx(forge.toolchain()?, &source, spec.arch().target())?;
            write(format!("{symbol}.ptx"), ptx.as_bytes())?;
        }
    }
    Ok(())
}
