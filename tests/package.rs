//! What a package page shows, and what the documents lead to.

#![allow(clippy::unwrap_used)]

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use warpsmith::internal::build::Experts;
use warpsmith::spec::{Combine, Problem, Quantise, Route, Variant};

const README: &str = include_str!("../README.md");

/// A package page has no folder that a relative link could lead to.
#[test]
fn the_readme_has_no_relative_link() {
    let relative: Vec<_> = links(README).into_iter().filter(|link| !link.starts_with("https://")).collect();
    assert!(relative.is_empty(), "{relative:?}");
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every document, with its text.
fn documents() -> Vec<(PathBuf, String)> {
    let below = ["docs", "docs/measurements"].map(|folder| root().join(folder).read_dir().unwrap());
    let pages = below.into_iter().flatten().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let named = ["README.md", "CHANGELOG.md"].map(|name| root().join(name));
    let documents: Vec<_> =
        named.into_iter().chain(pages).map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect();
    assert!(documents.len() > 12, "{}", documents.len());
    documents
}

/// The lines of a document: prose, and those of code blocks.
fn prose_and_blocks(text: &str) -> (String, Vec<&str>) {
    let (mut prose, mut blocks, mut fenced) = (String::new(), Vec::new(), false);
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            blocks.push(line);
        } else {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    (prose, blocks)
}

/// Where links lead.
fn links(text: &str) -> Vec<String> {
    let (prose, _) = prose_and_blocks(text);
    // Not those of code spans.
    let outside: String = prose.split('`').step_by(2).collect();
    outside.split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned()).collect()
}

/// What headings are known by, as GitHub makes it of them.
fn anchors(text: &str) -> Vec<String> {
    let (prose, _) = prose_and_blocks(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// Relative links lead to files, and their anchors to headings.
#[test]
fn no_link_is_dead() {
    let mut followed = 0;
    for (path, text) in documents() {
        for link in links(&text).iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link}", path.display());
            if !anchor.is_empty() {
                let there = anchors(&fs::read_to_string(&target).unwrap());
                assert!(there.iter().any(|known| known == anchor), "{}: {link} of {there:?}", path.display());
            }
            followed += 1;
        }
    }
    assert!(followed > 15, "{followed}");
}

#[test]
fn links_and_anchors_are_found() {
    let text = "# A `b`, c: d_e-f\n[x](y.md#z) `[not](this)`\n```text\n# no\n[nor](that)\n```\n";
    assert_eq!((links(text), anchors(text)), (vec!["y.md#z".to_owned()], vec!["a-b-c-d_e-f".to_owned()]));
}

/// Files of this repository that a text names, spelt from its root.
fn files_named(text: &str) -> Vec<&str> {
    const BELOW: [&str; 7] = ["docs/", "src/", "tests/", "crates/", "templates/", "examples/", "benches/"];
    let words = text.split(|c: char| c.is_whitespace() || "`():,;|".contains(c));
    // Names of files, and folders; not patterns.
    let words = words.map(|word| word.trim_end_matches('.')).filter(|word| !word.contains(['*', '{', '<', '…']));
    words.filter(|word| BELOW.iter().any(|at| word.starts_with(at))).collect()
}

/// Files that documents name are there.
#[test]
fn documents_name_files_that_are_there() {
    let documents = documents();
    let named: Vec<_> =
        documents.iter().flat_map(|(path, text)| files_named(text).into_iter().map(move |name| (path, name))).collect();
    assert!(named.len() > 40, "{named:?}");
    let lost: Vec<_> = named.iter().filter(|(_, name)| !root().join(name).exists()).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// The sub-commands of `warpsmith`, as they are spelt.
fn sub_commands() -> Vec<String> {
    let source = fs::read_to_string(root().join("crates/warpsmith-cli/src/lib.rs")).unwrap();
    let (_, rest) = source.split_once("enum Command {\n").unwrap();
    let (variants, _) = rest.split_once("\n}").unwrap();
    let names = variants.lines().filter_map(|line| line.strip_prefix("    "));
    let names = names.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    let spelt = |line: &str| -> String {
        let name = line.split(|c: char| !c.is_alphanumeric()).next().unwrap();
        let letter = |(at, c): (usize, char)| {
            let hyphen = (at > 0 && c.is_ascii_uppercase()).then_some('-');
            hyphen.into_iter().chain([c.to_ascii_lowercase()])
        };
        name.char_indices().flat_map(letter).collect()
    };
    names.map(spelt).collect()
}

/// What documents say in code behind `warpsmith` is a sub-command.
#[test]
fn documents_name_commands_that_are_there() {
    let known = sub_commands();
    assert!(known.iter().any(|name| name == "warm-up") && known.len() > 8, "{known:?}");
    let mut named = 0;
    for (path, text) in documents() {
        let (prose, blocks) = prose_and_blocks(&text);
        let spans = prose.split('`').skip(1).step_by(2).map(str::to_owned);
        for code in spans.chain(blocks.into_iter().map(str::to_owned)) {
            let words: Vec<_> = code.split_whitespace().collect();
            for pair in words.windows(2).filter(|pair| pair[0] == "warpsmith" && !pair[1].starts_with('-')) {
                // A comment, a flag of cargo, a line of another language.
                if pair[1].chars().all(|c| c.is_ascii_lowercase() || c == '-') && !code.contains("cargo") {
                    assert!(known.iter().any(|name| name == pair[1]), "{}: {code}", path.display());
                    named += 1;
                }
            }
        }
    }
    assert!(named > 15, "{named}");
}

/// The grammar that a wrong spelling's error tells.
fn grammar<T: FromStr<Err: Display>>(wrong: &str) -> String {
    let told = wrong.parse::<T>().err().unwrap().to_string();
    let (_, grammar) = told.split_once("expected ").unwrap();
    grammar.split(", ").next().unwrap().to_owned()
}

/// The page of spellings has every grammar, word for word. Those of layers: crates/warpsmith-layers/tests/config.rs.
#[test]
fn the_page_of_spellings_has_every_grammar() {
    let page = fs::read_to_string(root().join("docs/spellings.md")).unwrap();
    let told = [grammar::<Problem>(""), grammar::<Route>(""), grammar::<Combine>(""), grammar::<Quantise>("")];
    let told = told.into_iter().chain([grammar::<Experts>(""), grammar::<Variant>("mma.t8x64x64.x")]);
    // A quantiser has two.
    let told: Vec<_> = told.flat_map(|all| all.split(" or ").map(str::to_owned).collect::<Vec<_>>()).collect();
    assert_eq!(told.len(), 7, "{told:?}");
    for grammar in told {
        assert!(grammar.contains('[') && page.lines().any(|line| line == grammar), "{grammar}");
    }
}
