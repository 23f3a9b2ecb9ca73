//! One row of hardware numbers per architecture.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// CUDA compute capability, such as 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
/// [`Arch::of_device`], which takes sizes and clocks from the device itself.
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
    /// 0 where NVFP4 is not multiplied as it is.
    coded_tflops: u32,
}

/// A preset, and what tells how far a device is from it.
#[derive(Debug)]
struct Row {
    arch: Arch,
    /// What devices of it are called, in lower case and without spaces.
    called: &'static str,
    /// The target of machine code that later devices of the same major capability run, too.
    baseline: &'static str,
    /// The clock that its matrix rate is at, in MHz.
    clock_mhz: u32,
    /// What the driver's memory clock and bus width come to, in GB/s.
    bus_gb_per_s: u32,
}

/// What a device says of itself. A number of 0 is not known, and the preset's counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// What the driver calls it, such as `NVIDIA H200`.
    pub name: String,
    /// Its compute capability.
    pub capability: ComputeCapability,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Dynamic shared memory that a block may ask for, in bytes.
    pub shared_per_block: u32,
    /// Shared memory of an SM, in bytes.
    pub shared_per_sm: u32,
    /// Threads that an SM holds at a time.
    pub threads_per_sm: u32,
    /// Size of the L2 cache in bytes.
    pub l2_bytes: u64,
    /// The highest clock of the SMs in MHz.
    pub clock_mhz: u32,
    /// What the memory's clock and bus width come to, in GB/s.
    pub memory_gb_per_s: u32,
}

/// Registers of 32 bits in one SM; the same on every architecture from sm_80 on.
const REGISTERS_PER_SM: u32 = 65_536;
/// Registers that one thread can address.
const REGISTERS_PER_THREAD: u32 = 255;
/// Shared memory that the system keeps for itself per resident block, from sm_80 on
/// (CUDA C++ Programming Guide, compute capabilities 8.x and 9.0).
const SHARED_RESERVED_PER_BLOCK: u32 = 1024;
/// Blocks get shared memory in multiples of this.
const SHARED_UNIT: u32 = 128;

const KIB: u32 = 1024;
const MIB: u64 = 1024 * 1024;

/// Limits: CUDA C++ Programming Guide, "Compute Capabilities". Speeds: the vendor's datasheets (dense fp16 with fp32
/// accumulation), except h200, whose two are what a large copy and a large fp16 product reached on one
/// (4.3 TB/s, 790 TFLOP/s on random data). Of a compute capability the first is what an unknown device is taken for.
static ROWS: [Row; 13] = [
    Row::new("h200", "h200", (9, 0), ["sm_90a", "sm_90"], [132, 228, 2048, 60], [4300, 790], [1980, 4917]),
    Row::new("h100", "h100", (9, 0), ["sm_90a", "sm_90"], [132, 228, 2048, 50], [3350, 989], [1980, 3352]),
    Row::new("a100", "a100", (8, 0), ["sm_80", "sm_80"], [108, 164, 2048, 40], [2039, 312], [1410, 2039]),
    Row::new("rtx3090", "rtx3090", (8, 6), ["sm_86", "sm_86"], [82, 100, 1536, 6], [936, 71], [1695, 936]),
    Row::new("a10", "a10", (8, 6), ["sm_86", "sm_86"], [72, 100, 1536, 6], [600, 125], [1695, 600]),
    Row::new("orin", "orin", (8, 7), ["sm_87", "sm_87"], [16, 164, 1536, 4], [204, 42], [1300, 204]),
    Row::new("l40s", "l40s", (8, 9), ["sm_89", "sm_89"], [142, 100, 1536, 96], [864, 362], [2520, 864]),
    Row::new("rtx4090", "rtx4090", (8, 9), ["sm_89", "sm_89"], [128, 100, 1536, 72], [1008, 165], [2520, 1008]),
    Row::new("b200", "b200", (10, 0), ["sm_100a", "sm_100"], [148, 228, 2048, 126], [8000, 2250], [1965, 8184])
        .coded(9000),
    Row::new("b300", "b300", (10, 3), ["sm_103a", "sm_103"], [148, 228, 2048, 126], [8000, 2250], [1920, 8184])
        .coded(13_500),
    Row::new("thor", "thor", (11, 0), ["sm_110a", "sm_110"], [20, 228, 1536, 32], [273, 258], [1575, 273]),
    Row::new("rtx5090", "rtx5090", (12, 0), ["sm_120a", "sm_120"], [170, 100, 1536, 96], [1792, 209], [2407, 1792])
        .coded(1676),
    Row::new("spark", "gb10", (12, 1), ["sm_121a", "sm_121"], [48, 100, 1536, 24], [273, 62], [2418, 273]).coded(500),
];

