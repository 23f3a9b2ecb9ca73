//! How it is computed: the searched struct. Small; everything else is derived in [`Spec`](crate::spec::Spec).
//!
//! An axis is an enum (or number) here and a segment of the spelling; where its values are code, they are files of one
//! folder, or structs of one file, under `templates/`.

use std::fmt;
use std::str::FromStr;

use super::MatrixPath;
use crate::error::{Error, Result};
use crate::spelling::{number, prefixed, spelled, words};

/// How the two products of a dual GEMM share a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fusion {
    /// One product, nothing to fuse: for `gemm`, and only for it.
    Single,
    /// Two GEMM launches to fp32 workspace, then an elementwise kernel.
    TwoPass,
    /// One kernel: all of B1 along K, then all of B2. Each A tile is loaded twice.
    Sequential,
    /// One kernel: each A tile is loaded once and used for both products.
    Interleaved,
    /// Each product has a warpgroup of its own; both read the same stages.
    PerProduct,
    /// Interleaved, or of a `gemm` its one product, by two groups of warpgroups that have every second tile each: one's epilogue is
    /// under the other's multiplying.
    PingPong,
}

words!(Fusion, "fusion", {
    Single => "single", TwoPass => "two_pass", Sequential => "sequential", Interleaved => "interleaved",
    PerProduct => "per_product", PingPong => "ping_pong",
});

/// How the warps of a block share loading and computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Warps {
    /// Every warp computes, and one of them (`mma`: all of them) loads as well.
    Uniform,
    /// Warps that only load, and this many warpgroups that compute: `ws1` to `ws4`. Those that the tile's columns do not
    /// need share the K of the tile.
    Specialised(u32),
    /// Warps that only load, warpgroups that decode weights into shared memory, and those that multiply from there: `ws2d1` has two of
    /// these and one that decodes. Those that multiply and that the tile's columns do not need share its tokens.
    Decoding {
        /// Warpgroups that multiply.
        consumers: u32,
        /// Warpgroups that decode.
        decoders: u32,
    },
}

impl Warps {
    /// A place in an order: alike ones first, then by their number.
    pub(crate) fn order(self) -> u32 {
        match self {
            Warps::Uniform => 0,
            Warps::Specialised(consumers) => consumers,
            Warps::Decoding { consumers, decoders } => 16 * decoders + consumers,
        }
    }

    /// Warpgroups that multiply, if they do nothing else.
    #[must_use]
    pub fn consumers(self) -> Option<u32> {
        match self {
            Warps::Uniform => None,
            Warps::Specialised(consumers) | Warps::Decoding { consumers, .. } => Some(consumers),
        }
    }

    /// Warpgroups that only decode weights.
    #[must_use]
    pub fn decoders(self) -> u32 {
        if let Warps::Decoding { decoders, .. } = self { decoders } else { 0 }
    }

    /// The name of what implements it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Warps::Uniform => "uniform",
            Warps::Specialised(_) | Warps::Decoding { .. } => "specialised",
        }
    }
}

impl fmt::Display for Warps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warps::Uniform => f.write_str("uniform"),
            Warps::Specialised(consumers) => write!(f, "ws{consumers}"),
            Warps::Decoding { consumers, decoders } => write!(f, "ws{consumers}d{decoders}"),
        }
    }
}

impl FromStr for Warps {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "uniform" {
            return Ok(Warps::Uniform);
        }
        let read = || match text.split_once('d') {
            None => prefixed(text, "ws").map(Warps::Specialised),
            Some((consumers, decoders)) => {
                let (consumers, decoders) = (prefixed(consumers, "ws")?, number(decoders)?);
                (decoders > 0).then_some(Warps::Decoding { consumers, decoders })
            }
        };
        read().ok_or_else(|| Error::parse(format!("unknown warps `{text}`: expected uniform, ws1, ws2 … or ws1d1 …")))
    }
}

/// How the result leaves the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Epilogue {
    /// Registers to global memory.
    Direct,
    /// Registers to shared memory, and from there whole rows of the tile to global memory.
    Shared,
    /// Registers to shared memory, and from there to global memory by bulk copies.
    Tma,
}

