//! Which experts tokens go to.

use warpsmith::spec::{Route, Scoring};
use warpsmith_checkpoint::{Module, Moe};
use warpsmith_tune::oracle::route::{Given, route};

use super::io::{self, Tokens};
use super::{Args, host};
use crate::shared::Result;

/// By whom experts are chosen.
#[derive(Debug)]
pub(super) enum Routing {
    /// `[tokens, E]`.
    Logits(Vec<f32>),
    /// `[tokens, k]`.
    Given(Vec<i32>, Vec<f32>),
}

/// As the command line says, or else as the checkpoint's router does; nothing for a layer without experts.
pub(super) fn given(args: &Args, module: &Module<'_>, tokens: &Tokens) -> Result<Option<Routing>> {
    let Module::Moe(moe) = module else {
        return match [("--logits", &args.logits), ("--ids", &args.ids)].iter().find(|(_, given)| given.is_some()) {
            Some((option, _)) => Err(format!("{option}: {} has no experts", args.module).into()),
            None => Ok(None),
        };
    };
    let (experts, k) = (moe.rule().route().expert_count() as usize, moe.rule().route().experts_per_token() as usize);
    if let Some(path) = &args.logits {
        let (logits, columns) = io::matrix(path, "logits", tokens.count)?;
        return match columns == experts {
            true => Ok(Some(Routing::Logits(logits))),
            false => {
                Err(format!("{}: `logits` has {columns} columns, there are {experts} experts", path.display()).into())
            }
        };
    }
    if let (Some(of_ids), Some(of_weights)) = (&args.ids, &args.weights) {
        let (ids, columns) = io::ids(of_ids, tokens.count)?;
        let (weights, others) = io::matrix(of_weights, "weights", tokens.count)?;
        if columns != k || others != k {
            return Err(format!("ids and weights have {columns} and {others} columns, a token has {k} experts").into());
        }
        if let Some(at) = ids.iter().position(|id| *id < -1 || *id >= experts as i64) {
            let (id, token, slot) = (ids[at], at / k, at % k);
            let path = of_ids.display();
            return Err(
                format!("{path}: expert {id} of token {token}, slot {slot}: there are {experts}; -1 is none").into()
            );
        }
        return Ok(Some(Routing::Given(ids.into_iter().map(|id| id as i32).collect(), weights)));
    }
    let logits = host::logits(moe, tokens)?;
    Ok(Some(Routing::Logits(logits)))
}

/// What is chosen, `[tokens, k]`.
#[derive(Debug)]
pub(super) struct Chosen {
    /// −1 for none.
    pub(super) ids: Vec<i32>,
    /// Each with what a right one may be off by.
    pub(super) weights: Vec<(f64, f64)>,
    /// The same bit for bit.
    pub(super) stated: Vec<f32>,
}

impl Routing {
    /// Experts of each token, and their weights.
    pub(super) fn chosen(&self, moe: &Moe<'_>, tokens: usize) -> Result<Chosen> {
        let rule = moe.rule();
        Ok(match self {
            Self::Logits(logits) => {
                let given = Given::Logits(logits, moe.router_bias());
                let routed = route(&rule.route(), tokens as u32, given, 1, rule.scale())?;
                Chosen { ids: routed.ids, weights: routed.weights, stated: routed.stated }
            }
            Self::Given(ids, weights) => {
                let by_ids = Route::new(Scoring::Given).experts(rule.route().expert_count());
                let by_ids = by_ids.k(rule.route().experts_per_token());
                let routed = route(&by_ids, tokens as u32, Given::Ids(ids), 1, 1.0)?;
                let stated = weights.clone();
                let weights = weights.iter().map(|weight| (f64::from(*weight), 0.0)).collect();
                Chosen { ids: routed.ids, weights, stated }
            }
        })
    }

    /// That of some tokens.
    pub(super) fn of(&self, which: &[usize], tokens: usize) -> Self {
        fn some<T: Copy>(all: &[T], which: &[usize], tokens: usize) -> Vec<T> {
            let columns = all.len() / tokens.max(1);
            which.iter().flat_map(|token| &all[token * columns..][..columns]).copied().collect()
        }
        match self {
            Self::Logits(logits) => Self::Logits(some(logits, which, tokens)),
            Self::Given(ids, weights) => Self::Given(some(ids, which, tokens), some(weights, which, tokens)),
        }
    }
}
