//! Weights that kernels make e4m3 of: the rule, and the bytes that they are stored as.
//!
//! A row has an exponent e, such that nothing in it saturates, and a weight is e4m3(code · scale · 2⁻ᵉ), nearest, ties to
//! even. What is stored is the codes, and for each 16 of them the byte of scale · 2⁻ᵉ, from which a kernel makes the eight
//! magnitudes that a code may stand for. docs/formats.md specifies both.

use crate::format::{e2m1, e4m3};

/// The largest e2m1 magnitude.
const CODE_MAX: f32 = 6.0;
/// Scale bytes from here on down, as signed numbers: of zero and of NaN, and the first of the small scales.
const ZERO: u8 = 0xFF;
const NAN: u8 = 0xFE;
const SMALL_FIRST: u8 = 0xFD;
/// Folded scales are small below 2⁻⁵, down to 2⁻¹²: eight for each power of two.
const SMALL_BELOW: f32 = 1.0 / 32.0;
const SMALL_FROM: f32 = 1.0 / 4096.0;
/// How many there are.
const SMALL: u8 = 56;

/// The exponent of a row with these block scales: the least e with 6 · max |scale| · 2⁻ᵉ ≤ 448. Zeros and NaN do not count;
/// 0 if nothing else is there.
pub fn row_exponent(scales: impl Iterator<Item = u8>) -> i32 {
    let finite = scales.filter(|scale| !e4m3::is_nan(*scale)).map(|scale| e4m3::decode(scale).abs());
    exponent(finite.fold(0.0, f32::max))
}

/// The exponent of a row whose largest scale is this.
fn exponent(largest: f32) -> i32 {
    // 6 · 448 ≤ 448 · 2³, and 6 · 2⁻⁹ > 448 · 2⁻¹⁶.
    if largest == 0.0 { 0 } else { (-15..3).find(|e| CODE_MAX * largest * exp2(-e) <= e4m3::MAX).unwrap_or(3) }
}

/// A power of two, exactly.
pub(crate) fn exp2(exponent: i32) -> f32 {
    2f32.powi(exponent)
}

/// What is multiplied for a code under a block scale in a row with this exponent, times 2ᵉ: exact in f32.
pub fn e4m3_value(code: u8, scale: u8, exponent: i32) -> f32 {
    e4m3::decode(e4m3_byte(code, scale, exponent)) * exp2(exponent)
}

/// Its byte, which has the sign of the code whatever the scale is.
pub(super) fn e4m3_byte(code: u8, scale: u8, exponent: i32) -> u8 {
    // Both products are exact: at most six significant bits.
    e4m3::encode(e2m1::decode(code & 7) * (e4m3::decode(scale) * exp2(-exponent))) ^ (code & 8) << 4
}

/// The stored byte of a block scale, whose sign is in the codes.
pub(super) fn scale_byte(scale: u8, exponent: i32) -> u8 {
    let folded = e4m3::decode(scale & 0x7F) * exp2(-exponent);
    match () {
        () if folded.is_nan() => NAN,
        () if folded == 0.0 => ZERO,
        // Three bits of mantissa below the leading one, and the exponent, counted from the smallest.
        () if folded < SMALL_BELOW => SMALL_FIRST - ((folded.to_bits() - SMALL_FROM.to_bits()) >> 20) as u8,
        () => e4m3::encode(folded),
    }
}

/// The block scale that a byte stands for in a row with this exponent, if [`scale_byte`] gives it.
pub(super) fn scale_of(byte: u8, exponent: i32) -> Option<u8> {
    let folded = match byte {
        NAN => return Some(e4m3::NAN),
        ZERO => return Some(0),
        byte if byte > SMALL_FIRST - SMALL => {
            f32::from_bits(SMALL_FROM.to_bits() + (u32::from(SMALL_FIRST - byte) << 20))
        }
        byte => e4m3::decode(byte),
    };
    let scale = e4m3::encode(folded * exp2(exponent));
    (folded > 0.0 && scale_byte(scale, exponent) == byte).then_some(scale)
}

