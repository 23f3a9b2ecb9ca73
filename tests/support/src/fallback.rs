//! Files that look like NVRTC from outside, libraries that tell when they are run, and made-up pips.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory for this user alone, whatever the umask; it goes with this.
pub fn tempdir() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap()
}

/// A directory, and those above it that are missing, for this user alone.
pub fn make_dir(dir: &Path) {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).unwrap();
}

pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A file that others may read, whatever the umask.
pub fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    set_mode(path, 0o644);
}

/// A whole shared library for this machine, as far as its headers tell: there is nothing in it.
pub fn elf(bytes: usize) -> Vec<u8> {
    let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let mut file = vec![0; bytes.max(64)];
    // Class, byte order and version; type, machine and version; the bytes of this header.
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[16..18].copy_from_slice(&3_u16.to_le_bytes());
    file[18..20].copy_from_slice(&machine.to_le_bytes());
    file[20] = 1;
    file[52] = 64;
    file
}

/// What [`fake`] makes a library and its builtins of, in bytes.
pub const SIZES: [usize; 2] = [64, 96];

/// A directory with a file called like NVRTC and, if asked, one called like its builtins.
pub fn fake(dir: &Path, library: &str, builtins: Option<&str>) -> PathBuf {
    make_dir(dir);
    write(&dir.join(library), &elf(SIZES[0]));
    builtins.iter().for_each(|name| write(&dir.join(name), &elf(SIZES[1])));
    dir.join(library).canonicalize().unwrap()
}

/// Both files, as a wheel of release 13 names them.
pub fn whole(dir: &Path) -> PathBuf {
    fake(dir, "libnvrtc.so.13", Some("libnvrtc-builtins.so.13.0"))
}

/// Both files, but real libraries: each leaves `ran` in its own directory when it is run.
pub fn telling(dir: &Path) -> PathBuf {
    make_dir(dir);
    let code = format!(
        "#include <fcntl.h>\n__attribute__((constructor)) static void run(void) {{ open(\"{}\", O_CREAT, 0600); }}\n",
        dir.join("ran").display()
    );
    let library = compile(dir, "libnvrtc.so.13", &code, &[]);
    write(&dir.join("libnvrtc-builtins.so.13.0"), &fs::read(&library).unwrap());
    library
}

/// Whether what [`telling`] made was run.
pub fn has_run(dir: &Path) -> bool {
    dir.join("ran").exists()
}

/// A shared library in `dir`, of this C.
pub fn compile(dir: &Path, name: &str, code: &str, arguments: &[&str]) -> PathBuf {
    let source = tempfile::Builder::new().suffix(".c").tempfile().unwrap();
    fs::write(source.path(), code).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let library = dir.join(name);
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-w", "-o"]).arg(&library).arg(source.path()).args(arguments);
    assert!(command.status().unwrap().success(), "{code}");
    set_mode(&library, 0o755);
    library.canonicalize().unwrap()
}

/// A `python3` that is this shell script.
pub fn python(bin: &Path, script: &str) {
    make_dir(bin);
    write(&bin.join("python3"), format!("#!/bin/sh\n{script}\n").as_bytes());
    set_mode(&bin.join("python3"), 0o755);
}

/// The beginning of a script that unpacks a wheel as pip would: `$site` is the directory after `--target`, and `unpack`
/// puts the files of [`whole`] and a twin there.
pub fn pip(temp: &Path) -> String {
    let wheel = temp.join("wheel");
    whole(&wheel);
    write(&wheel.join("libnvrtc.alt.so.13"), &elf(64));
    format!(
        "while [ \"$1\" != --target ]; do shift; done; site=$2\necho ran >> {temp}/ran\nunpack() {{\n  mkdir -p \
         \"$site/nvidia/cu13/lib\" \"$site/nvidia_cuda_nvrtc-13.0.88.dist-info\"\n  cp {wheel}/* \
         \"$site/nvidia/cu13/lib\"\n}}\n",
        temp = temp.display(),
        wheel = wheel.display()
    )
}

/// How often the script of [`pip`] was run.
pub fn runs(temp: &Path) -> usize {
    fs::read_to_string(temp.join("ran")).unwrap_or_default().lines().count()
}
