//! The only file that calls NVRTC.
//!
//! An own table of functions, opened by absolute path: several versions can live in one process, a missing symbol is
//! an error and not a panic, and result codes are plain integers (a newer library returns codes that no enum of an
//! older header knows). A library is opened at its first use and kept for the life of the process.

use std::collections::HashMap;
use std::error::Error as _;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::super::source::Source;
use super::super::target::Target;
use super::Toolchain;
use super::shared_object::SharedObject;
use crate::{Error, Result};

type Program = *mut c_void;
type Code = c_int;

const SUCCESS: Code = 0;
const INVALID_OPTION: Code = 5;
const COMPILATION: Code = 6;
const BUILTIN_OPERATION_FAILURE: Code = 7;

type CreateProgram = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> Code;
type GetSize = unsafe extern "C" fn(Program, *mut usize) -> Code;
type GetBytes = unsafe extern "C" fn(Program, *mut c_char) -> Code;

/// One opened NVRTC. The functions stay valid because the library is never closed.
pub(in crate::build) struct Nvrtc {
    path: PathBuf,
    get_error_string: unsafe extern "C" fn(Code) -> *const c_char,
    get_num_supported_archs: unsafe extern "C" fn(*mut c_int) -> Code,
    get_supported_archs: unsafe extern "C" fn(*mut c_int) -> Code,
    create_program: CreateProgram,
    destroy_program: unsafe extern "C" fn(*mut Program) -> Code,
    compile_program: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Code,
    get_ptx_size: GetSize,
    get_ptx: GetBytes,
    get_cubin_size: GetSize,
    get_cubin: GetBytes,
    get_program_log_size: GetSize,
    get_program_log: GetBytes,
    // Last, and never dropped: see `open`.
    _libraries: [Library; 2],
}

/// What a compile gave.
pub(in crate::build) struct Compiled {
    pub(in crate::build) image: Vec<u8>,
    pub(in crate::build) log: String,
}

type Opened = Mutex<Option<HashMap<PathBuf, &'static Nvrtc>>>;

static OPENED: Opened = Mutex::new(None);

