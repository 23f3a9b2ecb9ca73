//! Weights of any size from a block of random bytes.

use std::array;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use fastrand::Rng;
use half::{bf16, f16};
use warpsmith::Result;
use warpsmith::format::Format;
use warpsmith::internal::format::{BLOCK, e2m1, e4m3, e8m0, row_exponent};
use warpsmith_layers::{Bias, Quantised};

use crate::cores::each_part;
use crate::operands::e4m3_values;
use crate::oracle::combine::rounded;
use crate::oracle::layer::Weight;
use crate::oracle::{Matrix, Scaling};

/// Primes.
const CODES: usize = 1_048_583;
const SCALES: usize = 131_101;
/// Rows that a core decodes at a time.
const ROWS: usize = 64;
/// The root mean square of tokens and of what is between up and down, about.
const TOKENS: f64 = 0.6;

/// What weights are made of.
#[derive(Debug)]
pub(super) struct Drawn {
    codes: Vec<u8>,
    scales: Vec<u8>,
    /// Scales of MXFP4: powers of two nearest to the others.
    powers: Vec<u8>,
    /// The root mean square of code times scale.
    size: f64,
}

impl Drawn {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let codes: Vec<u8> = (0..CODES).map(|_| rng.u8(..)).collect();
        // Two octaves around 1/8, and some of any size.
        let scale = |rng: &mut Rng| match rng.u32(..64) {
            0 => e4m3::encode(0.5 * rng.f32()),
            _ => e4m3::encode(0.125 * (2.0 * rng.f32() - 1.0).exp2()),
        };
        let scales: Vec<u8> = (0..SCALES).map(|_| scale(rng)).collect();
        let power = |scale: &u8| e8m0::encode(e4m3::decode(*scale).max(e4m3::MIN_SUBNORMAL).log2().round() as i32);
        let powers = scales.iter().map(power).collect();
        let mean = |squares: &mut dyn Iterator<Item = f64>, count: usize| squares.sum::<f64>() / count as f64;
        let of_codes = mean(&mut codes.iter().map(|code| f64::from(e2m1::decode(code & 15)).powi(2)), CODES);
        let of_scales = mean(&mut scales.iter().map(|scale| f64::from(e4m3::decode(*scale)).powi(2)), SCALES);
        Self { codes, scales, powers, size: (of_codes * of_scales).sqrt() }
    }

    /// Codes, scales, powers.
    pub(super) fn upload(&self, stream: &Arc<CudaStream>) -> Result<[CudaSlice<u8>; 3]> {
        Ok([stream.clone_htod(&self.codes)?, stream.clone_htod(&self.scales)?, stream.clone_htod(&self.powers)?])
    }
}

/// `[groups, n, k]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// NVFP4 or MXFP4.
    pub(super) format: Format,
    pub(super) groups: u32,
    pub(super) n: u32,
    pub(super) k: u32,
    /// Whether kernels make e4m3 of them.
    pub(super) is_e4m3: bool,
}

impl Shape {
    /// Elements that a scale is for.
    fn block(&self) -> usize {
        self.format.scale_block().unwrap_or(BLOCK)
    }
}

/// The weights of one product.
#[derive(Debug)]
pub(super) struct HostWeight {
    shape: Shape,
    /// Where in the block it begins.
    first: usize,
    /// One for each group.
    alpha: Vec<f32>,
    /// `[groups, n]`, if there is one.
    bias: Vec<f32>,
    /// Of rows, `[groups, n]`, if there are any.
    factors: Vec<f32>,
}

/// What some rows have beside their values; empty, where they have none.
#[derive(Debug)]
pub(super) struct Held {
    bias: Vec<f32>,
    factors: Vec<f32>,
}

impl HostWeight {
    pub(super) fn random(rng: &mut Rng, drawn: &Drawn, shape: Shape, size: f64, bias: Option<Format>) -> Self {
        let alpha = size / (f64::from(shape.k).sqrt() * TOKENS * drawn.size);
        let alpha = (0..shape.groups).map(|_| (alpha * (0.7 + 0.6 * rng.f64())) as f32).collect();
        let count = bias.map_or(0, |_| shape.groups * shape.n);
        let format = bias.unwrap_or(Format::F32);
        let bias = (0..count).map(|_| rounded(format, rng.f32() - 0.5)).collect();
        Self { shape, first: rng.usize(..SCALES), alpha, bias, factors: Vec::new() }
    }

