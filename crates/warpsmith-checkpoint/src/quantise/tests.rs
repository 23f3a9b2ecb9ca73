use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use half::bf16;
use safetensors::Dtype;
use safetensors::tensor::{SafeTensors, TensorView};
use tempfile::TempDir;
use warpsmith::format::Nvfp4Tensor;

use super::*;
use crate::{Checkpoint, Mlp, Module, Product, Storage};

/// Tensors of seeded normal numbers.
struct Model {
    random: fastrand::Rng,
    tensors: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
}

impl Model {
    fn new() -> Self {
        Self { random: fastrand::Rng::with_seed(11), tensors: BTreeMap::new() }
    }

    fn with(mut self, name: &str, shape: &[usize]) -> Self {
        let count = shape.iter().product();
        let mut value = || bf16::from_f32((0..12).map(|_| self.random.f32()).sum::<f32>() - 6.0);
        let bytes = (0..count).flat_map(|_| value().to_le_bytes()).collect();
        self.tensors.insert(name.to_owned(), (Dtype::BF16, shape.to_vec(), bytes));
        self
    }

    /// A dense layer of 64 columns.
    fn layer(self, layer: usize) -> Self {
        let of = |name: &str| format!("model.layers.{layer}.{name}.weight");
        self.with(&of("input_layernorm"), &[64])
            .with(&of("self_attn.q_proj"), &[64, 64])
            .with(&of("self_attn.k_proj"), &[32, 64])
            .with(&of("self_attn.v_proj"), &[32, 64])
            .with(&of("self_attn.o_proj"), &[64, 64])
            .with(&of("mlp.gate_proj"), &[96, 64])
            .with(&of("mlp.up_proj"), &[96, 64])
            .with(&of("mlp.down_proj"), &[64, 96])
    }

    /// In so many files, with an index if there are several.
    fn write(&self, folder: &Path, config: &Value, files: usize) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("config.json"), serde_json::to_string_pretty(config).unwrap()).unwrap();
        fs::write(folder.join("tokenizer.json"), "{}").unwrap();
        fs::write(folder.join("generation_config.json"), "").unwrap();
        fs::write(folder.join("pytorch_model.bin"), "weights").unwrap();
        let mut map = Map::new();
        for file in 0..files {
            let name = match files {
                1 => "model.safetensors".to_owned(),
                _ => format!("model-{:05}-of-{files:05}.safetensors", file + 1),
            };
            let own = self.tensors.iter().enumerate().filter(|(at, _)| at % files == file);
            let views = own.map(|(_, (tensor, (dtype, shape, bytes)))| {
                map.insert(tensor.clone(), json!(name));
                (tensor, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
            });
            let notes = [("format".to_owned(), "pt".to_owned())].into();
            fs::write(folder.join(&name), safetensors::serialize(views, Some(notes)).unwrap()).unwrap();
        }
        if files > 1 {
            let index = json!({"metadata": {"total_size": 0}, "weight_map": map});
            fs::write(folder.join(INDEX), index.to_string()).unwrap();
        }
    }
}

