//! e8m0, the 8-bit power of two of MXFP4's block scales (OCP Microscaling Formats specification 1.0; PTX ISA `.ue8m0`).
//!
//! A code is an exponent with bias 127: 2^(code − 127), from 2⁻¹²⁷ to 2¹²⁷. There is no sign, no zero and no infinity; 255
//! is NaN.

/// What stands for NaN.
pub const NAN: u8 = 0xFF;

/// What is taken from a code.
pub const BIAS: i32 = 127;

/// The value of a code, exactly: 2⁻¹²⁷ is a subnormal number of f32.
///
/// ```
/// use warpsmith::internal::format::e8m0;
/// assert_eq!(e8m0::decode(130), 8.0);
/// assert!(e8m0::decode(255).is_nan());
/// ```
#[must_use]
pub fn decode(code: u8) -> f32 {
    // The exponent of f32 as it is; where f32's own meaning of it is another (0, and 255: infinity), the top bit of the
    // mantissa makes it 2⁻¹²⁷, and NaN.
    let mantissa = if code == 0 || code == NAN { 1 << 22 } else { 0 };
    f32::from_bits(u32::from(code) << 23 | mantissa)
}

/// The code of 2 to a power, the nearest that there is.
///
/// ```
/// use warpsmith::internal::format::e8m0;
/// assert_eq!((e8m0::encode(0), e8m0::encode(-1000), e8m0::encode(1000)), (127, 0, 254));
/// ```
#[must_use]
pub fn encode(power: i32) -> u8 {
    power.saturating_add(BIAS).clamp(0, i32::from(NAN) - 1) as u8
}

/// Whether the code is NaN.
#[must_use]
#[inline]
pub fn is_nan(code: u8) -> bool {
    code == NAN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_its_power_of_two() {
        for code in 0..NAN {
            assert_eq!(f64::from(decode(code)), 2f64.powi(i32::from(code) - BIAS), "{code}");
            assert_eq!(encode(i32::from(code) - BIAS), code);
            assert!(!is_nan(code));
        }
        assert!(decode(NAN).is_nan() && is_nan(NAN));
    }

    #[test]
    fn powers_beyond_the_range_become_its_ends() {
        assert_eq!((encode(128), encode(i32::MAX), encode(-128), encode(i32::MIN)), (254, 254, 0, 0));
    }
}
