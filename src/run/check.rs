//! What must hold of operands before anything is launched. Plain numbers in, so that it is tested without a device.

use cudarc::driver::CudaContext;

use super::params::Params;
use crate::error::{Error, Result};
use crate::format::{Format, PreparedLayout, ScaleLayout};
use crate::spec::{Operation, Problem, Spec};

/// A piece of device memory, without its address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    pub(super) elements: u64,
    /// The driver's handle of the context that owns it.
    pub(super) context: usize,
    /// The device of that context.
    pub(super) ordinal: usize,
}

/// A matrix operand's format and buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatrixSize {
    pub(super) format: Format,
    pub(super) values: Buffer,
    pub(super) scales: Option<Buffer>,
}

/// Prepared weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreparedSize {
    pub(super) layout: PreparedLayout,
    pub(super) bytes: Buffer,
}

/// B, or B1 and B2.
#[derive(Clone, Copy, Debug)]
pub(super) enum WeightSizes {
    Given([Option<MatrixSize>; 2]),
    Prepared(PreparedSize),
}

/// Everything about the operands of a launch but addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) m: u32,
    pub(super) a: MatrixSize,
    pub(super) b: WeightSizes,
    /// Those in device memory.
    pub(super) alpha: [Option<Buffer>; 2],
    pub(super) offsets: Option<Buffer>,
    pub(super) c: MatrixSize,
    pub(super) workspace: Option<Buffer>,
}

/// The context that a kernel was loaded in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    pub(super) context: usize,
    pub(super) ordinal: usize,
}

impl Home {
    pub(super) fn of(context: &CudaContext) -> Self {
        Self { context: context.cu_ctx() as usize, ordinal: context.ordinal() }
    }

    /// Refuses what belongs to another context.
    pub(super) fn check(self, name: &str, context: usize, ordinal: usize) -> Result<()> {
        if ordinal != self.ordinal {
            return Err(Error::operand(format!(
                "{name} is on device {ordinal}, the kernel on device {}",
                self.ordinal
            )));
        }
        if context != self.context {
            return Err(Error::operand(format!(
                "{name} belongs to another context of device {ordinal} than the kernel"
            )));
        }
        Ok(())
    }

    fn holds(self, name: &str, unit: &str, buffer: &Buffer, needed: u64) -> Result<()> {
        self.check(name, buffer.context, buffer.ordinal)?;
        if buffer.elements < needed {
            return Err(Error::operand(format!("{name} has {} {unit}, {needed} are needed", buffer.elements)));
        }
        Ok(())
    }
}

/// What a problem asks of its operands, as far as it can be worked out once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contract {
    operation: Operation,
    groups: Option<u32>,
    /// Of a row, but for the padding of scales.
    a: Needed,
    /// So many rows of scales of A come at a time.
    scale_rows: u64,
    b: WeightsNeeded,
    /// Of a row.
    c: Needed,
    workspace_row: u64,
}

/// A matrix's format, and elements (bytes of codes, if they are NVFP4) and bytes of scales that it needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needed {
    format: Format,
    values: u64,
    scales: u64,
}

#[derive(Clone, Copy, Debug)]
enum WeightsNeeded {
    /// Each B.
    Given(Needed),
    Prepared(PreparedLayout),
}

impl Needed {
    pub(super) fn new(format: Format, elements: u64, scales: u64) -> Self {
        Self { format, values: if format == Format::Nvfp4 { elements / 2 } else { elements }, scales }
    }

    fn rows(&self, rows: u64, scale_rows: u64) -> Self {
        Self { values: rows * self.values, scales: rows.next_multiple_of(scale_rows) * self.scales, ..*self }
    }

    pub(super) fn check(&self, home: Home, name: &str, size: &MatrixSize) -> Result<()> {
        let Self { format, values, scales } = *self;
        if size.format != format {
            return Err(Error::operand(format!("{name} is {}, the kernel is for {format}", size.format)));
        }
        home.holds(name, if format == Format::Nvfp4 { "bytes of codes" } else { "elements" }, &size.values, values)?;
        match &size.scales {
            Some(buffer) => home.holds(name, "bytes of block scales", buffer, scales),
            None => Ok(()),
        }
    }
}

impl Contract {
    /// # Errors
    /// Those of [`Problem::prepared_layout`].
    pub(super) fn new(spec: &Spec) -> Result<Self> {
        let problem = spec.problem();
        let (n, k) = (u64::from(problem.columns()), u64::from(problem.depth()));
        let (groups, layout) = (u64::from(problem.groups().unwrap_or(1)), problem.scale_layout());
        let b = if problem.is_prepared() {
            WeightsNeeded::Prepared(problem.prepared_layout()?)
        } else {
            let scales = groups * scale_bytes(layout, n, k);
            WeightsNeeded::Given(Needed::new(problem.b_format(), groups * n * k, scales))
        };
        Ok(Self {
            operation: problem.operation(),
            groups: problem.groups(),
            a: Needed::new(problem.a_format(), k, scale_row_bytes(layout, k)),
            scale_rows: scale_rows(layout),
            b,
            c: Needed::new(problem.c_format(), n, 0),
            workspace_row: spec.workspace_bytes(1),
        })
    }

