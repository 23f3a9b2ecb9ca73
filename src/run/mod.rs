//! The device side: a device, operands that are checked before anything is launched, kernels, and clocks.
//!
//! [`Device`] is opened by ordinal and owned by its caller: there is no global device. [`Operands`] borrow device
//! memory; their sizes, alignment and device are checked at every launch, so that [`Kernel::launch`] is safe. It is
//! also asynchronous and allocates nothing, on the host or on the device: workspace is an operand like any other.
//!
//! Memory, streams and contexts of others (another cudarc, a framework, C) come in by raw handles: [`Device::from_raw`],
//! [`Device::raw_stream`], [`Memory::from_raw`], [`MemoryMut::from_raw`], [`OwnedMemory::from_raw`]. These are `unsafe`,
//! and each says what its caller promises.
//!
//! `unsafe` stands in this module (and where NVRTC and the host's matrix library are called, and pip is started), each time
//! with the reason why it holds.

mod capture;
mod check;
mod code;
mod code_maps;
mod combine;
mod device;
mod driver;
pub(crate) mod experts;
mod fill;
pub(crate) mod given;
mod guards;
mod kernel;
mod launch;
pub(crate) mod load_lock;
mod memory;
mod module;
mod next;
mod operand;
mod operands;
pub(crate) mod places;
pub(crate) mod prepare;
pub(crate) mod quantise;
pub(crate) mod quantise_weights;
mod raw;
mod retired;
mod route;
mod set_up;
mod shared;
mod simt;
mod tensor_map;
mod tokens;
mod visit;
mod weights;
mod workspace;

pub(crate) use capture::is_captured;
pub use combine::{CombineOperands, Combiner};
pub use device::Device;
pub use driver::DriverVersion;
pub(crate) use driver::elapsed_ms;
pub use given::{Given, GivenMatrix};
pub use kernel::Kernel;
pub(crate) use load_lock::LoadTime;
pub use memory::{Memory, MemoryMut};
pub use next::NextWeights;
pub use operand::{Alpha, Matrix, MatrixMut, Values};
pub use operands::Operands;
pub(crate) use prepare::Preparer;
pub use quantise::{QuantiseOperands, Quantiser};
pub use raw::{LaunchStream, RawStream};
pub use retired::Owner;
pub use route::{RouteOperands, Router};
pub use shared::{OwnedMemory, Shared};
pub(crate) use simt::SimtKernel;
pub(crate) use tokens::BoundTokens;
pub use weights::{PreparedWeights, Weights};
pub use workspace::{Workspace, WorkspaceMemory};

use cudarc::driver::DriverError;

use crate::error::Error;

/// Wraps what the driver said.
pub(crate) fn refused(doing: impl std::fmt::Display, error: DriverError) -> Error {
    // Only the code: the driver's own sentence for it comes with `source()`.
    Error::driver(format!("{doing}: {:?}", error.0)).with_source(error)
}
