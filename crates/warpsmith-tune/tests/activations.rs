//! The oracle's activations against published values and second formulas, and the formulas of the kernels against the
//! oracle's bound.

#![allow(clippy::unwrap_used)] // helpers outside `#[test]` functions

use rand::Rng;
use warpsmith::format::Format;
use warpsmith::spec::Activation;
use warpsmith_testing::activations::{Device, linear as device_linear};
use warpsmith_testing::numbers::rng;
use warpsmith_tune::oracle::{Products, activate, dual_gemm, evaluated, gemm, linear};

use Activation::{Gelu, GeluTanh, Relu2, Silu, SiluClamp, SwigluOai};

#[test]
fn activations_are_their_other_formulas() {
    for x in (-4000..4000).map(|i| f64::from(i) / 100.0) {
        let close = |found: f64, other: f64| assert!((found - other).abs() < 1e-14 * (1.0 + x.abs()), "{x}: {found}");
        // silu by tanh, gelu by tanh; the oracle has both by the logistic function.
        close(activate(Silu, x), x / 2.0 * (1.0 + (x / 2.0).tanh()));
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        close(activate(GeluTanh, x), 0.5 * x * (1.0 + inner.tanh()));
        close(activate(Gelu, x), 0.5 * x * (1.0 + erf_by_series(x / 2f64.sqrt())));
        let gate = x.min(7.0);
        close(activate(SwigluOai, x), gate / 2.0 * (1.0 + (0.851 * gate).tanh()));
        close(activate(SiluClamp(7), x), activate(Silu, gate));
        close(activate(SiluClamp(40), x), activate(Silu, x));
        assert_eq!(linear(SiluClamp(7), x), x.clamp(-7.0, 7.0));
        assert_eq!(linear(SwigluOai, x), x.clamp(-7.0, 7.0) + 1.0);
        assert_eq!(activate(Relu2, x), if x > 0.0 { x * x } else { 0.0 });
        assert_eq!((activate(Activation::None, x), linear(Gelu, x)), (x, x));
    }
}

