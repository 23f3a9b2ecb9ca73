//! Where the matrix kernel reads tokens, and what the tensor memory accelerator is told of that.

use cudarc::driver::DriverError;

use super::code_maps::{CodeMaps, Codes};
use super::tensor_map::{Maps, NO_MAPS, TokenBoxes, Tokens};
use crate::path;
use crate::spec::Spec;

/// Where the matrix kernel reads tokens.
#[derive(Clone, Copy, Debug)]
pub(super) enum TokensFrom {
    /// It loads A itself.
    A,
    /// The tensor memory accelerator does; a value takes so many bytes.
    Mapped(TokenBoxes, u64),
    /// It does so from the front of the workspace, where a row that the prepass has decoded takes so many bytes.
    Decoded(TokenBoxes, u64),
    /// It reads codes of A and of the weights, and perhaps their block scales.
    Codes(CodeMaps),
}

/// Tokens that were described to the tensor memory accelerator ahead, for one kernel.
#[derive(Debug)]
pub(crate) struct BoundTokens {
    tokens: Tokens,
    maps: Maps,
}

impl TokensFrom {
    pub(super) fn new(spec: &Spec) -> Self {
        match spec.tokens() {
            path::Tokens::Loaded => Self::A,
            path::Tokens::Mapped(boxes) => {
                let bytes = spec.problem().compute_format().bytes(1) as u64;
                Self::Mapped(TokenBoxes::new(spec.problem(), &boxes), bytes)
            }
            path::Tokens::Decoded(boxes) => {
                Self::Decoded(TokenBoxes::new(spec.problem(), &boxes), spec.decoded_row_bytes())
            }
            path::Tokens::Codes(boxes) => Self::Codes(CodeMaps::new(spec.problem(), &boxes)),
        }
    }

    /// Bytes of a row that a kernel before the matrix kernel decodes, if one does.
    #[inline]
    pub(super) fn decoded_row(&self) -> Option<u64> {
        match self {
            Self::Decoded(_, row) => Some(*row),
            _ => None,
        }
    }

    /// Bytes that may be read where the tensor memory accelerator reads tokens, of A of so many values and a workspace of so
    /// many bytes.
    #[inline]
    pub(super) fn readable(&self, [a, workspace]: [u64; 2]) -> u64 {
        match self {
            Self::A => 0,
            Self::Mapped(_, bytes) => bytes * a,
            Self::Codes(_) => a,
            Self::Decoded(..) => workspace,
        }
    }

    /// Calls `launch` with the maps of the tokens, for operands and a workspace at these addresses: those that were made ahead,
    /// if they are of the same tokens; none of any use, if the kernel loads tokens itself.
    #[inline]
    pub(super) fn with_maps<R>(
        &self,
        codes: Codes,
        workspace: u64,
        m: u32,
        bound: Option<&BoundTokens>,
        launch: impl FnOnce(&Maps) -> R,
    ) -> Result<R, DriverError> {
        let Some((boxes, tokens)) = self.at(codes.a, workspace, codes.readable, m) else {
            return match self {
                Self::Codes(maps) => maps.with_maps(codes, launch),
                _ => Ok(launch(&NO_MAPS)),
            };
        };
        match bound.and_then(|bound| bound.maps(tokens)) {
            Some(maps) => Ok(launch(maps)),
            None => boxes.with_maps(tokens, launch),
        }
    }

    /// The tokens, `m` rows, of which `readable` bytes may be read, and how they are read, for A and a workspace at these
    /// addresses; none, if the kernel loads them itself.
    #[inline]
    pub(super) fn at(&self, a: u64, workspace: u64, readable: u64, m: u32) -> Option<(&TokenBoxes, Tokens)> {
        match self {
            Self::A | Self::Codes(_) => None,
            Self::Mapped(boxes, _) => Some((boxes, boxes.tokens(a, readable, m))),
            Self::Decoded(boxes, _) => Some((boxes, boxes.tokens(workspace, readable, m))),
        }
    }
}

impl BoundTokens {
    pub(super) fn new(boxes: &TokenBoxes, tokens: Tokens) -> Result<Self, DriverError> {
        Ok(Self { tokens, maps: boxes.encode(tokens)? })
    }

    /// Their maps, if they are those of `tokens`.
    #[inline]
    fn maps(&self, tokens: Tokens) -> Option<&Maps> {
        // Word by word, as they were just written.
        let few = u64::from(self.tokens.few ^ tokens.few);
        let differ = (self.tokens.address ^ tokens.address) | (self.tokens.bytes ^ tokens.bytes) | few;
        (differ == 0).then_some(&self.maps)
    }
}
