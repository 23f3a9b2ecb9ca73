//! The sub-commands as programs: how they end, what becomes of files, and where nobody reads. Without a GPU, and mostly with an
//! NVRTC that compiles nothing.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod compiled;

use warpsmith_testing as common;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use half::f16;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tempfile::TempDir;
use warpsmith::cache::PackBuilder;

/// Nobody reads: as a shell has it of SIGPIPE.
const UNREAD: i32 = 141;

const WARPSMITH: &str = env!("CARGO_BIN_EXE_warpsmith");

/// A folder with an NVRTC that can be opened and has nothing in it.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let site = temp.path().join("nvrtc");
        fs::create_dir(&site).unwrap();
        fs::write(temp.path().join("empty.c"), "").unwrap();
        let library = site.join("libnvrtc.so.13");
        link(&library, &[&temp.path().join("empty.c")]);
        fs::copy(library, site.join("libnvrtc-builtins.so.13.0")).unwrap();
        Self(temp)
    }

    /// A driver whose kernels do nothing, for programs that look there.
    fn driver(&self) -> PathBuf {
        self.driver_with("driver", &[])
    }

    /// A driver of this name, compiled with these words defined.
    fn driver_with(&self, name: &str, defines: &[&str]) -> PathBuf {
        let dir = self.path(name);
        if !dir.exists() {
            fs::create_dir(&dir).unwrap();
            common::null::compile(&dir.join("libcuda.so"), defines);
        }
        dir
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A command with the NVRTC of the folder, and no kernels of the user's; `line` is cut at spaces, `@` is the folder.
    fn command(&self, line: &str) -> Command {
        let words = line.split(' ').map(|word| word.replace('@', self.0.path().to_str().unwrap()));
        let mut command = Command::new(WARPSMITH);
        command.args(words).stdin(Stdio::null());
        command.env("WARPSMITH_CACHE", "off").env("WARPSMITH_NVRTC", self.path("nvrtc")).env_remove("RUST_LOG");
        command
    }

    /// The same on the device of [`driver`](Self::driver), where that is asked for.
    fn line(&self, (line, on): &(String, On)) -> Command {
        let mut command = self.command(line);
        if *on == On::Device {
            command.env("LD_LIBRARY_PATH", self.driver());
        }
        command
    }

    /// An exit status and what is on stderr.
    fn ends(&self, line: &str) -> (Option<i32>, String) {
        told(&self.command(line).output().unwrap())
    }

    /// Operands of a small product: its first row is the first of B, and so on.
    fn operands(&self, name: &str) -> Vec<u8> {
        let bytes = |value: fn(usize) -> f32, rows: usize| -> Vec<u8> {
            (0..rows * 64).flat_map(|at| f16::from_f32(value(at)).to_le_bytes()).collect()
        };
        let a = bytes(|at| if at % 64 == at / 64 { 1.0 } else { 0.0 }, 4);
        let b = bytes(|at| at as f32 / 1024.0, 64);
        let view = |rows, bytes| TensorView::new(Dtype::F16, vec![rows, 64], bytes).unwrap();
        let file = safetensors::serialize([("a", view(4, &a)), ("b", view(64, &b))], None).unwrap();
        fs::write(self.path(name), &file).unwrap();
        file
    }

    /// A character device; none where this may not be made or opened.
    fn device(&self, name: &str, minor: &str) -> Option<PathBuf> {
        let path = self.path(name);
        let made = Command::new("mknod").arg(&path).args(["c", "1", minor]).output().unwrap().status.success();
        let is_open = made && OpenOptions::new().write(true).open(&path).is_ok();
        if !is_open {
            common::skip(name, "no device can be made or opened here");
        }
        is_open.then_some(path)
    }
}

fn link(library: &Path, sources: &[&Path]) {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let arguments = ["-shared", "-fPIC", "-O1", "-w", "-pthread", "-o"];
    assert!(Command::new(compiler).args(arguments).arg(library).args(sources).status().unwrap().success());
}

fn told(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8(output.stderr.clone()).unwrap())
}

