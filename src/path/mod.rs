//! Matrix paths: by which matrix instructions a problem is computed, and how on each of them.
//!
//! A path is a folder here, a folder under `templates/`, and a line in the list below; nothing else in the crate knows
//! which paths there are. (The folder `demo` has what a path must have at least.) Each folder answers the same questions in files of the same names:
//!
//! | file | |
//! |---|---|
//! | `legal` | which architectures and problems it takes, which values of the axes go together |
//! | `geometry` | threads, registers and shared memory of a block, and how blocks lie in the grid |
//! | `numerics` | in which order it adds up |
//! | `axes` | the values that are worth searching, and the plainest of them |
//! | `names` | its CUDA, and what that names |
//! | `maps` | how tokens come to the matrix kernel |
//! | `cost` | what the cost model is to know of a block |
//!
//! What several paths do alike is in [`mma_sync`].

mod axes;
pub(crate) mod cost;
mod geometry;
mod maps;
mod names;
mod numerics;
mod refusal;
mod variant;

#[cfg(test)]
mod demo;
mod mma;
pub(crate) mod mma_sync;
mod mxf4;
mod tcgen05;
#[cfg(test)]
mod tests;
mod wgmma;

pub use axes::Axes;
pub(crate) use axes::TILE_K;
pub use geometry::Geometry;
pub(crate) use geometry::{BLOCKS_PER_SM_MAX, EARLY_PREPASS, Grid, K_BLOCK, PREPASS, PrepassShape, WIDTHS_MAX};
pub(crate) use maps::{Boxes, CodeBoxes, ScaleLoads, Tokens};
pub(crate) use names::{Cuda, Names, templates};
pub(crate) use numerics::Sharers;
pub use refusal::Refusal;
pub(crate) use refusal::axis;
pub use variant::{Cluster, Epilogue, Fusion, Rows, Tile, Variant, Warps};
// The bounds of the search know of these.
pub(crate) use wgmma::{CONSUMERS_MAX, least_decoding, least_start, least_stores, tile_columns};

use crate::arch::{Arch, ComputeCapability};
use crate::format::Format;
use crate::problem::Problem;
use crate::spelling::words;
use cost::{Block, Constants, Cover, Widths};

