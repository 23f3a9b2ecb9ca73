//! Spellings of layers, and what no layer is made of.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use warpsmith::format::Format;
use warpsmith::spec::{Activation, Route, Scoring};
use warpsmith_layers::{KNOWN, LayerConfig, LinearConfig, MlpConfig, MoeConfig, named};

#[test]
fn a_spelling_is_read_as_it_is_written_and_no_other() {
    for text in [
        "linear:bf16:n6144:k4096",
        "linear:f16:n16:k64:row_scale:bias_f32",
        "mlp.silu:bf16:h4096:i14336",
        "mlp.relu2:f16:h2688:i1856",
        "mlp.silu:f16:h64:i96:bias_f16:ungated",
        "mlp.silu_clamp7:f16:h64:i64",
        "moe.silu:bf16:h2048:i768:softmax:e128:k8:renormalised",
        "moe.silu:bf16:h7168:i2048:sigmoid_bias:bf16:e256:k8:g8:keep4:renormalised:shared2048",
        "moe.relu2:bf16:h2688:i1856:sigmoid_bias:e128:k6:renormalised:shared3712:residual",
        "moe.swiglu_oai:bf16:h2880:i2880:softmax:e128:k4:renormalised:bias_bf16:residual",
        "moe.silu:bf16:h2048:i512:softmax:e512:k10:renormalised:shared512:shared_gate:residual",
        "moe.silu:bf16:h5120:i8192:sigmoid:e16:k1:shared8192:weighted_inputs",
        "moe.silu:bf16:h64:i64:sigmoid:e16:k1:shared64:shared_gate:weighted_inputs:bias_f16:mxfp4",
        "linear:bf16:n16:k192:bias_f32:e4m3",
        "mlp.silu:f16:h64:i96:e4m3",
        "mlp.silu:f16:h64:i96:bias_f16:ungated:e4m3",
        "moe.silu:bf16:h64:i64:sigmoid:e16:k1:shared64:weighted_inputs:e4m3:residual",
        "linear:bf16:n16:k192:bias_f32:e4m3:expanded",
        "mlp.silu:f16:h64:i96:e4m3:expanded",
        "moe.silu:bf16:h64:i64:sigmoid:e16:k1:shared64:weighted_inputs:e4m3:expanded:residual",
        "linear:bf16:n16:k192:bias_f32:nvfp4",
        "mlp.silu:f16:h64:i96:bias_f16:ungated:nvfp4",
        "moe.silu:bf16:h64:i64:sigmoid:e16:k1:shared64:weighted_inputs:nvfp4:residual",
        "moe.gelu:f16:h64:i64:given:e8:k2:ungated",
        "moe.silu:f16:h64:i64:given:e8:k2:local0-8",
        "moe.silu:f16:h64:i64:softmax:e8:k4:renormalised:local6-8:shared64:residual",
        "moe.silu:f16:h64:i64:softmax:e8:k4:renormalised:skew0",
        "moe.silu:f16:h64:i64:softmax:e8:k4:e4m3:residual:skew400",
    ] {
        let layer: LayerConfig = text.parse().unwrap();
        assert_eq!(layer.to_string(), text);
        assert!(layer.problems(100).is_ok(), "{:?}", layer.problems(100));
    }
    for text in [
        "",
        "linear",
        "linear.silu:bf16:n16:k64",
        "linear:bf16:k64:n16",
        "mlp:bf16:h64:i64",
        "mlp.silu:bf16:h064:i64",
        "mlp.silu:bf16:h64:i64:",
        "mlp.relu2:bf16:h64:i64:ungated",
        "mlp.silu:bf16:h64:i64:ungated:bias_f16",
        "mlp.silu:bf16:h64:i64:e4m3:mxfp4",
        "mlp.silu:bf16:h64:i64:e4m3:bias_f16",
        "mlp.silu:e4m3:bf16:h64:i64",
        "mlp.silu:bf16:h64:i64:nvfp4:mxfp4",
        "mlp.silu:bf16:h64:i64:e4m3:nvfp4",
        "mlp.silu:bf16:h64:i64:expanded",
        "mlp.silu:bf16:h64:i64:expanded:e4m3",
        "mlp.silu:bf16:h64:i64:nvfp4:expanded",
        "moe.silu:bf16:h64:i64:softmax:e8:k2:expanded",
        "moe.silu:bf16:h64:i64:softmax:e8:k2:residual:nvfp4",
        "moe.silu:bf16:h64:i64:softmax:e8:k2:residual:e4m3",
        "moe.silu:bf16:h64:i64",
        "moe.silu:bf16:h64:i64:softmax:f32:e8:k2",
        "moe.silu:bf16:h64:i64:route.softmax:e8:k2",
        "moe.silu:bf16:h64:i64:softmax:e8:k2:residual:shared64",
        "moe.silu:bf16:h64:i64:softmax:e8:k2:shared_gate",
        "moe.silu:bf16:h64:i64:sigmoid:e8:k1:weighted_inputs:shared64",
        "moe.silu:bf16:h64:i64:given:bf16:e8:k2",
        "moe.silu:bf16:h64:i64:given:e8:k2:local8",
        "moe.silu:bf16:h64:i64:given:e8:k2:skew",
        "moe.silu:bf16:h64:i64:given:e8:k2:skew5:residual",
        "mlp.silu:bf16:h64:i64:skew5",
    ] {
        assert!(text.parse::<LayerConfig>().is_err_and(|error| error.is_parse()), "{text}");
    }
}