fn llama() -> Value {
    json!({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
        "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-05, "torch_dtype": "bfloat16"})
}

/// A model of four experts.
fn experts(architecture: &str) -> Value {
    json!({"architectures": [architecture], "hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 48,
        "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": true,
        "intermediate_size_mlp": 64})
}

/// A folder with a model of two layers in two files, and one for what becomes of it.
fn dense() -> (TempDir, std::path::PathBuf, std::path::PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let (from, to) = (temp.path().join("from"), temp.path().join("to"));
    let model = Model::new().with("model.embed_tokens.weight", &[48, 64]).with("lm_head.weight", &[48, 64]);
    model.layer(0).layer(1).write(&from, &llama(), 2);
    (temp, from, to)
}

fn run(how: &Quantise, from: &Path, to: &Path) -> Result<Quantised> {
    // SAFETY: nobody else knows these folders.
    unsafe { how.run(from, to, |_, _| ()) }
}

fn map(folder: &Path) -> Checkpoint {
    // SAFETY: nobody else knows this folder.
    unsafe { Checkpoint::map(folder).unwrap() }
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

fn values(product: &Product<'_>) -> Vec<f32> {
    let [weight] = product.parts() else { panic!("{product:?}") };
    (0..weight.rows()).flat_map(|row| weight.dequantised(row).unwrap()).collect()
}

fn mlp<'a>(model: &'a Checkpoint, name: &str) -> Mlp<'a> {
    match model.module(name).unwrap() {
        Module::Mlp(mlp) => mlp,
        other => panic!("{other:?}"),
    }
}

/// All products of a model, by their names.
fn products(model: &Checkpoint) -> Vec<(String, Product<'_>)> {
    fn of_mlp<'a>(name: &str, mlp: &Mlp<'a>) -> Vec<(String, Product<'a>)> {
        let all = [("gate", mlp.gate()), ("up", Some(mlp.up())), ("down", Some(mlp.down()))];
        all.into_iter().filter_map(|(part, product)| Some((format!("{name} {part}"), product?.clone()))).collect()
    }
    let of = |name: &String| match model.module(name).unwrap() {
        Module::Linear(product) => vec![(name.clone(), product)],
        Module::Mlp(mlp) => of_mlp(name, &mlp),
        Module::Moe(moe) => {
            let experts = moe.experts().iter().enumerate();
            experts.flat_map(|(expert, mlp)| of_mlp(&format!("{name} {expert}"), mlp)).collect()
        }
    };
    // A table is no product, and configurations say nothing of it.
    model.modules().iter().filter(|name| !name.contains("embed")).flat_map(of).collect()
}

/// By the plain rule, each product is what the core makes of it.
fn is_plain(from: &Path, to: &Path) {
    let (source, made) = (map(from), map(to));
    let (of_source, of_made) = (products(&source), products(&made));
    assert_eq!(of_source.len(), of_made.len());
    let mut quantised = 0;
    for ((name, plain), (of, product)) in of_source.iter().zip(&of_made) {
        assert_eq!(name, of);
        let wanted = values(plain);
        assert_eq!(product.bias().map(|bias| &bias.values), plain.bias().map(|bias| &bias.values), "{name}");
        if product.parts()[0].storage() != Storage::Nvfp4 {
            assert_eq!(values(product), wanted, "{name}");
            continue;
        }
        quantised += 1;
        let tensor = Nvfp4Tensor::quantise(plain.rows(), plain.columns(), &wanted).unwrap();
        for (at, (value, expected)) in values(product).into_iter().zip(tensor.dequantise()).enumerate() {
            assert!((value - expected).abs() <= expected.abs() * 1e-6, "{name} {at}: {value} {expected}");
        }
    }
    assert!(quantised > 0);
}