/// The word of eight codes along k, the first in the lowest nibble. Magnitudes stay where they are; of the signs, those of
/// the first four are at the bits 7, 15, 23 and 31, those of the others at 3, 11, 19 and 27.
pub(super) fn code_word(codes: u32) -> u32 {
    let sign = |code: u32| codes >> (4 * code + 3) & 1;
    (0..4).fold(codes & 0x7777_7777, |word, i| word | sign(i) << (8 * i + 7) | sign(i + 4) << (8 * i + 3))
}

/// The codes of a word.
pub(super) fn codes_of(word: u32) -> u32 {
    let bit = |at: u32| word >> at & 1;
    (0..4).fold(word & 0x7777_7777, |codes, i| {
        codes | bit(8 * i + 7) << (4 * i + 3) | bit(8 * i + 3) << (4 * (i + 4) + 3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_saturates_and_no_smaller_exponent_would_do() {
        for largest in 1..0x7F {
            let e = row_exponent([largest, 0, 0x7F, 0xFF].into_iter());
            let folded = |e: i32| 6.0 * e4m3::decode(largest) * exp2(-e);
            assert!(folded(e) <= 448.0 && folded(e - 1) > 448.0, "{largest:#x}: {e}");
            assert_eq!(row_exponent([largest | 0x80].into_iter()), e);
        }
        assert_eq!(row_exponent([0, 0x7F, 0x80].into_iter()), 0);
    }

    #[test]
    fn every_scale_of_every_row_has_a_byte_of_its_own() {
        for largest in 1..0x7F {
            let e = row_exponent([largest].into_iter());
            let bytes: std::collections::HashSet<u8> = (0..=largest).map(|scale| scale_byte(scale, e)).collect();
            assert_eq!(bytes.len(), usize::from(largest) + 1);
            for scale in (0..=largest).chain([0x7F]) {
                let byte = scale_byte(scale, e);
                assert!(byte >= 0xFD - 55 || (16..=0x69).contains(&byte), "{scale:#x} of {largest:#x}: {byte:#x}");
                assert_eq!(scale_of(byte, e), Some(scale));
            }
        }
        let known = |byte: &u8| scale_of(*byte, 3).is_some();
        assert!((0..=u8::MAX).filter(known).count() <= 0x7F + 1);
    }

    /// What kernels make of a byte from 16 on, by adding to it.
    #[test]
    fn magnitudes_of_normal_scales_are_sums() {
        for s in 16u8..=0x69 {
            let exact = [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0].map(|code| e4m3::encode(code * e4m3::decode(s)));
            let r = s + 4 + u8::from((1..=5).contains(&(s & 7)));
            if exact[6] < e4m3::NAN - 1 {
                assert_eq!(exact, [s - 8, s, r, s + 8, r + 8, s + 16, r + 16], "{s:#x}");
            }
        }
    }

    #[test]
    fn words_keep_their_codes() {
        for codes in [0, 0x8000_0000, 0x1234_5678, 0xFEDC_BA98, 0x0F0F_0F0F, u32::MAX] {
            assert_eq!(codes_of(code_word(codes)), codes);
        }
        assert_eq!(code_word(0x0000_0008), 0x80, "the first sign becomes the first byte's");
        assert_eq!(code_word(0x0008_0000) << 4 & 0x8080_8080, 0x80, "and so does the fifth, in the second register");
    }

    #[test]
    fn weights_are_rounded_once() {
        assert_eq!(e4m3_value(3, 0x39, 0), 1.75, "1½ · 1.125 lies between 1.625 and 1.75: to the even one");
        assert_eq!(e4m3_value(7, 0x7E, 3), 2560.0, "6 · 448 · 2⁻³ lies between 320 and 352");
        assert_eq!(e4m3_value(9, 1, 3).to_bits(), (-0.0f32).to_bits(), "½ · 2⁻⁹ · 2⁻³ is too small");
        assert!(e4m3_value(0, 0x7F, 0).is_nan());
    }
}
