//! What must hold of operands before anything is launched. Plain numbers in, so that it is tested without a device.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DeviceSlice};

use super::memory::{Memory, MemoryMut};
use super::operand::Matrix;
use super::visit::Visitor;
use super::weights::PreparedWeights;
use super::workspace::WorkspaceMemory;
use crate::error::{Error, Result};
use crate::format::{Format, PreparedLayout};
use crate::operand::{Needs, Operand, Params};
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

/// The context that a launch is in: that of its stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContextId {
    pub(super) context: usize,
    pub(super) ordinal: usize,
}

impl ContextId {
    #[inline]
    pub(super) fn of(stream: &CudaStream) -> Self {
        Self { context: identity(stream.context()), ordinal: stream.context().ordinal() }
    }

    /// Refuses what belongs to another context.
    #[inline]
    pub(super) fn check(self, name: &str, buffer: &Buffer) -> Result<()> {
        if self.has(buffer) { Ok(()) } else { Err(self.elsewhere(name, buffer.ordinal)) }
    }

    #[inline]
    fn has(self, buffer: &Buffer) -> bool {
        buffer.context == self.context || buffer.context == Buffer::ANY
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
}

/// What a problem asks of its operands, as far as it can be worked out once.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperandSpec {
    operation: Operation,
    lines: [Line; Operand::COUNT],
    /// What their addresses are multiples of: powers of two.
    alignments: [u64; Operand::COUNT],
    /// Operands that have to be there for any M, a bit each.
    required: u32,
    /// The layout of prepared weights, with its bytes.
    prepared: Option<(PreparedLayout, u64)>,
}

/// Of one operand, without a branch on what it needs.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// What it needs whatever M is; more than there can be, if it must not be given.
    fixed: u64,
    /// For each row.
    each: u64,
    /// Rows that come at a time, a power of two, less one.
    mask: u32,
    /// If rows are those of the operand before, elements of a row there; else 0.
    row: u64,
    /// Of which each may have its own.
    groups: u32,
    /// In which it has to be, where there is a choice.
    format: Format,
}

impl Line {
    const UNWANTED: Self = Self { fixed: u64::MAX, each: 0, mask: 0, row: 0, groups: 1, format: Format::F32 };

    fn new(needs: Needs, format: Option<Format>) -> Self {
        let line = Self { fixed: 0, format: format.unwrap_or(Format::F32), ..Self::UNWANTED };
        match needs {
            Needs::Nothing => Self::UNWANTED,
            Needs::Elements(fixed) => Self { fixed, ..line },
            Needs::Rows { each, mask } => Self { each, mask, ..line },
            Needs::RowsOfValues { row, each, mask } => Self { each, mask, row, ..line },
            Needs::OneOrEach { one, groups } => Self { fixed: one.into(), groups, ..line },
        }
    }

    fn is_wanted(&self) -> bool {
        self.fixed != u64::MAX
    }

    /// Elements for `m` rows, behind an operand of so many.
    #[inline(always)]
    fn needed(&self, m: u32, before: u64) -> u64 {
        let (mask, rows) = (u64::from(self.mask), before.checked_div(self.row).unwrap_or(m.into()));
        self.fixed + ((rows + mask) & !mask) * self.each
    }
}

const fn bit(operand: Operand) -> u32 {
    1 << operand as u32
}

impl OperandSpec {
    /// # Errors
    /// Those of [`Problem::prepared_layout`].
    pub(super) fn new(spec: &Spec) -> Result<Self> {
        let problem = spec.problem();
        let mut operand_spec = Self::of(problem, |operand| operand.needs(spec));
        operand_spec.alignments = std::array::from_fn(|at| Operand::ALL[at].alignment_for(spec));
        if problem.is_prepared() {
            let layout = problem.prepared_layout()?;
            operand_spec.prepared = Some((layout, layout.bytes() as u64));
            operand_spec.lines.iter_mut().zip(Operand::ALL).filter(|(_, operand)| operand.is_of_weights()).for_each(
                |(line, operand)| {
                    *line = Line::UNWANTED;
                    operand_spec.required &= !bit(*operand) | bit(Operand::B1);
                },
            );
        }
        Ok(operand_spec)
    }

