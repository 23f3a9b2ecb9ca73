//! One module of a checkpoint on the device that there is.
//!
//! ```text
//! cargo run --example layer -- Qwen3-30B-A3B-NVFP4 model.layers.0.mlp 32
//! cargo run --example layer --features cuda -- …
//! ```

#![allow(clippy::print_stdout)]

use std::env;
use std::error::Error;
use std::time::Instant;

use warpsmith_candle::candle_core::{DType, Device, Module, Tensor};
use warpsmith_candle::warpsmith_checkpoint::{Checkpoint, Module as Found};
use warpsmith_candle::{Nvfp4GatedMlp, Nvfp4Linear, Nvfp4Moe, Runtime, Tokens};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [folder, name, tokens] = &args[..] else { return Err("give a folder, a module and a number of tokens".into()) };
    let tokens: usize = tokens.parse()?;

    let device = Device::cuda_if_available(0)?;
    let runtime = Runtime::new(&device)?;
    // SAFETY: whoever runs this changes no file of the checkpoint meanwhile.
    let model = unsafe { Checkpoint::map(folder)? };

    let start = Instant::now();
    let mut columns = model.config().hidden_size();
    let limit = Tokens::up_to(u32::try_from(tokens)?).dtype(DType::BF16);
    let layer: Box<dyn Module> = match model.module(name)? {
        Found::Linear(product) => {
            columns = product.columns();
            Box::new(Nvfp4Linear::of(&product, &runtime, limit)?)
        }
        Found::Mlp(mlp) => Box::new(Nvfp4GatedMlp::of(&mlp, &runtime, limit)?),
        Found::Moe(moe) => Box::new(Nvfp4Moe::of(&moe, &runtime, limit)?),
        _ => return Err(format!("{name} is of another kind").into()),
    };
    println!("{name} of {}: there in {:.2?}", model.config(), start.elapsed());

    let x = Tensor::randn(0f32, 1.0, (1, tokens, columns), &device)?.to_dtype(DType::BF16)?;
    for turn in ["first", "next"] {
        device.synchronize()?;
        let start = Instant::now();
        let y = layer.forward(&x)?;
        device.synchronize()?;
        println!("the {turn} forward: {:?} to {:?} in {:.2?}", x.shape(), y.shape(), start.elapsed());
    }
    println!("{}", layer.forward(&x)?);
    Ok(())
}
