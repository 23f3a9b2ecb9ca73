//! How it is computed: the searched struct. Small; everything else is derived in [`Spec`](super::Spec).
//!
//! An axis is an enum (or number) here, a folder under `templates/lib/`, and a segment of the spelling; a value is an
//! enum variant, a file, and a word.

use std::fmt;
use std::str::FromStr;

use super::parse::{prefixed, words};
use crate::error::{Error, Result};

/// Which matrix instructions do the work, and so how operands travel to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MatrixPath {
    /// `mma.sync.m16n8k16` fed by `cp.async`: sm_80 and later.
    Mma,
}

words!(MatrixPath, "matrix path", { Mma => "mma" });

/// How the two products of a dual GEMM share a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fusion {
    /// One product, nothing to fuse: the only value for `gemm`, and only for it.
    Single,
    /// Two GEMM launches to fp32 workspace, then an elementwise kernel.
    TwoPass,
    /// One kernel: all of B1 along K, then all of B2. Each A tile is loaded twice.
    Sequential,
    /// One kernel: each A tile is loaded once and used for both products.
    Interleaved,
}

words!(Fusion, "fusion", {
    Single => "single", TwoPass => "two_pass", Sequential => "sequential", Interleaved => "interleaved",
});

/// How the warps of a block share loading and computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Warps {
    /// Every warp loads and computes.
    Uniform,
}

words!(Warps, "warps", { Uniform => "uniform" });

/// How the result leaves the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Epilogue {
    /// Registers to global memory.
    Direct,
}

words!(Epilogue, "epilogue", { Direct => "direct" });

/// What one block computes at a time: rows of A (tokens) × columns of C × depth of one pipeline stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Rows of A and C.
    pub tokens: u32,
    /// Columns of C, so rows of each B.
    pub columns: u32,
    /// Elements along K that one stage holds.
    pub k: u32,
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}x{}x{}", self.tokens, self.columns, self.k)
    }
}

impl FromStr for Tile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::parse(format!("cannot read tile `{text}`: expected tTOKENSxCOLUMNSxK"));
        let mut parts = text.strip_prefix('t').ok_or_else(wrong)?.split('x').map(super::parse::number);
        match (parts.next().flatten(), parts.next().flatten(), parts.next().flatten(), parts.next()) {
            (Some(tokens), Some(columns), Some(k), None) => Ok(Tile { tokens, columns, k }),
            _ => Err(wrong()),
        }
    }
}

/// One way to compute a problem.
///
/// # Spelling
/// `PATH.tTOKENSxCOLUMNSxK.sSTAGES.FUSION.WARPS.EPILOGUE[.kSPLITS]`, for example
/// `mma.t64x128x64.s3.interleaved.uniform.direct` and `mma.t8x64x256.s4.single.uniform.direct.k4`; `.kSPLITS` is
/// left out for 1. `Display` writes it and `FromStr` reads exactly what `Display` writes. Whether it is legal is for
/// [`Spec::new`](super::Spec::new) to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// Matrix instructions.
    pub path: MatrixPath,
    /// What one block computes.
    pub tile: Tile,
    /// Pipeline stages: how many tiles along K are in shared memory at a time.
    pub stages: u32,
    /// How two products share a kernel.
    pub fusion: Fusion,
    /// How warps share the work.
    pub warps: Warps,
    /// How the result leaves.
    pub epilogue: Epilogue,
    /// How many blocks share the K of one tile; their fp32 partial sums are added in a fixed order.
    pub split_k: u32,
}

impl Variant {
    /// A variant of the [`mma`](MatrixPath::Mma) path, whose warps are all alike and store what they hold.
    #[must_use]
    pub fn mma(tile: Tile, stages: u32, fusion: Fusion, split_k: u32) -> Self {
        let (path, warps, epilogue) = (MatrixPath::Mma, Warps::Uniform, Epilogue::Direct);
        Self { path, tile, stages, fusion, warps, epilogue, split_k }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Variant { path, tile, stages, fusion, warps, epilogue, split_k } = self;
        write!(f, "{path}.{tile}.s{stages}.{fusion}.{warps}.{epilogue}")?;
        if *split_k == 1 { Ok(()) } else { write!(f, ".k{split_k}") }
    }
}

const GRAMMAR: &str = "expected PATH.tTOKENSxCOLUMNSxK.sSTAGES.FUSION.WARPS.EPILOGUE[.kSPLITS]";

impl FromStr for Variant {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).map_err(|error| error.context(format!("variant `{text}`")))
    }
}

fn parse(text: &str) -> Result<Variant> {
    let segments: Vec<&str> = text.split('.').collect();
    let (path, tile, stages, fusion, warps, epilogue, split_k) = match segments[..] {
        [path, tile, stages, fusion, warps, epilogue] => (path, tile, stages, fusion, warps, epilogue, None),
        [path, tile, stages, fusion, warps, epilogue, split] => {
            (path, tile, stages, fusion, warps, epilogue, Some(split))
        }
        _ => return Err(Error::parse(format!("{} segments: {GRAMMAR}", segments.len()))),
    };
    let numbered = |segment, prefix| {
        prefixed(segment, prefix).ok_or_else(|| Error::parse(format!("cannot read `{segment}`: {GRAMMAR}")))
    };
    let split_k = match split_k {
        None => 1,
        Some(segment) => match numbered(segment, "k")? {
            1 => return Err(Error::parse("`.k1` is left out in a spelling")),
            splits => splits,
        },
    };
    Ok(Variant {
        path: path.parse()?,
        tile: tile.parse()?,
        stages: numbered(stages, "s")?,
        fusion: fusion.parse()?,
        warps: warps.parse()?,
        epilogue: epilogue.parse()?,
        split_k,
    })
}
