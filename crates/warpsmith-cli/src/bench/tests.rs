//! Without a GPU: the list, the command line and the CUDA of the ceilings.

use clap::Parser;
use warpsmith::spec::{Arch, Problem};

use super::{Args, source};
use crate::Options;
use crate::shared;
use crate::shared::list::{self, Item, Part};
use warpsmith_testing as common;

/// Dual GEMMs of each format of tokens.
const DUAL: usize = 14;
/// Shapes of groups.
const GROUPED: usize = 4;

#[test]
fn the_list_has_every_kind_of_every_shape() {
    let all = list::list(&[], true).unwrap();
    assert_eq!(all.len(), 3 * DUAL + 4 * GROUPED);
    assert!(all.iter().all(|item| item.problem.is_prepared()));
    assert!(list::list(&[], false).unwrap().iter().all(|item| !item.problem.is_prepared()));
    let grouped = list::list(&[Part::Grouped], true).unwrap();
    assert_eq!(grouped.len(), 2 * GROUPED);
    assert!(grouped.iter().all(|item| item.problem.groups() == Some(item.rows.len() as u32)));
    assert!(all.iter().all(|item| item.problem.groups().unwrap_or(1) == item.rows.len() as u32));
    assert_eq!((all[0].op.as_str(), all[0].m()), ("dual", 1));
    assert_eq!(all[0].problem.to_string(), "dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared");
}

#[test]
fn problems_of_ones_own_are_named_as_in_the_list_or_as_spelled() {
    for listed in list::list(&[], true).unwrap().into_iter().chain(list::list(&[], false).unwrap()) {
        assert_eq!(Item::new(listed.problem, listed.rows).unwrap().op, listed.op);
    }
    for other in ["dual_gemm.gelu_tanh:f16*nvfp4>f16:n64:k64", "gemm:f16*nvfp4>f16:n64:k64:prepared"] {
        assert_eq!(Item::new(other.parse().unwrap(), vec![1]).unwrap().op, other);
    }
}

#[test]
fn the_command_line_is_read() {
    let args = |line: &str| Options::<Args>::try_parse_from(line.split(' ')).map(|options| options.own);
    let items = |line: &str| args(line).unwrap().wanted.items(&[Part::Dual], true).unwrap();
    let rows = |line: &str| -> Vec<Vec<u32>> { items(line).into_iter().map(|item| item.rows).collect() };
    assert_eq!(items("bench").len(), DUAL);
    assert!(items("bench").iter().all(|item| item.op == "dual" && item.problem.is_prepared()));
    assert!(items("bench --unprepared").iter().all(|item| !item.problem.is_prepared()));
    assert_eq!(items("bench --only grouped,bf16").len(), DUAL + 2 * GROUPED);
    let two = "bench --problem gemm:f16*nvfp4>f16:n64:k64,gemm:f16*nvfp4>f32:n64:k64";
    assert_eq!(rows(&format!("{two} --m 1,16")), [[1], [16], [1], [16]]);
    assert_eq!(rows("bench --problem grouped2.gemm:f16*nvfp4>f16:n64:k64 --m 5,11"), [[5, 11]]);
    assert_eq!(rows("bench --problem grouped2.gemm:f16*nvfp4>f16:n64:k64 --m 6,10,2"), [[3, 3], [6, 4], [1, 1]]);
    let rest = args("bench --variant wgmma.t8x32x256.s16.interleaved.ws4.direct --arch a100 --device 1").unwrap();
    assert_eq!((rest.variant.len(), rest.arch, rest.device), (1, Some(Arch::A100), 1));
    let routers = args("bench --route route.softmax:bf16:e128:k8,route.given:e64:k4 --tokens 1,256").unwrap();
    assert_eq!((routers.route.len(), routers.tokens), (2, vec![1, 256]));
    assert_eq!(args("bench --combine combine:f16>f16:h64:k8,combine:f16>f32:h64:k8").unwrap().combine.len(), 2);
    assert_eq!(args("bench --quantise quantise:bf16:k64:own --tokens 7").unwrap().quantise.len(), 1);
    for wrong in ["bench --tokens 1", "bench --route route.given:e64:k4 --tokens 0", "bench --route route.given:e64"] {
        assert!(args(wrong).is_err(), "{wrong}");
    }
    for wrong in ["bench --m 1", "bench --m 1 --only dual", "bench --m 1 --unprepared"] {
        assert!(args(wrong).is_err(), "{wrong}");
    }
    assert!(args("bench --only dual --problem gemm:f16*nvfp4>f16:n64:k64").is_err());
}

#[test]
fn rows_are_those_of_a_legal_problem() {
    let problem = Problem::gemm().n(64).k(64);
    let refused = |problem: &Problem, m: &[u32]| shared::rows(problem, m).unwrap_err().to_string();
    assert_eq!(shared::rows(&problem.grouped(3), &[8]).unwrap(), [2, 5, 1]);
    assert!(refused(&problem.grouped(2048), &[8]).ends_with("groups = 2048: must be 1 to 1024"));
    assert!(refused(&problem.grouped(0), &[8]).ends_with("groups = 0: must be 1 to 1024"));
    assert_eq!(refused(&problem, &[0]), "--m: 0 rows in all, must be 1 to 16777216");
    assert_eq!(refused(&problem.grouped(2), &[1 << 24, 1]), "--m: 16777217 rows in all, must be 1 to 16777216");
    assert_eq!(refused(&problem.grouped(3), &[1, 2]), "--m has 2 numbers, expected 1 or 3");
}

#[test]
fn ceilings_compile_for_every_architecture() {
    for (toolchain, archs) in common::shares(common::toolchains("ceilings"), Arch::ALL) {
        let known = common::known_archs(&toolchain);
        for arch in archs.iter().filter(|arch| known.contains(arch)) {
            let cubin = warpsmith::internal::build::compile(&toolchain, &source::source(arch), arch.target()).unwrap();
            assert!(cubin.resources().iter().all(|kernel| !kernel.has_spills()), "{arch}: {cubin:?}");
            assert!(!cubin.log().contains("serialized"), "{arch}: {}", cubin.log());
            for kernel in ["product", "product_e4m3"] {
                assert_eq!(cubin.resources_of(kernel).is_some(), source::has_products(arch), "{arch}");
            }
        }
    }
}

#[test]
fn layers_are_known_by_name_and_by_spelling() {
    let parse = |arguments: &[&str]| {
        let all = ["bench"].iter().chain(arguments);
        Options::<Args>::try_parse_from(all).map_err(|error| error.to_string())
    };
    let layers = "qwen3-30b,qwen3-30b:e4m3,qwen3-30b:nvfp4,mlp.silu:bf16:h4096:i14336";
    assert!(parse(&["--layer", layers, "--tokens", "1,8192", "--skew", "1"]).is_ok());
    assert!(parse(&["--layer", "qwen3"]).is_err_and(|error| error.contains("expected linear:…, mlp.… or moe.…")));
    assert!(parse(&["--skew", "1"]).is_err());
    assert!(parse(&["--layer", layers, "--route", "route.given:e8:k2"]).is_err());
}
