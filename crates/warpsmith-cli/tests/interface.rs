//! What people and machines meet first: help, completions, and one JSON document from each sub-command. Without a GPU.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use warpsmith::cache::PackBuilder;
use warpsmith_testing as common;

const GEMM: &str = "gemm:f16*f16>f16:n64:k64";
const COMMANDS: [&str; 13] = [
    "run",
    "tune",
    "bench",
    "calibrate",
    "study",
    "serve",
    "layer",
    "manifest",
    "warm-up",
    "pack",
    "quantize",
    "explain",
    "doctor",
];
const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../warpsmith-checkpoint/tests/fixtures/llama-ct");

/// The command, where there is no driver; arguments are cut at spaces.
fn warpsmith(line: &str) -> Output {
    let arguments = line.split(' ').filter(|word| !word.is_empty());
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    command.args(arguments).stdin(Stdio::null()).env_remove("RUST_LOG").env("CUDA_VISIBLE_DEVICES", "");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn every_command_has_help() {
    let all = warpsmith("--help");
    assert_eq!(all.status.code(), Some(0));
    for command in COMMANDS {
        assert!(
            text(&all.stdout).lines().any(|line| line.trim_start().starts_with(&format!("{command} "))),
            "{command}"
        );
        let output = warpsmith(&format!("{command} --help"));
        let help = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{command}");
        // What it does, how it is called, and the option that all have.
        let first = help.lines().next().unwrap();
        assert!(first.ends_with(['.', ':']) || first.len() > 40, "{command}: {first}");
        assert!(help.contains(&format!("Usage: warpsmith {command}")) && help.contains("--json"), "{command}: {help}");
    }
}

#[test]
fn usage_that_is_wrong_is_status_3() {
    let layers = ["explain qwen3", "explain qwen3-30b --tokens 0", "explain qwen3-30b --m 1 --tokens 1", "manifest"];
    let quantize =
        ["quantize a", "quantize a b --layout gguf", "quantize a b --scales best", "quantize a b --threads 0"];
    // Times that no clock can be moved on by.
    let times = [
        "serve --seconds NaN",
        "serve --seconds=-1",
        "calibrate a --limit inf",
        "calibrate a --limit 1e19",
        "tune --limit 1000000001",
        "warm-up --tune 1e19",
        "verify --within 18446744073709551615",
    ];
    for line in ["", "tuna", "run --m x", "explain", "doctor --loud", "completions tcsh"]
        .into_iter()
        .chain(layers)
        .chain(quantize)
        .chain(times)
    {
        let output = warpsmith(line);
        assert_eq!(output.status.code(), Some(3), "{line}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{line}");
    }
}

#[test]
fn shells_complete_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = warpsmith(&format!("completions {shell}"));
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = text(&output.stdout);
        let missing: Vec<_> = COMMANDS.iter().filter(|command| !script.contains(**command)).collect();
        assert!(missing.is_empty() && script.contains("json"), "{shell}: {missing:?}");
    }
}

/// The document on stdout, and how it ended.
fn json(line: &str) -> (Value, Option<i32>) {
    let output = warpsmith(line);
    let document = serde_json::from_slice(&output.stdout);
    (document.unwrap_or_else(|error| panic!("{line}: {error}: {output:?}")), output.status.code())
}