fn opened() -> MutexGuard<'static, Option<HashMap<PathBuf, &'static Nvrtc>>> {
    // The map is only ever inserted into, so it is whole even if a thread panicked while holding it.
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Nvrtc {
    /// Whether this process has opened the toolchain's library.
    pub(super) fn is_open(toolchain: &Toolchain) -> bool {
        opened().as_ref().is_some_and(|map| map.contains_key(toolchain.library()))
    }

    /// The toolchain's library, opened now if it was not yet. Opening takes 5 to 160 ms, so others wait for it.
    pub(in crate::build) fn open(toolchain: &Toolchain) -> Result<&'static Self> {
        let mut map = opened();
        let map = map.get_or_insert_default();
        if let Some(open) = map.get(toolchain.library()) {
            return Ok(open);
        }
        let files = toolchain.openable()?;
        // Leaked on purpose: the table must outlive every compile, on whatever thread, and a few hundred bytes a version
        // are all that is lost.
        let open: &'static Self = Box::leak(Box::new(Self::load(files)?));
        map.insert(toolchain.library().to_owned(), open);
        tracing::debug!(toolchain = %toolchain, "opened NVRTC");
        Ok(open)
    }

    fn load([builtins, nvrtc]: [(&Path, SharedObject); 2]) -> Result<Self> {
        let library = nvrtc.0;
        // The builtins first: NVRTC asks the loader for them by bare name, and 12.9 and 13.0 do not say where to look
        // (13.5 does). Once they are in the process, the name is found.
        let builtins = dlopen(builtins)?;
        let nvrtc = dlopen(nvrtc)?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the field that takes the pointer has the type of the function of this name in nvrtc.h, the
                // same in every release since CUDA 11.2; the library outlives the pointer (never closed).
                *unsafe { nvrtc.get($name) }.map_err(|error| {
                    let (path, name) = (library.display(), $name.to_string_lossy());
                    Error::missing_library(format!("{path} has no {name}; remedy: NVRTC 12.0 or later"))
                        .with_source(error)
                })?
            };
        }
        Ok(Self {
            path: library.to_owned(),
            get_error_string: function!(c"nvrtcGetErrorString"),
            get_num_supported_archs: function!(c"nvrtcGetNumSupportedArchs"),
            get_supported_archs: function!(c"nvrtcGetSupportedArchs"),
            create_program: function!(c"nvrtcCreateProgram"),
            destroy_program: function!(c"nvrtcDestroyProgram"),
            compile_program: function!(c"nvrtcCompileProgram"),
            get_ptx_size: function!(c"nvrtcGetPTXSize"),
            get_ptx: function!(c"nvrtcGetPTX"),
            get_cubin_size: function!(c"nvrtcGetCUBINSize"),
            get_cubin: function!(c"nvrtcGetCUBIN"),
            get_program_log_size: function!(c"nvrtcGetProgramLogSize"),
            get_program_log: function!(c"nvrtcGetProgramLog"),
            _libraries: [builtins, nvrtc],
        })
    }

    /// Numbers of the architectures that this NVRTC knows.
    pub(super) fn architectures(&self) -> Result<Vec<u32>> {
        let mut count = 0;
        // SAFETY: writes one int through a valid pointer.
        self.check(unsafe { (self.get_num_supported_archs)(&mut count) }, "nvrtcGetNumSupportedArchs")?;
        let mut numbers = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: writes as many ints as the call above said, which is the vector's length.
        self.check(unsafe { (self.get_supported_archs)(numbers.as_mut_ptr()) }, "nvrtcGetSupportedArchs")?;
        Ok(numbers.into_iter().filter_map(|number| u32::try_from(number).ok()).collect())
    }

    /// Compiles; blocking, 20 to 700 ms. Any number of threads may compile at once.
    pub(in crate::build) fn compile(&self, source: &Source, target: &Target, options: &[String]) -> Result<Compiled> {
        let known = self.architectures()?;
        if !known.contains(&target.number()) {
            let path = self.path.display();
            return Err(Error::unsupported(format!("target {target}: {path} knows architectures {known:?}")));
        }
        let program = Running::new(self, source)?;
        let options = c_strings(options.iter().map(String::as_str), "a compiler option")?;
        let pointers = pointers(&options);
        // SAFETY: the program is live; `pointers` holds as many NUL-terminated strings as is said, and they live on.
        let code = unsafe { (self.compile_program)(program.raw, count(&pointers)?, pointers.as_ptr()) };
        let log = program.log();
        match code {
            SUCCESS => {}
            BUILTIN_OPERATION_FAILURE => {
                return Err(Error::missing_library(format!(
                    "NVRTC could not use its builtins library: {}; remedy: libnvrtc and libnvrtc-builtins beside each \
                     other, of one release",
                    log.trim()
                )));
            }
            COMPILATION | INVALID_OPTION => {
                return Err(Error::compile(format!("NVRTC refused {} for {target}:\n{log}", source.name()), log));
            }
            code => {
                let message = format!("NVRTC failed on {} for {target}: {}", source.name(), self.describe(code));
                // No word on the source: the next try may succeed.
                return Err(Error::internal(format!("{message}\n{log}")));
            }
        }
        let mut image = if target.is_machine() {
            program.bytes(self.get_cubin_size, self.get_cubin, "nvrtcGetCUBIN")?
        } else {
            program.bytes(self.get_ptx_size, self.get_ptx, "nvrtcGetPTX")?
        };
        if !target.is_machine() && image.last() == Some(&0) {
            image.pop(); // PTX comes with its terminating NUL, which ptxas would refuse.
        }
        Ok(Compiled { image, log })
    }

    fn check(&self, code: Code, call: &str) -> Result<()> {
        match code {
            SUCCESS => Ok(()),
            code => Err(Error::internal(format!("{call} of {}: {}", self.path.display(), self.describe(code)))),
        }
    }

    fn describe(&self, code: Code) -> String {
        // SAFETY: takes any integer; returns NULL or a string that lives as long as the library.
        let text = unsafe { (self.get_error_string)(code) };
        if text.is_null() {
            return format!("code {code}");
        }
        // SAFETY: not null, NUL-terminated, and never freed.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} ({code})", text.to_string_lossy())
    }
}

