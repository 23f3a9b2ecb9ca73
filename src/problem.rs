//! What is computed.

use crate::error::Result;
use crate::format::{E4m3Tensor, Format, PreparedLayout, ScaleLayout};
use crate::routing::{Load, Routing};

mod activation;
mod spelling;

pub use activation::Activation;

/// What is computed from A and B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// C = act(p(A·Bᵀ)), where p(x) = α·x, times the row of B's factor, plus the column's bias, as far as there are such.
    Gemm(Activation),
    /// C = act(p₁(A·B1ᵀ)) ⊙ p₂(A·B2ᵀ): the gated first half of a SwiGLU or GEGLU MLP.
    DualGemm(Activation),
}

impl Operation {
    /// How many products A·Bᵀ it takes.
    #[must_use]
    pub fn products(self) -> u32 {
        match self {
            Operation::Gemm(_) => 1,
            Operation::DualGemm(_) => 2,
        }
    }

    /// The activation of the product, or of the gate.
    #[must_use]
    pub fn activation(self) -> Activation {
        match self {
            Operation::Gemm(activation) | Operation::DualGemm(activation) => activation,
        }
    }

    /// One of each activation that it may have.
    pub(crate) fn activations(self) -> &'static [Activation] {
        match self {
            Operation::Gemm(_) => Activation::UNGATED,
            Operation::DualGemm(_) => Activation::GATED,
        }
    }
}

/// How B is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// As it is.
    Given,
    /// Repacked.
    Prepared,
    /// Repacked, as e4m3 values.
    Expanded,
}

/// What is computed: operation, shape, groups and formats. M is a run-time number.
///
/// A is `[M, K]`, every B is `[N, K]`, C is `[M, N]`, all row-major. When grouped, A is `[ΣM, K]` with the groups' rows
/// one after the other, B is `[G, N, K]`, and G + 1 row offsets in device memory say where each group begins.
///
/// # Spelling
/// `[groupedG.]OP:A*B>C:nN:kK[:sf128x4][:k_factors][:row_scale][:bias_F][:gathered][:slots][:prepared|:expanded][:topK][:skewS][:mM]` with OP = `gemm`, `gemm.ACT` or
/// `dual_gemm.ACT`, ACT an [`Activation`] (of a `gemm` left out for `none`); for example
/// `grouped8.dual_gemm.silu:f16*nvfp4>f16:n4096:k7168`. `:sf128x4` says that NVFP4 scales lie in the 128x4 layout,
/// `:k_factors` that tokens in e4m3 have a factor for each 128 of K, `:row_scale` that rows of B have factors, `:bias_F` that a bias in format F is added, `:prepared` that B is given as [prepared weights](crate::format::PreparedLayout), `:expanded` that it is given as [expanded](Problem::expanded) ones, `:topK` that each token takes K of the
/// groups, `:skewS` [how unlike](Problem::skew) they are, `:mM` that M is at most M. `Display` writes it and `FromStr` reads exactly what `Display` writes.
///
/// ```
/// use warpsmith::format::Format;
/// use warpsmith::spec::{Activation, Problem};
/// let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).a(Format::F16).b(Format::Nvfp4).c(Format::F16);
/// assert_eq!(problem.to_string(), "dual_gemm.silu:f16*nvfp4>f16:n4096:k7168");
/// assert_eq!(problem.to_string().parse::<Problem>()?, problem);
/// let experts = problem.grouped(128).experts_per_token(8);
/// assert_eq!(experts.to_string(), "grouped128.dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:top8");
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Problem {
    operation: Operation,
    groups: Option<u32>,
    n: u32,
    k: u32,
    a: Format,
    b: Format,
    c: Format,
    scales: ScaleLayout,
    form: Form,
    k_factors: bool,
    row_scale: bool,
    bias: Option<Format>,
    gathered: bool,
    slots: bool,
    routing: Routing,
    m_up_to: Option<u32>,
}

impl Problem {
    /// N is a multiple of this.
    pub const N_STEP: u32 = 16;
    /// N is a multiple of this where C is NVFP4, so that C can be the A of another product.
    pub const N_STEP_CODED: u32 = 64;
    /// K is a multiple of this.
    pub const K_STEP: u32 = 64;
    /// The largest N and K.
    pub const EXTENT_MAX: u32 = 1 << 20;
    /// The largest number of groups.
    pub const GROUPS_MAX: u32 = 1024;
    /// The largest M (of all groups together).
    pub const M_MAX: u32 = 1 << 24;

