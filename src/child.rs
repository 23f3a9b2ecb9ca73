//! Processes that this one starts, each the first of a group of its own: they end with everything that they have started.

use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// Whether it has ended, which leaves it to be buried.
pub fn has_ended(child: &Child) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let asked = group(child).map(|pid| waitid(WaitId::Pid(pid), options));
    // What is no child any more has ended, too.
    !matches!(asked, Some(Ok(None)))
}

/// Kills what is left of it and of its group, and buries it: how it ended, if that is known within the limit. If not, a
/// thread goes on waiting.
pub fn end(mut child: Child, limit: Duration) -> Option<ExitStatus> {
    // All of the group may have ended already. The number is its own for as long as nobody has waited for it.
    if let Some(group) = group(&child) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = within(limit, || child.try_wait().ok().flatten());
    if status.is_none() {
        // The system may take long, as a driver does to stop what the device still runs.
        thread::spawn(move || child.wait());
    }
    status
}

fn group(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Asks until there is an answer, or the limit is over.
pub fn within<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let answer = ask();
        if answer.is_some() || start.elapsed() >= limit {
            return answer;
        }
        thread::sleep(Duration::from_millis(2));
    }
}
