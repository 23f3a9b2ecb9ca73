//! What a launch does with each piece of its memory in turn.

use std::convert::Infallible;

use cudarc::driver::CudaStream;

use super::check::Check;
use super::guards::{Guards, Untracked};
use super::memory::{Memory, MemoryMut};
use super::retired::Owner;
use super::weights::PreparedWeights;
use super::workspace::WorkspaceMemory;
use crate::error::Error;
use crate::format::Format;
use crate::operand::{Operand, Params};

/// Something that is done with every piece.
pub(super) trait Visitor<'b> {
    /// Why it goes no further.
    type Refusal;

    /// Memory that is read, in this format where there is a choice.
    fn read<T: Send + Sync + 'static>(
        &mut self,
        operand: Operand,
        format: Format,
        memory: &'b Memory<'_, T>,
    ) -> Result<(), Self::Refusal>;

    /// Weights that were prepared: all B.
    fn prepared(&mut self, weights: &'b PreparedWeights) -> Result<(), Self::Refusal>;

    /// Those that the launch behind this one reads first.
    fn next(&mut self, weights: &'b PreparedWeights) -> Result<(), Self::Refusal>;

    /// Memory that is written.
    fn write<T>(
        &mut self,
        operand: Operand,
        format: Format,
        memory: &'b mut MemoryMut<'_, T>,
    ) -> Result<(), Self::Refusal>;

    /// The workspace.
    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<(), Self::Refusal>;
}

/// Something that is done with all memory alike, whichever operand it is.
pub(super) trait EachMemory<'b> {
    /// Why it goes no further.
    type Refusal;

    /// Memory that is read.
    fn read<T: Send + Sync + 'static>(&mut self, memory: &'b Memory<'_, T>) -> Result<(), Self::Refusal>;

    /// Weights that were prepared.
    fn prepared(&mut self, weights: &'b PreparedWeights) -> Result<(), Self::Refusal>;

    /// Those that the launch behind this one reads first.
    fn next(&mut self, weights: &'b PreparedWeights) -> Result<(), Self::Refusal> {
        self.prepared(weights)
    }

    /// Memory that is written.
    fn write<T>(&mut self, memory: &'b mut MemoryMut<'_, T>) -> Result<(), Self::Refusal>;

    /// The workspace.
    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<(), Self::Refusal>;
}

impl<'b, E: EachMemory<'b>> Visitor<'b> for E {
    type Refusal = E::Refusal;

    #[inline(always)]
    fn read<T: Send + Sync + 'static>(
        &mut self,
        _: Operand,
        _: Format,
        memory: &'b Memory<'_, T>,
    ) -> Result<(), E::Refusal> {
        EachMemory::read(self, memory)
    }

    #[inline(always)]
    fn prepared(&mut self, weights: &'b PreparedWeights) -> Result<(), E::Refusal> {
        EachMemory::prepared(self, weights)
    }

    #[inline(always)]
    fn next(&mut self, weights: &'b PreparedWeights) -> Result<(), E::Refusal> {
        EachMemory::next(self, weights)
    }

    #[inline(always)]
    fn write<T>(&mut self, _: Operand, _: Format, memory: &'b mut MemoryMut<'_, T>) -> Result<(), E::Refusal> {
        EachMemory::write(self, memory)
    }

    #[inline(always)]
    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<(), E::Refusal> {
        EachMemory::workspace(self, workspace)
    }
}

/// Orders a launch behind what wrote shared operands.
pub(super) struct Order<'s> {
    pub(super) stream: &'s CudaStream,
    pub(super) is_captured: bool,
    /// Whether weights are known to be there, so that they may be read before what is ahead in the stream is done.
    pub(super) has_weights: bool,
}

impl<'s> Order<'s> {
    pub(super) fn new(stream: &'s CudaStream, is_captured: bool) -> Self {
        Self { stream, is_captured, has_weights: false }
    }
}

