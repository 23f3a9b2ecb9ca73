//! A whole mixture of experts, for few tokens, in one launch.

use std::fmt;

use super::Route;
#[cfg(test)]
use super::Scoring;
use crate::arch::Arch;
use crate::error::{Error, Result};
use crate::format::{Format, PreparedLayout};
use crate::problem::{Activation, Problem};
use crate::spelling::{prefixed, spelled};

/// A mixture of gated experts, for few tokens: what a [`Route`], up, down and a [`Combine`](crate::spec::Combine) do, in one launch.
/// Weights are prepared for 16-bit values, or for e4m3 ones; rows of h are rounded to the format of the tokens, those of experts are not.
///
/// # Spelling
/// `experts.ACT:FORMAT:hH:iI[:mxfp4|:e4m3][:shared][:residual]:ROUTE`, ROUTE that of a [`Route`], for example
/// `experts.silu:bf16:h2048:i768:route.softmax:bf16:e128:k8:renormalised`.
/// `Display` writes it and `FromStr` reads exactly what `Display` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Experts {
    activation: Activation,
    format: Format,
    weights: Format,
    is_e4m3: bool,
    hidden: u32,
    intermediate: u32,
    route: Route,
    has_shared: bool,
    has_residual: bool,
}

/// What a kernel has of each number that trades one thing for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpertsTile {
    /// Tokens at most.
    pub(crate) tokens: u32,
    /// Blocks along K that a warp takes at a time.
    pub(crate) step_blocks: u32,
    /// Warps that share K of a slice of up.
    pub(crate) up_warps: u32,
    /// Slices × tokens whose sums are added up at a time.
    pub(crate) batch: u32,
    /// Bytes of shared memory of a block.
    pub(crate) shared_bytes: u32,
}

impl Experts {
    /// Tokens of a launch at most: columns of the matrix instruction.
    pub const TOKENS_MAX: u32 = 8;
    /// Blocks of a launch at most.
    pub(crate) const BLOCKS_MAX: u32 = 256;
    /// Warps of a block.
    pub(crate) const WARPS: u32 = 16;
    /// Blocks of weights that a warp has under way, at least.
    pub(crate) const AHEAD: u32 = 4;
    /// Hidden and intermediate size are multiples of this.
    const STEP: u32 = 64;
    /// H · I at most.
    const SIZE_MAX: u64 = 6 << 20;
    /// Seconds that a launch takes beside reading weights, between what an H200 and an H100 were measured to; bytes of these that it reads
    /// in a second at most, as its warps decode for an instruction of few columns; share of what memory gives that it reads at where that is less.
    const START: f64 = 6.0e-6;
    const READ_AT_MOST: f64 = 3.7e12;
    const READ_AT_MOST_E4M3: f64 = 2.9e12;
    const READ: f64 = 0.87;
    /// The same share of kernels of their own, and seconds that their launches take more, of which e4m3 products have two quantisers'.
    const READ_APART: f64 = 0.84;
    const LAUNCHES_APART: f64 = 3.7e-6;
    const LAUNCHES_APART_E4M3: f64 = 5.6e-6;
    /// What a block of Hopper may have.
    const SHARED_MAX: u32 = 227 << 10;

    /// Of tokens in f16 with NVFP4 weights, unless said otherwise; sizes are still to be said.
    pub fn new(activation: Activation, route: Route) -> Self {
        Self {
            activation,
            format: Format::F16,
            weights: Format::Nvfp4,
            is_e4m3: false,
            hidden: 0,
            intermediate: 0,
            route,
            has_shared: false,
            has_residual: false,
        }
    }

    /// The format of the tokens, of h and of the result: f16 or bf16.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// The format of the weights: NVFP4 or MXFP4.
    pub fn weights(mut self, format: Format) -> Self {
        self.weights = format;
        self
    }

    /// Products are those of e4m3 values: tokens and rows of h are rounded as [`Quantise::e4m3`](super::Quantise::e4m3) says, a row under a
    /// factor of its own, and weights, which are NVFP4, are prepared for it.
    pub fn e4m3(mut self) -> Self {
        self.is_e4m3 = true;
        self
    }

    /// Elements of a token and of a row of h, with padding.
    pub fn sizes(mut self, hidden: u32, intermediate: u32) -> Self {
        (self.hidden, self.intermediate) = (hidden, intermediate);
        self
    }

    /// The same, chosen in another way.
    pub fn by(mut self, route: Route) -> Self {
        self.route = route;
        self
    }

    /// Rows of a shared expert are added.
    pub fn shared(mut self) -> Self {
        self.has_shared = true;
        self
    }

