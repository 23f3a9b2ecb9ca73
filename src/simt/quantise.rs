//! Values made NVFP4, or e4m3.

use std::fmt;

use crate::error::{Error, Result};
use crate::format::{E4m3Tensor, Format, ScaleLayout};
use crate::problem::Problem;
use crate::spelling::{prefixed, spelled};

/// x `[m, K]` in f16, bf16 or f32 to NVFP4 or to e4m3.
///
/// NVFP4 is codes `[m, K/2]`, an e4m3 scale for 16 elements along K, and one f32 factor, so that
/// `x ≈ code · scale · factor`. The factor is given, or that of the tensor's own maximum, which is found on the device. m is a
/// run-time number. The rule, which is that of [`Nvfp4Tensor::quantise`](crate::format::Nvfp4Tensor::quantise), is in
/// `docs/formats.md`.
///
/// e4m3 is values `[m, K]`, in the order that kernels take tokens in, and an f32 factor for each row, or for each row and 128 of K:
/// the rule and the order are those of [`E4m3Tensor`](crate::format::E4m3Tensor).
///
/// # Spelling
/// `quantise:X:kK[:sf128x4][:own]` or `quantise:X:kK:e4m3[:k_factors]`, for example `quantise:bf16:k7168:sf128x4`. `Display` writes it and `FromStr` reads exactly what
/// `Display` writes.
///
/// ```
/// use warpsmith::format::{Format, ScaleLayout};
/// use warpsmith::spec::Quantise;
/// let quantise = Quantise::new().k(7168).x(Format::Bf16).scales(ScaleLayout::Swizzled128x4).own();
/// assert_eq!(quantise.to_string(), "quantise:bf16:k7168:sf128x4:own");
/// assert_eq!(quantise.to_string().parse::<Quantise>()?, quantise);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Quantise {
    x: Format,
    k: u32,
    scales: ScaleLayout,
    is_own: bool,
    is_e4m3: bool,
    k_factors: bool,
}

/// A warp keeps rows of up to so many elements in registers.
const WARP_ROW_MAX: u32 = 2048;

impl Quantise {
    /// Threads of a block of the kernel that makes e4m3, which has one row at a time or several.
    pub(crate) const E4M3_THREADS: u32 = 256;
    /// K is a multiple of this.
    pub const K_STEP: u32 = 64;
    /// Elements of the memory for an own factor: the factor, and room for the maxima of parts.
    pub const OWN_LENGTH: usize = 1 + 512;

    /// To NVFP4, from f16, with linear scales and a given factor unless said otherwise; K is still to be said.
    pub fn new() -> Self {
        Self { x: Format::F16, k: 0, scales: ScaleLayout::Linear, is_own: false, is_e4m3: false, k_factors: false }
    }

    /// Elements of a row: a multiple of [`Quantise::K_STEP`].
    pub fn k(mut self, k: u32) -> Self {
        self.k = k;
        self
    }

    /// The format of what is quantised: f16, bf16 or f32.
    pub fn x(mut self, format: Format) -> Self {
        self.x = format;
        self
    }

    /// How the block scales lie.
    pub fn scales(mut self, layout: ScaleLayout) -> Self {
        self.scales = layout;
        self
    }

    /// The factor is that of the tensor's own maximum.
    pub fn own(mut self) -> Self {
        self.is_own = true;
        self
    }

    /// To e4m3, with a factor for each row.
    pub fn e4m3(mut self) -> Self {
        self.is_e4m3 = true;
        self
    }

    /// With a factor for each row and 128 of K, where a row of e4m3 would have one.
    pub fn k_factors(mut self) -> Self {
        self.k_factors = true;
        self
    }

    /// Threads that have a row of what becomes e4m3: a warp, or a block where a row is long.
    pub(crate) fn row_threads(&self) -> u32 {
        if self.k <= WARP_ROW_MAX { 32 } else { Self::E4M3_THREADS }
    }

    /// What it becomes: nvfp4 or e4m3.
    pub fn to_format(&self) -> Format {
        if self.is_e4m3 { Format::E4m3 } else { Format::Nvfp4 }
    }

    /// Whether each 128 of K have a factor, not each row.
    #[must_use]
    pub fn has_k_factors(&self) -> bool {
        self.k_factors
    }

    /// f32 factors of a row: none of NVFP4.
    #[must_use]
    pub fn row_factors(&self) -> u32 {
        if self.is_e4m3 { E4m3Tensor::row_factors(self.k as usize, self.k_factors) as u32 } else { 0 }
    }

    /// The format of what is quantised.
    pub fn x_format(&self) -> Format {
        self.x
    }

    /// Elements of a row.
    #[must_use]
    pub fn row_length(&self) -> u32 {
        self.k
    }

    /// How the block scales lie.
    pub fn scale_layout(&self) -> ScaleLayout {
        self.scales
    }

