//! The proof that a problem, a variant and an architecture fit, and the one place that decides it.

use std::fmt;

use super::geometry::{self, Geometry, K_BLOCK, MMA_ROWS, MMA_TOKENS, Pass, WORKING_REGISTERS};
use super::{Arch, ComputeCapability, Fusion, MatrixPath, Operation, Problem, Variant};
use crate::error::{Error, Result};
use crate::format::Format;

/// Why a combination is not legal: the limit, with both numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// N, K, M or the number of groups is zero, too large or not a multiple of its step.
    Extent {
        /// Which one.
        what: &'static str,
        /// Its value.
        value: u32,
        /// It must be a multiple of this.
        step: u32,
        /// And at most this.
        max: u32,
    },
    /// An operand or result format that no kernel takes in this place.
    Format {
        /// A, B or C.
        operand: &'static str,
        /// Its format.
        format: Format,
        /// What it may be.
        expected: &'static str,
    },
    /// A fusion that does not go with the operation.
    Fusion {
        /// The fusion.
        fusion: Fusion,
        /// What the operation needs.
        expected: &'static str,
    },
    /// A matrix path that the architecture does not have.
    Capability {
        /// The path.
        path: MatrixPath,
        /// Compute capability that it needs.
        needs: ComputeCapability,
        /// Compute capability of the architecture.
        has: ComputeCapability,
    },
    /// A tile extent, stage count or split that is not a value of its axis.
    Axis {
        /// Which one.
        what: &'static str,
        /// Its value.
        value: u32,
        /// What it may be.
        expected: &'static str,
    },
    /// More shared memory than a block can have.
    SharedMemory {
        /// Bytes needed.
        needs: u32,
        /// Bytes a block may have.
        limit: u32,
        /// The architecture.
        arch: &'static str,
    },
    /// More registers than a thread can have.
    Registers {
        /// Accumulators of one thread.
        accumulators: u32,
        /// Registers needed, accumulators included.
        needs: u32,
        /// Registers a thread may have in a block of this size.
        limit: u32,
    },
    /// More splits of K than leave every split something to do.
    SplitK {
        /// Splits.
        splits: u32,
        /// Tiles along K.
        k_tiles: u32,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Extent { what, value, step: 1, max } => write!(f, "{what} = {value}: must be 1 to {max}"),
            Refusal::Extent { what, value, step, max } => {
                write!(f, "{what} = {value}: must be a multiple of {step} from {step} to {max}")
            }
            Refusal::Format { operand, format, expected } => {
                write!(f, "{operand} in {format}: must be {expected}")
            }
            Refusal::Fusion { fusion, expected } => write!(f, "fusion {fusion}: {expected}"),
            Refusal::Capability { path, needs, has } => {
                write!(f, "matrix path {path} needs compute capability {needs}, this architecture has {has}")
            }
            Refusal::Axis { what, value, expected } => write!(f, "{what} = {value}: must be {expected}"),
            Refusal::SharedMemory { needs, limit, arch } => {
                write!(f, "shared memory: {needs} bytes needed, {arch} gives a block {limit}")
            }
            Refusal::Registers { accumulators, needs, limit } => write!(
                f,
                "registers: {needs} a thread needed ({accumulators} of them accumulators), {limit} can be had"
            ),
            Refusal::SplitK { splits, k_tiles } => {
                write!(f, "split-K {splits}: {k_tiles} tiles along K leave a split without work")
            }
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Error::unsupported(refusal.to_string())
    }
}

/// A problem, a variant and an architecture that fit together.
///
/// Having one is the proof that the combination is legal: rendering, building and launching take nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    problem: Problem,
    variant: Variant,
    arch: Arch,
    geometry: Geometry,
}

impl Spec {
    /// Checks the three together.
    ///
    /// # Errors
    /// Unsupported; the text names the limit with both numbers. [`Spec::check`] gives it as data.
    pub fn new(problem: &Problem, variant: &Variant, arch: &Arch) -> Result<Self> {
        Self::check(problem, variant, arch)
            .map_err(|refusal| Error::from(refusal).context(format!("{problem} by {variant} on {arch}")))
    }

