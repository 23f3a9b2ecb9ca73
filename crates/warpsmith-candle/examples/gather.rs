//! The experts' product that mistral.rs asks of a quantised layer: `gather_forward_raw`.
//!
//! | | |
//! |---|---|
//! | x | `[tokens, K]`, or `[tokens, k, K]`: a row for each slot |
//! | indices | U32 `[tokens, k]`: the expert of each slot, unsorted |
//! | result | `[tokens, k, N]` |
//! | factors of weights | one a row, since merged projections keep their own |
//!
//! It is written with candle's operations and a layer for each expert, so that it runs anywhere; the numbers of experts come to the
//! host. mistral.rs takes candle from git: build this crate against the same candle (`[patch.crates-io]`), or hand over raw
//! handles (docs/embedding.md).
//!
//! ```text
//! cargo test --example gather
//! ```

#![allow(clippy::print_stdout)]

use candle_core::{DType, Device, Error, Module, Result, Tensor};
use warpsmith_candle::warpsmith::format::Format;
use warpsmith_candle::warpsmith_layers::LinearConfig;
use warpsmith_candle::{Nvfp4Linear, Nvfp4Weight, Runtime};

/// What mistral.rs' `Nvfp4LayerParts` has of stacked experts.
pub struct Parts {
    /// U8 `[E, N, K/2]`.
    pub weight: Tensor,
    /// F8E4M3, or U8 of the same bytes, `[E, N, K/16]`.
    pub scales: Tensor,
    /// F32 `[E, N]`.
    pub factors: Tensor,
    /// `[E, N]`, in the type of the tokens.
    pub bias: Option<Tensor>,
}

/// Experts of one product.
pub struct Gathered {
    experts: Vec<Nvfp4Linear>,
    columns: usize,
}

impl Gathered {
    /// For tokens of a type, and up to `limit` rows an expert.
    pub fn new(parts: &Parts, runtime: &Runtime, dtype: DType, limit: u32) -> Result<Self> {
        let (experts, n, half_k) = parts.weight.dims3()?;
        let format = if dtype == DType::F16 { Format::F16 } else { Format::Bf16 };
        let [columns, inputs] = [n, 2 * half_k].map(u32::try_from);
        let config = LinearConfig::new(columns.map_err(Error::wrap)?, inputs.map_err(Error::wrap)?);
        let config = config.format(format).row_scale();
        let config = if parts.bias.is_some() { config.bias(format) } else { config };
        let one = |expert| {
            let weight = Nvfp4Weight::new(parts.weight.get(expert)?, parts.scales.get(expert)?);
            let weight = weight.row_factors(parts.factors.get(expert)?);
            let weight = match &parts.bias {
                Some(bias) => weight.bias(bias.get(expert)?),
                None => weight,
            };
            Nvfp4Linear::new(&config, &weight, runtime, limit)
        };
        Ok(Self { experts: (0..experts).map(one).collect::<Result<_>>()?, columns: n })
    }

    /// `[tokens, k, N]`, in x's type.
    pub fn gather_forward_raw(&self, x: &Tensor, indices: &Tensor) -> Result<Tensor> {
        let (tokens, k) = indices.dims2()?;
        let device = x.device();
        // A row of x for each slot, or for each token.
        let (rows, each) = match *x.dims() {
            [found, _] if found == tokens => (x.clone(), k),
            [found, slots, _] if (found, slots) == (tokens, k) => (x.flatten(0, 1)?, 1),
            _ => candle_core::bail!("x is {:?}, indices are {:?}", x.shape(), indices.shape()),
        };
        let mut slots = vec![Vec::new(); self.experts.len()];
        for (slot, expert) in indices.flatten_all()?.to_vec1::<u32>()?.into_iter().enumerate() {
            let Some(of_expert) = slots.get_mut(expert as usize) else {
                candle_core::bail!("slot {slot} is of expert {expert}, there are {}", self.experts.len())
            };
            of_expert.push(u32::try_from(slot).map_err(Error::wrap)?);
        }
        let each = u32::try_from(each.max(1)).map_err(Error::wrap)?;
        let mut sum = Tensor::zeros((tokens * k, self.columns), x.dtype(), device)?;
        for (expert, slots) in self.experts.iter().zip(&slots).filter(|(_, slots)| !slots.is_empty()) {
            let of_x: Vec<u32> = slots.iter().map(|slot| slot / each).collect();
            let given = rows.index_select(&Tensor::new(of_x, device)?, 0)?;
            // Every slot is written once, on zeros: nothing is rounded again.
            sum = sum.index_add(&Tensor::new(slots.as_slice(), device)?, &expert.forward(&given)?, 0)?;
        }
        sum.reshape((tokens, k, self.columns))
    }
}