    /// Of B, or B1 and B2, as they are given, alone.
    pub(super) fn of_weights(problem: &Problem) -> Self {
        Self::of(problem, |operand| match operand.is_of_weights() {
            true => operand.needs_of(problem),
            false => Needs::Nothing,
        })
    }

    fn of(problem: &Problem, needs: impl Fn(Operand) -> Needs) -> Self {
        let mut lines = [Line::UNWANTED; Operand::COUNT];
        let mut required = 0;
        for (line, operand) in lines.iter_mut().zip(Operand::ALL) {
            *line = Line::new(needs(*operand), operand.format(problem));
            if line.is_wanted() && !operand.is_optional() {
                required |= bit(*operand);
            }
        }
        let alignments = std::array::from_fn(|at| Operand::ALL[at].alignment());
        Self { operation: problem.operation(), lines, alignments, required, prepared: None }
    }

    /// For the operands of a launch of `m` rows.
    ///
    /// # Errors
    /// Operand, if no problem has so many.
    pub(super) fn check(&self, context_id: ContextId, m: u32) -> Result<Check<'_>> {
        if m > Problem::M_MAX { Err(no_such_m(m)) } else { Ok(self.begin(context_id, m)) }
    }

    /// The same, where M is looked at elsewhere.
    #[inline(always)]
    pub(super) fn begin(&self, context_id: ContextId, m: u32) -> Check<'_> {
        Check { operand_spec: self, context_id, m, given: 0, before: 0 }
    }

    /// Whether the factor of C may be this number.
    #[inline(always)]
    pub(super) fn takes_c_factor(&self, factor: f32) -> bool {
        match self.lines[Operand::CFactor as usize].is_wanted() {
            true => is_positive(factor),
            false => factor == 1.0,
        }
    }

    /// # Errors
    /// Operand, if it may not.
    pub(super) fn check_c_factor(&self, factor: f32) -> Result<()> {
        if self.takes_c_factor(factor) {
            return Ok(());
        }
        Err(match self.lines[Operand::CFactor as usize].is_wanted() {
            true => not_positive("c_factor", factor),
            false => unwanted(Operand::CFactor, &self.name(Operand::CFactor), false),
        })
    }

    /// Refuses the first address that is not aligned.
    pub(super) fn aligned(&self, mut params: Params) -> Result<()> {
        let mut addresses = Operand::ALL.iter().map(|operand| (operand, *params.address(*operand)));
        match addresses.find(|(operand, address)| !self.is_aligned(**operand, *address)) {
            Some((operand, address)) => {
                let alignment = self.alignments[*operand as usize];
                Err(not_aligned(&operand.title(self.operation), address, alignment))
            }
            None => Ok(()),
        }
    }

    #[inline(always)]
    fn is_aligned(&self, operand: Operand, address: u64) -> bool {
        address & (self.alignments[operand as usize] - 1) == 0
    }

    #[cold]
    fn misfit(&self, context_id: ContextId, needed: u64, operand: Operand, format: Format, buffer: Buffer) -> Error {
        let (name, line) = (self.name(operand), &self.lines[operand as usize]);
        if !line.is_wanted() {
            return unwanted(operand, &name, self.prepared.is_some());
        }
        if operand.has_formats() && line.format != format {
            return Error::operand(format!("{name} is {format}, the kernel is for {}", line.format));
        }
        if !context_id.has(&buffer) {
            return context_id.elsewhere(&name, buffer.ordinal);
        }
        let (elements, one) = (buffer.elements, line.fixed);
        match (operand.is_one_or_each(), line.groups) {
            (true, 1) => Error::operand(format!("{name} has {elements} elements, expected {one}")),
            (true, groups) => Error::operand(format!(
                "{name} has {elements} elements, expected {one}, or {one} for each of {groups} groups"
            )),
            (false, _) => too_few(&name, operand.unit(format), elements, needed),
        }
    }

    #[cold]
    fn other_layout(&self, context_id: ContextId, layout: &PreparedLayout, bytes: Buffer) -> Error {
        let name = "the prepared weights";
        match &self.prepared {
            None => Error::operand(format!("{layout} given, the kernel takes weights as they are")),
            Some((expected, _)) if layout != expected => {
                Error::operand(format!("the weights are {layout}, the kernel is for {expected}"))
            }
            Some(_) if !context_id.has(&bytes) => context_id.elsewhere(name, bytes.ordinal),
            Some((_, needed)) => too_few(name, "bytes", bytes.elements, *needed),
        }
    }

    #[cold]
    fn missing(&self, missing: u32) -> Error {
        let operand = Operand::ALL.iter().find(|operand| missing & bit(**operand) != 0);
        let Some(operand) = operand else { return Error::internal("an operand is missing that there is not") };
        let name = self.name(*operand);
        let needed = self.lines[*operand as usize].fixed;
        match operand {
            Operand::B2 => Error::operand("one B given, dual_gemm takes two: use Operands::dual_gemm"),
            Operand::Offsets => {
                Error::operand(format!("no offsets given: {} groups need {needed} of them", needed.saturating_sub(1)))
            }
            operand if operand.is_one_or_each() => {
                Error::operand(format!("no {name} given: the problem has one, of {needed} elements"))
            }
            operand => Error::operand(format!("no {} given", operand.title(self.operation))),
        }
    }

    fn name(&self, operand: Operand) -> String {
        operand.name(self.operation)
    }
}

