//! The oracle of whole layers: what is right passes, and what is like it but wrong does not.

#![allow(clippy::unwrap_used)] // helpers outside `#[test]` functions

use warpsmith::format::Format;
use warpsmith::spec::{Activation, Route, Scoring};
use warpsmith_testing::activations::Device;
use warpsmith_testing::numbers::{rng, usual_nvfp4};
use warpsmith_tune::oracle::combine::rounded;
use warpsmith_tune::oracle::layer::{Chosen, Expert, Kind, SharedExpert, Weight, moe};
use warpsmith_tune::oracle::route::{Given, route};
use warpsmith_tune::oracle::{Matrix, Scaling, linear};

const HIDDEN: usize = 128;
const INTERMEDIATE: usize = 96;
const EXPERTS: usize = 6;
const K: usize = 2;
const TOKENS: usize = 7;

/// One thing wrong, or nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mutant {
    None,
    TokenLeftOut,
    ExpertsExchanged,
    NotRenormalised,
    RowTwice,
    TieTheOtherWay,
    GateAndUpExchanged,
    SharedLeftOut,
    BiasOfAnother,
    HCoarse,
}

struct Owned {
    /// Gate, up, down.
    values: [Matrix<'static>; 3],
    alpha: [f32; 3],
    bias: [Vec<f32>; 3],
}

struct Layer {
    kind: Kind,
    is_gated: bool,
    experts: Vec<Owned>,
    shared: Owned,
    x: Matrix<'static>,
    logits: Vec<f32>,
    residual: Vec<f32>,
}

impl Layer {
    fn new(activation: Activation, is_gated: bool, format: Format) -> Self {
        let mut rng = rng(0x1A7E);
        let mut random = fastrand::Rng::with_seed(5);
        let mut expert = |intermediate: usize| {
            let mut matrix = |rows, k| Matrix::from(&usual_nvfp4(&mut rng, rows, k));
            let values = [matrix(intermediate, HIDDEN), matrix(intermediate, HIDDEN), matrix(HIDDEN, intermediate)];
            // Products of the order of 1; gate and up are apart.
            let size = |values: &Matrix<'_>| {
                let squares = values.data().iter().map(|x| x * x).sum::<f32>();
                (values.rows() as f32 / squares).sqrt()
            };
            let alpha = [2.0 * size(&values[0]), 0.7 * size(&values[1]), size(&values[2])];
            let bias = [intermediate, intermediate, HIDDEN];
            let bias = bias.map(|n| (0..n).map(|_| rounded(Format::Bf16, random.f32() - 0.5)).collect());
            Owned { values, alpha, bias }
        };
        let experts = (0..EXPERTS).map(|_| expert(INTERMEDIATE)).collect();
        let shared = expert(64);
        let mut random = fastrand::Rng::with_seed(6);
        let mut values =
            |length: usize| -> Vec<f32> { (0..length).map(|_| rounded(format, 2.0 * random.f32() - 1.0)).collect() };
        let x = Matrix::new(TOKENS, HIDDEN, values(TOKENS * HIDDEN)).unwrap();
        let residual = values(TOKENS * HIDDEN);
        let mut logits = values(TOKENS * EXPERTS);
        // The second of the last token is one of two that are equal.
        logits[(TOKENS - 1) * EXPERTS..].copy_from_slice(&[-1.0, 0.5, -2.0, 2.0, 0.5, -1.0]);
        Self { kind: Kind { activation, format, is_e4m3: false }, is_gated, experts, shared, x, logits, residual }
    }

    fn route(&self) -> Route {
        Route::new(Scoring::Softmax).experts(EXPERTS as u32).k(K as u32).renormalised()
    }