#[test]
fn builders_give_what_is_spelt() {
    let route = Route::new(Scoring::SigmoidBias).experts(256).k(8).groups(8, 4).renormalised();
    let moe = MoeConfig::new(Activation::Silu, 7168, 2048, route).format(Format::Bf16).shared(2048).residual();
    let spelt = "moe.silu:bf16:h7168:i2048:sigmoid_bias:e256:k8:g8:keep4:renormalised:shared2048:residual";
    assert_eq!(moe, spelt.parse().unwrap());
    assert_eq!(moe.shared_expert().unwrap().to_string(), "mlp.silu:bf16:h7168:i2048");
    assert_eq!(moe.combine().to_string(), "combine:bf16>bf16:h7168:k8:weighted:placed:shared:residual");
    let route = Route::new(Scoring::Sigmoid).experts(16).k(1);
    let moe = MoeConfig::new(Activation::Silu, 5120, 8192, route).shared(8192).shared_gate().weighted_inputs();
    assert_eq!(moe, "moe.silu:f16:h5120:i8192:sigmoid:e16:k1:shared8192:shared_gate:weighted_inputs".parse().unwrap());
    assert_eq!(moe.combine().to_string(), "combine:f16>f16:h5120:k1:placed:shared:shared_gate");
    assert_eq!(moe.weigh().unwrap().to_string(), "combine:f16>f16:h5120:k1:weighted");
    assert_eq!(MlpConfig::new(Activation::Silu, 64, 96).ungated().to_string(), "mlp.silu:f16:h64:i96:ungated");
    assert_eq!(MlpConfig::new(Activation::Silu, 64, 96).e4m3().to_string(), "mlp.silu:f16:h64:i96:e4m3");
    assert_eq!(LinearConfig::new(16, 64).e4m3().to_string(), "linear:f16:n16:k64:e4m3");
    assert_eq!(LinearConfig::new(16, 64).expanded().to_string(), "linear:f16:n16:k64:e4m3:expanded");
    assert_eq!(MlpConfig::new(Activation::Silu, 64, 96).expanded().e4m3().to_string(), "mlp.silu:f16:h64:i96:e4m3");
    assert_eq!(moe.expanded().shared_expert().unwrap().to_string(), "mlp.silu:f16:h5120:i8192:e4m3:expanded");
    assert_eq!(LinearConfig::new(16, 64).e4m3().nvfp4().to_string(), "linear:f16:n16:k64:nvfp4");
    assert_eq!(moe.nvfp4().shared_expert().unwrap().to_string(), "mlp.silu:f16:h5120:i8192:nvfp4");
    assert_eq!(moe.e4m3().shared_expert().unwrap().to_string(), "mlp.silu:f16:h5120:i8192:e4m3");
    assert_eq!(LinearConfig::new(16, 64).bias(Format::F32).to_string(), "linear:f16:n16:k64:bias_f32");
}

