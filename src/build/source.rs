//! Rendered CUDA and the digest of everything in it that can change the machine code.

use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Lists of headers whose digests are remembered: the crate has one.
const HEADERS_KNOWN: usize = 8;

/// A BLAKE3 digest; printed as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Hashes fields so that no two different sequences of fields give the same bytes: each is preceded by its length.
struct Fields(blake3::Hasher);

impl Fields {
    fn new(kind: &str) -> Self {
        let mut fields = Self(blake3::Hasher::new());
        fields.add(kind.as_bytes());
        fields
    }

    fn add(&mut self, field: &[u8]) {
        self.0.update(&(field.len() as u64).to_le_bytes());
        self.0.update(field);
    }

    fn count(&mut self, count: usize) {
        self.0.update(&(count as u64).to_le_bytes());
    }

    fn digest(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

/// A CUDA header of the crate, given to NVRTC in memory under the name it is included by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// As written between the quotes of the `#include`; may hold `/`, e.g. `load/cp_async.cuh`.
    pub name: &'static str,
    /// The CUDA text.
    pub text: &'static str,
}

/// Rendered CUDA: a translation unit, the headers it may include, the kernels it promises, and its own options.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
    headers: &'static [Header],
    entries: Vec<String>,
    options: Vec<String>,
    problem: String,
    variant: String,
}

impl Source {
    /// A translation unit called `name` (that is what compile errors print) which defines the `extern "C"` kernels
    /// `entries`.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        text: impl Into<String>,
        headers: &'static [Header],
        entries: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
            headers,
            entries: entries.into_iter().map(Into::into).collect(),
            options: Vec::new(),
            problem: String::new(),
            variant: String::new(),
        }
    }

    /// Adds a compiler option, such as `--use_fast_math`.
    #[must_use]
    pub fn with_option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// Says which problem and variant this was rendered from, for the cubin's provenance. No part of the digest.
    #[must_use]
    pub fn rendered_from(mut self, problem: impl Into<String>, variant: impl Into<String>) -> Self {
        self.problem = problem.into();
        self.variant = variant.into();
        self
    }

    /// The file name that compile errors show.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The CUDA text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The headers that may be included.
    #[must_use]
    pub fn headers(&self) -> &'static [Header] {
        self.headers
    }

    /// Symbols of the kernels.
    #[must_use]
    pub fn entries(&self) -> &[String] {
        &self.entries
    }

    /// The source's own compiler options.
    #[must_use]
    pub fn options(&self) -> &[String] {
        &self.options
    }

    /// The spelling of the problem it was rendered from; empty if it was not said.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// The spelling of the variant it was rendered from; empty if it was not said.
    #[must_use]
    pub fn variant(&self) -> &str {
        &self.variant
    }

    /// Digest of the headers' names and texts; worked out once for each of the first few lists of headers.
    #[must_use]
    pub fn headers_digest(&self) -> Digest {
        // What is static neither changes nor goes, so that its place tells what it is.
        static KNOWN: Mutex<Vec<(&[Header], Digest)>> = Mutex::new(Vec::new());
        let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, digest)) = lock().iter().find(|(headers, _)| std::ptr::eq(*headers, self.headers)) {
            return *digest;
        }
        let digest = digest_of(self.headers);
        let mut known = lock();
        if known.len() < HEADERS_KNOWN {
            known.push((self.headers, digest));
        }
        digest
    }

    /// Digest of everything that is compiled. The name counts: `__FILE__`, line information and the mangled names of
    /// `static` variables carry it into the machine code. Options do not; a cache key lists them by themselves.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut fields = Fields::new("source");
        fields.add(self.name.as_bytes());
        fields.add(self.text.as_bytes());
        fields.count(self.entries.len());
        for entry in &self.entries {
            fields.add(entry.as_bytes());
        }
        fields.add(self.headers_digest().as_bytes());
        fields.digest()
    }
}

fn digest_of(headers: &[Header]) -> Digest {
    let mut fields = Fields::new("headers");
    fields.count(headers.len());
    for header in headers {
        fields.add(header.name.as_bytes());
        fields.add(header.text.as_bytes());
    }
    fields.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    static ONE: &[Header] = &[Header { name: "a.cuh", text: "bc" }];
    static MOVED: &[Header] = &[Header { name: "a.cuhb", text: "c" }];

    #[test]
    fn every_part_changes_the_digest() {
        let base = Source::new("k.cu", "text", ONE, ["k"]).digest();
        let others = [
            Source::new("l.cu", "text", ONE, ["k"]),
            Source::new("k.cu", "texT", ONE, ["k"]),
            Source::new("k.cut", "ext", ONE, ["k"]),
            Source::new("k.cu", "text", MOVED, ["k"]),
            Source::new("k.cu", "text", &[], ["k"]),
            Source::new("k.cu", "text", ONE, ["k", ""]),
            Source::new("k.cu", "text", ONE, [] as [&str; 0]),
        ];
        for other in others {
            assert_ne!(other.digest(), base, "{other:?}");
        }
    }

    #[test]
    fn a_remembered_digest_is_that_of_the_headers() {
        // More lists than are remembered, some of them alike, and a part of another.
        static MANY: [Header; 9] = [Header { name: "a.cuh", text: "bc" }; 9];
        for headers in (1..=9).flat_map(|length| [&MANY[..length], &MANY[9 - length..]]).chain([ONE, MOVED, &[]]) {
            for _ in 0..2 {
                assert_eq!(Source::new("k.cu", "text", headers, ["k"]).headers_digest(), digest_of(headers));
            }
        }
    }

    #[test]
    fn where_it_was_rendered_from_does_not() {
        let source = Source::new("k.cu", "text", ONE, ["k"]);
        assert_eq!(source.clone().rendered_from("p", "v").digest(), source.digest());
        assert_eq!(source.digest().to_string().len(), 64);
    }
}
