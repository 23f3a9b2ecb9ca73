//! Operands on the device, and the kernels that take them.

use std::sync::Arc;

use cudarc::driver::CudaSlice;
use half::f16;
use warpsmith::run::{Kernel, Matrix, MatrixMut, Operands, PreparedWeights};
use warpsmith::spec::{Arch, MatrixPath, Problem, Spec, Variant};
use warpsmith::tune::{HostMatrix, HostOperands};

use crate::bench::Bench;

pub fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The kernel of a variant, for prepared weights if that is what its path takes; `None` where there is no such path.
pub fn kernel(bench: &Bench, problem: Problem, variant: &str) -> Result<Option<Arc<Kernel>>, String> {
    let variant: Variant = variant.parse().map_err(text)?;
    let is_wgmma = variant.path == MatrixPath::Wgmma;
    if is_wgmma && bench.arch().capability() != Arch::H200.capability() {
        return Ok(None);
    }
    let problem = if is_wgmma { problem.prepared() } else { problem };
    bench.kernel(&Spec::new(&problem, &variant, bench.arch()).map_err(text)?).map(Some)
}

/// Operands on the device, from those on the host.
pub struct Uploaded {
    pub a: Tokens,
    b: Weights,
}

pub enum Tokens {
    F16(CudaSlice<f16>),
    Nvfp4(CudaSlice<u8>, CudaSlice<u8>),
}

enum Weights {
    Given(Vec<(CudaSlice<u8>, CudaSlice<u8>)>),
    Prepared(PreparedWeights),
}

impl Uploaded {
    pub fn new(bench: &Bench, host: &HostOperands) -> Result<Self, String> {
        let a = match &host.a {
            HostMatrix::F16(a) => Tokens::F16(bench.stream.clone_htod(a).map_err(text)?),
            coded => {
                let (codes, scales) = Self::given(bench, coded)?;
                Tokens::Nvfp4(codes, scales)
            }
        };
        let b = match host.prepare().map_err(text)? {
            Some(prepared) => Weights::Prepared(PreparedWeights::from_host(&bench.stream, &prepared).map_err(text)?),
            None => Weights::Given(host.b.iter().map(|b| Self::given(bench, b)).collect::<Result<_, _>>()?),
        };
        Ok(Self { a, b })
    }

    fn given(bench: &Bench, coded: &HostMatrix) -> Result<(CudaSlice<u8>, CudaSlice<u8>), String> {
        let HostMatrix::Nvfp4 { codes, scales } = coded else { return Err("neither f16 nor nvfp4".to_owned()) };
        Ok((bench.stream.clone_htod(codes).map_err(text)?, bench.stream.clone_htod(scales).map_err(text)?))
    }

    pub fn operands<'a>(&'a self, m: u32, c: MatrixMut<'a>) -> Operands<'a> {
        let a = match &self.a {
            Tokens::F16(a) => Matrix::f16(a),
            Tokens::Nvfp4(codes, scales) => Matrix::nvfp4(codes, scales),
        };
        let operands = match &self.b {
            Weights::Given(b) => {
                let b = |product: usize| Matrix::nvfp4(&b[product].0, &b[product].1);
                Operands::dual_gemm(m, a, b(0), b(1), c)
            }
            Weights::Prepared(weights) => Operands::prepared(m, a, weights, c),
        };
        operands.alphas(0.01, 0.02)
    }
}