    /// A residual is added.
    pub fn residual(mut self) -> Self {
        self.has_residual = true;
        self
    }

    /// The activation.
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// The format of the tokens.
    pub fn token_format(&self) -> Format {
        self.format
    }

    /// The format of the weights.
    pub fn weights_format(&self) -> Format {
        self.weights
    }

    /// Whether products are those of e4m3 values.
    #[must_use]
    pub fn is_e4m3(&self) -> bool {
        self.is_e4m3
    }

    /// Elements of a token.
    #[must_use]
    pub fn hidden_size(&self) -> u32 {
        self.hidden
    }

    /// Elements of a row of h.
    #[must_use]
    pub fn intermediate_size(&self) -> u32 {
        self.intermediate
    }

    /// What chooses.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Experts that there are weights of.
    #[must_use]
    pub fn local_count(&self) -> u32 {
        self.route.local_experts().len() as u32
    }

    /// Whether rows of a shared expert are added.
    #[must_use]
    pub fn has_shared(&self) -> bool {
        self.has_shared
    }

    /// Whether a residual is added.
    #[must_use]
    pub fn has_residual(&self) -> bool {
        self.has_residual
    }

    /// Whether an expert's weights are so few that one launch is faster than four, as measured: kernels of their own read many
    /// weights sooner.
    #[must_use]
    pub fn is_small(&self) -> bool {
        u64::from(self.hidden) * u64::from(self.intermediate) <= Self::SIZE_MAX
    }

    /// Tokens of a launch at most: as many as shared memory has room for rows of h of.
    ///
    /// # Errors
    /// Those of [`Experts::check`].
    pub fn most_tokens(&self) -> Result<u32> {
        self.tile().map(|tile| tile.tokens)
    }

    /// Tokens up to which one launch is faster than several on devices of this architecture, as measured: it saves launches, which
    /// read weights faster where memory gives more than one launch can take. No more than [`Experts::most_tokens`].
    ///
    /// # Errors
    /// Those of [`Experts::check`].
    pub fn tokens_on(&self, arch: &Arch) -> Result<u32> {
        let most = self.most_tokens()?;
        let lost_per_byte = 1.0 / self.read_bytes_per_s(arch) - 1.0 / (Self::READ_APART * arch.memory_bytes_per_s());
        let lost = lost_per_byte * self.weight_bytes()?;
        let apart = if self.is_e4m3 { Self::LAUNCHES_APART_E4M3 } else { Self::LAUNCHES_APART };
        let is_faster = |tokens: &u32| lost * self.hit_share(*tokens) <= apart;
        Ok((1..=most).take_while(is_faster).count() as u32)
    }

    /// Microseconds that a launch of so many tokens is predicted to take, of experts that are chosen evenly.
    ///
    /// # Errors
    /// Those of [`Experts::layouts`].
    pub fn predicted_us(&self, arch: &Arch, tokens: u32) -> Result<f64> {
        let bytes = self.weight_bytes()? * self.hit_share(tokens);
        Ok(1e6 * (Self::START + bytes / self.read_bytes_per_s(arch)))
    }

    fn read_bytes_per_s(&self, arch: &Arch) -> f64 {
        let most = if self.is_e4m3 { Self::READ_AT_MOST_E4M3 } else { Self::READ_AT_MOST };
        most.min(Self::READ * arch.memory_bytes_per_s())
    }

    /// Share of the experts that so many tokens hit on average.
    fn hit_share(&self, tokens: u32) -> f64 {
        let missed = 1.0 - f64::from(self.route.experts_per_token()) / f64::from(self.route.expert_count());
        1.0 - missed.powi(tokens as i32)
    }

    /// Bytes of all experts' weights.
    fn weight_bytes(&self) -> Result<f64> {
        Ok(self.layouts()?.iter().map(|layout| layout.bytes() as f64).sum())
    }

    /// Weights of up and of down, as they are prepared.
    ///
    /// # Errors
    /// Unsupported, if there is no such layout.
    pub fn layouts(&self) -> Result<[PreparedLayout; 2]> {
        let compute = if self.is_e4m3 { Format::E4m3 } else { self.format };
        let layout =
            |products, n, k| PreparedLayout::new(products, compute, self.local_count(), n, k)?.weights(self.weights);
        Ok([layout(2, self.intermediate, self.hidden)?, layout(1, self.hidden, self.intermediate)?])
    }

    /// Whether a kernel can be made of it.
    ///
    /// # Errors
    /// Unsupported, with the value and its limit.
    pub fn check(&self) -> Result<()> {
        self.tile().map(drop)
    }

