//! One line of the tuning table: a decision, what it is for, and its evidence.

use std::cmp::Ordering;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use jiff::civil::Date;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::spec::{Arch, Problem, Variant};
use crate::spelling::number;

/// What a clock said of the variant of an [`Entry`]. Ratios are another variant's time over its own, so above 1 where it
/// is the faster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Microseconds a call.
    pub us: f64,
    /// How many times as fast as the [baseline](crate::spec::baseline) it is.
    pub over_baseline: f64,
    /// How many times as fast as the heuristic's first pick it is.
    pub over_heuristic: f64,
    /// The width of the middle four fifths of the samples as a share of the median.
    pub spread: f64,
    /// Candidates that it was chosen from.
    pub candidates: u32,
}

impl Measured {
    /// As the table keeps it: microseconds and ratios in thousandths, the spread in ten-thousandths.
    fn rounded(self) -> Self {
        let round = |value: f64, unit: f64| (value * unit).round() / unit;
        Self {
            us: round(self.us, 1e3),
            over_baseline: round(self.over_baseline, 1e3),
            over_heuristic: round(self.over_heuristic, 1e3),
            spread: round(self.spread, 1e4),
            candidates: self.candidates,
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Measured { us, over_baseline, over_heuristic, spread, candidates } = self;
        write!(f, "{us:.3} us, {over_baseline:.3}x baseline, {over_heuristic:.3}x heuristic, ")?;
        write!(f, "spread {spread:.4}, {candidates} candidates")
    }
}

/// The evidence for an [`Entry`]: what was measured, with what and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// What was measured.
    pub measured: Measured,
    /// The CUDA version of the driver, such as `13.0`.
    pub driver: String,
    /// The version of NVRTC, such as `13.0.88`.
    pub nvrtc: String,
    /// The day, in UTC.
    pub date: Date,
}

/// One decision: on a model of device with so many SMs, this variant is the best known one for a problem at an interval
/// of M.
///
/// # Spelling
/// Columns that ` | ` divides, for example (on one line)
/// ```text
/// NVIDIA H200 | 132 SMs | sm_90a | dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared | m 33..=64
///   | wgmma.t64x64x128.s5.interleaved.ws2.shared | 20.113 us | 7.312x baseline | 1.021x heuristic | spread 0.0081
///   | 412 candidates | driver 13.0 | NVRTC 13.0.88 | 2026-11-22
/// ```
/// `Display` writes it and `FromStr` reads it, with or without the blanks around ` | `.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    device: String,
    sms: u32,
    target: String,
    problem: Problem,
    m: (u32, u32),
    variant: Variant,
    evidence: Evidence,
}

impl Entry {
    /// A decision for `m` rows (of all groups together), taken on a device that the driver calls `device` and that has
    /// the SMs of `arch`. A stated range of M is no part of the problem here.
    ///
    /// # Errors
    /// Data, if the interval is empty or beyond [`Problem::M_MAX`], a number is not one that can be measured, or a text
    /// is empty or has a `|` or a line break in it.
    pub fn new(
        device: &str,
        arch: &Arch,
        problem: &Problem,
        m: RangeInclusive<u32>,
        variant: &Variant,
        evidence: Evidence,
    ) -> Result<Self> {
        let (device, sms, target) = (device.to_owned(), arch.sms(), arch.target().to_owned());
        let (problem, m, variant) = (*problem, (*m.start(), *m.end()), *variant);
        Self { device, sms, target, problem, m, variant, evidence }.checked()
    }

    fn checked(mut self) -> Result<Self> {
        let Evidence { measured, driver, nvrtc, date: _ } = &mut self.evidence;
        *measured = measured.rounded();
        let texts = [("device", &self.device), ("target", &self.target), ("driver", driver), ("NVRTC", nvrtc)];
        let is_plain = |text: &str| text.trim() == text && !text.contains(|c: char| c == '|' || c.is_control());
        if let Some((what, text)) = texts.into_iter().find(|(_, text)| text.is_empty() || !is_plain(text)) {
            return Err(Error::data(format!("the {what} of a tuning line is {text:?}: it must be plain text")));
        }
        if self.device.starts_with('#') {
            return Err(Error::data(format!(
                "the device of a tuning line is {:?}: it would be a comment",
                self.device
            )));
        }
        let (from, to) = self.m;
        if from == 0 || from > to || to > Problem::M_MAX {
            let most = Problem::M_MAX;
            return Err(Error::data(format!(
                "a tuning line for {from}..={to} rows: must be 1 or more, and at most {most}"
            )));
        }
        let above_zero = [("us", measured.us), ("ratio", measured.over_baseline), ("ratio", measured.over_heuristic)];
        let is_measured = |value: f64| value.is_finite() && value > 0.0 && value < 1e12;
        if let Some((what, value)) = above_zero.into_iter().find(|(_, value)| !is_measured(*value)) {
            return Err(Error::data(format!("a tuning line with {what} = {value}: must be above 0")));
        }
        if !(measured.spread >= 0.0 && measured.spread.is_finite()) {
            return Err(Error::data(format!("a tuning line with spread {}: must be 0 or more", measured.spread)));
        }
        self.problem = self.problem.for_pick();
        Ok(self)
    }

