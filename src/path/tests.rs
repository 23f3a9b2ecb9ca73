use std::path::{Path, PathBuf};

use super::*;
use crate::build;
use crate::pick::heuristic;
use crate::spec::{Spec, candidates};

/// What the path `demo` takes, beside `mma`.
pub(super) const PROBLEM: &str = "gemm:f16*nvfp4>f16:n1008:k62976";

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, found) } else { found.push(path) }
    }
}

/// Files under `src` and `templates`, but for those below `folders`, in which one of the words stands.
fn files_with(words: &[&str], folders: &[&str]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    ["src", "templates"].iter().for_each(|folder| files_below(&root.join(folder), &mut files));
    let has_one = |file: &PathBuf| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        words.iter().any(|word| text.contains(word))
    };
    let names =
        files.iter().filter(|file| has_one(file)).map(|file| file.strip_prefix(root).unwrap().to_str().unwrap());
    let mut names: Vec<_> =
        names.filter(|name| !folders.iter().any(|folder| name.starts_with(folder))).map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn a_path_is_two_folders_and_a_line() {
    let others = files_with(&["Demo", "demo"], &["src/path/demo/", "templates/demo/"]);
    assert_eq!(others, ["src/path/mod.rs", "src/path/tests.rs"]);
}

#[test]
fn nobody_else_matches_on_the_path() {
    let words = [
        "MatrixPath::Mma",
        "MatrixPath::Wgmma",
        "MatrixPath::Mxf4",
        "MatrixPath::Tcgen05",
        "Layout::Mma",
        "Layout::Wgmma",
        "Layout::Mxf4",
        "Layout::Tcgen05",
        "WarpGrid",
        "WgmmaLayout",
    ];
    for file in files_with(&words, &["src/path/"]) {
        assert!(["src/pick/heuristic/bound.rs"].contains(&file.as_str()), "{file}");
    }
}

#[test]
fn a_problem_is_searched_on_every_path_that_takes_it() {
    let (problem, arch) = (PROBLEM.parse::<Problem>().unwrap(), Arch::H200);
    assert_eq!(MatrixPath::of(&problem, &arch).collect::<Vec<_>>(), [MatrixPath::Mma, MatrixPath::Demo]);
    for path in [MatrixPath::Mma, MatrixPath::Demo] {
        assert!(
            candidates(&problem, &arch).any(|(variant, checked)| variant.path == path && checked.is_ok()),
            "{path}"
        );
    }
    // It does nothing, so it is the fastest; but it has few variants.
    let ranked = heuristic::rank(&problem, 16, &arch, 1000);
    assert_eq!(ranked[0].spec.variant().path, MatrixPath::Demo);
    assert!(ranked.iter().any(|ranked| ranked.spec.variant().path == MatrixPath::Mma));
    assert!(ranked.is_sorted_by(|a, b| a.prediction.us <= b.prediction.us));
}

#[test]
fn an_empty_path_goes_all_the_way_to_a_kernels_text() {
    let problem = PROBLEM.parse::<Problem>().unwrap();
    let variant = MatrixPath::Demo.baseline(&problem, Fusion::Single);
    assert_eq!(variant.to_string().parse::<Variant>().unwrap(), variant);
    let spec = Spec::new(&problem, &variant, &Arch::A100).unwrap();
    assert_eq!(spec.numerics().to_string(), "demo.k8.f16.f32");
    assert_eq!(spec.numerics().to_string().parse::<crate::spec::Numerics>().unwrap(), spec.numerics());
    let source = build::render(&spec).unwrap();
    assert!(source.text().contains(&format!("void {}(", spec.symbol())) && source.text().contains("does nothing"));
    assert_eq!(source.entries(), [spec.symbol()]);
}

#[test]
fn registers_that_change_hands_are_there() {
    let problems =
        ["grouped128.gemm:e4m3*nvfp4>bf16:n2048:k768:prepared:top8", "gemm:bf16*nvfp4>bf16:n2048:k768:prepared"];
    let ways = ["128.s3.single.ws2", "128.s3.single.ws2d1", "256.s2.single.ws2d2", "128.s2.single.ws4d2"];
    let (mut all, mut growing) = (0, 0);
    let cases = (8..=256).step_by(8).flat_map(|tokens| ways.map(|way| format!("wgmma.t{tokens}x128x{way}")));
    let cases = cases.flat_map(|case| ["", ".persistent"].map(|persistent| format!("{case}.shared{persistent}")));
    for (case, problem) in cases.flat_map(|case| problems.map(|problem| (case.clone(), problem))) {
        let (problem, variant): (Problem, Variant) = (problem.parse().unwrap(), case.parse().unwrap());
        let Ok(spec) = Spec::new(&problem, &variant, &Arch::H100) else { continue };
        let Layout::Wgmma(layout) = spec.geometry().layout else { continue };
        let Some(shifted) = layout.shifted else { continue };
        let (warpgroups, decoders) = (spec.geometry().threads / 128, variant.warps.decoders());
        let sum = (warpgroups - decoders - 1) * shifted.consumer + decoders * shifted.decoder + shifted.producer;
        assert!(sum <= warpgroups * shifted.launch, "{spec}: {shifted:?}");
        assert_eq!(shifted.launch, spec.geometry().registers, "{spec}");
        assert!(shifted.producer < shifted.launch, "{spec}: {shifted:?}");
        all += 1;
        growing += u32::from(shifted.decoder > shifted.launch);
    }
    // Of warpgroups that decode some get more than at the launch, most fewer.
    assert!(growing > 0 && growing < all, "{growing} of {all}");
}
