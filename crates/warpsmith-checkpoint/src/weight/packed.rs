//! Weights as kernels take them.

use std::ops::RangeInclusive;

use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::internal::format::{MX_BLOCK, e4m3, e8m0};
use warpsmith::{Error, Result};

use super::{Grid, Storage, Stored, Weight, power_of_two};

/// Scales that are looked at together.
const LOOK: usize = 1 << 12;

/// The exponents that e4m3 has powers of two for.
const E4M3_EXPONENTS: RangeInclusive<i32> = -9..=8;
/// The exponents over which f16 has all codes times a power of two: half of the least is its least number, six times the
/// largest its own.
const F16_EXPONENTS: RangeInclusive<i32> = -23..=13;

/// A matrix as kernels take it, without a loss: codes, block scales, a factor. In NVFP4, or MXFP4 as it is.
///
/// MXFP4 becomes NVFP4 where its exponents fit: a scale of 32 is said twice, over a power of two that the factor has. Blocks of
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
    /// To become e4m3, with the exponent that is in the factor.
    E8m0(Grid<'a>, i32),
    /// As they are.
    Kept(Grid<'a>),
}

impl<'a> Weight<'a> {
    /// In NVFP4. Of MXFP4 this looks at all scales.
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

    /// In a format that a layer has its weights in: NVFP4, or MXFP4 as it is.
    ///
    /// # Errors
    /// As for [`Weight::packed`]; unsupported, if something else is to be MXFP4.
    pub(crate) fn packed_in(&self, format: Format) -> Result<Packed<'a>> {
        match self.stored {
            Stored::Mxfp4 { codes, scales } if format == Format::Mxfp4 => {
                Ok(Packed { codes, scales: Scales::Kept(scales), factor: 1.0 })
            }
            _ if format == Format::Mxfp4 => {
                let (name, storage) = (&self.name, self.storage());
                let beside = "what it is used with is MXFP4 that does not become NVFP4";
                Err(Error::unsupported(format!("weight `{name}` is {storage}: {beside}")))
            }
            _ => self.packed(),
        }
    }

    /// What multiplies codes and scales in this format.
    ///
    /// # Errors
    /// As for [`Weight::packed`], of MXFP4 that becomes NVFP4.
    pub(crate) fn factor_in(&self, format: Format) -> Result<f32> {
        match self.stored {
            Stored::Mxfp4 { codes, scales } if format != Format::Mxfp4 => {
                Ok(power_of_two(self.exponent(codes, scales)?))
            }
            _ => Ok(self.factor()),
        }
    }

    /// The exponents of MXFP4's scales, of all blocks that are not zero; nothing, if it is stored otherwise.
    ///
    /// # Errors
    /// Data, if one is NaN.
    fn exponents(&self) -> Result<Option<RangeInclusive<i32>>> {
        match self.stored {
            Stored::Mxfp4 { codes, scales } => self.exponents_of(codes, scales).map(Some),
            _ => Ok(None),
        }
    }

    /// Refuses MXFP4 that is more than kernels keep of it where they multiply in f16.
    fn check_f16(&self) -> Result<()> {
        let Some(found) = self.exponents()? else { return Ok(()) };
        if F16_EXPONENTS.contains(found.start()) && F16_EXPONENTS.contains(found.end()) {
            return Ok(());
        }
        let (name, least, most) = (&self.name, found.start(), found.end());
        Err(Error::unsupported(format!(
            "weight `{name}`: its MXFP4 scales are from 2^{least} to 2^{most}, f16 tokens take 2^{} to 2^{}, bf16 tokens all",
            F16_EXPONENTS.start(),
            F16_EXPONENTS.end()
        )))
    }

    /// The same of blocks that lie there; 0, where all are zeros.
    fn exponents_of(&self, codes: Grid<'_>, scales: Grid<'_>) -> Result<RangeInclusive<i32>> {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let mut found: Option<(i32, i32)> = None;
        for row in 0..codes.rows() {
            let blocks = codes.row(row, &mut first).chunks(MX_BLOCK / 2).zip(scales.row(row, &mut second));
            for (block, (codes, scale)) in blocks.enumerate() {
                if e8m0::is_nan(*scale) {
                    return Err(self.nan(row, block));
                }
                let exponent = i32::from(*scale) - e8m0::BIAS;
                let is_within = found.is_some_and(|(least, most)| (least..=most).contains(&exponent));
                // Codes are looked at where they tell something.
                if !is_within && codes.iter().any(|pair| pair & 0x77 != 0) {
                    let (least, most) = found.unwrap_or((exponent, exponent));
                    found = Some((least.min(exponent), most.max(exponent)));
                }
            }
        }
        let (least, most) = found.unwrap_or_default();
        Ok(least..=most)
    }

    /// The exponent that the scales of all blocks that are not zero are in e4m3's range over.
    fn exponent(&self, codes: Grid<'_>, scales: Grid<'_>) -> Result<i32> {
        let found = self.exponents_of(codes, scales)?;
        let (least, most) = (*found.start(), *found.end());
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

/// The format in which layers have these weights, which are used together: NVFP4, but MXFP4 where all are that and one does not
/// become NVFP4. This looks at all scales of MXFP4.
///
/// # Errors
/// Data, if one is NaN; unsupported, if they stay MXFP4, tokens are f16, and exponents are beyond that.
pub(crate) fn format_of<'w, 'a: 'w>(
    weights: impl Iterator<Item = &'w Weight<'a>> + Clone,
    tokens: Option<Format>,
) -> Result<Format> {
    if !weights.clone().all(|weight| weight.storage() == Storage::Mxfp4) {
        return Ok(Format::Nvfp4);
    }
    let is_refused = |weight: &Weight<'_>| match weight.packed() {
        Ok(_) => Ok(false),
        Err(error) if error.is_unsupported() => Ok(true),
        Err(error) => Err(error),
    };
    let mut stays = false;
    for weight in weights.clone() {
        stays = stays || is_refused(weight)?;
    }
    if !stays {
        return Ok(Format::Nvfp4);
    }
    if tokens == Some(Format::F16) {
        weights.clone().try_for_each(Weight::check_f16)?;
    }
    Ok(Format::Mxfp4)
}

