//! Every operation × operand formats × fusion, its variants sampled densely, at awkward M, through the gate.

use std::collections::HashMap;

use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::spec::{Cluster, Epilogue, Fusion, Rows, Tile, Warps, baseline, space};
use warpsmith::spec::{Activation, Arch, MatrixPath, Operation, Problem, Spec, Variant};
use warpsmith_tune::oracle::Reference;
use warpsmith_tune::suite::{Suite, Words};
use warpsmith_tune::{HostOperands, Spread, Trial};

use crate::bench::{Bench, samples};

const SPREADS: [Spread; 3] = [Spread::Every, Spread::Uniform, Spread::Subnormal];
/// Of e4m3 products, whose bound is a narrow one where sums are exact.
const E4M3_SPREADS: [Spread; 4] = [Spread::Exact, Spread::Every, Spread::Exact, Spread::Subnormal];

pub struct Family {
    what: &'static str,
    problem: Problem,
    /// Where several take the problem, this one.
    path: MatrixPath,
    fusion: Fusion,
    index: usize,
    /// Of so many times the variants of other families.
    share: f64,
    /// Rows that fit no tile, and some that do.
    awkward: Vec<u32>,
}

impl Family {
    /// Of the path that takes these weights everywhere, with half of the variants that families of every operand have.
    fn further(what: &'static str, problem: Problem, fusion: Fusion, index: usize, awkward: &[u32]) -> Self {
        Self { what, problem, path: usual(&problem), fusion, index, share: 0.5, awkward: awkward.to_vec() }
    }

    fn baseline(&self) -> Variant {
        Variant { path: self.path, ..baseline(&self.problem) }
    }

    pub fn name(&self) -> String {
        let Self { what, problem, path, fusion, .. } = self;
        if *path == usual(problem) {
            format!("{what}: {problem} {fusion}")
        } else {
            format!("{what}: {problem} {fusion} on {path}")
        }
    }
}

/// The path that takes these weights everywhere.
fn usual(problem: &Problem) -> MatrixPath {
    baseline(problem).path
}

/// The path of an architecture that multiplies NVFP4 tokens and weights as they are, if there is one.
pub fn block_scaled(arch: &Arch) -> Option<MatrixPath> {
    MatrixPath::of(&Problem::gemm().n(16).k(64).a(Format::Nvfp4), arch).find(|path| *path != MatrixPath::Mma)
}

/// Families for an architecture.
pub fn all(arch: &Arch) -> Vec<Family> {
    let Words { operands: pairs, shapes, m: awkward } = Suite::built_in().unwrap().words;
    // The path wgmma, which only Hopper has.
    let prepared = if arch.capability() == Arch::H200.capability() { &pairs[..3] } else { &[] };
    let ways = pairs.iter().map(|pair| (pair, false)).chain(prepared.iter().map(|pair| (pair, true)));
    let (mut families, mut count) = (Vec::new(), 0);
    for groups in [None, Some(3), Some(40)] {
        for (&(a, b), prepared) in ways.clone() {
            for fusion in Fusion::ALL.iter().copied() {
                if !prepared && matches!(fusion, Fusion::PerProduct | Fusion::PingPong) {
                    continue;
                }
                // A counter gives every family another mix of what is not its name.
                let index = count;
                count += 1;
                let problem = plain(fusion, index);
                let (n, k) = shapes[index % shapes.len()];
                let c = [Format::F16, Format::Bf16, Format::F32][index / 2 % 3];
                let layout = [ScaleLayout::Linear, ScaleLayout::Swizzled128x4][index / 3 % 2];
                let problem = problem.n(n).k(k).a(a).b(b).c(c).scales(layout);
                let problem = groups.map_or(problem, |groups| problem.grouped(groups));
                let problem = if prepared { problem.prepared() } else { problem };
                let family =
                    |problem| Family { share: 1.0, ..Family::further("gate", problem, fusion, index, &awkward) };
                families.push(family(problem));
                let bias = [Format::F32, Format::F16, Format::Bf16][index / 3 % 3];
                let columns = match index % 6 {
                    0 => problem.row_scale().bias(bias),
                    2 => problem.bias(bias),
                    4 => problem.row_scale(),
                    _ => continue,
                };
                families.push(family(columns));
            }
        }
    }
    families.extend(mxfp4(arch, &shapes, &awkward));
    families.extend(e4m3(arch, &shapes, &awkward));
    families.extend(activations(arch, &pairs, &awkward));
    families.extend(moved(arch, &pairs, &awkward));
    families.extend(as_they_are(arch, &shapes, &awkward));
    families.extend(coded(arch, &awkward));
    families
}

