//! One row of hardware numbers per architecture.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// CUDA compute capability, such as 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeCapability {
    /// The part before the point.
    pub major: u32,
    /// The part behind the point.
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What a kernel may count on: limits of the architecture, size and speed of the device.
///
/// Presets let everything before the launch work without a device. On a device the row comes from
/// [`Arch::of_device`], which takes the SM count from the device itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arch {
    name: &'static str,
    capability: ComputeCapability,
    target: &'static str,
    sms: u32,
    shared_per_block: u32,
    shared_per_sm: u32,
    threads_per_sm: u32,
    l2_bytes: u64,
    memory_gb_per_s: u32,
    matrix_tflops: u32,
}

/// Registers of 32 bits in one SM; the same on every architecture from sm_80 on.
const REGISTERS_PER_SM: u32 = 65_536;
/// Registers that one thread can address.
const REGISTERS_PER_THREAD: u32 = 255;
/// Shared memory that the system keeps for itself per resident block, from sm_80 on
/// (CUDA C++ Programming Guide, compute capabilities 8.x and 9.0).
const SHARED_RESERVED_PER_BLOCK: u32 = 1024;

const fn capability(major: u32, minor: u32) -> ComputeCapability {
    ComputeCapability { major, minor }
}

const KIB: u32 = 1024;
const MIB: u64 = 1024 * 1024;

/// Limits: CUDA C++ Programming Guide, "Compute Capabilities". Speeds: the vendor's datasheets (dense fp16 with fp32
/// accumulation), except h200, whose two are what a large copy and a large fp16 product reached on one
/// (4.3 TB/s, 790 TFLOP/s on random data).
const PRESETS: [Arch; 6] = [
    Arch {
        name: "h200",
        capability: capability(9, 0),
        target: "sm_90a",
        sms: 132,
        shared_per_block: 227 * KIB,
        shared_per_sm: 228 * KIB,
        threads_per_sm: 2048,
        l2_bytes: 60 * MIB,
        memory_gb_per_s: 4300,
        matrix_tflops: 790,
    },
    Arch {
        name: "h100",
        capability: capability(9, 0),
        target: "sm_90a",
        sms: 132,
        shared_per_block: 227 * KIB,
        shared_per_sm: 228 * KIB,
        threads_per_sm: 2048,
        l2_bytes: 50 * MIB,
        memory_gb_per_s: 3350,
        matrix_tflops: 989,
    },
    Arch {
        name: "a100",
        capability: capability(8, 0),
        target: "sm_80",
        sms: 108,
        shared_per_block: 163 * KIB,
        shared_per_sm: 164 * KIB,
        threads_per_sm: 2048,
        l2_bytes: 40 * MIB,
        memory_gb_per_s: 2039,
        matrix_tflops: 312,
    },
    Arch {
        name: "l40s",
        capability: capability(8, 9),
        target: "sm_89",
        sms: 142,
        shared_per_block: 99 * KIB,
        shared_per_sm: 100 * KIB,
        threads_per_sm: 1536,
        l2_bytes: 96 * MIB,
        memory_gb_per_s: 864,
        matrix_tflops: 362,
    },
    Arch {
        name: "b200",
        capability: capability(10, 0),
        target: "sm_100a",
        sms: 148,
        shared_per_block: 227 * KIB,
        shared_per_sm: 228 * KIB,
        threads_per_sm: 2048,
        l2_bytes: 126 * MIB,
        memory_gb_per_s: 8000,
        matrix_tflops: 2250,
    },
    Arch {
        name: "rtx5090",
        capability: capability(12, 0),
        target: "sm_120a",
        sms: 170,
        shared_per_block: 99 * KIB,
        shared_per_sm: 100 * KIB,
        threads_per_sm: 1536,
        l2_bytes: 96 * MIB,
        memory_gb_per_s: 1792,
        matrix_tflops: 209,
    },
];

impl Arch {
    /// Every preset.
    pub const ALL: &'static [Arch] = &PRESETS;

    /// The preset for H200.
    pub const H200: Arch = PRESETS[0];
    /// The preset for H100 (SXM).
    pub const H100: Arch = PRESETS[1];
    /// The preset for A100 (SXM, 80 GB).
    pub const A100: Arch = PRESETS[2];
    /// The preset for L40S.
    pub const L40S: Arch = PRESETS[3];
    /// The preset for B200.
    pub const B200: Arch = PRESETS[4];
    /// The preset for GeForce RTX 5090.
    pub const RTX5090: Arch = PRESETS[5];

