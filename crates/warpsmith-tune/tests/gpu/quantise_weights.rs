//! Quantisers of weights against the oracle: every bit of codes, scales and sums, and nothing else written.

use cudarc::driver::{CudaSlice, DeviceRepr};
use warpsmith::format::Format;
use warpsmith::internal::build::{QuantiseWeights, Simt};
use warpsmith::internal::engine;
use warpsmith::internal::format::BLOCK;
use warpsmith::internal::run::{WeightOperands, WeightQuantiser, weight_quantiser};
use warpsmith_tune::oracle::combine::rounded;
use warpsmith_tune::oracle::quantise_weights::{QuantisedWeights, quantise_weights as expected};
use warpsmith_tune::{Numbers, wait};

use crate::bench::{Bench, text};
use crate::quantise::{FILL, MARGIN, WAIT, block_of};
use crate::small::Mutant;

/// Rows, and K: less than a warp has blocks, just as many, more; odd numbers of blocks.
const SHAPES: [[u32; 2]; 5] = [[1, 16], [7, 48], [3, 512], [5, 1040], [131, 80]];

pub struct Case(QuantiseWeights);

impl Case {
    pub fn name(&self) -> String {
        format!("quantise: weights: {}", self.0.symbol())
    }
}

pub fn all() -> Vec<Case> {
    QuantiseWeights::all().map(Case).collect()
}

/// A matrix, the factor, and that as a reader applies it.
struct Host {
    x: Vec<f32>,
    factors: [f32; 2],
}

impl Host {
    /// Blocks of every sort there is, one after the other from a random one on; all are numbers.
    fn new(of: QuantiseWeights, [rows, k]: [u32; 2], seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let format = of.x_format();
        // The smallest factor there is, and that of the largest f32, too.
        let factor = match (seed % 6, format) {
            (0, _) => 0.125,
            (1, _) => 0.012_345_678,
            (2, Format::F32) => f32::MIN_POSITIVE,
            (3, Format::F32) => f32::MAX / 2688.0,
            (4, Format::F32) => 1.5e-37,
            _ => 1.999_999_9 / 64.0,
        };
        let blocks = (rows * k) as usize / BLOCK;
        let x = (0..blocks as u64).flat_map(|block| match (block + seed) % 10 {
            9 => level(&mut random, factor, format),
            sort => block_of(&mut random, sort, factor, format),
        });
        // Rounding to a small format, and 2688 times the factor, may end in an infinity.
        let x = x.map(|x| if x.is_finite() { x } else { rounded(format, x.signum() * factor) });
        Self { x: x.collect(), factors: [factor, if of.is_divided() { 1.0 / factor } else { factor }] }
    }
}

