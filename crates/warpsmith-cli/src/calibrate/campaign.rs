//! The campaign: the device checks and times kernels, while [`Ahead`] makes what it will ask for.
//!
//! A problem is measured in one go. At every M first what its line of the table needs, whatever the time; then, while the problem's
//! share of the time lasts, the neighbours of the best so far and what else is worth a look, as soon as they are built; in the end
//! the best, and what is ranked, again, in turn. So a campaign reaches all its pairs before it looks at any of them longer.

use std::collections::HashSet;
use std::convert::Infallible;
use std::io::Write as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use warpsmith::cache::{Fetched, KernelCache};
use warpsmith::format::Format;
use warpsmith::internal::pick::heuristic;
use warpsmith::run::{Device, Kernel, Matrix, PreparedWeights};
use warpsmith::spec::{Problem, Spec, Variant};
use warpsmith_tune::{Checked, HostMatrix, HostOperands, Pace, Trial, operand_sets_of, wait};

use super::ahead::Ahead;
use super::args::Args;
use super::candidates;
use super::host::Host;
use super::list::Item;
use super::plan::{Before, Plan};
use super::record::{Line, Phase, Record};
use super::spent::Spent;
use crate::shared::compile::Made;
use crate::shared::gpu::Gpu;
use crate::shared::{Result, complain};

/// No step of a trial takes longer.
const LIMIT: Duration = Duration::from_secs(5);
/// Best ones of an M whose neighbours are looked at.
const LEADERS: usize = 3;
/// Of an M in a round at most.
const NEIGHBOURS: usize = 60;
/// A neighbour that is predicted to take so many times as long as its leader is not looked at.
const FAR: f64 = 1.5;
/// Best ones of an M that are timed again, beside what is needed and takes at most so many times as long as the best.
const FINALISTS: usize = 8;
const SLOW: f64 = 1.6;
/// How often each of them is timed again.
const TURNS: usize = 9;
/// As exact as [`Pace::NORMAL`] for each, at a shorter rest: all of an M are timed in turn.
const AGAIN: Pace = Pace { rest: Duration::from_millis(100), ..Pace::NORMAL };
/// What the timing in turn of an M is taken to last, in seconds, until it is known.
const AGAIN_S: f64 = 0.5;

/// A kernel hung or broke the context: this process can do no more, another can go on.
pub const BROKEN: i32 = 4;

