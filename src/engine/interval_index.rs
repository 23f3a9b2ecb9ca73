//! Which interval a number of rows is in.

/// Where intervals end that are ascending and without gaps from one row on. M changes from launch to launch in no order, so
/// the look-up compares with all ends at once, eight at a time, and has no branch to be mispredicted.
#[derive(Debug)]
pub(super) struct IntervalIndex(Box<[[i32; 8]]>);

impl IntervalIndex {
    pub fn new(lasts: impl IntoIterator<Item = u32>) -> Self {
        // M is far below.
        let lasts: Vec<i32> = lasts.into_iter().map(|last| i32::try_from(last).unwrap_or(i32::MAX)).collect();
        let eight = |some: &[i32]| std::array::from_fn(|at| some.get(at).copied().unwrap_or(i32::MAX));
        Self(lasts.chunks(8).map(eight).collect())
    }

    /// The index of the interval of `m` rows; that behind the last, or a later one, if none has so many.
    #[inline]
    pub fn index(&self, m: u32) -> usize {
        let m = i32::try_from(m).unwrap_or(i32::MAX);
        self.0.iter().map(|ends| ends.iter().map(|end| i32::from(*end < m)).sum::<i32>() as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_its_interval() {
        for count in [1u32, 2, 7, 8, 9, 16, 20] {
            let lasts: Vec<u32> = (1..=count).map(|end| end * end).collect();
            let ends = IntervalIndex::new(lasts.iter().copied());
            for m in 0..=count * count {
                assert_eq!(ends.index(m), lasts.iter().position(|last| m <= *last).unwrap(), "{m} of {lasts:?}");
            }
            for m in [count * count + 1, i32::MAX as u32, u32::MAX] {
                assert_eq!(ends.index(m), count as usize);
            }
        }
    }
}
