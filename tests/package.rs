//! What a package page shows.

#![allow(clippy::unwrap_used)]

use std::path::Path;

const README: &str = include_str!("../README.md");

/// A package page has no folder that a relative link could lead to.
#[test]
fn the_readme_has_no_relative_link() {
    let links: Vec<&str> = README.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
    let relative: Vec<_> = links.iter().filter(|link| !link.starts_with("https://")).collect();
    assert!(relative.is_empty(), "{relative:?}");
}

/// Files of this repository that a text names, spelt from its root.
fn files_named(text: &str) -> Vec<&str> {
    const BELOW: [&str; 6] = ["docs/", "src/", "tests/", "crates/", "templates/", "examples/"];
    let words = text.split(|c: char| c.is_whitespace() || "`():,;|".contains(c));
    // Names of files, and folders; not patterns.
    let words = words.map(|word| word.trim_end_matches('.')).filter(|word| !word.contains(['*', '{', '<', '…']));
    words.filter(|word| BELOW.iter().any(|at| word.starts_with(at))).collect()
}

/// Files that the README and the documents name are there, and so are those that documents link to.
#[test]
fn documents_name_files_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = root.join("docs").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let docs = docs.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let texts: Vec<_> =
        docs.chain([root.join("README.md")]).map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let named: Vec<&str> = texts.iter().flat_map(|text| files_named(text)).collect();
    assert!(named.len() > 40, "{named:?}");
    let lost: Vec<_> = named.iter().filter(|path| !root.join(path).exists()).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let links =
        texts.iter().flat_map(|text| text.split("](").skip(1)).map(|rest| rest.split([')', '#']).next().unwrap());
    let links = links.filter(|link| !link.is_empty() && !link.contains("://"));
    let lost: Vec<_> = links.filter(|link| !root.join("docs").join(link).exists()).collect();
    assert!(lost.is_empty(), "{lost:?}");
}
