//! Building ahead: on several threads, for one that takes what is built in order.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use super::Footprint;
use warpsmith::internal::Raise;
use warpsmith::spec::Spec;
use warpsmith::{Error, Result};

/// Kernels under way or waiting to be taken, for each thread.
const AHEAD: usize = 2;

/// Builds `specs` on `threads` threads and hands each to `take`, with what it came with and what came of it, in their
/// own order, on this thread. It stops when `take` breaks or fails; what is being built then is waited for and dropped.
pub(super) fn build_ahead<T>(
    build: &(dyn Fn(&Spec) -> Result<Footprint> + Sync),
    threads: usize,
    mut specs: impl Iterator<Item = (Spec, T)>,
    mut take: impl FnMut(Spec, T, Result<Footprint>) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let stop = AtomicBool::new(false);
    let (jobs, queue) = mpsc::channel::<(Spec, mpsc::Sender<Result<Footprint>>)>();
    let queue = Mutex::new(queue);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                while let Ok((spec, reply)) = next() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    // Nobody listens any more if it has stopped meanwhile.
                    let _ = reply.send(build(&spec));
                }
            });
        }
        // Moved here, so that the threads' queue ends with this block.
        let jobs = jobs;
        let mut under_way = VecDeque::new();
        let mut run = || loop {
            while under_way.len() < threads * AHEAD
                && let Some((spec, with)) = specs.next()
            {
                let (reply, built) = mpsc::channel();
                jobs.send((spec, reply)).map_err(|_| Error::internal("no thread is left that builds"))?;
                under_way.push_back((spec, with, built));
            }
            let Some((spec, with, built)) = under_way.pop_front() else { return Ok(()) };
            let built = built.recv().map_err(|_| Error::internal("the thread that was to build it has gone"))?;
            if take(spec, with, built)?.is_break() {
                return Ok(());
            }
        };
        let ended = run();
        stop.store(true, Ordering::Relaxed);
        ended
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;
    use warpsmith::internal::spec::space;
    use warpsmith::spec::{Arch, Problem};

    fn specs() -> Vec<(Spec, usize)> {
        space(&Problem::gemm().n(4096).k(4096), &Arch::H200).take(50).zip(0..).collect()
    }

    #[test]
    fn what_is_built_comes_in_order_whoever_is_done_first() {
        let specs = specs();
        let slow_first = |spec: &Spec| {
            let at = specs.iter().position(|(other, _)| other == spec).unwrap();
            thread::sleep(Duration::from_millis(if at % 5 == 0 { 4 } else { 0 }));
            Ok(Footprint { shared_bytes: at as u32, ..Footprint::default() })
        };
        let mut taken = Vec::new();
        build_ahead(&slow_first, 4, specs.iter().copied(), |spec, place, built| {
            assert_eq!(built?.shared_bytes as usize, place);
            taken.push((spec, place));
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert_eq!(taken, specs);
    }

    #[test]
    fn stopping_leaves_the_rest_unbuilt() {
        let (specs, built) = (specs(), AtomicUsize::new(0));
        let count = |_: &Spec| {
            built.fetch_add(1, Ordering::Relaxed);
            Err(Error::internal("of no interest"))
        };
        let mut taken = 0;
        build_ahead(&count, 2, specs.iter().copied(), |_, _, _| {
            taken += 1;
            Ok(if taken == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .unwrap();
        assert!(taken == 3 && built.load(Ordering::Relaxed) <= 3 + 2 * AHEAD, "{built:?}");
        let refused =
            build_ahead(&count, 2, specs.iter().copied(), |_, _, built| built.map(|_| ControlFlow::Continue(())));
        assert!(refused.is_err());
    }
}
