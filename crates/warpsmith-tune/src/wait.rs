//! Waiting for the device, but not forever.

use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaEvent, CudaStream, DriverError};

use warpsmith::internal::Raise;
use warpsmith::internal::refused;
use warpsmith::{Error, Result};

/// What a kernel may still take that was not waited for.
const MOMENT: Duration = Duration::from_millis(100);

/// Waits until everything in `stream` is done, or the limit is over.
///
/// # Errors
/// Driver, if something in the stream failed, or still runs after `limit` (a kernel that hangs stays on the device
/// until the process ends).
pub fn wait(stream: &CudaStream, limit: Duration) -> Result<()> {
    let done = stream.record_event(None).map_err(|error| refused("recording an event", error))?;
    wait_for(&done, limit)
}

/// As [`wait`], up to an event.
pub(crate) fn wait_for(event: &CudaEvent, limit: Duration) -> Result<()> {
    match completes_within(event, limit) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::driver(format!("still running after {:.1} s", limit.as_secs_f64()))),
        Err(error) => Err(refused("waiting for the device", error)),
    }
}

fn completes_within(event: &CudaEvent, limit: Duration) -> Result<bool, DriverError> {
    let start = Instant::now();
    while !event.try_is_complete()? {
        let waited = start.elapsed();
        if waited > limit {
            return Ok(false);
        }
        if waited > Duration::from_millis(1) {
            thread::sleep(Duration::from_micros(50));
        } else {
            thread::yield_now();
        }
    }
    Ok(true)
}

/// What is left of a context after something in it went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It can be used on: the failure was that of a call (no memory, say), not of a kernel.
    Sound,
    /// A kernel is still running; it stays on the device until the process ends.
    Busy,
    /// A kernel faulted: every call fails from now on, with the driver's name for why.
    Lost(String),
}

impl Health {
    /// How the context of `stream` is, asked of the driver itself. A kernel that is still running gets a moment to end.
    #[must_use]
    pub fn of(stream: &CudaStream) -> Self {
        let ask = || stream.record_event(None).and_then(|event| completes_within(&event, MOMENT));
        // The first answer may be what cudarc remembers of an earlier call; a lost context fails each time.
        match ask().or_else(|_| ask()) {
            Ok(true) => Self::Sound,
            Ok(false) => Self::Busy,
            Err(error) => Self::Lost(format!("{:?}", error.0)),
        }
    }
}