    fn new(operation: Operation) -> Self {
        Self {
            operation,
            groups: None,
            n: 0,
            k: 0,
            a: Format::F16,
            b: Format::Nvfp4,
            c: Format::F16,
            scales: ScaleLayout::Linear,
            form: Form::Given,
            k_factors: false,
            row_scale: false,
            bias: None,
            gathered: false,
            slots: false,
            routing: Routing::default(),
            m_up_to: None,
        }
    }

    /// C = α·A·Bᵀ, from f16 and NVFP4 to f16 unless said otherwise; [`Problem::activation`] adds an activation.
    pub fn gemm() -> Self {
        Self::new(Operation::Gemm(Activation::None))
    }

    /// C = act(α₁·A·B1ᵀ) ⊙ (α₂·A·B2ᵀ), from f16 and NVFP4 to f16 unless said otherwise.
    pub fn dual_gemm(activation: Activation) -> Self {
        Self::new(Operation::DualGemm(activation))
    }

    /// The function applied to the product of a GEMM ([`Activation::UNGATED`]), or to the gate of a dual GEMM
    /// ([`Activation::GATED`]).
    ///
    /// ```
    /// use warpsmith::spec::{Activation, Problem};
    /// let up = Problem::gemm().activation(Activation::Relu2).n(1856).k(2688);
    /// assert_eq!(up.to_string(), "gemm.relu2:f16*nvfp4>f16:n1856:k2688");
    /// ```
    pub fn activation(mut self, activation: Activation) -> Self {
        self.operation = match self.operation {
            Operation::Gemm(_) => Operation::Gemm(activation),
            Operation::DualGemm(_) => Operation::DualGemm(activation),
        };
        self
    }

    /// `groups` products of the same N and K, each with its own rows of A and its own B.
    pub fn grouped(mut self, groups: u32) -> Self {
        self.groups = Some(groups);
        self
    }

    /// Rows of B, columns of C: a multiple of [`Problem::N_STEP`].
    pub fn n(mut self, n: u32) -> Self {
        self.n = n;
        self
    }

    /// Columns of A and B: a multiple of [`Problem::K_STEP`].
    pub fn k(mut self, k: u32) -> Self {
        self.k = k;
        self
    }

    /// Format of A: nvfp4, f16, bf16, or e4m3. The last says that products are those of e4m3 values, which NVFP4 weights
    /// become as well: rounded once more (docs/formats.md), for twice the rate. Nothing chooses it by itself.
    pub fn a(mut self, format: Format) -> Self {
        self.a = format;
        self
    }

    /// Format of B: nvfp4; with nvfp4 A also f16 or bf16; with 16-bit A also its format or mxfp4. With e4m3 A nvfp4 only.
    pub fn b(mut self, format: Format) -> Self {
        self.b = format;
        self
    }

    /// Format of C: f16, bf16, f32, or nvfp4, whose scales lie as those of operands do ([`Problem::scales`]) and whose factor is
    /// [given](crate::run::Operands::c_factor).
    pub fn c(mut self, format: Format) -> Self {
        self.c = format;
        self
    }

    /// How the block scales of NVFP4 operands lie.
    pub fn scales(mut self, layout: ScaleLayout) -> Self {
        self.scales = layout;
        self
    }

    /// B is given as prepared weights: repacked once at load, for the matrix path `wgmma`, which takes nothing else.
    pub fn prepared(mut self) -> Self {
        self.form = Form::Prepared;
        self
    }

    /// B is given as prepared weights whose e4m3 values are made already: 1.8 times the bytes, and nothing left to decode. For tokens in
    /// e4m3 and many rows, beside prepared weights for few; results are the same.
    pub fn expanded(mut self) -> Self {
        self.form = Form::Expanded;
        self
    }

    /// Tokens in e4m3 have an f32 factor for each row and 128 of K, not one a row: `[M, ⌈K/128⌉]`, row-major. The last one of a row
    /// is that of what is left.
    pub fn k_factors(mut self) -> Self {
        self.k_factors = true;
        self
    }

    /// Each row of B has a factor of its own, f32 `[N]` or `[G, N]`, beside α: what fused projections carry that were
    /// quantised apart.
    pub fn row_scale(mut self) -> Self {
        self.row_scale = true;
        self
    }

    /// An addend `[N]` or `[G, N]`, in f16, bf16 or f32, is added to each product, before the activation.
    pub fn bias(mut self, format: Format) -> Self {
        self.bias = Some(format);
        self
    }

    /// Rows of A are taken by their numbers: row i of the product is row `rows[i]` of A, which may have any number of rows.
    /// Tokens of a mixture of experts are read where they are.
    pub fn gathered(mut self) -> Self {
        self.gathered = true;
        self
    }

