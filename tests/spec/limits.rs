//! What holds for every spec.

use proptest::prelude::*;
use warpsmith::format::Format;
use warpsmith::internal::spec::{Fusion, PassKind, baseline};
use warpsmith::pick::{self, Origin};
use warpsmith::spec::{Arch, MatrixPath, Spec, Variant};

use crate::near::near_legal;

/// What holds for every spec, whatever it is for.
pub fn keeps_every_limit(spec: &Spec) -> Result<(), TestCaseError> {
    let (problem, variant, arch, geometry) = (spec.problem(), spec.variant(), spec.arch(), spec.geometry());
    let splits = variant.split_k * variant.cluster.splits();
    prop_assert!(geometry.shared_bytes <= arch.shared_per_block());
    prop_assert!(geometry.shared_bytes >= variant.stages * geometry.stage_bytes);
    // Where weights become e4m3 registers may change hands.
    let most = if problem.a_format() == Format::E4m3 { 240 } else { arch.registers_per_thread(geometry.threads) };
    prop_assert!(geometry.accumulators < most);
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
        MatrixPath::Mxf4 => {
            prop_assert!(geometry.shared_bytes >= variant.stages * geometry.stage_bytes);
            prop_assert!(geometry.threads <= 256 && !problem.is_prepared());
            prop_assert!(problem.a_format() == Format::Nvfp4 && problem.b_format() == Format::Nvfp4);
            prop_assert!(["sm_120a", "sm_121a"].contains(&arch.target()));
        }
        MatrixPath::Tcgen05 => {
            prop_assert!(geometry.shared_bytes >= variant.stages * geometry.stage_bytes);
            // One block an SM, so that none waits for tensor memory.
            prop_assert!(geometry.blocks_per_sm == 1 && 2 * geometry.shared_bytes > 228 * 1024);
            prop_assert!(problem.a_format() == Format::Nvfp4 && problem.b_format() == Format::Nvfp4);
            prop_assert!(["sm_100a", "sm_103a"].contains(&arch.target()) && !problem.is_prepared());
        }
        MatrixPath::Wgmma => {
            prop_assert!(problem.is_prepared() && arch.capability() == Arch::H200.capability());
            if let Some(consumers) = variant.warps.consumers() {
                prop_assert!(consumers.is_multiple_of(warpgroups(spec)));
                let decoders = variant.warps.decoders();
                prop_assert!(decoders == 0 || problem.a_format() == Format::E4m3);
                // Those that share K take turns with stages; where others decode, they share tokens.
                let shared = if decoders > 0 { 1 } else { consumers / warpgroups(spec) };
                let in_turn = variant.stages.is_multiple_of(shared);
                let plain = matches!(variant.fusion, Fusion::Single | Fusion::Interleaved) && !variant.persistent;
                prop_assert!(in_turn || (plain && variant.stages > shared && variant.cluster.multicast() == 1));
                prop_assert!(geometry.threads > 128 * (consumers + decoders));
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
            MatrixPath::Mma | MatrixPath::Mxf4 | MatrixPath::Tcgen05 => (products.grid[0], products.grid[1]),
            _ => (products.grid[1], products.grid[0]),
        };
        if variant.persistent {
            // As many blocks as run at once, unless there are fewer tiles.
            let tiles = needed * problem.columns().div_ceil(variant.tile.columns);
            prop_assert_eq!(products.grid[1..].to_vec(), vec![1, variant.cluster.tile_blocks()]);
            let most = arch.sms() / variant.cluster.tile_blocks();
            prop_assert!(products.grid[0] <= most && products.grid[0] >= tiles.min(most));
            return Ok(());
        }
        prop_assert!(rows >= needed, "{rows} blocks for {needed} tiles");
        prop_assert!(columns * variant.tile.columns >= problem.columns());
        let blocks = variant.cluster.splits() * variant.cluster.tile_blocks();
        prop_assert_eq!(products.grid[2], variant.split_k * blocks);
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
