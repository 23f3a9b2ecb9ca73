//! What must hold of operands before anything is launched. Plain numbers in, so that it is tested without a device.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DeviceSlice};

use super::params::Params;
use crate::error::{Error, Result};
use crate::format::{Format, PreparedLayout, ScaleLayout};
use crate::spec::{Operation, Problem, Spec};

/// A piece of device memory, without its address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    pub(super) elements: u64,
    /// Which of cudarc's contexts it belongs to, or [`Buffer::ANY`].
    pub(super) context: usize,
    /// The device of that context.
    pub(super) ordinal: usize,
}

impl Buffer {
    /// The context of memory that cudarc does not manage: its caller vouches for it.
    pub(super) const ANY: usize = 0;

    #[inline]
    pub(super) fn of<T>(slice: &impl DeviceSlice<T>) -> Self {
        let context = slice.stream().context();
        Self { elements: slice.len() as u64, context: identity(context), ordinal: context.ordinal() }
    }
}

/// Tells cudarc's contexts apart. Two of one device have the same handle, but neither knows of the other's streams, so that
/// buffers of the one are not ordered with launches in streams of the other.
#[inline]
fn identity(context: &Arc<CudaContext>) -> usize {
    Arc::as_ptr(context) as usize
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
pub(super) struct PreparedSize<'a> {
    pub(super) layout: &'a PreparedLayout,
    pub(super) bytes: Buffer,
}

/// B, or B1 and B2.
#[derive(Clone, Copy, Debug)]
pub(super) enum WeightSizes<'a> {
    Given([Option<MatrixSize>; 2]),
    Prepared(PreparedSize<'a>),
}

/// Everything about the operands of a launch but addresses, piece by piece.
pub(super) trait Described {
    fn m(&self) -> u32;
    fn a(&self) -> MatrixSize;
    fn b(&self) -> WeightSizes<'_>;
    /// Those in device memory.
    fn alpha(&self) -> [Option<Buffer>; 2];
    fn offsets(&self) -> Option<Buffer>;
    fn c(&self) -> MatrixSize;
    fn workspace(&self) -> Option<Buffer>;
}

/// The context that a launch is in: that of its stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    pub(super) context: usize,
    pub(super) ordinal: usize,
}

impl Home {
    #[inline]
    pub(super) fn of(stream: &CudaStream) -> Self {
        Self { context: identity(stream.context()), ordinal: stream.context().ordinal() }
    }

    /// Refuses what belongs to another context.
    #[inline]
    pub(super) fn check(self, name: &str, buffer: &Buffer) -> Result<()> {
        let is_here = buffer.context == self.context || buffer.context == Buffer::ANY;
        if is_here { Ok(()) } else { Err(self.elsewhere(name, buffer.ordinal)) }
    }

    #[cold]
    fn elsewhere(self, name: &str, ordinal: usize) -> Error {
        Error::operand(if ordinal == self.ordinal {
            format!(
                "{name} and the stream belong to two CudaContext objects of device {ordinal}, which do not order each \
                 other's work: make all operands and streams from one (Device::of_context opens a device on it)"
            )
        } else {
            format!("{name} is on device {ordinal}, the stream on device {}", self.ordinal)
        })
    }

    #[inline]
    fn holds(self, name: &str, unit: &str, buffer: &Buffer, needed: u64) -> Result<()> {
        self.check(name, buffer)?;
        if buffer.elements >= needed { Ok(()) } else { Err(too_few(name, unit, buffer.elements, needed)) }
    }
}

#[cold]
fn too_few(name: &str, unit: &str, elements: u64, needed: u64) -> Error {
    Error::operand(format!("{name} has {elements} {unit}, {needed} are needed"))
}

/// What a problem asks of its operands, as far as it can be worked out once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contract {
    operation: Operation,
    groups: Option<u32>,
    /// Of a row, but for the padding of scales.
    a: Needed,
    /// Rows of A whose scales come at a time, a power of two, less one.
    scale_mask: u64,
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
    /// The layout, with its bytes.
    Prepared(PreparedLayout, u64),
}

impl Needed {
    pub(super) fn new(format: Format, elements: u64, scales: u64) -> Self {
        Self { format, values: if format == Format::Nvfp4 { elements / 2 } else { elements }, scales }
    }

    /// Of B `[groups, n, k]`.
    pub(super) fn of_b(format: Format, layout: ScaleLayout, groups: u64, n: u64, k: u64) -> Self {
        Self::new(format, groups * n * k, groups * scale_bytes(layout, n, k))
    }

