//! Activations in f64, and the error that a kernel's evaluation may add. The derivation is in the [module's](super)
//! documentation.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use super::Expected;
use super::uncertain::Uncertain;
use warpsmith::format::Format;
use warpsmith::spec::Activation;

/// Approximate exponential, sum, division and multiplication of an activation together: 2⁻²⁰.
const EVALUATION: f64 = 1.0 / (1 << 20) as f64;
/// The same of gelu's Gaussian tail, polynomial and reciprocal included: 2⁻¹⁹.
const TAIL_EVALUATION: f64 = 1.0 / (1 << 19) as f64;
/// Rounding of an exponential's argument, relative to it: 2⁻²².
const ARGUMENT: f64 = 1.0 / (1 << 22) as f64;
/// What the exponential's range costs: e^88 ends f32, and what is left of x·e^(−|x|) there is far below this.
const FLOOR: f64 = 1e-30;
/// α of gpt-oss' gate.
const OAI_ALPHA: f64 = 1.702;

/// act(x), in f64: of the product, or of the gate.
#[must_use]
pub fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::None => x,
        Activation::Silu | Activation::GeluTanh => x * sigmoid(exponent(activation, x)),
        Activation::Gelu => vanishing(x, libm::erfc(-x * FRAC_1_SQRT_2) / 2.0),
        Activation::SiluClamp(_) | Activation::SwigluOai => {
            let x = within(x, f64::NEG_INFINITY, limit(activation));
            vanishing(x, sigmoid(exponent(activation, x)))
        }
        Activation::Relu2 => within(x, 0.0, f64::INFINITY).powi(2),
        // Nothing passes with an activation that the oracle does not know.
        _ => f64::NAN,
    }
}

/// What the activated gate is multiplied with, in f64: the up product, which some activations change.
#[must_use]
pub fn linear(activation: Activation, up: f64) -> f64 {
    match activation {
        Activation::SiluClamp(_) => within(up, -limit(activation), limit(activation)),
        Activation::SwigluOai => within(up, -limit(activation), limit(activation)) + 1.0,
        _ => up,
    }
}

/// What act(x), or act(x) ⊙ y of a gate and an up product, should be in f32 where `products` are exact: all that is off is
/// the evaluation.
#[must_use]
pub fn evaluated(activation: Activation, products: &[f32]) -> Expected {
    let mut exact = products.iter().map(|x| Uncertain { value: f64::from(*x), error: 0.0 });
    let nothing = Uncertain { value: f64::NAN, error: f64::NAN };
    let gate = activated(exact.next().unwrap_or(nothing), activation);
    exact.next().map_or(gate, |up| gate.multiplied(passed(up, activation))).finished(Format::F32)
}

pub(super) fn activated(x: Uncertain, activation: Activation) -> Uncertain {
    let slope = match activation {
        Activation::None => return x,
        Activation::Relu2 => {
            let above = x.clamped(0.0, f64::INFINITY);
            return above.multiplied(above);
        }
        Activation::Silu | Activation::SiluClamp(_) | Activation::SwigluOai => 1.0999,
        Activation::GeluTanh | Activation::Gelu => 1.13,
        _ => f64::NAN,
    };
    let x = match activation {
        Activation::Silu | Activation::GeluTanh => x,
        _ => x.clamped(f64::NEG_INFINITY, limit(activation)),
    };
    let value = activate(activation, x.value);
    let relative = if activation == Activation::Gelu { TAIL_EVALUATION } else { EVALUATION };
    let evaluation = relative * value.abs() + of_argument(activation, x.value) + FLOOR;
    Uncertain { value, error: slope * x.error + evaluation }
}

pub(super) fn passed(up: Uncertain, activation: Activation) -> Uncertain {
    let clamped = || up.clamped(-limit(activation), limit(activation));
    match activation {
        Activation::SiluClamp(_) => clamped(),
        Activation::SwigluOai => clamped().plus(1.0),
        _ => up,
    }
}

/// What the rounding of the exponential's argument does to act(x).
fn of_argument(activation: Activation, x: f64) -> f64 {
    if activation == Activation::Gelu {
        // t·Q(t) is what has the exponential, whatever the sign of x.
        let t = x.abs();
        return ARGUMENT * (t * t / 2.0).min(f64::MAX) * activate(activation, -t).abs();
    }
    let z = exponent(activation, x);
    // z·(1 − σ(z)) vanishes for large z; written with σ(−z), it does so without ∞·0 for every finite z.
    activate(activation, x).abs() * (ARGUMENT * z.abs() * sigmoid(-z))
}

/// z of act(x) = x·σ(z). For gelu, 1 + tanh(u) = 2·σ(2u).
fn exponent(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::GeluTanh => 2.0 * (2.0 / PI).sqrt() * (x + 0.044_715 * x * x * x),
        Activation::SwigluOai => OAI_ALPHA * x,
        _ => x,
    }
}

/// x·factor, where the factor vanishes faster than x grows: in the limit, −∞·0 is 0.
fn vanishing(x: f64, factor: f64) -> f64 {
    if x == f64::NEG_INFINITY { 0.0 } else { x * factor }
}

/// What the activation clamps at; ∞ where it does not.
fn limit(activation: Activation) -> f64 {
    activation.limit().map_or(f64::INFINITY, f64::from)
}

/// `x`, or the nearer of the ends; NaN stays NaN.
fn within(x: f64, low: f64, high: f64) -> f64 {
    Uncertain { value: x, error: 0.0 }.clamped(low, high).value
}

fn sigmoid(z: f64) -> f64 {
    1.0 / (1.0 + (-z).exp())
}