    /// Rows of C are put by their numbers: row i of the product becomes row `slots[i]` of C, which may have any number of
    /// rows, times a factor of its own where [`Operands::slot_factors`](crate::run::Operands::slot_factors) gives any.
    pub fn slots(mut self) -> Self {
        self.slots = true;
        self
    }

    /// B is given as it is.
    pub(crate) fn unprepared(mut self) -> Self {
        self.form = Form::Given;
        self
    }

    /// 16-bit operands are bf16: A and C, and B where it is a 16-bit one.
    pub fn bf16(mut self) -> Self {
        (self.a, self.c) = (Format::Bf16, Format::Bf16);
        if !self.b.is_coded() {
            self.b = Format::Bf16;
        }
        self
    }

    /// Each token takes `k` different groups: M rows are those of M / `k` tokens. It says how many groups have rows, and
    /// how many they have, guides the choice of a variant and is no part of a kernel. Without it (and [`Problem::skew`])
    /// each row chooses for itself, and popularity lies between 0.41 and 1.59 of the average.
    pub fn experts_per_token(mut self, k: u32) -> Self {
        self.routing.top_k = Some(k);
        self
    }

    /// Some groups are chosen more often than others: the one of rank r as r^(−`hundredths` / 100), by Zipf's law. It
    /// guides the choice of a variant and is no part of a kernel.
    pub fn skew(mut self, hundredths: u32) -> Self {
        self.routing.skew = Some(hundredths);
        self
    }

    /// The largest M that will be asked for; for grouped problems, of all groups together. It guides the choice of a
    /// variant and is no part of a kernel.
    pub fn m_up_to(mut self, m: u32) -> Self {
        self.m_up_to = Some(m);
        self
    }

    /// The operation.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The number of groups, if grouped.
    #[must_use]
    pub fn groups(&self) -> Option<u32> {
        self.groups
    }

    /// Rows of B, columns of C.
    #[must_use]
    pub fn columns(&self) -> u32 {
        self.n
    }

