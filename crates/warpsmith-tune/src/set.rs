//! One set of operands in device memory, and copies of it.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DriverError};
use half::{bf16, f16};

use super::operands::{HostMatrix, HostOperands};
use super::random::offsets;
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::run::{Alpha, Matrix, MatrixMut, Operands, PreparedWeights, Values, WorkspaceMemory};
use warpsmith::spec::Problem;
use warpsmith::{Error, Result};

type Driven<T> = std::result::Result<T, DriverError>;

/// What a launch reads.
pub(super) struct Set {
    m: u32,
    a: DeviceMatrix,
    b: Weights,
    alpha: Vec<Factor>,
    c_factor: Option<Factor>,
    row_scale: Vec<CudaSlice<f32>>,
    bias: Vec<Addends>,
    offsets: Option<CudaSlice<i32>>,
    rows: Option<CudaSlice<i32>>,
    slots: Option<CudaSlice<i32>>,
    slot_factors: Option<CudaSlice<f32>>,
}

/// What is added to columns.
enum Addends {
    F16(CudaSlice<f16>),
    Bf16(CudaSlice<bf16>),
    F32(CudaSlice<f32>),
}

impl Addends {
    /// Values of a format.
    fn upload(stream: &Arc<CudaStream>, format: Format, values: &[f32]) -> Driven<Self> {
        Ok(match format {
            Format::F16 => Self::F16(stream.clone_htod(&values.iter().map(|v| f16::from_f32(*v)).collect::<Vec<_>>())?),
            Format::Bf16 => {
                Self::Bf16(stream.clone_htod(&values.iter().map(|v| bf16::from_f32(*v)).collect::<Vec<_>>())?)
            }
            _ => Self::F32(stream.clone_htod(values)?),
        })
    }

    fn copy(&self) -> Driven<Self> {
        Ok(match self {
            Self::F16(values) => Self::F16(values.try_clone()?),
            Self::Bf16(values) => Self::Bf16(values.try_clone()?),
            Self::F32(values) => Self::F32(values.try_clone()?),
        })
    }

    fn view(&self) -> Values<'_> {
        match self {
            Self::F16(values) => values.into(),
            Self::Bf16(values) => values.into(),
            Self::F32(values) => values.into(),
        }
    }
}

enum Weights {
    Given(Vec<DeviceMatrix>),
    Prepared(Arc<PreparedWeights>),
}

/// α: one number, or one a group.
enum Factor {
    Value(f32),
    Device(CudaSlice<f32>),
}

impl Set {
    /// The host's operands; its weights unless `prepared` ones are given.
    pub(super) fn upload(
        stream: &Arc<CudaStream>,
        host: &HostOperands,
        prepared: Option<Arc<PreparedWeights>>,
    ) -> Result<Self> {
        let factor = |alpha: &Vec<f32>| match alpha[..] {
            [value] => Ok(Factor::Value(value)),
            _ => stream.clone_htod(alpha).map(Factor::Device),
        };
        let given = || -> Result<Weights> {
            Ok(match host.prepare()? {
                Some(prepared) => Weights::Prepared(PreparedWeights::from_host(stream, &prepared)?.into()),
                None => {
                    let given = host.b.iter().map(|b| DeviceMatrix::upload(stream, b));
                    Weights::Given(given.collect::<Driven<_>>().map_err(refused)?)
                }
            })
        };
        let b = prepared.map_or_else(given, |prepared| Ok(Weights::Prepared(prepared)))?;
        Ok(Self {
            m: host.m,
            a: DeviceMatrix::upload(stream, &host.a).map_err(refused)?,
            b,
            alpha: host.alpha.iter().map(factor).collect::<Driven<_>>().map_err(refused)?,
            c_factor: (!host.c_factor.is_empty()).then(|| factor(&host.c_factor)).transpose().map_err(refused)?,
            row_scale: uploaded(&host.columns.row_scale, |values| stream.clone_htod(values))?,
            bias: uploaded(&host.columns.bias, |values| {
                Addends::upload(stream, host.problem.bias_format().unwrap_or(Format::F32), values)
            })?,
            offsets: there(&host.offsets, |offsets| stream.clone_htod(offsets))?,
            rows: there(&host.rows.gathered, |(_, rows)| stream.clone_htod(rows))?,
            slots: there(&host.rows.slots, |(_, slots)| stream.clone_htod(slots))?,
            slot_factors: there(&host.rows.factors, |factors| stream.clone_htod(factors))?,
        })
    }

    /// The same numbers at other addresses; weights, too, unless `prepared` ones are given.
    pub(super) fn copy(&self, prepared: Option<Arc<PreparedWeights>>) -> Result<Self> {
        let factor = |alpha: &Factor| match alpha {
            Factor::Value(value) => Ok(Factor::Value(*value)),
            Factor::Device(values) => values.try_clone().map(Factor::Device),
        };
        let b = match (&self.b, prepared) {
            (_, Some(prepared)) => Weights::Prepared(prepared),
            (Weights::Prepared(weights), None) => Weights::Prepared(weights.copy()?.into()),
            (Weights::Given(b), None) => {
                Weights::Given(b.iter().map(DeviceMatrix::copy).collect::<Driven<_>>().map_err(refused)?)
            }
        };
        Ok(Self {
            m: self.m,
            a: self.a.copy().map_err(refused)?,
            b,
            alpha: self.alpha.iter().map(factor).collect::<Driven<_>>().map_err(refused)?,
            c_factor: there(&self.c_factor, factor)?,
            row_scale: uploaded(&self.row_scale, CudaSlice::try_clone)?,
            bias: uploaded(&self.bias, Addends::copy)?,
            offsets: there(&self.offsets, CudaSlice::try_clone)?,
            rows: there(&self.rows, CudaSlice::try_clone)?,
            slots: there(&self.slots, CudaSlice::try_clone)?,
            slot_factors: there(&self.slot_factors, CudaSlice::try_clone)?,
        })
    }

