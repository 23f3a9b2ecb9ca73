//! Which experts tokens go to, and where their rows lie.
//!
//! The choice is exact, and so are the bits of weights: what makes them is a sequence of IEEE operations that is stated, and written
//! here once more. That they are right is judged against f64. With u = 2⁻²⁴ their bound is made of:
//!
//! * **exp(−d)**, d = largest − logit rounded once: `(d + 6)·u` relative. The rounding of d reaches the value d-fold; polynomial
//!   (1.7 u), reduction and the sums of its last steps pay for the rest.
//! * **sigmoid:** 12·u: exp(−|x|) of an exact argument, the rounding of 1 + e, a reciprocal by two steps of Newton's (10⁻⁸ and
//!   the rounding of the last), a product.
//! * **Σ:** the bounds of what is added, and u of the sum for each of E/32 + 5 additions (softmax), or 5.
//! * **Quotient and scale:** u each.
//! * An exponential of less than 2·10⁻³⁸ may be 0.

use warpsmith::internal::Raise;
use warpsmith::spec::{Route, Scoring};
use warpsmith::{Error, Result};

const U: f64 = 1.0 / (1 << 24) as f64;
/// What exp(−d) may lose whatever its bound: it is 0 from 87 on.
const LOST: f64 = 2e-38;

/// What a router is given.
#[derive(Clone, Copy, Debug)]
pub enum Given<'a> {
    /// `[tokens, E]`, each exactly as it is in its format, and `[E]` where the router has a bias.
    Logits(&'a [f32], &'a [f32]),
    /// `[tokens, k]`.
    Ids(&'a [i32]),
}

/// What has to come out.
#[derive(Clone, Debug)]
pub struct Routed {
    /// The expert of each slot, −1 for none.
    pub ids: Vec<i32>,
    /// The weight of each slot, and how far a right one may be from it; empty where ids are given.
    pub weights: Vec<(f64, f64)>,
    /// The same bit for bit.
    pub stated: Vec<f32>,
    lists: Vec<(usize, i32)>,
}

/// The truth about `tokens` tokens; `tile` and `scale` are the launch's.
///
/// # Errors
/// Data, if `given` has not so many elements as `route` asks for.
pub fn route(route: &Route, tokens: u32, given: Given<'_>, tile: u32, scale: f32) -> Result<Routed> {
    let (experts, k, tokens) = (route.expert_count() as usize, route.experts_per_token() as usize, tokens as usize);
    let (mut ids, mut weights, mut stated) = (Vec::new(), Vec::new(), Vec::new());
    match given {
        Given::Ids(all) if all.len() == tokens * k => {
            for of_token in all.chunks(k) {
                let is_new = |at: usize| !of_token[..at].contains(&of_token[at]);
                let is_expert = |id: i32| usize::try_from(id).is_ok_and(|id| id < experts);
                ids.extend((0..k).map(|at| if is_expert(of_token[at]) && is_new(at) { of_token[at] } else { -1 }));
            }
        }
        Given::Logits(logits, bias) if logits.len() == tokens * experts => {
            for of_token in logits.chunks(experts) {
                let logits: Vec<f32> = of_token.iter().map(|logit| settled(*logit)).collect();
                let chosen = chosen(route, &logits, bias)?;
                weights.extend(weights_of(route, &logits, &chosen, f64::from(scale)));
                stated.extend(stated_of(route, &logits, &chosen).into_iter().map(|weight| weight * scale));
                ids.extend(chosen.iter().map(|expert| *expert as i32));
            }
        }
        _ => return Err(Error::data(format!("{tokens} tokens of {route}: another number of elements is given"))),
    }
    let lists = lists(route, tokens as u32, &ids, tile as usize);
    Ok(Routed { ids, weights, stated, lists })
}

impl Routed {
    /// What the lists are where they were `before` a launch.
    #[must_use]
    pub fn lists(&self, mut before: Vec<i32>) -> Vec<i32> {
        self.lists.iter().for_each(|(at, value)| before[*at] = *value);
        before
    }

    /// The first weight that is not right.
    #[must_use]
    pub fn wrong_weight(&self, found: &[f32]) -> Option<String> {
        let stated = found.iter().zip(&self.stated).position(|(found, stated)| found.to_bits() != stated.to_bits());
        if let Some(at) = stated {
            return Some(format!("weight {at} is {}, expected the bits of {}", found[at], self.stated[at]));
        }
        let mut pairs = found.iter().zip(&self.weights).enumerate();
        // So that NaN is wrong.
        let is_right = |found: f32, (value, bound): (f64, f64)| (f64::from(found) - value).abs() <= bound;
        let wrong = pairs.find(|(_, (found, expected))| !is_right(**found, **expected));
        wrong.map(|(at, (found, (value, bound)))| format!("weight {at} is {found}, expected {value} ± {bound:e}"))
    }
}

