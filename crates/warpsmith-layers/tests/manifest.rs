//! Closed worlds of whole models: their kernels are few, found at once, and all there are at any number of tokens. Without a GPU
//! and without a compiler.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::HashSet;
use std::time::{Duration, Instant};

use warpsmith::engine::{Manifest, Rows};
use warpsmith::internal::engine::KernelSet;
use warpsmith::pick::{Picker, Policy};
use warpsmith::spec::{Arch, Spec};
use warpsmith_layers::{LayerConfig, named};
use warpsmith_testing::on_all_cores;

const TOKENS: u32 = 8192;
const KERNELS: usize = 60;
/// What a problem may take, with optimisation: several times what it does, as others use the machine, too.
const EACH: Duration = Duration::from_millis(40);

/// The experts of Qwen3-30B, and its attention's projections: query, key and value together, and the output.
fn model() -> Vec<LayerConfig> {
    let attention = ["linear:bf16:n5120:k2048", "linear:bf16:n2048:k4096"].map(|text| text.parse().unwrap());
    attention.into_iter().chain(named("qwen3-30b")).collect()
}

fn manifest(layers: &[LayerConfig], tokens: &str, arch: &Arch) -> Manifest {
    let tokens: Rows = tokens.parse().unwrap();
    layers.iter().fold(Manifest::new(), |all, layer| all.and(&layer.manifest(&tokens, arch).unwrap()))
}

fn picker(policy: Policy) -> Picker {
    Picker::builder("NVIDIA H200", &Arch::H200).policy(policy).build().unwrap()
}

#[test]
fn a_models_layers_have_few_kernels_that_are_found_at_once() {
    let manifest = manifest(&model(), &format!("1..={TOKENS}"), &Arch::H200);
    assert_eq!(manifest.problems().count(), 4);
    for (problem, rows) in manifest.problems() {
        let one = Manifest::new().with(problem, rows);
        // New to its picker; the best of ten.
        let once = || {
            let (picker, start) = (picker(Policy::Fastest), Instant::now());
            (KernelSet::new(&picker, &one), start.elapsed())
        };
        let (set, took) = (0..10).map(|_| once()).min_by_key(|(_, took)| *took).unwrap();
        println!("{problem}: {} kernels in {:.2} ms", set.len(), took.as_secs_f64() * 1e3);
        assert!(set.refused().is_empty() && set.specs().count() > 1, "{:?}", set.refused());
        if !cfg!(debug_assertions) {
            assert!(took <= EACH, "{problem}: {took:?}");
        }
    }
    let set = KernelSet::new(&picker(Policy::Fastest), &manifest);
    println!("{} kernels", set.len());
    assert!(set.len() <= KERNELS, "{} kernels", set.len());
    // Weights of one product and of two; by logits, by ids, and sums; few tokens both ways.
    assert_eq!(set.simts().count(), 2 + 3 + 2);
}

/// What a layer that is made for any number of tokens holds is in the manifest of the most.
#[test]
fn no_number_of_tokens_needs_a_kernel_that_is_not_there() {
    let known = ["mixtral-8x7b", "gpt-oss-120b", "llama-3.1-8b"].map(|name| named(name).unwrap());
    let shared = "moe.silu:bf16:h2048:i704:sigmoid_bias:e60:k4:renormalised:shared1408:residual".parse().unwrap();
    let rounded = "moe.silu:bf16:h2048:i704:softmax:e60:k4:shared192:e4m3".parse().unwrap();
    let coded = "moe.silu:bf16:h2048:i704:softmax:e60:k4:shared192:nvfp4".parse().unwrap();
    let layers = model().into_iter().chain(known).chain([shared, rounded, coded]);
    let of_policies = |layer| [Policy::Fastest, Policy::BatchInvariant].map(|policy| (layer, policy));
    on_all_cores(&layers.flat_map(of_policies).collect::<Vec<_>>(), |(layer, policy)| has_all(layer, *policy));
}

fn has_all(layer: &LayerConfig, policy: Policy) {
    let manifest = manifest(&[*layer], &format!("1..={TOKENS}"), &Arch::H200);
    let warm: HashSet<Spec> = KernelSet::new(&picker(policy), &manifest).specs().copied().collect();
    // Plans reach to a layer's limit, whatever that is.
    for limit in [1, 7, 300, TOKENS] {
        for problem in layer.problems(limit).unwrap() {
            let problem = problem.native(&Arch::H200);
            let picker = picker(policy);
            let schedule = picker.schedule(&problem).unwrap();
            let cold: Vec<_> = schedule
                .intervals()
                .iter()
                .filter(|interval| !warm.contains(interval.choice.spec()))
                .map(|interval| format!("{}..={} {}", interval.first, interval.last, interval.choice.spec()))
                .collect();
            assert!(cold.is_empty(), "{layer} for {limit} tokens, {problem}: {cold:?}");
            assert_eq!(Some(schedule.last()), problem.m_limit());
        }
    }
    // And what is chosen, one number after the other.
    let picker = picker(policy);
    let few = layer.problems(1).unwrap();
    for (most, few) in layer.problems(TOKENS).unwrap().iter().zip(few) {
        let each = few.m_limit().unwrap();
        for tokens in 1..=TOKENS {
            let choice = picker.choose(&most.native(&Arch::H200), tokens * each).unwrap();
            assert!(warm.contains(choice.spec()), "{layer}, {tokens} tokens: {}", choice.spec());
        }
    }
}

