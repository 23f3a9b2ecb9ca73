//! What several tests of the caches need: keys, entries and cubins without any compiler, and the log.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use warpsmith::Result;
use warpsmith::build::{Cubin, Toolchain};
use warpsmith::cache::Disk;
use warpsmith::format::Format;
use warpsmith::internal::build::Source;
use warpsmith::internal::cache::Key;
use warpsmith::internal::spec::baseline;
use warpsmith::spec::{Arch, Problem, Spec};

/// The files of an NVRTC of this version, as far as keys look at them.
pub fn toolchain(dir: &Path, version: &str) -> Toolchain {
    let dir = dir.join(version);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(format!("libnvrtc.so.{version}")), "").unwrap();
    Toolchain::at(dir).unwrap()
}

/// A key of a kernel with this text.
pub fn key(dir: &Path, text: &str) -> Key {
    Key::new(&toolchain(dir, "13.0.88"), &Source::new("k.cu", text, &[], ["k"]), "sm_90a").unwrap()
}

/// An ELF file with the kernel `k` and nothing else, as far as caches look at it (`readelf -a` shows all of it).
const EMPTY: &[u8] = include_bytes!("empty.cubin");

/// A kernel that nobody compiles or runs; its image ends with these bytes.
pub fn cubin(tail: &[u8]) -> Cubin {
    let about = serde_json::json!({
        "provenance": {
            "name": "k.cu", "problem": "", "variant": "", "target": "", "toolchain": "", "options": [], "source": "",
        },
        "resources": [{
            "entry": "k", "registers": 8, "local_bytes": 0, "static_shared_bytes": 0, "max_threads": null,
            "code_bytes": 0, "spills": null,
        }],
        "compile_us": 0,
        "log": "",
    });
    warpsmith::internal::cubin(serde_json::from_value(about).unwrap(), image(tail)).unwrap()
}

/// Machine code that ends with these bytes.
pub fn image(tail: &[u8]) -> Vec<u8> {
    [EMPTY, tail].concat()
}

pub fn sealed(body: &[u8]) -> Vec<u8> {
    [body, blake3::hash(body).as_bytes().as_slice()].concat()
}

/// An entry of `key`, as the format says, that tells nothing of where its image comes from, which ends with these bytes.
pub fn entry_of(key: &Key, tail: &[u8]) -> Vec<u8> {
    entry_with(key, &image(tail))
}

/// As [`entry_of`], whatever the image.
pub fn entry_with(key: &Key, image: &[u8]) -> Vec<u8> {
    let provenance = serde_json::json!({
        "name": "k.cu", "problem": "p", "variant": "v", "target": "sm_90a", "toolchain": "t", "options": ["-x"],
        "source": "d",
    });
    entry_from(key, provenance, image)
}

fn entry_from(key: &Key, provenance: serde_json::Value, image: &[u8]) -> Vec<u8> {
    let header = serde_json::json!({
        "key_bytes": key.text().len(),
        "image_bytes": image.len(),
        "about": {
            "provenance": provenance,
            "resources": [{
                "entry": "k", "registers": 8, "local_bytes": 0, "static_shared_bytes": 0, "max_threads": null,
                "code_bytes": 128, "spills": null,
            }],
            "compile_us": 1500,
            "log": "a log\nof lines",
        },
    });
    let head = format!("warpsmith-cubin 2 {header}\n{}", key.text());
    sealed(&[head.as_bytes(), image].concat())
}

/// A cubin as a compiler of this version would have made it, with an image that ends with these
/// bytes.
pub fn cubin_of(dir: &Path, version: &str, source: &Source, target: &str, tail: &[u8]) -> Cubin {
    let key = Key::new(&toolchain(dir, version), source, target).unwrap();
    let provenance = serde_json::json!({
        "name": source.name(), "problem": source.problem(), "variant": source.variant(), "target": target,
        "toolchain": key.toolchain(), "source": source.digest().to_string(),
        "options": [&format!("--gpu-architecture={target}"), "--std=c++17", "--ptxas-options=-v"],
    });
    let disk = Disk::open(dir.join("made"));
    place(&disk, &key, &entry_from(&key, provenance, &image(tail)));
    let cubin = disk.get(&key).expect("an entry written as the format says is read");
    assert_eq!(Key::of(&cubin), key, "provenance tells the key");
    cubin
}

/// The pack with other bytes before its index, or another index, under digests that are right; not signed.
pub fn repacked(pack: &[u8], change: impl FnOnce(&mut Vec<u8>, &mut serde_json::Value)) -> Vec<u8> {
    let (body, index) = parts_of(pack);
    let (mut body, mut index) = (body.to_vec(), serde_json::from_slice(index).unwrap());
    change(&mut body, &mut index);
    for extent in index["kernels"].as_array_mut().into_iter().flatten() {
        seal(extent, &body);
    }
    ["tuning", "manifest"].iter().for_each(|section| seal(&mut index[section], &body));
    pack_of(&body, &serde_json::to_vec(&index).unwrap())
}

/// What comes before the index of a pack, and the index.
pub fn parts_of(pack: &[u8]) -> (&[u8], &[u8]) {
    let (rest, trailer) = pack.split_at(pack.len() - 128);
    rest.split_at(u64::from_le_bytes(trailer[..8].try_into().unwrap()) as usize)
}

/// A pack with this index, under a digest that is right; not signed.
pub fn pack_of(body: &[u8], index: &[u8]) -> Vec<u8> {
    let place = [body.len() as u64, index.len() as u64].map(u64::to_le_bytes).concat();
    [body, index, &place, blake3::hash(index).as_bytes(), &[0; 72], b"wspack1\n"].concat()
}

/// Gives an extent the digest of what is there, if anything can be.
fn seal(extent: &mut serde_json::Value, body: &[u8]) {
    let number = |field: &str| usize::try_from(extent.get(field)?.as_u64()?).ok();
    let range = number("at").zip(number("bytes")).and_then(|(at, bytes)| body.get(at..at.checked_add(bytes)?));
    if let Some(bytes) = range {
        extent["digest"] = blake3::hash(bytes).to_hex().as_str().into();
    }
}

/// A small problem of so many columns.
pub fn spec(n: u32, arch: &Arch) -> Spec {
    let problem = Problem::gemm().n(n).k(1024).a(Format::F16).b(Format::F16).c(Format::F16);
    Spec::new(&problem, &baseline(&problem), arch).unwrap()
}

/// A small kernel under the spec's name, so that these tests measure the caches and not the kernels.
pub fn render(spec: &Spec) -> Result<Source> {
    let (symbol, n) = (spec.symbol(), spec.problem().columns());
    let text = format!("extern \"C\" __global__ void {symbol}(int* x) {{ *x = {n}; }}\n");
    Ok(Source::new(spec.name(), text, &[], [symbol])
        .rendered_from(spec.problem().to_string(), spec.variant().to_string()))
}

pub fn place(disk: &Disk, key: &Key, bytes: &[u8]) {
    let path = disk.path_of(key).unwrap();
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap());
    made.unwrap();
    write(&path, bytes);
}

/// Makes `bytes` all that the file holds. In place, since some file systems wait for the disk where a file is emptied first.
pub fn write(path: &Path, bytes: &[u8]) {
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The log lines of this thread while `f` ran.
pub fn logged(f: impl FnOnce()) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, f);
    let bytes = lines.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

pub fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}
