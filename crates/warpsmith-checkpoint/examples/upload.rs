//! How fast the layers of a checkpoint come to a GPU, and where the time goes, beside a plain copy of as many bytes from pinned
//! memory.
//!
//! `cargo run --release -p warpsmith-checkpoint --example upload -- DIR [THREADS,… [MIB,…]]`: by so many threads, through buffers
//! of so many MiB in all. Both sides have their buffers before the clock begins. Each is timed with device memory that the driver
//! gives meanwhile, and with what its pool has kept. The first upload may read files from their disk, and maps them; later ones
//! do not. Last, layers are made of what was uploaded, by kernels that have been loaded before.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::result::{device, mem_pool};
use cudarc::driver::sys::CUmemPool_attribute;
use cudarc::driver::{CudaSlice, CudaStream, PinnedHostSlice};
use indicatif::ProgressBar;
use warpsmith::cache::KernelCache;
use warpsmith::engine::Engine;
use warpsmith::format::Format;
use warpsmith::run::Device;
use warpsmith_checkpoint::{Checkpoint, Module, UploadTimes, Uploader};
use warpsmith_layers::{GatedMlp, LayerConfig, Linear, MlpWeights, Moe, MoeWeights, Quantised};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Bytes of a plain copy.
const COPY: usize = 32 << 20;
/// As many of each, of which the median counts.
const TIMES: usize = 5;
/// Tokens of the layers that are made.
const TOKENS: u32 = 16;

fn main() -> Result<()> {
    let usage = "usage: upload DIR [THREADS,… [MIB,…]]";
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or(usage)?;
    let cores = std::thread::available_parallelism()?.get();
    let threads = numbers(arguments.next(), cores.min(16)).ok_or(usage)?;
    let mibs = numbers(arguments.next(), 32).ok_or(usage)?;
    let device = Device::open(0)?;
    let stream = device.context().new_stream()?;
    // SAFETY: nobody changes these files while this runs.
    let model = unsafe { Checkpoint::map(folder)? };
    let layers = model.layers(Format::Bf16)?;
    let all = layers.all.iter().flat_map(|(config, names)| names.iter().map(move |name| (config, name)));
    let modules = all.map(|(config, name)| Ok((config, model.module(name)?))).collect::<Result<Vec<_>>>()?;
    let bytes: u64 = modules.iter().map(|(_, module)| module.bytes()).sum();

    let mut out = std::io::stdout();
    writeln!(out, "{} modules, {bytes} bytes, {cores} cores", modules.len())?;
    let mut plain = Plain::new(&stream, bytes as usize)?;
    let plain_anew = median(|| plain.anew(&device), |took| *took)?;
    keep_memory(&device, u64::MAX)?;
    let plain_kept = median(|| plain.copied(), |took| *took)?;
    drop(plain);
    writeln!(out, "plain copy: {}; device memory got meanwhile: {}", rate(bytes, plain_kept), rate(bytes, plain_anew))?;

    let bar = ProgressBar::new(0);
    for mib in mibs {
        for threads in &threads {
            let start = Instant::now();
            let uploader = Uploader::with_buffers(&stream, mib << 20)?;
            let buffers = start.elapsed();
            let mut uploader = uploader.threads((*threads).try_into()?).progress(|sent| bar.set_position(sent));
            let mut upload = |is_kept| -> Result<Upload> {
                keep_memory(&device, if is_kept { u64::MAX } else { 0 })?;
                stream.synchronize()?;
                bar.set_length(bar.position() + bytes);
                Upload::timed(&stream, &mut uploader, &modules)
            };
            let first = upload(false)?;
            let anew = median(|| upload(false), |upload| upload.took)?;
            upload(true)?;
            let kept = median(|| upload(true), |upload| upload.took)?;
            drop(uploader);
            bar.suspend(|| {
                writeln!(out, "{threads} threads, {mib} MiB of buffers, which take {} to get", ms(buffers))?;
                writeln!(out, "  upload:                            {}", kept.line(bytes, plain_kept))?;
                writeln!(out, "  device memory got meanwhile:       {}", anew.line(bytes, plain_anew))?;
                writeln!(out, "  the same, the first time:          {}", first.line(bytes, plain_anew))
            })?;
        }
    }
    bar.finish_and_clear();

    let engine = Engine::with_cache(&device, KernelCache::builder().install_if_missing().build());
    let mut uploader = Uploader::new(&stream)?;
    for what in ["layers, their kernels compiled or loaded", "layers, their kernels there"] {
        let (mut made, mut took) = (Vec::new(), Duration::ZERO);
        for (config, module) in &modules {
            let weights = uploaded(&mut uploader, module)?;
            stream.synchronize()?;
            let start = Instant::now();
            made.push(layer(&engine, &stream, config, weights)?);
            stream.synchronize()?;
            took += start.elapsed();
        }
        writeln!(out, "{what}: {}", ms(took))?;
    }
    Ok(())
}

/// Weights of a module.
enum Weights {
    Linear(Quantised),
    Mlp(Box<MlpWeights>),
    Moe(Box<MoeWeights>),
}

fn uploaded(uploader: &mut Uploader<'_>, module: &Module<'_>) -> Result<Weights> {
    Ok(match module {
        Module::Linear(of) => Weights::Linear(uploader.product(of)?),
        Module::Mlp(of) => Weights::Mlp(Box::new(uploader.mlp(of)?)),
        Module::Moe(of) => Weights::Moe(Box::new(uploader.moe(of)?)),
        _ => return Err("a module that is none of a checkpoint's layers".into()),
    })
}