/// Whether a fusion is tried with a gemm: one that goes with both operations, with each in turn.
fn has_one_product(fusion: Fusion, index: usize) -> bool {
    fusion == Fusion::Single || (fusion == Fusion::PingPong && index % 2 == 1)
}

/// An operation with that fusion: a gemm as it is, or two products and few activations in turn.
fn plain(fusion: Fusion, index: usize) -> Problem {
    if has_one_product(fusion, index) { Problem::gemm() } else { Problem::dual_gemm(ACTIVATIONS[index % 3]) }
}

/// An operation with that fusion, its activations in turn.
fn operation(fusion: Fusion, index: usize) -> Problem {
    if has_one_product(fusion, index) {
        Problem::gemm().activation(Activation::UNGATED[index % Activation::UNGATED.len()])
    } else {
        Problem::dual_gemm(Activation::GATED[index % Activation::GATED.len()])
    }
}

/// With what columns may have, in turn.
fn with_columns(problem: Problem, index: usize) -> Problem {
    let bias = [Format::F32, Format::F16, Format::Bf16][index / 3 % 3];
    match index % 5 {
        0 => problem.row_scale().bias(bias),
        2 => problem.bias(bias),
        4 => problem.row_scale(),
        _ => problem,
    }
}

/// The paths that multiply NVFP4 as it is, where there is one: every fusion, scale layout and number of groups, rows taken and
/// put where they are and by their numbers; activations, formats and what columns have in turn.
fn as_they_are(arch: &Arch, shapes: &[(u32, u32)], awkward: &[u32]) -> Vec<Family> {
    let mut families = Vec::new();
    let Some(path) = block_scaled(arch) else { return families };
    for groups in [None, Some(3), Some(40)] {
        for fusion in [Fusion::Single, Fusion::Interleaved, Fusion::TwoPass, Fusion::Sequential] {
            if path == MatrixPath::Tcgen05 && fusion == Fusion::Sequential {
                continue;
            }
            for layout in [ScaleLayout::Linear, ScaleLayout::Swizzled128x4] {
                for (gathered, slots) in [(false, false), (false, true), (true, false), (true, true)] {
                    let index = families.len();
                    let problem = operation(fusion, index);
                    let (n, k) = shapes[(index + index / 4) % shapes.len()];
                    let c = [Format::F16, Format::Bf16, Format::F32][index % 3];
                    let problem = if gathered { problem.gathered() } else { problem };
                    let problem = problem.n(n).k(k).a(Format::Nvfp4).c(c).scales(layout);
                    let problem = groups.map_or(problem, |groups| problem.grouped(groups));
                    let problem = if slots { problem.slots() } else { problem };
                    let problem = with_columns(problem, index);
                    let further = Family::further("gate", problem, fusion, index, awkward);
                    families.push(Family { path, ..further });
                }
            }
        }
    }
    families
}

