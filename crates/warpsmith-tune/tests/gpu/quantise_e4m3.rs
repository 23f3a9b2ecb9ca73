//! Quantisers to e4m3 against the oracle: every bit of values and factors, and nothing else written.

use warpsmith::format::{E4m3Tensor, Format};
use warpsmith::internal::build::Simt;
use warpsmith::internal::format::e4m3;
use warpsmith::internal::run::quantiser;
use warpsmith::run::{QuantiseOperands, Quantiser};
use warpsmith::spec::Quantise;
use warpsmith_tune::oracle::combine::rounded;
use warpsmith_tune::oracle::quantise::{E4m3Rows, to_e4m3};
use warpsmith_tune::{Numbers, wait};

use crate::bench::{Bench, text};
use crate::quantise::{Case, FILL, MARGIN, ROWS, WAIT};
use crate::small::Mutant;

pub fn all() -> Vec<Case> {
    let formats = [Format::F16, Format::Bf16, Format::F32];
    let of = |format| [64, 192, 1088, 7168].map(|k| Quantise::new().x(format).k(k).e4m3());
    formats.into_iter().flat_map(of).flat_map(|of| [Case(of), Case(of.k_factors())]).collect()
}

/// Rows of every sort there is, one after the other from a random one on.
fn tensor(of: &Quantise, m: u32, seed: u64) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (format, k) = (of.x_format(), of.row_length() as usize);
    let span = if of.has_k_factors() { E4m3Tensor::K_FACTOR } else { k };
    let rows = (0..u64::from(m)).flat_map(|row| row_of(&mut random, (row + seed) % 8, k, span));
    rows.map(|x| rounded(format, x)).collect()
}

/// Each `span` of its elements has a factor.
fn row_of(random: &mut fastrand::Rng, sort: u64, k: usize, span: usize) -> Vec<f32> {
    let sign = |random: &mut fastrand::Rng| if random.bool() { 1.0f32 } else { -1.0 };
    let mut row: Vec<f32> = match sort {
        0 | 1 => (0..k).map(|_| 3.0 * (random.f32() - 0.5)).collect(),
        // Midpoints of neighbouring values and numbers beside them, under a factor that is a power of two, or any.
        2 | 3 => {
            let near = |x: f32, ulps: i32| f32::from_bits(x.to_bits().saturating_add_signed(ulps));
            let middle = |code: u8| (e4m3::decode(code) + e4m3::decode(code + 1)) / 2.0;
            let largest = if sort == 2 { 7.0 } else { 7.0 * (1.0 + random.f32()) };
            let factor = largest / e4m3::MAX;
            let mut row: Vec<f32> = (0..k)
                .map(|i| sign(random) * near(middle(random.u8(..0x7E)) * factor, random.i32(-2..3) * (i % 2) as i32))
                .collect();
            row.chunks_mut(span).for_each(|part| part[random.usize(..part.len())] = largest);
            row
        }
        4 => vec![-0.0; k],
        // Far below the largest, and what is subnormal in the format.
        5 => (0..k).map(|_| sign(random) * 2f32.powi(random.i32(-40..12))).collect(),
        6 => (0..k).map(|_| sign(random) * f32::from_bits(random.u32(..1 << 20))).collect(),
        _ => (0..k).map(|_| random.f32() - 0.5).collect(),
    };
    if sort == 7 {
        let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];
        (0..3).for_each(|_| row[random.usize(..k)] = special[random.usize(..4)]);
        if random.u32(..4) == 0 {
            row.fill(f32::NEG_INFINITY);
        }
    }
    row
}

fn found(
    bench: &Bench,
    of: &Quantiser,
    m: u32,
    x: &[f32],
    is_dependent: bool,
) -> Result<Result<E4m3Rows, String>, String> {
    let (stream, k) = (&bench.stream, of.quantise().row_length() as usize);
    let x = Numbers::guarded(stream, of.quantise().x_format(), x, 16).map_err(text)?;
    let (bytes, rows) = (m as usize * k, m as usize * of.quantise().row_factors() as usize);
    let mut values = stream.clone_htod(&vec![FILL; bytes + 2 * MARGIN]).map_err(text)?;
    let mut factors = stream.clone_htod(&vec![f32::NAN; rows + 2 * MARGIN]).map_err(text)?;
    let operands = QuantiseOperands::e4m3(
        m,
        x.values(),
        values.slice_mut(MARGIN..MARGIN + bytes),
        factors.slice_mut(MARGIN..MARGIN + rows),
    );
    match is_dependent {
        true => of.launch_dependent(stream, operands),
        false => of.launch(stream, operands),
    }
    .map_err(text)?;
    wait(stream, WAIT).map_err(text)?;
    let (values, factors) = (stream.clone_dtoh(&values).map_err(text)?, stream.clone_dtoh(&factors).map_err(text)?);
    if values[..MARGIN].iter().chain(&values[MARGIN + bytes..]).any(|byte| *byte != FILL) {
        return Ok(Err("memory outside of the values is written".to_owned()));
    }
    if factors[..MARGIN].iter().chain(&factors[MARGIN + rows..]).any(|factor| !factor.is_nan()) {
        return Ok(Err("memory outside of the factors is written".to_owned()));
    }
    let (values, factors) = (values[MARGIN..][..bytes].to_vec(), factors[MARGIN..][..rows].to_vec());
    Ok(Ok(E4m3Rows { values, factors }))
}