    /// Of so many rows.
    #[inline]
    fn rows(&self, rows: u64, scale_mask: u64) -> Self {
        let scale_rows = (rows + scale_mask) & !scale_mask;
        Self { values: rows * self.values, scales: scale_rows * self.scales, ..*self }
    }

    #[inline(always)]
    pub(super) fn check(&self, home: Home, name: &str, size: &MatrixSize) -> Result<()> {
        let Self { format, values, scales } = *self;
        if size.format != format {
            return Err(other_format(name, size.format, format));
        }
        home.holds(name, if format == Format::Nvfp4 { "bytes of codes" } else { "elements" }, &size.values, values)?;
        match &size.scales {
            Some(buffer) => home.holds(name, "bytes of block scales", buffer, scales),
            None => Ok(()),
        }
    }
}

#[cold]
fn other_format(name: &str, given: Format, format: Format) -> Error {
    Error::operand(format!("{name} is {given}, the kernel is for {format}"))
}

impl Contract {
    /// # Errors
    /// Those of [`Problem::prepared_layout`].
    pub(super) fn new(spec: &Spec) -> Result<Self> {
        let problem = spec.problem();
        let (n, k) = (u64::from(problem.columns()), u64::from(problem.depth()));
        let layout = problem.scale_layout();
        let b = if problem.is_prepared() {
            let layout = problem.prepared_layout()?;
            WeightsNeeded::Prepared(layout, layout.bytes() as u64)
        } else {
            WeightsNeeded::Given(given_b(problem))
        };
        Ok(Self {
            operation: problem.operation(),
            groups: problem.groups(),
            a: Needed::new(problem.a_format(), k, scale_row_bytes(layout, k)),
            scale_mask: scale_rows(layout) - 1,
            b,
            c: Needed::new(problem.c_format(), n, 0),
            workspace_row: spec.workspace_bytes(1),
        })
    }

    /// Checks formats, sizes and places.
    #[inline]
    pub(super) fn check(&self, home: Home, operands: &impl Described) -> Result<()> {
        let m = operands.m();
        if m > Problem::M_MAX {
            return Err(no_such_m(m));
        }
        let (rows, groups) = (u64::from(m), u64::from(self.groups.unwrap_or(1)));
        self.a.rows(rows, self.scale_mask).check(home, "a", &operands.a())?;
        self.weights(home, &operands.b())?;
        self.c.rows(rows, 0).check(home, "c", &operands.c())?;
        let [alpha1, alpha2] = &operands.alpha();
        match self.operation {
            Operation::Gemm => alpha(home, groups, "alpha", alpha1.as_ref())?,
            Operation::DualGemm(_) => {
                alpha(home, groups, "alpha1", alpha1.as_ref())?;
                alpha(home, groups, "alpha2", alpha2.as_ref())?;
            }
        }
        match (&operands.offsets(), self.groups) {
            (Some(offsets), Some(_)) => home.holds("offsets", "elements", offsets, groups + 1)?,
            (None, None) => {}
            (given, _) => return Err(offsets_or_not(given.is_some(), groups)),
        }
        let needed = rows * self.workspace_row;
        match &operands.workspace() {
            Some(workspace) => home.holds("workspace", "bytes", workspace, needed),
            None if needed == 0 => Ok(()),
            None => Err(no_workspace(m, needed)),
        }
    }

    /// Checks B, or B1 and B2.
    #[inline]
    fn weights(&self, home: Home, given: &WeightSizes<'_>) -> Result<()> {
        match (given, &self.b) {
            (WeightSizes::Given(given), WeightsNeeded::Given(needed)) => self.given(home, needed, given),
            (WeightSizes::Prepared(size), WeightsNeeded::Prepared(layout, bytes)) if size.layout == layout => {
                home.holds("the prepared weights", "bytes", &size.bytes, *bytes)
            }
            (given, needed) => Err(other_weights(given, needed)),
        }
    }

    /// Checks B, or B1 and B2, as they are given.
    #[inline]
    fn given(&self, home: Home, needed: &Needed, [first, second]: &[Option<MatrixSize>; 2]) -> Result<()> {
        let (name, is_dual) = match self.operation {
            Operation::Gemm => ("b", false),
            Operation::DualGemm(_) => ("b1", true),
        };
        match first {
            Some(b) => needed.check(home, name, b)?,
            None => return Err(one_or_two(false)),
        }
        match second {
            Some(b2) if is_dual => needed.check(home, "b2", b2),
            None if !is_dual => Ok(()),
            given => Err(one_or_two(given.is_some())),
        }
    }
}