#[test]
fn a_checkpoint_is_what_was_meant_in_both_layouts() {
    for layout in [Layout::ModelOpt, Layout::CompressedTensors] {
        let (_temp, from, to) = dense();
        let how = Quantise::new().layout(layout);
        let done = run(&how, &from, &to).unwrap();
        assert_eq!((done.weights().len(), done.kept(), done.resumed()), (14, 4, 0));
        assert_eq!(done.left(), ["pytorch_model.bin"]);
        assert!(done.error() < 0.95 * done.plain_error() && done.error() > 0.05, "{}", done.error());

        // What is lost is what is said to be lost.
        let (source, made) = (map(&from), map(&to));
        let (before, after) = (mlp(&source, "model.layers.1.mlp"), mlp(&made, "model.layers.1.mlp"));
        for (before, after) in [(before.up(), after.up()), (before.down(), after.down())] {
            assert_eq!(after.parts()[0].storage(), Storage::Nvfp4);
            let (mut lost, mut all) = (0.0, 0.0);
            for (wanted, found) in values(before).into_iter().zip(values(after)) {
                lost += (f64::from(wanted) - f64::from(found)).powi(2);
                all += f64::from(wanted).powi(2);
            }
            let said = done.weights().iter().find(|weight| weight.name() == after.parts()[0].name()).unwrap();
            assert!((said.error() / (lost / all).sqrt() - 1.0).abs() < 1e-9, "{said:?}");
            assert!(said.error() < said.plain_error());
        }
        // What engines fuse has one factor.
        let factor = |product: &Product<'_>| product.parts()[0].packed().unwrap().factor();
        assert_eq!(factor(after.gate().unwrap()), factor(after.up()));

        // Types and shapes, the index, and all that stays.
        let (old, new) = (files(&from), files(&to));
        let mut size = 0;
        let index: Value = serde_json::from_slice(&new[INDEX]).unwrap();
        for (name, bytes) in new.iter().filter(|(name, _)| name.ends_with(".safetensors")) {
            let (old, new) = (SafeTensors::deserialize(&old[name]).unwrap(), SafeTensors::deserialize(bytes).unwrap());
            let (_, about) = SafeTensors::read_metadata(bytes).unwrap();
            assert_eq!(about.metadata().as_ref().unwrap()["format"], "pt");
            for (tensor, view) in new.tensors() {
                size += view.data().len();
                assert_eq!(index["weight_map"][&tensor], json!(name));
                // Where it lies, its elements are aligned.
                let from = about.info(&tensor).unwrap().data_offsets.0;
                assert!(from.is_multiple_of(view.dtype().bitsize() / 8));
                if let Ok(before) = old.tensor(&tensor)
                    && view.dtype() != Dtype::U8
                {
                    assert_eq!((before.data(), before.shape()), (view.data(), view.shape()), "{tensor}");
                }
                let shape: &[usize] = match tensor.rsplit('.').next().unwrap() {
                    "weight_scale_2" => &[],
                    "weight_global_scale" => &[1],
                    _ => continue,
                };
                assert_eq!((view.dtype(), view.shape()), (Dtype::F32, shape));
            }
        }
        assert_eq!(index["metadata"]["total_size"], json!(size));
        assert_eq!(done.bytes(), size as u64);
        for name in ["tokenizer.json", "generation_config.json"] {
            assert_eq!(old[name], new[name]);
        }
        // The text of the configuration goes on as it was.
        let said = std::str::from_utf8(&new["config.json"]).unwrap();
        let head = std::str::from_utf8(&old["config.json"]).unwrap().rsplit_once('\n').unwrap().0;
        assert!(said.starts_with(head), "{said}");
        let said: Value = serde_json::from_str(said).unwrap();
        assert_eq!(said["quantization_config"]["ignore"], json!(["lm_head"]));
        assert_eq!(new.contains_key("hf_quant_config.json"), layout == Layout::ModelOpt);
    }
}

#[test]
fn the_largest_scale_is_the_cores_rule() {
    for layout in [Layout::ModelOpt, Layout::CompressedTensors] {
        let (_temp, from, to) = dense();
        let how = Quantise::new().layout(layout).scales(Scales::Largest).factors(Factors::Own);
        let done = run(&how, &from, &to).unwrap();
        assert_eq!(done.error(), done.plain_error());
        is_plain(&from, &to);
        // Bit for bit.
        let (source, made) = (map(&from), map(&to));
        let name = "model.layers.0.self_attn.k_proj";
        let (Module::Linear(before), Module::Linear(after)) =
            (source.module(name).unwrap(), made.module(name).unwrap())
        else {
            panic!("two products")
        };
        let tensor = Nvfp4Tensor::quantise(before.rows(), before.columns(), &values(&before)).unwrap();
        let names = [["weight", "weight_packed"], ["weight_scale"; 2]];
        let bytes = names.map(|names| {
            made.folder.tensor(&format!("{name}.{}", names[usize::from(layout != Layout::ModelOpt)])).unwrap().bytes
        });
        assert_eq!(bytes, [tensor.codes(), tensor.scales()]);
        let factor = after.parts()[0].packed().unwrap().factor();
        assert!((factor / tensor.tensor_scale() - 1.0).abs() < 1e-6);
    }
}

