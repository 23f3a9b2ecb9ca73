//! The proof that a problem, a variant and an architecture fit, and the one place that decides it.

use std::fmt;

use super::geometry::{self, Geometry, Launch, Pass};
use super::legal;
use super::{Arch, ComputeCapability, Fusion, MatrixPath, Problem, Variant};
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
    /// Weights in a layout that the matrix path does not take.
    Weights {
        /// The path.
        path: MatrixPath,
        /// What it takes.
        expected: &'static str,
    },
    /// Values of two axes that do not go together.
    Together {
        /// The value that is refused.
        what: &'static str,
        /// What it needs.
        expected: &'static str,
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
            Refusal::Weights { path, expected } => write!(f, "matrix path {path} takes {expected}"),
            Refusal::Together { what, expected } => write!(f, "{what} needs {expected}"),
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

impl Refusal {
    /// The limit that is not kept, in a word or two: refusals of the same limit have the same.
    #[must_use]
    pub fn limit(&self) -> &'static str {
        match self {
            Refusal::Extent { what, .. } | Refusal::Together { what, .. } | Refusal::Axis { what, .. } => what,
            Refusal::Format { .. } => "format",
            Refusal::Fusion { .. } => "fusion",
            Refusal::Capability { .. } => "compute capability",
            Refusal::Weights { .. } => "weights",
            Refusal::SharedMemory { .. } => "shared memory",
            Refusal::Registers { .. } => "registers",
            Refusal::SplitK { .. } => "tiles along K",
        }
    }
}

impl Problem {
    /// Checks what does not depend on variant and architecture: extents, groups and formats.
    ///
    /// # Errors
    /// Unsupported; the text names the limit and the value.
    pub fn check(&self) -> Result<()> {
        legal::check_problem(self).map_err(|refusal| Error::from(refusal).context(self.to_string()))
    }

    /// As [`Problem::check`], for `m` rows (of all groups together): 1 to [`Problem::M_MAX`], whatever limit is stated.
    ///
    /// # Errors
    /// Unsupported; the text names the limit and the value.
    pub fn check_for(&self, m: u32) -> Result<()> {
        let checked = legal::check_problem(self).and_then(|()| legal::check_rows(m));
        checked.map_err(|refusal| Error::from(refusal).context(self.to_string()))
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
    /// Blocks of a grid in y and in z at most (CUDA C++ Programming Guide, compute capabilities).
    pub const GRID_YZ_MAX: u32 = 65_535;

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
        let geometry = legal::check(problem, variant, arch)?;
        Ok(Self { problem: problem.for_kernel(), variant: *variant, arch: *arch, geometry })
    }

    /// Whether the values of the axes, all but stages, go together; not whether there is room for them.
    pub(crate) fn can_combine(problem: &Problem, variant: &Variant) -> bool {
        // A multiple of whatever stages may have to be a multiple of.
        const ANY: u32 = 12;
        legal::check_axes(problem, &Variant { stages: ANY, ..*variant }).is_ok()
    }

    /// Whether a variant's fusion goes with the operation and the variant's path.
    pub(crate) fn can_fuse(problem: &Problem, variant: &Variant) -> bool {
        legal::check_fusion(problem.operation(), variant).is_ok()
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

    /// The symbol of the kernel that decodes NVFP4 tokens before, if the variant has one.
    #[must_use]
    pub fn prepass_symbol(&self) -> Option<String> {
        self.variant.prepass.then(|| self.symbol() + "_prepass")
    }

    /// The symbol of the kernel that does so in dependent launches of few rows, if the variant has one.
    #[must_use]
    pub fn early_prepass_symbol(&self) -> Option<String> {
        self.variant.prepass.then(|| self.symbol() + "_early_prepass")
    }

    /// The launches that compute `m` rows (of all groups together), in order, when they are launched plainly.
    pub fn passes(&self, m: u32) -> impl Iterator<Item = Pass> + Clone + use<> {
        self.launches().map(move |launch| launch.at(m))
    }

    /// The same but for M.
    pub(crate) fn launches(&self) -> impl Iterator<Item = Launch> + Clone + use<> {
        geometry::launches(&self.problem, &self.variant, &self.arch, &self.geometry).into_iter().flatten()
    }

    /// What takes the place of the prepass in dependent launches, and up to how many rows.
    pub(crate) fn early_prepass(&self) -> Option<(Launch, u32)> {
        geometry::early_prepass(&self.problem, &self.variant, &self.arch)
    }

    /// Whether a grid has room for the blocks of `m` rows, which in y and z are [`Spec::GRID_YZ_MAX`] at most.
    #[must_use]
    pub fn fits_grid(&self, m: u32) -> bool {
        self.passes(m).all(|pass| pass.grid[1].max(pass.grid[2]) <= Self::GRID_YZ_MAX)
    }

    /// Bytes of device memory that a launch of `m` rows needs beside its operands: decoded tokens `[m, K]`, then fp32
    /// partial sums `[split, product, row, column]`; nothing for a variant that has neither.
    #[must_use]
    pub fn workspace_bytes(&self, m: u32) -> u64 {
        u64::from(m) * (self.decoded_row_bytes() + geometry::partial_row_bytes(&self.problem, &self.variant))
    }

    /// What decoded tokens take of the workspace, a row.
    pub(crate) fn decoded_row_bytes(&self) -> u64 {
        geometry::decoded_row_bytes(&self.problem, &self.variant)
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
