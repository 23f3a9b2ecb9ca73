//! All of a mixture of experts behind its router, in one launch.

use std::fmt;
use std::sync::Arc;

use super::LaunchStream;
use super::memory::{Memory, MemoryMut};
use super::operand::{Alpha, MatrixMut, Values};
use super::simt::{Line, Pieces, SimtKernel, SimtLaunch, Visit, check_given};
use super::weights::PreparedWeights;
use crate::build::Cubin;
use crate::error::{Error, Result};
use crate::simt::{Experts, ExpertsTile, Route, Scoring};

/// The loaded kernel of an [`Experts`]. Holding it keeps it loaded; it can be shared between threads.
#[derive(Clone)]
pub struct ExpertsKernel {
    experts: Experts,
    tile: ExpertsTile,
    /// Of a launch.
    blocks: u32,
    kernel: Arc<SimtKernel>,
}

/// What an [`ExpertsKernel`] works on, all on its device.
#[derive(Debug)]
#[must_use]
pub struct ExpertsOperands<'a> {
    tokens: u32,
    x: Values<'a>,
    weights: [&'a PreparedWeights; 2],
    alphas: [Alpha<'a>; 3],
    of_slots: Memory<'a, f32>,
    lists: MemoryMut<'a, i32>,
    h: MatrixMut<'a>,
    shared: Option<Values<'a>>,
    residual: Option<Values<'a>>,
    out: MatrixMut<'a>,
}

impl<'a> ExpertsOperands<'a> {
    /// From tokens `x` and the weights of up and of down to `out`, both `[tokens, H]`, by what a router left: `of_slots`, the weight
    /// of each slot, `[tokens, k]`, and its `lists`, whose [counters](crate::spec::RouteLists::summary) it counts in and leaves at
    /// zero. `h`, `[tokens · k, I]`, is overwritten.
    pub fn new(
        tokens: u32,
        (x, out): (impl Into<Values<'a>>, impl Into<MatrixMut<'a>>),
        weights: [&'a PreparedWeights; 2],
        of_slots: impl Into<Memory<'a, f32>>,
        lists: impl Into<MemoryMut<'a, i32>>,
        h: impl Into<MatrixMut<'a>>,
    ) -> Self {
        let (x, out, h) = (x.into(), out.into(), h.into());
        let alphas = [Alpha::default(), Alpha::default(), Alpha::default()];
        let (of_slots, lists) = (of_slots.into(), lists.into());
        Self { tokens, x, weights, alphas, of_slots, lists, h, shared: None, residual: None, out }
    }

    /// Of gate, up and down: one number, or one an expert.
    pub fn alphas(mut self, alphas: [Alpha<'a>; 3]) -> Self {
        self.alphas = alphas;
        self
    }

    /// `[tokens, H]`: needed where there is a shared expert, and only there.
    pub fn shared(mut self, rows: impl Into<Values<'a>>) -> Self {
        self.shared = Some(rows.into());
        self
    }

    /// `[tokens, H]`: needed where a residual is added, and only there.
    pub fn residual(mut self, rows: impl Into<Values<'a>>) -> Self {
        self.residual = Some(rows.into());
        self
    }
}

/// The numbers of lines.
mod piece {
    pub(super) const X: usize = 0;
    pub(super) const UP: usize = 1;
    pub(super) const DOWN: usize = 2;
    pub(super) const ALPHAS: usize = 3;
    pub(super) const OF_SLOTS: usize = 6;
    pub(super) const LISTS: usize = 7;
    pub(super) const H: usize = 8;
    pub(super) const SHARED: usize = 9;
    pub(super) const RESIDUAL: usize = 10;
    pub(super) const OUT: usize = 11;
    pub(super) const COUNT: usize = 12;
}

impl Pieces for ExpertsOperands<'_> {
    fn visit<'b, V: Visit<'b>>(&'b mut self, visitor: &mut V) -> Result<()> {
        let Self { tokens: _, x, weights: [up, down], alphas, of_slots, lists, h, shared, residual, out } = self;
        visitor.values(piece::X, x)?;
        visitor.prepared(piece::UP, up)?;
        visitor.prepared(piece::DOWN, down)?;
        for (at, alpha) in (piece::ALPHAS..).zip(&*alphas) {
            if let Alpha::Device(values) = alpha {
                visitor.read(at, values)?;
            }
        }
        visitor.read(piece::OF_SLOTS, of_slots)?;
        visitor.write(piece::LISTS, lists)?;
        visitor.result(piece::H, h)?;
        if let Some(shared) = shared {
            visitor.values(piece::SHARED, shared)?;
        }
        if let Some(residual) = residual {
            visitor.values(piece::RESIDUAL, residual)?;
        }
        visitor.result(piece::OUT, out)
    }
}

impl ExpertsKernel {
    /// On a device of so many multiprocessors, of which one is left to the router before it, and to that of the layer behind it: what
    /// depends on each other begins sooner so.
    pub(crate) fn new(experts: Experts, kernel: Arc<SimtKernel>, sms: u32) -> Result<Self> {
        Ok(Self { experts, tile: experts.tile()?, blocks: (sms.max(2) - 1).min(Experts::BLOCKS_MAX), kernel })
    }

    /// What it was made for.
    pub fn experts(&self) -> &Experts {
        &self.experts
    }

    /// Tokens of a launch at most.
    #[must_use]
    pub fn most_tokens(&self) -> u32 {
        self.tile.tokens
    }

    /// The machine code, with its resource use and provenance.
    #[must_use]
    pub fn cubin(&self) -> &Arc<Cubin> {
        self.kernel.cubin()
    }

    /// Puts one launch into the stream, which may begin while what is before it still runs and waits for its end by itself
    /// (programmatic dependent launch); no tokens are no launch. Nothing is allocated; the call can be captured into a graph as
    /// [`Kernel::launch`](crate::run::Kernel::launch) can.
    ///
    /// # Errors
    /// Operand, if a number, format, size, alignment or device does not fit, before anything is launched; driver, if a launch is
    /// refused or an earlier asynchronous failure shows.
    pub fn launch_dependent(&self, stream: &impl LaunchStream, mut operands: ExpertsOperands<'_>) -> Result<()> {
        self.put(stream, &mut operands).map_err(|error| error.context(self.experts.to_string()))
    }

    fn put(&self, stream: &impl LaunchStream, operands: &mut ExpertsOperands<'_>) -> Result<()> {
        let (experts, tokens, most) = (&self.experts, operands.tokens, self.tile.tokens);
        if tokens > most {
            return Err(Error::operand(format!("{tokens} tokens: at most {most}")));
        }
        let format = experts.token_format();
        let formats = [
            ("x", Some(operands.x.format())),
            ("h", Some(operands.h.format())),
            ("shared", operands.shared.as_ref().map(Values::format)),
            ("residual", operands.residual.as_ref().map(Values::format)),
            ("out", Some(operands.out.format())),
        ];
        if let Some((name, Some(found))) = formats.into_iter().find(|(_, found)| found.is_some_and(|found| found != format)) {
            return Err(Error::operand(format!("{name} is {found}, the kernel is for {format}")));
        }
        for ((name, weights), needed) in ["up", "down"].into_iter().zip(operands.weights).zip(experts.layouts()?) {
            if *weights.layout() != needed {
                return Err(Error::operand(format!("{name} is {}, the kernel is for {needed}", weights.layout())));
            }
        }
        check_given([
            ("shared", operands.shared.is_some(), experts.has_shared()),
            ("residual", operands.residual.is_some(), experts.has_residual()),
        ])?;
        if tokens == 0 {
            return Ok(());
        }
        let (count, k) = (u64::from(experts.expert_count()), u64::from(experts.experts_per_token()));
        let elements = u64::from(tokens) * u64::from(experts.hidden_size());
        let slots = u64::from(tokens) * k;
        let if_any = |has: bool, needed: u64| if has { needed } else { 0 };
        // One number for all, or one each.
        let (mut values, mut steps) = ([0.0; 3], [0; 3]);
        let mut alphas = [0; 3];
        for (at, alpha) in operands.alphas.iter().enumerate() {
            match alpha {
                Alpha::Value(value) => values[at] = *value,
                Alpha::Device(given) if given.elements() == 1 => alphas[at] = 1,
                Alpha::Device(_) => (alphas[at], steps[at]) = (count, 1),
            }
        }
        // As a router has it, of as many experts as there are weights of.
        let lists = Route::new(Scoring::Given).experts(count as u32).k(k as u32).lists(tokens);
        let lines = [
            Line { name: "x", needed: elements, alignment: 16 },
            Line { name: "weights of up", needed: 1, alignment: 16 },
            Line { name: "weights of down", needed: 1, alignment: 16 },
            Line { name: "alpha of the gate", needed: alphas[0], alignment: 4 },
            Line { name: "alpha of up", needed: alphas[1], alignment: 4 },
            Line { name: "alpha of down", needed: alphas[2], alignment: 4 },
            Line { name: "weights of slots", needed: slots, alignment: 4 },
            Line { name: "lists", needed: lists.len() as u64, alignment: 4 },
            Line { name: "h", needed: slots * u64::from(experts.intermediate_size()), alignment: 16 },
            Line { name: "shared", needed: if_any(experts.has_shared(), elements), alignment: 16 },
            Line { name: "residual", needed: if_any(experts.has_residual(), elements), alignment: 16 },
            Line { name: "out", needed: elements, alignment: 16 },
        ];
        let params = |addresses: [u64; piece::COUNT]| {
            let list = |at: usize| addresses[piece::LISTS] + 4 * at as u64;
            Params {
                x: addresses[piece::X],
                up: addresses[piece::UP],
                down: addresses[piece::DOWN],
                alpha: [0, 1, 2].map(|at| addresses[piece::ALPHAS + at]),
                weights: addresses[piece::OF_SLOTS],
                offsets: list(lists.offsets.start),
                rows: list(lists.rows.start),
                slots: list(lists.slots.start),
                hit: list(lists.hit.start),
                summary: list(lists.summary.start),
                state: list(lists.summary.start + 4),
                h: addresses[piece::H],
                shared: addresses[piece::SHARED],
                residual: addresses[piece::RESIDUAL],
                out: addresses[piece::OUT],
                alpha_value: values,
                alpha_step: steps,
                // At most eight.
                tokens: tokens as i32,
            }
        };
        let threads = 32 * Experts::WARPS;
        let shared_bytes = self.tile.shared_bytes;
        let launch = SimtLaunch { entry: 0, grid: self.blocks, threads, cluster: 1, shared_bytes };
        // SAFETY: the entry's only parameter has the layout of `Params` (checked below against templates/simt/experts.cu), and it
        // reads and writes as many elements of each piece as its line says if lists are what a router of these experts left: it
        // checks what it takes from there. Weights have the layout that was compared. It waits for what was before the launch
        // before it reads or writes.
        unsafe { self.kernel.launch(stream, operands, &lines, params, &[launch], true) }
    }
}

impl fmt::Debug for ExpertsKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernel.fmt(f)
    }
}

