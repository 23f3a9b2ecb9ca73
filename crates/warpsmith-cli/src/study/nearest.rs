//! The legal kernels nearest to what was asked for. Axes depend on each other: a tile of fewer columns needs fewer
//! warpgroups, ping-pong needs persistent blocks, a deep tile leaves room for fewer stages. So a value of one axis is put
//! into a kernel with as little as possible of the others changed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use warpsmith::internal::spec::{Cluster, Epilogue, Fusion, Tile, Warps};
use warpsmith::spec::{Arch, Operation, Problem, Refusal, Spec, Variant};

use super::proposals::{Control, Value};

/// A kernel, legal or not, whose warpgroups are told as multiples of those that its tile needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Its `warps` mean nothing.
    variant: Variant,
    /// None: every warp computes.
    times: Option<u32>,
}

/// Two kernels to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub control: Spec,
    pub changed: Spec,
}

/// Columns of a tile are multiples of the one, up to the other.
const COLUMNS_STEP: u32 = 32;
const COLUMNS_MAX: u32 = 256;
/// Warpgroups that compute at most.
const CONSUMERS_MAX: u32 = 4;

/// What it costs to change an axis that was not asked for, and what all changes may cost. They only set an order: what the
/// compiler would do anyway is cheap, what makes another kernel of it is dear.
mod cost {
    pub const STAGES: u32 = 100;
    pub const CREW: u32 = 200;
    pub const PERSISTENT: u32 = 200;
    pub const EPILOGUE: u32 = 200;
    pub const DEPTH: u32 = 300;
    pub const SHARING: u32 = 300;
    pub const EXTENT: u32 = 400;
    pub const FUSION: u32 = 900;
    pub const MOST: u32 = 1300;
}

impl Shape {
    /// That of a legal kernel.
    pub fn of(spec: &Spec) -> Self {
        let variant = *spec.variant();
        let needed = || needed(spec.problem(), &variant, spec.arch()).map_or(1, |(needed, _)| needed);
        let times = if let Warps::Specialised(consumers) = variant.warps { Some(consumers / needed()) } else { None };
        Self { variant, times }
    }

    /// With another value of one axis.
    fn with(mut self, value: Value) -> Self {
        match value {
            Value::Stages(stages) => self.variant.stages = stages,
            Value::Tile(tokens, columns) => (self.variant.tile.tokens, self.variant.tile.columns) = (tokens, columns),
            Value::Uniform => self.times = None,
            Value::Specialised(times) => self.times = Some(times),
            Value::Fusion(fusion) => self.variant.fusion = fusion,
            Value::Epilogue(epilogue) => self.variant.epilogue = epilogue,
            Value::Own => {}
        }
        self
    }

    fn check(&self, problem: &Problem, arch: &Arch) -> Result<Spec, Refusal> {
        let Some(times) = self.times else {
            return Spec::check(problem, &Variant { warps: Warps::Uniform, ..self.variant }, arch);
        };
        let (needed, spec) = needed(problem, &self.variant, arch)?;
        if times == 1 {
            return Ok(spec);
        }
        Spec::check(problem, &Variant { warps: Warps::Specialised(times * needed), ..self.variant }, arch)
    }

