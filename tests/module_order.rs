//! The core's modules use only those above them: no circles, and whoever reads from the top never meets what is below.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// From what uses nothing to what uses everything. Modules of one line do not know of each other.
const ORDER: &[&[&str]] = &[
    &["error"],
    &["child", "crew", "environment", "host_memory", "open", "trust"],
    &["file", "lock"],
    &["format", "spelling"],
    &["arch", "routing"],
    &["problem"],
    &["path", "simt"],
    &["spec"],
    &["operand"],
    &["build", "pick"],
    &["cache"],
    &["run"],
    &["engine"],
    &["internal"],
];

/// What lib.rs names at the crate's top, and where it comes from.
const TOP: [(&str, &str); 2] = [("Error", "error"), ("Result", "error")];

fn place_of(module: &str) -> usize {
    let place = ORDER.iter().position(|line| line.contains(&module));
    place.unwrap_or_else(|| panic!("{module} has no place in the order of modules (tests/module_order.rs)"))
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = dir.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let below = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    // Tests, and the path that is for them only, use what they like.
    let is_test = |path: &Path| path.ends_with("path/demo") || path.ends_with("tests.rs");
    below.filter(|path| path.extension().is_some_and(|end| end == "rs") && !is_test(path)).collect()
}

/// The modules that a text names behind `crate::`, but for its comments.
fn used(text: &str) -> BTreeSet<&str> {
    let code = text.lines().map(|line| line.split("//").next().unwrap());
    let behind = code.flat_map(|line| line.split("crate::").skip(1));
    let names = behind.flat_map(|rest| match rest.strip_prefix('{') {
        Some(group) => group.split('}').next().unwrap().split(',').map(str::trim).collect(),
        None => vec![rest],
    });
    let names = names.map(|rest| {
        let name = &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())];
        TOP.iter().find(|(top, _)| *top == name).map_or(name, |(_, module)| module)
    });
    names.collect()
}

#[test]
fn modules_use_only_those_above_them() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut modules = BTreeSet::new();
    for path in files(&src) {
        let place = path.strip_prefix(&src).unwrap();
        let module = place.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        modules.insert(module.to_owned());
        let text = fs::read_to_string(&path).unwrap();
        for other in used(&text).into_iter().filter(|other| *other != module) {
            assert!(place_of(other) < place_of(module), "{}: {module} uses {other}", place.display());
        }
    }
    let listed: BTreeSet<String> = ORDER.iter().copied().flatten().map(|module| (*module).to_owned()).collect();
    assert_eq!(modules, listed, "modules there are (left) and those of the order (right)");
}
