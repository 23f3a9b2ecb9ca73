//! Spellings and legality: what is written reads back, and what is refused says which limit, with both numbers.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use proptest::prelude::*;
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::pick::{self, Origin};
use warpsmith::spec::{
    Activation, Arch, Cluster, Epilogue, Fusion, MatrixPath, Operation, PassKind, Problem, Refusal, Spec, Tile,
    Variant, Warps, baseline, space,
};

fn any_format() -> impl Strategy<Value = Format> {
    prop::sample::select(&Format::ALL[..])
}

fn any_problem() -> impl Strategy<Value = Problem> {
    let operation =
        prop_oneof![Just(Problem::gemm()), prop::sample::select(Activation::ALL).prop_map(Problem::dual_gemm)];
    let layout = prop::sample::select(vec![ScaleLayout::Linear, ScaleLayout::Swizzled128x4]);
    let extents = (any::<u32>(), any::<u32>(), prop::option::of(any::<u32>()), prop::option::of(any::<u32>()));
    (operation, any_format(), any_format(), any_format(), layout, any::<bool>(), extents).prop_map(
        |(problem, a, b, c, layout, prepared, (n, k, groups, m))| {
            let problem = problem.a(a).b(b).c(c).scales(layout).n(n).k(k);
            let problem = if prepared { problem.prepared() } else { problem };
            let problem = groups.map_or(problem, |groups| problem.grouped(groups));
            m.map_or(problem, |m| problem.m_up_to(m))
        },
    )
}

fn any_variant() -> impl Strategy<Value = Variant> {
    let tile = (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(tokens, columns, k)| Tile { tokens, columns, k });
    let path = prop::sample::select(MatrixPath::ALL);
    (path, tile, any::<u32>(), prop::sample::select(Fusion::ALL), 1u32.., rest(any::<u32>(), 2u32..)).prop_map(
        |(path, tile, stages, fusion, split_k, rest)| {
            let (warps, epilogue, cluster, persistent, prepass) = rest;
            Variant { path, tile, stages, fusion, warps, epilogue, split_k, cluster, persistent, prepass }
        },
    )
}

/// The axes that have one value only in the path `mma`.
fn rest(
    consumers: impl Strategy<Value = u32>,
    blocks: impl Strategy<Value = u32> + Clone,
) -> impl Strategy<Value = (Warps, Epilogue, Cluster, bool, bool)> {
    let warps = prop_oneof![1 => Just(Warps::Uniform), 3 => consumers.prop_map(Warps::Specialised)];
    let cluster = prop_oneof![
        3 => Just(Cluster::None),
        1 => blocks.clone().prop_map(Cluster::SplitK),
        1 => blocks.prop_map(Cluster::Multicast),
    ];
    (warps, prop::sample::select(Epilogue::ALL), cluster, any::<bool>(), any::<bool>())
}

/// Problems near the legal ones.
fn near_problem() -> impl Strategy<Value = Problem> {
    let mostly = |legal: &'static [Format]| prop_oneof![15 => prop::sample::select(legal), 1 => any_format()];
    let a = mostly(&[Format::Nvfp4, Format::F16, Format::Bf16]);
    let b = prop_oneof![3 => Just(Format::Nvfp4), 1 => any_format()];
    let c = mostly(&[Format::F16, Format::Bf16, Format::F32]);
    let layout = prop::sample::select(vec![ScaleLayout::Linear, ScaleLayout::Swizzled128x4]);
    let extents = (1u32..80, 1u32..80, prop::option::of(1u32..9));
    (any::<bool>(), a, b, c, layout, extents).prop_map(|(dual, a, b, c, layout, (n, k, groups))| {
        let problem = if dual { Problem::dual_gemm(Activation::Silu) } else { Problem::gemm() };
        let problem = problem.a(a).b(b).c(c).scales(layout).n(n * 16).k(k * 64);
        groups.map_or(problem, |groups| problem.grouped(groups))
    })
}

/// Problems and variants near the legal ones, so that both sides of every limit are met.
fn near_legal() -> impl Strategy<Value = (Problem, Variant, Arch)> {
    prop_oneof![1 => near_legal_mma(), 3 => near_legal_wgmma()]
}

