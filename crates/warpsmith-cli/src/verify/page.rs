//! docs/devices.md says what there is on which GPU, and no more than what is on record.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use warpsmith::format::Format;
use warpsmith::spec::{Arch, MatrixPath, Problem};

use super::cases::{Case, cases, of_all_formats, operations};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A row of the table: kernels of a path, with what is said of each operation on each GPU.
struct Row {
    path: String,
    kinds: Vec<Kind>,
    /// Of each column a letter for each operation.
    said: Vec<Vec<char>>,
}

/// How weights are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    Given,
    Prepared,
    Expanded,
}

/// Formats of A, B and C, and how weights and factors of tokens are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    a: Format,
    b: Format,
    is_coded: bool,
    form: Form,
    has_k_factors: bool,
}

impl Kind {
    fn of(problem: &Problem) -> Self {
        Self {
            a: problem.a_format(),
            b: problem.b_format(),
            is_coded: problem.c_format() == Format::Nvfp4,
            form: match problem.is_prepared() {
                _ if problem.is_expanded() => Form::Expanded,
                true => Form::Prepared,
                false => Form::Given,
            },
            has_k_factors: problem.has_k_factors(),
        }
    }

    fn problems(self) -> [Problem; 6] {
        let c = if self.is_coded { Format::Nvfp4 } else { Format::F32 };
        operations(self.a, self.b, c).map(|problem| {
            let problem = match self.form {
                Form::Given => problem,
                Form::Prepared => problem.prepared(),
                Form::Expanded => problem.expanded(),
            };
            if self.has_k_factors { problem.k_factors() } else { problem }
        })
    }
}

/// Which of the operations a problem is.
fn operation(problem: &Problem) -> usize {
    let of_groups = match (problem.groups().is_some(), problem.is_gathered()) {
        (false, _) => 0,
        (true, false) => 2,
        (true, true) => 4,
    };
    of_groups + problem.operation().products() as usize - 1
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

fn formats(text: &str) -> Vec<Format> {
    text.split(", ").map(|word| word.parse().unwrap()).collect()
}

/// The presets of each column, and the rows.
fn page() -> (Vec<Vec<Arch>>, Vec<Row>) {
    let text = fs::read_to_string(root().join("docs/devices.md")).unwrap();
    let mut lines = text.lines().skip_while(|line| !line.starts_with("| path |"));
    let columns = cells(lines.next().unwrap())[4..]
        .iter()
        .map(|names| names.split(' ').map(|name| name.parse().unwrap()).collect())
        .collect();
    let rows = lines.skip(1).take_while(|line| line.starts_with('|')).map(|line| {
        let cells = cells(line);
        let [path, tokens, weights, result] = cells[..4] else { panic!("{line}") };
        let (tokens, has_k_factors) = match tokens.strip_suffix(", along K") {
            Some(tokens) => (tokens, true),
            None => (tokens, false),
        };
        let (weights, form) = match weights.rsplit_once(", ") {
            Some((weights, "prepared")) => (weights, Form::Prepared),
            Some((weights, "expanded")) => (weights, Form::Expanded),
            _ => (weights, Form::Given),
        };
        let is_coded = result == "nvfp4";
        assert!(is_coded || result == "f16, bf16, f32", "{line}");
        let kinds = formats(tokens).into_iter().flat_map(|a| {
            let weights = if weights == "as tokens" { vec![a] } else { formats(weights) };
            weights.into_iter().map(move |b| Kind { a, b, is_coded, form, has_k_factors })
        });
        let said = cells[4..].iter().map(|cell| cell.chars().filter(|letter| *letter != ' ').collect());
        Row { path: path.trim_matches('`').to_owned(), kinds: kinds.collect(), said: said.collect() }
    });
    (columns, rows.collect())
}

#[test]
fn every_kind_of_kernel_is_on_the_page_and_verified() {
    let (columns, rows) = page();
    let named: Vec<Arch> = columns.iter().flatten().copied().collect();
    assert_eq!(named.len(), Arch::ALL.len());
    assert!(Arch::ALL.iter().all(|arch| named.contains(arch)), "every preset has a column");
    // What a compute capability has is looked at once.
    let mut of_capability = HashMap::new();
    for (column, archs) in columns.iter().enumerate() {
        for arch in archs {
            let verified: &HashSet<_> = of_capability.entry(arch.capability().to_string()).or_insert_with(|| {
                let cases = cases(arch, 1);
                let kinds = cases.iter().map(|Case { problem, variant, .. }| {
                    (variant.path.to_string(), Kind::of(problem), operation(problem))
                });
                kinds.collect()
            });
            let mut there = 0;
            for Row { path, kinds, said } in &rows {
                for (kind, operation) in kinds.iter().flat_map(|kind| (0..6).map(move |operation| (kind, operation))) {
                    let is_there = verified.contains(&(path.clone(), *kind, operation));
                    let letter = said[column][operation];
                    assert!("MHEC–".contains(letter), "{letter}");
                    assert_eq!(letter != '–', is_there, "{arch}, {path}, {kind:?}: {}", kind.problems()[operation]);
                    there += usize::from(is_there);
                }
            }
            // What is verified is what there is, and the page has each of it once.
            assert_eq!(there, verified.len(), "{arch}");
            let legal = of_all_formats(arch).flat_map(|problem| {
                MatrixPath::of(&problem, arch)
                    .map(move |path| (path.to_string(), Kind::of(&problem), operation(&problem)))
            });
            assert_eq!(&legal.collect::<HashSet<_>>(), verified, "{arch}");
        }
    }
}

/// The problems that a file names.
fn problems_in(path: &Path) -> Vec<Problem> {
    let text = fs::read_to_string(path).unwrap();
    let is_of_one = |letter: char| letter.is_ascii_alphanumeric() || ":*>_.@-".contains(letter);
    text.split(|letter| !is_of_one(letter)).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn what_is_said_to_be_measured_is_on_record() {
    let (columns, rows) = page();
    let of = |folder: &str| root().join(folder).read_dir().unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = of("docs/measurements").chain(of("src/pick/tables")).collect();
    for (column, archs) in columns.iter().enumerate() {
        let is_of = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            archs.iter().any(|arch| name.split(['-', '.']).any(|word| word == arch.to_string()))
        };
        let recorded: HashSet<_> = files
            .iter()
            .filter(|path| is_of(path))
            .flat_map(|path| problems_in(path))
            .map(|problem| (Kind::of(&problem), operation(&problem)))
            .collect();
        for Row { path, kinds, said } in &rows {
            for (operation, letter) in said[column].iter().enumerate() {
                if *letter == 'M' {
                    let is_recorded = kinds.iter().any(|kind| recorded.contains(&(*kind, operation)));
                    assert!(is_recorded, "{archs:?}, {path}: {}", kinds[0].problems()[operation]);
                }
            }
        }
    }
}
