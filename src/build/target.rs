//! The two kinds of compile target: machine code (`sm_90a`) and PTX (`compute_90a`).

use crate::{Error, Result};

/// A checked target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    kind: Kind,
    number: u32,
    suffix: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Machine,
    Ptx,
}

impl Target {
    /// Reads `sm_90a`, `compute_90a` and the like.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let refuse = || Error::parse(format!("target {text:?}: expected sm_NN or compute_NN, with an optional a or f"));
        let (kind, rest) = match (text.strip_prefix("sm_"), text.strip_prefix("compute_")) {
            (Some(rest), _) => (Kind::Machine, rest),
            (_, Some(rest)) => (Kind::Ptx, rest),
            _ => return Err(refuse()),
        };
        let digits = rest.trim_end_matches(|c: char| !c.is_ascii_digit());
        let suffix = match &rest[digits.len()..] {
            "" => "",
            "a" => "a",
            "f" => "f",
            _ => return Err(refuse()),
        };
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(refuse());
        }
        Ok(Self { kind, number: digits.parse().map_err(|_| refuse())?, suffix })
    }

    /// The same architecture as PTX.
    #[cfg(feature = "compile")]
    pub(crate) fn to_ptx(&self) -> Self {
        Self { kind: Kind::Ptx, ..self.clone() }
    }

    pub(crate) fn is_machine(&self) -> bool {
        self.kind == Kind::Machine
    }

    /// The number NVRTC lists architectures by: 90 for `sm_90a`.
    #[cfg(feature = "compile")]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.is_machine() { "sm" } else { "compute" };
        write!(f, "{kind}_{}{}", self.number, self.suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_round_trip_and_nonsense_is_refused() {
        for text in ["sm_80", "sm_90a", "sm_100f", "compute_120a"] {
            assert_eq!(Target::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Target::parse("sm_90a").unwrap().to_ptx().to_string(), "compute_90a");
        for text in ["", "sm_", "sm_a", "sm90", "sm_90b", "sm_9 0", "compute_90aa", "sm_1é", "sm_99999999999"] {
            assert!(Target::parse(text).unwrap_err().is_parse(), "{text}");
        }
    }
}
