//! Clocks: time on the device, per call, with operands that are not in the L2 cache.
//!
//! Calls rotate through several sets of operands whose bytes exceed the L2 cache several times over, so that each call
//! finds its operands in device memory, as it would in a model where other layers ran in between. A graph holds many
//! calls, so that the host's launches cost nothing. Replays are put into the stream one behind the other with events
//! between them, behind some that are not measured: no sample contains the start of an idle device.
//!
//! [`Timer::time`] is for one kind of call, [`Timer::time_in_turn`] for several that are to be compared; [`Pace`] says how
//! exact.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaEvent, CudaGraph, CudaStream};

use super::wait::{wait, wait_for};
use warpsmith::internal::Raise;
use warpsmith::internal::{elapsed_ms, refused};
use warpsmith::spec::Problem;
use warpsmith::{Error, Result};

/// Operand sets are so many that together they are this many times the L2 cache.
const L2_MULTIPLE: u64 = 3;
/// Sets at most, for operands so small that they would take thousands.
const SETS_MAX: u64 = 1024;
/// Bytes of all sets together at most, whatever part of them is read.
const SETS_BYTES: f64 = 24e9;
/// Calls that one graph holds at most, unless one round of the sets is more.
const CALLS_MAX: usize = 256;
/// Replays that are in the stream at a time at most: the driver's queue is longer.
const QUEUED_MAX: usize = 64;
/// Replays that are compared follow each other for so long at most, or the chip lowers its clocks for power meanwhile; then the
/// device rests for so long. The first is a serving engine's burst.
const BURST: Duration = Duration::from_millis(40);
const BETWEEN: Duration = Duration::from_millis(80);

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
    /// A second and more under load, as long prompts are: tall tiles are then as fast as the chip's power lets them be, and what
    /// takes more energy takes longer.
    pub const STEADY: Pace =
        Pace { rest: Duration::from_millis(400), replay: Duration::from_millis(10), warm_ups: 30, replays: 60 };
    /// A few milliseconds in all, to tell good from bad: exact to some per cent.
    pub const BRIEF: Pace = Pace { rest: Duration::ZERO, replay: Duration::from_micros(300), warm_ups: 1, replays: 7 };
}

/// The number of operand sets that keep operands of `bytes_per_set` out of an L2 cache of `l2_bytes`.
#[must_use]
pub fn operand_sets(bytes_per_set: u64, l2_bytes: u64) -> usize {
    let sets = (L2_MULTIPLE * l2_bytes) / bytes_per_set.max(1) + 1;
    sets.clamp(2, SETS_MAX) as usize
}

