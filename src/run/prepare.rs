//! Weights prepared on the device.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::capture::is_captured;
use super::check::{self, ContextId};
use super::guards::Tracked;
use super::retired::Owner;
use super::simt::{SimtKernel, SimtLaunch};
use super::visit::{EachOwner, Order, Place};
use super::{GivenMatrix, Matrix, OwnedMemory, PreparedWeights, refused, weights};
use crate::error::{Error, Result};
use crate::format::PreparedLayout;
use crate::operand::{self, Operand};
use crate::simt::Preparation;
use crate::spec::{Activation, Problem};

/// Threads of a block, each block of threads repacking blocks of weights.
const THREADS: u32 = 128;
/// Blocks of threads at most: more than any device runs at a time, each then takes several blocks of weights.
const GRID_MAX: u32 = 1 << 16;

/// A loaded kernel that prepares weights of any n, k and number of groups. Holding it keeps it loaded.
pub struct Preparer {
    preparation: Preparation,
    kernel: Arc<SimtKernel>,
}

impl Preparer {
    pub(crate) fn new(preparation: Preparation, kernel: Arc<SimtKernel>) -> Self {
        Self { preparation, kernel }
    }

    /// Prepares the one operand `[groups, n, k]` of `layout`, or the two (B1, the gate, first), in `stream`: checks them,
    /// allocates the result, launches and returns. Operands that are given away are freed behind the launch.
    ///
    /// # Errors
    /// Operand, if `layout` is another kernel's, a format, size, alignment or device does not fit, or the stream is being
    /// captured (this allocates), before anything is launched; driver, if the device has no room or refuses the launch.
    pub fn prepare<'a>(
        &self,
        stream: &Arc<CudaStream>,
        layout: &PreparedLayout,
        operands: impl IntoIterator<Item = impl Into<GivenMatrix<'a>>>,
    ) -> Result<PreparedWeights> {
        let allocate = || {
            let doing = || format!("allocating {} bytes", layout.bytes());
            let slice = stream.alloc_zeros::<u8>(layout.bytes()).map_err(|error| refused(doing(), error))?;
            Ok(slice.into())
        };
        self.checked_launch(stream, layout, operands.into_iter().map(Into::into).collect(), allocate)
            .map_err(|error| error.context(format!("preparing {layout}")))
    }

    /// As [`Preparer::prepare`], into memory of [`PreparedLayout::bytes`] bytes, on a multiple of
    /// [`PreparedWeights::ALIGNMENT`], which the result keeps.
    ///
    /// # Errors
    /// As [`Preparer::prepare`]; operand, if the memory is of another size or not aligned.
    pub fn prepare_into<'a>(
        &self,
        stream: &CudaStream,
        layout: &PreparedLayout,
        operands: impl IntoIterator<Item = impl Into<GivenMatrix<'a>>>,
        memory: impl Into<OwnedMemory<u8>>,
    ) -> Result<PreparedWeights> {
        let memory = memory.into();
        self.checked_launch(stream, layout, operands.into_iter().map(Into::into).collect(), || Ok(memory))
            .map_err(|error| error.context(format!("preparing {layout}")))
    }

    fn checked_launch(
        &self,
        stream: &CudaStream,
        layout: &PreparedLayout,
        given: Vec<GivenMatrix<'_>>,
        memory: impl FnOnce() -> Result<OwnedMemory<u8>>,
    ) -> Result<PreparedWeights> {
        let context_id = self.kernel.context_id(stream)?;
        let operands: Vec<_> = given.iter().map(GivenMatrix::matrix).collect();
        check_sizes(self.preparation, layout, context_id, &operands)?;
        if is_captured(stream)? {
            return Err(Error::operand("the stream is being captured: prepare weights before"));
        }
        let mut order = Order::new(stream, false);
        operands.iter().zip(Operand::B).try_for_each(|(b, of)| b.visit(of, &mut order))?;

        let mut memory = memory()?;
        weights::check_place(layout, &memory)?;
        context_id.check("the memory", &memory.buffer())?;
        {
            let mut guards = Tracked::default();
            let mut given = operand::Params::default();
            let mut place = Place::new(stream, &mut guards, &mut given);
            let Ok(()) = operands.iter().zip(Operand::B).try_for_each(|(b, of)| b.visit(of, &mut place));
            let operand::KernelParams { b: codes, b_scales: scales, .. } = given.kernel;
            let mut params =
                Params { codes, scales, n: layout.n(), k: layout.k(), groups: layout.groups(), ..Params::default() };
            params.prepared = memory.written(stream, &mut guards);
            params.check_alignment()?;

            let grid = u32::try_from(layout.blocks()).unwrap_or(u32::MAX).min(GRID_MAX);
            let launch = SimtLaunch::new(0, grid, THREADS);
            // Factors of rows come before what is divided by them: a warp for each.
            let warps = u32::try_from(layout.row_factors()).unwrap_or(u32::MAX);
            let factors = SimtLaunch { entry: 1, grid: warps.div_ceil(THREADS / 32).min(GRID_MAX), ..launch };
            let launches = if self.preparation.has_row_factors() { &[factors, launch][..] } else { &[launch] };
            // SAFETY: its only parameter has the layout of `Params` (checked below against templates/common/prepare/segment.cuh). Its
            // addresses are of live memory of this context, as large as the kernel reads for
            // `layout` (check_sizes) and writes (check_place). Where cudarc tracks events the guards order this use before
            // the memory is released or used in another stream; what is given away is freed behind it (shared.rs) or
            // retired (below); for other memory its caller vouches.
            unsafe { self.kernel.put(stream, &mut params, launches, false) }?;
        }
        let mut owners = Vec::new();
        let mut held = EachOwner(|owner: &Owner| owners.push(Owner::clone(owner)));
        let Ok(()) = operands.iter().zip(Operand::B).try_for_each(|(b, of)| b.visit(of, &mut held));
        self.retire(stream, owners)?;
        PreparedWeights::from_device(stream, *layout, memory)
    }

    /// Keeps the owners of operands until what is in the stream has run.
    fn retire(&self, stream: &CudaStream, owners: Vec<Owner>) -> Result<()> {
        if !owners.is_empty() {
            let event = stream.record_event(None).map_err(|error| refused("recording an event", error))?;
            self.kernel.modules().retired().take_until(owners, event);
        }
        Ok(())
    }
}