/// The plain scales of these multiples of a factor, 7.5 and 32, have two better ones whose errors are level, where the factor is a
/// power of two: on both sides as near, and on one side nearer.
const LEVEL: [[i32; BLOCK]; 2] = [
    [26, 26, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [111, 16, 30, 23, 84, 118, 132, 83, 179, 9, 84, 199, 161, 47, 38, 155],
];

/// A block of multiples of the factor: under several scales errors are level.
fn level(random: &mut fastrand::Rng, factor: f32, format: Format) -> Vec<f32> {
    let most = random.i32(1..64);
    let block = LEVEL.get(random.usize(..4)).copied();
    let block = block.unwrap_or_else(|| std::array::from_fn(|_| random.i32(-most..=most)));
    block.iter().map(|x| rounded(format, *x as f32 * factor)).collect()
}

/// Room for what comes of a matrix, with margins around that.
struct Room {
    codes: CudaSlice<u8>,
    scales: CudaSlice<u8>,
    squares: CudaSlice<f64>,
    largest: CudaSlice<f32>,
}

fn filled<T: DeviceRepr + Copy>(bench: &Bench, fill: T, count: usize) -> Result<CudaSlice<T>, String> {
    bench.stream.clone_htod(&vec![fill; count + 2 * MARGIN]).map_err(text)
}

/// What is inside of the margins, which have to be as they were.
fn inside<T: DeviceRepr + Copy + Default>(
    bench: &Bench,
    name: &str,
    all: &CudaSlice<T>,
    is_fill: impl Fn(&T) -> bool,
) -> Result<Vec<T>, String> {
    let all = bench.stream.clone_dtoh(all).map_err(text)?;
    let (before, rest) = all.split_at(MARGIN);
    let (found, behind) = rest.split_at(rest.len() - MARGIN);
    match before.iter().chain(behind).all(is_fill) {
        true => Ok(found.to_vec()),
        false => Err(format!("memory outside of the {name} is written")),
    }
}

fn wrong(bench: &Bench, quantiser: &WeightQuantiser, shape: [u32; 2], seed: u64) -> Result<Option<String>, String> {
    let ([rows, k], host) = (shape, Host::new(quantiser.of(), shape, seed));
    let [factor, stored] = host.factors;
    let expected = expected(quantiser.of(), k as usize, &host.x, factor, stored).map_err(text)?;
    let x = Numbers::guarded(&bench.stream, quantiser.of().x_format(), &host.x, 16).map_err(text)?;
    let (count, nan) = (host.x.len(), f64::NAN);
    let mut room = Room {
        codes: filled(bench, FILL, count / 2)?,
        scales: filled(bench, FILL, count / BLOCK)?,
        squares: filled(bench, nan, rows as usize * WeightOperands::SQUARES)?,
        largest: filled(bench, f32::NAN, rows as usize)?,
    };
    let place = |count: usize| MARGIN..MARGIN + count;
    let (codes, scales) = (room.codes.slice_mut(place(count / 2)), room.scales.slice_mut(place(count / BLOCK)));
    let squares = room.squares.slice_mut(place(rows as usize * WeightOperands::SQUARES));
    let operands = WeightOperands::quantised(shape, x.values(), host.factors, codes, scales, squares);
    quantiser.launch(&bench.stream, operands).map_err(text)?;
    let largest = room.largest.slice_mut(place(rows as usize));
    quantiser.launch(&bench.stream, WeightOperands::largest(rows, k, x.values(), largest)).map_err(text)?;
    wait(&bench.stream, WAIT).map_err(text)?;
    let largest = inside(bench, "magnitudes", &room.largest, |x| x.is_nan())?;
    let of_rows = host.x.chunks(k as usize).map(|row| row.iter().map(|x| x.abs()).fold(0.0, f32::max));
    if !of_rows.eq(largest.iter().copied()) {
        return Ok(Some("other largest magnitudes".to_owned()));
    }
    differing(bench, &host, &expected, &room)
}

fn differing(bench: &Bench, host: &Host, expected: &QuantisedWeights, room: &Room) -> Result<Option<String>, String> {
    let codes = inside(bench, "codes", &room.codes, |byte| *byte == FILL)?;
    let scales = inside(bench, "scales", &room.scales, |byte| *byte == FILL)?;
    let squares = inside(bench, "sums", &room.squares, |sum| sum.is_nan())?;
    if let Some(at) = (0..scales.len()).find(|at| scales[*at] != expected.scales[*at]) {
        let (block, factors) = (&host.x[at * BLOCK..][..BLOCK], host.factors);
        let (found, expected) = (scales[at], expected.scales[at]);
        return Ok(Some(format!("scale {at} is {found:#04x}, not {expected:#04x}: {block:?}, factors {factors:?}")));
    }
    if let Some(at) = (0..codes.len()).find(|at| codes[*at] != expected.codes[*at]) {
        return Ok(Some(format!("byte {at} of the codes is {:#04x}, not {:#04x}", codes[at], expected.codes[at])));
    }
    let sums = squares.iter().zip(expected.squares.as_flattened());
    let differs = sums.enumerate().find(|(_, (found, expected))| found.to_bits() != expected.to_bits());
    Ok(differs.map(|(at, (found, expected))| format!("sum {at} is {found:e}, not {expected:e}")))
}

pub fn is_right(bench: &Bench, case: &Case) -> Result<(), String> {
    let _turn = bench.alone();
    let quantiser = engine::quantise_weights(&bench.engine(), case.0).map_err(text)?;
    for shape in SHAPES {
        for seed in 0..12 {
            if let Some(why) = wrong(bench, &quantiser, shape, seed)? {
                return Err(format!("{shape:?}, seed {seed}: {why}"));
            }
        }
    }
    Ok(())
}

/// More rows than warps of a launch.
pub fn many_rows_are_right(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let of = QuantiseWeights::new(Format::Bf16).searched();
    let quantiser = engine::quantise_weights(&bench.engine(), of).map_err(text)?;
    wrong(bench, &quantiser, [(1 << 16) + 5, 16], 3)?.map_or(Ok(()), Err)
}

/// What is no number is found, wherever it is.
pub fn what_is_no_number_is_found(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    for format in [Format::F16, Format::Bf16, Format::F32] {
        let quantiser = engine::quantise_weights(&bench.engine(), QuantiseWeights::new(format)).map_err(text)?;
        let (rows, k) = (48, 528);
        let mut x = vec![0.5; rows * k];
        let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];
        for row in (0..rows).step_by(2) {
            x[row * k + row * 11] = special[row / 2 % 4];
        }
        let on_device = Numbers::guarded(&bench.stream, format, &x, 16).map_err(text)?;
        let mut largest = bench.stream.alloc_zeros::<f32>(rows).map_err(text)?;
        let operands = WeightOperands::largest(rows as u32, k as u32, on_device.values(), &mut largest);
        quantiser.launch(&bench.stream, operands).map_err(text)?;
        let found = bench.stream.clone_dtoh(&largest).map_err(text)?;
        if let Some(row) = (0..rows).find(|row| found[*row].is_finite() != (row % 2 == 1)) {
            return Err(format!("{format}, row {row}: {}", found[row]));
        }
    }
    Ok(())
}

