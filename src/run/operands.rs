//! What a launch works on.

use cudarc::driver::CudaStream;

use super::PreparedWeights;
use super::check::ContextId;
use super::guards::Tracked;
use super::memory::Memory;
use super::next::NextWeights;
use super::operand::{Alpha, Matrix, MatrixMut, Values};
use super::retired::Owner;
use super::visit::{EachOwner, HeldByGraph, Order, Place, Visitor};
use super::weights::Weights;
use super::workspace::WorkspaceMemory;
use crate::error::Result;
use crate::format::Format;
use crate::operand::{Operand, Params};
use crate::spec::Problem;

/// The operands of one launch, all on the kernel's device, and those of cudarc's from the same `CudaContext` as the
/// launch's stream.
///
/// Base addresses of A, B, C and workspace are multiples of 16 bytes, of all others of 4; what cudarc allocates is, and so
/// is every view that begins at a row. Block scales in 128x4 are multiples of 16 where a kernel of the path `tcgen05` loads
/// them whole, as every view is that begins at 128 rows.
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
    /// α where it is no memory.
    alpha: [f32; 2],
    /// The same of C's factor.
    c_factor: f32,
    /// Most launches have none.
    more: Option<More<'a>>,
    offsets: Option<Memory<'a, i32>>,
    /// They were there before the launch ahead began.
    settled: bool,
    /// What the launch behind this one reads first.
    next: Option<NextWeights<'a>>,
    c: MatrixMut<'a>,
    workspace: Option<WorkspaceMemory<'a>>,
}

/// What there may be besides: of each product α in memory, and what columns have of their own; where rows come from, and where
/// they go.
#[derive(Debug, Default)]
struct More<'a> {
    alpha: [Option<Memory<'a, f32>>; 2],
    c_factor: Option<Memory<'a, f32>>,
    row_scale: [Option<Memory<'a, f32>>; 2],
    bias: [Option<Values<'a>>; 2],
    rows: Option<Memory<'a, i32>>,
    slots: Option<Memory<'a, i32>>,
    slot_factors: Option<Memory<'a, f32>>,
}

impl More<'_> {
    #[inline(always)]
    fn visit<'b, V: Visitor<'b>>(&'b self, visitor: &mut V) -> Result<(), V::Refusal> {
        let Self { alpha: [alpha1, alpha2], row_scale: [row_scale1, row_scale2], bias: [bias1, bias2], .. } = self;
        let values = [
            (Operand::Alpha1, alpha1),
            (Operand::Alpha2, alpha2),
            (Operand::RowScale1, row_scale1),
            (Operand::RowScale2, row_scale2),
            (Operand::SlotFactors, &self.slot_factors),
            (Operand::CFactor, &self.c_factor),
        ];
        for (operand, values) in values {
            if let Some(values) = values {
                visitor.read(operand, Format::F32, values)?;
            }
        }
        for (operand, values) in [(Operand::Bias1, bias1), (Operand::Bias2, bias2)] {
            if let Some(values) = values {
                values.visit(operand, visitor)?;
            }
        }
        for (operand, values) in [(Operand::Rows, &self.rows), (Operand::Slots, &self.slots)] {
            if let Some(values) = values {
                visitor.read(operand, Format::F32, values)?;
            }
        }
        Ok(())
    }

    /// Elements from group to group, of kernels with `n` columns.
    #[cold]
    fn note_steps(&self, n: u32, params: &mut Params) {
        let step = |elements: Option<u64>, n: u32| if elements > Some(n.into()) { n as i32 } else { 0 };
        let elements = |values: &Option<Memory<'_, f32>>| values.as_ref().map(Memory::elements);
        params.coded.factor_step = step(elements(&self.c_factor), 1);
        params.kernel.alpha_step = self.alpha.each_ref().map(|values| step(elements(values), 1));
        params.columns.row_scale_step = self.row_scale.each_ref().map(|values| step(elements(values), n));
        params.columns.bias_step = self.bias.each_ref().map(|values| step(values.as_ref().map(Values::elements), n));
    }
}

/// B, or B1 and B2.
#[derive(Debug)]
enum B<'a> {
    Given(Matrix<'a>, Option<Matrix<'a>>),
    Prepared(&'a PreparedWeights),
}

impl B<'_> {
    #[inline(always)]
    fn visit<'b, V: Visitor<'b>>(&'b self, visitor: &mut V) -> Result<(), V::Refusal> {
        let [b1, b2] = Operand::B;
        match self {
            B::Given(first, None) => first.visit(b1, visitor),
            B::Given(first, Some(second)) => {
                first.visit(b1, visitor)?;
                second.visit(b2, visitor)
            }
            B::Prepared(weights) => visitor.prepared(weights),
        }
    }
}

