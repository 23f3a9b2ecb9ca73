//! What the device prepares is, byte for byte, what the host prepares; and the host is proven right in src/format.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use warpsmith::engine::Engine;
use warpsmith::format::{Format, Mxfp4Weights, Nvfp4Weights, Prepared, ScaleLayout};
use warpsmith::run::{Matrix, PreparedWeights};
use warpsmith::spec::{Activation, Problem};

use crate::bench::{Bench, text};

/// Groups, N and K: whole tiles and ragged ones, a single block and many.
const SHAPES: [(Option<u32>, u32, u32); 6] =
    [(None, 272, 448), (Some(3), 272, 192), (None, 48, 64), (Some(3), 48, 320), (None, 16, 128), (Some(3), 256, 384)];

pub struct Case {
    dual: bool,
    compute: Format,
    weights: Format,
    scales: ScaleLayout,
    expanded: bool,
}

impl Case {
    pub fn name(&self) -> String {
        let products = if self.dual { "dual" } else { "single" };
        let weights = if self.weights == Format::Nvfp4 { "" } else { "mxfp4 " };
        let expanded = if self.expanded { "expanded " } else { "" };
        format!("prepare: {expanded}{weights}{products} {} ({} scales)", self.compute, self.scales)
    }

    fn problem(&self, (groups, n, k): (Option<u32>, u32, u32)) -> Problem {
        let problem = if self.dual { Problem::dual_gemm(Activation::Silu) } else { Problem::gemm() };
        let problem = problem.n(n).k(k).a(self.compute).b(self.weights).scales(self.scales);
        let problem = if self.expanded { problem.expanded() } else { problem };
        groups.map_or(problem, |groups| problem.grouped(groups))
    }
}

pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for dual in [false, true] {
        for compute in [Format::F16, Format::Bf16, Format::E4m3] {
            for scales in [ScaleLayout::Linear, ScaleLayout::Swizzled128x4] {
                cases.push(Case { dual, compute, weights: Format::Nvfp4, scales, expanded: false });
                if compute == Format::E4m3 {
                    cases.push(Case { dual, compute, weights: Format::Nvfp4, scales, expanded: true });
                }
            }
            // MXFP4 does not become e4m3.
            if compute != Format::E4m3 {
                cases.push(Case {
                    dual,
                    compute,
                    weights: Format::Mxfp4,
                    scales: ScaleLayout::Linear,
                    expanded: false,
                });
            }
        }
    }
    cases
}

/// Codes and scales of one operand. Scale bytes count up, so that zero, subnormal, negative and NaN ones are among them
/// (and among the padding of the 128x4 layout, which is not to be read); codes are random.
fn operand(problem: &Problem, seed: u64) -> (Vec<u8>, Vec<u8>) {
    let (n, k) = (problem.columns() as usize, problem.depth() as usize);
    let groups = problem.groups().unwrap_or(1) as usize;
    let mut codes = vec![0; groups * n * k / 2];
    fastrand::Rng::with_seed(seed).fill(&mut codes);
    let bytes = match problem.b_format() {
        Format::Mxfp4 => n * k / 32,
        _ => problem.scale_layout().bytes(n, k),
    };
    let scales = (0..groups * bytes).map(|at| (at as u64 * 37 + seed) as u8);
    (codes, scales.collect())
}

fn on_device(
    stream: &Arc<CudaStream>,
    engine: &Engine,
    problem: &Problem,
    operands: &[(Vec<u8>, Vec<u8>)],
) -> Result<PreparedWeights, String> {
    let upload = |bytes: &Vec<u8>| stream.clone_htod(bytes).map_err(text);
    let uploaded = operands
        .iter()
        .map(|(codes, scales)| Ok((upload(codes)?, upload(scales)?)))
        .collect::<Result<Vec<_>, String>>()?;
    let matrix = |(codes, scales)| match problem.b_format() {
        Format::Mxfp4 => Matrix::mxfp4(codes, scales),
        _ => Matrix::nvfp4(codes, scales),
    };
    let b: Vec<_> = uploaded.iter().map(|(codes, scales)| matrix((codes, scales))).collect();
    engine.prepare(stream, problem, b).map_err(text)
}

pub fn is_what_the_host_prepares(bench: &Bench, case: &Case) -> Result<(), String> {
    let _turn = bench.alone();
    let engine = bench.engine();
    for shape in SHAPES {
        let problem = case.problem(shape);
        let operands: Vec<_> =
            (0..problem.operation().products()).map(|seed| operand(&problem, u64::from(seed))).collect();
        let layout = problem.prepared_layout().map_err(text)?;
        let expected = match case.weights {
            Format::Mxfp4 => {
                let weights = operands.iter().map(|(codes, scales)| Mxfp4Weights { codes, scales });
                Prepared::pack_mxfp4(layout, &weights.collect::<Vec<_>>())
            }
            _ => {
                let weights =
                    operands.iter().map(|(codes, scales)| Nvfp4Weights { codes, scales, layout: case.scales });
                Prepared::pack(layout, &weights.collect::<Vec<_>>())
            }
        };
        let expected = expected.map_err(text)?;

        let prepared = on_device(&bench.stream, &engine, &problem, &operands)?;
        let found = prepared.to_host(&bench.stream).map_err(text)?;
        let pairs = found.bytes().iter().zip(expected.bytes());
        if let Some((at, (found, expected))) = pairs.enumerate().find(|(_, (found, expected))| found != expected) {
            return Err(format!("{layout}: byte {at} is {found:#04x} on the device, {expected:#04x} on the host"));
        }
        let uploaded = PreparedWeights::from_host(&bench.stream, &expected).map_err(text)?;
        if uploaded.to_host(&bench.stream).map_err(text)? != expected {
            return Err(format!("{layout}: upload and download changed bytes"));
        }
    }
    // One kernel for all shapes.
    let compiles = engine.cache().stats().compiles;
    if compiles == 1 { Ok(()) } else { Err(format!("{compiles} compiles, not 1")) }
}

/// What does not fit ends in a sentence with both numbers, and nothing is launched.
pub fn bad_operands_are_refused(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let engine = bench.engine();
    let problem = Problem::dual_gemm(Activation::Silu).n(64).k(128);
    let [good, mut short] = [operand(&problem, 1), operand(&problem, 2)];
    short.0.pop();
    let refusal = |problem: &Problem, operands: &[(Vec<u8>, Vec<u8>)]| {
        on_device(&bench.stream, &engine, problem, operands).err().unwrap_or_default()
    };
    let found = [
        (refusal(&problem, std::slice::from_ref(&good)), "1 B given, 2 are needed"),
        (refusal(&problem, &[good.clone(), short]), "b2 has 4095 bytes of codes, 4096 are needed"),
        (refusal(&problem.n(40), &[good.clone(), good]), "n = 40: must be a positive multiple of 16"),
    ];
    match found.iter().find(|(found, expected)| !found.ends_with(expected)) {
        Some((found, expected)) => Err(format!("`{found}`, not `{expected}`")),
        None => Ok(()),
    }
}
