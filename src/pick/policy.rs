//! What a choice may change.

use serde::Serialize;

use crate::spelling::words;

/// Whether the choice of a variant may change the bits of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The fastest variant, whatever its order of addition.
    #[default]
    Fastest,
    /// One [class](crate::spec::Numerics) for a problem: that of its [baseline](crate::spec::baseline), in which K is gone
    /// through in one piece in ascending order. A row of C then has the same bits for every M, and whatever was tuned.
    /// The price is paid where tiles are few: K is not shared by warps or blocks there. A class that does so can be named
    /// with [`PickerBuilder::class`](super::PickerBuilder::class).
    BatchInvariant,
}

words!(Policy, "policy", { Fastest => "fastest", BatchInvariant => "batch_invariant" });

impl Serialize for Policy {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}
