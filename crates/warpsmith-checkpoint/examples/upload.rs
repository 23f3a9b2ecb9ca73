//! How fast the layers of a checkpoint come to a GPU, beside a plain copy of as many bytes from pinned memory.
//!
//! `cargo run --release -p warpsmith-checkpoint --example upload -- DIR [THREADS]`. The first time files may be read from their
//! disk; the second time they are in memory. The device's memory is given anew each time.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use indicatif::ProgressBar;
use warpsmith::format::Format;
use warpsmith::run::Device;
use warpsmith_checkpoint::{Checkpoint, Module, Uploader};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Bytes of a copy: as many as the uploader's.
const BUFFER: usize = 32 << 20;

fn main() -> Result<()> {
    let usage = "usage: upload DIR [THREADS]";
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or(usage)?;
    let threads = arguments.next().map(|threads| threads.parse()).transpose().map_err(|_| usage)?;
    let stream = Device::open(0)?.context().new_stream()?;
    // SAFETY: nobody changes these files while this runs.
    let model = unsafe { Checkpoint::map(folder)? };
    let layers = model.layers(Format::Bf16)?;
    let names = layers.all.iter().flat_map(|(_, names)| names);
    let modules = names.map(|name| model.module(name)).collect::<warpsmith::Result<Vec<_>>>()?;
    let bytes: u64 = modules.iter().map(Module::bytes).sum();

    let mut out = std::io::stdout();
    writeln!(out, "{} modules, {bytes} bytes", modules.len())?;
    let plain = plain(&stream, bytes as usize)?;
    writeln!(out, "plain copy: {}", rate(bytes, plain))?;
    let bar = ProgressBar::new(2 * bytes);
    let mut uploader = Uploader::new(&stream)?.progress(|sent| bar.set_position(sent));
    if let Some(threads) = threads {
        uploader = uploader.threads(threads);
    }
    let mut lines = Vec::new();
    for time in ["first", "second"] {
        let start = Instant::now();
        upload(&stream, &mut uploader, &modules)?;
        let took = start.elapsed();
        let share = 100.0 * plain.as_secs_f64() / took.as_secs_f64();
        lines.push(format!("{time} upload: {}, {share:.0} % of the plain copy's rate", rate(bytes, took)));
    }
    drop(uploader);
    bar.finish_and_clear();
    Ok(lines.iter().try_for_each(|line| writeln!(out, "{line}"))?)
}

/// All of them at once on the device, as a model is.
fn upload(stream: &Arc<CudaStream>, uploader: &mut Uploader<'_>, modules: &[Module<'_>]) -> Result<()> {
    let (mut products, mut mlps, mut experts) = (Vec::new(), Vec::new(), Vec::new());
    for module in modules {
        match module {
            Module::Linear(of) => products.push(uploader.product(of)?),
            Module::Mlp(of) => mlps.push(uploader.mlp(of)?),
            Module::Moe(of) => experts.push(uploader.moe(of)?),
            _ => return Err("a module that is none of a checkpoint's layers".into()),
        }
    }
    Ok(stream.synchronize()?)
}

/// As many bytes, of one buffer again and again.
fn plain(stream: &Arc<CudaStream>, bytes: usize) -> Result<Duration> {
    let copies = bytes.div_ceil(BUFFER);
    // SAFETY: bytes of any value are bytes.
    let buffer = unsafe { stream.context().alloc_pinned::<u8>(BUFFER)? };
    // SAFETY: nobody reads it.
    let mut target = unsafe { stream.alloc::<u8>(copies * BUFFER)? };
    stream.synchronize()?;
    let start = Instant::now();
    for copy in 0..copies {
        stream.memcpy_htod(&buffer, &mut target.slice_mut(copy * BUFFER..(copy + 1) * BUFFER))?;
    }
    stream.synchronize()?;
    Ok(start.elapsed().mul_f64(bytes as f64 / (copies * BUFFER) as f64))
}

fn rate(bytes: u64, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    format!("{:.1} ms, {:.1} GB/s", 1e3 * seconds, bytes as f64 / seconds / 1e9)
}