    /// With a factor for each row.
    pub(super) fn with_row_factors(mut self, rng: &mut Rng) -> Self {
        self.factors = (0..self.shape.groups * self.shape.n).map(|_| 0.5 + rng.f32()).collect();
        self
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// On a device: its codes and scales are the drawn ones, over and over.
    pub(super) fn upload(
        &self,
        stream: &Arc<CudaStream>,
        drawn: &[CudaSlice<u8>; 3],
        bias: Option<Format>,
    ) -> Result<Quantised> {
        let (codes, scales) = self.given(stream, drawn)?;
        let quantised = match self.shape.format {
            Format::Mxfp4 => Quantised::mxfp4(codes, scales),
            _ => Quantised::new(codes, scales),
        };
        let quantised = match &self.alpha[..] {
            [one] => quantised.alpha(*one),
            all => quantised.alpha(stream.clone_htod(all)?),
        };
        let quantised = match bias {
            None => quantised,
            Some(format) => quantised.bias(self.bias_in(stream, format)?),
        };
        Ok(if self.factors.is_empty() { quantised } else { quantised.row_scale(stream.clone_htod(&self.factors)?) })
    }

    /// Codes and block scales.
    pub(super) fn given(
        &self,
        stream: &Arc<CudaStream>,
        [codes, scales, powers]: &[CudaSlice<u8>; 3],
    ) -> Result<(CudaSlice<u8>, CudaSlice<u8>)> {
        let Shape { format, groups, n, k, .. } = self.shape;
        let elements = groups as usize * n as usize * k as usize;
        let scales = if format == Format::Mxfp4 { powers } else { scales };
        let codes = repeated(stream, codes, self.first, elements / 2)?;
        Ok((codes, repeated(stream, scales, self.first, elements / self.shape.block())?))
    }

    /// One for each group.
    pub(super) fn alpha(&self) -> &[f32] {
        &self.alpha
    }

    fn bias_in(&self, stream: &Arc<CudaStream>, format: Format) -> Result<Bias> {
        Ok(match format {
            Format::F16 => stream.clone_htod(&self.bias.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>())?.into(),
            Format::Bf16 => {
                stream.clone_htod(&self.bias.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>())?.into()
            }
            _ => stream.clone_htod(&self.bias)?.into(),
        })
    }

    /// What some rows of a group have beside their values.
    pub(super) fn held(&self, group: usize, rows: &[usize]) -> Held {
        let n = self.shape.n as usize;
        let of = |all: &[f32]| rows.iter().filter_map(|row| all.get(group * n + row)).copied().collect();
        Held { bias: of(&self.bias), factors: of(&self.factors) }
    }

    /// Some rows of a group as they are multiplied, with what they have besides.
    pub(super) fn decoded<'a>(
        &self,
        drawn: &Drawn,
        group: usize,
        rows: &[usize],
        held: &'a Held,
    ) -> Result<Weight<'a>> {
        let (n, k) = (self.shape.n as usize, self.shape.k as usize);
        let mut values = vec![0.0; rows.len() * k];
        each_part(rows.chunks(ROWS).zip(values.chunks_mut(ROWS * k)), |(rows, values)| {
            let rows = rows.iter().zip(values.chunks_exact_mut(k));
            rows.for_each(|(row, values)| self.decode_row(drawn, group * n + row, values));
        });
        let known = |values: &'a [f32]| (!values.is_empty()).then_some(values);
        let scaling = Scaling { alpha: self.alpha[group], row_scale: known(&held.factors), bias: known(&held.bias) };
        Ok(Weight { values: Matrix::new(rows.len(), k, values)?, scaling })
    }

    /// One of all groups' rows.
    fn decode_row(&self, drawn: &Drawn, row: usize, values: &mut [f32]) {
        let Shape { format, is_e4m3, .. } = self.shape;
        let (first, block) = (row * values.len(), self.shape.block());
        let scale_at = |element: usize| (self.first + (first + element) / block) % SCALES;
        let scales = (0..values.len()).step_by(block).map(|element| drawn.scales[scale_at(element)]);
        let rounded = is_e4m3.then(|| e4m3_values(row_exponent(scales)));
        for (nth, values) in values.chunks_mut(block).enumerate() {
            let at = scale_at(nth * block);
            let times = |scale: f32| array::from_fn(|code| scale * e2m1::decode(code as u8));
            let of: [f32; 16] = match (format, rounded) {
                (Format::Mxfp4, _) => times(e8m0::decode(drawn.powers[at])),
                (_, Some(rounded)) => rounded[usize::from(drawn.scales[at])],
                (_, None) => times(e4m3::decode(drawn.scales[at])),
            };
            let first = self.first + (first + nth * block) / 2;
            for (pair, values) in values.chunks_exact_mut(2).enumerate() {
                let codes = drawn.codes[(first + pair) % CODES];
                values[0] = of[usize::from(codes & 15)];
                values[1] = of[usize::from(codes >> 4)];
            }
        }
    }
}

