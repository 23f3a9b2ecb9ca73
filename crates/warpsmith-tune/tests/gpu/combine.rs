//! Combiners against the oracle: every bit of the result, and nothing else written.

use std::time::Duration;

use cudarc::driver::CudaSlice;
use half::{bf16, f16};
use warpsmith::format::Format;
use warpsmith::internal::build::Simt;
use warpsmith::internal::run::combiner;
use warpsmith::run::{CombineOperands, Combiner, MatrixMut};
use warpsmith::spec::Combine;
use warpsmith_tune::oracle::combine::{Terms, combine as expected, rounded};
use warpsmith_tune::{Numbers, wait};

use crate::bench::{Bench, text};
use crate::small::Mutant;

const WAIT: Duration = Duration::from_secs(10);
/// Elements before and behind the result, and the bytes that are there before.
const MARGIN: usize = 64;
const FILL: u8 = 0x5A;

const CASES: [(&str, &[u32]); 10] = [
    ("combine:f16>f16:h7168:k8:weighted", &[0, 1, 3, 65]),
    ("combine:bf16>bf16:h2048:k8:weighted:placed:shared:residual", &[1, 17, 257]),
    ("combine:f16>f32:h2688:k22:weighted:placed:residual", &[1, 33]),
    ("combine:bf16>f16:h8:k1", &[1, 1000]),
    ("combine:f16>bf16:h1032:k32:placed:shared", &[3, 40]),
    ("combine:bf16>f32:h1024:k10:weighted", &[8, 129]),
    ("combine:bf16>bf16:h2048:k10:weighted:placed:shared:shared_gate", &[1, 17, 65]),
    ("combine:f16>f32:h1032:k4:shared:shared_gate:residual", &[1, 33]),
    ("combine:bf16>f16:h8:k1:shared:shared_gate", &[1, 1000]),
    ("combine:f32>f32:h1032:k1:weighted", &[0, 1, 5]),
];

