//! Many cubins, by many threads and, between them, many processes.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use super::fetched::Fetched;
use super::kernel_cache::KernelCache;
use crate::build::Digest;
use crate::spec::Spec;
use crate::{Error, Result, crew};

/// Which part of a list a process builds first: that of `rank` among `of` processes that were given the same list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    rank: usize,
    of: usize,
}

impl Share {
    /// All of it.
    pub const WHOLE: Share = Share { rank: 0, of: 1 };

    /// The share of process `rank`, 0 to `of` - 1.
    ///
    /// # Errors
    /// Unsupported, if there is no such process.
    pub fn new(rank: usize, of: usize) -> Result<Self> {
        if rank < of { Ok(Self { rank, of }) } else { Err(Error::unsupported(format!("rank {rank} of {of}"))) }
    }

    /// All specs, each once, in the order in which this process builds them: first its own share, which no other has;
    /// then what the others began with last, in case one of them is slow or never came. Shares depend on the specs
    /// alone, not on the order of the list, and differ by one spec at most.
    #[must_use]
    pub fn order(self, specs: &[Spec]) -> Vec<Spec> {
        // By digest: neighbours in a list are alike, and alike slow to compile.
        let by_digest: BTreeMap<[u8; 32], Spec> = specs.iter().map(|spec| (digest(spec), *spec)).collect();
        let (own, others): (Vec<_>, Vec<_>) =
            by_digest.into_values().enumerate().partition(|(at, _)| at % self.of == self.rank);
        own.into_iter().chain(others.into_iter().rev()).map(|(_, spec)| spec).collect()
    }
}

/// What a spec is known by in every process: the hash of a `HashMap` is another in each.
fn digest(spec: &Spec) -> [u8; 32] {
    *Digest::of(format!("{}\n{}", spec.name(), spec.arch()).as_bytes()).as_bytes()
}

impl KernelCache {
    /// The cubin of every spec, in the list's order, made by `threads` threads (at least one). Each is built once, and
    /// where several processes with the same list and disk each take a [`Share`], once between them: a process builds
    /// its own share, then picks up what the others have stored, and builds what nobody has, or waits for whoever is at
    /// it. So one that is missing or dies only costs time.
    ///
    /// `progress` is told of every distinct spec as it is done, by the thread that has done it.
    ///
    /// # Errors
    /// Each spec has its own: see [`KernelCache::cubin`]. A spec that failed and is in the list again is tried again.
    pub fn cubins(
        &self,
        specs: &[Spec],
        share: Share,
        threads: usize,
        progress: impl Fn(&Spec, &Result<Fetched>) + Sync,
    ) -> Vec<Result<Fetched>> {
        let order = share.order(specs);
        let made = crew::each(&order, threads, |spec| {
            let fetched = self.cubin(spec);
            progress(spec, &fetched);
            ControlFlow::Continue(fetched)
        });
        let mut made: HashMap<Spec, _> = made.into_iter().map(|(index, fetched)| (order[index], fetched)).collect();
        specs.iter().map(|spec| made.remove(spec).unwrap_or_else(|| self.cubin(spec))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::spec::{Arch, Problem, baseline};

    fn specs(count: u32) -> Vec<Spec> {
        let problem = |n: u32| Problem::gemm().n(64 * (n + 1)).k(64);
        (0..count).map(|n| Spec::new(&problem(n), &baseline(&problem(n)), &Arch::H200).unwrap()).collect()
    }

    #[test]
    fn shares_are_disjoint_even_and_whole() {
        let specs = specs(23);
        let mut mixed: Vec<_> = specs.iter().rev().chain(&specs).copied().collect();
        mixed.rotate_left(5);
        for of in [1, 2, 5, 23, 40] {
            let mut owned = Vec::new();
            for rank in 0..of {
                let share = Share::new(rank, of).unwrap();
                let order = share.order(&specs);
                assert_eq!(order, share.order(&mixed), "the list's order and repetitions do not matter");
                assert_eq!(order.iter().collect::<HashSet<_>>().len(), 23, "leftovers come after the share");
                let own = 23 / of + usize::from(rank < 23 % of);
                owned.extend_from_slice(&order[..own]);
            }
            assert_eq!((owned.len(), owned.iter().collect::<HashSet<_>>().len()), (23, 23), "of {of}");
        }
        assert_eq!(Share::WHOLE, Share::new(0, 1).unwrap());
        assert!(Share::new(2, 2).unwrap_err().is_unsupported() && Share::new(0, 0).is_err());
        assert!(Share::WHOLE.order(&[]).is_empty());
    }
}