/// A layer, which is only kept.
fn layer(
    engine: &Engine,
    stream: &Arc<CudaStream>,
    config: &LayerConfig,
    weights: Weights,
) -> Result<Box<dyn std::any::Any>> {
    Ok(match (config, weights) {
        (LayerConfig::Linear(config), Weights::Linear(weights)) => {
            Box::new(Linear::new(engine, stream, config, weights, TOKENS)?)
        }
        (LayerConfig::Mlp(config), Weights::Mlp(weights)) => {
            Box::new(GatedMlp::new(engine, stream, config, *weights, TOKENS)?)
        }
        (LayerConfig::Moe(config), Weights::Moe(weights)) => {
            Box::new(Moe::new(engine, stream, config, *weights, TOKENS)?)
        }
        _ => return Err(format!("{config}: no layer of this module").into()),
    })
}

/// All modules at once on the device, as a model is.
struct Upload {
    took: Duration,
    /// Of that, behind the last call.
    last: Duration,
    times: [UploadTimes; 2],
}

impl Upload {
    fn timed(
        stream: &Arc<CudaStream>,
        uploader: &mut Uploader<'_>,
        modules: &[(&LayerConfig, Module<'_>)],
    ) -> Result<Self> {
        let before = uploader.times();
        let start = Instant::now();
        let all = modules.iter().map(|(_, module)| uploaded(uploader, module)).collect::<Result<Vec<_>>>()?;
        let asked = start.elapsed();
        stream.synchronize()?;
        let took = start.elapsed();
        drop(all);
        stream.synchronize()?;
        Ok(Self { took, last: took - asked, times: [before, uploader.times()] })
    }

    fn line(&self, bytes: u64, plain: Duration) -> String {
        let share = plain.as_secs_f64() / self.took.as_secs_f64();
        let [before, after] = &self.times;
        let of = |part: fn(&UploadTimes) -> Duration| part(after) - part(before);
        let parts = [
            ("memory", of(|times| times.allocating)),
            ("filling", of(|times| times.filling)),
            ("waiting for copies", of(|times| times.waiting)),
            ("asking for copies", of(|times| times.copying)),
            ("last copies", self.last),
        ];
        let known: Duration = parts.iter().map(|(_, took)| *took).sum();
        let mut text = format!("{}, {share:.2} of the plain copy's rate", rate(bytes, self.took));
        for (what, took) in parts.iter().chain(&[("planning", self.took.saturating_sub(known))]) {
            text += &format!("; {what} {}", ms(*took));
        }
        format!("{text}; threads wrote {}", ms(of(|times| times.threads)))
    }
}

/// As many bytes, from two buffers in turns.
struct Plain {
    stream: Arc<CudaStream>,
    buffers: [PinnedHostSlice<u8>; 2],
    bytes: usize,
    memory: Option<CudaSlice<u8>>,
}

impl Plain {
    fn new(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self> {
        // SAFETY: bytes of any value are bytes.
        let buffer = || unsafe { stream.context().alloc_pinned::<u8>(COPY) };
        Ok(Self { stream: stream.clone(), buffers: [buffer()?, buffer()?], bytes, memory: None })
    }

    /// With device memory that the driver gives.
    fn anew(&mut self, device: &Device) -> Result<Duration> {
        self.memory = None;
        keep_memory(device, 0)?;
        self.stream.synchronize()?;
        self.copied()
    }

    /// With that of the last time, if there is any.
    fn copied(&mut self) -> Result<Duration> {
        let start = Instant::now();
        let copies = self.bytes.div_ceil(COPY);
        let memory = match &mut self.memory {
            Some(memory) => memory,
            // SAFETY: nobody reads it.
            none => none.insert(unsafe { self.stream.alloc::<u8>(copies * COPY)? }),
        };
        for copy in 0..copies {
            self.stream.memcpy_htod(&self.buffers[copy % 2], &mut memory.slice_mut(copy * COPY..(copy + 1) * COPY))?;
        }
        self.stream.synchronize()?;
        Ok(start.elapsed().mul_f64(self.bytes as f64 / (copies * COPY) as f64))
    }
}

/// How much free memory the device's pool keeps when somebody waits.
fn keep_memory(device: &Device, bytes: u64) -> Result<()> {
    let (mut bytes, release) = (bytes, CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
    // SAFETY: a device that is there, its pool, and an attribute that is 64 bits wide.
    unsafe {
        let pool = device::get_default_mem_pool(device.context().cu_device())?;
        mem_pool::set_attribute(pool, release, (&raw mut bytes).cast())?;
    }
    Ok(())
}

fn median<T>(mut time: impl FnMut() -> Result<T>, took: impl Fn(&T) -> Duration) -> Result<T> {
    let mut all = (0..TIMES).map(|_| time()).collect::<Result<Vec<_>>>()?;
    all.sort_by_key(took);
    Ok(all.swap_remove(TIMES / 2))
}

fn numbers(given: Option<String>, otherwise: usize) -> Option<Vec<usize>> {
    match given {
        None => Some(vec![otherwise]),
        Some(all) => all.split(',').map(|number| number.parse().ok().filter(|number| *number > 0)).collect(),
    }
}

fn ms(took: Duration) -> String {
    format!("{:.1} ms", 1e3 * took.as_secs_f64())
}

fn rate(bytes: u64, took: Duration) -> String {
    format!("{}, {:.1} GB/s", ms(took), bytes as f64 / took.as_secs_f64() / 1e9)
}
