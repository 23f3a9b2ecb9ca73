//! What must hold of operands before anything is launched. Plain numbers in, so that it is tested without a device.

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

/// Checks formats, sizes and places.
pub(super) fn sizes(spec: &Spec, home: Home, operands: &Sizes) -> Result<()> {
    let problem = spec.problem();
    let m = operands.m;
    if m == 0 || m > Problem::M_MAX {
        return Err(Error::operand(format!("m = {m}: must be 1 to {}", Problem::M_MAX)));
    }
    let (n, k) = (u64::from(problem.columns()), u64::from(problem.depth()));
    let (rows, groups) = (u64::from(m), u64::from(problem.groups().unwrap_or(1)));
    let layout = problem.scale_layout();

    matrix(home, "a", &operands.a, problem.a_format(), rows * k, scale_bytes(layout, rows, k))?;
    let products = problem.operation().products() as usize;
    match &operands.b {
        WeightSizes::Given(_) if problem.is_prepared() => {
            return Err(Error::operand(
                "weights as they are given, the kernel takes prepared ones: Operands::prepared",
            ));
        }
        WeightSizes::Given(b) => weights(problem, home, b)?,
        WeightSizes::Prepared(size) => prepared(problem, home, size)?,
    }
    matrix(home, "c", &operands.c, problem.c_format(), rows * n, 0)?;
    alphas(home, groups, &operands.alpha[..products])?;
    match (&operands.offsets, problem.groups()) {
        (Some(offsets), Some(_)) => home.holds("offsets", "elements", offsets, groups + 1)?,
        (None, None) => {}
        (None, Some(_)) => {
            return Err(Error::operand(format!("no offsets given: {groups} groups need {} of them", groups + 1)));
        }
        (Some(_), None) => return Err(Error::operand("offsets given, but the problem is not grouped")),
    }
    let needed = spec.workspace_bytes(m);
    match &operands.workspace {
        Some(workspace) => home.holds("workspace", "bytes", workspace, needed),
        None if needed == 0 => Ok(()),
        None => Err(Error::operand(format!("no workspace given: {needed} bytes are needed for m = {m}"))),
    }
}

/// Checks B, or B1 and B2, as they are given.
fn weights(problem: &Problem, home: Home, given: &[Option<MatrixSize>; 2]) -> Result<()> {
    let (n, k) = (u64::from(problem.columns()), u64::from(problem.depth()));
    let (groups, layout) = (u64::from(problem.groups().unwrap_or(1)), problem.scale_layout());
    let products = problem.operation().products() as usize;
    let names: [&str; 2] = match problem.operation() {
        Operation::Gemm => ["b", "b2"],
        Operation::DualGemm(_) => ["b1", "b2"],
    };
    for (index, (name, b)) in names.into_iter().zip(given).enumerate() {
        match (b, index < products) {
            (Some(b), true) => {
                let scales = groups * scale_bytes(layout, n, k);
                matrix(home, name, b, problem.b_format(), groups * n * k, scales)?;
            }
            (None, false) => {}
            (Some(_), false) => return Err(Error::operand("two B given, gemm takes one: use Operands::gemm")),
            (None, true) => return Err(Error::operand("one B given, dual_gemm takes two: use Operands::dual_gemm")),
        }
    }
    Ok(())
}

/// Checks prepared weights.
fn prepared(problem: &Problem, home: Home, size: &PreparedSize) -> Result<()> {
    if !problem.is_prepared() {
        return Err(Error::operand(format!("{} given, the kernel takes weights as they are", size.layout)));
    }
    let expected = problem.prepared_layout()?;
    if size.layout != expected {
        return Err(Error::operand(format!("the weights are {}, the kernel is for {expected}", size.layout)));
    }
    home.holds("the prepared weights", "bytes", &size.bytes, expected.bytes() as u64)
}

pub(super) fn matrix(
    home: Home,
    name: &str,
    size: &MatrixSize,
    format: Format,
    elements: u64,
    scales: u64,
) -> Result<()> {
    if size.format != format {
        return Err(Error::operand(format!("{name} is {}, the kernel is for {format}", size.format)));
    }
    let (unit, values) =
        if format == Format::Nvfp4 { ("bytes of codes", elements / 2) } else { ("elements", elements) };
    home.holds(name, unit, &size.values, values)?;
    match &size.scales {
        Some(buffer) => home.holds(name, "bytes of block scales", buffer, scales),
        None => Ok(()),
    }
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
    match layout {
        ScaleLayout::Linear => rows * (k / 16),
        ScaleLayout::Swizzled128x4 => rows.next_multiple_of(128) * (k / 16).next_multiple_of(4),
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
