//! A whole mixture of experts in one launch.

use std::fmt;
use std::sync::Arc;

use super::LaunchStream;
use super::memory::Memory;
use super::operand::{Alpha, MatrixMut, Values};
use super::places::Places;
use super::simt::{Line, Pieces, SimtKernel, SimtLaunch, Visit, check_given};
use super::weights::PreparedWeights;
use crate::build::Cubin;
use crate::error::{Error, Result};
use crate::format::PreparedLayout;
use crate::simt::{Experts, Scoring};

/// What multiplies the gate, up and down.
const ALPHAS: [&str; 3] = ["alpha of the gate", "alpha of up", "alpha of down"];

/// The loaded kernel of an [`Experts`]. Holding it keeps it loaded; it can be shared between threads.
///
/// Its blocks count, and give each other rows of h, in memory that the kernel has, or several of one layer together. Launches at a time
/// must not have the same of it: where they would write h tells them apart, as nobody may give that to two at a time.
#[derive(Clone)]
pub struct ExpertsKernel {
    experts: Experts,
    /// Tokens of a launch at most.
    tokens: u32,
    /// Of up and of down.
    layouts: [PreparedLayout; 2],
    /// Of a launch.
    blocks: u32,
    kernel: Arc<SimtKernel>,
    places: Places,
}

/// What an [`ExpertsKernel`] works on, all on its device.
#[derive(Debug)]
#[must_use]
pub struct ExpertsOperands<'a> {
    tokens: u32,
    x: Values<'a>,
    weights: [&'a PreparedWeights; 2],
    alphas: [Alpha<'a>; 3],
    from: From<'a>,
    scale: f32,
    h: MatrixMut<'a>,
    shared: Option<Values<'a>>,
    residual: Option<Values<'a>>,
    out: MatrixMut<'a>,
    counters: Option<Memory<'a, i32>>,
}

#[derive(Debug)]
enum From<'a> {
    Logits(Values<'a>, Option<Memory<'a, f32>>),
    Given(Memory<'a, i32>, Memory<'a, f32>),
}

