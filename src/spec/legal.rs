//! Which combinations are legal: what holds on every matrix path; the path says the rest.

use super::depth::STAGES_MAX;
use super::{Activation, Arch, Fusion, Geometry, MatrixPath, Operation, Problem, Refusal, Routing, Variant};
use crate::format::{Format, ScaleLayout};
use crate::path::{TILE_K, axis};

/// Checks problem, variant and architecture together and derives the geometry.
pub(super) fn check(problem: &Problem, variant: &Variant, arch: &Arch) -> Result<Geometry, Refusal> {
    check_problem(problem)?;
    check_path(problem, variant.path, arch)?;
    check_variant(problem, variant, arch)
}

/// The same where problem and path are known to be legal there.
pub(super) fn check_variant(problem: &Problem, variant: &Variant, arch: &Arch) -> Result<Geometry, Refusal> {
    check_axes(problem, variant)?;
    let geometry = Geometry::new(problem, variant, arch);
    check_resources(&geometry, arch)?;
    check_split(problem, variant)?;
    Ok(geometry)
}

/// Checks what has nothing to do with the size of memories.
pub(super) fn check_axes(problem: &Problem, variant: &Variant) -> Result<(), Refusal> {
    check_fusion(problem.operation(), variant)?;
    check_numbers(variant)?;
    variant.path.check_axes(problem, variant)
}

fn extent(what: &'static str, value: u32, step: u32, max: u32) -> Result<(), Refusal> {
    if value == 0 || value > max || !value.is_multiple_of(step) {
        return Err(Refusal::Extent { what, value, step, max });
    }
    Ok(())
}

/// M: rows of all groups together.
pub(super) fn check_rows(m: u32) -> Result<(), Refusal> {
    extent("M", m, 1, Problem::M_MAX)
}

pub(super) fn check_problem(problem: &Problem) -> Result<(), Refusal> {
    extent("N", problem.columns(), Problem::N_STEP, Problem::EXTENT_MAX)?;
    extent("K", problem.depth(), Problem::K_STEP, Problem::EXTENT_MAX)?;
    extent("groups", problem.groups().unwrap_or(1), 1, Problem::GROUPS_MAX)?;
    check_rows(problem.m_limit().unwrap_or(1))?;
    check_routing(problem)?;
    check_activation(problem.operation())?;

    let (a, b, c) = (problem.a_format(), problem.b_format(), problem.c_format());
    if matches!(a, Format::F32 | Format::Mxfp4) {
        return Err(Refusal::Format { operand: "A", format: a, expected: "nvfp4, e4m3, f16 or bf16" });
    }
    if matches!(b, Format::F32 | Format::E4m3) {
        return Err(Refusal::Format { operand: "B", format: b, expected: "nvfp4, mxfp4, f16 or bf16" });
    }
    if a == Format::Nvfp4 && b == Format::Mxfp4 {
        return Err(Refusal::Format { operand: "B", format: b, expected: "nvfp4, f16 or bf16 where A is nvfp4" });
    }
    if problem.has_k_factors() && a != Format::E4m3 {
        return Err(Refusal::Format {
            operand: "A",
            format: a,
            expected: "e4m3 where it has factors for each 128 of K",
        });
    }
    if a == Format::E4m3 && b != Format::Nvfp4 {
        return Err(Refusal::Format { operand: "B", format: b, expected: "nvfp4 where A is e4m3" });
    }
    if a != b && a != Format::Nvfp4 && !b.is_coded() {
        return Err(Refusal::Format { operand: "B", format: b, expected: "nvfp4, mxfp4 or the format of A" });
    }
    if b == Format::Mxfp4 && problem.scale_layout() != ScaleLayout::Linear {
        return Err(Refusal::Format { operand: "B", format: b, expected: "nvfp4 where scales are 128x4" });
    }
    if problem.is_prepared() && !b.is_coded() {
        return Err(Refusal::Format { operand: "B", format: b, expected: "nvfp4 or mxfp4 where weights are prepared" });
    }
    if problem.is_expanded() && a != Format::E4m3 {
        return Err(Refusal::Format { operand: "A", format: a, expected: "e4m3 where weights are expanded" });
    }
    if matches!(c, Format::Mxfp4 | Format::E4m3) {
        return Err(Refusal::Format { operand: "C", format: c, expected: "nvfp4, f16, bf16 or f32" });
    }
    if c == Format::Nvfp4 {
        extent("N where C is nvfp4", problem.columns(), Problem::N_STEP_CODED, Problem::EXTENT_MAX)?;
    }
    if let Some(format) = problem.bias_format().filter(|format| format.is_coded() || *format == Format::E4m3) {
        return Err(Refusal::Format { operand: "bias", format, expected: "f16, bf16 or f32" });
    }
    Ok(())
}

