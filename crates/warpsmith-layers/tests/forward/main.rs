//! Layers up to the driver, which here is one without a device: launches, chunks, refusals, padding.

#![allow(clippy::unwrap_used)]

mod launches;
mod refusals;
mod scene;
mod warm;
