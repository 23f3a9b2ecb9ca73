//! The calibration: what the heuristic's constants are fitted to, and what its picks are judged by.
//!
//! ```text
//! warpsmith calibrate fit.tsv --also-rank --candidates 20 --rounds 1 --limit 200
//! warpsmith calibrate fit.tsv --fit > fitted.txt
//! warpsmith calibrate regret.tsv --held-out --also-rank --candidates 4 --rounds 1 --limit 300
//! warpsmith calibrate regret.tsv --held-out --also-rank --candidates 0 --rounds 0 --limit 90 --append --constants fitted.txt
//! warpsmith calibrate regret.tsv --regret
//! warpsmith calibrate regret.tsv --regret --constants fitted.txt
//! warpsmith calibrate layers.tsv --dependent --also-rank --candidates 6 --rounds 0 --limit 200
//! warpsmith calibrate layers.tsv --arch h100 --fit > fitted.txt
//! ```
//!
//! The campaign measures many variants of many problems: it builds kernels on all cores, checks each at the M in
//! question against the host's reference, and only if it is right times it. A line goes to the file as soon as it is
//! known. Devices are used by a process of its own: if a kernel hangs or breaks the context, its line says so, and
//! another process goes on.

mod ahead;
mod args;
mod campaign;
mod candidates;
mod data;
mod fit;
mod host;
mod list;
mod loss;
mod plan;
mod record;
mod regret;
mod residuals;
mod rounds;
mod spent;

use std::collections::BTreeMap;
use std::env;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use warpsmith::cache::KernelCache;
use warpsmith::internal::pick::heuristic::{Constants, Kind, Tables};
use warpsmith::run::Device;
use warpsmith::spec::{Arch, Problem};

use crate::shared::{self, Result, complain, document, say};
pub use args::Args;
use data::Pair;
use list::Item;
use plan::{Before, Plan};
use record::Record;

/// Processes at most, each ended by a kernel that broke the device.
const PROCESSES: usize = 20;
/// Seconds that another process must have left to be worth starting.
const WORTH: f64 = 15.0;

pub fn run(args: &Args) -> Result<bool> {
    if args.constants.is_some() && !args.fit && !args.residuals && !begin(args)?.replace() {
        return Err("other constants are in use".into());
    }
    if let Some(arch) = &args.list {
        return show(args, arch);
    }
    if args.fit {
        return fit(args);
    }
    if args.regret {
        let lines = record::read(&args.file)?;
        regret::show(&data::pairs(&lines, &args.arch)?, &args.arch)?;
        return Ok(true);
    }
    if args.residuals {
        let begin = begin(args)?;
        let lines = record::read(&args.file)?;
        residuals::show(&data::pairs(&lines, &args.arch)?, &begin)?;
        return Ok(true);
    }
    if args.worker { worker(args) } else { supervise(args) }
}

/// The problems of this call.
fn items(args: &Args) -> Result<Vec<Item>> {
    let own = |problem: &Problem| -> Result<Item> {
        let rows: Vec<_> = args.m.iter().map(|m| shared::rows(problem, &[*m])).collect::<Result<_>>()?;
        let further = rows.iter().map(|rows| shared::further_rows(problem, rows)).collect::<Result<_>>()?;
        Ok(Item { problem: *problem, rows, further, held_out: false })
    };
    if !args.problem.is_empty() {
        return args.problem.iter().map(own).collect();
    }
    let (index, count) = args.part;
    let list = if args.held_out { list::held_out()? } else { list::list()? };
    let list = if args.e4m3 { list.iter().filter_map(Item::in_e4m3).collect() } else { list };
    Ok(list.into_iter().skip(index - 1).step_by(count).collect())
}

fn show(args: &Args, arch: &Arch) -> Result<bool> {
    let (mut pairs, mut held_out, mut kernels, mut listed) = (0, 0, 0, Vec::new());
    let picker = candidates::untuned(arch)?;
    for (at, item) in items(args)?.iter().enumerate() {
        let plan = Plan::new(args, &picker, at, item, &Before::default());
        let distinct = plan.kernels();
        let ms: Vec<_> = item.rows.iter().map(|rows| rows.iter().sum::<u32>().to_string()).collect();
        let what = if item.held_out { "held out" } else { "fitted" };
        say!("{}\tM = {}\t{what}\t{} kernels", item.problem, ms.join(", "), distinct.len())?;
        listed.push(json!({
            "problem": item.problem.to_string(), "rows": item.rows, "held_out": item.held_out,
            "kernels": distinct.len(),
        }));
        pairs += item.rows.len();
        held_out += if item.held_out { item.rows.len() } else { 0 };
        kernels += distinct.len();
    }
    say!("{pairs} pairs, {held_out} of them held out; {kernels} kernels in the first round")?;
    document(&listed)?;
    Ok(true)
}

/// Starts a process that uses the device, and another if a kernel broke it, until the time is up.
fn supervise(args: &Args) -> Result<bool> {
    let start = Instant::now();
    let program = env::current_exe()?;
    for process in 0..PROCESSES {
        let rest = args.limit.saturating_sub(start.elapsed()).as_secs_f64();
        let ended = || document(&json!({ "file": args.file, "processes": process + 1 })).map(|()| true);
        if process > 0 && rest < WORTH {
            return ended();
        }
        let mut command = Command::new(&program);
        // One document is the whole run's.
        let arguments = env::args_os().skip(1).filter(|argument| argument != "--json");
        command.args(arguments).arg("--worker").arg(format!("--limit={rest:.1}"));
        if process > 0 && !args.append {
            command.arg("--append");
        }
        let status = command.status()?;
        match status.code() {
            Some(0) => return ended(),
            Some(campaign::BROKEN) | None => complain!("the process that used the device ended: {status}"),
            Some(_) => return Err(format!("the process that used the device ended: {status}").into()),
        }
    }
    Err("too many kernels broke the device".into())
}