    /// Checks formats, sizes and places.
    pub(super) fn check(&self, home: Home, operands: &Sizes) -> Result<()> {
        let m = operands.m;
        if m == 0 || m > Problem::M_MAX {
            return Err(Error::operand(format!("m = {m}: must be 1 to {}", Problem::M_MAX)));
        }
        let (rows, groups) = (u64::from(m), u64::from(self.groups.unwrap_or(1)));
        self.a.rows(rows, self.scale_rows).check(home, "a", &operands.a)?;
        self.weights(home, &operands.b)?;
        self.c.rows(rows, 1).check(home, "c", &operands.c)?;
        alphas(home, groups, &operands.alpha[..self.operation.products() as usize])?;
        match (&operands.offsets, self.groups) {
            (Some(offsets), Some(_)) => home.holds("offsets", "elements", offsets, groups + 1)?,
            (None, None) => {}
            (None, Some(_)) => {
                return Err(Error::operand(format!("no offsets given: {groups} groups need {} of them", groups + 1)));
            }
            (Some(_), None) => return Err(Error::operand("offsets given, but the problem is not grouped")),
        }
        let needed = rows * self.workspace_row;
        match &operands.workspace {
            Some(workspace) => home.holds("workspace", "bytes", workspace, needed),
            None if needed == 0 => Ok(()),
            None => Err(Error::operand(format!("no workspace given: {needed} bytes are needed for m = {m}"))),
        }
    }

    /// Checks B, or B1 and B2.
    fn weights(&self, home: Home, given: &WeightSizes) -> Result<()> {
        match (given, &self.b) {
            (WeightSizes::Given(given), WeightsNeeded::Given(needed)) => self.given(home, needed, given),
            (WeightSizes::Prepared(size), WeightsNeeded::Prepared(layout)) => prepared(home, layout, size),
            (WeightSizes::Given(_), WeightsNeeded::Prepared(_)) => {
                Err(Error::operand("weights as they are given, the kernel takes prepared ones: Operands::prepared"))
            }
            (WeightSizes::Prepared(size), WeightsNeeded::Given(_)) => {
                Err(Error::operand(format!("{} given, the kernel takes weights as they are", size.layout)))
            }
        }
    }

    /// Checks B, or B1 and B2, as they are given.
    fn given(&self, home: Home, needed: &Needed, given: &[Option<MatrixSize>; 2]) -> Result<()> {
        let products = self.operation.products() as usize;
        let names: [&str; 2] = match self.operation {
            Operation::Gemm => ["b", "b2"],
            Operation::DualGemm(_) => ["b1", "b2"],
        };
        for (index, (name, b)) in names.into_iter().zip(given).enumerate() {
            match (b, index < products) {
                (Some(b), true) => needed.check(home, name, b)?,
                (None, false) => {}
                (Some(_), false) => return Err(Error::operand("two B given, gemm takes one: use Operands::gemm")),
                (None, true) => {
                    return Err(Error::operand("one B given, dual_gemm takes two: use Operands::dual_gemm"));
                }
            }
        }
        Ok(())
    }
}

/// Checks prepared weights.
fn prepared(home: Home, expected: &PreparedLayout, size: &PreparedSize) -> Result<()> {
    if size.layout != *expected {
        return Err(Error::operand(format!("the weights are {}, the kernel is for {expected}", size.layout)));
    }
    home.holds("the prepared weights", "bytes", &size.bytes, expected.bytes() as u64)
}

fn alphas(home: Home, groups: u64, alphas: &[Option<Buffer>]) -> Result<()> {
    for (index, alpha) in alphas.iter().enumerate() {
        let Some(buffer) = alpha else { continue };
        let name = match (alphas.len(), index) {
            (1, _) => "alpha",
            (_, 0) => "alpha1",
            _ => "alpha2",
        };
        home.check(name, buffer.context, buffer.ordinal)?;
        if buffer.elements != 1 && buffer.elements != groups {
            let expected = if groups == 1 { "1".to_owned() } else { format!("1 or one for each of {groups} groups") };
            return Err(Error::operand(format!("{name} has {} elements, expected {expected}", buffer.elements)));
        }
    }
    Ok(())
}

/// Bytes of block scales for `rows` × `k` elements.
pub(super) fn scale_bytes(layout: ScaleLayout, rows: u64, k: u64) -> u64 {
    rows.next_multiple_of(scale_rows(layout)) * scale_row_bytes(layout, k)
}

/// Rows that scales are kept for at a time.
fn scale_rows(layout: ScaleLayout) -> u64 {
    match layout {
        ScaleLayout::Linear => 1,
        ScaleLayout::Swizzled128x4 => 128,
    }
}

fn scale_row_bytes(layout: ScaleLayout, k: u64) -> u64 {
    match layout {
        ScaleLayout::Linear => k / 16,
        ScaleLayout::Swizzled128x4 => (k / 16).next_multiple_of(4),
    }
}

/// Checks that every address is aligned as kernels load from it: 16 bytes at a time, scales, α and offsets 4.
pub(super) fn alignment(params: &Params) -> Result<()> {
    aligned(&[
        ("a", params.a, 16),
        ("b", params.b[0], 16),
        ("b2", params.b[1], 16),
        ("c", params.c, 16),
        ("workspace", params.workspace, 16),
        ("scales of a", params.a_scales, 4),
        ("scales of b", params.b_scales[0], 4),
        ("scales of b2", params.b_scales[1], 4),
        ("alpha", params.alpha[0], 4),
        ("alpha2", params.alpha[1], 4),
        ("offsets", params.offsets, 4),
    ])
}

/// Refuses the first address that is not a multiple of its step.
pub(super) fn aligned(addresses: &[(&str, u64, u64)]) -> Result<()> {
    match addresses.iter().find(|(_, address, step)| !address.is_multiple_of(*step)) {
        Some((name, address, step)) => {
            Err(Error::operand(format!("{name} begins at {address:#x}, which is not a multiple of {step} bytes")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
