//! Kernels with one thing wrong, made by changing the CUDA itself: the gate must refuse each.

use warpsmith::build::{self, Header, Source};
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::spec::{Activation, Problem, Spec};
use warpsmith::tune::{HostOperands, Spread, Trial};

use crate::bench::Bench;
use crate::families::rows;

pub struct Mutant {
    what: &'static str,
    /// In every header or the entry file where it stands, this text …
    from: &'static str,
    /// … becomes this.
    to: &'static str,
}

impl Mutant {
    pub fn name(&self) -> String {
        format!("mutant: {}", self.what)
    }
}

pub fn all() -> Vec<Mutant> {
    let mutant = |what, from, to| Mutant { what, from, to };
    vec![
        mutant(
            "a tile of zeros",
            "float run[RUN];",
            "float run[RUN] = {}; if (block.first_column == 0) { Output::store(params.c, static_cast<long long>(row) * N + column, run); return; }",
        ),
        mutant(
            "one NaN",
            "run[i] = combine(products, alphas);",
            "run[i] = combine(products, alphas); if (row == 5 && column + i == 7) run[i] = __int_as_float(0x7FC00000);",
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
        mutant("no activation", "activate(alphas.value[0] * products[0])", "(alphas.value[0] * products[0])"),
        mutant(
            "α after the activation",
            "activate(alphas.value[0] * products[0])",
            "alphas.value[0] * activate(products[0])",
        ),
        mutant("α of another group", "group * params.alpha_step[i]", "(GROUPS - 1 - group) * params.alpha_step[i]"),
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
    let mut found = 0;
    let mut change = |text: &str| {
        found += text.matches(mutant.from).count();
        text.replace(mutant.from, mutant.to)
    };
    let text = change(source.text());
    let headers: Vec<Header> =
        source.headers().iter().map(|header| Header { name: header.name, text: change(header.text).leak() }).collect();
    if found == 0 {
        return Err(format!("`{}` stands nowhere: the mutant is out of date", mutant.from));
    }
    Ok(Source::new(source.name(), text, headers.leak(), source.entries().to_vec()))
}

/// A problem in which everything counts: groups, α of their own, subnormal scales in both operands, an M that fits no
/// tile, a K that ends inside one.
pub fn is_killed(bench: &Bench, mutant: &Mutant) -> Result<(), String> {
    let problem = Problem::dual_gemm(Activation::Silu)
        .n(144)
        .k(448)
        .a(Format::Nvfp4)
        .grouped(3)
        .scales(ScaleLayout::Swizzled128x4);
    let variant = "mma.t32x64x128.s3.interleaved.uniform.direct".parse().unwrap();
    let spec = Spec::new(&problem, &variant, bench.arch()).map_err(|error| error.to_string())?;
    let source = build::render(&spec).map_err(|error| error.to_string())?;
    let kernel = bench.kernel_of(&spec, &mutated(&source, mutant)?)?;

    let _turn = bench.turn.lock().unwrap();
    for spread in [Spread::Every, Spread::Subnormal] {
        let host = HostOperands::random(&problem, &rows(&problem, 76, 3), spread, 11);
        let reference = host.reference().map_err(|error| error.to_string())?;
        let trial = Trial::new(&bench.stream, &host, &reference).map_err(|error| error.to_string())?;
        // The unchanged kernel passes on the same operands.
        let right = trial.check(&bench.kernel(&spec)?).map_err(|error| error.to_string())?;
        if !right.passed() {
            return Err(format!("the unchanged kernel is refused: {right}"));
        }
        if !trial.check(&kernel).map_err(|error| error.to_string())?.passed() {
            return Ok(());
        }
    }
    Err("the gate lets it pass".to_owned())
}