/// erf by its series about 0, in which nothing cancels: 2/√π·e^(−x²)·Σ 2ⁿx²ⁿ⁺¹/(2n + 1)!! (Abramowitz & Stegun 7.1.6).
fn erf_by_series(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, 0.0);
    for n in 0..400 {
        sum += term;
        term *= 2.0 * x * x / f64::from(2 * n + 3);
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

#[test]
fn activations_have_their_published_values() {
    // erf and erfc of Abramowitz & Stegun, table 7.1 and 7.3; the other values to 20 digits by an independent program.
    let of_erf = |z: f64| activate(Gelu, z * 2f64.sqrt()) / (z * 2f64.sqrt());
    for (z, erf) in [(0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0)] {
        assert!((2.0 * of_erf(z) - 1.0 - erf).abs() < 1e-10, "erf({z})");
    }
    for (z, erfc) in [(3.0, 2.209_049_7e-5), (5.0, 1.537_459_794e-12), (10.0, 2.088_487_58e-45)] {
        assert!((2.0 * of_erf(-z) / erfc - 1.0).abs() < 1e-8, "erfc({z})");
    }
    for (activation, x, value) in [
        (Silu, 1.0, 0.731_058_578_630_004_9),
        (GeluTanh, 1.0, 0.841_191_990_608),
        (Gelu, 0.5, 0.345_731_230_637_006_55),
        (Gelu, 1.0, 0.841_344_746_068_542_9),
        (Gelu, -1.0, -0.158_655_253_931_457_05),
        (Gelu, -3.0, -0.004_049_694_094_890_283_6),
        (Gelu, -5.0, -1.433_257_859_395_969_6e-6),
        (SwigluOai, 1.0, 0.845_795_765_932_821_3),
        (SwigluOai, -4.0, -0.004_414_724_139_581_061),
        (SwigluOai, 7.0, 6.999_953_128_303_317),
        (SwigluOai, 1e6, 6.999_953_128_303_317),
        (SiluClamp(7), 9.0, 6.993_622_641_639_195),
        (SiluClamp(10), 9e9, 9.999_546_021_312_976),
        (SiluClamp(10), -4.0, -0.071_944_839_848_366_23),
    ] {
        let found = activate(activation, x);
        assert!((found / value - 1.0).abs() < 1e-11, "{activation}({x}) = {found}, not {value}");
    }
}

#[test]
fn the_slopes_in_the_bound_are_the_steepest() {
    let activations = [(Silu, 1.0999), (SiluClamp(7), 1.0999), (SwigluOai, 1.0999), (GeluTanh, 1.13), (Gelu, 1.13)];
    for (activation, slope) in activations {
        let steepest = (-200_000..200_000)
            .map(|i| f64::from(i) / 10_000.0)
            .map(|x| ((activate(activation, x + 1e-4) - activate(activation, x)) / 1e-4).abs())
            .fold(0.0, f64::max);
        assert!(steepest <= slope && steepest > slope - 2e-3, "{activation}: {steepest}");
    }
}

#[test]
fn the_ends_are_limits_and_nan_stays_nan() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let largest = f32::MAX;
    for (activation, below, above) in [
        (Gelu, 0.0, f64::INFINITY),
        (SiluClamp(7), 0.0, activate(Silu, 7.0)),
        (SwigluOai, 0.0, activate(SwigluOai, 7.0)),
        (Relu2, 0.0, f64::INFINITY),
    ] {
        assert_eq!(activate(activation, f64::NEG_INFINITY), below, "{activation}");
        assert_eq!(activate(activation, f64::INFINITY), above, "{activation}");
        assert!(activate(activation, f64::NAN).is_nan() && linear(activation, f64::NAN).is_nan(), "{activation}");
        let device = |x| f64::from(Device::default().activate(activation, x));
        for (x, value) in [(-inf, below), (-largest, below), (inf, above)] {
            assert!(evaluated(activation, &[x]).accepts(device(x), Format::F32), "{activation}({x})");
            assert!((device(x) - value).abs() <= 1e-5 || device(x) == value, "{activation}({x}) = {}", device(x));
        }
        assert!(device(nan).is_nan() && device_linear(activation, nan).is_nan(), "{activation}");
        assert!(!evaluated(activation, &[-inf]).accepts(1e-20, Format::F32), "{activation}: 0 and nothing else");
        assert!(!evaluated(activation, &[nan]).accepts(0.0, Format::F32), "{activation}");
    }
    for activation in [SiluClamp(7), SwigluOai] {
        let ends = |up: f64| (linear(activation, up), evaluated(activation, &[1.0, up as f32]).value);
        let (up, value) = ends(f64::NEG_INFINITY);
        assert!(up == linear(activation, -7.0) && value == activate(activation, 1.0) * up, "{activation}");
    }
}

/// Every sort of x: a dense range, every binade with both signs, random bits, the ends of what is clamped.
fn every_sort() -> Vec<f32> {
    let mut rng = rng(17);
    let dense = (-40_000..=40_000).map(|i| i as f32 / 2000.0);
    let binades = (0..255u32).flat_map(|exponent| [0u32, 1, 0x40_0000, 0x7F_FFFF].map(|low| exponent << 23 | low));
    let bits: Vec<u32> = binades.chain((0..4000).map(|_| rng.random_range(0..0x7F80_0000))).collect();
    let both = bits.into_iter().flat_map(|bits| [f32::from_bits(bits), -f32::from_bits(bits)]);
    let edges = [7.0f32, 10.0, 13.2, 16.0, 87.3, 88.0, 128.0]
        .into_iter()
        .flat_map(|edge| [edge, edge.next_up(), edge.next_down()].into_iter().flat_map(|x| [x, -x]));
    dense.chain(both).chain(edges).collect()
}

