//! Tensors as weights of layers: copied, since a tensor's memory cannot be given away.

use std::sync::Arc;

use candle_core::cuda::{CudaDType, CudaStorageSlice};
use candle_core::{CudaStorage, DType, Error, Layout, Result, Storage, Tensor};
use half::{bf16, f16};
use warpsmith::cudarc::driver::{CudaSlice, CudaStream, DeviceRepr};
use warpsmith_layers::{MlpWeights, MoeWeights, Quantised};

use crate::weights::{Factor, Nvfp4MlpWeights, Nvfp4MoeWeights, Nvfp4Weight};

const OP: &str = "weights";

pub(super) fn moe(stream: &Arc<CudaStream>, of: &Nvfp4MoeWeights) -> Result<MoeWeights> {
    let mut weights = MoeWeights::new(mlp(stream, &of.experts)?).scale(of.scale);
    if let Some(shared) = &of.shared {
        weights = weights.shared(mlp(stream, shared)?);
    }
    if let Some(gate) = &of.shared_gate {
        weights = weights.shared_gate(copied::<f32>(stream, gate)?);
    }
    if let Some(bias) = &of.router_bias {
        weights = weights.router_bias(copied::<f32>(stream, bias)?);
    }
    Ok(weights)
}

pub(super) fn mlp(stream: &Arc<CudaStream>, of: &Nvfp4MlpWeights) -> Result<MlpWeights> {
    let gate = of.gate.as_ref().map(|gate| quantised(stream, gate)).transpose()?;
    let (up, down) = (quantised(stream, &of.up)?, quantised(stream, &of.down)?);
    Ok(match gate {
        Some(gate) => MlpWeights::gated(gate, up, down),
        None => MlpWeights::ungated(up, down),
    })
}

pub(super) fn quantised(stream: &Arc<CudaStream>, of: &Nvfp4Weight) -> Result<Quantised> {
    let weights = Quantised::new(bytes(stream, &of.codes)?, bytes(stream, &of.scales)?);
    let weights = match &of.factor {
        Factor::One(factor) => weights.alpha(*factor),
        Factor::Each(factors) => weights.alpha(copied::<f32>(stream, factors)?),
    };
    let weights = match &of.row_factors {
        Some(factors) => weights.row_scale(copied::<f32>(stream, factors)?),
        None => weights,
    };
    let Some(bias) = &of.bias else { return Ok(weights) };
    Ok(match bias.dtype() {
        DType::F16 => weights.bias(copied::<f16>(stream, bias)?),
        DType::BF16 => weights.bias(copied::<bf16>(stream, bias)?),
        _ => weights.bias(copied::<f32>(stream, bias)?),
    })
}

/// Bytes, or e4m3 values as such.
fn bytes(stream: &Arc<CudaStream>, of: &Tensor) -> Result<CudaSlice<u8>> {
    on_device(of, |storage, layout| {
        let (from, to) = layout.contiguous_offsets().ok_or(Error::RequiresContiguous { op: OP })?;
        let copied = match &storage.slice {
            CudaStorageSlice::U8(bytes) => stream.clone_dtod(&bytes.slice(from..to)),
            CudaStorageSlice::F8E4M3(values) => {
                // SAFETY: a value is one byte, and every byte is a u8.
                let bytes = unsafe { values.slice(from..to).transmute::<u8>(to - from) };
                stream.clone_dtod(&bytes.ok_or_else(|| Error::msg("less memory than the layout says"))?)
            }
            _ => return Err(Error::UnsupportedDTypeForOp(of.dtype(), OP).bt()),
        };
        copied.map_err(Error::wrap)
    })
}

fn copied<T: CudaDType + DeviceRepr>(stream: &Arc<CudaStream>, of: &Tensor) -> Result<CudaSlice<T>> {
    on_device(of, |storage, layout| {
        let (from, to) = layout.contiguous_offsets().ok_or(Error::RequiresContiguous { op: OP })?;
        stream.clone_dtod(&storage.as_cuda_slice::<T>()?.slice(from..to)).map_err(Error::wrap)
    })
}

fn on_device<R>(of: &Tensor, read: impl FnOnce(&CudaStorage, &Layout) -> Result<R>) -> Result<R> {
    let of = of.contiguous()?;
    let (storage, layout) = of.storage_and_layout();
    match &*storage {
        Storage::Cuda(storage) => read(storage, layout),
        _ => candle_core::bail!("{OP}: not on a CUDA device"),
    }
}