    /// Columns of A and B.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.k
    }

    /// Format of A.
    #[must_use]
    pub fn a_format(&self) -> Format {
        self.a
    }

    /// Format of B.
    #[must_use]
    pub fn b_format(&self) -> Format {
        self.b
    }

    /// Format of C.
    #[must_use]
    pub fn c_format(&self) -> Format {
        self.c
    }

    /// How the block scales of NVFP4 operands lie.
    #[must_use]
    pub fn scale_layout(&self) -> ScaleLayout {
        self.scales
    }

    /// Whether B is given as prepared weights, expanded or not.
    #[must_use]
    pub fn is_prepared(&self) -> bool {
        self.form != Form::Given
    }

    /// Whether B is given as expanded weights.
    #[must_use]
    pub fn is_expanded(&self) -> bool {
        self.form == Form::Expanded
    }

    /// Whether tokens in e4m3 have factors for each 128 of K.
    #[must_use]
    pub fn has_k_factors(&self) -> bool {
        self.k_factors
    }

    /// f32 factors of a row of A: those of tokens in e4m3.
    pub(crate) fn token_factors(&self) -> u32 {
        if self.a == Format::E4m3 { E4m3Tensor::row_factors(self.k as usize, self.k_factors) as u32 } else { 0 }
    }

    /// Whether rows of B have factors.
    #[must_use]
    pub fn has_row_scale(&self) -> bool {
        self.row_scale
    }

    /// The format of what is added to each product, if anything is.
    #[must_use]
    pub fn bias_format(&self) -> Option<Format> {
        self.bias
    }

    /// Whether rows of A are taken by their numbers.
    #[must_use]
    pub fn is_gathered(&self) -> bool {
        self.gathered
    }

    /// Whether rows of C are put by their numbers.
    #[must_use]
    pub fn has_slots(&self) -> bool {
        self.slots
    }

    /// How rows fall into groups, as far as it is stated.
    #[must_use]
    pub fn routing(&self) -> &Routing {
        &self.routing
    }

    /// The largest M stated, if any.
    #[must_use]
    pub fn m_limit(&self) -> Option<u32> {
        self.m_up_to
    }

    /// The format that products are computed in: e4m3 where A is, else the format of the 16-bit operands, else f16, which
    /// holds every NVFP4 code × scale product exactly.
    #[must_use]
    pub fn compute_format(&self) -> Format {
        if self.a == Format::E4m3 {
            return Format::E4m3;
        }
        if self.a == Format::Bf16 || self.b == Format::Bf16 { Format::Bf16 } else { Format::F16 }
    }

    /// The same problem without what is no part of a kernel.
    pub(crate) fn for_kernel(mut self) -> Self {
        self.routing = Routing::default();
        self.for_pick()
    }

    /// The same problem without what changes no choice at an M.
    pub(crate) fn for_pick(mut self) -> Self {
        self.m_up_to = None;
        self
    }

    /// One for all problems whose kernels differ in their last step, and in how a 16-bit number is read: whichever
    /// activation, bias, 16-bit format and format of C that holds values. What is measured for one tells something of the others.
    pub(crate) fn kin(mut self) -> Self {
        let plain = |format| if matches!(format, Format::F16 | Format::F32) { Format::Bf16 } else { format };
        self.operation = match self.operation {
            Operation::Gemm(_) => Operation::Gemm(Activation::None),
            Operation::DualGemm(_) => Operation::DualGemm(Activation::None),
        };
        (self.a, self.b, self.c, self.bias) = (plain(self.a), plain(self.b), plain(self.c), None);
        self.for_pick()
    }

    /// `m` rows, and how they fall into its groups.
    pub(crate) fn load(&self, m: u32) -> Load {
        self.groups.map_or_else(|| Load::whole(m), |groups| Load::expected(groups, m, &self.routing))
    }

    /// These rows of each group, of all of them; one number if there are no groups.
    pub(crate) fn load_of(&self, rows: &[u32]) -> Load {
        match self.groups {
            None => Load::whole(rows.iter().fold(0, |sum, rows| sum.saturating_add(*rows))),
            Some(_) => Load::known(rows),
        }
    }

    /// Floating-point operations for `m` rows (of all groups together): 2·M·N·K a product.
    #[must_use]
    pub fn flop(&self, m: u64) -> f64 {
        2.0 * m as f64 * f64::from(self.n) * f64::from(self.k) * f64::from(self.operation.products())
    }

    /// The fewest bytes of device memory it must move for `m` rows: A, the B of every group that has rows and their scales
    /// read once, C written once. Rows fall into groups as [expected](Problem::experts_per_token);
    /// [`Problem::bytes_of`] is told.
    #[must_use]
    pub fn bytes(&self, m: u64) -> f64 {
        let load = self.load(u32::try_from(m).unwrap_or(u32::MAX));
        self.bytes_with(m, if m == 0 { 0.0 } else { load.with_rows() })
    }

    /// As [`Problem::bytes`], for these rows of each group; one number if there are no groups.
    #[must_use]
    pub fn bytes_of(&self, rows: &[u32]) -> f64 {
        let with_rows = rows.iter().filter(|rows| **rows > 0).count();
        self.bytes_with(rows.iter().map(|rows| u64::from(*rows)).sum(), with_rows as f64)
    }

    /// As [`Problem::bytes`], for so many groups with rows.
    pub(crate) fn bytes_with(&self, m: u64, groups: f64) -> f64 {
        let row = |format: Format, length: u32| {
            let length = length as usize;
            (format.bytes(length) + format.scale_block().map_or(0, |block| length / block)) as f64
        };
        // Not in whole numbers: what is not legal, or any M, would be more than they hold.
        let weight_rows = f64::from(self.n) * f64::from(self.operation.products()) * groups;
        let weights = if self.is_expanded() { f64::from(self.k) } else { row(self.b, self.k) };
        let columns = self.bias.map_or(0, |format| format.bytes(1)) + if self.row_scale { 4 } else { 0 };
        // Gathered, a token is read once, however many groups it chooses.
        let tokens = m as f64 / if self.gathered { f64::from(self.routing.top_k.unwrap_or(1)) } else { 1.0 };
        (row(self.a, self.k) + 4.0 * f64::from(self.token_factors())) * tokens
            + (weights + columns as f64) * weight_rows
            + m as f64 * row(self.c, self.n)
    }

    /// The layout of its weights, all B of all groups, once they are prepared.
    ///
    /// # Errors
    /// Unsupported, if B is neither NVFP4 nor MXFP4; those of [`PreparedLayout::new`] and [`PreparedLayout::expanded`].
    pub fn prepared_layout(&self) -> Result<PreparedLayout> {
        let groups = self.groups.unwrap_or(1);
        let layout = PreparedLayout::new(self.operation.products(), self.compute_format(), groups, self.n, self.k)?;
        let layout = layout.weights(self.b)?;
        if self.is_expanded() { layout.expanded() } else { Ok(layout) }
    }
}
