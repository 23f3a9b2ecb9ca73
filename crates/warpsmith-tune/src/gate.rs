//! The comparing half of the correctness gate: bytes that a kernel left behind → [`GateReport`].
//!
//! A result is written into the middle of one buffer:
//!
//! ```text
//! | canary | result: M × N elements, row-major | canary |
//!   known    poison: a NaN of the format,        known
//!   bytes    of a pattern no kernel computes     bytes
//! ```
//!
//! A result in NVFP4 is two such pieces in one buffer, codes and scales, with canaries before, between and behind; scales that
//! the 128x4 layout pads are to be left alone. No code is a NaN: the poison of each is the code farthest from what it should be.
//!
//! [`Guarded`] makes these bytes before the launch and reads them afterwards. An element that still holds the poison
//! was not written, which is wrong even where NaN is right; a canary byte that changed was written from outside; every
//! other element is measured against its [`Expected`]. The comparison is "is it right?", not "is it wrong?", so that no
//! NaN slips through.

use std::borrow::Cow;
use std::fmt;
use std::ops::{ControlFlow, Range};

use crate::cores::cores;
use crate::oracle::{Coding, Expected, Reference, RightScales, error_of_code};
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::format::{BLOCK, e2m1, e4m3};
use warpsmith::internal::{Raise, crew};
use warpsmith::{Error, Result};

/// The canaries are at least this long, and a multiple of it, so that the result keeps the buffer's alignment.
const CANARY_STEP: usize = 4096;
/// Ends every poisoned element: sign, a full exponent and some payload in f16, bf16 and f32 alike.
const POISON_TOP: u8 = 0xFF;
/// Every other byte of a poisoned element. Arithmetic's own NaN is 0x7FFF or 0x7FFF_FFFF, never this.
const POISON_REST: u8 = 0xA5;

/// A negative NaN, which no kernel stores.
const POISON_SCALE: u8 = 0xFF;
/// −6 twice.
const POISON_CODES: u8 = 0xFF;

/// Judging so many elements takes longer than starting a thread for them.
const ELEMENTS_A_THREAD: usize = 1 << 15;

/// A result between two canaries: its sizes, its bytes before the launch, and the judgement of its bytes afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    m: usize,
    n: usize,
    output: Format,
    /// Of block scales, if there are such.
    layout: Option<ScaleLayout>,
    canary: usize,
}

impl Guarded {
    /// A guarded `[m, n]` result of the format f16, bf16 or f32. Each canary is at least a row long, so that a store
    /// that is a row off lands in it.
    ///
    /// # Errors
    /// [`Error::is_unsupported`] for another format.
    pub fn new(m: usize, n: usize, output: Format) -> Result<Self> {
        if output.scale_block().is_some() {
            return Err(Error::unsupported(format!("{output} is no output format: expected f16, bf16 or f32")));
        }
        Ok(Self { m, n, output, layout: None, canary: canary_of(output, n) })
    }

    /// A guarded `[m, n]` result in NVFP4, with scales in this layout.
    #[must_use]
    pub fn coded(m: usize, n: usize, layout: ScaleLayout) -> Self {
        Self { m, n, output: Format::Nvfp4, layout: Some(layout), canary: canary_of(Format::Nvfp4, n) }
    }

    /// The guarded result that fits a reference.
    ///
    /// # Errors
    /// As [`Guarded::new`].
    pub fn fitting(reference: &Reference) -> Result<Self> {
        match reference.coding() {
            Some(coding) => Ok(Self::coded(reference.m(), reference.n(), coding.layout())),
            None => Self::new(reference.m(), reference.n(), reference.output()),
        }
    }

