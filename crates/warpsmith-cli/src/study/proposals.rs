//! The debate as data: what was proposed, what was promised, and the rules that it was to be judged by.

use std::fmt;

use warpsmith::internal::spec::{Epilogue, Fusion};

/// One axis of the variant that was argued about.
pub struct Proposal {
    /// What it is called.
    pub name: &'static str,
    /// The speed-up that was promised, from and to; none for the fusions, which were argued about without numbers.
    pub claim: Option<(f64, f64)>,
    /// What there was without it.
    pub from: Value,
    /// What was proposed instead.
    pub to: &'static [Value],
    /// What both sides of a comparison have in common beside this axis.
    pub control: Control,
}

/// A value of the axis that a proposal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Pipeline stages.
    Stages(u32),
    /// Tokens and columns of a tile.
    Tile(u32, u32),
    /// Every warp computes.
    Uniform,
    /// Warps that only load, and this many times as many warpgroups that compute as the tile needs: beyond 1 they share
    /// its K.
    Specialised(u32),
    /// How two products share a kernel.
    Fusion(Fusion),
    /// How results leave the block.
    Epilogue(Epilogue),
    /// Whatever the kernel has that is being looked at.
    Own,
}

/// What a value is compared with where it asks for changes of other axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The same kernel with the same changes and only this axis as it was: the axis alone is measured.
    Same,
    /// What there was, as near as it is legal: other axes have to follow a tile or a fusion, and that is part of it.
    Before,
}

/// In the order in which they are put on top of each other. Stores come last: until products are fused, what leaves the
/// matrix kernel are partial sums, which no bulk store takes.
pub const PROPOSALS: [Proposal; 5] = [
    Proposal {
        name: "stages",
        claim: Some((1.5, 1.8)),
        from: Value::Stages(1),
        to: &[Value::Stages(2), Value::Stages(3), Value::Stages(4)],
        control: Control::Same,
    },
    Proposal {
        name: "tile",
        claim: Some((1.8, 2.5)),
        from: Value::Tile(128, 128),
        to: &[
            Value::Tile(64, 64),
            Value::Tile(64, 128),
            Value::Tile(128, 64),
            Value::Tile(128, 256),
            Value::Tile(256, 64),
        ],
        control: Control::Before,
    },
    Proposal {
        name: "warp specialisation",
        claim: Some((1.25, 1.4)),
        from: Value::Uniform,
        to: &[Value::Specialised(1), Value::Specialised(2)],
        control: Control::Same,
    },
    Proposal {
        name: "fusion",
        claim: None,
        from: Value::Fusion(Fusion::TwoPass),
        to: &[
            Value::Fusion(Fusion::Sequential),
            Value::Fusion(Fusion::Interleaved),
            Value::Fusion(Fusion::PerProduct),
            Value::Fusion(Fusion::PingPong),
        ],
        control: Control::Before,
    },
    Proposal {
        name: "TMA store",
        claim: Some((1.12, 1.15)),
        from: Value::Epilogue(Epilogue::Direct),
        to: &[Value::Epilogue(Epilogue::Tma)],
        control: Control::Same,
    },
];

/// The debate's rules: a change stays that makes the kernel this much faster …
pub const KEEP: f64 = 1.4;
/// … and goes if it does not make it this much faster; between the two somebody has to judge.
pub const REVERT: f64 = 1.3;
/// A kernel takes less shared memory of an SM than this.
pub const SHARED_PER_SM: u32 = 200 * 1024;
/// What is put on top of each other stays if it makes the kernel this much faster: the rules above would leave nothing.
pub const WORTH_STACKING: f64 = 1.02;

/// Where the other axes stand while one is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// Each proposal alone, on the debate's baseline.
    Baseline,
    /// Each on top of those before that were worth it, as it was meant to be done.
    Stack,
    /// The kernel that is picked, with the axis taken back to what there was.
    Pick,
}

pub const GROUNDS: [Ground; 3] = [Ground::Baseline, Ground::Stack, Ground::Pick];

impl Ground {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Ground::Baseline => "alone",
            Ground::Stack => "stacked",
            Ground::Pick => "in the pick",
        }
    }

    /// What it is.
    pub fn meaning(self) -> &'static str {
        match self {
            Ground::Baseline => "each proposal alone, on the baseline: two passes, one stage, a 128×128 tile",
            Ground::Stack => "each on top of those before that made it faster, in the order in which they stand",
            Ground::Pick => "the kernel that is picked, over the same kernel with only this axis as in the baseline",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Value::Stages(stages) => stages.to_string(),
            Value::Tile(tokens, columns) => format!("{tokens}×{columns}"),
            Value::Uniform => "uniform".to_owned(),
            Value::Specialised(1) => "specialised".to_owned(),
            Value::Specialised(times) => format!("specialised, ×{times} along K"),
            Value::Fusion(fusion) => fusion.to_string(),
            Value::Epilogue(epilogue) => epilogue.to_string(),
            Value::Own => "as picked".to_owned(),
        };
        f.pad(&text)
    }
}
