//! The kernels that route tokens to experts, add up their rows and make values NVFP4, as the compiler and the caches see them; no GPU needed.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use warpsmith_testing as common;

use std::collections::BTreeSet;

use proptest::prelude::*;
use warpsmith::cache::{KernelCache, Tier};
use warpsmith::engine::Engine;
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::build::{Experts, QuantiseWeights, Simt};
use warpsmith::internal::engine::quantise_weights;
use warpsmith::internal::run::WeightOperands;
use warpsmith::run::{CombineOperands, Device, QuantiseOperands, Quantiser, RouteOperands, Values};
use warpsmith::spec::{Arch, Combine, Quantise, Route, Scoring};

/// Of each kind, small and large.
fn routes() -> Vec<Route> {
    [
        "route.softmax:bf16:e128:k8:renormalised",
        "route.softmax:f16:e60:k4",
        "route.softmax:f32:e160:k6:g8:keep3",
        "route.softmax:f32:e1024:k32",
        "route.softmax:f32:e1:k1",
        "route.sigmoid:f32:e16:k1",
        "route.sigmoid_bias:f32:e256:k8:g8:keep4:renormalised",
        "route.sigmoid_bias:bf16:e384:k8:renormalised",
        "route.sigmoid_bias:f32:e1024:k32:g32:keep8:renormalised",
        "route.sigmoid_bias:f32:e896:k22",
        "route.given:e256:k8",
        "route.given:e1024:k32",
    ]
    .iter()
    .map(|text| text.parse().unwrap())
    .collect()
}

fn combines() -> Vec<Combine> {
    [
        "combine:f16>f16:h7168:k8:weighted",
        "combine:bf16>bf16:h2048:k8:weighted:placed:shared:residual",
        "combine:f16>f32:h2688:k22:weighted:placed:residual",
        "combine:bf16>f16:h8:k1",
        "combine:f16>bf16:h1032:k32:placed:shared",
        "combine:bf16>bf16:h2048:k10:weighted:placed:shared:shared_gate",
        "combine:f16>f32:h8:k1:shared:shared_gate:residual",
        "combine:f32>f32:h256:k1:weighted",
    ]
    .iter()
    .map(|text| text.parse().unwrap())
    .collect()
}

/// Of Hopper alone.
fn experts() -> Vec<Experts> {
    [
        "experts.silu:bf16:h2048:i768:route.softmax:bf16:e128:k8:renormalised",
        "experts.silu:f16:h4096:i1536:residual:route.softmax:f32:e128:k8:renormalised",
        "experts.silu:bf16:h2048:i768:e4m3:shared:residual:route.softmax:bf16:e128:k8:renormalised",
        "experts.silu:bf16:h2048:i512:shared:route.softmax:bf16:e512:k10:renormalised",
        "experts.gelu_tanh:bf16:h2816:i704:route.given:e128:k8",
        "experts.swiglu_oai:bf16:h1088:i320:mxfp4:shared:residual:route.softmax:f16:e32:k4",
        "experts.silu_clamp10:f16:h7168:i384:route.sigmoid_bias:f32:e256:k8:g8:keep4:renormalised:local64-128",
    ]
    .iter()
    .map(|text| text.parse().unwrap())
    .collect()
}

fn quantises() -> Vec<Quantise> {
    [
        "quantise:f16:k64",
        "quantise:bf16:k7168:sf128x4",
        "quantise:bf16:k7168:sf128x4:own",
        "quantise:f32:k2880:own",
        "quantise:f16:k1048576:own",
        "quantise:f16:k64:e4m3",
        "quantise:bf16:k7168:e4m3",
        "quantise:f32:k2880:e4m3",
        "quantise:bf16:k64:e4m3:k_factors",
        "quantise:f32:k7168:e4m3:k_factors",
    ]
    .iter()
    .map(|text| text.parse().unwrap())
    .collect()
}

