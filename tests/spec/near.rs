//! Problems and variants for property tests.

use proptest::prelude::*;
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::spec::{Cluster, Epilogue, Fusion, Rows, Tile, Warps};
use warpsmith::spec::{Activation, Arch, MatrixPath, Operation, Problem, Variant};

fn any_format() -> impl Strategy<Value = Format> {
    prop::sample::select(&Format::ALL[..])
}

pub fn any_problem() -> impl Strategy<Value = Problem> {
    let activation =
        prop_oneof![3 => prop::sample::select(Activation::ALL), 1 => any::<u32>().prop_map(Activation::SiluClamp)];
    let operation = (any::<bool>(), activation)
        .prop_map(|(dual, of)| if dual { Problem::dual_gemm(of) } else { Problem::gemm().activation(of) });
    let layout = prop::sample::select(vec![ScaleLayout::Linear, ScaleLayout::Swizzled128x4]);
    let extents = (any::<u32>(), any::<u32>(), prop::option::of(any::<u32>()), prop::option::of(any::<u32>()));
    let words = (any::<bool>(), any::<bool>());
    (operation, any_format(), any_format(), any_format(), layout, words, extents).prop_map(
        |(problem, a, b, c, layout, (prepared, k_factors), (n, k, groups, m))| {
            let problem = problem.a(a).b(b).c(c).scales(layout).n(n).k(k);
            let problem = if prepared { problem.prepared() } else { problem };
            let problem = if k_factors { problem.k_factors() } else { problem };
            let problem = groups.map_or(problem, |groups| problem.grouped(groups));
            m.map_or(problem, |m| problem.m_up_to(m))
        },
    )
}

pub fn any_variant() -> impl Strategy<Value = Variant> {
    let tile = (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(tokens, columns, k)| Tile { tokens, columns, k });
    let path = prop::sample::select(MatrixPath::ALL);
    (path, tile, any::<u32>(), prop::sample::select(Fusion::ALL), 1u32.., rest(any::<u32>(), 2u32..)).prop_map(
        |(path, tile, stages, fusion, split_k, rest)| {
            let (warps, epilogue, cluster, persistent, prepass, rows) = rest;
            Variant { path, tile, stages, fusion, warps, epilogue, split_k, cluster, persistent, prepass, rows }
        },
    )
}

/// The axes that have one value only in the path `mma`.
fn rest(
    consumers: impl Strategy<Value = u32> + Clone,
    blocks: impl Strategy<Value = u32> + Clone,
) -> impl Strategy<Value = (Warps, Epilogue, Cluster, bool, bool, Rows)> {
    let decoding = (consumers.clone(), prop_oneof![15 => 1u32..=2, 1 => 1u32..])
        .prop_map(|(consumers, decoders)| Warps::Decoding { consumers, decoders });
    let warps = prop_oneof![1 => Just(Warps::Uniform), 3 => consumers.prop_map(Warps::Specialised), 1 => decoding];
    let cluster = prop_oneof![
        3 => Just(Cluster::None),
        1 => blocks.clone().prop_map(Cluster::SplitK),
        1 => blocks.prop_map(Cluster::Multicast),
        1 => Just(Cluster::Pair),
    ];
    let rows = prop_oneof![7 => Just(Rows::Weights), 1 => Just(Rows::Tokens)];
    (warps, prop::sample::select(Epilogue::ALL), cluster, any::<bool>(), any::<bool>(), rows)
}

/// Problems near the legal ones.
fn near_problem() -> impl Strategy<Value = Problem> {
    let mostly = |legal: &'static [Format]| prop_oneof![15 => prop::sample::select(legal), 1 => any_format()];
    let a = mostly(&[Format::Nvfp4, Format::F16, Format::Bf16, Format::E4m3]);
    let b = prop_oneof![3 => Just(Format::Nvfp4), 1 => any_format()];
    let c = mostly(&[Format::F16, Format::Bf16, Format::F32, Format::Nvfp4]);
    let layout = prop::sample::select(vec![ScaleLayout::Linear, ScaleLayout::Swizzled128x4]);
    let extents = (1u32..80, 1u32..80, prop::option::of(1u32..9));
    let single = prop::sample::select(Activation::UNGATED).prop_map(|of| Problem::gemm().activation(of));
    let dual = prop::sample::select(Activation::GATED).prop_map(Problem::dual_gemm);
    (prop_oneof![single, dual], a, b, c, layout, extents).prop_map(|(problem, a, b, c, layout, (n, k, groups))| {
        let problem = problem.a(a).b(b).c(c).scales(layout).n(n * 16).k(k * 64);
        groups.map_or(problem, |groups| problem.grouped(groups))
    })
}

