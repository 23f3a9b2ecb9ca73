//! The device side: a device, operands that are checked before anything is launched, kernels, and clocks.
//!
//! [`Device`] is opened by ordinal and owned by its caller: there is no global device. [`Operands`] borrow device
//! memory; their sizes, alignment and device are checked at every launch, so that [`Kernel::launch`] is safe. It is
//! also asynchronous and allocates nothing, on the host or on the device: workspace is an operand like any other.
//!
//! `unsafe` stands in this module (and where NVRTC and the host's matrix library are called, and pip is started), each time
//! with the reason why it holds.

mod capture;
mod check;
mod code;
mod device;
mod guards;
mod kernel;
mod launch;
mod operand;
mod params;
mod prepare;
mod set_up;
mod tensor_map;
mod timing;
mod tokens;
mod turns;
mod wait;

pub(crate) use capture::is_captured;
pub use device::{Device, DriverVersion};
pub use kernel::Kernel;
pub(crate) use kernel::allocate_workspace;
pub use operand::{Alpha, Matrix, MatrixMut, Operands};
pub use prepare::{PreparedWeights, Preparer};
pub use timing::{Pace, Timer, Timing, operand_sets};
pub(crate) use tokens::BoundTokens;
pub use turns::LoadTime;
pub use wait::{Health, wait};

use cudarc::driver::DriverError;

use crate::error::Error;

/// Wraps what the driver said.
fn refused(doing: impl std::fmt::Display, error: DriverError) -> Error {
    // Only the code: the driver's own sentence for it comes with `source()`.
    Error::driver(format!("{doing}: {:?}", error.0)).with_source(error)
}
