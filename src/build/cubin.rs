//! Machine code with its resources and provenance.

use std::fmt;

use object::ObjectSymbol;
use serde::{Deserialize, Serialize};

use super::image;
use super::resources::Resources;
use super::source::Source;
use super::target::Target;
use crate::{Error, Result};

/// Where machine code came from: everything needed to make it again, and to say why two differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    pub(super) name: String,
    pub(super) problem: String,
    pub(super) variant: String,
    pub(super) target: String,
    pub(super) toolchain: String,
    pub(super) options: Vec<String>,
    pub(super) source: String,
}

impl Provenance {
    /// The source's file name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The problem's spelling.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// The variant's spelling.
    #[must_use]
    pub fn variant(&self) -> &str {
        &self.variant
    }

    /// The compile target, e.g. `sm_90a`.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The identity of the toolchain.
    #[must_use]
    pub fn toolchain(&self) -> &str {
        &self.toolchain
    }

    /// All options that NVRTC was given.
    #[must_use]
    pub fn options(&self) -> &[String] {
        &self.options
    }

    /// Those of [`Provenance::options`] that can change the machine code.
    pub(crate) fn code_options(&self) -> impl Iterator<Item = &String> {
        self.options.iter().filter(|option| *option != OWN_CACHE_OFF)
    }

    /// The source's digest, in hexadecimal.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// What is known about machine code besides its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub(super) provenance: Provenance,
    pub(super) resources: Vec<Resources>,
    pub(super) compile_us: u64,
    pub(super) log: String,
}

impl About {
    /// Refuses names that a terminal or a log would obey.
    pub(crate) fn check_names(&self) -> Result<()> {
        let Provenance { name, problem, variant, target, toolchain, options, source } = &self.provenance;
        let names = [name, problem, variant, target, toolchain, source].into_iter().chain(options).map(String::as_str);
        match names.chain(self.resources.iter().map(Resources::entry)).find(|name| name.contains(char::is_control)) {
            Some(name) => Err(Error::data(format!("{name:?} has control characters"))),
            None => Ok(()),
        }
    }

    /// Whether the image is PTX; what names no target is machine code.
    fn is_ptx(&self) -> bool {
        Target::parse(&self.provenance.target).is_ok_and(|target| !target.is_machine())
    }
}

/// Machine code for one architecture, with its resource use and provenance; for a device newer than the compiler knows,
/// PTX, which the driver compiles when it is loaded, and of which no resource use is known.
#[derive(Clone, PartialEq, Eq)]
pub struct Cubin {
    pub(super) about: About,
    pub(super) image: Vec<u8>,
}

impl Cubin {
    /// Machine code that was compiled before, from wherever its bytes come.
    ///
    /// # Errors
    /// Data, if a driver must not be given the image, if a kernel that it is said to have is not in it, or if a name has
    /// control characters.
    pub(crate) fn from_parts(about: About, image: Vec<u8>) -> Result<Self> {
        about.check_names()?;
        if about.is_ptx() {
            image::ptx(&image).map_err(|why| Error::data(format!("the image is damaged: {why}")))?;
            return Ok(Self { about, image });
        }
        let elf = image::parse(&image).map_err(|why| Error::data(format!("the image is damaged: {why}")))?;
        let kernels: Vec<&str> = image::kernels(&elf).filter_map(|symbol| symbol.name().ok()).collect();
        let mut promised = about.resources.iter().map(Resources::entry).peekable();
        if promised.peek().is_none() {
            return Err(Error::data("the image is said to have no kernel"));
        }
        if let Some(missing) = promised.find(|entry| !kernels.contains(entry)) {
            return Err(Error::data(format!("kernel {missing:?} is not in the image, which has {kernels:?}")));
        }
        Ok(Self { about, image })
    }

    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    /// What a driver loads: an ELF image, or PTX that ends with a NUL.
    #[must_use]
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// Resource use of every kernel in the image.
    #[must_use]
    pub fn resources(&self) -> &[Resources] {
        &self.about.resources
    }

    /// Resource use of the kernel with this symbol.
    #[must_use]
    pub fn resources_of(&self, entry: &str) -> Option<&Resources> {
        self.about.resources.iter().find(|resources| resources.entry() == entry)
    }

