//! The kernels that prepare weights, as the compiler and the caches see them; no GPU needed.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use warpsmith_testing as common;

use warpsmith::cache::{KernelCache, Tier};
use warpsmith::format::{Format, PreparedLayout, ScaleLayout};
use warpsmith::internal::build::{Preparation, Simt};
use warpsmith::spec::Arch;

fn dual_f16() -> Preparation {
    Preparation::new(&PreparedLayout::new(2, Format::F16, 1, 64, 64).unwrap(), ScaleLayout::Swizzled128x4)
}

#[test]
fn all_compile_without_spills_or_warnings() {
    let all: Vec<_> = Preparation::all().collect();
    for (toolchain, preparations) in common::shares(common::toolchains("preparing kernels"), &all) {
        common::on_all_cores(&preparations, |preparation| {
            let source = Simt::from(*preparation).render().unwrap();
            for target in ["sm_80", "sm_90a"] {
                let cubin = warpsmith::internal::build::compile(&toolchain, &source, target).unwrap();
                let resources = cubin.resources_of(&preparation.symbol()).unwrap();
                assert!(!resources.has_spills() && resources.local_bytes() == 0, "{target}: {resources}");
                assert!(!cubin.log().contains("warning"), "{target}: {}", cubin.log());
            }
        });
    }
}

#[test]
fn there_are_twenty() {
    let symbols: std::collections::HashSet<_> = Preparation::all().map(|preparation| preparation.symbol()).collect();
    assert_eq!(symbols.len(), 20);
    assert!(symbols.contains("prepare_dual_bf16_mxfp4") && symbols.contains("prepare_dual_e4m3_linear"));
    assert!(symbols.contains("prepare_single_e4m3_128x4_expanded"));
    assert!(symbols.contains("prepare_dual_f16_128x4") && symbols.contains("prepare_single_bf16_linear"));
}

#[test]
fn rendered_source_is_the_reviewed_one() {
    let layout = |products, compute| PreparedLayout::new(products, compute, 1, 64, 64).unwrap();
    let mxfp4 = layout(1, Format::Bf16).weights(Format::Mxfp4).unwrap();
    for layout in [layout(2, Format::E4m3), layout(2, Format::E4m3).expanded().unwrap(), mxfp4] {
        let preparation = Preparation::new(&layout, ScaleLayout::Linear);
        insta::assert_snapshot!(preparation.symbol(), Simt::from(preparation).render().unwrap().text());
    }
    insta::assert_snapshot!(dual_f16().symbol(), Simt::from(dual_f16()).render().unwrap().text());
}

#[test]
fn one_cubin_serves_every_shape_and_is_cached() {
    let Some(toolchain) = common::toolchain("one cubin for every shape") else { return };
    let temp = tempfile::tempdir().unwrap();
    let cache = || KernelCache::builder().toolchain(toolchain.clone()).disk(temp.path().join("cubins")).build();
    let other = PreparedLayout::new(2, Format::F16, 8, 4096, 7168).unwrap();
    let other = Preparation::new(&other, ScaleLayout::Swizzled128x4);
    let (first, later) = (cache(), cache());
    let tier = |cache: &KernelCache, arch| cache.simt_cubin(other, arch).unwrap().tier();
    let _ = first.simt_cubin(dual_f16(), &Arch::H200).unwrap();
    assert_eq!(tier(&first, &Arch::H200), Tier::Memory);
    assert_eq!(tier(&first, &Arch::A100), Tier::Compiled, "another target is another cubin");
    assert_eq!(tier(&later, &Arch::H200), Tier::Disk);
    assert_eq!((first.stats().compiles, first.stats().memory_hits, first.stats().kept), (2, 1, 2));
    assert_eq!((later.stats().compiles, later.stats().disk_hits), (0, 1));
}
