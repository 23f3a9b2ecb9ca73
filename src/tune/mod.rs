//! The evidence that a kernel is right, and only then how fast it is.
//!
//! [`gate`] judges the bytes that a kernel left behind and knows no device. [`HostOperands`] are what a launch reads,
//! random ones among them, and [`mod@reference`] is what comes out; a [`Trial`] has them on a device, checks kernels, and
//! times those that passed.

mod adversarial;
pub mod gate;
mod keeper;
mod laboratory;
mod local;
mod operands;
mod quarantine;
mod random;
pub mod reference;
mod rig;
mod search;
mod set;
mod setup;
mod statistics;
#[cfg(test)]
mod testing;
mod trial;
mod worker;

pub use laboratory::{Admission, Laboratory, Rejection};
pub use local::LocalLaboratory;
pub use operands::{HostMatrix, HostOperands, Shape};
pub use quarantine::Quarantine;
pub use random::Spread;
pub use search::{Budget, neighbours};
pub use setup::{Setup, even_rows};
pub use statistics::{Comparison, Decision, Disturbance, MARGIN};
pub use trial::{Checked, Launching, Trial};
pub use worker::{WorkerCommand, WorkerDevice, WorkerLaboratory, serve, serve_if_asked};
