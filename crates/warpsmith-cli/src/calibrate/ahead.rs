//! What the device will ask for, made ahead on all cores: plans, operands with their results, kernels.
//!
//! The least place comes first: what is needed of a problem, then of the next ones, then what else is worth a look while there
//! is time. What the device asks for now comes before all of that. What is made is kept until its problem is done.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::num::NonZero;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Instant;

use warpsmith::cache::KernelCache;
use warpsmith::pick::Picker;
use warpsmith::spec::Spec;

use super::args::Args;
use super::host::Host;
use super::list::Item;
use super::plan::{Before, Plan};
use crate::shared::Result;
use crate::shared::compile::{self, Made};

/// Problems whose operands are there ahead at most: those of many experts take a gigabyte.
const HOSTS: usize = 3;
/// Problems whose needed kernels come before what else is worth a look of one.
const FIRST: u64 = 2;

/// Everything that threads make for the one that has the device.
pub struct Ahead<'a> {
    pub args: &'a Args,
    /// Without a table, as `--regret` asks it.
    pub picker: Picker,
    pub items: &'a [Item],
    pub before: Vec<Before>,
    /// Places in the list, in the order in which they are measured.
    pub order: Vec<usize>,
    cache: KernelCache,
    made: Mutex<MadeAhead>,
    changed: Condvar,
}

/// By the turn of their problem.
#[derive(Default)]
struct MadeAhead {
    queue: BinaryHeap<Reverse<Job>>,
    jobs: u64,
    plans: HashMap<usize, Arc<Plan>>,
    hosts: HashMap<usize, std::result::Result<Arc<Host>, String>>,
    kernels: HashMap<(usize, Spec), Made>,
    queued: HashSet<(usize, Spec)>,
    /// Turns before this one are done.
    done: usize,
}

/// The least is made first.
struct Job {
    rank: u64,
    number: u64,
    turn: usize,
    what: What,
}

enum What {
    Plan,
    Kernel(Box<Spec>),
}

impl Job {
    fn key(&self) -> (u64, u64) {
        (self.rank, self.number)
    }
}

impl Ord for Job {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Job {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Job {}

/// Ranks of a turn: its plan, what is needed, what else is worth a look.
fn ranks(turn: usize) -> [u64; 3] {
    let first = 4 * turn as u64 + 1;
    [first, first + 1, first + 2 + 4 * FIRST]
}

/// Of what the device waits for.
const NOW: u64 = 0;

impl MadeAhead {
    fn push(&mut self, rank: u64, turn: usize, what: What) {
        self.jobs += 1;
        self.queue.push(Reverse(Job { rank, number: self.jobs, turn, what }));
    }

    /// Has kernels made, each once.
    fn push_kernels<'s>(&mut self, rank: u64, turn: usize, specs: impl Iterator<Item = &'s Spec>) {
        for spec in specs {
            if self.queued.insert((turn, *spec)) {
                self.push(rank, turn, What::Kernel(Box::new(*spec)));
            }
        }
    }

    /// The next that somebody still waits for.
    fn pop(&mut self) -> Option<Job> {
        while let Some(Reverse(job)) = self.queue.pop() {
            let is_made = matches!(&job.what, What::Kernel(spec) if self.kernels.contains_key(&(job.turn, **spec)));
            if job.turn >= self.done && !is_made {
                return Some(job);
            }
        }
        None
    }
}

impl<'a> Ahead<'a> {
    pub fn new(
        args: &'a Args,
        picker: Picker,
        items: &'a [Item],
        before: Vec<Before>,
        order: Vec<usize>,
        cache: KernelCache,
    ) -> Self {
        let mut made = MadeAhead::default();
        (0..order.len()).for_each(|turn| made.push(ranks(turn)[0], turn, What::Plan));
        Self { args, picker, items, before, order, cache, made: Mutex::new(made), changed: Condvar::new() }
    }

