//! Spellings and legality: what is written reads back, and what is refused says which limit, with both numbers.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use proptest::prelude::*;
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::pick::{self, Origin};
use warpsmith::spec::{
    Activation, Arch, Fusion, Operation, PassKind, Problem, Refusal, Spec, Tile, Variant, baseline, space,
};

fn any_format() -> impl Strategy<Value = Format> {
    prop::sample::select(&Format::ALL[..])
}

fn any_problem() -> impl Strategy<Value = Problem> {
    let operation =
        prop_oneof![Just(Problem::gemm()), prop::sample::select(Activation::ALL).prop_map(Problem::dual_gemm)];
    let layout = prop::sample::select(vec![ScaleLayout::Linear, ScaleLayout::Swizzled128x4]);
    let extents = (any::<u32>(), any::<u32>(), prop::option::of(any::<u32>()), prop::option::of(any::<u32>()));
    (operation, any_format(), any_format(), any_format(), layout, extents).prop_map(
        |(problem, a, b, c, layout, (n, k, groups, m))| {
            let problem = problem.a(a).b(b).c(c).scales(layout).n(n).k(k);
            let problem = groups.map_or(problem, |groups| problem.grouped(groups));
            m.map_or(problem, |m| problem.m_up_to(m))
        },
    )
}

fn any_variant() -> impl Strategy<Value = Variant> {
    let tile = (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(tokens, columns, k)| Tile { tokens, columns, k });
    (tile, any::<u32>(), prop::sample::select(Fusion::ALL), 1u32..)
        .prop_map(|(tile, stages, fusion, split_k)| Variant::mma(tile, stages, fusion, split_k))
}

/// Problems and variants near the legal ones, so that both sides of every limit are met.
fn near_legal() -> impl Strategy<Value = (Problem, Variant, Arch)> {
    let extents = (1u32..80, 1u32..80);
    let tile = (
        prop::sample::select(vec![4, 8, 16, 24, 40, 64, 72, 80, 128, 136, 192, 256, 512]),
        prop::sample::select(vec![16, 32, 64, 96, 128, 256]),
        prop::sample::select(vec![32, 64, 128, 256]),
    );
    let rest = (0u32..18, prop::sample::select(Fusion::ALL), 0u32..66, prop::sample::select(Arch::ALL));
    (any_problem(), extents, tile, rest).prop_map(|(problem, (n, k), (tokens, columns, tile_k), rest)| {
        let (stages, fusion, split_k, arch) = rest;
        let tile = Tile { tokens, columns, k: tile_k };
        let variant = Variant::mma(tile, stages, fusion, split_k);
        (problem.n(n * 16).k(k * 64), variant, arch)
    })
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
    fn what_reads_is_what_is_written(text in "(grouped[0-9]{1,2}\\.)?(gemm|dual_gemm\\.silu):f16\\*nvfp4>(f16|f8):n[0-9]{1,3}:k[0-9]{1,3}(:sf128x4)?(:m[0-9]{1,2})?") {
        if let Ok(problem) = text.parse::<Problem>() {
            prop_assert_eq!(problem.to_string(), text);
        }
    }

    #[test]
    fn a_spec_keeps_every_limit((problem, variant, arch) in near_legal()) {
        let Ok(spec) = Spec::check(&problem, &variant, &arch) else { return Ok(()) };
        let (tile, geometry) = (variant.tile, spec.geometry());
        prop_assert!(geometry.shared_bytes <= arch.shared_per_block());
        let decoded = if problem.a_format() == Format::Nvfp4 { 2 * tile.tokens * tile.k } else { 0 };
        prop_assert!(geometry.shared_bytes >= variant.stages * geometry.stage_bytes + decoded);
        prop_assert!(geometry.accumulators < arch.registers_per_thread(geometry.threads));
        prop_assert!(geometry.threads <= 256 && geometry.threads >= 32);
        // Warps share the tile without remainder.
        // Every split has a tile along K.
        prop_assert!((variant.split_k - 1) * spec.k_tiles().div_ceil(variant.split_k) < spec.k_tiles());
        // Symbols are C identifiers.
        prop_assert!(spec.symbol().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
    }

    #[test]
    fn the_grid_covers_every_row((problem, variant, arch) in near_legal(), sizes in prop::collection::vec(0u32..300, 1..9)) {
        let groups = sizes.len() as u32;
        let problem = problem.grouped(groups);
        let Ok(spec) = Spec::check(&problem, &variant, &arch) else { return Ok(()) };
        let m = sizes.iter().sum::<u32>().max(1);
        let needed: u32 = sizes.iter().map(|rows| rows.div_ceil(variant.tile.tokens)).sum();
        let products = spec.passes(m).next().unwrap();
        prop_assert!(products.grid[0] >= needed, "{} blocks for {needed} tiles", products.grid[0]);
        prop_assert!(products.grid[1] * variant.tile.columns >= problem.columns());
        prop_assert!(products.grid[1] <= 65_535);
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
        ("mma.t64x128x64.s3.interleaved.uniform", "5 segments"),
        ("mma.t64x128.s3.interleaved.uniform.direct", "tTOKENSxCOLUMNSxK"),
        ("mma.t64x128x64.s3.woven.uniform.direct", "single, two_pass, sequential, interleaved"),
        ("mma.t64x128x64.s3.interleaved.uniform.direct.k1", "left out"),
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
        (dual(), "mma.t64x128x64.s0.interleaved.uniform.direct", Arch::H200, "stages = 0: must be 1 to 16"),
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
