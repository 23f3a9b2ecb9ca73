//! Random operands and a simulated tensor core, shared by the host tests. Every test file uses a part of it.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpsmith::format::{Nvfp4Tensor, ScaleLayout};
use warpsmith::internal::format::BLOCK;

pub fn rng(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

/// All 16 codes, and every non-negative scale there is, 0 and the subnormals included.
pub fn any_nvfp4(rng: &mut SmallRng, rows: usize, k: usize) -> Nvfp4Tensor {
    let codes = (0..rows * k / 2).map(|_| rng.random()).collect();
    let scales = (0..rows * k / BLOCK).map(|_| rng.random_range(0..=0x7E)).collect();
    Nvfp4Tensor::new(rows, k, codes, scales, ScaleLayout::Linear, 1.0).unwrap()
}

/// Codes at random and scales near 1, as weights have them after quantisation.
pub fn usual_nvfp4(rng: &mut SmallRng, rows: usize, k: usize) -> Nvfp4Tensor {
    let codes = (0..rows * k / 2).map(|_| rng.random()).collect();
    let scales = (0..rows * k / BLOCK).map(|_| rng.random_range(0x30..0x40)).collect();
    Nvfp4Tensor::new(rows, k, codes, scales, ScaleLayout::Linear, 1.0).unwrap()
}

/// f16 values in −1 .. 1.
pub fn halves(rng: &mut SmallRng, count: usize) -> Vec<half::f16> {
    (0..count).map(|_| half::f16::from_f32(rng.random_range(-1.0..1.0))).collect()
}

/// A tensor core: 16 products and the accumulator are aligned to the largest of them and truncated.
pub fn truncating_steps(products: &[f32]) -> f32 {
    products.chunks(16).fold(0.0, |accumulator, step| {
        let terms = || step.iter().copied().chain([accumulator]).map(f64::from);
        let largest = terms().fold(0.0, |largest: f64, term| largest.max(term.abs()));
        let quantum = 2f64.powi(largest.max(1e-30).log2().floor() as i32 - 24);
        toward_zero(terms().map(|term| (term / quantum).trunc() * quantum).sum())
    })
}

fn toward_zero(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest).abs() > value.abs() {
        if nearest > 0.0 { nearest.next_down() } else { nearest.next_up() }
    } else {
        nearest
    }
}