#[inline]
fn alpha(home: Home, groups: u64, name: &str, alpha: Option<&Buffer>) -> Result<()> {
    let Some(buffer) = alpha else { return Ok(()) };
    home.check(name, buffer)?;
    if buffer.elements == 1 || buffer.elements == groups {
        Ok(())
    } else {
        Err(other_alpha(name, buffer.elements, groups))
    }
}

#[cold]
fn no_such_m(m: u32) -> Error {
    Error::operand(format!("m = {m}: must be at most {}", Problem::M_MAX))
}

#[cold]
fn offsets_or_not(given: bool, groups: u64) -> Error {
    match given {
        true => Error::operand("offsets given, but the problem is not grouped"),
        false => Error::operand(format!("no offsets given: {groups} groups need {} of them", groups + 1)),
    }
}

#[cold]
fn no_workspace(m: u32, needed: u64) -> Error {
    Error::operand(format!("no workspace given: {needed} bytes are needed for m = {m}"))
}

#[cold]
fn other_weights(given: &WeightSizes<'_>, needed: &WeightsNeeded) -> Error {
    match (given, needed) {
        (WeightSizes::Given(_), _) => Error::operand(
            "weights as they are given, the kernel takes prepared ones: Engine::weights, Engine::prepare",
        ),
        (WeightSizes::Prepared(size), WeightsNeeded::Given(_)) => {
            Error::operand(format!("{} given, the kernel takes weights as they are", size.layout))
        }
        (WeightSizes::Prepared(size), WeightsNeeded::Prepared(layout, _)) => {
            Error::operand(format!("the weights are {}, the kernel is for {layout}", size.layout))
        }
    }
}

#[cold]
fn one_or_two(given: bool) -> Error {
    Error::operand(match given {
        true => "two B given, gemm takes one: use Operands::gemm",
        false => "one B given, dual_gemm takes two: use Operands::dual_gemm",
    })
}

#[cold]
fn other_alpha(name: &str, elements: u64, groups: u64) -> Error {
    let expected = if groups == 1 { "1".to_owned() } else { format!("1 or one for each of {groups} groups") };
    Error::operand(format!("{name} has {elements} elements, expected {expected}"))
}

/// Checks number, formats, sizes and places of B, or B1 and B2, each of which has to be as `needed`.
pub(super) fn each_b(home: Home, products: u32, needed: &Needed, given: &[MatrixSize]) -> Result<()> {
    let names: &[&str] = if products == 1 { &["b"] } else { &["b1", "b2"] };
    if given.len() != names.len() {
        return Err(Error::operand(format!("{} B given, {} are needed", given.len(), names.len())));
    }
    names.iter().zip(given).try_for_each(|(name, b)| needed.check(home, name, b))
}

/// What each B of a problem has to be, where it is not prepared.
pub(super) fn given_b(problem: &Problem) -> Needed {
    let (groups, n, k) = (problem.groups().unwrap_or(1).into(), problem.columns().into(), problem.depth().into());
    Needed::of_b(problem.b_format(), problem.scale_layout(), groups, n, k)
}

/// Bytes of block scales for `rows` × `k` elements.
fn scale_bytes(layout: ScaleLayout, rows: u64, k: u64) -> u64 {
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
#[inline]
pub(super) fn alignment(params: &Params) -> Result<()> {
    let Params { a, a_scales, b: [b, b2], b_scales: [b_scales, b2_scales], alpha, offsets, c, workspace, .. } = *params;
    let wide = a | b | b2 | c | workspace;
    let narrow = a_scales | b_scales | b2_scales | alpha[0] | alpha[1] | offsets;
    if wide.is_multiple_of(16) && narrow.is_multiple_of(4) { Ok(()) } else { each_aligned(params) }
}

/// The same, one by one.
#[cold]
fn each_aligned(params: &Params) -> Result<()> {
    let Params { a, a_scales, b: [b, b2], b_scales: [b_scales, b2_scales], alpha, offsets, c, workspace, .. } = *params;
    let wide = [("a", a), ("b", b), ("b2", b2), ("c", c), ("workspace", workspace)];
    let narrow = [
        ("scales of a", a_scales),
        ("scales of b", b_scales),
        ("scales of b2", b2_scales),
        ("alpha", alpha[0]),
        ("alpha2", alpha[1]),
        ("offsets", offsets),
    ];
    aligned(&wide, 16).and_then(|()| aligned(&narrow, 4))
}

/// Refuses the first address that is not a multiple of `step`.
pub(super) fn aligned(addresses: &[(&str, u64)], step: u64) -> Result<()> {
    match addresses.iter().find(|(_, address)| !address.is_multiple_of(step)) {
        Some((name, address)) => {
            Err(Error::operand(format!("{name} begins at {address:#x}, which is not a multiple of {step} bytes")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