#[test]
fn known_layers_are_spelt_as_they_are() {
    for (name, spelling) in KNOWN {
        let layer = named(name).unwrap();
        assert_eq!(layer.to_string(), *spelling);
        let problems = layer.problems(8192).unwrap();
        assert!(problems.len() == 2 && problems.iter().all(|problem| problem.check().is_ok()), "{name}");
    }
    for name in [
        "qwen3",
        "qwen3-30b:",
        "qwen3-30b:mxfp4",
        "qwen3-30b:e4m3:nvfp4",
        "qwen3-30b:expanded",
        "qwen3-30b:nvfp4:expanded",
        "qwen3-30b:residual",
        ":e4m3",
        "qwen3-30b:skew5:e4m3",
        "llama-3.1-8b:skew5",
        "qwen3-30b:skew",
    ] {
        assert!(named(name).is_none(), "{name}");
    }
    for (name, _) in KNOWN {
        let layer = named(&format!("{name}:e4m3")).unwrap();
        assert!(layer.rounded() == Some(Format::E4m3) && layer == named(name).unwrap().e4m3());
        let expanded = named(&format!("{name}:e4m3:expanded")).unwrap();
        assert!(expanded.rounded() == Some(Format::E4m3) && expanded == layer.expanded() && expanded != layer);
        assert!(expanded.problems(64).unwrap().iter().all(|problem| problem.is_expanded()));
        let layer = named(&format!("{name}:nvfp4")).unwrap();
        assert!(layer.rounded() == Some(Format::Nvfp4) && layer == named(name).unwrap().nvfp4());
        assert_eq!(named(name).unwrap().rounded(), None);
    }
    for (name, known, skew) in [
        ("qwen3-30b:skew100", "qwen3-30b", 100),
        ("mixtral-8x7b:e4m3:skew5", "mixtral-8x7b:e4m3", 5),
        ("qwen3-30b:e4m3:expanded:skew5", "qwen3-30b:e4m3:expanded", 5),
    ] {
        let (LayerConfig::Moe(skewed), LayerConfig::Moe(known)) = (named(name).unwrap(), named(known).unwrap()) else {
            panic!("{name}");
        };
        assert_eq!(skewed, known.skew(skew));
        assert_eq!(skewed.stated_skew(), Some(skew));
        let problems = skewed.problems(16).unwrap().into_iter().zip(known.problems(16).unwrap());
        problems.for_each(|(skewed, even)| assert_eq!(skewed, even.skew(skew)));
    }
    let layer = named("qwen3-30b:e4m3").unwrap().to_string();
    assert_eq!(layer, "moe.silu:bf16:h2048:i768:softmax:e128:k8:renormalised:e4m3");
}

