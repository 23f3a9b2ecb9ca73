//! In which order a variant adds up: what decides the bits of a result.

use std::fmt;
use std::str::FromStr;

use super::{Cluster, MatrixPath, Spec};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::path::{K_BLOCK, Sharers};
use crate::spelling::{number, prefixed, spelled};

/// What sums are kept in: in f32; of e4m3 values, which an instruction does not add with all bits of f32, in f32 from 128 to
/// 128 elements along K.
fn sums(compute: Format) -> &'static str {
    if compute == Format::E4m3 { "f32x128" } else { "f32" }
}

/// The order in which a variant adds up.
///
/// Every element of C is a sum over K of products, in fp32. Sums in another order round differently. Two [`Spec`]s of one
/// problem with equal numerics give, on one device, the same bits for the same row of A, whatever M is, whatever tile the
/// row falls into and wherever in the tile it is.
///
/// # What is in it, and what is not
///
/// An instruction adds 16 products along K to a sum (`mxf4`: 64, e4m3 values on `wgmma`: 32), and the instructions of one warp (`mma`, `mxf4`) or
/// warpgroup (`wgmma`) follow each other in ascending k. That order is changed by nothing but the following:
///
/// | | what the kernels do | in the class |
/// |---|---|---|
/// | instruction | each takes other k per step, and adds inside of a step in its own way | path |
/// | products | made of f16, bf16 or e4m3 values; `mxf4`: of NVFP4 ones | compute format |
/// | sums of e4m3 products | an instruction adds to what the last 128 elements of K gave so far, of which some 14 bits are kept; that is added to an f32 sum every 128 elements that a warpgroup multiplies | `f32x128`, not `f32` |
/// | K shared inside a block | `mma`, `mxf4`: WARPS_K warps take turns with blocks of 64; `wgmma`: K_GROUPS warpgroups take turns with stages, so with tile k; the first adds the others' sums to its own, in their order | sharers and depth |
/// | K shared by blocks | each takes a run of whole tiles along K; through the workspace partial sums are added in ascending order, in a cluster in pairs: (0 + 1) + (2 + 3) | way, parts and depth |
/// | K behind the end | `mma` and `mxf4` multiply zeros up to a whole tile, which make a sum of −0 a +0; `wgmma` stops at K | zero blocks |
///
/// Not in it, because the sum of an element is the same with any value of them: tokens and columns of a tile, the widths of
/// ragged tiles (an instruction's N gives columns of their own sums), stages, fusion (each product has its own sum; sums
/// that go through the fp32 workspace unsplit come back as they were, and the same arithmetic follows), who loads, how C is
/// stored, persistent blocks, multicast, a prepass (decoding NVFP4 is exact).
///
/// From sums to C the arithmetic is that of the problem: α, activation, one rounding.
///
/// # Spelling
/// `PATH.kSTEP.COMPUTE.SUMS[.gSHARERSxDEPTH][.workspaceSPLITSxDEPTH|.clusterSPLITSxDEPTH][.zerosBLOCKS]`, for example
/// `wgmma.k16.f16.f32` (K in ascending order, undivided), `mma.k16.bf16.f32.g4x64` and
/// `wgmma.k16.f16.f32.g2x128.cluster2x3584`. DEPTH is in elements along K. `Display` writes it and `FromStr` reads exactly
/// what `Display` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Numerics {
    path: MatrixPath,
    compute: Format,
    sharers: Parts,
    splits: Splits,
    zeros: u32,
}

/// Into how many parts K goes, and how deep each is; one part has no depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Parts {
    count: u32,
    depth: u32,
}

impl Parts {
    const ONE: Parts = Parts { count: 1, depth: 0 };

    fn new(count: u32, depth: u32) -> Self {
        if count == 1 { Self::ONE } else { Self { count, depth } }
    }

