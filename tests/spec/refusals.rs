//! What is refused says which limit, with both numbers.

use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::spec::baseline;
use warpsmith::spec::{Activation, Arch, ComputeCapability, DeviceFacts, MatrixPath, Problem, Refusal, Spec};

use crate::dual;

fn refusal(problem: &Problem, variant: &str, arch: &Arch) -> String {
    Spec::check(problem, &variant.parse().unwrap(), arch).unwrap_err().to_string()
}

#[test]
fn refusals_name_the_limit_and_both_numbers() {
    let s3 = "mma.t64x128x64.s3.interleaved.uniform.direct";
    let mx = || dual().b(Format::Mxfp4);
    for (problem, variant, arch, expected) in [
        (dual().n(4100), s3, Arch::H200, "N = 4100: must be a multiple of 16 from 16 to 1048576"),
        (dual().k(96), s3, Arch::H200, "K = 96: must be a multiple of 64"),
        (dual().grouped(0), s3, Arch::H200, "groups = 0: must be 1 to 1024"),
        (dual().experts_per_token(2), s3, Arch::H200, "experts per token"),
        (dual().skew(50), s3, Arch::H200, "a grouped problem"),
        (dual().grouped(8).experts_per_token(9), s3, Arch::H200, "experts per token = 9: must be 1 to 8"),
        (dual().grouped(8).experts_per_token(0), s3, Arch::H200, "experts per token = 0: must be 1 to 8"),
        (dual().grouped(8).skew(401), s3, Arch::H200, "skew = 401: must be 0 to 400"),
        (
            dual().activation(Activation::Relu2),
            s3,
            Arch::H200,
            "activation relu2: dual_gemm takes silu, silu_clampL, gelu_tanh, gelu, swiglu_oai, none",
        ),
        (
            Problem::gemm().activation(Activation::SwigluOai).n(64).k(64),
            s3,
            Arch::H200,
            "activation swiglu_oai: gemm takes silu, gelu_tanh, gelu, relu2, none",
        ),
        (
            Problem::gemm().activation(Activation::SiluClamp(7)).n(64).k(64),
            s3,
            Arch::H200,
            "activation silu_clamp7: gemm takes silu, gelu_tanh, gelu, relu2, none",
        ),
        (dual().activation(Activation::SiluClamp(0)), s3, Arch::H200, "clamp limit = 0: must be 1 to 65504"),
        (dual().activation(Activation::SiluClamp(65_505)), s3, Arch::H200, "clamp limit = 65505: must be 1 to 65504"),
        (dual().a(Format::F32), s3, Arch::H200, "A in f32: must be nvfp4, e4m3, f16 or bf16"),
        (dual().a(Format::E4m3), s3, Arch::H200, "path mma takes tokens in nvfp4, f16 or bf16"),
        (mx().a(Format::E4m3), s3, Arch::H200, "B in mxfp4: must be nvfp4 where A is e4m3"),
        (dual().k_factors(), s3, Arch::H200, "A in f16: must be e4m3 where it has factors for each 128 of K"),
        (dual().b(Format::E4m3), s3, Arch::H200, "B in e4m3: must be nvfp4, mxfp4, f16 or bf16"),
        (dual().c(Format::E4m3), s3, Arch::H200, "C in e4m3: must be nvfp4, f16, bf16 or f32"),
        (dual().b(Format::Bf16), s3, Arch::H200, "B in bf16: must be nvfp4, mxfp4 or the format of A"),
        (dual().a(Format::Mxfp4), s3, Arch::H200, "A in mxfp4: must be nvfp4, e4m3, f16 or bf16"),
        (mx().a(Format::Nvfp4), s3, Arch::H200, "B in mxfp4: must be nvfp4, f16 or bf16 where A is nvfp4"),
        (mx().scales(ScaleLayout::Swizzled128x4), s3, Arch::H200, "B in mxfp4: must be nvfp4 where scales are 128x4"),
        (mx().prepared(), s3, Arch::H200, "path mma takes weights as they are, not prepared ones"),
        (mx(), "wgmma.t64x64x64.s1.interleaved.uniform.direct", Arch::H200, "path wgmma takes prepared weights"),
        (dual().c(Format::Mxfp4), s3, Arch::H200, "C in mxfp4: must be nvfp4, f16, bf16 or f32"),
        (dual().bias(Format::Mxfp4), s3, Arch::H200, "bias in mxfp4: must be f16, bf16 or f32"),
        (
            dual().n(4112).c(Format::Nvfp4),
            s3,
            Arch::H200,
            "N where C is nvfp4 = 4112: must be a multiple of 64 from 64 to 1048576",
        ),
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
    let rounded = || dual().a(Format::E4m3);
    let base = "wgmma.t64x64x128.s4.interleaved.ws2.shared";
    for (problem, variant, arch, expected) in [
        (dual(), base, Arch::A100, "path wgmma needs compute capability 9.0, this architecture has 8.0"),
        (dual(), base, Arch::B200, "path wgmma needs compute capability 9.0, this architecture has 10.0"),
        (dual().b(Format::F16), base, Arch::H200, "B in f16: must be nvfp4 or mxfp4 where weights are prepared"),
        (self::dual(), base, Arch::H200, "path wgmma takes prepared weights"),
        (
            rounded().gathered(),
            "wgmma.t64x64x128.s4.ping_pong.ws4.shared.persistent",
            Arch::H200,
            "ping_pong needs a tile of at most 40 tokens where rows are gathered",
        ),
        (
            dual(),
            "wgmma.t64x64x128.s3.ping_pong.ws4.shared.persistent",
            Arch::H200,
            "ping_pong needs an even number of stages",
        ),
        (
            rounded(),
            "wgmma.t64x64x64.s4.interleaved.ws2.shared",
            Arch::H200,
            "e4m3 tokens needs tile k 128 or 256: an instruction's sums are kept for 128 of K",
        ),
        (
            rounded(),
            "wgmma.t64x64x128.s4.interleaved.ws2.shared.multicast2",
            Arch::H200,
            "e4m3 tokens needs tokens that a cluster does not share",
        ),
        (
            rounded().k_factors(),
            "wgmma.t64x64x128.s4.interleaved.uniform.shared",
            Arch::H200,
            "factors along K needs specialised warps, which bring them",
        ),
        (
            rounded().k_factors(),
            "wgmma.t64x64x128.s2.interleaved.ws4.shared",
            Arch::H200,
            "factors along K needs more stages than warpgroups that share K or tiles",
        ),
        (
            rounded(),
            "wgmma.t192x128x128.s2.interleaved.ws4.shared",
            Arch::H200,
            "registers: 232 a thread needed (192 of them accumulators), 96 can be had",
        ),
        (
            rounded(),
            "wgmma.t64x64x128.s4.interleaved.ws3d1.shared",
            Arch::H200,
            "consumer warpgroups = 3: must be 1 to 4, a multiple of those that the tile needs",
        ),
        (
            rounded(),
            "wgmma.t64x64x128.s4.interleaved.ws2d3.shared",
            Arch::H200,
            "decoder warpgroups = 3: must be 1 or 2",
        ),
        (
            rounded(),
            "wgmma.t24x32x128.s4.interleaved.ws2d1.shared",
            Arch::H200,
            "tile tokens = 24: must be 8 for each part of the tokens",
        ),
        (
            rounded(),
            "wgmma.t64x64x128.s4.sequential.ws2d1.shared",
            Arch::H200,
            "decoders needs fusion single or interleaved",
        ),
        (
            rounded(),
            "wgmma.t64x32x128.s4.interleaved.ws2d1.shared.dsmem2",
            Arch::H200,
            "decoders needs a warpgroup for each m64 tile where a cluster splits K",
        ),
        (rounded(), "wgmma.t64x64x128.s1.interleaved.ws2d1.shared", Arch::H200, "decoders needs more than one stage"),
        (dual(), "wgmma.t64x64x128.s4.interleaved.ws2d1.shared", Arch::H200, "decoders needs e4m3 tokens"),
        (
            rounded().k_factors(),
            "wgmma.t64x32x128.s4.interleaved.ws2d1.shared",
            Arch::H200,
            "decoders needs a warpgroup for each m64 tile where tokens have factors along K",
        ),
        (
            rounded(),
            "wgmma.t136x64x128.s2.interleaved.ws2d1.shared",
            Arch::H200,
            "decoders needs a multiple of 16 tokens for each warpgroup above 128",
        ),
        (
            rounded(),
            "wgmma.t256x64x128.s2.interleaved.ws2d1.shared",
            Arch::H200,
            "registers: 224 a thread needed (192 of them accumulators), 128 can be had",
        ),
        (
            coded().gathered(),
            base,
            Arch::H200,
            "path wgmma takes e4m3, f16 or bf16 tokens where their rows are gathered",
        ),
        (dual().c(Format::Nvfp4), base, Arch::H200, "path wgmma takes f16, bf16 or f32 as the format of the result"),
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
            "registers: 220 a thread needed (128 of them accumulators), 96 can be had",
        ),
        (dual().k(512), "wgmma.t64x64x256.s2.interleaved.ws2.shared.dsmem4", Arch::H200, "split-K 4: 2 tiles along K"),
    ] {
        let text = refusal(&problem, variant, &arch);
        assert!(text.contains(expected), "{text}\n  expected {expected}");
    }
    let refused = Spec::check(&dual(), &base.parse().unwrap(), &Arch::L40S).unwrap_err();
    assert!(matches!(refused, Refusal::Capability { path: MatrixPath::Wgmma, .. }), "{refused}");
}

