//! What a kernel uses of a multiprocessor.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Resource use of one kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    pub(super) entry: String,
    pub(super) registers: u32,
    pub(super) local_bytes: u32,
    pub(super) static_shared_bytes: u32,
    pub(super) max_threads: Option<u32>,
    pub(super) code_bytes: u32,
    pub(super) spills: Option<Spills>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spills {
    pub(super) store_bytes: u32,
    pub(super) load_bytes: u32,
}

impl Resources {
    /// The kernel's symbol.
    #[must_use]
    pub fn entry(&self) -> &str {
        &self.entry
    }

    /// Registers of a thread at launch.
    #[must_use]
    pub fn registers(&self) -> u32 {
        self.registers
    }

    /// Bytes of local memory (the stack frame) of a thread.
    #[must_use]
    pub fn local_bytes(&self) -> u32 {
        self.local_bytes
    }

    /// Bytes of static shared memory of a block, without what the system reserves.
    #[must_use]
    pub fn static_shared_bytes(&self) -> u32 {
        self.static_shared_bytes
    }

    /// The largest block, if the source states one (`__launch_bounds__`).
    #[must_use]
    pub fn max_threads(&self) -> Option<u32> {
        self.max_threads
    }

    /// Bytes of machine code.
    #[must_use]
    pub fn code_bytes(&self) -> u32 {
        self.code_bytes
    }

    /// Bytes of spill stores in the code; none if the compiler did not say.
    #[must_use]
    pub fn spill_store_bytes(&self) -> Option<u32> {
        self.spills.map(|spills| spills.store_bytes)
    }

    /// Bytes of spill loads in the code; none if the compiler did not say.
    #[must_use]
    pub fn spill_load_bytes(&self) -> Option<u32> {
        self.spills.map(|spills| spills.load_bytes)
    }

    /// Bytes of both; none if the compiler did not say. No more than a number holds: an entry of a cache says what it likes.
    #[must_use]
    pub fn spill_bytes(&self) -> Option<u32> {
        self.spills.map(|spills| spills.store_bytes.saturating_add(spills.load_bytes))
    }

    /// Whether registers are spilled; assumed of a kernel that has a stack frame and no report.
    #[must_use]
    pub fn has_spills(&self) -> bool {
        self.spills.map_or(self.local_bytes > 0, |spills| spills.store_bytes > 0 || spills.load_bytes > 0)
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} registers, ", self.entry, self.registers)?;
        match self.spills {
            Some(Spills { store_bytes, load_bytes }) => write!(f, "spills {store_bytes}+{load_bytes} B, ")?,
            None => f.write_str("spills unknown, ")?,
        }
        write!(f, "local {} B, static shared {} B, ", self.local_bytes, self.static_shared_bytes)?;
        if let Some(threads) = self.max_threads {
            write!(f, "at most {threads} threads, ")?;
        }
        write!(f, "code {} B", self.code_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_tells_all() {
        let spills = Some(Spills { store_bytes: 0, load_bytes: 0 });
        let (entry, registers) = ("k".to_owned(), 168);
        let some = Resources {
            entry,
            registers,
            local_bytes: 0,
            static_shared_bytes: 64,
            max_threads: Some(256),
            code_bytes: 512,
            spills,
        };
        assert_eq!(
            some.to_string(),
            "k: 168 registers, spills 0+0 B, local 0 B, static shared 64 B, at most 256 threads, code 512 B"
        );
        assert!(!some.has_spills());
    }
}
