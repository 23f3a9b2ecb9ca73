//! Runs pip, within a time, and says in a sentence why it failed.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::child::{end, has_ended};

/// How much of what pip says is kept: its last bytes.
const KEPT_BYTES: usize = 16 << 10;
/// How much of that is shown: so many lines, of so many characters at most.
const SHOWN_LINES: usize = 3;
const SHOWN_CHARS: usize = 200;
/// Between two looks at a pip that says nothing.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a killed process is waited for. One that hangs in the system ends later, or never.
const DEATH: Duration = Duration::from_secs(5);

/// Why there is nothing, and what helps, if it is not the usual.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) why: String,
    pub(super) remedy: Option<&'static str>,
}

/// Has pip install what the file `requirements` says, hashes included, into the directory `target`. Whatever else it
/// writes is in `work`, which is its working directory as well: a module that lies in another one would be run in pip's
/// place.
pub(super) fn install(
    python: &Path,
    requirements: &Path,
    target: &Path,
    work: &Path,
    limit: Duration,
) -> Result<(), Failure> {
    let mut command = Command::new(python);
    command
        .args(["-m", "pip", "install", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-compile"])
        .args(["--disable-pip-version-check", "--no-input", "--target"])
        .arg(target)
        .arg("--requirement")
        .arg(requirements)
        .env("TMPDIR", work)
        .current_dir(work);
    let failed = |why| Failure { why, remedy: None };
    let ended = run(command, limit).map_err(|error| failed(format!("{}: {error}", python.display())))?;
    match ended.status {
        Some(status) if status.success() => Ok(()),
        status => Err(reason(python, status, &ended.said, limit)),
    }
}

/// How a command ended; without a status, its time was up.
struct Ended {
    status: Option<ExitStatus>,
    said: String,
}

/// Runs a command and whatever it starts to the end, or to the end of its time.
fn run(mut command: Command, limit: Duration) -> io::Result<Ended> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    // SAFETY: between fork and exec this makes one system call, and neither allocates nor locks.
    unsafe {
        // Being a group of its own, it is not ended with this process by a key; nor is anybody left to end it later.
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    let start = Instant::now();
    let mut child = command.spawn()?;
    let stderr = child.stderr.take();
    let mut running = Running(Some(child));
    let mut stderr = stderr.ok_or_else(|| io::Error::other("no pipe"))?;
    ioctl_fionbio(&stderr, true)?;
    let mut tail = Tail::default();
    let mut in_time = true;
    while in_time && !running.has_ended() {
        match tail.take(&mut stderr)? {
            Said::Something => {}
            Said::Nothing => wait_for(&stderr)?,
            Said::All => std::thread::sleep(PAUSE),
        }
        in_time = start.elapsed() < limit;
    }
    let status = running.end().filter(|_| in_time);
    tail.take(&mut stderr)?;
    Ok(Ended { status, said: tail.text() })
}

/// A process that is ended, with those that it has started, when this goes.
struct Running(Option<Child>);

impl Running {
    fn has_ended(&self) -> bool {
        self.0.as_ref().is_none_or(has_ended)
    }

    fn end(&mut self) -> Option<ExitStatus> {
        self.0.take().and_then(|child| end(child, DEATH))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether there is more to be read: now, later, or no more.
enum Said {
    Something,
    Nothing,
    All,
}

/// Waits a little, but no longer than until something is said.
fn wait_for(stderr: &ChildStderr) -> io::Result<()> {
    let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() };
    match poll(&mut [PollFd::new(stderr, PollFlags::IN)], Some(&pause)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The last of what was said.
#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Tail {
    /// Takes what is there, but not for ever.
    fn take(&mut self, from: &mut ChildStderr) -> io::Result<Said> {
        let mut buffer = [0; 64 << 10];
        for _ in 0..16 {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(Said::All),
                Ok(count) => self.keep(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Said::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Said::Something)
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let surplus = self.bytes.len().saturating_sub(KEPT_BYTES);
        self.is_cut |= surplus > 0;
        self.bytes.drain(..surplus);
    }

    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        match self.is_cut {
            // What is left of the first word may be half a URL, whose password would not be seen to be one.
            true => text.split_once(char::is_whitespace).map_or("", |(_, rest)| rest).to_owned(),
            false => text.into_owned(),
        }
    }
}

/// The sentence that says why pip failed, with what it said last.
fn reason(python: &Path, status: Option<ExitStatus>, said: &str, limit: Duration) -> Failure {
    let pip = format!("pip of {}", python.display());
    let shown = match shown(said) {
        shown if shown.is_empty() => String::new(),
        shown => format!(": {shown}"),
    };
    let failed = |why: String, remedy| Failure { why: format!("{pip} {why}"), remedy };
    let Some(status) = status else {
        return failed(format!("did not end within {} s{shown}", limit.as_secs_f64()), None);
    };
    if let Some(signal) = status.signal() {
        return failed(format!("was killed by signal {signal}{shown}"), None);
    }
    if said.contains("No module named pip") {
        let why = format!("{} has no pip (Debian and Ubuntu: install python3-pip)", python.display());
        return Failure { why, remedy: None };
    }
    let (why, remedy) = CAUSES.iter().find(|cause| cause.signs.iter().any(|sign| said.contains(sign))).map_or_else(
        || (if shown.is_empty() { " and said nothing (no network?)" } else { "" }, None),
        |cause| (cause.why, cause.remedy),
    );
    failed(format!("ended with {status}{why}{shown}"), remedy)
}

/// What pip says, what that means, and what helps.
struct Cause {
    signs: &'static [&'static str],
    why: &'static str,
    remedy: Option<&'static str>,
}

const CAUSES: [Cause; 6] = [
    Cause {
        signs: &["DO NOT MATCH THE HASHES"],
        why: ", since its index has another file of that name than NVIDIA's",
        remedy: Some("let pip use another index"),
    },
    Cause {
        signs: &["No space left on device", "Disk quota exceeded"],
        why: ", since the disk is full",
        remedy: Some("make room of 400 MB, or set WARPSMITH_CACHE_DIR to a directory of yours on another disk"),
    },
    Cause {
        signs: &["Permission denied", "Read-only file system"],
        why: ", since it may not write",
        remedy: Some("set WARPSMITH_CACHE_DIR to a directory that you can write to"),
    },
    Cause {
        signs: &["externally-managed-environment", "externally managed"],
        why: ", since it may not install anything",
        remedy: Some("put a virtual environment's python3 first on PATH"),
    },
    Cause {
        signs: &[
            "Failed to establish a new connection",
            "Name or service not known",
            "Temporary failure in name resolution",
            "Network is unreachable",
            "No route to host",
            "Connection refused",
            "ConnectTimeoutError",
            "Read timed out",
            "ProxyError",
        ],
        why: ", since it reaches no index (no network?)",
        remedy: None,
    },
    Cause {
        signs: &["No matching distribution found"],
        why: ", since its index has no wheel of that release for this machine",
        remedy: None,
    },
];

/// The last lines, without escapes and without what a URL has before its host.
fn shown(said: &str) -> String {
    let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(SHOWN_LINES)..].iter().map(|line| {
        let words: Vec<_> = line.split_whitespace().map(without_credentials).collect();
        let printable = words.join(" ").replace(char::is_control, "");
        match printable.char_indices().nth(SHOWN_CHARS) {
            Some((end, _)) => format!("{}…", &printable[..end]),
            None => printable,
        }
    });
    last.collect::<Vec<_>>().join(" | ")
}

/// A word; of a URL in it, nothing from `://` to the last `@`.
fn without_credentials(word: &str) -> String {
    match (word.find("://"), word.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}://…{}", &word[..scheme], &word[at..]),
        _ => word.to_owned(),
    }
}
