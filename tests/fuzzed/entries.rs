//! An entry on disk that accidents have changed is a miss.

use warpsmith::cache::Disk;

use super::driver::{run, within};
use super::mutate::mutate;
use crate::cache_shared::{entry_of, key, place, write};

/// What looking an entry up may take beyond the entry's size: paths and what is logged.
const BESIDE: usize = 64 << 10;

#[test]
fn what_is_damaged_is_a_miss() {
    let temp = tempfile::tempdir().unwrap();
    let (disk, key) = (Disk::open(temp.path().join("cubins")), key(temp.path(), "text"));
    let entry = entry_of(&key, &(0..200).collect::<Vec<u8>>());
    place(&disk, &key, &entry);
    let (path, whole) = (disk.path_of(&key).unwrap(), disk.get(&key).unwrap());
    run("entries", |rng| {
        let mut bytes = entry.clone();
        mutate(rng, &mut bytes);
        write(&path, &bytes);
        let served = within(16 * bytes.len() + BESIDE, || disk.get(&key));
        assert_eq!(served, (bytes == entry).then(|| whole.clone()));
    });
}
