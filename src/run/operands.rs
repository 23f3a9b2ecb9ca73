//! What a launch works on.

use cudarc::driver::CudaStream;

use super::PreparedWeights;
use super::check::{Buffer, Described, MatrixSize, PreparedSize, WeightSizes};
use super::guards::{Guards, Tracked};
use super::memory::Memory;
use super::operand::{Alpha, Matrix, MatrixMut};
use super::params::Params;
use super::retired::Owner;
use super::weights::Weights;
use super::workspace::WorkspaceMemory;
use crate::error::Result;

/// Pieces of memory that a launch is given at most: A, B1 and B2 with scales, two α, offsets, C and workspace.
pub(super) const HELD: usize = 11;

/// The operands of one launch, all on the kernel's device, and those of cudarc's from the same `CudaContext` as the
/// launch's stream.
///
/// Base addresses of A, B, C and workspace are multiples of 16 bytes, of scales, α and offsets of 4; what cudarc
/// allocates is, and so is every view that begins at a row.
///
/// When grouped, the rows of group g are `offsets[g]..offsets[g + 1]` of A and C; a group may have none. The offsets are
/// read on the device when the kernel runs, so a captured graph can be replayed with other sizes up to `m`. Kernels
/// clamp them to `0..=m` and take a group that runs backwards as empty: no offset makes them touch memory outside of
/// A and C. Rows of C that belong to no group are left as they are.
#[derive(Debug)]
#[must_use]
pub struct Operands<'a> {
    m: u32,
    a: Matrix<'a>,
    b: B<'a>,
    alpha: [Alpha<'a>; 2],
    offsets: Option<Memory<'a, i32>>,
    c: MatrixMut<'a>,
    workspace: Option<WorkspaceMemory<'a>>,
}

/// B, or B1 and B2.
#[derive(Debug)]
enum B<'a> {
    Given(Matrix<'a>, Option<Matrix<'a>>),
    Prepared(&'a PreparedWeights),
}

impl B<'_> {
    #[inline(always)]
    fn sizes(&self) -> WeightSizes<'_> {
        match self {
            B::Given(first, second) => WeightSizes::Given([Some(first.size()), second.as_ref().map(Matrix::size)]),
            B::Prepared(weights) => {
                WeightSizes::Prepared(PreparedSize { layout: weights.layout(), bytes: weights.shared().buffer() })
            }
        }
    }

    /// Addresses of values and scales (0 for none) of each.
    #[inline(always)]
    fn addresses<'b>(&'b self, stream: &'b CudaStream, guards: &mut impl Guards<'b>) -> [(u64, u64); 2] {
        match self {
            B::Given(first, second) => {
                let first = first.addresses(stream, guards);
                [first, second.as_ref().map_or((0, 0), |second| second.addresses(stream, guards))]
            }
            B::Prepared(weights) => [(weights.shared().address(stream, guards), 0), (0, 0)],
        }
    }
}

impl<'a> Operands<'a> {
    #[inline]
    fn of(m: u32, a: Matrix<'a>, b: B<'a>, c: MatrixMut<'a>) -> Self {
        Self { m, a, b, alpha: Default::default(), offsets: None, c, workspace: None }
    }

    /// C = A·Bᵀ, or C = act(A·B1ᵀ) ⊙ (A·B2ᵀ), for `m` rows (of all groups together: what A and C have room for), with the
    /// weights that [`Engine::weights`](crate::engine::Engine::weights) gave.
    #[inline]
    pub fn new(m: u32, a: impl Into<Matrix<'a>>, weights: &'a Weights<'a>, c: impl Into<MatrixMut<'a>>) -> Self {
        let b = match weights {
            Weights::Prepared(weights) => B::Prepared(weights),
            Weights::Given(given) => {
                let (first, second) = given.matrices();
                B::Given(first, second)
            }
        };
        Self::of(m, a.into(), b, c.into())
    }

