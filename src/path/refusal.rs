//! Why a combination is not legal, as data.

use std::fmt;

use super::{Fusion, MatrixPath};
use crate::arch::ComputeCapability;
use crate::error::Error;
use crate::format::Format;
use crate::problem::{Activation, Operation};

/// Why a combination is not legal: the limit, with both numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// N, K, M or the number of groups is zero, too large or not a multiple of its step.
    Extent {
        /// Which one.
        what: &'static str,
        /// Its value.
        value: u32,
        /// It must be a multiple of this.
        step: u32,
        /// And at most this.
        max: u32,
    },
    /// An operand or result format that no kernel takes in this place.
    Format {
        /// A, B or C.
        operand: &'static str,
        /// Its format.
        format: Format,
        /// What it may be.
        expected: &'static str,
    },
    /// An activation that does not go with the operation.
    Activation {
        /// The operation, with it.
        operation: Operation,
    },
    /// A fusion that does not go with the operation.
    Fusion {
        /// The fusion.
        fusion: Fusion,
        /// What the operation needs.
        expected: &'static str,
    },
    /// A matrix path that the architecture does not have.
    Capability {
        /// The path.
        path: MatrixPath,
        /// Compute capability that it needs.
        needs: ComputeCapability,
        /// Compute capability of the architecture.
        has: ComputeCapability,
    },
    /// Weights in a layout that the matrix path does not take.
    Weights {
        /// The path.
        path: MatrixPath,
        /// What it takes.
        expected: &'static str,
    },
    /// Values of two axes that do not go together.
    Together {
        /// The value that is refused.
        what: &'static str,
        /// What it needs.
        expected: &'static str,
    },
    /// A tile extent, stage count or split that is not a value of its axis.
    Axis {
        /// Which one.
        what: &'static str,
        /// Its value.
        value: u32,
        /// What it may be.
        expected: &'static str,
    },
    /// More shared memory than a block can have.
    SharedMemory {
        /// Bytes needed.
        needs: u32,
        /// Bytes a block may have.
        limit: u32,
        /// The architecture.
        arch: &'static str,
    },
    /// More registers than a thread can have.
    Registers {
        /// Accumulators of one thread.
        accumulators: u32,
        /// Registers needed, accumulators included.
        needs: u32,
        /// Registers a thread may have in a block of this size.
        limit: u32,
    },
    /// More splits of K than leave every split something to do.
    SplitK {
        /// Splits.
        splits: u32,
        /// Tiles along K.
        k_tiles: u32,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Extent { what, value, step: 1, max } => write!(f, "{what} = {value}: must be 1 to {max}"),
            Refusal::Extent { what, value, step, max } => {
                write!(f, "{what} = {value}: must be a multiple of {step} from {step} to {max}")
            }
            Refusal::Format { operand, format, expected } => {
                write!(f, "{operand} in {format}: must be {expected}")
            }
            Refusal::Activation { operation } => {
                let (name, known) = match operation {
                    Operation::Gemm(_) => ("gemm", Activation::spellings(operation.activations())),
                    Operation::DualGemm(_) => ("dual_gemm", Activation::spellings(operation.activations())),
                };
                write!(f, "activation {}: {name} takes {known}", operation.activation())
            }
            Refusal::Fusion { fusion, expected } => write!(f, "fusion {fusion}: {expected}"),
            Refusal::Capability { path, needs, has } => {
                write!(f, "matrix path {path} needs compute capability {needs}, this architecture has {has}")
            }
            Refusal::Weights { path, expected } => write!(f, "matrix path {path} takes {expected}"),
            Refusal::Together { what, expected } => write!(f, "{what} needs {expected}"),
            Refusal::Axis { what, value, expected } => write!(f, "{what} = {value}: must be {expected}"),
            Refusal::SharedMemory { needs, limit, arch } => {
                write!(f, "shared memory: {needs} bytes needed, {arch} gives a block {limit}")
            }
            Refusal::Registers { accumulators, needs, limit } => write!(
                f,
                "registers: {needs} a thread needed ({accumulators} of them accumulators), {limit} can be had"
            ),
            Refusal::SplitK { splits, k_tiles } => {
                write!(f, "split-K {splits}: {k_tiles} tiles along K leave a split without work")
            }
        }
    }
}

impl Refusal {
    /// The limit that is not kept, in a word or two: refusals of the same limit have the same.
    #[must_use]
    pub fn limit(&self) -> &'static str {
        match self {
            Refusal::Extent { what, .. } | Refusal::Together { what, .. } | Refusal::Axis { what, .. } => what,
            Refusal::Format { .. } => "format",
            Refusal::Activation { .. } => "activation",
            Refusal::Fusion { .. } => "fusion",
            Refusal::Capability { .. } => "compute capability",
            Refusal::Weights { .. } => "weights",
            Refusal::SharedMemory { .. } => "shared memory",
            Refusal::Registers { .. } => "registers",
            Refusal::SplitK { .. } => "tiles along K",
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Error::unsupported(refusal.to_string())
    }
}

/// Refuses a value that is not one of its axis.
pub(crate) fn axis(what: &'static str, value: u32, legal: bool, expected: &'static str) -> Result<(), Refusal> {
    if legal { Ok(()) } else { Err(Refusal::Axis { what, value, expected }) }
}

/// Refuses values of two axes that do not go together.
pub(crate) fn together(what: &'static str, legal: bool, expected: &'static str) -> Result<(), Refusal> {
    if legal { Ok(()) } else { Err(Refusal::Together { what, expected }) }
}
