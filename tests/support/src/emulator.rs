//! A process whose GPU is emulated: its CUDA driver (`emulator/driver.cpp`) runs kernels on the CPU, and its NVRTC
//! (`emulator/nvrtc.cpp`) compiles them for that, too.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use warpsmith::build::Toolchain;
use warpsmith::spec::{Arch, DeviceFacts};

/// Where its sources are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/emulator");

/// The two libraries, built.
#[derive(Clone, Debug)]
pub struct Emulator {
    folder: PathBuf,
    real: PathBuf,
}

/// In which order threads run, and when asynchronous operations are done.
#[derive(Clone, Copy, Debug)]
pub enum Schedule {
    /// At once.
    Eager,
    /// As late as they may.
    Late,
    /// At random.
    Seed(u64),
}

/// Builds both libraries below a folder, unless they are there, for the machine's NVRTC.
///
/// # Errors
/// Why not: there is no NVRTC, or no C++ compiler.
pub fn build(folder: &Path) -> Result<Emulator, String> {
    if !Path::new(SOURCES).exists() {
        return Err(format!("its sources are not here: {SOURCES}"));
    }
    let toolchain = Toolchain::find().map_err(|error| error.to_string())?;
    let builtins = toolchain.builtins().ok_or("NVRTC has no builtins beside it")?;
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let version = Command::new(&compiler).arg("--version").output();
    let version = version.map_err(|error| format!("there is no C++ compiler: {compiler}: {error}"))?;

    // Under a name of its own for each state of the sources: objects go with the libraries that they are linked to.
    let mut digest = blake3::Hasher::new();
    digest.update(&version.stdout).update(toolchain.identity().as_bytes());
    for path in files(Path::new(SOURCES)) {
        digest.update(path.as_os_str().as_encoded_bytes()).update(&fs::read(&path).unwrap());
    }
    let version = digest.finalize().to_hex()[..16].to_owned();
    fs::create_dir_all(folder).unwrap();
    let folder = folder.canonicalize().unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let emulator = Emulator { folder: folder.join(&version), real: toolchain.library().to_owned() };
    if emulator.folder.join("complete").exists() {
        return Ok(emulator);
    }
    let nvrtc = emulator.nvrtc();
    let _ = fs::remove_dir_all(&emulator.folder);
    fs::create_dir_all(&nvrtc).unwrap();
    // Beside the one that stands in for it, under their own names.
    let real = toolchain.library().file_name().unwrap();
    std::os::unix::fs::symlink(builtins, nvrtc.join(builtins.file_name().unwrap())).unwrap();
    let define = |name: &str, value: &str| format!("-D{name}=\"{value}\"");
    let defines = [
        define("EMULATOR_SOURCES", SOURCES),
        define("EMULATOR_FOLDER", emulator.folder.to_str().unwrap()),
        define("EMULATOR_VERSION", &version),
    ];
    let compile = |library: &Path, sources: &[&str], flags: &[&str]| {
        let mut command = Command::new(&compiler);
        command.args(["-std=c++17", "-fPIC", "-shared", "-pthread", "-U_FORTIFY_SOURCE", "-fno-strict-aliasing"]);
        command.args(["-ffp-contract=off", "-march=native"]).args(flags).args(&defines).arg("-o").arg(library);
        command.args(sources.iter().map(|source| Path::new(SOURCES).join(source))).arg("-ldl");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("{compiler} does not compile the emulator: {said}")) }
    };
    std::thread::scope(|scope| {
        let shim = scope.spawn(|| compile(&nvrtc.join(real), &["nvrtc.cpp"], &["-O1"]));
        let soname = ["-O2", "-Wl,-soname,libcuda.so"];
        let driver = compile(&emulator.folder.join("libcuda.so"), &["driver.cpp", "runtime.cpp"], &soname);
        driver.and(shim.join().unwrap())
    })?;
    fs::write(emulator.folder.join("complete"), "").unwrap();
    Ok(emulator)
}

/// The folder that programs of this workspace share, beside what Cargo builds.
///
/// # Errors
/// This program is not there.
pub fn shared_folder() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = program.ancestors().find(|dir| dir.join("CACHEDIR.TAG").exists());
    let target = target.ok_or_else(|| format!("{} is in no folder of Cargo's", program.display()))?;
    Ok(target.join("emulator"))
}

impl Emulator {
    fn nvrtc(&self) -> PathBuf {
        self.folder.join("nvrtc")
    }

    /// Lets a program have an emulated GPU of this architecture, and nothing that was cached for a real one.
    pub fn set_up<'c>(&self, command: &'c mut Command, arch: &Arch, schedule: Schedule) -> &'c mut Command {
        let facts = DeviceFacts::of_preset(arch);
        // A bus of 4000 bits: 1000 kHz are a GB/s.
        let device = format!(
            "NVIDIA {} (emulated);13000;{};{};{};{};{};{};{};4000;{};{}",
            facts.name,
            facts.sms,
            facts.l2_bytes,
            facts.capability.major,
            facts.capability.minor,
            facts.shared_per_block,
            facts.clock_mhz * 1000,
            facts.memory_gb_per_s * 1000,
            facts.threads_per_sm,
            facts.shared_per_sm,
        );
        let schedule = match schedule {
            Schedule::Eager => "eager".to_owned(),
            Schedule::Late => "late".to_owned(),
            Schedule::Seed(seed) => seed.to_string(),
        };
        command
            .env("LD_LIBRARY_PATH", &self.folder)
            .env("WARPSMITH_NVRTC", self.nvrtc())
            .env("WARPSMITH_CACHE_DIR", self.folder.join("cache"))
            .env("WARPSMITH_EMULATED_NVRTC", &self.real)
            .env("WARPSMITH_EMULATED_DEVICE", device)
            .env("WARPSMITH_EMULATOR_SCHEDULE", schedule)
    }
}

/// The files below a folder, in the order of their names.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries.into_iter().flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