pub struct Case(Combine, &'static [u32]);

impl Case {
    pub fn name(&self) -> String {
        format!("experts: {}", self.0)
    }
}

pub fn all() -> Vec<Case> {
    CASES.iter().map(|(combine, tokens)| Case(combine.parse().unwrap(), tokens)).collect()
}

/// Launches `combiner` on random terms; what is wrong with the result.
fn wrong(bench: &Bench, combiner: &Combiner, tokens: u32, is_dependent: bool) -> Result<Option<String>, String> {
    let (combine, stream) = (*combiner.combine(), &bench.stream);
    let (k, hidden) = (combine.rows_per_token() as usize, combine.hidden_size() as usize);
    let (slots, out) = (tokens as usize * k, combine.out_format());
    let mut random = fastrand::Rng::with_seed(u64::from(tokens) + 99);
    let mut values = |format: Format, length: usize, is_wanted: bool| -> Vec<f32> {
        let length = if is_wanted { length } else { 0 };
        (0..length).map(|_| rounded(format, random.f32() * 4.0 - 2.0)).collect()
    };
    let rows = values(combine.rows_format(), slots * hidden, true);
    let weights = values(Format::F32, slots, combine.is_weighted());
    let shared = values(out, tokens as usize * hidden, combine.has_shared());
    let residual = values(out, tokens as usize * hidden, combine.has_residual());
    let mut x = values(combine.rows_format(), tokens as usize * hidden, combine.has_shared_gate());
    let vector = values(Format::F32, hidden, combine.has_shared_gate());
    let vector: Vec<f32> = vector.into_iter().map(|w| w / 8.0).collect();
    // The last token has no number, if there are several.
    if let Some(last) = x.get_mut(hidden..).and_then(<[f32]>::last_mut) {
        *last = f32::NAN;
    }
    let mut positions: Vec<i32> = (0..if combine.is_placed() { slots as i32 } else { 0 }).collect();
    random.shuffle(&mut positions);
    for (at, wrong) in [-1, slots as i32, i32::MIN, i32::MAX].into_iter().enumerate() {
        if let Some(position) = positions.get_mut(at * 3) {
            *position = wrong;
        }
    }
    let gate = (&x[..], &vector[..]);
    let terms =
        Terms { rows: &rows, weights: &weights, positions: &positions, shared: &shared, gate, residual: &residual };
    let expected = expected(&combine, tokens, &terms).map_err(text)?;

    let element = out.bytes(1);
    let inside = MARGIN * element..(MARGIN + expected.len()) * element;
    let mut memory = stream.clone_htod(&vec![FILL; inside.end + MARGIN * element]).map_err(text)?;
    // With NaN behind them.
    let on_device = |format, values: &[f32]| Numbers::guarded(stream, format, values, 8).map_err(text);
    let (rows, shared, residual) =
        (on_device(combine.rows_format(), &rows)?, on_device(out, &shared)?, on_device(out, &residual)?);
    let x = on_device(combine.rows_format(), &x)?;
    let vector = stream.clone_htod(&[&vector[..], &[f32::NAN]].concat()).map_err(text)?;
    let weights = stream.clone_htod(&[&weights[..], &[f32::NAN]].concat()).map_err(text)?;
    let positions = stream.clone_htod(&[&positions[..], &[0]].concat()).map_err(text)?;
    {
        let mut view = memory.slice_mut(inside.clone());
        let c = MatrixMut::from_bytes(out, &mut view).map_err(text)?;
        let mut operands = CombineOperands::new(tokens, rows.values(), c);
        if combine.is_weighted() {
            operands = operands.weights(&weights);
        }
        if combine.is_placed() {
            operands = operands.positions(&positions);
        }
        if combine.has_shared() {
            operands = operands.shared(shared.values());
        }
        if combine.has_shared_gate() {
            operands = operands.shared_gate(x.values(), &vector);
        }
        if combine.has_residual() {
            operands = operands.residual(residual.values());
        }
        match is_dependent {
            true => combiner.launch_dependent(stream, operands),
            false => combiner.launch(stream, operands),
        }
        .map_err(text)?;
    }
    wait(stream, WAIT).map_err(text)?;
    let found = stream.clone_dtoh(&memory).map_err(text)?;
    if found[..inside.start].iter().chain(&found[inside.end..]).any(|byte| *byte != FILL) {
        return Ok(Some("memory outside of the result is written".to_owned()));
    }
    let values = found[inside].chunks(element).map(|bytes| match (out, bytes) {
        (Format::F16, [a, b]) => f16::from_le_bytes([*a, *b]).to_f32(),
        (Format::Bf16, [a, b]) => bf16::from_le_bytes([*a, *b]).to_f32(),
        (_, [a, b, c, d]) => f32::from_le_bytes([*a, *b, *c, *d]),
        _ => f32::NAN,
    });
    // Of NaN there are many.
    let is_same =
        |found: f32, expected: f32| found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
    let differs = values.zip(&expected).position(|(found, expected)| !is_same(found, *expected));
    Ok(differs.map(|at| format!("{tokens} tokens: element {at} of token {} is not {}", at / hidden, expected[at])))
}

pub fn is_right(bench: &Bench, case: &Case) -> Result<(), String> {
    let Case(combine, all_tokens) = case;
    let _turn = bench.alone();
    let combiner = bench.engine().combine(combine).map_err(text)?;
    for tokens in *all_tokens {
        for is_dependent in [false, true] {
            if let Some(why) = wrong(bench, &combiner, *tokens, is_dependent)? {
                return Err(why);
            }
        }
    }
    Ok(())
}

/// What does not fit ends in a sentence with both numbers, and nothing is launched.
pub fn bad_operands_are_refused(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let combiner = bench.engine().combine(&Combine::new().hidden(64).k(2).weighted()).map_err(text)?;
    let stream = &bench.stream;
    let rows = stream.alloc_zeros::<f16>(2 * 64 * 2 + 8).map_err(text)?;
    let other = stream.alloc_zeros::<bf16>(2 * 64 * 2).map_err(text)?;
    let weights = stream.alloc_zeros::<f32>(4).map_err(text)?;
    let mut out = stream.alloc_zeros::<f16>(128).map_err(text)?;
    let refusal =
        |operands: CombineOperands<'_>| combiner.launch(stream, operands).map_err(text).err().unwrap_or_default();
    let found = [
        (refusal(CombineOperands::new(2, &rows, &mut out)), "weights: not given, the problem has one"),
        (refusal(CombineOperands::new(2, &other, &mut out).weights(&weights)), "rows is bf16, the kernel is for f16"),
        (refusal(CombineOperands::new(3, &rows, &mut out).weights(&weights)), "rows has 264 elements, 384 are needed"),
        (
            refusal(CombineOperands::new(2, &rows, &mut out).weights(weights.slice(1..))),
            "weights has 3 elements, 4 are needed",
        ),
        (
            refusal(CombineOperands::new(2, rows.slice(4..), &mut out).weights(&weights)),
            "which is not a multiple of 16 bytes",
        ),
    ];
    let gated = Combine::new().hidden(64).k(2).shared().shared_gate();
    let gated = bench.engine().combine(&gated).map_err(text)?;
    let shared = stream.alloc_zeros::<f16>(128).map_err(text)?;
    let short = stream.alloc_zeros::<f32>(63).map_err(text)?;
    let refusal =
        |operands: CombineOperands<'_>| gated.launch(stream, operands).map_err(text).err().unwrap_or_default();
    fn of<'a>(
        rows: &'a CudaSlice<f16>,
        shared: &'a CudaSlice<f16>,
        out: &'a mut CudaSlice<f16>,
    ) -> CombineOperands<'a> {
        CombineOperands::new(2, rows, out).shared(shared)
    }
    let of_gates = [
        (refusal(of(&rows, &shared, &mut out)), "shared_gate: not given, the problem has one"),
        (
            refusal(of(&rows, &shared, &mut out).shared_gate(&other, &short)),
            "the shared gate's x is bf16, the kernel is for f16",
        ),
        (
            refusal(of(&rows, &shared, &mut out).shared_gate(&rows, &short)),
            "the shared gate's vector has 63 elements, 64 are needed",
        ),
    ];
    match found.iter().chain(&of_gates).find(|(found, expected)| !found.ends_with(expected)) {
        Some((found, expected)) => Err(format!("`{found}`, not `{expected}`")),
        None => Ok(()),
    }
}