/// A pipe that nobody reads.
fn unread() -> io::PipeWriter {
    io::pipe().unwrap().1
}

const GEMM: &str = "gemm:f16*f16>f16:n64:k64";

#[derive(PartialEq)]
enum On {
    Host,
    Device,
}

/// Every sub-command, so that it prints; `tune` prints nothing before it has a device.
fn printing() -> [(String, On); 13] {
    [
        (format!("run --arch h200 --problem {GEMM} --m 1"), On::Host),
        (format!("bench --arch h200 --problem {GEMM} --m 1"), On::Host),
        (format!("calibrate @/campaign.tsv --list h200 --problem {GEMM} --m 1"), On::Host),
        (format!("study --arch h200 --problem {GEMM} --m 1"), On::Host),
        ("completions zsh".to_owned(), On::Host),
        ("doctor".to_owned(), On::Host),
        (format!("explain {GEMM} --arch h200 --m 1"), On::Host),
        ("serve --arch h200".to_owned(), On::Host),
        ("pack @/pack --show".to_owned(), On::Host),
        (format!("tune --problem {GEMM} --m 1"), On::Device),
        ("warm-up --arch h200 --list".to_owned(), On::Host),
        ("manifest --layer llama-3.1-8b".to_owned(), On::Host),
        ("quantize @/model @/model.nvfp4".to_owned(), On::Host),
    ]
}

#[test]
fn where_nobody_reads_a_command_ends_without_a_word() {
    let bench = Bench::new();
    PackBuilder::new().write(bench.path("pack")).unwrap();
    common::checkpoints::checkpoint(&bench.path("model"), 1, [64, 32]);
    for line in printing() {
        let output = bench.line(&line).stdout(unread()).output().unwrap();
        assert_eq!(told(&output), (Some(UNREAD), String::new()), "{}", line.0);
    }
}

#[test]
fn a_full_disk_is_a_sentence() {
    let bench = Bench::new();
    PackBuilder::new().write(bench.path("pack")).unwrap();
    common::checkpoints::checkpoint(&bench.path("model"), 1, [64, 32]);
    let Some(full) = bench.device("full", "7") else { return };
    for line in printing() {
        let stdout = OpenOptions::new().write(true).open(&full).unwrap();
        let output = bench.line(&line).stdout(stdout).output().unwrap();
        let sentence = "error: stdout cannot be written: No space left on device (os error 28)\n";
        assert_eq!(told(&output), (Some(2), sentence.to_owned()), "{}", line.0);
    }
}

