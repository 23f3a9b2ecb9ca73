//! The oracle against second formulations of the same mathematics, and its bound against simulated kernels.

#![allow(clippy::unwrap_used)] // helpers outside `#[test]` functions

use warpsmith_testing::numbers;

use half::bf16;
use numbers::{any_nvfp4, halves, rng, truncating_steps, usual_nvfp4};
use proptest::prelude::*;
use warpsmith::format::{Format, Nvfp4Tensor, ScaleLayout};
use warpsmith::internal::format::{BLOCK, e2m1, e4m3};
use warpsmith::spec::Activation;
use warpsmith_tune::oracle::{Matrix, Products, dual_gemm, gemm, grouped};

/// Σ (2·code·512·scale)·(the same of the other operand), in integers: 2²⁰ times the product.
fn integer_product(a: &Nvfp4Tensor, b: &Nvfp4Tensor, row: usize, col: usize) -> i128 {
    let integer = |tensor: &Nvfp4Tensor, row, k| {
        let code = (2.0 * e2m1::decode(tensor.code(row, k))) as i128;
        code * (512.0 * e4m3::decode(tensor.scale(row, k / BLOCK))) as i128
    };
    (0..a.k()).map(|k| integer(a, row, k) * integer(b, col, k)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn nvfp4_products_are_those_of_integers(m in 1usize..6, n in 1usize..6, blocks in 1usize..40, seed: u64) {
        let (mut rng, k) = (rng(seed), blocks * BLOCK);
        let (a, b) = (any_nvfp4(&mut rng, m, k), any_nvfp4(&mut rng, n, k));
        let products = Products::new(&Matrix::from(&a), &Matrix::from(&b)).unwrap();
        for (at, &value) in products.value().iter().enumerate() {
            // Below 2⁵³ in steps of 2⁻²⁰ everything is exact: no tolerance.
            prop_assert_eq!(value * 2f64.powi(20), integer_product(&a, &b, at / n, at % n) as f64);
        }
    }

    #[test]
    fn grouped_is_every_group_by_itself(sizes in proptest::collection::vec(0usize..5, 1..5), seed: u64) {
        let (mut rng, k, n) = (rng(seed), 32, 3);
        let rows: usize = sizes.iter().sum();
        let a = Matrix::from(&any_nvfp4(&mut rng, rows, k));
        let b: Vec<_> = sizes.iter().map(|_| Matrix::from(&any_nvfp4(&mut rng, n, k))).collect();
        let offsets: Vec<usize> = std::iter::once(0).chain(sizes.iter().scan(0, |at, size| { *at += size; Some(*at) })).collect();
        let alpha = |group| 1.0 + group as f32;
        let whole = grouped(&a, &offsets, |group, a| gemm(&Products::new(a, &b[group])?, alpha(group), Activation::None, Format::F16)).unwrap();
        prop_assert_eq!((whole.m(), whole.n()), (rows, n));
        for group in 0..sizes.len() {
            // The whole of A times this group's B; only the group's rows count.
            let all = gemm(&Products::new(&a, &b[group]).unwrap(), alpha(group), Activation::None, Format::F16).unwrap();
            let range = offsets[group] * n..offsets[group + 1] * n;
            prop_assert_eq!(&whole.elements()[range.clone()], &all.elements()[range]);
        }
    }
}

#[test]
fn offsets_that_do_not_cover_a_are_refused() {
    let a = Matrix::new(4, 0, vec![]).unwrap();
    let single =
        |_, a: &Matrix| gemm(&Products::new(a, &Matrix::new(2, 0, vec![])?)?, 1.0, Activation::None, Format::F16);
    assert!(grouped(&a, &[0, 1, 4], single).is_ok());
    for offsets in [&[][..], &[0], &[1, 4], &[0, 3], &[0, 5], &[0, 3, 2, 4], &[0, 6, 4]] {
        assert!(grouped(&a, offsets, single).unwrap_err().is_data(), "{offsets:?}");
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let (a, b) = (Matrix::new(1, 2, vec![0.0; 2]).unwrap(), Matrix::new(1, 3, vec![0.0; 3]).unwrap());
    assert_eq!(Products::new(&a, &b).unwrap_err().to_string(), "A has k = 2 and B has k = 3");
    assert!(Products::from_parts(2, 2, 1, vec![0.0; 4], vec![0.0; 3]).unwrap_err().is_data());
    assert!(Matrix::new(2, 2, vec![0.0; 3]).unwrap_err().is_data());
    let (x, y) = (Products::new(&a, &a).unwrap(), Products::new(&b, &b).unwrap());
    assert!(dual_gemm(&x, &y, [1.0; 2], Activation::Silu, Format::F16).unwrap_err().is_data());
    assert!(gemm(&x, 1.0, Activation::None, Format::Nvfp4).unwrap_err().is_unsupported());
}

#[test]
fn nan_and_infinity_go_through() {
    let b = Matrix::new(1, 2, vec![1.0, -1.0]).unwrap();
    let value = |a: [f32; 2]| {
        let products = Products::new(&Matrix::new(1, 2, a.to_vec()).unwrap(), &b).unwrap();
        let dual = dual_gemm(&products, &products, [1.0; 2], Activation::Silu, Format::F16).unwrap();
        (gemm(&products, 1.0, Activation::None, Format::F16).unwrap().elements()[0], dual.elements()[0])
    };
    let (inf, nan) = (f32::INFINITY, f64::NAN);
    for (a, single, dual) in [
        ([f32::NAN, 0.0], nan, nan),
        ([inf, inf], nan, nan),
        ([inf, 0.0], f64::INFINITY, f64::INFINITY),
        ([0.0, inf], f64::NEG_INFINITY, nan),
        ([1e5, 0.0], f64::INFINITY, f64::INFINITY),
        ([-1e5, 0.0], f64::NEG_INFINITY, 0.0),
    ] {
        let expected = value(a);
        assert!(expected.0.accepts(single, Format::F16), "{a:?}: {expected:?}");
        assert!(expected.1.accepts(dual, Format::F16), "{a:?}: {expected:?}");
        assert!(!expected.0.accepts(1.0, Format::F16), "{a:?}");
    }
}

/// One f32 sum of `products` (exact in f32), as some kernel might form it.
type Sum = fn(&[f32]) -> f32;

fn sequential(products: &[f32]) -> f32 {
    products.iter().sum()
}

fn split_in_four(products: &[f32]) -> f32 {
    products.chunks(products.len().div_ceil(4)).map(truncating_steps).sum()
}

fn tree(products: &[f32]) -> f32 {
    if let [one] = products {
        *one
    } else {
        let (x, y) = products.split_at(products.len() / 2);
        tree(x) + tree(y)
    }
}

/// f32 products of a row of A and a row of B.
fn row_products(a: &Matrix, b: &Matrix, row: usize, col: usize) -> Vec<f32> {
    a.row(row).iter().zip(b.row(col)).map(|(x, y)| x * y).collect()
}

fn operands(kind: usize, rows: usize, k: usize) -> Matrix<'static> {
    let mut rng = rng(kind as u64);
    match kind {
        0 => Matrix::from(&any_nvfp4(&mut rng, rows, k)),
        1 => Matrix::from(&usual_nvfp4(&mut rng, rows, k)),
        2 => Matrix::widen(rows, k, &halves(&mut rng, rows * k)).unwrap(),
        _ => Matrix::widen(
            rows,
            k,
            &halves(&mut rng, rows * k).iter().map(|x| bf16::from_f32(x.to_f32().abs())).collect::<Vec<_>>(),
        )
        .unwrap(),
    }
}

#[test]
fn any_order_of_f32_sums_is_within_the_bound() {
    let sums: [(&str, Sum); 4] =
        [("sequential", sequential), ("tensor core", truncating_steps), ("split-K", split_in_four), ("tree", tree)];
    for (kind, k) in (0..4).flat_map(|kind| [16, 64, 2048, 8192].map(|k| (kind, k))) {
        let (a, b) = (operands(kind, 8, k), operands(kind, 8, k));
        let reference = gemm(&Products::new(&a, &b).unwrap(), 0.37, Activation::None, Format::F32).unwrap();
        for (at, expected) in reference.elements().iter().enumerate() {
            let products = row_products(&a, &b, at / 8, at % 8);
            for (name, sum) in sums {
                let error = expected.error(f64::from(0.37 * sum(&products)), Format::F32);
                assert!(error <= 1.0, "{name}, operands {kind}, k = {k}: {error}");
            }
        }
    }
}

#[test]
fn losing_the_last_step_of_2048_products_is_seen() {
    let k = 2048;
    let pairs = [(1, 1), (1, 2), (2, 1), (2, 2)];
    for ((left, right), output) in
        pairs.into_iter().flat_map(|pair| [Format::F16, Format::F32].map(|output| (pair, output)))
    {
        let (a, b) = (operands(left, 32, k), operands(right, 32, k));
        let reference = gemm(&Products::new(&a, &b).unwrap(), 1e-4, Activation::None, output).unwrap();
        let caught = reference.elements().iter().enumerate().filter(|(at, expected)| {
            let products = row_products(&a, &b, at / 32, at % 32);
            !expected.accepts(f64::from(1e-4 * truncating_steps(&products[..k - 16])), output)
        });
        let share = caught.count() as f64 / 1024.0;
        assert!(share > 0.9, "operands {left} and {right}, {output}: {share}");
    }
}

#[test]
fn layouts_of_scales_do_not_matter_to_the_truth() {
    let tensor = any_nvfp4(&mut rng(9), 130, 80);
    let swizzled = tensor.clone().with_layout(ScaleLayout::Swizzled128x4, 0xFF).unwrap();
    assert_eq!(Matrix::from(&tensor), Matrix::from(&swizzled));
}