/// Declares the paths, each with its folder and its word, and [`ask!`], which calls the function of that name in the
/// folder of a path, or of the path that a layout is of. `$` stands for itself in that.
macro_rules! paths {
    ($d:tt $($(#[doc = $doc:literal])+ $(#[cfg($when:meta)])? $name:ident = $folder:ident $word:literal;)+) => {
        /// Which matrix instructions do the work, and so how operands travel to them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum MatrixPath {
            $($(#[doc = $doc])+ $(#[cfg($when)])? $name),+
        }

        words!(MatrixPath, "matrix path", { $($(#[cfg($when)])? $name => $word),+ });

        /// What only one path knows of a block.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Layout {
            $($(#[cfg($when)])? $name($folder::Layout)),+
        }

        macro_rules! ask {
            ($d path:expr, $d file:ident::$d answer:ident($d($d given:expr),*)) => {
                match $d path {
                    $($(#[cfg($when)])? MatrixPath::$name => $folder::$d file::$d answer($d($d given),*)),+
                }
            };
            ($d layout:expr => $d own:ident, $d file:ident::$d answer:ident($d($d given:expr),*)) => {
                match $d layout {
                    $($(#[cfg($when)])? Layout::$name($d own) => $folder::$d file::$d answer($d($d given),*)),+
                }
            };
        }
    };
}

paths! { $
    /// `mma.sync.m16n8k16` fed by `cp.async`: sm_80 and later.
    Mma = mma "mma";
    /// `wgmma.mma_async` with decoded weights from registers and tokens from shared memory, fed by bulk copies: sm_90a.
    /// It takes [prepared weights](crate::format::PreparedLayout).
    Wgmma = wgmma "wgmma";
    /// `tcgen05.mma` of NVFP4 with NVFP4, from shared memory into tensor memory: sm_100a and sm_103a.
    Tcgen05 = tcgen05 "tcgen05";
    /// Block-scaled `mma.sync.m16n8k64` of NVFP4 tokens and NVFP4 weights as they are, fed by `cp.async`: sm_120a and sm_121a.
    Mxf4 = mxf4 "mxf4";
    /// None: it is for tests.
    #[cfg(test)]
    Demo = demo "demo";
}

impl MatrixPath {
    /// Those that take a problem, with its weights as they are given, on an architecture: what is searched.
    pub fn of(problem: &Problem, arch: &Arch) -> impl Iterator<Item = Self> + use<> {
        let (problem, arch) = (*problem, *arch);
        Self::ALL.iter().copied().filter(move |path| path.is_on(&arch) && path.takes(&problem).is_ok())
    }

    /// The compute capability that has its instructions.
    pub(crate) fn needs(self) -> ComputeCapability {
        ask!(self, legal::needs())
    }

    /// Whether an architecture has its instructions.
    pub(crate) fn is_on(self, arch: &Arch) -> bool {
        ask!(self, legal::is_on(arch))
    }

    /// Whether it takes the problem's weights as they are given; if not, what it takes.
    pub(crate) fn takes(self, problem: &Problem) -> Result<(), &'static str> {
        ask!(self, legal::takes(problem))
    }

    /// Whether it has a way to fuse two products.
    pub(crate) fn check_fusion(self, fusion: Fusion) -> Result<(), Refusal> {
        ask!(self, legal::check_fusion(fusion))
    }

    /// Whether the values of the axes go together.
    pub(crate) fn check_axes(self, problem: &Problem, variant: &Variant) -> Result<(), Refusal> {
        ask!(self, legal::check_axes(problem, variant))
    }

    /// The least height of a tile that holds so many rows, or what would be if tiles could be that high.
    pub(crate) fn legal_tokens(self, rows: u32) -> u32 {
        ask!(self, legal::tokens(rows))
    }

    /// Sizes of a block; how many of them an SM should hold is not known yet.
    #[inline]
    fn geometry(self, problem: &Problem, variant: &Variant) -> Geometry {
        ask!(self, geometry::geometry(problem, variant))
    }

    /// How the blocks of the matrix kernel lie in the grid.
    pub(crate) fn grid(self, variant: &Variant) -> Grid {
        ask!(self, geometry::grid(variant))
    }

    /// Whether its kernels wait for what came before by themselves, so that they may begin under it.
    pub(crate) fn can_depend(self) -> bool {
        ask!(self, geometry::can_depend())
    }

    /// Elements along K that one instruction multiplies, values of this format.
    pub(crate) fn step(self, compute: Format) -> u32 {
        ask!(self, numerics::step(compute))
    }

    /// What one instruction may multiply: values of one of these formats.
    pub(crate) fn factors(self) -> &'static [Format] {
        ask!(self, numerics::factors())
    }

    /// Blocks of zeros that are multiplied behind the end of K.
    pub(crate) fn zeros(self, problem: &Problem, variant: &Variant) -> u32 {
        ask!(self, numerics::zeros(problem, variant))
    }

    /// The values of each axis that are worth searching, for a problem that it takes.
    pub(crate) fn axes(self, problem: &Problem) -> Axes {
        ask!(self, axes::axes(problem))
    }

    /// The plainest variant, for a problem that it takes: slow, obviously right, and legal for all of them.
    pub(crate) fn baseline(self, problem: &Problem, fusion: Fusion) -> Variant {
        ask!(self, axes::baseline(problem, fusion))
    }

    /// Its templates and headers.
    pub(crate) fn cuda(self) -> Cuda {
        ask!(self, names::cuda())
    }
}

impl Layout {
    /// Who shares the K of a block.
    pub(crate) fn sharers(&self, variant: &Variant) -> Sharers {
        ask!(self => own, numerics::sharers(own, variant))
    }

    /// What the templates of its path name beside what all do.
    pub(crate) fn names(&self, problem: &Problem, variant: &Variant) -> Names {
        ask!(self => own, names::names(own, problem, variant))
    }

    /// How tokens come to the matrix kernel.
    pub(crate) fn tokens(&self, variant: &Variant) -> Tokens {
        ask!(self => own, maps::tokens(own, variant))
    }

    /// Warpgroups of a block that take turns with the stages.
    pub(crate) fn turns(&self) -> u32 {
        ask!(self => own, cost::turns(own))
    }

    /// The widths that a tile may be multiplied in.
    pub(crate) fn widths(&self, variant: &Variant) -> Widths {
        ask!(self => own, cost::widths(own, variant))
    }

    /// How many times as long a loop takes at most as it would with fewer stages, but for waiting.
    pub(crate) fn held_back(&self, variant: &Variant, shared_bytes: u32, c: &Constants) -> f64 {
        ask!(self => own, cost::held_back(own, variant, shared_bytes, c))
    }

    /// The work of a block with so much shared memory.
    fn block(&self, problem: &Problem, variant: &Variant, shared_bytes: u32, cover: &Cover, c: &Constants) -> Block {
        ask!(self => own, cost::block(own, problem, variant, shared_bytes, cover, c))
    }

    /// What decoding takes more, a step, than with warps that do nothing else and `k` of K at a time: so much at least.
    pub(crate) fn more_decoding(&self, problem: &Problem, variant: &Variant, k: u32, c: &Constants) -> f64 {
        ask!(self => own, cost::more_decoding(own, problem, variant, k, c))
    }

    /// What no epilogue of this variant takes less than behind the loop, and what each takes more.
    pub(crate) fn tails(
        &self,
        problem: &Problem,
        variant: &Variant,
        block: &Block,
        cover: &Cover,
        c: &Constants,
    ) -> (f64, [f64; Epilogue::ALL.len()]) {
        ask!(self => own, cost::tails(own, problem, variant, block, cover, c))
    }
}

impl Problem {
    /// The same problem with its weights in the form that kernels of an architecture take them best: prepared, where a
    /// matrix path there takes that, else as they are given.
    pub fn native(self, arch: &Arch) -> Self {
        let prepared = if self.is_expanded() { self } else { self.prepared() };
        if self.b_format().is_coded() && MatrixPath::of(&prepared, arch).next().is_some() {
            prepared
        } else {
            self.unprepared()
        }
    }

    /// Floating-point operations a second at most that the matrix instructions of an architecture do on these operands.
    pub fn flop_per_s(&self, arch: &Arch) -> f64 {
        let is_coded = self.a_format() == Format::Nvfp4 && self.b_format() == Format::Nvfp4;
        match () {
            () if is_coded => arch.coded_flop_per_s(),
            // Twice as many values of half the size.
            () if self.compute_format() == Format::E4m3 => 2.0 * arch.matrix_flop_per_s(),
            () => arch.matrix_flop_per_s(),
        }
    }
}
