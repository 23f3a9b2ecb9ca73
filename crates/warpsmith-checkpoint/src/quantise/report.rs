//! What has been quantised, and what is lost.

use super::matrix::Squares;

/// A checkpoint that has been quantised.
#[derive(Clone, Debug, Default)]
pub struct Quantised {
    pub(super) weights: Vec<QuantisedWeight>,
    pub(super) kept: usize,
    pub(super) resumed: usize,
    pub(super) left: Vec<String>,
    pub(super) source_bytes: u64,
    pub(super) bytes: u64,
}

impl Quantised {
    /// Each weight, in the order in which they lie.
    #[must_use]
    pub fn weights(&self) -> &[QuantisedWeight] {
        &self.weights
    }

    /// Tensors that are as they were.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Files of tensors that an earlier run had made.
    #[must_use]
    pub fn resumed(&self) -> usize {
        self.resumed
    }

    /// Folders and weights in other formats, which are not copied.
    #[must_use]
    pub fn left(&self) -> &[String] {
        &self.left
    }

    /// Bytes of all tensors before.
    #[must_use]
    pub fn source_bytes(&self) -> u64 {
        self.source_bytes
    }

    /// Bytes of all tensors now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// ‖w − ŵ‖ / ‖w‖ over all quantised weights; 0 where all are zero.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.squares().relative(|squares| squares.error)
    }

    /// What that is by the plain rule, under the same factors.
    #[must_use]
    pub fn plain_error(&self) -> f64 {
        self.squares().relative(|squares| squares.plain)
    }

    fn squares(&self) -> Squares {
        let mut all = Squares::default();
        self.weights.iter().for_each(|weight| all += weight.squares);
        all
    }
}

/// A weight that has been quantised.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantisedWeight {
    pub(super) name: String,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) squares: Squares,
}

impl QuantisedWeight {
    /// The module's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// N.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// K.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// ‖w − ŵ‖ / ‖w‖; 0 where w is zero.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.squares.relative(|squares| squares.error)
    }

    /// What that is by the plain rule, under the same factor.
    #[must_use]
    pub fn plain_error(&self) -> f64 {
        self.squares.relative(|squares| squares.plain)
    }
}

impl Squares {
    fn relative(&self, of: impl Fn(&Self) -> f64) -> f64 {
        if self.values == 0.0 { 0.0 } else { (of(self) / self.values).sqrt() }
    }
}
