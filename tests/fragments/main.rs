//! Which lane holds what when a block-scaled matrix instruction is issued, against what CuTe computes.
//!
//! The kernel's own text is run on the host (`host.cpp`), from where codes and scales lie in memory to the registers of the
//! instruction, and from its sums to the elements of C. Every row and every k has its own number there.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::build::render;
use warpsmith::spec::{Arch, Problem, Spec};

#[derive(Deserialize)]
struct Golden {
    samples: HashMap<String, Vec<[u32; 4]>>,
}

/// By what it is and for which call (or of which sums): lane and value, and what that is.
type Held = HashMap<(String, String), HashMap<(u32, u32), (u32, u32)>>;

fn held(variant: &str, k: u32) -> Held {
    let problem = Problem::gemm().n(512).k(k).a(Format::Nvfp4).c(Format::F32).scales(ScaleLayout::Linear);
    let spec = Spec::new(&problem, &variant.parse().unwrap(), &Arch::RTX5090).unwrap();
    let source = render(&spec).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for header in source.headers() {
        let path = folder.path().join(header.name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, if header.name.ends_with("ptx.cuh") { "" } else { header.text }).unwrap();
    }
    fs::write(folder.path().join("kernel.cu"), source.text()).unwrap();
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fragments/host.cpp");
    let program = folder.path().join("host");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O1", "-w", "-o"]).args([&program, &host]).arg("-I").arg(folder.path());
    let compiled = compiler.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let said = Command::new(program).output().unwrap();
    assert!(said.status.success());
    let mut held = Held::new();
    for line in String::from_utf8(said.stdout).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u32>().unwrap();
        let of = held.entry((words[0].to_owned(), words[1].to_owned())).or_default();
        of.insert((number(2), number(3)), (number(4), number(5)));
    }
    held
}

/// What a variant's lanes hold is what the golden file says of its samples.
fn is_as_in_the_golden_file(variant: &str, k: u32, calls: usize) {
    let golden: Golden = serde_json::from_str(include_str!("golden.json")).unwrap();
    let held = held(variant, k);
    let places: Vec<_> = held.iter().filter(|((what, _), _)| what == "D").collect();
    assert_eq!(places.len(), calls, "{variant}");
    for ((_, call), place) in places {
        let (n8, m16) = place[&(0, 0)];
        assert!(place.values().all(|of_lane| *of_lane == (n8, m16)), "{variant}: lanes of {call} differ");
        let of = |what: &str, call: &str| &held[&(what.to_owned(), call.to_owned())];
        let warp = call.split('.').next().unwrap();
        // Rows of the operands that are rows and columns of the instruction: what C says.
        let (mut weights, mut tokens) = (HashMap::new(), HashMap::new());
        for &[lane, value, m, n] in &golden.samples["C"] {
            let (row, column) = of("C", &format!("{warp}.{n8}.{m16}"))[&(lane, value)];
            assert_eq!(*weights.entry(m).or_insert(column), column, "{variant}");
            assert_eq!(*tokens.entry(n).or_insert(row), row, "{variant}");
        }
        let k_block = of("A", call)[&(0, 0)].1 / 64;
        let mut compared = 0;
        for (what, rows, per_value) in
            [("A", &weights, 1), ("B", &tokens, 1), ("SFA", &weights, 16), ("SFB", &tokens, 16)]
        {
            for &[lane, value, row, k] in &golden.samples[what] {
                // Of scales, lanes that this call does not look at hold those of others.
                let Some(found) = of(what, call).get(&(lane, value / per_value)) else { continue };
                let expected = (rows[&row], (64 * k_block + k) / per_value);
                assert_eq!(*found, expected, "{variant}: {what} of {call}, lane {lane}");
                compared += 1;
            }
        }
        assert!(compared >= 128 + 64 + 8 + 4, "{variant}: {compared} samples");
    }
}

#[test]
fn lanes_hold_what_the_golden_file_says() {
    // Two tiles of weights and five of tokens a warp; one of each, warps that share K; halves of the tokens; the least swizzle.
    is_as_in_the_golden_file("mxf4.t40x256x128.s1.single.uniform.direct", 128, 8 * 2 * 2 * 5);
    is_as_in_the_golden_file("mxf4.t8x32x256.s1.single.uniform.direct", 256, 8);
    is_as_in_the_golden_file("mxf4.t128x64x64.s1.single.uniform.direct", 64, 8 * 8);
}
