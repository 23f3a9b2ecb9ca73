//! Fixtures: checkpoints that others have written, with what their own code gives.
#![allow(clippy::unwrap_used, dead_code)] // helpers outside `#[test]` functions; each test has some

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor, safetensors};
use warpsmith_candle::warpsmith_checkpoint::Checkpoint;

/// All folders that have results.
pub fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../warpsmith-checkpoint/tests/fixtures");
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = all.filter(|path| path.join("io.safetensors").is_file()).collect();
    all.sort();
    assert!(all.len() >= 20, "{all:?}");
    all
}

/// One of them.
pub fn fixture(name: &str) -> Fixture {
    Fixture::read(&fixtures().into_iter().find(|path| path.ends_with(name)).unwrap())
}

pub struct Fixture {
    pub name: String,
    pub checkpoint: Checkpoint,
    pub io: HashMap<String, Tensor>,
}

impl Fixture {
    pub fn read(folder: &Path) -> Self {
        // SAFETY: nobody changes the fixtures.
        let checkpoint = unsafe { Checkpoint::map(folder).unwrap() };
        let io = safetensors::load(folder.join("io.safetensors"), &Device::Cpu).unwrap();
        Self { name: folder.file_name().unwrap().to_string_lossy().into_owned(), checkpoint, io }
    }

    /// The modules whose results are known.
    pub fn modules(&self) -> Vec<String> {
        let mut all: Vec<_> = self.io.keys().filter_map(|name| name.strip_suffix("/y")).map(str::to_owned).collect();
        all.sort();
        all
    }

    pub fn tensor(&self, module: &str, name: &str) -> Tensor {
        self.io[&format!("{module}/{name}")].clone()
    }
}

pub fn doubles(of: &Tensor) -> Vec<f64> {
    of.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// How far it is off at most, in halves of the type's last place; what is small has that of a 256th of the largest.
pub fn off(found: &Tensor, expected: &Tensor) -> f64 {
    worst(found, expected, 1.0 / 256.0)
}

/// The same, where all have the last place of the largest.
pub fn off_of_largest(found: &Tensor, expected: &Tensor) -> f64 {
    worst(found, expected, 1.0)
}

fn worst(found: &Tensor, expected: &Tensor, least: f64) -> f64 {
    let half = if found.dtype() == DType::F16 { (-12f64).exp2() } else { (-9f64).exp2() };
    let (found, expected) = (doubles(found), doubles(expected));
    assert_eq!(found.len(), expected.len());
    let size = expected.iter().fold(0.0, |size: f64, y| size.max(y.abs()));
    let place = |y: f64| 2.0 * half * y.abs().max(size * least).max(f64::MIN_POSITIVE).log2().floor().exp2();
    let each = found.iter().zip(&expected).map(|(a, b)| (a - b).abs() / place(*b));
    each.fold(0.0, |worst, off| if off > worst || off.is_nan() { off } else { worst })
}
