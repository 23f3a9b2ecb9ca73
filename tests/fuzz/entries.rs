//! An entry on disk that has changed is a miss; under a digest that is right, it still is no wild pointer.

use rand::Rng;
use warpsmith::build::{Cubin, Resources};
use warpsmith::cache::Disk;
use warpsmith::internal::cache::Key;

use super::elf;
use warpsmith_testing::cubins::{entry_of, entry_with, image, key, place, sealed, write};
use warpsmith_testing::fuzz::{run, within};
use warpsmith_testing::mutate::mutate;

/// What looking an entry up may take beyond some times the entry's size: paths and what is logged.
const BESIDE: usize = 64 << 10;
const DIGEST: usize = 32;

/// A cache with one entry.
struct Bench {
    disk: Disk,
    key: Key,
    entry: Vec<u8>,
    _temp: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (disk, key) = (Disk::open(temp.path().join("cubins")), key(temp.path(), "text"));
        let entry = entry_of(&key, &[7; 100]);
        place(&disk, &key, &entry);
        Self { disk, key, entry, _temp: temp }
    }

    /// What is served where these bytes are the entry's.
    fn served(&self, bytes: &[u8]) -> Option<Cubin> {
        write(&self.disk.path_of(&self.key).unwrap(), bytes);
        within(16 * bytes.len() + BESIDE, || self.disk.get(&self.key))
    }
}

#[test]
fn what_is_damaged_is_a_miss() {
    let bench = Bench::new();
    let whole = bench.served(&bench.entry).unwrap();
    run("damaged entries", |rng| {
        let mut bytes = bench.entry.clone();
        mutate(rng, &mut bytes);
        assert_eq!(bench.served(&bytes), (bytes == bench.entry).then(|| whole.clone()));
    });
}

/// Nobody is stopped who can write to the directory, but the driver is given images that say nothing wrong of their size.
#[test]
fn what_is_forged_is_machine_code_or_a_miss() {
    let bench = Bench::new();
    let mut served = 0;
    run("forged entries", |rng| {
        let entry = if rng.random() {
            let mut image = image(b"tail");
            mutate(rng, &mut image);
            entry_with(&bench.key, &image)
        } else {
            let mut body = bench.entry[..bench.entry.len() - DIGEST].to_vec();
            mutate(rng, &mut body);
            sealed(&body)
        };
        let Some(cubin) = bench.served(&entry) else { return };
        served += 1;
        assert_sound(&cubin);
    });
    assert!(served > 0, "not one mutant in a place that does not matter");
}

/// What a driver is given states no size that is wrong, and has the kernels that are asked of it.
pub fn assert_sound(cubin: &Cubin) {
    let kernels = elf::kernels(cubin.image()).expect("a driver would read beyond the image");
    let promised: Vec<_> = cubin.resources().iter().map(Resources::entry).collect();
    assert!(!promised.is_empty() && promised.iter().all(|entry| kernels.iter().any(|kernel| kernel == entry)));
    let from = cubin.provenance();
    let names = [from.name(), from.problem(), from.variant(), from.target(), from.toolchain(), from.source()];
    assert!(!names.iter().chain(&promised).any(|name| name.contains(char::is_control)), "{names:?} {promised:?}");
}