    /// Checks the three together and says which limit refuses them.
    ///
    /// # Errors
    /// The first limit that is not kept.
    pub fn check(problem: &Problem, variant: &Variant, arch: &Arch) -> Result<Self, Refusal> {
        check_problem(problem)?;
        check_path(variant.path, arch)?;
        check_fusion(problem.operation(), variant.fusion)?;
        check_axes(variant)?;
        let geometry = Geometry::new(problem, variant, arch);
        check_resources(&geometry, arch)?;
        check_split(problem, variant)?;
        Ok(Self { problem: problem.for_kernel(), variant: *variant, arch: *arch, geometry })
    }

    /// What is computed; without the stated range of M, which is no part of a kernel.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// How it is computed.
    #[must_use]
    pub fn variant(&self) -> &Variant {
        &self.variant
    }

    /// On what.
    #[must_use]
    pub fn arch(&self) -> &Arch {
        &self.arch
    }

    /// Derived sizes.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The spelling of problem and variant together, as in logs: `PROBLEM/VARIANT`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.problem, self.variant)
    }

    /// The matrix kernel's symbol: the spelling of problem and variant with punctuation replaced.
    #[must_use]
    pub fn symbol(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        self.name().chars().map(plain).collect()
    }

    /// The symbol of the elementwise kernel that finishes partial sums, if the variant has one.
    #[must_use]
    pub fn finish_symbol(&self) -> Option<String> {
        geometry::needs_finish(&self.variant).then(|| self.symbol() + "_finish")
    }

    /// The launches that compute `m` rows (of all groups together), in order.
    pub fn passes(&self, m: u32) -> impl Iterator<Item = Pass> + use<> {
        let (passes, count) = geometry::passes(&self.problem, &self.variant, &self.geometry, m);
        passes.into_iter().take(count)
    }

    /// Bytes of device memory that a launch of `m` rows needs beside its operands: fp32 partial sums
    /// `[split, product, row, column]`, nothing for a variant that has none.
    #[must_use]
    pub fn workspace_bytes(&self, m: u32) -> u64 {
        geometry::workspace_bytes(self.problem.operation(), self.problem.columns(), &self.variant, m)
    }

    /// Tiles along K.
    #[must_use]
    pub fn k_tiles(&self) -> u32 {
        self.problem.depth().div_ceil(self.variant.tile.k)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} on {}", self.problem, self.variant, self.arch)
    }
}

fn extent(what: &'static str, value: u32, step: u32, max: u32) -> Result<(), Refusal> {
    if value == 0 || value > max || !value.is_multiple_of(step) {
        return Err(Refusal::Extent { what, value, step, max });
    }
    Ok(())
}

fn check_problem(problem: &Problem) -> Result<(), Refusal> {
    extent("N", problem.columns(), Problem::N_STEP, Problem::EXTENT_MAX)?;
    extent("K", problem.depth(), Problem::K_STEP, Problem::EXTENT_MAX)?;
    extent("groups", problem.groups().unwrap_or(1), 1, Problem::GROUPS_MAX)?;
    extent("M", problem.m_limit().unwrap_or(1), 1, Problem::M_MAX)?;

    let (a, b, c) = (problem.a_format(), problem.b_format(), problem.c_format());
    if a == Format::F32 {
        return Err(Refusal::Format { operand: "A", format: a, expected: "nvfp4, f16 or bf16" });
    }
    if b == Format::F32 {
        return Err(Refusal::Format { operand: "B", format: b, expected: "nvfp4, f16 or bf16" });
    }
    if a != b && a != Format::Nvfp4 && b != Format::Nvfp4 {
        return Err(Refusal::Format { operand: "B", format: b, expected: "nvfp4 or the format of A" });
    }
    if c == Format::Nvfp4 {
        return Err(Refusal::Format { operand: "C", format: c, expected: "f16, bf16 or f32" });
    }
    Ok(())
}