/// Results in NVFP4, on every path that has them: every fusion, scale layout and number of groups; formats of operands, rows that
/// are taken and put by their numbers, activations and what columns have in turn.
fn coded(arch: &Arch, awkward: &[u32]) -> Vec<Family> {
    let mut families = Vec::new();
    for path in [Some(MatrixPath::Mma), block_scaled(arch)].into_iter().flatten() {
        for groups in [None, Some(3), Some(40)] {
            for fusion in [Fusion::Single, Fusion::Interleaved, Fusion::TwoPass, Fusion::Sequential] {
                if path == MatrixPath::Tcgen05 && fusion == Fusion::Sequential {
                    continue;
                }
                for layout in [ScaleLayout::Linear, ScaleLayout::Swizzled128x4] {
                    let index = families.len();
                    let a = match path {
                        MatrixPath::Mma => [Format::Bf16, Format::Nvfp4, Format::F16][index % 3],
                        _ => Format::Nvfp4,
                    };
                    let (n, k) = [(64, 64), (192, 448), (320, 704), (448, 192)][(index + index / 4) % 4];
                    let problem = operation(fusion, index).n(n).k(k).a(a).c(Format::Nvfp4).scales(layout);
                    let problem = groups.map_or(problem, |groups| problem.grouped(groups));
                    let problem = if index / 2 % 3 == 1 { problem.gathered() } else { problem };
                    let problem = if index / 2 % 3 > 0 { problem.slots() } else { problem };
                    let problem = with_columns(problem, index);
                    let further = Family::further("coded: gate", problem, fusion, index, awkward);
                    families.push(Family { path, ..further });
                }
            }
        }
    }
    families
}

/// MXFP4 weights, as they are, and prepared where there is a path that takes them so: every fusion, 16-bit format and number of
/// groups, rows where they are and by their numbers; activations, formats and what columns have in turn.
fn mxfp4(arch: &Arch, shapes: &[(u32, u32)], awkward: &[u32]) -> Vec<Family> {
    let plain = [Fusion::Single, Fusion::Interleaved, Fusion::TwoPass, Fusion::Sequential];
    let all = plain.into_iter().chain([Fusion::PerProduct, Fusion::PingPong]);
    let kinds = plain.map(|fusion| (false, fusion)).into_iter().chain(all.map(|fusion| (true, fusion)));
    let has_path = arch.capability() == Arch::H200.capability();
    let kinds: Vec<_> = kinds.filter(|(is_prepared, _)| has_path || !is_prepared).collect();
    let mut families = Vec::new();
    for groups in [None, Some(3), Some(40)] {
        for &(is_prepared, fusion) in &kinds {
            for a in [Format::Bf16, Format::F16] {
                for (gathered, slots) in [(false, false), (true, true)] {
                    let index = families.len();
                    let problem = operation(fusion, index);
                    let (n, k) = shapes[index / 2 % shapes.len()];
                    let c = [Format::F16, Format::Bf16, Format::F32][index % 3];
                    let problem = problem.n(n).k(k).a(a).b(Format::Mxfp4).c(c);
                    let problem = groups.map_or(problem, |groups| problem.grouped(groups));
                    let problem = if gathered { problem.gathered() } else { problem };
                    let problem = if slots { problem.slots() } else { problem };
                    let problem = if is_prepared { problem.prepared() } else { problem };
                    let problem = with_columns(problem, index);
                    families.push(Family::further("mxfp4: gate", problem, fusion, index, awkward));
                }
            }
        }
    }
    families
}

