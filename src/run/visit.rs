//! What a launch does with each piece of its memory in turn.

use cudarc::driver::CudaStream;

use super::check::Check;
use super::guards::Guards;
use super::memory::{Memory, MemoryMut};
use super::retired::Owner;
use super::weights::PreparedWeights;
use super::workspace::WorkspaceMemory;
use crate::error::Result;
use crate::format::Format;
use crate::operand::{Operand, Params};

/// Something that is done with every piece.
pub(super) trait Visitor<'b> {
    /// Memory that is read, in this format where there is a choice.
    fn read<T: Send + Sync + 'static>(
        &mut self,
        operand: Operand,
        format: Format,
        memory: &'b Memory<'_, T>,
    ) -> Result<()>;

    /// Weights that were prepared: all B.
    fn prepared(&mut self, weights: &'b PreparedWeights) -> Result<()>;

    /// Memory that is written.
    fn write<T>(&mut self, operand: Operand, format: Format, memory: &'b mut MemoryMut<'_, T>) -> Result<()>;

    /// The workspace.
    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<()>;
}

/// Orders a launch behind what wrote shared operands.
pub(super) struct Order<'s> {
    pub(super) stream: &'s CudaStream,
    pub(super) is_captured: bool,
    /// Whether weights are known to be there, so that they may be read before what is ahead in the stream is done.
    pub(super) has_weights: bool,
}

impl<'b> Visitor<'b> for Order<'_> {
    #[inline(always)]
    fn read<T: Send + Sync + 'static>(&mut self, _: Operand, _: Format, memory: &'b Memory<'_, T>) -> Result<()> {
        memory.order(self.stream, self.is_captured)
    }

    #[inline(always)]
    fn prepared(&mut self, weights: &'b PreparedWeights) -> Result<()> {
        weights.shared().order(self.stream, self.is_captured)?;
        self.has_weights = weights.shared().is_there();
        Ok(())
    }

    #[inline(always)]
    fn write<T>(&mut self, _: Operand, _: Format, _: &'b mut MemoryMut<'_, T>) -> Result<()> {
        Ok(())
    }

    #[inline(always)]
    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<()> {
        workspace.order(self.stream)
    }
}

/// Notes addresses, and what happens to their memory when the launch is in the stream.
pub(super) struct Place<'b, 'g, G> {
    stream: &'b CudaStream,
    guards: &'g mut G,
    params: &'g mut Params,
    /// Of each alignment, all addresses together.
    pub(super) aligned: Aligned,
}

/// Bits of addresses that have to be aligned alike.
#[derive(Clone, Copy, Default)]
pub(super) struct Aligned {
    wide: u64,
    narrow: u64,
}

impl Aligned {
    #[inline(always)]
    fn note(&mut self, operand: Operand, address: u64) {
        if operand.is_wide() { self.wide |= address } else { self.narrow |= address }
    }

    /// Whether all are.
    #[inline]
    pub(super) fn holds(self) -> bool {
        self.wide.is_multiple_of(Operand::A.alignment()) && self.narrow.is_multiple_of(Operand::Offsets.alignment())
    }
}

impl<'b, 'g, G> Place<'b, 'g, G> {
    #[inline(always)]
    pub(super) fn new(stream: &'b CudaStream, guards: &'g mut G, params: &'g mut Params) -> Self {
        Self { stream, guards, params, aligned: Aligned::default() }
    }

    #[inline(always)]
    fn note(&mut self, operand: Operand, address: u64) -> Result<()> {
        *self.params.address(operand) = address;
        self.aligned.note(operand, address);
        Ok(())
    }
}