/// What is wrong with what comes of these rows.
fn wrong(bench: &Bench, of: &Quantiser, m: u32, x: &[f32]) -> Result<Option<String>, String> {
    let expected = to_e4m3(of.quantise(), m, x).map_err(text)?;
    for is_dependent in [false, true] {
        let found = match found(bench, of, m, x, is_dependent)? {
            Ok(found) => found,
            Err(why) => return Ok(Some(why)),
        };
        let bits = |factors: &[f32]| factors.iter().map(|factor| factor.to_bits()).collect::<Vec<_>>();
        if bits(&found.factors) != bits(&expected.factors) {
            return Ok(Some(format!("the factors are {:?}, not {:?}", found.factors, expected.factors)));
        }
        if let Some(at) = (0..found.values.len()).find(|at| found.values[*at] != expected.values[*at]) {
            let (found, expected) = (found.values[at], expected.values[at]);
            return Ok(Some(format!("byte {at} of the values is {found:#04x}, not {expected:#04x}")));
        }
    }
    Ok(None)
}

pub fn is_right(bench: &Bench, case: &Case) -> Result<(), String> {
    let _turn = bench.alone();
    let quantiser = bench.engine().quantise(&case.0).map_err(text)?;
    for m in ROWS {
        for seed in 0..4 {
            if let Some(why) = wrong(bench, &quantiser, m, &tensor(&case.0, m, seed))? {
                return Err(format!("{m} rows, seed {seed}: {why}"));
            }
        }
    }
    Ok(())
}

/// Devices without a conversion to e4m3 take this way, and others with factors that are far from 1.
const SLOWLY: (&str, &str) = ("is_quick(QuickQuotients::can_be(factor))", "is_quick(false)");

/// Every f16 and every bf16 number beside others that say the factor, both ways.
pub fn every_number_is_right(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    for format in [Format::F16, Format::Bf16] {
        let of = Quantise::new().x(format).k(64).e4m3();
        let quick = bench.engine().quantise(&of).map_err(text)?;
        let slow = Mutant::of(of)("none", SLOWLY.0, SLOWLY.1).built(bench)?;
        let slow = quantiser(&bench.device, of, &slow).map_err(text)?;
        let number = |bits: u16| match format {
            Format::F16 => half::f16::from_bits(bits).to_f32(),
            _ => half::bf16::from_bits(bits).to_f32(),
        };
        let x: Vec<f32> = (0..=u16::MAX).map(number).collect();
        for (quantiser, way) in [(&quick, "quickly"), (&slow, "slowly")] {
            if let Some(why) = wrong(bench, quantiser, 1024, &x)? {
                return Err(format!("{format}, {way}: {why}"));
            }
        }
    }
    Ok(())
}

