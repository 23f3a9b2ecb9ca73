//! Layers of checkpoints that others have written give what their own code gives (see warpsmith-checkpoint's
//! `tests/fixtures/make.py`).

use std::path::{Path, PathBuf};
use std::{fs, iter};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use warpsmith::format::Format;
use warpsmith_checkpoint::Checkpoint;
use warpsmith_testing::checkpoints::fixtures;

use super::io::{self, Tokens};
use super::{Args, Job, host, routing, run};

fn fixture(name: &str) -> PathBuf {
    fixtures().into_iter().find(|path| path.ends_with(name)).unwrap()
}

/// One tensor of a fixture's file, in a file of its own.
fn file_of(folder: &Path, tensor: &str, to: &Path) {
    let bytes = fs::read(folder.join("io.safetensors")).unwrap();
    let all = SafeTensors::deserialize(&bytes).unwrap();
    let name = tensor.rsplit('/').next().unwrap();
    fs::write(to, safetensors::serialize([(name, all.tensor(tensor).unwrap())], None).unwrap()).unwrap();
}

fn doubles(view: &TensorView<'_>) -> Vec<f64> {
    assert_eq!(view.dtype(), Dtype::F64);
    view.data().as_chunks::<8>().0.iter().copied().map(f64::from_le_bytes).collect()
}

fn args(folder: &Path, module: &str, within: &Path) -> Args {
    file_of(folder, &format!("{module}/x"), &within.join("x"));
    Args {
        checkpoint: folder.to_owned(),
        module: module.to_owned(),
        input: within.join("x"),
        out: within.join("y"),
        logits: None,
        ids: None,
        weights: None,
        host: true,
        device: 0,
    }
}

/// The modules of a fixture whose results are known.
fn modules(folder: &Path) -> Vec<String> {
    let bytes = fs::read(folder.join("io.safetensors")).unwrap();
    let all = SafeTensors::deserialize(&bytes).unwrap();
    all.names().into_iter().filter_map(|name| name.strip_suffix("/y")).map(str::to_owned).collect()
}