impl<'b, G: Guards<'b>> Visitor<'b> for Place<'b, '_, G> {
    #[inline(always)]
    fn read<T: Send + Sync + 'static>(&mut self, operand: Operand, _: Format, memory: &'b Memory<'_, T>) -> Result<()> {
        let address = memory.address(self.stream, self.guards);
        self.note(operand, address)
    }

    #[inline(always)]
    fn prepared(&mut self, weights: &'b PreparedWeights) -> Result<()> {
        let address = weights.shared().address(self.stream, self.guards);
        self.note(Operand::B1, address)
    }

    #[inline(always)]
    fn write<T>(&mut self, operand: Operand, _: Format, memory: &'b mut MemoryMut<'_, T>) -> Result<()> {
        let address = memory.address(self.stream, self.guards);
        self.note(operand, address)
    }

    #[inline(always)]
    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<()> {
        let address = workspace.address(self.stream, self.guards);
        self.note(Operand::Workspace, address)
    }
}

/// Checks each piece and notes its address at once: where nothing is tracked, an address has no consequence.
pub(super) struct CheckAndPlace<'b, 'g, 'c, G> {
    pub(super) check: Check<'c>,
    pub(super) place: Place<'b, 'g, G>,
}

impl<'b, G: Guards<'b>> Visitor<'b> for CheckAndPlace<'b, '_, '_, G> {
    #[inline(always)]
    fn read<T: Send + Sync + 'static>(
        &mut self,
        operand: Operand,
        format: Format,
        memory: &'b Memory<'_, T>,
    ) -> Result<()> {
        self.check.piece(operand, format, &memory.buffer())?;
        self.place.read(operand, format, memory)
    }

    #[inline(always)]
    fn prepared(&mut self, weights: &'b PreparedWeights) -> Result<()> {
        Visitor::prepared(&mut self.check, weights)?;
        self.place.prepared(weights)
    }

    #[inline(always)]
    fn write<T>(&mut self, operand: Operand, format: Format, memory: &'b mut MemoryMut<'_, T>) -> Result<()> {
        self.check.piece(operand, format, &memory.buffer())?;
        self.place.write(operand, format, memory)
    }

    #[inline(always)]
    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<()> {
        self.check.piece(Operand::Workspace, Format::F32, &workspace.buffer())?;
        self.place.workspace(workspace)
    }
}

/// Does something with each owner, which has to be held until the launch has run.
pub(super) struct EachOwner<F>(pub(super) F);

impl<'b, F: FnMut(&'b Owner)> Visitor<'b> for EachOwner<F> {
    #[inline(always)]
    fn read<T: Send + Sync + 'static>(&mut self, _: Operand, _: Format, memory: &'b Memory<'_, T>) -> Result<()> {
        memory.held().into_iter().for_each(&mut self.0);
        Ok(())
    }

    #[inline(always)]
    fn prepared(&mut self, _: &'b PreparedWeights) -> Result<()> {
        Ok(())
    }

    #[inline(always)]
    fn write<T>(&mut self, _: Operand, _: Format, memory: &'b mut MemoryMut<'_, T>) -> Result<()> {
        memory.held().into_iter().for_each(&mut self.0);
        Ok(())
    }

    #[inline(always)]
    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<()> {
        workspace.held().into_iter().for_each(&mut self.0);
        Ok(())
    }
}

/// What a graph can hold. Views are borrowed: no graph holds these.
#[derive(Default)]
pub(super) struct HeldByGraph(pub(super) Vec<Owner>);

impl<'b> Visitor<'b> for HeldByGraph {
    fn read<T: Send + Sync + 'static>(&mut self, _: Operand, _: Format, memory: &'b Memory<'_, T>) -> Result<()> {
        self.0.extend(memory.held_by_graph().into_iter().chain(memory.held().cloned()));
        Ok(())
    }

    fn prepared(&mut self, weights: &'b PreparedWeights) -> Result<()> {
        self.0.push(weights.shared().as_owner());
        Ok(())
    }

    fn write<T>(&mut self, _: Operand, _: Format, memory: &'b mut MemoryMut<'_, T>) -> Result<()> {
        self.0.extend(memory.held().cloned());
        Ok(())
    }

    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<()> {
        self.0.extend(workspace.held_by_graph().into_iter().chain(workspace.held().cloned()));
        Ok(())
    }
}
