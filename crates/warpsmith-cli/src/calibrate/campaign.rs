//! The campaign: kernels are built on all cores ahead of use, while the device checks and times those that are there.
//!
//! A problem goes through rounds. The first measures a wide choice of variants at every M; each later one the neighbours
//! of the best so far; the last also times the best of each M again, in turn. One thread builds, another has the device;
//! what is built next is what the device will ask for first.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::io::Write as _;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use warpsmith::cache::{Fetched, KernelCache};
use warpsmith::pick::Picker;
use warpsmith::run::{Device, Kernel, Matrix, PreparedWeights};
use warpsmith::spec::{Problem, Spec, Variant};
use warpsmith_tune::{Checked, HostMatrix, Pace, Timing, Trial, operand_sets_of, wait};

use super::args::Args;
use super::candidates;
use super::host::{Host, Pair};
use super::list::Item;
use super::record::{Line, Phase, Record};
use crate::shared::compile::{self, Made};
use crate::shared::gpu::Gpu;
use crate::shared::{Result, complain};

/// No step of a trial takes longer.
const LIMIT: Duration = Duration::from_secs(5);
/// Best ones of an M whose neighbours are looked at.
const LEADERS: usize = 3;
/// Of an M in a later round at most.
const NEIGHBOURS: usize = 60;
/// Best ones of an M that are timed again, and how often.
const FINALISTS: usize = 10;
const TURNS: usize = 2;
/// As exact as [`Pace::NORMAL`] but for the rest, since ten are timed in turn.
const AGAIN: Pace = Pace { rest: Duration::from_millis(20), replays: 15, ..Pace::NORMAL };
/// What the rounds of an M take, in shares of its time: the first, each later one, the timing again.
const SHARES: [f64; 3] = [4.0, 1.0, 1.0];

/// Variants of a problem, for each of its M, built or refused.
struct Batch {
    item: usize,
    round: usize,
    work: Vec<Vec<(Spec, Made)>>,
}

/// Variants that the device asks for.
struct Wanted {
    item: usize,
    round: usize,
    specs: Vec<Vec<Spec>>,
}

/// A kernel hung or broke the context: this process can do no more, another can go on.
pub const BROKEN: i32 = 4;

/// Runs the campaign for `items` on a device, and ends the process, whatever the building thread is doing: nothing in the
/// file is lost by that, and neither kernels that are half built nor a broken context are worth waiting for.
pub fn run(args: &Args, device: &Device, items: &[Item], record: &mut Record) -> Result<Infallible> {
    let hosts: Vec<OnceLock<Host>> = items.iter().map(|_| OnceLock::new()).collect();
    let cache = || KernelCache::builder().install_if_missing().memory(16, 16 << 20).build();
    let known = items.iter().map(|item| known(item, record)).collect();
    let builder =
        Builder { args, picker: candidates::untuned(device.arch())?, items, known, hosts: &hosts, cache: cache() };
    let gpu = Gpu::new(device, cache())?;
    let (wanted, asked) = mpsc::channel::<Wanted>();
    let (built, ready) = mpsc::channel::<Result<Batch>>();
    thread::scope(|scope| {
        let hosts = &hosts;
        scope.spawn(move || builder.run(&asked, &built));
        let start = Instant::now();
        let mut campaign = Campaign { args, items, hosts, gpu: &gpu, record, start, states: HashMap::new() };
        match campaign.run(&ready, &wanted) {
            Ok(()) => end(0),
            Err(error) => {
                complain!("error: {error}");
                end(2)
            }
        }
    })
}

/// Ends the process at once. Leaving in an orderly way would take NVRTC's memory from threads that compile.
fn end(status: i32) -> ! {
    // What nobody reads is not worth staying for.
    let _ = std::io::stdout().flush();
    // SAFETY: `_exit` takes any status, and runs nothing of this process.
    unsafe { libc::_exit(status) }
}

/// What the building thread has.
struct Builder<'a> {
    args: &'a Args,
    /// Without a table, as `--regret` asks it.
    picker: Picker,
    items: &'a [Item],
    /// Of each problem and M, the best that are in the file.
    known: Vec<Vec<Vec<Variant>>>,
    hosts: &'a [OnceLock<Host>],
    cache: KernelCache,
}

