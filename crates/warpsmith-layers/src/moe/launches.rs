//! The launches of a layer for some tokens.

use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::internal::run::{ExpertsOperands, settled};
use warpsmith::run::{CombineOperands, LaunchStream, Matrix, MatrixMut, RouteOperands, Values};
use warpsmith::spec::Scoring;
use warpsmith::{Error, Result};

use super::{Chooses, Moe};
use crate::mlp::Between;
use crate::operands::{Chunk, as_values, result, tokens, values};
use crate::step::Step;
use crate::workspace::{Pieces, Room};

/// Some tokens of a forward.
pub(super) struct Part<'a, 'b, 'c> {
    pub(super) chunk: Chunk,
    pub(super) x: &'a Matrix<'b>,
    pub(super) residual: Option<&'a Values<'b>>,
    pub(super) out: &'a mut MatrixMut<'b>,
    pub(super) from: &'a Chooses<'c>,
}

/// The launches of a layer for some tokens.
pub(super) struct Launches<'a, S> {
    pub(super) moe: &'a Moe,
    pub(super) stream: &'a S,
    pub(super) only: Option<Step>,
}

impl<S: LaunchStream> Launches<'_, S> {
    fn does(&self, step: Step) -> bool {
        self.only.is_none_or(|only| only == step)
    }

    pub(super) fn put(&self, part: Part<'_, '_, '_>, mut pieces: Pieces<'_>) -> Result<()> {
        let Self { moe, stream, .. } = *self;
        let Part { chunk, x, residual, out, from } = part;
        let (expert, route) = (moe.config.expert(), moe.config.route());
        let (hidden, format) = (expert.hidden_size(), expert.token_format());
        let (count, k) = (chunk.count, route.experts_per_token());
        let x = || chunk.of_matrix(x, hidden);
        let quantisers = moe.quantisers.as_ref();
        if let Some(shared) = moe.shared.as_ref().filter(|_| self.does(Step::Shared)) {
            let Pieces { h, shared: rows, x_rounded, h_rounded, alphas, kernels, .. } = &mut pieces;
            let given = match quantisers {
                None => x()?.into(),
                Some([quantiser, _]) => {
                    quantiser.launch(stream, count, x()?, x_rounded)?;
                    quantiser.made(x_rounded)?
                }
            };
            let between = Between { h, h_rounded, room: Room { alphas, kernels } };
            shared.launch(stream, count, (given, result(rows, format)?), between, None)?;
        }
        if self.only.is_none_or(|only| only == Step::Experts)
            && self.few((chunk, x()?, residual), out, from, &mut pieces)?
        {
            return Ok(());
        }
        if self.does(Step::Route) {
            self.route(chunk, from, &mut pieces)?;
        }

        let lists = route.lists(count);
        let all = pieces.lists.as_numbers::<i32>().ok_or_else(lost)?;
        let list = |range| all.part(range).ok_or_else(lost);
        let weights = || match from {
            Chooses::Logits(_) => pieces.weights.as_numbers().ok_or_else(lost),
            Chooses::Ids(_, weights) => chunk.of(weights, k),
        };
        if self.does(Step::Up) {
            if self.leaves_rows(from) {
                let bytes = format.bytes(expert.padded_size() as usize) * (count * k) as usize;
                pieces.h.part(0..bytes).ok_or_else(lost)?.clear(stream)?;
            }
            if let Some(weigher) = &moe.weigher {
                let operands = CombineOperands::new(count, as_values(x()?)?, result(&mut pieces.y, format)?);
                weigher.launch_dependent(stream, operands.weights(weights()?))?;
            }
            let (rows, offsets) = (list(lists.rows.clone())?, list(lists.offsets.clone())?);
            let h = result(&mut pieces.h, format)?;
            // A token that is weighted has one expert: its row has the number that it had.
            let given = if moe.weigher.is_some() { tokens(&pieces.y, format)? } else { x()? };
            let given = match quantisers {
                None => given.into(),
                Some([quantiser, _]) => {
                    // What a shared expert gets, too, is rounded already.
                    if moe.shared.is_none() || moe.weigher.is_some() {
                        let operands = quantiser.operands(count, given, &mut pieces.x_rounded)?;
                        let is_behind_router = self.only.is_none() && moe.weigher.is_none();
                        // SAFETY: the router lets this one begin when all before itself has ended: whoever wrote x, and whoever
                        // read the rounded rows of another call. It uses neither itself.
                        let operands = if is_behind_router { unsafe { settled(operands) } } else { operands };
                        quantiser.put(stream, operands)?;
                    }
                    quantiser.made(&pieces.x_rounded)?
                }
            };
            let room = Room { alphas: &mut pieces.alphas, kernels: &mut pieces.kernels };
            // A step alone has nothing behind it.
            let next = self.only.is_none().then(|| moe.down.reads_first(count * k)).flatten();
            moe.up.launch(stream, count * k, (given, h), room, |operands| {
                operands.rows(rows).offsets(offsets).next(next)
            })?;
        }
        if self.does(Step::Down) {
            let (offsets, y) = (list(lists.offsets.clone())?, result(&mut pieces.y, format)?);
            let h = tokens(&pieces.h, format)?;
            let h = match quantisers {
                None => h.into(),
                // Of all rows that there may be: how many there are, the host does not know.
                Some([_, quantiser]) => {
                    quantiser.launch(stream, count * k, h, &mut pieces.h_rounded)?;
                    quantiser.made(&pieces.h_rounded)?
                }
            };
            // The router wrote them, and up waited for that before what is ahead began.
            let settled = self.only.is_none();
            let room = Room { alphas: &mut pieces.alphas, kernels: &mut pieces.kernels };
            moe.down.launch(stream, count * k, (h, y), room, |operands| {
                let operands = operands.offsets(offsets);
                if settled { operands.offsets_settled() } else { operands }
            })?;
        }
        if self.does(Step::Combine) {
            let operands = CombineOperands::new(count, values(&pieces.y, format)?, chunk.of_result(out, hidden)?);
            let operands = operands.positions(list(lists.positions)?);
            let operands = if moe.weigher.is_some() { operands } else { operands.weights(weights()?) };
            let operands = match &moe.shared {
                Some(_) => operands.shared(values(&pieces.shared, format)?),
                None => operands,
            };
            let operands = match &moe.shared_gate {
                Some(vector) => operands.shared_gate(as_values(x()?)?, vector),
                None => operands,
            };
            let operands = match residual {
                Some(residual) => operands.residual(chunk.of_values(residual, hidden)?),
                None => operands,
            };
            moe.combiner.launch_dependent(stream, operands)?;
        }
        Ok(())
    }

    /// All behind a shared expert in one launch, of few tokens; else nothing, and `false`.
    fn few(
        &self,
        (chunk, x, residual): (Chunk, Matrix<'_>, Option<&Values<'_>>),
        out: &mut MatrixMut<'_>,
        from: &Chooses<'_>,
        pieces: &mut Pieces<'_>,
    ) -> Result<bool> {
        let Self { moe, stream, .. } = *self;
        let (expert, route) = (moe.config.expert(), moe.config.route());
        let (hidden, format, count) = (expert.hidden_size(), expert.token_format(), chunk.count);
        let scoring = if matches!(from, Chooses::Logits(_)) { route.scoring() } else { Scoring::Given };
        let Some(few) = moe.few_for(count, scoring) else { return Ok(false) };
        let weights = [moe.up.prepared().ok_or_else(lost)?, moe.down.prepared().ok_or_else(lost)?];
        let mut alphas = moe.up.alphas().chain(moe.down.alphas());
        let mut alpha = || alphas.next().ok_or_else(lost);
        let alphas = [alpha()?, alpha()?, alpha()?];
        let Pieces { h, shared, .. } = pieces;
        let (ends, h) = ((as_values(x)?, chunk.of_result(out, hidden)?), result(h, format)?);
        let operands = match from {
            Chooses::Logits(logits) => {
                let logits = chunk.of_values(logits, route.expert_count())?;
                ExpertsOperands::new(count, ends, weights, logits, h)
            }
            Chooses::Ids(ids, weights_of) => {
                let k = route.experts_per_token();
                ExpertsOperands::given(count, ends, weights, (chunk.of(ids, k)?, chunk.of(weights_of, k)?), h)
            }
        };
        let operands = operands.alphas(alphas).scale(moe.scale);
        let operands = match &moe.router_bias {
            Some(bias) => operands.bias(bias),
            None => operands,
        };
        let operands = match &moe.shared {
            Some(_) => operands.shared(values(shared, format)?),
            None => operands,
        };
        let operands = match residual {
            Some(residual) => operands.residual(chunk.of_values(residual, hidden)?),
            None => operands,
        };
        // Noted as asked for: with what is recorded the layer goes any way.
        moe.plans().iter().try_for_each(|plan| plan.kernel(count * route.experts_per_token()).map(drop))?;
        few.launch_dependent(stream, operands)
    }

    /// Whether up may leave rows of h as they are, and these count: what lies there would be a part of the factor of all.
    fn leaves_rows(&self, from: &Chooses<'_>) -> bool {
        let route = self.moe.config.route();
        let has_all = route.local_experts() == (0..route.expert_count()) && matches!(from, Chooses::Logits(_));
        self.moe.config.expert().rounded() == Some(Format::Nvfp4) && !has_all
    }

    fn route(&self, chunk: Chunk, from: &Chooses<'_>, pieces: &mut Pieces<'_>) -> Result<()> {
        let Self { moe, stream, .. } = *self;
        let Chunk { count, .. } = chunk;
        let (route, lists) = (moe.config.route(), pieces.lists.numbers_mut().ok_or_else(lost)?);
        let (router, operands) = match (from, &moe.router) {
            (Chooses::Logits(logits), Some(router)) => {
                let logits = chunk.of_values(logits, route.expert_count())?;
                let (ids, weights) = (pieces.ids.numbers_mut(), pieces.weights.numbers_mut());
                let (ids, weights) = (ids.ok_or_else(lost)?, weights.ok_or_else(lost)?);
                let operands = RouteOperands::new(count, logits, ids, weights, lists).scale(moe.scale);
                let operands = match &moe.router_bias {
                    Some(bias) => operands.bias(bias),
                    None => operands,
                };
                (router, operands)
            }
            (Chooses::Ids(ids, _), _) => {
                let ids = chunk.of(ids, route.experts_per_token())?;
                (&moe.chosen, RouteOperands::given(count, ids, lists))
            }
            (Chooses::Logits(_), None) => return Err(lost()),
        };
        let bytes = pieces.kernels.elements() as usize;
        let operands = operands.workspace(pieces.kernels.part(0..bytes).ok_or_else(lost)?);
        router.launch_dependent(stream, operands)
    }
}

#[cold]
fn lost() -> Error {
    Error::internal("a piece of the workspace is not where it should be")
}
