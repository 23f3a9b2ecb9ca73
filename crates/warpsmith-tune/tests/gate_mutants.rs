//! The gate must pass a right kernel and kill every wrong one.
//!
//! A host emulator stands for the kernel: it decodes the bytes, sums in f32 as a tensor core does, and writes into the
//! guarded buffer. Each mutant is that emulator with one mistake that real kernels make.

#![allow(clippy::unwrap_used)] // helpers outside `#[test]` functions

use warpsmith_testing::{numbers, on_all_cores};

use half::{bf16, f16};
use numbers::{any_nvfp4, halves, rng, truncating_steps};
use rand::Rng;
use warpsmith::format::{Format, Nvfp4Tensor};
use warpsmith::internal::format::{BLOCK, e2m1, e4m3};
use warpsmith::spec::{Activation, Operation};
use warpsmith_testing::activations::{Device, linear};
use warpsmith_tune::gate::Guarded;
use warpsmith_tune::oracle::{Matrix, Products, Reference, Scaling, dual_gemm, gemm, grouped};

const N: usize = 32;
const K: usize = 128;

macro_rules! mutants {
    ($($mutant:ident,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Mutant {
            $($mutant,)+
        }

        const MUTANTS: &[Mutant] = &[$(Mutant::$mutant,)+];
    };
}

mutants! {
    ZeroedTile,
    ElementUnwritten,
    NanWritten,
    InfinityWritten,
    RowsSwapped,
    ColumnsSwapped,
    NextBlocksScale,
    ScaleOfAnotherRow,
    NibblesSwapped,
    SignDropped,
    SubnormalScalesFlushed,
    TailLost,
    GateAndUpExchanged,
    ActivationMissing,
    OtherActivation,
    GateUnclamped,
    UpUnclamped,
    UpWithoutOne,
    ClampedHigher,
    AlphaIgnored,
    AlphaAfterActivation,
    UpsAlphaForGate,
    RowScaleIgnored,
    RowScaleOfTheNextColumn,
    BiasIgnored,
    BiasBeforeRowScale,
    BiasAfterActivation,
    FirstGroupsColumns,
    GroupOneRowLate,
    FirstGroupsWeights,
    SumInOutputFormat,
    JustBeyondTheBound,
    PastTheEnd,
    BeforeTheStart,
    OneRowDown,
}

use Mutant::*;

enum Activations {
    Nvfp4(Nvfp4Tensor),
    F16(Vec<f16>),
}

struct Case {
    name: String,
    operation: Operation,
    output: Format,
    a: Activations,
    /// G + 1 rows; one group where there is no grouping.
    offsets: Vec<usize>,
    /// Per group: gate and up (only the first in a plain GEMM), and the caller's α of each.
    weights: Vec<[Nvfp4Tensor; 2]>,
    alpha: Vec<[f32; 2]>,
    /// Per group and product: factors and addends of the columns, if there are such.
    row_scale: Option<Vec<[Vec<f32>; 2]>>,
    bias: Option<Vec<[Vec<f32>; 2]>>,
}

impl Case {
    fn new(operation: Operation, output: Format, half: bool, sizes: &[usize], seed: u64) -> Self {
        let mut rng = rng(seed);
        let rows: usize = sizes.iter().sum();
        let a = if half {
            Activations::F16(halves(&mut rng, rows * K))
        } else {
            Activations::Nvfp4(any_nvfp4(&mut rng, rows, K))
        };
        let ends = sizes.iter().scan(0, |end, size| {
            *end += size;
            Some(*end)
        });
        let mut columns = |from: f32| -> Vec<[Vec<f32>; 2]> {
            let mut of_one = || (0..N).map(|_| from * rng.random_range(1.0f32..2.0)).collect();
            sizes.iter().map(|_| [of_one(), of_one()]).collect()
        };
        let (row_scale, bias) =
            ((!seed.is_multiple_of(3)).then(|| columns(0.75)), (seed % 3 == 2).then(|| columns(0.05)));
        Self {
            name: format!("{operation:?} to {output}, f16 A: {half}, groups of {sizes:?}, columns {}", seed % 3),
            operation,
            output,
            a,
            offsets: std::iter::once(0).chain(ends).collect(),
            weights: sizes.iter().map(|_| [any_nvfp4(&mut rng, N, K), any_nvfp4(&mut rng, N, K)]).collect(),
            row_scale,
            bias,
            alpha: (0..sizes.len()).map(|group| [1.02 + 0.03 * group as f32, 0.97 - 0.02 * group as f32]).collect(),
        }
    }

    fn rows(&self) -> usize {
        self.offsets[self.offsets.len() - 1]
    }

    /// A quantised tensor's own scale, which brings the products to the order of 1, or of what they are clamped at.
    fn tensor_scale(&self) -> f32 {
        let size = self.operation.activation().limit().map_or(1.0, |limit| limit as f32);
        match self.a {
            Activations::Nvfp4(_) => size / (1 << 20) as f32,
            Activations::F16(_) => size / (1 << 12) as f32,
        }
    }

    fn alpha(&self, group: usize) -> [f32; 2] {
        self.alpha[group].map(|alpha| alpha * self.tensor_scale())
    }

    fn scaling(&self, group: usize, product: usize) -> Scaling<'_> {
        Scaling {
            alpha: self.alpha(group)[product],
            row_scale: self.row_scale.as_ref().map(|groups| &groups[group][product][..]),
            bias: self.bias.as_ref().map(|groups| &groups[group][product][..]),
        }
    }

    fn reference(&self) -> Reference {
        let a = match &self.a {
            Activations::Nvfp4(tensor) => Matrix::from(tensor),
            Activations::F16(values) => Matrix::widen(self.rows(), K, values).unwrap(),
        };
        grouped(&a, &self.offsets, |group, a| {
            let product = |which: usize| Products::new(a, &Matrix::from(&self.weights[group][which]));
            match self.operation {
                Operation::DualGemm(activation) => {
                    let scaling = [self.scaling(group, 0), self.scaling(group, 1)];
                    dual_gemm(&product(0)?, &product(1)?, scaling, activation, self.output)
                }
                _ => gemm(&product(0)?, self.scaling(group, 0), self.operation.activation(), self.output),
            }
        })
        .unwrap()
    }

    fn is_gated(&self) -> bool {
        self.operation.products() == 2
    }

    /// Whether the mistake can be made here, and is one.
    fn has(&self, mutant: Mutant) -> bool {
        let activation = self.operation.activation();
        match mutant {
            // Without an activation, gate and up commute.
            GateAndUpExchanged => self.is_gated() && activation != Activation::None,
            ActivationMissing | OtherActivation | AlphaAfterActivation => activation != Activation::None,
            GateUnclamped | UpUnclamped | ClampedHigher => activation.limit().is_some(),
            UpWithoutOne => activation == Activation::SwigluOai,
            UpsAlphaForGate => self.is_gated(),
            RowScaleIgnored | RowScaleOfTheNextColumn => self.row_scale.is_some(),
            BiasIgnored | BiasBeforeRowScale => self.bias.is_some(),
            BiasAfterActivation => self.bias.is_some() && activation != Activation::None,
            FirstGroupsColumns => self.row_scale.is_some() && self.offsets.len() > 2,
            GroupOneRowLate | FirstGroupsWeights => self.offsets.len() > 2,
            // bf16 may round away what so small scales bring.
            SubnormalScalesFlushed => self.output != Format::Bf16,
            // f32 sums are what the kernel has anyway.
            SumInOutputFormat => self.output != Format::F32,
            _ => true,
        }
    }
}