/// Stacks become an expert's matrices, whichever way they lie.
#[test]
fn stacks_of_experts_are_split() {
    let straight = [[4, 96, 32], [4, 32, 48]];
    let across = [[4, 32, 96], [4, 48, 32]];
    for (architecture, module, [up, down], has_bias) in [
        ("Qwen3MoeForCausalLM", "mlp", straight, false),
        ("Llama4ForCausalLM", "feed_forward", across, false),
        ("GptOssForCausalLM", "mlp", across, true),
    ] {
        let temp = tempfile::tempdir().unwrap();
        let (from, to) = (temp.path().join("from"), temp.path().join("to"));
        let name = |of: &str| format!("model.layers.0.{module}.{of}");
        let router = if module == "mlp" && !has_bias { "gate.weight" } else { "router.weight" };
        let mut model = Model::new()
            .with(&name("experts.gate_up_proj"), &up)
            .with(&name("experts.down_proj"), &down)
            .with(&name(router), &[4, 32]);
        if has_bias {
            model = model
                .with(&name("experts.gate_up_proj_bias"), &[4, 96])
                .with(&name("experts.down_proj_bias"), &[4, 32])
                .with(&name("router.bias"), &[4]);
        }
        if architecture.starts_with("Llama4") {
            for (part, shape) in [("gate_proj", [48, 32]), ("up_proj", [48, 32]), ("down_proj", [32, 48])] {
                model = model.with(&name(&format!("shared_expert.{part}.weight")), &shape);
            }
        }
        model.write(&from, &experts(architecture), 1);
        let how = Quantise::new().scales(Scales::Largest).factors(Factors::Own).exclude("*.shared_expert");
        let how = if architecture.starts_with("Llama4") { how } else { Quantise { excluded: Vec::new(), ..how } };
        let done = run(&how, &from, &to).unwrap();
        assert_eq!(done.weights().len(), 12, "{architecture}");
        is_plain(&from, &to);

        // Excluded, they stay stacks.
        let whole = temp.path().join("whole");
        let kept = run(&Quantise::new().exclude("*.experts.down_proj"), &from, &whole);
        assert_eq!(kept.is_err(), !architecture.starts_with("Llama4"), "{architecture}");
        if let Ok(kept) = kept {
            assert!(kept.weights().len() == 3 && map(&whole).folder.has(&name("experts.gate_up_proj")));
        }
    }
}

#[test]
fn what_was_stopped_goes_on_to_the_same_bytes() {
    let (temp, from, to) = dense();
    let how = Quantise::new();
    run(&how, &from, &to).unwrap();
    let whole = files(&to);
    for stop in [0.1, 0.3, 0.7, 0.99] {
        let other = temp.path().join(format!("stopped at {stop}"));
        let told = |done, all| {
            if done as f64 > stop * all as f64 {
                // Without a word, as a signal does.
                resume_unwind(Box::new(()));
            }
        };
        // SAFETY: nobody else knows these folders.
        let stopped = catch_unwind(AssertUnwindSafe(|| unsafe { how.run(&from, &other, told) }));
        assert!(stopped.is_err());
        // It is no checkpoint yet.
        let half = files(&other);
        assert!(!half.contains_key("config.json") && half.keys().any(|name| name.ends_with(".part")), "{stop}");
        let again = run(&how.clone().threads(3), &from, &other).unwrap();
        assert_eq!(again.resumed(), usize::from(stop > 0.5), "{stop}");
        assert_eq!(again.weights().len(), 14);
        assert!(files(&other) == whole, "{stop}");
    }
    // What is damaged is made again, and what is whole stays.
    let file = whole.keys().find(|name| name.ends_with(".safetensors")).unwrap();
    let mut bytes = whole[file].clone();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(to.join(file), &bytes).unwrap();
    fs::remove_file(to.join("config.json")).unwrap();
    assert_eq!(run(&how, &from, &to).unwrap().resumed(), 1);
    assert!(files(&to) == whole);
    assert_eq!(run(&how, &from, &to).unwrap().resumed(), 2);
}

