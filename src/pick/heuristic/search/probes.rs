//! What is often good, and is looked at before a search.

use super::{Nodes, Search};
use crate::pick::heuristic::bound::Question;
use crate::spec::{Cluster, Epilogue, Spec, Tile, Variant, Warps};

/// A tile that is often good: of so many times the fewest columns the height that may be the best, or the one so many behind it.
struct Probe {
    columns: usize,
    behind: usize,
    k: u32,
    warps: Warps,
    epilogue: Epilogue,
    cluster: Cluster,
    persistent: bool,
}

impl Probe {
    const fn new(columns: usize, behind: usize, k: u32, warpgroups: u32) -> Self {
        let warps = Warps::Specialised(warpgroups);
        let (epilogue, cluster) = (Epilogue::Shared, Cluster::None);
        Self { columns, behind, k, warps, epilogue, cluster, persistent: false }
    }

    const fn direct(self) -> Self {
        Self { epilogue: Epilogue::Direct, ..self }
    }

    /// Blocks of a cluster that share K.
    const fn by(self, blocks: u32) -> Self {
        Self { cluster: Cluster::SplitK(blocks), ..self }
    }

    /// Blocks that stay.
    const fn staying(self) -> Self {
        Self { persistent: true, ..self }
    }

    const fn uniform(columns: usize, behind: usize) -> Self {
        Self { warps: Warps::Uniform, ..Self::new(columns, behind, 128, 1).direct() }
    }
}

/// Rows up to which there are few, and some.
const FEW: u32 = 64;
const SOME: u32 = 512;
/// Where warps may be specialised, without groups: of few rows, of some, of many; with groups, in blocks that stay; where warps are alike.
/// Each is what brought those before it nearest to the best of random problems on an H200.
const OF_FEW: [Probe; 7] = [
    Probe::new(1, 0, 256, 2),
    Probe::new(2, 0, 256, 2),
    Probe::new(1, 1, 256, 2).direct().by(2),
    Probe::new(3, 0, 256, 3),
    Probe::new(1, 3, 256, 2).direct().by(4),
    Probe::new(1, 2, 128, 2).direct().by(2),
    Probe::new(3, 1, 256, 3).by(2),
];
const OF_SOME: [Probe; 7] = [
    Probe::new(2, 0, 128, 2),
    Probe::new(1, 0, 128, 2),
    Probe::new(2, 1, 128, 2),
    Probe::new(3, 0, 128, 3),
    Probe::new(2, 3, 256, 2),
    Probe::new(3, 1, 128, 3),
    Probe::new(1, 1, 128, 2),
];
const OF_MANY: [Probe; 7] = [
    Probe::new(2, 0, 64, 2).staying(),
    Probe::new(2, 6, 256, 2).staying(),
    Probe::new(2, 1, 128, 2),
    Probe::new(2, 9, 256, 2).staying(),
    Probe::new(2, 2, 128, 2),
    Probe::new(2, 7, 256, 2).staying(),
    Probe::new(2, 4, 128, 2).staying(),
];
const OF_GROUPS: [Probe; 7] = [
    Probe::new(2, 3, 256, 2),
    Probe::new(1, 2, 256, 3).direct(),
    Probe::new(2, 2, 128, 2),
    Probe::new(3, 3, 256, 3),
    Probe::new(1, 3, 256, 3).direct(),
    Probe::new(2, 4, 128, 2),
    Probe::new(4, 3, 128, 4),
];
const UNIFORM: [Probe; 3] = [Probe::uniform(1, 0), Probe::uniform(2, 0), Probe::uniform(1, 1)];

impl Search<'_> {
    /// Looks at what is often good, so that little else needs to be looked at.
    pub(super) fn probe(&mut self, nodes: &Nodes<'_>) {
        let (axes, Question { problem, load, .. }) = (self.axes, self.question);
        let (specialised, has_groups) = (axes.are_specialised(), problem.groups().is_some());
        let probes: &[Probe] = match (specialised, has_groups) {
            (true, true) => &OF_GROUPS,
            (true, false) if load.m() <= FEW => &OF_FEW,
            (true, false) if load.m() <= SOME => &OF_SOME,
            (true, false) => &OF_MANY,
            (false, _) => &UNIFORM,
        };
        for Probe { columns, behind, k, warps, epilogue, cluster, persistent } in probes {
            let Some(plain) = nodes.least(axes.columns[columns - 1], *behind) else { continue };
            let variant = Variant {
                tile: Tile { k: *k, ..plain.tile },
                warps: *warps,
                epilogue: *epilogue,
                cluster: *cluster,
                persistent: *persistent || plain.persistent || (specialised && has_groups),
                prepass: axes.prepass[0],
                ..plain
            };
            if Spec::can_combine(problem, &variant) {
                self.add_depths(&variant);
            }
        }
    }
}
