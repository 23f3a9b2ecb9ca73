//! Activations in f32, operation by operation as `templates/common/activation/` has them, with the constants that stand
//! there.

use std::sync::LazyLock;

use warpsmith::spec::Activation;

/// How far, relatively, the approximate instructions of a device are from the exact results.
#[derive(Clone, Copy, Debug, Default)]
pub struct Device {
    pub exponential: f64,
    pub quotient: f64,
    pub reciprocal: f64,
}

impl Device {
    /// All that the PTX ISA allows, in every direction.
    pub fn all() -> impl Iterator<Item = Self> {
        let (exponential, ulp) = (2f64.powi(-22), 2f64.powi(-23));
        let ways =
            move |[a, b]: [f64; 2]| Self { exponential: a * exponential, quotient: 2.0 * b * ulp, reciprocal: b * ulp };
        let signs = [-1.0, 0.0, 1.0];
        signs.into_iter().flat_map(move |a| signs.map(|b| ways([a, b])))
    }

    /// act(x).
    pub fn activate(&self, activation: Activation, x: f32) -> f32 {
        match activation {
            Activation::None => x,
            Activation::Silu => self.over(x, self.ex2(-CONSTANTS.silu * x)),
            Activation::SiluClamp(limit) => {
                let x = clamped_gate(x, limit);
                self.over(x, self.ex2(-CONSTANTS.silu_clamp * x))
            }
            Activation::SwigluOai => {
                let x = clamped_gate(x, 7);
                self.over(x, self.ex2(-CONSTANTS.swiglu_oai * x))
            }
            Activation::GeluTanh => {
                let [of_u, of_exponent] = CONSTANTS.gelu_tanh;
                let u = of_u * (0.044_715f32 * x * x).mul_add(x, x);
                self.over(x, self.ex2(-of_exponent * u))
            }
            Activation::Gelu => self.gelu(x),
            Activation::Relu2 => {
                let above = max_nan(x, 0.0);
                above * above
            }
            _ => panic!("{activation} is not ported"),
        }
    }

    fn gelu(&self, x: f32) -> f32 {
        let t = min_nan(x.abs(), 16.0);
        let s = self.rcp(CONSTANTS.gelu_step.mul_add(t, 1.0));
        let p =
            CONSTANTS.gelu_polynomial.iter().rev().copied().reduce(|p, coefficient| p.mul_add(s, coefficient)).unwrap();
        let envelope = t * s * self.ex2(-CONSTANTS.gelu_exponent * t * t);
        // `fmaxf` takes the number where the other is NaN, as f32::max does.
        (-envelope).mul_add(p, x.max(0.0))
    }

    /// x / (1 + e).
    fn over(&self, x: f32, e: f32) -> f32 {
        let divisor = 1.0 + e;
        match divisor {
            _ if divisor.is_finite() && divisor > 2f32.powi(126) => 0.0 * x,
            _ => flushed((f64::from(x) / f64::from(divisor) * (1.0 + self.quotient)) as f32),
        }
    }

    fn ex2(&self, x: f32) -> f32 {
        flushed((f64::from(x).exp2() * (1.0 + self.exponential)) as f32)
    }

    fn rcp(&self, x: f32) -> f32 {
        flushed((1.0 / f64::from(x) * (1.0 + self.reciprocal)) as f32)
    }
}

/// What the activated gate is multiplied with.
pub fn linear(activation: Activation, up: f32) -> f32 {
    let clamped = |limit: u32| max_nan(min_nan(up, limit as f32), -(limit as f32));
    match activation {
        Activation::SiluClamp(limit) => clamped(limit),
        Activation::SwigluOai => clamped(7) + 1.0,
        _ => up,
    }
}

fn clamped_gate(gate: f32, limit: u32) -> f32 {
    max_nan(min_nan(gate, limit as f32), -128.0)
}

fn min_nan(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { a.min(b) }
}

fn max_nan(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) }
}

fn flushed(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0.0 * x } else { x }
}

/// What stands in the files.
struct Constants {
    silu: f32,
    silu_clamp: f32,
    swiglu_oai: f32,
    gelu_tanh: [f32; 2],
    gelu_step: f32,
    gelu_exponent: f32,
    gelu_polynomial: Vec<f32>,
}

static CONSTANTS: LazyLock<Constants> = LazyLock::new(|| {
    let gelu = include_str!("../../../templates/common/activation/gelu.cuh");
    let gelu_tanh = include_str!("../../../templates/common/activation/gelu_tanh.cuh");
    Constants {
        silu: number(include_str!("../../../templates/common/activation/silu.cuh"), "LOG2_E"),
        silu_clamp: number(include_str!("../../../templates/common/activation/silu_clamp.cuh"), "LOG2_E"),
        swiglu_oai: number(include_str!("../../../templates/common/activation/swiglu_oai.cuh"), "ALPHA_LOG2_E"),
        gelu_tanh: ["SQRT_2_OVER_PI", "TWO_LOG2_E"].map(|name| number(gelu_tanh, name)),
        gelu_step: number(gelu, "STEP"),
        gelu_exponent: number(gelu, "HALF_LOG2_E"),
        gelu_polynomial: numbers(gelu, "P[]"),
    }
});

fn number(text: &str, name: &str) -> f32 {
    let found = numbers(text, name);
    assert_eq!(found.len(), 1, "{name}");
    found[0]
}

/// The numbers behind `name = `.
fn numbers(text: &str, name: &str) -> Vec<f32> {
    let (_, behind) = text.split_once(&format!(" {name} = ")).unwrap();
    let ends = if behind.starts_with('{') { &['}'][..] } else { &[',', ';'] };
    let list = &behind[..behind.find(ends).unwrap()];
    let number = |number: &str| number.trim().strip_suffix('f').unwrap().parse().unwrap();
    list.trim_start_matches('{').split(',').map(number).collect()
}