/// Checks format, size and place of one operand after the other.
pub(super) struct Check<'c> {
    operand_spec: &'c OperandSpec,
    context_id: ContextId,
    m: u32,
    /// Those that there are.
    given: u32,
    /// Elements of the last of them.
    before: u64,
}

impl Check<'_> {
    #[inline(always)]
    fn line(&self, operand: Operand) -> &Line {
        &self.operand_spec.lines[operand as usize]
    }

    /// Notes one; whether it fits.
    #[inline(always)]
    pub(super) fn takes(&mut self, operand: Operand, format: Format, buffer: &Buffer) -> bool {
        self.given |= bit(operand);
        let (elements, before) = (buffer.elements, std::mem::replace(&mut self.before, buffer.elements));
        let line = self.line(operand);
        let fits = match operand.is_one_or_each() {
            true => elements == line.fixed || elements == line.fixed.wrapping_mul(line.groups.into()),
            false => elements >= line.needed(self.m, before),
        };
        fits && (!operand.has_formats() || line.format == format) && self.context_id.has(buffer)
    }

    /// Whether it may be there.
    #[inline(always)]
    pub(super) fn is_aligned(&self, operand: Operand, address: u64) -> bool {
        self.operand_spec.is_aligned(operand, address)
    }

    /// Notes all B; whether it fits.
    #[inline(always)]
    pub(super) fn takes_prepared(&mut self, layout: &PreparedLayout, bytes: &Buffer) -> bool {
        self.given |= bit(Operand::B1);
        let prepared = self.operand_spec.prepared.as_ref();
        prepared.is_some_and(|(expected, needed)| {
            layout == expected && self.context_id.has(bytes) && bytes.elements >= *needed
        })
    }

    /// Whether memory is of the launch's context.
    #[inline(always)]
    pub(super) fn is_here(&self, buffer: &Buffer) -> bool {
        self.context_id.has(buffer)
    }

    /// # Errors
    /// Operand, with what does not fit.
    fn piece(&mut self, operand: Operand, format: Format, buffer: &Buffer) -> Result<()> {
        let needed = self.line(operand).needed(self.m, self.before);
        match self.takes(operand, format, buffer) {
            true => Ok(()),
            false => Err(self.operand_spec.misfit(self.context_id, needed, operand, format, *buffer)),
        }
    }

    /// All B.
    ///
    /// # Errors
    /// Operand, with what does not fit.
    fn prepared_weights(&mut self, layout: &PreparedLayout, bytes: &Buffer) -> Result<()> {
        match self.takes_prepared(layout, bytes) {
            true => Ok(()),
            false => Err(self.operand_spec.other_layout(self.context_id, layout, *bytes)),
        }
    }

    /// Whether all are there.
    #[inline(always)]
    pub(super) fn is_complete(&self) -> bool {
        let has_workspace = self.given & bit(Operand::Workspace) != 0;
        self.operand_spec.required & !self.given == 0 && (has_workspace || self.workspace_needed() == 0)
    }

    #[inline(always)]
    fn workspace_needed(&self) -> u64 {
        self.line(Operand::Workspace).needed(self.m, 0)
    }

    /// # Errors
    /// Operand, if one is missing.
    pub(super) fn finish(self) -> Result<()> {
        if self.is_complete() {
            return Ok(());
        }
        match self.operand_spec.required & !self.given {
            0 => Err(no_workspace(self.m, self.workspace_needed())),
            missing => Err(self.operand_spec.missing(missing)),
        }
    }
}

