//! Clocks: time on the device, per call, with operands that are not in the L2 cache.
//!
//! Calls rotate through several sets of operands whose bytes exceed the L2 cache several times over, so that each call
//! finds its operands in device memory, as it would in a model where other layers ran in between. A graph holds many
//! calls, so that the host's launches cost nothing; events around each of many replays give the samples.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaEvent, CudaGraph, CudaStream};

use super::refused;
use crate::error::{Error, Result};

/// Operand sets are so many that together they are this many times the L2 cache.
const L2_MULTIPLE: u64 = 3;
/// Sets at most, for operands so small that they would take thousands.
const SETS_MAX: u64 = 1024;
/// Calls that one graph holds at most, unless one round of the sets is more.
const CALLS_MAX: usize = 256;

/// How long a timing takes, and so how exact it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The device rests so long before, so that what ran earlier, and how hot it made the chip, matters little.
    pub rest: Duration,
    /// One replay of the graph takes about this long; at least one round of the operand sets.
    pub replay: Duration,
    /// Replays that bring the clocks up.
    pub warm_ups: usize,
    /// Replays that are measured.
    pub replays: usize,
}

impl Pace {
    /// Replays long enough that events (resolution half a microsecond) are exact to 0.1 %. Without the rest some 40 ms:
    /// a serving engine's burst, not a stress test in which the chip lowers its clocks for power.
    pub const NORMAL: Pace =
        Pace { rest: Duration::from_millis(150), replay: Duration::from_micros(1500), warm_ups: 3, replays: 25 };
    /// A few milliseconds in all, to tell good from bad: exact to some per cent.
    pub const BRIEF: Pace = Pace { rest: Duration::ZERO, replay: Duration::from_micros(300), warm_ups: 1, replays: 7 };
}

/// The number of operand sets that keep operands of `bytes_per_set` out of an L2 cache of `l2_bytes`.
#[must_use]
pub fn operand_sets(bytes_per_set: u64, l2_bytes: u64) -> usize {
    let sets = (L2_MULTIPLE * l2_bytes) / bytes_per_set.max(1) + 1;
    sets.clamp(2, SETS_MAX) as usize
}

/// What a clock saw: microseconds per call, over the replays of a graph of many calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The middle sample.
    pub median_us: f64,
    /// The smallest sample.
    pub min_us: f64,
    /// A tenth of the samples are at most this.
    pub p10_us: f64,
    /// Nine tenths of the samples are at most this.
    pub p90_us: f64,
    /// Samples: replays of the graph.
    pub replays: usize,
    /// Calls in one replay.
    pub calls: usize,
}

impl Timing {
    fn of(mut samples: Vec<f64>, calls: usize) -> Result<Self> {
        samples.sort_by(f64::total_cmp);
        let last = samples.len().checked_sub(1).ok_or_else(|| Error::internal("a timing without samples"))?;
        let at = |share: f64| samples[(share * last as f64).round() as usize];
        Ok(Self {
            median_us: at(0.5),
            min_us: at(0.0),
            p10_us: at(0.1),
            p90_us: at(0.9),
            replays: samples.len(),
            calls,
        })
    }

    /// The width of the middle four fifths of the samples as a share of the median.
    #[must_use]
    pub fn spread(&self) -> f64 {
        (self.p90_us - self.p10_us) / self.median_us
    }
}

/// Times calls in one stream.
///
/// The stream must be one that can be captured, so not the default stream of the context, and cudarc's event tracking
/// must not be at work in the context: whoever owns the context calls the unsafe
/// [`disable_event_tracking`](cudarc::driver::CudaContext::disable_event_tracking), and so vouches that memory is not
/// shared between streams without care. A program that uses a single stream may always do so.
#[derive(Debug)]
pub struct Timer {
    stream: Arc<CudaStream>,
    limit: Duration,
    pace: Pace,
}

impl Timer {
    /// A clock for calls in `stream`; it gives up after 20 seconds (see [`Timer::limit`]).
    ///
    /// # Errors
    /// Operand, if the stream cannot be captured.
    pub fn new(stream: &Arc<CudaStream>) -> Result<Self> {
        if stream.cu_stream().is_null() {
            return Err(Error::operand("the default stream cannot be captured: time in a stream of its own"));
        }
        if stream.context().is_managing_stream_synchronization() {
            return Err(Error::operand(
                "cudarc tracks events in this context, which breaks a capture: call \
                 `CudaContext::disable_event_tracking` first",
            ));
        }
        Ok(Self { stream: Arc::clone(stream), limit: Duration::from_secs(20), pace: Pace::NORMAL })
    }