impl<'b> EachMemory<'b> for Order<'_> {
    type Refusal = Error;

    fn read<T: Send + Sync + 'static>(&mut self, memory: &'b Memory<'_, T>) -> Result<(), Error> {
        memory.order(self.stream, self.is_captured)
    }

    fn prepared(&mut self, weights: &'b PreparedWeights) -> Result<(), Error> {
        weights.shared().order(self.stream, self.is_captured)?;
        self.has_weights = weights.shared().is_there();
        Ok(())
    }

    fn next(&mut self, weights: &'b PreparedWeights) -> Result<(), Error> {
        weights.shared().order(self.stream, self.is_captured)?;
        self.has_weights &= weights.shared().is_there();
        Ok(())
    }

    fn write<T>(&mut self, _: &'b mut MemoryMut<'_, T>) -> Result<(), Error> {
        Ok(())
    }

    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<(), Error> {
        workspace.order(self.stream)
    }
}

/// Notes addresses, and what happens to their memory when the launch is in the stream.
pub(super) struct Place<'b, 'g, G> {
    stream: &'b CudaStream,
    guards: &'g mut G,
    params: &'g mut Params,
}

impl<'b, 'g, G> Place<'b, 'g, G> {
    #[inline(always)]
    pub(super) fn new(stream: &'b CudaStream, guards: &'g mut G, params: &'g mut Params) -> Self {
        Self { stream, guards, params }
    }

    #[inline(always)]
    fn note(&mut self, operand: Operand, address: u64) {
        *self.params.address(operand) = address;
    }

    /// The address noted last for it.
    #[inline(always)]
    fn noted(&mut self, operand: Operand) -> u64 {
        *self.params.address(operand)
    }
}

impl<'b, G: Guards<'b>> Visitor<'b> for Place<'b, '_, G> {
    type Refusal = Infallible;

    #[inline(always)]
    fn read<T: Send + Sync + 'static>(
        &mut self,
        operand: Operand,
        _: Format,
        memory: &'b Memory<'_, T>,
    ) -> Result<(), Infallible> {
        let address = memory.address(self.stream, self.guards);
        self.note(operand, address);
        Ok(())
    }

    #[inline(always)]
    fn prepared(&mut self, weights: &'b PreparedWeights) -> Result<(), Infallible> {
        let address = weights.shared().address(self.stream, self.guards);
        self.note(Operand::B1, address);
        Ok(())
    }

    #[inline(always)]
    fn next(&mut self, weights: &'b PreparedWeights) -> Result<(), Infallible> {
        self.params.kernel.next = weights.shared().address(self.stream, self.guards);
        Ok(())
    }

    #[inline(always)]
    fn write<T>(&mut self, operand: Operand, _: Format, memory: &'b mut MemoryMut<'_, T>) -> Result<(), Infallible> {
        let address = memory.address(self.stream, self.guards);
        self.note(operand, address);
        Ok(())
    }

    #[inline(always)]
    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<(), Infallible> {
        let address = workspace.address(self.stream, self.guards);
        self.note(Operand::Workspace, address);
        Ok(())
    }
}

/// Checks each piece and notes its address at once: where nothing is tracked, an address has no consequence. Goes no
/// further than the first that does not fit; [`Check`] says why.
pub(super) struct CheckAndPlace<'b, 'g, 'c> {
    pub(super) check: Check<'c>,
    pub(super) place: Place<'b, 'g, Untracked>,
    /// Whether nothing is left for [`Order`] to do.
    pub(super) is_ordered: bool,
    /// As [`Order::has_weights`].
    pub(super) has_weights: bool,
    /// Elements of A.
    pub(super) a: u64,
    /// Bytes of workspace.
    pub(super) workspace: u64,
}

/// Something does not fit.
pub(super) struct Misfit;

impl<'b, 'g, 'c> CheckAndPlace<'b, 'g, 'c> {
    #[inline(always)]
    pub(super) fn new(check: Check<'c>, place: Place<'b, 'g, Untracked>) -> Self {
        Self { check, place, is_ordered: true, has_weights: false, a: 0, workspace: 0 }
    }
}

#[inline(always)]
fn fits(fits: bool) -> Result<(), Misfit> {
    if fits { Ok(()) } else { Err(Misfit) }
}

