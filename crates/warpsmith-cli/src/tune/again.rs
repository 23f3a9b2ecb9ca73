//! Decisions that are taken again, as kernels have changed since.

use std::ops::RangeInclusive;

use jiff::civil::Date;
use warpsmith::engine::{Manifest, Rows};
use warpsmith::internal::pick::Entry;
use warpsmith::pick::Table;
use warpsmith::spec::Problem;

use super::record::Means;
use crate::shared::Result;

/// What a table decided on this model of device before a day: problems, each at the most rows of its decisions.
pub fn taken_before(day: Date, table: &Table, means: &Means) -> Result<Manifest> {
    let mut all = Manifest::new();
    for entry in own(table, means).filter(|entry| entry.evidence().date < day) {
        let most = *entry.m().end();
        all = all.with(entry.problem(), &Rows::new(most..=most)?);
    }
    Ok(all)
}

/// The rows that a decision taken at `m` is for, if there is one: of several, of the one that is for most.
pub fn rows(problem: &Problem, m: u32, table: &Table, means: &Means) -> Option<RangeInclusive<u32>> {
    let taken = own(table, means).filter(|entry| entry.problem() == problem && *entry.m().end() == m);
    taken.map(Entry::m).min_by_key(|rows| *rows.start())
}

fn own<'a>(table: &'a Table, means: &'a Means) -> impl Iterator<Item = &'a Entry> {
    let here = (means.device.as_str(), means.arch.sms(), means.arch.target());
    table.entries().filter(move |entry| (entry.device(), entry.sms(), entry.target()) == here)
}
