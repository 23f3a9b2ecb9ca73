//! What is verified: one tile of each configuration, then variants of every family, then some of every other kind of operands.

use std::collections::BTreeSet;

use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::spec::{baseline, thinned};
use warpsmith::spec::{Activation, Arch, MatrixPath, Problem, Spec, Variant};

/// A kernel at a number of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub problem: Problem,
    pub m: u32,
    pub variant: Variant,
    /// One tile of a configuration, which comes before all others.
    pub is_tile: bool,
}

/// Rows that fit no tile, and some that do.
const ROWS: [u32; 6] = [1, 17, 64, 129, 256, 391];
/// So many groups share them where there are any.
const GROUPS: u32 = 5;

/// Columns and K of what is more than a tile: tiles of columns and of K that are not full.
const EXTENTS: (u32, u32) = (272, 704);
/// The same of a result in NVFP4, whose columns are a multiple of 64.
const CODED_COLUMNS: u32 = 320;

/// Operations on one format of tokens and layout of scales: products, alone and in groups, with everything that columns and
/// rows may have.
fn family(tokens: Format, scales: ScaleLayout) -> Vec<Problem> {
    let (n, k) = EXTENTS;
    let with = |problem: Problem| problem.a(tokens).scales(scales).n(n).k(k);
    let gemm = with(Problem::gemm().c(Format::F32));
    let dual = with(Problem::dual_gemm(Activation::Silu).c(Format::Bf16));
    vec![
        gemm,
        gemm.row_scale().bias(Format::F32),
        dual,
        dual.c(Format::F16).row_scale().bias(Format::F16),
        gemm.grouped(GROUPS),
        dual.grouped(GROUPS),
        dual.grouped(GROUPS).slots(),
        dual.grouped(GROUPS).gathered().slots(),
        gemm.n(CODED_COLUMNS).c(Format::Nvfp4),
        dual.n(CODED_COLUMNS).c(Format::Nvfp4).grouped(GROUPS).gathered(),
    ]
}

/// Every operation, of operands in these formats: alone, in groups, and in groups whose rows are taken and put by their numbers.
pub fn operations(a: Format, b: Format, c: Format) -> [Problem; 6] {
    let (n, k) = EXTENTS;
    let n = if c == Format::Nvfp4 { CODED_COLUMNS } else { n };
    let [gemm, dual] =
        [Problem::gemm(), Problem::dual_gemm(Activation::Silu)].map(|problem| problem.n(n).k(k).a(a).b(b).c(c));
    let [gemms, duals] = [gemm, dual].map(|problem| problem.grouped(GROUPS));
    [gemm, dual, gemms, duals, gemms.gathered().slots(), duals.gathered().slots()]
}

/// The same of all formats that an architecture has kernels for, weights as they are given, prepared and expanded.
pub fn of_all_formats(arch: &Arch) -> impl Iterator<Item = Problem> {
    let all = Format::ALL.into_iter();
    let pairs = all.clone().flat_map(move |a| all.clone().map(move |b| (a, b)));
    let plain = pairs.flat_map(|(a, b)| [Format::F32, Format::Nvfp4].map(|c| operations(a, b, c))).flatten();
    let forms = plain.flat_map(|problem| [problem, problem.prepared(), problem.expanded()]);
    let problems = forms.flat_map(|problem| [problem, problem.k_factors()]);
    problems.filter(|problem| Spec::check(problem, &baseline(problem), arch).is_ok())
}

/// Everything that tells one configuration of kernels from another: what is left are sizes.
fn configuration(problem: &Problem, variant: &Variant) -> String {
    let Variant { path, fusion, warps, epilogue, cluster, persistent, prepass, rows, .. } = variant;
    let (has_splits, is_dual) = (variant.split_k > 1, problem.operation().products());
    let (tokens, weights, is_coded) = (problem.a_format(), problem.b_format(), problem.c_format() == Format::Nvfp4);
    let form = format!("{} {}", problem.is_expanded(), problem.has_k_factors());
    let operands = format!("{tokens} {weights} {form} {is_coded} {is_dual}");
    format!("{path} {operands} {fusion} {warps} {epilogue} {cluster:?} {persistent} {prepass} {rows:?} {has_splits}")
}

