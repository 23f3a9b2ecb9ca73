//! `examples/bench` without a GPU: its list, its command line and the CUDA of its ceilings.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

#[path = "../examples/bench/args.rs"]
mod args;
#[path = "../examples/bench/list.rs"]
mod list;
#[path = "../examples/bench/source.rs"]
mod source;

use clap::Parser;
use warpsmith::build;
use warpsmith::spec::Arch;

use args::Args;
use list::{DUAL, GROUPED, Item, Part};

#[test]
fn the_list_has_every_kind_of_every_shape() {
    let all = list::list(&[], true);
    assert_eq!(all.len(), 3 * DUAL.len() + 2 * GROUPED.len());
    assert!(all.iter().all(|item| item.problem.is_prepared()));
    assert!(list::list(&[], false).iter().all(|item| !item.problem.is_prepared()));
    let grouped = list::list(&[Part::Grouped], true);
    assert_eq!(grouped.len(), 2 * GROUPED.len());
    assert!(grouped.iter().all(|item| item.problem.groups() == Some(item.rows.len() as u32)));
    assert_eq!((all[0].op.as_str(), all[0].m()), ("dual", 1));
    assert_eq!(all[0].problem.to_string(), "dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared");
}

#[test]
fn problems_of_ones_own_are_named_as_in_the_list_or_as_spelled() {
    for listed in list::list(&[], true).into_iter().chain(list::list(&[], false)) {
        assert_eq!(Item::new(listed.problem, listed.rows).op, listed.op);
    }
    for other in ["dual_gemm.gelu_tanh:f16*nvfp4>f16:n64:k64", "gemm:f16*nvfp4>f16:n64:k64:prepared"] {
        assert_eq!(Item::new(other.parse().unwrap(), vec![1]).op, other);
    }
}

#[test]
fn the_command_line_is_read() {
    let args = |line: &str| Args::try_parse_from(line.split(' '));
    let own = args("bench --problem gemm:f16*nvfp4>f16:n64:k64,gemm:f16*nvfp4>f32:n64:k64 --m 1,16").unwrap();
    assert_eq!((own.problem.len(), own.m), (2, vec![1, 16]));
    let part = args("bench --only grouped,bf16 --unprepared --arch a100 --device 1 --json x.json").unwrap();
    assert_eq!((part.only, part.arch), (vec![Part::Grouped, Part::Bf16], Some(Arch::A100)));
    assert!(part.unprepared && part.variant.is_empty() && part.json.is_some() && part.device == 1);
    assert!(args("bench --m 1").is_err());
    assert!(args("bench --only dual --problem gemm:f16*nvfp4>f16:n64:k64").is_err());
}

#[test]
fn ceilings_compile_for_every_architecture() {
    for toolchain in common::toolchains("ceilings") {
        for arch in Arch::ALL {
            let cubin = build::compile(&toolchain, &source::source(arch), arch.target()).unwrap();
            assert!(cubin.resources().iter().all(|kernel| !kernel.has_spills()), "{arch}: {cubin:?}");
            assert!(!cubin.log().contains("serialized"), "{arch}: {}", cubin.log());
            assert_eq!(cubin.resources_of("product").is_some(), source::has_product(arch), "{arch}");
        }
    }
}
