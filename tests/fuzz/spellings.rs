//! What is spelled: read or refused, in time; what is read is written as it was spelled, and reads back.

use std::fmt::Display;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use warpsmith::Error;
use warpsmith::cache::{Seal, Tier};
use warpsmith::engine::{Manifest, OnMiss, Recorder, Rows};
use warpsmith::format::{Format, PreparedLayout, ScaleLayout};
use warpsmith::internal::pick::rules::Rule;
use warpsmith::internal::pick::{Entry, heuristic};
use warpsmith::internal::spec::{Epilogue, Fusion, Tile, Warps, baseline, deepest, space};
use warpsmith::pick::{self, Origin, Picker, Policy, Table};
use warpsmith::spec::{Activation, Arch, MatrixPath, Numerics, Problem, Spec, Variant};
use warpsmith_tune::{Budget, Setup, even_rows};

use warpsmith_testing::fuzz::{run, within};
use warpsmith_testing::mutate::mutate;

/// What an input may take beside what it takes for each of its bytes: on a machine that others use, too.
const BESIDE: Duration = Duration::from_millis(50);
const EACH: Duration = Duration::from_micros(5);
/// Bytes of memory, likewise.
const HELD_BESIDE: usize = 64 << 10;
const HELD_EACH: usize = 400;

const PROBLEMS: [&str; 9] = [
    "gemm:f16*nvfp4>f16:n64:k64",
    "dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared",
    "grouped8.dual_gemm.gelu_tanh:nvfp4*nvfp4>bf16:n2048:k7168:sf128x4:prepared:m512",
    "grouped1024.gemm:bf16*bf16>f32:n1048576:k1048576:m16777216",
    "dual_gemm.none:nvfp4*nvfp4>f16:n16:k64",
    "grouped4294967295.gemm:f32*f32>nvfp4:n4294967295:k4294967295:m4294967295",
    "gemm:f16*f16>f16:n0:k0:m0",
    "gemm.relu2:f16*nvfp4>f16:n64:k64",
    "grouped8.dual_gemm.silu_clamp10:f16*nvfp4>f16:n64:k64:prepared",
];

const VARIANTS: [&str; 7] = [
    "mma.t64x128x64.s3.interleaved.uniform.direct.k2",
    "mma.t128x128x64.s1.two_pass.uniform.direct",
    "wgmma.t128x64x128.s4.interleaved.ws2.shared.dsmem2",
    "wgmma.t128x64x128.s4.interleaved.ws2.tma.persistent.prepass",
    "wgmma.t16x64x256.s8.single.ws4.shared.multicast4",
    "wgmma.t64x64x128.s6.ping_pong.ws2.direct.persistent",
    "mma.t4294967295x4294967295x4294967295.s4294967295.sequential.ws4294967295.tma.k4294967295.multicast4294967295",
];

const LINE: &str = "NVIDIA H200 | 132 SMs | sm_90a | dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared | m 33..=64 | \
                    wgmma.t64x64x128.s5.interleaved.ws2.shared | 20.113 us | 7.312x baseline | 1.021x heuristic | \
                    spread 0.0081 | 412 candidates | driver 13.0 | NVRTC 13.0.88 | 2026-11-22";

const MANIFEST: &str = r#"version = 1

[problems]
# experts
"grouped32.dual_gemm.silu:bf16*nvfp4>bf16:n2048:k7168:prepared" = "1..=8192"
"gemm:bf16*nvfp4>bf16:n7168:k2048:prepared" = ["1..=256", 4096, [7, "9..=10, 12"]]
"gemm:bf16*nvfp4>bf16:n7168:k2048:prepared:m9" = 16777216
"#;

/// What numbers break at, and what is nearly one.
const NUMBERS: [&str; 24] = [
    "0",
    "1",
    "01",
    "+1",
    "-1",
    "15",
    "16",
    "17",
    "63",
    "64",
    "1023",
    "1024",
    "1025",
    "1048576",
    "1048577",
    "16777216",
    "16777217",
    "2147483648",
    "4294967295",
    "4294967296",
    "18446744073709551616",
    "1e400",
    "NaN",
    "\u{ff11}",
];

