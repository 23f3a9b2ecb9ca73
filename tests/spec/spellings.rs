//! What is written reads back.

use proptest::prelude::*;
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::spec::{Cluster, Epilogue, Fusion, Tile, Warps};
use warpsmith::spec::{Activation, Problem, Variant};

use crate::dual;
use crate::near::{any_problem, any_variant};

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
    fn what_reads_is_what_is_written(text in "(grouped[0-9]{1,2}\\.)?(gemm(\\.relu2)?|dual_gemm\\.(silu|swiglu_oai|silu_clamp[0-9]{1,3})):f16\\*nvfp4>(f16|f8):n[0-9]{1,3}:k[0-9]{1,3}(:sf128x4)?(:k_factors)?(:prepared)?(:top[0-9]{1,2})?(:skew[0-9]{1,3})?(:m[0-9]{1,2})?") {
        if let Ok(problem) = text.parse::<Problem>() {
            prop_assert_eq!(problem.to_string(), text);
        }
    }
}

#[test]
fn spellings_are_the_documented_ones() {
    let problem = dual().a(Format::Nvfp4).grouped(8).scales(ScaleLayout::Swizzled128x4).m_up_to(1024);
    assert_eq!(problem.to_string(), "grouped8.dual_gemm.silu:nvfp4*nvfp4>f16:n4096:k7168:sf128x4:m1024");
    let variant: Variant = "mma.t64x128x64.s3.interleaved.uniform.direct.k2".parse().unwrap();
    assert_eq!((variant.tile.tokens, variant.stages, variant.split_k), (64, 3, 2));

    let problem = dual().a(Format::Nvfp4).grouped(8).prepared().m_up_to(64);
    assert_eq!(problem.to_string(), "grouped8.dual_gemm.silu:nvfp4*nvfp4>f16:n4096:k7168:prepared:m64");
    let problem = problem.experts_per_token(2).skew(80);
    assert_eq!(problem.to_string(), "grouped8.dual_gemm.silu:nvfp4*nvfp4>f16:n4096:k7168:prepared:top2:skew80:m64");
    assert_eq!(problem.to_string().parse::<Problem>().unwrap(), problem);
    let problem = Problem::gemm().activation(Activation::Relu2).n(1856).k(2688).grouped(128);
    assert_eq!(problem.to_string(), "grouped128.gemm.relu2:f16*nvfp4>f16:n1856:k2688");
    let problem = dual().activation(Activation::SiluClamp(10));
    assert_eq!(problem.to_string(), "dual_gemm.silu_clamp10:f16*nvfp4>f16:n4096:k7168");
    assert_eq!(problem.activation(Activation::Silu), dual());
    let problem = dual().a(Format::E4m3).k(192).k_factors().row_scale().prepared();
    assert_eq!(problem.to_string(), "dual_gemm.silu:e4m3*nvfp4>f16:n4096:k192:k_factors:row_scale:prepared");
    assert_eq!(problem.to_string().parse::<Problem>().unwrap(), problem);
    // A value a byte, and two factors; C is 2 bytes an element.
    assert_eq!(problem.bytes_of(&[2]) - problem.bytes_of(&[1]), 192.0 + 8.0 + 8192.0);
    let problem = Problem::gemm().b(Format::Mxfp4).bf16().n(2880).k(2880);
    assert_eq!(problem.to_string(), "gemm:bf16*mxfp4>bf16:n2880:k2880");
    assert_eq!(problem.to_string().parse::<Problem>().unwrap(), problem);
    // 17 bytes for 32 values.
    assert_eq!(problem.bytes(0) + 2880.0 * 90.0 * 17.0, problem.bytes_of(&[1]) - 2.0 * 2.0 * 2880.0);
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
            Variant { warps: Warps::Decoding { consumers: 2, decoders: 1 }, ..direct },
            "wgmma.t128x64x128.s4.interleaved.ws2d1.direct",
        ),
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
        ("dual_gemm:f16*nvfp4>f16:n16:k64", "OP = gemm, gemm.ACT or dual_gemm.ACT"),
        ("dual_gemm.relu:f16*nvfp4>f16:n16:k64", "silu, silu_clampL, gelu_tanh, gelu, swiglu_oai, relu2, none"),
        ("dual_gemm.silu_clamp:f16*nvfp4>f16:n16:k64", "silu, silu_clampL, gelu_tanh, gelu, swiglu_oai, relu2, none"),
        ("gemm.silu_clamp7.5:f16*nvfp4>f16:n16:k64", "unknown activation `silu_clamp7.5`"),
        ("gemm.none:f16*nvfp4>f16:n16:k64", "cannot read `gemm.none`"),
        ("gemm:f8*nvfp4>f16:n16:k64", "nvfp4, mxfp4, e4m3, f16, bf16 or f32"),
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
        ("wgmma.t64x64x64.s3.interleaved.ws.direct", "unknown warps `ws`: expected uniform, ws1, ws2 … or ws1d1 …"),
        ("wgmma.t64x64x64.s3.interleaved.ws2d0.direct", "unknown warps `ws2d0`"),
        ("wgmma.t64x64x64.s3.interleaved.ws2d.direct", "unknown warps `ws2d`"),
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