/// Of two runs at once the second is refused, and what it leaves is nothing.
#[test]
fn a_folder_has_one_run_at_a_time() {
    let (temp, from, to) = dense();
    let how = Quantise::new();
    let mut refusals = Vec::new();
    // SAFETY: the second run writes nothing; nobody else knows these folders.
    let done = unsafe { how.run(&from, &to, |_, _| refusals.push(run(&how, &from, &to).unwrap_err())) };
    assert_eq!(done.unwrap().resumed(), 0);
    assert!(refusals.len() > 2 && refusals.iter().all(Error::is_data));
    let text = format!("another run is writing {}: wait until it ends, or name another folder", to.display());
    assert!(refusals.iter().all(|error| error.to_string() == text), "{refusals:?}");
    assert_eq!(run(&how, &from, &to).unwrap().resumed(), 2);
    assert!(!to.join(".quantize.lock").exists());
    // Who was killed before there was a state has left these.
    let killed = temp.path().join("killed");
    fs::create_dir(&killed).unwrap();
    for name in [".quantize.lock", ".quantize-.quantize.json.part"] {
        fs::write(killed.join(name), "").unwrap();
    }
    run(&how, &from, &killed).unwrap();
    assert!(files(&killed) == files(&to));
    // What is no file is not locked; and where others' files are, nothing is written.
    let (odd, other) = (temp.path().join("odd"), temp.path().join("other"));
    fs::create_dir_all(odd.join(".quantize.lock")).unwrap();
    let text = run(&how, &from, &odd).unwrap_err().to_string();
    assert!(text.contains("cannot be locked") && text.ends_with("name a folder that files can be locked in"), "{text}");
    fs::create_dir(&other).unwrap();
    for name in ["notes", ".quantize-notes", ".quantize-config.json.part"] {
        fs::write(other.join(name), "").unwrap();
        let text = run(&how, &from, &other).unwrap_err().to_string();
        assert!(text.ends_with("is not empty, and without .quantize.json: name another folder"), "{text}");
        assert_eq!(files(&other).len(), 1);
        fs::remove_file(other.join(name)).unwrap();
    }
}

/// Where a part would be, somebody's link leads to a file that is not this run's.
#[test]
fn no_link_is_written_through() {
    let (temp, from, to) = dense();
    let how = Quantise::new();
    run(&how, &from, &to).unwrap();
    let (whole, theirs) = (files(&to), temp.path().join("theirs"));
    fs::write(&theirs, "theirs").unwrap();
    for name in whole.keys().filter(|name| *name != ".quantize.json") {
        fs::remove_file(to.join(name)).unwrap();
    }
    for name in whole.keys() {
        std::os::unix::fs::symlink(&theirs, to.join(format!(".quantize-{name}.part"))).unwrap();
    }
    assert_eq!(run(&how, &from, &to).unwrap().resumed(), 0);
    assert!(files(&to) == whole && fs::read(&theirs).unwrap() == b"theirs");
    assert!(whole.keys().all(|name| to.join(name).symlink_metadata().unwrap().is_file()));
}

#[test]
fn bytes_are_the_same_for_any_number_of_threads() {
    let temp = tempfile::tempdir().unwrap();
    let from = temp.path().join("from");
    Model::new().with("model.layers.0.self_attn.o_proj.weight", &[301, 256]).write(&from, &llama(), 1);
    let made = [1, 2, 3, 64].map(|threads| {
        let to = temp.path().join(threads.to_string());
        let done = run(&Quantise::new().threads(threads), &from, &to).unwrap();
        (files(&to), done.error().to_bits())
    });
    assert!(made.iter().all(|other| *other == made[0]));
}