impl<'a> Packed<'a> {
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

    /// All codes, K/2 bytes a row.
    pub(crate) fn codes(&self) -> Source<'a> {
        Source::Rows(self.codes)
    }

    /// All scales as kernels take them, K/16 bytes a row, of MXFP4 K/32.
    pub(crate) fn scales(&self) -> Source<'a> {
        match self.scales {
            Scales::E4m3(scales) => Source::Scales(scales, Nan::E4m3),
            Scales::Kept(scales) => Source::Scales(scales, Nan::E8m0),
            Scales::E8m0(scales, above) => Source::Powers(scales, above),
        }
    }

    /// Looks at all scales that kernels take as they are.
    ///
    /// # Errors
    /// Data, if one is NaN.
    pub(crate) fn check_scales(&self) -> Result<()> {
        let Source::Scales(scales, nan) = self.scales() else { return Ok(()) };
        let mut room = Vec::new();
        (0..scales.rows()).try_for_each(|row| nan.check(scales.row(row, &mut room), row))
    }
}

/// Bytes of a matrix as a device gets them, wherever they lie.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// As they are.
    Rows(Grid<'a>),
    /// As they are, unless one is NaN.
    Scales(Grid<'a>, Nan),
    /// e8m0 scales of 32 as two e4m3 ones each, over a power of two.
    Powers(Grid<'a>, i32),
}

impl Source<'_> {
    /// How many.
    pub(crate) fn bytes(&self) -> usize {
        let (Self::Rows(grid) | Self::Scales(grid, _) | Self::Powers(grid, _)) = self;
        grid.rows() * self.of_row()
    }

    fn of_row(&self) -> usize {
        match self {
            Self::Rows(grid) | Self::Scales(grid, _) => grid.row_bytes(),
            Self::Powers(grid, _) => 2 * grid.row_bytes(),
        }
    }

    /// Writes those from `at` on. Whether none of them is NaN that may not be.
    pub(crate) fn write(&self, at: usize, to: &mut [u8]) -> bool {
        match self {
            Self::Rows(grid) | Self::Scales(grid, _) => match grid.all() {
                Some(all) => to.copy_from_slice(&all[at..][..to.len()]),
                None => self.write_rows(at, to),
            },
            Self::Powers(..) => self.write_rows(at, to),
        }
        !matches!(self, Self::Scales(_, nan) if nan.is_in(to))
    }

    fn write_rows(&self, at: usize, mut to: &mut [u8]) {
        let (mut row, mut before, mut room, mut made) =
            (at / self.of_row(), at % self.of_row(), Vec::new(), Vec::new());
        while !to.is_empty() {
            let bytes = match self {
                Self::Rows(grid) | Self::Scales(grid, _) => grid.row(row, &mut room),
                Self::Powers(grid, above) => {
                    made.clear();
                    made.extend(grid.row(row, &mut room).iter().flat_map(|scale| [power_over(*scale, *above); 2]));
                    &made
                }
            };
            let (now, later) = to.split_at_mut(to.len().min(bytes.len() - before));
            now.copy_from_slice(&bytes[before..][..now.len()]);
            (to, row, before) = (later, row + 1, 0);
        }
    }
}

/// An e8m0 scale over a power of two, as e4m3 has it.
fn power_over(scale: u8, above: i32) -> u8 {
    // Only blocks of zeros are outside.
    let exponent = i32::from(scale) - e8m0::BIAS - above;
    power_as_e4m3(exponent.clamp(*E4M3_EXPONENTS.start(), *E4M3_EXPONENTS.end()))
}

/// Which scales are none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Nan {
    E4m3,
    E8m0,
}

impl Nan {
    /// Whether there is one.
    fn is_in(self, scales: &[u8]) -> bool {
        // Without a branch or a call for each, so that many are looked at at once.
        fn any(scales: &[u8], is_nan: impl Fn(u8) -> bool) -> bool {
            scales.chunks(LOOK).any(|some| some.iter().fold(0, |nan, scale| nan | u8::from(is_nan(*scale))) != 0)
        }
        match self {
            Self::E4m3 => any(scales, e4m3::is_nan),
            Self::E8m0 => any(scales, e8m0::is_nan),
        }
    }

    /// Refuses a row of scales with one.
    fn check(self, scales: &[u8], row: usize) -> Result<()> {
        if !self.is_in(scales) {
            return Ok(());
        }
        let block = scales.iter().position(|scale| self.is_in(&[*scale])).unwrap_or(0);
        Err(Error::data(format!("the scale of row {row}, block {block} is NaN")))
    }
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