fn worker(args: &Args) -> Result<bool> {
    let device = Device::open(args.device)?;
    let toolchain = KernelCache::builder().install_if_missing().build();
    let identity = toolchain.toolchain()?.identity().to_string();
    let head = [
        format!("{device}, {}", device.arch()),
        format!("NVRTC {identity}"),
        format!("launches: {}", args.launching().word()),
        format!("seconds since 1970: {}", SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())),
    ];
    let mut record = Record::open(&args.file, args.append, &head)?;
    match campaign::run(args, &device, &items(args)?, &mut record)? {}
}

/// Fits to what was not held out, each kind of problems for itself, and prints the constants as the table has them. Kinds of which FILE
/// has nothing stay as they are.
fn fit(args: &Args) -> Result<bool> {
    let lines = record::read(&args.file)?;
    let pairs = data::pairs(&lines, &args.arch)?;
    let begin = begin(args)?;
    let tables = Tables::new(|kind| {
        let begin = *begin.get(kind);
        let own = pairs.iter().filter(|pair| Kind::of(&pair.problem) == kind);
        let (held_out, fitted): (Vec<&Pair>, Vec<&Pair>) = own.partition(|pair| pair.held_out);
        if fitted.is_empty() {
            return begin;
        }
        let say_picks = |constants: &Constants| {
            complain!("{}, fitted: {}", kind.name(), loss::picks(&fitted, constants));
            complain!("{}, held out: {}", kind.name(), loss::picks(&held_out, constants));
        };
        say_picks(&begin);
        let found = fit::fit(&fitted, &fit::Start { constants: begin, rounds: args.fit_rounds, again: args.fit_again });
        say_picks(&found);
        found
    });
    printed(&tables).try_for_each(|line| say!("{line}"))?;
    let named = |constants: &Constants| Constants::NAMES.iter().zip(constants.values()).collect::<BTreeMap<_, _>>();
    document(&Kind::ALL.map(|kind| (kind.name(), named(tables.get(kind)))).into_iter().collect::<BTreeMap<_, _>>())?;
    Ok(true)
}

/// A line for each constant, with a number for each of [`Kind::ALL`].
fn printed(tables: &Tables) -> impl Iterator<Item = String> {
    let values = Kind::ALL.map(|kind| tables.get(kind).values());
    Constants::NAMES.iter().enumerate().map(move |(at, name)| {
        let numbers: Vec<String> = values.iter().map(|values| shown(values[at])).collect();
        format!("{name} = {};", numbers.join(", "))
    })
}

/// Four digits that count.
fn shown(value: f64) -> String {
    let digits = (3.0 - value.abs().log10().floor()).clamp(1.0, 9.0) as usize;
    format!("{value:.digits$}")
}

/// Those of the command line, or those built in.
fn begin(args: &Args) -> Result<Tables> {
    match &args.constants {
        Some(path) => constants(&std::fs::read_to_string(path)?),
        None => Ok(Tables::BUILT_IN),
    }
}

/// Constants as they are [`printed`].
fn constants(text: &str) -> Result<Tables> {
    let mut values = Kind::ALL.map(|kind| Tables::BUILT_IN.get(kind).values());
    for line in text.lines() {
        let expected = || format!("`{line}`: expected NAME = {} numbers, one for each kind of problems;", values.len());
        let (name, numbers) = line.split_once(" = ").ok_or_else(expected)?;
        let numbers: Vec<&str> = numbers.trim_end_matches(';').split(", ").collect();
        if numbers.len() != values.len() {
            return Err(expected().into());
        }
        let at = Constants::NAMES.iter().position(|known| *known == name).ok_or_else(|| format!("unknown `{name}`"))?;
        for (values, number) in values.iter_mut().zip(numbers) {
            values[at] = number.parse()?;
        }
    }
    Ok(Tables::new(|kind| Tables::BUILT_IN.get(kind).with_values(&values[kind as usize])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_read_as_they_are_printed() {
        let text: Vec<String> = printed(&Tables::BUILT_IN).collect();
        let read = constants(&text.join("\n")).unwrap();
        assert_eq!(printed(&read).collect::<Vec<_>>(), text);
        assert_ne!(read.get(Kind::Single), read.get(Kind::Groups));
        for (line, why) in [
            ("launch = 1.0, 2.0;", "expected NAME"),
            ("lunch = 1.0, 2.0, 3.0, 4.0;", "unknown `lunch`"),
            ("launch = 1.0, 2.0, 3.0, x;", "float"),
        ] {
            let error = constants(line).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn more_candidates_than_there_are_may_be_asked_for() {
        let (problem, picker) = (Problem::gemm().n(64).k(64), candidates::untuned(&Arch::A100).unwrap());
        let ranked = candidates::ranked(&problem, 1, &picker);
        let mut rng = fastrand::Rng::with_seed(1);
        let more = candidates::more(&problem, 1, &Arch::A100, usize::MAX, &ranked, &[], &mut rng);
        assert!(!ranked.is_empty() && !more.is_empty() && more.iter().all(|spec| !ranked.contains(spec)));
    }
}
