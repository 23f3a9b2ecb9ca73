//! What stands in for the compiler of a cache in a program that is built without one.

use crate::build::{Cubin, Source};
use crate::{Error, Result};

#[derive(Debug, Default)]
pub(super) struct Compiler {}

impl Compiler {
    pub(super) fn identity(&self) -> Result<&str> {
        Err(left_out())
    }

    pub(super) fn compile(&self, _: &Source, _: &str) -> Result<Cubin> {
        Err(left_out())
    }
}

fn left_out() -> Error {
    Error::missing_library(
        "this program is built without warpsmith's feature `compile`, so it compiles nothing; remedy: a pack or a cache \
         directory that has the kernel, or the feature",
    )
}