    fn parse(text: &str) -> Option<Self> {
        let (count, depth) = text.split_once('x')?;
        let parts = Self { count: number(count)?, depth: number(depth)? };
        (parts.count > 1 && parts.depth > 0 && parts.depth.is_multiple_of(K_BLOCK)).then_some(parts)
    }
}

/// How blocks share K, and so how their sums meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Splits {
    None,
    Workspace(Parts),
    Cluster(Parts),
}

impl Spec {
    /// The order in which it adds up. It says all that decides the bits of a row of C beside the row of A and the
    /// weights.
    #[must_use]
    pub fn numerics(&self) -> Numerics {
        let (problem, variant) = (self.problem(), self.variant());
        let k = variant.tile.k;
        let Sharers { count, depth } = self.geometry().layout.sharers(variant);
        let sharers = Parts::new(count, depth);
        let depth_of = |splits: u32| Parts::new(splits, self.k_tiles().div_ceil(splits).saturating_mul(k));
        let splits = match (variant.split_k, variant.cluster) {
            (1, Cluster::SplitK(blocks)) => Splits::Cluster(depth_of(blocks)),
            (1, _) => Splits::None,
            (splits, _) => Splits::Workspace(depth_of(splits)),
        };
        let zeros = variant.path.zeros(problem, variant);
        let (compute, factors) = (problem.compute_format(), variant.path.factors());
        // A path that multiplies what is given makes nothing else of it.
        let compute = if factors.contains(&compute) { compute } else { problem.a_format() };
        Numerics { path: variant.path, compute, sharers, splits, zeros }
    }
}

impl Numerics {
    /// Whether K is gone through in one piece, in ascending order.
    #[must_use]
    pub fn is_undivided(&self) -> bool {
        self.sharers == Parts::ONE && self.splits == Splits::None
    }
}

impl fmt::Display for Numerics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Numerics { path, compute, sharers, splits, zeros } = self;
        write!(f, "{path}.k{}.{compute}.{}", path.step(*compute), sums(*compute))?;
        if *sharers != Parts::ONE {
            write!(f, ".g{}x{}", sharers.count, sharers.depth)?;
        }
        match splits {
            Splits::None => Ok(()),
            Splits::Workspace(parts) => write!(f, ".workspace{}x{}", parts.count, parts.depth),
            Splits::Cluster(parts) => write!(f, ".cluster{}x{}", parts.count, parts.depth),
        }?;
        if *zeros == 0 { Ok(()) } else { write!(f, ".zeros{zeros}") }
    }
}

const GRAMMAR: &str = "expected PATH.kSTEP.COMPUTE.SUMS[.gSHARERSxDEPTH][.workspaceSPLITSxDEPTH|.clusterSPLITSxDEPTH]\
                       [.zerosBLOCKS]";

impl FromStr for Numerics {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).map_err(|error| error.context(format!("numerics `{text}`")))
    }
}

fn parse(text: &str) -> Result<Numerics> {
    let wrong = |segment: &str| Error::parse(format!("cannot read `{segment}`: {GRAMMAR}"));
    let mut segments = text.split('.').peekable();
    let path: MatrixPath = segments.next().unwrap_or_default().parse()?;
    let mut next = || segments.next().unwrap_or_default();
    let (step, compute, kept) = (next(), next(), next());
    let compute = match compute.parse() {
        Ok(format) if path.factors().contains(&format) => format,
        _ => return Err(wrong(compute)),
    };
    if prefixed(step, "k") != Some(path.step(compute)) {
        return Err(wrong(step));
    }
    if kept != sums(compute) {
        return Err(wrong(kept));
    }
    let mut parts = |prefix: &str| {
        let found = segments.peek()?.strip_prefix(prefix).and_then(Parts::parse)?;
        segments.next();
        Some(found)
    };
    let sharers = parts("g").unwrap_or(Parts::ONE);
    let splits = match parts("workspace") {
        Some(found) => Splits::Workspace(found),
        None => parts("cluster").map_or(Splits::None, Splits::Cluster),
    };
    let zeros = segments.peek().and_then(|segment| prefixed(segment, "zeros")).filter(|zeros| *zeros > 0);
    if zeros.is_some() {
        segments.next();
    }
    let zeros = zeros.unwrap_or(0);
    match segments.next() {
        Some(rest) => Err(wrong(rest)),
        None => Ok(Numerics { path, compute, sharers, splits, zeros }),
    }
}