/// e4m3 tokens, which one path of Hopper takes: every fusion and number of groups, rows where they are and by their numbers;
/// activations, scale layouts, formats and what columns have in turn.
fn e4m3(arch: &Arch, shapes: &[(u32, u32)], awkward: &[u32]) -> Vec<Family> {
    let mut families = Vec::new();
    if arch.capability() != Arch::H200.capability() {
        return families;
    }
    for groups in [None, Some(3), Some(40)] {
        for fusion in Fusion::ALL.iter().copied() {
            for (gathered, slots) in [(false, false), (false, true), (true, true)] {
                let index = families.len();
                let (n, k) = shapes[index / 2 % shapes.len()];
                let c = [Format::F32, Format::F16, Format::Bf16][index % 3];
                let layout = [ScaleLayout::Linear, ScaleLayout::Swizzled128x4][index / 2 % 2];
                let problem = operation(fusion, index).n(n).k(k).a(Format::E4m3).c(c).scales(layout).prepared();
                let problem = groups.map_or(problem, |groups| problem.grouped(groups));
                let problem = if gathered { problem.gathered() } else { problem };
                let problem = with_columns(if slots { problem.slots() } else { problem }, index);
                families.push(Family::further("e4m3: gate", problem, fusion, index, awkward));
            }
        }
    }
    // Factors along K: everything in turn but fusions and groups.
    for groups in [None, Some(3)] {
        for fusion in Fusion::ALL.iter().copied() {
            let index = families.len();
            let (n, k) = shapes[index % shapes.len()];
            let c = [Format::F32, Format::F16, Format::Bf16][index % 3];
            let problem = operation(fusion, index).n(n).k(k).a(Format::E4m3).k_factors().c(c).prepared();
            let problem = groups.map_or(problem, |groups| problem.grouped(groups));
            let problem = if index % 2 == 0 { problem.gathered() } else { problem };
            let problem = with_columns(if index % 3 == 0 { problem.slots() } else { problem }, index);
            families.push(Family::further("e4m3: gate", problem, fusion, index, awkward));
        }
    }
    // The same of expanded weights.
    for groups in [None, Some(3), Some(40)] {
        for fusion in Fusion::ALL.iter().copied() {
            for k_factors in [false, true] {
                let index = families.len();
                let (n, k) = shapes[index % shapes.len()];
                let c = [Format::F32, Format::F16, Format::Bf16][index % 3];
                let layout = [ScaleLayout::Linear, ScaleLayout::Swizzled128x4][index / 2 % 2];
                let problem = operation(fusion, index).n(n).k(k).a(Format::E4m3).c(c).scales(layout).expanded();
                let problem = groups.map_or(problem, |groups| problem.grouped(groups));
                let problem = if k_factors { problem.k_factors() } else { problem };
                let problem = if index % 3 == 0 { problem.gathered() } else { problem };
                let problem = with_columns(if index % 4 < 2 { problem.slots() } else { problem }, index);
                families.push(Family::further("expanded: gate", problem, fusion, index, awkward));
            }
        }
    }
    families
}

/// The other activations on every path, alone and in groups: fusions, formats and what columns have in turn.
fn activations(arch: &Arch, pairs: &[(Format, Format)], awkward: &[u32]) -> Vec<Family> {
    let single = Activation::UNGATED.iter().map(|activation| Problem::gemm().activation(*activation));
    let dual = Activation::GATED.iter().map(|activation| Problem::dual_gemm(*activation));
    let problems: Vec<Problem> = single
        .filter(|problem| problem.operation().activation() != Activation::None)
        .chain(dual.filter(|problem| !ACTIVATIONS.contains(&problem.operation().activation())))
        .collect();
    let paths = if arch.capability() == Arch::H200.capability() { &[false, true][..] } else { &[false] };
    let mut families = Vec::new();
    for &prepared in paths {
        for groups in [None, Some(3)] {
            for &problem in &problems {
                let index = families.len();
                let fusions = match (problem.operation(), prepared) {
                    (Operation::Gemm(_), _) => &[Fusion::Single][..],
                    (_, false) => &[Fusion::Interleaved, Fusion::TwoPass, Fusion::Sequential],
                    (_, true) => &[Fusion::Interleaved, Fusion::PerProduct, Fusion::PingPong, Fusion::TwoPass],
                };
                let (a, b) = pairs[index % 3];
                let c = [Format::F32, Format::F16, Format::Bf16][index % 3];
                let (n, k) = [(144, 448), (272, 192)][index % 2];
                let problem = problem.n(n).k(k).a(a).b(b).c(c);
                let problem = groups.map_or(problem, |groups| problem.grouped(groups));
                let problem = if prepared { problem.prepared() } else { problem };
                let problem = if index % 4 < 2 { problem } else { problem.row_scale().bias(Format::F32) };
                let fusion = fusions[index % fusions.len()];
                families.push(Family::further("activations: gate", problem, fusion, index, awkward));
            }
        }
    }
    families
}

