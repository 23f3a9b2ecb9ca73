//! How much slower than the best that was measured is what is picked.
//!
//! What a pick takes is looked up, never predicted: a pick that was not measured is missing, is counted as such, and has
//! no part in the means.

use std::time::Instant;

use serde_json::json;
use warpsmith::internal::pick::heuristic;
use warpsmith::internal::pick::rules::Rule;
use warpsmith::pick::Picker;
use warpsmith::spec::{Arch, Problem, Spec};

use super::candidates::{RANKED, untuned};
use super::data::Pair;
use crate::shared::{Result, document, say};

/// Who picks: an engine without a table (few kernels for all M), the heuristic for this M, the best of its eight, two rules.
const WHO: [&str; 5] = ["chosen", "first", "top 8", "efficiency", "ladder"];

/// M at which few kernels for all are looked at.
const SEVERAL: [u32; 25] =
    [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024, 1536, 2048, 4096, 8192];

/// A first look should take no longer.
const LONG_LOOK_US: f64 = 200.0;
/// So many are timed, of which the median counts.
const LOOKS: usize = 9;

/// A regret of each, as a share; `None` where nothing that was picked was measured.
struct Row<'a> {
    pair: &'a Pair,
    regrets: [Option<f64>; WHO.len()],
    /// Of the top 8 how many were not measured.
    missing: usize,
    /// The first pick.
    pick: Option<Spec>,
    /// What the look took that found it, on this host, in µs.
    look_us: f64,
}

/// Prints a line for each pair, and what it comes to, for calibration and what was held out apart; then what few kernels
/// for all M cost.
///
/// # Errors
/// As building a [`Picker`], and as printing.
pub fn show(pairs: &[Pair], arch: &Arch) -> Result<()> {
    let picker = untuned(arch)?;
    let rows: Vec<Row<'_>> = pairs.iter().map(|pair| row(pair, &picker)).collect();
    say!("| problem | M | held out | best µs | of | {} | missing of 8 | look µs | pick |", WHO.join(" | "))?;
    say!("|---|---|---|---|---|{}---|---|---|", "---|".repeat(WHO.len()))?;
    for row in &rows {
        let Row { pair, regrets, missing, pick, look_us } = row;
        let cells: Vec<String> = regrets.iter().map(percent).collect();
        let held_out = if pair.held_out { "yes" } else { "" };
        let pick = pick.map_or_else(|| "none".to_owned(), |pick| pick.variant().to_string());
        let (problem, m, best, count) = (&pair.problem, pair.m, pair.best, pair.timed.len());
        let cells = cells.join(" | ");
        say!("| {problem} | {m} | {held_out} | {best:.2} | {count} | {cells} | {missing} | {look_us:.0} | {pick} |")?;
    }
    for (what, held_out) in [("calibration", false), ("held out", true)] {
        let of_set: Vec<&Row<'_>> = rows.iter().filter(|row| row.pair.held_out == held_out).collect();
        say!("\n{what}: {} pairs", of_set.len())?;
        if of_set.is_empty() {
            continue;
        }
        for (at, who) in WHO.iter().enumerate() {
            let known: Vec<f64> = of_set.iter().filter_map(|row| row.regrets[at]).collect();
            let ([mean, worst], missing) = (mean_and_worst(&known), of_set.len() - known.len());
            say!("{who:>12}: geometric mean {mean:.2} %, worst {worst:.1} %, {missing} not measured")?;
        }
        let looks = || of_set.iter().map(|row| row.look_us);
        let mean = looks().sum::<f64>() / of_set.len() as f64;
        let (longest, above) = (looks().fold(0.0, f64::max), looks().filter(|us| *us > LONG_LOOK_US).count());
        say!(
            "  first look: {mean:.0} µs in the mean, {longest:.0} at most, {above} above {LONG_LOOK_US}, on this host"
        )?;
    }
    few(pairs, &picker)?;
    document(&rows.iter().map(Row::json).collect::<Vec<_>>())
}