/// One thing wrong in each. None can hang, and none reads or writes where nothing of its own is.
pub fn mutants() -> Vec<Mutant> {
    // In f32, where every bit shows.
    let combine: Combine = "combine:bf16>f32:h1032:k10:weighted:placed:shared:residual".parse().unwrap();
    let mutant = Mutant::of(combine);
    let combine: Combine = "combine:bf16>f32:h2056:k2:weighted:placed:shared:shared_gate:residual".parse().unwrap();
    let gated = Mutant::of(combine);
    vec![
        mutant("the last slot left out", "add_rows<K % AHEAD>(", "add_rows<K % AHEAD - 1>("),
        mutant("the weight of the first slot", "params.weights[slot + j]", "params.weights[token * K]"),
        mutant(
            "slots in another order",
            "__fmaf_rn(weights[j], rows[j].at(i), sum[i])",
            "__fmaf_rn(weights[j ^ 1], rows[j ^ 1].at(i), sum[i])",
        ),
        mutant(
            "a slot without a row has the nearest",
            "PLACED ? params.positions[slot + j] : slot + j",
            "min(max(params.positions[slot + j], 0), params.tokens * K - 1)",
        ),
        mutant("positions not looked at", "PLACED ? params.positions[slot + j] : slot + j", "slot + j"),
        mutant("no shared expert", "gate.added(sum[i], shared.at(i))", "sum[i]"),
        mutant("the residual twice", "__fadd_rn(sum[i], residual.at(i))", "__fadd_rn(sum[i], 2.0f * residual.at(i))"),
        mutant(
            "a product that rounds",
            "__fmaf_rn(weights[j], rows[j].at(i), sum[i])",
            "__fadd_rn(__fmul_rn(weights[j], rows[j].at(i)), sum[i])",
        ),
        mutant("columns of a block not written", "if (column >= HIDDEN) return;", "if (column >= HIDDEN - 8) return;"),
        gated(
            "the gate of the first token",
            "const SharedGate gate(params, token);",
            "const SharedGate gate(params, 0);",
        ),
        gated("no gate", "__fmaf_rn(weight, row, sum)", "__fadd_rn(row, sum)"),
        gated("a gate's product that rounds", "__fmaf_rn(weight, row, sum)", "__fadd_rn(__fmul_rn(weight, row), sum)"),
        gated("a gate that is no sigmoid", "product : sigmoid(product)", "product : product"),
        gated("a gate without NaN", "product != product ? product :", "false ? product :"),
        gated("the first warp alone", "product = __fadd_rn(product, of_warps[warp])", "product = product"),
        gated(
            "warps that do not wait",
            "if (lane_index() == 0) of_warps[warp_index()] = sum;\n    __syncthreads();",
            "if (warp_index() > 0) __nanosleep(20000);\n    if (lane_index() == 0) of_warps[warp_index()] = sum;",
        ),
        gated(
            "a gate of the block's own columns",
            "column < HIDDEN; column += THREADS * WIDTH",
            "column < THREADS * WIDTH; column += THREADS * WIDTH",
        ),
        gated("a sum of lanes left out", "sum = sum_of_lanes(sum);", ""),
    ]
}

pub fn is_killed(bench: &Bench, mutant: &Mutant) -> Result<(), String> {
    let Simt::Combine(combine) = mutant.kernel() else { return Err("no combiner".to_owned()) };
    let combiner = combiner(&bench.device, combine, &mutant.built(bench)?).map_err(text)?;
    let _turn = bench.alone();
    match wrong(bench, &combiner, 37, false)? {
        Some(_) => Ok(()),
        None => Err("nothing is found wrong".to_owned()),
    }
}