words!(Epilogue, "epilogue", { Direct => "direct", Shared => "shared", Tma => "tma" });

/// What the blocks of a thread block cluster do together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cluster {
    /// There is none: every block is alone.
    #[default]
    None,
    /// They share the K of a tile and add up their sums through distributed shared memory: `dsmem2`, `dsmem4`.
    SplitK(u32),
    /// They have different columns and the same tokens, which each loads a part of and sends to all: `multicast2`,
    /// `multicast4`.
    Multicast(u32),
    /// Two that multiply together, each with half of the rows of one instruction: `pair`.
    Pair,
}

impl Cluster {
    /// Blocks of a cluster.
    #[must_use]
    pub fn blocks(self) -> u32 {
        match self {
            Cluster::None => 1,
            Cluster::SplitK(blocks) | Cluster::Multicast(blocks) => blocks,
            Cluster::Pair => 2,
        }
    }

    /// Blocks that send each other tokens: 1 where none do.
    #[must_use]
    pub fn multicast(self) -> u32 {
        if let Cluster::Multicast(blocks) = self { blocks } else { 1 }
    }

    /// Blocks that have a tile together: 1 where each has its own.
    #[must_use]
    pub fn tile_blocks(self) -> u32 {
        if self == Cluster::Pair { 2 } else { 1 }
    }

    /// Parts that K is divided into inside a cluster.
    #[must_use]
    pub fn splits(self) -> u32 {
        if let Cluster::SplitK(blocks) = self { blocks } else { 1 }
    }
}

/// Which operand is the rows of the matrix instruction; the other is its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rows {
    /// Weights: a tile of few tokens is narrow.
    #[default]
    Weights,
    /// Tokens.
    Tokens,
}

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
        let mut parts = text.strip_prefix('t').ok_or_else(wrong)?.split('x').map(number);
        match (parts.next().flatten(), parts.next().flatten(), parts.next().flatten(), parts.next()) {
            (Some(tokens), Some(columns), Some(k), None) => Ok(Tile { tokens, columns, k }),
            _ => Err(wrong()),
        }
    }
}

/// One way to compute a problem.
///
/// # Spelling
/// `PATH.tTOKENSxCOLUMNSxK.sSTAGES.FUSION.WARPS.EPILOGUE[.kSPLITS][.CLUSTER][.persistent][.prepass][.token_rows]`, for example
/// `mma.t64x128x64.s3.interleaved.uniform.direct`, `mma.t8x64x256.s4.single.uniform.direct.k4` and
/// `wgmma.t128x64x128.s4.interleaved.ws2.shared.dsmem2`; `.kSPLITS` is left out for 1, CLUSTER is `dsmemN`,
/// `multicastN` or `pair`. `Display` writes it and `FromStr` reads exactly what `Display` writes. Whether it is legal is for
/// [`Spec::new`](crate::spec::Spec::new) to say.
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
    /// How many blocks share the K of one tile through the workspace; their fp32 partial sums are added in a fixed
    /// order by a kernel of its own.
    pub split_k: u32,
    /// What the blocks of a cluster do together.
    pub cluster: Cluster,
    /// As many blocks as the device runs at once, each with several tiles: loads for the next run under the epilogue.
    pub persistent: bool,
    /// NVFP4 tokens are decoded by a kernel before, into the workspace, and not by each block that needs them.
    pub prepass: bool,
    /// Which operand is the rows of the instruction.
    pub rows: Rows,
}

impl Variant {
    /// A variant of the [`mma`](MatrixPath::Mma) path, whose warps are all alike and store what they hold.
    #[must_use]
    pub fn mma(tile: Tile, stages: u32, fusion: Fusion, split_k: u32) -> Self {
        let (path, warps, epilogue) = (MatrixPath::Mma, Warps::Uniform, Epilogue::Direct);
        let cluster = Cluster::None;
        let (persistent, prepass, rows) = (false, false, Rows::Weights);
        Self { path, tile, stages, fusion, warps, epilogue, split_k, cluster, persistent, prepass, rows }
    }