/// Runs the campaign for `items` on a device, and ends the process, whatever other threads are doing: nothing in the file is lost
/// by that, and neither kernels that are half built nor a broken context are worth waiting for.
///
/// # Errors
/// What keeps it from beginning.
pub fn run(args: &Args, device: &Device, items: &[Item], record: &mut Record) -> Result<Infallible> {
    let cache = || KernelCache::builder().install_if_missing().memory(64, 64 << 20).build();
    let before: Vec<Before> = items.iter().map(|item| Before::of(item, record)).collect();
    // What has least comes first, so that a campaign that goes on reaches all pairs.
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|at| before[*at].fewest());
    let picker = candidates::untuned(device.arch())?;
    let ahead = Ahead::new(args, picker, items, before, order, cache());
    let gpu = Gpu::new(device, cache())?;
    thread::scope(|scope| {
        ahead.start(scope);
        let start = Instant::now();
        let end_of_time = start + args.limit;
        let mut campaign =
            Campaign { args, ahead: &ahead, gpu: &gpu, record, start, end: end_of_time, again_s: AGAIN_S };
        match campaign.run() {
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

struct Campaign<'a> {
    args: &'a Args,
    ahead: &'a Ahead<'a>,
    gpu: &'a Gpu,
    record: &'a mut Record,
    start: Instant,
    end: Instant,
    /// What the timing in turn of an M takes.
    again_s: f64,
}

/// One M of a problem.
struct State<'a> {
    trial: Trial<'a>,
    tried: HashSet<Variant>,
    /// What passed, the fastest first when it is [sorted](State::sort).
    good: Vec<Good>,
    neighbours: Vec<Spec>,
    more: Vec<Spec>,
    /// Rounds of neighbours that are left.
    rounds: usize,
    /// Something was timed now.
    is_new: bool,
}

/// A kernel that passed.
struct Good {
    us: f64,
    spec: Spec,
    line: Line,
    is_needed: bool,
    /// As long as it may be timed again; none, if the file has its time.
    checked: Option<Checked>,
}

impl<'a> Campaign<'a> {
    fn run(&mut self) -> Result<()> {
        let pairs: Vec<usize> = (0..self.ahead.order.len()).map(|turn| self.ahead.item(turn).rows.len()).collect();
        for turn in 0..pairs.len() {
            let now = Instant::now();
            if now >= self.end {
                return Ok(());
            }
            // Each M has its share of what is left.
            let left: usize = pairs[turn..].iter().sum();
            let share = self.end.duration_since(now).mul_f64(pairs[turn] as f64 / left as f64);
            let mut spent = Spent::default();
            let plan = spent.planning(|| self.ahead.plan(turn));
            if !plan.is_empty() {
                let (count, best) = self.item(turn, &plan, now + share, &mut spent)?;
                let (problem, elapsed) = (&self.ahead.item(turn).problem, self.start.elapsed().as_secs_f64());
                complain!("{elapsed:6.1} s  {problem}: {count}, {spent}, best {best} µs");
            }
            self.ahead.finish(turn);
        }
        Ok(())
    }

    /// Measures a problem; says how many variants were, and the best times.
    fn item(&mut self, turn: usize, plan: &Plan, until: Instant, spent: &mut Spent) -> Result<(usize, String)> {
        let host = spent.operands(|| self.ahead.host(turn))?;
        let mut states = spent.uploads(|| self.begin(turn, &host, plan))?;
        let mut count = 0;
        for (state, specs) in states.iter_mut().zip(&plan.needed) {
            for spec in specs {
                if Instant::now() >= self.end {
                    break;
                }
                let made = spent.kernels(|| self.ahead.kernel(turn, spec));
                count += usize::from(spent.trials(|| self.one(state, *spec, made, true))?);
            }
            state.sort();
            self.next_round(turn, state);
        }
        let again = Duration::from_secs_f64(self.again_s * states.len() as f64);
        count += self.more(turn, &mut states, until.checked_sub(again).unwrap_or(until), spent)?;
        self.ahead.enough(turn);
        for state in &mut states {
            if Instant::now() >= self.end {
                break;
            }
            let begin = Instant::now();
            spent.again(|| self.again(turn, state))?;
            self.again_s += 0.2 * (begin.elapsed().as_secs_f64() - self.again_s);
        }
        let best = states.iter().map(|state| state.good.first().map_or(0.0, |good| good.us));
        let best: Vec<String> = best.map(|us| format!("{us:.1}")).collect();
        Ok((count, best.join(" ")))
    }

    /// Puts a problem's weights on the device: uploaded once, prepared there once for every operand set.
    fn begin<'h>(&self, turn: usize, host: &'h Host, plan: &Plan) -> Result<Vec<State<'h>>> {
        let (Item { problem, rows, further, .. }, stream) = (self.ahead.item(turn), self.gpu.stream());
        let first = host.pairs.first().ok_or("a problem without M")?;
        let weights = match problem.is_prepared() {
            true => host.with(first, |operands| self.weights(&operands.b, problem, rows))?,
            false => Vec::new(),
        };
        let begin = |operands: &HostOperands, reference| match &weights[..] {
            [] => Trial::new(stream, operands, reference),
            weights => Trial::with_weights(stream, operands, reference, weights.to_vec()),
        };
        let mut states = Vec::new();
        for ((pair, further), more) in host.pairs.iter().zip(further).zip(&plan.more) {
            let trial = host.with(pair, |operands| begin(operands, &pair.reference))?;
            let trial = trial.limit(LIMIT).further_rows(further.clone());
            let (tried, good, neighbours, more) = (HashSet::new(), Vec::new(), Vec::new(), more.clone());
            states.push(State { trial, tried, good, neighbours, more, rounds: self.args.rounds, is_new: false });
        }
        Ok(states)
    }

    fn weights(&self, b: &[HostMatrix], problem: &Problem, rows: &[Vec<u32>]) -> Result<Vec<Arc<PreparedWeights>>> {
        let stream = self.gpu.stream();
        let mut given = Vec::new();
        for b in b {
            let (HostMatrix::Nvfp4 { codes, scales } | HostMatrix::Mxfp4 { codes, scales }) = b else {
                return Err("weights without block scales".into());
            };
            given.push((stream.clone_htod(codes)?, stream.clone_htod(scales)?));
        }
        let of = if problem.b_format() == Format::Mxfp4 { Matrix::mxfp4 } else { Matrix::nvfp4 };
        let b = || given.iter().map(|(codes, scales)| of(codes, scales));
        let engine = self.gpu.engine();
        let l2 = engine.device().arch().l2_bytes();
        // The rows of the fewest groups need the most sets.
        let sets = rows.iter().map(|rows| operand_sets_of(problem, rows, l2)).max().unwrap_or(1);
        (0..sets).map(|_| Ok(Arc::new(engine.prepare(stream, problem, b())?))).collect()
    }

    /// Measures what is built, of every M in turn, until then; says how many were.
    fn more(&mut self, turn: usize, states: &mut [State<'_>], until: Instant, spent: &mut Spent) -> Result<usize> {
        let (mut count, mut at) = (0, 0);
        while Instant::now() < until {
            if states.iter().all(|state| state.neighbours.is_empty() && state.more.is_empty()) {
                break;
            }
            let next = self.made(turn, states, at, |state| &mut state.neighbours);
            let next = next.or_else(|| self.made(turn, states, at, |state| &mut state.more));
            let Some((place, spec, made)) = next else {
                spent.kernels(|| self.ahead.wait(until));
                continue;
            };
            let state = &mut states[place];
            count += usize::from(spent.trials(|| self.one(state, spec, made, false))?);
            state.sort();
            if state.neighbours.is_empty() {
                self.next_round(turn, state);
            }
            at = place + 1;
        }
        Ok(count)
    }

    /// Takes the first that is built out of what is wanted of an M, from the M at `at` on.
    fn made<'h>(
        &self,
        turn: usize,
        states: &mut [State<'h>],
        at: usize,
        of: impl for<'s> Fn(&'s mut State<'h>) -> &'s mut Vec<Spec>,
    ) -> Option<(usize, Spec, Made)> {
        let count = states.len();
        (at..at + count).find_map(|place| {
            let specs = of(&mut states[place % count]);
            let (found, made) = self.ahead.first_made(turn, specs)?;
            Some((place % count, specs.remove(found), made))
        })
    }

    /// Has the neighbours of the best built.
    fn next_round(&self, turn: usize, state: &mut State<'_>) {
        if state.rounds > 0 {
            state.rounds -= 1;
            state.neighbours = state.next();
            self.ahead.ask(turn, state.neighbours.iter());
        }
    }

    /// Checks one variant and times it briefly, unless the file has it; says whether it did.
    fn one(&mut self, state: &mut State<'_>, spec: Spec, made: Made, is_needed: bool) -> Result<bool> {
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
        let line = Line::new(problem, m, &spec, Some(&fetched));
        if let Some(known) = known {
            state.good.extend(known.map(|us| Good { us, spec, line, is_needed, checked: None }));
            return Ok(false);
        }
        state.is_new = true;
        let timed = self.check(&state.trial, &fetched).and_then(|checked| match checked.passed() {
            true => {
                state.trial.time_at(&checked, self.args.launching(), Pace::BRIEF).map(|timing| Ok((timing, checked)))
            }
            false => Ok(Err(checked.to_string())),
        });
        match timed {
            Ok(Ok((timing, checked))) => {
                let us = [timing.median_us, timing.p10_us, timing.p90_us];
                self.record.add(&line.clone().timed(Phase::Short, us))?;
                let checked = Some(checked.without_result());
                state.good.push(Good { us: timing.median_us, spec, line, is_needed, checked });
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
        if self.is_well() {
            return self.record.add(&line.refused(Phase::Refused, &error.to_string()));
        }
        self.record.add(&line.refused(Phase::Fatal, &error.to_string()))?;
        end(BROKEN)
    }

    fn is_well(&self) -> bool {
        wait(self.gpu.stream(), Duration::from_millis(100)).is_ok()
    }

    /// Times the best ones again, in turn, beside what is ranked, if anything is new.
    fn again(&mut self, turn: usize, state: &mut State<'_>) -> Result<()> {
        if !state.is_new {
            return Ok(());
        }
        let least = state.good.first().map_or(0.0, |good| good.us);
        let is_one = |(at, good): (usize, &Good)| at < FINALISTS || (good.is_needed && good.us <= SLOW * least);
        let finalists = state.good.iter_mut().enumerate().filter_map(|(at, good)| is_one((at, good)).then_some(good));
        let mut finalists: Vec<&mut Good> = finalists.collect();
        let known = || finalists.iter().filter(|good| good.checked.is_none());
        self.ahead.ask(turn, known().map(|good| &good.spec));
        for good in &mut finalists {
            if good.checked.is_some() {
                continue;
            }
            let Ok(fetched) = self.ahead.kernel(turn, &good.spec) else { continue };
            match self.check(&state.trial, &fetched) {
                Ok(checked) if checked.passed() => good.checked = Some(checked.without_result()),
                Ok(checked) => self.record.add(&good.line.clone().refused(Phase::Refused, &checked.to_string()))?,
                Err(error) => self.failed(good.line.clone(), &error)?,
            }
        }
        let right: Vec<(&Line, &Checked)> =
            finalists.iter().filter_map(|good| Some((&good.line, good.checked.as_ref()?))).collect();
        let kernels: Vec<&Checked> = right.iter().map(|(_, checked)| *checked).collect();
        let turns = match state.trial.time_in_turn(&kernels, TURNS, self.args.launching(), AGAIN) {
            Ok(turns) => turns,
            Err(error) => {
                complain!("{} M={}: {error}", state.trial.problem(), state.trial.m());
                // Which of them it was, nobody knows.
                return if self.is_well() { Ok(()) } else { end(BROKEN) };
            }
        };
        for (at, (line, _)) in right.iter().enumerate() {
            let mut samples: Vec<f64> = turns.iter().map(|turn| turn[at]).collect();
            samples.sort_by(f64::total_cmp);
            let of = |share: f64| samples[(share * (samples.len() - 1) as f64).round() as usize];
            self.record.add(&(*line).clone().timed(Phase::Full, [0.5, 0.1, 0.9].map(of)))?;
        }
        Ok(())
    }
}

impl State<'_> {
    /// The fastest first. What will not be timed again is not kept loaded.
    fn sort(&mut self) {
        self.good.sort_by(|a, b| a.us.total_cmp(&b.us));
        self.good.iter_mut().skip(FINALISTS).filter(|good| !good.is_needed).for_each(|good| good.checked = None);
    }

    /// What the next round measures: the neighbours of the best, in turn.
    fn next(&self) -> Vec<Spec> {
        let (problem, m) = (self.trial.problem(), self.trial.m());
        let around = |good: &Good| {
            let us = |spec: &Spec| heuristic::predict(spec, problem, m).us;
            let most = FAR * us(&good.spec);
            let mut specs = candidates::neighbours(&good.spec, m);
            specs.retain(|spec| us(spec) <= most);
            specs
        };
        let around: Vec<Vec<Spec>> = self.good.iter().take(LEADERS).map(around).collect();
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