    fn borrowed<'a>(&self, of: &'a Owned) -> Expert<'a> {
        let weight = |nth: usize| Weight {
            values: of.values[nth].clone(),
            scaling: Scaling { bias: Some(&of.bias[nth]), ..of.alpha[nth].into() },
        };
        Expert { gate: self.is_gated.then(|| weight(0)), up: weight(1), down: weight(2) }
    }

    /// As kernels do it: in f32, rounded between them.
    fn mlp(&self, x: &[f32], of: &Owned, mutant: Mutant) -> Vec<f32> {
        let Kind { activation, format, .. } = self.kind;
        let product = |x: &[f32], nth: usize| -> Vec<f32> {
            let sum = |row: usize| {
                let parts = x.chunks(16).zip(of.values[nth].row(row).chunks(16));
                parts.map(|(x, w)| x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>()).sum::<f32>()
            };
            let bias = if mutant == Mutant::BiasOfAnother && nth == 2 { &self.experts[0].bias } else { &of.bias };
            (0..of.values[nth].rows()).map(|row| of.alpha[nth] * sum(row) + bias[nth][row]).collect()
        };
        let device = Device::default();
        let [gate, up] = if mutant == Mutant::GateAndUpExchanged { [1, 0] } else { [0, 1] };
        let h: Vec<f32> = if self.is_gated {
            let (gate, up) = (product(x, gate), product(x, up));
            let passed = |up: f32| linear(activation, f64::from(up)) as f32;
            gate.iter().zip(&up).map(|(gate, up)| device.activate(activation, *gate) * passed(*up)).collect()
        } else {
            product(x, 1).iter().map(|up| device.activate(activation, *up)).collect()
        };
        let coarse = if mutant == Mutant::HCoarse { 8.0 } else { 0.0 };
        let h: Vec<f32> = h.iter().map(|h| rounded(format, *h + coarse) - coarse).collect();
        product(&h, 2).iter().map(|y| rounded(format, *y)).collect()
    }

    fn evaluated(&self, mutant: Mutant) -> Vec<f32> {
        let mut out = Vec::new();
        for token in 0..TOKENS {
            let logits = &self.logits[token * EXPERTS..][..EXPERTS];
            let mut order: Vec<usize> = (0..EXPERTS).collect();
            let tie = |a: &usize, b: &usize| if mutant == Mutant::TieTheOtherWay { b.cmp(a) } else { a.cmp(b) };
            order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then_with(|| tie(a, b)));
            let all: f32 = logits.iter().map(|logit| logit.exp()).sum();
            let own: f32 = order[..K].iter().map(|expert| logits[*expert].exp()).sum();
            let over = if mutant == Mutant::NotRenormalised { all } else { own };
            let mut sum = vec![0f32; HIDDEN];
            for (slot, expert) in order[..K].iter().enumerate() {
                if mutant == Mutant::TokenLeftOut && token == 3 {
                    continue;
                }
                let of = match (mutant, expert) {
                    (Mutant::ExpertsExchanged, 2) => &self.experts[4],
                    (Mutant::ExpertsExchanged, 4) => &self.experts[2],
                    _ => &self.experts[*expert],
                };
                let row = self.mlp(self.x.row(token), of, mutant);
                let weight = logits[*expert].exp() / over;
                let times = if mutant == Mutant::RowTwice && (token, slot) == (5, 1) { 2 } else { 1 };
                for _ in 0..times {
                    sum.iter_mut().zip(&row).for_each(|(sum, y)| *sum = weight.mul_add(*y, *sum));
                }
            }
            let shared = match mutant {
                Mutant::SharedLeftOut => vec![0.0; HIDDEN],
                _ => self.mlp(self.x.row(token), &self.shared, Mutant::None),
            };
            let residual = &self.residual[token * HIDDEN..];
            let added = sum.iter().zip(&shared).zip(residual).map(|((sum, shared), residual)| sum + shared + residual);
            out.extend(added.map(|sum| rounded(self.kind.format, sum)));
        }
        out
    }

    /// The worst error of what a mutant gives, in bounds.
    fn worst(&self, mutant: Mutant) -> f64 {
        let routed = route(&self.route(), TOKENS as u32, Given::Logits(&self.logits, &[]), 1, 1.0).unwrap();
        let chosen = Chosen { ids: &routed.ids, weights: &routed.weights, residual: &self.residual };
        let expert = |id: usize| Ok(self.borrowed(&self.experts[id]));
        let shared = self.borrowed(&self.shared);
        let reference = moe(&self.x, &chosen, expert, Some(SharedExpert::plain(&shared)), self.kind).unwrap();
        let found = self.evaluated(mutant);
        assert_eq!(found.len(), reference.elements().len());
        let errors = reference.elements().iter().zip(&found);
        errors.map(|(expected, found)| expected.error(f64::from(*found), self.kind.format)).fold(0.0, f64::max)
    }
}

fn layers() -> impl Iterator<Item = Layer> {
    [Format::F16, Format::Bf16].into_iter().flat_map(|format| {
        [(Activation::Silu, true), (Activation::SwigluOai, true), (Activation::Relu2, false)]
            .map(|(activation, is_gated)| Layer::new(activation, is_gated, format))
    })
}

#[test]
fn an_honest_evaluation_passes() {
    for layer in layers() {
        let worst = layer.worst(Mutant::None);
        // And the bound is no larger than it has to be.
        assert!((0.01..=1.0).contains(&worst), "{:?}: {worst}", layer.kind);
    }
}

#[test]
fn every_mutant_is_caught() {
    let mutants = [
        Mutant::TokenLeftOut,
        Mutant::ExpertsExchanged,
        Mutant::NotRenormalised,
        Mutant::RowTwice,
        Mutant::TieTheOtherWay,
        Mutant::GateAndUpExchanged,
        Mutant::SharedLeftOut,
        Mutant::BiasOfAnother,
        Mutant::HCoarse,
    ];
    for layer in layers() {
        for mutant in mutants {
            if mutant == Mutant::GateAndUpExchanged && !layer.is_gated {
                continue;
            }
            let worst = layer.worst(mutant);
            assert!(worst > 1.0, "{:?}: {mutant:?}: {worst}", layer.kind);
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let layer = Layer::new(Activation::Silu, true, Format::F16);
    let (ids, weights) = ([0; TOKENS * K], [(0.5, 0.0); TOKENS * K]);
    let expert = |id: usize| Ok(layer.borrowed(&layer.experts[id]));
    let refusal = |chosen: Chosen<'_>| moe(&layer.x, &chosen, expert, None, layer.kind).unwrap_err().to_string();
    let chosen = Chosen { ids: &ids, weights: &weights, residual: &[] };
    assert_eq!(refusal(Chosen { ids: &ids[1..], ..chosen }), "13 ids and 14 weights for 7 tokens");
    assert_eq!(refusal(Chosen { weights: &weights[1..], ..chosen }), "14 ids and 13 weights for 7 tokens");
    assert_eq!(refusal(Chosen { residual: &[0.0], ..chosen }), "a residual of 1 values for 7×128");
}