/// Every other architecture has no such kernels: that is said when a layer is made, as its plans begin with this.
#[test]
fn products_of_e4m3_values_are_refused_where_there_are_none() {
    for layer in ["linear:bf16:n64:k192:e4m3", "llama-3.1-8b:e4m3", "qwen3-30b:e4m3"] {
        let layer = named(layer).unwrap_or_else(|| layer.parse().unwrap());
        for arch in Arch::ALL {
            let picker = Picker::builder("some device", arch).build().unwrap();
            let manifest = layer.manifest(&"1..=100".parse().unwrap(), arch);
            assert_eq!(manifest.is_ok(), [Arch::H100, Arch::H200].contains(arch), "{arch}: {manifest:?}");
            for problem in layer.problems(100).unwrap() {
                match picker.schedule(&problem.native(arch)) {
                    Ok(_) => assert!([Arch::H100, Arch::H200].contains(arch), "{arch}"),
                    Err(error) => {
                        assert!(error.is_unsupported() && ![Arch::H100, Arch::H200].contains(arch), "{arch}: {error}");
                        let why = format!(
                            "on {arch}: matrix path mma takes tokens in nvfp4, f16 or bf16; e4m3 ones need wgmma (sm_90a)"
                        );
                        assert!(error.to_string().ends_with(&why), "{error}");
                    }
                }
            }
        }
    }
}

/// Numbers of tokens become rows; weights are as the architecture takes them; what is no layer is refused.
#[test]
fn a_manifest_is_of_its_tokens_and_its_architecture() {
    let of = |name: &str, tokens, arch| manifest(&[named(name).unwrap()], tokens, &arch).to_string();
    assert_eq!(
        of("qwen3-30b", "1, 32..=128", Arch::H200),
        "version = 1\n\
         routes = [\"route.given:e128:k8\", \"route.softmax:f32:e128:k8:renormalised\"]\n\
         combines = [\"combine:bf16>bf16:h2048:k8:weighted:placed\"]\n\
         experts = [\"experts.silu:bf16:h2048:i768:route.given:e128:k8\", \
         \"experts.silu:bf16:h2048:i768:route.softmax:f32:e128:k8:renormalised\"]\n\n\
         [problems]\n\
         \"grouped128.dual_gemm.silu:bf16*nvfp4>bf16:n768:k2048:gathered:prepared:top8\" = [\"1..=8\", \"256..=1024\"]\n\
         \"grouped128.gemm:bf16*nvfp4>bf16:n2048:k768:prepared:top8\" = [\"1..=8\", \"256..=1024\"]\n"
    );
    assert!(!of("llama-3.1-8b", "1", Arch::A100).contains("prepared"));
    let rounded = of("qwen3-30b:e4m3", "8", Arch::H200);
    let expected = "quantisers = [\"quantise:bf16:k2048:e4m3\", \"quantise:bf16:k768:e4m3\"]\n\n[problems]\n\
        \"grouped128.dual_gemm.silu:e4m3*nvfp4>bf16:n768:k2048:gathered:prepared:top8\" = \"64\"\n\
        \"grouped128.gemm:e4m3*nvfp4>bf16:n2048:k768:prepared:top8\" = \"64\"\n";
    assert!(rounded.ends_with(expected), "{rounded}");
    let coded = of("qwen3-30b:nvfp4", "8", Arch::H200);
    let expected = "combines = [\"combine:bf16>bf16:h2048:k8:weighted:placed\", \"combine:f32>f32:h128:k1:weighted\", \
        \"combine:f32>f32:h256:k1:weighted\"]\n\
        quantisers = [\"quantise:bf16:k2048:own\", \"quantise:bf16:k768:own\"]\n\n[problems]\n\
        \"grouped128.dual_gemm.silu:nvfp4*nvfp4>bf16:n768:k2048:gathered:top8\" = \"64\"\n\
        \"grouped128.gemm:nvfp4*nvfp4>bf16:n2048:k768:prepared:top8\" = \"64\"\n";
    assert!(coded.ends_with(expected), "{coded}");
    // MXFP4 stays so; columns that no kernel has are padded.
    let mxfp4 = of("gpt-oss-120b", "8", Arch::H200).replace("nvfp4", "mxfp4");
    let spelled = named("gpt-oss-120b").unwrap().to_string();
    let as_it_is: LayerConfig = format!("{spelled}:mxfp4").parse().unwrap();
    assert_eq!(manifest(&[as_it_is], "8", &Arch::H200).to_string(), mxfp4);
    let padded = manifest(&["linear:bf16:n48:k96:mxfp4".parse().unwrap()], "8", &Arch::H200).to_string();
    assert!(padded.ends_with("\n\n[problems]\n\"gemm:bf16*mxfp4>bf16:n48:k128:prepared\" = \"8\"\n"), "{padded}");
    let refused: LayerConfig = "mlp.silu:bf16:h96:i64".parse().unwrap();
    assert!(refused.manifest(&"1".parse().unwrap(), &Arch::H200).unwrap_err().is_unsupported());
    let too_many = named("qwen3-30b").unwrap().manifest(&"1..=4000000".parse().unwrap(), &Arch::H200);
    assert!(too_many.unwrap_err().to_string().contains("32000000 rows: must be 1 to 16777216"));
}