/// `length` bytes: those of `drawn` from `first` on, over and over.
pub(super) fn repeated(
    stream: &Arc<CudaStream>,
    drawn: &CudaSlice<u8>,
    first: usize,
    length: usize,
) -> Result<CudaSlice<u8>> {
    let mut all = stream.alloc_zeros::<u8>(length)?;
    let (mut at, mut from) = (0, first);
    while at < length {
        let count = (drawn.len() - from).min(length - at);
        stream.memcpy_dtod(&drawn.slice(from..from + count), &mut all.slice_mut(at..at + count))?;
        (at, from) = (at + count, 0);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use warpsmith::run::Device;
    use warpsmith_testing::null::Null;

    use super::*;

    /// What the oracle decodes is what lies on the device, which here is the host.
    #[test]
    fn the_device_has_what_the_host_decodes() {
        Null::driver();
        let stream = Device::open(0).unwrap().context().new_stream().unwrap();
        let mut rng = Rng::with_seed(3);
        let drawn = Drawn::new(&mut rng);
        let on_device = drawn.upload(&stream).unwrap();
        // More than a block.
        let mut shape = Shape { format: Format::Nvfp4, groups: 5, n: 1000, k: 512, is_e4m3: false };
        let weight = HostWeight::random(&mut rng, &drawn, shape, 1.0, Some(Format::F16));
        let weight = weight.with_row_factors(&mut rng);
        let codes = repeated(&stream, &on_device[0], weight.first, 5 * 1000 * 512 / 2).unwrap();
        let scales = repeated(&stream, &on_device[1], weight.first, 5 * 1000 * 512 / BLOCK).unwrap();
        let (codes, scales) = (stream.clone_dtoh(&codes).unwrap(), stream.clone_dtoh(&scales).unwrap());
        for (group, row) in [(0, 0), (1, 999), (4, 0), (4, 999)] {
            let held = weight.held(group, &[row]);
            let decoded = weight.decoded(&drawn, group, &[row], &held).unwrap();
            let Scaling { alpha, row_scale, bias } = decoded.scaling;
            assert_eq!(alpha, weight.alpha[group]);
            assert_eq!(row_scale, Some(&[weight.factors[group * 1000 + row]][..]));
            assert_eq!(bias, Some(&[weight.bias[group * 1000 + row]][..]));
            for (at, found) in decoded.values.data().iter().enumerate() {
                let element = (group * 1000 + row) * 512 + at;
                let code = if at % 2 == 0 { codes[element / 2] & 15 } else { codes[element / 2] >> 4 };
                assert_eq!(*found, e4m3::decode(scales[element / BLOCK]) * e2m1::decode(code), "{group} {row} {at}");
            }
        }
        // Rounded: by a sixteenth at most, or by 2⁻¹⁰ of a power of two below 12 / 448 times the row's largest scale, 1/2.
        let is_rounded = Shape { is_e4m3: true, ..shape };
        let of = |shape| HostWeight {
            shape,
            first: weight.first,
            alpha: weight.alpha.clone(),
            bias: Vec::new(),
            factors: Vec::new(),
        };
        let nothing = of(shape).held(3, &[5]);
        let plain = weight.decoded(&drawn, 3, &[5], &nothing).unwrap();
        let rounded = of(is_rounded).decoded(&drawn, 3, &[5], &nothing).unwrap();
        let mut others = 0;
        for (rounded, plain) in rounded.values.data().iter().zip(plain.values.data()) {
            assert!((rounded - plain).abs() <= (plain.abs() / 16.0).max(6.0 / 448.0 / 1024.0), "{rounded} {plain}");
            others += usize::from(rounded != plain);
        }
        assert!(others > 50, "{others}");
        // As MXFP4, the same codes with other scales.
        shape.format = Format::Mxfp4;
        let mx = of(shape);
        let powers = repeated(&stream, &on_device[2], mx.first, 5 * 1000 * 512 / 32).unwrap();
        let powers = stream.clone_dtoh(&powers).unwrap();
        let decoded = mx.decoded(&drawn, 4, &[999], &nothing).unwrap();
        for (at, found) in decoded.values.data().iter().enumerate() {
            let element = 4999 * 512 + at;
            let code = codes[element / 2] >> (at % 2 * 4) & 15;
            assert_eq!(*found, e8m0::decode(powers[element / 32]) * e2m1::decode(code), "{at}");
        }
        assert_ne!(codes[..512], codes[512..1024]);
        let squares = |group| {
            let rows: Vec<_> = (0..100).collect();
            let values = weight.decoded(&drawn, group, &rows, &nothing).unwrap().values;
            values.data().iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / values.data().len() as f64
        };
        assert!((squares(0).sqrt() / drawn.size - 1.0).abs() < 0.05);
    }
}
