//! Layers as operations of candle's.

use candle_core::{CpuStorage, CudaStorage, CustomOp1, CustomOp2, CustomOp3, Layout, Result, Shape};

use super::forward::{Memory, forward, ids, values};

/// A product.
#[derive(Debug)]
pub(crate) struct Linear(pub(super) warpsmith_layers::Linear);

/// Up and down.
#[derive(Debug)]
pub(crate) struct GatedMlp(pub(super) warpsmith_layers::GatedMlp);

/// Experts.
#[derive(Debug)]
pub(crate) struct Moe(pub(super) warpsmith_layers::Moe);

/// Experts chosen by logits.
pub(crate) struct ByLogits<'a>(pub(crate) &'a Moe);

/// Experts that are chosen.
pub(crate) struct ByIds<'a>(pub(crate) &'a Moe);

const LINEAR: &str = "warpsmith-linear";
const MLP: &str = "warpsmith-mlp";
const MOE: &str = "warpsmith-moe";

/// A layer on a GPU is given tensors of that GPU.
fn not_here(op: &'static str) -> Result<(CpuStorage, Shape)> {
    candle_core::bail!("{op}: the layer is on a CUDA device, x on the CPU")
}

impl CustomOp1 for Linear {
    fn name(&self) -> &'static str {
        LINEAR
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        not_here(LINEAR)
    }

    fn cuda_fwd(&self, x: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let [_, outputs] = self.0.config().columns();
        let x = Memory { storage: x, layout, op: LINEAR };
        forward(
            &x,
            outputs,
            |tokens| self.0.workspace_bytes(tokens),
            |stream, operands| self.0.forward(stream, operands),
        )
    }
}

impl CustomOp1 for GatedMlp {
    fn name(&self) -> &'static str {
        MLP
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        not_here(MLP)
    }

    fn cuda_fwd(&self, x: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let outputs = self.0.config().hidden_size();
        let x = Memory { storage: x, layout, op: MLP };
        forward(
            &x,
            outputs,
            |tokens| self.0.workspace_bytes(tokens),
            |stream, operands| self.0.forward(stream, operands),
        )
    }
}

impl CustomOp2 for ByLogits<'_> {
    fn name(&self) -> &'static str {
        MOE
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        not_here(MOE)
    }

    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        layout: &Layout,
        logits: &CudaStorage,
        of_logits: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let Self(Moe(layer)) = self;
        let logits = values(&Memory { storage: logits, layout: of_logits, op: MOE })?;
        let x = Memory { storage: x, layout, op: MOE };
        forward(
            &x,
            layer.config().expert().hidden_size(),
            |tokens| layer.workspace_bytes(tokens),
            |stream, operands| layer.forward(stream, operands, logits),
        )
    }
}

impl CustomOp3 for ByIds<'_> {
    fn name(&self) -> &'static str {
        MOE
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        not_here(MOE)
    }

    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        layout: &Layout,
        given: &CudaStorage,
        of_given: &Layout,
        weights: &CudaStorage,
        of_weights: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let Self(Moe(layer)) = self;
        let ids = ids(&Memory { storage: given, layout: of_given, op: MOE })?;
        let weights = Memory { storage: weights, layout: of_weights, op: MOE }.view::<f32>()?;
        let x = Memory { storage: x, layout, op: MOE };
        forward(
            &x,
            layer.config().expert().hidden_size(),
            |tokens| layer.workspace_bytes(tokens),
            |stream, operands| layer.forward_chosen(stream, operands, ids, weights),
        )
    }
}
