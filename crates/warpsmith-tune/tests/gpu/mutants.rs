//! Kernels with one thing wrong, made by changing the CUDA itself: the gate must refuse each.

use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::build::Source;
use warpsmith::internal::format::e8m0;
use warpsmith::spec::{Activation, Arch, MatrixPath, Operation, Problem, Spec};
use warpsmith_tune::{HostMatrix, HostOperands, Spread, Trial};

mod coded;
mod e4m3;
mod mxf4;
mod mxfp4;
mod wgmma;

use crate::bench::{Bench, changed, every_lane_arrives};
use crate::families::{block_scaled, rows};
use crate::tcgen05;

/// What most mutants compute.
const SILU: Operation = Operation::DualGemm(Activation::Silu);

#[derive(Clone, Copy)]
pub struct Mutant {
    pub what: &'static str,
    /// In every header or the entry file where it stands, this text …
    pub from: &'static str,
    /// … becomes this.
    pub to: &'static str,
    /// Further changes of the same kind.
    pub also: &'static [(&'static str, &'static str)],
    /// What is changed.
    pub variant: &'static str,
    /// The format of its tokens.
    pub a: Format,
    /// The format of its weights.
    pub b: Format,
    /// The format of its result.
    pub c: Format,
    /// What is done to its products.
    pub operation: Operation,
    /// Rows are taken and put by their numbers.
    pub moved: bool,
    /// Tokens have factors for each 128 of K.
    pub k_factors: bool,
    /// Weights are expanded.
    pub expanded: bool,
    /// It reads too early, and on a GPU may find what it wants all the same: one is sought where a GPU is emulated.
    pub races: bool,
}

impl Mutant {
    /// Of a dual GEMM with SiLU on NVFP4 weights.
    pub const fn new(
        variant: &'static str,
        a: Format,
        what: &'static str,
        from: &'static str,
        to: &'static str,
    ) -> Self {
        let (b, c) = (Format::Nvfp4, Format::F16);
        let (operation, moved, k_factors, expanded, races) = (SILU, false, false, false, false);
        Self { what, from, to, also: &[], variant, a, b, c, operation, moved, k_factors, expanded, races }
    }

    /// What makes such mutants of a variant, for tokens in a format.
    pub fn of(variant: &'static str, a: Format) -> impl Fn(&'static str, &'static str, &'static str) -> Self + Copy {
        move |what, from, to| Self::new(variant, a, what, from, to)
    }

    /// The same, with rows that are taken and put by their numbers.
    pub fn of_moved(
        variant: &'static str,
        a: Format,
    ) -> impl Fn(&'static str, &'static str, &'static str) -> Self + Copy {
        move |what, from, to| Self { moved: true, ..Self::new(variant, a, what, from, to) }
    }

    /// Rows of all groups together: some more than a tile has.
    fn rows(&self) -> u32 {
        const NEED_MANY: [&str; 5] = ["t256x", "t192x", "t144x", "t112x", "s14.ping_pong"];
        match () {
            () if NEED_MANY.iter().any(|part| self.variant.contains(part)) => 420,
            () if self.variant.contains("t160x") => 90,
            () if self.variant.contains("pair") => 150,
            // More than an atom of scales has.
            () if self.moved && self.a == Format::Nvfp4 => 200,
            () => 76,
        }
    }

    /// It is of no groups, of which a last tile, or the scales of tokens, are loaded otherwise.
    fn is_alone(&self) -> bool {
        ["t48x64x", "t128x256x256", "t256x128x256"].iter().any(|tile| self.variant.contains(tile))
    }