/// Passed by value; `ExpertsParams` in `templates/simt/experts.cu` has the same order and sizes. Addresses are device memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Params {
    x: u64,
    up: u64,
    down: u64,
    alpha: [u64; 3],
    weights: u64,
    offsets: u64,
    rows: u64,
    slots: u64,
    hit: u64,
    summary: u64,
    state: u64,
    h: u64,
    shared: u64,
    residual: u64,
    out: u64,
    alpha_value: [f32; 3],
    alpha_step: [i32; 3],
    tokens: i32,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn the_parameters_lie_as_on_the_device_side() {
        let source = include_str!("../../templates/simt/experts.cu");
        let declared = source.split_once("struct ExpertsParams {").unwrap().1.split_once("};").unwrap().0;
        let names = declared.lines().filter_map(|line| line.split(';').next()?.rsplit([' ', '*']).next());
        let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        let params = [
            "x", "up", "down", "alpha[3]", "weights", "offsets", "rows", "slots", "hit", "summary", "state", "h", "shared",
            "residual", "out", "alpha_value[3]", "alpha_step[3]", "tokens",
        ];
        assert_eq!(names, params);
        assert_eq!((size_of::<Params>(), offset_of!(Params, weights), offset_of!(Params, alpha_value)), (168, 48, 136));
        assert_eq!(offset_of!(Params, tokens), 160);
    }
}