    /// Bytes of what blocks give each other rows of h in: two halves, of as many rows as a launch can have.
    pub(crate) fn cell_bytes(&self) -> Result<usize> {
        let rows = self.tile()?.tokens * self.route.experts_per_token();
        Ok(2 * rows as usize * self.intermediate as usize * 2)
    }

    /// Bytes of shared memory that weights are looked up in: eight magnitudes of each byte that a scale may have.
    pub(crate) fn decode_bytes(&self) -> u32 {
        if self.is_e4m3 { 256 * 8 } else { 0 }
    }

    pub(crate) fn tile(&self) -> Result<ExpertsTile> {
        self.checked().and_then(|()| self.fitted()).map_err(|error| error.context(self.to_string()))
    }

    fn checked(&self) -> Result<()> {
        let Self { format, weights, hidden, intermediate, .. } = *self;
        self.route.check()?;
        if self.activation == Activation::Relu2 {
            return Err(Error::unsupported(format!("{} has no gate", self.activation)));
        }
        if let Some(limit) = self.activation.limit().filter(|limit| !(1..=Activation::LIMIT_MAX).contains(limit)) {
            return Err(Error::unsupported(format!("limit = {limit}: must be 1 to {}", Activation::LIMIT_MAX)));
        }
        if !matches!(format, Format::F16 | Format::Bf16) {
            return Err(Error::unsupported(format!("tokens are f16 or bf16, not {format}")));
        }
        if !matches!(weights, Format::Nvfp4 | Format::Mxfp4) {
            return Err(Error::unsupported(format!("weights are nvfp4 or mxfp4, not {weights}")));
        }
        if self.is_e4m3 && weights != Format::Nvfp4 {
            return Err(Error::unsupported(format!("e4m3: weights are nvfp4, not {weights}")));
        }
        for (name, size) in [("hidden", hidden), ("intermediate", intermediate)] {
            if size == 0 || !size.is_multiple_of(Self::STEP) || size > Problem::EXTENT_MAX {
                let (step, most) = (Self::STEP, Problem::EXTENT_MAX);
                return Err(Error::unsupported(format!("{name} = {size}: must be a multiple of {step} up to {most}")));
            }
        }
        Ok(())
    }

    /// As many tokens as there is room for.
    fn fitted(&self) -> Result<ExpertsTile> {
        let blocks = self.hidden / Self::STEP;
        let step_blocks = if (self.hidden | self.intermediate).is_multiple_of(2 * Self::STEP) { 2 } else { 1 };
        let up_warps = [4, 8].into_iter().find(|warps| blocks.div_ceil(*warps) <= Self::AHEAD).unwrap_or(Self::WARPS);
        let groups = Self::WARPS / up_warps;
        let tiles = (1..=Self::TOKENS_MAX).rev().flat_map(|tokens| [128, 64, 32, 16, 8].map(|batch| (tokens, batch)));
        let tiles = tiles.filter(|(tokens, batch)| *batch >= tokens * groups).map(|(tokens, batch)| {
            let tile = ExpertsTile { tokens, step_blocks, up_warps, batch, shared_bytes: 0 };
            ExpertsTile { shared_bytes: self.shared_bytes(&tile), ..tile }
        });
        let mut least = u32::MAX;
        for tile in tiles {
            if tile.shared_bytes <= Self::SHARED_MAX {
                return Ok(tile);
            }
            least = tile.shared_bytes;
        }
        let most = Self::SHARED_MAX;
        Err(Error::unsupported(format!("a token takes {least} bytes of shared memory: at most {most}")))
    }

    /// As templates/simt/experts.cu lays it out, which checks it.
    fn shared_bytes(&self, tile: &ExpertsTile) -> u32 {
        let Self { hidden, intermediate, .. } = *self;
        let ExpertsTile { tokens, step_blocks, up_warps, batch, .. } = *tile;
        let (warps, rows) = (Self::WARPS, tokens * self.route.experts_per_token());
        // Codes of 16 rows of each block, and room for the scales of all.
        let step = step_blocks * 512 + 128;
        let steps = (hidden / Self::STEP / step_blocks).div_ceil(up_warps);
        let ring = warps * (Self::AHEAD / step_blocks).next_multiple_of(steps) * step;
        let x = hidden / Self::STEP * 1024;
        let body = (x + 2 * batch * up_warps * 64).max(rows.saturating_mul(2 * intermediate + 64));
        let out = 2 * tokens * warps * 64;
        let lists = 13 * self.local_count() + rows * (3 * 4 + 16 + 32) + 2 * Self::BLOCKS_MAX + 96;
        // Each row's factor and what it is made of.
        let factors = if self.is_e4m3 { 16 * (tokens + rows) } else { 0 };
        ring.saturating_add(body).saturating_add(self.decode_bytes() + out + lists + factors)
    }
}