fn check_path(path: MatrixPath, arch: &Arch) -> Result<(), Refusal> {
    let needs = match path {
        MatrixPath::Mma => ComputeCapability { major: 8, minor: 0 },
    };
    let has = arch.capability();
    if has < needs { Err(Refusal::Capability { path, needs, has }) } else { Ok(()) }
}

fn check_fusion(operation: Operation, fusion: Fusion) -> Result<(), Refusal> {
    match (operation, fusion) {
        (Operation::Gemm, Fusion::Single) => Ok(()),
        (Operation::Gemm, _) => {
            Err(Refusal::Fusion { fusion, expected: "gemm has one product, so its fusion is single" })
        }
        (Operation::DualGemm(_), Fusion::Single) => {
            Err(Refusal::Fusion { fusion, expected: "dual_gemm has two products: two_pass, sequential or interleaved" })
        }
        (Operation::DualGemm(_), _) => Ok(()),
    }
}

/// Values of the numeric axes.
pub(super) const TILE_COLUMNS: [u32; 4] = [32, 64, 128, 256];
pub(super) const TILE_K: [u32; 3] = [64, 128, 256];
const TILE_TOKENS_MAX: u32 = 256;
const STAGES_MAX: u32 = 16;
const SPLITS_MAX: u32 = 64;

fn check_axes(variant: &Variant) -> Result<(), Refusal> {
    let axis = |what, value, legal: bool, expected| {
        if legal { Ok(()) } else { Err(Refusal::Axis { what, value, expected }) }
    };
    let tile = variant.tile;
    // Warps share a tile's tokens evenly: all of them up to 64, halves up to 128, quarters up to 256.
    let step = MMA_TOKENS * tile.tokens.min(TILE_TOKENS_MAX).div_ceil(64).next_power_of_two();
    axis(
        "tile tokens",
        tile.tokens,
        tile.tokens > 0 && tile.tokens <= TILE_TOKENS_MAX && tile.tokens.is_multiple_of(step),
        "a multiple of 8 up to 64, of 16 up to 128, of 32 up to 256",
    )?;
    axis("tile columns", tile.columns, TILE_COLUMNS.contains(&tile.columns), "32, 64, 128 or 256")?;
    axis("tile k", tile.k, TILE_K.contains(&tile.k), "64, 128 or 256")?;
    axis("stages", variant.stages, (1..=STAGES_MAX).contains(&variant.stages), "1 to 16")?;
    axis("split-K", variant.split_k, (1..=SPLITS_MAX).contains(&variant.split_k), "1 to 64")?;
    debug_assert!(tile.columns.is_multiple_of(MMA_ROWS) && tile.k.is_multiple_of(K_BLOCK));
    Ok(())
}

fn check_resources(geometry: &Geometry, arch: &Arch) -> Result<(), Refusal> {
    let (needs, limit) = (geometry.shared_bytes, arch.shared_per_block());
    if needs > limit {
        return Err(Refusal::SharedMemory { needs, limit, arch: arch.name() });
    }
    let accumulators = geometry.accumulators;
    let (needs, limit) = (accumulators + WORKING_REGISTERS, arch.registers_per_thread(geometry.threads()));
    if needs > limit {
        return Err(Refusal::Registers { accumulators, needs, limit });
    }
    Ok(())
}

fn check_split(problem: &Problem, variant: &Variant) -> Result<(), Refusal> {
    let k_tiles = problem.depth().div_ceil(variant.tile.k);
    let splits = variant.split_k;
    // Every split takes the same number of tiles but the last, which takes what is left.
    if (splits - 1) * k_tiles.div_ceil(splits) >= k_tiles {
        return Err(Refusal::SplitK { splits, k_tiles });
    }
    Ok(())
}