/// It shares no factor with the axes' sizes.
const THINLY: usize = 31;

/// What of an architecture is verified.
struct Wanted {
    problem: Problem,
    /// Of all combinations of the axes' values only each so-manieth is looked at.
    step: usize,
    /// One in so many of the variants of a family.
    share: usize,
}

fn wanted(arch: &Arch) -> impl Iterator<Item = Wanted> {
    let layouts = [ScaleLayout::Swizzled128x4, ScaleLayout::Linear];
    let formats = [Format::Nvfp4, Format::F16, Format::Bf16].into_iter();
    let families = formats.flat_map(move |tokens| layouts.into_iter().flat_map(move |layout| family(tokens, layout)));
    let native = families.flat_map(|problem| [problem.native(arch), problem]);
    let native = native.map(|problem| (problem, 1));
    // Fewer of what differs from those in its formats alone.
    let further = of_all_formats(arch).map(|problem| (problem, 3));
    let mut known = BTreeSet::new();
    let all = native.chain(further).filter(move |(problem, _)| known.insert(problem.to_string()));
    // Kernels for prepared weights have more axes than can be looked at.
    all.map(|(problem, share)| Wanted { problem, step: if problem.is_prepared() { THINLY } else { 1 }, share })
}

/// Of an architecture, with so many variants of every family.
pub fn cases(arch: &Arch, samples: usize) -> Vec<Case> {
    let (mut tiles, mut suite) = (Vec::new(), Vec::new());
    let mut configurations = BTreeSet::new();
    for Wanted { problem, step, share } in wanted(arch) {
        let samples = samples.div_ceil(share);
        let specs: Vec<Spec> = thinned(&problem, arch, step).collect();
        for spec in &specs {
            let variant = *spec.variant();
            if problem.groups().is_none() && configurations.insert(configuration(&problem, &variant)) {
                // All of it, and no more than a few stages.
                let tile = problem.n(variant.tile.columns.max(64)).k(2 * variant.tile.k * variant.split_k);
                if Spec::check(&tile, &variant, arch).is_ok() {
                    tiles.push(Case { problem: tile, m: variant.tile.tokens, variant, is_tile: true });
                }
            }
        }
        for path in MatrixPath::of(&problem, arch) {
            let specs: Vec<&Spec> = specs.iter().filter(|spec| spec.variant().path == path).collect();
            // A step that shares no factor with the axes' sizes walks through all their values.
            let step = (specs.len() / samples.max(1)).max(1);
            let step = (step..).find(|step| step % 2 != 0 && step % 3 != 0).unwrap_or(1);
            for (index, spec) in specs.into_iter().skip(suite.len() % step).step_by(step).take(samples).enumerate() {
                let m = ROWS[(suite.len() + index) % ROWS.len()];
                suite.push(Case { problem, m, variant: *spec.variant(), is_tile: false });
            }
        }
    }
    tiles.extend(suite);
    tiles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tile_of_each_configuration_comes_first() {
        for arch in [Arch::H200, Arch::B200, Arch::RTX5090, Arch::A100] {
            let cases = cases(&arch, 2);
            let tiles = cases.iter().take_while(|case| case.is_tile).count();
            assert!(cases[tiles..].iter().all(|case| !case.is_tile), "{arch}");
            let configurations: BTreeSet<_> =
                cases[..tiles].iter().map(|case| configuration(&case.problem, &case.variant)).collect();
            assert!(configurations.len() == tiles && tiles >= 10, "{arch}: {tiles}");
            assert!(cases.len() - tiles >= 60, "{arch}: {}", cases.len());
            for case in &cases {
                Spec::new(&case.problem, &case.variant, &arch).unwrap();
            }
        }
    }
}