    /// A variant of the [`wgmma`](MatrixPath::Wgmma) path with `consumers` warpgroups that compute, staged stores and
    /// nothing else out of the ordinary.
    #[must_use]
    pub fn wgmma(tile: Tile, stages: u32, fusion: Fusion, consumers: u32) -> Self {
        let (path, warps, epilogue) = (MatrixPath::Wgmma, Warps::Specialised(consumers), Epilogue::Shared);
        Self { path, warps, epilogue, ..Self::mma(tile, stages, fusion, 1) }
    }

    /// A variant of the [`tcgen05`](MatrixPath::Tcgen05) path.
    #[must_use]
    pub fn tcgen05(tile: Tile, stages: u32, fusion: Fusion, rows: Rows) -> Self {
        let (path, warps) = (MatrixPath::Tcgen05, Warps::Specialised(1));
        Self { path, warps, rows, ..Self::mma(tile, stages, fusion, 1) }
    }

    /// Partial sums leave the matrix kernel when K is split or when the two products are launched apart.
    pub(crate) fn needs_finish(&self) -> bool {
        self.split_k > 1 || self.fusion == Fusion::TwoPass
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Variant { path, tile, stages, fusion, warps, epilogue, split_k, cluster, persistent, prepass, rows } = self;
        write!(f, "{path}.{tile}.s{stages}.{fusion}.{warps}.{epilogue}")?;
        if *split_k != 1 {
            write!(f, ".k{split_k}")?;
        }
        match cluster {
            Cluster::None => Ok(()),
            Cluster::SplitK(blocks) => write!(f, ".dsmem{blocks}"),
            Cluster::Multicast(blocks) => write!(f, ".multicast{blocks}"),
            Cluster::Pair => f.write_str(".pair"),
        }?;
        f.write_str(if *persistent { ".persistent" } else { "" })?;
        f.write_str(if *prepass { ".prepass" } else { "" })?;
        f.write_str(if *rows == Rows::Tokens { ".token_rows" } else { "" })
    }
}

const GRAMMAR: &str = "expected PATH.tTOKENSxCOLUMNSxK.sSTAGES.FUSION.WARPS.EPILOGUE[.kSPLITS][.CLUSTER][.persistent][.prepass][.token_rows]";

spelled!(Variant, "variant", parse);

fn parse(text: &str) -> Result<Variant> {
    let mut segments = text.split('.').peekable();
    let mut next = || segments.next().ok_or_else(|| Error::parse(format!("it ends too early: {GRAMMAR}")));
    let numbered = |segment, prefix| {
        prefixed(segment, prefix).ok_or_else(|| Error::parse(format!("cannot read `{segment}`: {GRAMMAR}")))
    };
    let path = next()?.parse()?;
    let tile = next()?.parse()?;
    let stages = numbered(next()?, "s")?;
    let fusion = next()?.parse()?;
    let warps = next()?.parse()?;
    let epilogue = next()?.parse()?;
    // 1 is spelled by leaving the segment out.
    let mut beyond_one = |prefix: &str| {
        let count = segments.peek().and_then(|segment| prefixed(segment, prefix)).filter(|count| *count != 1);
        if count.is_some() {
            segments.next();
        }
        count
    };
    let split_k = beyond_one("k").unwrap_or(1);
    let cluster = match beyond_one("dsmem") {
        Some(blocks) => Cluster::SplitK(blocks),
        None => beyond_one("multicast").map_or(Cluster::None, Cluster::Multicast),
    };
    let is_pair = cluster == Cluster::None && segments.next_if_eq(&"pair").is_some();
    let cluster = if is_pair { Cluster::Pair } else { cluster };
    let persistent = segments.next_if_eq(&"persistent").is_some();
    let prepass = segments.next_if_eq(&"prepass").is_some();
    let rows = if segments.next_if_eq(&"token_rows").is_some() { Rows::Tokens } else { Rows::Weights };
    match segments.next() {
        Some(rest) => Err(Error::parse(format!("cannot read `{rest}`: {GRAMMAR}"))),
        None => {
            Ok(Variant { path, tile, stages, fusion, warps, epilogue, split_k, cluster, persistent, prepass, rows })
        }
    }
}
