//! Reads [`Resources`] from machine code.
//!
//! Registers, stack, shared memory and code size are in the cubin's ELF sections; only the spilled bytes are not, they
//! come from the assembler's report (`--ptxas-options=-v`). The section format is not documented; what is read here was
//! checked against the report for releases 12.9, 13.0 and 13.5 and targets from sm_80 to sm_120a.

use std::collections::BTreeMap;

use object::{Object, ObjectSection, ObjectSymbol};

use super::image;
use super::resources::{Resources, Spills};
use crate::{Error, Result};

/// Attributes of `.nv.info` sections, by the names that NVIDIA's tools print.
const EIATTR_MAX_THREADS: u8 = 0x05;
const EIATTR_FRAME_SIZE: u8 = 0x11;
const EIATTR_REGCOUNT: u8 = 0x2f;
/// The format byte of an attribute whose value has a length; all others are four bytes in all.
const EIFMT_SVAL: u8 = 0x04;
/// From sm_90 on the system keeps this much of every block's shared memory, and counts it in the kernel's section.
const RESERVED_SHARED_BYTES: u64 = 1024;

/// Resources of every kernel in a cubin, by name, with the spills that its compile log reports.
pub(super) fn of_image(image: &[u8], log: &str) -> Result<Vec<Resources>> {
    let broken = |what: &str| Error::internal(format!("the cubin is not as expected: {what}"));
    let elf = image::parse(image).map_err(|why| broken(&why))?;
    let attributes = |section: &str| match elf.section_by_name(section).map(|section| section.data()) {
        Some(Ok(bytes)) => read_attributes(bytes).ok_or_else(|| broken(section)),
        Some(Err(error)) => Err(broken(section).with_source(error)),
        None => Ok(Vec::new()),
    };
    let of_all = attributes(".nv.info")?;
    let of_symbol = |kind: u8, symbol: u32| {
        let mut words = of_all.iter().filter(|attribute| attribute.kind == kind).map(|attribute| &attribute.words);
        words.find(|words| words.first() == Some(&symbol)).and_then(|words| words.get(1).copied())
    };
    let reserved = elf.section_by_name(".nv.shared.reserved.0").map_or(0, |_| RESERVED_SHARED_BYTES);
    let reports = read_log(log);

    let mut found = Vec::new();
    for symbol in image::kernels(&elf) {
        let entry = symbol.name().map_err(|error| broken("a symbol without a name").with_source(error))?;
        let index = u32::try_from(symbol.index().0).map_err(|_| broken("more symbols than an ELF file can have"))?;
        let max_threads = attributes(&format!(".nv.info.{entry}"))?
            .iter()
            .find(|attribute| attribute.kind == EIATTR_MAX_THREADS)
            .map(|attribute| {
                attribute.words.iter().take(3).fold(1, |threads: u32, size| threads.saturating_mul(*size))
            });
        let shared = elf.section_by_name(&format!(".nv.shared.{entry}")).map_or(0, |section| section.size());
        let read = Resources {
            entry: entry.to_owned(),
            registers: of_symbol(EIATTR_REGCOUNT, index).ok_or_else(|| broken("a kernel without REGCOUNT"))?,
            local_bytes: of_symbol(EIATTR_FRAME_SIZE, index).unwrap_or(0),
            static_shared_bytes: saturated(shared.saturating_sub(reserved)),
            max_threads,
            code_bytes: saturated(symbol.size()),
            spills: reports.get(entry).and_then(|report| report.spills),
        };
        if let Some(report) = reports.get(entry).filter(|report| !report.agrees(&read)) {
            tracing::warn!(%read, ?report, "the cubin and the assembler's report disagree");
        }
        found.push(read);
    }
    found.sort_by(|a, b| a.entry.cmp(&b.entry));
    Ok(found)
}

fn saturated(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// One attribute of a `.nv.info` section; only those with a length have words.
struct Attribute {
    kind: u8,
    words: Vec<u32>,
}

/// Splits a `.nv.info` section: format byte, kind byte, then two bytes of value or of the length of what follows.
fn read_attributes(mut bytes: &[u8]) -> Option<Vec<Attribute>> {
    let mut attributes = Vec::new();
    while let Some((&[format, kind, low, high], rest)) = bytes.split_first_chunk() {
        let length = if format == EIFMT_SVAL { usize::from(u16::from_le_bytes([low, high])) } else { 0 };
        let value = rest.get(..length)?;
        let words = value.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        attributes.push(Attribute { kind, words: words.collect() });
        bytes = &rest[length..];
    }
    bytes.is_empty().then_some(attributes)
}

/// What the assembler reports of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Report {
    spills: Option<Spills>,
    stack_bytes: Option<u32>,
    registers: Option<u32>,
    shared_bytes: u32,
}

impl Report {
    /// Whether the machine code says the same, as far as the report goes.
    fn agrees(&self, read: &Resources) -> bool {
        self.registers.is_none_or(|registers| registers == read.registers)
            && self.stack_bytes.is_none_or(|bytes| bytes == read.local_bytes)
            && self.shared_bytes == read.static_shared_bytes
    }
}