    /// Everything that is one change away, without what `value` is about, and what that costs.
    fn neighbours(&self, value: Value, may_fuse: bool) -> Vec<(u32, Shape)> {
        let variant = self.variant;
        let tile = variant.tile;
        let of = |cost, variant| (cost, Shape { variant, ..*self });
        let mut found = Vec::new();
        if !matches!(value, Value::Stages(_)) {
            // One more, where warpgroups that share K need a stage each.
            let others = (1..=variant.stages + 1).rev().filter(|stages| *stages != variant.stages);
            let apart = |stages: u32| cost::STAGES + stages.abs_diff(variant.stages);
            found.extend(others.map(|stages| of(apart(stages), Variant { stages, ..variant })));
        }
        if !matches!(value, Value::Uniform | Value::Specialised(_)) {
            // Loading warps stay as long as they can.
            found.extend([Some(1), None].map(|times| (cost::CREW, Shape { times, ..*self })));
        }
        found.push(of(cost::PERSISTENT, Variant { persistent: !variant.persistent, ..variant }));
        if !matches!(value, Value::Epilogue(_)) {
            let others = [Epilogue::Direct, Epilogue::Shared];
            found.extend(others.map(|epilogue| of(cost::EPILOGUE, Variant { epilogue, ..variant })));
        }
        let depths = [64, 128].map(|k| Variant { tile: Tile { k, ..tile }, ..variant });
        found.extend(depths.map(|variant| of(cost::DEPTH, variant)));
        found.push(of(cost::SHARING, Variant { split_k: 1, cluster: Cluster::None, ..variant }));
        if !matches!(value, Value::Tile(..)) {
            // The next narrower first, the next wider last.
            let columns = (1..=COLUMNS_MAX / COLUMNS_STEP).map(|tiles| tiles * COLUMNS_STEP);
            let (narrower, wider): (Vec<u32>, Vec<u32>) =
                columns.filter(|columns| *columns != tile.columns).partition(|columns| *columns < tile.columns);
            let others = narrower.into_iter().rev().chain(wider).map(|columns| Tile { columns, ..tile });
            let tiles = others.chain([Tile { tokens: tile.tokens / 2, ..tile }]);
            found.extend(tiles.map(|tile| of(cost::EXTENT, Variant { tile, ..variant })));
        }
        if may_fuse && !matches!(value, Value::Fusion(_)) {
            let others = [Fusion::Sequential, Fusion::Interleaved];
            found.extend(others.map(|fusion| of(cost::FUSION, Variant { fusion, ..variant })));
        }
        found
    }
}

/// The fewest warpgroups that can compute a variant beside warps that load, and the kernel with so many.
fn needed(problem: &Problem, variant: &Variant, arch: &Arch) -> Result<(u32, Spec), Refusal> {
    let with = |consumers| {
        let variant = Variant { warps: Warps::Specialised(consumers), ..*variant };
        Spec::check(problem, &variant, arch).map(|spec| (consumers, spec))
    };
    let mut refusal = None;
    for consumers in 1..=CONSUMERS_MAX {
        match with(consumers) {
            Ok(found) => return Ok(found),
            // That there are too few says nothing of the others.
            Err(Refusal::Axis { what: "consumer warpgroups", .. }) if consumers < CONSUMERS_MAX => {}
            Err(other) => {
                refusal.get_or_insert(other);
            }
        }
    }
    match refusal {
        Some(refusal) => Err(refusal),
        None => with(CONSUMERS_MAX),
    }
}

/// Two kernels near `ground` that show what it is worth to have `to` instead of `from`.
///
/// # Errors
/// The limit that refuses `to` just so, if nothing near it is legal either.
pub fn pair(
    problem: &Problem,
    arch: &Arch,
    ground: &Shape,
    (from, to): (Value, Value),
    control: Control,
) -> Result<Pair, Refusal> {
    let both = |shape: &Shape| -> Result<Pair, Refusal> {
        let changed = shape.with(to).check(problem, arch)?;
        Ok(Pair { control: shape.with(from).check(problem, arch)?, changed })
    };
    match control {
        Control::Same => nearest(ground, from, may_fuse(problem), both),
        Control::Before => {
            let alone = |value: Value| nearest(ground, from, false, |shape| shape.with(value).check(problem, arch));
            Ok(Pair { changed: alone(to)?, control: alone(from)? })
        }
    }
}

/// Whether a problem has products to fuse, and a matrix path where stores depend on it.
fn may_fuse(problem: &Problem) -> bool {
    matches!(problem.operation(), Operation::DualGemm(_)) && problem.is_prepared()
}

/// What `check` gives for the shape nearest to `start` that it accepts, or says of `start` itself.
fn nearest<T>(
    start: &Shape,
    about: Value,
    may_fuse: bool,
    check: impl Fn(&Shape) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let refusal = match check(start) {
        Ok(found) => return Ok(found),
        Err(refusal) => refusal,
    };
    // Of equal costs the one that was found first.
    let mut seen = vec![*start];
    let mut known = HashSet::from([*start]);
    let mut open = BinaryHeap::from([Reverse((0, 0))]);
    while let Some(Reverse((cost, index))) = open.pop() {
        let shape = seen[index];
        if let Ok(found) = check(&shape) {
            return Ok(found);
        }
        for (more, next) in shape.neighbours(about, may_fuse) {
            if cost + more <= cost::MOST && known.insert(next) {
                open.push(Reverse((cost + more, seen.len())));
                seen.push(next);
            }
        }
    }
    Err(refusal)
}
