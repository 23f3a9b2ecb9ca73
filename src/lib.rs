//! GPU kernels made for one problem shape.

pub mod build;
pub mod cache;
pub mod engine;
pub mod error;
pub mod format;
pub mod oracle;
pub mod pick;
pub mod run;
pub mod spec;
pub mod tune;

pub use error::{Error, Result};
