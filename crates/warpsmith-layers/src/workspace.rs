//! A workspace, cut into what a layer's kernels hand to each other.

use warpsmith::internal::Raise;
use warpsmith::run::MemoryMut;
use warpsmith::{Error, Result};

use crate::rounded::RoundedRows;

/// Every piece begins at a multiple of so many bytes, as the workspace does.
pub(crate) const ALIGNMENT: u64 = 256;
const PIECES: usize = 14;

/// How large each piece is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Between up and down: `[rows, I]`. Of a linear layer whose K is padded, x with zeros: `[tokens, K]`.
    pub(crate) h: u64,
    /// Of the experts: `[rows, H]`.
    pub(crate) y: u64,
    /// Of the shared expert: `[tokens, H]`.
    pub(crate) shared: u64,
    /// `[tokens, k]`, i32.
    pub(crate) ids: u64,
    /// `[tokens, k]`, f32.
    pub(crate) weights: u64,
    /// i32.
    pub(crate) lists: u64,
    /// Values, scales and factor of rounded rows: tokens, `[tokens, H]`.
    pub(crate) x_rounded: [u64; 3],
    /// The same of `h`.
    pub(crate) h_rounded: [u64; 3],
    /// Factors of a product's weights times that of its tokens.
    pub(crate) alphas: u64,
    /// What one kernel needs, whichever needs most.
    pub(crate) kernels: u64,
}

impl Layout {
    fn sizes(&self) -> [u64; PIECES] {
        let Self { h, y, shared, ids, weights, lists, x_rounded, h_rounded, alphas, kernels } = *self;
        let ([a, b, c], [d, e, f]) = (x_rounded, h_rounded);
        let all = [h, y, shared, ids, weights, lists, a, b, c, d, e, f, alphas, kernels];
        all.map(|size| size.next_multiple_of(ALIGNMENT))
    }

    /// Bytes of all.
    pub(crate) fn bytes(&self) -> u64 {
        self.sizes().iter().sum()
    }

    /// Cuts `memory`, which begins at a multiple of [`ALIGNMENT`].
    ///
    /// # Errors
    /// Operand, if it is too short; those of `put`.
    pub(crate) fn cut<R>(
        &self,
        memory: &mut MemoryMut<'_, u8>,
        put: impl FnOnce(Pieces<'_>) -> Result<R>,
    ) -> Result<R> {
        let [h, y, shared, ids, weights, lists, a, b, c, d, e, f, alphas, kernels] = self.sizes();
        let given = memory.elements();
        let short = || too_short(self.bytes(), given);
        let (h, mut rest) = memory.split_at(h as usize).ok_or_else(short)?;
        let (y, mut rest) = rest.split_at(y as usize).ok_or_else(short)?;
        let (shared, mut rest) = rest.split_at(shared as usize).ok_or_else(short)?;
        let (ids, mut rest) = rest.split_at(ids as usize).ok_or_else(short)?;
        let (weights, mut rest) = rest.split_at(weights as usize).ok_or_else(short)?;
        let (lists, mut rest) = rest.split_at(lists as usize).ok_or_else(short)?;
        let (values, mut rest) = rest.split_at(a as usize).ok_or_else(short)?;
        let (scales, mut rest) = rest.split_at(b as usize).ok_or_else(short)?;
        let (factor, mut rest) = rest.split_at(c as usize).ok_or_else(short)?;
        let x_rounded = RoundedRows { values, scales, factor };
        let (values, mut rest) = rest.split_at(d as usize).ok_or_else(short)?;
        let (scales, mut rest) = rest.split_at(e as usize).ok_or_else(short)?;
        let (factor, mut rest) = rest.split_at(f as usize).ok_or_else(short)?;
        let h_rounded = RoundedRows { values, scales, factor };
        let (alphas, mut rest) = rest.split_at(alphas as usize).ok_or_else(short)?;
        let (kernels, _) = rest.split_at(kernels as usize).ok_or_else(short)?;
        put(Pieces { h, y, shared, ids, weights, lists, x_rounded, h_rounded, alphas, kernels })
    }
}

/// The pieces, as in [`Layout`].
pub(crate) struct Pieces<'a> {
    pub(crate) h: MemoryMut<'a, u8>,
    pub(crate) y: MemoryMut<'a, u8>,
    pub(crate) shared: MemoryMut<'a, u8>,
    pub(crate) ids: MemoryMut<'a, u8>,
    pub(crate) weights: MemoryMut<'a, u8>,
    pub(crate) lists: MemoryMut<'a, u8>,
    pub(crate) x_rounded: RoundedRows<'a>,
    pub(crate) h_rounded: RoundedRows<'a>,
    pub(crate) alphas: MemoryMut<'a, u8>,
    pub(crate) kernels: MemoryMut<'a, u8>,
}