/// As [`operand_sets`], for rows of each group (one number if there are no groups). Groups without rows are in a set, but no
/// call reads their weights: where few have rows, more sets are needed, as long as they take no more than
/// 24 GB together.
#[must_use]
pub fn operand_sets_of(problem: &Problem, rows: &[u32], l2_bytes: u64) -> usize {
    let whole = problem.bytes_of(&vec![1; rows.len()]).max(problem.bytes_of(rows));
    let most = (SETS_BYTES / whole.max(1.0)) as usize;
    operand_sets(problem.bytes_of(rows) as u64, l2_bytes).min(most.max(2))
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
    /// Sets that in turn keep operands out of the L2 cache, if not all are needed for that.
    cold: Option<usize>,
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
        if stream.context().is_event_tracking() {
            return Err(Error::operand(
                "cudarc tracks events in this context, which breaks a capture: call \
                 `CudaContext::disable_event_tracking` first",
            ));
        }
        Ok(Self { stream: Arc::clone(stream), limit: Duration::from_secs(20), pace: Pace::NORMAL, cold: None })
    }

    /// How long to wait for the device before it is given up, at each step.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// How long a timing takes (default: [`Pace::NORMAL`]).
    #[must_use]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// So many sets, one behind the other, keep operands out of the L2 cache: where a round of all takes longer than a burst,
    /// turns take parts of it, each at least as long.
    #[must_use]
    pub fn cold(mut self, sets: usize) -> Self {
        self.cold = Some(sets.max(1));
        self
    }

    /// Times `launch(set)`, which puts one call on operand set `set` (of `0..sets`) into the timer's stream and does
    /// nothing else with the device. The calls are replayed, so what they use lives as long as `launch` does.
    ///
    /// # Errors
    /// Those of `launch`; driver, if capture or replay fails or something still runs after the limit.
    pub fn time(&self, sets: usize, mut launch: impl FnMut(usize) -> Result<()>) -> Result<Timing> {
        // Borrowed, so that what it owns is there until the last replay is done.
        let per_call = self.estimate(sets, &mut launch)?;
        let recording = self.record(0..sets.max(1), per_call, &mut launch)?;
        self.rest();
        let repeated = |count| vec![&recording; count];
        let samples = self.replay(&repeated(self.pace.warm_ups), &repeated(self.pace.replays))?;
        Timing::of(samples, recording.calls)
    }

    /// Times several kinds of call, a replay of each after the other: gives `turns` times the microseconds per call of
    /// every kind, `[turn][kind]`, so that numbers of one turn can be compared: whatever the clocks do, they do it to
    /// all of them. `launch(kind, set)` is as for [`Timer::time`], with `kind` of `0..kinds`.
    ///
    /// Every other turn goes backwards, so that none always has the same one before it, and a drift favours none. The
    /// device rests between turns where it would be busy for longer than a burst.
    ///
    /// # Errors
    /// Those of [`Timer::time`].
    pub fn time_in_turn(
        &self,
        sets: usize,
        kinds: usize,
        turns: usize,
        mut launch: impl FnMut(usize, usize) -> Result<()>,
    ) -> Result<Vec<Vec<f64>>> {
        let per_call = (0..kinds).map(|kind| self.estimate(sets, &mut |set| launch(kind, set)));
        let per_call = per_call.collect::<Result<Vec<_>>>()?;
        let parts = parts_of(sets, self.cold.unwrap_or(sets), per_call.iter().sum());
        let mut recordings = Vec::with_capacity(parts.len());
        for part in &parts {
            let of_kind = |(kind, per_call): (usize, &Duration)| {
                self.record(part.clone(), *per_call, &mut |set| launch(kind, set))
            };
            recordings.push(per_call.iter().enumerate().map(of_kind).collect::<Result<Vec<_>>>()?);
        }
        self.rest();
        let order: Vec<usize> = (0..turns).flat_map(|turn| kinds_of(turn, kinds)).collect();
        let part_of = |place: usize| &recordings[place / kinds.max(1) % parts.len()];
        let replays: Vec<&Recording> = order.iter().enumerate().map(|(place, kind)| &part_of(place)[*kind]).collect();
        let takes = |part: &Vec<Recording>| part.iter().map(|recording| recording.takes).sum();
        let burst = burst(recordings.iter().map(takes).max().unwrap_or_default(), kinds);
        let mut samples = Vec::with_capacity(replays.len());
        for (number, replays) in replays.chunks(burst).enumerate() {
            if number > 0 {
                thread::sleep(BETWEEN);
            }
            let warm_ups: Vec<&Recording> = part_of(number * burst).iter().collect();
            samples.extend(self.replay(&warm_ups, replays)?);
        }
        Ok(by_kind(&order, &samples, kinds))
    }

    fn rest(&self) {
        if !self.pace.rest.is_zero() {
            thread::sleep(self.pace.rest);
        }
    }

    /// A graph of whole rounds of some sets. What `launch` uses must outlive it, so `launch` stays the caller's.
    fn record(
        &self,
        sets: Range<usize>,
        per_call: Duration,
        launch: &mut impl FnMut(usize) -> Result<()>,
    ) -> Result<Recording> {
        let calls = rounds(self.pace.replay, per_call, sets.len(), CALLS_MAX) * sets.len();
        let graph = self.capture((0..calls).map(|call| sets.start + call % sets.len()), launch)?;
        wait(&self.stream, self.limit)?;
        Ok(Recording { graph, calls, takes: per_call * calls as u32 })
    }

    /// Replays graphs one behind the other: microseconds a call of each. Each time before the device would run dry,
    /// `warm_ups` go first and are not measured.
    fn replay(&self, warm_ups: &[&Recording], recordings: &[&Recording]) -> Result<Vec<f64>> {
        let launch =
            |recording: &Recording| recording.graph.launch().map_err(|error| refused("replaying the graph", error));
        let mut samples = Vec::with_capacity(recordings.len());
        for batch in recordings.chunks(QUEUED_MAX) {
            let fences = (0..=batch.len()).map(|_| self.event()).collect::<Result<Vec<_>>>()?;
            warm_ups.iter().copied().try_for_each(launch)?;
            self.stamp(&fences[0])?;
            for (recording, fence) in batch.iter().zip(&fences[1..]) {
                launch(recording)?;
                self.stamp(fence)?;
            }
            fences.iter().try_for_each(|fence| wait_for(fence, self.limit))?;
            for (recording, fences) in batch.iter().zip(fences.windows(2)) {
                samples.push(microseconds(&fences[0], &fences[1])? / recording.calls as f64);
            }
        }
        Ok(samples)
    }

    /// A first look: one round of every set, launched one by one. The kernel has run before, or not; it only sets how
    /// many calls a graph takes.
    fn estimate(&self, sets: usize, launch: &mut impl FnMut(usize) -> Result<()>) -> Result<Duration> {
        let (start, end, sets) = (self.event()?, self.event()?, sets.max(1));
        launch(0)?;
        self.stamp(&start)?;
        (0..sets).try_for_each(launch)?;
        self.stamp(&end)?;
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

    fn stamp(&self, event: &CudaEvent) -> Result<()> {
        event.record(&self.stream).map_err(|error| refused("recording an event", error))
    }

    fn event(&self) -> Result<CudaEvent> {
        self.stream
            .context()
            .new_event(Some(CUevent_flags::CU_EVENT_DEFAULT))
            .map_err(|error| refused("making an event", error))
    }
}