/// Rows that are taken, or put, by their numbers, on every path, alone and in groups: fusions, formats and what columns have
/// in turn.
fn moved(arch: &Arch, pairs: &[(Format, Format)], awkward: &[u32]) -> Vec<Family> {
    let paths = if arch.capability() == Arch::H200.capability() { &[false, true][..] } else { &[false] };
    let mut families = Vec::new();
    for &prepared in paths {
        for groups in [None, Some(3), Some(40)] {
            for (gathered, slots) in [(true, false), (false, true), (true, true)] {
                let mut fusions = vec![Fusion::Single, Fusion::Interleaved, Fusion::TwoPass, Fusion::Sequential];
                if prepared {
                    fusions.extend([Fusion::PerProduct, Fusion::PingPong]);
                }
                for fusion in fusions {
                    let index = families.len();
                    let problem = plain(fusion, index);
                    // The path wgmma gathers no NVFP4 tokens.
                    let kinds = pairs.iter().filter(|(a, _)| !(gathered && prepared) || *a != Format::Nvfp4);
                    let known: Vec<_> = kinds.filter(|(_, b)| !prepared || *b == Format::Nvfp4).collect();
                    let (a, b) = *known[index % known.len()];
                    let c = [Format::F32, Format::F16, Format::Bf16][index / 2 % 3];
                    let (n, k) = [(144, 448), (272, 192), (304, 704)][index % 3];
                    let problem = problem.n(n).k(k).a(a).b(b).c(c);
                    let problem = groups.map_or(problem, |groups| problem.grouped(groups));
                    let problem = if gathered { problem.gathered() } else { problem };
                    let problem = if slots { problem.slots() } else { problem };
                    let problem = if prepared { problem.prepared() } else { problem };
                    let problem = if index % 4 < 3 { problem } else { problem.row_scale().bias(Format::F32) };
                    families.push(Family::further("moved: gate", problem, fusion, index, awkward));
                }
            }
        }
    }
    families
}

/// Rows of each group that together are `m`: uneven, with empty groups among them.
pub fn rows(problem: &Problem, m: u32, seed: u64) -> Vec<u32> {
    let groups = problem.groups().unwrap_or(1) as usize;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut ends: Vec<u32> = (1..groups).map(|_| rng.u32(..=m)).chain([m]).collect();
    ends.sort_unstable();
    let mut begin = 0;
    ends.into_iter().map(|end| end - std::mem::replace(&mut begin, end)).collect()
}

/// Legal variants with axis values that are not searched but may be pinned: 56 tokens, 5 stages, 3 splits …
fn legal_between(family: &Family, arch: &Arch, count: usize) -> Vec<Spec> {
    let mut rng = fastrand::Rng::with_seed(family.index as u64);
    let random = std::iter::repeat_with(|| {
        let variant = Variant { fusion: family.fusion, ..family.baseline() };
        Spec::check(&family.problem, &drawn(&mut rng, variant, &family.problem), arch).ok()
    });
    random.take(20_000).flatten().take(count).collect()
}

/// A variant of its path and fusion with random values of all other axes, whether it is legal or not.
pub fn drawn(rng: &mut fastrand::Rng, variant: Variant, problem: &Problem) -> Variant {
    let tile = Tile { tokens: 8 * rng.u32(1..=32), columns: 32 * rng.u32(1..=8), k: 64 << rng.u32(..3) };
    let variant = Variant { tile, stages: rng.u32(1..=16), split_k: rng.u32(1..=7), ..variant };
    match variant.path {
        MatrixPath::Wgmma => wgmma(rng, variant, problem.compute_format() == Format::E4m3),
        MatrixPath::Tcgen05 => tcgen05(rng, variant),
        _ => variant,
    }
}

/// Random values of the axes that only the path wgmma has.
fn wgmma(rng: &mut fastrand::Rng, variant: Variant, rounds: bool) -> Variant {
    let warps = match rng.u32(..10) {
        0 | 1 => Warps::Uniform,
        2..=5 if rounds => Warps::Decoding { consumers: rng.u32(1..=4), decoders: rng.u32(1..=2) },
        _ => Warps::Specialised(rng.u32(1..=4)),
    };
    let cluster = match rng.u32(..4) {
        0 => Cluster::SplitK(2 << rng.u32(..2)),
        1 => Cluster::Multicast(2 << rng.u32(..2)),
        _ => Cluster::None,
    };
    let split_k = if rng.bool() { 1 } else { variant.split_k };
    let epilogue = Epilogue::ALL[rng.usize(..3)];
    Variant { warps, cluster, split_k, epilogue, persistent: rng.bool(), prepass: rng.bool(), ..variant }
}