#[test]
fn zeros_and_narrow_layers() {
    let temp = tempfile::tempdir().unwrap();
    let (from, to) = (temp.path().join("from"), temp.path().join("to"));
    let mut model = Model::new()
        .with("model.layers.0.mlp.down_proj.weight", &[64, 96])
        .with("model.layers.0.mlp.up_proj.weight", &[96, 24]);
    model.tensors.get_mut("model.layers.0.mlp.down_proj.weight").unwrap().2.fill(0);
    model.write(&from, &llama(), 1);
    let done = run(&Quantise::new(), &from, &to).unwrap();
    assert_eq!((done.weights().len(), done.error(), done.kept()), (1, 0.0, 1));
    let made = map(&to);
    let scales = made.folder.tensor("model.layers.0.mlp.down_proj.weight_scale").unwrap();
    assert!(scales.bytes.iter().all(|scale| *scale == 0x38));
    let said = object(&to, CONFIG).unwrap().unwrap();
    assert_eq!(said["quantization_config"]["ignore"], json!(["lm_head", "model.layers.0.mlp.up_proj"]));
}

/// No bytes bound the other extents: what counts through them would not end.
#[test]
fn shapes_without_elements_are_refused() {
    let many = 1 << 12;
    let refused = |model: Model, config: Value, empty: &str| {
        let temp = tempfile::tempdir().unwrap();
        let (from, to) = (temp.path().join("from"), temp.path().join("to"));
        model.write(&from, &config, 1);
        let text = run(&Quantise::new(), &from, &to).unwrap_err().to_string();
        assert!(text.contains(&format!("tensor `{empty}` has shape [{many}, 0")), "{text}");
        assert!(text.ends_with("expected extents of at least 1"), "{text}");
        assert!(!to.exists());
    };
    let matrix = "model.layers.0.mlp.down_proj.weight";
    refused(Model::new().with(matrix, &[many, 0]), llama(), matrix);
    let [up, down] = ["gate_up_proj", "down_proj"].map(|of| format!("model.layers.0.mlp.experts.{of}"));
    let model = Model::new().with(&up, &[4, 96, 32]).with(&down, &[many, 0, 64]);
    refused(model, experts("Qwen3MoeForCausalLM"), &down);
}