    /// Bytes of the whole buffer.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.scales().unwrap_or(self.result()).end + self.canary
    }

    /// Where in the buffer the result lies, or its codes; its begin is a multiple of 4096, its end is the last element's.
    #[must_use]
    pub fn result(&self) -> Range<usize> {
        self.canary..self.canary + self.output.bytes(self.m * self.n)
    }

    /// Where in the buffer its block scales lie, if it has such.
    #[must_use]
    pub fn scales(&self) -> Option<Range<usize>> {
        let begin = self.result().end.next_multiple_of(CANARY_STEP) + self.canary;
        self.layout.map(|layout| begin..begin + layout.bytes(self.m, self.n))
    }

    /// The bytes of the result in the buffer: values, or codes and then scales.
    #[must_use]
    pub fn found<'b>(&self, buffer: &'b [u8]) -> Cow<'b, [u8]> {
        let result = &buffer[self.result()];
        self.scales().map_or(Cow::Borrowed(result), |scales| [result, &buffer[scales]].concat().into())
    }

    /// The buffer before the launch: canaries and poison. Codes are poisoned as is right for a reference
    /// ([`Guarded::fill_for`]) of zeros.
    #[must_use]
    pub fn fill(&self) -> Vec<u8> {
        let (result, scales) = (self.result(), self.scales().unwrap_or_default());
        let mut buffer = vec![POISON_REST; self.bytes()];
        match self.layout {
            Some(_) => buffer[result.clone()].fill(POISON_CODES),
            None => {
                let elements = buffer[result.clone()].chunks_exact_mut(self.output.bytes(1));
                elements.filter_map(<[u8]>::last_mut).for_each(|top| *top = POISON_TOP);
            }
        }
        buffer[scales.clone()].fill(POISON_SCALE);
        let around = (0..result.start).chain(result.end..buffer.len()).filter(|at| !scales.contains(at));
        around.for_each(|at| buffer[at] = canary(at));
        buffer
    }

    /// The same for a result that is judged by this reference.
    #[must_use]
    pub fn fill_for(&self, reference: &Reference) -> Vec<u8> {
        let mut buffer = self.fill();
        if self.layout.is_some() {
            let codes = buffer[self.result()].iter_mut().zip(reference.elements().chunks_exact(2));
            codes.for_each(|(codes, pair)| *codes = poison_code(&pair[0]) | poison_code(&pair[1]) << 4);
        }
        buffer
    }

    /// Judges the buffer after the launch.
    ///
    /// # Errors
    /// [`Error::is_data`] if the buffer has not [`Guarded::bytes`] bytes, or if the reference is of another shape or
    /// format.
    pub fn judge(&self, buffer: &[u8], reference: &Reference) -> Result<GateReport> {
        if buffer.len() != self.bytes() {
            let (needed, found) = (self.bytes(), buffer.len());
            return Err(Error::data(format!("the guarded result has {needed} bytes, found {found}")));
        }
        if Self::fitting(reference)? != *self {
            let (m, n, output) = (reference.m(), reference.n(), reference.output());
            let needed = format!("{}×{} {}", self.m, self.n, self.output);
            return Err(Error::data(format!("the guarded result is {needed}, the reference {m}×{n} {output}")));
        }
        if let Some(coding) = reference.coding() {
            return Ok(self.judge_coded(buffer, reference, coding));
        }
        let (found, expected) = (&buffer[self.result()], reference.elements());
        // A thread for every so many elements: it is judged sooner than the next kernel is built.
        let threads = cores().min(expected.len() / ELEMENTS_A_THREAD).max(1);
        let share = expected.len().div_ceil(threads).max(1);
        let parts: Vec<_> = found.chunks(self.output.bytes(share)).zip(expected.chunks(share)).enumerate().collect();
        let judged = crew::each(&parts, threads, |(part, (found, expected))| {
            ControlFlow::Continue(self.judge_part(part * share, found, expected))
        });
        let whole = GateReport::new(self, self.damaged(buffer));
        Ok(judged.into_iter().map(|(_, part)| part).fold(whole, GateReport::followed_by))
    }

    /// The verdict on the elements from `first` on.
    fn judge_part(&self, first: usize, found: &[u8], expected: &[Expected]) -> GateReport {
        let mut verdict = GateReport::new(self, None);
        for (at, (bytes, expected)) in found.chunks_exact(self.output.bytes(1)).zip(expected).enumerate() {
            let got = self.read(bytes);
            let error = match got {
                None if expected.is_untouched() => 0.0,
                Some(got) if !expected.is_untouched() => expected.error(got, self.output),
                _ => f64::INFINITY,
            };
            verdict.add(first + at, error, got, expected);
        }
        verdict
    }

    /// The verdict on codes and scales, block by block.
    fn judge_coded(&self, buffer: &[u8], reference: &Reference, coding: &Coding) -> GateReport {
        let mut verdict = GateReport::new(self, self.damaged(buffer).or_else(|| self.damaged_padding(buffer, coding)));
        let (codes, scales) = (&buffer[self.result()], &buffer[self.scales().unwrap_or_default()]);
        let blocks = reference.elements().chunks_exact(BLOCK).zip(codes.chunks_exact(BLOCK / 2));
        for (at, (expected, codes)) in blocks.enumerate() {
            let (row, block) = (at / (self.n / BLOCK), at % (self.n / BLOCK));
            let (scale, factor) = (scales[coding.layout().offset(self.n, row, block)], coding.factors()[row]);
            let code = |i: usize| codes[i / 2] >> (4 * (i % 2)) & 15;
            if expected[0].is_untouched() {
                for (i, expected) in expected.iter().enumerate() {
                    let is_left = scale == POISON_SCALE && code(i) == poison_code(expected);
                    let got = f64::from(e4m3::decode(scale)) * f64::from(e2m1::decode(code(i)));
                    let (error, got) = if is_left { (0.0, None) } else { (f64::INFINITY, Some(got)) };
                    verdict.add(at * BLOCK + i, error, got, expected);
                }
                continue;
            }
            let is_nan = expected.iter().any(|element| element.value.is_nan());
            let is_scale_right = RightScales::of(expected, factor).accepts(scale);
            for (i, expected) in expected.iter().enumerate() {
                let of_code = error_of_code(expected, is_nan, scale, factor, code(i));
                let error = if is_scale_right { of_code } else { f64::INFINITY };
                let unit = f64::from(e4m3::decode(scale)) * f64::from(factor);
                let got = (scale != POISON_SCALE).then(|| unit * f64::from(e2m1::decode(code(i))));
                verdict.add(at * BLOCK + i, error, got, expected);
            }
        }
        verdict
    }

    /// The first damaged canary byte.
    fn damaged(&self, buffer: &[u8]) -> Option<usize> {
        let (result, scales) = (self.result(), self.scales().unwrap_or(self.bytes()..self.bytes()));
        let outside = (0..result.start).chain(result.end..scales.start).chain(scales.end..buffer.len());
        outside.into_iter().find(|&at| buffer[at] != canary(at))
    }

    /// The first scale that was written although no row has it.
    fn damaged_padding(&self, buffer: &[u8], coding: &Coding) -> Option<usize> {
        let scales = self.scales()?;
        let mut is_of_row = vec![false; scales.len()];
        for at in 0..self.m * (self.n / BLOCK) {
            is_of_row[coding.layout().offset(self.n, at / (self.n / BLOCK), at % (self.n / BLOCK))] = true;
        }
        let left = scales.clone().zip(is_of_row).filter(|(_, is_of_row)| !is_of_row);
        left.map(|(at, _)| at).find(|&at| buffer[at] != POISON_SCALE)
    }

    /// An element, or `None` if it still holds the poison.
    fn read(&self, bytes: &[u8]) -> Option<f64> {
        match *bytes {
            [POISON_REST, POISON_TOP] | [POISON_REST, POISON_REST, POISON_REST, POISON_TOP] => None,
            [low, high] if self.output == Format::Bf16 => Some(half::bf16::from_le_bytes([low, high]).to_f64()),
            [low, high] => Some(half::f16::from_le_bytes([low, high]).to_f64()),
            [a, b, c, d] => Some(f64::from(f32::from_le_bytes([a, b, c, d]))),
            _ => None,
        }
    }
}