#[test]
fn all_compile_without_spills_or_warnings() {
    let archs = if common::is_thorough() { Arch::ALL } else { &[Arch::A100, Arch::H200, Arch::RTX5090] };
    let targets: BTreeSet<_> = archs.iter().map(Arch::target).collect();
    let targets: Vec<_> = targets.into_iter().collect();
    let all = routes().into_iter().map(Simt::from).chain(combines().into_iter().map(Simt::from));
    let all = all.chain(quantises().into_iter().map(Simt::from)).chain(QuantiseWeights::all().map(Simt::from));
    // Each for one of the architectures in turn, or for all.
    let all = all
        .enumerate()
        .flat_map(|(turn, simt)| common::in_turn(&targets, turn).into_iter().map(move |target| (simt, target)));
    let of_hopper = experts().into_iter().map(|experts| (Simt::from(experts), Arch::H200.target()));
    let all: Vec<_> = all.chain(of_hopper).collect();
    for (toolchain, pairs) in common::shares(common::toolchains("routers, combiners and quantisers"), &all) {
        let known = common::known_archs(&toolchain);
        let is_known = |target: &str| known.iter().any(|arch| arch.target() == target);
        let pairs: Vec<_> = pairs.into_iter().filter(|(_, target)| is_known(target)).collect();
        common::on_all_cores(&pairs, |(simt, target)| {
            let cubin = warpsmith::internal::build::compile(&toolchain, &simt.render().unwrap(), target).unwrap();
            assert_eq!(cubin.resources().len(), simt.render().unwrap().entries().len());
            for resources in cubin.resources() {
                assert!(!resources.has_spills() && resources.local_bytes() == 0, "{target}: {resources}");
                if std::env::var_os("WARPSMITH_TEST_VERBOSE").is_some() {
                    eprintln!("{target}: {resources}");
                }
            }
            assert!(!cubin.log().contains("warning"), "{target}: {}", cubin.log());
        });
    }
}

#[test]
fn rendered_source_is_the_reviewed_one() {
    let route = "route.sigmoid_bias:f32:e256:k8:g8:keep4:renormalised".parse::<Route>().unwrap();
    insta::assert_snapshot!(Simt::from(route).symbol(), Simt::from(route).render().unwrap().text());
    let combine = "combine:f16>bf16:h7168:k8:weighted:placed:shared:residual".parse::<Combine>().unwrap();
    insta::assert_snapshot!(Simt::from(combine).symbol(), Simt::from(combine).render().unwrap().text());
    let combine = "combine:bf16>bf16:h2048:k10:weighted:placed:shared:shared_gate".parse::<Combine>().unwrap();
    insta::assert_snapshot!(Simt::from(combine).symbol(), Simt::from(combine).render().unwrap().text());
    let experts = Simt::from(experts()[0]);
    let source = experts.render().unwrap();
    insta::assert_snapshot!(experts.symbol(), source.text());
    let exchange = source.headers().iter().find(|header| header.name == "simt/experts/exchange.cuh").unwrap();
    insta::assert_snapshot!("experts_exchange", exchange.text);
    for quantise in
        ["quantise:bf16:k7168:sf128x4:own", "quantise:bf16:k7168:e4m3", "quantise:bf16:k7168:e4m3:k_factors"]
    {
        let quantise = quantise.parse::<Quantise>().unwrap();
        insta::assert_snapshot!(Simt::from(quantise).symbol(), Simt::from(quantise).render().unwrap().text());
    }
    let weights = Simt::from(QuantiseWeights::new(Format::Bf16).searched());
    insta::assert_snapshot!(weights.symbol(), weights.render().unwrap().text());
}

#[test]
fn what_is_not_legal_is_not_rendered() {
    assert!(Simt::from(Combine::new().hidden(12).k(1)).render().unwrap_err().is_unsupported());
    assert!(Simt::from(Quantise::new().k(32)).render().unwrap_err().is_unsupported());
    assert!(Simt::from(QuantiseWeights::new(Format::Nvfp4)).render().unwrap_err().is_unsupported());
    let route = Route::new(Scoring::Softmax).experts(4).k(5);
    assert!(Simt::from(route).render().unwrap_err().is_unsupported());
}