    /// The row for a device: the preset whose name the device's name contains, else the first of its compute
    /// capability, with the device's own SM count, shared memory per block and L2 size.
    ///
    /// # Errors
    /// Unsupported, if no preset has the device's compute capability.
    pub fn of_device(
        device_name: &str,
        capability: ComputeCapability,
        sms: u32,
        shared_per_block: u32,
        l2_bytes: u64,
    ) -> Result<Arch> {
        let plain = device_name.to_ascii_lowercase().replace(' ', "");
        let same = || PRESETS.iter().filter(|arch| arch.capability == capability);
        let row = same().find(|arch| plain.contains(arch.name)).or_else(|| same().next()).ok_or_else(|| {
            let known: Vec<_> = PRESETS.iter().map(|arch| arch.capability.to_string()).collect();
            Error::unsupported(format!(
                "{device_name} has compute capability {capability}; known are {}",
                known.join(", ")
            ))
        })?;
        Ok(Arch { sms, shared_per_block, l2_bytes, ..*row })
    }

    /// The preset's name, which is also its spelling.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Compute capability.
    #[must_use]
    pub fn capability(&self) -> ComputeCapability {
        self.capability
    }

    /// What NVRTC compiles for, such as `sm_90a`.
    #[must_use]
    pub fn target(&self) -> &'static str {
        self.target
    }

    /// Streaming multiprocessors of the device.
    #[must_use]
    pub fn sms(&self) -> u32 {
        self.sms
    }

    /// Dynamic shared memory that one block may ask for, in bytes.
    #[must_use]
    pub fn shared_per_block(&self) -> u32 {
        self.shared_per_block
    }

    /// Threads that one SM holds at a time.
    #[must_use]
    pub fn threads_per_sm(&self) -> u32 {
        self.threads_per_sm
    }

    /// Registers that one thread may use in a block of `threads` threads.
    #[must_use]
    pub fn registers_per_thread(&self, threads: u32) -> u32 {
        // Each of the four schedulers has a quarter of them and of the warps; warps get units of 256, so 8 per thread.
        let warps = threads.max(1).div_ceil(32).next_multiple_of(4);
        (REGISTERS_PER_SM / (32 * warps) / 8 * 8).min(REGISTERS_PER_THREAD)
    }

    /// Blocks of this size that one SM holds at a time.
    #[must_use]
    pub fn blocks_per_sm(&self, threads: u32, shared_bytes: u32, registers: u32) -> u32 {
        let by_threads = self.threads_per_sm / threads.max(1);
        let by_shared = self.shared_per_sm / shared_bytes.saturating_add(SHARED_RESERVED_PER_BLOCK);
        let by_registers = REGISTERS_PER_SM / (threads * registers.div_ceil(8) * 8).max(1);
        by_threads.min(by_shared).min(by_registers)
    }

    /// Shared memory that each of so many blocks of an SM may have, in bytes.
    #[must_use]
    pub(crate) fn shared_for_blocks(&self, blocks: u32) -> u32 {
        (self.shared_per_sm / blocks.max(1)).saturating_sub(SHARED_RESERVED_PER_BLOCK)
    }

    /// Size of the L2 cache in bytes.
    #[must_use]
    pub fn l2_bytes(&self) -> u64 {
        self.l2_bytes
    }

    /// Device memory bandwidth in bytes per second.
    #[must_use]
    pub fn memory_bytes_per_s(&self) -> f64 {
        f64::from(self.memory_gb_per_s) * 1e9
    }

    /// Dense fp16 matrix rate with fp32 accumulation in FLOP per second.
    #[must_use]
    pub fn matrix_flop_per_s(&self) -> f64 {
        f64::from(self.matrix_tflops) * 1e12
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl FromStr for Arch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        PRESETS.iter().find(|arch| arch.name == text).copied().ok_or_else(|| {
            let known: Vec<_> = PRESETS.iter().map(|arch| arch.name).collect();
            Error::parse(format!("unknown architecture `{text}`: expected {}", known.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_parses_back() {
        for arch in Arch::ALL {
            assert_eq!(arch.to_string().parse::<Arch>().unwrap(), *arch);
        }
        assert!("h300".parse::<Arch>().unwrap_err().to_string().contains("h200"));
    }

    #[test]
    fn a_device_keeps_its_own_size() {
        let arch = Arch::of_device("NVIDIA H200", capability(9, 0), 114, 232_448, 50 << 20).unwrap();
        assert_eq!((arch.name(), arch.sms(), arch.target()), ("h200", 114, "sm_90a"));
        let pcie = Arch::of_device("NVIDIA H100 PCIe", capability(9, 0), 114, 232_448, 50 << 20).unwrap();
        assert_eq!(pcie.name(), "h100");
        let turing = Arch::of_device("Tesla T4", capability(7, 5), 40, 65_536, 4 << 20).unwrap_err();
        assert!(turing.is_unsupported() && turing.to_string().contains("7.5"), "{turing}");
    }

    #[test]
    fn registers_follow_the_block() {
        assert_eq!(Arch::H200.registers_per_thread(128), 255);
        assert_eq!(Arch::H200.registers_per_thread(256), 255);
        assert_eq!(Arch::H200.registers_per_thread(512), 128);
        assert_eq!(Arch::H200.registers_per_thread(320), 168);
        assert_eq!(Arch::H200.blocks_per_sm(256, 100 * 1024, 128), 2);
    }
}
