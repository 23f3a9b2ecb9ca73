//! What the tuner needs of a device, and what a device says of a kernel.
//!
//! Choosing knows no device: it asks a [`Measure`], which may be the device of this process, a worker process that
//! may crash, or a simulation.

use std::fmt;

use serde::{Deserialize, Serialize};

use warpsmith::Result;
use warpsmith::spec::Spec;

/// A place where kernels are checked and timed, for one problem and one M.
///
/// The order of calls is [`admit`](Measure::admit), then [`screen`](Measure::screen) and
/// [`duel`](Measure::duel) of what has passed. A kernel that is wrong, hangs or crashes is an [`Admission`] like any
/// other; an error of any method means that the measurer itself is of no more use (no device, no worker can be
/// started), and ends the tuning. A kernel that was admitted but fails while it is timed gives an infinite time.
pub trait Measure {
    /// Loads a built kernel and checks its result against the reference. What it uses of the machine (spills, shared
    /// memory) has been looked at before.
    ///
    /// # Errors
    /// Those that are not the kernel's.
    fn admit(&mut self, spec: &Spec) -> Result<Admission>;

    /// A short timing of an admitted kernel, in microseconds a call.
    ///
    /// # Errors
    /// Those that are not the kernel's; unsupported, if the kernel was not admitted.
    fn screen(&mut self, spec: &Spec) -> Result<f64>;

    /// Times two admitted kernels in turn, `pairs` times each: microseconds a call, the incumbent's first. The two of a
    /// pair follow each other at once, so that both see the same clock; pairs are in the order of time.
    ///
    /// # Errors
    /// Those that are not the kernels'; unsupported, if one of them was not admitted.
    fn duel(&mut self, incumbent: &Spec, challenger: &Spec, pairs: usize) -> Result<Vec<(f64, f64)>>;
}

impl<L: Measure + ?Sized> Measure for &mut L {
    fn admit(&mut self, spec: &Spec) -> Result<Admission> {
        (**self).admit(spec)
    }

    fn screen(&mut self, spec: &Spec) -> Result<f64> {
        (**self).screen(spec)
    }

    fn duel(&mut self, incumbent: &Spec, challenger: &Spec, pairs: usize) -> Result<Vec<(f64, f64)>> {
        (**self).duel(incumbent, challenger, pairs)
    }
}

/// What the correctness gate says of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[must_use]
pub enum Admission {
    /// Every element is right, nothing else was written, and repeated launches gave the same bits.
    Passed {
        /// The largest error as a share of its bound, 0 to 1.
        worst: f64,
    },
    /// It may not be timed, and not be chosen.
    Refused(Rejection),
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Admission::Passed { worst } => write!(f, "right, within {worst:.3} of the bounds"),
            Admission::Refused(rejection) => write!(f, "refused: {rejection}"),
        }
    }
}

/// Why a candidate is not considered. Its text is a clause; serde's form is for files and for talking to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rejection {
    /// It could not be built; with what the compiler said.
    Build(String),
    /// The compiler spills registers to local memory.
    Spills {
        /// Bytes of spill stores in the code; 0 if the compiler did not say.
        store_bytes: u32,
        /// Bytes of spill loads in the code; 0 if the compiler did not say.
        load_bytes: u32,
    },
    /// Static and dynamic shared memory together are more than a block may have.
    SharedMemory {
        /// Bytes needed.
        needs: u32,
        /// Bytes a block may have.
        limit: u32,
    },
    /// The device could not load it, or has no room for its workspace.
    Load(String),
    /// Elements of its result are wrong, or memory outside of it was written; with the gate's sentence.
    Wrong(String),
    /// A second launch gave other bits: a race.
    NotRepeatable,
    /// It was still running when its time was up.
    Hangs,
    /// It faulted, or took the process that ran it down; with what is known of it.
    Crashes(String),
    /// It was refused before, with the same toolchain, device and driver, and not tried again; with the reason then.
    Quarantined(String),
}

impl Rejection {
    /// The kind of reason in a word, for counts and reports.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Rejection::Build(_) => "build",
            Rejection::Spills { .. } => "spills",
            Rejection::SharedMemory { .. } => "shared memory",
            Rejection::Load(_) => "load",
            Rejection::Wrong(_) => "wrong",
            Rejection::NotRepeatable => "not repeatable",
            Rejection::Hangs => "hangs",
            Rejection::Crashes(_) => "crashes",
            Rejection::Quarantined(_) => "quarantined",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::Build(said) => write!(f, "cannot be built: {said}"),
            Rejection::Spills { store_bytes, load_bytes } => {
                write!(f, "registers spill to local memory: {store_bytes} bytes of stores, {load_bytes} of loads")
            }
            Rejection::SharedMemory { needs, limit } => {
                write!(f, "shared memory: {needs} bytes needed, a block may have {limit}")
            }
            Rejection::Load(said) => write!(f, "cannot be loaded: {said}"),
            // The gate's sentence says that it is wrong.
            Rejection::Wrong(verdict) => f.write_str(verdict),
            Rejection::NotRepeatable => f.write_str("a second launch gave other bits: a race"),
            Rejection::Hangs => f.write_str("still running when its time was up"),
            Rejection::Crashes(said) => write!(f, "crashes: {said}"),
            Rejection::Quarantined(reason) => write!(f, "in quarantine: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_travels_as_json_and_reads_as_a_clause() {
        let (text, number) = (|| "it says so".to_owned(), 16);
        let all = [
            Rejection::Build(text()),
            Rejection::Spills { store_bytes: number, load_bytes: 20 },
            Rejection::SharedMemory { needs: 240_000, limit: 232_448 },
            Rejection::Load(text()),
            Rejection::Wrong(text()),
            Rejection::NotRepeatable,
            Rejection::Hangs,
            Rejection::Crashes(text()),
            Rejection::Quarantined(text()),
        ];
        for rejection in all {
            let admission = Admission::Refused(rejection.clone());
            let json = serde_json::to_string(&admission).unwrap();
            assert!(!json.contains('\n'), "{json}");
            assert_eq!(serde_json::from_str::<Admission>(&json).unwrap(), admission);
            assert_eq!(admission.to_string(), format!("refused: {rejection}"));
            assert!(!rejection.word().is_empty());
        }
        let passed = Admission::Passed { worst: 0.25 };
        assert_eq!(serde_json::to_string(&passed).unwrap(), r#"{"passed":{"worst":0.25}}"#);
        assert_eq!(serde_json::to_string(&Rejection::Hangs).unwrap(), r#""hangs""#);
    }
}