#[test]
fn a_router_is_cached_by_what_it_is() {
    let Some(toolchain) = common::toolchain("routers in a cache") else { return };
    let temp = tempfile::tempdir().unwrap();
    let cache = || KernelCache::builder().toolchain(toolchain.clone()).disk(temp.path().join("cubins")).build();
    let (first, later) = (cache(), cache());
    let route = Route::new(Scoring::Softmax).experts(16).k(2);
    let tier = |cache: &KernelCache, route| cache.simt_cubin(route, &Arch::H200).unwrap().tier();
    assert_eq!(tier(&first, route), Tier::Compiled);
    assert_eq!(tier(&first, route), Tier::Memory);
    assert_eq!(tier(&first, route.renormalised()), Tier::Compiled);
    assert_eq!(tier(&later, route), Tier::Disk);
}

/// A device of the null driver, and an engine with nothing on disk; none, said so, where nothing can be compiled.
fn on_null(what: &str) -> Option<(&'static common::null::Null, Device, Engine)> {
    let toolchain = common::toolchain(what)?;
    let null = common::null::Null::driver();
    let device = Device::open(0).unwrap();
    let engine = Engine::with_cache(&device, KernelCache::builder().toolchain(toolchain).no_disk().build());
    Some((null, device, engine))
}

/// What does not fit is refused with both numbers before anything is launched; what fits is one launch, or two.
#[test]
fn operands_are_checked_before_a_launch() {
    let Some((null, device, engine)) = on_null("launches of routers") else { return };
    let stream = device.context().new_stream().unwrap();
    let route = Route::new(Scoring::SigmoidBias).experts(64).k(4);
    let router = engine.route(&route).unwrap();
    assert_eq!([0, 512, 513, 8192].map(|tokens| router.workspace_bytes(tokens)), [0, 0, 17 * 64 * 4, 128 * 64 * 4]);
    // 4128 tokens take 65 blocks; a launch of fewer in the same workspace may take 128.
    assert_eq!(router.workspace_bytes(4128), router.workspace_bytes(4096));
    let logits = stream.alloc_zeros::<f32>(600 * 64).unwrap();
    let bias = stream.alloc_zeros::<f32>(64).unwrap();
    let mut ids = stream.alloc_zeros::<i32>(2400).unwrap();
    let mut weights = stream.alloc_zeros::<f32>(2400).unwrap();
    let mut lists = stream.alloc_zeros::<i32>(route.lists(600).len()).unwrap();
    let mut workspace = router.workspace(&stream, 600).unwrap();

    let launched = null.launches();
    router.launch(&stream, RouteOperands::new(512, &logits, &mut ids, &mut weights, &mut lists).bias(&bias)).unwrap();
    assert_eq!(null.launches() - launched, 1);
    let operands = RouteOperands::new(600, &logits, &mut ids, &mut weights, &mut lists).bias(&bias);
    router.launch_dependent(&stream, operands.workspace(&mut workspace)).unwrap();
    assert_eq!(null.launches() - launched, 3);
    let operands = RouteOperands::new(0, &logits, &mut ids, &mut weights, &mut lists).bias(&bias);
    router.launch(&stream, operands).unwrap();
    assert_eq!(null.launches() - launched, 4, "lists of no tokens are written, too");

    let mut refusal = |tokens, change: &dyn Fn(RouteOperands<'_>) -> warpsmith::Result<()>| {
        let error = change(RouteOperands::new(tokens, &logits, &mut ids, &mut weights, &mut lists)).unwrap_err();
        assert!(error.is_operand(), "{error:?}");
        error.to_string()
    };
    let found = [
        refusal(8, &|operands| router.launch(&stream, operands)),
        refusal(601, &|operands| router.launch(&stream, operands.bias(&bias))),
        refusal(600, &|operands| router.launch(&stream, operands.bias(&bias))),
        refusal(8, &|operands| router.launch(&stream, operands.bias(&bias).tile(0))),
        refusal(1 << 23, &|operands| router.launch(&stream, operands.bias(&bias))),
        refusal(8, &|operands| router.launch(&stream, operands.bias(bias.slice(1..)))),
    ];
    let expected = [
        "no bias given: 64 elements are needed",
        "logits has 38400 elements, 38464 are needed",
        "no workspace given: 4864 elements are needed",
        "a tile of 0 rows: must be 1 to 65536",
        "8388608 tokens have 33554432 rows: at most 16777216",
        "bias has 63 elements, 64 are needed",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.ends_with(expected), "`{found}`, not `{expected}`");
    }
    let given = RouteOperands::given(8, &ids, &mut lists);
    assert!(router.launch(&stream, given).unwrap_err().to_string().ends_with("the kernel chooses by f32 logits"));
    assert!(engine.route(&route.experts(1025)).unwrap_err().is_unsupported());

    let combiner = engine.combine(&Combine::new().hidden(64).k(4)).unwrap();
    let rows = stream.alloc_zeros::<half::f16>(8 * 4 * 64).unwrap();
    let mut out = stream.alloc_zeros::<half::f16>(8 * 64).unwrap();
    combiner.launch(&stream, CombineOperands::new(8, &rows, &mut out)).unwrap();
    combiner.launch(&stream, CombineOperands::new(0, &rows, &mut out)).unwrap();
    assert_eq!(null.launches() - launched, 5);
    let refusal = combiner.launch(&stream, CombineOperands::new(9, &rows, &mut out)).unwrap_err();
    assert!(refusal.to_string().ends_with("rows has 2048 elements, 2304 are needed"), "{refusal}");
    let refusal = combiner.launch(&stream, CombineOperands::new(8, &rows, &mut out).weights(&weights)).unwrap_err();
    assert!(refusal.is_operand() && refusal.to_string().ends_with("weights: given, the problem has none"), "{refusal}");
    assert_eq!(null.launches() - launched, 5);
}

