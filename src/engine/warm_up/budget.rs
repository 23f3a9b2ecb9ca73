//! How many threads compile at a time.

use std::num::NonZero;
use std::thread;

use crate::host_memory::available;

/// Memory that one compile is taken to need, in bytes: five times what was measured with NVRTC 13.0 (some 90 MB for the
/// process with the library, and 15 to 25 MB for each compile that runs at a time), since that is for the compiler to
/// change.
pub(super) const COMPILE_BYTES: u64 = 128 << 20;

/// As many threads as are wanted (else one a core), as `memory` bytes (else half of what is available) have room for; at
/// least one.
pub(super) fn threads(wanted: Option<NonZero<usize>>, memory: Option<u64>) -> usize {
    let cores = || thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let wanted = wanted.unwrap_or_else(cores).get();
    match memory.or_else(|| available().map(|bytes| bytes / 2)) {
        Some(bytes) => within(wanted, bytes),
        None => wanted,
    }
}

fn within(wanted: usize, bytes: u64) -> usize {
    wanted.min(usize::try_from(bytes / COMPILE_BYTES).unwrap_or(usize::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_bounds_threads() {
        assert_eq!(within(16, 100 * COMPILE_BYTES), 16);
        assert_eq!(within(16, 3 * COMPILE_BYTES + 1), 3);
        assert_eq!(within(16, 0), 1);
        assert_eq!(threads(NonZero::new(3), Some(u64::MAX)), 3);
        assert!(threads(None, None) >= 1);
    }
}