/// One of `texts`, changed: somewhere, in a number, by a part of another, or not at all.
fn changed(rng: &mut SmallRng, texts: &[&str]) -> String {
    let mut text = (*texts.choose(rng).unwrap()).to_owned();
    for _ in 0..rng.random_range(0..4) {
        match rng.random_range(0..4) {
            0 => {
                let mut bytes = text.into_bytes();
                mutate(rng, &mut bytes);
                text = String::from_utf8_lossy(&bytes).into_owned();
            }
            1 | 2 => text = with_number(rng, &text),
            _ => text = spliced(rng, &text, texts),
        }
    }
    text
}

/// With another number in place of one of its own.
fn with_number(rng: &mut SmallRng, text: &str) -> String {
    let starts: Vec<usize> = text
        .match_indices(|c: char| c.is_ascii_digit())
        .map(|(at, _)| at)
        .filter(|at| !text[..*at].ends_with(|c: char| c.is_ascii_digit()))
        .collect();
    let Some(start) = starts.choose(rng).copied() else { return text.to_owned() };
    let length = text[start..].find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len() - start);
    let number = match rng.random_range(0..3) {
        0 => rng.random::<u32>().to_string(),
        1 => (64 * rng.random_range(1..200)).to_string(),
        _ => (*NUMBERS.choose(rng).unwrap()).to_owned(),
    };
    format!("{}{number}{}", &text[..start], &text[start + length..])
}

/// Its beginning and another's end, cut where parts begin.
fn spliced(rng: &mut SmallRng, text: &str, texts: &[&str]) -> String {
    let cut = |rng: &mut SmallRng, text: &str| {
        let is_between = |c: char| !c.is_ascii_alphanumeric();
        let cuts: Vec<usize> = text.match_indices(is_between).map(|(at, _)| at).chain([0, text.len()]).collect();
        *cuts.choose(rng).unwrap()
    };
    let other = texts.choose(rng).unwrap();
    let (head, tail) = (cut(rng, text), cut(rng, other));
    format!("{}{}", &text[..head], &other[tail..])
}

/// What reading `text` gives, in time and memory that its length allows.
fn timely<T>(text: &str, read: impl Fn(&str) -> T) -> T {
    let allowed = BESIDE + EACH * u32::try_from(text.len()).unwrap();
    let mut best = Duration::MAX;
    // Others use the machine, too: what is slow by itself is slow each time.
    for _ in 0..5 {
        let start = Instant::now();
        let read = within(HELD_BESIDE + HELD_EACH * text.len(), || read(text));
        best = best.min(start.elapsed());
        if best <= allowed {
            return read;
        }
    }
    panic!("{best:?} for {} bytes: {}", text.len(), text.chars().take(200).collect::<String>());
}

