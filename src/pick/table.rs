//! What was measured, as text: one line a decision.
//!
//! `docs/choosing.md` describes the format and its rules.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use super::entry::Entry;
use crate::error::{Error, Result};
use crate::file;
use crate::lock::Lock;

/// Decisions with their evidence, one for each device model, SM count, target, problem and interval of M.
///
/// `Display` writes it, sorted by device, problem and M, so that a new decision changes one line; [`Table::parse`] reads
/// it. Of two decisions for the same, the one with the better evidence stays ([`Entry::compare`]).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Comment lines before the first entry. Other comments are dropped: there is no telling which entry they are of.
    header: Vec<String>,
    entries: BTreeMap<Key, Entry>,
}

/// Device, SMs, problem, first and last M, target.
type Key = (String, u32, String, u32, u32, String);

fn key(entry: &Entry) -> Key {
    let (from, to) = entry.m().into_inner();
    (entry.device().to_owned(), entry.sms(), entry.problem().to_string(), from, to, entry.target().to_owned())
}

/// A line that was left out when a table was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Counted from 1.
    pub line: usize,
    /// What stands there.
    pub text: String,
    /// Why it cannot be read.
    pub why: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

/// What one table has and another has not; printed like a line of a diff.
#[derive(Clone, Debug, PartialEq)]
pub enum TableChange {
    /// A decision that is there no more.
    Removed(Entry),
    /// A decision that was not there; behind the one that it replaces, if it does.
    Added(Entry),
}

impl fmt::Display for TableChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableChange::Removed(entry) => write!(f, "-{entry}"),
            TableChange::Added(entry) => write!(f, "+{entry}"),
        }
    }
}

const HEADER: &str = "# warpsmith's tuning table: a decision a line, with its evidence (docs/choosing.md).";
/// By the crate's own tuner.
const BUILT_IN: [&str; 2] = [include_str!("tables/h200.tuning"), include_str!("tables/h100.tuning")];

impl Table {
    /// One with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the crate brings along: for the H200 and the H100, by its own tuner.
    #[must_use]
    pub fn built_in() -> Self {
        let [mut table, others] = BUILT_IN.map(|text| Self::parse(text).0);
        table.merge(&others);
        table
    }

    /// Reads a table. A line that cannot be read is left out, with a warning in the log; the others count.
    #[must_use]
    pub fn parse(text: &str) -> (Self, Vec<Skipped>) {
        let (mut table, mut skipped) = (Self::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let text = line.trim();
            if text.is_empty() {
                continue;
            }
            if text.starts_with('#') {
                if table.entries.is_empty() {
                    table.header.push(text.to_owned());
                }
                continue;
            }
            match text.parse() {
                Ok(entry) => {
                    table.insert(entry);
                }
                Err(error) => {
                    let left_out = Skipped { line: index + 1, text: text.to_owned(), why: error.to_string() };
                    tracing::warn!("tuning table, {left_out}");
                    skipped.push(left_out);
                }
            }
        }
        (table, skipped)
    }

    /// Reads a table from a file.
    ///
    /// # Errors
    /// Data, if the file cannot be read or is not UTF-8.
    pub fn load(path: &Path) -> Result<(Self, Vec<Skipped>)> {
        let text = fs::read_to_string(path).map_err(|error| {
            Error::data(format!("cannot read the tuning table {}: {error}", path.display())).with_source(error)
        })?;
        Ok(Self::parse(&text))
    }