/// Those that need no compiler.
#[test]
fn json_is_one_document() {
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("pack").display().to_string();
    PackBuilder::new().write(&pack).unwrap();
    let x = safetensors::tensor::TensorView::new(safetensors::Dtype::BF16, vec![0, 64], &[]).unwrap();
    fs::write(folder.path().join("x"), safetensors::serialize([("x", x)], None).unwrap()).unwrap();
    let within = folder.path().display();
    let layer =
        format!("layer --checkpoint {FIXTURE} --module model.layers.0.mlp --in {within}/x --out {within}/y --json");
    let model = folder.path().join("model");
    common::checkpoints::checkpoint(&model, 1, [64, 32]);
    let model = model.display();
    let lines = [
        (layer, "/model"),
        ("doctor --json".to_owned(), "/nvrtc"),
        (format!("explain {GEMM} --m 1,64 --arch h200 --json"), "/1/candidates/0/variant"),
        ("explain mixtral-8x7b --tokens 1,64 --arch h200 --json".to_owned(), "/1/steps/1/kernels/0/variant"),
        (format!("calibrate {pack} --list h200 --problem {GEMM} --m 1 --json"), "/0/kernels"),
        ("warm-up --arch h200 --list --json".to_owned(), "/kernels/0"),
        ("manifest --layer qwen3-30b --json".to_owned(), "/routes/1"),
        ("manifest --layer qwen3-30b:e4m3 --json".to_owned(), "/quantisers/1"),
        ("manifest --layer qwen3-30b:nvfp4 --json".to_owned(), "/combines/2"),
        (format!("manifest --checkpoint {FIXTURE} --format f16 --json"), "/problems"),
        (format!("pack {pack} --show --json"), "/kernels"),
        (format!("quantize {model} {model}.nvfp4 --json"), "/weights/0/error"),
    ];
    for (line, pointer) in lines {
        let (document, status) = json(&line);
        assert!(document.pointer(pointer).is_some() && status == Some(0), "{line}: {status:?} {document}");
    }
}

/// Each step of a layer has its kernels, in the order of launches, and none is faster than what it takes at least.
#[test]
fn a_layer_is_explained_by_its_steps() {
    let (told, _) =
        json("explain moe.silu:bf16:h2048:i704:softmax:e60:k4:shared1408 --tokens 1,9,300 --arch h200 --json");
    // Few tokens are one launch behind a shared expert's.
    let steps = told[0]["steps"].as_array().unwrap();
    let kernels: Vec<_> = steps.iter().map(|step| step["kernels"][0]["problem"].as_str().unwrap()).collect();
    let expected = "experts.silu:bf16:h2048:i704:shared:route.softmax:f32:e60:k4";
    assert_eq!((steps.len(), kernels[1], &steps[1]["step"]), (2, expected, &"experts".into()));
    for (of_tokens, [tokens, hit]) in told.as_array().unwrap()[1..].iter().zip([[9, 28], [300, 60]]) {
        assert_eq!((&of_tokens["tokens"], &of_tokens["experts_hit"]), (&tokens.into(), &hit.into()), "{of_tokens}");
        let steps = of_tokens["steps"].as_array().unwrap();
        let names: Vec<_> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
        assert_eq!(names, ["shared", "route", "up", "down", "combine"]);
        let number = |of: &Value| of.as_f64().unwrap_or(0.0);
        let predicted = |step: &Value| -> f64 {
            step["kernels"].as_array().unwrap().iter().map(|kernel| number(&kernel["predicted_us"])).sum()
        };
        for (step, kernels) in steps.iter().zip([2, 1, 1, 1, 1]) {
            assert_eq!(step["kernels"].as_array().unwrap().len(), kernels, "{step}");
            let is_product = step["kernels"][0]["variant"].is_string();
            assert!(number(&step["floor_us"]) > 0.0 && (predicted(step) > number(&step["floor_us"])) == is_product);
        }
        let sum: f64 = steps.iter().map(predicted).sum();
        assert!((number(&of_tokens["predicted_us"]) / sum - 1.0).abs() < 1e-9 && sum > number(&of_tokens["floor_us"]));
    }
    // Rows are rounded before products take them: a token once, for a shared expert first. NVFP4 has a factor more.
    for (layer, expected) in [
        ("linear:bf16:n64:k192:e4m3", &[&["quantise:bf16:k192:e4m3", "gemm:e4m3"][..]][..]),
        (
            "llama-3.1-8b:e4m3",
            &[&["quantise:bf16:k4096:e4m3", "dual_gemm"], &["quantise:bf16:k14336:e4m3", "gemm:e4m3"]],
        ),
        (
            "moe.silu:bf16:h2048:i704:softmax:e60:k4:shared1408:e4m3",
            &[
                &["quantise:bf16:k2048:e4m3", "dual_gemm", "quantise:bf16:k1408:e4m3", "gemm:e4m3"],
                &["route"],
                &["grouped60.dual_gemm"],
                &["quantise:bf16:k704:e4m3", "grouped60.gemm"],
                &["combine"],
            ],
        ),
        (
            "moe.silu:bf16:h64:i64:sigmoid:e8:k1:weighted_inputs:e4m3",
            &[
                &["route"],
                &["combine", "quantise:bf16:k64:e4m3", "grouped8.dual_gemm"],
                &["quantise:bf16:k64:e4m3", "grouped8.gemm"],
                &["combine"],
            ],
        ),
        ("linear:bf16:n64:k192:nvfp4", &[&["quantise:bf16:k192:own", "combine:f32>f32:h8", "gemm:nvfp4"]]),
        (
            "moe.silu:bf16:h2048:i704:softmax:e60:k4:shared1408:nvfp4",
            &[
                &[
                    "quantise:bf16:k2048:own",
                    "combine:f32>f32:h8",
                    "dual_gemm",
                    "quantise:bf16:k1408:own",
                    "combine:f32>f32:h8",
                    "gemm:nvfp4",
                ],
                &["route"],
                &["combine:f32>f32:h120", "grouped60.dual_gemm"],
                &["quantise:bf16:k704:own", "combine:f32>f32:h64", "grouped60.gemm"],
                &["combine"],
            ],
        ),
    ] {
        let (told, _) = json(&format!("explain {layer} --tokens 64 --arch h200 --json"));
        let steps = told[0]["steps"].as_array().unwrap();
        assert_eq!(steps.len(), expected.len(), "{told}");
        for (step, expected) in steps.iter().zip(expected) {
            let kernels = step["kernels"].as_array().unwrap();
            assert_eq!(kernels.len(), expected.len(), "{step}");
            for (kernel, begins) in kernels.iter().zip(*expected) {
                assert!(kernel["problem"].as_str().unwrap().starts_with(begins), "{kernel} {begins}");
            }
        }
    }
    for (line, why) in [
        (format!("explain {GEMM} --tokens 1 --arch h200 --json"), "--tokens is for layers; of a problem say --m"),
        ("explain llama-3.1-8b --m 1 --arch h200 --json".to_owned(), "--m is for problems; of a layer say --tokens"),
    ] {
        let (document, status) = json(&line);
        assert!(document["error"] == why && status == Some(2), "{line}: {status:?} {document}");
    }
}

