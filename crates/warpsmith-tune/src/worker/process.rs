//! A worker process, and what is known of it from outside.
//!
//! Three threads backend between: one writes (a worker that hangs does not read, and the pipe is soon full), one reads
//! answers, one keeps the end of what it says on stderr. Each ends with the process and those that it has started, which
//! are of its group and killed with it: whoever holds the other end of a pipe holds a thread and its file.

use std::io::{BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::command::WorkerCommand;
use super::protocol::{self, Answer, Reply};
use warpsmith::internal::Raise;
use warpsmith::internal::child::{end, has_ended, within};
use warpsmith::{Error, Result};

/// A killed process is waited for at most so long; a thread goes on waiting.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
/// A process whose output has ended ends within this time.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of stderr that are kept.
const LAST_WORDS: usize = 600;

/// A running worker. It is killed when dropped, and with it whatever it has started.
#[derive(Debug)]
pub(super) struct Process {
    /// The first of its group. Taken when it is buried: until then nobody else has its number.
    child: Option<Child>,
    /// The number of the next request.
    next: u64,
    requests: Sender<Vec<u8>>,
    replies: Receiver<Result<Reply>>,
    words: Arc<Mutex<Vec<u8>>>,
    listener: JoinHandle<()>,
}

/// Why there was no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoReply {
    pub why: Why,
    /// Whether it had said that the kernel was about to run.
    pub launched: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The deadline has passed.
    Late,
    /// The process was ended by a signal for what it did; with which, and its last words.
    Faulted(String),
    /// It has ended by itself, as after a panic, or on purpose, as where there is no memory; likewise.
    Ended(String),
    /// Somebody has ended it: the user, or a system that is out of memory.
    Killed(String),
    /// It has said something else.
    Garbled(String),
}

impl Process {
    pub(super) fn start(command: &WorkerCommand) -> Result<Self> {
        let mut command = command.command();
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.process_group(0).spawn().map_err(|error| {
            Error::unsupported(format!("the worker {} cannot be started: {error}", command.get_program().display()))
                .with_source(error)
        })?;
        let (requests, to_write) = mpsc::channel::<Vec<u8>>();
        let (answered, replies) = mpsc::channel();
        let words = Arc::new(Mutex::new(Vec::new()));
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut input), Some(output), Some(errors)) = pipes else {
            return Err(Error::internal("a worker without pipes"));
        };
        thread::spawn(move || {
            // A pipe that breaks is a process that ended, which the reader tells.
            while let Ok(bytes) = to_write.recv() {
                if input.write_all(&bytes).and_then(|()| input.flush()).is_err() {
                    break;
                }
            }
        });
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            while let Some(reply) = protocol::hear(&mut output).transpose() {
                let ends = reply.is_err();
                if answered.send(reply).is_err() || ends {
                    break;
                }
            }
        });
        let kept = Arc::clone(&words);
        let listener = thread::spawn(move || keep_last(errors, &kept));
        Ok(Self { child: Some(child), next: 0, requests, replies, words, listener })
    }

    /// Whether it can be asked anything.
    pub(super) fn is_alive(&mut self) -> bool {
        self.child.as_ref().is_some_and(|child| !has_ended(child))
    }

    /// The number of the request that comes next; its first is 0.
    pub(super) fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Sends the request of this number and waits for its answer, but not beyond the deadline.
    pub(super) fn ask(
        &mut self,
        request: Vec<u8>,
        number: u64,
        deadline: Duration,
    ) -> std::result::Result<Reply, NoReply> {
        let mut launched = false;
        self.answer_to(request, number, deadline, &mut launched).map_err(|why| NoReply { why, launched })
    }

    fn answer_to(
        &mut self,
        request: Vec<u8>,
        number: u64,
        deadline: Duration,
        launched: &mut bool,
    ) -> std::result::Result<Reply, Why> {
        if let Ok(Ok(unasked)) = self.replies.try_recv() {
            return Err(Why::Garbled(format!("the worker said what nobody had asked for: {unasked:?}")));
        }
        // A writer that has ended tells of a process that has, which the replies tell, too.
        let _ = self.requests.send(request);
        let start = Instant::now();
        loop {
            match self.replies.recv_timeout(deadline.saturating_sub(start.elapsed())) {
                Ok(Ok(reply)) if reply.to != number => {
                    return Err(Why::Garbled(format!("request {number} was answered by one to {}", reply.to)));
                }
                Ok(Ok(Reply { answer: Answer::Launching, last: false, .. })) => *launched = true,
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(error)) => return Err(Why::Garbled(error.to_string())),
                Err(RecvTimeoutError::Timeout) => return Err(Why::Late),
                Err(RecvTimeoutError::Disconnected) => return Err(self.exit_reason()),
            }
        }
    }

    /// How it ended, once its output has.
    fn exit_reason(&mut self) -> Why {
        let ended =
            self.child.take().and_then(|child| match within(EXIT_TIMEOUT, || has_ended(&child).then_some(())) {
                Some(()) => end(child, KILL_TIMEOUT),
                None => {
                    self.child = Some(child);
                    None
                }
            });
        // What it said last is in the pipe, which nobody holds any more who is of its group.
        within(KILL_TIMEOUT, || self.listener.is_finished().then_some(()));
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let words = String::from_utf8_lossy(&words).split_whitespace().collect::<Vec<_>>().join(" ");
        let said = |how: String| if words.is_empty() { how } else { format!("{how}, after saying: {words}") };
        match ended {
            Some(status) if is_from_outside(status) => Why::Killed(said(format!("the worker ended: {status}"))),
            Some(status) if is_fault(status) => Why::Faulted(said(format!("the worker ended: {status}"))),
            Some(status) => Why::Ended(said(format!("the worker ended: {status}"))),
            None => Why::Garbled(said("the worker closed its output, but lives on".to_owned())),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            end(child, KILL_TIMEOUT);
        }
    }
}

/// SIGHUP, SIGINT, SIGKILL and SIGTERM: nothing that a kernel does.
fn is_from_outside(status: ExitStatus) -> bool {
    matches!(status.signal(), Some(1 | 2 | 9 | 15))
}

/// SIGILL, SIGTRAP, SIGBUS, SIGFPE and SIGSEGV: what a process is ended for that has been written over. SIGABRT is not
/// among them: that is Rust without memory, or a library that gives up.
fn is_fault(status: ExitStatus) -> bool {
    matches!(status.signal(), Some(4 | 5 | 7 | 8 | 11))
}

fn keep_last(mut errors: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut piece = [0; 512];
    while let Ok(bytes @ 1..) = errors.read(&mut piece) {
        tracing::debug!(said = %String::from_utf8_lossy(&piece[..bytes]), "worker");
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&piece[..bytes]);
        let surplus = kept.len().saturating_sub(LAST_WORDS);
        kept.drain(..surplus);
    }
}