    /// Writes the table, as [`file::write`] does: a reader finds the old one or the new one.
    ///
    /// # Errors
    /// Data, if the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        file::write(path, self.to_string())
    }

    /// Makes of a file's table what became of `before`: what others have decided meanwhile stays, and so do lines that cannot be read.
    /// Processes that do so at a time take turns, by a lock beside the file. Where there is no file the whole table is written.
    ///
    /// # Errors
    /// Data, if the file cannot be read or written.
    pub fn save_changes(&self, before: &Table, path: &Path) -> Result<()> {
        let _turn = Lock::beside(path);
        if !path.is_file() {
            return self.save(path);
        }
        let (mut there, skipped) = Self::load(path)?;
        for change in self.diff(before) {
            match change {
                TableChange::Removed(entry) => {
                    let key = key(&entry);
                    if there.entries.get(&key) == Some(&entry) {
                        there.entries.remove(&key);
                    }
                }
                TableChange::Added(entry) => {
                    there.insert(entry);
                }
            }
        }
        let kept = skipped.into_iter().map(|line| line.text + "\n");
        file::write(path, there.to_string() + &kept.collect::<String>())
    }

    /// Puts a decision in, unless there is one for the same with better evidence. Says whether it is in now.
    pub fn insert(&mut self, entry: Entry) -> bool {
        let key = key(&entry);
        let is_better = self.entries.get(&key).is_none_or(|present| entry.compare(present).is_ge());
        if is_better {
            self.entries.insert(key, entry);
        }
        is_better
    }

    /// As [`Table::insert`] for what was measured just now, beside what the table chose: the decision for the same, and those for fewer
    /// rows up to the same M, which would go before it there, are taken out, however many candidates they had; unless they are newer.
    pub fn supersede(&mut self, entry: Entry) -> bool {
        let (from, to) = entry.m().into_inner();
        self.entries.retain(|_, known| {
            let is_like =
                (known.device(), known.sms(), known.target()) == (entry.device(), entry.sms(), entry.target());
            let is_within = *known.m().end() == to && *known.m().start() >= from;
            let is_newer = known.evidence().date > entry.evidence().date;
            !(is_like && is_within && known.problem() == entry.problem() && !is_newer)
        });
        self.insert(entry)
    }

    /// Takes over what another table has, where that is new or better evidence. In which order tables are merged does not
    /// matter, but for the comments: those of `self` stay, if it has any.
    pub fn merge(&mut self, other: &Table) {
        if self.header.is_empty() {
            self.header.clone_from(&other.header);
        }
        for entry in other.entries() {
            self.insert(entry.clone());
        }
    }

    /// What has changed from `before` to `self`, in the table's order.
    #[must_use]
    pub fn diff(&self, before: &Table) -> Vec<TableChange> {
        let left = before.entries.iter().filter(|(key, entry)| self.entries.get(*key) != Some(entry));
        let came = self.entries.iter().filter(|(key, entry)| before.entries.get(*key) != Some(entry));
        let removed = left.map(|(key, entry)| (key, TableChange::Removed(entry.clone())));
        let mut changes: Vec<_> =
            removed.chain(came.map(|(key, entry)| (key, TableChange::Added(entry.clone())))).collect();
        changes.sort_by_key(|(key, _)| *key);
        changes.into_iter().map(|(_, change)| change).collect()
    }

    /// All decisions, sorted by device, SMs, problem and M.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// How many decisions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.header.is_empty() {
            writeln!(f, "{HEADER}")?;
        }
        self.header.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        self.entries.values().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Of two that began with the same table.
    #[test]
    fn what_others_wrote_meanwhile_stays() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("mine.tuning");
        let of = |nth: usize| Table::built_in().entries().nth(nth).unwrap().clone();
        let with = |of: &[&Entry]| {
            let mut table = Table::new();
            of.iter().for_each(|entry| assert!(table.insert((*entry).clone())));
            table
        };
        let [first, second, third] = [of(0), of(40), of(80)];
        with(&[&first]).save_changes(&Table::new(), &path).unwrap();
        fs::write(&path, fs::read_to_string(&path).unwrap() + "a line of a later version\n").unwrap();
        let before = Table::load(&path).unwrap().0;
        thread::scope(|scope| {
            for added in [&second, &third] {
                let (with, before, path) = (with(&[&first, added]), &before, &path);
                scope.spawn(move || with.save_changes(before, path).unwrap());
            }
        });
        assert_eq!(Table::load(&path).unwrap().0.entries, with(&[&first, &second, &third]).entries);
        with(&[&second]).save_changes(&with(&[&first, &second]), &path).unwrap();
        let (there, skipped) = Table::load(&path).unwrap();
        assert_eq!(there.entries, with(&[&second, &third]).entries);
        assert_eq!(skipped.len(), 1);
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1, "the lock is gone");
    }

    /// A line for fewer rows goes before one for more: an old one would for ever.
    #[test]
    fn what_is_measured_now_is_not_hidden_by_what_was_measured_before() {
        let line = |rows: &str, candidates: u32, date: &str| -> Entry {
            let variant = "wgmma.t64x64x128.s5.interleaved.ws2.shared";
            format!(
                "NVIDIA H200 | 132 SMs | sm_90a | dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared | m {rows} | {variant} | 20.000 us | \
                 7.000x baseline | 1.000x heuristic | spread 0.0100 | {candidates} candidates | driver 13.0 | NVRTC 13.0.88 | {date}"
            )
            .parse()
            .unwrap()
        };
        let new = line("49..=64", 13, "2026-11-28");
        for (rows, candidates, date, left) in [
            ("57..=64", 13, "2026-01-01", 1),
            ("57..=64", 100, "2026-11-28", 1),
            ("49..=64", 100, "2026-11-28", 1),
            ("57..=64", 13, "2026-12-01", 2),
            ("33..=48", 13, "2026-01-01", 2),
        ] {
            let mut table = Table::new();
            assert!(table.insert(line(rows, candidates, date)) && table.supersede(new.clone()));
            assert_eq!((table.len(), table.entries().any(|entry| *entry == new)), (left, true), "{rows} {date}");
        }
        let mut table = Table::new();
        assert!(table.insert(line("49..=64", 13, "2026-12-01")) && !table.supersede(new), "a newer one stays");
    }

    #[test]
    fn every_line_of_the_built_in_tables_is_read_and_stands_where_it_belongs() {
        for text in BUILT_IN {
            let (table, skipped) = Table::parse(text);
            assert!(skipped.is_empty(), "{skipped:?}");
            assert_eq!(table.to_string(), text);
        }
        let entries = BUILT_IN.map(|text| Table::parse(text).0.entries.len());
        assert_eq!(Table::built_in().entries.len(), entries.iter().sum::<usize>());
    }
}