impl Row<'_> {
    fn json(&self) -> serde_json::Value {
        let regrets: serde_json::Map<_, _> =
            WHO.iter().zip(self.regrets).map(|(who, regret)| ((*who).to_owned(), json!(regret))).collect();
        json!({
            "problem": self.pair.problem.to_string(), "m": self.pair.m, "held_out": self.pair.held_out,
            "best_us": self.pair.best, "timed": self.pair.timed.len(), "regrets": regrets, "missing": self.missing,
            "pick": self.pick.map(|pick| pick.variant().to_string()), "look_us": self.look_us,
        })
    }
}

/// Geometric mean and greatest of losses that are shares, in per cent.
fn mean_and_worst(losses: &[f64]) -> [f64; 2] {
    let mean = losses.iter().map(|loss| loss.ln_1p()).sum::<f64>() / losses.len().max(1) as f64;
    [mean.exp_m1(), losses.iter().copied().fold(0.0, f64::max)].map(|share| 100.0 * share)
}

/// Prints what the few kernels that serve all M are predicted to lose to the first pick of each M.
fn few(pairs: &[Pair], picker: &Picker) -> Result<()> {
    let mut problems: Vec<Problem> = pairs.iter().map(|pair| pair.problem).collect();
    problems.sort_by_key(Problem::to_string);
    problems.dedup();
    let mut losses: Vec<(u32, f64)> = Vec::new();
    for (problem, m) in problems.iter().flat_map(|problem| SEVERAL.map(|m| (problem, m))) {
        let chosen = heuristic::predict(picker.choose(problem, m)?.spec(), problem, m).us;
        let first = heuristic::first(problem, m, picker.arch());
        losses.extend(first.map(|first| (m, chosen / first.prediction.us - 1.0)));
    }
    say!("\nchosen over first, as predicted, of {} problems", problems.len())?;
    for (from, to) in [(1, 8192), (1, 16), (17, 512), (513, 8192)] {
        let within: Vec<f64> = losses.iter().filter(|(m, _)| (from..=to).contains(m)).map(|(_, loss)| *loss).collect();
        let ([mean, worst], tenth) = (mean_and_worst(&within), within.iter().filter(|loss| **loss > 0.1).count());
        let all = within.len();
        say!("M {from} to {to}: geometric mean {mean:.2} %, worst {worst:.0} %, more than a tenth {tenth} of {all}")?;
    }
    Ok(())
}

fn percent(regret: &Option<f64>) -> String {
    regret.map_or_else(|| "missing".to_owned(), |regret| format!("{:.1} %", 100.0 * regret))
}

fn row<'a>(pair: &'a Pair, picker: &Picker) -> Row<'a> {
    let arch = picker.arch();
    let us = |spec: &Spec| pair.us(spec.variant());
    let ranked: Vec<Spec> =
        heuristic::rank(&pair.problem, pair.m, arch, RANKED).into_iter().map(|ranked| ranked.spec).collect();
    let (pick, look_us) = look(pair, arch);
    let first = pick.as_ref().and_then(us);
    let known: Vec<f64> = ranked.iter().filter_map(us).collect();
    let top = known.iter().copied().reduce(f64::min);
    let rule = |rule: Rule| us(&rule.choose(&pair.problem, pair.m, arch)?);
    let chosen = picker.choose(&pair.problem, pair.m).ok().and_then(|choice| us(choice.spec()));
    let times = [chosen, first, top, rule(Rule::Efficiency), rule(Rule::Ladder)];
    Row {
        pair,
        regrets: times.map(|us| Some(us? / pair.best - 1.0)),
        missing: ranked.len() - known.len(),
        pick,
        look_us,
    }
}

/// The first pick, and what looking for it takes, in µs.
fn look(pair: &Pair, arch: &Arch) -> (Option<Spec>, f64) {
    let mut pick = None;
    let mut times: Vec<f64> = Vec::with_capacity(LOOKS);
    for _ in 0..LOOKS {
        let start = Instant::now();
        pick = heuristic::first(&pair.problem, pair.m, arch).map(|first| first.spec);
        times.push(1e6 * start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    (pick, times[LOOKS / 2])
}
