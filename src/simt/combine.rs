//! The rows of a token's experts, added up.

use std::fmt;

use super::Route;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::problem::Problem;
use crate::spelling::{prefixed, spelled};

/// The end of a mixture of experts: `out[t] = Σⱼ weights[t, j] · rows[t·k + j] + shared[t] + residual[t]`, as far as there are
/// such. The sum is in f32, in the order of the slots j, each step a fused multiply-add that rounds once; then the shared
/// expert's row and the residual are added, in this order; one rounding to the result. The number of tokens is a run-time number.
///
/// Where the shared expert has a gate, its row is multiplied by `sigmoid(x[t] · gate)`, in f32 and with the addition as one fused
/// multiply-add.
///
/// # Spelling
/// `combine:ROWS>OUT:hH:kK[:weighted][:placed][:shared[:shared_gate]][:residual]`, for example
/// `combine:f16>bf16:h7168:k8:weighted:placed:residual`. `Display` writes it and `FromStr` reads exactly what `Display` writes.
///
/// ```
/// use warpsmith::format::Format;
/// use warpsmith::spec::Combine;
/// let combine = Combine::new().hidden(7168).k(8).rows(Format::F16).out(Format::Bf16).weighted().residual();
/// assert_eq!(combine.to_string(), "combine:f16>bf16:h7168:k8:weighted:residual");
/// assert_eq!(combine.to_string().parse::<Combine>()?, combine);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Combine {
    rows: Format,
    out: Format,
    hidden: u32,
    k: u32,
    is_weighted: bool,
    is_placed: bool,
    has_shared: bool,
    has_shared_gate: bool,
    has_residual: bool,
}

impl Combine {
    /// The hidden size is a multiple of this.
    pub const HIDDEN_STEP: u32 = 8;

    /// From f16 rows to an f16 result unless said otherwise; hidden size and k are still to be said.
    pub fn new() -> Self {
        Self {
            rows: Format::F16,
            out: Format::F16,
            hidden: 0,
            k: 0,
            is_weighted: false,
            is_placed: false,
            has_shared: false,
            has_shared_gate: false,
            has_residual: false,
        }
    }

    /// Elements of a row: a multiple of [`Combine::HIDDEN_STEP`].
    pub fn hidden(mut self, hidden: u32) -> Self {
        self.hidden = hidden;
        self
    }

    /// Rows of a token: at most [`Route::K_MAX`].
    pub fn k(mut self, k: u32) -> Self {
        self.k = k;
        self
    }

    /// The format of the rows: f16, bf16 or f32.
    pub fn rows(mut self, format: Format) -> Self {
        self.rows = format;
        self
    }

    /// The format of the result, of the shared expert's rows and of the residual: f16, bf16 or f32.
    pub fn out(mut self, format: Format) -> Self {
        self.out = format;
        self
    }

    /// Each row is multiplied by its slot's weight; else it has been.
    pub fn weighted(mut self) -> Self {
        self.is_weighted = true;
        self
    }

    /// Rows lie where [`RouteLists::positions`](crate::spec::RouteLists::positions) says (a slot without a row adds nothing); else
    /// slot after slot.
    pub fn placed(mut self) -> Self {
        self.is_placed = true;
        self
    }

    /// There is a shared expert, whose rows are added.
    pub fn shared(mut self) -> Self {
        self.has_shared = true;
        self
    }

    /// The shared expert's rows are multiplied by a gate: the sigmoid of the token's product with a vector.
    pub fn shared_gate(mut self) -> Self {
        self.has_shared_gate = true;
        self
    }

    /// The residual is added.
    pub fn residual(mut self) -> Self {
        self.has_residual = true;
        self
    }

    /// The format of the rows.
    pub fn rows_format(&self) -> Format {
        self.rows
    }

    /// The format of the result.
    pub fn out_format(&self) -> Format {
        self.out
    }

    /// Elements of a row.
    #[must_use]
    pub fn hidden_size(&self) -> u32 {
        self.hidden
    }

    /// Rows of a token.
    #[must_use]
    pub fn rows_per_token(&self) -> u32 {
        self.k
    }

    /// Whether rows are multiplied by weights.
    #[must_use]
    pub fn is_weighted(&self) -> bool {
        self.is_weighted
    }

    /// Whether positions say where rows lie.
    #[must_use]
    pub fn is_placed(&self) -> bool {
        self.is_placed
    }

    /// Whether a shared expert's rows are added.
    #[must_use]
    pub fn has_shared(&self) -> bool {
        self.has_shared
    }

    /// Whether those are multiplied by a gate.
    #[must_use]
    pub fn has_shared_gate(&self) -> bool {
        self.has_shared_gate
    }

    /// Whether a residual is added.
    #[must_use]
    pub fn has_residual(&self) -> bool {
        self.has_residual
    }