#[test]
fn an_error_that_nobody_reads_is_still_an_error() {
    let bench = Bench::new();
    let status = bench.command("run --operands @/none").stderr(unread()).stdout(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn an_output_that_is_an_input_or_another_output_is_refused() {
    let bench = Bench::new();
    let operands = bench.operands("in");
    symlink(bench.path("in"), bench.path("link")).unwrap();
    fs::hard_link(bench.path("in"), bench.path("hard")).unwrap();
    fs::create_dir(bench.path("below")).unwrap();
    for (name, out) in [("--out", "in"), ("--out", "link"), ("--out", "hard"), ("--out", "below/../in")] {
        let (status, error) = bench.ends(&format!("run --arch h200 --operands @/in {name} @/{out}"));
        let sentence =
            format!("error: {name} {} is what --operands reads: name another file\n", bench.path(out).display());
        assert_eq!((status, error), (Some(2), sentence));
        assert_eq!(fs::read(bench.path("in")).unwrap(), operands);
    }
    let two = [
        "tune --table @/new --html @/below/../new",
        "tune --table @/in --html @/in",
        "pack @/in --problems @/in",
        "warm-up @/in --tune 1 --table @/in",
        "warm-up @/manifest --tune 1 --table @/new --pack @/below/../new",
        "tune --manifest @/in --within 1 --table @/in",
        "pack @/link --problem gemm:f16*f16>f16:n64:k64 --sign @/in",
    ];
    for line in two {
        let (status, error) = bench.ends(line);
        assert!(status == Some(2) && error.contains(": name another file"), "{line}: {error}");
    }
    assert!(!bench.path("new").exists() && fs::read(bench.path("in")).unwrap() == operands);
    // The terminal's output would be gone.
    let stdout = fs::File::create(bench.path("shown")).unwrap();
    let output = bench.command("run --arch h200 --operands @/in --out @/shown").stdout(stdout).output().unwrap();
    assert!(output.status.code() == Some(2) && told(&output).1.contains("is what stdout goes to"));
}

/// With a compiler, on the host.
#[test]
fn results_go_where_the_command_line_says() {
    if common::toolchain("results_go_where_the_command_line_says").is_none() {
        return;
    }
    let bench = Bench::new();
    bench.operands("in");
    fs::write(bench.path("old"), "old").unwrap();
    symlink(bench.path("old"), bench.path("link")).unwrap();
    symlink(bench.path("nothing"), bench.path("dangling")).unwrap();
    assert!(Command::new("mkfifo").arg(bench.path("fifo")).status().unwrap().success());
    let run = |rest: &str| {
        let line = format!("run --arch h200 --operands @/in --unprepared {rest}");
        bench.command(&line).env_remove("WARPSMITH_NVRTC").output().unwrap()
    };

    let output = run("--out @/link --json");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &json["rows"][0]["outcome"]["state"]), (Some(0), &"host".into()), "{json}");
    let c = fs::read(bench.path("old")).unwrap();
    let read = thread::spawn({
        let fifo = bench.path("fifo");
        move || fs::read(fifo).unwrap()
    });
    let run = |rest: &str| told(&run(rest));
    assert_eq!(run("--out @/fifo --dump @/dump"), (Some(0), String::new()));
    assert!(read.join().unwrap() == c);
    let c = SafeTensors::deserialize(&c).unwrap().tensor("c").unwrap().data().to_vec();
    let value = |at: usize| f16::from_le_bytes([c[2 * at], c[2 * at + 1]]).to_f64();
    assert_eq!((value(0), value(1), value(2 * 64 + 3)), (0.0, 64.0 / 1024.0, (3.0 * 64.0 + 2.0) / 1024.0));
    let is_fifo = fs::symlink_metadata(bench.path("fifo")).unwrap().file_type().is_fifo();
    assert!(bench.path("link").is_symlink() && is_fifo);
    assert_eq!(fs::read_dir(bench.path("dump")).unwrap().count(), 4);

    let (status, error) = run("--out @/dangling");
    assert_eq!(
        (status, error.contains("dangling cannot be written: it is a link to nothing")),
        (Some(2), true),
        "{error}"
    );
    assert!(!bench.path("nothing").exists());
    let ladder = "mma.t16x64x64.s2.single.uniform.direct,mma.t16x64x64.s3.single.uniform.direct";
    let (status, error) = run(&format!("--out @/new --variant {ladder}"));
    assert_eq!((status, error.contains("new is not written: no result was computed")), (Some(2), true), "{error}");
    if let Some(null) = bench.device("null", "3") {
        assert_eq!(run("--out @/null").0, Some(0));
        assert!(fs::symlink_metadata(null).unwrap().file_type().is_char_device());
    }
}

#[test]
fn what_could_not_be_done_is_no_wrong_kernel_and_leaves_no_result() {
    let bench = Bench::new();
    bench.operands("in");
    let manifest = format!("version = 1\n[problems]\n\"{GEMM}\" = \"1\"\n");
    fs::write(bench.path("manifest"), manifest).unwrap();
    let lines = [
        "run --arch h200 --operands @/in --out @/new".to_owned(),
        format!("bench --arch h200 --problem {GEMM} --m 1"),
        format!("study --arch h200 --problem {GEMM} --m 1"),
        format!("pack @/new --problem {GEMM} --m 1"),
        "warm-up @/manifest --arch h200 --calls 0".to_owned(),
        "serve --arch h200 --hidden 64 --intermediate 64 --tokens 1".to_owned(),
    ];
    for line in lines {
        let (status, error) = bench.ends(&line);
        let last = error.lines().last().unwrap_or_default();
        assert!(status == Some(2) && last.starts_with("error: "), "{line}: {status:?}, {error}");
        assert!(!bench.path("new").exists());
    }
}

