//! NVRTC's code is as fast as nvcc's. Skipped where there is no nvcc.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use half::f16;
use warpsmith::build::{Built, Cubin, Toolchain};
use warpsmith::cache::Disk;
use warpsmith::format::Format;
use warpsmith::internal::build::Source;
use warpsmith::internal::cache::Key;
use warpsmith::pick;
use warpsmith::run::Kernel;
use warpsmith::spec::{Activation, Arch, Problem};
use warpsmith_tune::oracle::{Expected, Reference};
use warpsmith_tune::{HostOperands, Launching, Pace, Spread, Trial};

use crate::bench::{Bench, text};

/// NVRTC's time over nvcc's, at most.
const LIMIT: f64 = 1.02;
/// Replays of each, one after the other, so that what the clocks do they do to both.
const TURNS: usize = 41;

fn find() -> Option<PathBuf> {
    let home = std::env::var_os("CUDA_HOME").map(|home| Path::new(&home).join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = home.into_iter().chain([PathBuf::from("/usr/local/cuda/bin")]).chain(std::env::split_paths(&path));
    dirs.map(|dir| dir.join("nvcc")).find(|nvcc| nvcc.is_file())
}

/// What nvcc makes of a source, as an entry of a cache in `dir` in which NVRTC's image has been replaced: a cubin is
/// made by the compiler or read from a cache, and by nothing else.
fn compiled_by(nvcc: &Path, dir: &Path, toolchain: &Toolchain, source: &Source) -> Result<Arc<Cubin>, String> {
    // NVRTC knows headers by the names that they are included by; nvcc would look beside the including file first.
    let flat = |name: &str| name.replace('/', "-");
    let included = |text: &str| {
        let names = source.headers().iter().map(|header| header.name);
        names.fold(text.to_owned(), |text, name| text.replace(&format!("\"{name}\""), &format!("\"{}\"", flat(name))))
    };
    for header in source.headers() {
        std::fs::write(dir.join(flat(header.name)), included(header.text)).map_err(text)?;
    }
    let (file, image) = (dir.join("kernel.cu"), dir.join("kernel.cubin"));
    std::fs::write(&file, included(source.text())).map_err(text)?;
    let target = format!("-arch={}", Arch::H200.target());
    let mut command = Command::new(nvcc);
    command.args(["-cubin", &target, "-std=c++17", "-O3", "-o"]).arg(&image).arg(&file);
    let output = command.output().map_err(text)?;
    if !output.status.success() {
        return Err(format!("{}: {}", nvcc.display(), String::from_utf8_lossy(&output.stderr)));
    }
    let image = std::fs::read(image).map_err(text)?;

    let disk = Disk::open(dir.join("cubins"));
    let key = Key::new(toolchain, source, Arch::H200.target()).map_err(text)?;
    // SAFETY: it is what the key says.
    unsafe {
        disk.put(&key, &warpsmith::internal::build::compile(toolchain, source, Arch::H200.target()).map_err(text)?)
    };
    let path = disk.path_of(&key).ok_or("no cache")?;
    let entry = std::fs::read(&path).map_err(text)?;
    let line = entry.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let (magic, header) = line.split_at(line.iter().position(|byte| *byte == b'{').ok_or("no header")?);
    let mut header: serde_json::Value = serde_json::from_slice(header).map_err(text)?;
    header["image_bytes"] = image.len().into();
    let mut entry = [magic, header.to_string().as_bytes(), b"\n", key.text().as_bytes(), &image].concat();
    let digest = *blake3::hash(&entry).as_bytes();
    entry.extend_from_slice(&digest);
    std::fs::write(path, entry).map_err(text)?;
    let cubin = disk.get(&key).ok_or("the changed entry is not taken")?;
    if cubin.image() == image { Ok(Arc::new(cubin)) } else { Err("the entry is another's".to_owned()) }
}

/// A result `[m, n]` in f16 as what another should be: `None` for anything that is finite.
fn reference(m: u32, n: u32, c: Option<&[u8]>) -> Result<Reference, String> {
    let elements = match c {
        None => vec![Expected { value: 0.0, bound: f64::INFINITY }; m as usize * n as usize],
        Some(c) => {
            let value = |bytes: &[u8]| f16::from_le_bytes([bytes[0], bytes[1]]).to_f64();
            let near = |value: f64| Expected { value, bound: value.abs() / 512.0 + 1e-6 };
            c.chunks_exact(2).map(|bytes| near(value(bytes))).collect()
        }
    };
    Reference::new(m as usize, n as usize, Format::F16, elements).map_err(text)
}

pub fn is_not_faster(bench: &Bench) -> Result<(), String> {
    let Some(nvcc) = find().filter(|_| bench.arch().target() == Arch::H200.target()) else {
        eprintln!("SKIPPED: NVRTC's code is not compared with nvcc's: no nvcc in CUDA_HOME, /usr/local/cuda or PATH");
        return Ok(());
    };
    let _turn = bench.alone();
    let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).prepared();
    let mut slower = Vec::new();
    for m in [1, 64, 256] {
        let choice = pick::choose(&problem, m, bench.arch()).map_err(text)?;
        let spec = choice.spec();
        let dir = tempfile::tempdir().map_err(text)?;
        let source = warpsmith::internal::build::render(spec).map_err(text)?;
        // SAFETY: another compiler's code of the same source.
        let others = unsafe { Built::unproven(*spec, compiled_by(&nvcc, dir.path(), bench.toolchain(), &source)?) };
        let others = Arc::new(Kernel::load(&bench.device, &others).map_err(text)?);
        let own = bench.kernel(spec)?;

        // Whether NVRTC's result is right is for others to say; here nvcc's is the same.
        let host = HostOperands::random(&problem, &[m], Spread::Every, 5);
        let anything = reference(m, problem.columns(), None)?;
        let first = Trial::new(&bench.stream, &host, &anything).and_then(|trial| trial.check(&own)).map_err(text)?;
        let same = reference(m, problem.columns(), Some(&first.c()))?;
        let mut trial = Trial::new(&bench.stream, &host, &same).map_err(text)?;
        let (own, others) = (trial.check(&own).map_err(text)?, trial.check(&others).map_err(text)?);
        let turns = trial.time_in_turn(&[&own, &others], TURNS, Launching::Plain, Pace::NORMAL).map_err(text)?;
        let mut ratios: Vec<f64> = turns.iter().map(|us| us[0] / us[1]).collect();
        ratios.sort_by(f64::total_cmp);
        let ratio = ratios[TURNS / 2];
        eprintln!("{spec}, m = {m}: NVRTC's time over nvcc's {ratio:.3}");
        if ratio > LIMIT {
            slower.push(format!("{spec}, m = {m}: {ratio:.3} of the time of nvcc's code"));
        }
    }
    if slower.is_empty() { Ok(()) } else { Err(slower.join("\n")) }
}
