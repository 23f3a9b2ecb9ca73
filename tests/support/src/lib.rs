//! What several tests need: a toolchain, or the word that there is none.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr, missing_docs)]

pub mod activations;
pub mod checkpoints;
pub mod counting;
pub mod cubins;
pub mod emulator;
pub mod fallback;
pub mod fuzz;
pub mod layers;
pub mod mutate;
pub mod null;
pub mod numbers;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use warpsmith::build::{Cubin, Toolchain};
use warpsmith::cache::{Disk, KernelCacheBuilder};
use warpsmith::internal::build::Source;
use warpsmith::internal::cache::Key;
use warpsmith::spec::{Arch, Spec};

/// The folder of these examples, built as this test is. Cargo builds them with all tests, but not with one alone.
pub fn examples(names: &[&str]) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let [profile, target] = [2, 3].map(|up| test.ancestors().nth(up).unwrap());
    let name = match profile.file_name().unwrap().to_str().unwrap() {
        "debug" => "test",
        other => other,
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "--offline", "--profile", name, "--target-dir"]).arg(target);
    cargo.args(names.iter().flat_map(|example| ["--example", example]));
    assert!(cargo.current_dir(ROOT).status().unwrap().success());
    profile.join("examples")
}

/// The workspace.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The first seed of what is random on a GPU: `WARPSMITH_TEST_SEED`, or 0.
pub fn seed() -> u64 {
    std::env::var("WARPSMITH_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// Says, and counts, what was not tested here.
pub fn skip(what: &str, why: &str) {
    let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    eprintln!("SKIPPED ({count} in this file so far): {what}: {why}");
}

/// The machine's NVRTC; with `WARPSMITH_TEST_INSTALL=1` one is installed if there is none.
pub fn toolchain(test: &str) -> Option<Toolchain> {
    let install = std::env::var_os("WARPSMITH_TEST_INSTALL").is_some_and(|value| value == "1");
    let found = if install { Toolchain::find_or_install() } else { Toolchain::find() };
    found.map_err(|error| skip(test, &error.to_string())).ok()
}

/// Every toolchain of `WARPSMITH_TEST_NVRTCS` (colon-separated paths); without it, the machine's.
pub fn toolchains(test: &str) -> Vec<Toolchain> {
    match std::env::var_os("WARPSMITH_TEST_NVRTCS") {
        Some(paths) => std::env::split_paths(&paths).map(|path| Toolchain::at(path).unwrap()).collect(),
        None => toolchain(test).into_iter().collect(),
    }
}

/// Whether everything is to be tested (`WARPSMITH_TEST_ALL`), and not a part of it.
pub fn is_thorough() -> bool {
    std::env::var_os("WARPSMITH_TEST_ALL").is_some()
}

/// How far apart samples are: `of`, or one, where everything is to be tested.
pub fn step(of: usize) -> usize {
    if is_thorough() { 1 } else { of }
}

/// Every `of`th of them; all, where everything is to be tested.
pub fn thinned<T>(all: impl IntoIterator<Item = T>, of: usize) -> Vec<T> {
    all.into_iter().step_by(step(of)).collect()
}

/// The one whose turn it is; all, where everything is to be tested.
pub fn in_turn<T: Clone>(all: &[T], turn: usize) -> Vec<T> {
    if is_thorough() { all.to_vec() } else { vec![all[turn % all.len()].clone()] }
}

/// What each compiler compiles: one after the other in turn, or everything, where that is to be tested.
pub fn shares<T: Clone>(toolchains: Vec<Toolchain>, all: &[T]) -> Vec<(Toolchain, Vec<T>)> {
    let count = toolchains.len();
    let share = |turn| {
        let its = all.iter().enumerate().filter(|(at, _)| is_thorough() || at % count == turn);
        its.map(|(_, one)| one.clone()).collect()
    };
    toolchains.into_iter().enumerate().map(|(turn, toolchain)| (toolchain, share(turn))).collect()
}

/// The architectures that an NVRTC compiles for: all, but 12.9 knows no 11.0.
pub fn known_archs(toolchain: &Toolchain) -> Vec<Arch> {
    let numbers = toolchain.architectures().unwrap();
    let is_known = |arch: &&Arch| numbers.contains(&(10 * arch.capability().major + arch.capability().minor));
    let known: Vec<Arch> = Arch::ALL.iter().filter(is_known).copied().collect();
    assert!(known.len() + 1 >= Arch::ALL.len(), "{numbers:?}");
    known
}

/// What becomes of each, on all cores, in order.
pub fn on_all_cores<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let done = warpsmith::internal::crew::each(all, cores, |one| ControlFlow::Continue(work(one)));
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The smallest kernel worth compiling.
pub fn axpy() -> Source {
    let text = "extern \"C\" __global__ void axpy(float a, const float* x, float* y) {\n\
                    y[threadIdx.x] += a * x[threadIdx.x];\n}\n";
    Source::new("axpy.cu", text, &[], ["axpy"])
}

/// Kernels of the tests' own, which no device ever runs.
pub trait Renders {
    /// As [`KernelCacheBuilder::render`].
    fn renders(self, render: fn(&Spec) -> warpsmith::Result<Source>) -> Self;
}

impl Renders for KernelCacheBuilder {
    fn renders(self, render: fn(&Spec) -> warpsmith::Result<Source>) -> Self {
        // SAFETY: what is made of them is not loaded, or by the null driver, which runs nothing.
        unsafe { self.render(render) }
    }
}

/// Machine code of the tests' own, which no device ever runs.
pub trait Stores {
    /// As [`Disk::put`].
    fn stores(&self, key: &Key, cubin: &Cubin);
}

impl Stores for Disk {
    fn stores(&self, key: &Key, cubin: &Cubin) {
        // SAFETY: it is not loaded.
        unsafe { self.put(key, cubin) }
    }
}
