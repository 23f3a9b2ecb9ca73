//! Results on the host, in memory that had others before: new pages take longer than what is copied there.

use std::fmt;
use std::mem;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaSlice, CudaStream};

use super::set::refused;
use warpsmith::Result;

/// Results that are on the host at a time: two are compared.
const KEPT: usize = 2;

/// Memory that nobody uses any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Spare(Arc<Mutex<Vec<Vec<u8>>>>);

impl Spare {
    /// So many bytes of whatever was there before.
    fn take(&self, bytes: usize) -> Vec<u8> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let mut memory = if spare.capacity() < bytes { vec![0; bytes] } else { spare };
        memory.resize(bytes, 0);
        memory
    }

    fn give(&self, memory: Vec<u8>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < KEPT {
            all.push(memory);
        }
    }

    /// Copies it when the stream has come so far; whoever reads it waits for the stream first.
    pub(super) fn fetch(&self, stream: &Arc<CudaStream>, from: &CudaSlice<u8>) -> Result<Fetched> {
        let mut bytes = self.take(from.len());
        stream.memcpy_dtoh(from, &mut bytes).map_err(refused)?;
        Ok(Fetched { bytes, spare: self.clone() })
    }
}

/// A result, whose memory another may have when it is dropped.
pub(super) struct Fetched {
    bytes: Vec<u8>,
    spare: Spare,
}

impl Deref for Fetched {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        self.spare.give(mem::take(&mut self.bytes));
    }
}

impl fmt::Debug for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_not_hoarded() {
        let spare = Spare::default();
        let fetched = |bytes| Fetched { bytes: spare.take(bytes), spare: spare.clone() };
        let (first, second, third) = (fetched(1000), fetched(1000), fetched(1000));
        let at = first.as_ptr();
        drop(first);
        let again = fetched(900);
        assert_eq!((again.as_ptr(), again.len()), (at, 900));
        drop((again, second, third));
        assert_eq!(spare.0.lock().unwrap().len(), KEPT);
        assert_eq!(fetched(5000).len(), 5000);
    }
}
