//! Reading a spelling, a segment at a time.

use std::iter::Peekable;
use std::str::{FromStr, Split};

use warpsmith::internal::Raise;
use warpsmith::internal::spelling::prefixed;
use warpsmith::{Error, Result};

/// The segments that are not read yet.
pub(super) struct Segments<'a> {
    rest: Peekable<Split<'a, char>>,
    grammar: &'static str,
}

impl<'a> Segments<'a> {
    pub(super) fn of(text: &'a str, grammar: &'static str) -> Self {
        Self { rest: text.split(':').peekable(), grammar }
    }

    pub(super) fn wrong(&self, segment: &str) -> Error {
        Error::parse(format!("cannot read `{segment}`: expected {}", self.grammar))
    }

    pub(super) fn next(&mut self) -> &'a str {
        self.rest.next().unwrap_or_default()
    }

    /// The first, behind its word.
    pub(super) fn head(&mut self, word: &str) -> Result<&'a str> {
        let head = self.next();
        head.strip_prefix(word).ok_or_else(|| self.wrong(head))
    }

    pub(super) fn extent(&mut self, prefix: &str) -> Result<u32> {
        let segment = self.next();
        prefixed(segment, prefix).ok_or_else(|| self.wrong(segment))
    }

    pub(super) fn is_next(&mut self, word: &str) -> bool {
        self.rest.next_if_eq(&word).is_some()
    }

    /// Takes all of these words, or none.
    pub(super) fn are_next(&mut self, words: &[&str]) -> bool {
        let mut rest = self.rest.clone();
        let are = words.iter().all(|word| rest.next_if_eq(word).is_some());
        if are {
            self.rest = rest;
        }
        are
    }

    /// What follows a prefix, if the next one has it.
    pub(super) fn behind<T: FromStr<Err = Error>>(&mut self, prefix: &str) -> Result<Option<T>> {
        let next = self.rest.next_if(|segment| segment.starts_with(prefix));
        next.map(|segment| segment[prefix.len()..].parse()).transpose()
    }

    /// The number behind a prefix, if the next one has it.
    pub(super) fn number(&mut self, prefix: &str) -> Result<Option<u32>> {
        let next = self.rest.next_if(|segment| segment.starts_with(prefix));
        next.map(|segment| prefixed(segment, prefix).ok_or_else(|| self.wrong(segment))).transpose()
    }

    /// Those that `is_of` takes, joined again.
    pub(super) fn joined(&mut self, mut is_of: impl FnMut(&str) -> bool) -> String {
        let mut all = Vec::new();
        while let Some(segment) = self.rest.next_if(|segment| is_of(segment)) {
            all.push(segment);
        }
        all.join(":")
    }

    pub(super) fn end(&mut self) -> Result<()> {
        match self.rest.next() {
            Some(rest) => Err(self.wrong(rest)),
            None => Ok(()),
        }
    }
}