/// Problems and variants near the legal ones, so that both sides of every limit are met.
pub fn near_legal() -> impl Strategy<Value = (Problem, Variant, Arch)> {
    prop_oneof![
        1 => near_legal_mma(),
        1 => near_legal_mma().prop_map(mxf4),
        1 => near_legal_mma().prop_map(tcgen05),
        3 => near_legal_wgmma(),
    ]
}

/// The fusion that goes with the operation, mostly.
fn near_fusion(problem: &Problem, fusion: Fusion, stages: u32) -> Fusion {
    if matches!(problem.operation(), Operation::Gemm(_)) && stages != 7 { Fusion::Single } else { fusion }
}

fn near_legal_mma() -> impl Strategy<Value = (Problem, Variant, Arch)> {
    let tile = (
        prop::sample::select(vec![8, 16, 24, 40, 64, 72, 80, 128, 136, 192, 256, 512]),
        prop::sample::select(vec![16, 32, 64, 96, 128, 256]),
        prop::sample::select(vec![32, 64, 128, 256]),
    );
    let split_k = prop_oneof![2 => Just(1u32), 1 => 0u32..66];
    let rest = (0u32..10, prop::sample::select(Fusion::ALL), split_k, prop::sample::select(Arch::ALL));
    (near_problem(), tile, rest).prop_map(|(problem, (tokens, columns, k), (stages, fusion, split_k, arch))| {
        let tile = Tile { tokens, columns, k };
        (problem, Variant::mma(tile, stages, near_fusion(&problem, fusion, stages), split_k), arch)
    })
}

/// The same for the path `mxf4`: mostly where it is, of what it takes.
fn mxf4((problem, variant, arch): (Problem, Variant, Arch)) -> (Problem, Variant, Arch) {
    let variant = Variant { path: MatrixPath::Mxf4, ..variant };
    let problem = if problem.b_format() == Format::Nvfp4 { problem.a(Format::Nvfp4) } else { problem };
    let arch = match variant.stages {
        0 => arch,
        odd if odd % 2 == 1 => Arch::RTX5090,
        _ => Arch::SPARK,
    };
    (problem, variant, arch)
}

/// The same for the path `tcgen05`: mostly what goes together there.
fn tcgen05((problem, variant, arch): (Problem, Variant, Arch)) -> (Problem, Variant, Arch) {
    let problem = if problem.b_format() == Format::Nvfp4 { problem.a(Format::Nvfp4) } else { problem };
    let Variant { mut tile, stages, split_k, .. } = variant;
    let rows = if stages % 2 == 0 { Rows::Weights } else { Rows::Tokens };
    let cluster = if stages % 3 == 0 { Cluster::Pair } else { Cluster::None };
    let of_instruction = 128 * cluster.tile_blocks();
    match rows {
        Rows::Weights => tile.columns = if tile.columns == 32 { 32 } else { of_instruction },
        _ => tile.tokens = if tile.tokens < 16 { tile.tokens } else { of_instruction },
    }
    tile.k = if tile.k == 64 { 64 } else { 256 };
    let warps = if stages == 9 { variant.warps } else { Warps::Specialised(1) };
    let arch = if split_k == 0 { arch } else { [Arch::B200, Arch::B300][stages as usize % 2] };
    let persistent = tile.tokens % 3 == 1;
    (problem, Variant { path: MatrixPath::Tcgen05, tile, warps, cluster, rows, persistent, ..variant }, arch)
}

fn near_legal_wgmma() -> impl Strategy<Value = (Problem, Variant, Arch)> {
    let tile =
        (1u32..34, prop::sample::select(vec![32, 64, 64, 96, 128, 192]), prop::sample::select(vec![64, 128, 256]));
    let arch = prop_oneof![15 => Just(Arch::H200), 1 => prop::sample::select(Arch::ALL)];
    let split_k = prop_oneof![6 => Just(1u32), 1 => 0u32..9];
    let rest = rest(0u32..5, prop::sample::select(vec![2u32, 2, 2, 3, 4]));
    (near_problem(), tile, 0u32..10, prop::sample::select(Fusion::ALL), split_k, rest, arch).prop_map(
        |(problem, (eights, columns, k), stages, fusion, split_k, rest, arch)| {
            let (warps, epilogue, cluster, persistent, prepass, rows) = rest;
            let (path, fusion) = (MatrixPath::Wgmma, near_fusion(&problem, fusion, stages));
            let tile = Tile { tokens: 8 * eights, columns, k };
            let prepass = prepass && (problem.a_format() == Format::Nvfp4 || stages == 7);
            let variant =
                Variant { path, tile, stages, fusion, warps, epilogue, split_k, cluster, persistent, prepass, rows };
            (problem.prepared(), variant, arch)
        },
    )
}
