//! A forward on candle's memory.

use std::sync::Arc;

use candle_core::cuda::{CudaDType, CudaStorageSlice};
use candle_core::{CudaStorage, Error, Layout, Result, Shape};
use half::{bf16, f16};
use warpsmith::cudarc::driver::{CudaSlice, CudaStream, CudaView, DeviceRepr};
use warpsmith::run::{Matrix, MatrixMut, MemoryMut, Values};
use warpsmith_layers::LayerOperands;

use crate::runtime::refused;

/// A tensor as an operation is given it.
#[derive(Clone, Copy)]
pub(super) struct Memory<'a> {
    pub(super) storage: &'a CudaStorage,
    pub(super) layout: &'a Layout,
    pub(super) op: &'static str,
}

impl<'a> Memory<'a> {
    /// Its values, where they lie.
    pub(super) fn view<T: CudaDType>(&self) -> Result<CudaView<'a, T>> {
        self.of(self.storage.as_cuda_slice::<T>()?)
    }

    fn of<T>(&self, values: &'a CudaSlice<T>) -> Result<CudaView<'a, T>> {
        let (from, to) = self.layout.contiguous_offsets().ok_or(Error::RequiresContiguous { op: self.op })?;
        values.try_slice(from..to).ok_or_else(|| self.is_short())
    }

    fn is_short(&self) -> Error {
        Error::msg(format!("{}: less memory than the layout {:?} says", self.op, self.layout.shape()))
    }

    fn is_other(&self) -> Error {
        use candle_core::backend::BackendStorage;
        Error::UnsupportedDTypeForOp(self.storage.dtype(), self.op).bt()
    }
}

/// Logits.
pub(super) fn values<'a>(given: &Memory<'a>) -> Result<Values<'a>> {
    Ok(match &given.storage.slice {
        CudaStorageSlice::F16(values) => given.of(values)?.into(),
        CudaStorageSlice::BF16(values) => given.of(values)?.into(),
        CudaStorageSlice::F32(values) => given.of(values)?.into(),
        _ => return Err(given.is_other()),
    })
}

/// Numbers of experts: of U32 those from 2³¹ on are none.
pub(super) fn ids<'a>(given: &Memory<'a>) -> Result<warpsmith::run::Memory<'a, i32>> {
    match &given.storage.slice {
        CudaStorageSlice::I32(ids) => given.of(ids).map(Into::into),
        CudaStorageSlice::U32(ids) => {
            let (from, to) = given.layout.contiguous_offsets().ok_or(Error::RequiresContiguous { op: given.op })?;
            // SAFETY: both are four bytes with no bits that mean nothing.
            let all = unsafe { ids.transmute::<i32>(ids.len()) };
            let all = all.and_then(|all| all.try_slice(from..to));
            all.map(Into::into).ok_or_else(|| given.is_short())
        }
        _ => Err(given.is_other()),
    }
}

/// The layer's result for x `[tokens, inputs]`: `[tokens, outputs]` in x's type. Its memory and the workspace are of candle's
/// allocator, in the order of the stream: other threads have streams and workspaces of their own, and of a captured forward they are
/// nodes of the graph.
pub(super) fn forward(
    x: &Memory<'_>,
    outputs: u32,
    workspace_bytes: impl FnOnce(u32) -> u64,
    put: impl FnOnce(&Arc<CudaStream>, LayerOperands<'_>) -> warpsmith::Result<()>,
) -> Result<(CudaStorage, Shape)> {
    match &x.storage.slice {
        CudaStorageSlice::F16(values) => typed::<f16>(x, values, outputs, workspace_bytes, put),
        CudaStorageSlice::BF16(values) => typed::<bf16>(x, values, outputs, workspace_bytes, put),
        _ => Err(x.is_other()),
    }
}

fn typed<T: CudaDType + DeviceRepr>(
    x: &Memory<'_>,
    values: &CudaSlice<T>,
    outputs: u32,
    workspace_bytes: impl FnOnce(u32) -> u64,
    put: impl FnOnce(&Arc<CudaStream>, LayerOperands<'_>) -> warpsmith::Result<()>,
) -> Result<(CudaStorage, Shape)>
where
    for<'v> Matrix<'v>: From<CudaView<'v, T>>,
    for<'v> MatrixMut<'v>: From<&'v mut CudaSlice<T>>,
{
    let device = &x.storage.device;
    let (rows, outputs) = (x.layout.shape().dims2()?.0, outputs as usize);
    let tokens = u32::try_from(rows).map_err(Error::wrap)?;
    let bytes = usize::try_from(workspace_bytes(tokens)).map_err(Error::wrap)?;
    // SAFETY: the layer writes every element.
    let mut out = unsafe { device.alloc::<T>(rows * outputs) }?;
    // SAFETY: what is in a workspace means nothing.
    let mut held = if bytes > 0 { Some(unsafe { device.alloc::<u8>(bytes) }?) } else { None };
    let workspace = match &mut held {
        Some(held) => MemoryMut::from(held),
        // SAFETY: no byte of it is there to be used.
        None => unsafe { MemoryMut::from_raw(0, 0) },
    };
    let (view, result) = (Memory { ..*x }.of(values)?, &mut out);
    let operands = LayerOperands::new(tokens, Matrix::from(view), MatrixMut::from(result), workspace);
    put(&device.cuda_stream(), operands).map_err(refused)?;
    Ok((CudaStorage::wrap_cuda_slice(out, device.clone()), Shape::from((rows, outputs))))
}