impl Builder<'_> {
    /// What the device asks for first, else the first round of the next problem.
    fn run(&self, asked: &Receiver<Wanted>, built: &Sender<Result<Batch>>) {
        let mut next = 0..self.items.len();
        loop {
            let batch = match asked.try_recv() {
                Ok(wanted) => Ok(make(&self.cache, wanted)),
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => match next.next() {
                    Some(at) => self.first_round(at),
                    None => match asked.recv() {
                        Ok(wanted) => Ok(make(&self.cache, wanted)),
                        Err(_) => return,
                    },
                },
            };
            if built.send(batch).is_err() {
                return;
            }
        }
    }

    fn first_round(&self, at: usize) -> Result<Batch> {
        let item = &self.items[at];
        let made = Host::new(&item.problem, &item.rows)?;
        self.hosts[at].set(made).map_err(|_| "a problem was made twice")?;
        let specs = first_specs(self.args, &self.picker, at, item, &self.known[at]);
        Ok(make(&self.cache, Wanted { item: at, round: 0, specs }))
    }
}

/// The best of each M that are in the file already: they are timed again beside new ones.
fn known(item: &Item, record: &Record) -> Vec<Vec<Variant>> {
    item.rows.iter().map(|rows| record.best(&item.problem, rows.iter().sum(), FINALISTS / 2)).collect()
}

/// The first round of a problem, for each of its M.
pub fn first_specs(args: &Args, picker: &Picker, at: usize, item: &Item, known: &[Vec<Variant>]) -> Vec<Vec<Spec>> {
    let (problem, arch) = (&item.problem, picker.arch());
    let of = |(at_m, rows): (usize, &Vec<u32>)| {
        let m = rows.iter().sum();
        let known =
            known.get(at_m).into_iter().flatten().filter_map(|variant| Spec::check(problem, variant, arch).ok());
        let mut given: Vec<Spec> = known.collect();
        if args.also_rank {
            given.extend(candidates::ranked(problem, m, picker));
        }
        // One seed for all M, so that they share kernels.
        let mut rng = fastrand::Rng::with_seed(args.seed << 16 | at as u64);
        candidates::first(problem, m, arch, args.candidates, &given, &mut rng)
    };
    item.rows.iter().enumerate().map(of).collect()
}

fn make(cache: &KernelCache, wanted: Wanted) -> Batch {
    let Wanted { item, round, specs } = wanted;
    let all: Vec<Spec> = specs.concat();
    let mut made = compile::all(cache, &all, &ProgressBar::hidden()).into_iter();
    let mut pair =
        |specs: Vec<Spec>| specs.into_iter().map(|spec| (spec, made.next().unwrap_or(Err(String::new())))).collect();
    Batch { item, round, work: specs.into_iter().map(&mut pair).collect() }
}

struct Campaign<'a> {
    args: &'a Args,
    items: &'a [Item],
    hosts: &'a [OnceLock<Host>],
    gpu: &'a Gpu,
    record: &'a mut Record,
    start: Instant,
    states: HashMap<usize, Vec<State<'a>>>,
}

/// Of one M of a problem that is under way.
struct State<'a> {
    trial: Trial<'a>,
    tried: HashSet<Variant>,
    /// What passed, with its µs.
    good: Vec<(f64, Spec, Fetched)>,
}

impl<'a> Campaign<'a> {
    fn run(&mut self, ready: &Receiver<Result<Batch>>, wanted: &Sender<Wanted>) -> Result<()> {
        let pairs = |item: &Item| item.rows.len() as f64;
        let all: f64 = SHARES[0] + SHARES[1] * self.args.rounds as f64 + SHARES[2];
        let mut left: f64 = self.items.iter().map(pairs).sum::<f64>() * all;
        let mut open = self.items.len();
        while open > 0 {
            let batch = ready.recv()??;
            let (item, round) = (batch.item, batch.round);
            let is_last = round == self.args.rounds;
            let share = SHARES[usize::from(round > 0)] + if is_last { SHARES[2] } else { 0.0 };
            let pairs = pairs(&self.items[item]);
            let rest = (self.args.limit - self.start.elapsed().as_secs_f64()).max(0.0);
            let seconds = rest * (share * pairs / left).min(1.0);
            left -= share * pairs;
            let mut states = match self.states.remove(&item) {
                Some(states) => states,
                None => self.begin(item)?,
            };
            let count = self.batch(&mut states, batch, seconds, is_last)?;
            let best = states.iter().map(|state| state.good.first().map_or(0.0, |(us, ..)| *us));
            let best: Vec<String> = best.map(|us| format!("{us:.1}")).collect();
            let (problem, elapsed) = (&self.items[item].problem, self.start.elapsed().as_secs_f64());
            complain!(
                "{elapsed:6.1} s  {problem} round {round}: {count} in {seconds:.1} s, best {} µs",
                best.join(" ")
            );
            if self.start.elapsed().as_secs_f64() >= self.args.limit {
                return Ok(());
            }
            if is_last {
                open -= 1;
                continue;
            }
            let specs = states.iter().map(State::next).collect();
            self.states.insert(item, states);
            wanted.send(Wanted { item, round: round + 1, specs })?;
        }
        Ok(())
    }