/// What a layer's kernels are told.
#[test]
fn problems_are_those_of_the_layer() {
    let problems = |text: &str, tokens| {
        let problems = text.parse::<LayerConfig>().unwrap().problems(tokens).unwrap();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    // 96 is padded to 128.
    assert_eq!(
        problems("moe.silu:bf16:h2048:i96:softmax:e128:k8:renormalised:shared64:bias_f32", 512),
        [
            "grouped128.dual_gemm.silu:bf16*nvfp4>bf16:n128:k2048:bias_f32:gathered:top8:m4096",
            "grouped128.gemm:bf16*nvfp4>bf16:n2048:k128:bias_f32:top8:m4096",
            "dual_gemm.silu:bf16*nvfp4>bf16:n64:k2048:m512",
            "gemm:bf16*nvfp4>bf16:n2048:k64:m512",
        ]
    );
    assert_eq!(
        problems("mlp.relu2:f16:h2688:i1856", 7),
        ["gemm.relu2:f16*nvfp4>f16:n1856:k2688:m7", "gemm:f16*nvfp4>f16:n2688:k1856:m7"]
    );
    // Only A is another; what quantises it has the padded size.
    let layer = "moe.silu:bf16:h2048:i96:softmax:e128:k8:renormalised:shared320:e4m3";
    assert_eq!(
        problems(layer, 512),
        [
            "grouped128.dual_gemm.silu:e4m3*nvfp4>bf16:n128:k2048:gathered:top8:m4096",
            "grouped128.gemm:e4m3*nvfp4>bf16:n2048:k128:top8:m4096",
            "dual_gemm.silu:e4m3*nvfp4>bf16:n320:k2048:m512",
            "gemm:e4m3*nvfp4>bf16:n2048:k320:m512",
        ]
    );
    let quantisers = |text: &str| {
        let quantisers = text.parse::<LayerConfig>().unwrap().quantisers();
        quantisers.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(quantisers(layer), ["quantise:bf16:k2048:e4m3", "quantise:bf16:k128:e4m3", "quantise:bf16:k320:e4m3"]);
    assert_eq!(quantisers("mlp.silu:f16:h64:i192:e4m3"), ["quantise:f16:k64:e4m3", "quantise:f16:k192:e4m3"]);
    assert_eq!(quantisers("linear:f16:n16:k64:e4m3"), ["quantise:f16:k64:e4m3"]);
    let plain = layer.strip_suffix(":e4m3").unwrap();
    assert!(quantisers(plain).is_empty());
    let layer = format!("{plain}:nvfp4");
    assert_eq!(
        problems(&layer, 512),
        [
            "grouped128.dual_gemm.silu:nvfp4*nvfp4>bf16:n128:k2048:gathered:top8:m4096",
            "grouped128.gemm:nvfp4*nvfp4>bf16:n2048:k128:top8:m4096",
            "dual_gemm.silu:nvfp4*nvfp4>bf16:n320:k2048:m512",
            "gemm:nvfp4*nvfp4>bf16:n2048:k320:m512",
        ]
    );
    assert_eq!(quantisers(&layer), ["quantise:bf16:k2048:own", "quantise:bf16:k128:own", "quantise:bf16:k320:own"]);
    // A row of the factors of gate and up, and one of down's; a shared expert has one each.
    let scalers = |text: &str| {
        let scalers = text.parse::<LayerConfig>().unwrap().scalers().unwrap();
        scalers.iter().map(|scaler| scaler.hidden_size()).collect::<Vec<_>>()
    };
    assert_eq!((scalers(&layer), scalers(plain)), (vec![256, 128, 8, 8], vec![]));
    assert!(scalers("mlp.silu:f16:h64:i64:e4m3").is_empty());
    assert_eq!(problems("linear:f16:n48:k64:row_scale", 3), ["gemm:f16*nvfp4>f16:n48:k64:row_scale:m3"]);
    // K that no kernel has is padded, x before it is rounded.
    assert_eq!(problems("linear:f16:n48:k80:e4m3", 3), ["gemm:e4m3*nvfp4>f16:n48:k128:m3"]);
    assert_eq!(quantisers("linear:f16:n48:k80:e4m3"), ["quantise:f16:k128:e4m3"]);
    assert_eq!(problems("linear:f16:n48:k64:bias_f32:mxfp4", 3), ["gemm:f16*mxfp4>f16:n48:k64:bias_f32:m3"]);
    assert_eq!(
        problems("moe.swiglu_oai:bf16:h2880:i2880:softmax:e32:k4:renormalised:shared64:bias_bf16:mxfp4", 64)[..3],
        [
            "grouped32.dual_gemm.swiglu_oai:bf16*mxfp4>bf16:n2880:k2880:bias_bf16:gathered:top4:m256",
            "grouped32.gemm:bf16*mxfp4>bf16:n2880:k2880:bias_bf16:top4:m256",
            // The shared expert is NVFP4.
            "dual_gemm.swiglu_oai:bf16*nvfp4>bf16:n64:k2880:m64",
        ]
    );
}

#[test]
fn what_no_layer_is_made_of_is_refused_with_value_and_limit() {
    let refusal = |text: &str, tokens| {
        let error = text.parse::<LayerConfig>().unwrap().problems(tokens).unwrap_err();
        assert!(error.is_unsupported(), "{error:?}");
        error.to_string()
    };
    for (text, why) in [
        ("mlp.silu:nvfp4:h64:i64", "activations are f16 or bf16, not nvfp4"),
        ("mlp.silu:f32:h64:i64", "activations are f16 or bf16, not f32"),
        ("mlp.silu:f16:h96:i64", "hidden = 96: must be a multiple of 64"),
        ("mlp.silu:f16:h64:i40", "intermediate = 40: must be a multiple of 16"),
        ("mlp.silu:f16:h64:i48:mxfp4", "intermediate = 48: must be a multiple of 32"),
        ("mlp.silu:f16:h64:i64:mxfp4:e4m3", "e4m3: weights are nvfp4, not mxfp4"),
        ("moe.silu:f16:h64:i64:softmax:e8:k2:shared64:mxfp4:e4m3", "e4m3: weights are nvfp4, not mxfp4"),
        ("linear:f16:n16:k64:mxfp4:e4m3", "e4m3: weights are nvfp4, not mxfp4"),
        ("linear:f16:n16:k40", "K = 40: must be a multiple of 16 up to 1048576"),
        ("linear:f16:n16:k72:e4m3", "K = 72: must be a multiple of 16"),
        ("linear:f16:n16:k48:mxfp4", "K = 48: must be a multiple of 32"),
        ("linear:f16:n16:k0", "K = 0"),
        ("linear:f16:n16:k4294967280", "K = 4294967280: must be a multiple of 16 up to 1048576"),
        ("mlp.silu:f16:h64:i64:mxfp4:nvfp4", "nvfp4: weights are nvfp4, not mxfp4"),
        ("mlp.silu:e4m3:h64:i64", "activations are f16 or bf16, not e4m3"),
        ("mlp.swiglu_oai:f16:h64:i64:ungated", "activation swiglu_oai: gemm takes silu"),
        ("moe.silu:f16:h64:i0:softmax:e8:k2", "intermediate = 0"),
        ("moe.silu:f16:h64:i64:softmax:e8:k9", "k = 9: must be 1 to 8, the experts there are"),
        ("moe.silu:f16:h64:i64:softmax:e2000:k9", "experts = 2000: must be 1 to 1024"),
        ("moe.silu:f16:h64:i64:softmax:e8:k2:local4-9", "local experts 4 to 9: a range of the 8 experts"),
        ("moe.silu:f16:h64:i64:softmax:e8:k2:skew401", "skew = 401: must be 0 to 400"),
        ("moe.silu:f16:h64:i64:sigmoid:e8:k2:weighted_inputs", "weighted_inputs: k = 2: must be 1"),
    ] {
        let found = refusal(text, 16);
        assert!(found.contains(why), "{found}");
    }
    assert!(refusal("moe.silu:f16:h64:i64:softmax:e8:k2", 1 << 24).contains("33554432 rows: must be 1 to 16777216"));
    let gate = MoeConfig::new(Activation::Silu, 64, 64, Route::new(Scoring::Softmax).experts(8).k(2)).shared_gate();
    let error = gate.problems(16).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().ends_with("shared_gate: there is no shared expert"), "{error}");
    assert!(refusal("mlp.silu:f16:h64:i64", 0).contains("0 tokens at most"));
}

/// The pages of spellings and of layers have every grammar, word for word.
#[test]
fn documents_have_every_grammar() {
    let [spellings, layers] = ["spellings.md", "layers.md"].map(|page| {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        fs::read_to_string(docs.join(page)).unwrap()
    });
    for wrong in ["linear:bf16:x", "mlp.silu:bf16:x", "moe.silu:bf16:x"] {
        let told = wrong.parse::<LayerConfig>().unwrap_err().to_string();
        let (_, grammar) = told.split_once("expected ").unwrap();
        let grammar = grammar.split(", ").next().unwrap();
        assert!(spellings.lines().any(|line| line == grammar), "{grammar}");
        assert!(layers.contains(&format!("| `{}` |", grammar.replace('|', "\\|"))), "{grammar}");
    }
}