/// Calls captured into a graph.
struct Recording {
    graph: CudaGraph,
    calls: usize,
    /// About so long.
    takes: Duration,
}

/// The order of a turn: 0 1 2, then 2 1 0, …
fn kinds_of(turn: usize, kinds: usize) -> impl Iterator<Item = usize> {
    (0..kinds).map(move |kind| if turn.is_multiple_of(2) { kind } else { kinds - 1 - kind })
}

/// Samples in the order of their kinds, turn by turn.
fn by_kind(order: &[usize], samples: &[f64], kinds: usize) -> Vec<Vec<f64>> {
    let turn = |(order, samples): (&[usize], &[f64])| {
        let mut of_kind = vec![0.0; kinds];
        order.iter().zip(samples).for_each(|(kind, sample)| of_kind[*kind] = *sample);
        of_kind
    };
    order.chunks(kinds.max(1)).zip(samples.chunks(kinds.max(1))).map(turn).collect()
}

/// How often `each` goes into `all`.
fn times(all: Duration, each: Duration) -> usize {
    (all.as_secs_f64() / each.as_secs_f64().max(1e-9)) as usize
}

/// Rounds of the sets that take about `all`: at least one, and at most `calls_max` calls.
fn rounds(all: Duration, per_call: Duration, sets: usize, calls_max: usize) -> usize {
    (times(all, per_call).min(calls_max) / sets).max(1)
}

/// The sets in even parts, each of at least `least` of them, so that one turn and its warm-up are a burst, if a call of all kinds
/// takes so long; all at once, if they are.
fn parts_of(sets: usize, least: usize, call: Duration) -> Vec<Range<usize>> {
    let sets = sets.max(1);
    let parts = sets.div_ceil(times(BURST / 2, call).max(1)).min(sets / least.clamp(1, sets));
    (0..parts).map(|part| part * sets / parts..(part + 1) * sets / parts).collect()
}

