//! Whether a file is a whole shared library for this machine, by its ELF headers.
//!
//! The loader maps a file without a look at its length: of one that is cut short, the first use of a page beyond the end
//! kills the process.

use std::path::Path;

use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, ELFMAG, EM_AARCH64, EM_X86_64, ET_DYN, FileHeader64, Machine};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, ReadCache, ReadRef};

use crate::open;

/// A whole shared library.
#[derive(Debug)]
pub(super) struct SharedObject {
    needed: Vec<String>,
    run_paths: Vec<String>,
}

impl SharedObject {
    /// Reads the headers.
    ///
    /// # Errors
    /// Why it is none, none for this machine, or not all of it.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let file = open::file(path).map_err(|error| error.to_string())?;
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        let data = ReadCache::new(file);
        let data = &data;
        let short = |needs: u64| format!("cut short: {bytes} of at least {needs} bytes");

        let magic = data.read_bytes_at(0, bytes.min(4)).map_err(|()| "cannot be read".to_owned())?;
        if *magic != ELFMAG[..magic.len()] || magic.is_empty() {
            return Err("no ELF file".to_owned());
        }
        const HEADER_BYTES: u64 = size_of::<FileHeader64<Endianness>>() as u64;
        if bytes < HEADER_BYTES {
            return Err(short(HEADER_BYTES));
        }
        let header = FileHeader64::<Endianness>::parse(data).map_err(|_| "no 64-bit ELF file".to_owned())?;
        let endian = header.endian().map_err(damaged)?;
        let machine = header.e_machine(endian);
        if let Some(here) = HERE.filter(|here| *here != machine) {
            return Err(format!("made for another machine: {machine:?}, here it is {here:?}"));
        }
        if header.e_type(endian) != ET_DYN {
            return Err(format!("no shared library: {:?}", header.e_type(endian)));
        }

        // The tables first, since they are read to know the rest.
        let end_of = |at: u64, entries: u16, entry_bytes: u16| {
            at.checked_add(u64::from(entries) * u64::from(entry_bytes)).ok_or("damaged: a table's end is beyond 2^64")
        };
        let programs = end_of(header.e_phoff(endian), header.e_phnum(endian), header.e_phentsize(endian))?;
        let sections = end_of(header.e_shoff(endian), header.e_shnum(endian), header.e_shentsize(endian))?;
        if programs.max(sections) > bytes {
            return Err(short(programs.max(sections)));
        }
        let segments = header.program_headers(endian, data).map_err(damaged)?;
        let table = header.sections(endian, data).map_err(damaged)?;
        let segments = segments.iter().map(|segment| segment.file_range(endian));
        let sections = table.iter().filter_map(|section| section.file_range(endian));
        let ends = segments.chain(sections).map(|(at, length)| at.checked_add(length));
        let end = ends.max_by_key(|end| end.unwrap_or(u64::MAX)).unwrap_or(Some(0));
        let end = end.ok_or("damaged: a part's end is beyond 2^64")?;
        if end > bytes {
            return Err(short(end));
        }

        let dynamic = table.dynamic_table(endian, data).map_err(damaged)?;
        let texts = |fits: fn(object::elf::DynamicTag) -> bool| {
            let entries = dynamic.iter().filter(move |entry| fits(entry.tag));
            let texts = entries.map(|entry| Ok(String::from_utf8_lossy(dynamic.string(entry)?).into_owned()));
            texts.collect::<Result<Vec<_>, _>>().map_err(damaged)
        };
        Ok(Self {
            needed: texts(|tag| tag == DT_NEEDED)?,
            run_paths: texts(|tag| tag == DT_RPATH || tag == DT_RUNPATH)?,
        })
    }

    /// The libraries that it would have the loader look for in the working directory; none, if it looks there for none.
    pub(super) fn needed_from_anywhere(&self) -> &[String] {
        let mut dirs = self.run_paths.iter().flat_map(|path| path.split(':'));
        let relative =
            |dir: &str| !dir.starts_with('/') && !dir.starts_with("$ORIGIN") && !dir.starts_with("${ORIGIN}");
        if dirs.any(relative) { &self.needed } else { &[] }
    }
}

/// What the headers of this machine's libraries say; none where NVIDIA has no NVRTC for.
const HERE: Option<Machine> = if cfg!(target_arch = "x86_64") {
    Some(EM_X86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(EM_AARCH64)
} else {
    None
};

fn damaged(error: object::read::Error) -> String {
    format!("damaged: {error}")
}
