//! The legal space, and what its variants launch.

use warpsmith::format::Format;
use warpsmith::internal::spec::{Cluster, Epilogue, Fusion, PassKind, Warps, baseline, space, thinned};
use warpsmith::pick;
use warpsmith::spec::{Activation, Arch, MatrixPath, Operation, Problem, Spec, Variant};

use crate::dual;
use crate::limits::keeps_every_limit;

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
                        let rounded = prepared.a(Format::E4m3);
                        Spec::new(&rounded, &baseline(&rounded), arch).unwrap();
                        let along_k = rounded.k_factors();
                        Spec::new(&along_k, &baseline(&along_k), arch).unwrap();
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
    let coded = dual().n(272).k(448).a(Format::Nvfp4).c(Format::F32).grouped(40).prepared();
    for problem in [dual().prepared(), dual().a(Format::E4m3).prepared(), coded] {
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
        let rounds = problem.a_format() == Format::E4m3;
        let decoding = [(1, 1), (2, 1), (2, 2)].map(|(consumers, decoders)| Warps::Decoding { consumers, decoders });
        for warps in warps.chain(decoding.into_iter().filter(|_| rounds)) {
            assert!(has(&|variant| variant.warps == warps), "{warps}");
        }
        assert!(rounds || !has(&|variant| variant.warps.decoders() > 0));
        for cluster in [Cluster::None, Cluster::SplitK(2), Cluster::Multicast(2)] {
            let has_not = problem.columns() == 272 || (rounds && cluster.multicast() > 1);
            assert!(has_not || has(&|variant| variant.cluster == cluster), "{cluster:?}");
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

/// What does not go together at any depth is left out before depths are looked at; nothing else is.
#[test]
fn the_space_is_what_is_legal_of_all_combinations() {
    let coded = dual().a(Format::Nvfp4);
    for (problem, arch) in [
        (dual().n(272).k(448), Arch::L40S),
        (dual().prepared().gathered().grouped(40), Arch::H200),
        (dual().a(Format::E4m3).k_factors().prepared(), Arch::H200),
        (coded.prepared(), Arch::H200),
        (coded.slots().grouped(3), Arch::B200),
        (Problem::gemm().n(272).k(448).a(Format::Nvfp4), Arch::RTX5090),
    ] {
        assert!(space(&problem, &arch).eq(thinned(&problem, &arch, 1)), "{problem} on {arch}");
    }
}

/// NVFP4 tokens on Blackwell: a path that multiplies them as they are, and `mma` beside it. Nowhere else.
#[test]
fn the_space_of_nvfp4_tokens_has_a_path_more_on_blackwell() {
    for problem in [dual().a(Format::Nvfp4), Problem::gemm().n(272).k(448).a(Format::Nvfp4).grouped(40)] {
        for arch in Arch::ALL {
            let specs: Vec<_> = space(&problem, arch).collect();
            let own = match arch.target() {
                "sm_100a" | "sm_103a" => Some(MatrixPath::Tcgen05),
                "sm_120a" | "sm_121a" => Some(MatrixPath::Mxf4),
                _ => None,
            };
            let of = |path| specs.iter().filter(move |spec| Some(spec.variant().path) == path);
            let (mma, others) = (of(Some(MatrixPath::Mma)).count(), of(own).count());
            assert!(mma > 100 && (others > 100) == own.is_some(), "{arch}: {mma}, {others}");
            assert_eq!(mma + others, specs.len(), "{arch}");
            for spec in of(own).step_by(11) {
                keeps_every_limit(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
                assert!(spec.numerics().to_string().contains(".k64.nvfp4.f32"), "{}", spec.numerics());
            }
            // Of 40 groups with a row or two each either may be the faster one.
            let chosen = pick::choose(&problem, 64, arch).unwrap().spec().variant().path;
            let is_open = own == Some(MatrixPath::Tcgen05) && problem.groups().is_some() && chosen == MatrixPath::Mma;
            assert!(chosen == own.unwrap_or(MatrixPath::Mma) || is_open, "{problem} on {arch}: {chosen}");
        }
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
    let prepass = (PassKind::Prepass, [100 * 7168 / 4096, 1, 1], alone);
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

/// So one kernel serves all of them: what is rendered, its symbols and its key in caches come from the spec.
#[test]
fn how_rows_fall_into_groups_is_no_part_of_a_kernel() {
    let experts = dual().grouped(8);
    let variant = baseline(&experts);
    let plain = Spec::new(&experts, &variant, &Arch::H200).unwrap();
    for stated in [experts.experts_per_token(2), experts.skew(80), experts.experts_per_token(8).skew(100).m_up_to(9)] {
        let spec = Spec::new(&stated, &variant, &Arch::H200).unwrap();
        assert_eq!((spec, spec.name(), spec.symbol()), (plain, plain.name(), plain.symbol()));
        assert_eq!(spec.problem().to_string(), experts.to_string());
    }
}

#[test]
fn prepared_weights_follow_from_the_problem() {
    let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).a(Format::Bf16).grouped(8);
    assert_eq!(problem.prepared_layout().unwrap().to_string(), "prepared1.dual.bf16:g8:n4096:k7168");
    let problem = Problem::gemm().n(48).k(64).a(Format::Nvfp4);
    assert_eq!(problem.prepared_layout().unwrap().to_string(), "prepared1.single.f16:g1:n48:k64");
    let mxfp4 = problem.a(Format::F16).b(Format::Mxfp4).prepared_layout().unwrap();
    assert_eq!(mxfp4.to_string(), "prepared1.single.f16:g1:n48:k64:mxfp4");
    let error = problem.a(Format::F16).b(Format::F16).prepared_layout().unwrap_err();
    assert!(error.is_unsupported());
    assert_eq!(error.to_string(), "weights are prepared from nvfp4 or mxfp4, not from f16");
}
