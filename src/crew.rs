//! A list, worked off by several threads.

use std::ops::ControlFlow;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

/// Does `work` with every item, in the list's order, on at most `threads` threads: the calling one and others. Gives the
/// outcomes with their items' indices, ascending. After an outcome that breaks, which is among them, nothing is begun any
/// more. A panic goes on in the calling thread, when the others are done.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> ControlFlow<R, R> + Sync,
) -> Vec<(usize, R)> {
    let (next, is_over, span) = (AtomicUsize::new(0), AtomicBool::new(false), tracing::Span::current());
    let begin = || if is_over.load(Relaxed) { None } else { Some(next.fetch_add(1, Relaxed)) };
    let run = || {
        let _inside = span.enter();
        let mut done = Vec::new();
        while let Some((index, item)) = begin().and_then(|index| Some((index, items.get(index)?))) {
            match work(item) {
                ControlFlow::Continue(outcome) => done.push((index, outcome)),
                ControlFlow::Break(outcome) => {
                    is_over.store(true, Relaxed);
                    done.push((index, outcome));
                }
            }
        }
        done
    };
    let mut done = thread::scope(|scope| {
        // Where no thread can be had, those that there are do all.
        let other = |_| thread::Builder::new().spawn_scoped(scope, run).ok();
        let others: Vec<_> = (1..threads.min(items.len())).map_while(other).collect();
        let own = run();
        let others = others.into_iter().flat_map(|other| other.join().unwrap_or_else(|why| panic::resume_unwind(why)));
        own.into_iter().chain(others).collect::<Vec<_>>()
    });
    done.sort_by_key(|(index, _)| *index);
    done
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::ops::ControlFlow::{Break, Continue};
    use std::sync::{Barrier, Mutex};

    use super::*;

    #[test]
    fn everything_is_done_once_and_comes_in_order() {
        let items: Vec<usize> = (0..100).collect();
        for threads in [0, 1, 3, 200] {
            let done = each(&items, threads, |item| Continue(2 * item));
            assert!(done.into_iter().eq((0..100).map(|index| (index, 2 * index))));
        }
        assert!(each(&[] as &[u8], 4, |_| Continue(())).is_empty());
    }

    #[test]
    fn so_many_threads_and_no_more() {
        let (together, threads) = (Barrier::new(3), Mutex::new(HashSet::new()));
        each(&[(); 3], 3, |()| {
            together.wait();
            threads.lock().unwrap().insert(thread::current().id());
            Continue(())
        });
        assert_eq!(threads.into_inner().unwrap().len(), 3);
    }

    #[test]
    fn what_breaks_is_the_last_to_begin() {
        let items: Vec<usize> = (0..100).collect();
        let done = each(&items, 1, |item| if *item == 4 { Break(*item) } else { Continue(*item) });
        assert!(done.into_iter().eq((0..5).map(|index| (index, index))));
    }

    #[test]
    fn a_panic_is_passed_on_as_it_is() {
        let panics = || each(&[1, 2, 3], 2, |item| if *item == 2 { panic!("on purpose") } else { Continue(()) });
        let why = panic::catch_unwind(panics).unwrap_err();
        assert_eq!(why.downcast_ref::<&str>(), Some(&"on purpose"));
    }
}
