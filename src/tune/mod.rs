//! The evidence that a kernel is right, and only then how fast it is.
//!
//! [`gate`] judges the bytes that a kernel left behind and knows no device. [`HostOperands`] are what a launch reads,
//! random ones among them, and [`mod@reference`] is what comes out; a [`Trial`] has them on a device, checks kernels, and
//! times those that passed.

pub mod gate;
mod laboratory;
mod operands;
mod random;
pub mod reference;
mod search;
mod set;
mod statistics;
mod trial;

pub use laboratory::{Admission, Laboratory, Rejection};
pub use operands::{HostMatrix, HostOperands, Shape};
pub use random::Spread;
pub use search::{Budget, neighbours};
pub use statistics::{Comparison, Decision, Disturbance, MARGIN};
pub use trial::{Checked, Launching, Trial};