/// For devices newer than every row.
const NEWER: &str = "compute_120";

/// A device's clock or memory counts as that of its row up to this share of a difference: then its row's figures, which are
/// measured or from a datasheet, are better than what they would be scaled to.
const ALIKE: f64 = 0.05;

impl Row {
    /// Targets of the row's own code, and of code that later devices run, too; SMs, KiB of shared memory and threads of an SM, MiB of L2; GB/s and TFLOP/s; MHz, and
    /// GB/s of the bus. A block may have all of an SM's shared memory but what the system keeps.
    const fn new(
        name: &'static str,
        called: &'static str,
        (major, minor): (u32, u32),
        [target, baseline]: [&'static str; 2],
        [sms, shared_kib, threads_per_sm, l2_mib]: [u32; 4],
        [memory_gb_per_s, matrix_tflops]: [u32; 2],
        [clock_mhz, bus_gb_per_s]: [u32; 2],
    ) -> Self {
        let shared_per_sm = shared_kib * KIB;
        let arch = Arch {
            name,
            capability: ComputeCapability { major, minor },
            target,
            sms,
            shared_per_block: shared_per_sm - SHARED_RESERVED_PER_BLOCK,
            shared_per_sm,
            threads_per_sm,
            l2_bytes: l2_mib as u64 * MIB,
            memory_gb_per_s,
            matrix_tflops,
            coded_tflops: 0,
        };
        Self { arch, called, baseline, clock_mhz, bus_gb_per_s }
    }

    /// With the dense rate of NVFP4 operands, of the vendor's datasheets.
    const fn coded(mut self, tflops: u32) -> Self {
        self.arch.coded_tflops = tflops;
        self
    }

    /// Whether a device's name tells that it is one of these.
    fn is_called(&self, device: &str) -> bool {
        device.to_ascii_lowercase().replace(' ', "").contains(self.called)
    }

    /// The row of a device: of its compute capability the one that its name tells, or the first; else the newest before it
    /// of the same major capability, whose plain machine code it runs; else the newest of all, as PTX for the driver to
    /// compile.
    fn of(facts: &DeviceFacts) -> Option<(&'static Row, &'static str)> {
        let capability = facts.capability;
        let same = || ROWS.iter().filter(|row| row.arch.capability == capability);
        if let Some(row) = same().find(|row| row.is_called(&facts.name)).or_else(|| same().next()) {
            return Some((row, row.arch.target));
        }
        let before = |row: &&Row| row.arch.capability < capability;
        let newest = |rows: &mut dyn Iterator<Item = &'static Row>| rows.max_by_key(|row| row.arch.capability);
        let kin = newest(&mut ROWS.iter().filter(before).filter(|row| row.arch.capability.major == capability.major));
        if let Some(row) = kin {
            return Some((row, row.baseline));
        }
        let last = newest(&mut ROWS.iter())?;
        (last.arch.capability < capability).then_some((last, NEWER))
    }
}

/// `figure`, scaled as `is` is to `was`, unless these are alike or not known.
fn scaled(figure: u32, is: f64, was: f64) -> u32 {
    let share = is / was;
    if figure > 0 && share > 0.0 && share.is_finite() && (share - 1.0).abs() > ALIKE {
        (f64::from(figure) * share).round().max(1.0) as u32
    } else {
        figure
    }
}

impl DeviceFacts {
    /// What a device that is exactly a preset would say.
    #[must_use]
    pub fn of_preset(arch: &Arch) -> Self {
        let row = ROWS.iter().find(|row| row.arch.name == arch.name);
        Self {
            name: row.map_or(arch.name, |row| row.called).to_owned(),
            capability: arch.capability,
            sms: arch.sms,
            shared_per_block: arch.shared_per_block,
            shared_per_sm: arch.shared_per_sm,
            threads_per_sm: arch.threads_per_sm,
            l2_bytes: arch.l2_bytes,
            clock_mhz: row.map_or(0, |row| row.clock_mhz),
            memory_gb_per_s: row.map_or(0, |row| row.bus_gb_per_s),
        }
    }
}

impl Arch {
    /// Every preset.
    pub const ALL: &'static [Arch] = &[
        ROWS[0].arch,
        ROWS[1].arch,
        ROWS[2].arch,
        ROWS[3].arch,
        ROWS[4].arch,
        ROWS[5].arch,
        ROWS[6].arch,
        ROWS[7].arch,
        ROWS[8].arch,
        ROWS[9].arch,
        ROWS[10].arch,
        ROWS[11].arch,
        ROWS[12].arch,
    ];