/// A program under compilation, destroyed when dropped. It keeps what NVRTC may still read.
struct Running<'a> {
    nvrtc: &'a Nvrtc,
    raw: Program,
    _texts: [Vec<CString>; 3],
}

impl<'a> Running<'a> {
    fn new(nvrtc: &'a Nvrtc, source: &Source) -> Result<Self> {
        let headers = source.headers();
        let main = c_strings([source.text(), source.name()], source.name())?;
        let texts = c_strings(headers.iter().map(|header| header.text), "a header")?;
        let names = c_strings(headers.iter().map(|header| header.name), "a header's name")?;
        let (text_pointers, name_pointers) = (pointers(&texts), pointers(&names));
        let mut raw = ptr::null_mut();
        // SAFETY: every pointer is a NUL-terminated string that lives to the end of the call and beyond (`_texts`);
        // both arrays have as many elements as is said; `raw` is written once.
        let code = unsafe {
            (nvrtc.create_program)(
                &mut raw,
                main[0].as_ptr(),
                main[1].as_ptr(),
                count(&text_pointers)?,
                text_pointers.as_ptr(),
                name_pointers.as_ptr(),
            )
        };
        nvrtc.check(code, "nvrtcCreateProgram")?;
        Ok(Self { nvrtc, raw, _texts: [main, texts, names] })
    }

    fn bytes(&self, size: GetSize, get: GetBytes, call: &str) -> Result<Vec<u8>> {
        let mut length = 0;
        // SAFETY: the program is live; writes one size through a valid pointer.
        self.nvrtc.check(unsafe { size(self.raw, &mut length) }, call)?;
        let mut bytes = vec![0_u8; length];
        // SAFETY: the program is live; writes exactly the number of bytes that the call above said.
        self.nvrtc.check(unsafe { get(self.raw, bytes.as_mut_ptr().cast()) }, call)?;
        Ok(bytes)
    }

    fn log(&self) -> String {
        let bytes = self.bytes(self.nvrtc.get_program_log_size, self.nvrtc.get_program_log, "nvrtcGetProgramLog");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
        bytes.map_or_else(|error| format!("(no log: {error})"), text)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // SAFETY: made by nvrtcCreateProgram of the same library, destroyed once.
        unsafe { (self.nvrtc.destroy_program)(&mut self.raw) };
    }
}

/// Opens a library that [`Toolchain::openable`] has just found good. It is opened by its path, which nobody else can have
/// made another file's since: from the root of the file system down, nobody else can write to a part of that path.
fn dlopen((path, shared): (&Path, SharedObject)) -> Result<Library> {
    let refused = |error: libloading::Error| {
        let (path, said) = (path.display(), said(&error));
        Error::missing_library(format!("{path} cannot be opened: {said}; remedy: a whole NVRTC for this machine"))
            .with_source(error)
    };
    // NVRTC 12.9 would have the loader look for libpthread.so.0 in the working directory, before the system's. What is in
    // the process already is not looked for, so these come first, from where the loader finds them for everybody.
    let needed = shared.needed_from_anywhere().iter().map(|name| {
        // SAFETY: a library of the system, which opening NVRTC would open anyway.
        unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) }
    });
    let needed = needed.collect::<std::result::Result<Vec<_>, _>>().map_err(refused)?;
    // SAFETY: NVRTC's initialisers are those of an ordinary C++ library; which file this is, the user has chosen, and
    // nobody else can have changed. RTLD_LOCAL keeps the symbols of several versions apart.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(refused)?;
    // From now on it keeps them itself.
    drop(needed);
    Ok(library)
}

/// What the loader said. The error's own text is only that something failed.
fn said(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

fn c_strings<'s>(texts: impl IntoIterator<Item = &'s str>, what: &str) -> Result<Vec<CString>> {
    let convert = |text| CString::new(text).map_err(|_| Error::internal(format!("{what} holds a NUL character")));
    texts.into_iter().map(convert).collect()
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).collect()
}

fn count<T>(items: &[T]) -> Result<c_int> {
    c_int::try_from(items.len()).map_err(|_| Error::internal("more strings than NVRTC can be given"))
}