/// One thing wrong in each.
pub fn mutants() -> Vec<Mutant> {
    let of: Quantise = "quantise:f32:k2112:e4m3".parse().unwrap();
    // So long that several warps have a part of a row.
    let mutant = Mutant::of(of);
    let of_words = Mutant::of("quantise:bf16:k2112:e4m3".parse::<Quantise>().unwrap());
    let slow = |what, from, to| mutant(what, from, to).with(&[SLOWLY]);
    vec![
        slow(
            "slowly, ties away from zero",
            "__fadd_rn(magnitude, rounder)",
            "__fadd_rn(__uint_as_float(__float_as_uint(magnitude) + 1), rounder)",
        ),
        slow("slowly, values by the reciprocal", "__fdiv_rn(x, factor)", "__fmul_rn(x, __frcp_rn(factor))"),
        slow("slowly, infinities for the largest", "if (!is_number(x)) return 0x7F;", "if (x != x) return 0x7F;"),
        slow("slowly, NaN for the largest", "if (!is_number(x)) return 0x7F;", ""),
        slow(
            "slowly, the sign of zeros lost",
            "(__float_as_uint(x) >> 24 & 0x80u)",
            "(x == 0.0f ? 0u : __float_as_uint(x) >> 24 & 0x80u)",
        ),
        slow("slowly, neighbours exchanged", "X::one(memory, at + i)", "X::one(memory, at + (i ^ 1))"),
        mutant("values by the reciprocal", "return __fmaf_rn(more, -reciprocal, near);", "return near;"),
        mutant(
            "values in another order",
            "cvt_e4m3x2(quotient(x.at(first)), quotient(x.at(first + 1)))",
            "cvt_e4m3x2(quotient(x.at(first + 1)), quotient(x.at(first)))",
        ),
        mutant(
            "the factor by the reciprocal",
            "__fdiv_rn(__uint_as_float(largest), 448.0f)",
            "__fmul_rn(__uint_as_float(largest), 1.0f / 448.0f)",
        ),
        mutant(
            "infinities for the largest",
            "return __fmaf_rn(more, -reciprocal, near);",
            "return fabsf(x) > 0x1.fp127f ? near : __fmaf_rn(more, -reciprocal, near);",
        ),
        mutant("an infinity that counts where it is the largest", "if (is_number(most)) return", "return"),
        of_words(
            "the larger of a word's first magnitudes alone",
            "max(both & 0x7FFFu, both >> 16 & 0x7FFFu)",
            "both & 0x7FFFu",
        ),
        of_words("magnitudes of three words of four", "(words.z, words.w)", "(words.z, words.z)"),
        mutant("infinities that count", "if (is_number(magnitude)) largest", "largest"),
        mutant("the factor of zeros", "largest == 0 ? 1.0f", "false ? 1.0f"),
        mutant("factors that are subnormal", ", 0x1p-126f)", ", 0.0f)"),
        mutant(
            "the sign of zeros lost",
            "const float more = __fmaf_rn(near, factor, -x);",
            "const float more = __fmaf_rn(near, factor, -x) == 0.0f ? -0.0f : __fmaf_rn(near, factor, -x);",
        ),
        mutant("the order of K as given", "  transpose(words);\n", ""),
        mutant("halves exchanged", "words[i] = factor.four(", "words[i % 2 * 2 + i / 2] = factor.four("),
        mutant("neighbours' words not exchanged", "int distance = 1; distance < 4", "int distance = 2; distance < 4"),
        mutant(
            "the largest of a warp",
            "return redux_max(of_warps[lane_index() % (THREADS / 32)]);",
            "return of_warp;",
        ),
        mutant(
            "the largest of the half before",
            "x[half].load(params.x, at + half * 8);",
            "x[half].load(params.x, at);",
        ),
        mutant(
            "the factor of another row",
            "params.factors[row] = factor",
            "params.factors[row ^ (params.rows > 1 && row < 2 ? 1 : 0)] = factor",
        ),
        mutant("the last row left out", "row < params.rows;", "row + 1 < params.rows;"),
    ]
    .into_iter()
    .chain(mutants_along_k())
    .collect()
}

/// The same where each 128 of K have a factor.
fn mutants_along_k() -> Vec<Mutant> {
    let mutant = Mutant::of("quantise:f32:k2112:e4m3:k_factors".parse::<Quantise>().unwrap());
    vec![
        mutant("along K, the largest of a half", "distance < SPAN_THREADS", "distance < 4"),
        mutant(
            "along K, the largest of a warp",
            "max(magnitude, __shfl_xor_sync(~0u, magnitude, distance))",
            "redux_max(magnitude)",
        ),
        mutant(
            "along K, factors of neighbours",
            "at / SPAN_THREADS] = factor",
            "(at / SPAN_THREADS ^ 1) % SPANS] = factor",
        ),
        mutant("along K, the last factor left out", "if (k < K && at % SPAN", "if (k + 64 < K && at % SPAN"),
        mutant(
            "along K, rows of whole 128",
            "SPANS = ceil_div(K, SPAN_THREADS * 16)",
            "SPANS = K / (SPAN_THREADS * 16)",
        ),
        mutant("along K, another order", "  transpose(words);\n", ""),
    ]
}

pub fn is_killed(bench: &Bench, mutant: &Mutant) -> Result<(), String> {
    let Simt::Quantise(of) = mutant.kernel() else { return Err("no quantiser".to_owned()) };
    let quantiser = quantiser(&bench.device, of, &mutant.built(bench)?).map_err(text)?;
    let _turn = bench.alone();
    for seed in 0..8 {
        if wrong(bench, &quantiser, 37, &tensor(&of, 37, seed))?.is_some() {
            return Ok(());
        }
    }
    Err("nothing is found wrong".to_owned())
}