/// Biases of a stack, whichever way it lies and whichever of both comes first, are as its matrices are.
#[test]
fn biases_that_are_not_those_of_their_stack() {
    let name = |of: &str| format!("model.layers.0.mlp.experts.{of}");
    let stack = |architecture: &str| match architecture {
        "GptOssForCausalLM" => [4, 32, 96],
        _ => [4, 96, 32],
    };
    let refused = |architecture: &str, stack: &[usize], dtype: Dtype, shape: &[usize], why: &str| {
        let bytes = vec![0; shape.iter().product::<usize>() * dtype.bitsize() / 8];
        let bias = name("gate_up_proj_bias");
        let mut model = Model::new().with(&name("down_proj"), &[4, 32, 48]).with(&name("gate_up_proj"), stack);
        model.tensors.insert(bias.clone(), (dtype, shape.to_vec(), bytes));
        if stack.is_empty() {
            model.tensors.remove(&name("gate_up_proj"));
        }
        for files in [1, 2] {
            let temp = tempfile::tempdir().unwrap();
            let (from, to) = (temp.path().join("from"), temp.path().join("to"));
            model.write(&from, &experts(architecture), files);
            let text = run(&Quantise::new(), &from, &to).unwrap_err().to_string();
            assert!(text.contains(why), "{text}");
            assert!(!to.exists());
        }
    };
    for architecture in ["GptOssForCausalLM", "Qwen3MoeForCausalLM"] {
        let stack = stack(architecture);
        for dtype in [Dtype::F4, Dtype::F6_E2M3, Dtype::F8_E4M3, Dtype::F64] {
            let why = format!("_bias` is {dtype}, expected F16 or BF16 or F32");
            refused(architecture, &stack, dtype, &[4, 96], &why);
        }
        for shape in [[4, 95], [4, 32], [3, 96], [5, 96], [1 << 12, 0]] {
            let why = format!("_bias` has shape {shape:?}, expected [4, 96]");
            refused(architecture, &stack, Dtype::BF16, &shape, &why);
        }
        refused(architecture, &[], Dtype::BF16, &[4, 96], "gate_up_proj` is missing");
        refused(architecture, &[4, 96], Dtype::BF16, &[4, 96], "has shape [4, 96], expected a stack of matrices");
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    #[track_caller]
    fn refused(how: &Quantise, from: &Path, to: &Path, why: &str) -> Error {
        let error = run(how, from, to).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        error
    }
    let (temp, from, to) = dense();
    let how = Quantise::new();
    // Folders.
    assert!(refused(&how, &from, &from, "or in it: name another folder").is_data());
    refused(&how, &from, &from.join("new/below"), "or in it: name another folder");
    let link = temp.path().join("link");
    std::os::unix::fs::symlink(&from, &link).unwrap();
    refused(&how, &from, &link.join("new"), "or in it: name another folder");
    assert!(!from.join("new").exists());
    refused(&how, &from, temp.path(), "is not empty, and without .quantize.json: name another folder");
    refused(&how, &from.join("none"), &to, "config.json is missing");
    // Files of tensors that are called as what a run writes besides.
    let (first, index) = ("model-00001-of-00002.safetensors", fs::read_to_string(from.join(INDEX)).unwrap());
    for file in [".quantize.json", ".quantize-config.json.part"] {
        fs::rename(from.join(first), from.join(file)).unwrap();
        fs::write(from.join(INDEX), index.replace(first, file)).unwrap();
        refused(&how, &from, &to, &format!("is said to be in {file:?}: not a .safetensors file"));
        fs::rename(from.join(file), from.join(first)).unwrap();
    }
    fs::write(from.join(INDEX), index).unwrap();
    assert!(!to.exists());
    // Names.
    refused(&how.clone().exclude("*.up_porj"), &from, &to, "`*.up_porj` is excluded: no tensor is called so");
    refused(&how.clone().exclude("model.layers"), &from, &to, "no weight is to be quantised");
    assert!(!to.exists());
    // Other arguments, other files.
    run(&how, &from, &to).unwrap();
    let other = how.clone().layout(Layout::CompressedTensors);
    refused(&other, &from, &to, "was begun with `layout` \"modelopt\", not \"compressed-tensors\"");
    refused(&how.clone().exclude("*.o_proj"), &from, &to, "was begun with `exclude` []");
    fs::write(from.join("tokenizer.json"), "{ }").unwrap();
    refused(&how, &from, &to, "was begun with `source` other files");
    // What is quantised already.
    assert!(refused(&how, &to, &temp.path().join("twice"), "it is quantised already").is_unsupported());

    // Values.
    let (name, shape) = ("model.layers.0.mlp.down_proj.weight", [64, 96]);
    for (value, word) in [(bf16::NAN, "NaN"), (bf16::NEG_INFINITY, "-inf")] {
        let mut model = Model::new().with(name, &shape);
        let at = 3 * 96 + 5;
        let bytes = &mut model.tensors.get_mut(name).unwrap().2;
        bytes[2 * at..][..2].copy_from_slice(&value.to_le_bytes());
        let from = temp.path().join(word);
        model.write(&from, &llama(), 1);
        let why = format!("weight `model.layers.0.mlp.down_proj`: the value at row 3, column 5 is {word}");
        assert!(refused(&how, &from, &temp.path().join(format!("of {word}")), &why).is_data());
    }
    // Formats.
    let mut model = Model::new().with(name, &shape);
    let tensor = model.tensors.get_mut(name).unwrap();
    (tensor.0, tensor.2) = (Dtype::I8, vec![0; 64 * 96]);
    let from = temp.path().join("I8");
    model.write(&from, &llama(), 1);
    refused(&how, &from, &temp.path().join("of I8"), "is I8, expected F16 or BF16 or F32");
}
