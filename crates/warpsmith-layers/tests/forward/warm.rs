//! A warm layer compiles nothing, and a forward allocates nothing.

use warpsmith::cache::Seal;
use warpsmith::engine::{Manifest, Rows};
use warpsmith_layers::{LayerConfig, MoeConfig};
use warpsmith_testing::{counting, layers};
use warpsmith_tune::layer::{DeviceTokens, HostLayer, HostTokens};

use crate::scene::{Bench, Buffers, K, MOE, MOE_E4M3, MOE_NVFP4, TOKENS};

/// Random layers that are made.
const RANDOM: usize = 4;

/// Behind a seal a layer of any limit is made of what its manifest has warmed up.
#[test]
fn a_warm_layer_compiles_nothing() {
    [MOE, MOE_E4M3, MOE_NVFP4].into_iter().for_each(is_warm);
}

fn is_warm(spelling: &str) {
    let bench = Bench::new();
    let config: LayerConfig = spelling.parse().unwrap();
    let manifest = config.manifest(&Rows::new(1..=TOKENS).unwrap(), bench.engine.device().arch()).unwrap();
    let report = bench.engine.warm_up(&manifest);
    assert!(report.is_complete(), "{report}");
    bench.engine.seal(Seal::Refuse);
    let (before, moe) = (bench.engine.stats(), bench.moe_of(spelling));
    let mut buffers = Buffers::new(&bench.stream, moe.workspace_bytes(TOKENS));
    let logits = buffers.logits.clone();
    for tokens in [1, 17, 300, TOKENS] {
        moe.forward(&bench.stream, buffers.operands(tokens), &logits).unwrap();
    }
    let after = bench.engine.stats();
    assert_eq!((after.cache.sealed.refusals, after.cache.compiles), (0, before.cache.compiles));
    assert_eq!(after.loads, before.loads);
    // What was asked for is what was warmed up, with the rows that came.
    let recorded = bench.engine.record().manifest();
    let keys = |manifest: &Manifest| {
        let problems = manifest.problems().map(|(problem, _)| problem.to_string());
        let beside = manifest.routes().map(ToString::to_string).chain(manifest.combines().map(ToString::to_string));
        let quantisers = manifest.quantisers().map(ToString::to_string);
        // And those of few tokens.
        let experts = manifest
            .to_string()
            .lines()
            .filter(|line| line.starts_with("experts"))
            .map(str::to_owned)
            .collect::<Vec<_>>();
        problems.chain(beside).chain(quantisers).chain(experts).collect::<Vec<_>>()
    };
    assert_eq!(keys(&recorded), keys(&manifest));
    for (problem, rows) in recorded.problems() {
        // Two experts a token.
        let k = if problem.groups().is_some() { 2 } else { 1 };
        let known = manifest.rows(problem).unwrap();
        assert!(*rows == Rows::new(k..=k * TOKENS).unwrap() && known.clone().and(rows) == *known, "{recorded}");
    }
    // Another layer is not there.
    let other: MoeConfig = MOE.replace("softmax", "sigmoid").parse().unwrap();
    assert!(bench.engine.route(other.route()).unwrap_err().is_sealed());
}

/// Whatever the layer, by logits and by given experts, whole and in chunks.
#[test]
fn a_warm_random_layer_compiles_nothing() {
    let is_layer = |text: &str| text.parse().is_ok_and(|config: LayerConfig| config.problems(TOKENS).is_ok());
    for spelling in layers::random(is_layer).iter().take(RANDOM) {
        let bench = Bench::new();
        let config: LayerConfig = spelling.parse().unwrap();
        let rows = Rows::new(1..=TOKENS).unwrap();
        let report = bench.engine.warm_up(&config.manifest(&rows, bench.engine.device().arch()).unwrap());
        assert!(report.is_complete(), "{spelling}: {report}");
        bench.engine.seal(Seal::Refuse);
        let (before, stream) = (bench.engine.stats(), &bench.stream);
        let host = HostLayer::random(&config, 7);
        let layer = host.upload(&bench.engine, stream, TOKENS).unwrap();
        for (tokens, room) in [(1, 1), (3, 3), (17, 17), (257, 257), (300, 300), (TOKENS, TOKENS), (TOKENS, 1000)] {
            let given = HostTokens::random(&config, tokens, 0.0, 7);
            let mut operands = DeviceTokens::new(stream, &layer, &given, layer.workspace_bytes(room)).unwrap();
            layer.forward(stream, &mut operands, None).unwrap_or_else(|error| panic!("{spelling}: {error}"));
            let (ids, weights) = host.chosen(&given).unwrap();
            if !ids.is_empty() {
                let (ids, weights) = (stream.clone_htod(&ids).unwrap(), stream.clone_htod(&weights).unwrap());
                let put = layer.forward_chosen(stream, &mut operands, &ids, &weights);
                put.unwrap_or_else(|error| panic!("{spelling}: {error}"));
            }
        }
        let after = bench.engine.stats();
        assert_eq!((after.cache.sealed.refusals, after.cache.compiles), (0, before.cache.compiles), "{spelling}");
        assert_eq!(after.loads, before.loads, "{spelling}");
    }
}

#[test]
fn a_forward_allocates_nothing() {
    [MOE, MOE_E4M3, MOE_NVFP4].into_iter().for_each(allocates_nothing);
}

fn allocates_nothing(spelling: &str) {
    let bench = Bench::new();
    bench.null.track(true);
    let (moe, stream) = (bench.moe_of(spelling), &bench.stream);
    let mut buffers = Buffers::new(stream, moe.workspace_bytes(300));
    let (logits, ids) = (buffers.logits.clone(), stream.alloc_zeros::<i32>(TOKENS as usize * K).unwrap());
    let weights = stream.alloc_zeros::<f32>(TOKENS as usize * K).unwrap();
    stream.synchronize().unwrap();
    let mut put = |tokens| {
        moe.forward(stream, buffers.operands(tokens), &logits).unwrap();
        moe.forward_chosen(stream, buffers.operands(tokens), &ids, &weights).unwrap();
    };
    // A thread's first launches make room for tensor maps.
    [1, 17, 300, 1000].iter().for_each(|tokens| put(*tokens));
    let device = bench.null.allocations();
    let host = counting::allocations();
    [1, 17, 300, 1000, 1, 1000].iter().for_each(|tokens| put(*tokens));
    assert_eq!(counting::allocations(), host);
    assert_eq!(bench.null.allocations(), device);
    bench.null.track(false);
}