/// NaN is the smallest finite number, infinities are the largest and the smallest, −0 is 0.
fn settled(x: f32) -> f32 {
    if x.is_nan() { f32::MIN } else { x.clamp(f32::MIN, f32::MAX) + 0.0 }
}

fn chosen(route: &Route, logits: &[f32], bias: &[f32]) -> Result<Vec<usize>> {
    let has_bias = route.scoring() == Scoring::SigmoidBias;
    if has_bias && bias.len() != logits.len() {
        return Err(Error::data(format!("{} biases for {} experts", bias.len(), logits.len())));
    }
    let choice = |expert: usize| match has_bias {
        true => settled(sigmoid(logits[expert]) + bias[expert]),
        false => logits[expert],
    };
    let choices: Vec<f32> = (0..logits.len()).map(choice).collect();
    let (groups, kept) = route.group_counts();
    let each = logits.len() / groups as usize;
    let of_group = |group: usize| {
        let best = best(&choices[group * each..][..each], 2);
        let value = |nth: usize| choices[group * each + best[nth]];
        if has_bias { settled(value(0) + value(1)) } else { value(0) }
    };
    if groups == 1 {
        return Ok(best(&choices, route.experts_per_token() as usize));
    }
    let scores: Vec<f32> = (0..groups as usize).map(of_group).collect();
    let kept = best(&scores, kept as usize);
    let candidates: Vec<usize> = (0..logits.len()).filter(|expert| kept.contains(&(expert / each))).collect();
    let values: Vec<f32> = candidates.iter().map(|expert| choices[*expert]).collect();
    Ok(best(&values, route.experts_per_token() as usize).into_iter().map(|at| candidates[at]).collect())
}

/// Where the `count` largest stand, the largest first, of equal ones the first.
fn best(values: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
    order.truncate(count);
    order
}

/// As `templates/simt/exact.cuh` states it, to the digit.
#[allow(clippy::excessive_precision, clippy::approx_constant)]
fn exp_of_minus(x: f32) -> f32 {
    const ROUNDER: f32 = 12_582_912.0;
    let sum = x.mul_add(-1.442_695_04, ROUNDER);
    let n = sum - ROUNDER;
    let f = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_375, -x));
    let terms = [1.398_199_950_7e-3, 8.333_451_907_3e-3, 4.166_579_589_4e-2, 1.666_666_545_9e-1, 5.000_000_120_1e-1];
    let p = terms.into_iter().fold(1.987_569_15e-4_f32, |p, term: f32| p.mul_add(f, term));
    let p = p.mul_add(f * f, f) + 1.0;
    if x < 87.0 { p * 2f32.powi(n as i32) } else { 0.0 }
}

pub(super) fn sigmoid(x: f32) -> f32 {
    let e = exp_of_minus(x.abs());
    let d = 1.0 + e;
    let first = 0.323_232_32_f32.mul_add(d, -1.454_545_5).mul_add(d, 2.121_212_2);
    let r = (0..2).fold(first, |r, _| r.mul_add((-d).mul_add(r, 1.0), r));
    if x >= 0.0 { r } else { e * r }
}

/// As a warp makes them, whose lane l has the experts l, l + 32, …, or the slot l.
fn stated_of(route: &Route, logits: &[f32], chosen: &[usize]) -> Vec<f32> {
    let is_softmax = route.scoring() == Scoring::Softmax;
    // The best of all is that of the first slot, where none was excluded.
    let most = match route.is_renormalised() {
        true => chosen.first().map_or(0.0, |expert| logits[*expert]),
        false => logits.iter().copied().fold(f32::MIN, f32::max),
    };
    let score = |logit: f32| if is_softmax { exp_of_minus(most - logit) } else { sigmoid(logit) };
    let scores: Vec<f32> = chosen.iter().map(|expert| score(logits[*expert])).collect();
    let all = match (is_softmax, route.is_renormalised()) {
        (true, true) => sum_of_lanes(&scores),
        (false, true) => sum_of_lanes(&scores) + 1e-20,
        (true, false) => sum_of_lanes(&logits.iter().map(|logit| score(*logit)).collect::<Vec<_>>()),
        (false, false) => return scores,
    };
    scores.into_iter().map(|score| score / all).collect()
}

