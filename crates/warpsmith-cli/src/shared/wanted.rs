//! The part of the command line that says which problems.

use clap::Args;
use warpsmith::spec::Problem;

use super::list::{self, Item, Part};
use crate::shared::{self, Result};

/// A list's parts, or problems of one's own.
#[derive(Debug, Args)]
pub struct Wanted {
    /// One's own problems instead of the list, such as dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared.
    #[arg(long, value_delimiter = ',')]
    problem: Vec<Problem>,

    /// Rows of A, several one after the other; for grouped problems the rows of each group (one number: drawn as
    /// tokens choose experts).
    // These conflict with --problem, whose requirement clap waives where one of them is.
    #[arg(long, value_delimiter = ',', requires = "problem", conflicts_with_all = ["only", "unprepared"])]
    m: Vec<u32>,

    /// Only these parts of the list.
    #[arg(long, value_delimiter = ',', conflicts_with = "problem")]
    only: Vec<Part>,

    /// The list with weights as they are given, also where they would be prepared.
    #[arg(long, conflicts_with = "problem")]
    unprepared: bool,
}

impl Wanted {
    /// The problems with their rows: of the list, if there are none of one's own, these parts (`usual`, if none are
    /// named; all, if there are no usual ones), with weights prepared where the device `prepares` them.
    pub fn items(&self, usual: &[Part], prepares: bool) -> Result<Vec<Item>> {
        if self.problem.is_empty() {
            let parts = if self.only.is_empty() { usual } else { &self.only };
            return list::list(parts, prepares && !self.unprepared);
        }
        let own = |problem: &Problem| -> Result<Vec<Item>> {
            let given = match problem.groups() {
                Some(groups) if self.m.len() == groups as usize => vec![&self.m[..]],
                _ if self.m.is_empty() => vec![&[][..]],
                _ => self.m.chunks(1).collect(),
            };
            given.into_iter().map(|m| Item::new(*problem, shared::rows(problem, m)?)).collect()
        };
        Ok(self.problem.iter().map(own).collect::<Result<Vec<_>>>()?.concat())
    }
}