/// Where the device runs no cluster of sixteen blocks or refuses to say, or sixteen have no room for what they know of all
/// experts, eight route few tokens.
#[test]
fn clusters_are_as_wide_as_the_device_runs_them() {
    let Some((null, _, engine)) = on_null("routers of eight blocks") else { return };
    let most = |experts: u32| {
        let router = engine.route(&Route::new(Scoring::Softmax).experts(experts).k(1)).unwrap();
        [256, 257, 512, 513].map(|tokens| router.workspace_bytes(tokens) == 0)
    };
    assert_eq!(most(512), [true, true, true, false]);
    assert_eq!(most(513), [true, false, false, false]);
    for none in [0, -1] {
        null.clusters(none);
        assert_eq!(most(512), [true, false, false, false]);
    }
    null.clusters(60);
}

#[test]
fn weights_are_checked_before_a_launch() {
    let Some((null, device, engine)) = on_null("launches of quantisers of weights") else { return };
    let stream = device.context().new_stream().unwrap();
    let quantiser = quantise_weights(&engine, QuantiseWeights::new(Format::F16).searched()).unwrap();
    let x = stream.alloc_zeros::<half::f16>(3 * 48).unwrap();
    let other = stream.alloc_zeros::<half::bf16>(3 * 48).unwrap();
    let mut codes = stream.alloc_zeros::<u8>(3 * 24).unwrap();
    let mut scales = stream.alloc_zeros::<u8>(3 * 3).unwrap();
    let mut squares = stream.alloc_zeros::<f64>(3 * 3).unwrap();
    let mut largest = stream.alloc_zeros::<f32>(3).unwrap();

    let launched = null.launches();
    quantiser.launch(&stream, WeightOperands::largest(3, 48, &x, &mut largest)).unwrap();
    quantiser.launch(&stream, WeightOperands::largest(0, 48, &x, &mut largest)).unwrap();
    let mut put = |[rows, k]: [u32; 2], factors: [f32; 2], is_other: bool| {
        let (x, other): (Values<'_>, Values<'_>) = ((&x).into(), (&other).into());
        let x = if is_other { other } else { x };
        let operands = WeightOperands::quantised([rows, k], x, factors, &mut codes, &mut scales, &mut squares);
        quantiser.launch(&stream, operands)
    };
    put([3, 48], [0.5, 0.5], false).unwrap();
    put([9, 16], [0.5, 0.5], false).unwrap_err();
    assert_eq!(null.launches() - launched, 2);
    for (sizes, factors, is_other, expected) in [
        ([4, 48], [0.5; 2], false, "x has 144 elements, 192 are needed"),
        ([9, 16], [0.5; 2], false, "squares has 9 elements, 27 are needed"),
        ([3, 40], [0.5; 2], false, "k = 40: must be a multiple of 16"),
        ([3, 48], [0.0, 0.5], false, "the factor is 0e0: it must be positive and normal"),
        ([3, 48], [0.5, f32::INFINITY], false, "the stored factor is inf: it must be positive and normal"),
        ([3, 48], [0.5; 2], true, "x is bf16, the kernel is for f16"),
    ] {
        let refusal = put(sizes, factors, is_other).unwrap_err();
        assert!(refusal.is_operand() && refusal.to_string().ends_with(expected), "{refusal}");
    }
    let refusal = quantiser.launch(&stream, WeightOperands::largest(4, 32, &x, &mut largest)).unwrap_err();
    assert!(refusal.to_string().ends_with("largest has 3 elements, 4 are needed"), "{refusal}");
    assert_eq!(null.launches() - launched, 2);
}