impl<'a> Operands<'a> {
    #[inline]
    fn of(m: u32, a: Matrix<'a>, b: B<'a>, c: MatrixMut<'a>) -> Self {
        Self {
            m,
            a,
            b,
            alpha: [1.0; 2],
            c_factor: 1.0,
            more: None,
            offsets: None,
            settled: false,
            next: None,
            c,
            workspace: None,
        }
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
        self.set_alpha(0, alpha.into());
        self
    }

    /// The factors of both products of a dual GEMM; 1 if not given.
    #[inline]
    pub fn alphas(mut self, alpha1: impl Into<Alpha<'a>>, alpha2: impl Into<Alpha<'a>>) -> Self {
        self.set_alpha(0, alpha1.into());
        self.set_alpha(1, alpha2.into());
        self
    }

    #[inline]
    fn set_alpha(&mut self, product: usize, alpha: Alpha<'a>) {
        let (value, memory) = alpha.parts();
        self.alpha[product] = value;
        // What was set before goes.
        if memory.is_some() || self.more.is_some() {
            self.more().alpha[product] = memory;
        }
    }

    /// The factor of C in NVFP4, for all groups or one a group, positive and normal: C ≈ code · scale · factor. 1 if not given;
    /// elsewhere C has none. The next product takes it as part of α.
    #[inline]
    pub fn c_factor(mut self, factor: impl Into<Alpha<'a>>) -> Self {
        let (value, memory) = factor.into().parts();
        self.c_factor = value;
        if memory.is_some() || self.more.is_some() {
            self.more().c_factor = memory;
        }
        self
    }

    /// The factor of C, where it is a number; 1, where it is none.
    #[inline(always)]
    pub(super) fn c_factor_value(&self) -> f32 {
        self.c_factor
    }