/// What a product's launches need of it.
#[derive(Debug)]
pub(crate) struct Room<'a, 'b> {
    pub(crate) alphas: &'a mut MemoryMut<'b, u8>,
    pub(crate) kernels: &'a mut MemoryMut<'b, u8>,
}

impl<'b> Room<'_, 'b> {
    /// The same, for one of several launches.
    pub(crate) fn again(&mut self) -> Room<'_, 'b> {
        Room { alphas: self.alphas, kernels: self.kernels }
    }
}

/// The most tokens, `limit` at most, that `given` bytes of workspace are enough for at a time, where `bytes` says how many so
/// many tokens need, which never falls.
///
/// # Errors
/// Operand, if they are not enough for one.
pub(crate) fn room(limit: u32, given: u64, bytes: impl Fn(u32) -> u64) -> Result<u32> {
    if bytes(limit) <= given {
        return Ok(limit);
    }
    let (mut fits, mut most) = (0, limit);
    while fits + 1 < most {
        let middle = fits + (most - fits) / 2;
        if bytes(middle) <= given { fits = middle } else { most = middle }
    }
    if fits > 0 { Ok(fits) } else { Err(too_short(bytes(1), given)) }
}

#[cold]
fn too_short(needed: u64, given: u64) -> Error {
    Error::operand(format!("the workspace has {given} bytes: one token needs {needed}"))
}

/// First token and number of tokens of each chunk.
pub(crate) fn chunks(tokens: u32, room: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..tokens).step_by(room.max(1) as usize).map(move |first| (first, room.min(tokens - first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        h: 1000,
        y: 4096,
        shared: 0,
        ids: 12,
        weights: 256,
        lists: 257,
        x_rounded: [640, 40, 0],
        h_rounded: [0, 0, 2052],
        alphas: 32,
        kernels: 1,
    };

    #[test]
    fn pieces_are_aligned_and_apart() {
        assert_eq!(LAYOUT.bytes(), 1024 + 4096 + 256 + 256 + 512 + 768 + 256 + 2304 + 256 + 256);
        assert_eq!(Layout::default().bytes(), 0);
        // SAFETY: nothing is launched.
        let memory = |bytes| unsafe { MemoryMut::<u8>::from_raw(1 << 20, bytes) };
        let mut whole = memory(LAYOUT.bytes() as usize + 3);
        let sizes = LAYOUT.cut(&mut whole, |pieces| {
            let Pieces { h, y, shared, ids, weights, lists, x_rounded, h_rounded, alphas, kernels } = pieces;
            let [[a, b, c], [d, e, f]] = [x_rounded, h_rounded].map(|of| [of.values, of.scales, of.factor]);
            let all = [h, y, shared, ids, weights, lists, a, b, c, d, e, f, alphas, kernels];
            Ok(all.map(|piece| (format!("{piece:?}"), piece.elements())))
        });
        let sizes = sizes.unwrap().map(|(_, size)| size);
        assert_eq!(sizes, [1024, 4096, 0, 256, 256, 512, 768, 256, 0, 0, 0, 2304, 256, 256]);
        let error = LAYOUT.cut(&mut memory(LAYOUT.bytes() as usize - 1), |_| Ok(())).unwrap_err();
        assert!(error.is_operand() && error.to_string().contains("has 9983 bytes"), "{error}");
    }

    #[test]
    fn as_many_tokens_as_fit_go_at_a_time() {
        let bytes = |tokens: u32| u64::from(tokens.div_ceil(3)) * 100 + 7;
        for limit in [1, 2, 9, 1000] {
            for given in 0..5000 {
                match room(limit, given, bytes) {
                    Ok(room) => {
                        assert!(bytes(room) <= given && (room == limit || bytes(room + 1) > given), "{limit} {given}");
                    }
                    Err(error) => {
                        assert!(given < bytes(1) && error.is_operand(), "{limit} {given}");
                        let text = format!("has {given} bytes: one token needs 107");
                        assert!(error.to_string().contains(&text), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn chunks_are_all_tokens_once() {
        assert_eq!(chunks(10, 4).collect::<Vec<_>>(), [(0, 4), (4, 4), (8, 2)]);
        assert_eq!(chunks(4, 4).collect::<Vec<_>>(), [(0, 4)]);
        assert_eq!(chunks(3, 1000).collect::<Vec<_>>(), [(0, 3)]);
        assert_eq!(chunks(0, 4).count(), 0);
    }
}