    /// The preset for H200.
    pub const H200: Arch = ROWS[0].arch;
    /// The preset for H100 (SXM).
    pub const H100: Arch = ROWS[1].arch;
    /// The preset for A100 (SXM, 80 GB).
    pub const A100: Arch = ROWS[2].arch;
    /// The preset for GeForce RTX 3090.
    pub const RTX3090: Arch = ROWS[3].arch;
    /// The preset for A10.
    pub const A10: Arch = ROWS[4].arch;
    /// The preset for Jetson AGX Orin (64 GB).
    pub const ORIN: Arch = ROWS[5].arch;
    /// The preset for L40S.
    pub const L40S: Arch = ROWS[6].arch;
    /// The preset for GeForce RTX 4090.
    pub const RTX4090: Arch = ROWS[7].arch;
    /// The preset for B200.
    pub const B200: Arch = ROWS[8].arch;
    /// The preset for B300.
    pub const B300: Arch = ROWS[9].arch;
    /// The preset for Jetson AGX Thor.
    pub const THOR: Arch = ROWS[10].arch;
    /// The preset for GeForce RTX 5090.
    pub const RTX5090: Arch = ROWS[11].arch;
    /// The preset for DGX Spark (GB10).
    pub const SPARK: Arch = ROWS[12].arch;

    /// The row for a device: the preset of its compute capability whose name the device's name contains, else the first,
    /// with the device's own sizes, and speeds scaled as its clocks are. A device that is newer than all presets of its
    /// major capability has the newest of these, and plain machine code; one of a newer major capability has the newest of
    /// all, and PTX.
    ///
    /// # Errors
    /// Unsupported, if its compute capability is below 8.0.
    pub fn of_device(facts: &DeviceFacts) -> Result<Arch> {
        let (row, target) = Row::of(facts).ok_or_else(|| {
            let (name, capability) = (&facts.name, facts.capability);
            Error::unsupported(format!("{name} has compute capability {capability}: 8.0 or newer is needed"))
        })?;
        let or = |own: u32, preset: u32| if own == 0 { preset } else { own };
        let arch = &row.arch;
        let sms = or(facts.sms, arch.sms);
        let rate = |sms: u32, mhz: u32| f64::from(sms) * f64::from(mhz);
        let is = rate(sms, or(facts.clock_mhz, row.clock_mhz));
        Ok(Arch {
            capability: facts.capability,
            target,
            sms,
            shared_per_block: or(facts.shared_per_block, arch.shared_per_block),
            shared_per_sm: or(facts.shared_per_sm, arch.shared_per_sm),
            threads_per_sm: or(facts.threads_per_sm, arch.threads_per_sm),
            l2_bytes: if facts.l2_bytes == 0 { arch.l2_bytes } else { facts.l2_bytes },
            memory_gb_per_s: scaled(arch.memory_gb_per_s, facts.memory_gb_per_s.into(), row.bus_gb_per_s.into()),
            matrix_tflops: scaled(arch.matrix_tflops, is, rate(arch.sms, row.clock_mhz)),
            coded_tflops: scaled(arch.coded_tflops, is, rate(arch.sms, row.clock_mhz)),
            ..*arch
        })
    }