/// Each lane's one after the other, then those of lanes half as far from each other each time.
fn sum_of_lanes(values: &[f32]) -> f32 {
    const LANES: usize = 32;
    let of_lane = |lane: usize| values.iter().skip(lane).step_by(LANES).fold(0.0, |sum, value| sum + value);
    let mut sums: [f32; LANES] = std::array::from_fn(of_lane);
    let mut distance = LANES / 2;
    while distance > 0 {
        sums = std::array::from_fn(|lane| sums[lane] + sums[lane ^ distance]);
        distance /= 2;
    }
    sums[0]
}

/// In f64, each with its bound.
fn weights_of(route: &Route, logits: &[f32], chosen: &[usize], scale: f64) -> Vec<(f64, f64)> {
    let logit = |expert: &usize| f64::from(logits[*expert]);
    let most = logits.iter().copied().fold(f32::MIN, f32::max);
    let is_softmax = route.scoring() == Scoring::Softmax;
    // A value and how far it may be off.
    let score = |x: f64| match is_softmax {
        true => {
            let d = f64::from(most) - x;
            let value = (-d).exp();
            (value, if value > 0.0 { value * (d + 6.0) * U + LOST } else { LOST })
        }
        false => {
            let value = 1.0 / (1.0 + (-x).exp());
            (value, value * 12.0 * U + LOST)
        }
    };
    let sum = |of: &mut dyn Iterator<Item = (f64, f64)>, additions: f64| {
        let (value, off) = of.fold((0.0, 0.0), |(value, off), (v, o)| (value + v, off + o));
        (value, off + additions * U * value)
    };
    let lanes = (logits.len() as f64 / 32.0).ceil() + 5.0;
    let (all, all_off) = match (is_softmax, route.is_renormalised()) {
        (_, true) => {
            let (value, off) = sum(&mut chosen.iter().map(|expert| score(logit(expert))), 6.0);
            if is_softmax { (value, off) } else { (value + 1e-20, off + 1e-20 * U) }
        }
        (true, false) => sum(&mut logits.iter().map(|logit| score(f64::from(*logit))), lanes),
        (false, false) => (1.0, 0.0),
    };
    let weight = |expert: &usize| {
        let (value, off) = score(logit(expert));
        let quotient = value / all;
        let off = off / all + quotient * all_off / all + 2.0 * U * quotient;
        // Terms of the second order, and where f32 is no longer exact to 2⁻²⁴.
        (quotient * scale, off * scale.abs() * 1.01 + f64::from(f32::MIN_POSITIVE))
    };
    chosen.iter().map(weight).collect()
}