    /// C = A·Bᵀ for `m` rows (of all groups together: what A and C have room for).
    #[inline]
    pub fn gemm(m: u32, a: impl Into<Matrix<'a>>, b: impl Into<Matrix<'a>>, c: impl Into<MatrixMut<'a>>) -> Self {
        Self::of(m, a.into(), B::Given(b.into(), None), c.into())
    }

    /// C = act(A·B1ᵀ) ⊙ (A·B2ᵀ) for `m` rows (of all groups together: what A and C have room for).
    #[inline]
    pub fn dual_gemm(
        m: u32,
        a: impl Into<Matrix<'a>>,
        b1: impl Into<Matrix<'a>>,
        b2: impl Into<Matrix<'a>>,
        c: impl Into<MatrixMut<'a>>,
    ) -> Self {
        Self::of(m, a.into(), B::Given(b1.into(), Some(b2.into())), c.into())
    }

    /// Either of them with prepared weights, which know how many products they are for.
    #[inline]
    pub fn prepared(
        m: u32,
        a: impl Into<Matrix<'a>>,
        weights: &'a PreparedWeights,
        c: impl Into<MatrixMut<'a>>,
    ) -> Self {
        Self::of(m, a.into(), B::Prepared(weights), c.into())
    }

    /// The factor of the only (or first) product; 1 if not given.
    #[inline]
    pub fn alpha(mut self, alpha: impl Into<Alpha<'a>>) -> Self {
        self.alpha[0] = alpha.into();
        self
    }

    /// The factors of both products of a dual GEMM; 1 if not given.
    #[inline]
    pub fn alphas(mut self, alpha1: impl Into<Alpha<'a>>, alpha2: impl Into<Alpha<'a>>) -> Self {
        self.alpha = [alpha1.into(), alpha2.into()];
        self
    }

    /// G + 1 row offsets, ascending from 0 to at most `m`: needed by grouped problems, and only by them.
    #[inline]
    pub fn offsets(mut self, offsets: impl Into<Memory<'a, i32>>) -> Self {
        self.offsets = Some(offsets.into());
        self
    }

    /// At least [`Spec::workspace_bytes`](crate::spec::Spec::workspace_bytes) bytes; not needed where that is 0. Its
    /// contents before and after a launch mean nothing.
    #[inline]
    pub fn workspace(mut self, workspace: impl Into<WorkspaceMemory<'a>>) -> Self {
        self.workspace = Some(workspace.into());
        self
    }

    /// Rows, of all groups together.
    #[must_use]
    #[inline]
    pub fn m(&self) -> u32 {
        self.m
    }

    /// Values of A (bytes of codes, if they are NVFP4).
    #[inline]
    pub(super) fn a_elements(&self) -> u64 {
        self.a.elements()
    }

    /// What has to be held until the launch has run.
    pub(super) fn held(&self) -> [Option<&'a Owner>; HELD] {
        let Self { a, b, alpha: [alpha1, alpha2], offsets, c, workspace, .. } = self;
        let [a, a_scales] = a.held();
        let [[b1, b1_scales], [b2, b2_scales]] = match b {
            B::Given(first, second) => [first.held(), second.as_ref().map_or([None; 2], Matrix::held)],
            B::Prepared(_) => [[None; 2]; 2],
        };
        let [alpha1, alpha2] = [alpha1, alpha2].map(Alpha::held);
        let offsets = offsets.as_ref().and_then(Memory::held);
        let workspace = workspace.as_ref().and_then(WorkspaceMemory::held);
        [a, a_scales, b1, b1_scales, b2, b2_scales, alpha1, alpha2, offsets, c.held(), workspace]
    }