    pub fn name(&self) -> String {
        let path = self.variant.split('.').next().unwrap_or_default();
        match self.operation {
            _ if self.c == Format::Nvfp4 => format!("coded: mutant of {path}, {}: {}", self.variant, self.what),
            _ if self.b == Format::Mxfp4 => format!("mxfp4: mutant of {path}, {} tokens: {}", self.a, self.what),
            SILU if self.expanded => format!("expanded: mutant of {path}: {}", self.what),
            SILU if self.k_factors => format!("e4m3: mutant of {path}, along K: {}", self.what),
            SILU if self.a == Format::E4m3 && self.moved => format!("e4m3: mutant of {path}, gathered: {}", self.what),
            SILU if self.a == Format::E4m3 => format!("e4m3: mutant of {path}: {}", self.what),
            SILU if self.moved => format!("moved: mutant of {path}: {}", self.what),
            SILU => format!("mutant of {path}: {}", self.what),
            of => {
                let operation = if of.products() == 1 { "gemm" } else { "dual_gemm" };
                format!("activations: mutant of {path}, {operation}.{}: {}", of.activation(), self.what)
            }
        }
    }
}

pub fn all(arch: &Arch) -> Vec<Mutant> {
    let mut mutants = mma();
    mutants.extend(mxfp4::as_given());
    mutants.extend(moved("mma.t32x64x128.s3.interleaved.uniform.direct"));
    mutants.extend(activations("mma.t32x64x128.s3.interleaved.uniform.direct"));
    // The path wgmma, which only Hopper has.
    if arch.capability() == Arch::H200.capability() {
        mutants.extend(wgmma::mutants());
        mutants.extend(e4m3::mutants());
        mutants.extend(e4m3::decoders());
        mutants.extend(mxfp4::prepared());
        mutants.extend(e4m3::gathered());
        mutants.extend(e4m3::along_k());
        mutants.extend(e4m3::expanded());
        mutants.extend(moved("wgmma.t64x64x128.s3.interleaved.ws2.shared"));
        mutants.extend(moved("wgmma.t32x64x64.s8.interleaved.ws2.tma.persistent"));
        mutants.extend(activations("wgmma.t64x64x128.s2.interleaved.ws2.shared"));
    }
    mutants.extend(moved_codes("mma.t32x64x128.s3.interleaved.uniform.direct"));
    mutants.extend(coded::mutants("mma.t32x64x128.s3.interleaved.uniform.direct"));
    match block_scaled(arch) {
        Some(MatrixPath::Mxf4) => {
            mutants.extend(mxf4::mutants());
            mutants.extend(coded::mutants("mxf4.t40x256x128.s2.sequential.uniform.direct"));
            mutants.extend(coded::mutants("mxf4.t32x64x128.s3.two_pass.uniform.direct"));
            mutants.extend(moved_codes("mxf4.t32x64x128.s3.interleaved.uniform.direct"));
        }
        Some(MatrixPath::Tcgen05) => {
            mutants.extend(tcgen05::mutants());
            mutants.extend(coded::mutants("tcgen05.t48x128x256.s2.interleaved.ws1.direct"));
            mutants.extend(coded::mutants("tcgen05.t128x64x256.s2.interleaved.ws1.direct.token_rows"));
        }
        _ => {}
    }
    mutants
}