/// Every element of the lists that is written.
fn lists(route: &Route, tokens: u32, ids: &[i32], tile: usize) -> Vec<(usize, i32)> {
    let (local, k, places) = (route.local_experts(), route.experts_per_token() as usize, route.lists(tokens));
    let experts = local.len();
    // The number of a slot's expert among the local ones.
    let of = |slot: usize| {
        let id = u32::try_from(ids[slot]).ok().filter(|id| local.contains(id))?;
        Some((id - local.start) as usize)
    };
    let mut slots: Vec<usize> = (0..ids.len()).filter(|slot| of(*slot).is_some()).collect();
    slots.sort_by_key(|slot| (ids[*slot], *slot));
    let mut written = Vec::new();
    let (mut row, mut hit, mut tiles) = (0usize, 0usize, 0usize);
    let mut counts = vec![0usize; experts];
    slots.iter().filter_map(|slot| of(*slot)).for_each(|expert| counts[expert] += 1);
    for (expert, count) in counts.into_iter().enumerate() {
        written.push((places.offsets.start + expert, row as i32));
        if count > 0 {
            written.push((places.hit.start + hit, expert as i32));
            written.push((places.tiles_before.start + hit, tiles as i32));
            (hit, tiles) = (hit + 1, tiles + count.div_ceil(tile));
        }
        row += count;
    }
    written.push((places.offsets.start + experts, row as i32));
    written.extend((hit..experts).map(|at| (places.hit.start + at, -1)));
    written.extend((hit..=experts).map(|at| (places.tiles_before.start + at, tiles as i32)));
    let summary = [hit, tiles, row, ids.len() - row];
    written.extend(summary.iter().enumerate().map(|(at, value)| (places.summary.start + at, *value as i32)));
    for (row, slot) in slots.iter().enumerate() {
        written.push((places.rows.start + row, (slot / k) as i32));
        written.push((places.slots.start + row, *slot as i32));
        written.push((places.positions.start + slot, row as i32));
    }
    for row in slots.len()..ids.len() {
        written.extend([(places.rows.start + row, -1), (places.slots.start + row, -1)]);
    }
    let none = (0..ids.len()).filter(|slot| of(*slot).is_none());
    written.extend(none.map(|slot| (places.positions.start + slot, -1)));
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stated_functions_are_what_they_are_called() {
        for step in 0..400_000 {
            let x = step as f32 * 2.2e-4;
            let (e, exact) = (f64::from(exp_of_minus(x)), (-f64::from(x)).exp());
            assert!((e - exact).abs() <= 4.0 * U * exact + LOST, "exp(-{x}) = {e}, not {exact}");
            for x in [x, -x] {
                let (s, exact) = (f64::from(sigmoid(x)), 1.0 / (1.0 + (-f64::from(x)).exp()));
                assert!((s - exact).abs() <= 8.0 * U * exact + LOST, "sigmoid({x}) = {s}, not {exact}");
            }
        }
        assert_eq!([sigmoid(f32::MAX), sigmoid(f32::MIN), sigmoid(0.0)], [1.0, 0.0, 0.5]);
    }

    #[test]
    fn ties_go_to_the_lower_and_no_number_is_last_but_finite() {
        let softmax = Route::new(Scoring::Softmax).experts(6).k(4);
        let logits = [1.0, f32::NAN, 2.0, 1.0, f32::INFINITY, f32::NEG_INFINITY];
        let routed = route(&softmax, 1, Given::Logits(&logits, &[]), 8, 1.0).unwrap();
        assert_eq!(routed.ids, [4, 2, 0, 3]);
        let ids = |route_: Route, logits: &[f32], bias: &[f32]| {
            route(&route_, 1, Given::Logits(logits, bias), 8, 1.0).unwrap().ids
        };
        assert_eq!(ids(softmax.k(6), &logits, &[]), [4, 2, 0, 3, 1, 5]);
        assert_eq!(ids(softmax.k(2), &[0.0, -0.0, -0.0, 0.0, -1.0, -1.0], &[]), [0, 1]);
        // Groups {0, 1, 2} and {3, 4, 5}: one very good expert, or two good ones.
        let bias = Route::new(Scoring::SigmoidBias).experts(6).k(2);
        let of = [0.9, 0.0, 0.0, 0.6, 0.6, 0.0];
        assert_eq!(ids(bias.groups(2, 1), &[0.0; 6], &of), [3, 4]);
        assert_eq!(ids(bias, &[0.0; 6], &of), [0, 3]);
        assert_eq!(ids(softmax.k(2).groups(2, 1), &[0.9, 0.0, 0.0, 0.6, 0.6, 0.0], &[]), [0, 1]);
    }

    #[test]
    fn weights_sum_to_the_scale_and_say_where_they_are_wrong() {
        let softmax = Route::new(Scoring::Softmax).experts(8).k(3).renormalised();
        let logits: Vec<f32> = (0..8).map(|expert| (expert * 37 % 11) as f32 * 0.3).collect();
        let routed = route(&softmax, 1, Given::Logits(&logits, &[]), 8, 2.5).unwrap();
        assert!((routed.weights.iter().map(|(value, _)| value).sum::<f64>() - 2.5).abs() < 1e-12);
        let right = routed.stated.clone();
        assert_eq!(routed.wrong_weight(&right), None);
        assert!(routed.wrong_weight(&[right[0], f32::NAN, right[2]]).unwrap().starts_with("weight 1 is NaN"));
        assert!(routed.wrong_weight(&[right[0] * 1.000_01, right[1], right[2]]).is_some());
    }

    #[test]
    fn rows_are_sorted_by_expert_token_and_slot() {
        let given = Route::new(Scoring::Given).experts(4).k(2);
        // Expert 3 twice, no expert 7 and none below 0.
        let ids = [3, 0, 0, 3, 3, 3, 7, -2];
        let routed = route(&given, 4, Given::Ids(&ids), 2, 1.0).unwrap();
        let places = given.lists(4);
        let lists = routed.lists(vec![99; places.len()]);
        let list = |range: std::ops::Range<usize>| &lists[range];
        assert_eq!(list(places.offsets), [0, 2, 2, 2, 5]);
        assert_eq!(list(places.rows), [0, 1, 0, 1, 2, -1, -1, -1]);
        assert_eq!(list(places.slots), [1, 2, 0, 3, 4, -1, -1, -1]);
        assert_eq!(list(places.positions), [2, 0, 1, 3, 4, -1, -1, -1]);
        assert_eq!(list(places.hit), [0, 3, -1, -1]);
        assert_eq!(list(places.tiles_before), [0, 1, 3, 3, 3]);
        assert_eq!(list(places.summary), [2, 3, 5, 3]);
        assert!(route(&given, 4, Given::Ids(&ids[1..]), 2, 1.0).is_err());
    }
}
