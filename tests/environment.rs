//! docs/environment.md has every variable that is read, and no other.

// Helpers of tests may do what tests may.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The one file of the library that reads the environment, and lists what it reads.
const READER: &str = "src/environment.rs";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below a directory, with what their names end in.
fn files(dir: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let entries = dir.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let below = entries.flat_map(|path| if path.is_dir() { files(&path, endings) } else { vec![path] });
    below.filter(|path| endings.iter().any(|ending| path.to_string_lossy().ends_with(ending))).collect()
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// The arguments of every call of a function in a file, with where in it they are.
fn arguments<'t>(text: &'t str, call: &str) -> Vec<(usize, &'t str)> {
    let calls = text.match_indices(call).map(|(at, _)| at + call.len());
    calls.map(|at| (at, text[at..].split(')').next().unwrap())).collect()
}

/// What a constant of this name is in a file.
fn constant<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.split(&format!("const {name}: &str = \"")).nth(1)?.split('"').next()
}

/// The crate's variables that a file spells, where the name is handed to what reads it.
fn spelt(text: &str) -> Vec<&str> {
    text.split('"').filter(|part| is_name(part) && part.starts_with("WARPSMITH_")).collect()
}

/// The variables that a Rust file reads.
fn read_by(path: &Path, text: &str) -> BTreeSet<String> {
    let place = path.strip_prefix(root()).unwrap();
    let mut names = BTreeSet::new();
    // Spelt so that this file reads nothing.
    for function in ["var(", "var_os("] {
        for (at, argument) in arguments(text, &["env::", function].concat()) {
            let in_tests = text[..at].contains("#[cfg(test)]");
            if place == Path::new(READER) {
                assert_eq!((function, argument), ("var_os(", "name"), "it reads what it lists");
                continue;
            }
            let in_library = ["src", "crates/warpsmith-tune/src"].iter().any(|dir| place.starts_with(dir));
            assert!(!in_library || in_tests, "{} reads {argument}: only {READER} may", place.display());
            let literal = argument.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let named = literal.or_else(|| constant(text, argument)).map_or_else(|| spelt(text), |name| vec![name]);
            assert!(!named.is_empty(), "{}: which variable is {argument}?", place.display());
            names.extend(named.into_iter().map(str::to_owned));
        }
    }
    for function in ["vars(", "vars_os("] {
        assert!(!text.contains(&["env::", function].concat()), "{} reads all there are", place.display());
    }
    if place == Path::new(READER) {
        let list = text.split("const ALL: ").nth(1).and_then(|rest| rest.split("= [").nth(1)).unwrap();
        let list = list.split(']').next().unwrap().split(',').map(str::trim).filter(|item| !item.is_empty());
        names.extend(list.map(|item| constant(text, item).unwrap_or_else(|| panic!("what is {item}?")).to_owned()));
    }
    if text.contains(&["from_default", "_env()"].concat()) {
        names.insert("RUST_LOG".to_owned());
    }
    names
}

/// The variables that a C or C++ file or a shell script reads.
fn read_elsewhere(text: &str) -> BTreeSet<String> {
    let c = arguments(text, "getenv(").into_iter().map(|(_, argument)| argument.trim_matches('"'));
    let shell = text.split('$').skip(1).map(|rest| {
        let rest = rest.trim_start_matches('{');
        &rest[..rest.find(|c: char| !(c.is_ascii_uppercase() || c == '_')).unwrap_or(rest.len())]
    });
    c.chain(shell).filter(|name| is_name(name)).map(str::to_owned).collect()
}

#[test]
fn every_variable_is_in_the_table_and_no_other() {
    let mut read = BTreeSet::new();
    for dir in ["src", "crates", "examples", "tests", "benches"] {
        for path in files(&root().join(dir), &[".rs"]) {
            read.append(&mut read_by(&path, &fs::read_to_string(&path).unwrap()));
        }
    }
    for path in files(&root().join("tests"), &[".c", ".cpp"]).into_iter().chain([root().join("check")]) {
        read.append(&mut read_elsewhere(&fs::read_to_string(path).unwrap()));
    }
    assert!(read.len() > 20, "{read:?}");
    let page = fs::read_to_string(root().join("docs/environment.md")).unwrap();
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let table: Vec<_> =
        cells.flat_map(|cell| cell.split('`')).filter(|name| is_name(name)).map(str::to_owned).collect();
    let told: BTreeSet<_> = table.iter().cloned().collect();
    assert_eq!(told.len(), table.len(), "each once");
    assert_eq!(read, told, "read (left) and in docs/environment.md (right)");
}

#[test]
fn the_readme_leads_to_the_table() {
    assert!(fs::read_to_string(root().join("README.md")).unwrap().contains("`docs/environment.md`"));
}