/// The same for what only the path `mxf4` takes: tokens and weights in NVFP4, on two architectures.
#[test]
fn refusals_of_mxf4_name_what_they_need() {
    let coded = || dual().a(Format::Nvfp4);
    let base = "mxf4.t64x64x128.s3.interleaved.uniform.direct";
    let newer =
        DeviceFacts { capability: ComputeCapability { major: 12, minor: 9 }, ..DeviceFacts::of_preset(&Arch::SPARK) };
    for (problem, variant, arch, expected) in [
        (coded(), base, Arch::H200, "path mxf4 needs compute capability 12.0, this architecture has 9.0"),
        (coded(), base, Arch::B200, "path mxf4 needs compute capability 12.0, this architecture has 10.0"),
        // Plain machine code has not the instruction.
        (coded(), base, Arch::of_device(&newer).unwrap(), "path mxf4 needs compute capability 12.0"),
        (dual(), base, Arch::RTX5090, "path mxf4 takes tokens and weights in nvfp4, as they are"),
        (coded().b(Format::F16), base, Arch::RTX5090, "path mxf4 takes tokens and weights in nvfp4, as they are"),
        (coded().prepared(), base, Arch::SPARK, "path mxf4 takes tokens and weights in nvfp4, as they are"),
        (
            coded(),
            "mxf4.t72x64x64.s3.interleaved.uniform.direct",
            Arch::SPARK,
            "a multiple of 8 up to 64, of 16 up to 128",
        ),
        (coded(), "mxf4.t64x96x64.s3.interleaved.uniform.direct", Arch::SPARK, "32, 64, 128 or 256"),
        (coded(), "mxf4.t64x64x64.s3.interleaved.ws2.direct", Arch::RTX5090, "mxf4 needs uniform warps"),
        (coded(), "mxf4.t64x64x64.s3.ping_pong.uniform.direct", Arch::RTX5090, "mxf4 has two_pass, sequential and"),
        (coded(), "mxf4.t64x64x64.s3.interleaved.uniform.direct.prepass", Arch::RTX5090, "not by a prepass"),
        (
            coded(),
            "mxf4.t128x128x256.s2.interleaved.uniform.direct",
            Arch::RTX5090,
            "shared memory: 110592 bytes needed, rtx5090 gives a block 101376",
        ),
    ] {
        let text = refusal(&problem, variant, &arch);
        assert!(text.contains(expected), "{text}\n  expected {expected}");
    }
}

#[test]
fn a_refusal_is_data_too() {
    let variant = "mma.t128x64x256.s4.interleaved.uniform.direct".parse().unwrap();
    let refused = Spec::check(&dual(), &variant, &Arch::H200).unwrap_err();
    assert_eq!(refused, Refusal::SharedMemory { needs: 335_872, limit: 232_448, arch: "h200" });
}
