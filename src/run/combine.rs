//! The rows of a token's experts added up on the device.

use std::fmt;
use std::sync::Arc;

use super::LaunchStream;
use super::memory::Memory;
use super::operand::{MatrixMut, Values};
use super::simt::{Line, Pieces, SimtKernel, SimtLaunch, Visit, check_given};
use crate::build::Cubin;
use crate::error::{Error, Result};
use crate::spec::{Combine, Problem};

/// Threads of a block, and elements that each of them takes.
const THREADS: u32 = 128;
const WIDTH: u32 = 8;

/// The loaded kernel of a [`Combine`], from [`Engine::combine`](crate::engine::Engine::combine). Holding it keeps it loaded; it can
/// be shared between threads.
#[derive(Clone)]
pub struct Combiner {
    combine: Combine,
    kernel: Arc<SimtKernel>,
}

/// What a [`Combiner`] works on, all on its device. The weight and position of slot j of token t are element t · k + j.
#[derive(Debug)]
#[must_use]
pub struct CombineOperands<'a> {
    tokens: u32,
    rows: Values<'a>,
    weights: Option<Memory<'a, f32>>,
    positions: Option<Memory<'a, i32>>,
    shared: Option<Values<'a>>,
    gate: Option<(Values<'a>, Memory<'a, f32>)>,
    residual: Option<Values<'a>>,
    out: MatrixMut<'a>,
}

impl<'a> CombineOperands<'a> {
    /// From `rows`, `[tokens · k, H]`, to `out`, `[tokens, H]`.
    pub fn new(tokens: u32, rows: impl Into<Values<'a>>, out: impl Into<MatrixMut<'a>>) -> Self {
        let (rows, out) = (rows.into(), out.into());
        Self { tokens, rows, weights: None, positions: None, shared: None, gate: None, residual: None, out }
    }

    /// `[tokens, k]`: needed where the problem is weighted, and only there.
    pub fn weights(mut self, weights: impl Into<Memory<'a, f32>>) -> Self {
        self.weights = Some(weights.into());
        self
    }

    /// `[tokens, k]`: needed where rows are placed, and only there. A position that there is no row at adds nothing.
    pub fn positions(mut self, positions: impl Into<Memory<'a, i32>>) -> Self {
        self.positions = Some(positions.into());
        self
    }

    /// `[tokens, H]` in the format of the result: needed where there is a shared expert, and only there.
    pub fn shared(mut self, rows: impl Into<Values<'a>>) -> Self {
        self.shared = Some(rows.into());
        self
    }

    /// The gate of the shared expert: the tokens `x`, `[tokens, H]` in the format of the rows, and the vector that they are multiplied
    /// with, `[H]`; neither lies where the result is. Needed where the problem has such a gate, and only there.
    pub fn shared_gate(mut self, x: impl Into<Values<'a>>, vector: impl Into<Memory<'a, f32>>) -> Self {
        self.gate = Some((x.into(), vector.into()));
        self
    }

    /// `[tokens, H]` in the format of the result: needed where a residual is added, and only there.
    pub fn residual(mut self, rows: impl Into<Values<'a>>) -> Self {
        self.residual = Some(rows.into());
        self
    }
}

const PIECES: usize = 8;

impl Pieces for CombineOperands<'_> {
    fn visit<'b, V: Visit<'b>>(&'b mut self, visitor: &mut V) -> Result<()> {
        let Self { tokens: _, rows, weights, positions, shared, gate, residual, out } = self;
        visitor.values(0, rows)?;
        if let Some(weights) = weights {
            visitor.read(1, weights)?;
        }
        if let Some(positions) = positions {
            visitor.read(2, positions)?;
        }
        if let Some(shared) = shared {
            visitor.values(3, shared)?;
        }
        if let Some(residual) = residual {
            visitor.values(4, residual)?;
        }
        visitor.result(5, out)?;
        if let Some((x, vector)) = gate {
            visitor.values(6, x)?;
            visitor.read(7, vector)?;
        }
        Ok(())
    }
}

impl Combiner {
    pub(crate) fn new(combine: Combine, kernel: Arc<SimtKernel>) -> Self {
        Self { combine, kernel }
    }

    /// What it was made for.
    pub fn combine(&self) -> &Combine {
        &self.combine
    }

    /// The machine code, with its resource use and provenance.
    #[must_use]
    pub fn cubin(&self) -> &Arc<Cubin> {
        self.kernel.cubin()
    }

    /// Adds up `operands` in `stream`: checks them, puts one launch into the stream and returns; no tokens are no launch. Nothing is
    /// allocated; the call can be captured into a graph as [`Kernel::launch`](crate::run::Kernel::launch) can.
    ///
    /// # Errors
    /// Operand, if a format, size, alignment or device does not fit, before anything is launched; driver, if a launch is refused
    /// or an earlier asynchronous failure shows.
    pub fn launch(&self, stream: &impl LaunchStream, mut operands: CombineOperands<'_>) -> Result<()> {
        self.put(stream, &mut operands, false).map_err(|error| error.context(self.combine.to_string()))
    }

