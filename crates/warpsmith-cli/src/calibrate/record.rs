//! The file: a line for each measurement, tab-separated, appended and flushed one by one.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use warpsmith::build::Resources;
use warpsmith::cache::Fetched;
use warpsmith::spec::{Problem, Spec, Variant};

use crate::shared::Result;

/// How much a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Timed briefly.
    Short,
    /// Timed again, in turn with the other best ones.
    Full,
    /// Not built, not loaded, or wrong: not timed.
    Refused,
    /// It hung or broke the device's context.
    Fatal,
}

const PHASES: [(Phase, &str); 4] =
    [(Phase::Short, "short"), (Phase::Full, "full"), (Phase::Refused, "refused"), (Phase::Fatal, "fatal")];

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = PHASES.iter().find(|(phase, _)| phase == self).map_or("?", |(_, word)| word);
        f.write_str(word)
    }
}

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub problem: Problem,
    /// Of all groups.
    pub m: u32,
    pub variant: Variant,
    pub phase: Phase,
    /// Median, a tenth, nine tenths; 0 if it was not timed.
    pub us: [f64; 3],
    /// Registers of the matrix kernel.
    pub registers: u32,
    /// Bytes of local memory that it spills to.
    pub spills: u32,
    /// Why it was refused.
    pub note: String,
}

impl Line {
    /// Of a kernel, built or not, that nothing is known of yet.
    pub fn new(problem: Problem, m: u32, spec: &Spec, fetched: Option<&Fetched>) -> Self {
        let used = fetched.and_then(|fetched| fetched.cubin().resources_of(&spec.symbol()));
        Self {
            problem,
            m,
            variant: *spec.variant(),
            phase: Phase::Refused,
            us: [0.0; 3],
            registers: used.map_or(0, Resources::registers),
            spills: used.and_then(Resources::spill_bytes).unwrap_or(0),
            note: String::new(),
        }
    }

    /// With its median, a tenth and nine tenths.
    pub fn timed(mut self, phase: Phase, us: [f64; 3]) -> Self {
        self.phase = phase;
        self.us = us;
        self
    }

    pub fn refused(mut self, phase: Phase, note: &str) -> Self {
        self.phase = phase;
        let first = note.lines().next().unwrap_or_default();
        self.note = first.replace('\t', " ");
        self
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { problem, m, variant, phase, us: [median, p10, p90], registers, spills, note } = self;
        write!(f, "{problem}\t{m}\t{variant}\t{phase}\t{median:.3}\t{p10:.3}\t{p90:.3}\t{registers}\t{spills}\t{note}")
    }
}

impl FromStr for Line {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let cells: Vec<&str> = text.split('\t').collect();
        let [problem, m, variant, phase, median, p10, p90, registers, spills, note] = cells[..] else {
            return Err(format!("{} cells, expected 10", cells.len()));
        };
        fn number<T: FromStr>(text: &str) -> std::result::Result<T, String> {
            text.parse().map_err(|_| format!("`{text}` is no number"))
        }
        let phase = PHASES.iter().find(|(_, word)| *word == phase).ok_or_else(|| format!("unknown phase `{phase}`"))?;
        Ok(Line {
            problem: problem.parse().map_err(|error: warpsmith::Error| error.to_string())?,
            m: number(m)?,
            variant: variant.parse().map_err(|error: warpsmith::Error| error.to_string())?,
            phase: phase.0,
            us: [number(median)?, number(p10)?, number(p90)?],
            registers: number(registers)?,
            spills: number(spills)?,
            note: note.to_owned(),
        })
    }
}

/// The lines of a file. A last line that was cut off by a kill is left out; any other that cannot be read is an error.
pub fn read(path: &Path) -> Result<Vec<Line>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.is_empty());
    lines.map(|(at, line)| line.parse().map_err(|why| format!("{}:{}: {why}", path.display(), at + 1).into())).collect()
}

/// Each variant of the file with its shortest time, if it was timed.
type Known = HashMap<(Problem, u32, Variant), Option<f64>>;

/// The file, open for more lines, and what it has already.
pub struct Record {
    path: PathBuf,
    file: File,
    known: Known,
}

impl Record {
    /// A new file with a head of comment lines, or one that is continued.
    pub fn open(path: &Path, append: bool, head: &[String]) -> Result<Self> {
        let continued = append && path.exists();
        let mut known = Known::new();
        for line in if continued { read(path)? } else { Vec::new() } {
            let us = (line.phase == Phase::Short || line.phase == Phase::Full).then_some(line.us[0]);
            let best = known.entry((line.problem, line.m, line.variant)).or_default();
            // What broke the device once is not launched again, timed before or not.
            *best = if line.phase == Phase::Fatal { None } else { best.map_or(us, |best| Some(us?.min(best))) };
        }
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .append(continued)
            .truncate(!continued)
            .open(path)
            .map_err(|error| unwritten(path, &error))?;
        let columns = "problem\tM\tvariant\tphase\tus\tp10\tp90\tregisters\tspills\tnote";
        let lines = head.iter().map(String::as_str).chain((!continued).then_some(columns));
        let text: String = lines.map(|line| format!("# {line}\n")).collect();
        file.write_all(text.as_bytes()).map_err(|error| unwritten(path, &error))?;
        Ok(Self { path: path.to_owned(), file, known })
    }

    /// What there was of this before: its time, if it has one.
    pub fn known(&self, problem: &Problem, m: u32, variant: &Variant) -> Option<Option<f64>> {
        self.known.get(&(*problem, m, *variant)).copied()
    }

    /// Every variant of a problem at an M.
    pub fn variants(&self, problem: &Problem, m: u32) -> HashSet<Variant> {
        let same = |(of, at, variant): &(Problem, u32, Variant)| (of == problem && *at == m).then_some(*variant);
        self.known.keys().filter_map(same).collect()
    }

    /// The fastest variants of a problem at an M.
    pub fn best(&self, problem: &Problem, m: u32, count: usize) -> Vec<Variant> {
        let same = |((of, at, variant), us): (&(Problem, u32, Variant), &Option<f64>)| {
            (of == problem && *at == m).then_some(((*us)?, *variant))
        };
        let mut found: Vec<(f64, Variant)> = self.known.iter().filter_map(same).collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        found.into_iter().take(count).map(|(_, variant)| variant).collect()
    }

    /// One more line; it is in the file when this returns.
    pub fn add(&mut self, line: &Line) -> Result<()> {
        let text = format!("{line}\n");
        self.file.write_all(text.as_bytes()).map_err(|error| unwritten(&self.path, &error).into())
    }
}

fn unwritten(path: &Path, error: &io::Error) -> String {
    format!("{} cannot be written: {error}", path.display())
}
