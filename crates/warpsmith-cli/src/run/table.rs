//! What is shown: one row a kernel.

use std::fmt::Write;

use serde_json::{Value, json};
use warpsmith::build::Resources;
use warpsmith::cache::Fetched;
use warpsmith::pick::Choice;
use warpsmith::spec::Spec;
use warpsmith_tune::Timing;

/// Everything about one kernel on one problem.
pub struct Row {
    choice: Choice,
    m: u32,
    /// Bytes that must move at least.
    bytes: f64,
    fetched: Option<Fetched>,
    outcome: Outcome,
}

/// How far it came.
pub enum Outcome {
    /// No device: compiled only.
    Compiled,
    /// No device: compiled, and the result computed on the host.
    Host {
        /// Columns computed, of all.
        columns: usize,
        /// The largest magnitude among their elements.
        largest: f64,
    },
    /// Every element is right, and this is the largest error over its bound.
    Passed {
        /// At most 1.
        worst: f64,
        /// Microseconds per call, if that was asked for.
        timing: Option<Timing>,
    },
    /// It could not be built, loaded or launched.
    Failed(String),
    /// An element is outside its bound, or memory that is not the result's was written.
    Wrong(String),
}

impl Row {
    /// A row; `fetched` is missing if compiling failed.
    pub fn new(choice: Choice, rows: &[u32], fetched: Option<Fetched>, outcome: Outcome) -> Self {
        let (m, bytes) = (rows.iter().sum(), choice.spec().problem().bytes_of(rows));
        Self { choice, m, bytes, fetched, outcome }
    }

    /// Whether a kernel did what it must not.
    pub fn is_wrong(&self) -> bool {
        matches!(self.outcome, Outcome::Wrong(_))
    }

    /// Whether there is nothing to judge.
    pub fn has_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }

    /// Why it is wrong or has failed.
    pub fn trouble(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Failed(why) | Outcome::Wrong(why) => Some(why),
            Outcome::Compiled | Outcome::Host { .. } | Outcome::Passed { .. } => None,
        }
    }

    fn spec(&self) -> &Spec {
        self.choice.spec()
    }

    fn us(&self) -> Option<f64> {
        match &self.outcome {
            Outcome::Passed { timing, .. } => timing.as_ref().map(|timing| timing.median_us),
            _ => None,
        }
    }

    fn resources(&self) -> Option<&Resources> {
        self.fetched.as_ref()?.cubin().resources_of(&self.spec().symbol())
    }

    /// Microseconds that the device needs at least: for the bytes at its bandwidth, or the work at its matrix rate.
    fn floor_us(&self) -> f64 {
        let (problem, arch, m) = (self.spec().problem(), self.spec().arch(), u64::from(self.m));
        (self.bytes / arch.memory_bytes_per_s()).max(problem.flop(m) / problem.flop_per_s(arch)) * 1e6
    }

    fn tflops(&self, us: f64) -> f64 {
        self.spec().problem().flop(self.m.into()) / us * 1e-6
    }

    fn resource_words(&self) -> String {
        let shared = self.spec().geometry().shared_bytes / 1024;
        self.resources().map_or("-".to_owned(), |found| {
            let spilled = found.spill_bytes().map_or("?".to_owned(), |bytes| bytes.to_string());
            format!("{}/{spilled}/{shared}K", found.registers())
        })
    }

    fn cells(&self) -> [String; 10] {
        let (build, tier) = self.fetched.as_ref().map_or(("-".to_owned(), "-".to_owned()), |fetched| {
            (format!("{:.1}", fetched.elapsed().as_secs_f64() * 1e3), fetched.tier().to_string())
        });
        let (error, us, tflops, floor) = match &self.outcome {
            Outcome::Passed { worst, timing: None } => (format!("{worst:.3}"), "-".into(), "-".into(), "-".into()),
            Outcome::Passed { worst, timing: Some(timing) } => {
                let us = timing.median_us;
                (
                    format!("{worst:.3}"),
                    format!("{us:.2} ±{:.1}%", 50.0 * timing.spread()),
                    format!("{:.1}", self.tflops(us)),
                    format!("{:.1}%", 100.0 * self.floor_us() / us),
                )
            }
            Outcome::Failed(_) => ("FAILED".into(), "-".into(), "-".into(), "-".into()),
            Outcome::Wrong(_) => ("WRONG".into(), "-".into(), "-".into(), "-".into()),
            Outcome::Compiled | Outcome::Host { .. } => ("-".into(), "-".into(), "-".into(), "-".into()),
        };
        [
            self.spec().problem().to_string(),
            self.m.to_string(),
            self.spec().variant().to_string(),
            build,
            tier,
            self.resource_words(),
            error,
            us,
            tflops,
            floor,
        ]
    }

    fn json(&self) -> Value {
        let resources = self.resources().map(|found| {
            json!({
                "registers": found.registers(),
                "spill_store_bytes": found.spill_store_bytes(),
                "spill_load_bytes": found.spill_load_bytes(),
                "local_bytes": found.local_bytes(),
                "shared_bytes": self.spec().geometry().shared_bytes,
            })
        });
        let build = self.fetched.as_ref().map(|fetched| {
            json!({
                "ms": fetched.elapsed().as_secs_f64() * 1e3,
                "tier": fetched.tier().to_string(),
                "compile_ms": fetched.cubin().compile_ms(),
                "toolchain": fetched.cubin().provenance().toolchain(),
            })
        });
        let outcome = match &self.outcome {
            Outcome::Compiled => json!({ "state": "compiled" }),
            Outcome::Host { columns, largest } => {
                json!({ "state": "host", "columns": columns, "largest": largest })
            }
            Outcome::Failed(why) => json!({ "state": "failed", "why": why }),
            Outcome::Wrong(why) => json!({ "state": "wrong", "why": why }),
            Outcome::Passed { worst, timing: None } => json!({ "state": "passed", "error_over_bound": worst }),
            Outcome::Passed { worst, timing: Some(timing) } => json!({
                "state": "passed",
                "error_over_bound": worst,
                "us": timing.median_us,
                "min_us": timing.min_us,
                "p10_us": timing.p10_us,
                "p90_us": timing.p90_us,
                "replays": timing.replays,
                "calls": timing.calls,
                "tflops": self.tflops(timing.median_us),
                "floor_share": self.floor_us() / timing.median_us,
            }),
        };
        json!({
            "problem": self.spec().problem().to_string(),
            "m": self.m,
            "variant": self.spec().variant().to_string(),
            "arch": self.spec().arch().to_string(),
            "origin": self.choice.origin().to_string(),
            "reason": self.choice.reason().to_string(),
            "resources": resources,
            "build": build,
            "floor_us": self.floor_us(),
            "outcome": outcome,
        })
    }
}

