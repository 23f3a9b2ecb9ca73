//! The tuner at work: kernels chosen by measurement, a table of decisions, and a report of what was tried.
//!
//! ```text
//! warpsmith tune --table h200.tuning --html tuning.html
//! warpsmith tune --problem 'dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared' --m 1,16,256 \
//!     --budget normal --table h200.tuning
//! warpsmith tune --manifest serving.toml --within 180 --table h200.tuning
//! warpsmith tune --layer qwen3-30b --tokens 1,8,32,128,1024,8192 --within 180 --table h200.tuning
//! warpsmith tune --again 2026-11-24 --limit 15 --table h200.tuning
//! ```
//!
//! Kernels are built here, and checked and timed in a worker process, which is this program, too: one that hangs or
//! faults is remembered (docs/choosing.md) and not tried again, and the next one gets another worker. A decision for an M is one for all
//! rows from the next smaller M that is tuned in the same run on, but not below three quarters of M; the smallest is for
//! itself only.

mod again;
pub mod args;
mod record;
mod report;
#[cfg(test)]
mod tests;
pub mod tuning;
pub mod whole;

use std::path::Path;

use warpsmith::cache::KernelCache;
use warpsmith::engine::Manifest;
use warpsmith::internal::file;
use warpsmith::pick::{Picker, Table};
use warpsmith::spec::{Arch, Spec, Variant};
use warpsmith_tune::{Quarantine, SystemClock};

use crate::shared::list::{Item, Part};
use crate::shared::{self, Result, document, layers, say};
pub use args::Args;
use record::Means;
use report::{Ceilings, Report, Row};
use tuning::{Tuning, kin};
use whole::Whole;

/// Whether every tuning came to a conclusion; of a manifest, whether nothing is wrong.
pub fn run(args: &Args) -> Result<bool> {
    let written = [("--table", args.table.as_deref()), ("--html", args.html.as_deref())];
    shared::files::apart(&[("--manifest", args.manifest.as_deref())], &written)?;
    let clock = SystemClock::new();
    let named = args.manifest.as_ref().map(Manifest::load).transpose()?;
    let cache = KernelCache::builder().install_if_missing().build();
    if args.clear_quarantine {
        say!("{} entries removed from quarantine", Quarantine::beside(&cache).clear()?)?;
    }
    let mut tuning = Tuning::new(&cache, args.device, args.dependent, args.duty)?;
    let means = tuning.means()?;
    say!("{}\nNVRTC {}", means.machine(), means.nvrtc)?;
    let table = table(args.table.as_deref())?;
    let manifest = match args.again {
        Some(day) => Some(again::taken_before(day, &table, &means)?),
        None if args.layer.is_empty() => named,
        None => Some(layers::products(&args.layer, &args.tokens, &means.arch)?),
    };
    match (&manifest, args.within) {
        (Some(manifest), Some(within)) => {
            let session = whole::Session { manifest, table: &table, means: &means, clock: &clock, until: within };
            let whole = all(&session, &mut tuning, args.table.as_deref())?;
            whole.show()?;
            let within = format!("{} of {} decided within {:.0} s", whole.reached, whole.points, within.as_secs_f64());
            report(&means, &tuning, within, whole.rows.clone()).write(args.html.as_deref())?;
            document(&whole)?;
            Ok(whole.wrong.is_empty())
        }
        (Some(manifest), None) => list(args, &means, &mut tuning, table, &each(manifest)?),
        (None, _) => {
            let items = args.wanted.items(&[Part::Dual, Part::Grouped], shared::prepares(&means.arch))?;
            list(args, &means, &mut tuning, table, &items)
        }
    }
}

/// A table that there may be.
pub fn table(path: Option<&Path>) -> Result<Table> {
    Ok(match path {
        Some(path) if path.exists() => Table::load(path)?.0,
        _ => Table::new(),
    })
}