    /// How long to wait for the device before it is given up, at each step.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// How long a timing takes.
    #[must_use]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Times `launch(set)`, which puts one call on operand set `set` (of `0..sets`) into the timer's stream and does
    /// nothing else with the device.
    ///
    /// # Errors
    /// Those of `launch`; driver, if capture or replay fails or something still runs after the limit.
    pub fn time(&self, sets: usize, mut launch: impl FnMut(usize) -> Result<()>) -> Result<Timing> {
        let sets = sets.max(1);
        let Pace { rest, replay, warm_ups, replays } = self.pace;
        let per_call = self.estimate(sets, &mut launch)?;
        let calls = rounds(replay, per_call, sets, CALLS_MAX) * sets;
        let graph = self.capture((0..calls).map(|call| call % sets), &mut launch)?;

        wait(&self.stream, self.limit)?;
        if !rest.is_zero() {
            thread::sleep(rest);
        }
        for _ in 0..warm_ups {
            graph.launch().map_err(|error| refused("replaying the graph", error))?;
        }
        let (start, end) = (self.event()?, self.event()?);
        let mut samples = Vec::with_capacity(replays);
        for _ in 0..replays {
            let replay =
                || start.record(&self.stream).and_then(|()| graph.launch()).and_then(|()| end.record(&self.stream));
            replay().map_err(|error| refused("replaying the graph", error))?;
            wait(&self.stream, self.limit)?;
            samples.push(microseconds(&start, &end)? / calls as f64);
        }
        Timing::of(samples, calls)
    }

    /// A first look: one round of every set, launched one by one. The kernel has run before, or not; it only sets how
    /// many calls a graph takes.
    fn estimate(&self, sets: usize, launch: &mut impl FnMut(usize) -> Result<()>) -> Result<Duration> {
        let (start, end) = (self.event()?, self.event()?);
        launch(0)?;
        start.record(&self.stream).map_err(|error| refused("recording an event", error))?;
        (0..sets).try_for_each(launch)?;
        end.record(&self.stream).map_err(|error| refused("recording an event", error))?;
        wait(&self.stream, self.limit)?;
        Ok(Duration::from_secs_f64((microseconds(&start, &end)? / sets as f64 * 1e-6).max(1e-7)))
    }

    fn capture(
        &self,
        calls: impl Iterator<Item = usize>,
        launch: &mut impl FnMut(usize) -> Result<()>,
    ) -> Result<CudaGraph> {
        self.stream
            .begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
            .map_err(|error| refused("beginning to capture", error))?;
        let launched = calls.into_iter().try_for_each(launch);
        // Ended also after a failure, so that the stream can be used again; the failure is what is told.
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0));
        launched?;
        graph
            .map_err(|error| refused("ending the capture", error))?
            .ok_or_else(|| Error::driver("the capture holds no graph"))
    }

    fn event(&self) -> Result<CudaEvent> {
        self.stream
            .context()
            .new_event(Some(CUevent_flags::CU_EVENT_DEFAULT))
            .map_err(|error| refused("making an event", error))
    }
}

/// How often `each` goes into `all`.
fn times(all: Duration, each: Duration) -> usize {
    (all.as_secs_f64() / each.as_secs_f64().max(1e-9)) as usize
}

/// Rounds of the sets that take about `all`: at least one, and at most `calls_max` calls.
fn rounds(all: Duration, per_call: Duration, sets: usize, calls_max: usize) -> usize {
    (times(all, per_call).min(calls_max) / sets).max(1)
}

fn microseconds(start: &CudaEvent, end: &CudaEvent) -> Result<f64> {
    let ms = start.elapsed_ms(end).map_err(|error| refused("reading the time between two events", error))?;
    Ok(f64::from(ms) * 1e3)
}

/// Waits until everything in `stream` is done, or the limit is over.
///
/// # Errors
/// Driver, if something in the stream failed, or still runs after `limit` (a kernel that hangs stays on the device
/// until the process ends).
pub fn wait(stream: &CudaStream, limit: Duration) -> Result<()> {
    let done = stream.record_event(None).map_err(|error| refused("recording an event", error))?;
    let start = Instant::now();
    while !done.try_is_complete().map_err(|error| refused("waiting for the device", error))? {
        let waited = start.elapsed();
        if waited > limit {
            return Err(Error::driver(format!("still running after {:.1} s", limit.as_secs_f64())));
        }
        if waited > Duration::from_millis(1) {
            thread::sleep(Duration::from_micros(50));
        } else {
            thread::yield_now();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_exceed_the_cache() {
        let l2 = 60 << 20;
        assert_eq!(operand_sets(33 << 20, l2), 6);
        assert!(operand_sets(33 << 20, l2) as u64 * (33 << 20) > 3 * l2);
        assert_eq!(operand_sets(1 << 30, l2), 2);
        assert_eq!(operand_sets(0, l2), 1024);
    }

    #[test]
    fn percentiles_are_of_the_sorted_samples() {
        let samples = (0..=100).rev().map(f64::from).collect();
        let timing = Timing::of(samples, 7).unwrap();
        assert_eq!((timing.min_us, timing.p10_us, timing.median_us, timing.p90_us), (0.0, 10.0, 50.0, 90.0));
        assert_eq!((timing.replays, timing.calls), (101, 7));
        assert!((timing.spread() - 1.6).abs() < 1e-12);
        assert!(Timing::of(Vec::new(), 1).is_err());
    }

    #[test]
    fn a_graph_is_whole_rounds() {
        let us = Duration::from_micros;
        assert_eq!(rounds(us(1000), us(10), 6, 256), 16);
        assert_eq!(rounds(us(1000), us(1), 6, 256), 42);
        assert_eq!(rounds(us(1000), us(4000), 6, 256), 1);
    }
}