const HEAD: [&str; 10] =
    ["problem", "M", "variant", "build ms", "from", "reg/spill/smem", "err/bound", "µs/call", "TFLOP/s", "of floor"];

/// The table; below every row why this variant, and what was found beside numbers.
pub fn table(rows: &[Row]) -> String {
    let cells: Vec<_> = rows.iter().map(Row::cells).collect();
    let mut widths = HEAD.map(|head| head.chars().count());
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let joined = padded.collect::<Vec<_>>().join("  ");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", joined.trim_end());
    };
    line(&HEAD.map(str::to_owned));
    for (row, cells) in rows.iter().zip(&cells) {
        line(cells);
        let note = match &row.outcome {
            Outcome::Failed(why) | Outcome::Wrong(why) => format!("; {why}"),
            Outcome::Host { columns, largest } => {
                let all = row.spec().problem().columns();
                format!("; host reference of {columns} of {all} columns: largest |c| = {largest:.4}")
            }
            Outcome::Compiled | Outcome::Passed { .. } => String::new(),
        };
        line(&[format!("    {}: {}{note}", row.choice.origin(), row.choice.reason())]);
    }
    text
}

/// Every variant against the first, the baseline.
pub fn ladder(rows: &[Row]) -> String {
    let baseline = rows.first().and_then(Row::us);
    let mut text = String::from("ladder from the baseline (speed-up, µs, error over bound, registers/spills/shared)\n");
    for row in rows {
        let [_, _, variant, _, _, resources, error, us, ..] = row.cells();
        let ratio = match (baseline, row.us()) {
            (Some(baseline), Some(us)) => format!("{:.2}×", baseline / us),
            _ => "-".to_owned(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{ratio:>8}  {us:<16} {error:<7} {resources:<14} {variant}");
    }
    let best = rows.iter().filter_map(|row| Some((row.us()?, row))).min_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((us, row)) = best {
        let _ = writeln!(text, "fastest: {} at {us:.2} µs", row.spec().variant());
    }
    text
}

/// Everything, for machines.
pub fn json(rows: &[Row], machine: &str) -> Value {
    json!({ "machine": machine, "rows": rows.iter().map(Row::json).collect::<Vec<_>>() })
}
