//! Weights in device memory: prepared, or as they are given.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaView};

use super::check;
use super::given::Given;
use super::refused;
use super::shared::{OwnedMemory, Shared};
use crate::error::{Error, Result};
use crate::format::{Prepared, PreparedLayout};

/// Prepared weights in device memory. Clones share it; any number of streams may use them at a time, and they may be
/// dropped while launches that read them run.
#[derive(Clone, Debug)]
pub struct PreparedWeights {
    bytes: Shared<u8>,
    layout: PreparedLayout,
}

impl PreparedWeights {
    /// The address is a multiple of this.
    pub const ALIGNMENT: u64 = 16;

    /// Copies weights that were prepared on the host to the device of `stream`.
    ///
    /// # Errors
    /// Driver, if the device has no room or refuses the copy.
    pub fn from_host(stream: &Arc<CudaStream>, prepared: &Prepared) -> Result<Self> {
        let layout = *prepared.layout();
        let doing = || format!("copying {layout} to the device");
        let bytes = stream.clone_htod(prepared.bytes()).map_err(|error| refused(doing(), error))?;
        Ok(Self { bytes: Shared::written_in(stream, bytes)?, layout })
    }

    /// Takes over weights that lie on the device in this layout: what [`Prepared::bytes`] has, copied there by the caller.
    /// They are there when `stream` has come to this point.
    ///
    /// # Errors
    /// Operand, if the memory is not [`PreparedLayout::bytes`] bytes, on a multiple of [`PreparedWeights::ALIGNMENT`];
    /// driver, if it makes no event.
    pub fn from_device(
        stream: &CudaStream,
        layout: PreparedLayout,
        memory: impl Into<OwnedMemory<u8>>,
    ) -> Result<Self> {
        let memory = memory.into();
        check_place(&layout, &memory)?;
        Ok(Self { bytes: Shared::written_in(stream, memory)?, layout })
    }

    /// Copies them to the host, to be stored or looked at; waits for everything in `stream` first.
    ///
    /// # Errors
    /// Operand, if the memory is not one of cudarc's; driver, if it refuses the copy or something in the stream failed.
    pub fn to_host(&self, stream: &Arc<CudaStream>) -> Result<Prepared> {
        let slice = self.slice()?;
        self.bytes.order(stream, false)?;
        let copy = || {
            let bytes = stream.clone_dtoh(slice)?;
            stream.synchronize().map(|()| bytes)
        };
        let bytes = copy().map_err(|error| refused(format!("copying {} to the host", self.layout), error))?;
        Prepared::from_bytes(self.layout, bytes)
    }

    /// The same weights a second time on the device, copied in the stream that they were made in.
    ///
    /// # Errors
    /// Operand, if the memory is not one of cudarc's; driver, if the device has no room or refuses the copy.
    pub fn copy(&self) -> Result<Self> {
        let (doing, slice) = (|| format!("copying {} on the device", self.layout), self.slice()?);
        let bytes = slice.try_clone().map_err(|error| refused(doing(), error))?;
        Self::from_device(slice.stream(), self.layout, bytes)
    }

    /// Where the bytes lie.
    #[must_use]
    pub fn layout(&self) -> &PreparedLayout {
        &self.layout
    }

    /// The bytes, [`PreparedLayout::bytes`] of them; none, if the memory is not one of cudarc's.
    #[must_use]
    pub fn as_view(&self) -> Option<CudaView<'_, u8>> {
        self.bytes.slice().map(CudaSlice::as_view)
    }

    fn slice(&self) -> Result<&CudaSlice<u8>> {
        let foreign = || Error::operand("the weights lie in memory that somebody else manages: who has it can copy it");
        self.bytes.slice().ok_or_else(foreign)
    }

    #[inline]
    pub(super) fn shared(&self) -> &Shared<u8> {
        &self.bytes
    }
}

/// Refuses memory that is too small or too large for prepared weights, or not aligned.
pub(super) fn check_place(layout: &PreparedLayout, memory: &OwnedMemory<u8>) -> Result<()> {
    let (needed, given, step) = (layout.bytes() as u64, memory.elements(), PreparedWeights::ALIGNMENT);
    if given != needed {
        return Err(Error::operand(format!("{layout} takes {needed} bytes, {given} were given")));
    }
    check::aligned(&[("the memory", memory.place())], step)
}

/// The weights of a problem as the kernels of a device take them: [`Engine::weights`](crate::engine::Engine::weights).
#[derive(Debug)]
#[non_exhaustive]
// Boxed, they would be one step further from each launch.
#[allow(clippy::large_enum_variant)]
pub enum Weights<'a> {
    /// Repacked, in memory of their own.
    Prepared(PreparedWeights),
    /// As they were given.
    Given(Given<'a>),
}