/// Tunes what a manifest names. What was decided is in the file at once, so also if the device is lost.
pub fn all(session: &whole::Session<'_>, tuning: &mut Tuning<'_>, table: Option<&Path>) -> Result<Whole> {
    let mut kept = session.table.clone();
    session.run(
        &mut |item, incumbent, kin, turn| tuning.tune(item, incumbent, kin, turn.budget, Some(turn.limit)),
        &mut |now| {
            table.map_or(Ok(()), |path| now.save_changes(&kept, path))?;
            kept.clone_from(now);
            Ok(())
        },
    )
}

/// Every number of rows of every problem.
fn each(manifest: &Manifest) -> Result<Vec<Item>> {
    let all = manifest.problems().flat_map(|(problem, rows)| rows.ranges().flatten().map(move |m| (problem, m)));
    all.map(|(problem, m)| Item::new(*problem, shared::rows(problem, &[m])?)).collect()
}

/// Variants as kernels of the problems that they are legal for.
fn named(variants: &[Variant], items: &[Item], arch: &Arch) -> Result<Vec<Spec>> {
    let mut named = Vec::new();
    for variant in variants {
        let of = |item: &Item| Spec::new(&item.problem, variant, arch);
        let legal: Vec<_> = items.iter().flat_map(of).collect();
        if legal.is_empty() {
            items.first().map_or(Ok(()), |item| of(item).map(drop))?;
        }
        named.extend(legal);
    }
    Ok(named)
}

/// Tunes a list, each of it as far as the budget goes.
fn list(args: &Args, means: &Means, tuning: &mut Tuning<'_>, mut table: Table, items: &[Item]) -> Result<bool> {
    let (before, mut rows, mut concluded) = (table.clone(), Vec::new(), 0);
    // Each begins with what was chosen before any.
    let picker = Picker::builder(&means.device, &means.arch).table(&before).build()?;
    let named = named(&args.variant, items, &means.arch)?;
    // What was found is kept, also if the device is lost in between, or nobody reads on.
    let ended = items.iter().try_for_each(|item| -> Result<()> {
        let (problem, m) = (&item.problem, item.m());
        let named = named.iter().filter(|spec| spec.problem() == problem).copied();
        let kin: Vec<_> = named.chain(kin(&picker, problem, m)?).collect();
        let outcome = tuning.tune(item, picker.choose(problem, m)?.spec(), &kin, args.budget, args.limit)?;
        let others = items.iter().filter(|other| other.problem == *problem).map(Item::m);
        let known = args.again.and_then(|_| again::rows(problem, m, &before, means));
        let decided = known.unwrap_or_else(|| record::from_rows(m, others)..=m);
        if let Some(entry) = record::entry(&outcome, problem, decided, outcome.tried.len(), means)? {
            let kept = table.clone();
            table.supersede(entry);
            args.table.as_deref().map_or(Ok(()), |path| table.save_changes(&kept, path))?;
        }
        concluded += usize::from(outcome.is_conclusive());
        rows.push(record::row(&item.op, &outcome, problem, &item.rows, &means.arch));
        Ok(say!("{outcome}")?)
    });
    let seconds: f64 = rows.iter().map(|row| row.seconds).sum();
    let report = report(means, tuning, format!("budget {}", args.budget), rows);
    report.write(args.html.as_deref())?;
    say!("\ndecisions")?;
    table.diff(&before).iter().try_for_each(|change| say!("{change}"))?;
    say!("\n{concluded} of {} came to a conclusion, {seconds:.1} s", items.len())?;
    document(&report)?;
    ended.map(|()| concluded == items.len())
}

fn report(means: &Means, tuning: &Tuning<'_>, how: String, rows: Vec<Row>) -> Report {
    Report {
        machine: means.machine(),
        lines: vec![
            format!("NVRTC {}; {how}; {} launches.", means.nvrtc, tuning.launching().word()),
            "Ratios are another kernel's time over that of the chosen one, timed in turn.".to_owned(),
        ],
        ceilings: Ceilings::of(&means.arch),
        rows,
    }
}

impl Report {
    fn write(&self, path: Option<&Path>) -> Result<()> {
        let Some(path) = path else { return Ok(()) };
        Ok(file::write(path, self.page()?.html()?)?)
    }
}