    /// Where it came from.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.about.provenance
    }

    /// How long NVRTC took, in milliseconds, when it was made.
    #[must_use]
    pub fn compile_ms(&self) -> f64 {
        self.about.compile_us as f64 / 1e3
    }

    /// What the compiler said: warnings, and the assembler's report.
    #[must_use]
    pub fn log(&self) -> &str {
        &self.about.log
    }

    /// How much memory it takes, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.image.len() + self.about.log.len()
    }
}

impl fmt::Debug for Cubin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cubin").field("about", &self.about).field("image_bytes", &self.image.len()).finish()
    }
}

/// Turns off NVRTC's own cache: the only option that depends on the toolchain, and one that changes no code.
pub(super) const OWN_CACHE_OFF: &str = "--no-cache";

/// The options of a compile that can change the machine code: the same whatever the toolchain, so that cache keys can list
/// them where there is none.
pub(crate) fn code_options(source: &Source, target: &str) -> Result<Vec<String>> {
    let target = Target::parse(target)?;
    let mut options = vec![format!("--gpu-architecture={target}"), "--std=c++17".to_owned()];
    if target.is_machine() {
        options.push("--ptxas-options=-v".to_owned());
    }
    options.extend(source.options().iter().filter(|option| *option != OWN_CACHE_OFF).cloned());
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{EMPTY, cubin};
    use super::*;

    /// Of an image, a driver sees what the image says of itself: each number that leads out of it is found.
    #[test]
    fn an_image_that_a_driver_must_not_be_given() {
        let whole = cubin(b"");
        let refused = |image: &[u8]| {
            Cubin::from_parts(whole.about().clone(), image.to_vec()).map(|cubin| cubin.image().len()).unwrap_err()
        };
        let with = |at: usize, bytes: &[u8]| {
            let mut image = EMPTY.to_vec();
            image[at..at + bytes.len()].copy_from_slice(bytes);
            refused(&image).to_string()
        };
        assert!(refused(b"").is_data());
        for length in 0..EMPTY.len() {
            assert!(refused(&EMPTY[..length]).is_data(), "{length} bytes");
        }
        assert!(refused(b"\n// PTX\n.version 9.0\n.target sm_90a").to_string().contains("no ELF file"));
        assert!(with(0x04, &[1]).contains("no ELF file"), "32 bits");
        assert!(with(0x05, &[2]).contains("no ELF file"), "big-endian");
        assert_eq!(with(0x12, &[62, 0]), "the image is damaged: an ELF file for machine 62, not 190 (CUDA)");
        // The tables: where sections and segments are listed, and how many there are.
        for (at, bytes) in [(0x28, vec![0xff; 8]), (0x28, vec![0xf0, 0]), (0x3c, vec![4, 0])] {
            assert!(with(at, &bytes).contains("no ELF file"), "{at:x}");
        }
        assert!(with(0x38, &[1]).contains("3 sections and 1 segments, but not where"), "a header at 0");
        assert!(with(0x3c, &[0]).contains("0 sections"));
        // One segment, of which the header is where the names of symbols are.
        let mut segment = EMPTY.to_vec();
        (segment[0x20], segment[0x38]) = (0x40, 1);
        assert!(refused(&segment).to_string().contains("a segment has"), "{}", refused(&segment));
        // The section of the symbols: its size is 48.
        let sections = usize::from(EMPTY[0x28]);
        let size = sections + 2 * 64 + 0x20;
        assert_eq!(EMPTY[size], 48);
        for bytes in [&[0xff, 0][..], &[0, 0, 0, 0, 0, 0, 0, 0x80], &[0xff; 8]] {
            with(size, bytes);
        }
        // The names: their size, then that of the kernel itself.
        assert!(with(sections + 64 + 0x20, &[10, 1]).contains("a section has 266 bytes at 64 of 328"));
        let name = EMPTY.windows(3).position(|window| window == b"\0k\0").unwrap() + 1;
        assert_eq!(with(name, b"j"), "kernel \"k\" is not in the image, which has [\"j\"]");
        // No symbol that can be launched.
        let other = usize::from(EMPTY[sections + 2 * 64 + 0x18]) + 24 + 5;
        assert_eq!(EMPTY[other], 0x10);
        assert_eq!(with(other, &[0]), "kernel \"k\" is not in the image, which has []");

        let about = About { resources: Vec::new(), ..whole.about().clone() };
        assert!(Cubin::from_parts(about, EMPTY.to_vec()).unwrap_err().to_string().contains("no kernel"));
    }
}