fn canary_of(output: Format, n: usize) -> usize {
    output.bytes(n).next_multiple_of(CANARY_STEP).max(CANARY_STEP)
}

/// The code farthest from an element, which is right nowhere but where nothing is known.
fn poison_code(element: &Expected) -> u8 {
    if element.value < 0.0 { 7 } else { 15 }
}

/// The canary byte at an offset of the buffer: neither constant nor periodic in any stride a kernel has, so that
/// neither a fill nor a shifted copy goes unseen. One multiplication alone would nearly repeat at Fibonacci strides
/// (Knuth, TAOCP 3, 6.4); the second, of the folded bits, breaks that.
fn canary(at: usize) -> u8 {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let mixed = (at as u64 + 1).wrapping_mul(GOLDEN);
    ((mixed ^ mixed >> 32).wrapping_mul(GOLDEN) >> 56) as u8
}

/// An element that is outside its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bad {
    /// Its row.
    pub row: usize,
    /// Its column.
    pub col: usize,
    /// What was found; `None` if it was never written.
    pub got: Option<f64>,
    /// What it should be, and within which bound.
    pub expected: Expected,
}

/// What the gate says of a kernel. Its text is one sentence.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct GateReport {
    n: usize,
    elements: usize,
    worst: f64,
    worst_at: (usize, usize),
    mismatches: usize,
    first_bad: Option<Bad>,
    result: Range<usize>,
    damaged: Option<usize>,
}

