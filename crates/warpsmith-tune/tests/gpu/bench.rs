//! The device that all trials share.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream};
use warpsmith::build::{Built, Toolchain};
use warpsmith::cache::KernelCache;
use warpsmith::engine::Engine;
use warpsmith::internal::build::{Header, Source};
use warpsmith::run::{Device, Kernel};
use warpsmith::spec::{Arch, Spec};
use warpsmith_tune::oracle::Reference;
use warpsmith_tune::{Checked, HostOperands, Trial};

/// Kernels of trials before that may still be loaded when the next one begins.
const RETIRED_MAX: usize = 256;

pub struct Bench {
    pub device: Device,
    pub stream: Arc<CudaStream>,
    /// One launch at a time: a fault is then its own.
    turn: Mutex<()>,
    cache: KernelCache,
    report: Option<Mutex<File>>,
}

impl Bench {
    pub fn open() -> Result<Self, String> {
        let device = Device::open(0).map_err(text)?;
        // SAFETY: the one stream below is the only one in this process.
        unsafe { device.context().disable_event_tracking() };
        let stream = device.context().new_stream().map_err(text)?;
        let cache = KernelCache::builder().install_if_missing().memory(1 << 14, 1 << 32).no_disk().build();
        let report = std::env::var_os("WARPSMITH_TEST_JSON")
            .map(|path| OpenOptions::new().create(true).append(true).open(path).unwrap())
            .map(Mutex::new);
        Ok(Self { device, stream, turn: Mutex::new(()), cache, report })
    }

    /// The device for oneself until the guard is dropped, whatever became of those before.
    pub fn alone(&self) -> MutexGuard<'_, ()> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody else does it here, and engines refuse to load beside too many.
        if self.device.retired() > RETIRED_MAX {
            // A reclaim marks what the next one finds done. A trial that failed may have left the device unfit for both.
            let _ = self.device.reclaim().and_then(|_| self.device.reclaim());
        }
        turn
    }

    pub fn arch(&self) -> &Arch {
        self.device.arch()
    }

    pub fn toolchain(&self) -> &Toolchain {
        self.cache.toolchain().unwrap()
    }

    /// An engine that keeps nothing on disk.
    pub fn engine(&self) -> Engine {
        let cache = KernelCache::builder().toolchain(self.toolchain().clone()).no_disk().build();
        Engine::with_cache(&self.device, cache)
    }

    /// What `put` puts into the stream, as a graph.
    pub fn captured(&self, put: impl FnOnce() -> Result<(), String>) -> Result<CudaGraph, String> {
        captured(&self.stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, put)
    }

    pub fn kernel(&self, spec: &Spec) -> Result<Arc<Kernel>, String> {
        if std::env::var_os("WARPSMITH_TEST_RACECHECK").is_some() && spec.problem().is_prepared() {
            let source = warpsmith::internal::build::render(spec).map_err(text)?;
            return self.kernel_of(spec, &every_lane_arrives(&source)?);
        }
        let fetched = self.cache.cubin(spec).map_err(|error| format!("{error:?}"))?;
        Kernel::load(&self.device, fetched.built()).map(Arc::new).map_err(text)
    }

    /// Compiles `specs` on all cores.
    pub fn compile(&self, specs: &[Spec]) {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
                scope.spawn(|| {
                    while let Some(spec) = specs.get(next.fetch_add(1, Relaxed)) {
                        // What cannot be compiled is reported where the kernel is asked for.
                        let _ = self.cache.cubin(spec);
                    }
                });
            }
        });
    }

    /// A kernel from changed CUDA under the name of `spec`.
    pub fn kernel_of(&self, spec: &Spec, source: &Source) -> Result<Arc<Kernel>, String> {
        let cubin = warpsmith::internal::build::compile(self.toolchain(), source, spec.arch().target())
            .map_err(|error| format!("{error:?}"))?;
        // SAFETY: what mutants change is what they compute and when, in memory with guards around it.
        let built = unsafe { Built::unproven(*spec, Arc::new(cubin)) };
        Kernel::load(&self.device, &built).map(Arc::new).map_err(text)
    }

    /// The kernel of a variant, launched alone on these operands, gives the reference.
    pub fn is_right(&self, variant: &str, host: &HostOperands, reference: &Reference) -> Result<(), String> {
        let spec = Spec::new(&host.problem, &variant.parse().map_err(text)?, self.arch()).map_err(text)?;
        let checked =
            self.checked(&self.kernel(&spec)?, host, reference).map_err(|error| format!("{spec}: {error}"))?;
        if checked.passed() { Ok(()) } else { Err(format!("{spec}: {checked}")) }
    }

    /// What a kernel, launched alone on these operands, is found to give.
    pub fn checked(&self, kernel: &Arc<Kernel>, host: &HostOperands, reference: &Reference) -> Result<Checked, String> {
        let _turn = self.alone();
        let trial = Trial::new(&self.stream, host, reference).map_err(text)?;
        trial.check(kernel).map_err(text)
    }

    pub fn note(&self, spec: &Spec, m: u32, checked: &Checked) {
        if let Some(report) = &self.report {
            let line = serde_json::json!({
                "problem": spec.problem().to_string(),
                "variant": spec.variant().to_string(),
                "m": m,
                "passed": checked.passed(),
                "worst": checked.verdict().worst(),
            });
            writeln!(report.lock().unwrap(), "{line}").unwrap();
        }
    }
}

