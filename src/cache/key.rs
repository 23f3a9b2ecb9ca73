//! What a cached cubin is known by.

use std::fmt::Write;

use crate::Result;
use crate::build::{self, Cubin, Digest, Source};

/// Bumped when the meaning of a key or of an entry changes; old entries are then never asked for again.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// What is compiled and for what: everything that can change the machine code but the compiler.
///
/// A [`Pack`](super::Pack) is asked by recipe, since whoever opens one may have no compiler to name; the compiler that
/// was used is its provenance. The disk is asked by [`Key`].
///
/// The text is one field a line, `name length value`, so no two different recipes have the same text, whatever the
/// values hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recipe {
    name: String,
    target: String,
    options: Vec<String>,
    source: String,
    text: String,
    hash: Digest,
    kin: String,
}

impl Recipe {
    /// The recipe that compiles `source` for `target`, such as `sm_90a`.
    ///
    /// # Errors
    /// Parse, if `target` is no compile target.
    pub fn new(source: &Source, target: &str) -> Result<Self> {
        let options = build::code_options(source, target)?;
        Ok(Self::from_parts(source.name(), target, options, &source.digest().to_string()))
    }

    /// The recipe that a cubin was made by.
    #[must_use]
    pub fn of(cubin: &Cubin) -> Self {
        let from = cubin.provenance();
        Self::from_parts(from.name(), from.target(), from.code_options().cloned().collect(), from.source())
    }

    fn from_parts(name: &str, target: &str, options: Vec<String>, source: &str) -> Self {
        let mut text = String::new();
        field(&mut text, "warpsmith-key", &FORMAT_VERSION.to_string());
        field(&mut text, "kernel", name);
        field(&mut text, "target", target);
        let mut kin = Digest::of(text.as_bytes()).to_string();
        kin.truncate(16);
        for option in &options {
            field(&mut text, "option", option);
        }
        // The digest covers the headers, too.
        field(&mut text, "source", source);
        let hash = Digest::of(text.as_bytes());
        Self { name: name.to_owned(), target: target.to_owned(), options, source: source.to_owned(), text, hash, kin }
    }

    /// The name of the source, which says problem and variant.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The compile target.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The compiler options that can change the machine code.
    #[must_use]
    pub fn options(&self) -> &[String] {
        &self.options
    }

    /// The source's digest, in hexadecimal.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The whole recipe.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The hash of the text.
    #[must_use]
    pub fn hash(&self) -> Digest {
        self.hash
    }

    /// The same for all recipes of this name and target, 16 hexadecimal digits: where to look for what a kernel was
    /// before its source, options or compiler changed.
    pub(super) fn kin(&self) -> &str {
        &self.kin
    }
}

/// A [`Recipe`] and the compiler: everything that can change the machine code, as text and as the text's hash. Two
/// keys can be compared with `diff`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    recipe: Recipe,
    toolchain: String,
    text: String,
    hash: Digest,
}

impl Key {
    /// The key of `source`, compiled for `target` by `toolchain`. Opens no library.
    ///
    /// # Errors
    /// Parse, if `target` is no compile target.
    #[cfg(feature = "compile")]
    pub fn new(toolchain: &build::Toolchain, source: &Source, target: &str) -> Result<Self> {
        Ok(Self::from_parts(Recipe::new(source, target)?, toolchain.identity()))
    }

    /// The key that a cubin is stored under.
    #[must_use]
    pub fn of(cubin: &Cubin) -> Self {
        Self::from_parts(Recipe::of(cubin), cubin.provenance().toolchain())
    }

    pub(super) fn from_parts(recipe: Recipe, toolchain: &str) -> Self {
        let mut text = recipe.text.clone();
        field(&mut text, "toolchain", toolchain);
        let hash = Digest::of(text.as_bytes());
        Self { recipe, toolchain: toolchain.to_owned(), text, hash }
    }

    /// What is compiled.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// The identity of the compiler.
    #[must_use]
    pub fn toolchain(&self) -> &str {
        &self.toolchain
    }

    /// The whole key, for reading and for verification. Begins with the recipe's.
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
    use crate::build::{Header, Toolchain};

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
            key(&new, source().with_option("-a"), "sm_90a"),
            key(&new, source().with_option("-a").with_option("-b"), "sm_90a"),
            key(&new, source().with_option("-a\noption 2 -b"), "sm_90a"),
            key(&new, Source::new("k.cu", "text", HEADERS, ["k"]), "sm_90a"),
            key(&new, Source::new("k.cu", "other", &[], ["k"]), "sm_90a"),
            key(&new, Source::new("other.cu", "text", &[], ["k"]), "sm_90a"),
        ];
        let recipes: std::collections::HashSet<_> = keys.iter().map(|key| key.recipe().hash()).collect();
        assert_eq!(recipes.len(), keys.len());
        let others = [key(&old, source(), "sm_90a"), key(&longer, source(), "sm_90a")];
        assert!(others.iter().all(|other| other.recipe() == keys[0].recipe()), "whoever compiles it");
        let hashes: std::collections::HashSet<_> = keys.iter().chain(&others).map(Key::hash).collect();
        assert_eq!(hashes.len(), keys.len() + others.len());

        assert_eq!(key(&new, source().rendered_from("p", "v"), "sm_90a"), keys[0]);
        assert!(keys[0].text().starts_with(keys[0].recipe().text()));
        assert!(keys[0].text().contains("\ntarget 6 sm_90a\n"), "{}", keys[0].text());
        let kin: Vec<_> = keys.iter().map(|key| key.recipe().kin()).collect();
        assert!(kin[0] != kin[1] && kin[0] != kin[7] && kin[2..7].iter().all(|other| *other == kin[0]), "{kin:?}");
    }
}