impl<'b> Visitor<'b> for Check<'_> {
    type Refusal = Error;

    fn read<T: Send + Sync + 'static>(
        &mut self,
        operand: Operand,
        format: Format,
        memory: &'b Memory<'_, T>,
    ) -> Result<()> {
        self.piece(operand, format, &memory.buffer())
    }

    fn prepared(&mut self, weights: &'b PreparedWeights) -> Result<()> {
        self.prepared_weights(weights.layout(), &weights.shared().buffer())
    }

    fn next(&mut self, weights: &'b PreparedWeights) -> Result<()> {
        self.context_id.check("the weights that are read next", &weights.shared().buffer())
    }

    fn write<T>(&mut self, operand: Operand, format: Format, memory: &'b mut MemoryMut<'_, T>) -> Result<()> {
        self.piece(operand, format, &memory.buffer())
    }

    fn workspace(&mut self, workspace: &'b mut WorkspaceMemory<'_>) -> Result<()> {
        self.piece(Operand::Workspace, Format::F32, &workspace.buffer())
    }
}

#[cold]
fn too_few(name: &str, unit: &str, elements: u64, needed: u64) -> Error {
    Error::operand(format!("{name} has {elements} {unit}, {needed} are needed"))
}

#[cold]
fn no_such_m(m: u32) -> Error {
    Error::operand(format!("m = {m}: must be at most {}", Problem::M_MAX))
}

#[cold]
fn no_workspace(m: u32, needed: u64) -> Error {
    Error::operand(format!("no workspace given: {needed} bytes are needed for m = {m}"))
}

fn unwanted(operand: Operand, name: &str, is_prepared: bool) -> Error {
    match operand {
        operand if operand.is_of_weights() && is_prepared => Error::operand(
            "weights as they are given, the kernel takes prepared ones: Engine::weights, Engine::prepare",
        ),
        Operand::B2 => Error::operand("two B given, gemm takes one: use Operands::gemm"),
        Operand::Offsets => Error::operand("offsets given, but the problem is not grouped"),
        _ => Error::operand(format!("{name} given, but the problem has none")),
    }
}

/// Checks number, formats, sizes and places of B, or B1 and B2, as `problem` has them where they are not prepared.
pub(super) fn each_b(context_id: ContextId, problem: &Problem, given: &[Matrix<'_>]) -> Result<()> {
    let (operand_spec, products) = (OperandSpec::of_weights(problem), problem.operation().products() as usize);
    if given.len() != products {
        return Err(Error::operand(format!("{} B given, {products} are needed", given.len())));
    }
    let mut check = operand_spec.check(context_id, 0)?;
    given.iter().zip(Operand::B).try_for_each(|(b, operands)| b.visit(operands, &mut check))
}

/// Refuses the first address that is not a multiple of `step`.
pub(super) fn aligned(addresses: &[(&str, u64)], step: u64) -> Result<()> {
    match addresses.iter().find(|(_, address)| !address.is_multiple_of(step)) {
        Some((name, address)) => Err(not_aligned(name, *address, step)),
        None => Ok(()),
    }
}

/// Refuses a factor that is not positive and normal.
pub(super) fn positive(name: &str, factor: f32) -> Result<()> {
    if is_positive(factor) { Ok(()) } else { Err(not_positive(name, factor)) }
}

#[inline(always)]
fn is_positive(factor: f32) -> bool {
    factor.is_normal() && factor > 0.0
}

#[cold]
fn not_positive(name: &str, factor: f32) -> Error {
    Error::operand(format!("{name} is {factor:e}: it must be positive and normal"))
}

#[cold]
fn not_aligned(name: &str, address: u64, step: u64) -> Error {
    Error::operand(format!("{name} begins at {address:#x}, which is not a multiple of {step} bytes"))
}

#[cfg(test)]
mod tests;
