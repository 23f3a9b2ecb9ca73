//! The evidence that a kernel is right, and only then how fast it is.
//!
//! [`gate`] judges the bytes that a kernel left behind and knows no device. [`HostOperands`] are what a launch reads,
//! random ones among them, and [`mod@reference`] is what comes out; a [`Trial`] has them on a device, checks kernels, and
//! times those that passed.
//!
//! A [`Tuner`] chooses. It knows no device either: it asks a [`Measure`] what is right and how long it takes, and
//! what it does with the answers is in [`Budget`] and [`neighbours`] (what to try), [`Rest`] (when), [`Comparison`] (who is
//! faster, and whether that is certain) and [`Outcome`] (what came of it). [`tune_within`] shares a time among all that a
//! manifest asks for.
//!
//! Two measurers have a device, for one [`Setup`]: a [`LocalMeasurer`] in this process, and a [`WorkerMeasurer`]
//! in another, which may hang or crash without harm. Both remember in a [`Quarantine`] what should not be tried again.

mod adversarial;
mod ahead;
mod clock;
mod cores;
mod drawn;
mod fetched;
mod footprint;
pub mod gate;
pub mod layer;
mod local;
mod local_backend;
mod measure;
mod measurer;
mod numbers;
mod operands;
pub mod oracle;
mod outcome;
mod progress;
mod quarantine;
mod random;
pub mod reference;
mod rest;
mod search;
mod session;
mod set;
mod setup;
mod statistics;
pub mod suite;
#[cfg(test)]
mod testing;
mod timing;
mod trial;
mod tuner;
mod tuning;
mod wait;
mod worker;

pub use clock::{Clock, SystemClock};
pub use drawn::drawn_rows;
pub use footprint::Footprint;
pub use local::LocalMeasurer;
pub use measure::{Admission, Measure, Rejection};
pub use numbers::Numbers;
pub use operands::{HostColumns, HostMatrix, HostOperands, HostRows, Shape};
pub use outcome::{Measurements, Outcome, Role, Standing, Tried, Verdict, WhyInconclusive};
pub use progress::{Progress, Stage};
pub use quarantine::{Platform, Quarantine};
pub use random::Spread;
pub use rest::Rest;
pub use search::{Budget, neighbours};
pub use session::{Decided, Point, Turn, tune_within};
pub use setup::{Setup, even_rows};
pub use statistics::{Comparison, Decision, Disturbance, MARGIN};
pub use timing::{Pace, Timer, Timing, operand_sets, operand_sets_of};
pub use trial::{Checked, Launching, Trial};
pub use tuner::Tuner;
pub use wait::{Health, wait};
pub use worker::{WorkerCommand, WorkerDevice, WorkerMeasurer, serve, serve_if_asked};
