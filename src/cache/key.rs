//! What a cached cubin is known by.

use std::fmt::Write;

use crate::Result;
use crate::build::{self, Digest, Source, Toolchain};

/// Bumped when the meaning of a key or of an entry changes; old entries are then never asked for again.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Everything that can change the machine code, as text and as the text's hash.
///
/// The text is one field a line, `name length value`, so no two different keys have the same text, whatever the values
/// hold, and two keys can be compared with `diff`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    text: String,
    hash: Digest,
}

impl Key {
    /// The key of `source`, compiled for `target` by `toolchain`. Opens no library.
    ///
    /// # Errors
    /// Parse, if `target` is no compile target.
    pub fn new(toolchain: &Toolchain, source: &Source, target: &str) -> Result<Self> {
        let options = build::options(toolchain, source, target)?;
        let mut text = String::new();
        field(&mut text, "warpsmith-key", &FORMAT_VERSION.to_string());
        field(&mut text, "kernel", source.name());
        field(&mut text, "target", target);
        field(&mut text, "toolchain", toolchain.identity());
        for option in &options {
            field(&mut text, "option", option);
        }
        field(&mut text, "headers", &source.headers_digest().to_string());
        field(&mut text, "source", &source.digest().to_string());
        let hash = Digest::of(text.as_bytes());
        Ok(Self { text, hash })
    }

    /// The whole key, for reading and for verification.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The hash of the text, which names the entry's file.
    #[must_use]
    pub fn hash(&self) -> Digest {
        self.hash
    }
}

fn field(text: &mut String, name: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{name} {} {value}", value.len());
}
