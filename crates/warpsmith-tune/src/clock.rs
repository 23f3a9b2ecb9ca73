//! The time by which a tuner ends its search and lets the device rest.

use std::thread;
use std::time::{Duration, Instant};

/// Time as a tuner knows it: the system's, unless somebody has another.
pub trait Clock {
    /// Since some moment that stays the same.
    fn now(&self) -> Duration;

    /// Lets so much of it pass, in which nothing is asked of the device.
    fn rest(&self, time: Duration);
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> Duration {
        (**self).now()
    }

    fn rest(&self, time: Duration) {
        (**self).rest(time);
    }
}

/// The system's time.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// That begins now.
    #[must_use]
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn rest(&self, time: Duration) {
        thread::sleep(time);
    }
}
