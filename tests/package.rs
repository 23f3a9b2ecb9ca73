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

/// Files that the README names are there.
#[test]
fn the_readme_names_files_that_are_there() {
    let words = README.split(['`', ' ', '\n', '(', ')', ':', ',']);
    let paths: Vec<&str> =
        words.filter(|word| ["docs/", "src/", "tests/"].iter().any(|at| word.starts_with(at))).collect();
    assert!(paths.len() > 5, "{paths:?}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lost: Vec<_> = paths.iter().filter(|path| !root.join(path).exists()).collect();
    assert!(lost.is_empty(), "{lost:?}");
}
