//! A plan for operands that stay where they are.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::plan::Plan;
use crate::error::Result;
use crate::pick::Interval;
use crate::run::{BoundTokens, Kernel, LaunchStream, Operands};

/// A [`Plan`] whose kernels know ahead where tokens are: their tensor maps are encoded, once for all threads, and no launch
/// with A (and the workspace, where tokens are decoded into it) in the same place encodes any, but for rows that leave others in
/// a last tile than those that it was bound with: a launch after one with others encodes two (0.1 µs each). Clones share
/// them.
///
/// It borrows nothing, and its launches are given and check the same operands as those of the plan. Those that lie
/// elsewhere are launched as by the plan.
///
/// ```no_run
/// # use warpsmith::engine::Engine;
/// # use warpsmith::half::f16;
/// # use warpsmith::run::{Device, Operands};
/// # use warpsmith::spec::{Activation, Problem};
/// # let device = Device::open(0)?;
/// # let engine = Engine::new(&device);
/// # let problem = engine.native(&Problem::dual_gemm(Activation::Silu).n(4096).k(7168).m_up_to(512));
/// # let stream = device.context().default_stream();
/// # let (gate, gate_scales, up, up_scales) = (stream.alloc_zeros(4096 * 3584)?, stream.alloc_zeros(4096 * 448)?,
/// #     stream.alloc_zeros(4096 * 3584)?, stream.alloc_zeros(4096 * 448)?);
/// # let weights = engine.weights(&stream, &problem, [(gate, gate_scales), (up, up_scales)])?;
/// let plan = engine.plan(&problem)?;
/// let (a, mut c) = (stream.alloc_zeros::<f16>(512 * 7168)?, stream.alloc_zeros::<f16>(512 * 4096)?);
/// let mut workspace = plan.workspace(&stream, 512)?;
/// let operands = Operands::new(512, &a, &weights, &mut c);
/// let bound = plan.bind(&stream, &operands.workspace(&mut workspace))?;   // once
/// for m in [1, 300, 17] {
///     let operands = Operands::new(m, &a, &weights, &mut c);
///     bound.launch(&stream, operands.workspace(&mut workspace))?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct BoundPlan {
    plan: Plan,
    /// One an interval; none where the kernel loads tokens by itself.
    tokens: Arc<[Option<BoundTokens>]>,
}

impl Plan {
    /// Describes where `operands` have A and the workspace to all kernels, for launches of up to as many rows as they are
    /// for. Launches nothing.
    ///
    /// # Errors
    /// Operand, if the plan is not for so many rows, or stream, A or workspace belong to another device or are not aligned
    /// (all else is checked by each launch); driver, if a tensor map is refused.
    pub fn bind(&self, stream: &CudaStream, operands: &Operands<'_>) -> Result<BoundPlan> {
        // Not noted as asked for: nothing is launched.
        if operands.m() > self.last() {
            return Err(self.too_many(operands.m()));
        }
        let bind = |(interval, kernel): (&Interval, &Arc<Kernel>)| match interval.first <= operands.m() {
            true => kernel.bind(stream, operands),
            false => Ok(None),
        };
        let tokens = self.intervals().map(bind).collect::<Result<_>>()?;
        Ok(BoundPlan { plan: self.clone(), tokens })
    }
}

impl BoundPlan {
    /// As [`Plan::launch`].
    ///
    /// # Errors
    /// Those of [`Plan::launch`].
    #[inline]
    pub fn launch(&self, stream: &impl LaunchStream, mut operands: Operands<'_>) -> Result<()> {
        let index = self.plan.index(operands.m())?;
        self.plan.kernel_at(index).launch_in_place(
            stream.stream(),
            stream.keeper(),
            &mut operands,
            self.tokens[index].as_ref(),
            false,
        )
    }

    /// As [`Plan::launch_dependent`].
    ///
    /// # Errors
    /// Those of [`Plan::launch`].
    #[inline]
    pub fn launch_dependent(&self, stream: &impl LaunchStream, mut operands: Operands<'_>) -> Result<()> {
        let index = self.plan.index(operands.m())?;
        self.plan.kernel_at(index).launch_in_place(
            stream.stream(),
            stream.keeper(),
            &mut operands,
            self.tokens[index].as_ref(),
            true,
        )
    }

    /// The plan that it is of.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

impl fmt::Debug for BoundPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let described = self.tokens.iter().flatten().count();
        write!(f, "{:?}, {described} of them with tokens described ahead", self.plan)
    }
}