/// The fusion that goes with the operation, mostly.
fn near_fusion(problem: &Problem, fusion: Fusion, stages: u32) -> Fusion {
    if problem.operation() == Operation::Gemm && stages != 7 { Fusion::Single } else { fusion }
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

fn near_legal_wgmma() -> impl Strategy<Value = (Problem, Variant, Arch)> {
    let tile =
        (1u32..34, prop::sample::select(vec![32, 64, 64, 96, 128, 192]), prop::sample::select(vec![64, 128, 256]));
    let arch = prop_oneof![15 => Just(Arch::H200), 1 => prop::sample::select(Arch::ALL)];
    let split_k = prop_oneof![6 => Just(1u32), 1 => 0u32..9];
    let rest = rest(0u32..5, prop::sample::select(vec![2u32, 2, 2, 3, 4]));
    (near_problem(), tile, 0u32..10, prop::sample::select(Fusion::ALL), split_k, rest, arch).prop_map(
        |(problem, (eights, columns, k), stages, fusion, split_k, rest, arch)| {
            let (warps, epilogue, cluster, persistent, prepass) = rest;
            let (path, fusion) = (MatrixPath::Wgmma, near_fusion(&problem, fusion, stages));
            let tile = Tile { tokens: 8 * eights, columns, k };
            let prepass = prepass && (problem.a_format() == Format::Nvfp4 || stages == 7);
            let variant =
                Variant { path, tile, stages, fusion, warps, epilogue, split_k, cluster, persistent, prepass };
            (problem.prepared(), variant, arch)
        },
    )
}

/// What holds for every spec, whatever it is for.
fn keeps_every_limit(spec: &Spec) -> Result<(), TestCaseError> {
    let (problem, variant, arch, geometry) = (spec.problem(), spec.variant(), spec.arch(), spec.geometry());
    let splits = variant.split_k * variant.cluster.splits();
    prop_assert!(geometry.shared_bytes <= arch.shared_per_block());
    prop_assert!(geometry.shared_bytes >= variant.stages * geometry.stage_bytes);
    prop_assert!(geometry.accumulators < arch.registers_per_thread(geometry.threads));
    prop_assert!(geometry.registers <= arch.registers_per_thread(geometry.threads));
    prop_assert!(geometry.threads.is_multiple_of(32) && (32..=1024).contains(&geometry.threads));
    // Every split has a tile along K.
    prop_assert!((splits - 1) * spec.k_tiles().div_ceil(splits) < spec.k_tiles());
    // Symbols are C identifiers.
    prop_assert!(spec.symbol().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
    prop_assert_eq!(variant.to_string().parse::<Variant>().unwrap(), *variant);

    for m in [1, 77, 1000] {
        let passes: Vec<_> = spec.passes(m).collect();
        prop_assert!(passes.len() <= 4);
        let partial = variant.split_k > 1 || variant.fusion == Fusion::TwoPass;
        let prepass = passes[0].kind == PassKind::Prepass;
        prop_assert_eq!(prepass, variant.prepass);
        prop_assert_eq!(prepass, spec.prepass_symbol().is_some());
        prop_assert!(!prepass || problem.a_format() == Format::Nvfp4);
        prop_assert_eq!(passes.last().unwrap().kind == PassKind::Finish, partial);
        prop_assert_eq!(partial, spec.finish_symbol().is_some());
        prop_assert_eq!(spec.workspace_bytes(m) > 0, partial || prepass);
        for pass in passes {
            prop_assert!(pass.grid.iter().zip(pass.cluster).all(|(grid, cluster)| grid.is_multiple_of(cluster)));
            prop_assert!(pass.grid[0] < 1 << 31 && pass.grid[1..].iter().all(|extent| (1..=65_535).contains(extent)));
            let blocks = if matches!(pass.kind, PassKind::Products { .. }) { variant.cluster.blocks() } else { 1 };
            prop_assert_eq!(pass.cluster.iter().product::<u32>(), blocks);
        }
    }
    match variant.path {
        MatrixPath::Mma => {
            let decoded =
                if problem.a_format() == Format::Nvfp4 { 2 * variant.tile.tokens * variant.tile.k } else { 0 };
            prop_assert!(geometry.shared_bytes >= variant.stages * geometry.stage_bytes + decoded);
            prop_assert!(geometry.threads <= 256 && !problem.is_prepared());
        }
        MatrixPath::Wgmma => {
            prop_assert!(problem.is_prepared() && arch.capability() == Arch::H200.capability());
            if let Warps::Specialised(consumers) = variant.warps {
                prop_assert!(consumers.is_multiple_of(warpgroups(spec)));
                let shared = consumers / warpgroups(spec);
                let in_turn = variant.stages.is_multiple_of(shared);
                let plain = matches!(variant.fusion, Fusion::Single | Fusion::Interleaved) && !variant.persistent;
                prop_assert!(in_turn || (plain && variant.stages > shared && variant.cluster.multicast() == 1));
                prop_assert!(geometry.threads > 128 * consumers);
            } else {
                prop_assert_eq!(geometry.threads, 128 * warpgroups(spec));
            }
            prop_assert!(!variant.persistent || geometry.blocks_per_sm == 1);
        }
        _ => prop_assert!(false, "another path"),
    }
    Ok(())
}

/// Warpgroups that a tile of the path `wgmma` needs: one for each m64 tile of weights, which two of them share where each
/// takes one product.
fn warpgroups(spec: &Spec) -> u32 {
    let tiles = spec.variant().tile.columns * spec.problem().operation().products() / 64;
    match spec.variant().fusion {
        Fusion::TwoPass | Fusion::Sequential => tiles / 2,
        Fusion::PingPong => 2 * tiles,
        _ => tiles,
    }
}

proptest! {
    #[test]
    fn a_problem_reads_back(problem in any_problem()) {
        prop_assert_eq!(problem.to_string().parse::<Problem>().unwrap(), problem);
    }

    #[test]
    fn a_variant_reads_back(variant in any_variant()) {
        prop_assert_eq!(variant.to_string().parse::<Variant>().unwrap(), variant);
    }

    #[test]
    fn what_reads_is_what_is_written(text in "(grouped[0-9]{1,2}\\.)?(gemm|dual_gemm\\.silu):f16\\*nvfp4>(f16|f8):n[0-9]{1,3}:k[0-9]{1,3}(:sf128x4)?(:prepared)?(:m[0-9]{1,2})?") {
        if let Ok(problem) = text.parse::<Problem>() {
            prop_assert_eq!(problem.to_string(), text);
        }
    }
}

proptest! {
    // Many of them are not legal.
    #![proptest_config(ProptestConfig::with_cases(16_384))]

    #[test]
    fn a_spec_keeps_every_limit((problem, variant, arch) in near_legal()) {
        let Ok(spec) = Spec::check(&problem, &variant, &arch) else { return Ok(()) };
        keeps_every_limit(&spec)?;
    }

    #[test]
    fn the_grid_covers_every_row((problem, variant, arch) in near_legal(), sizes in prop::collection::vec(0u32..300, 1..9)) {
        let groups = sizes.len() as u32;
        let problem = problem.grouped(groups);
        let Ok(spec) = Spec::check(&problem, &variant, &arch) else { return Ok(()) };
        let m = sizes.iter().sum::<u32>().max(1);
        let needed: u32 = sizes.iter().map(|rows| rows.div_ceil(variant.tile.tokens)).sum();
        let products = spec.passes(m).find(|pass| pass.kind == PassKind::Products { product: 0 }).unwrap();
        let (rows, columns) = match variant.path {
            MatrixPath::Mma => (products.grid[0], products.grid[1]),
            _ => (products.grid[1], products.grid[0]),
        };
        if variant.persistent {
            // As many blocks as run at once, unless there are fewer tiles.
            let tiles = needed * problem.columns().div_ceil(variant.tile.columns);
            prop_assert_eq!(products.grid[1..].to_vec(), vec![1, 1]);
            prop_assert!(products.grid[0] <= arch.sms() && products.grid[0] >= tiles.min(arch.sms()));
            return Ok(());
        }
        prop_assert!(rows >= needed, "{rows} blocks for {needed} tiles");
        prop_assert!(columns * variant.tile.columns >= problem.columns());
        prop_assert_eq!(products.grid[2], variant.split_k * variant.cluster.splits());
    }
}

proptest! {
    /// Whatever is legal gets a variant, the same one every time, and it is legal where it is to run.
    #[test]
    fn every_legal_problem_gets_a_choice((problem, _, arch) in near_legal(), m in 1u32..5000) {
        let legal = Spec::check(&problem, &baseline(&problem), &arch).is_ok();
        let choice = pick::choose(&problem, m, &arch);
        prop_assert_eq!(choice.is_ok(), legal);
        if let Ok(choice) = choice {
            prop_assert_eq!(&choice, &pick::choose(&problem, m, &arch).unwrap());
            prop_assert!(Spec::check(&problem, choice.spec().variant(), &arch).is_ok());
            prop_assert!(choice.origin() == Origin::Heuristic, "{}: {}", choice.spec(), choice.reason());
        }
    }
}

fn dual() -> Problem {
    Problem::dual_gemm(Activation::Silu).n(4096).k(7168)
}

fn refusal(problem: &Problem, variant: &str, arch: &Arch) -> String {
    Spec::check(problem, &variant.parse().unwrap(), arch).unwrap_err().to_string()
}

#[test]
fn spellings_are_the_documented_ones() {
    let problem = dual().a(Format::Nvfp4).grouped(8).scales(ScaleLayout::Swizzled128x4).m_up_to(1024);
    assert_eq!(problem.to_string(), "grouped8.dual_gemm.silu:nvfp4*nvfp4>f16:n4096:k7168:sf128x4:m1024");
    let variant: Variant = "mma.t64x128x64.s3.interleaved.uniform.direct.k2".parse().unwrap();
    assert_eq!((variant.tile.tokens, variant.stages, variant.split_k), (64, 3, 2));

    let problem = dual().a(Format::Nvfp4).grouped(8).prepared().m_up_to(64);
    assert_eq!(problem.to_string(), "grouped8.dual_gemm.silu:nvfp4*nvfp4>f16:n4096:k7168:prepared:m64");
    let base = Variant::wgmma(Tile { tokens: 128, columns: 64, k: 128 }, 4, Fusion::Interleaved, 2);
    let direct = Variant { epilogue: Epilogue::Direct, ..base };
    for (variant, spelling) in [
        (base, "wgmma.t128x64x128.s4.interleaved.ws2.shared"),
        (Variant { cluster: Cluster::SplitK(2), ..base }, "wgmma.t128x64x128.s4.interleaved.ws2.shared.dsmem2"),
        (Variant { cluster: Cluster::Multicast(4), ..base }, "wgmma.t128x64x128.s4.interleaved.ws2.shared.multicast4"),
        (
            Variant { persistent: true, prepass: true, epilogue: Epilogue::Tma, ..base },
            "wgmma.t128x64x128.s4.interleaved.ws2.tma.persistent.prepass",
        ),
        (Variant { warps: Warps::Uniform, ..direct }, "wgmma.t128x64x128.s4.interleaved.uniform.direct"),
        (
            Variant { split_k: 2, fusion: Fusion::PerProduct, prepass: true, ..direct },
            "wgmma.t128x64x128.s4.per_product.ws2.direct.k2.prepass",
        ),
        (Variant { fusion: Fusion::PingPong, ..direct }, "wgmma.t128x64x128.s4.ping_pong.ws2.direct"),
    ] {
        assert_eq!(variant.to_string(), spelling);
        assert_eq!(spelling.parse::<Variant>().unwrap(), variant);
    }
}

#[test]
fn unreadable_spellings_say_what_was_expected() {
    for (text, expected) in [
        ("dual_gemm:f16*nvfp4>f16:n16:k64", "OP = gemm or dual_gemm.ACT"),
        ("dual_gemm.relu:f16*nvfp4>f16:n16:k64", "silu, gelu_tanh, none"),
        ("gemm:f8*nvfp4>f16:n16:k64", "nvfp4, f16, bf16 or f32"),
        ("gemm:f16*nvfp4>f16:n16", "cannot read ``"),
        ("gemm:f16*nvfp4>f16:n016:k64", "cannot read `n016`"),
        ("gemm:f16*nvfp4>f16:n16:k64:x", "cannot read `x`"),
        ("groupedx.gemm:f16*nvfp4>f16:n16:k64", "cannot read `groupedx.gemm`"),
    ] {
        let error = text.parse::<Problem>().unwrap_err();
        assert!(error.is_parse() && error.to_string().contains(expected), "{error}");
    }
    for (text, expected) in [
        ("mma.t64x128x64.s3.interleaved.uniform", "ends too early"),
        ("mma.t64x128.s3.interleaved.uniform.direct", "tTOKENSxCOLUMNSxK"),
        ("mma.t64x128x64.s3.woven.uniform.direct", "single, two_pass, sequential, interleaved"),
        ("wgmma.t64x64x64.s3.interleaved.ws.direct", "unknown warps `ws`: expected uniform or ws1"),
        ("wgmma.t64x64x64.s3.interleaved.ws2.stored", "direct, shared, tma"),
        ("wgmma.t64x64x64.s3.interleaved.ws2.direct.dsmem1", "cannot read `dsmem1`"),
        ("wgmma.t64x64x64.s3.interleaved.ws2.direct.prepass.persistent", "cannot read `persistent`"),
        ("wgmma.t64x64x64.s3.interleaved.ws2.direct.multicast2.dsmem2", "cannot read `dsmem2`"),
        ("mma.t64x128x64.s3.interleaved.uniform.direct.k1", "cannot read `k1`: expected PATH.tTOKENS"),
    ] {
        let error = text.parse::<Variant>().unwrap_err();
        assert!(error.is_parse() && error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn refusals_name_the_limit_and_both_numbers() {
    let s3 = "mma.t64x128x64.s3.interleaved.uniform.direct";
    for (problem, variant, arch, expected) in [
        (dual().n(4100), s3, Arch::H200, "N = 4100: must be a multiple of 16 from 16 to 1048576"),
        (dual().k(96), s3, Arch::H200, "K = 96: must be a multiple of 64"),
        (dual().grouped(0), s3, Arch::H200, "groups = 0: must be 1 to 1024"),
        (dual().a(Format::F32), s3, Arch::H200, "A in f32: must be nvfp4, f16 or bf16"),
        (dual().b(Format::Bf16), s3, Arch::H200, "B in bf16: must be nvfp4 or the format of A"),
        (dual().c(Format::Nvfp4), s3, Arch::H200, "C in nvfp4: must be f16, bf16 or f32"),
        (dual(), "mma.t64x128x64.s3.single.uniform.direct", Arch::H200, "dual_gemm has two products"),
        (Problem::gemm().n(64).k(64), s3, Arch::H200, "gemm has one product"),
        (dual(), "mma.t72x128x64.s3.interleaved.uniform.direct", Arch::H200, "tile tokens = 72"),
        (dual(), "mma.t64x96x64.s3.interleaved.uniform.direct", Arch::H200, "tile columns = 96"),
        (dual(), "mma.t64x128x64.s0.interleaved.uniform.direct", Arch::H200, "stages = 0: must be 1 to 32"),
        (
            dual(),
            "mma.t128x64x256.s4.interleaved.uniform.direct",
            Arch::H200,
            "shared memory: 335872 bytes needed, h200 gives a block 232448",
        ),
        (
            dual(),
            "mma.t128x64x128.s3.interleaved.uniform.direct",
            Arch::L40S,
            "shared memory: 125952 bytes needed, l40s gives a block 101376",
        ),
        (
            dual(),
            "mma.t128x256x64.s1.interleaved.uniform.direct",
            Arch::H200,
            "registers: 352 a thread needed (256 of them accumulators), 255 can be had",
        ),
        (
            dual().k(512),
            "mma.t64x64x256.s1.interleaved.uniform.direct.k4",
            Arch::H200,
            "split-K 4: 2 tiles along K leave a split without work",
        ),
    ] {
        let text = refusal(&problem, variant, &arch);
        assert!(text.contains(expected), "{text}\n  expected {expected}");
    }
    let error = Spec::new(&dual().n(8), &baseline(&dual()), &Arch::H200).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("on h200: N = 8"), "{error}");
}

/// The same for what only the path `wgmma` has: prepared weights, warps that load, clusters, persistent blocks, a prepass.
#[test]
fn refusals_of_wgmma_name_what_they_need() {
    let dual = || dual().prepared();
    let gemm = || Problem::gemm().n(4096).k(7168).prepared();
    let coded = || dual().a(Format::Nvfp4);
    let base = "wgmma.t64x64x128.s4.interleaved.ws2.shared";
    for (problem, variant, arch, expected) in [
        (dual(), base, Arch::A100, "path wgmma needs compute capability 9.0, this architecture has 8.0"),
        (dual(), base, Arch::B200, "path wgmma needs compute capability 9.0, this architecture has 10.0"),
        (dual().b(Format::F16), base, Arch::H200, "B in f16: must be nvfp4 where weights are prepared"),
        (self::dual(), base, Arch::H200, "path wgmma takes prepared weights"),
        (
            dual(),
            "mma.t64x128x64.s3.interleaved.uniform.direct",
            Arch::H200,
            "path mma takes weights as they are, not prepared ones",
        ),
        (self::dual(), "mma.t64x64x64.s3.interleaved.ws2.direct", Arch::H200, "mma needs uniform warps"),
        (self::dual(), "mma.t64x64x64.s3.interleaved.uniform.shared", Arch::H200, "mma needs epilogue direct"),
        (self::dual(), "mma.t64x64x64.s3.interleaved.uniform.direct.dsmem2", Arch::H200, "mma needs no cluster"),
        (self::dual(), "mma.t64x64x64.s3.interleaved.uniform.direct.persistent", Arch::H200, "mma needs a block for"),
        (self::dual(), "mma.t64x64x64.s3.interleaved.uniform.direct.prepass", Arch::H200, "not by a prepass"),
        (self::dual(), "mma.t64x64x64.s3.ping_pong.uniform.direct", Arch::H200, "two_pass, sequential and interleaved"),
        (
            dual(),
            "wgmma.t60x64x128.s4.interleaved.ws2.shared",
            Arch::H200,
            "tokens = 60: must be a multiple of 8 up to 256",
        ),
        (dual(), "wgmma.t64x48x128.s4.interleaved.ws2.shared", Arch::H200, "columns = 48: must be 32, 64, 96 or 128"),
        (gemm(), "wgmma.t64x96x128.s4.single.ws1.shared", Arch::H200, "columns = 96: must be 64, 128, 192 or 256"),
        (dual(), "wgmma.t64x96x128.s4.sequential.ws1.shared", Arch::H200, "columns = 96: must be 64 or 128 where"),
        (
            dual(),
            "wgmma.t64x64x128.s4.interleaved.ws3.shared",
            Arch::H200,
            "warpgroups = 3: must be 1 to 4, a multiple",
        ),
        (dual(), "wgmma.t64x64x128.s4.interleaved.ws6.shared", Arch::H200, "warpgroups = 6: must be 1 to 4"),
        (
            dual(),
            "wgmma.t64x64x128.s5.interleaved.ws4.shared.persistent",
            Arch::H200,
            "stages = 5: must be a multiple of the warp",
        ),
        (
            dual(),
            "wgmma.t64x32x128.s2.interleaved.ws3.shared",
            Arch::H200,
            "stages = 2: must be a multiple of the warp",
        ),
        (dual(), "wgmma.t64x64x128.s4.per_product.ws4.shared", Arch::H200, "per_product needs as many warpgroups"),
        (dual(), "wgmma.t64x64x128.s4.ping_pong.ws4.shared", Arch::H200, "ping_pong needs persistent blocks"),
        (dual(), "wgmma.t64x64x128.s4.interleaved.uniform.shared.persistent", Arch::H200, "uniform needs a block for"),
        (
            dual(),
            "wgmma.t64x64x128.s4.interleaved.ws2.direct.k2.persistent",
            Arch::H200,
            "persistent needs whole tiles",
        ),
        (
            dual(),
            "wgmma.t64x64x128.s4.interleaved.ws2.shared.dsmem2.persistent",
            Arch::H200,
            "whole tiles and no cluster",
        ),
        (dual(), "wgmma.t64x64x128.s4.interleaved.ws2.shared.k2", Arch::H200, "partial sums needs epilogue direct"),
        (dual(), "wgmma.t64x64x128.s4.two_pass.ws1.tma", Arch::H200, "partial sums needs epilogue direct"),
        (dual(), "wgmma.t64x64x128.s4.interleaved.ws2.shared.prepass", Arch::H200, "prepass needs NVFP4 tokens"),
        (coded(), "wgmma.t64x64x128.s4.interleaved.uniform.shared", Arch::H200, "specialised warps, or a prepass"),
        (dual(), "wgmma.t64x64x128.s4.interleaved.ws2.shared.dsmem3", Arch::H200, "blocks = 3: must be 2 or 4"),
        (
            dual(),
            "wgmma.t24x64x128.s4.interleaved.ws2.shared.dsmem2",
            Arch::H200,
            "tokens = 24: must be 8 for each block",
        ),
        (dual(), "wgmma.t64x64x128.s4.interleaved.ws2.direct.k2.dsmem2", Arch::H200, "no other split of K"),
        (dual(), "wgmma.t64x64x128.s4.sequential.ws1.shared.dsmem2", Arch::H200, "fusion single or interleaved"),
        (
            dual(),
            "wgmma.t64x64x128.s4.interleaved.ws2.shared.multicast4",
            Arch::H200,
            "stage that the cluster's blocks can share",
        ),
        (
            dual().n(4096 + 64),
            "wgmma.t64x64x128.s4.interleaved.ws2.shared.multicast2",
            Arch::H200,
            "tiles of columns = 65",
        ),
        (coded(), "wgmma.t64x64x128.s4.interleaved.ws2.shared.multicast2", Arch::H200, "tokens in a 16-bit format"),
        (
            dual(),
            "wgmma.t128x64x128.s6.interleaved.ws2.shared",
            Arch::H200,
            "shared memory: 252032 bytes needed, h200 gives a block 232448",
        ),
        (
            dual(),
            "wgmma.t256x128x64.s2.interleaved.ws4.shared",
            Arch::H200,
            "registers: 174 a thread needed (128 of them accumulators), 96 can be had",
        ),
        (dual().k(512), "wgmma.t64x64x256.s2.interleaved.ws2.shared.dsmem4", Arch::H200, "split-K 4: 2 tiles along K"),
    ] {
        let text = refusal(&problem, variant, &arch);
        assert!(text.contains(expected), "{text}\n  expected {expected}");
    }
    let refused = Spec::check(&dual(), &base.parse().unwrap(), &Arch::L40S).unwrap_err();
    assert!(matches!(refused, Refusal::Capability { path: MatrixPath::Wgmma, .. }), "{refused}");
}

#[test]
fn a_refusal_is_data_too() {
    let variant = "mma.t128x64x256.s4.interleaved.uniform.direct".parse().unwrap();
    let refused = Spec::check(&dual(), &variant, &Arch::H200).unwrap_err();
    assert_eq!(refused, Refusal::SharedMemory { needs: 335_872, limit: 232_448, arch: "h200" });
}

#[test]
fn the_baseline_is_legal_for_every_legal_problem() {
    for arch in Arch::ALL {
        for a in [Format::Nvfp4, Format::F16, Format::Bf16] {
            for b in [Format::Nvfp4, Format::F16, Format::Bf16] {
                for problem in [Problem::gemm(), dual()] {
                    let problem = problem.a(a).b(b).n(16).k(64);
                    if Format::Nvfp4 == a || Format::Nvfp4 == b || a == b {
                        Spec::new(&problem, &baseline(&problem), arch).unwrap();
                    }
                    let prepared = problem.prepared();
                    if Format::Nvfp4 == b && arch.capability() == Arch::H200.capability() {
                        Spec::new(&prepared, &baseline(&prepared), arch).unwrap();
                    }
                }
            }
        }
    }
}

#[test]
fn the_space_holds_every_axis_value() {
    let specs: Vec<_> = space(&dual(), &Arch::H200).collect();
    assert!(specs.len() > 300, "{}", specs.len());
    for fusion in [Fusion::TwoPass, Fusion::Sequential, Fusion::Interleaved] {
        for stages in [1, 2, 3, 4, 6, 8] {
            assert!(specs.iter().any(|spec| spec.variant().fusion == fusion && spec.variant().stages == stages));
        }
    }
    for tokens in [8, 16, 32, 64, 128, 256] {
        assert!(specs.iter().any(|spec| spec.variant().tile.tokens == tokens));
    }
    assert!(specs.iter().any(|spec| spec.variant() == &baseline(&dual())));
    assert!(specs.iter().all(|spec| spec.variant().fusion != Fusion::Single));
}

#[test]
fn the_space_of_prepared_weights_holds_every_axis_value_and_keeps_every_limit() {
    for problem in [dual().prepared(), dual().n(272).k(448).a(Format::Nvfp4).c(Format::F32).grouped(40).prepared()] {
        let specs: Vec<_> = space(&problem, &Arch::H200).collect();
        let has = |what: &dyn Fn(&Variant) -> bool| specs.iter().any(|spec| what(spec.variant()));
        assert!(specs.len() > 1000 && has(&|variant| *variant == baseline(&problem)), "{}", specs.len());
        for fusion in &Fusion::ALL[1..] {
            assert!(has(&|variant| variant.fusion == *fusion), "{fusion}");
        }
        for epilogue in Epilogue::ALL {
            assert!(has(&|variant| variant.epilogue == *epilogue), "{epilogue}");
        }
        let warps = (1..=4).map(Warps::Specialised).chain([Warps::Uniform]);
        for warps in warps {
            assert!(has(&|variant| variant.warps == warps), "{warps}");
        }
        for cluster in [Cluster::None, Cluster::SplitK(2), Cluster::Multicast(2)] {
            assert!(problem.columns() == 272 || has(&|variant| variant.cluster == cluster), "{cluster:?}");
        }
        assert!(has(&|variant| variant.persistent) && has(&|variant| variant.split_k == 2));
        assert_eq!(has(&|variant| variant.prepass), problem.a_format() == Format::Nvfp4);
        for spec in specs.iter().step_by(7) {
            keeps_every_limit(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
        }
    }
    // Nowhere but on Hopper.
    for arch in Arch::ALL.iter().filter(|arch| arch.capability() != Arch::H200.capability()) {
        assert_eq!(space(&dual().prepared(), arch).count(), 0, "{arch}");
        assert!(pick::choose(&dual().prepared(), 64, arch).unwrap_err().is_unsupported(), "{arch}");
    }
}

#[test]
fn launches_follow_the_fusion() {
    let kinds = |variant: &str| {
        let spec = Spec::new(&dual(), &variant.parse().unwrap(), &Arch::H200).unwrap();
        let kinds: Vec<_> = spec.passes(100).map(|pass| pass.kind).collect();
        (kinds, spec.workspace_bytes(100))
    };
    let (products, finish) = (|product| PassKind::Products { product }, PassKind::Finish);
    let sum = 100 * 4096 * 4;
    assert_eq!(kinds("mma.t64x64x64.s2.interleaved.uniform.direct"), (vec![products(0)], 0));
    assert_eq!(kinds("mma.t64x64x64.s2.sequential.uniform.direct.k2"), (vec![products(0), finish], 4 * sum));
    assert_eq!(kinds("mma.t64x64x64.s1.two_pass.uniform.direct"), (vec![products(0), products(1), finish], 2 * sum));
    assert_eq!(dual().operation(), Operation::DualGemm(Activation::Silu));
}

#[test]
fn launches_of_prepared_weights_follow_the_variant() {
    let passes = |variant: &str| {
        let problem = dual().a(Format::Nvfp4).prepared();
        let spec = Spec::new(&problem, &variant.parse().unwrap(), &Arch::H200).unwrap();
        let passes: Vec<_> = spec.passes(100).map(|pass| (pass.kind, pass.grid, pass.cluster)).collect();
        (passes, spec.workspace_bytes(100))
    };
    let (products, alone) = (|product| PassKind::Products { product }, [1, 1, 1]);
    let (sum, decoded) = (100 * 4096 * 4, 100 * 7168 * 2);
    let prepass = (PassKind::Prepass, [100 * 7168 / 16 / 256, 1, 1], alone);
    let finish = (PassKind::Finish, [100, 4, 1], alone);
    for (variant, expected, workspace) in [
        ("wgmma.t64x64x128.s4.interleaved.ws2.shared", vec![(products(0), [64, 2, 1], alone)], 0),
        (
            "wgmma.t64x64x128.s4.interleaved.ws2.shared.dsmem2.prepass",
            vec![prepass, (products(0), [64, 2, 2], [1, 1, 2])],
            decoded,
        ),
        (
            "wgmma.t64x64x128.s4.interleaved.ws2.shared.multicast2.prepass",
            vec![prepass, (products(0), [64, 2, 1], [2, 1, 1])],
            decoded,
        ),
        (
            "wgmma.t64x64x128.s4.interleaved.ws2.tma.persistent.prepass",
            vec![prepass, (products(0), [128, 1, 1], alone)],
            decoded,
        ),
        (
            "wgmma.t64x64x128.s4.two_pass.ws1.direct.k2.prepass",
            vec![prepass, (products(0), [64, 2, 2], alone), (products(1), [64, 2, 2], alone), finish],
            4 * sum + decoded,
        ),
    ] {
        assert_eq!(passes(variant), (expected, workspace), "{variant}");
    }
}

#[test]
fn the_stated_range_of_m_is_no_part_of_a_kernel() {
    let variant = baseline(&dual());
    let stated = Spec::new(&dual().m_up_to(8), &variant, &Arch::H200).unwrap();
    assert_eq!(stated, Spec::new(&dual(), &variant, &Arch::H200).unwrap());
}

#[test]
fn prepared_weights_follow_from_the_problem() {
    let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).a(Format::Bf16).grouped(8);
    assert_eq!(problem.prepared_layout().unwrap().to_string(), "prepared1.dual.bf16:g8:n4096:k7168");
    let problem = Problem::gemm().n(48).k(64).a(Format::Nvfp4);
    assert_eq!(problem.prepared_layout().unwrap().to_string(), "prepared1.single.f16:g1:n48:k64");
    let error = problem.a(Format::F16).b(Format::F16).prepared_layout().unwrap_err();
    assert!(error.is_unsupported());
    assert_eq!(error.to_string(), "b is f16: only nvfp4 weights can be prepared");
}
