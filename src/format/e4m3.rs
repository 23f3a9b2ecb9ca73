//! e4m3fn, the 8-bit float of NVFP4's block scales (OCP 8-bit Floating Point specification 1.0; PTX ISA `.e4m3`).
//!
//! A code is `s eeee mmm` with exponent bias 7. There is no infinity; `s 1111 111` is NaN, so the largest magnitude is
//! 448. Exponent 0 holds zero and the subnormals, multiples of 2⁻⁹.

/// The largest magnitude.
pub const MAX: f32 = 448.0;
/// The smallest normal magnitude, 2⁻⁶.
pub const MIN_POSITIVE: f32 = 0.015_625;
/// The smallest magnitude above zero, 2⁻⁹.
pub const MIN_SUBNORMAL: f32 = 0.001_953_125;

const SIGN: u8 = 0x80;
/// The positive NaN.
pub const NAN: u8 = 0x7F;
const LARGEST: u8 = 0x7E;

/// The value of a code, exactly.
///
/// ```
/// use warpsmith::internal::format::e4m3;
/// assert_eq!(e4m3::decode(0x38), 1.0);
/// assert!(e4m3::decode(0xFF).is_nan());
/// ```
#[must_use]
pub fn decode(code: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(code >> 3 & 0xF), u32::from(code & 7));
    let magnitude = if is_nan(code) {
        f32::NAN
    } else if exponent == 0 {
        f32::from(code & 7) * MIN_SUBNORMAL
    } else {
        // Rebias from 7 to binary32's 127; three mantissa bits become the top three of 23.
        f32::from_bits((exponent + 127 - 7) << 23 | mantissa << 20)
    };
    if code & SIGN == 0 { magnitude } else { -magnitude }
}

/// The code nearest to `value`: ties to the even code, ±448 for everything beyond (infinities included), the sign of a
/// zero kept. NaN stays NaN (0x7F or 0xFF by its sign).
///
/// ```
/// use warpsmith::internal::format::e4m3;
/// assert_eq!(e4m3::encode(1.0), 0x38);
/// assert_eq!(e4m3::encode(1e9), 0x7E, "448");
/// ```
#[must_use]
pub fn encode(value: f32) -> u8 {
    let sign = if value.is_sign_negative() { SIGN } else { 0 };
    let magnitude = value.abs();
    let code = if magnitude.is_nan() {
        NAN
    } else if magnitude >= MAX {
        LARGEST
    } else if magnitude < MIN_POSITIVE {
        subnormal(magnitude)
    } else {
        normal(magnitude)
    };
    sign | code
}

/// Whether the code is one of the two NaNs.
#[must_use]
#[inline]
pub fn is_nan(code: u8) -> bool {
    code & NAN == NAN
}

/// Below 2⁻⁶ the code is the number of 2⁻⁹ steps; 8 of them are the first normal code.
fn subnormal(magnitude: f32) -> u8 {
    (magnitude / MIN_SUBNORMAL).round_ties_even() as u8
}

/// From 2⁻⁶ to 448: exponent and mantissa are rounded as one integer, so that a carry moves to the next binade.
fn normal(magnitude: f32) -> u8 {
    let bits = magnitude.to_bits();
    let odd = bits >> 20 & 1;
    let rounded = (bits + (1 << 19) - 1 + odd) >> 20;
    // Rebias from 127 to 7. The bits above are those of a value below 448, so that at most 0x7E is left.
    (rounded - ((127 - 7) << 3)) as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The nearest of all finite values of the same sign by search, for a value that is not NaN.
    fn nearest(value: f32) -> u8 {
        let sign = if value.is_sign_negative() { SIGN } else { 0 };
        // Clamped, since far away all distances round to the same.
        let clamped = f64::from(value.clamp(-MAX, MAX));
        let distance = |code: u8| (clamped - f64::from(decode(code))).abs();
        (0..=LARGEST)
            .map(|magnitude| sign | magnitude)
            .min_by(|&x, &y| distance(x).total_cmp(&distance(y)).then((x & 1).cmp(&(y & 1))))
            .unwrap()
    }

    #[test]
    fn every_code_round_trips() {
        for code in 0..=u8::MAX {
            assert_eq!(encode(decode(code)), code);
            assert_eq!(decode(code).is_nan(), code == 0x7F || code == 0xFF);
            assert!(!decode(code).is_infinite());
        }
    }

    #[test]
    fn the_format_is_what_its_bits_say() {
        for code in 0..=LARGEST {
            let (exponent, mantissa) = (i32::from(code >> 3), f64::from(code & 7) / 8.0);
            let expected =
                if exponent == 0 { mantissa * 2f64.powi(-6) } else { (1.0 + mantissa) * 2f64.powi(exponent - 7) };
            assert_eq!(f64::from(decode(code)), expected);
            assert_eq!(f64::from(decode(code | SIGN)), -expected);
        }
        assert_eq!(decode(LARGEST), MAX);
        assert_eq!(decode(0x08), MIN_POSITIVE);
        assert_eq!(decode(0x01), MIN_SUBNORMAL);
        assert_eq!(decode(SIGN).to_bits(), (-0.0f32).to_bits());
    }

    #[test]
    fn ties_go_to_the_even_code_and_a_hair_decides() {
        for code in 0..LARGEST {
            let middle = (decode(code) + decode(code + 1)) / 2.0;
            assert_eq!(encode(middle), code + (code & 1));
            assert_eq!(encode(middle.next_up()), code + 1);
            assert_eq!(encode(middle.next_down()), code);
            assert_eq!(encode(-middle), SIGN | (code + (code & 1)));
        }
    }

    #[test]
    fn what_is_too_large_saturates_and_nan_stays() {
        for value in [448.0, 464.0, 465.0, 1e30, f32::INFINITY] {
            assert_eq!(encode(value), LARGEST);
            assert_eq!(encode(-value), SIGN | LARGEST);
        }
        assert_eq!(encode(f32::NAN.abs()), 0x7F);
        assert_eq!(encode(-f32::NAN.abs()), 0xFF);
        assert_eq!(encode(f32::from_bits(1)), 0, "binary32's own subnormals are far below half a step");
    }

    proptest! {
        #[test]
        fn encode_finds_the_nearest(value in prop_oneof![-500.0f32..500.0, -0.02f32..0.02, any::<f32>()]) {
            if value.is_nan() {
                prop_assert!(is_nan(encode(value)));
            } else {
                prop_assert_eq!(encode(value), nearest(value));
            }
        }
    }
}
