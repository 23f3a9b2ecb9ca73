//! Weights as kernels take them.

use warpsmith::internal::Raise;
use warpsmith::internal::format::e4m3;
use warpsmith::{Error, Result};

use super::{Grid, MX_BLOCK, Storage, Stored, Weight, power_of_two};

/// Scales that are looked at together.
const LOOK: usize = 1 << 12;

/// The exponents that e4m3 has powers of two for.
const E4M3_EXPONENTS: std::ops::RangeInclusive<i32> = -9..=8;

/// A matrix in NVFP4, without a loss: codes, e4m3 scales, a factor.
///
/// MXFP4 becomes that where its exponents fit: a scale of 32 is said twice, over a power of two that the factor has. Blocks of
/// zeros have any scale.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    codes: Grid<'a>,
    scales: Scales<'a>,
    factor: f32,
}

#[derive(Clone, Copy, Debug)]
enum Scales<'a> {
    E4m3(Grid<'a>),
    /// With the exponent that is in the factor.
    E8m0(Grid<'a>, i32),
}

impl<'a> Weight<'a> {
    /// As kernels take it. Of MXFP4 this looks at all scales.
    ///
    /// # Errors
    /// Unsupported, if it is stored otherwise, or in MXFP4 with exponents that are too far apart; data, if one of those is NaN.
    pub fn packed(&self) -> Result<Packed<'a>> {
        match self.stored {
            Stored::Nvfp4 { codes, scales, factor } => {
                Ok(Packed { codes, scales: Scales::E4m3(scales), factor: factor.multiplier() })
            }
            Stored::Mxfp4 { codes, scales } => {
                let above = self.exponent(codes, scales)?;
                Ok(Packed { codes, scales: Scales::E8m0(scales, above), factor: power_of_two(above) })
            }
            Stored::Fp8 { .. } | Stored::Plain { .. } => {
                let (name, storage) = (&self.name, self.storage());
                let takes = [Storage::Nvfp4, Storage::Mxfp4].map(|storage| storage.to_string()).join(" or ");
                Err(Error::unsupported(format!(
                    "weight `{name}` is {storage}, kernels take {takes}: quantise it first"
                )))
            }
        }
    }

    /// The exponent that the scales of all blocks that are not zero are in e4m3's range over.
    fn exponent(&self, codes: Grid<'_>, scales: Grid<'_>) -> Result<i32> {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let mut found: Option<(i32, i32)> = None;
        for row in 0..codes.rows() {
            let blocks = codes.row(row, &mut first).chunks(MX_BLOCK / 2).zip(scales.row(row, &mut second));
            for (block, (codes, scale)) in blocks.enumerate() {
                if *scale == u8::MAX {
                    return Err(self.nan(row, block));
                }
                if codes.iter().any(|pair| pair & 0x77 != 0) {
                    let exponent = i32::from(*scale) - 127;
                    let (least, most) = found.unwrap_or((exponent, exponent));
                    found = Some((least.min(exponent), most.max(exponent)));
                }
            }
        }
        let (least, most) = found.unwrap_or_default();
        let span = E4M3_EXPONENTS.end() - E4M3_EXPONENTS.start();
        if most - least > span {
            let name = &self.name;
            return Err(Error::unsupported(format!(
                "weight `{name}`: its MXFP4 scales are from 2^{least} to 2^{most}, {span} powers of two apart at most become NVFP4"
            )));
        }
        // As high as the largest allows, and within what f32 has.
        Ok(most - E4M3_EXPONENTS.end())
    }
}

impl Packed<'_> {
    /// N.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.codes.rows()
    }

    /// K.
    #[must_use]
    pub fn columns(&self) -> usize {
        2 * self.codes.columns()
    }

    /// What multiplies code times scale.
    #[must_use]
    pub fn factor(&self) -> f32 {
        self.factor
    }

    /// The codes of a row: K/2 bytes, where they lie, or in `room`.
    pub(crate) fn codes_of<'r>(&'r self, row: usize, room: &'r mut Vec<u8>) -> &'r [u8] {
        self.codes.row(row, room)
    }

    /// All codes, where they lie one row behind the other.
    pub(crate) fn all_codes(&self) -> Option<&[u8]> {
        self.codes.all()
    }

    /// All scales, where they lie one row behind the other as kernels take them.
    ///
    /// # Errors
    /// Data, if one is NaN.
    pub(crate) fn all_scales(&self) -> Result<Option<&[u8]>> {
        let Scales::E4m3(scales) = self.scales else { return Ok(None) };
        let Some(all) = scales.all() else { return Ok(None) };
        // In blocks that are looked at as a whole, before where is asked for.
        let has_nan = |block: &[u8]| block.iter().fold(0, |nan, scale| nan | u8::from(e4m3::is_nan(*scale))) != 0;
        match all.chunks(LOOK).position(has_nan) {
            None => Ok(Some(all)),
            Some(block) => {
                let at = block * LOOK + all[block * LOOK..].iter().position(|scale| e4m3::is_nan(*scale)).unwrap_or(0);
                let columns = scales.columns().max(1);
                Err(nan(at / columns, at % columns))
            }
        }
    }

    /// The scales of a row: K/16 bytes, where they lie, or in `room`.
    ///
    /// # Errors
    /// Data, if one is NaN.
    pub(crate) fn scales_of<'r>(&'r self, row: usize, room: &'r mut Vec<u8>) -> Result<&'r [u8]> {
        match self.scales {
            Scales::E4m3(scales) => {
                let scales = scales.row(row, room);
                match scales.iter().position(|scale| e4m3::is_nan(*scale)) {
                    Some(block) => Err(nan(row, block)),
                    None => Ok(scales),
                }
            }
            Scales::E8m0(scales, above) => {
                let mut held = Vec::new();
                let scales = scales.row(row, &mut held).iter().map(|scale| {
                    // Only blocks of zeros are outside.
                    let exponent = i32::from(*scale) - 127 - above;
                    power_as_e4m3(exponent.clamp(*E4M3_EXPONENTS.start(), *E4M3_EXPONENTS.end()))
                });
                room.clear();
                room.extend(scales.flat_map(|scale| [scale; 2]));
                Ok(room)
            }
        }
    }
}

fn nan(row: usize, block: usize) -> Error {
    Error::data(format!("the scale of row {row}, block {block} is NaN"))
}

/// 2 to a power that e4m3 has.
fn power_as_e4m3(power: i32) -> u8 {
    // From 2⁻⁶ on an exponent, below a bit of the mantissa.
    if power >= -6 { ((power + 7) << 3) as u8 } else { 1 << (power + 9) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_themselves_in_e4m3() {
        for power in E4M3_EXPONENTS {
            assert_eq!(e4m3::decode(power_as_e4m3(power)), power_of_two(power), "2^{power}");
        }
    }
}
