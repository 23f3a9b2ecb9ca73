//! A layer by its kernels.

use warpsmith::cache::KernelCache;
use warpsmith::internal::Raise;
use warpsmith::run::Device;
use warpsmith_checkpoint::{Module, Uploader};
use warpsmith_layers::{GatedMlp, LayerConfig, Linear, Moe};
use warpsmith_tune::layer::{DeviceLayer, DeviceTokens, HostTokens};

use super::routing::Routing;
use super::{Job, host};
use crate::shared::gpu::Gpu;
use crate::shared::{Result, bar};

/// The result, and how far the first and the last token are off, in bounds, or what of them is wrong.
pub(super) fn run(job: &Job<'_>, device: &Device) -> Result<(Vec<u8>, warpsmith::Result<f64>)> {
    let tokens = job.tokens;
    if tokens.count == 0 {
        return Ok((Vec::new(), Ok(0.0)));
    }
    let config = job.module.layer(tokens.format)?;
    let gpu = Gpu::new(device, KernelCache::builder().install_if_missing().build())?;
    let (engine, stream) = (gpu.engine(), gpu.stream());
    let limit = u32::try_from(tokens.count)?;

    let progress = bar(job.module.bytes() as usize, "bytes uploaded");
    let mut uploader = Uploader::new(stream)?.progress(|bytes| progress.set_position(bytes));
    let layer = match (job.module, &config) {
        (Module::Linear(of), LayerConfig::Linear(config)) => {
            DeviceLayer::Linear(Linear::new(engine, stream, config, uploader.product(of)?, limit)?)
        }
        (Module::Mlp(of), LayerConfig::Mlp(config)) => {
            DeviceLayer::Mlp(GatedMlp::new(engine, stream, config, uploader.mlp(of)?, limit)?)
        }
        (Module::Moe(of), LayerConfig::Moe(config)) => {
            DeviceLayer::Moe(Moe::new(engine, stream, config, uploader.moe(of)?, limit)?)
        }
        _ => return Err(warpsmith::Error::internal(format!("{config}: no layer of this module")).into()),
    };
    drop(uploader);
    progress.finish_and_clear();

    let logits = match &job.routing {
        Some(Routing::Logits(logits)) => logits.clone(),
        _ => Vec::new(),
    };
    let given = HostTokens::given(&config, tokens.values.clone(), logits);
    let mut room = DeviceTokens::new(stream, &layer, &given, layer.workspace_bytes(limit))?;
    match &job.routing {
        Some(Routing::Given(ids, weights)) => {
            let (ids, weights) = (stream.clone_htod(ids)?, stream.clone_htod(weights)?);
            layer.forward_chosen(stream, &mut room, &ids, &weights)?;
        }
        _ => layer.forward(stream, &mut room, None)?,
    }
    let found = room.found(stream, &layer)?;
    let mut which = vec![0, tokens.count - 1];
    which.dedup();
    let columns: Vec<usize> = (0..given.columns()[1]).collect();
    let worst = found.check(&host::reference(job, &which)?, &which, &columns);
    Ok((found.bytes, worst))
}
