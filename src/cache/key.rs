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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Header;

    #[test]
    fn whatever_changes_the_bytes_changes_the_key() {
        static HEADERS: &[Header] = &[Header { name: "a.cuh", text: "" }];
        let temp = tempfile::tempdir().unwrap();
        let toolchain = |library: &str, text: &str| {
            let path = temp.path().join(library);
            std::fs::write(&path, text).unwrap();
            Toolchain::at(path).unwrap()
        };
        let (old, new) = (toolchain("libnvrtc.so.13.0.48", ""), toolchain("libnvrtc.so.13.0.88", ""));
        let longer = toolchain("libnvrtc.so.13.0.89", "longer");
        let source = || Source::new("k.cu", "text", &[], ["k"]);
        let key = |toolchain, source: Source, target| Key::new(toolchain, &source, target).unwrap();
        let keys = [
            key(&new, source(), "sm_90a"),
            key(&new, source(), "sm_90"),
            key(&old, source(), "sm_90a"),
            key(&longer, source(), "sm_90a"),
            key(&new, source().with_option("-a"), "sm_90a"),
            key(&new, source().with_option("-a").with_option("-b"), "sm_90a"),
            key(&new, source().with_option("-a\noption 2 -b"), "sm_90a"),
            key(&new, Source::new("k.cu", "text", HEADERS, ["k"]), "sm_90a"),
            key(&new, Source::new("k.cu", "other", &[], ["k"]), "sm_90a"),
            key(&new, Source::new("other.cu", "text", &[], ["k"]), "sm_90a"),
        ];
        let hashes: std::collections::HashSet<_> = keys.iter().map(Key::hash).collect();
        assert_eq!(hashes.len(), keys.len());
        assert_eq!(key(&new, source().rendered_from("p", "v"), "sm_90a"), keys[0]);
        assert!(keys[0].text().contains("\ntarget 6 sm_90a\ntoolchain "), "{}", keys[0].text());
    }
}
