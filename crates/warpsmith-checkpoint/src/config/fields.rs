//! Fields of a JSON object. What is null is not there.

use serde_json::{Map, Value};
use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

/// The largest extent that anything has.
const MAX: u64 = 1 << 31;

#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    pub(super) fn of(object: &'a Map<String, Value>) -> Self {
        Self(object)
    }

    pub(super) fn value(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A number from 1 on.
    pub(super) fn find(&self, name: &str) -> Result<Option<usize>> {
        self.value(name).map(|value| extent(name, value)).transpose()
    }

    /// How many there are, if there are any.
    pub(super) fn count(&self, name: &str) -> Result<Option<usize>> {
        if self.value(name).and_then(Value::as_u64) == Some(0) { Ok(None) } else { self.find(name) }
    }

    /// One that must be there.
    pub(super) fn number(&self, name: &str) -> Result<usize> {
        self.find(name)?.ok_or_else(|| missing(name))
    }

    /// The first of several names that is there.
    pub(super) fn first(&self, names: &[&str]) -> Result<usize> {
        for name in names {
            if let Some(number) = self.find(name)? {
                return Ok(number);
            }
        }
        Err(missing(&names.join("` or `")))
    }

    pub(super) fn word(&self, name: &str) -> Result<Option<&'a str>> {
        self.typed(name, Value::as_str, "a word")
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>> {
        self.typed(name, Value::as_bool, "true or false")
    }

    pub(super) fn real(&self, name: &str) -> Result<Option<f64>> {
        self.typed(name, Value::as_f64, "a number")
    }

    fn typed<T>(&self, name: &str, read: impl Fn(&'a Value) -> Option<T>, expected: &str) -> Result<Option<T>> {
        let read = |value| read(value).ok_or_else(|| wrong(name, value, expected));
        self.value(name).map(read).transpose()
    }
}

fn extent(name: &str, value: &Value) -> Result<usize> {
    match value.as_u64() {
        Some(number @ 1..=MAX) => Ok(number as usize),
        _ => Err(wrong(name, value, &format!("a number from 1 to {MAX}"))),
    }
}

fn wrong(name: &str, value: &Value, expected: &str) -> Error {
    // No endless one.
    let found: String = value.to_string().chars().take(80).collect();
    Error::data(format!("config.json: `{name}` is {found}, expected {expected}"))
}

fn missing(name: &str) -> Error {
    Error::data(format!("config.json: `{name}` is missing"))
}