/// With a compiler, on a device whose kernels do nothing.
#[test]
fn a_wrong_kernel_is_told_and_leaves_no_result() {
    if common::toolchain("a_wrong_kernel_is_told_and_leaves_no_result").is_none() {
        return;
    }
    let bench = Bench::new();
    bench.operands("in");
    let mut command = bench.line(&("run --operands @/in --out @/new --json".to_owned(), On::Device));
    let output = command.env_remove("WARPSMITH_NVRTC").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", told(&output).1);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["rows"][0]["outcome"]["state"], "wrong", "{json}");
    assert!(!bench.path("new").exists());
}

#[test]
fn groups_and_rows_are_checked_before_there_is_a_list_of_them() {
    let bench = Bench::new();
    // In 4 GB of addresses, so that a test that fails leaves the machine alone.
    let bounded = |line: &str| {
        let example = bench.command(line);
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -v 4000000; exec \"$0\" \"$@\""]).arg(example.get_program()).args(example.get_args());
        told(&shell.env("WARPSMITH_NVRTC", bench.path("nvrtc")).output().unwrap())
    };
    let grouped = "grouped4294967295.gemm:f16*f16>f16:n64:k64";
    for example in ["run --arch h200", "bench --arch h200", "study --arch h200", "calibrate @/x --list h200"] {
        let problem = format!("error: {grouped}: groups = 4294967295: must be 1 to 1024\n");
        assert_eq!(bounded(&format!("{example} --problem {grouped} --m 1")), (Some(2), problem), "{example}");
        let rows = "error: --m: 4294967295 rows in all, must be 1 to 16777216\n".to_owned();
        assert_eq!(bounded(&format!("{example} --problem {GEMM} --m 4294967295")), (Some(2), rows), "{example}");
    }
}

/// A process that is killed leaves no checkpoint, and the next one goes on to the bytes that there would have been.
#[test]
fn a_checkpoint_is_quantised_though_its_process_is_killed() {
    let bench = Bench::new();
    common::checkpoints::checkpoint(&bench.path("model"), 3, [256, 1024]);
    let files = |folder: &str| -> Vec<_> {
        let paths = fs::read_dir(bench.path(folder)).unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<_> =
            paths.map(|path| (path.file_name().unwrap().to_owned(), fs::read(path).unwrap())).collect();
        all.sort();
        all
    };
    assert_eq!(bench.ends("quantize @/model @/whole").0, Some(0));
    let mut killed = bench.command("quantize @/model @/killed --threads 1").stderr(Stdio::null()).spawn().unwrap();
    while !bench.path("killed/model-0.safetensors").exists() {
        assert!(killed.try_wait().unwrap().is_none());
        thread::yield_now();
    }
    // While it has the folder, even if it does nothing, nobody else gets it.
    let stop = Command::new("kill").args(["-STOP", &killed.id().to_string()]).status().unwrap();
    assert!(stop.success());
    let (status, error) = bench.ends("quantize @/model @/killed");
    let refusal = format!("another run is writing {}: wait until it ends", bench.path("killed").display());
    assert!(status == Some(2) && error.contains(&refusal), "{error}");
    killed.kill().unwrap();
    killed.wait().unwrap();
    // A lock that is left locks nobody out.
    assert!(bench.path("killed/.quantize.lock").exists());
    assert!(!bench.path("killed/config.json").exists());
    let (status, error) = bench.ends("quantize @/model @/killed --layout compressed-tensors");
    assert!(status == Some(2) && error.contains("was begun with `layout` \"modelopt\""), "{error}");
    let output = bench.command("quantize @/model @/killed --threads 3 --json").output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), json["weights"].as_array().map(Vec::len)), (Some(0), Some(3)), "{json}");
    assert!(json["error"].as_f64().unwrap() < json["plain_error"].as_f64().unwrap(), "{json}");
    assert!(files("whole") == files("killed"));

    let (status, error) = bench.ends("quantize @/model @/model");
    assert!(status == Some(2) && error.contains("name another folder"), "{error}");
    // A GPU that is asked for is not made up for.
    let (status, error) = bench.ends("quantize @/model @/none --device 97");
    let remedy = "--device 97 (without it the CPU quantises): ";
    assert!(status == Some(2) && error.contains(remedy) && !bench.path("none").exists(), "{error}");
}

