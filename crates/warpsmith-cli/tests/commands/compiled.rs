//! With a compiler: what is tuned and packed, and served from that.

use std::collections::HashSet;
use std::fs;
use std::process::Command;

use warpsmith::build::Toolchain;
use warpsmith::cache::{KernelCache, Pack, Seal};
use warpsmith::engine::{Manifest, Rows};
use warpsmith::pick::{Origin, Picker, Table};
use warpsmith::spec::Arch;
use warpsmith_testing as common;

use crate::{Bench, GEMM, On, told};

/// An H200 with little cache, so that operands need not be many.
const SMALL_CACHE: &str = "NVIDIA H200;13000;1;132;262144;9;0;232448;1980000;3201000;6144";

const ROWS: &str = "1..=24, 77, 100..=300";

/// Writes a manifest of one problem at these rows.
fn list(bench: &Bench, rows: &str) {
    fs::write(bench.path("manifest"), format!("version = 1\n[problems]\n\"{GEMM}\" = \"{rows}\"\n")).unwrap();
}

/// A command with a compiler, or with the NVRTC that has nothing in it.
fn command(bench: &Bench, line: &str, compiles: bool) -> Command {
    let mut command = bench.command(line);
    if compiles {
        command.env_remove("WARPSMITH_NVRTC");
    }
    command
}

/// Runs one on a device whose kernels are right: its exit status, its JSON and what it says.
fn run(bench: &Bench, line: &str, compiles: bool) -> (Option<i32>, serde_json::Value, String) {
    let mut command = command(bench, line, compiles);
    command.env("LD_LIBRARY_PATH", bench.driver_with("computing", &["NULL_COMPUTES"]));
    command.env("NULL_DRIVER_DEVICE", SMALL_CACHE);
    let output = command.output().unwrap();
    let json = serde_json::from_slice(&output.stdout).unwrap_or(serde_json::Value::Null);
    let (status, said) = told(&output);
    (status, json, said)
}

/// On a device whose kernels are right: one process tunes and packs, others serve from that.
#[test]
fn what_one_process_has_tuned_and_packed_others_serve_without_a_compiler() {
    if common::toolchain("what_one_process_has_tuned_and_packed_others_serve_without_a_compiler").is_none() {
        return;
    }
    let bench = Bench::new();
    list(&bench, ROWS);
    let run = |line, compiles| run(&bench, line, compiles);
    let tune = "warm-up @/manifest --tune 40 --duty 0.5 --table @/table --pack @/pack --json";
    let (status, json, said) = run(tune, true);
    assert_eq!(status, Some(0), "{said}");
    let tuning = &json["tuning"];
    assert!(tuning["points"].as_u64().unwrap() >= 5 && tuning["points"] == tuning["reached"], "{tuning:#}");
    assert!(tuning["wrong"].as_object().unwrap().is_empty() && tuning["rested"].as_f64().unwrap() > 0.5, "{tuning:#}");
    assert!(tuning["seconds"].as_f64().unwrap() < 60.0, "{tuning:#}");
    let changed = |row: &serde_json::Value| row["source"].as_str().unwrap().starts_with("faster than");
    assert!(tuning["rows"].as_array().unwrap().iter().any(changed), "{tuning:#}");
    assert_eq!(json["pack"]["kernels"], json["kernels"]);
    let (table, skipped) = Table::load(&bench.path("table")).unwrap();
    assert!(!table.is_empty() && skipped.is_empty());

    // Every M by the table, every kernel from the pack.
    let pack = || Pack::open(bench.path("pack")).unwrap();
    assert_eq!(pack().tuning().unwrap().unwrap(), table.to_string());
    let arch = Arch::H200;
    let picker = Picker::builder("NVIDIA H200", &arch).table(&table).build().unwrap();
    let cache = KernelCache::builder().toolchain(Toolchain::at(bench.path("nvrtc/libnvrtc.so.13")).unwrap());
    let cache = cache.no_disk().pack(pack()).build();
    cache.seal(Seal::Refuse);
    let (mut served, mut measured) = (HashSet::new(), 0);
    for m in ROWS.parse::<Rows>().unwrap().ranges().flatten() {
        let choice = picker.choose(&GEMM.parse().unwrap(), m).unwrap();
        measured += usize::from(choice.origin() == Origin::Tuned);
        let _ = cache.cubin(choice.spec()).unwrap();
        served.insert(choice.spec().name());
    }
    assert_eq!((cache.stats().compiles, served.len()), (0, pack().kernels().len()));
    assert!(measured > 100, "{measured}");

    // Other processes, with an NVRTC that has nothing in it and no disk; the pack says the rest.
    for line in ["warm-up @/manifest --table @/table --pack @/pack --json", "warm-up --pack @/pack --json"] {
        let (status, again, said) = run(line, false);
        assert_eq!(status, Some(0), "{line}: {said}");
        let tiers = again["warm"].as_array().unwrap();
        assert!(tiers.len() == served.len() && tiers.iter().all(|warm| warm["tier"] == "pack"), "{line}: {again:#}");
        assert!(said.contains("100000 sealed calls") && again["tuning"].is_null(), "{line}: {said}");
    }
    // Where there is nothing left to measure, nothing changes.
    let (status, again, said) = run("warm-up @/manifest --tune 0 --table @/table --json", true);
    assert_eq!((status, &again["tuning"]["decisions"]), (Some(0), &serde_json::json!([])), "{said}");
    assert_eq!(Table::load(&bench.path("table")).unwrap().0, table);
}