/// Random values of the axes of the path tcgen05.
fn tcgen05(rng: &mut fastrand::Rng, variant: Variant) -> Variant {
    let rows = if rng.bool() { Rows::Weights } else { Rows::Tokens };
    let cluster = if rng.bool() { Cluster::Pair } else { Cluster::None };
    let (wide, of_instruction) = (16 * rng.u32(1..=16), 128 * cluster.tile_blocks());
    let tile = match rows {
        Rows::Weights => Tile { tokens: wide, columns: of_instruction, k: 256 },
        _ => Tile { tokens: of_instruction, columns: 64 * rng.u32(1..=4), k: 256 },
    };
    let warps = Warps::Specialised(1);
    Variant { tile, warps, cluster, rows, persistent: variant.split_k == 1 && rng.bool(), ..variant }
}

/// What the families of every operand have.
const ACTIVATIONS: [Activation; 3] = [Activation::Silu, Activation::GeluTanh, Activation::None];

pub fn passes_the_gate(bench: &Bench, family: &Family) -> Result<(), String> {
    let samples = (samples() * family.share).ceil() as usize;
    let (decoded, legal): (Vec<Spec>, Vec<Spec>) = space(&family.problem, bench.arch())
        .filter(|spec| spec.variant().fusion == family.fusion && spec.variant().path == family.path)
        .partition(|spec| spec.variant().warps.decoders() > 0);
    // Where others decode, kernels are of another kind: as many of them. So are tall tiles, where registers change hands: some more.
    let is_tall = |spec: &&Spec| spec.variant().path == MatrixPath::Wgmma && spec.variant().tile.tokens > 128;
    let tall: Vec<Spec> = legal.iter().filter(is_tall).copied().collect();
    let sampled = |of: Vec<Spec>, samples: usize| {
        let step = (of.len() / samples).max(1);
        // A step that shares no factor with the axes' sizes walks through all their values.
        let step = (step..).find(|step| step % 2 != 0 && step % 3 != 0).unwrap_or(1);
        of.into_iter().skip(family.index % step).step_by(step)
    };
    let between = legal_between(family, bench.arch(), samples / 3);
    let tall = sampled(tall, samples.div_ceil(3));
    let specs: Vec<Spec> =
        sampled(legal, samples).chain(sampled(decoded, samples)).chain(tall).chain(between).collect();
    bench.compile(&specs);

    let rows_of =
        |index: usize| [0, 5, 10].map(|turn| family.awkward[(family.index + 3 * index + turn) % family.awkward.len()]);
    let mut operands: HashMap<u32, (HostOperands, Reference)> = HashMap::new();
    // Before the device is one's own: others have it meanwhile.
    for m in (0..specs.len()).flat_map(rows_of) {
        operands.entry(m).or_insert_with(|| {
            let rounds = family.problem.compute_format() == Format::E4m3;
            let spreads = if rounds { &E4M3_SPREADS[..] } else { &SPREADS };
            let spread = spreads[(family.index + m as usize) % spreads.len()];
            let host = HostOperands::random(&family.problem, &rows(&family.problem, m, u64::from(m)), spread, 7);
            let reference = host.reference().unwrap();
            (host, reference)
        });
    }
    let _turn = bench.alone();
    let mut wrong = Vec::new();
    for (index, spec) in specs.iter().enumerate() {
        let kernel = bench.kernel(spec)?;
        for m in rows_of(index) {
            let (host, reference) = &operands[&m];
            let trial = Trial::new(&bench.stream, host, reference).map_err(|error| error.to_string())?;
            let checked = trial.check(&kernel).map_err(|error| format!("{spec}, m = {m}: {error}"))?;
            bench.note(spec, m, &checked);
            if !checked.passed() {
                wrong.push(format!("{spec}, m = {m}: {checked}"));
            }
        }
    }
    let is_gemm = matches!(family.problem.operation(), Operation::Gemm(_));
    assert_eq!(is_gemm, has_one_product(family.fusion, family.index));
    if wrong.is_empty() { Ok(()) } else { Err(format!("{} wrong:\n{}", wrong.len(), wrong.join("\n"))) }
}