    #[inline]
    fn more(&mut self) -> &mut More<'a> {
        self.more.get_or_insert_default()
    }

    /// The factors of the rows of B, `[N]` for all groups or `[G, N]`: needed where the problem has them
    /// ([`Problem::row_scale`](crate::spec::Problem::row_scale)).
    #[inline]
    pub fn row_scale(mut self, values: impl Into<Memory<'a, f32>>) -> Self {
        self.more().row_scale[0] = Some(values.into());
        self
    }

    /// The same for both products of a dual GEMM.
    #[inline]
    pub fn row_scales(mut self, first: impl Into<Memory<'a, f32>>, second: impl Into<Memory<'a, f32>>) -> Self {
        self.more().row_scale = [Some(first.into()), Some(second.into())];
        self
    }

    /// What is added to the columns of the product, `[N]` for all groups or `[G, N]`: needed where the problem has a bias
    /// ([`Problem::bias`](crate::spec::Problem::bias)).
    #[inline]
    pub fn bias(mut self, values: impl Into<Values<'a>>) -> Self {
        self.more().bias[0] = Some(values.into());
        self
    }

    /// The same for both products of a dual GEMM.
    #[inline]
    pub fn biases(mut self, first: impl Into<Values<'a>>, second: impl Into<Values<'a>>) -> Self {
        self.more().bias = [Some(first.into()), Some(second.into())];
        self
    }

    /// For each of the `m` rows the row of A that it is: needed where the problem takes them so
    /// ([`Problem::gathered`](crate::spec::Problem::gathered)). A then has any number of rows, and as many block scales as these
    /// need, if it has such. The numbers are read on the
    /// device when the kernel runs; one that is no row of A stands for a row of zeros.
    #[inline]
    pub fn rows(mut self, rows: impl Into<Memory<'a, i32>>) -> Self {
        self.more().rows = Some(rows.into());
        self
    }

    /// For each of the `m` rows the row of C that it becomes: needed where the problem puts them so
    /// ([`Problem::slots`](crate::spec::Problem::slots)). C then has any number of rows, of which each is put once at most;
    /// others are left as they are. The numbers are read on the device when the kernel runs; a row whose number is no row of
    /// C is not put anywhere.
    #[inline]
    pub fn slots(mut self, slots: impl Into<Memory<'a, i32>>) -> Self {
        self.more().slots = Some(slots.into());
        self
    }

    /// A factor for each of the `m` rows that are put by their numbers, applied in f32 behind everything else; 1 if not
    /// given.
    #[inline]
    pub fn slot_factors(mut self, factors: impl Into<Memory<'a, f32>>) -> Self {
        self.more().slot_factors = Some(factors.into());
        self
    }

    /// G + 1 row offsets, ascending from 0 to at most `m`: needed by grouped problems, and only by them.
    #[inline]
    pub fn offsets(mut self, offsets: impl Into<Memory<'a, i32>>) -> Self {
        self.offsets = Some(offsets.into());
        self
    }

    /// The offsets were written before the launch ahead of this one in the stream began, not by it: a dependent launch reads
    /// them at once, and begins with the weights of its groups while the other still runs. Where that is not so the result is
    /// wrong, and nothing outside A and C is touched.
    #[inline]
    pub fn offsets_settled(mut self) -> Self {
        self.settled = true;
        self
    }

    /// What the launch behind this one in the stream reads first of its weights, which is then in the L2 cache when it begins:
    /// with [`Plan::launch_dependent`](crate::engine::Plan::launch_dependent) the way from one kernel to the next is shorter by
    /// what memory would be idle. Kernels with warps that only load ask for it, if both have
    /// as many groups; others do not. No result depends on it.
    #[inline]
    pub fn next(mut self, next: impl Into<Option<NextWeights<'a>>>) -> Self {
        self.next = next.into();
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

    /// Values of A (bytes of codes, if they are NVFP4), and bytes of workspace.
    pub(super) fn token_room(&self) -> [u64; 2] {
        let workspace = self.workspace.as_ref().map_or(0, |workspace| workspace.buffer().elements);
        [self.a.values().elements, workspace]
    }

    /// Every piece of memory, in turn.
    ///
    /// # Errors
    /// The visitor's first.
    #[inline(always)]
    pub(super) fn visit<'b, V: Visitor<'b>>(&'b mut self, visitor: &mut V) -> Result<(), V::Refusal> {
        let Self { m: _, a, b, alpha: _, c_factor: _, more, offsets, settled: _, next, c, workspace } = self;
        a.visit(Operand::TOKENS, visitor)?;
        b.visit(visitor)?;
        if let Some(more) = more {
            more.visit(visitor)?;
        }
        if let Some(offsets) = offsets {
            visitor.read(Operand::Offsets, Format::F32, offsets)?;
        }
        if let Some(next) = next {
            visitor.next(next.weights())?;
        }
        c.visit(visitor)?;
        if let Some(workspace) = workspace { visitor.workspace(workspace) } else { Ok(()) }
    }

    /// Does something with each owner, which has to be held until the launch has run.
    #[inline(always)]
    pub(super) fn each_owner<'b>(&'b mut self, act: impl FnMut(&'b Owner)) {
        let Ok(()) = self.visit(&mut EachOwner(act));
    }

    /// What a graph that they are captured into can hold of them. Views are borrowed: no graph holds these.
    pub(super) fn held_by_graph(&mut self) -> Vec<Owner> {
        let mut held = HeldByGraph::default();
        let Ok(()) = self.visit(&mut held);
        held.0
    }

    /// Orders a launch on `stream` behind what wrote shared operands; whether weights are known to be there, so that they
    /// may be read before what is ahead in the stream is done.
    ///
    /// # Errors
    /// Operand, if the workspace is another stream's; driver, if it refuses to wait.
    #[inline(never)]
    pub(super) fn order(&mut self, stream: &CudaStream, is_captured: bool) -> Result<bool> {
        let mut order = Order::new(stream, is_captured);
        self.visit(&mut order)?;
        Ok(order.has_weights)
    }

    /// Refuses A and a workspace of another context.
    pub(super) fn tokens_are_in(&self, context_id: ContextId) -> Result<()> {
        context_id.check("a", &self.a.values())?;
        self.workspace.as_ref().map_or(Ok(()), |workspace| context_id.check("workspace", &workspace.buffer()))
    }

    /// Addresses of A and of the workspace (0 for none), for nothing to be done with them but to be remembered.
    pub(super) fn token_addresses(&self, stream: &CudaStream) -> [u64; 2] {
        let (mut guards, mut params) = (Tracked::default(), Params::default());
        let mut place = Place::new(stream, &mut guards, &mut params);
        let Ok(()) = self.a.visit(Operand::TOKENS, &mut place);
        [params.kernel.a, self.workspace.as_ref().map_or(0, |workspace| workspace.place(stream))]
    }

    /// Notes the parameters of a launch for a problem, but for addresses.
    #[inline(always)]
    pub(super) fn note(&self, problem: &Problem, params: &mut Params) {
        // M_MAX is far below.
        params.kernel.m = self.m as i32;
        params.kernel.alpha_value = self.alpha;
        params.kernel.settled = self.settled.into();
        params.coded.factor_value = self.c_factor;
        if let Some(next) = &self.next {
            next.note(problem, &mut params.kernel);
        }
        if let Some(more) = &self.more {
            more.note_steps(problem.columns(), params);
            if problem.is_gathered() || problem.has_slots() {
                self.note_rows(problem, params);
            }
        }
    }

    /// Rows that A and C have, where these are taken and put by their numbers.
    #[cold]
    fn note_rows(&self, problem: &Problem, params: &mut Params) {
        let rows = |elements: u64, format: Format, columns: u32| {
            let row = u64::from(if format.is_coded() { columns / 2 } else { columns });
            (elements / row).min(Problem::M_MAX.into()) as i32
        };
        params.moved.a_rows = rows(self.a.values().elements, problem.a_format(), problem.depth());
        params.moved.c_rows = rows(self.c.elements(), problem.c_format(), problem.columns());
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::super::memory::MemoryMut;
    use super::*;

    #[test]
    fn the_alpha_that_was_set_last_counts() {
        // SAFETY: nothing is launched.
        let read = || unsafe { Memory::<f16>::from_raw(16, 8) };
        // SAFETY: as above.
        let numbers = || unsafe { Memory::<f32>::from_raw(4, 3) };
        // SAFETY: as above.
        let c = unsafe { MemoryMut::<f16>::from_raw(16, 8) };
        let params = |operands: &Operands<'_>| {
            let mut params = Params::default();
            operands.note(&Problem::gemm().n(16).k(64), &mut params);
            (params.kernel.alpha_value, params.kernel.alpha_step)
        };
        let operands = Operands::gemm(1, read(), read(), c).alphas(2.0, numbers());
        assert_eq!(params(&operands), ([2.0, 1.0], [0, 1]));
        let operands = operands.alphas(numbers(), 3.0);
        assert_eq!(params(&operands), ([1.0, 3.0], [1, 0]));
        let are_memory = operands.more.map(|more| more.alpha.map(|values| values.is_some()));
        assert_eq!(are_memory, Some([true, false]));
    }
}