#[test]
fn formulas_of_kernels_are_within_the_stated_error() {
    let every_sort = every_sort();
    for activation in Activation::ALL.iter().copied().chain([SiluClamp(1), SiluClamp(10), SiluClamp(65_504)]) {
        let mut worst = (0.0, 0.0, Device::default());
        for device in Device::all() {
            for &x in &every_sort {
                let actual = f64::from(device.activate(activation, x));
                let error = evaluated(activation, &[x]).error(actual, Format::F32);
                if error >= worst.0 {
                    worst = (error, x, device);
                }
            }
        }
        println!("{activation}: {worst:?}");
        assert!(worst.0 <= 1.0, "{activation}: error ÷ bound {worst:?}");
        assert!(worst.0 > 0.1 || matches!(activation, Activation::None | Relu2), "{activation}: the bound is too wide");
    }
}

#[test]
fn formulas_of_kernels_are_within_the_bound_of_a_gated_product() {
    let mut rng = rng(5);
    let every_sort = every_sort();
    for activation in Activation::GATED.iter().copied().chain([SiluClamp(10)]) {
        for device in Device::all() {
            for &x in every_sort.iter().step_by(7) {
                let up = every_sort[rng.random_range(0..every_sort.len())];
                let actual = device.activate(activation, x) * device_linear(activation, up);
                let error = evaluated(activation, &[x, up]).error(f64::from(actual), Format::F32);
                assert!(error <= 1.0, "{activation}: {x}, {up} gives {actual}: error ÷ bound {error}");
            }
        }
    }
}

/// act(gate) · up as other kernels write it, in f32: gelu by 1 + tanh, and by 1 + erf, whose cancellation the bound of a
/// product has room for.
#[test]
fn activations_in_f32_are_within_the_bound() {
    for i in -3000..3000 {
        let (x, up) = (i as f32 / 97.0, 3.5f32);
        let one = |value: f32| Products::from_parts(1, 1, 16, vec![value.into()], vec![value.abs().into()]).unwrap();
        let z = 2.0 * 0.797_884_6f32 * (x + 0.044715 * x * x * x);
        let clamped = x.min(7.0);
        for (activation, actual) in [
            (Silu, x / (1.0 + (-x).exp())),
            (GeluTanh, x / (1.0 + (-z).exp())),
            (GeluTanh, 0.5 * x * (1.0 + (z / 2.0).tanh())),
            (Gelu, 0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2))),
            (SiluClamp(7), clamped / (1.0 + (-clamped).exp())),
            (SwigluOai, clamped / (1.0 + (-1.702 * clamped).exp()) / 3.5 * 4.5),
            (Relu2, x.max(0.0) * x.max(0.0)),
        ] {
            let (reference, actual) = match activation {
                Relu2 => (gemm(&one(x), 1.0, activation, Format::F32).unwrap(), actual),
                _ => (dual_gemm(&one(x), &one(up), [1.0; 2], activation, Format::F32).unwrap(), actual * up),
            };
            let error = reference.elements()[0].error(f64::from(actual), Format::F32);
            assert!(error <= 0.5, "{activation}({x}): {error}");
        }
    }
}

/// What a wrong activation gives is beyond the bound, at one x at least.
#[test]
fn activations_taken_for_each_other_are_beyond_the_bound() {
    let every_sort = every_sort();
    for of in [Activation::GATED, Activation::UNGATED] {
        for &right in of {
            for &wrong in of.iter().chain([&SiluClamp(8)]).filter(|wrong| **wrong != right) {
                let up = if of == Activation::GATED { &[7.5f32][..] } else { &[] };
                let beyond = every_sort.iter().any(|&x| {
                    let products = [&[x], up].concat();
                    let actual =
                        Device::default().activate(wrong, x) * up.first().map_or(1.0, |up| device_linear(wrong, *up));
                    !evaluated(right, &products).accepts(f64::from(actual), Format::F32)
                });
                assert!(beyond, "{wrong} passes as {right}");
            }
        }
    }
}