/// What is read is written as it was spelled; a refusal has a sentence.
fn exact<T: FromStr<Err = Error> + Display + PartialEq + std::fmt::Debug>(text: &str) -> Option<T> {
    match timely(text, str::parse::<T>) {
        Ok(value) => {
            assert_eq!(value.to_string(), text);
            Some(value)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// What is read is read back from what is written.
fn lasting<T: FromStr<Err = Error> + Display + PartialEq + std::fmt::Debug>(text: &str) -> Option<T> {
    let value = timely(text, str::parse::<T>).ok()?;
    let written = value.to_string();
    let again = exact::<T>(&written);
    assert_eq!(again.as_ref(), Some(&value), "{text:?} is written as {written:?}");
    again
}

#[test]
fn problems_and_variants() {
    let picker = Picker::new("NVIDIA H200", &Arch::H200);
    run("problems and variants", |rng| {
        let problem = exact::<Problem>(&changed(rng, &PROBLEMS));
        if let Some(problem) = &problem {
            let m = if rng.random() { rng.random() } else { NUMBERS.choose(rng).unwrap().parse().unwrap_or(0) };
            refused_everywhere(problem, m, &picker);
        }
        let problem = problem.unwrap_or_else(|| PROBLEMS.choose(rng).unwrap().parse().unwrap());
        if let Some(variant) = exact::<Variant>(&changed(rng, &VARIANTS)) {
            let arch = Arch::ALL.choose(rng).unwrap();
            let m = rng.random();
            let deepest = deepest(&problem, &variant, arch, &|_| true);
            for spec in Spec::new(&problem, &variant, arch).into_iter().chain(deepest) {
                assert!(problem.check().is_ok());
                let _ = (spec.fits_grid(m), spec.workspace_bytes(m), spec.passes(m).count(), spec.symbol());
                assert!(!heuristic::predict(&spec, &problem, m).us.is_nan());
                lasting::<Numerics>(&spec.numerics().to_string()).unwrap();
            }
        }
    });
}

/// What is not legal has one refusal, whoever is asked, and nothing is computed before.
fn refused_everywhere(problem: &Problem, m: u32, picker: &Picker) {
    assert!(problem.bytes(m.into()) >= 0.0 && problem.flop(m.into()) >= 0.0);
    let (_, _) = (problem.prepared_layout(), Setup::new(problem, m));
    let recorder = Recorder::new();
    recorder.note(problem, m);
    let manifest = recorder.manifest();
    assert_eq!(manifest.to_string().parse::<Manifest>().unwrap(), manifest);
    let Err(refusal) = problem.check_for(m) else {
        assert_eq!(even_rows(problem, m).unwrap().iter().map(|rows| u64::from(*rows)).sum::<u64>(), u64::from(m));
        assert!(manifest.rows(problem).is_some_and(|rows| rows.contains(m)));
        return;
    };
    assert!(refusal.is_unsupported() && manifest == Manifest::new());
    let refused = [
        pick::choose(problem, m, &Arch::H200).err(),
        picker.choose(problem, m).err(),
        picker.explain(problem, m).err(),
        even_rows(problem, m).err(),
    ];
    for error in refused {
        assert_eq!(error.map(|error| error.to_string()), Some(refusal.to_string()));
    }
    assert!(heuristic::rank(problem, m, &Arch::H200, usize::MAX).is_empty());
    assert!(Rule::ALL.iter().all(|rule| rule.choose(problem, m, &Arch::H200).is_none()));
}

#[test]
fn words_and_small_spellings() {
    let mut texts: Vec<String> = Vec::new();
    fn all<T: Display>(values: &[T]) -> impl Iterator<Item = String> + '_ {
        values.iter().map(ToString::to_string)
    }
    texts.extend(all(Arch::ALL).chain(all(&Format::ALL[..])).chain(all(Activation::ALL)).chain(all(MatrixPath::ALL)));
    texts.extend(all(Fusion::ALL).chain(all(Epilogue::ALL)).chain(all(OnMiss::ALL)).chain(all(Seal::ALL)));
    texts.extend(all(Policy::ALL).chain(all(Tier::ALL)).chain(all(Origin::ALL)));
    texts.extend(["linear", "128x4", "t64x128x64", "uniform", "ws4", "quick", "exhaustive"].map(str::to_owned));
    texts.extend(["prepared1.dual.f16:g8:n4096:k7168", "prepared1.single.bf16:g1:n16:k64"].map(str::to_owned));
    for problem in ["gemm:f16*f16>f16:n4096:k4096", "dual_gemm.silu:nvfp4*nvfp4>f16:n4096:k7168:prepared"] {
        let problem: Problem = problem.parse().unwrap();
        texts.extend(space(&problem, &Arch::H200).step_by(401).map(|spec| spec.numerics().to_string()));
        texts.push(Spec::new(&problem, &baseline(&problem), &Arch::H200).unwrap().numerics().to_string());
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    run("words and small spellings", |rng| {
        let text = changed(rng, &texts);
        let read = [
            exact::<Arch>(&text).is_some(),
            exact::<Format>(&text).is_some(),
            exact::<ScaleLayout>(&text).is_some(),
            exact::<Activation>(&text).is_some(),
            exact::<MatrixPath>(&text).is_some(),
            exact::<Fusion>(&text).is_some(),
            exact::<Epilogue>(&text).is_some(),
            exact::<Tile>(&text).is_some(),
            exact::<Warps>(&text).is_some(),
            exact::<OnMiss>(&text).is_some(),
            exact::<Seal>(&text).is_some(),
            exact::<Policy>(&text).is_some(),
            exact::<Tier>(&text).is_some(),
            exact::<Origin>(&text).is_some(),
            exact::<Budget>(&text).is_some(),
            exact::<PreparedLayout>(&text).is_some(),
            lasting::<Numerics>(&text).is_some(),
        ];
        assert!(read.contains(&true) || !texts.contains(&text.as_str()), "`{text}` is read by nobody");
    });
}

#[test]
fn lines_and_tables() {
    let built_in = Table::built_in().to_string();
    let lines: Vec<&str> = built_in.lines().step_by(17).chain([LINE, "# a comment"]).collect();
    run("lines and tables", |rng| {
        let line = changed(rng, &lines);
        lasting::<Entry>(&line);
        let some = rng.random_range(0..8);
        let text: Vec<String> = (0..some).map(|_| changed(rng, &lines)).collect();
        let text = text.join(if rng.random_range(0..9) == 0 { "\r\n" } else { "\n" });
        let (table, skipped) = timely(&text, Table::parse);
        assert!(table.len() + skipped.len() <= text.lines().count());
        let (again, skipped) = Table::parse(&table.to_string());
        assert!(again.entries().eq(table.entries()) && skipped.is_empty(), "{text:?}");
        assert_eq!(again.to_string(), table.to_string());
        // What is not legal is not followed.
        if rng.random_range(0..50) == 0 {
            let picker = Picker::builder("NVIDIA H200", &Arch::H200).without_built_in().table(&table).build().unwrap();
            assert!(picker.ignored().len() <= table.len());
        }
    });
}

#[test]
fn manifests_and_rows() {
    const ROWS: [&str; 4] = ["1..=64, 32..=128, 4096", "7", "16777216", "1..=1,3..=3,2"];
    let lines: Vec<&str> = MANIFEST.lines().collect();
    run("manifests and rows", |rng| {
        lasting::<Rows>(&changed(rng, &ROWS));
        let text = if rng.random() {
            changed(rng, &[MANIFEST])
        } else {
            let lines: Vec<String> = lines.iter().map(|line| changed(rng, &[line])).collect();
            lines.join("\n")
        };
        lasting::<Manifest>(&text);
    });
}

/// A hundred thousand of whatever can come often: time and memory grow no faster.
#[test]
fn long_texts_take_no_longer() {
    const TIMES: usize = 100_000;
    run("long texts", |rng| {
        let ranges = |rng: &mut SmallRng, between: &str, quote: &str| {
            let step = rng.random_range(1..100);
            let one =
                |at: usize| format!("{quote}{}..={}{quote}", 1 + at * step, 1 + at * step + rng.random_range(0..3));
            (0..TIMES).map(one).collect::<Vec<_>>().join(between)
        };
        const ONE: &str = "version = 1\n[problems]\n\"gemm:f16*nvfp4>f16:n64:k64\" = ";
        match rng.random_range(0..6) {
            0 => drop(lasting::<Rows>(&ranges(rng, ",", "")).unwrap()),
            1 => drop(lasting::<Manifest>(&format!("{ONE}\"{}\"\n", ranges(rng, ", ", ""))).unwrap()),
            2 => drop(lasting::<Manifest>(&format!("{ONE}[{}]\n", ranges(rng, ", ", "\""))).unwrap()),
            3 => {
                let part = PROBLEMS.choose(rng).unwrap().split(':').next().unwrap();
                assert!(exact::<Problem>(&format!("{}:", part).repeat(TIMES)).is_none());
            }
            4 => assert!(exact::<Variant>(&VARIANTS.choose(rng).unwrap().repeat(TIMES / 10)).is_none()),
            _ => assert_eq!(timely(&format!("{LINE}\n").repeat(TIMES / 100), Table::parse).0.len(), 1),
        }
    });
}