/// Variants of a family, or problems of a seed: `WARPSMITH_TEST_SAMPLES`, or 12.
pub fn samples() -> f64 {
    std::env::var("WARPSMITH_TEST_SAMPLES").ok().and_then(|text| text.parse().ok()).unwrap_or(12.0)
}

/// What a trial reports of an error.
pub fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The source with every `from` replaced by its `to`, in its text and its headers.
///
/// # Errors
/// The first `from` that stands in nothing of what is compiled.
pub fn changed<'a>(source: &Source, changes: &[(&'a str, &str)]) -> Result<Source, &'a str> {
    let compiled = compiled(source);
    match changes.iter().find(|(from, _)| !compiled.iter().any(|text| text.contains(from))) {
        Some((from, _)) => Err(from),
        None => replaced(source, changes),
    }
}

/// The text, and those of the headers that it includes.
fn compiled(source: &Source) -> Vec<&str> {
    let mut found = vec![source.text()];
    let mut next = 0;
    while let Some(text) = found.get(next) {
        let names = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
        let headers = names.filter_map(|name| source.headers().iter().find(|header| header.name == name));
        let new: Vec<&str> = headers.map(|header| header.text).filter(|text| !found.contains(text)).collect();
        found.extend(new);
        next += 1;
    }
    found
}

/// As [`changed`], whether or not the headers where a `from` stands are included.
fn replaced<'a>(source: &Source, changes: &[(&'a str, &str)]) -> Result<Source, &'a str> {
    let mut text = source.text().to_owned();
    let mut headers: Vec<Header> = source.headers().to_vec();
    for &(from, to) in changes {
        if !text.contains(from) && !headers.iter().any(|header| header.text.contains(from)) {
            return Err(from);
        }
        text = text.replace(from, to);
        headers.iter_mut().for_each(|header| header.text = header.text.replace(from, to).leak());
    }
    Ok(Source::new(source.name(), text, headers.leak(), source.entries().to_vec()))
}

/// The same kernel, but every lane arrives at mbarriers where one speaks for its warp: compute-sanitizer's racecheck
/// follows an arrival, but not a __syncwarp before it, and takes what other lanes read for unordered.
pub fn every_lane_arrives(source: &Source) -> Result<Source, String> {
    let changes = [
        ("if (lane_index() == 0) mbarrier_arrive(empty);", "mbarrier_arrive(empty);"),
        (
            "if (lane_index() < MULTICAST) mbarrier_arrive_remote(empty, lane_index());",
            "for (int rank = 0; rank < MULTICAST; rank++) mbarrier_arrive_remote(empty, rank);",
        ),
        ("mbarrier_init(empty(slot), EMPTY_ARRIVALS);", "mbarrier_init(empty(slot), 32 * EMPTY_ARRIVALS);"),
        // Of a warp that decodes tokens one lane speaks; threads that copy arrive by themselves.
        (
            "mbarrier_init(full(slot), FULL_ARRIVALS);",
            "mbarrier_init(full(slot), FULL_ARRIVALS + (COPIED ? 0 : 31 * TOKEN_WARPS));",
        ),
        ("if (lane == 0) mbarrier_arrive(producer.at().full);", "mbarrier_arrive(producer.at().full);"),
        // And of one that stores tiles.
        ("mbarrier_init(stored(tile_group), 1);", "mbarrier_init(stored(tile_group), 32);"),
        (
            "if (lane_index() == 0) mbarrier_arrive(ring.stored(tile_group));",
            "mbarrier_arrive(ring.stored(tile_group));",
        ),
    ];
    replaced(source, &changes).map_err(|from| format!("`{from}` stands nowhere"))
}

/// What `put` puts into a stream, as a graph.
pub fn captured(
    stream: &Arc<CudaStream>,
    mode: CUstreamCaptureMode,
    put: impl FnOnce() -> Result<(), String>,
) -> Result<CudaGraph, String> {
    stream.begin_capture(mode).map_err(text)?;
    let launched = put();
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).map_err(text);
    launched?;
    graph?.ok_or_else(|| "nothing was captured".to_owned())
}