/// Reads the assembler's report out of a compile log, whatever else is in it.
fn read_log(log: &str) -> BTreeMap<&str, Report> {
    let mut reports: BTreeMap<&str, Report> = BTreeMap::new();
    let (mut kernel, mut function) = ("", "");
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            kernel = rest.split('\'').next().unwrap_or_default();
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            // Of the kernel, and of every function in it that was not inlined.
            function = name.trim();
        } else if line.contains("bytes stack frame") {
            let report = reports.entry(function).or_default();
            report.stack_bytes = number_before(line, " bytes stack frame");
            report.spills = number_before(line, " bytes spill stores")
                .zip(number_before(line, " bytes spill loads"))
                .map(|(store_bytes, load_bytes)| Spills { store_bytes, load_bytes });
        } else if line.contains(": Used ") {
            let report = reports.entry(kernel).or_default();
            report.registers = number_before(line, " registers");
            report.shared_bytes = number_before(line, " bytes smem").unwrap_or(0);
        }
    }
    reports
}

/// The number that stands right before `unit`.
fn number_before(line: &str, unit: &str) -> Option<u32> {
    line.split_once(unit)?.0.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "k.cu(3): warning #177-D: variable \"x\" was declared but never referenced\n\
        ptxas info    : 0 bytes gmem\n\
        ptxas info    : Compiling entry function 'dyn' for 'sm_90a'\n\
        ptxas info    : Function properties for dyn\n\
        ptxas         .     800 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads\n\
        ptxas info    : Used 48 registers, used 2 barriers, 800 bytes cumulative stack size, 1024 bytes smem\n\
        ptxas info    : Compile time = 24.561 ms\n";

    #[test]
    fn the_report_is_read() {
        let reports = read_log(LOG);
        let spills = Some(Spills { store_bytes: 12, load_bytes: 20 });
        let expected = Report { spills, stack_bytes: Some(800), registers: Some(48), shared_bytes: 1024 };
        assert_eq!(reports.into_iter().collect::<Vec<_>>(), [("dyn", expected)]);
        assert!(read_log("").is_empty());
    }

    #[test]
    fn torn_attributes_and_images_are_refused() {
        assert_eq!(read_attributes(&[4, 0x2f, 8, 0, 1, 0, 0, 0, 99, 0, 0, 0]).unwrap()[0].words, [1, 99]);
        assert!(read_attributes(&[4, 0x2f, 8, 0, 1, 0, 0]).is_none());
        assert!(read_attributes(&[3, 0x2f]).is_none());
        assert!(of_image(b"\x7fELF", "").is_err());
        assert!(of_image(b"", "").is_err());
    }

    /// Kernels with a stack and a function of their own, beside one that spills.
    const KERNELS: &str = r#"
__device__ __noinline__ float helper(const float* x, int n) {
    float l[40];
    for (int i = 0; i < 40; i++) l[i] = x[i] * x[n];
    return l[n % 40];
}
extern "C" __global__ void plain(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2.0f; }
extern "C" __global__ void calls(float* x, int n) { x[0] = helper(x, n); asm volatile("bar.sync 1, 64;"); }
"#;

    #[test]
    fn machine_code_and_report_agree() {
        let listed = std::env::var("WARPSMITH_TEST_NVRTCS").unwrap_or_default();
        let mut toolchains: Vec<_> =
            std::env::split_paths(&listed).filter_map(|path| crate::build::Toolchain::at(path).ok()).collect();
        if toolchains.is_empty() {
            toolchains.extend(crate::build::Toolchain::find().ok());
        }
        if toolchains.is_empty() {
            eprintln!("SKIPPED machine_code_and_report_agree: no NVRTC here");
        }
        let text = KERNELS.to_owned() + &crate::build::testing::spilling("spills");
        let source = crate::build::Source::new("k.cu", text, &[], ["plain", "calls", "spills"]);
        for toolchain in &toolchains {
            for target in ["sm_80", "sm_90a", "sm_100a", "sm_120a"] {
                let cubin = crate::build::compile(toolchain, &source, target).unwrap();
                let reports = read_log(cubin.log());
                assert_eq!(cubin.resources().len(), 3, "{toolchain} {target}");
                for read in cubin.resources() {
                    let report = reports[read.entry()];
                    assert!(report.agrees(read), "{toolchain} {target}: {read} but {report:?}");
                    assert!(report.registers.is_some() && report.stack_bytes.is_some(), "{}", cubin.log());
                    assert_eq!(report.spills, read.spills);
                    assert!(read.code_bytes >= 128);
                }
                let of = |entry| cubin.resources_of(entry).unwrap();
                assert_eq!((of("spills").static_shared_bytes, of("spills").max_threads), (1024, Some(1024)));
                assert_eq!((of("plain").static_shared_bytes, of("plain").max_threads), (0, None));
                assert!(
                    of("spills").has_spills() && !of("plain").has_spills(),
                    "{toolchain} {target}: {}",
                    of("spills")
                );
            }
        }
    }
}
