//! Build → gate → time → table: the evidence that a variant is right, and then that it is fast.
//!
//! [`gate`] is the pure half of the gate: it judges the bytes that a kernel left behind. It knows no device.

pub mod gate;
