//! Runs the cases of one area, each with a generator of its own.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::counting;

/// How long an area runs, unless it is told.
const SECONDS: f64 = 1.0;
/// A case that takes longer hangs: most take less than a millisecond, on a machine that is not busy.
const CASE_AT_MOST: Duration = Duration::from_secs(20);

/// Runs `case` with one seed after the other until the time is up. A case that panics or hangs ends the run and names its
/// seed; `WARPSMITH_FUZZ_SEED` with that number begins there.
pub fn run(area: &str, mut case: impl FnMut(&mut SmallRng)) {
    let time = Duration::from_secs_f64(asked("WARPSMITH_FUZZ_SECONDS").unwrap_or(SECONDS));
    let first: u64 = asked("WARPSMITH_FUZZ_SEED").unwrap_or(0);
    let (start, seed, began_ms) = (Instant::now(), AtomicU64::new(first), AtomicU64::new(0));
    let now_ms = || u64::try_from(start.elapsed().as_millis()).unwrap();
    std::thread::scope(|scope| {
        // Dropped at the end, also by a panic.
        let (_running, ended) = mpsc::channel::<()>();
        let (seed, began_ms) = (&seed, &began_ms);
        scope.spawn(move || {
            while ended.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                if now_ms() - began_ms.load(Relaxed) > CASE_AT_MOST.as_millis() as u64 {
                    // A thread that hangs cannot be ended, and a test's own output is lost with the process.
                    let _ = writeln!(std::io::stderr(), "fuzz {area}: seed {} hangs", seed.load(Relaxed));
                    std::process::exit(1);
                }
            }
        });
        let _named = Named { area, seed };
        while start.elapsed() < time {
            began_ms.store(now_ms(), Relaxed);
            case(&mut SmallRng::seed_from_u64(seed.load(Relaxed)));
            seed.fetch_add(1, Relaxed);
        }
    });
    let cases = seed.load(Relaxed) - first;
    println!("fuzz {area}: {cases} cases in {:.1} s, seeds from {first}", start.elapsed().as_secs_f64());
    assert!(cases > 0, "not one case was run");
}

/// What `case` gives. It may hold `most` bytes more at once than before.
pub fn within<T>(most: usize, case: impl FnOnce() -> T) -> T {
    let (given, peak) = counting::peak_of(case);
    assert!(peak <= most, "{peak} B of memory, at most {most} were expected");
    given
}

fn asked<T: std::str::FromStr>(variable: &str) -> Option<T> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is no number")))
}

/// Says which case it was that panicked.
struct Named<'a> {
    area: &'a str,
    seed: &'a AtomicU64,
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("fuzz {}: failed with WARPSMITH_FUZZ_SEED={}", self.area, self.seed.load(Relaxed));
        }
    }
}