impl<'a> ExpertsOperands<'a> {
    /// From tokens `x` and the weights of up and of down to `out`, both `[tokens, H]`, with experts chosen by `logits`, `[tokens, E]`;
    /// `h`, `[tokens · k, I]`, may be overwritten; by where it lies launches are told apart.
    pub fn new(
        tokens: u32,
        (x, out): (impl Into<Values<'a>>, impl Into<MatrixMut<'a>>),
        weights: [&'a PreparedWeights; 2],
        logits: impl Into<Values<'a>>,
        h: impl Into<MatrixMut<'a>>,
    ) -> Self {
        Self::of(tokens, (x.into(), out.into()), weights, From::Logits(logits.into(), None), h.into())
    }

    /// The same with `ids` and `of_slots`, their weights, that were chosen elsewhere, `[tokens, k]` each. A slot whose id is no
    /// expert's, or its token's for the second time, adds nothing.
    pub fn given(
        tokens: u32,
        (x, out): (impl Into<Values<'a>>, impl Into<MatrixMut<'a>>),
        weights: [&'a PreparedWeights; 2],
        (ids, of_slots): (impl Into<Memory<'a, i32>>, impl Into<Memory<'a, f32>>),
        h: impl Into<MatrixMut<'a>>,
    ) -> Self {
        Self::of(tokens, (x.into(), out.into()), weights, From::Given(ids.into(), of_slots.into()), h.into())
    }

    fn of(
        tokens: u32,
        (x, out): (Values<'a>, MatrixMut<'a>),
        weights: [&'a PreparedWeights; 2],
        from: From<'a>,
        h: MatrixMut<'a>,
    ) -> Self {
        let alphas = [Alpha::default(), Alpha::default(), Alpha::default()];
        Self { tokens, x, weights, alphas, from, scale: 1.0, h, shared: None, residual: None, out, counters: None }
    }

    /// Of gate, up and down: one number, or one a local expert.
    pub fn alphas(mut self, alphas: [Alpha<'a>; 3]) -> Self {
        self.alphas = alphas;
        self
    }

    /// `[E]`: as of a [`RouteOperands`](super::RouteOperands::bias).
    pub fn bias(mut self, values: impl Into<Memory<'a, f32>>) -> Self {
        if let From::Logits(_, bias) = &mut self.from {
            *bias = Some(values.into());
        }
        self
    }

    /// The factor of the weights that are chosen by logits; 1 if it is not said.
    pub fn scale(mut self, scale: f32) -> Self {
        self.scale = scale;
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
    pub(super) const LOGITS: usize = 6;
    pub(super) const BIAS: usize = 7;
    pub(super) const IDS: usize = 8;
    pub(super) const OF_SLOTS: usize = 9;
    pub(super) const H: usize = 10;
    pub(super) const SHARED: usize = 11;
    pub(super) const RESIDUAL: usize = 12;
    pub(super) const OUT: usize = 13;
    pub(super) const COUNTERS: usize = 14;
    pub(super) const COUNT: usize = 15;
}

impl Pieces for ExpertsOperands<'_> {
    fn visit<'b, V: Visit<'b>>(&'b mut self, visitor: &mut V) -> Result<()> {
        let Self { x, weights: [up, down], alphas, from, h, shared, residual, out, counters, .. } = self;
        visitor.values(piece::X, x)?;
        visitor.prepared(piece::UP, up)?;
        visitor.prepared(piece::DOWN, down)?;
        for (at, alpha) in (piece::ALPHAS..).zip(&*alphas) {
            if let Alpha::Device(values) = alpha {
                visitor.read(at, values)?;
            }
        }
        match from {
            From::Logits(logits, bias) => {
                visitor.values(piece::LOGITS, logits)?;
                if let Some(bias) = bias {
                    visitor.read(piece::BIAS, bias)?;
                }
            }
            From::Given(ids, of_slots) => {
                visitor.read(piece::IDS, ids)?;
                visitor.read(piece::OF_SLOTS, of_slots)?;
            }
        }
        visitor.result(piece::H, h)?;
        if let Some(shared) = shared {
            visitor.values(piece::SHARED, shared)?;
        }
        if let Some(residual) = residual {
            visitor.values(piece::RESIDUAL, residual)?;
        }
        visitor.result(piece::OUT, out)?;
        // Shared, and written: each launch of those at a time has its own part of it.
        counters.as_ref().map_or(Ok(()), |counters| visitor.read(piece::COUNTERS, counters))
    }
}

impl ExpertsKernel {
    /// On a device of so many multiprocessors.
    pub(crate) fn new(experts: Experts, kernel: Arc<SimtKernel>, places: Places, sms: u32) -> Result<Self> {
        let (tokens, layouts) = (experts.most_tokens()?, experts.layouts()?);
        let blocks = sms.clamp(1, Experts::BLOCKS_MAX);
        Ok(Self { experts, tokens, layouts, blocks, kernel, places })
    }

    /// What it was made for.
    pub fn experts(&self) -> &Experts {
        &self.experts
    }

    /// The machine code, with its resource use and provenance.
    #[must_use]
    pub fn cubin(&self) -> &Arc<Cubin> {
        self.kernel.cubin()
    }

    /// Where its blocks count and give each other rows of h.
    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// Puts one launch into the stream, which may begin while what is before it still runs and waits for its end by itself
    /// (programmatic dependent launch); no tokens are no launch. Nothing is allocated; the call can be captured into a graph as
    /// [`Kernel::launch`](crate::run::Kernel::launch) can. `false`, and nothing is launched, if there have been launches with h in as
    /// many places as there are counters for.
    ///
    /// # Errors
    /// Operand, if a number, format, size, alignment or device does not fit, before anything is launched; driver, if a launch is
    /// refused or an earlier asynchronous failure shows.
    pub fn launch_dependent<'a>(
        &'a self,
        stream: &impl LaunchStream,
        mut operands: ExpertsOperands<'a>,
    ) -> Result<bool> {
        self.put(stream, &mut operands).map_err(|error| error.context(self.experts.to_string()))
    }

    fn put<'a>(&'a self, stream: &impl LaunchStream, operands: &mut ExpertsOperands<'a>) -> Result<bool> {
        let (experts, route, tokens, most) = (&self.experts, self.experts.route(), operands.tokens, self.tokens);
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
        if let Some((name, Some(found))) =
            formats.into_iter().find(|(_, found)| found.is_some_and(|found| found != format))
        {
            return Err(Error::operand(format!("{name} is {found}, the kernel is for {format}")));
        }
        for ((name, weights), needed) in ["up", "down"].into_iter().zip(operands.weights).zip(self.layouts) {
            if *weights.layout() != needed {
                return Err(Error::operand(format!("{name} is {}, the kernel is for {needed}", weights.layout())));
            }
        }
        check_given([
            ("shared", operands.shared.is_some(), experts.has_shared()),
            ("residual", operands.residual.is_some(), experts.has_residual()),
            ("ids", matches!(operands.from, From::Given(..)), route.scoring() == Scoring::Given),
            ("bias", matches!(operands.from, From::Logits(_, Some(_))), route.scoring() == Scoring::SigmoidBias),
        ])?;
        if let (From::Logits(logits, _), Some(needed)) = (&operands.from, route.logits_format())
            && logits.format() != needed
        {
            return Err(Error::operand(format!("the logits are {}, the kernel is for {needed}", logits.format())));
        }
        if tokens == 0 {
            return Ok(true);
        }
        let of_all = u64::from(route.expert_count());
        let elements = u64::from(tokens) * u64::from(experts.hidden_size());
        let slots = u64::from(tokens) * u64::from(route.experts_per_token());
        let if_any = |has: bool, needed: u64| if has { needed } else { 0 };
        // One number for all, or one each.
        let (mut values, mut steps, mut alphas) = ([0.0; 3], [0; 3], [0; 3]);
        for (at, alpha) in operands.alphas.iter().enumerate() {
            match alpha {
                Alpha::Value(value) => values[at] = *value,
                Alpha::Device(given) if given.elements() == 1 => alphas[at] = 1,
                Alpha::Device(given) if given.elements() == u64::from(experts.local_count()) => {
                    (alphas[at], steps[at]) = (given.elements(), 1);
                }
                Alpha::Device(given) => {
                    let (given, count) = (given.elements(), experts.local_count());
                    return Err(Error::operand(format!(
                        "{} has {given} elements, expected 1, or 1 for each of {count} experts",
                        ALPHAS[at]
                    )));
                }
            }
        }
        // Behind most of what may be refused: a place is never given back.
        let h = match &operands.h {
            MatrixMut::F16(h) => h.as_memory().place_ahead(stream.stream())?,
            MatrixMut::Bf16(h) => h.as_memory().place_ahead(stream.stream())?,
            _ => return Err(Error::internal("h in a format that was refused")),
        };
        let Some(place) = self.places.of(h) else { return Ok(false) };
        operands.counters = Some(self.places.counters().into());

        let is_given = route.scoring() == Scoring::Given;
        let logit = route.logits_format().map_or(4, |format| format.bytes(1)) as u64;
        let lines = [
            Line { name: "x", needed: elements, alignment: 16 },
            Line { name: "weights of up", needed: 1, alignment: 16 },
            Line { name: "weights of down", needed: 1, alignment: 16 },
            Line { name: ALPHAS[0], needed: alphas[0], alignment: 4 },
            Line { name: ALPHAS[1], needed: alphas[1], alignment: 4 },
            Line { name: ALPHAS[2], needed: alphas[2], alignment: 4 },
            Line { name: "logits", needed: if_any(!is_given, u64::from(tokens) * of_all), alignment: logit },
            Line { name: "bias", needed: if_any(route.scoring() == Scoring::SigmoidBias, of_all), alignment: 4 },
            Line { name: "ids", needed: if_any(is_given, slots), alignment: 4 },
            Line { name: "weights", needed: if_any(is_given, slots), alignment: 4 },
            Line { name: "h", needed: slots * u64::from(experts.intermediate_size()), alignment: 16 },
            Line { name: "shared", needed: if_any(experts.has_shared(), elements), alignment: 16 },
            Line { name: "residual", needed: if_any(experts.has_residual(), elements), alignment: 16 },
            Line { name: "out", needed: elements, alignment: 16 },
            Line { name: "counters", needed: self.places.words() as u64, alignment: 16 },
        ];
        let scale = operands.scale;
        let params = |addresses: [u64; piece::COUNT]| Params {
            x: addresses[piece::X],
            up: addresses[piece::UP],
            down: addresses[piece::DOWN],
            alpha: [0, 1, 2].map(|at| addresses[piece::ALPHAS + at]),
            logits: addresses[piece::LOGITS],
            bias: addresses[piece::BIAS],
            ids: addresses[piece::IDS],
            weights: addresses[piece::OF_SLOTS],
            state: addresses[piece::COUNTERS] + place.counters,
            h: addresses[piece::H],
            cells: place.cells.map_or(0, |cells| addresses[piece::COUNTERS] + cells),
            shared: addresses[piece::SHARED],
            residual: addresses[piece::RESIDUAL],
            out: addresses[piece::OUT],
            alpha_value: values,
            alpha_step: steps,
            scale,
            // At most eight.
            tokens: tokens as i32,
        };
        let launch = SimtLaunch::new(0, self.blocks, 32 * Experts::WARPS);
        // SAFETY: the entry's only parameter has the layout of `Params` (checked below against templates/simt/experts.cu), and it
        // reads and writes as many elements of each piece as its line says, whatever logits and ids are; weights have the layout that
        // was compared. Of the counters it writes those of its place: launches at a time have others, as each has its own h. It waits
        // for what was before the launch before it reads or writes.
        unsafe { self.kernel.launch(stream, operands, &lines, params, &[launch], true) }.map(|()| true)
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
    logits: u64,
    bias: u64,
    ids: u64,
    weights: u64,
    state: u64,
    h: u64,
    cells: u64,
    shared: u64,
    residual: u64,
    out: u64,
    alpha_value: [f32; 3],
    alpha_step: [i32; 3],
    scale: f32,
    tokens: i32,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;
    use crate::run::simt::fields_of;

    #[test]
    fn the_parameters_lie_as_on_the_device_side() {
        let source = include_str!("../../templates/simt/experts.cu");
        let names = fields_of(source, "ExpertsParams");
        let params = [
            "x",
            "up",
            "down",
            "alpha[3]",
            "logits",
            "bias",
            "ids",
            "weights",
            "state",
            "h",
            "cells",
            "shared",
            "residual",
            "out",
            "alpha_value[3]",
            "alpha_step[3]",
            "scale",
            "tokens",
        ];
        assert_eq!(names, params);
        assert_eq!((size_of::<Params>(), offset_of!(Params, logits), offset_of!(Params, alpha_value)), (160, 48, 128));
        assert_eq!((offset_of!(Params, scale), offset_of!(Params, tokens)), (152, 156));
    }
}