impl<'b> Visitor<'b> for CheckAndPlace<'b, '_, '_> {
    type Refusal = Misfit;

    #[inline(always)]
    fn read<T: Send + Sync + 'static>(
        &mut self,
        operand: Operand,
        format: Format,
        memory: &'b Memory<'_, T>,
    ) -> Result<(), Misfit> {
        let buffer = memory.buffer();
        fits(self.check.takes(operand, format, &buffer))?;
        if operand == Operand::A {
            self.a = buffer.elements;
        }
        self.is_ordered &= memory.is_there();
        let Ok(()) = self.place.read(operand, format, memory);
        fits(self.check.is_aligned(operand, self.place.noted(operand)))
    }

    #[inline(always)]
    fn prepared(&mut self, weights: &'b PreparedWeights) -> Result<(), Misfit> {
        fits(self.check.takes_prepared(weights.layout(), &weights.shared().buffer()))?;
        self.has_weights = weights.shared().is_there();
        self.is_ordered &= self.has_weights;
        let Ok(()) = self.place.prepared(weights);
        fits(self.check.is_aligned(Operand::B1, self.place.noted(Operand::B1)))
    }

    #[inline(always)]
    fn next(&mut self, weights: &'b PreparedWeights) -> Result<(), Misfit> {
        fits(self.check.is_here(&weights.shared().buffer()))?;
        let is_there = weights.shared().is_there();
        self.has_weights &= is_there;
        self.is_ordered &= is_there;
        let Ok(()) = self.place.next(weights);
        Ok(())
    }

    #[inline(always)]
    fn write<T>(&mut self, operand: Operand, format: Format, memory: &'b mut MemoryMut<'_, T>) -> Result<(), Misfit> {
        fits(self.check.takes(operand, format, &memory.buffer()))?;
        let Ok(()) = self.place.write(operand, format, memory);
        fits(self.check.is_aligned(operand, self.place.noted(operand)))
    }

    #[inline(always)]
    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<(), Misfit> {
        let buffer = workspace.buffer();
        fits(self.check.takes(Operand::Workspace, Format::F32, &buffer))?;
        self.workspace = buffer.elements;
        self.is_ordered &= workspace.is_ready(self.place.stream);
        let Ok(()) = self.place.workspace(workspace);
        fits(self.check.is_aligned(Operand::Workspace, self.place.noted(Operand::Workspace)))
    }
}

/// Does something with each owner, which has to be held until the launch has run.
pub(super) struct EachOwner<F>(pub(super) F);

impl<'b, F: FnMut(&'b Owner)> EachMemory<'b> for EachOwner<F> {
    type Refusal = Infallible;

    #[inline(always)]
    fn read<T: Send + Sync + 'static>(&mut self, memory: &'b Memory<'_, T>) -> Result<(), Infallible> {
        memory.held().into_iter().for_each(&mut self.0);
        Ok(())
    }

    #[inline(always)]
    fn prepared(&mut self, _: &'b PreparedWeights) -> Result<(), Infallible> {
        Ok(())
    }

    #[inline(always)]
    fn write<T>(&mut self, memory: &'b mut MemoryMut<'_, T>) -> Result<(), Infallible> {
        memory.held().into_iter().for_each(&mut self.0);
        Ok(())
    }

    #[inline(always)]
    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<(), Infallible> {
        workspace.held().into_iter().for_each(&mut self.0);
        Ok(())
    }
}

/// What a graph can hold. Views are borrowed: no graph holds these.
#[derive(Default)]
pub(super) struct HeldByGraph(pub(super) Vec<Owner>);

impl<'b> EachMemory<'b> for HeldByGraph {
    type Refusal = Infallible;

    fn read<T: Send + Sync + 'static>(&mut self, memory: &'b Memory<'_, T>) -> Result<(), Infallible> {
        self.0.extend(memory.held_by_graph().into_iter().chain(memory.held().cloned()));
        Ok(())
    }

    fn prepared(&mut self, weights: &'b PreparedWeights) -> Result<(), Infallible> {
        self.0.push(weights.shared().as_owner());
        Ok(())
    }

    fn write<T>(&mut self, memory: &'b mut MemoryMut<'_, T>) -> Result<(), Infallible> {
        self.0.extend(memory.held().cloned());
        Ok(())
    }

    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<(), Infallible> {
        self.0.extend(workspace.held_by_graph().into_iter().chain(workspace.held().cloned()));
        Ok(())
    }
}
