//! The workspace of a stream.

use std::fmt;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use cudarc::driver::{CudaSlice, CudaStream};

use super::check::Buffer;
use super::guards::{Guards, address_without_use};
use super::memory::MemoryMut;
use super::refused;
use super::retired::Owner;
use crate::error::{Error, Result};

/// The driver allocates no empty memory.
const LEAST: u64 = 16;
/// The handle that stands for the default stream of whichever thread uses it (cuda.h, `CU_STREAM_PER_THREAD`).
const PER_THREAD: usize = 2;

/// Device memory for partial sums and decoded tokens: one a stream, for all launches there, which come one after the
/// other. It grows ahead, by [`Workspace::reserve`]. Its contents before and after a launch mean nothing.
pub struct Workspace {
    stream: Arc<CudaStream>,
    /// A graph that a launch was captured into holds it, also when the workspace has grown.
    room: Option<Arc<CudaSlice<u8>>>,
    /// Of the room, looked up once.
    buffer: Buffer,
    address: u64,
    /// The thread that launched last, where each thread has a stream of its own.
    last: ThreadId,
}

impl Workspace {
    /// An empty one.
    #[must_use]
    pub fn new(stream: &Arc<CudaStream>) -> Self {
        let buffer = Buffer { elements: 0, context: Buffer::ANY, ordinal: 0 };
        Self { stream: Arc::clone(stream), room: None, buffer, address: 0, last: thread::current().id() }
    }

    /// One of at least `bytes` bytes.
    ///
    /// # Errors
    /// Driver, if the device has no room.
    pub fn of_bytes(stream: &Arc<CudaStream>, bytes: u64) -> Result<Self> {
        let mut workspace = Self::new(stream);
        workspace.reserve(bytes)?;
        Ok(workspace)
    }

    /// Makes it at least `bytes` large. What launches that are under way use stays until they are done.
    ///
    /// # Errors
    /// Driver, if the device has no room: then it is as large as it was.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        if self.room.is_some() && self.bytes() >= bytes {
            return Ok(());
        }
        self.settle()?;
        let bytes = bytes.max(LEAST);
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let allocated = self.stream.alloc_zeros::<u8>(length);
        let slice = allocated.map_err(|error| refused(format!("allocating {bytes} bytes of workspace"), error))?;
        self.address = address_without_use(&slice, &self.stream);
        self.buffer = Buffer::of(&slice);
        self.room = Some(Arc::new(slice));
        Ok(())
    }

    /// How large it is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.buffer().elements
    }

    /// The stream that it is for.
    #[must_use]
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    #[inline(always)]
    pub(super) fn buffer(&self) -> Buffer {
        self.buffer
    }

    #[inline(always)]
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Whether it is ready for a launch on `stream` as it is.
    #[inline(always)]
    fn is_ready(&self, stream: &CudaStream) -> bool {
        let own = self.stream.cu_stream();
        own == stream.cu_stream() && own as usize != PER_THREAD
    }

    /// Makes it ready for a launch on `stream`: launches of a stream come one after the other, so nothing else orders them.
    fn order(&mut self, stream: &CudaStream) -> Result<()> {
        let (own, other) = (self.stream.cu_stream(), stream.cu_stream());
        if own != other {
            return Err(another_stream());
        }
        if own as usize == PER_THREAD { self.settle() } else { Ok(()) }
    }

    /// Where the handle of the stream stands for another stream on each thread: waits for what another thread launched.
    fn settle(&mut self) -> Result<()> {
        let (is_per_thread, current) = (self.stream.cu_stream() as usize == PER_THREAD, thread::current().id());
        if is_per_thread && self.last != current {
            self.stream.context().synchronize().map_err(|error| refused("waiting for another thread's work", error))?;
            self.last = current;
        }
        Ok(())
    }

    pub(super) fn held_by_graph(&self) -> Option<Owner> {
        let room = self.room.clone()?;
        Some(room)
    }
}

#[cold]
fn another_stream() -> Error {
    Error::operand("the workspace is another stream's: each stream has one of its own")
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // If the device cannot be waited for it is lost, and the memory with it.
        let _ = self.settle();
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workspace of {} bytes", self.bytes())
    }
}

/// The workspace of a launch: a stream's [`Workspace`], or memory that is ordered like any other operand.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkspaceMemory<'a> {
    /// The stream's.
    Stream(&'a mut Workspace),
    /// Any memory.
    Memory(MemoryMut<'a, u8>),
}

impl<'a> From<&'a mut Workspace> for WorkspaceMemory<'a> {
    #[inline]
    fn from(workspace: &'a mut Workspace) -> Self {
        Self::Stream(workspace)
    }
}

impl<'a, M: Into<MemoryMut<'a, u8>>> From<M> for WorkspaceMemory<'a> {
    #[inline]
    fn from(memory: M) -> Self {
        Self::Memory(memory.into())
    }
}

impl<'a> WorkspaceMemory<'a> {
    #[inline(always)]
    pub(super) fn buffer(&self) -> Buffer {
        match self {
            Self::Stream(workspace) => workspace.buffer(),
            Self::Memory(memory) => memory.buffer(),
        }
    }

    /// Whether it is ready for a launch on `stream` as it is.
    #[inline(always)]
    pub(super) fn is_ready(&self, stream: &CudaStream) -> bool {
        match self {
            Self::Stream(workspace) => workspace.is_ready(stream),
            Self::Memory(_) => true,
        }
    }

    /// Makes the stream's ready for a launch on `stream`.
    ///
    /// # Errors
    /// Operand, if it is another stream's.
    #[inline]
    pub(super) fn order(&mut self, stream: &CudaStream) -> Result<()> {
        if let Self::Stream(workspace) = self { workspace.order(stream) } else { Ok(()) }
    }

    #[inline(always)]
    pub(super) fn address<'b>(&'b mut self, stream: &'b CudaStream, guards: &mut impl Guards<'b>) -> u64 {
        match self {
            Self::Stream(workspace) => workspace.address(),
            Self::Memory(memory) => memory.address(stream, guards),
        }
    }

    /// Its address, for nothing to be done with it but to be remembered.
    pub(super) fn place(&self, stream: &CudaStream) -> u64 {
        match self {
            Self::Stream(workspace) => workspace.address(),
            Self::Memory(memory) => memory.place(stream),
        }
    }

    #[inline]
    pub(super) fn held(&self) -> Option<&'a Owner> {
        if let Self::Memory(memory) = self { memory.held() } else { None }
    }

    pub(super) fn held_by_graph(&self) -> Option<Owner> {
        if let Self::Stream(workspace) = self { workspace.held_by_graph() } else { None }
    }
}