    /// A device of which a name and SMs are all that is known: one of the presets for `target`, if the name tells which.
    pub(crate) fn of_name(device: &str, sms: u32, target: &str) -> Option<Arch> {
        let row = ROWS.iter().find(|row| row.arch.target == target && row.is_called(device))?;
        let facts = DeviceFacts { name: device.to_owned(), sms, ..DeviceFacts::of_preset(&row.arch) };
        Self::of_device(&facts).ok()
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

    /// What NVRTC compiles for, such as `sm_90a`; PTX, such as `compute_120`, for a device newer than every preset.
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
    #[inline]
    pub fn registers_per_thread(&self, threads: u32) -> u32 {
        // Each of the four schedulers has a quarter of them and of the warps; warps get units of 256, so 8 per thread.
        let warps = threads.max(1).div_ceil(32).next_multiple_of(4);
        (REGISTERS_PER_SM / 32 / warps / 8 * 8).min(REGISTERS_PER_THREAD)
    }

    /// Blocks of this size that one SM holds at a time.
    #[must_use]
    #[inline]
    pub fn blocks_per_sm(&self, threads: u32, shared_bytes: u32, registers: u32) -> u32 {
        let by_threads = self.threads_per_sm / threads.max(1);
        let by_shared = self.shared_per_sm / shared_bytes.saturating_add(SHARED_RESERVED_PER_BLOCK);
        let by_registers = REGISTERS_PER_SM / threads.saturating_mul(registers.div_ceil(8).saturating_mul(8)).max(1);
        by_threads.min(by_shared).min(by_registers)
    }

    /// Shared memory that each of so many blocks of an SM may have, in bytes.
    #[must_use]
    pub(crate) fn shared_for_blocks(&self, blocks: u32) -> u32 {
        (self.shared_per_sm / blocks.max(1)).saturating_sub(SHARED_RESERVED_PER_BLOCK)
    }

    /// Dynamic shared memory of a block with which an SM holds so many of them and not one more, in bytes.
    #[must_use]
    pub(crate) fn shared_to_keep(&self, blocks: u32) -> u32 {
        let each = self.shared_per_sm / (blocks + 1) + 1;
        each.next_multiple_of(SHARED_UNIT).saturating_sub(SHARED_RESERVED_PER_BLOCK)
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

    /// The same where both operands are NVFP4 and are multiplied as they are; that of fp16 where nothing does that.
    #[must_use]
    pub fn coded_flop_per_s(&self) -> f64 {
        if self.coded_tflops == 0 { self.matrix_flop_per_s() } else { f64::from(self.coded_tflops) * 1e12 }
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
        Self::ALL.iter().find(|arch| arch.name == text).copied().ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|arch| arch.name).collect();
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

    fn device(name: &str, (major, minor): (u32, u32)) -> DeviceFacts {
        let capability = ComputeCapability { major, minor };
        DeviceFacts { name: name.to_owned(), capability, clock_mhz: 0, memory_gb_per_s: 0, ..facts(&Arch::H200) }
    }

    fn facts(arch: &Arch) -> DeviceFacts {
        DeviceFacts::of_preset(arch)
    }

    #[test]
    fn a_preset_is_its_own_device() {
        for arch in Arch::ALL {
            assert_eq!(Arch::of_device(&facts(arch)).unwrap(), *arch);
            let little = DeviceFacts { clock_mhz: facts(arch).clock_mhz + 20, ..facts(arch) };
            assert_eq!(Arch::of_device(&little).unwrap(), *arch);
        }
    }

    #[test]
    fn a_device_is_taken_by_name_and_keeps_its_own_size() {
        let arch =
            Arch::of_device(&DeviceFacts { sms: 114, l2_bytes: 50 << 20, ..device("NVIDIA H200", (9, 0)) }).unwrap();
        assert_eq!((arch.name(), arch.sms(), arch.target(), arch.l2_bytes()), ("h200", 114, "sm_90a", 50 << 20));
        assert_eq!(arch.matrix_flop_per_s(), 682e12);
        let named = [
            ("NVIDIA H100 PCIe", (9, 0), "h100"),
            ("NVIDIA A100-SXM4-80GB", (8, 0), "a100"),
            ("NVIDIA A10G", (8, 6), "a10"),
            ("NVIDIA RTX A6000", (8, 6), "rtx3090"),
            ("Orin", (8, 7), "orin"),
            ("NVIDIA GeForce RTX 4090", (8, 9), "rtx4090"),
            ("NVIDIA L4", (8, 9), "l40s"),
            ("NVIDIA GB200", (10, 0), "b200"),
            ("NVIDIA B300 SXM6 AC", (10, 3), "b300"),
            ("NVIDIA Thor", (11, 0), "thor"),
            ("NVIDIA RTX PRO 6000 Blackwell", (12, 0), "rtx5090"),
            ("NVIDIA GB10", (12, 1), "spark"),
        ];
        for (name, capability, preset) in named {
            assert_eq!(Arch::of_device(&device(name, capability)).unwrap().name(), preset, "{name}");
        }
    }

    #[test]
    fn speeds_follow_clocks_that_differ() {
        let pcie =
            DeviceFacts { sms: 114, clock_mhz: 1755, memory_gb_per_s: 2039, ..device("NVIDIA H100 PCIe", (9, 0)) };
        let arch = Arch::of_device(&pcie).unwrap();
        assert_eq!((arch.memory_bytes_per_s(), arch.matrix_flop_per_s()), (2038e9, 757e12));
        // Of a GB10 the driver does not know the memory's clock.
        let spark = Arch::of_device(&DeviceFacts { memory_gb_per_s: 0, ..facts(&Arch::SPARK) }).unwrap();
        assert_eq!(spark.memory_bytes_per_s(), 273e9);
    }

    #[test]
    fn a_newer_device_falls_back_and_an_older_one_is_refused() {
        let of =
            |capability| Arch::of_device(&device("NVIDIA New", capability)).map(|arch| (arch.name(), arch.target()));
        assert_eq!(of((8, 8)).unwrap(), ("orin", "sm_87"));
        assert_eq!(of((9, 5)).unwrap().1, "sm_90");
        assert_eq!(of((10, 1)).unwrap(), ("b200", "sm_100"));
        assert_eq!(of((10, 7)).unwrap(), ("b300", "sm_103"));
        assert_eq!(of((11, 1)).unwrap(), ("thor", "sm_110"));
        assert_eq!(of((12, 9)).unwrap(), ("spark", "sm_121"));
        assert_eq!(of((13, 0)).unwrap(), ("spark", "compute_120"));
        for capability in [(7, 5), (5, 0)] {
            let error = of(capability).unwrap_err();
            assert!(error.is_unsupported() && error.to_string().contains("8.0 or newer"), "{error}");
        }
    }

    #[test]
    fn registers_follow_the_block() {
        assert_eq!(Arch::H200.registers_per_thread(128), 255);
        assert_eq!(Arch::H200.registers_per_thread(256), 255);
        assert_eq!(Arch::H200.registers_per_thread(512), 128);
        assert_eq!(Arch::H200.registers_per_thread(320), 168);
        assert_eq!(Arch::H200.blocks_per_sm(256, 100 * 1024, 128), 2);
        // What no block has is no number that wraps.
        assert_eq!(Arch::H200.registers_per_thread(u32::MAX), 0);
        for [threads, shared_bytes, registers] in
            [[u32::MAX, 0, 32], [1 << 29, 0, 8], [128, 0, u32::MAX], [128, u32::MAX, 32]]
        {
            assert_eq!(Arch::H200.blocks_per_sm(threads, shared_bytes, registers), 0, "{threads} {registers}");
        }
    }
}
