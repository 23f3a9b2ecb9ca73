//! From what is good to what is better, by one thing at a time.

use super::{FAMILY, Family, Nodes, Search, of_way};
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
        for &tokens in heights.iter().filter(|other| **other != tokens) {
            self.add_family(Variant { tile: Tile { tokens, ..middle.tile }, ..*middle });
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
        for (at, way) in self.axes.ways(plain).enumerate() {
            let is_way = shares(&way) == shares(middle);
            if !takes(is_way, true) && !takes(is_way, false) {
                continue;
            }
            let known = self.combinations.entry((fusion, columns)).or_default();
            let families = of_way(known, at, || self.axes.families(self.question.problem, &way)).len();
            for of in 0..families {
                let Some(Some(known)) = self.combinations.get(&(fusion, columns)).and_then(|ways| ways.get(at)) else {
                    break;
                };
                let family = known[of];
                if takes(is_way, family.tile.k == middle.tile.k && family.warps == middle.warps) {
                    self.add_family(Variant { tile: Tile { tokens, ..family.tile }, ..family });
                }
            }
        }
    }

    fn add_family(&mut self, variant: Variant) {
        self.spent += FAMILY;
        let family = Family::new(self.question, Variant { stages: 1, ..variant }, &mut self.covers, &self.best);
        self.families.extend(family);
    }
}

/// How it shares K and stages, keeps its SMs and decodes tokens.
fn shares(variant: &Variant) -> (u32, Cluster, bool, bool, Rows) {
    let Variant { split_k, cluster, persistent, prepass, rows, .. } = *variant;
    (split_k, cluster, persistent, prepass, rows)
}
