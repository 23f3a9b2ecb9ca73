//! What an engine does with warpsmith, on the cudarc of its own build. It is only checked: nothing is linked or run.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use warpsmith::engine::{Engine, Plan};
use warpsmith::run::{Device, Operands, Weights, Workspace};
use warpsmith::spec::Problem;

/// A layer on the context that the engine has.
///
/// # Errors
/// Those of the engine and the plan.
pub fn layer(
    context: &Arc<CudaContext>,
    stream: &Arc<CudaStream>,
    b: (CudaSlice<u8>, CudaSlice<u8>),
) -> warpsmith::Result<(Plan, Weights<'static>)> {
    let engine = Engine::new(&Device::of_context(context)?);
    let problem = engine.native(&Problem::gemm().n(4096).k(4096).bf16());
    Ok((engine.plan(&problem)?, engine.weights(stream, &problem, [b])?))
}

/// One call of it.
///
/// # Errors
/// Those of the launch.
pub fn forward(
    (plan, weights): &(Plan, Weights<'static>),
    stream: &Arc<CudaStream>,
    x: &warpsmith::run::Shared<half::bf16>,
    y: &mut CudaSlice<half::bf16>,
    workspace: &mut Workspace,
) -> warpsmith::Result<()> {
    let m = u32::try_from(x.elements() / 4096).unwrap_or(u32::MAX);
    plan.launch(stream, Operands::new(m, x, weights, y).workspace(workspace))
}

/// The types are the same, whichever way they are named.
pub fn same(context: Arc<CudaContext>) -> Arc<warpsmith::cudarc::driver::CudaContext> {
    context
}