impl GateReport {
    fn new(guarded: &Guarded, damaged: Option<usize>) -> Self {
        Self {
            n: guarded.n,
            elements: guarded.m * guarded.n,
            worst: 0.0,
            worst_at: (0, 0),
            mismatches: 0,
            first_bad: None,
            result: guarded.result(),
            damaged,
        }
    }

    fn add(&mut self, at: usize, error: f64, got: Option<f64>, expected: &Expected) {
        let (row, col) = (at / self.n, at % self.n);
        if error > self.worst {
            (self.worst, self.worst_at) = (error, (row, col));
        }
        let right = error <= 1.0;
        if !right {
            self.mismatches += 1;
            self.first_bad.get_or_insert(Bad { row, col, got, expected: *expected });
        }
    }

    /// This verdict and that on later elements, as one.
    fn followed_by(mut self, later: GateReport) -> Self {
        if later.worst > self.worst {
            (self.worst, self.worst_at) = (later.worst, later.worst_at);
        }
        self.mismatches += later.mismatches;
        self.first_bad = self.first_bad.or(later.first_bad);
        self
    }

    /// Every element is within its bound and nothing was written outside.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.mismatches == 0 && self.damaged.is_none()
    }

    /// The largest error over its bound: at most 1 if all elements are right, +∞ for a NaN or an unwritten element.
    #[must_use]
    pub fn worst(&self) -> f64 {
        self.worst
    }

    /// Row and column of the largest error.
    #[must_use]
    pub fn worst_at(&self) -> (usize, usize) {
        self.worst_at
    }

    /// How many elements are outside their bounds.
    #[must_use]
    pub fn mismatches(&self) -> usize {
        self.mismatches
    }

    /// The first element, row by row, that is outside its bound.
    #[must_use]
    pub fn first_bad(&self) -> Option<Bad> {
        self.first_bad
    }

    /// The offset in the buffer of the first canary byte that has changed.
    #[must_use]
    pub fn damaged_canary(&self) -> Option<usize> {
        self.damaged
    }
}