/// `tune` alone, within less time than it would need.
#[test]
fn what_was_not_reached_is_told() {
    if common::toolchain("what_was_not_reached_is_told").is_none() {
        return;
    }
    let bench = Bench::new();
    list(&bench, ROWS);
    let line = "tune --manifest @/manifest --within 12 --table @/other --html @/html --json";
    let (status, json, said) = run(&bench, line, true);
    assert!(status == Some(0) && json["reached"].as_u64().unwrap() > 0 && bench.path("html").exists(), "{said}");
    for unreached in json["unreached"].as_array().unwrap() {
        assert!(unreached["variant"].is_string() && unreached["why"].is_string(), "{unreached}");
    }
}

/// On a device whose kernels do nothing.
#[test]
fn what_is_wrong_is_neither_timed_nor_packed() {
    if common::toolchain("what_is_wrong_is_neither_timed_nor_packed").is_none() {
        return;
    }
    let bench = Bench::new();
    list(&bench, "1..=8");
    let line = "warm-up @/manifest --tune 20 --table @/table --pack @/pack --json";
    let output = bench.line(&(line.to_owned(), On::Device)).env_remove("WARPSMITH_NVRTC").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", told(&output).1);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let tuning = &json["tuning"];
    assert!(tuning["reached"] == 0 && tuning["wrong"].as_object().unwrap().len() > 1, "{tuning:#}");
    assert!(tuning["rows"].as_array().unwrap().iter().all(|row| row["measured_us"].is_null()), "{tuning:#}");
    assert!(!bench.path("pack").exists() && Table::load(&bench.path("table")).unwrap().0.is_empty());
    assert!(told(&output).1.contains("no pack is written"));

    // A layer's products, with rows as tokens choose experts.
    let layer = "moe.silu:bf16:h64:i64:softmax:e8:k2";
    let line = format!("tune --layer {layer} --tokens 1,40 --within 12 --table @/other --json");
    let output = bench.line(&(line, On::Device)).env_remove("WARPSMITH_NVRTC").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", told(&output).1);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert!(json["points"] == 4 && !rows.is_empty() && !json["wrong"].as_object().unwrap().is_empty(), "{json:#}");
    for row in rows {
        assert!(row["measured_us"].is_null() && [2, 80].contains(&row["m"].as_u64().unwrap()), "{row}");
        assert!(row["problem"].as_str().unwrap().contains(":top2"), "{row}");
    }
}

/// A whole model's layers are packed, and every number of tokens is served without one.
#[test]
fn a_manifest_of_layers_has_all_that_they_launch() {
    if common::toolchain("a_manifest_of_layers_has_all_that_they_launch").is_none() {
        return;
    }
    const LAYERS: &str = "moe.silu:bf16:h128:i64:softmax:e8:k2:renormalised,linear:bf16:n256:k128:e4m3";
    let bench = Bench::new();
    let run = |line: &str, compiles: bool| {
        let output = command(&bench, line, compiles).output().unwrap();
        let (status, said) = told(&output);
        assert_eq!(status, Some(0), "{line}: {said}");
        String::from_utf8(output.stdout).unwrap()
    };
    // Printed, written, and added to what is there.
    let printed = run(&format!("manifest --layer {LAYERS} --tokens 300"), false);
    list(&bench, "1");
    run(&format!("manifest @/manifest --layer {LAYERS} --tokens 300"), false);
    let manifest = Manifest::load(bench.path("manifest")).unwrap();
    let own = Manifest::new().with(&GEMM.parse().unwrap(), &"1".parse().unwrap());
    assert_eq!(manifest, own.and(&printed.parse().unwrap()));
    assert_eq!((manifest.problems().count(), manifest.routes().count(), manifest.combines().count()), (4, 2, 1));

    run("pack @/pack --manifest @/manifest --json", true);
    let pack = Pack::open(bench.path("pack")).unwrap();
    let kernels = pack.kernels().len();
    for small in ["route", "combine", "prepare", "quantise"] {
        assert!(pack.kernels().iter().any(|kernel| kernel.to_string().contains(small)), "{small}: {pack}");
    }
    let warm = run("warm-up --pack @/pack --arch h200 --calls 20000 --json", false);
    let warm: serde_json::Value = serde_json::from_str(&warm).unwrap();
    let warm = warm["warm"].as_array().unwrap();
    assert!(warm.len() == kernels && warm.iter().all(|warm| warm["tier"] == "pack"), "{warm:#?}");
}
