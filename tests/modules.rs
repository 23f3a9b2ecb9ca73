//! Modules of the crate use each other without circles.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What a file of `src` is part of: a module of the crate.
fn module_of(file: &Path) -> String {
    let first = file.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

/// Names behind `crate::` outside of comments and tests, also those of a list in braces.
fn used_by(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let name = |text: &str| text.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect::<String>();
    let mut used = BTreeSet::new();
    for after in code.split("crate::").skip(1) {
        match after.strip_prefix('{') {
            Some(list) => used.extend(list.split('}').next().unwrap().split(',').map(|one| name(one.trim()))),
            None => drop(used.insert(name(after))),
        }
    }
    used
}

fn read(folder: &Path, root: &Path, uses: &mut BTreeMap<String, BTreeSet<String>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, root, uses);
            continue;
        }
        let file = path.strip_prefix(root).unwrap();
        let is_test = file.file_stem().unwrap().to_str().unwrap().ends_with("tests") || file.starts_with("path/demo");
        if !is_test && !["lib.rs", "bin"].iter().any(|other| file.starts_with(other)) {
            let module = uses.entry(module_of(file)).or_default();
            module.extend(std::fs::read_to_string(&path).map(|text| used_by(&text)).unwrap_or_default());
        }
    }
}

#[test]
fn no_module_uses_one_that_uses_it() {
    let (root, mut uses) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), BTreeMap::new());
    read(&root, &root, &mut uses);
    let modules: BTreeSet<String> = uses.keys().cloned().collect();
    assert!(["spelling", "arch", "problem", "path", "spec", "run"].iter().all(|name| modules.contains(*name)));
    assert!(uses["spec"].contains("path") && uses["path"].contains("problem"));
    // Whoever uses none that is left is taken out, until nobody is left.
    while !uses.is_empty() {
        let left: BTreeSet<String> = uses.keys().cloned().collect();
        uses.retain(|module, used| used.iter().any(|other| other != module && left.contains(other)));
        assert!(uses.len() < left.len(), "in circles, or above one: {uses:?}");
    }
}