/// Within the oracle's bound of what the model's own code gives in f64 on the same dequantised weights, and closer by far.
#[test]
fn a_layer_gives_what_its_own_code_gives() {
    let within = tempfile::tempdir().unwrap();
    for folder in fixtures() {
        // SAFETY: nobody changes the fixtures.
        let checkpoint = unsafe { Checkpoint::map(&folder).unwrap() };
        for name in modules(&folder) {
            let what = format!("{}: {name}", folder.display());
            let args = args(&folder, &name, within.path());
            let module = checkpoint.module(&name).unwrap();
            let bytes = fs::read(folder.join("io.safetensors")).unwrap();
            let all = SafeTensors::deserialize(&bytes).unwrap();
            let columns = all.tensor(&format!("{name}/x")).unwrap().shape()[1];
            let tokens = io::tokens(&args.input, columns).unwrap();
            let routing = routing::given(&args, &module, &tokens).unwrap_or_else(|error| panic!("{what}: {error}"));
            if let Some(routing::Routing::Logits(found)) = &routing {
                file_of(&folder, &format!("{name}/logits"), &within.path().join("logits"));
                let (expected, _) = io::matrix(&within.path().join("logits"), "logits", tokens.count).unwrap();
                let off = iter::zip(found, &expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(found.len() == expected.len() && off < 1e-4, "{what}: logits are off by {off}");
            }
            let job = Job { module: &module, tokens: &tokens, routing };
            let reference = host::reference(&job, &(0..tokens.count).collect::<Vec<_>>()).unwrap();
            let expected = doubles(&all.tensor(&format!("{name}/y")).unwrap());
            assert_eq!(reference.elements().len(), expected.len(), "{what}");
            let size = expected.iter().fold(0.0, |size: f64, y| size.max(y.abs()));
            let is_rounded = checkpoint.config().experts().is_some_and(|rule| rule.weighs_inputs());
            for (at, (found, y)) in iter::zip(reference.elements(), &expected).enumerate() {
                let off = (found.value - y).abs();
                // What is rounded on the way (a token times its weight) is off by an ulp of bf16 at most.
                let limit = if is_rounded { size / 100.0 } else { found.bound.min(size * 1e-5) };
                assert!(off <= limit, "{what}: element {at}: {}, not {y}; {limit:e} is the limit", found.value);
            }
        }
    }
}

/// Logits that are given choose as the checkpoint's router does; ids and weights are taken as they are.
#[test]
fn routing_is_given_in_three_ways() {
    let within = tempfile::tempdir().unwrap();
    let path = |name: &str| within.path().join(name);
    let (folder, module) = (fixture("qwen3-moe-modelopt"), "model.layers.0.mlp");
    let by_router = args(&folder, module, within.path());
    assert!(run(&by_router).unwrap());
    let whole = fs::read(path("y")).unwrap();
    file_of(&folder, &format!("{module}/logits"), &path("logits"));
    let by_logits = Args { logits: Some(path("logits")), ..args(&folder, module, within.path()) };
    assert!(run(&by_logits).unwrap());
    assert_eq!(fs::read(path("y")).unwrap(), whole);

    let Tokens { count, .. } = io::tokens(&path("x"), 64).unwrap();
    // SAFETY: nobody changes the fixtures.
    let checkpoint = unsafe { Checkpoint::map(&folder).unwrap() };
    let warpsmith_checkpoint::Module::Moe(moe) = checkpoint.module(module).unwrap() else { panic!() };
    let logits = io::matrix(&path("logits"), "logits", count).unwrap().0;
    let chosen = routing::Routing::Logits(logits).chosen(&moe, count).unwrap();
    let put = |ids: &[i64], weights: &[f32]| {
        let ids_of: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let weights_of: Vec<u8> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
        let ids = TensorView::new(Dtype::I64, vec![count, ids.len() / count], &ids_of).unwrap();
        let weights = TensorView::new(Dtype::F32, vec![count, weights.len() / count], &weights_of).unwrap();
        fs::write(path("ids"), safetensors::serialize([("ids", ids)], None).unwrap()).unwrap();
        fs::write(path("weights"), safetensors::serialize([("weights", weights)], None).unwrap()).unwrap();
    };
    let ids: Vec<i64> = chosen.ids.iter().map(|id| i64::from(*id)).collect();
    let weights: Vec<f32> = chosen.weights.iter().map(|(weight, _)| *weight as f32).collect();
    put(&ids, &weights);
    let by_ids =
        Args { ids: Some(path("ids")), weights: Some(path("weights")), ..args(&folder, module, within.path()) };
    assert!(run(&by_ids).unwrap());
    assert_eq!(fs::read(path("y")).unwrap(), whole);
    // None of the experts: nothing.
    put(&vec![-1; ids.len()], &weights);
    assert!(run(&by_ids).unwrap());
    let bytes = fs::read(path("y")).unwrap();
    let all = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(all.tensor("y").unwrap().data(), vec![0; count * 64 * 2]);

    let refusal = |args: &Args| run(args).unwrap_err().to_string();
    put(&vec![8; ids.len()], &weights);
    assert!(refusal(&by_ids).contains("expert 8 of token 0, slot 0: there are 8; -1 is none"), "{}", refusal(&by_ids));
    put(&ids[..count], &weights[..count]);
    assert!(refusal(&by_ids).contains("have 1 and 1 columns, a token has 2 experts"), "{}", refusal(&by_ids));
    let of_mlp = Args { logits: Some(path("logits")), ..args(&fixture("qwen3-modelopt"), module, within.path()) };
    assert!(refusal(&of_mlp).contains("--logits: model.layers.0.mlp has no experts"));
    let same = Args { out: path("x"), ..args(&folder, module, within.path()) };
    assert!(refusal(&same).contains("is what --in reads"));
}

/// No tokens are no rows; tokens of another shape or type are refused.
#[test]
fn tokens_are_what_the_layer_takes() {
    let within = tempfile::tempdir().unwrap();
    let (folder, module) = (fixture("qwen3-modelopt"), "model.layers.0.mlp");
    let args = args(&folder, module, within.path());
    let put = |dtype: Dtype, shape: &[usize]| {
        let bytes = vec![0; shape.iter().product::<usize>() * dtype.bitsize() / 8];
        let view = TensorView::new(dtype, shape.to_vec(), &bytes).unwrap();
        fs::write(&args.input, safetensors::serialize([("x", view)], None).unwrap()).unwrap();
    };
    for (dtype, format) in [(Dtype::F16, Format::F16), (Dtype::BF16, Format::Bf16)] {
        put(dtype, &[0, 64]);
        assert!(run(&args).unwrap());
        put(dtype, &[3, 64]);
        assert_eq!(io::tokens(&args.input, 64).unwrap().format, format);
        assert!(run(&args).unwrap());
        let bytes = fs::read(&args.out).unwrap();
        let y = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!((y.tensor("y").unwrap().dtype(), y.tensor("y").unwrap().shape()), (dtype, &[3, 64][..]));
    }
    for (dtype, shape, expected) in [
        (Dtype::F32, vec![3, 64], "`x` is F32, expected F16 or BF16"),
        (Dtype::F16, vec![3, 63], "`x` has shape [3, 63], expected [tokens, 64]"),
        (Dtype::F16, vec![64], "`x` has shape [64], expected [tokens, 64]"),
    ] {
        put(dtype, &shape);
        let text = run(&args).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}
