//! The proof that a problem, a variant and an architecture fit, and the one place that decides it.

use std::fmt;

use super::passes::{self, Launch, Pass};
use super::{Arch, Geometry, Problem, Refusal, Variant, legal};
use crate::error::{Error, Result};
use crate::path::Tokens;

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

    /// Gives it another depth, if that is legal; else it stays as it is. In its place, as one is large and has many depths.
    pub(crate) fn set_stages(&mut self, stages: u32) -> bool {
        let variant = Variant { stages, ..self.variant };
        let Ok(geometry) = legal::check_variant(&self.problem, &variant, &self.arch) else { return false };
        self.variant.stages = stages;
        self.geometry = geometry;
        true
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
        self.variant.needs_finish().then(|| self.symbol() + "_finish")
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
        passes::launches(&self.problem, &self.variant, &self.arch, &self.geometry).into_iter().flatten()
    }

    /// What takes the place of the prepass in dependent launches, and up to how many rows.
    pub(crate) fn early_prepass(&self) -> Option<(Launch, u32)> {
        passes::early_prepass(&self.problem, &self.variant, &self.arch)
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
        u64::from(m) * (self.decoded_row_bytes() + passes::partial_row_bytes(&self.problem, &self.variant))
    }

    /// What decoded tokens take of the workspace, a row.
    pub(crate) fn decoded_row_bytes(&self) -> u64 {
        passes::decoded_row_bytes(&self.problem, &self.variant)
    }

    /// Where the matrix kernel reads tokens.
    pub(crate) fn tokens(&self) -> Tokens {
        self.geometry.layout.tokens(&self.variant)
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
