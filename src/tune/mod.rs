//! The evidence that a kernel is right, and only then how fast it is.
//!
//! [`gate`] judges the bytes that a kernel left behind and knows no device. [`HostOperands`] are what a launch reads,
//! random ones among them; a [`Trial`] has them on a device, checks kernels, and times those that passed.

mod ahead;
mod contest;
mod footprint;
pub mod gate;
mod laboratory;
mod operands;
mod outcome;
mod random;
mod search;
mod statistics;
mod trial;
mod tuner;

pub use footprint::Footprint;
pub use laboratory::{Admission, Laboratory, Rejection};
pub use operands::{HostMatrix, HostOperands, Shape};
pub use outcome::{Evidence, Outcome, Progress, Reason, Role, Stage, Standing, Tried, Verdict};
pub use random::Spread;
pub use search::{Budget, neighbours};
pub use statistics::{Comparison, Decision, Disturbance, MARGIN};
pub use trial::{Checked, Trial};
pub use tuner::Tuner;
