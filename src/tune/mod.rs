//! The evidence that a kernel is right, and only then how fast it is.
//!
//! [`gate`] judges the bytes that a kernel left behind and knows no device. [`HostOperands`] are what a launch reads,
//! random ones among them; a [`Trial`] has them on a device, checks kernels, and times those that passed.

pub mod gate;
mod laboratory;
mod operands;
mod random;
mod trial;

pub use laboratory::{Admission, Laboratory, Rejection};
pub use operands::{HostMatrix, HostOperands, Shape};
pub use random::Spread;
pub use trial::{Checked, Trial};