fn check_routing(problem: &Problem) -> Result<(), Refusal> {
    let Routing { top_k, skew } = *problem.routing();
    let Some(groups) = problem.groups() else {
        let stated = top_k.map(|_| "experts per token").or(skew.map(|_| "skew"));
        return stated.map_or(Ok(()), |what| Err(Refusal::Together { what, expected: "a grouped problem" }));
    };
    extent("experts per token", top_k.unwrap_or(1), 1, groups)?;
    let is_known = skew.is_none_or(|skew| skew <= Routing::SKEW_MAX);
    axis("skew", skew.unwrap_or(0), is_known, "0 to 400")
}

fn check_activation(operation: Operation) -> Result<(), Refusal> {
    let activation = operation.activation();
    if !operation.activations().iter().any(|known| known.word() == activation.word()) {
        return Err(Refusal::Activation { operation });
    }
    extent("clamp limit", activation.limit().unwrap_or(1), 1, Activation::LIMIT_MAX)
}

fn check_path(problem: &Problem, path: MatrixPath, arch: &Arch) -> Result<(), Refusal> {
    if !path.is_on(arch) {
        return Err(Refusal::Capability { path, needs: path.needs(), has: arch.capability() });
    }
    path.takes(problem).map_err(|expected| Refusal::Weights { path, expected })
}

pub(super) fn check_fusion(operation: Operation, variant: &Variant) -> Result<(), Refusal> {
    let (fusion, path) = (variant.fusion, variant.path);
    match (operation, fusion) {
        (Operation::Gemm(_), Fusion::Single) => Ok(()),
        (Operation::Gemm(_), Fusion::PingPong) => path.check_fusion(fusion),
        (Operation::Gemm(_), _) => {
            Err(Refusal::Fusion { fusion, expected: "gemm has one product, so its fusion is single or ping_pong" })
        }
        (Operation::DualGemm(_), Fusion::Single) => Err(Refusal::Fusion {
            fusion,
            expected: "dual_gemm has two products: two_pass, sequential, interleaved, per_product or ping_pong",
        }),
        (Operation::DualGemm(_), _) => path.check_fusion(fusion),
    }
}

/// Blocks that share the K of a tile through the workspace at most.
const SPLITS_MAX: u32 = 64;

fn check_numbers(variant: &Variant) -> Result<(), Refusal> {
    axis("tile k", variant.tile.k, TILE_K.contains(&variant.tile.k), "64, 128 or 256")?;
    axis("stages", variant.stages, (1..=STAGES_MAX).contains(&variant.stages), "1 to 32")?;
    axis("split-K", variant.split_k, (1..=SPLITS_MAX).contains(&variant.split_k), "1 to 64")
}

fn check_resources(geometry: &Geometry, arch: &Arch) -> Result<(), Refusal> {
    let (needs, limit) = (geometry.shared_bytes, arch.shared_per_block());
    if needs > limit {
        return Err(Refusal::SharedMemory { needs, limit, arch: arch.name() });
    }
    let (needs, limit) = (geometry.registers, arch.registers_per_thread(geometry.threads));
    if needs > limit {
        return Err(Refusal::Registers { accumulators: geometry.accumulators, needs, limit });
    }
    Ok(())
}

fn check_split(problem: &Problem, variant: &Variant) -> Result<(), Refusal> {
    let k_tiles = problem.depth().div_ceil(variant.tile.k);
    let splits = variant.split_k * variant.cluster.splits();
    // Every split takes the same number of tiles but the last, which takes what is left.
    if (splits - 1) * k_tiles.div_ceil(splits) >= k_tiles {
        return Err(Refusal::SplitK { splits, k_tiles });
    }
    Ok(())
}