    /// Whether the factor is that of the tensor's own maximum.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// Whether a kernel can be made of it.
    ///
    /// # Errors
    /// Unsupported, with the value and its limit.
    pub fn check(&self) -> Result<()> {
        self.checked().map_err(|error| error.context(self.to_string()))
    }

    fn checked(&self) -> Result<()> {
        let Self { x, k, .. } = *self;
        if k == 0 || !k.is_multiple_of(Self::K_STEP) || k > Problem::EXTENT_MAX {
            let (step, most) = (Self::K_STEP, Problem::EXTENT_MAX);
            return Err(Error::unsupported(format!("k = {k}: must be a multiple of {step} up to {most}")));
        }
        if self.is_e4m3 && (self.is_own || self.scales != ScaleLayout::Linear) {
            return Err(Error::unsupported("e4m3 has factors of rows, no other factor and no block scales"));
        }
        if self.k_factors && !self.is_e4m3 {
            return Err(Error::unsupported("k_factors are those of e4m3: nvfp4 has block scales"));
        }
        Self::check_x(x)
    }

    /// Refuses a format that is not quantised.
    pub(super) fn check_x(x: Format) -> Result<()> {
        if x.is_coded() || x == Format::E4m3 {
            return Err(Error::unsupported(format!("x is f16, bf16 or f32, not {x}")));
        }
        Ok(())
    }
}

impl Default for Quantise {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Quantise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { x, k, scales, is_own, is_e4m3, k_factors } = *self;
        write!(f, "quantise:{x}:k{k}")?;
        let is_swizzled = scales == ScaleLayout::Swizzled128x4;
        let parts = [(is_swizzled, ":sf128x4"), (is_own, ":own"), (is_e4m3, ":e4m3"), (k_factors, ":k_factors")];
        parts.into_iter().filter(|(has, _)| *has).try_for_each(|(_, word)| f.write_str(word))
    }
}

spelled!(Quantise, "quantise", parse);

fn parse(text: &str) -> Result<Quantise> {
    let wrong = |segment: &str| {
        Error::parse(format!("`{segment}`: expected quantise:X:kK[:sf128x4][:own] or quantise:X:kK:e4m3[:k_factors]"))
    };
    let mut segments = text.split(':').peekable();
    let mut next = || segments.next().unwrap_or_default();
    let (head, x, k) = (next(), next(), next());
    if head != "quantise" {
        return Err(wrong(head));
    }
    let mut quantise = Quantise::new().x(x.parse()?);
    quantise.k = prefixed(k, "k").ok_or_else(|| wrong(k))?;
    if segments.next_if_eq(&"sf128x4").is_some() {
        quantise.scales = ScaleLayout::Swizzled128x4;
    }
    quantise.is_own = segments.next_if_eq(&"own").is_some();
    quantise.is_e4m3 = segments.next_if_eq(&"e4m3").is_some();
    quantise.k_factors = segments.next_if_eq(&"k_factors").is_some();
    match segments.next() {
        Some(rest) => Err(wrong(rest)),
        None => Ok(quantise),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_read_as_written_and_no_other() {
        for text in [
            "quantise:bf16:k7168:sf128x4:own",
            "quantise:f16:k64",
            "quantise:f32:k128:own",
            "quantise:bf16:k192:e4m3",
            "quantise:bf16:k192:e4m3:k_factors",
        ] {
            assert_eq!(text.parse::<Quantise>().unwrap().to_string(), text);
            assert!(text.parse::<Quantise>().unwrap().check().is_ok());
        }
        for text in ["quantise:bf16", "quantise:bf16:h64", "quantise:f16:k64:own:sf128x4", "quantise:f16:k064", ""] {
            assert!(text.parse::<Quantise>().unwrap_err().is_parse(), "{text}");
        }
    }

    #[test]
    fn what_no_kernel_can_be_made_of_is_refused_with_both_numbers() {
        let refusal = |quantise: Quantise| {
            let error = quantise.check().unwrap_err();
            assert!(error.is_unsupported());
            error.to_string()
        };
        assert!(refusal(Quantise::new().k(48)).ends_with("k = 48: must be a multiple of 64 up to 1048576"));
        assert!(refusal(Quantise::new()).ends_with("k = 0: must be a multiple of 64 up to 1048576"));
        assert!(refusal(Quantise::new().k(64).x(Format::Nvfp4)).ends_with("not nvfp4"));
        assert!(refusal(Quantise::new().k(64).x(Format::E4m3).e4m3()).ends_with("not e4m3"));
        assert!(refusal(Quantise::new().k(64).e4m3().own()).ends_with("no other factor and no block scales"));
        assert!(refusal(Quantise::new().k(64).k_factors()).ends_with("nvfp4 has block scales"));
    }
}
