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
//! + blocks without rows            of groups, beyond those that find room beside the others
//! + after the loop                 sums of warpgroups and clusters meet, the result is stored
//! + power                          busy tensor cores lower the clock
//! ```
//!
//! "The longest of" is a mean near the largest: what runs side by side hinders each other a little. Waves and padding come
//! in with the number of blocks of the busiest SM and the width of a tile ([`wave_efficiency`], [`tile_efficiency`] say how
//! much of it is of use). How many groups have rows, and how many they have, is as expected of tokens that choose experts
//! ([`Problem::experts_per_token`]), or as the caller knows it ([`Load`]); blocks that the grid has for groups without rows
//! come last and take a round for as many as find room.
//!
//! The numbers that the parts need ([`Constants`]) are in [`Tables`], for each [`Kind`] of problem (with and without groups, of 16-bit and of
//! e4m3 products), fitted to measurements by `warpsmith calibrate`, which also tells how much slower than the best that was measured
//! the heuristic's picks are. The model is for ranking: within a problem and an M its errors are some per cent, and so are those of its times.
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

pub use crate::path::cost::{Constants, Kind, Tables, tile_efficiency, wave_efficiency};
pub use search::Ranked;
pub use terms::{Prediction, Terms};

use crate::routing::Load;
use crate::spec::{Arch, MatrixPath, Problem, Spec};
use search::Effort;

/// What a variant is predicted to take for `m` rows (of all groups together) of a problem: its own but for what is no part
/// of a kernel.
#[must_use]
pub fn predict(spec: &Spec, problem: &Problem, m: u32) -> Prediction {
    predict_for(spec, &problem.load(m))
}

/// As [`predict`], for rows of which it is known how they fall into groups.
#[must_use]
pub fn predict_for(spec: &Spec, load: &Load) -> Prediction {
    cost::predict(spec, load, Constants::of(spec.problem()))
}

/// As [`predict_for`], with other constants: for fitting them.
#[must_use]
pub fn predict_with(spec: &Spec, load: &Load, constants: &Constants) -> Prediction {
    cost::predict(spec, load, constants)
}

/// The best `count` of all legal variants of a problem, on every matrix path that takes it, for `m` rows (of all groups
/// together), the best first; of those that differ in stages only, and leave an SM as many blocks, the best one. Beside the
/// axes of `space` there are the tile heights that share the rows evenly; there are none much taller than the tallest group. The
/// same arguments always give the same ranking.
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
    // Before anything is made for groups of which there may be billions.
    if problem.check_for(m).is_err() {
        return Vec::new();
    }
    rank_for(problem, &problem.load(m), arch, count, accepts)
}

/// As [`rank_where`], for rows of which it is known how they fall into groups.
#[must_use]
pub fn rank_for(
    problem: &Problem,
    load: &Load,
    arch: &Arch,
    count: usize,
    accepts: &dyn Fn(&Spec) -> bool,
) -> Vec<Ranked> {
    look(problem, load, arch, (count, Effort::Whole), accepts)
}

/// What a first look at a problem finds for `m` rows, as [`first_for`].
#[must_use]
pub fn first(problem: &Problem, m: u32, arch: &Arch) -> Option<Ranked> {
    // As in `rank_where`.
    if problem.check_for(m).is_err() {
        return None;
    }
    first_for(problem, &problem.load(m), arch, &|_| true)
}

/// What a first look finds: the first that [`rank_for`] has, but where that takes long, something that may be a little worse. It
/// does not depend on the machine.
#[must_use]
pub fn first_for(problem: &Problem, load: &Load, arch: &Arch, accepts: &dyn Fn(&Spec) -> bool) -> Option<Ranked> {
    look(problem, load, arch, (1, Effort::FirstLook), accepts).first().copied()
}

fn look(
    problem: &Problem,
    load: &Load,
    arch: &Arch,
    (count, effort): (usize, Effort),
    accepts: &dyn Fn(&Spec) -> bool,
) -> Vec<Ranked> {
    if problem.check_for(load.m()).is_err() {
        return Vec::new();
    }
    let ranked = |path: MatrixPath| {
        search::rank(&path.axes(problem), problem, load, arch, (count, effort), accepts, Constants::of(problem))
    };
    let mut best: Vec<Ranked> = MatrixPath::of(problem, arch).flat_map(ranked).collect();
    best.sort_by(search::compare);
    best.truncate(count);
    best
}
