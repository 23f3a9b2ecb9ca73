//! A process without a device, whose CUDA driver is `null_driver.c`: everything up to the driver is real.

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use libloading::Library;

/// The functions of the null driver that are for tests.
pub struct Null(Library);

/// The last launch that this thread saw.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Seen {
    pub grid: [u32; 3],
    pub threads: u32,
    pub shared: u32,
    pub attributes: u32,
    kernel: [u8; 512],
    params: [u8; 152],
    maps: [u8; 5 * 128],
}

impl Seen {
    pub fn kernel(&self) -> String {
        CStr::from_bytes_until_nul(&self.kernel).unwrap().to_str().unwrap().to_owned()
    }

    /// A word of the kernel's parameters, at this offset.
    pub fn param(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.params[offset..offset + 8].try_into().unwrap())
    }

    /// M, among the parameters.
    pub fn m(&self) -> u32 {
        u32::from_ne_bytes(self.params[112..116].try_into().unwrap())
    }

    /// A word of a tensor map.
    pub fn map(&self, map: usize, word: usize) -> u64 {
        let at = 128 * map + 8 * word;
        u64::from_ne_bytes(self.maps[at..at + 8].try_into().unwrap())
    }
}

/// Compiles the driver with these names defined.
pub fn compile(library: &Path, defines: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("null_driver.c");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    // Under this name it is found by everybody who asks for the driver from then on.
    let arguments = ["-shared", "-fPIC", "-O2", "-w", "-pthread", "-Wl,-soname,libcuda.so", "-o"];
    let defines = defines.iter().map(|name| format!("-D{name}"));
    let status = Command::new(compiler).args(arguments).args([library, &source]).args(defines).status().unwrap();
    assert!(status.success());
}

impl Null {
    /// Builds the driver and opens it, before anything asks for a real one.
    pub fn driver() -> &'static Null {
        static NULL: OnceLock<Null> = OnceLock::new();
        NULL.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let library = folder.path().join("libcuda.so");
            compile(&library, &[]);
            // SAFETY: it has no initialisers.
            Null(unsafe { Library::new(&library) }.unwrap())
        })
    }

    fn call<R>(&self, name: &str) -> R {
        // SAFETY: those that are asked for below take nothing and return `R`.
        unsafe { self.0.get::<unsafe extern "C" fn() -> R>(name).unwrap()() }
    }

    fn tell(&self, name: &str, number: i32) {
        // SAFETY: those that are asked for below take an int.
        unsafe { self.0.get::<unsafe extern "C" fn(i32)>(name).unwrap()(number) }
    }

    fn set(&self, name: &str, on: bool) {
        self.tell(name, on.into());
    }

    /// This thread's launches so far.
    pub fn launches(&self) -> u64 {
        self.call("null_launches")
    }

    /// Tensor maps that this thread has encoded so far.
    pub fn encodes(&self) -> u64 {
        self.call("null_encodes")
    }

    /// Modules loaded so far.
    pub fn loaded(&self) -> i32 {
        self.call("null_loaded")
    }

    /// Modules unloaded so far.
    pub fn unloaded(&self) -> i32 {
        self.call("null_unloaded")
    }

    /// Contexts destroyed so far.
    pub fn destroyed(&self) -> i32 {
        self.call("null_destroyed")
    }

    /// Which of this thread's launches from now on is refused, counted from 1.
    pub fn refuse(&self, launch: i32) {
        self.tell("null_refuse", launch);
    }

    /// Clusters of any kernel that the device runs at a time, as this thread is told: 60 at first; below 0 it
    /// refuses to say.
    pub fn clusters(&self, resident: i32) {
        self.tell("null_clusters", resident);
    }

    /// Whether what was launched still runs.
    pub fn busy(&self, on: bool) {
        self.set("null_busy", on);
    }

    /// Whether loads into the first device are not to end yet.
    pub fn hold(&self, on: bool) {
        self.set("null_hold", on);
    }

    /// Loads that the first device was busy with at a time, at most.
    pub fn most_loading(&self) -> i32 {
        self.call("null_most_loading")
    }

    /// Whether uses of memory are tracked that streams do not order, of what is allocated from now on.
    pub fn track(&self, on: bool) {
        self.set("null_track", on);
    }

    /// How many uses of memory were not ordered since tracking began, and the last of them.
    pub fn races(&self) -> (i32, String) {
        let last: *const c_char = self.call("null_last_race");
        // SAFETY: a text that ends with a NUL, in a static array.
        (self.call("null_races"), unsafe { CStr::from_ptr(last) }.to_str().unwrap().to_owned())
    }

    /// Events made so far.
    pub fn events(&self) -> u64 {
        self.call("null_events")
    }

    /// Events recorded so far.
    pub fn records(&self) -> u64 {
        self.call("null_records")
    }

    /// Allocations that are tracked and not freed.
    pub fn allocations(&self) -> i32 {
        self.call("null_allocations")
    }

    /// Whether this thread's last launch is kept.
    pub fn watch(&self, on: bool) {
        self.set("null_watch", on);
    }

    /// The last launch of this thread.
    pub fn seen(&self) -> Seen {
        let mut seen = std::mem::MaybeUninit::uninit();
        // SAFETY: it writes a whole `Seen`, which has the same layout there.
        unsafe {
            self.0.get::<unsafe extern "C" fn(*mut Seen)>("null_seen").unwrap()(seen.as_mut_ptr());
            seen.assume_init()
        }
    }
}