/// What may be wrong with an activation, of this variant.
fn activations(variant: &'static str) -> Vec<Mutant> {
    let of = |operation: Operation, what, from, to| {
        let variant = match operation {
            Operation::Gemm(_) if variant.starts_with("wgmma") => "wgmma.t64x64x128.s2.single.ws1.shared",
            Operation::Gemm(_) => "mma.t32x64x128.s3.single.uniform.direct",
            _ => variant,
        };
        Mutant { operation, ..Mutant::new(variant, Format::F16, what, from, to) }
    };
    let gated = |activation| move |what, from, to| of(Operation::DualGemm(activation), what, from, to);
    let single = |activation| move |what, from, to| of(Operation::Gemm(activation), what, from, to);
    let (clamp, oai, gelu) = (gated(Activation::SiluClamp(7)), gated(Activation::SwigluOai), gated(Activation::Gelu));
    let (relu2, plain_gelu, plain) = (single(Activation::Relu2), single(Activation::Gelu), single(Activation::None));
    let mut mutants: Vec<Mutant> = [clamp, oai]
        .iter()
        .flat_map(|of| {
            [
                of("the gate not clamped", "min_nan(gate, static_cast<float>(LIMIT))", "gate"),
                of("up not clamped", "return clamped_up(up)", "return up"),
                of("up clamped above alone", "-static_cast<float>(LIMIT));", "-128.f);"),
                of("another limit", "LIMIT = 7 };", "LIMIT = 8 };"),
            ]
        })
        .collect();
    mutants.extend([
        clamp("the gate clamped below, too", "-128.f", "-static_cast<float>(LIMIT)"),
        clamp("silu without a clamp", "activation/silu_clamp.cuh", "activation/silu.cuh"),
        clamp("swiglu_oai for it", "activation/silu_clamp.cuh", "activation/swiglu_oai.cuh"),
        oai("up without 1", "clamped_up(up) + 1.f", "clamped_up(up)"),
        oai("silu for its gate", "ALPHA_LOG2_E = 2.4554669595930157f", "ALPHA_LOG2_E = 1.4426950408889634f"),
        gelu("gelu_tanh for it", "activation/gelu.cuh", "activation/gelu_tanh.cuh"),
        gelu("a coefficient of its polynomial", "0.192184627f", "0.202184627f"),
        plain_gelu("gelu_tanh for it", "activation/gelu.cuh", "activation/gelu_tanh.cuh"),
        plain_gelu("none", "return activate(column", "return (column"),
        relu2("not squared", "return above * above", "return above"),
        relu2("squared without relu", "max_nan(x, 0.f)", "x"),
        relu2(
            "before α",
            "activate(column.of(0, alphas.value[0] * products[0]))",
            "alphas.value[0] * activate(column.of(0, products[0]))",
        ),
        plain("silu for nothing", "activation/none.cuh", "activation/silu.cuh"),
    ]);
    mutants
}

/// What may be wrong with rows that are taken and put by their numbers.
fn moved(variant: &'static str) -> Vec<Mutant> {
    let mutant = Mutant::of_moved(variant, Format::F16);
    let mut mutants = vec![
        mutant("rows put where they are", "of(launch).slots[row]", "row"),
        mutant("no factors", "__fmul_rn(value, factors[row])", "value"),
        mutant("factors of the neighbour", "factors[row])", "factors[row ^ 1])"),
    ];
    mutants.extend(if variant.starts_with("mma") {
        [
            mutant("rows taken where they are", "numbers[row] : -1", "row : -1"),
            mutant(
                "the neighbour of each row",
                "static_cast<long long>(number) * K",
                "static_cast<long long>(number ^ 1) * K",
            ),
        ]
    } else {
        [
            mutant(
                "rows taken where they are",
                "params.rows[tile.first_row + first + round * STEP]",
                "tile.first_row + first + round * STEP",
            ),
            mutant("a number that A has not taken for the first", "zeros |= u32(!is_there) << round;", ""),
        ]
    });
    if variant.starts_with("wgmma") {
        mutants.push(mutant(
            "the last row of a thread is A's first",
            "is_there ? row",
            "is_there && round + 1 < rounds ? row",
        ));
        mutants.push(mutant("the swizzle left out", "(chunk ^ (first % 8)) * 16", "chunk * 16"));
    }
    mutants
}

/// The same of NVFP4 tokens, which have scales beside their codes, where `cp.async` brings both.
fn moved_codes(variant: &'static str) -> Vec<Mutant> {
    let mutant = Mutant::of_moved(variant, Format::Nvfp4);
    vec![
        mutant("codes and scales of rows where they are", "numbers[row] : -1", "row : -1"),
        mutant(
            "the codes of the neighbour of each row",
            "static_cast<long long>(number) * (K / 2)",
            "static_cast<long long>(number == 0) * (K / 2)",
        ),
        mutant(
            "the scales of the neighbour of each row",
            "scale_begin(number) + scale_offset(scale_row(number), k_block)",
            "scale_begin(number == 0) + scale_offset(scale_row(number == 0), k_block)",
        ),
        mutant("the scales of another atom", "scale_begin(number) + scale", "scale"),
        // Both: scales of zero would hide the codes.
        Mutant {
            also: &[("rows.scales + from, valid)", "rows.scales + from, is_inside)")],
            ..mutant(
                "a number that A has not taken for the first",
                "rows.values + from, valid)",
                "rows.values + from, is_inside)",
            )
        },
        mutant("codes of the next 64 of K", "* (K / 2) + in_row", "* (K / 2) + (in_row ^ 32)"),
    ]
}

