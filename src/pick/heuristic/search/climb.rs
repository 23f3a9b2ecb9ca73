//! From what is good to what is better, by one thing at a time.

use super::{Family, Nodes, Search, of_way};
use crate::spec::{Cluster, Fusion, Rows, Spec, Tile, Variant};

impl Search<'_> {
    /// Looks at what differs from `from` in one thing, and so on from the best of it, until nothing is better or it cost so much;
    /// returns where it came to.
    pub(super) fn climb(&mut self, from: (f64, Spec), nodes: &Nodes<'_>, until: u32) -> Spec {
        let mut top = from;
        while self.spent < until {
            self.families.clear();
            self.add_neighbours(top.1.variant(), &nodes.tokens);
            self.add_families();
            match self.best.found.first() {
                Some(best) if best.0 < top.0 => top = *best,
                _ => break,
            }
        }
        top.1
    }

    /// To `families`: other tokens; other columns, with as many tokens or a tile as large, and warps and K as they please; another
    /// fusion the same, in blocks that stay where these need to; another way to share K; other warps and K.
    fn add_neighbours(&mut self, middle: &Variant, heights: &[u32]) {
        let axes = self.axes;
        let Variant { tile: Tile { tokens, columns, .. }, fusion, .. } = *middle;
        let Self { question, covers, families, best, spent, .. } = self;
        for &tokens in heights.iter().filter(|other| **other != tokens) {
            let variant = Variant { tile: Tile { tokens, ..middle.tile }, stages: 1, ..*middle };
            families.extend(Family::new(question, variant, covers, best, spent));
        }
        self.add_node(middle, middle, |is_way, is_family| is_way != is_family);
        let plain = |tokens, columns, fusion| axes.plainest(Tile { tokens, columns, k: axes.k[0] }, fusion);
        for other in axes.columns.into_iter().filter(|other| *other != columns) {
            let as_large = (tokens * columns).div_ceil(other);
            let nearest = heights.iter().copied().min_by_key(|height| height.abs_diff(as_large)).unwrap_or(tokens);
            for tokens in [tokens, nearest] {
                self.add_node(&plain(tokens, other, fusion), middle, |is_way, _| is_way);
            }
        }
        for &other in axes.fusions.iter().filter(|other| **other != fusion) {
            let persistent = middle.persistent || other == Fusion::PingPong;
            self.add_node(&plain(tokens, columns, other), &Variant { persistent, ..*middle }, |is_way, _| is_way);
        }
    }

    /// Those with the fusion, tokens and columns of `plain` that `takes` takes: by whether they share K and stages as `middle` does, and
    /// whether their warps and K are the same.
    fn add_node(&mut self, plain: &Variant, middle: &Variant, takes: impl Fn(bool, bool) -> bool) {
        let Variant { tile: Tile { tokens, columns, .. }, fusion, .. } = *plain;
        let Self { question, axes, combinations, covers, families, best, spent, .. } = self;
        let combinations = combinations.entry((fusion, columns)).or_default();
        for (at, way) in axes.ways(plain).enumerate() {
            let is_way = shares(&way) == shares(middle);
            if !takes(is_way, true) && !takes(is_way, false) {
                continue;
            }
            for other in of_way(combinations, at, || axes.families(question.problem, &way)) {
                if takes(is_way, other.tile.k == middle.tile.k && other.warps == middle.warps) {
                    let variant = Variant { tile: Tile { tokens, ..other.tile }, ..*other };
                    families.extend(Family::new(question, variant, covers, best, spent));
                }
            }
        }
    }
}

/// How it shares K and stages, keeps its SMs and decodes tokens.
fn shares(variant: &Variant) -> (u32, Cluster, bool, bool, Rows) {
    let Variant { split_k, cluster, persistent, prepass, rows, .. } = *variant;
    (split_k, cluster, persistent, prepass, rows)
}