    /// As [`Combiner::launch`], but the kernel may begin while what is before it in the stream still runs, and waits for its end
    /// by itself (programmatic dependent launch; before sm_90 a plain one).
    ///
    /// # Errors
    /// As [`Combiner::launch`].
    pub fn launch_dependent(&self, stream: &impl LaunchStream, mut operands: CombineOperands<'_>) -> Result<()> {
        self.put(stream, &mut operands, true).map_err(|error| error.context(self.combine.to_string()))
    }

    fn put(&self, stream: &impl LaunchStream, operands: &mut CombineOperands<'_>, is_dependent: bool) -> Result<()> {
        let (combine, tokens) = (&self.combine, operands.tokens);
        let slots = u64::from(tokens) * u64::from(combine.rows_per_token());
        if slots > u64::from(Problem::M_MAX) {
            return Err(Error::operand(format!("{tokens} tokens have {slots} rows: at most {}", Problem::M_MAX)));
        }
        let blocks = u64::from(tokens) * u64::from(combine.hidden_size().div_ceil(THREADS * WIDTH));
        let Some(grid) = i32::try_from(blocks).ok().map(|blocks| blocks as u32) else {
            return Err(Error::operand(format!("{tokens} tokens take {blocks} blocks: at most {}", i32::MAX)));
        };
        let CombineOperands { rows, weights, positions, shared, gate, residual, out, .. } = &*operands;
        let formats = [
            ("rows", Some(rows.format()), combine.rows_format()),
            ("shared", shared.as_ref().map(Values::format), combine.out_format()),
            ("the shared gate's x", gate.as_ref().map(|(x, _)| x.format()), combine.rows_format()),
            ("residual", residual.as_ref().map(Values::format), combine.out_format()),
            ("out", Some(out.format()), combine.out_format()),
        ];
        for (name, format, needed) in formats {
            if let Some(format) = format
                && format != needed
            {
                return Err(Error::operand(format!("{name} is {format}, the kernel is for {needed}")));
            }
        }
        let optional = [
            ("weights", weights.is_some(), combine.is_weighted()),
            ("positions", positions.is_some(), combine.is_placed()),
            ("shared", shared.is_some(), combine.has_shared()),
            ("shared_gate", gate.is_some(), combine.has_shared_gate()),
            ("residual", residual.is_some(), combine.has_residual()),
        ];
        check_given(optional)?;
        if tokens == 0 {
            return Ok(());
        }
        let hidden = u64::from(combine.hidden_size());
        let elements = u64::from(tokens) * hidden;
        let if_any = |has: bool, needed: u64| if has { needed } else { 0 };
        let lines = [
            Line { name: "rows", needed: slots * hidden, alignment: 16 },
            Line { name: "weights", needed: if_any(combine.is_weighted(), slots), alignment: 4 },
            Line { name: "positions", needed: if_any(combine.is_placed(), slots), alignment: 4 },
            Line { name: "shared", needed: if_any(combine.has_shared(), elements), alignment: 16 },
            Line { name: "residual", needed: if_any(combine.has_residual(), elements), alignment: 16 },
            Line { name: "out", needed: elements, alignment: 16 },
            Line { name: "the shared gate's x", needed: if_any(combine.has_shared_gate(), elements), alignment: 16 },
            Line { name: "the shared gate's vector", needed: if_any(combine.has_shared_gate(), hidden), alignment: 16 },
        ];
        let params = |[rows, weights, positions, shared, residual, out, x, gate]: [u64; PIECES]| {
            // M_MAX is far below.
            Params { rows, weights, positions, shared, residual, out, tokens: tokens as i32, x, gate }
        };
        let launch = SimtLaunch::new(0, grid, THREADS);
        // SAFETY: the entry's only parameter has the layout of `Params` (checked below against templates/simt/combine.cu), and it
        // reads and writes as many elements of each piece as its line says, whatever positions are. It waits for what was before
        // the launch before it reads or writes.
        unsafe { self.kernel.launch(stream, operands, &lines, params, &[launch], is_dependent) }
    }
}

impl fmt::Debug for Combiner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernel.fmt(f)
    }
}

/// Passed by value; `CombineParams` in `templates/simt/combine.cu` has the same order and sizes. Addresses are device memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Params {
    rows: u64,
    weights: u64,
    positions: u64,
    shared: u64,
    residual: u64,
    out: u64,
    tokens: i32,
    x: u64,
    gate: u64,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;
    use crate::run::simt::fields_of;

    #[test]
    fn the_parameters_lie_as_on_the_device_side() {
        let source = include_str!("../../templates/simt/combine.cu");
        let names = fields_of(source, "CombineParams");
        assert_eq!(names, ["rows", "weights", "positions", "shared", "residual", "out", "tokens", "x", "gate"]);
        assert_eq!((size_of::<Params>(), offset_of!(Params, out), offset_of!(Params, tokens)), (72, 40, 48));
        assert_eq!(offset_of!(Params, gate), 64);
    }
}
