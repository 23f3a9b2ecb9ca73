//! What the model predicts, part by part.

use std::fmt;

use serde::Serialize;

/// A predicted time with the parts that it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// µs of a call in a row of dependent launches, operands not in the L2 cache.
    pub us: f64,
    /// Its parts.
    pub terms: Terms,
}

/// The parts of a prediction: µs unless said otherwise.
///
/// `launch`, `fixed`, `idle`, `tail`, `prepass`, `finish` and `power` add up; of `tensor`, `decode`, `ingress`, `serial`, `latency` and
/// `loading`, which run side by side, the longest counts most; to that comes `between`, and `memory` runs beside both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Terms {
    /// Between kernels.
    pub launch: f64,
    /// Of blocks, before their loops, and for the first and the last stage of those.
    pub fixed: f64,
    /// Of the busiest SM, between the loops of blocks that follow each other.
    pub between: f64,
    /// The tensor cores of the busiest SM.
    pub tensor: f64,
    /// The instructions of the busiest SM that decode weights.
    pub decode: f64,
    /// Stages on their way into the busiest SM.
    pub ingress: f64,
    /// Warpgroups, each one step after the other.
    pub serial: f64,
    /// Waiting for stages, of which too few are under way.
    pub latency: f64,
    /// The warp that loads.
    pub loading: f64,
    /// All bytes from and to device memory.
    pub memory: f64,
    /// Blocks that the grid has for groups without rows.
    pub idle: f64,
    /// Of blocks, after their loops: sums that meet, stores.
    pub tail: f64,
    /// The kernel that decodes tokens before.
    pub prepass: f64,
    /// Partial sums in the workspace, and the kernel that finishes them.
    pub finish: f64,
    /// What the power limit takes from the clock when the tensor cores are busy.
    pub power: f64,
    /// Blocks of a launch; for groups as expected.
    pub blocks: f64,
    /// Blocks that an SM holds at a time.
    pub blocks_per_sm: f64,
    /// Share of the SMs' time that has a block, where every block takes the same.
    pub wave_efficiency: f64,
    /// Share of the tokens that tiles are multiplied as that are there.
    pub token_efficiency: f64,
    /// Share of the tiles that is inside of the problem, along tokens, columns and K.
    pub tile_efficiency: f64,
}

impl Terms {
    /// Each with its name and unit; those that are none of a variant's are 0.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, f64, &'static str)> + use<> {
        let us = [
            ("launch", self.launch),
            ("before the loop", self.fixed),
            ("tensor cores", self.tensor),
            ("decoding", self.decode),
            ("ingress", self.ingress),
            ("a warpgroup's own way", self.serial),
            ("waiting for stages", self.latency),
            ("issuing loads", self.loading),
            ("between loops", self.between),
            ("memory", self.memory),
            ("blocks without rows", self.idle),
            ("after the loop", self.tail),
            ("prepass", self.prepass),
            ("finish", self.finish),
            ("power", self.power),
        ];
        let shares = [
            ("waves full", 100.0 * self.wave_efficiency),
            ("token rows used", 100.0 * self.token_efficiency),
            ("tiles used", 100.0 * self.tile_efficiency),
        ];
        let us = us.into_iter().map(|(name, us)| (name, us, "us"));
        us.chain(shares.into_iter().map(|(name, share)| (name, share, "%")))
    }
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} µs: {}", self.us, self.terms)
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Terms { launch, fixed, tensor, decode, ingress, serial, latency, loading, memory, between, .. } = self;
        let Terms {
            idle, tail, prepass, finish, power, blocks, blocks_per_sm, wave_efficiency, tile_efficiency, ..
        } = self;
        write!(f, "launch {launch:.2} + fixed {fixed:.2} + the longest of (tensor {tensor:.2}, decode {decode:.2}, ")?;
        write!(f, "ingress {ingress:.2}, serial {serial:.2}, latency {latency:.2}, loading {loading:.2}) ")?;
        write!(f, "+ between {between:.2} beside memory {memory:.2} + tail {tail:.2}")?;
        for (name, value) in [("idle", idle), ("prepass", prepass), ("finish", finish), ("power", power)] {
            if *value > 0.0 {
                write!(f, " + {name} {value:.2}")?;
            }
        }
        let percent = |share: &f64| 100.0 * share;
        write!(f, "; {blocks:.0} blocks, {blocks_per_sm} an SM, waves {:.0} %", percent(wave_efficiency))?;
        write!(f, ", tiles {:.0} %", percent(tile_efficiency))
    }
}
