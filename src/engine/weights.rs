//! Weights for the kernels of a device.

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::Engine;
use crate::error::Result;
use crate::format::PreparedLayout;
use crate::run::quantise_weights::WeightQuantiser;
use crate::run::{Given, GivenMatrix, OwnedMemory, PreparedWeights, Preparer, Weights};
use crate::simt::{Preparation, QuantiseWeights};
use crate::spec::Problem;

impl Engine {
    /// The same problem with its weights in the form that kernels of this device take them best: prepared, where a matrix
    /// path takes that, else as they are given. [`Engine::weights`] gives them so, and [`Engine::plan`] takes the result: a
    /// caller that asks for it never looks at the architecture.
    pub fn native(&self, problem: &Problem) -> Problem {
        problem.native(self.device().arch())
    }

    /// The weights of `problem`, B `[groups, n, k]` or B1 (the gate) and B2, for the kernels of its
    /// [native](Engine::native) form: once, at load. Repacked, where that takes them prepared: then what is given away is
    /// freed behind the launch that does it, and what is borrowed is not needed once `stream` has come to this point. Else
    /// what is given away is kept and what is borrowed stays so.
    ///
    /// Asynchronous but for the first of its kind, which loads (and compiles, if no cache has it) the kernel that repacks.
    ///
    /// ```no_run
    /// use warpsmith::engine::Engine;
    /// use warpsmith::run::{Device, Operands};
    /// use warpsmith::spec::{Activation, Problem};
    ///
    /// let device = Device::open(0)?;
    /// let engine = Engine::new(&device);
    /// let problem = engine.native(&Problem::dual_gemm(Activation::Silu).n(4096).k(7168).m_up_to(512));
    /// # let stream = device.context().default_stream();
    /// # let (gate, gate_scales, up, up_scales) = (stream.alloc_zeros(4096 * 3584)?, stream.alloc_zeros(4096 * 448)?,
    /// #     stream.alloc_zeros(4096 * 3584)?, stream.alloc_zeros(4096 * 448)?);
    /// # let a = stream.alloc_zeros::<half::f16>(512 * 7168)?;
    /// # let mut c = stream.alloc_zeros::<half::f16>(512 * 4096)?;
    /// let weights = engine.weights(&stream, &problem, [(gate, gate_scales), (up, up_scales)])?;
    /// let plan = engine.plan(&problem)?;
    /// let mut workspace = plan.workspace(&stream, 512)?;
    /// plan.launch(&stream, Operands::new(512, &a, &weights, &mut c).workspace(&mut workspace))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Operand, if a number, format, size, alignment or context does not fit, or the stream is being captured and weights
    /// are to be repacked, before anything is launched; those of [`Problem::prepared_layout`],
    /// [`KernelCache::simt_cubin`](crate::cache::KernelCache::simt_cubin) and of loading; driver, if the device has no
    /// room or refuses the launch.
    pub fn weights<'a>(
        &self,
        stream: &Arc<CudaStream>,
        problem: &Problem,
        b: impl IntoIterator<Item = impl Into<GivenMatrix<'a>>>,
    ) -> Result<Weights<'a>> {
        let problem = self.native(problem);
        match problem.is_prepared() {
            true => self.prepare(stream, &problem, b).map(Weights::Prepared),
            false => self.keep(stream, &problem, b),
        }
    }

    /// As [`Engine::weights`], into memory of [`Engine::weights_bytes`] bytes where weights are repacked, which the result
    /// keeps; where they are not, `memory` is dropped.
    ///
    /// # Errors
    /// As [`Engine::weights`]; operand, if the memory is of another size or not on a multiple of
    /// [`PreparedWeights::ALIGNMENT`].
    pub fn weights_into<'a>(
        &self,
        stream: &Arc<CudaStream>,
        problem: &Problem,
        b: impl IntoIterator<Item = impl Into<GivenMatrix<'a>>>,
        memory: impl Into<OwnedMemory<u8>>,
    ) -> Result<Weights<'a>> {
        let problem = self.native(problem);
        if !problem.is_prepared() {
            return self.keep(stream, &problem, b);
        }
        let (layout, preparer) = self.preparer(&problem)?;
        preparer.prepare_into(stream, &layout, b, memory).map(Weights::Prepared)
    }

    /// Bytes of device memory that [`Engine::weights`] allocates for `problem`: none where weights stay as they are given.
    ///
    /// # Errors
    /// Those of [`Problem::prepared_layout`].
    pub fn weights_bytes(&self, problem: &Problem) -> Result<u64> {
        let problem = self.native(problem);
        if problem.is_prepared() { Ok(problem.prepared_layout()?.bytes() as u64) } else { Ok(0) }
    }

    /// Repacks the NVFP4 or MXFP4 weights of `problem` for kernels that take them prepared, whatever this device would take.
    ///
    /// # Errors
    /// As [`Engine::weights`].
    pub fn prepare<'a>(
        &self,
        stream: &Arc<CudaStream>,
        problem: &Problem,
        b: impl IntoIterator<Item = impl Into<GivenMatrix<'a>>>,
    ) -> Result<PreparedWeights> {
        let (layout, preparer) = self.preparer(problem)?;
        preparer.prepare(stream, &layout, b)
    }

    /// The kernels that make weights NVFP4: no part of what is served, and so not recorded.
    pub(crate) fn quantise_weights(&self, of: QuantiseWeights) -> Result<WeightQuantiser> {
        Ok(WeightQuantiser::new(of, self.residency.simt(of.into())?.value))
    }

    fn preparer(&self, problem: &Problem) -> Result<(PreparedLayout, Preparer)> {
        let layout = problem.prepared_layout()?;
        let preparation = Preparation::new(&layout, problem.scale_layout());
        let kernel = self.residency.simt(preparation.into())?.value;
        Ok((layout, Preparer::new(preparation, kernel)))
    }

    fn keep<'a>(
        &self,
        stream: &Arc<CudaStream>,
        problem: &Problem,
        b: impl IntoIterator<Item = impl Into<GivenMatrix<'a>>>,
    ) -> Result<Weights<'a>> {
        let given = Given::new(stream, problem, b);
        given.map(Weights::Given).map_err(|error| error.context(format!("weights of {problem}")))
    }
}
