//! Which lane holds what when a block-scaled matrix instruction is issued, against what CuTe computes.
//!
//! The kernel's own text is run on the host (`host.cpp`), from where codes and scales lie in memory to the registers of the
//! instruction, and from its sums to the elements of C. Every row and every k has its own number there. For the path `tcgen05`,
//! whose operands are asked for by descriptors, these are compared (`tcgen05.cpp`), and the emulator's arithmetic
//! (`products.cpp`).

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::build::render;
use warpsmith::spec::{Arch, Problem, Spec};

#[derive(Deserialize)]
struct Golden {
    samples: HashMap<String, Vec<[u32; 4]>>,
}

/// What a program beside this file says that is compiled with the CUDA of a kernel, in which headers of PTX are `ptx`.
fn said(program: &str, kernel: Option<&Spec>, ptx: impl Fn(&str) -> String, input: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    if let Some(spec) = kernel {
        let source = render(spec).unwrap();
        for header in source.headers() {
            let path = folder.path().join(header.name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let is_ptx = header.name.ends_with("ptx.cuh");
            fs::write(path, if is_ptx { ptx(header.name) } else { header.text.to_owned() }).unwrap();
        }
        fs::write(folder.path().join("kernel.cu"), source.text()).unwrap();
    }
    let built = folder.path().join("host");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O1", "-w", "-o"]).arg(&built);
    compiler.arg(root.join("tests/fragments").join(program)).arg("-I").arg(folder.path());
    let compiled = compiler.arg("-I").arg(root.join("tests/support/emulator")).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let mut running = Command::new(built).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let said = running.wait_with_output().unwrap();
    assert!(said.status.success());
    String::from_utf8(said.stdout).unwrap()
}

/// By what it is and for which call (or of which sums): lane and value, and what that is.
type Held = HashMap<(String, String), HashMap<(u32, u32), (u32, u32)>>;

fn held(variant: &str, k: u32) -> Held {
    let problem = Problem::gemm().n(512).k(k).a(Format::Nvfp4).c(Format::F32).scales(ScaleLayout::Linear);
    let spec = Spec::new(&problem, &variant.parse().unwrap(), &Arch::RTX5090).unwrap();
    let said = said("host.cpp", Some(&spec), |_| String::new(), "");
    let mut held = Held::new();
    for line in said.lines() {
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

/// Says so if there is none.
fn has_compiler(test: &str) -> bool {
    let found = Command::new("c++").arg("--version").output().is_ok();
    if !found {
        warpsmith_testing::skip(test, "there is no C++ compiler");
    }
    found
}

#[test]
fn lanes_hold_what_the_golden_file_says() {
    if !has_compiler("lanes_hold_what_the_golden_file_says") {
        return;
    }
    // Two tiles of weights and five of tokens a warp; one of each, warps that share K; halves of the tokens; the least swizzle.
    is_as_in_the_golden_file("mxf4.t40x256x128.s1.single.uniform.direct", 128, 8 * 2 * 2 * 5);
    is_as_in_the_golden_file("mxf4.t8x32x256.s1.single.uniform.direct", 256, 8);
    is_as_in_the_golden_file("mxf4.t128x64x64.s1.single.uniform.direct", 64, 8 * 8);
}

#[derive(Deserialize)]
struct Golden05 {
    words: HashMap<String, String>,
    tiles: HashMap<String, HashMap<String, Vec<String>>>,
    scales: HashMap<String, Scales>,
    products: Vec<Product>,
}

#[derive(Deserialize)]
struct Scales {
    #[serde(rename = "SFA")]
    rows: Vec<Copied>,
    #[serde(rename = "SFB")]
    wide: Vec<Copied>,
    mma: Vec<Taken>,
}

#[derive(Deserialize)]
struct Copied {
    column: u64,
    descriptor: String,
}

#[derive(Deserialize)]
struct Taken {
    k64: u64,
    sfa_column: u64,
    sfb_column: u64,
}

#[derive(Deserialize)]
struct Product {
    name: String,
    c: String,
    a: String,
    b: String,
    sfa: [u32; 4],
    sfb: [u32; 4],
    d: String,
}

fn golden05() -> Golden05 {
    serde_json::from_str(include_str!("tcgen05.json")).unwrap()
}

fn number(hexadecimal: &str) -> u64 {
    u64::from_str_radix(hexadecimal.trim_start_matches("0x"), 16).unwrap()
}

/// In place of the instructions of tcgen05: what is asked for is noted.
fn noted(header: &str) -> String {
    match header {
        "tcgen05/ptx.cuh" => {
            r"#pragma once
            namespace ws {
            struct TensorMap {};
            enum class Collector { DISCARD, FILL, LAST_USE };
            template <bool>
            void tcgen05_cp_32x128b_warpx4(u32 to, u64 descriptor) {
              copied_to[copies] = to;
              copied_from[copies++] = descriptor;
            }
            template <bool, Collector>
            void tcgen05_mma_mxf4nvf4(u32 d, u64 a, u64 b, u32, u32 scales_a, u32 scales_b, bool) {
              asked = {d, scales_a, scales_b, a, b};
            }
            u32 cvt_f16x2(float, float);
            float ex2_approx(float), div_approx(float, float), rcp_approx(float);
            float min_nan(float, float), max_nan(float, float), cvt_f32_f16(u16);
            u32 cvt_bf16x2(float, float), cluster_rank(), map_shared_rank(u32, u32);
            void cp_async_4(u32, const void*, bool), cp_async_commit_group(), fence_proxy_async();
            template <int PENDING>
            void cp_async_wait_group();
            void mbarrier_init(u32, u32), fence_mbarrier_init(), mbarrier_wait(u32, u32), mbarrier_arrive(u32);
            void mbarrier_wait_relaxed_cluster(u32, u32), fence_release_shared(), fence_acquire_shared();
            void mbarrier_arrive_expect_tx(u32, u32), mbarrier_arrive_expect_tx_cluster(u32, u32), mbarrier_arrive_cluster(u32);
            void bulk_load(u32, const void*, u32, u32), cluster_arrive(), cluster_wait(), launch_dependents(), wait_for_dependencies();
            void tensor_load_2d(u32, const TensorMap&, int, int, u32), tensor_load_2d_pair(u32, const TensorMap&, int, int, u32);
            void tensor_load_2d_pair_multicast(u32, const TensorMap&, int, int, u32, u16);
            void prefetch_tensor_map(const TensorMap&);
            bool elect_one();
            template <bool> void tcgen05_alloc(u32, u32);
            template <bool> void tcgen05_relinquish_alloc_permit();
            template <bool> void tcgen05_dealloc(u32, u32);
            template <bool> void tcgen05_commit(u32);
            void tcgen05_ld_32x32b_x16(u32 (&)[16], u32);
            template <int COUNT>
            void tcgen05_wait_ld(u32 (&)[COUNT][16]);
            void tcgen05_fence_before_thread_sync(), tcgen05_fence_after_thread_sync();
            }"
        }
        _ => "#pragma once",
    }
    .to_owned()
}

/// What a variant asks for is what the golden file says of its tile.
fn asks_as_in_the_golden_file(variant: &str, tile: &str) {
    let problem = Problem::gemm().n(512).k(256).a(Format::Nvfp4).c(Format::F32).scales(ScaleLayout::Swizzled128x4);
    let spec = Spec::new(&problem, &variant.parse().unwrap(), &Arch::B200).unwrap();
    let said = said("tcgen05.cpp", Some(&spec), noted, "");
    let lines = |what: &str| -> Vec<Vec<u64>> {
        let of = said.lines().filter_map(|line| line.strip_prefix(what)?.strip_prefix(' '));
        of.map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect()).collect()
    };
    let golden = golden05();
    let words = lines("word");
    for (shape, word) in &golden.words {
        let (rows, columns) = shape.split_once('x').unwrap();
        let shape: [u64; 2] = [rows.parse().unwrap(), columns.parse().unwrap()];
        let found = words.iter().find(|line| line[..2] == shape).unwrap();
        assert_eq!(found[2], number(word), "{shape:?}");
    }
    for (what, of) in [("rows", "A"), ("wide", "B")] {
        let found: Vec<u64> = lines(what).iter().map(|line| line[1]).collect();
        let expected: Vec<u64> = golden.tiles[tile][of].iter().map(|bits| number(bits)).collect();
        assert_eq!(found, expected, "{variant}: {what}");
    }
    // Columns count from the begin of each operand's; blocks of 128 rows lie in shared memory as in memory, all of K together.
    let scales = &golden.scales[tile];
    for (what, expected) in [("row_scales", &scales.rows), ("wide_scales", &scales.wide)] {
        let mut found: Vec<(u64, u64)> = lines(what).iter().map(|line| (line[1], line[2])).collect();
        let blocks = expected.len() as u64 / 4;
        let mut golden: Vec<(u64, u64)> = expected
            .iter()
            .map(|copied| {
                let (base, at) = (number(&copied.descriptor) & !0x3FFF, number(&copied.descriptor) & 0x3FFF);
                let image = at - 0x200;
                let (k, block) = (image / 0x20 / blocks, image / 0x20 % blocks);
                (copied.column, base | (0x200 + block * 0x80 + k * 0x20))
            })
            .collect();
        found.sort_unstable();
        golden.sort_unstable();
        assert_eq!(found, golden, "{variant}: {what}");
    }
    let found: Vec<[u64; 3]> = lines("mma").iter().map(|line| [line[0], line[1], line[2]]).collect();
    let expected: Vec<[u64; 3]> = scales.mma.iter().map(|of| [of.k64, of.sfa_column, of.sfb_column]).collect();
    assert_eq!(found, expected, "{variant}: scales of products");
}

#[test]
fn tcgen05_asks_for_what_the_golden_file_says() {
    if !has_compiler("tcgen05_asks_for_what_the_golden_file_says") {
        return;
    }
    asks_as_in_the_golden_file("tcgen05.t64x128x256.s1.single.ws1.direct", "1sm128x64x256");
    asks_as_in_the_golden_file("tcgen05.t128x128x256.s1.single.ws1.direct.token_rows", "1sm128x128x256");
    asks_as_in_the_golden_file("tcgen05.t256x128x256.s1.single.ws1.direct", "1sm128x256x256");
    asks_as_in_the_golden_file("tcgen05.t128x256x256.s1.single.ws1.direct.pair", "2sm256x128x256");
    asks_as_in_the_golden_file("tcgen05.t256x256x256.s1.single.ws1.direct.pair.token_rows", "2sm256x256x256");
}

#[test]
fn the_emulator_multiplies_as_the_model_does() {
    if !has_compiler("the_emulator_multiplies_as_the_model_does") {
        return;
    }
    let golden = golden05();
    let line = |of: &Product| {
        let scales: Vec<String> = of.sfa.iter().chain(&of.sfb).map(u32::to_string).collect();
        format!("{} {} {} {}\n", number(&of.c), of.a, of.b, scales.join(" "))
    };
    let said = said("products.cpp", None, |_| String::new(), &golden.products.iter().map(line).collect::<String>());
    let found: Vec<u64> = said.lines().map(|bits| bits.parse().unwrap()).collect();
    assert!(found.len() == golden.products.len() && found.len() == 26);
    for (product, found) in golden.products.iter().zip(found) {
        assert_eq!(found, number(&product.d), "{}", product.name);
    }
}