fn mma() -> Vec<Mutant> {
    let mutant = Mutant::of("mma.t32x64x128.s3.interleaved.uniform.direct", Format::Nvfp4);
    vec![
        mutant(
            "a tile of zeros",
            "float run[RUN];",
            "float run[RUN] = {}; if (block.first_column == 0) { Output::store(params.c, static_cast<long long>(row) * N + column, run); return; }",
        ),
        mutant(
            "one NaN",
            "run[i] = Destination::scaled(params, row, combine(products, alphas, columns.of[i]));",
            "run[i] = Destination::scaled(params, row, combine(products, alphas, columns.of[i])); if (row == 5 && column + i == 7) run[i] = __int_as_float(0x7FC00000);",
        ),
        mutant("an element not written", "if (row < block.rows)", "if (row < block.rows && row != 3)"),
        mutant("rows swapped", "n8 * 8 + 2 * lane_k() + token;", "n8 * 8 + 2 * lane_k() + 1 - token;"),
        mutant("columns swapped", "[n8][i / 2][2 * (i % 2) + token]", "[n8][i / 2][2 * (1 - i % 2) + token]"),
        mutant(
            "every scale is its neighbour's",
            "CODES + k_block * ROWS * 4 + position * 4 + quarter",
            "CODES + k_block * ROWS * 4 + position * 4 + (quarter ^ 1)",
        ),
        mutant(
            "subnormal scales flushed",
            "magnitude == 0x7Fu ? 0x7FFFu",
            "magnitude < 8u ? 0u : magnitude == 0x7Fu ? 0x7FFFu",
        ),
        mutant("the sign of codes lost", "(sign & 0x80808080u)", "(sign & 0u)"),
        mutant("a code decoded as its neighbour", "0x7362u", "0x6362u"),
        mutant(
            "the last tile along K lost",
            "constexpr int K_TILES = ceil_div(K, TILE_K);",
            "constexpr int K_TILES = ceil_div(K, TILE_K) - 1;",
        ),
        mutant("gate and up exchanged", "fusion.sums[product]", "fusion.sums[PRODUCTS - 1 - product]"),
        mutant("no activation", "activate(column.of(0,", "(column.of(0,"),
        mutant(
            "α after the activation",
            "activate(column.of(0, alphas.value[0] * products[0]))",
            "alphas.value[0] * activate(column.of(0, products[0]))",
        ),
        mutant("α of another group", "group * params.alpha_step[i]", "(GROUPS - 1 - group) * params.alpha_step[i]"),
        mutant("no factors of rows of B", "return __fmul_rn(value, of[product]);", "return value;"),
        mutant(
            "factors of another group",
            "(group) * params.row_scale_step[product]",
            "(0) * params.row_scale_step[product]",
        ),
        mutant("the bias of the next column", "group, min(first(i), N - 1));", "group, min(first(i) + 1, N - 1));"),
        mutant(
            "the bias after the activation",
            "activate(column.of(0, alphas.value[0] * products[0]))",
            "column.bias.added(0, activate(column.row_scale.scaled(0, alphas.value[0] * products[0])))",
        ),
        mutant("a row too many written", "if (row < block.rows)", "if (row <= block.rows)"),
        mutant(
            "groups begin a row late",
            "__shfl_sync(~0u, begin, owner) + tile * TOKENS",
            "__shfl_sync(~0u, begin, owner) + 1 + tile * TOKENS",
        ),
        mutant("padding scales read", "row % 128) / 32 * 4", "row % 128) / 32 * 4 + (row % 128 == 5 ? 8 : 0)"),
    ]
}

fn mutated(source: &Source, mutant: &Mutant) -> Result<Source, String> {
    let changes: Vec<_> = mutant.also.iter().copied().chain([(mutant.from, mutant.to)]).collect();
    changed(source, &changes).map_err(|from| format!("`{from}` stands nowhere: the mutant is out of date"))
}