impl fmt::Debug for Preparer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernel.fmt(f)
    }
}

/// Checks number, formats, sizes and places of the operands.
fn check_sizes(
    preparation: Preparation,
    layout: &PreparedLayout,
    context_id: ContextId,
    operands: &[Matrix<'_>],
) -> Result<()> {
    let scales = preparation.scales();
    let needed = Preparation::new(layout, scales);
    if needed != preparation {
        return Err(Error::operand(format!("{} was given what is for {}", preparation.symbol(), needed.symbol())));
    }
    let problem = if layout.products() == 1 { Problem::gemm() } else { Problem::dual_gemm(Activation::None) };
    let problem = problem.n(layout.n()).k(layout.k()).grouped(layout.groups()).scales(scales);
    let problem = problem.b(layout.weights_format());
    check::each_b(context_id, &problem, operands)
}

/// Passed by value; `PrepareParams` in `templates/common/prepare/segment.cuh` has the same order and sizes. Addresses are device memory,
/// 0 stands for "none".
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Params {
    codes: [u64; 2],
    scales: [u64; 2],
    prepared: u64,
    n: u32,
    k: u32,
    groups: u32,
}

impl Params {
    /// Codes are loaded 16 bytes at a time, scales 4.
    fn check_alignment(&self) -> Result<()> {
        let ([b, b2], [b_scales, b2_scales]) = (self.codes, self.scales);
        check::aligned(&[("b", b), ("b2", b2)], 16)?;
        check::aligned(&[("scales of b", b_scales), ("scales of b2", b2_scales)], 4)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::super::memory::Memory;
    use super::*;
    use crate::format::{Format, ScaleLayout};

    const CONTEXT: ContextId = ContextId { context: 0x1000, ordinal: 0 };

    fn operand<'a>(codes: usize, scales: usize) -> Matrix<'a> {
        // SAFETY: nothing is launched.
        unsafe { Matrix::nvfp4(Memory::from_raw(0, codes), Memory::from_raw(0, scales)) }
    }

    #[test]
    fn the_parameters_lie_as_on_the_device_side() {
        assert_eq!(size_of::<Params>(), 56);
        let offsets = [
            offset_of!(Params, codes),
            offset_of!(Params, scales),
            offset_of!(Params, prepared),
            offset_of!(Params, n),
            offset_of!(Params, k),
            offset_of!(Params, groups),
        ];
        assert_eq!(offsets, [0, 16, 32, 40, 44, 48]);
    }

    #[test]
    fn operands_that_do_not_fit_are_refused_with_both_numbers() {
        let layout = PreparedLayout::new(2, Format::F16, 3, 48, 192).unwrap();
        let linear = Preparation::new(&layout, ScaleLayout::Linear);
        let swizzled = Preparation::new(&layout, ScaleLayout::Swizzled128x4);
        let (codes, scales, padded) = (3 * 48 * 96, 3 * 48 * 12, 3 * 128 * 12);
        let good = || operand(codes, padded);
        check_sizes(linear, &layout, CONTEXT, &[operand(codes, scales), operand(codes, scales)]).unwrap();
        check_sizes(swizzled, &layout, CONTEXT, &[good(), good()]).unwrap();

        let refusal = |preparation, operands: &[Matrix<'_>]| {
            let error = check_sizes(preparation, &layout, CONTEXT, operands).unwrap_err();
            assert!(error.is_operand());
            error.to_string()
        };
        assert_eq!(refusal(swizzled, &[good()]), "1 B given, 2 are needed");
        assert_eq!(
            refusal(swizzled, &[good(), operand(codes - 1, padded)]),
            "b2 has 13823 bytes of codes, 13824 are needed"
        );
        assert_eq!(
            refusal(swizzled, &[operand(codes, scales), good()]),
            "b1 has 1728 bytes of block scales, 4608 are needed"
        );
        // SAFETY: nothing is launched.
        let halves = unsafe { Matrix::f16(Memory::from_raw(0, 2 * codes)) };
        assert_eq!(refusal(swizzled, &[halves, good()]), "b1 is f16, the kernel is for nvfp4");
        let single = Preparation::new(&PreparedLayout::new(1, Format::F16, 1, 16, 64).unwrap(), ScaleLayout::Linear);
        assert_eq!(
            refusal(single, &[good()]),
            "prepare_single_f16_linear was given what is for prepare_dual_f16_linear"
        );
    }

    #[test]
    fn addresses_are_aligned() {
        let good = Params { codes: [0x100, 0x200], scales: [0x304, 0x408], ..Params::default() };
        good.check_alignment().unwrap();
        let error = Params { codes: [0x100, 0x208], ..good }.check_alignment().unwrap_err();
        assert_eq!(error.to_string(), "b2 begins at 0x208, which is not a multiple of 16 bytes");
        let error = Params { scales: [0x302, 0], ..good }.check_alignment().unwrap_err();
        assert_eq!(error.to_string(), "scales of b begins at 0x302, which is not a multiple of 4 bytes");
    }
}
