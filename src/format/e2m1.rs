//! e2m1, the 4-bit float of NVFP4 (OCP Microscaling Formats specification 1.0, section 5.3.3; PTX ISA `.e2m1`).
//!
//! A code is `s e1 e0 m`. The magnitudes of codes 0 to 7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign, and code 8
//! is −0. There is no infinity and no NaN.

/// The largest magnitude.
pub const MAX: f32 = 6.0;

const VALUES: [f32; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, MAX, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -MAX];
const SIGN: u8 = 0x8;

/// The value of the code in the low nibble; the high nibble is ignored.
///
/// ```
/// use warpsmith::internal::format::e2m1;
/// assert_eq!(e2m1::decode(0b1011), -1.5);
/// ```
#[must_use]
pub fn decode(code: u8) -> f32 {
    VALUES[usize::from(code & 15)]
}

/// The code nearest to `value`, in the low nibble: ties to the even code, ±6 for everything beyond (infinities
/// included), the sign of a zero kept. `None` for NaN, which e2m1 cannot represent and which no code may hide.
///
/// ```
/// use warpsmith::internal::format::e2m1;
/// assert_eq!(e2m1::encode(2.5), Some(0b0100), "2.5 lies between 2 (code 4) and 3 (code 5)");
/// assert_eq!(e2m1::encode(f32::NAN), None);
/// ```
#[must_use]
pub fn encode(value: f32) -> Option<u8> {
    let sign = if value.is_sign_negative() { SIGN } else { 0 };
    // The bounds are the midpoints; a midpoint belongs to the even one of its two neighbours.
    let magnitude = match value.abs() {
        x if x.is_nan() => return None,
        x if x <= 0.25 => 0,
        x if x < 0.75 => 1,
        x if x <= 1.25 => 2,
        x if x < 1.75 => 3,
        x if x <= 2.5 => 4,
        x if x < 3.5 => 5,
        x if x <= 5.0 => 6,
        _ => 7,
    };
    Some(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The nearest of all 16 values by search, for a value that is not NaN.
    fn nearest(value: f32) -> u8 {
        let sign = if value.is_sign_negative() { SIGN } else { 0 };
        // Clamped, since far away all distances round to the same.
        let clamped = f64::from(value.clamp(-MAX, MAX));
        let distance = |code: u8| (clamped - f64::from(decode(code))).abs();
        (0..8)
            .map(|magnitude| sign | magnitude)
            .min_by(|&x, &y| distance(x).total_cmp(&distance(y)).then((x & 1).cmp(&(y & 1))))
            .unwrap()
    }

    #[test]
    fn every_code_round_trips() {
        for code in 0..16 {
            assert_eq!(encode(decode(code)), Some(code));
            assert_eq!(decode(code).to_bits(), decode(code | 0xF0).to_bits(), "the high nibble is ignored");
        }
    }

    #[test]
    fn the_format_is_what_its_bits_say() {
        for code in 0u8..8 {
            let (exponent, mantissa) = (i32::from(code >> 1), f32::from(code & 1));
            let expected =
                if exponent == 0 { mantissa / 2.0 } else { (1.0 + mantissa / 2.0) * 2f32.powi(exponent - 1) };
            assert_eq!(decode(code), expected);
            assert_eq!(decode(code | SIGN), -expected);
        }
    }

    #[test]
    fn ties_go_to_the_even_code_and_a_hair_decides() {
        for pair in 0..7u8 {
            let middle = (decode(pair) + decode(pair + 1)) / 2.0;
            assert_eq!(encode(middle), Some(pair + (pair & 1)));
            assert_eq!(encode(middle.next_up()), Some(pair + 1));
            assert_eq!(encode(middle.next_down()), Some(pair));
            assert_eq!(encode(-middle), Some(SIGN | (pair + (pair & 1))));
        }
    }

    #[test]
    fn what_is_too_large_saturates_and_nan_is_refused() {
        for value in [6.5, 1e30, f32::INFINITY] {
            assert_eq!(encode(value), Some(7));
            assert_eq!(encode(-value), Some(15));
        }
        assert_eq!(encode(f32::NAN), None);
        assert_eq!(encode(-0.0), Some(8));
    }

    proptest! {
        #[test]
        fn encode_finds_the_nearest(value in prop_oneof![-7.0f32..7.0, any::<f32>()]) {
            prop_assert_eq!(encode(value), (!value.is_nan()).then(|| nearest(value)));
        }
    }
}