/// Experts that are drawn, with their values in f32 `[E, N, K]`.
fn drawn([experts, n, k]: [usize; 3]) -> Result<(Parts, Tensor)> {
    use warpsmith_candle::warpsmith::format::Nvfp4Tensor;
    let (mut codes, mut scales, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for expert in 0..experts {
        let drawn = Tensor::randn(0f32, 1.0, n * k, &Device::Cpu)?.to_vec1::<f32>()?;
        let tensor = Nvfp4Tensor::quantise(n, k, &drawn).map_err(Error::wrap)?;
        codes.extend_from_slice(tensor.codes());
        scales.extend_from_slice(tensor.scales());
        values
            .extend(tensor.dequantise_unscaled().iter().enumerate().map(|(at, value)| value * factor(expert, at / k)));
    }
    let factors: Vec<f32> = (0..experts * n).map(|row| factor(row / n, row % n)).collect();
    let parts = Parts {
        weight: Tensor::from_vec(codes, (experts, n, k / 2), &Device::Cpu)?,
        scales: Tensor::from_vec(scales, (experts, n, k / 16), &Device::Cpu)?,
        factors: Tensor::from_vec(factors, (experts, n), &Device::Cpu)?,
        bias: None,
    };
    Ok((parts, Tensor::from_vec(values, (experts, n, k), &Device::Cpu)?))
}

/// As if two projections were one below the other, in each expert.
fn factor(expert: usize, row: usize) -> f32 {
    (1.0 + expert as f32) * if row % 32 < 16 { 1e-3 } else { 3e-4 }
}

fn main() -> Result<()> {
    let (parts, _) = drawn([8, 64, 128])?;
    let gathered = Gathered::new(&parts, &Runtime::new(&Device::Cpu)?, DType::BF16, 64)?;
    let x = Tensor::randn(0f32, 1.0, (5, 128), &Device::Cpu)?.to_dtype(DType::BF16)?;
    let indices = Tensor::new(&[[0u32, 3], [3, 7], [1, 2], [6, 0], [3, 5]], &Device::Cpu)?;
    println!("{}", gathered.gather_forward_raw(&x, &indices)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [usize; 3] = [4, 32, 64];

    /// Slot by slot, in f64.
    fn expected(x: &Tensor, values: &Tensor, indices: &[[u32; 2]; 3]) -> Vec<f64> {
        let x = x.to_dtype(DType::F64).unwrap();
        let mut all = Vec::new();
        for (token, experts) in indices.iter().enumerate() {
            for (slot, expert) in experts.iter().enumerate() {
                let row = x.get(token).unwrap();
                let row = if row.rank() == 2 { row.get(slot).unwrap() } else { row };
                let weight = values.get(*expert as usize).unwrap().to_dtype(DType::F64).unwrap();
                let y = row.unsqueeze(0).unwrap().matmul(&weight.t().unwrap()).unwrap();
                all.extend(y.flatten_all().unwrap().to_vec1::<f64>().unwrap());
            }
        }
        all
    }

    #[test]
    fn slots_have_their_experts_product() {
        let (parts, values) = drawn(SIZES).unwrap();
        let gathered = Gathered::new(&parts, &Runtime::new(&Device::Cpu).unwrap(), DType::BF16, 8).unwrap();
        // An expert that many have, one twice in a token, one that none has.
        let indices = [[1u32, 3], [3, 3], [0, 1]];
        let of = Tensor::new(&indices, &Device::Cpu).unwrap();
        for shape in [&[3, 64][..], &[3, 2, 64]] {
            let x = Tensor::randn(0f32, 1.0, shape, &Device::Cpu).unwrap().to_dtype(DType::BF16).unwrap();
            let y = gathered.gather_forward_raw(&x, &of).unwrap();
            assert_eq!((y.dims(), y.dtype()), (&[3, 2, 32][..], DType::BF16));
            let y = y.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
            for (y, expected) in y.iter().zip(expected(&x, &values, &indices)) {
                assert!((y - expected).abs() <= expected.abs() / 256.0 + 1e-6, "{y}, not {expected}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (parts, _) = drawn(SIZES).unwrap();
        let gathered = Gathered::new(&parts, &Runtime::new(&Device::Cpu).unwrap(), DType::F16, 8).unwrap();
        let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F16, &Device::Cpu).unwrap();
        let of = |ids: [[u32; 2]; 1]| Tensor::new(&ids, &Device::Cpu).unwrap();
        let refusal = |x: &[usize], ids| gathered.gather_forward_raw(&zeros(x), &of(ids)).unwrap_err().to_string();
        assert!(refusal(&[1, 64], [[0, 4]]).contains("slot 1 is of expert 4, there are 4"));
        assert!(refusal(&[2, 64], [[0, 1]]).contains("x is [2, 64], indices are [1, 2]"));
        assert!(refusal(&[1, 63], [[0, 1]]).contains("64"));
    }
}