/// With a compiler, which works without a GPU, too.
#[test]
fn json_of_what_is_compiled_is_one_document() {
    if common::toolchain("json_of_what_is_compiled_is_one_document").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("manifest"), format!("version = 1\n[problems]\n\"{GEMM}\" = \"1\"\n")).unwrap();
    let lines = [
        (format!("run --arch h200 --problem {GEMM} --m 1 --json"), "/rows/0/outcome/state"),
        (format!("bench --arch h200 --problem {GEMM} --m 1 --json"), "/0/op"),
        (format!("study --arch h200 --problem {GEMM} --m 1 --json"), "/grounds/0/proposals"),
        (format!("warm-up {} --arch h200 --calls 1 --json", path("manifest")), "/warm"),
        (format!("pack {} --problem {GEMM} --m 1 --json", path("pack")), "/kernels/0/variant"),
        ("serve --arch h200 --hidden 64 --intermediate 64 --tokens 1 --json".to_owned(), "/warm"),
    ];
    for (line, pointer) in lines {
        let (document, status) = json(&line);
        assert!(document.pointer(pointer).is_some() && status == Some(0), "{line}: {status:?} {document}");
    }
}

/// What needs a device says so, as a sentence and as a document.
#[test]
fn what_needs_a_gpu_says_so() {
    let file = tempfile::tempdir().unwrap();
    let lines = [
        format!("tune --problem {GEMM} --m 1 --json"),
        format!("calibrate {}/lines --json", file.path().display()),
        "warm-up --tune 10 --json".to_owned(),
    ];
    for line in lines {
        let (document, status) = json(&line);
        assert!(document["error"].is_string() && status == Some(2), "{line}: {status:?} {document}");
    }
    let (document, _) = json("warm-up --tune 10 --json");
    assert!(document["error"].as_str().unwrap().contains("run it where there are both"), "{document}");
}
