//! What a variant will take, before anything was measured: a cost model, and the best of all legal variants by it.
//!
//! A call is predicted part by part ([`Terms`]); for a variant of the path `wgmma`:
//!
//! ```text
//! launch + prepass + finish        kernels of the call, each beside the next
//! + before the loop                of a block: barriers, first addresses, the table of groups
//! + at either end of the loop      the first stages of all blocks arrive, the last one is worked off
//! + what the busiest SM does, or the memory, whichever is longer:
//!     the busiest SM               its blocks, as many at a time as it holds; each loop the longest of
//!         tensor cores             64 rows × 64 of k at a time
//!         decoding                 instructions, for as many rows; they share registers with the tensor cores
//!         ingress                  bytes of stages
//!         a warpgroup's own way    decode, multiply, stage by stage, with nobody in it
//!         waiting for stages       too few are under way: fill and drain of the pipeline
//!         issuing loads            by the warp that does
//!       + between loops            what a block has before and after, where another follows
//!     memory                       weights, tokens and results once, and that some SMs run ahead of others
//! + after the loop                 sums of warpgroups and clusters meet, the result is stored
//! + power                          busy tensor cores lower the clock
//! ```
//!
//! "The longest of" is a mean near the largest: what runs side by side hinders each other a little. Waves and padding come
//! in with the number of blocks of the busiest SM and the width of a tile ([`wave_efficiency`], [`tile_efficiency`] say how
//! much of it is of use). Of groups only their number and the sum of their rows are known: they are taken to be spread
//! evenly around the average ([`Constants::uneven`]).
//!
//! The numbers that the parts need are in one table an architecture ([`Constants`]), fitted to measurements by
//! `warpsmith calibrate`, which also tells how much slower than the best that was measured the heuristic's picks are. The
//! model is for ranking: within a problem and an M its errors are some per cent, and so are those of its times.
//!
//! ```
//! use warpsmith::internal::pick::heuristic;
//! use warpsmith::spec::{Activation, Arch, Problem};
//! let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).prepared();
//! for ranked in heuristic::rank(&problem, 64, &Arch::H200, 8) {
//!     println!("{}: {}", ranked.spec.variant(), ranked.prediction);
//! }
//! ```

mod bound;
mod cost;
mod search;
mod terms;
#[cfg(test)]
mod tests;

pub use crate::path::cost::{Constants, tile_efficiency, wave_efficiency};
pub use search::Ranked;
pub use terms::{Prediction, Terms};

use crate::spec::{Arch, MatrixPath, Problem, Spec};

/// What a variant is predicted to take for `m` rows (of all groups together).
#[must_use]
pub fn predict(spec: &Spec, m: u32) -> Prediction {
    cost::predict(spec, m, Constants::of(spec.arch()))
}

/// As [`predict`], with other constants: for fitting them.
#[must_use]
pub fn predict_with(spec: &Spec, m: u32, constants: &Constants) -> Prediction {
    cost::predict(spec, m, constants)
}

/// The best `count` of all legal variants of a problem, on every matrix path that takes it, for `m` rows (of all groups
/// together), the best first; of those that differ in stages only, and leave an SM as many blocks, the best one. Beside the
/// axes of `space` there are the tile heights that share the rows evenly. The same arguments always give the same ranking.
/// There are none for what [`Problem::check_for`] refuses.
#[must_use]
pub fn rank(problem: &Problem, m: u32, arch: &Arch, count: usize) -> Vec<Ranked> {
    rank_where(problem, m, arch, count, &|_| true)
}

/// As [`rank`], of the variants that `accepts` takes.
#[must_use]
pub fn rank_where(
    problem: &Problem,
    m: u32,
    arch: &Arch,
    count: usize,
    accepts: &dyn Fn(&Spec) -> bool,
) -> Vec<Ranked> {
    if problem.check_for(m).is_err() {
        return Vec::new();
    }
    let ranked =
        |path: MatrixPath| search::rank(&path.axes(problem), problem, m, arch, count, accepts, Constants::of(arch));
    let mut best: Vec<Ranked> = MatrixPath::of(problem, arch).flat_map(ranked).collect();
    best.sort_by(search::compare);
    best.truncate(count);
    best
}