spelled!(Numerics);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::space::space;
    use crate::spec::{Activation, Arch, Problem, baseline};

    fn of(problem: &Problem, variant: &str) -> String {
        Spec::new(problem, &variant.parse().unwrap(), &Arch::H200).unwrap().numerics().to_string()
    }

    #[test]
    fn warps_and_warpgroups_that_share_k_are_stated() {
        let dual = Problem::dual_gemm(Activation::Silu).n(4096).k(7168);
        assert_eq!(of(&dual, "mma.t64x128x64.s3.interleaved.uniform.direct"), "mma.k16.f16.f32");
        // 8 warps at 2 places, 4 blocks of 64 a stage: and the blocks go round whatever a stage holds.
        assert_eq!(of(&dual, "mma.t8x32x256.s3.interleaved.uniform.direct"), "mma.k16.f16.f32.g4x64");
        assert_eq!(of(&dual, "mma.t64x64x128.s3.interleaved.uniform.direct"), "mma.k16.f16.f32.g2x64");
        assert_eq!(of(&dual, "mma.t32x64x256.s2.sequential.uniform.direct"), "mma.k16.f16.f32.g2x64");
        let prepared = dual.prepared();
        assert_eq!(of(&prepared, "wgmma.t64x64x128.s4.interleaved.ws2.shared"), "wgmma.k16.f16.f32");
        assert_eq!(of(&prepared, "wgmma.t64x64x128.s4.interleaved.ws4.shared"), "wgmma.k16.f16.f32.g2x128");
        assert_eq!(of(&prepared, "wgmma.t64x64x64.s4.interleaved.ws4.shared"), "wgmma.k16.f16.f32.g2x64");
    }

    #[test]
    fn what_takes_operands_as_they_are_states_their_format() {
        let dual = Problem::dual_gemm(Activation::Silu).n(4096).k(7232).a(Format::Nvfp4);
        let of = |variant: &str| {
            let numerics = Spec::new(&dual, &variant.parse().unwrap(), &Arch::RTX5090).unwrap().numerics();
            assert_eq!(numerics.to_string().parse::<Numerics>().unwrap(), numerics);
            numerics.to_string()
        };
        assert_eq!(of("mxf4.t64x128x64.s3.interleaved.uniform.direct"), "mxf4.k64.nvfp4.f32");
        assert_eq!(of("mma.t64x128x64.s1.interleaved.uniform.direct"), "mma.k16.f16.f32");
        assert_eq!(
            of("mxf4.t8x32x256.s3.interleaved.uniform.direct.k2"),
            "mxf4.k64.nvfp4.f32.g4x64.workspace2x3840.zeros3"
        );
    }

    #[test]
    fn values_of_8_bits_have_a_class_of_their_own() {
        let dual = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).a(Format::E4m3).prepared();
        assert_eq!(of(&dual, "wgmma.t64x64x128.s4.interleaved.ws2.shared"), "wgmma.k32.e4m3.f32x128");
        assert_eq!(of(&dual, "wgmma.t32x64x128.s4.interleaved.ws4.shared"), "wgmma.k32.e4m3.f32x128.g2x128");
        let split = of(&dual, "wgmma.t64x64x256.s2.interleaved.ws2.direct.k2");
        assert_eq!(split, "wgmma.k32.e4m3.f32x128.workspace2x3584");
        assert_eq!(split.parse::<Numerics>().unwrap().to_string(), split);
    }

    #[test]
    fn splits_are_stated_by_the_elements_that_each_takes() {
        let prepared = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).a(Format::Bf16).prepared();
        assert_eq!(
            of(&prepared, "wgmma.t32x64x128.s4.interleaved.ws4.shared.dsmem2"),
            "wgmma.k16.bf16.f32.g2x128.cluster2x3584"
        );
        let split = |tile: &str| of(&prepared, &format!("wgmma.{tile}.s4.interleaved.ws2.direct.k4"));
        assert_eq!(split("t32x64x128"), "wgmma.k16.bf16.f32.workspace4x1792");
        assert_eq!(split("t64x64x64"), split("t32x64x128"));
        // 7 tiles of 256 for each of four, the same; of 7232 elements other parts.
        assert_eq!(split("t32x64x256"), split("t32x64x128"));
        let odd = prepared.k(7232);
        let split = |tile: &str| of(&odd, &format!("wgmma.{tile}.s4.interleaved.ws2.direct.k4"));
        assert_ne!(split("t32x64x256"), split("t32x64x128"));
    }

    #[test]
    fn zeros_behind_k_are_stated_where_they_are_multiplied() {
        let gemm = Problem::gemm().n(256).k(448);
        assert_eq!(of(&gemm, "mma.t64x128x64.s2.single.uniform.direct"), "mma.k16.f16.f32");
        assert_eq!(of(&gemm, "mma.t64x128x256.s2.single.uniform.direct"), "mma.k16.f16.f32.zeros1");
        assert_eq!(of(&gemm.prepared(), "wgmma.t64x128x256.s1.single.ws2.direct"), "wgmma.k16.f16.f32");
    }

    #[test]
    fn the_baseline_is_undivided_on_every_architecture() {
        for arch in Arch::ALL {
            for problem in [Problem::gemm().n(272).k(448), Problem::dual_gemm(Activation::None).n(64).k(7168)] {
                let spec = Spec::new(&problem, &baseline(&problem), arch).unwrap();
                assert!(spec.numerics().is_undivided(), "{spec}: {}", spec.numerics());
                assert_eq!(spec.numerics().to_string(), "mma.k16.f16.f32");
            }
        }
    }

    #[test]
    fn every_class_of_a_space_parses_back() {
        let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7232);
        let mut classes = std::collections::HashSet::new();
        for problem in [problem, problem.prepared()] {
            classes.extend(space(&problem, &Arch::H200).step_by(7).map(|spec| spec.numerics()));
        }
        assert!(classes.len() > 40, "{}", classes.len());
        for class in classes {
            assert_eq!(class.to_string().parse::<Numerics>().unwrap(), class);
            let json = serde_json::to_string(&class).unwrap();
            assert_eq!(json, format!("\"{class}\""));
            assert_eq!(serde_json::from_str::<Numerics>(&json).unwrap(), class);
        }
    }

    #[test]
    fn what_display_does_not_write_is_refused() {
        for text in [
            "",
            "wgmma",
            "wgmma.k8.f16.f32",
            "wgmma.k16.nvfp4.f32",
            "wgmma.k16.e4m3.f32x128",
            "wgmma.k32.e4m3.f32",
            "wgmma.k32.f16.f32",
            "mma.k32.e4m3.f32x128",
            "wgmma.k16.f16.f16",
            "mma.k16.f16.f32.",
            "mma.k16.nvfp4.f32",
            "mxf4.k16.nvfp4.f32",
            "mxf4.k64.f16.f32",
            "mma.k16.f16.f32.g1x64",
            "mma.k16.f16.f32.g2",
            "mma.k16.f16.f32.g2x65",
            "mma.k16.f16.f32.workspace2x64.cluster2x64",
            "mma.k16.f16.f32.workspace2x64.g2x64",
            "mma.k16.f16.f32.zeros0",
        ] {
            assert!(text.parse::<Numerics>().is_err_and(|error| error.is_parse()), "{text}");
        }
    }
}
