//! Whether what was measured on one device, or for one problem, is worth following for another.

use super::heuristic::predict_for;
use super::untuned;
use crate::spec::{Arch, Numerics, Problem, Spec};

/// A decision is followed elsewhere unless it is expected to lose more than this share there.
const LOSS: f64 = 0.02;

/// A decision of another device, or for another problem.
pub(super) struct Foreign<'a> {
    /// What it was measured for.
    pub(super) problem: &'a Problem,
    pub(super) m: u32,
    /// Its variant for the problem and on the device that is chosen for.
    pub(super) spec: &'a Spec,
    /// How many times as fast as the heuristic's first it was there.
    pub(super) gain: f64,
    /// The device that it was measured on.
    pub(super) source: &'a Arch,
}

impl Foreign<'_> {
    /// Whether it is followed on `arch`, where choices are of `class`, if there is one. What the model says of either device
    /// counts, corrected by how far off it was on the source.
    pub(super) fn carries_over(&self, arch: &Arch, class: Option<&Numerics>) -> bool {
        let follows = |expected: f64| expected >= 1.0 - LOSS;
        if self.source == arch && class.is_none() {
            return follows(self.gain);
        }
        let Some(here) = self.predicted_gain(self.spec, arch, class) else { return true };
        // No more was predicted there than 1: then that need not be known.
        follows(self.gain * here) || self.predicted_there().is_none_or(|there| follows(self.gain * here / there))
    }

    fn predicted_there(&self) -> Option<f64> {
        let spec = Spec::new(self.problem, self.spec.variant(), self.source).ok()?;
        self.predicted_gain(&spec, self.source, None)
    }

    /// How many times as fast as the heuristic's first `spec` should be.
    fn predicted_gain(&self, spec: &Spec, arch: &Arch, class: Option<&Numerics>) -> Option<f64> {
        // Of kin, rows fall into groups alike.
        let load = self.problem.load(self.m);
        Some(untuned::first(spec.problem(), &load, arch, class)?.prediction.us / predict_for(spec, &load).us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Variant;

    #[test]
    fn what_the_model_expects_to_lose_here_is_not_followed() {
        let problem: Problem =
            "grouped128.dual_gemm.silu:bf16*nvfp4>bf16:n1536:k4096:gathered:prepared:top8".parse().unwrap();
        let variant: Variant = "wgmma.t16x32x256.s12.interleaved.ws2.tma.persistent".parse().unwrap();
        let follows = |gain: f64, source: &Arch, arch: &Arch| {
            let spec = &Spec::new(&problem, &variant, arch).unwrap();
            Foreign { problem: &problem, m: 1024, spec, gain, source }.carries_over(arch, None)
        };
        // An H200 took 1.28 times as long with what won on an H100 by 1.5 %.
        assert!(!follows(1.015, &Arch::H100, &Arch::H200));
        assert!(follows(1.1, &Arch::H100, &Arch::H200));
        // On the same device what was measured counts.
        assert!(follows(1.0, &Arch::H100, &Arch::H100));
        assert!(!follows(0.97, &Arch::H100, &Arch::H100));
    }
}
