//! A worker process, and what is known of it from outside.
//!
//! Three threads stand between: one writes (a worker that hangs does not read, and the pipe is soon full), one reads
//! answers, one keeps the end of what it says on stderr. Each ends with the process.

use std::io::{BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::command::WorkerCommand;
use super::protocol::{self, Reply};
use crate::error::{Error, Result};

/// A killed process is waited for at most so long; a thread goes on waiting.
const BURIAL: Duration = Duration::from_secs(2);
/// A process whose output has ended ends within this time.
const LAST_BREATH: Duration = Duration::from_secs(5);
/// Bytes of stderr that are kept.
const LAST_WORDS: usize = 600;

/// A running worker. It is killed when dropped.
#[derive(Debug)]
pub(super) struct Process {
    /// Taken when it is buried.
    child: Option<Child>,
    requests: Sender<Vec<u8>>,
    replies: Receiver<Result<Reply>>,
    words: Arc<Mutex<Vec<u8>>>,
    listener: JoinHandle<()>,
}

/// Why there was no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// The deadline has passed.
    Late,
    /// The process has ended by itself; with how, and its last words.
    Died(String),
    /// Somebody has ended it: the user, or a system that is out of memory.
    Killed(String),
    /// It has said something else.
    Garbled(String),
}

impl Process {
    pub(super) fn start(command: &WorkerCommand) -> Result<Self> {
        let mut command = command.command();
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().map_err(|error| {
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
        Ok(Self { child: Some(child), requests, replies, words, listener })
    }

    /// Whether it can be asked anything.
    pub(super) fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Sends a request and waits for the answer, but not beyond the deadline.
    pub(super) fn ask(&mut self, request: Vec<u8>, deadline: Duration) -> std::result::Result<Reply, Silence> {
        // A writer that has ended tells of a process that has, which the replies tell, too.
        let _ = self.requests.send(request);
        match self.replies.recv_timeout(deadline) {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => Err(Silence::Garbled(error.to_string())),
            Err(RecvTimeoutError::Timeout) => Err(Silence::Late),
            Err(RecvTimeoutError::Disconnected) => Err(self.autopsy()),
        }
    }

    /// How it ended, once its output has.
    fn autopsy(&mut self) -> Silence {
        let status = self.child.as_mut().and_then(|child| ended_within(child, LAST_BREATH));
        // What it said last is in the pipe, unless a process of its own holds that.
        within(BURIAL, || self.listener.is_finished().then_some(()));
        let words =
            String::from_utf8_lossy(&self.words.lock().unwrap_or_else(PoisonError::into_inner)).trim().to_owned();
        let said = |how: String| if words.is_empty() { how } else { format!("{how}, after saying: {words}") };
        match status {
            Some(status) if is_from_outside(status) => Silence::Killed(said(format!("the worker ended: {status}"))),
            Some(status) => Silence::Died(said(format!("the worker ended: {status}"))),
            None => Silence::Garbled(said("the worker closed its output, but lives on".to_owned())),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // It may have ended already.
        let _ = child.kill();
        if ended_within(&mut child, BURIAL).is_none() {
            // The driver may take long to stop what the device still runs.
            thread::spawn(move || child.wait());
        }
    }
}

/// SIGHUP, SIGINT, SIGKILL and SIGTERM: nothing that a kernel does.
fn is_from_outside(status: ExitStatus) -> bool {
    matches!(status.signal(), Some(1 | 2 | 9 | 15))
}

fn ended_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    within(limit, || child.try_wait().ok().flatten())
}

/// Asks until there is an answer, or the limit is over.
fn within<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let answer = ask();
        if answer.is_some() || start.elapsed() >= limit {
            return answer;
        }
        thread::sleep(Duration::from_millis(2));
    }
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