    /// Whether a kernel can be made of it.
    ///
    /// # Errors
    /// Unsupported, with the value and its limit.
    pub fn check(&self) -> Result<()> {
        self.checked().map_err(|error| error.context(self.to_string()))
    }

    fn checked(&self) -> Result<()> {
        let Self { rows, out, hidden, k, .. } = *self;
        if hidden == 0 || !hidden.is_multiple_of(Self::HIDDEN_STEP) || hidden > Problem::EXTENT_MAX {
            let (step, most) = (Self::HIDDEN_STEP, Problem::EXTENT_MAX);
            return Err(Error::unsupported(format!("hidden = {hidden}: must be a multiple of {step} up to {most}")));
        }
        if !(1..=Route::K_MAX).contains(&k) {
            return Err(Error::unsupported(format!("k = {k}: must be 1 to {}", Route::K_MAX)));
        }
        if !matches!(rows, Format::F16 | Format::Bf16 | Format::F32) {
            return Err(Error::unsupported(format!("rows are f16, bf16 or f32, not {rows}")));
        }
        if out.is_coded() {
            return Err(Error::unsupported(format!("the result is f16, bf16 or f32, not {out}")));
        }
        if self.has_shared_gate && !self.has_shared {
            return Err(Error::unsupported("shared_gate: there is no shared expert"));
        }
        Ok(())
    }
}

impl Default for Combine {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Combine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, out, hidden, k, is_weighted, is_placed, has_shared, has_shared_gate, has_residual } = *self;
        write!(f, "combine:{rows}>{out}:h{hidden}:k{k}")?;
        let parts = [
            (is_weighted, ":weighted"),
            (is_placed, ":placed"),
            (has_shared, ":shared"),
            (has_shared_gate, ":shared_gate"),
            (has_residual, ":residual"),
        ];
        parts.into_iter().filter(|(has, _)| *has).try_for_each(|(_, word)| f.write_str(word))
    }
}

spelled!(Combine, "combine", parse);

fn parse(text: &str) -> Result<Combine> {
    let wrong = |segment: &str| {
        let grammar = "combine:ROWS>OUT:hH:kK[:weighted][:placed][:shared[:shared_gate]][:residual]";
        Error::parse(format!("`{segment}`: expected {grammar}"))
    };
    let mut segments = text.split(':').peekable();
    let mut next = || segments.next().unwrap_or_default();
    let (head, formats, hidden, k) = (next(), next(), next(), next());
    if head != "combine" {
        return Err(wrong(head));
    }
    let (rows, out) = formats.split_once('>').ok_or_else(|| wrong(formats))?;
    let mut combine = Combine::new().rows(rows.parse()?).out(out.parse()?);
    combine.hidden = prefixed(hidden, "h").ok_or_else(|| wrong(hidden))?;
    combine.k = prefixed(k, "k").ok_or_else(|| wrong(k))?;
    combine.is_weighted = segments.next_if_eq(&"weighted").is_some();
    combine.is_placed = segments.next_if_eq(&"placed").is_some();
    combine.has_shared = segments.next_if_eq(&"shared").is_some();
    combine.has_shared_gate = segments.next_if_eq(&"shared_gate").is_some();
    combine.has_residual = segments.next_if_eq(&"residual").is_some();
    match segments.next() {
        Some(rest) => Err(wrong(rest)),
        None => Ok(combine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_read_as_written_and_no_other() {
        for text in [
            "combine:f16>bf16:h7168:k8:weighted:placed:shared:residual",
            "combine:f16>bf16:h7168:k8:weighted:placed:shared:shared_gate:residual",
            "combine:bf16>f32:h8:k1",
        ] {
            assert_eq!(text.parse::<Combine>().unwrap().to_string(), text);
            assert!(text.parse::<Combine>().unwrap().check().is_ok());
        }
        for text in ["combine:f16>f16:h8", "combine:f16:h8:k1", "combine:f16>f16:h8:k1:placed:weighted", "combine", ""]
        {
            assert!(text.parse::<Combine>().unwrap_err().is_parse(), "{text}");
        }
    }

    #[test]
    fn what_no_kernel_can_be_made_of_is_refused_with_both_numbers() {
        let good = Combine::new().hidden(64).k(8);
        let refusal = |combine: Combine| {
            let error = combine.check().unwrap_err();
            assert!(error.is_unsupported());
            error.to_string()
        };
        assert!(good.check().is_ok());
        assert!(refusal(good.hidden(60)).ends_with("hidden = 60: must be a multiple of 8 up to 1048576"));
        assert!(refusal(good.k(33)).ends_with("k = 33: must be 1 to 32"));
        assert!(refusal(good.rows(Format::E4m3)).ends_with("rows are f16, bf16 or f32, not e4m3"));
        assert!(refusal(good.out(Format::Nvfp4)).ends_with("not nvfp4"));
        assert!(refusal(good.shared_gate()).ends_with("shared_gate: there is no shared expert"));
    }
}
