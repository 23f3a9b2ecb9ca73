//! Changes bytes as accidents do, and as those who know what numbers matter.

use rand::Rng;
use rand::rngs::SmallRng;

/// Numbers that sizes and offsets break at.
const EDGES: [u64; 12] =
    [0, 1, 2, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 1 << 40, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];

/// Changes `bytes` in one to four places.
pub fn mutate(rng: &mut SmallRng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..=4) {
        once(rng, bytes);
    }
}

fn once(rng: &mut SmallRng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        bytes.push(rng.random());
        return;
    }
    let at = rng.random_range(0..bytes.len());
    let end = at + rng.random_range(1..=64.min(bytes.len() - at));
    match rng.random_range(0..9) {
        0 => bytes[at] ^= 1 << rng.random_range(0..8),
        1 => bytes[at] = rng.random(),
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..end)),
        4 => bytes.insert(at, rng.random()),
        5 => {
            let again = bytes[at..end].to_vec();
            let to = rng.random_range(0..=bytes.len());
            bytes.splice(to..to, again);
        }
        6 => {
            let to = rng.random_range(0..=bytes.len() - (end - at));
            bytes.copy_within(at..end, to);
        }
        7 => bytes[at..end].fill(rng.random()),
        _ => {
            let edge = EDGES[rng.random_range(0..EDGES.len())].to_le_bytes();
            let width = [1, 2, 4, 8][rng.random_range(0..4)].min(bytes.len() - at);
            bytes[at..at + width].copy_from_slice(&edge[..width]);
        }
    }
}