/// One run of the kernel, right or with a mistake.
struct Emulator<'a> {
    case: &'a Case,
    mutant: Option<Mutant>,
}

impl Emulator<'_> {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn run(&self, guarded: &Guarded, reference: &Reference) -> Vec<u8> {
        let mut buffer = guarded.fill();
        let start = guarded.result().start;
        for at in 0..self.case.rows() * N {
            if let Some(bytes) = self.element(at / N, at % N, &reference.elements()[at]) {
                let row = if self.is(OneRowDown) { N } else { 0 };
                let place = start + (at + row) * bytes.len();
                buffer[place..place + bytes.len()].copy_from_slice(&bytes);
            }
        }
        match self.mutant {
            Some(PastTheEnd) => buffer[guarded.result().end] ^= 0x40,
            Some(BeforeTheStart) => buffer[start - 1] ^= 0x40,
            _ => {}
        }
        buffer
    }

    /// The bytes stored for an element, if any.
    fn element(&self, row: usize, col: usize, expected: &warpsmith_tune::oracle::Expected) -> Option<Vec<u8>> {
        let here = (row, col) == (5, 7);
        let value = match self.mutant {
            Some(ElementUnwritten) if here => return None,
            Some(NanWritten) if here => f32::NAN,
            Some(InfinityWritten) if here => f32::INFINITY,
            Some(ZeroedTile) if row < 8 && col >= N - 8 => 0.0,
            Some(JustBeyondTheBound) if here => return Some(beyond(expected, self.case.output)),
            // Within a group, so that this is about rows and not about weights.
            Some(RowsSwapped) if row < 2 => self.value(1 - row, col),
            Some(ColumnsSwapped) if col < 2 => self.value(row, 1 - col),
            _ => self.value(row, col),
        };
        Some(stored(value, self.case.output))
    }

    fn value(&self, row: usize, col: usize) -> f32 {
        let late = usize::from(self.is(GroupOneRowLate));
        let begins = &self.case.offsets[1..self.case.weights.len()];
        let group = begins.iter().filter(|&&begin| row >= begin + late).count();
        let weights = &self.case.weights[if self.is(FirstGroupsWeights) { 0 } else { group }];
        let mut alpha = self.case.alpha(group);
        if self.is(AlphaIgnored) {
            alpha = [self.case.tensor_scale(); 2];
        }
        if self.is(UpsAlphaForGate) {
            alpha[0] = alpha[1];
        }
        let sums = [0, 1].map(|which| self.sum(row, &weights[which], col));
        let columns = if self.is(FirstGroupsColumns) { 0 } else { group };
        let scaled = |product: usize, sum: f32| {
            let [row_scale, bias] = self.column(columns, product, col);
            match self.mutant {
                Some(BiasBeforeRowScale) => (alpha[product] * sum + bias) * row_scale,
                Some(BiasAfterActivation) if product == 0 => alpha[product] * sum * row_scale,
                _ => alpha[product] * sum * row_scale + bias,
            }
        };
        let (gate, up) = if self.is(GateAndUpExchanged) { (sums[1], sums[0]) } else { (sums[0], sums[1]) };
        let gate = match self.mutant {
            Some(AlphaAfterActivation) => alpha[0] * self.activate(scaled(0, gate / alpha[0])),
            Some(BiasAfterActivation) => self.activate(scaled(0, gate)) + self.column(columns, 0, col)[1],
            _ => self.activate(scaled(0, gate)),
        };
        if self.case.is_gated() { gate * self.linear(scaled(1, up)) } else { gate }
    }

    /// A column's factor and what is added to it.
    fn column(&self, group: usize, product: usize, col: usize) -> [f32; 2] {
        let next = (col + usize::from(self.is(RowScaleOfTheNextColumn))) % N;
        let of = |values: &Option<Vec<[Vec<f32>; 2]>>, col: usize| values.as_ref().map(|of| of[group][product][col]);
        let row_scale = of(&self.case.row_scale, next).filter(|_| !self.is(RowScaleIgnored));
        let bias = of(&self.case.bias, col).filter(|_| !self.is(BiasIgnored));
        [row_scale.unwrap_or(1.0), bias.unwrap_or(0.0)]
    }

    fn activate(&self, x: f32) -> f32 {
        let activation = self.case.operation.activation();
        match (self.mutant, activation) {
            (Some(ActivationMissing), _) => x,
            (Some(OtherActivation), _) => Device::default().activate(other(activation), x),
            (Some(GateUnclamped), Activation::SwigluOai) => x / (1.0 + (-1.702 * x).exp()),
            (Some(GateUnclamped), _) => x / (1.0 + (-x).exp()),
            (Some(ClampedHigher), Activation::SwigluOai) => x.min(7.5) / (1.0 + (-1.702 * x.min(7.5)).exp()),
            (Some(ClampedHigher), Activation::SiluClamp(limit)) => {
                Device::default().activate(Activation::SiluClamp(limit + 1), x)
            }
            _ => Device::default().activate(activation, x),
        }
    }

    fn linear(&self, up: f32) -> f32 {
        let activation = self.case.operation.activation();
        let one = if activation == Activation::SwigluOai { 1.0 } else { 0.0 };
        match self.mutant {
            Some(UpUnclamped) => up + one,
            Some(UpWithoutOne) => linear(activation, up) - one,
            _ => linear(activation, up),
        }
    }

    fn sum(&self, row: usize, weights: &Nvfp4Tensor, col: usize) -> f32 {
        let k = if self.is(TailLost) { K - BLOCK } else { K };
        let products: Vec<f32> = (0..k).map(|k| self.left(row, k) * self.weight(weights, col, k)).collect();
        if self.is(SumInOutputFormat) {
            // Scaled first, so that the mistake is the rounding and not an overflow.
            let (scale, output) = (self.case.tensor_scale(), self.case.output);
            let sums = products.chunks(BLOCK).map(truncating_steps);
            return sums.fold(0.0, |sum, step| rounded(sum + step * scale, output)) / scale;
        }
        truncating_steps(&products)
    }

    fn left(&self, row: usize, k: usize) -> f32 {
        match &self.case.a {
            Activations::Nvfp4(a) => e2m1::decode(a.code(row, k)) * e4m3::decode(a.scale(row, k / BLOCK)),
            Activations::F16(a) => a[row * K + k].to_f32(),
        }
    }

    fn weight(&self, weights: &Nvfp4Tensor, col: usize, k: usize) -> f32 {
        let next = usize::from(self.is(NextBlocksScale));
        let other = usize::from(self.is(ScaleOfAnotherRow));
        let scale = e4m3::decode(weights.scale((col + other) % N, (k / BLOCK + next) % (K / BLOCK)));
        let code = weights.code(col, if self.is(NibblesSwapped) { k ^ 1 } else { k });
        let code = if self.is(SignDropped) { code & 7 } else { code };
        if self.is(SubnormalScalesFlushed) && scale < e4m3::MIN_POSITIVE {
            return 0.0;
        }
        e2m1::decode(code) * scale
    }
}