/// A problem in which everything counts: groups, α, factors and a bias of their own, subnormal scales in both operands, an M that fits no
/// tile, a K that ends inside one.
fn spec(mutant: &Mutant, arch: &Arch) -> Result<Spec, String> {
    let (problem, k) = match mutant.operation {
        Operation::Gemm(activation) => (Problem::gemm().activation(activation), 128),
        // So deep that stages are filled again.
        SILU if mutant.variant.starts_with("tcgen05") => (Problem::dual_gemm(Activation::Silu), 1088),
        SILU => (Problem::dual_gemm(Activation::Silu), 448),
        // A shallow K: sums are known so well that activations which are alike differ by more.
        Operation::DualGemm(activation) => (Problem::dual_gemm(activation), 128),
        other => return Err(format!("{other:?} has no mutants")),
    };
    let layout = if mutant.b == Format::Mxfp4 { ScaleLayout::Linear } else { ScaleLayout::Swizzled128x4 };
    let n = if mutant.c == Format::Nvfp4 { 192 } else { 144 };
    let problem = problem.n(n).k(k).a(mutant.a).b(mutant.b).c(mutant.c).scales(layout);
    let problem = if mutant.is_alone() { problem } else { problem.grouped(3) };
    let problem = problem.row_scale().bias(Format::Bf16);
    // So deep that sums which nobody promotes lose bits, and a result that shows them.
    let problem = if mutant.a == Format::E4m3 { problem.k(2112).c(Format::F32) } else { problem };
    let problem = if mutant.k_factors { problem.k_factors() } else { problem };
    let problem = if mutant.moved { problem.gathered().slots() } else { problem };
    let problem = match mutant.variant.starts_with("wgmma") {
        true if mutant.expanded => problem.expanded(),
        true => problem.prepared(),
        false => problem,
    };
    let variant = mutant.variant.parse().unwrap();
    Spec::new(&problem, &variant, arch).map_err(|error| error.to_string())
}

/// Every mutant, and every change for racecheck, finds its place in today's text. Needs no GPU.
pub fn are_up_to_date() -> Result<(), String> {
    let known =
        [Arch::H200, Arch::RTX5090, Arch::B200].map(|arch| all(&arch).into_iter().map(move |mutant| (mutant, arch)));
    for (mutant, arch) in known.into_iter().flatten() {
        let spec = spec(&mutant, &arch)?;
        let source = warpsmith::internal::build::render(&spec).map_err(|error| error.to_string())?;
        mutated(&source, &mutant).map_err(|error| format!("{}: {error}", mutant.name()))?;
        if spec.problem().is_prepared() {
            every_lane_arrives(&source)?;
        }
    }
    Ok(())
}

pub fn is_killed(bench: &Bench, mutant: &Mutant) -> Result<(), String> {
    let spec = spec(mutant, bench.arch())?;
    let problem = *spec.problem();
    let source = warpsmith::internal::build::render(&spec).map_err(|error| error.to_string())?;
    let kernel = bench.kernel_of(&spec, &mutated(&source, mutant)?)?;

    let spreads =
        if mutant.a == Format::E4m3 { [Spread::Exact, Spread::Every] } else { [Spread::Every, Spread::Subnormal] };
    for spread in spreads {
        let mut host = HostOperands::random(&problem, &rows(&problem, mutant.rows(), 3), spread, 11);
        if let Some(HostMatrix::Mxfp4 { scales, .. }) = host.b.last_mut() {
            scales[40] = e8m0::NAN;
        }
        let reference = host.reference().map_err(|error| error.to_string())?;
        // Others have the device until now.
        let _turn = bench.alone();
        let trial = Trial::new(&bench.stream, &host, &reference).map_err(|error| error.to_string())?;
        // The unchanged kernel passes on the same operands.
        let right = trial.check(&bench.kernel(&spec)?).map_err(|error| error.to_string())?;
        if !right.passed() {
            return Err(format!("the unchanged kernel is refused: {right}"));
        }
        match trial.check(&kernel) {
            Ok(checked) if checked.passed() => {}
            // A launch that fails is no way to pass: an emulated GPU sees what is read outside of an allocation.
            Err(error) if !error.is_driver() => return Err(error.to_string()),
            _ => return Ok(()),
        }
    }
    Err("the gate lets it pass".to_owned())
}
