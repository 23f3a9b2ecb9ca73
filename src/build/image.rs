//! What a driver may be given.
//!
//! A driver is told where an image begins, not where it ends: it reads as far as the image itself says. So every way to
//! a [`Cubin`](super::Cubin) begins with [`parse`].

use std::ffi::CStr;

use object::elf::{EM_CUDA, FileHeader64, SHT_NULL};
use object::read::elf::{ElfFile, ElfSymbol, FileHeader, ProgramHeader, SectionHeader};
use object::{LittleEndian, Object, ObjectSymbol, SymbolFlags};

/// Set in `st_other` of a symbol that can be launched.
const STO_CUDA_ENTRY: u8 = 0x10;

type Header = FileHeader64<LittleEndian>;
pub(super) type Elf<'a> = ElfFile<'a, Header>;

/// The image, if it is machine code for NVIDIA's GPUs and nothing that it names lies beyond its end; else the reason.
pub(super) fn parse(image: &[u8]) -> Result<Elf<'_>, String> {
    let elf =
        Elf::parse(image).map_err(|error| format!("{} bytes are no ELF file that is whole: {error}", image.len()))?;
    let (endian, header) = (elf.endian(), elf.elf_header());
    let machine = header.e_machine(endian);
    if machine != EM_CUDA {
        return Err(format!("an ELF file for machine {}, not {} (CUDA)", machine.0, EM_CUDA.0));
    }
    // The parser takes a table at 0 for none, and the number of sections from elsewhere if it is 0 here.
    let (segments, sections) = (header.e_phnum(endian), header.e_shnum(endian));
    if sections == 0 || header.e_shoff(endian) == 0 || (segments > 0 && header.e_phoff(endian) == 0) {
        return Err(format!("{sections} sections and {segments} segments, but not where they are"));
    }
    let sections = elf.elf_section_table().iter().filter(|section| section.sh_type(endian) != SHT_NULL);
    let sections = sections.filter_map(|section| section.file_range(endian)).map(|range| ("section", range));
    let segments = elf.elf_program_headers().iter().map(|segment| ("segment", segment.file_range(endian)));
    for (what, (at, bytes)) in sections.chain(segments) {
        if at.checked_add(bytes).is_none_or(|end| end > image.len() as u64) {
            return Err(format!("cut short: a {what} has {bytes} bytes at {at} of {}", image.len()));
        }
    }
    Ok(elf)
}

/// The text, if the image is PTX that ends with its one NUL, where a driver stops reading; else the reason.
pub(super) fn ptx(image: &[u8]) -> Result<&str, String> {
    let text = CStr::from_bytes_with_nul(image).map_err(|_| "PTX that does not end with its one NUL".to_owned())?;
    let text = text.to_str().map_err(|error| format!("PTX that is no text: {error}"))?;
    if text.contains(".version") && text.contains(".target") { Ok(text) } else { Err("no PTX".to_owned()) }
}

/// The symbols that can be launched.
pub(super) fn kernels<'e, 'a>(elf: &'e Elf<'a>) -> impl Iterator<Item = ElfSymbol<'a, 'e, Header>> {
    elf.symbols().filter(
        |symbol| matches!(symbol.flags(), SymbolFlags::Elf { st_other, .. } if st_other.0 & STO_CUDA_ENTRY != 0),
    )
}