    /// With other rows of each group, as many in all.
    pub(super) fn with_rows(mut self, stream: &Arc<CudaStream>, problem: &Problem, rows: &[u32]) -> Result<Self> {
        self.offsets = there(&offsets(problem, rows), |offsets| stream.clone_htod(offsets))?;
        Ok(self)
    }

    /// Its weights, if they are prepared.
    pub(super) fn prepared(&self) -> Option<Arc<PreparedWeights>> {
        match &self.b {
            Weights::Prepared(weights) => Some(Arc::clone(weights)),
            Weights::Given(_) => None,
        }
    }

    pub(super) fn operands<'a>(&'a self, c: MatrixMut<'a>, workspace: impl Into<WorkspaceMemory<'a>>) -> Operands<'a> {
        let of = |factor: &'a Factor| match factor {
            Factor::Device(values) => Alpha::from(values),
            Factor::Value(value) => Alpha::from(*value),
        };
        let alpha = |product: usize| self.alpha.get(product).map_or_else(Alpha::default, of);
        let a = self.a.view();
        let operands = match &self.b {
            Weights::Prepared(weights) => Operands::prepared(self.m, a, weights, c),
            Weights::Given(b) => match &b[..] {
                [b1, b2] => Operands::dual_gemm(self.m, a, b1.view(), b2.view(), c),
                _ => Operands::gemm(self.m, a, b[0].view(), c),
            },
        };
        let operands = match self.alpha.len() {
            1 => operands.alpha(alpha(0)),
            _ => operands.alphas(alpha(0), alpha(1)),
        };
        let operands = match &self.c_factor {
            Some(factor) => operands.c_factor(of(factor)),
            None => operands,
        };
        let operands = match &self.row_scale[..] {
            [only] => operands.row_scale(only),
            [first, second, ..] => operands.row_scales(first, second),
            [] => operands,
        };
        let operands = match &self.bias[..] {
            [only] => operands.bias(only.view()),
            [first, second, ..] => operands.biases(first.view(), second.view()),
            [] => operands,
        };
        let operands = operands.workspace(workspace);
        let operands = match &self.offsets {
            Some(offsets) => operands.offsets(offsets),
            None => operands,
        };
        let operands = match &self.rows {
            Some(rows) => operands.rows(rows),
            None => operands,
        };
        let operands = match &self.slots {
            Some(slots) => operands.slots(slots),
            None => operands,
        };
        match &self.slot_factors {
            Some(factors) => operands.slot_factors(factors),
            None => operands,
        }
    }
}

/// What there is on the device.
fn there<T, U>(values: &Option<T>, upload: impl Fn(&T) -> Driven<U>) -> Result<Option<U>> {
    values.as_ref().map(upload).transpose().map_err(refused)
}

/// Each of them on the device.
fn uploaded<T, U>(values: &[T], upload: impl Fn(&T) -> Driven<U>) -> Result<Vec<U>> {
    values.iter().map(upload).collect::<Driven<_>>().map_err(refused)
}

enum DeviceMatrix {
    Nvfp4 { codes: CudaSlice<u8>, scales: CudaSlice<u8> },
    Mxfp4 { codes: CudaSlice<u8>, scales: CudaSlice<u8> },
    E4m3 { values: CudaSlice<u8>, factors: CudaSlice<f32> },
    F16(CudaSlice<f16>),
    Bf16(CudaSlice<bf16>),
}

impl DeviceMatrix {
    fn upload(stream: &Arc<CudaStream>, host: &HostMatrix) -> Driven<Self> {
        Ok(match host {
            HostMatrix::Nvfp4 { codes, scales } => {
                Self::Nvfp4 { codes: stream.clone_htod(codes)?, scales: stream.clone_htod(scales)? }
            }
            HostMatrix::Mxfp4 { codes, scales } => {
                Self::Mxfp4 { codes: stream.clone_htod(codes)?, scales: stream.clone_htod(scales)? }
            }
            HostMatrix::E4m3 { values, factors } => {
                Self::E4m3 { values: stream.clone_htod(values)?, factors: stream.clone_htod(factors)? }
            }
            HostMatrix::F16(values) => Self::F16(stream.clone_htod(values)?),
            HostMatrix::Bf16(values) => Self::Bf16(stream.clone_htod(values)?),
        })
    }

    fn copy(&self) -> Driven<Self> {
        Ok(match self {
            Self::Nvfp4 { codes, scales } => Self::Nvfp4 { codes: codes.try_clone()?, scales: scales.try_clone()? },
            Self::Mxfp4 { codes, scales } => Self::Mxfp4 { codes: codes.try_clone()?, scales: scales.try_clone()? },
            Self::E4m3 { values, factors } => Self::E4m3 { values: values.try_clone()?, factors: factors.try_clone()? },
            Self::F16(values) => Self::F16(values.try_clone()?),
            Self::Bf16(values) => Self::Bf16(values.try_clone()?),
        })
    }

    fn view(&self) -> Matrix<'_> {
        match self {
            Self::Nvfp4 { codes, scales } => Matrix::nvfp4(codes, scales),
            Self::Mxfp4 { codes, scales } => Matrix::mxfp4(codes, scales),
            Self::E4m3 { values, factors } => Matrix::e4m3(values, factors),
            Self::F16(values) => Matrix::f16(values),
            Self::Bf16(values) => Matrix::bf16(values),
        }
    }
}

pub(super) fn refused(error: DriverError) -> Error {
    Error::driver(format!("operands of a trial: {:?}", error.0)).with_source(error)
}