impl fmt::Display for Experts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { activation, format, hidden, intermediate, .. } = self;
        write!(f, "experts.{activation}:{format}:h{hidden}:i{intermediate}")?;
        let parts = [
            (self.weights == Format::Mxfp4, ":mxfp4"),
            (self.is_e4m3, ":e4m3"),
            (self.has_shared, ":shared"),
            (self.has_residual, ":residual"),
        ];
        parts.into_iter().filter(|(has, _)| *has).try_for_each(|(_, word)| f.write_str(word))?;
        write!(f, ":{}", self.route)
    }
}

spelled!(Experts, "experts", parse);

fn parse(text: &str) -> Result<Experts> {
    let wrong = |segment: &str| {
        let grammar = "experts.ACT:FORMAT:hH:iI[:mxfp4|:e4m3][:shared][:residual]:ROUTE";
        Error::parse(format!("`{segment}`: expected {grammar}"))
    };
    let at = text.find(":route.").ok_or_else(|| wrong(text))?;
    let (text, route) = (&text[..at], &text[at + 1..]);
    let mut segments = text.split(':').peekable();
    let mut next = || segments.next().unwrap_or_default();
    let (head, format) = (next(), next());
    let activation = head.strip_prefix("experts.").ok_or_else(|| wrong(head))?;
    let mut number = |prefix| {
        let segment = next();
        prefixed(segment, prefix).ok_or_else(|| wrong(segment))
    };
    let experts = Experts::new(activation.parse()?, route.parse()?).format(format.parse()?);
    let mut experts = experts.sizes(number("h")?, number("i")?);
    if segments.next_if_eq(&"mxfp4").is_some() {
        experts.weights = Format::Mxfp4;
    }
    experts.is_e4m3 = segments.next_if_eq(&"e4m3").is_some();
    experts.has_shared = segments.next_if_eq(&"shared").is_some();
    experts.has_residual = segments.next_if_eq(&"residual").is_some();
    match segments.next() {
        Some(rest) => Err(wrong(rest)),
        None => Ok(experts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: &str = "route.softmax:bf16:e128:k8:renormalised";

    fn named(text: &str) -> Experts {
        text.parse().unwrap()
    }

    #[test]
    fn spellings_are_read_as_written_and_no_other() {
        for text in [
            "experts.silu:bf16:h2048:i768:route.softmax:bf16:e128:k8:renormalised",
            "experts.swiglu_oai:f16:h64:i64:mxfp4:shared:residual:route.given:e1:k1",
            "experts.silu:bf16:h256:i192:e4m3:shared:route.given:e8:k2",
            "experts.gelu_tanh:f16:h7168:i2048:residual:route.sigmoid_bias:f32:e48:k8:g4:keep2:local12-24",
        ] {
            assert_eq!(named(text).to_string(), text);
            named(text).check().unwrap();
        }
        for text in [
            "experts.silu:bf16:h2048:i768",
            "experts.silu:bf16:h2048:route.given:e1:k1",
            "experts:bf16:h64:i64:route.given:e8:k2",
            "experts.silu:bf16:h64:i64:residual:shared:route.given:e8:k2",
            "experts.silu:bf16:h64:i64:route.given:e8",
            "experts.silu:bf16:h64:i64:shared:e4m3:route.given:e8:k2",
            "",
        ] {
            assert!(text.parse::<Experts>().unwrap_err().is_parse(), "{text}");
        }
    }

    /// So that the kernels of a layer have them together.
    #[test]
    fn given_ids_need_as_large_cells_as_logits() {
        for (sizes, logits, given) in [
            ("h2048:i768", ROUTE, "route.given:e128:k8"),
            ("h4096:i1536", ROUTE, "route.given:e128:k8"),
            ("h2048:i512", "route.softmax:bf16:e512:k10:renormalised", "route.given:e512:k10"),
            ("h2880:i2880", "route.softmax:bf16:e32:k4:renormalised", "route.given:e32:k4"),
        ] {
            let [logits, given] = [logits, given].map(|route| named(&format!("experts.silu:bf16:{sizes}:{route}")));
            assert_eq!(logits.cell_bytes().unwrap(), given.cell_bytes().unwrap(), "{logits}");
        }
    }

    #[test]
    fn what_there_is_no_kernel_for_is_refused_by_name() {
        let refusal = |experts: Experts| {
            let error = experts.check().unwrap_err();
            assert!(error.is_unsupported(), "{error}");
            error.to_string()
        };
        let good = named(&format!("experts.silu:bf16:h2048:i768:{ROUTE}"));
        assert!(refusal(Experts { activation: Activation::Relu2, ..good }).contains("relu2 has no gate"));
        assert!(refusal(Experts { activation: Activation::SiluClamp(0), ..good }).contains("limit = 0"));
        assert!(refusal(good.format(Format::F32)).ends_with("not f32"));
        assert!(refusal(good.weights(Format::Bf16)).ends_with("not bf16"));
        assert!(refusal(good.weights(Format::Mxfp4).e4m3()).ends_with("e4m3: weights are nvfp4, not mxfp4"));
        assert!(refusal(good.sizes(2000, 768)).contains("hidden = 2000"));
        assert!(refusal(good.sizes(2048, 0)).contains("intermediate = 0"));
        assert!(refusal(Experts { route: Route::new(Scoring::Given).experts(4).k(5), ..good }).contains("k = 5"));
        assert!(refusal(good.sizes(16384, 53248)).contains("bytes of shared memory: at most 232448"));
    }

    #[test]
    fn as_many_tokens_as_have_room() {
        let most =
            |sizes: &str, route: &str| named(&format!("experts.silu:bf16:{sizes}:{route}")).most_tokens().unwrap();
        assert_eq!(most("h2048:i768", ROUTE), 8);
        assert_eq!(most("h2048:i512", "route.softmax:bf16:e512:k10"), 8);
        assert_eq!(most("h4096:i1536", ROUTE), 7);
        assert_eq!(most("h4096:i14336", "route.softmax:f32:e8:k2:renormalised"), 3);
        assert_eq!(most("h64:i64", "route.given:e32:k32"), 8);
    }

    #[test]
    fn more_weights_than_a_launch_can_take_are_read_by_several() {
        let tokens = |sizes: &str, route: &str| {
            let experts = named(&format!("experts.silu:bf16:{sizes}:{route}"));
            [Arch::H200, Arch::H100].map(|arch| experts.tokens_on(&arch).unwrap())
        };
        // docs/measurements/2026-11-29-few-steps.md and 2026-11-29-few-e4m3.md.
        assert_eq!(tokens("h2048:i768", ROUTE), [8, 8]);
        assert_eq!(tokens("h2048:i512", "route.softmax:bf16:e512:k10"), [8, 8]);
        assert_eq!(tokens("h4096:i1536", ROUTE), [7, 7]);
        assert_eq!(tokens("h4096:i14336", "route.softmax:f32:e8:k2:renormalised"), [3, 3]);
        assert_eq!(tokens("h64:i64", "route.given:e32:k32"), [8, 8]);
        assert_eq!(tokens("h2048:i768:e4m3", ROUTE)[0], 4);
        assert_eq!(tokens("h4096:i1536:e4m3", ROUTE)[0], 0);
    }

    #[test]
    fn what_was_measured_is_predicted() {
        // docs/measurements/2026-11-29-few-steps.md and 2026-11-25-h100-few.md.
        let (small, large) = ("h2048:i768", "h4096:i1536");
        let (small_e4m3, large_e4m3) = ("h2048:i768:e4m3", "h4096:i1536:e4m3");
        let measured = [
            (Arch::H200, small, 1, 11.25),
            (Arch::H200, small, 4, 25.75),
            (Arch::H200, small, 8, 43.38),
            (Arch::H200, large, 1, 27.18),
            (Arch::H200, large, 4, 81.42),
            (Arch::H200, large, 6, 120.0),
            (Arch::H100, small, 1, 15.60),
            (Arch::H100, small, 8, 57.67),
            (Arch::H100, large, 4, 111.3),
            (Arch::H200, small_e4m3, 1, 13.74),
            (Arch::H200, small_e4m3, 4, 32.36),
            (Arch::H200, small_e4m3, 8, 55.27),
            (Arch::H200, large_e4m3, 1, 32.51),
        ];
        for (arch, sizes, tokens, us) in measured {
            let predicted = named(&format!("experts.silu:bf16:{sizes}:{ROUTE}")).predicted_us(&arch, tokens).unwrap();
            assert!((predicted / us - 1.0).abs() < 0.15, "{arch}, {sizes}, {tokens}: {predicted} for {us}");
        }
    }
}