    /// What the driver calls the device.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// SMs of the device.
    #[must_use]
    pub fn sms(&self) -> u32 {
        self.sms
    }

    /// The architecture of the device, as NVRTC's target: `sm_90a`.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// What it is for.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Whether it may decide for `problem`: it was made for the same, or for one of which it is not stated how rows fall into
    /// groups.
    pub(super) fn is_for(&self, problem: &Problem) -> bool {
        self.problem == problem.for_pick() || self.problem == problem.for_kernel()
    }

    /// Whether it may decide for `problem` or its [kin](Problem::kin).
    pub(super) fn is_for_kin(&self, problem: &Problem) -> bool {
        let own = self.problem.kin();
        own == problem.kin() || own == problem.for_kernel().kin()
    }

    /// The rows (of all groups together) that it is for.
    #[must_use]
    pub fn m(&self) -> RangeInclusive<u32> {
        self.m.0..=self.m.1
    }

    /// What was decided.
    #[must_use]
    pub fn variant(&self) -> &Variant {
        &self.variant
    }

    /// Why.
    #[must_use]
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Which of two entries is the better evidence, the greater one: the newer; of one day that with more candidates,
    /// then the smaller spread, then the shorter time. Equal only for equal entries, so that no order of merging matters.
    #[must_use]
    pub fn compare(&self, other: &Entry) -> Ordering {
        let (a, b) = (&self.evidence, &other.evidence);
        let by_evidence = a.date.cmp(&b.date).then(a.measured.candidates.cmp(&b.measured.candidates));
        by_evidence
            .then_with(|| b.measured.spread.total_cmp(&a.measured.spread))
            .then_with(|| b.measured.us.total_cmp(&a.measured.us))
            .then_with(|| self.to_string().cmp(&other.to_string()))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { device, sms, target, problem, m: (from, to), variant, evidence } = self;
        let Measured { us, over_baseline, over_heuristic, spread, candidates } = evidence.measured;
        write!(f, "{device} | {sms} SMs | {target} | {problem} | m {from}..={to} | {variant} | {us:.3} us")?;
        write!(f, " | {over_baseline:.3}x baseline | {over_heuristic:.3}x heuristic | spread {spread:.4}")?;
        write!(f, " | {candidates} candidates | driver {} | NVRTC {}", evidence.driver, evidence.nvrtc)?;
        write!(f, " | {}", evidence.date)
    }
}

const COLUMNS: usize = 14;

impl FromStr for Entry {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found: Vec<_> = text.split('|').map(str::trim).collect();
        let columns: [&str; COLUMNS] = found.try_into().map_err(|found: Vec<_>| {
            Error::parse(format!("a tuning line has {COLUMNS} columns divided by `|`, this has {}", found.len()))
        })?;
        let [device, sms, target, problem, m, variant, us, baseline, heuristic, spread, of, driver, nvrtc, date] =
            columns;
        let measured = Measured {
            us: real(suffixed(us, " us")?)?,
            over_baseline: real(suffixed(baseline, "x baseline")?)?,
            over_heuristic: real(suffixed(heuristic, "x heuristic")?)?,
            spread: real(prefixed(spread, "spread ")?)?,
            candidates: whole(suffixed(of, " candidates")?)?,
        };
        let evidence = Evidence {
            measured,
            driver: prefixed(driver, "driver ")?.to_owned(),
            nvrtc: prefixed(nvrtc, "NVRTC ")?.to_owned(),
            date: date.parse().map_err(|error| Error::parse(format!("cannot read the date `{date}`: {error}")))?,
        };
        let (from, to) = prefixed(m, "m ")?.split_once("..=").ok_or_else(|| wrong(m, "m FROM..=TO"))?;
        let entry = Self {
            device: device.to_owned(),
            sms: whole(suffixed(sms, " SMs")?)?,
            target: target.to_owned(),
            problem: problem.parse()?,
            m: (whole(from)?, whole(to)?),
            variant: variant.parse()?,
            evidence,
        };
        entry.checked()
    }
}

fn wrong(text: &str, expected: &str) -> Error {
    Error::parse(format!("cannot read `{text}`: expected {expected}"))
}

fn prefixed<'a>(text: &'a str, prefix: &str) -> Result<&'a str> {
    text.strip_prefix(prefix).map(str::trim).ok_or_else(|| wrong(text, &format!("`{prefix}…`")))
}

fn suffixed<'a>(text: &'a str, suffix: &str) -> Result<&'a str> {
    text.strip_suffix(suffix).map(str::trim).ok_or_else(|| wrong(text, &format!("`…{suffix}`")))
}

fn whole(text: &str) -> Result<u32> {
    number(text).ok_or_else(|| wrong(text, "a whole number"))
}

fn real(text: &str) -> Result<f64> {
    text.parse().map_err(|_| wrong(text, "a number"))
}
