//! The file side: real operands in, results out, and a sentence for every file that is wrong. Without a GPU and without
//! NVRTC.

mod fuzz;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use half::f16;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tempfile::TempDir;
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::format::{e2m1, e4m3};
use warpsmith::spec::Activation;
use warpsmith_tune::reference;

use super::safetensors_io::{self, Wanted};

const N: usize = 48;
const K: usize = 128;

const WANTED: Wanted = Wanted { scales: ScaleLayout::Linear, activation: None, c: Format::F16 };

/// Tensors of a file to be.
#[derive(Clone, Default)]
struct Tensors(BTreeMap<&'static str, (Dtype, Vec<usize>, Vec<u8>)>);

impl Tensors {
    fn with(mut self, name: &'static str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Self {
        self.0.insert(name, (dtype, shape.to_vec(), bytes));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }

    /// Codes and linear scales of all 127 finite non-negative bytes.
    fn with_nvfp4(self, name: &'static str, scale: &'static str, shape: &[usize], seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (rows, last) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
        let elements: usize = shape.iter().product();
        let codes = (0..elements / 2).map(|_| rng.random()).collect();
        let scales = (0..elements / 16).map(|_| rng.random_range(0..0x7F)).collect();
        self.with(name, Dtype::U8, &[rows, &[last / 2]].concat(), codes).with(
            scale,
            Dtype::F8_E4M3,
            &[rows, &[last / 16]].concat(),
            scales,
        )
    }

    fn with_alpha(self, name: &'static str, alpha: &[f32]) -> Self {
        self.with(name, Dtype::F32, &[alpha.len()], alpha.iter().flat_map(|alpha| alpha.to_le_bytes()).collect())
    }

    fn with_offsets(self, offsets: &[i64]) -> Self {
        let bytes = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        self.with("offsets", Dtype::I64, &[offsets.len()], bytes)
    }

    /// With linear scales, each of so many groups of so many rows, moved to the padded layout; NaN in the padding.
    fn padded(mut self, scales: &[(&'static str, usize, usize)]) -> Self {
        for (name, groups, rows) in scales {
            let (_, shape, bytes) = self.0.get_mut(name).unwrap();
            let (from, to) = (ScaleLayout::Linear, ScaleLayout::Swizzled128x4);
            let padded =
                bytes.chunks(bytes.len() / groups).flat_map(|scales| from.convert(scales, *rows, K, to, 0x7F).unwrap());
            let padded: Vec<u8> = padded.collect();
            (*shape, *bytes) = (vec![padded.len()], padded);
        }
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let views = self
            .0
            .iter()
            .map(|(name, (dtype, shape, bytes))| (*name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
        safetensors::serialize(views, None).unwrap()
    }

    /// The value at `[row, k]` of an NVFP4 tensor with linear scales; rows of all groups counted together.
    fn value(&self, name: &str, row: usize, k: usize) -> f64 {
        let (codes, scales) = (&self.0[name].2, &self.0[&*format!("{name}_scale")].2);
        let code = codes[(row * K + k) / 2] >> (4 * (k % 2)) & 15;
        f64::from(e2m1::decode(code)) * f64::from(e4m3::decode(scales[(row * K + k) / 16]))
    }

    fn dot(&self, b: &str, row: usize, column: usize) -> f64 {
        (0..K).map(|k| self.value("a", row, k) * self.value(b, column, k)).sum()
    }
}

fn gemm(m: usize) -> Tensors {
    Tensors::default().with_nvfp4("a", "a_scale", &[m, K], 1).with_nvfp4("b", "b_scale", &[N, K], 2)
}

/// Three groups, the second empty.
fn grouped_dual() -> Tensors {
    Tensors::default()
        .with_nvfp4("a", "a_scale", &[5, K], 1)
        .with_nvfp4("b1", "b1_scale", &[3, N, K], 2)
        .with_nvfp4("b2", "b2_scale", &[3, N, K], 3)
        .with_alpha("alpha1", &[1e-5, 2e-5, 3e-5])
        .with_alpha("alpha2", &[1e-4])
        .with_offsets(&[0, 2, 2, 5])
}

struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join("in.safetensors");
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The result of a file on the host, written and read back: shape and values.
    fn result(&self, tensors: &Tensors, wanted: Wanted) -> (Vec<usize>, Vec<f16>) {
        let operands = safetensors_io::read(&self.file(&tensors.bytes()), wanted).unwrap();
        let reference = reference::of(&operands).unwrap();
        let out = self.0.path().join("out.safetensors");
        let c = safetensors_io::rounded(&reference);
        safetensors_io::write(&out, &operands.problem, reference.m(), &c).unwrap();

        let bytes = fs::read(&out).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let c = file.tensor("c").unwrap();
        assert_eq!(c.dtype(), Dtype::F16);
        (c.shape().to_vec(), c.data().as_chunks::<2>().0.iter().copied().map(f16::from_le_bytes).collect())
    }
}

/// Equal but for what another order of summation in f64 may do at a tie.
#[track_caller]
fn assert_near(found: f16, expected: f64) {
    let expected = f16::from_f64(expected);
    let near = found.to_bits().abs_diff(expected.to_bits()) <= 1;
    assert!(near || found == expected, "{found} is not {expected}");
}

#[test]
fn a_gemm_comes_out_as_the_formula_says() {
    let tensors = gemm(3).with_alpha("alpha", &[1e-3]);
    let (shape, c) = Scratch::new().result(&tensors, WANTED);
    assert_eq!(shape, [3, N]);
    for (at, found) in c.into_iter().enumerate() {
        assert_near(found, f64::from(1e-3f32) * tensors.dot("b", at / N, at % N));
    }
}

#[test]
fn a_grouped_dual_gemm_comes_out_as_the_formula_says() {
    let tensors = grouped_dual();
    let (shape, c) = Scratch::new().result(&tensors, WANTED);
    assert_eq!(shape, [5, N]);
    for (at, found) in c.into_iter().enumerate() {
        let (row, column) = (at / N, at % N);
        let (group, alpha1) = if row < 2 { (0, 1e-5f32) } else { (2, 3e-5f32) };
        let gate = f64::from(alpha1) * tensors.dot("b1", row, group * N + column);
        let up = f64::from(1e-4f32) * tensors.dot("b2", row, group * N + column);
        assert_near(found, gate / (1.0 + (-gate).exp()) * up);
    }
}

#[test]
fn activations_come_out_as_their_formulas_say() {
    let alone = gemm(3).with_alpha("alpha", &[1e-5]);
    let wanted = Wanted { activation: Some(Activation::Relu2), ..WANTED };
    for (at, found) in Scratch::new().result(&alone, wanted).1.into_iter().enumerate() {
        assert_near(found, (f64::from(1e-5f32) * alone.dot("b", at / N, at % N)).max(0.0).powi(2));
    }
    let (tensors, alpha) = (gemm(3).without("b").without("b_scale"), 1e-4f32);
    let gated = tensors
        .with_nvfp4("b1", "b1_scale", &[N, K], 2)
        .with_nvfp4("b2", "b2_scale", &[N, K], 3)
        .with_alpha("alpha1", &[alpha])
        .with_alpha("alpha2", &[alpha]);
    let wanted = Wanted { activation: Some(Activation::SwigluOai), ..WANTED };
    for (at, found) in Scratch::new().result(&gated, wanted).1.into_iter().enumerate() {
        let [gate, up] = ["b1", "b2"].map(|b| f64::from(alpha) * gated.dot(b, at / N, at % N));
        let (gate, up) = (gate.min(7.0), up.clamp(-7.0, 7.0));
        assert_near(found, gate / (1.0 + (-1.702 * gate).exp()) * (up + 1.0));
    }
    let problem = safetensors_io::read(&Scratch::new().file(&alone.bytes()), wanted).unwrap().problem;
    assert!(problem.check().unwrap_err().to_string().contains("gemm takes silu"), "{problem}");
}

/// The same numbers, with scales moved to the padded layout and NaN in the padding.
#[test]
fn swizzled_scales_give_the_same_result_whatever_the_padding_holds() {
    let linear = grouped_dual();
    let swizzled = linear.clone().padded(&[("a_scale", 1, 5), ("b1_scale", 3, N), ("b2_scale", 3, N)]);
    let scratch = Scratch::new();
    let expected = scratch.result(&linear, WANTED);
    assert_eq!(scratch.result(&swizzled, Wanted { scales: ScaleLayout::Swizzled128x4, ..WANTED }), expected);
}

/// f16 activations.
fn half_precision() -> Tensors {
    let a = (0..2 * K).flat_map(|i| f16::from_f32(i as f32 / 64.0 - 1.0).to_le_bytes()).collect();
    gemm(1).without("a_scale").with("a", Dtype::F16, &[2, K], a)
}

#[test]
fn half_precision_activations_are_read_as_they_are() {
    let operands = safetensors_io::read(&Scratch::new().file(&half_precision().bytes()), WANTED).unwrap();
    assert_eq!(operands.problem.to_string(), format!("gemm:f16*nvfp4>f16:n{N}:k{K}"));
    assert_eq!((operands.m, operands.offsets, operands.alpha), (2, None, vec![vec![1.0]]));
}

#[track_caller]
fn refused(bytes: &[u8], sentence: &str) {
    let scratch = Scratch::new();
    let path = scratch.file(bytes);
    let error = safetensors_io::read(&path, WANTED).unwrap_err().to_string();
    let error = error.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&error);
    assert_eq!(error, sentence);
}

#[test]
fn a_missing_tensor_is_named() {
    refused(&gemm(3).without("a").bytes(), "tensor `a` is missing");
    refused(&gemm(3).without("b_scale").bytes(), "tensor `b_scale` is missing");
    refused(&grouped_dual().without("b2").without("b2_scale").bytes(), "tensor `b2` is missing");
    refused(&grouped_dual().without("offsets").bytes(), "tensor `offsets` is missing");
}

#[test]
fn a_tensor_that_does_not_belong_is_named() {
    let stray = gemm(3).with_alpha("alpha1", &[1.0]);
    refused(&stray.bytes(), "`alpha1` does not go with `b`");
    let both = grouped_dual().with_nvfp4("b", "b_scale", &[N, K], 4);
    refused(&both.bytes(), "both `b` (gemm) and `b1`, `b2` (dual GEMM) are there");
    refused(&gemm(3).with_offsets(&[0, 3]).bytes(), "`offsets` is there, but the matrices have no groups");
    let unknown = gemm(3).with("weight", Dtype::U8, &[1], vec![0]);
    refused(
        &unknown.bytes(),
        "tensor `weight` is not known: expected offsets, a, a_scale, b, b_scale, b1, b1_scale, b2, b2_scale, alpha, \
         alpha1, alpha2, row_scale, row_scale1, row_scale2, bias, bias1, bias2, c_factor",
    );
}

/// Factors of rows and addends of columns: the problem has them if the file does.
#[test]
fn columns_have_what_the_file_has() {
    let floats = |count: usize, value: f32| value.to_le_bytes().repeat(count);
    let of = |tensors: &Tensors| safetensors_io::parse(&tensors.bytes(), WANTED).unwrap();
    let scaled = gemm(3).with("row_scale", Dtype::F32, &[N], floats(N, 0.5));
    let operands = of(&scaled);
    assert!(operands.problem.has_row_scale() && operands.columns.row_scale == [vec![0.5; N]]);
    let halves = gemm(3).with("bias", Dtype::F16, &[N], f16::from_f32(3.0).to_le_bytes().repeat(N));
    let operands = of(&halves);
    assert_eq!((operands.problem.bias_format(), &operands.columns.bias[0][N - 1]), (Some(Format::F16), &3.0));
    reference::of(&operands).unwrap();
    refused(
        &gemm(3).with("bias", Dtype::F32, &[N + 1], floats(N + 1, 1.0)).bytes(),
        "`bias` has shape [49], expected [48]",
    );
    refused(&gemm(3).with("bias1", Dtype::F32, &[N], floats(N, 1.0)).bytes(), "`bias1` does not go with `b`");
    refused(&gemm(3).with("row_scale", Dtype::F16, &[N], vec![0; 2 * N]).bytes(), "`row_scale` is F16, expected F32");
    let infinite = gemm(3).with("bias", Dtype::F32, &[N], floats(N, f32::INFINITY));
    refused(&infinite.bytes(), "`bias` is inf at 0");
    let one = grouped_dual().with("bias1", Dtype::F32, &[N], floats(N, 1.0));
    refused(&one.bytes(), "tensor `bias2` is missing");
}

#[test]
fn scales_of_nothing_are_named() {
    let scale = |tensors: Tensors, name| tensors.with(name, Dtype::F8_E4M3, &[2, K / 16], vec![0x38; K / 8]);
    let sixteen = half_precision();
    refused(&scale(sixteen.clone(), "a_scale").bytes(), "`a_scale` does not go with `a`, which is f16");
    refused(&scale(gemm(2), "b1_scale").bytes(), "`b1_scale` does not go with `b`");
    refused(&scale(grouped_dual(), "b_scale").bytes(), "`b_scale` does not go with `b1`");
    let half = sixteen.with("b", Dtype::F16, &[N, K], vec![0; 2 * N * K]);
    refused(&half.bytes(), "`b_scale` does not go with `b`, which is f16");
    safetensors_io::parse(&half.without("b_scale").bytes(), WANTED).unwrap();
}

#[test]
fn a_refusal_is_a_line_whatever_a_tensor_is_called() {
    let line = |name| {
        let named = gemm(3).with(name, Dtype::U8, &[1], vec![0]);
        safetensors_io::parse(&named.bytes(), WANTED).unwrap_err().to_string()
    };
    assert!(line("a\nb\u{1b}[2J").starts_with("tensor `a\u{FFFD}b\u{FFFD}[2J` is not known"));
    let long = line(String::leak("x".repeat(10_000)));
    assert!(long.starts_with("tensor `xxx") && long.ends_with("x…") && long.chars().count() == 501, "{long}");
}

#[test]
fn a_shape_beyond_all_numbers_is_refused() {
    let endless = gemm(3).with("a", Dtype::U8, &[0, usize::MAX], Vec::new());
    refused(&endless.bytes(), &format!("K = {}: must be 1 to 16777216", usize::MAX));
}

#[test]
fn a_wrong_type_is_named() {
    let floats = gemm(3).with("a", Dtype::F32, &[3, K], vec![0; 3 * K * 4]);
    refused(&floats.bytes(), "`a` is F32, expected U8 or F16 or BF16");
    let scales = gemm(3).with("a_scale", Dtype::F16, &[3, K / 16], vec![0; 3 * K / 8]);
    refused(&scales.bytes(), "`a_scale` is F16, expected F8_E4M3 or U8");
    let short = grouped_dual().with("offsets", Dtype::I32, &[4], vec![0; 16]);
    refused(&short.bytes(), "`offsets` is I32, expected I64");
    let mixed = grouped_dual().with("b2", Dtype::F16, &[3, N, K], vec![0; 3 * N * K * 2]);
    refused(&mixed.bytes(), "`b2` is f16, expected nvfp4");
    let alpha = gemm(3).with("alpha", Dtype::I32, &[1], vec![0; 4]);
    refused(&alpha.bytes(), "`alpha` is I32, expected F32");
}

#[test]
fn a_wrong_shape_is_named() {
    let deeper = gemm(3).with_nvfp4("b", "b_scale", &[N, 2 * K], 5);
    refused(&deeper.bytes(), "`b` has shape [48, 256] in elements, expected [48, 128]");
    let scales = gemm(3).with("a_scale", Dtype::U8, &[4, K / 16], vec![0; K / 4]);
    refused(&scales.bytes(), "`a_scale` has shape [4, 8], expected [3, 8]");
    let narrow = grouped_dual().with_nvfp4("b2", "b2_scale", &[3, N / 2, K], 5);
    refused(&narrow.bytes(), "`b2` has shape [3, 24, 128] in elements, expected [3, 48, 128]");
    refused(&gemm(3).with_alpha("alpha", &[1.0, 2.0]).bytes(), "`alpha` has 2 elements, expected 1");
    refused(&grouped_dual().with_alpha("alpha1", &[1.0; 2]).bytes(), "`alpha1` has 2 elements, expected 1 or 3");
    refused(&grouped_dual().with_offsets(&[0, 2, 5]).bytes(), "`offsets` has shape [3], expected [4]");
    refused(&gemm(0).bytes(), "M = 0: must be 1 to 16777216");
    let flat = gemm(3).with("a", Dtype::U8, &[3 * K / 2], vec![0; 3 * K / 2]);
    refused(&flat.bytes(), "`a` has shape [384] in elements, expected [M, K]");
}

#[test]
fn nan_is_found_where_it_is() {
    let mut scales = gemm(3);
    scales.0.get_mut("b_scale").unwrap().2[5 * K / 16 + 3] = 0xFF;
    refused(&scales.bytes(), "`b_scale` is NaN at row 5, block 3");
    let mut grouped = grouped_dual();
    grouped.0.get_mut("b2_scale").unwrap().2[(2 * N + 1) * K / 16] = 0x7F;
    refused(&grouped.bytes(), "`b2_scale` is NaN at group 2, row 1, block 0");
    refused(&gemm(3).with_alpha("alpha", &[f32::NAN]).bytes(), "`alpha` is NaN at 0");
}

#[test]
fn offsets_that_run_backwards_are_refused() {
    let backwards = grouped_dual().with_offsets(&[0, 4, 2, 5]);
    refused(&backwards.bytes(), "`offsets` runs backwards at group 1: from 4 to 2");
    let short = grouped_dual().with_offsets(&[0, 2, 2, 4]);
    refused(&short.bytes(), "`offsets` goes from 0 to 4, expected from 0 to the 5 rows of `a`");
    let late = grouped_dual().with_offsets(&[1, 2, 2, 5]);
    refused(&late.bytes(), "`offsets` goes from 1 to 5, expected from 0 to the 5 rows of `a`");
}

#[test]
fn a_file_that_is_cut_short_is_refused() {
    let whole = gemm(3).bytes();
    for length in [0, 4, 100, whole.len() - 1] {
        let scratch = Scratch::new();
        let error = safetensors_io::read(&scratch.file(&whole[..length]), WANTED).unwrap_err().to_string();
        assert!(error.contains("not a whole safetensors file"), "{length}: {error}");
    }
    let missing = safetensors_io::read(&Scratch::new().0.path().join("none"), WANTED).unwrap_err().to_string();
    assert!(missing.contains("No such file"), "{missing}");
}
