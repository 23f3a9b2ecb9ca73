//! Tokens.

use std::ops::Range;

use fastrand::Rng;
use warpsmith::format::Format;
use warpsmith_layers::LayerConfig;

use crate::oracle::combine::rounded;

/// What a forward reads, each value exactly as it is in its format.
#[derive(Clone, Debug)]
pub struct HostTokens {
    count: usize,
    columns: [usize; 2],
    pub(super) x: Vec<f32>,
    /// `[tokens, E]`.
    pub(super) logits: Vec<f32>,
    /// `[tokens, columns of the result]`, where the layer has one.
    pub(super) residual: Vec<f32>,
}

impl HostTokens {
    /// These: `x` `[tokens, columns]` and, where a router has them, `logits` `[tokens, E]`, exact in their formats.
    #[must_use]
    pub fn given(config: &LayerConfig, x: Vec<f32>, logits: Vec<f32>) -> Self {
        let columns = config.columns().map(|columns| columns as usize);
        Self { count: x.len() / columns[0].max(1), columns, x, logits, residual: Vec::new() }
    }

    /// Of `tokens` tokens, each of which chooses its first expert by Zipf's law: the one of rank r as r^(−skew).
    #[must_use]
    pub fn random(config: &LayerConfig, tokens: u32, skew: f64, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (count, format) = (tokens as usize, config.token_format());
        let columns = config.columns().map(|columns| columns as usize);
        let values = |rng: &mut Rng, length: usize| -> Vec<f32> {
            (0..length).map(|_| rounded(format, 2.0 * rng.f32() - 1.0)).collect()
        };
        let (x, mut logits, mut residual) = (values(&mut rng, count * columns[0]), Vec::new(), Vec::new());
        if let LayerConfig::Moe(of) = config {
            let experts = of.route().expert_count() as usize;
            let mut rank: Vec<usize> = (1..=experts).collect();
            rng.shuffle(&mut rank);
            let format = of.route().logits_format().unwrap_or(Format::F32);
            // Whose largest is as by a draw (Gumbel).
            let noise = |rng: &mut Rng| -(-(rng.f64().max(1e-12)).ln()).ln();
            let logit = |rng: &mut Rng, expert: usize| noise(rng) - skew * (rank[expert] as f64).ln();
            let all = (0..count * experts).map(|at| rounded(format, logit(&mut rng, at % experts) as f32));
            logits = all.collect();
            if of.has_residual() {
                residual = values(&mut rng, count * columns[1]);
            }
        }
        Self { count, columns, x, logits, residual }
    }

    /// The same with few elements that are not 0, all of a row's of one magnitude: so that products of e4m3 values lose nothing
    /// where tensor cores add them, and what is between up and down is known, or nearly.
    #[must_use]
    pub fn sparse(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        for (at, x) in self.x.iter_mut().enumerate() {
            let magnitude = [1.0, 0.5, 2.0][at / self.columns[0] % 3];
            *x = if rng.u32(..32) > 0 { 0.0 } else { magnitude * [1.0, -1.0][rng.usize(..2)] };
        }
        self
    }

    /// Some of them, alone.
    ///
    /// # Panics
    /// If `range` is out of range.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        let Self { count, columns, .. } = *self;
        let of = |values: &[f32]| {
            let each = values.len() / count.max(1);
            values[range.start * each..range.end * each].to_vec()
        };
        let (x, logits, residual) = (of(&self.x), of(&self.logits), of(&self.residual));
        Self { count: range.len(), columns, x, logits, residual }
    }

    /// The same with these logits, `[tokens, E]`, exact in their format.
    #[must_use]
    pub fn with_logits(mut self, logits: Vec<f32>) -> Self {
        self.logits = logits;
        self
    }

    /// `[tokens, columns]`.
    #[must_use]
    pub fn x(&self) -> &[f32] {
        &self.x
    }

    /// `[tokens, E]`.
    #[must_use]
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// How many tokens.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Columns of x and of the result.
    #[must_use]
    pub fn columns(&self) -> [usize; 2] {
        self.columns
    }

    /// All tokens, and all columns of the result.
    #[must_use]
    pub fn everything(&self) -> [Vec<usize>; 2] {
        [(0..self.count).collect(), (0..self.columns[1]).collect()]
    }
}
