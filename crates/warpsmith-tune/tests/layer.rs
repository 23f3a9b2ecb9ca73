//! The oracle of whole layers: what is right passes, and what is like it but wrong does not.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // helpers outside `#[test]` functions

use warpsmith::format::{E4m3Tensor, Format, Nvfp4Tensor};
use warpsmith::internal::format::{BLOCK, e4m3, e4m3_value, row_exponent};
use warpsmith::spec::{Activation, Route, Scoring};
use warpsmith_testing::activations::Device;
use warpsmith_testing::numbers::{rng, usual_nvfp4};
use warpsmith_tune::oracle::combine::rounded;
use warpsmith_tune::oracle::layer::{Chosen, Expert, Kind, SharedExpert, Weight, moe};
use warpsmith_tune::oracle::route::{Given, route};
use warpsmith_tune::oracle::{Matrix, Products, Scaling, linear};

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
    /// Of products of e4m3 and of NVFP4 values.
    FactorsOfHLeftOut,
    FactorsOfWeightsLeftOut,
    NeighboursTokens,
    HOfNvfp4Steps,
    /// Of NVFP4: each row with the factor of its own maximum.
    FactorsOfRows,
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
    fn new(activation: Activation, is_gated: bool, format: Format, to: Option<Format>) -> Self {
        let is_e4m3 = to == Some(Format::E4m3);
        let mut rng = rng(0x1A7E);
        let mut random = fastrand::Rng::with_seed(5);
        let mut expert = |intermediate: usize| {
            let mut matrix = |rows, k| {
                let given = usual_nvfp4(&mut rng, rows, k);
                if is_e4m3 { rounded_weights(&given) } else { Matrix::from(&given) }
            };
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
        let mut x = values(TOKENS * HIDDEN);
        if is_e4m3 {
            // Few that are not 0, and of one magnitude a token: bounds are narrow then.
            x.iter_mut().enumerate().for_each(|(at, x)| *x = if at % 13 == at / HIDDEN { x.signum() } else { 0.0 });
        }
        let x = Matrix::new(TOKENS, HIDDEN, x).unwrap();
        let residual = values(TOKENS * HIDDEN);
        let mut logits = values(TOKENS * EXPERTS);
        // The second of the last token is one of two that are equal.
        logits[(TOKENS - 1) * EXPERTS..].copy_from_slice(&[-1.0, 0.5, -2.0, 2.0, 0.5, -1.0]);
        Self { kind: Kind { activation, format, rounded: to }, is_gated, experts, shared, x, logits, residual }
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

    /// A product as kernels do it, in f32.
    fn product(&self, (x, factor): &(Vec<f32>, f32), of: &Owned, nth: usize, mutant: Mutant) -> Vec<f32> {
        let sum = |row: usize| {
            let parts = x.chunks(16).zip(of.values[nth].row(row).chunks(16));
            parts.map(|(x, w)| x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>()).sum::<f32>()
        };
        let bias = if mutant == Mutant::BiasOfAnother && nth == 2 { &self.experts[0].bias } else { &of.bias };
        (0..of.values[nth].rows()).map(|row| of.alpha[nth] * (sum(row) * factor) + bias[nth][row]).collect()
    }

    /// Of a row that is rounded already, rounded to the tokens' format.
    fn between(&self, x: &(Vec<f32>, f32), of: &Owned, mutant: Mutant) -> Vec<f32> {
        let Kind { activation, format, .. } = self.kind;
        let product = |nth: usize| self.product(x, of, nth, mutant);
        let device = Device::default();
        let [gate, up] = if mutant == Mutant::GateAndUpExchanged { [1, 0] } else { [0, 1] };
        let h: Vec<f32> = if self.is_gated {
            let (gate, up) = (product(gate), product(up));
            let passed = |up: f32| linear(activation, f64::from(up)) as f32;
            gate.iter().zip(&up).map(|(gate, up)| device.activate(activation, *gate) * passed(*up)).collect()
        } else {
            product(1).iter().map(|up| device.activate(activation, *up)).collect()
        };
        let coarse = if mutant == Mutant::HCoarse { 8.0 } else { 0.0 };
        h.iter().map(|h| rounded(format, *h + coarse) - coarse).collect()
    }

    /// Rows of one call as products take them: numbers, and a factor.
    fn taken(&self, rows: &[Vec<f32>], is_h: bool, mutant: Mutant) -> Vec<(Vec<f32>, f32)> {
        match self.kind.rounded {
            None => rows.iter().map(|row| (row.clone(), 1.0)).collect(),
            Some(Format::E4m3) => rows.iter().map(|row| self.quantised(row, is_h, mutant)).collect(),
            Some(_) if mutant == Mutant::FactorsOfRows && is_h => {
                let coded: Vec<_> = rows.iter().map(|row| coded(std::slice::from_ref(row)).remove(0)).collect();
                let factor = coded.iter().map(|(_, factor)| *factor).fold(0.0, f32::max);
                coded.into_iter().map(|(row, _)| (row, factor)).collect()
            }
            Some(_) => {
                let is_left_out = mutant == Mutant::FactorsOfHLeftOut && is_h;
                let times = if mutant == Mutant::FactorsOfWeightsLeftOut { 8.0 } else { 1.0 };
                let of = |factor: f32| if is_left_out { 1.0 } else { factor * times };
                coded(rows).into_iter().map(|(row, factor)| (row, of(factor))).collect()
            }
        }
    }

    /// A row's bytes, as numbers, and its factor.
    fn quantised(&self, x: &[f32], is_h: bool, mutant: Mutant) -> (Vec<f32>, f32) {
        let whole = x.len().next_multiple_of(64);
        let padded: Vec<f32> = x.iter().copied().chain(std::iter::repeat(0.0)).take(whole).collect();
        let tensor = E4m3Tensor::quantise(1, whole, &padded).unwrap();
        let value = |k: usize| e4m3::decode(tensor.values()[E4m3Tensor::position(k)]);
        let coarse =
            |value: f32| if mutant == Mutant::HOfNvfp4Steps && is_h { (value / 64.0).round() * 64.0 } else { value };
        let factor = if mutant == Mutant::FactorsOfHLeftOut && is_h { 1.0 } else { tensor.factors()[0] };
        let factor = if mutant == Mutant::FactorsOfWeightsLeftOut { factor * 8.0 } else { factor };
        ((0..x.len()).map(|k| coarse(value(k))).collect(), factor)
    }

    fn evaluated(&self, mutant: Mutant) -> Vec<f32> {
        // Each slot's expert, weight and how often it counts; then what all of them are given.
        let mut slots: Vec<(usize, &Owned, f32, usize)> = Vec::new();
        let tokens: Vec<Vec<f32>> = (0..TOKENS).map(|token| self.x.row(token).to_vec()).collect();
        let x = self.taken(&tokens, false, mutant);
        let mut h = Vec::new();
        for token in 0..TOKENS {
            let logits = &self.logits[token * EXPERTS..][..EXPERTS];
            let mut order: Vec<usize> = (0..EXPERTS).collect();
            let tie = |a: &usize, b: &usize| if mutant == Mutant::TieTheOtherWay { b.cmp(a) } else { a.cmp(b) };
            order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then_with(|| tie(a, b)));
            let all: f32 = logits.iter().map(|logit| logit.exp()).sum();
            let own: f32 = order[..K].iter().map(|expert| logits[*expert].exp()).sum();
            let over = if mutant == Mutant::NotRenormalised { all } else { own };
            for (slot, expert) in order[..K].iter().enumerate() {
                if mutant == Mutant::TokenLeftOut && token == 3 {
                    continue;
                }
                let of = match (mutant, expert) {
                    (Mutant::ExpertsExchanged, 2) => &self.experts[4],
                    (Mutant::ExpertsExchanged, 4) => &self.experts[2],
                    _ => &self.experts[*expert],
                };
                let from = if mutant == Mutant::NeighboursTokens { (token + 1) % TOKENS } else { token };
                h.push(self.between(&x[from], of, mutant));
                let times = if mutant == Mutant::RowTwice && (token, slot) == (5, 1) { 2 } else { 1 };
                slots.push((token, of, logits[*expert].exp() / over, times));
            }
        }
        let row = |h: &(Vec<f32>, f32), of: &Owned, mutant| -> Vec<f32> {
            self.product(h, of, 2, mutant).iter().map(|y| rounded(self.kind.format, *y)).collect()
        };
        let mut sums = vec![vec![0f32; HIDDEN]; TOKENS];
        for (h, (token, of, weight, times)) in self.taken(&h, true, mutant).iter().zip(slots) {
            let row = row(h, of, mutant);
            for _ in 0..times {
                sums[token].iter_mut().zip(&row).for_each(|(sum, y)| *sum = weight.mul_add(*y, *sum));
            }
        }
        let given = self.taken(&tokens, false, Mutant::None);
        let h: Vec<_> = given.iter().map(|x| self.between(x, &self.shared, Mutant::None)).collect();
        let h = self.taken(&h, true, Mutant::None);
        let mut out = Vec::new();
        for (token, sum) in sums.iter().enumerate() {
            let shared = match mutant {
                Mutant::SharedLeftOut => vec![0.0; HIDDEN],
                _ => row(&h[token], &self.shared, Mutant::None),
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

/// As kernels round them that multiply e4m3 values.
fn rounded_weights(given: &Nvfp4Tensor) -> Matrix<'static> {
    let (rows, k) = (given.rows(), given.k());
    let mut values = Vec::with_capacity(rows * k);
    for (codes, scales) in given.codes().chunks(k / 2).zip(given.scales().chunks(k / BLOCK)) {
        let exponent = row_exponent(scales.iter().copied());
        values.extend((0..k).map(|at| e4m3_value(codes[at / 2] >> (at % 2 * 4) & 15, scales[at / BLOCK], exponent)));
    }
    Matrix::new(rows, k, values).unwrap()
}

/// All rows as NVFP4, by the host: code times scale, and the one factor.
fn coded(rows: &[Vec<f32>]) -> Vec<(Vec<f32>, f32)> {
    let k = rows[0].len();
    let padded =
        |row: &Vec<f32>| row.iter().copied().chain(std::iter::repeat(0.0)).take(k.next_multiple_of(64)).collect();
    let all: Vec<Vec<f32>> = rows.iter().map(padded).collect();
    let tensor = Nvfp4Tensor::quantise(rows.len(), k.next_multiple_of(64), &all.concat()).unwrap();
    let values = tensor.dequantise_unscaled();
    values.chunks(tensor.k()).map(|row| (row[..k].to_vec(), tensor.tensor_scale())).collect()
}

fn layers_of(to: Option<Format>) -> impl Iterator<Item = Layer> {
    [Format::F16, Format::Bf16].into_iter().flat_map(move |format| {
        [(Activation::Silu, true), (Activation::SwigluOai, true), (Activation::Relu2, false)]
            .map(|(activation, is_gated)| Layer::new(activation, is_gated, format, to))
    })
}

fn layers() -> impl Iterator<Item = Layer> {
    layers_of(None)
}

fn are_caught(layer: &Layer, mutants: impl Iterator<Item = Mutant>) {
    for mutant in mutants {
        let worst = layer.worst(mutant);
        assert!(worst > 1.0, "{:?}: {mutant:?}: {worst}", layer.kind);
    }
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
        let has_them = |mutant: &Mutant| *mutant != Mutant::GateAndUpExchanged || layer.is_gated;
        are_caught(&layer, mutants.into_iter().filter(has_them));
    }
}

/// The bounds are wider, by what tensor cores cut off of sums; what is here is in f32.
#[test]
fn e4m3_products_pass_and_their_mutants_do_not() {
    for layer in layers_of(Some(Format::E4m3)) {
        let worst = layer.worst(Mutant::None);
        assert!((0.001..=1.0).contains(&worst), "{:?}: {worst}", layer.kind);
        let mutants = [
            Mutant::FactorsOfHLeftOut,
            Mutant::FactorsOfWeightsLeftOut,
            Mutant::NeighboursTokens,
            Mutant::HOfNvfp4Steps,
            Mutant::TokenLeftOut,
            Mutant::ExpertsExchanged,
            Mutant::RowTwice,
            Mutant::SharedLeftOut,
        ];
        are_caught(&layer, mutants.into_iter());
    }
}

/// Dense tokens, whose bounds are narrow: what becomes of nearly every element is known.
#[test]
fn nvfp4_products_pass_and_their_mutants_do_not() {
    for layer in layers_of(Some(Format::Nvfp4)) {
        let worst = layer.worst(Mutant::None);
        assert!((0.01..=1.0).contains(&worst), "{:?}: {worst}", layer.kind);
        let mutants = [
            Mutant::FactorsOfHLeftOut,
            Mutant::FactorsOfWeightsLeftOut,
            Mutant::FactorsOfRows,
            Mutant::NeighboursTokens,
            Mutant::TokenLeftOut,
            Mutant::ExpertsExchanged,
            Mutant::RowTwice,
            Mutant::SharedLeftOut,
            Mutant::BiasOfAnother,
            Mutant::HCoarse,
        ];
        are_caught(&layer, mutants.into_iter());
    }
}

/// What is lost by each operand that becomes e4m3 or NVFP4, relative to products of the operands as they are, of an expert of Qwen3-30B's
/// size: normal tokens and weights.
#[test]
fn products_of_rounded_rows_cost_accuracy() {
    const SIZES: [usize; 3] = [16, 2048, 768];
    let [tokens, hidden, intermediate] = SIZES;
    let mut random = fastrand::Rng::with_seed(30);
    let mut normal = |length: usize| -> Vec<f32> {
        let one =
            |random: &mut fastrand::Rng| (-2.0 * (1.0 - random.f32()).ln()).sqrt() * (6.283_185_5 * random.f32()).cos();
        (0..length).map(|_| one(&mut random)).collect()
    };
    let shapes = [(intermediate, hidden), (intermediate, hidden), (hidden, intermediate)];
    let given = shapes.map(|(rows, k)| Nvfp4Tensor::quantise(rows, k, &normal(rows * k)).unwrap());
    let (plain, e4m3) = ([0, 1, 2].map(|at| Matrix::from(&given[at])), [0, 1, 2].map(|at| rounded_weights(&given[at])));
    let x = normal(tokens * hidden);
    for format in [Format::F16, Format::Bf16] {
        let x: Vec<f32> = x.iter().map(|x| rounded(format, *x)).collect();
        // Tokens and h as values of a format, weights of e4m3, and h in its own format.
        let y = |of_x: Option<Format>, of_weights: bool, of_h: Option<Format>, is_rounded: bool| -> Vec<f64> {
            let weights = if of_weights { &e4m3 } else { &plain };
            let made = |rows: usize, values: Vec<f32>, to: Option<Format>| -> Matrix<'static> {
                let k = values.len() / rows;
                let values = match to {
                    None => values,
                    Some(Format::E4m3) => E4m3Tensor::quantise(rows, k, &values).unwrap().dequantise(),
                    Some(_) => Nvfp4Tensor::quantise(rows, k, &values).unwrap().dequantise(),
                };
                Matrix::new(rows, k, values).unwrap()
            };
            let x = made(tokens, x.clone(), of_x);
            let product = |x: &Matrix<'_>, nth: usize| -> Vec<f64> {
                let scale = f64::from(given[nth].tensor_scale()) / (x.k() as f64).sqrt();
                Products::new(x, &weights[nth]).unwrap().value().iter().map(|sum| sum * scale).collect()
            };
            let h = product(&x, 0).into_iter().zip(product(&x, 1)).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up);
            let h: Vec<f32> = h.map(|h| if is_rounded { rounded(format, h as f32) } else { h as f32 }).collect();
            product(&made(tokens, h, of_h), 2)
        };
        let exact = y(None, false, None, false);
        let error = |to: Format, of: [bool; 3]| {
            let [of_x, of_h] = [of[0], of[2]].map(|is_rounded| is_rounded.then_some(to));
            let found = y(of_x, of[1], of_h, true);
            let squares = exact.iter().zip(&found).map(|(exact, found)| (found - exact).powi(2)).sum::<f64>();
            100.0 * (squares / exact.iter().map(|exact| exact * exact).sum::<f64>()).sqrt()
        };
        let none = error(Format::E4m3, [false; 3]);
        let [of_x, of_weights, of_h] = [0, 1, 2].map(|which| error(Format::E4m3, [0, 1, 2].map(|at| at == which)));
        let all = error(Format::E4m3, [true; 3]);
        println!("{format}: {none:.2} %; x {of_x:.2}, weights {of_weights:.2}, h {of_h:.2}, all {all:.2} %");
        assert!(none < 0.5 && [of_x, of_weights, of_h].iter().all(|one| (0.5..5.0).contains(one)), "{format}");
        // Errors that know nothing of each other.
        let together = (of_x.powi(2) + of_weights.powi(2) + of_h.powi(2)).sqrt();
        assert!((all / together - 1.0).abs() < 0.15, "{format}: {all} {together}");
        // Weights are NVFP4 as they are given.
        let of = |x, h| error(Format::Nvfp4, [x, false, h]);
        let [of_x, of_h, both] = [of(true, false), of(false, true), of(true, true)];
        println!("{format}: x NVFP4 {of_x:.2}, h {of_h:.2}, both {both:.2} %");
        assert!([of_x, of_h].iter().all(|one| (5.0..20.0).contains(one)), "{format}");
        assert!((both / of_x.hypot(of_h) - 1.0).abs() < 0.15, "{format}");
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let layer = Layer::new(Activation::Silu, true, Format::F16, None);
    let (ids, weights) = ([0; TOKENS * K], [(0.5, 0.0); TOKENS * K]);
    let expert = |id: usize| Ok(layer.borrowed(&layer.experts[id]));
    let refusal = |chosen: Chosen<'_>| moe(&layer.x, &chosen, expert, None, layer.kind).unwrap_err().to_string();
    let chosen = Chosen { ids: &ids, weights: &weights, residual: &[] };
    assert_eq!(refusal(Chosen { ids: &ids[1..], ..chosen }), "13 ids and 14 weights for 7 tokens");
    assert_eq!(refusal(Chosen { weights: &weights[1..], ..chosen }), "14 ids and 13 weights for 7 tokens");
    assert_eq!(refusal(Chosen { residual: &[0.0], ..chosen }), "a residual of 1 values for 7×128");
}