impl fmt::Display for GateReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (row, col) = self.worst_at;
        match self.first_bad {
            Some(bad) => write!(f, "wrong: {} of {} elements, first {bad}", self.mismatches, self.elements)?,
            None => {
                let word = if self.passed() { "right" } else { "wrong" };
                let (elements, worst) = (self.elements, self.worst);
                write!(f, "{word}: {elements} elements within {worst:.3} of their bounds (row {row}, column {col})")?;
            }
        }
        match self.damaged {
            Some(at) if at < self.result.start => {
                write!(f, "; memory {} bytes before the result was overwritten", self.result.start - at)
            }
            Some(at) => write!(f, "; memory {} bytes after the result's end was overwritten", at - self.result.end),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Expected { value, bound } = self.expected;
        write!(f, "at row {}, column {}: ", self.row, self.col)?;
        match self.got {
            Some(got) if self.expected.is_untouched() => write!(f, "found {got:?}, expected nothing to be written"),
            Some(got) => write!(f, "found {got:?}, expected {value:?} ± {bound:.3e}"),
            None => write!(f, "never written, expected {value:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(output: Format) -> Reference {
        let elements = (0..6).map(|i| Expected { value: f64::from(i), bound: 0.25 }).collect();
        Reference::new(2, 3, output, elements).unwrap()
    }

    fn written(output: Format) -> (Guarded, Vec<u8>) {
        let guarded = Guarded::fitting(&reference(output)).unwrap();
        let mut buffer = guarded.fill();
        let values: Vec<u8> = (0..6u8)
            .map(f32::from)
            .flat_map(|x| match output {
                Format::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
                Format::Bf16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
                _ => x.to_le_bytes().to_vec(),
            })
            .collect();
        buffer[guarded.result()].copy_from_slice(&values);
        (guarded, buffer)
    }

    #[test]
    fn a_right_result_passes_in_every_format() {
        for output in [Format::F16, Format::Bf16, Format::F32] {
            let (guarded, buffer) = written(output);
            let verdict = guarded.judge(&buffer, &reference(output)).unwrap();
            assert!(verdict.passed() && verdict.worst() == 0.0);
            assert_eq!(verdict.to_string(), "right: 6 elements within 0.000 of their bounds (row 0, column 0)");
        }
    }

    #[test]
    fn what_is_to_be_left_alone_is() {
        let (guarded, mut buffer) = written(Format::F16);
        let mut elements = reference(Format::F16).elements().to_vec();
        elements[4] = Expected::UNTOUCHED;
        let reference = Reference::new(2, 3, Format::F16, elements).unwrap();
        let verdict = guarded.judge(&buffer, &reference).unwrap();
        let text = "wrong: 1 of 6 elements, first at row 1, column 1: found 4.0, expected nothing to be written";
        assert_eq!(verdict.to_string(), text);
        let at = guarded.result().start + 8;
        buffer[at..at + 2].copy_from_slice(&guarded.fill()[at..at + 2]);
        assert!(guarded.judge(&buffer, &reference).unwrap().passed());
    }

    #[test]
    fn an_untouched_buffer_is_wrong_everywhere_even_where_nan_is_right() {
        for output in [Format::F16, Format::Bf16, Format::F32] {
            let elements = vec![Expected { value: f64::NAN, bound: f64::NAN }; 6];
            let reference = Reference::new(2, 3, output, elements).unwrap();
            let guarded = Guarded::fitting(&reference).unwrap();
            let verdict = guarded.judge(&guarded.fill(), &reference).unwrap();
            assert_eq!((verdict.mismatches(), verdict.worst(), verdict.damaged_canary()), (6, f64::INFINITY, None));
            let text = "wrong: 6 of 6 elements, first at row 0, column 0: never written, expected NaN";
            assert_eq!(verdict.to_string(), text);
        }
    }

    /// Three rows of 64 numbers, the second of them untouched, in either layout.
    fn coded(layout: ScaleLayout) -> (Guarded, Vec<u8>, Reference) {
        let value = |at: usize| Expected { value: (at % 13) as f64 - 6.0, bound: 0.01 };
        let reference = Reference::new(2, 64, Format::F32, (0..128).map(value).collect()).unwrap();
        let reference = reference.coded(Coding::new(layout, vec![0.5, 2.0], 64).unwrap()).unwrap();
        let reference = reference.of_rows(&[Some(0), None, Some(1)]);
        let guarded = Guarded::fitting(&reference).unwrap();
        let mut buffer = guarded.fill_for(&reference);
        let right = reference.quantised().unwrap();
        let (codes, scales) = right.split_at(96);
        for row in [0, 2] {
            let start = guarded.result().start + row * 32;
            buffer[start..start + 32].copy_from_slice(&codes[row * 32..][..32]);
            for block in 0..4 {
                let at = layout.offset(64, row, block);
                buffer[guarded.scales().unwrap().start + at] = scales[at];
            }
        }
        (guarded, buffer, reference)
    }

    #[test]
    fn codes_and_scales_are_judged_each() {
        for layout in [ScaleLayout::Linear, ScaleLayout::Swizzled128x4] {
            let (guarded, buffer, reference) = coded(layout);
            let judge = |at: usize, byte: u8| {
                let mut buffer = buffer.clone();
                buffer[at] = byte;
                let verdict = guarded.judge(&buffer, &reference).unwrap();
                (verdict.mismatches(), verdict.damaged_canary().is_some())
            };
            let (codes, scales) = (guarded.result(), guarded.scales().unwrap());
            assert_eq!(judge(codes.start, buffer[codes.start]), (0, false), "{layout}");
            assert_eq!(guarded.found(&buffer).len(), codes.len() + scales.len());
            assert_eq!(
                judge(codes.start + 1, guarded.fill_for(&reference)[codes.start + 1]),
                (2, false),
                "not written"
            );
            assert_eq!(judge(codes.start, buffer[codes.start] ^ 0x80), (1, false), "a sign");
            assert_eq!(judge(codes.start + 33, 0x21), (2, false), "an untouched row");
            let scale = scales.start + layout.offset(64, 2, 1);
            assert_eq!(judge(scale, buffer[scale] + 1), (16, false), "the next scale");
            assert_eq!(judge(scale, POISON_SCALE), (16, false), "no scale");
            assert_eq!(judge(scales.start + layout.offset(64, 1, 1), 0x38), (16, false), "an untouched row's scale");
            assert_eq!(judge(codes.end, buffer[codes.end] ^ 1), (0, true), "between the two");
            assert_eq!(judge(scales.end, buffer[scales.end] ^ 1), (0, true), "behind both");
            if layout == ScaleLayout::Swizzled128x4 {
                assert_eq!(judge(scales.start + layout.offset(64, 3, 0), 0), (0, true), "padding");
            }
        }
    }

    #[test]
    fn poison_is_a_nan_of_every_format() {
        assert!(half::f16::from_le_bytes([POISON_REST, POISON_TOP]).is_nan());
        assert!(half::bf16::from_le_bytes([POISON_REST, POISON_TOP]).is_nan());
        assert!(f32::from_le_bytes([POISON_REST, POISON_REST, POISON_REST, POISON_TOP]).is_nan());
    }

    #[test]
    fn the_first_bad_element_and_the_worst_are_named() {
        let (guarded, mut buffer) = written(Format::F32);
        let at = guarded.result().start;
        buffer[at + 8..at + 12].copy_from_slice(&2.5f32.to_le_bytes());
        buffer[at + 20..at + 24].copy_from_slice(&f32::NAN.to_le_bytes());
        let verdict = guarded.judge(&buffer, &reference(Format::F32)).unwrap();
        assert_eq!((verdict.mismatches(), verdict.worst(), verdict.worst_at()), (2, f64::INFINITY, (1, 2)));
        assert_eq!(
            verdict.to_string(),
            "wrong: 2 of 6 elements, first at row 0, column 2: found 2.5, expected 2.0 ± 2.500e-1"
        );
    }

    #[test]
    fn many_elements_are_judged_as_few_are() {
        let (m, n) = (300, 1000);
        let elements = (0..m * n).map(|at| Expected { value: (at % 7) as f64, bound: 0.25 }).collect();
        let reference = Reference::new(m, n, Format::F32, elements).unwrap();
        let guarded = Guarded::fitting(&reference).unwrap();
        let mut buffer = guarded.fill();
        let result = guarded.result();
        for (at, bytes) in buffer[result].chunks_exact_mut(4).enumerate() {
            let off = if at % 90_001 == 90_000 { 0.5 + at as f32 * 1e-6 } else { 0.0 };
            bytes.copy_from_slice(&((at % 7) as f32 + off).to_le_bytes());
        }
        let verdict = guarded.judge(&buffer, &reference).unwrap();
        let first = verdict.first_bad().map(|bad| (bad.row, bad.col));
        assert_eq!((verdict.mismatches(), first, verdict.worst_at()), (3, Some((90, 0)), (270, 2)));
    }

    #[test]
    fn every_canary_byte_is_watched() {
        let (guarded, buffer) = written(Format::F16);
        assert_eq!((guarded.result(), guarded.bytes()), (4096..4108, 4096 + 12 + 4096));
        for at in (0..4096).chain(4108..guarded.bytes()).step_by(5) {
            let mut buffer = buffer.clone();
            buffer[at] ^= 1;
            let verdict = guarded.judge(&buffer, &reference(Format::F16)).unwrap();
            assert!(!verdict.passed() && verdict.damaged_canary() == Some(at));
        }
    }

    #[test]
    fn the_canary_is_no_fill_and_no_short_period() {
        let bytes: Vec<u8> = (0..4096).map(canary).collect();
        for stride in 1..=1024 {
            let same = bytes.iter().zip(&bytes[stride..]).filter(|(x, y)| x == y).count();
            assert!(same * 16 < bytes.len() - stride, "stride {stride}: {same}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (guarded, buffer) = written(Format::F16);
        assert!(guarded.judge(&buffer[1..], &reference(Format::F16)).unwrap_err().is_data());
        assert!(guarded.judge(&buffer, &reference(Format::Bf16)).unwrap_err().is_data());
        assert!(Guarded::new(1, 1, Format::Nvfp4).unwrap_err().is_unsupported());
    }
}