#[test]
fn what_is_quantised_is_checked_before_a_launch() {
    let Some((null, device, engine)) = on_null("launches of quantisers") else { return };
    let stream = device.context().new_stream().unwrap();
    let given = Quantise::new().k(64).scales(ScaleLayout::Swizzled128x4);
    let (own, given) = (engine.quantise(&given.own()).unwrap(), engine.quantise(&given).unwrap());
    let x = stream.alloc_zeros::<half::f16>(129 * 64).unwrap();
    let other = stream.alloc_zeros::<f32>(Quantise::OWN_LENGTH).unwrap();
    let mut codes = stream.alloc_zeros::<u8>(129 * 32).unwrap();
    let mut scales = stream.alloc_zeros::<u8>(1024).unwrap();
    let mut factor = stream.alloc_zeros::<f32>(Quantise::OWN_LENGTH).unwrap();

    let launched = null.launches();
    given.launch(&stream, QuantiseOperands::new(129, &x, &mut codes, &mut scales).factor(0.5)).unwrap();
    given.launch(&stream, QuantiseOperands::new(129, &x, &mut codes, &mut scales).factor(&other)).unwrap();
    given.launch(&stream, QuantiseOperands::new(0, &x, &mut codes, &mut scales).factor(0.5)).unwrap();
    assert_eq!(null.launches() - launched, 2);
    let operands = QuantiseOperands::new(129, &x, &mut codes, &mut scales).own_factor(&mut factor);
    own.launch_dependent(&stream, operands).unwrap();
    assert_eq!(null.launches() - launched, 4);

    let mut refusal =
        |m, is_own: bool, change: &mut dyn FnMut(&Quantiser, QuantiseOperands<'_>) -> warpsmith::Result<()>| {
            let operands = QuantiseOperands::new(m, &x, &mut codes, &mut scales);
            let error = change(if is_own { &own } else { &given }, operands).unwrap_err();
            assert!(error.is_operand(), "{error:?}");
            error.to_string()
        };
    let found = [
        refusal(8, false, &mut |of, operands| of.launch(&stream, operands)),
        refusal(8, false, &mut |of, operands| of.launch(&stream, operands.factor(1.0).own_factor(&mut factor))),
        refusal(8, true, &mut |of, operands| of.launch(&stream, operands.factor(1.0).own_factor(&mut factor))),
        refusal(8, true, &mut |of, operands| of.launch(&stream, operands)),
        refusal(8, false, &mut |of, operands| of.launch(&stream, operands.factor(0.0))),
        refusal(8, false, &mut |of, operands| of.launch(&stream, operands.factor(f32::NAN))),
        refusal(8, true, &mut |of, operands| of.launch(&stream, operands.own_factor(factor.slice_mut(1..)))),
        refusal(130, false, &mut |of, operands| of.launch(&stream, operands.factor(1.0))),
        refusal(1 << 25, false, &mut |of, operands| of.launch(&stream, operands.factor(1.0))),
    ];
    let expected = [
        "factor: not given, the problem has one",
        "own factor: given, the problem has none",
        "factor: given, the problem has none",
        "own factor: not given, the problem has one",
        "the factor is 0e0: it must be positive and normal",
        "the factor is NaN: it must be positive and normal",
        "own factor has 512 elements, 513 are needed",
        "x has 8256 elements, 8320 are needed",
        "33554432 rows: at most 16777216",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.ends_with(expected), "`{found}`, not `{expected}`");
    }
    let operands = QuantiseOperands::new(1, &other, &mut codes, &mut scales).factor(1.0);
    let error = given.launch(&stream, operands).unwrap_err().to_string();
    assert!(error.ends_with("x is f32, the kernel is for f16"), "{error}");
    let operands = QuantiseOperands::new(1, x.slice(4..), &mut codes, &mut scales).factor(1.0);
    let error = given.launch(&stream, operands).unwrap_err().to_string();
    assert!(error.ends_with("which is not a multiple of 16 bytes"), "{error}");
    assert_eq!(null.launches() - launched, 4);
}

