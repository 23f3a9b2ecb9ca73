//! Parts of weights, fused ones, and what becomes of them on a device, which here is the host.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers outside `#[test]` functions

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{HIDDEN, INTERMEDIATE, MLP, Model, map};
use cudarc::driver::CudaStream;
use safetensors::Dtype;
use serde_json::json;
use warpsmith::format::Format;
use warpsmith::internal::format::{BLOCK, e2m1, e4m3};
use warpsmith::run::Device;
use warpsmith_checkpoint::{Mlp, Module, Multiplier, Product, Storage, Uploader};
use warpsmith_testing::checkpoints::{QKV, mxfp4_qkv};
use warpsmith_testing::null::Null;

fn mlp(module: Module<'_>) -> Mlp<'_> {
    let Module::Mlp(mlp) = module else { panic!("no MLP") };
    mlp
}

fn linear(module: Module<'_>) -> Product<'_> {
    let Module::Linear(linear) = module else { panic!("no linear layer") };
    linear
}

fn bits(product: &Product<'_>) -> Vec<u32> {
    product.dequantised().unwrap().into_iter().map(f32::to_bits).collect()
}

/// Rows and columns of a part are those of the whole.
#[test]
fn parts_are_of_the_whole() {
    let dir = Model::llama().write();
    let model = map(dir.path()).unwrap();
    let whole = mlp(model.module(MLP).unwrap());
    let (up, down) = (bits(whole.up()), bits(whole.down()));
    for rank in 0..2 {
        let own = rank * 16..(rank + 1) * 16;
        let part = whole.clone().some_intermediate(own.clone()).unwrap();
        assert_eq!((part.intermediate_size(), part.hidden_size()), (16, HIDDEN));
        assert_eq!(bits(part.up()), up[own.start * HIDDEN..own.end * HIDDEN]);
        let columns = down.chunks(INTERMEDIATE).flat_map(|row| row[own.clone()].to_vec());
        assert_eq!(bits(part.down()), columns.collect::<Vec<_>>());
    }
    for (range, expected) in [(8..16, "multiples of the block's 16"), (16..48, "there are 32"), (32..48, "there are")] {
        let text = whole.clone().some_intermediate(range.clone()).unwrap_err().to_string();
        assert!(text.contains(expected), "{range:?}: {text}");
    }
}

/// q, k and v, in three tensors or in one.
#[test]
fn projections_are_fused_and_apart() {
    let name = |part: &str| format!("model.layers.0.self_attn.{part}");
    let mut apart = Model::llama();
    apart.config["num_key_value_heads"] = json!(2);
    for (seed, (part, n, factor)) in
        [("q_proj", 64, 1.0), ("k_proj", 32, 2.0), ("v_proj", 32, 2.0)].into_iter().enumerate()
    {
        apart.nvfp4(&name(part), n, HIDDEN, factor, 40 + seed as u64);
    }
    let dir = apart.write();
    let model = map(dir.path()).unwrap();
    let fused = linear(model.module(&name("qkv_proj")).unwrap());
    let all: Vec<_> = ["q_proj", "k_proj", "v_proj"]
        .iter()
        .flat_map(|part| bits(&linear(model.module(&name(part)).unwrap())))
        .collect();
    assert_eq!((fused.rows(), bits(&fused)), (128, all.clone()));
    let layer = Module::Linear(fused.clone()).layer(Format::Bf16).unwrap();
    assert_eq!(layer.to_string(), "linear:bf16:n128:k64:row_scale");
    // A part over a seam.
    let part = fused.some_rows(60..100).unwrap();
    assert_eq!(bits(&part), all[60 * HIDDEN..100 * HIDDEN]);

    let mut one = Model::llama();
    one.config["num_key_value_heads"] = json!(2);
    one.nvfp4(&name("qkv_proj"), 128, HIDDEN, 1.0, 50);
    let dir = one.write();
    let model = map(dir.path()).unwrap();
    let all = bits(&linear(model.module(&name("qkv_proj")).unwrap()));
    assert_eq!(bits(&linear(model.module(&name("k_proj")).unwrap())), all[64 * HIDDEN..96 * HIDDEN]);
    one.config["num_key_value_heads"] = json!(4);
    let dir = one.write();
    let text = map(dir.path()).unwrap().module(&name("v_proj")).unwrap_err().to_string();
    assert!(text.contains("has 128 rows, the configuration's heads 192"), "{text}");
}

/// Two e8m0 scales of 32 are four e4m3 scales over a power of two; a wider range stays MXFP4.
#[test]
fn mxfp4_becomes_nvfp4_without_a_loss_or_stays() {
    let name = format!("{MLP}.down_proj");
    let with = |scales: [u8; 2], codes: [u8; 2]| {
        let mut model = Model::llama();
        model.config = json!({ "architectures": ["LlamaForCausalLM"], "hidden_size": 2, "intermediate_size": 64 });
        model.tensors.clear();
        let codes = [vec![codes[0]; 16], vec![codes[1]; 16]].concat();
        model.put(&format!("{name}.weight_packed"), Dtype::U8, &[1, 32], codes);
        model.put(&format!("{name}.weight_scale"), Dtype::U8, &[1, 2], scales.to_vec());
        model.write()
    };
    let read = |dir: &std::path::Path| -> warpsmith::Result<(Vec<f32>, f32)> {
        let model = map(dir)?;
        let down = linear(model.module(&name)?);
        let part = &down.parts()[0];
        assert_eq!(part.storage(), Storage::Mxfp4);
        let packed = part.packed()?;
        assert_eq!((packed.rows(), packed.columns()), (1, 64));
        Ok((part.dequantised(0)?, packed.factor()))
    };
    // 1.5 and −6 by code; 2^(127 − 127) and 2^(110 − 127).
    let (values, factor) = read(with([127, 110], [0x33, 0xFF]).path()).unwrap();
    assert_eq!((values[0], values[63]), (1.5, -6.0 * 2f32.powi(-17)));
    assert_eq!(factor, 2f32.powi(-8));
    assert!(read(with([127, 110 - 1], [0x33, 0xFF]).path()).unwrap_err().is_unsupported());
    // Zeros have any scale, of either sign.
    let (values, _) = read(with([127, 3], [0x33, 0x80]).path()).unwrap();
    assert_eq!((values[0], values[63]), (1.5, 0.0));
    assert!(read(with([127, 255], [0x33, 0x33]).path()).unwrap_err().to_string().contains("row 0, block 1 is NaN"));

    // What does not become NVFP4 stays as it is: in bf16 all of it, in f16 what that has.
    let layer = |scales, codes, format| -> warpsmith::Result<String> {
        let dir = with(scales, codes);
        let model = map(dir.path())?;
        Ok(model.module(&name)?.layer(format)?.to_string())
    };
    assert_eq!(layer([127, 110], [0x33, 0xFF], Format::F16).unwrap(), "linear:f16:n1:k64");
    assert_eq!(layer([127, 109], [0x33, 0xFF], Format::F16).unwrap(), "linear:f16:n1:k64:mxfp4");
    assert_eq!(layer([140, 104], [0x33, 0xFF], Format::F16).unwrap(), "linear:f16:n1:k64:mxfp4");
    assert_eq!(layer([141, 104], [0x80, 0xFF], Format::F16).unwrap(), "linear:f16:n1:k64", "zeros");
    assert_eq!(layer([254, 0], [0x33, 0xFF], Format::Bf16).unwrap(), "linear:bf16:n1:k64:mxfp4");
    for scales in [[141, 110], [127, 103]] {
        let error = layer(scales, [0x33, 0xFF], Format::F16).unwrap_err();
        assert!(error.is_unsupported() && error.to_string().contains("f16 tokens take 2^-23 to 2^13"), "{error}");
    }
    assert!(layer([127, 255], [0x33, 0x33], Format::Bf16).unwrap_err().is_data());

    // It is uploaded as it lies in the file.
    Null::driver();
    let stream: Arc<CudaStream> = Device::open(0).unwrap().context().new_stream().unwrap();
    for (scales, bytes) in [([127, 110], 32 + 4), ([254, 0], 32 + 2)] {
        let dir = with(scales, [0x33, 0xFF]);
        let model = map(dir.path()).unwrap();
        let down = linear(model.module(&name).unwrap());
        let mut sent = 0;
        let mut uploader = Uploader::new(&stream).unwrap().progress(|all| sent = all);
        drop(uploader.product(&down).unwrap());
        drop(uploader);
        assert_eq!((sent, Module::Linear(down).bytes()), (bytes, bytes), "{scales:?}");
    }
}

/// Of parts in MXFP4 each becomes NVFP4 with a power of two of its own: what is uploaded, times it, is what the files have.
#[test]
fn fused_mxfp4_has_the_factor_of_each_part() {
    Null::driver();
    let stream: Arc<CudaStream> = Device::open(0).unwrap().context().new_stream().unwrap();
    for exponents in [[127, 120, 131], [127, 127, 127]] {
        let dir = tempfile::tempdir().unwrap();
        mxfp4_qkv(dir.path(), exponents);
        let model = map(dir.path()).unwrap();
        let fused = linear(model.module(QKV).unwrap());
        let factors = match fused.multiplier().unwrap() {
            Multiplier::All(factor) => vec![factor; fused.rows()],
            Multiplier::Rows(factors) => factors,
        };
        let differ = exponents[0] != exponents[1];
        assert_eq!(matches!(fused.multiplier().unwrap(), Multiplier::Rows(_)), differ);
        // The host multiplies values that have it all.
        assert_eq!(fused.row_factors(), None);
        let layer = Module::Linear(fused.clone()).layer(Format::Bf16).unwrap().to_string();
        assert_eq!(layer, format!("linear:bf16:n128:k64{}", if differ { ":row_scale" } else { "" }));

        let [codes, scales] = Uploader::new(&stream).unwrap().uploaded(&fused).unwrap();
        let [codes, scales] = [codes, scales].map(|bytes| stream.clone_dtoh(&bytes).unwrap());
        let scale = |at: usize| e4m3::decode(scales[at / BLOCK]) * factors[at / fused.columns()];
        let code = |at: usize| e2m1::decode(codes[at / 2] >> (4 * (at % 2)) & 15);
        let values: Vec<_> = (0..2 * codes.len()).map(|at| (code(at) * scale(at)).to_bits()).collect();
        assert_eq!(values, bits(&fused), "{exponents:?}");
        // A part of it, over a seam, has those of its rows.
        let part = fused.clone().some_rows(60..100).unwrap();
        let expected = if differ { Multiplier::Rows(factors[60..100].to_vec()) } else { Multiplier::All(factors[0]) };
        assert_eq!(part.multiplier().unwrap(), expected);
        let mut sent = 0;
        let mut uploader = Uploader::new(&stream).unwrap().progress(|all| sent = all);
        let text = format!("{:?}", uploader.product(&fused).unwrap());
        drop(uploader);
        assert_eq!((sent, text.contains("row_scale: None")), (128 * 32 + 128 * 4, !differ), "{text}");
    }
}

/// What is uploaded through small buffers is what lies in the file.
#[test]
fn an_upload_is_what_the_file_has() {
    Null::driver();
    let stream: Arc<CudaStream> = Device::open(0).unwrap().context().new_stream().unwrap();
    let model = Model::llama();
    let dir = model.write();
    let checkpoint = map(dir.path()).unwrap();
    let whole = mlp(checkpoint.module(MLP).unwrap());
    let bytes = 3 * (HIDDEN * INTERMEDIATE / 2 + HIDDEN * INTERMEDIATE / 16);
    for buffer in [2, 7, 1000, 1 << 20] {
        let mut told = Vec::new();
        let mut uploader = Uploader::with_buffers(&stream, buffer).unwrap().progress(|sent| told.push(sent));
        drop(uploader.mlp(&whole).unwrap());
        assert_eq!(Module::Mlp(whole.clone()).bytes(), bytes as u64);
        let [codes, scales] = uploader.uploaded(whole.up()).unwrap();
        // Columns of rows that are longer.
        let part = whole.clone().some_intermediate(16..32).unwrap();
        let of_columns = uploader.uploaded(part.down()).unwrap().map(|bytes| stream.clone_dtoh(&bytes).unwrap());
        drop(uploader);
        for (found, (end, per)) in of_columns.iter().zip([("weight", 2), ("weight_scale", 16)]) {
            let all = &model.tensors[&format!("{MLP}.down_proj.{end}")].2;
            let rows = all.chunks(INTERMEDIATE / per).flat_map(|row| &row[16 / per..]);
            assert!(found.iter().eq(rows), "{end}, {buffer}");
        }
        let name = format!("{MLP}.up_proj");
        assert_eq!(stream.clone_dtoh(&codes).unwrap(), model.tensors[&format!("{name}.weight")].2);
        assert_eq!(stream.clone_dtoh(&scales).unwrap(), model.tensors[&format!("{name}.weight_scale")].2);
        assert!(told.is_sorted() && told.contains(&(bytes as u64)), "{told:?}");
    }
    // By several threads, where it is worth them.
    let mut large = Model::llama();
    large.config["intermediate_size"] = json!(1 << 17);
    for (name, n, k) in [("gate_proj", 1 << 17, HIDDEN), ("up_proj", 1 << 17, HIDDEN), ("down_proj", HIDDEN, 1 << 17)] {
        large.nvfp4(&format!("{MLP}.{name}"), n, k, 1.0, 9);
    }
    let of_large = large.write();
    let checkpoint = map(of_large.path()).unwrap();
    let three = std::num::NonZero::new(3).unwrap();
    let mut uploader = Uploader::with_buffers(&stream, (3 << 20) + 5).unwrap().threads(three);
    let [codes, _] = uploader.uploaded(mlp(checkpoint.module(MLP).unwrap()).up()).unwrap();
    assert!(stream.clone_dtoh(&codes).unwrap() == large.tensors[&format!("{MLP}.up_proj.weight")].2);
    let text = Uploader::with_buffers(&stream, 0).unwrap_err().to_string();
    assert!(text.contains("at least 2"), "{text}");
    // A NaN is no scale.
    let mut model = model;
    model.tensors.get_mut(&format!("{MLP}.down_proj.weight_scale")).unwrap().2[1] = 0xFF;
    let dir = model.write();
    let checkpoint = map(dir.path()).unwrap();
    let whole = mlp(checkpoint.module(MLP).unwrap());
    for buffers in [64, 1 << 20] {
        let mut uploader = Uploader::with_buffers(&stream, buffers).unwrap().threads(three);
        let error = uploader.mlp(&whole).unwrap_err();
        assert!(error.to_string().contains("row 0, block 1 is NaN"), "{error}");
        // What had begun is forgotten.
        let [codes, scales] = uploader.uploaded(whole.up()).unwrap();
        assert_eq!(stream.clone_dtoh(&codes).unwrap(), model.tensors[&format!("{MLP}.up_proj.weight")].2);
        assert_eq!(stream.clone_dtoh(&scales).unwrap(), model.tensors[&format!("{MLP}.up_proj.weight_scale")].2);
        let times = uploader.times();
        assert!(times.threads > Duration::ZERO && times.copying > Duration::ZERO, "{times:?}");
    }
}