/// Clap waives what an option requires where that conflicts with another.
#[test]
fn an_option_that_would_be_ignored_is_refused() {
    let bench = Bench::new();
    let problem = format!("run --problem {GEMM}");
    let refused = [
        format!("{problem} --out @/x"),
        format!("{problem} --scales linear"),
        format!("{problem} --act silu"),
        format!("{problem} --c f16"),
        format!("{problem} --operands @/in"),
        format!("{problem} --variant mma.t64x128x64.s3.interleaved.uniform.direct --every 2"),
        "run --out @/x".to_owned(),
        "run --operands @/in --m 4".to_owned(),
        "run --unprepared --m 4".to_owned(),
        "run --unprepared --variants all".to_owned(),
        "run --variants all".to_owned(),
        format!("pack @/x --problem {GEMM} --signer 00"),
        format!("pack @/x --problem {GEMM} --show"),
        "warm-up --duty 0.5".to_owned(),
        "warm-up --dependent".to_owned(),
        "warm-up --tune 1 --arch h200".to_owned(),
        "warm-up --tune 1 --list".to_owned(),
        "warm-up --tune 1 --rank 1 --of 2".to_owned(),
        "tune --within 1".to_owned(),
        "tune --manifest @/in".to_owned(),
        "tune --manifest @/in --within 1 --budget quick".to_owned(),
        "tune --manifest @/in --within 1 --only dual".to_owned(),
        "tune --layer qwen3-30b --manifest @/in --within 1".to_owned(),
        "tune --layer qwen3-30b --within 1 --budget quick".to_owned(),
        "tune --layer qwen3-30b --problem gemm:f16*f16>f16:n64:k64".to_owned(),
        "tune --tokens 8".to_owned(),
    ];
    for line in refused {
        let (status, error) = bench.ends(&line);
        let is_usage = error.contains("cannot be used with") || error.contains("required arguments were not provided");
        assert!(status == Some(3) && is_usage, "{line}: {status:?}, {error}");
    }
}

/// On a device the result is held to the host's: kernels that do nothing are wrong, and nothing is written.
#[test]
fn a_layer_on_a_device_is_checked() {
    let test = "a_layer_on_a_device_is_checked";
    if common::toolchain(test).is_none() {
        return;
    }
    let bench = Bench::new();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../warpsmith-checkpoint/tests/fixtures/qwen3-moe-modelopt");
    let bytes = vec![0x3C; 3 * 64 * 2];
    let x = TensorView::new(Dtype::F16, vec![3, 64], &bytes).unwrap();
    fs::write(bench.path("x"), safetensors::serialize([("x", x)], None).unwrap()).unwrap();
    let line = format!("layer --checkpoint {fixture} --module model.layers.0.mlp --in @/x --out @/y --json");
    let run = |line: &str| {
        let mut command = bench.command(line);
        command.env("LD_LIBRARY_PATH", bench.driver()).env_remove("WARPSMITH_NVRTC");
        command.output().unwrap()
    };
    let output = run(&line);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert!(told["wrong"].as_str().unwrap().contains("token 0, column 0"), "{told}");
    assert!(output.status.code() == Some(1) && !bench.path("y").exists());
    // By the host it is what it is.
    let output = run(&format!("{line} --host"));
    assert!(output.status.code() == Some(0) && bench.path("y").exists(), "{output:?}");
    // A layer that no kernel computes says so.
    let output = run(&line.replace("qwen3-moe-modelopt", "qwen3-moe-stacked-bf16"));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("quantise it first"), "{output:?}");
}