    /// What a graph that they are captured into can hold of them. Views are borrowed: no graph holds these.
    pub(super) fn held_by_graph(&self) -> Vec<Owner> {
        let Self { a, b, alpha, offsets, workspace, .. } = self;
        let b = match b {
            B::Prepared(weights) => [[Some(weights.shared().as_owner()), None], [None, None]],
            B::Given(first, second) => {
                [first.held_by_graph(), second.as_ref().map(Matrix::held_by_graph).unwrap_or_default()]
            }
        };
        let others = [
            alpha[0].held_by_graph(),
            alpha[1].held_by_graph(),
            offsets.as_ref().and_then(Memory::held_by_graph),
            workspace.as_ref().and_then(WorkspaceMemory::held_by_graph),
        ];
        let held = self.held().into_iter().map(|owner| owner.map(Owner::clone));
        a.held_by_graph().into_iter().chain(b.into_iter().flatten()).chain(others).chain(held).flatten().collect()
    }

    /// Orders a launch on `stream` behind what wrote shared operands; whether weights are known to be there, so that they
    /// may be read before what is ahead in the stream is done.
    ///
    /// # Errors
    /// Operand, if the workspace is another stream's; driver, if it refuses to wait.
    #[inline(always)]
    pub(super) fn order(&mut self, stream: &CudaStream, is_captured: bool) -> Result<bool> {
        self.workspace.as_mut().map_or(Ok(()), |workspace| workspace.order(stream))?;
        match &self.b {
            B::Prepared(weights) => {
                weights.shared().order(stream, is_captured)?;
                return Ok(weights.shared().is_there());
            }
            B::Given(first, second) => {
                first.order(stream, is_captured)?;
                second.as_ref().map_or(Ok(()), |second| second.order(stream, is_captured))?;
            }
        }
        Ok(false)
    }

    /// Addresses of A and of the workspace (0 for none), for nothing to be done with them but to be remembered.
    pub(super) fn token_addresses(&self, stream: &CudaStream) -> [u64; 2] {
        let mut guards = Tracked::default();
        let workspace = self.workspace.as_ref().map_or(0, |workspace| workspace.place(stream));
        [self.a.addresses(stream, &mut guards).0, workspace]
    }

    /// Addresses for a launch on `stream`. `guards` must live until the last launch is in the stream.
    #[inline(always)]
    pub(super) fn params<'b>(&'b mut self, stream: &'b CudaStream, guards: &mut impl Guards<'b>) -> Params {
        let (a, a_scales) = self.a.addresses(stream, guards);
        let [b1, b2] = self.b.addresses(stream, guards);
        let [alpha1, alpha2] = &self.alpha;
        Params {
            a,
            a_scales,
            b: [b1.0, b2.0],
            b_scales: [b1.1, b2.1],
            alpha: [alpha1.address(stream, guards), alpha2.address(stream, guards)],
            offsets: self.offsets.as_ref().map_or(0, |offsets| offsets.address(stream, guards)),
            alpha_value: [alpha1.value(), alpha2.value()],
            alpha_step: [alpha1.step(), alpha2.step()],
            c: self.c.address(stream, guards),
            workspace: self.workspace.as_mut().map_or(0, |workspace| workspace.address(stream, guards)),
            decoded: 0,
            // M_MAX is far below.
            m: self.m as i32,
            product: 0,
            early: 0,
        }
    }
}

impl Described for Operands<'_> {
    #[inline]
    fn m(&self) -> u32 {
        self.m
    }

    #[inline]
    fn a(&self) -> MatrixSize {
        self.a.size()
    }

    #[inline]
    fn b(&self) -> WeightSizes<'_> {
        self.b.sizes()
    }

    #[inline]
    fn alpha(&self) -> [Option<Buffer>; 2] {
        self.alpha.each_ref().map(Alpha::size)
    }

    #[inline]
    fn offsets(&self) -> Option<Buffer> {
        self.offsets.as_ref().map(Memory::buffer)
    }

    #[inline]
    fn c(&self) -> MatrixSize {
        self.c.size()
    }

    #[inline]
    fn workspace(&self) -> Option<Buffer> {
        self.workspace.as_ref().map(WorkspaceMemory::buffer)
    }
}