/// The activation that is most like this one, or is most easily taken for it.
fn other(activation: Activation) -> Activation {
    match activation {
        Activation::Silu | Activation::Gelu => Activation::GeluTanh,
        Activation::GeluTanh => Activation::Gelu,
        Activation::SwigluOai => Activation::SiluClamp(7),
        Activation::SiluClamp(_) => Activation::SwigluOai,
        _ => Activation::Silu,
    }
}

/// Three steps of the format past the largest value that the bound accepts.
fn beyond(expected: &warpsmith_tune::oracle::Expected, output: Format) -> Vec<u8> {
    let mut value = stored((expected.value + expected.bound.copysign(expected.value)) as f32, output);
    let bits = value[0].wrapping_add(3);
    value[1] = value[1].wrapping_add(u8::from(bits < 3));
    value[0] = bits;
    value
}

fn rounded(value: f32, output: Format) -> f32 {
    match output {
        Format::F16 => f16::from_f32(value).to_f32(),
        Format::Bf16 => bf16::from_f32(value).to_f32(),
        _ => value,
    }
}

fn stored(value: f32, output: Format) -> Vec<u8> {
    match output {
        Format::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
        Format::Bf16 => bf16::from_f32(value).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    }
}

fn cases() -> Vec<Case> {
    let single = Activation::UNGATED.iter().map(|activation| Operation::Gemm(*activation));
    let operations = single.chain(Activation::GATED.iter().map(|activation| Operation::DualGemm(*activation)));
    let mut cases = Vec::new();
    for operation in operations {
        for output in [Format::F16, Format::Bf16, Format::F32] {
            let usual = [Activation::Silu, Activation::None].contains(&operation.activation());
            let (both, turn) = ([&[24][..], &[9, 0, 4, 11]], cases.len() % 2);
            for sizes in if usual { &both[..] } else { &both[turn..=turn] } {
                let seed = cases.len() as u64;
                cases.push(Case::new(operation, output, seed % 4 > 1, sizes, seed));
            }
        }
    }
    cases
}