/// One thing wrong in each. None can hang, and none reads or writes where nothing of its own is.
pub fn mutants() -> Vec<Mutant> {
    // In f32, where every bit shows, and with a factor whose reciprocal is rounded.
    let of = QuantiseWeights::new(Format::F32).searched();
    let (multiplied, divided) = (Mutant::of(of), Mutant::of(of.divided()));
    let plain = Mutant::of(QuantiseWeights::new(Format::F32).divided());
    vec![
        multiplied("the plain scale", "if (error < best.error)", "if (error < 0.0)"),
        multiplied("the last of level errors", "if (error < best.error)", "if (error <= best.error)"),
        multiplied(
            "the larger of two as near first",
            "(nth & 1) ? -((nth + 1) / 2) : nth / 2",
            "(nth & 1) ? (nth + 1) / 2 : -(nth / 2)",
        ),
        multiplied("scales tried upwards", "(nth & 1) ? -((nth + 1) / 2) : nth / 2", "nth - 8"),
        multiplied("the nearest scales alone", "nth < 16", "nth < 8"),
        multiplied("no scale of 1.75 times the plain one", "> 1.75f * value", ">= 1.75f * value"),
        multiplied("scales beyond 1.75 times the plain one", "> 1.75f * value", "> 4.0f * value"),
        multiplied("no largest scale", "tried - 1 > 0x7D", "tried - 1 > 0x7C"),
        multiplied(
            "steps one digit off",
            "__fmul_rn(scale_value(scale), params.stored)",
            "__fmul_rn(scale_value(scale), __fmul_rn(params.stored, 1.0000002f))",
        ),
        divided(
            "a reciprocal for the division",
            "__fdiv_rn(scale_value(scale), params.stored)",
            "__fmul_rn(scale_value(scale), __frcp_rn(params.stored))",
        ),
        divided(
            "the factor for what is stored",
            "__fdiv_rn(scale_value(scale), params.stored)",
            "__fmul_rn(scale_value(scale), params.factor)",
        ),
        plain(
            "plain codes under what is stored",
            "by = __fmul_rn(value, params.factor)",
            "by = __fdiv_rn(value, params.stored)",
        ),
        plain(
            "the divisor for the factor",
            "block_scale(most, params.factor)",
            "block_scale(most, __frcp_rn(params.stored))",
        ),
        divided(
            "plain errors as read under the factor",
            "error_of(x, by, step_of(scale, params))",
            "error_of(x, by, by)",
        ),
        multiplied("squares in f32", "__dmul_rn(one, one)", "__fmul_rn(one, one)"),
        multiplied("errors of codes that are not rounded", "__fmul_rn(code, step)", "__dmul_rn(code, step)"),
        multiplied("squares in one sum", "lanes[i % 4]", "lanes[0]"),
        multiplied(
            "lanes added one after the other",
            "__dadd_rn(__dadd_rn(lanes[0], lanes[1]), __dadd_rn(lanes[2], lanes[3]))",
            "__dadd_rn(__dadd_rn(__dadd_rn(lanes[0], lanes[1]), lanes[2]), lanes[3])",
        ),
        multiplied("blocks added backwards", "of_blocks[warp][lane][i]", "of_blocks[warp][lane][count - 1 - i]"),
        multiplied(
            "sums of the last blocks alone",
            "sum = __dadd_rn(sum, of_blocks",
            "sum = __dadd_rn(i == 0 ? 0.0 : sum, of_blocks",
        ),
        multiplied("errors for the plain rule's", "sums[64] = plain.error", "sums[64] = best.error"),
        multiplied("codes under the plain scale", "codes_of(x, best.by)", "codes_of(x, plain.by)"),
        multiplied("the plain scale beside other codes", "static_cast<u8>(best.scale)", "static_cast<u8>(plain.scale)"),
        multiplied(
            "the largest of half of a block",
            "for (int i = 0; i < 16; i++) most = max(most",
            "for (int i = 0; i < 8; i++) most = max(most",
        ),
        multiplied(
            "the largest of the first blocks",
            "block < params.blocks; block += 32",
            "block < min(params.blocks, 32u); block += 32",
        ),
    ]
}

pub fn is_killed(bench: &Bench, mutant: &Mutant) -> Result<(), String> {
    let Simt::QuantiseWeights(of) = mutant.kernel() else { return Err("no quantiser of weights".to_owned()) };
    let quantiser = weight_quantiser(&bench.device, of, &mutant.built(bench)?).map_err(text)?;
    let _turn = bench.alone();
    for seed in 0..24 {
        if wrong(bench, &quantiser, [37, 1040], seed)?.is_some() {
            return Ok(());
        }
    }
    Err("nothing is found wrong".to_owned())
}