fn any_route() -> impl Strategy<Value = Route> {
    let scoring = prop::sample::select(Scoring::ALL);
    let logits = prop::sample::select(vec![Format::F32, Format::F16, Format::Bf16]);
    (scoring, logits, 0..2000u32, 0..50u32, prop::option::of((0..40u32, 0..40u32)), any::<bool>()).prop_map(
        |(scoring, logits, experts, k, groups, is_renormalised)| {
            let route = Route::new(scoring).experts(experts).k(k);
            let route = if scoring == Scoring::Given { route } else { route.logits(logits) };
            let route = groups.map_or(route, |(groups, kept)| route.groups(groups, kept));
            if is_renormalised { route.renormalised() } else { route }
        },
    )
}

proptest! {
    #[test]
    fn a_spelling_is_read_as_written(route in any_route()) {
        prop_assert_eq!(route.to_string().parse::<Route>().unwrap(), route);
        // Whatever it is: legal or not, and never a panic.
        let _ = route.check();
        let _ = route.lists(7);
    }

    #[test]
    fn a_spelling_of_a_combine_is_read_as_written(hidden in 0..9000u32, k in 0..50u32, parts in 0..16u32, out in 1..4usize) {
        let combine = Combine::new().hidden(hidden).k(k).rows(Format::Bf16).out(Format::ALL[out]);
        let combine = if parts & 1 != 0 { combine.weighted() } else { combine };
        let combine = if parts & 2 != 0 { combine.placed() } else { combine };
        let combine = if parts & 4 != 0 { combine.shared() } else { combine };
        let combine = if parts & 8 != 0 { combine.residual() } else { combine };
        prop_assert_eq!(combine.to_string().parse::<Combine>().unwrap(), combine);
        let _ = combine.check();
    }

    #[test]
    fn a_spelling_of_a_quantise_is_read_as_written(k in 0..9000u32, x in 0..4usize, parts in 0..4u32) {
        let quantise = Quantise::new().k(k).x(Format::ALL[x]);
        let quantise = if parts & 1 != 0 { quantise.scales(ScaleLayout::Swizzled128x4) } else { quantise };
        let quantise = if parts & 2 != 0 { quantise.own() } else { quantise };
        prop_assert_eq!(quantise.to_string().parse::<Quantise>().unwrap(), quantise);
        let _ = quantise.check();
    }

    #[test]
    fn what_reads_is_what_is_written(text in "route\\.(softmax|given|max)(:f32|:bf16)?:e[0-9]{1,3}:k[0-9]{1,2}(:g[0-9]{1,2}:keep[0-9]{1,2})?(:renormalised)?") {
        if let Ok(route) = text.parse::<Route>() {
            prop_assert_eq!(route.to_string(), text);
        }
    }
}