#[test]
fn a_right_kernel_passes() {
    for case in cases() {
        let reference = case.reference();
        let guarded = Guarded::fitting(&reference).unwrap();
        let buffer = Emulator { case: &case, mutant: None }.run(&guarded, &reference);
        let verdict = guarded.judge(&buffer, &reference).unwrap();
        assert!(verdict.passed(), "{}: {verdict}", case.name);
    }
}

#[test]
fn every_mutant_is_killed() {
    let survivors = on_all_cores(&cases(), |case| {
        let mut survivors = Vec::new();
        let reference = case.reference();
        let guarded = Guarded::fitting(&reference).unwrap();
        for mutant in MUTANTS.iter().copied().filter(|&mutant| case.has(mutant)) {
            let buffer = Emulator { case, mutant: Some(mutant) }.run(&guarded, &reference);
            let verdict = guarded.judge(&buffer, &reference).unwrap();
            if verdict.passed() {
                survivors.push(format!("{mutant:?} in {}: {verdict}", case.name));
            }
            if let ElementUnwritten | NanWritten | InfinityWritten | JustBeyondTheBound = mutant {
                let bad = verdict.first_bad().map(|bad| (bad.row, bad.col));
                assert_eq!((verdict.mismatches(), bad), (1, Some((5, 7))), "{mutant:?} in {}: {verdict}", case.name);
            }
            if let PastTheEnd | BeforeTheStart | OneRowDown = mutant {
                assert!(verdict.damaged_canary().is_some(), "{mutant:?} in {}: {verdict}", case.name);
            }
        }
        survivors
    })
    .concat();
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}