/// Replays of a burst: whole turns of `kinds`, of which one takes so long.
fn burst(turn: Duration, kinds: usize) -> usize {
    times(BURST, turn).max(1).saturating_mul(kinds.max(1))
}

fn microseconds(start: &CudaEvent, end: &CudaEvent) -> Result<f64> {
    // SAFETY: both are alive.
    let ms = unsafe { elapsed_ms(start.cu_event(), end.cu_event()) }?;
    Ok(f64::from(ms) * 1e3)
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
        // Sets of 128 groups, of which a call reads 8, or all.
        let experts = Problem::gemm().n(2048).k(1536).grouped(128).prepared();
        let mut rows = vec![0; 128];
        rows[..8].fill(1);
        let of_all = operand_sets_of(&experts, &vec![1; 128], l2);
        let of_few = operand_sets_of(&experts, &rows, l2);
        assert_eq!(of_all, 2);
        assert!(of_few as f64 * experts.bytes_of(&rows) > 3.0 * l2 as f64, "{of_few}");
        // More than there is memory for.
        let large = Problem::gemm().n(1 << 14).k(1 << 14).grouped(256);
        assert_eq!(operand_sets_of(&large, &[vec![1], vec![0; 255]].concat(), l2), 2);
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
    fn every_other_turn_goes_backwards() {
        let order: Vec<usize> = (0..4).flat_map(|turn| kinds_of(turn, 2)).collect();
        assert_eq!(order, [0, 1, 1, 0, 0, 1, 1, 0]);
        // A clock that drifts by 1 a sample: neither kind is ahead over two turns.
        let samples: Vec<f64> = (0..8).map(f64::from).collect();
        assert_eq!(by_kind(&order, &samples, 2), [[0.0, 1.0], [3.0, 2.0], [4.0, 5.0], [7.0, 6.0]]);
        let order: Vec<usize> = (0..2).flat_map(|turn| kinds_of(turn, 3)).collect();
        assert_eq!(by_kind(&order, &samples[..6], 3), [[0.0, 1.0, 2.0], [5.0, 4.0, 3.0]]);
        assert!(by_kind(&[], &[], 0).is_empty());
    }

    #[test]
    fn a_burst_is_whole_turns() {
        let ms = Duration::from_millis;
        assert_eq!(burst(ms(3), 2), 26);
        assert_eq!(burst(Duration::from_micros(600), 2), 132);
        assert_eq!(burst(ms(100), 3), 3);
        assert_eq!(burst(ms(1), 0), 40);
    }

    #[test]
    fn long_rounds_are_cut_into_bursts() {
        let ms = Duration::from_millis;
        let begins = |sets, least, call| -> Vec<usize> {
            let parts = parts_of(sets, least, call);
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!(parts.last().unwrap().end, sets.max(1));
            parts.iter().map(|part| part.start).collect()
        };
        assert_eq!(begins(9, 2, ms(1)), [0]);
        assert_eq!(begins(9, 2, ms(9)), [0, 2, 4, 6]);
        assert_eq!(begins(9, 2, ms(4)), [0, 4]);
        assert_eq!(begins(9, 4, ms(9)), [0, 4]);
        assert_eq!(begins(9, 9, ms(90)), [0]);
        assert_eq!(begins(9, 1, ms(90)).len(), 9);
        assert_eq!((begins(0, 0, ms(1)), begins(1, 7, ms(1))), (vec![0], vec![0]));
    }

    #[test]
    fn a_graph_is_whole_rounds() {
        let us = Duration::from_micros;
        assert_eq!(rounds(us(1000), us(10), 6, 256), 16);
        assert_eq!(rounds(us(1000), us(1), 6, 256), 42);
        assert_eq!(rounds(us(1000), us(4000), 6, 256), 1);
    }
}