    /// Starts the threads. They end with the process.
    pub fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| self.make_jobs());
        }
        scope.spawn(|| self.make_hosts());
    }

    /// The problem of a turn.
    pub fn item(&self, turn: usize) -> &'a Item {
        &self.items[self.order[turn]]
    }

    /// What is measured of it.
    pub fn plan(&self, turn: usize) -> Arc<Plan> {
        self.once(|made| made.plans.get(&turn).cloned())
    }

    /// Its operands.
    ///
    /// # Errors
    /// What kept them from being made.
    pub fn host(&self, turn: usize) -> Result<Arc<Host>> {
        Ok(self.once(|made| made.hosts.remove(&turn))?)
    }

    /// A kernel that the plan of a turn has or that was asked for.
    pub fn kernel(&self, turn: usize, spec: &Spec) -> Made {
        self.once(|made| made.kernels.get(&(turn, *spec)).cloned())
    }

    /// The first of some kernels that is made already, and which one it is.
    pub fn first_made(&self, turn: usize, specs: &[Spec]) -> Option<(usize, Made)> {
        let made = self.lock();
        specs.iter().enumerate().find_map(|(at, spec)| Some((at, made.kernels.get(&(turn, *spec))?.clone())))
    }

    /// Has kernels made before all others.
    pub fn ask<'s>(&self, turn: usize, specs: impl Iterator<Item = &'s Spec>) {
        let mut made = self.lock();
        specs.for_each(|spec| made.push(NOW, turn, What::Kernel(Box::new(*spec))));
        self.changed.notify_all();
    }

    /// Has nothing more made of what was asked for a turn: there is no time left to measure it.
    pub fn enough(&self, turn: usize) {
        self.lock().queue.retain(|Reverse(job)| job.turn != turn);
    }

    /// Waits until something more is made, or until then.
    pub fn wait(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        drop(self.changed.wait_timeout(self.lock(), left).unwrap_or_else(PoisonError::into_inner));
    }

    /// Forgets what was made for a turn, and what was to be.
    pub fn finish(&self, turn: usize) {
        let mut made = self.lock();
        made.done = turn + 1;
        made.plans.remove(&turn);
        made.hosts.remove(&turn);
        made.kernels.retain(|(of, _), _| *of > turn);
        made.queued.retain(|(of, _)| *of > turn);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, MadeAhead> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something.
    fn once<T>(&self, mut found: impl FnMut(&mut MadeAhead) -> Option<T>) -> T {
        let mut made = self.lock();
        loop {
            if let Some(found) = found(&mut made) {
                return found;
            }
            made = self.changed.wait(made).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn make_jobs(&self) {
        loop {
            let Job { turn, what, .. } = self.once(MadeAhead::pop);
            match what {
                What::Plan => self.make_plan(turn),
                What::Kernel(spec) => {
                    let kernel = compile::one(&self.cache, &spec);
                    let mut made = self.lock();
                    if turn >= made.done {
                        made.kernels.insert((turn, *spec), kernel);
                    }
                }
            }
            self.changed.notify_all();
        }
    }

    fn make_plan(&self, turn: usize) {
        let at = self.order[turn];
        let plan = Plan::new(self.args, &self.picker, at, &self.items[at], &self.before[at]);
        let [_, needed, more] = ranks(turn);
        let mut made = self.lock();
        made.push_kernels(needed, turn, plan.needed.iter().flatten());
        // The first ones of every M first.
        let longest = plan.more.iter().map(Vec::len).max().unwrap_or(0);
        made.push_kernels(more, turn, (0..longest).flat_map(|at| plan.more.iter().filter_map(move |of| of.get(at))));
        made.plans.insert(turn, Arc::new(plan));
    }

    fn make_hosts(&self) {
        for turn in 0..self.order.len() {
            let plan = self.once(|made| {
                let is_near = turn <= made.done + HOSTS;
                made.plans.get(&turn).filter(|_| is_near).cloned()
            });
            if plan.is_empty() {
                continue;
            }
            let Item { problem, rows, .. } = self.item(turn);
            let host = Host::new(problem, rows).map(Arc::new).map_err(|error| error.to_string());
            self.lock().hosts.insert(turn, host);
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use warpsmith::internal::spec::baseline;
    use warpsmith::spec::{Arch, Problem};

    use super::*;

    #[test]
    fn what_is_needed_of_the_next_problems_comes_before_what_else_is_worth_a_look() {
        let spec = |n: u32| {
            let problem = Problem::gemm().n(64 * n).k(64);
            Spec::new(&problem, &baseline(&problem), &Arch::H200).unwrap()
        };
        let mut made = MadeAhead::default();
        for turn in 0..5usize {
            let [plan, needed, more] = ranks(turn);
            made.push(plan, turn, What::Plan);
            made.push_kernels(needed, turn, [spec(10), spec(10)].iter());
            made.push_kernels(more, turn, [spec(20)].iter());
        }
        made.push(NOW, 0, What::Kernel(Box::new(spec(30))));
        made.done = 1;
        made.push(NOW, 1, What::Kernel(Box::new(spec(40))));
        let next = |made: &mut MadeAhead| {
            let Job { turn, what, .. } = made.pop()?;
            let n = if let What::Kernel(spec) = what { spec.problem().columns() / 64 } else { 0 };
            Some((turn, n))
        };
        // Of the first, which is done, nothing.
        let order: Vec<(usize, u32)> = std::iter::from_fn(|| next(&mut made)).collect();
        let expected = [(1, 40), (1, 0), (1, 10), (2, 0), (2, 10), (3, 0), (3, 10), (1, 20), (4, 0), (4, 10)];
        assert_eq!(order[..10], expected);
        assert_eq!(order[10..], [(2, 20), (3, 20), (4, 20)]);
    }
}
