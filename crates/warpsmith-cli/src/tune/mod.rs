//! The tuner at work: kernels chosen by measurement, a table of decisions, and a report of what was tried.
//!
//! ```text
//! warpsmith tune --table h200.tuning --html tuning.html
//! warpsmith tune --problem 'dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared' --m 1,16,256 \
//!     --budget normal --table h200.tuning
//! ```
//!
//! Kernels are built here, and checked and timed in a worker process, which is this program, too: one that hangs or
//! faults is remembered (docs/choosing.md) and not tried again, and the next one gets another worker. A decision for an M is one for all
//! rows from the next smaller M that is tuned in the same run on, but not below three quarters of M; the smallest is for
//! itself only.

mod args;
mod record;
mod report;
#[cfg(test)]
mod tests;
mod tuning;

use warpsmith::cache::KernelCache;
use warpsmith::internal::file;
use warpsmith::pick::Table;
use warpsmith_tune::Quarantine;

use crate::shared::list::{Item, Part};
use crate::shared::{Result, document, say};
pub use args::Args;
use report::{Ceilings, Report};
use tuning::Tuning;

/// Whether every tuning came to a conclusion.
pub fn run(args: &Args) -> Result<bool> {
    let written = [("--table", args.table.as_deref()), ("--html", args.html.as_deref())];
    crate::shared::files::apart(&[], &written)?;
    let cache = KernelCache::builder().install_if_missing().build();
    if args.clear_quarantine {
        say!("{} entries removed from quarantine", Quarantine::beside(&cache).clear()?)?;
    }
    let means = tuning::means(&cache, args.device)?;
    say!("{}\nNVRTC {}", means.machine(), means.nvrtc)?;
    let items = args.wanted.items(&[Part::Dual, Part::Grouped], crate::shared::prepares(&means.arch))?;
    let mut table = match &args.table {
        Some(path) if path.exists() => Table::load(path)?.0,
        _ => Table::new(),
    };
    let before = table.clone();
    let tuning = Tuning::new(args, &cache, &means, &table)?;
    let mut rows = Vec::new();
    let mut concluded = 0;
    // What was found is kept, also if the device is lost in between, or nobody reads on.
    let ended = items.iter().try_for_each(|item| -> Result<()> {
        let outcome = tuning.tune(item)?;
        let others = items.iter().filter(|other| other.problem == item.problem).map(Item::m);
        if let Some(entry) = record::entry(&outcome, &item.problem, record::from_rows(item.m(), others), &means)? {
            table.insert(entry);
            args.table.as_deref().map_or(Ok(()), |path| table.save(path))?;
        }
        concluded += usize::from(outcome.is_conclusive());
        rows.push(record::row(&item.op, &outcome, &item.problem, &item.rows, &means.arch));
        Ok(say!("{outcome}")?)
    });
    let seconds: f64 = rows.iter().map(|row| row.seconds).sum();
    let report = Report {
        machine: means.machine(),
        lines: vec![
            format!("NVRTC {}; budget {}; {} launches.", means.nvrtc, args.budget, tuning.launching()),
            "Ratios are another kernel's time over that of the chosen one, timed in turn.".to_owned(),
        ],
        ceilings: Ceilings::of(&means.arch),
        rows,
    };
    if let Some(path) = &args.html {
        file::write(path, report.page()?.html()?)?;
    }
    say!("\ndecisions")?;
    table.diff(&before).iter().try_for_each(|change| say!("{change}"))?;
    say!("\n{concluded} of {} came to a conclusion, {seconds:.1} s", items.len())?;
    document(&report)?;
    ended.map(|()| concluded == items.len())
}