    /// Puts a problem's weights on the device: uploaded once, prepared there once for every operand set.
    fn begin(&self, item: usize) -> Result<Vec<State<'a>>> {
        let (problem, stream) = (&self.items[item].problem, self.gpu.stream());
        let host = self.hosts[item].get().ok_or("a problem without operands")?;
        let weights = if problem.is_prepared() {
            self.weights(&host.pairs[0].operands.b, problem, &self.items[item].rows)?
        } else {
            Vec::new()
        };
        let state = |pair: &'a Pair| -> Result<State<'a>> {
            let (operands, reference) = (&pair.operands, &pair.reference);
            let trial = match &weights[..] {
                [] => Trial::new(stream, operands, reference)?,
                weights => Trial::with_weights(stream, operands, reference, weights.to_vec())?,
            };
            Ok(State { trial: trial.limit(LIMIT), tried: HashSet::new(), good: Vec::new() })
        };
        host.pairs.iter().map(state).collect()
    }

    fn weights(&self, b: &[HostMatrix], problem: &Problem, rows: &[Vec<u32>]) -> Result<Vec<Arc<PreparedWeights>>> {
        let stream = self.gpu.stream();
        let mut given = Vec::new();
        for b in b {
            let HostMatrix::Nvfp4 { codes, scales } = b else { return Err("weights that are not nvfp4".into()) };
            given.push((stream.clone_htod(codes)?, stream.clone_htod(scales)?));
        }
        let b = || given.iter().map(|(codes, scales)| Matrix::nvfp4(codes, scales));
        let engine = self.gpu.engine();
        let l2 = engine.device().arch().l2_bytes();
        // The rows of the fewest groups need the most sets.
        let sets = rows.iter().map(|rows| operand_sets_of(problem, rows, l2)).max().unwrap_or(1);
        (0..sets).map(|_| Ok(Arc::new(engine.prepare(stream, problem, b())?))).collect()
    }

    /// Measures a batch within its time; says how many were.
    fn batch(&mut self, states: &mut [State<'a>], batch: Batch, seconds: f64, is_last: bool) -> Result<usize> {
        let begin = Instant::now();
        let (mut count, pairs) = (0, states.len());
        let again = if is_last { SHARES[2] / (SHARES[1] + SHARES[2]) } else { 0.0 };
        for (at, (state, work)) in states.iter_mut().zip(batch.work).enumerate() {
            // Each M has its share of what is left.
            let share = |begin: Instant, all: f64| {
                let left = seconds - begin.elapsed().as_secs_f64();
                Duration::from_secs_f64((left / (pairs - at) as f64 * all).max(0.0))
            };
            let (now, time) = (Instant::now(), share(begin, 1.0 - again));
            for (spec, made) in work {
                if now.elapsed() >= time {
                    break;
                }
                count += usize::from(self.one(state, spec, made)?);
            }
            state.good.sort_by(|a, b| a.0.total_cmp(&b.0));
            if is_last {
                self.finals(state, Instant::now() + share(begin, 1.0))?;
            }
        }
        Ok(count)
    }

    /// Checks one variant and times it briefly, unless the file has it; says whether it did.
    fn one(&mut self, state: &mut State<'a>, spec: Spec, made: Made) -> Result<bool> {
        let (problem, m, variant) = (*state.trial.problem(), state.trial.m(), *spec.variant());
        if !state.tried.insert(variant) {
            return Ok(false);
        }
        let known = self.record.known(&problem, m, &variant);
        let fetched = match made {
            Ok(fetched) => fetched,
            Err(_) if known.is_some() => return Ok(false),
            Err(why) => {
                self.record.add(&Line::new(problem, m, &spec, None).refused(Phase::Refused, &why))?;
                return Ok(true);
            }
        };
        if let Some(known) = known {
            state.good.extend(known.map(|us| (us, spec, fetched)));
            return Ok(false);
        }
        let line = Line::new(problem, m, &spec, Some(&fetched));
        let timed = self.check(&state.trial, &fetched).and_then(|checked| match checked.passed() {
            true => state.trial.time_at(&checked, Pace::BRIEF).map(Ok),
            false => Ok(Err(checked.to_string())),
        });
        match timed {
            Ok(Ok(timing)) => {
                self.record.add(&line.timed(Phase::Short, &timing))?;
                state.good.push((timing.median_us, spec, fetched));
            }
            Ok(Err(wrong)) => self.record.add(&line.refused(Phase::Refused, &wrong))?,
            Err(error) => self.failed(line, &error)?,
        }
        Ok(true)
    }

    fn check(&self, trial: &Trial<'_>, fetched: &Fetched) -> warpsmith::Result<Checked> {
        self.gpu.engine().device().reclaim()?;
        let kernel = Kernel::load(self.gpu.engine().device(), fetched.built())?;
        trial.check(&Arc::new(kernel))
    }

    /// Writes a kernel that could not be loaded or launched; ends the process if nothing else can be either.
    fn failed(&mut self, line: Line, error: &warpsmith::Error) -> Result<()> {
        complain!("{} M={} {}: {error}", line.problem, line.m, line.variant);
        if wait(self.gpu.stream(), Duration::from_millis(100)).is_ok() {
            return self.record.add(&line.refused(Phase::Refused, &error.to_string()));
        }
        self.record.add(&line.refused(Phase::Fatal, &error.to_string()))?;
        end(BROKEN)
    }

    /// Times the best ones again, in turn, and writes the better of each one's timings.
    fn finals(&mut self, state: &mut State<'a>, deadline: Instant) -> Result<()> {
        let (problem, m) = (*state.trial.problem(), state.trial.m());
        let mut finalists: Vec<(Line, Checked, Option<Timing>)> = Vec::new();
        // What is ranked is to be compared with the best, and so is timed beside them.
        let most = if self.args.also_rank { FINALISTS + candidates::RANKED } else { FINALISTS };
        for (_, spec, fetched) in state.good.iter().take(most) {
            let line = Line::new(problem, m, spec, Some(fetched));
            match self.check(&state.trial, fetched) {
                Ok(checked) if checked.passed() => finalists.push((line, checked, None)),
                Ok(checked) => self.record.add(&line.refused(Phase::Refused, &checked.to_string()))?,
                Err(error) => self.failed(line, &error)?,
            }
        }
        for turn in 0..TURNS {
            for (line, checked, best) in &mut finalists {
                // Every one is timed once, whatever the time.
                if turn > 0 && Instant::now() >= deadline {
                    break;
                }
                match state.trial.time_at(checked, AGAIN) {
                    Ok(timing) if best.is_none_or(|best| timing.median_us < best.median_us) => *best = Some(timing),
                    Ok(_) => {}
                    Err(error) => self.failed(line.clone(), &error)?,
                }
            }
        }
        let timed = finalists.into_iter().filter_map(|(line, _, best)| Some(line.timed(Phase::Full, &best?)));
        timed.into_iter().try_for_each(|line| self.record.add(&line))
    }
}

impl State<'_> {
    /// What the next round measures: the neighbours of the best, in turn.
    fn next(&self) -> Vec<Spec> {
        let m = self.trial.m();
        let around: Vec<Vec<Spec>> =
            self.good.iter().take(LEADERS).map(|(_, spec, _)| candidates::neighbours(spec, m)).collect();
        let longest = around.iter().map(Vec::len).max().unwrap_or(0);
        let mut seen = HashSet::new();
        (0..longest)
            .flat_map(|at| around.iter().filter_map(move |specs| specs.get(at)))
            .filter(|spec| !self.tried.contains(spec.variant()) && seen.insert(**spec))
            .copied()
            .take(NEIGHBOURS)
            .collect()
    }
}
