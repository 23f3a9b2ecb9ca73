//! The evidence that a kernel is right, and only then how fast it is.
//!
//! [`gate`] judges the bytes that a kernel left behind and knows no device. [`HostOperands`] are what a launch reads,
//! random ones among them; a [`Trial`] has them on a device, checks kernels, and times those that passed.
//!
//! A [`Tuner`] chooses. It knows no device either: it asks a [`Laboratory`] what is right and how long it takes, and
//! what it does with the answers is in [`Budget`] and [`neighbours`] (what to try), [`Comparison`] (who is faster, and
//! whether that is certain) and [`Outcome`] (what came of it).

mod ahead;
mod contest;
mod footprint;
pub mod gate;
mod laboratory;
mod operands;
mod outcome;
mod progress;
mod random;
mod search;
mod statistics;
mod trial;
mod tuner;

pub use footprint::Footprint;
pub use laboratory::{Admission, Laboratory, Rejection};
pub use operands::{HostMatrix, HostOperands, Shape};
pub use outcome::{Evidence, Outcome, Reason, Role, Standing, Tried, Verdict};
pub use progress::{Progress, Stage};
pub use random::Spread;
pub use search::{Budget, neighbours};
pub use statistics::{Comparison, Decision, Disturbance, MARGIN};
pub use trial::{Checked, Trial};
pub use tuner::Tuner;
