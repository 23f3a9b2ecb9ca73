//! Without a GPU: the report from sample data, and what becomes of a tuning in an imagined measurer.

use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

use clap::Parser;
use warpsmith::engine::{Manifest, Rows};
use warpsmith::internal::engine::KernelSet;
use warpsmith::internal::pick::heuristic::{predict, rank};
use warpsmith::pick::{self, Table};
use warpsmith::spec::{Activation, Arch, Problem, Spec};
use warpsmith_tune::{Admission, Budget, Clock, Footprint, Measure, Outcome, Rejection, Tuner, Turn, Verdict};

use super::report::{Candidate, Ceilings, Report, Row};
use super::tuning;
use super::whole::Session;
use super::{Args, again, record};
use crate::Options;
use crate::shared::layers;
use crate::shared::list::{Item, Part, list};
use crate::shared::page::reader;

fn candidate(variant: &str, predicted_us: Option<f64>, measured_us: Option<f64>) -> Candidate {
    Candidate { variant: variant.to_owned(), predicted_us, measured_us, refused: None }
}

fn row(problem: &str, m: u32, measured_us: Option<f64>) -> Row {
    let refused = Some("spills <64 B> & more".to_owned());
    Row {
        kind: "dual".to_owned(),
        problem: problem.to_owned(),
        m,
        variant: format!("chosen{m}"),
        source: "tuned".to_owned(),
        predicted_us: Some(11.0),
        measured_us,
        over_heuristic: measured_us.map(|_| 1.07),
        over_baseline: measured_us.map(|_| 6.5),
        spread: measured_us.map(|_| 0.01),
        bytes: 33e6,
        flop: 30e9 * f64::from(m) / 256.0,
        matrix_flop_per_s: 790e12,
        seconds: 2.5,
        rested: 0.5,
        candidates: vec![
            candidate(&format!("slow{m}"), Some(20.0), measured_us.map(|us| 2.0 * us)),
            candidate(&format!("chosen{m}"), Some(11.0), measured_us),
            Candidate { refused, ..candidate(&format!("bad{m}"), Some(9.0), None) },
        ],
    }
}

fn means(device: &str, arch: Arch) -> record::Means {
    record::Means { device: device.to_owned(), arch, driver: "13.0".to_owned(), nvrtc: "13.0.88".to_owned() }
}

fn sample() -> Report {
    let ceilings = Ceilings { memory_bytes_per_s: 4.3e12, matrix_flop_per_s: 790e12, measured: true };
    let rows = vec![
        row("dual<&>one", 1, Some(10.0)),
        row("dual<&>one", 256, Some(40.0)),
        row("other \"two\"", 64, Some(15.5)),
        row("nothing measured", 8, None),
    ];
    Report { machine: "device 0: <GPU> & co".to_owned(), lines: vec!["budget quick".to_owned()], ceilings, rows }
}

#[test]
fn the_page_has_every_row_and_needs_no_other() {
    let report = sample();
    let (charts, text) = reader::read(&report.page().unwrap().html().unwrap());
    // The roofline, and one of each problem that was measured.
    assert_eq!(charts, 1 + 2);
    for row in &report.rows {
        assert!(text.contains(&row.problem), "{}", row.problem);
        for candidate in &row.candidates {
            assert!(text.contains(&candidate.variant), "{}", candidate.variant);
        }
    }
    let expected = [
        "device 0: <GPU> & co",
        "spills <64 B> & more",
        "1.070×",
        "6.500×",
        "4.30 TB/s, 790 TFLOP/s",
        "M = 256: 3 kernels tried, 1 of them refused; predictions were off by a factor of",
        "M = 8: 3 kernels tried, 1 of them refused; no prediction beside a measurement.",
    ];
    for expected in expected {
        assert!(text.contains(expected), "{expected}");
    }
}

#[test]
fn a_whole_tuning_is_legible() {
    let names = ["wgmma.t64x128x128.s5.interleaved.ws3.shared.dsmem2", "mma.t128x64x64.s4.two_pass.uniform.direct"];
    let problem = |n: u32| format!("dual_gemm:silu:nvfp4*nvfp4>bf16:n{n}:k7168:groups8:prepared");
    let tried = |m: u32, index: u32| {
        let us = 6.0 + f64::from(m) * 0.11 + f64::from(index) * 0.7;
        let off = 0.6 + 0.9 * f64::from(index * 7 % 10) / 10.0;
        let refused = (index % 9 == 8).then(|| "232448 bytes of shared memory a block, 245760 asked for".to_owned());
        let measured = refused.is_none().then_some(us);
        let name = format!("{}.k{index}", names[index as usize % 2]);
        Candidate { refused, ..candidate(&name, Some(us * off), measured) }
    };
    let of = |n: u32, m: u32| Row {
        variant: format!("{}.k0", names[0]),
        source: format!("faster than {}", names[1]),
        candidates: (0..120).map(|index| tried(m, index)).collect(),
        ..row(&problem(n), m, Some(6.0 + f64::from(m) * 0.11))
    };
    let rows = [1024, 4096, 7168].iter().flat_map(|n| [1, 8, 16, 64, 256, 1024].map(|m| of(*n, m))).collect();
    let report = Report { machine: "NVIDIA H200, 132 SMs, driver CUDA 13.0".to_owned(), rows, ..sample() };
    let html = report.page().unwrap().html().unwrap();
    assert_eq!(reader::read(&html).0, 1 + 3);
    reader::assert_legible(&html);
    reader::assert_legible(&sample().page().unwrap().html().unwrap());
}

#[test]
fn shares_are_of_the_lower_ceiling() {
    let (_, text) = reader::read(&sample().page().unwrap().html().unwrap());
    // 33 MB in 10 µs of 4.3 TB/s, and 30 GFLOP in 40 µs of 790 TFLOP/s.
    assert!(text.contains("77 %") && text.contains("95 %"), "{text}");
}

/// Products of layers: the rows that tokens give, drawn as tokens choose experts.
#[test]
fn layers_are_tuned_at_the_rows_of_their_tokens() {
    let args = |line: &str| Options::<Args>::try_parse_from(line.split(' ')).map(|options| options.own);
    let items = |line: &str| {
        let args = args(line).unwrap();
        super::each(&layers::products(&args.layer, &args.tokens, &Arch::H200).unwrap()).unwrap()
    };
    let all = items("tune --layer qwen3-30b,linear:bf16:n5120:k2048 --layer llama-3.1-8b --tokens 1,32");
    let found: Vec<_> = all.iter().map(|item| (item.problem.to_string(), item.m())).collect();
    let expected = [
        ("dual_gemm.silu:bf16*nvfp4>bf16:n14336:k4096:prepared", [1, 32]),
        ("gemm:bf16*nvfp4>bf16:n4096:k14336:prepared", [1, 32]),
        ("gemm:bf16*nvfp4>bf16:n5120:k2048:prepared", [1, 32]),
        ("grouped128.dual_gemm.silu:bf16*nvfp4>bf16:n768:k2048:gathered:prepared:top8", [8, 256]),
        ("grouped128.gemm:bf16*nvfp4>bf16:n2048:k768:prepared:top8", [8, 256]),
    ];
    let expected: Vec<_> =
        expected.iter().flat_map(|(problem, rows)| rows.map(|m| ((*problem).to_owned(), m))).collect();
    assert_eq!(found, expected);
    for item in all.iter().filter(|item| item.problem.groups().is_some()) {
        let tokens = item.m() / 8;
        assert!(item.rows.len() == 128 && item.rows.iter().all(|rows| *rows <= tokens), "{:?}", item.rows);
        assert!(item.rows.iter().filter(|rows| **rows > 0).count() < item.m() as usize || tokens == 1);
    }
    assert_eq!(items("tune --layer mixtral-8x7b").len(), 2 * layers::TOKENS.len());
    assert!(args("tune --layer qwen3-30b --within 60 --table t").is_ok());
    for wrong in [
        "tune --layer qwen3",
        "tune --tokens 1",
        "tune --layer qwen3-30b --tokens 0",
        "tune --layer qwen3-30b --m 8",
        "tune --layer qwen3-30b --only dual",
        "tune --layer qwen3-30b --manifest m --within 6",
        "tune --layer qwen3-30b --within 6 --budget normal",
        "tune --layer qwen3-30b --within 6 --variant wgmma.t8x64x128.s6.single.ws2.direct",
        "tune --manifest m",
        "tune --within 6",
        "tune --again 2026-11-24",
        "tune --again yesterday --table t",
        "tune --again 2026-11-24 --table t --m 8",
        "tune --again 2026-11-24 --table t --layer qwen3-30b",
    ] {
        assert!(args(wrong).is_err(), "{wrong}");
    }
}

/// Of each problem those that are legal for it; one that is legal for none is refused.
#[test]
fn variants_that_are_named_are_tried() {
    let line = "tune --layer mlp.silu:bf16:h4096:i14336 --tokens 8,16 --variant wgmma.t8x64x128.s6.single.ws2.direct,\
                wgmma.t8x64x256.s6.interleaved.ws4.shared,wgmma.t8x64x256.s3.interleaved.ws4.shared";
    let args = |line: &str| Options::<Args>::try_parse_from(line.split(' ')).unwrap().own;
    let named = |args: &Args| {
        let products = layers::products(&args.layer, &args.tokens, &Arch::H200).unwrap();
        super::named(&args.variant, &super::each(&products).unwrap(), &Arch::H200)
    };
    let all = named(&args(line)).unwrap();
    let of = |operation: &str| {
        let of = all.iter().filter(|spec| spec.problem().to_string().starts_with(operation));
        of.map(|spec| spec.variant().to_string()).collect::<Vec<_>>()
    };
    let dual = ["wgmma.t8x64x256.s6.interleaved.ws4.shared", "wgmma.t8x64x256.s3.interleaved.ws4.shared"];
    assert_eq!(of("gemm"), ["wgmma.t8x64x128.s6.single.ws2.direct"; 2], "at two numbers of rows");
    assert_eq!(of("dual_gemm"), [dual[0], dual[0], dual[1], dual[1]]);
    let wrong = format!("{line},wgmma.t8x64x256.s40.interleaved.ws4.shared");
    let error = named(&args(&wrong)).unwrap_err().to_string();
    assert!(error.contains("stages") || error.contains("shared memory"), "{error}");

    let ranked = || rank(all[0].problem(), 8, &Arch::H200, 2);
    let predicted = ranked().iter().map(|ranked| ranked.spec).collect::<Vec<_>>();
    assert_eq!(tuning::ordered(ranked(), &all[..2]), [predicted[0], all[0], predicted[1]]);
}

#[test]
fn a_report_of_nothing_is_a_page() {
    let report = Report { rows: Vec::new(), ceilings: Ceilings::of(&Arch::H200), ..sample() };
    let (charts, text) = reader::read(&report.page().unwrap().html().unwrap());
    assert!(charts == 0 && text.contains("from the table of architectures: 4.30 TB/s"), "{text}");
}

#[test]
fn json_is_read_back() {
    let report = sample();
    let text = serde_json::to_string(&report).unwrap();
    let read: Report = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert_eq!(read.rows[1].candidates[2].refused, report.rows[1].candidates[2].refused);
}

/// A device on which the more stages a kernel has the faster it is, and a 128×64 tile is wrong.
struct Imagined;

impl Imagined {
    fn us(spec: &Spec) -> f64 {
        10.0 + 10.0 / f64::from(spec.variant().stages)
    }
}

impl Measure for Imagined {
    fn admit(&mut self, spec: &Spec) -> warpsmith::Result<Admission> {
        let tile = spec.variant().tile;
        Ok(match (tile.tokens, tile.columns) {
            (128, 64) => Admission::Refused(Rejection::Wrong("row 3 <is> off".to_owned())),
            _ => Admission::Passed { worst: 0.5 },
        })
    }

    fn screen(&mut self, spec: &Spec) -> warpsmith::Result<f64> {
        Ok(Self::us(spec))
    }

    fn duel(&mut self, incumbent: &Spec, challenger: &Spec, pairs: usize) -> warpsmith::Result<Vec<(f64, f64)>> {
        // Some noise, the same in both.
        let noise = |pair: usize| 1.0 + (pair * 7 % 11) as f64 * 1e-4;
        let times = |pair| (Self::us(incumbent) * noise(pair), Self::us(challenger) * noise(pair));
        Ok((0..pairs).map(times).collect())
    }
}

fn tuned(incumbent: &str) -> Outcome {
    let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168);
    let spec = |variant: &str| Spec::new(&problem, &variant.parse().unwrap(), &Arch::H200).unwrap();
    let candidates = ["mma.t64x64x64.s4.interleaved.uniform.direct", "mma.t128x64x64.s6.interleaved.uniform.direct"];
    let mut tuner = Tuner::new(Imagined, |_| Ok(Footprint::default())).budget(Budget::Quick);
    tuner.tune(&spec(incumbent), 64, candidates.map(spec)).unwrap()
}

#[test]
fn what_is_found_goes_into_table_and_report() {
    let outcome = tuned("mma.t64x64x64.s1.interleaved.uniform.direct");
    assert_eq!(outcome.verdict, Verdict::Changed, "{outcome}");
    let means = means("NVIDIA H200", Arch::H200);
    let entry = record::entry(&outcome, &outcome.problem, 33..=64, outcome.tried.len(), &means).unwrap().unwrap();
    assert_eq!((entry.m(), *entry.variant()), (33..=64, outcome.choice));
    let mut table = Table::new();
    assert!(table.insert(entry));
    let (read, skipped) = Table::parse(&table.to_string());
    assert_eq!((read.len(), skipped.len()), (1, 0), "{table}");
    let picker = pick::Picker::builder(&means.device, &means.arch).without_built_in().table(&read).build().unwrap();
    assert_eq!(*picker.choose(&outcome.problem, 40).unwrap().spec().variant(), outcome.choice);

    let row = record::row("dual", &outcome, &outcome.problem, &[outcome.m], &means.arch);
    assert_eq!((row.m, row.candidates.len()), (64, outcome.tried.len()));
    assert!(row.source.contains("faster than mma.t64x64x64.s1."), "{}", row.source);
    assert!(row.over_baseline.unwrap() >= 1.0 && row.predicted_us.unwrap() > 0.0);
    let ceilings = Ceilings::of(&means.arch);
    let report = Report { machine: means.machine(), ceilings, rows: vec![row], ..sample() };
    let (charts, text) = reader::read(&report.page().unwrap().html().unwrap());
    assert_eq!(charts, 2);
    for expected in
        ["NVIDIA H200, 132 SMs, driver CUDA 13.0", "row 3 <is> off", "1 of them refused", "table of architectures"]
    {
        assert!(text.contains(expected), "{expected}");
    }
    assert!(outcome.tried.iter().all(|tried| text.contains(&tried.variant.to_string())));
}

#[test]
fn nothing_found_is_nothing_saved() {
    let mut outcome = tuned("mma.t64x64x64.s1.interleaved.uniform.direct");
    outcome.verdict = Verdict::Inconclusive(warpsmith_tune::WhyInconclusive::Cancelled);
    let means = means("x", Arch::H200);
    assert!(record::entry(&outcome, &outcome.problem, 1..=64, 3, &means).unwrap().is_none());
    assert!(
        record::row("dual", &outcome, &outcome.problem, &[outcome.m], &means.arch).source.starts_with("inconclusive")
    );
}

#[test]
fn a_decision_reaches_down_to_the_next_smaller_m_or_three_quarters() {
    let others = [1, 16, 64, 256];
    let from = |m| record::from_rows(m, others.into_iter());
    assert_eq!([from(1), from(16), from(64), from(256)], [1, 12, 48, 192]);
    // Neighbours that are nearer than three quarters.
    assert_eq!(record::from_rows(256, [248, 256].into_iter()), 249);
    assert_eq!(record::from_rows(256, [256].into_iter()), 256);
}

/// A time that passes where it is rested, and with each tuning.
#[derive(Clone, Default)]
struct Time(Rc<Cell<Duration>>);

impl Clock for Time {
    fn now(&self) -> Duration {
        self.0.get()
    }

    fn rest(&self, time: Duration) {
        self.0.set(self.0.get() + time);
    }
}

/// A device on which what a kernel takes is off what is predicted by some share of its own, and some more at each M.
struct Random(Time, u32);

impl Random {
    fn us(&self, spec: &Spec) -> f64 {
        let off = |salt: u32| {
            let mut hasher = DefaultHasher::new();
            (spec, salt).hash(&mut hasher);
            hasher.finish() as f64 / u64::MAX as f64 - 0.5
        };
        predict(spec, spec.problem(), self.1).us * (1.0 + 0.3 * off(0) + 0.1 * off(self.1))
    }
}

impl Measure for Random {
    fn admit(&mut self, _: &Spec) -> warpsmith::Result<Admission> {
        self.0.rest(Duration::from_millis(40));
        Ok(Admission::Passed { worst: 0.5 })
    }

    fn screen(&mut self, spec: &Spec) -> warpsmith::Result<f64> {
        self.0.rest(Duration::from_millis(4));
        Ok(self.us(spec))
    }

    fn duel(&mut self, incumbent: &Spec, challenger: &Spec, pairs: usize) -> warpsmith::Result<Vec<(f64, f64)>> {
        self.0.rest(Duration::from_millis(30));
        Ok(vec![(self.us(incumbent), self.us(challenger)); pairs])
    }
}

#[test]
fn the_public_shapes_are_those_of_the_list() {
    let listed = list(&[Part::Dual, Part::Grouped], true)
        .unwrap()
        .iter()
        .fold(Manifest::new(), |manifest, item| manifest.with(&item.problem, &Rows::new(item.m()..=item.m()).unwrap()));
    assert_eq!(Manifest::parse(include_str!("../warm_up/public.toml")).unwrap(), listed);
}

/// Old decisions of this model of device, each at its most rows, and for the rows that it was for.
#[test]
fn decisions_of_before_a_day_are_taken_again() {
    let line = |device: &str, n: u32, rows: &str, date: &str| {
        format!(
            "{device} | 132 SMs | sm_90a | gemm:f16*nvfp4>f16:n{n}:k2048:prepared | m {rows} | wgmma.t64x64x128.s5.single.ws2.shared | \
             20.000 us | 7.000x baseline | 1.000x heuristic | spread 0.0100 | 13 candidates | driver 13.0 | NVRTC 13.0.88 | {date}\n"
        )
    };
    let text = [
        line("NVIDIA H200", 64, "33..=64", "2026-11-21"),
        line("NVIDIA H200", 64, "65..=96", "2026-11-24"),
        line("NVIDIA H200", 128, "97..=128", "2026-11-23"),
        line("NVIDIA H200", 128, "128..=128", "2026-11-22"),
        line("NVIDIA H100", 256, "1..=8", "2026-11-21"),
    ]
    .concat();
    let (table, skipped) = Table::parse(&text);
    assert!(skipped.is_empty() && table.len() == 5, "{skipped:?}");
    let means = means("NVIDIA H200", Arch::H200);
    let items = super::each(&again::taken_before("2026-11-24".parse().unwrap(), &table, &means).unwrap()).unwrap();
    let found: Vec<_> = items
        .iter()
        .map(|item| (item.problem.columns(), item.m(), again::rows(&item.problem, item.m(), &table, &means)))
        .collect();
    assert_eq!(found, [(128, 128, Some(97..=128)), (64, 64, Some(33..=64))]);
    assert_eq!(again::rows(&items[0].problem, 127, &table, &means), None);
}

/// The shapes of a large model, for as long as is stated: whatever was measured of it, its kernels stay few, the table is
/// read back, and what was not reached keeps its choice.
#[test]
fn a_manifest_is_tuned_within_its_time_and_stays_small() {
    let manifest = Manifest::parse(include_str!("../warm_up/moe.toml")).unwrap();
    let means = means("NVIDIA H100", Arch::H100);
    let picker = |table: &Table| pick::Picker::builder(&means.device, &means.arch).table(table).build().unwrap();
    let none = Table::new();
    for seconds in [0, 10, 60, 180, 2000] {
        let time = Time::default();
        let session = Session {
            manifest: &manifest,
            table: &none,
            means: &means,
            clock: &time,
            until: Duration::from_secs(seconds),
        };
        let mut kept = Table::new();
        let tune = &mut |item: &Item, incumbent: &Spec, kin: &[Spec], turn: Turn| {
            let mut tuner = Tuner::new(Random(time.clone(), item.m()), |_| Ok(Footprint::default()));
            tuner = tuner.budget(turn.budget).limit(turn.limit).clock(time.clone()).threads(1);
            let candidates = rank(&item.problem, item.m(), &means.arch, turn.budget.candidates());
            Ok(tuner.tune(incumbent, item.m(), tuning::ordered(candidates, kin))?)
        };
        let whole = session.run(tune, &mut |table| {
            kept = table.clone();
            Ok(())
        });
        let whole = whole.unwrap();
        assert!(time.now() <= Duration::from_secs(seconds) + Duration::from_millis(100), "{seconds}: {:?}", time.now());
        let text = whole.table.to_string();
        assert_eq!((&kept, Table::parse(&text).0.to_string()), (&whole.table, text));
        let (before, after) = (picker(&none), picker(&whole.table));
        let set = KernelSet::new(&after, &manifest);
        println!(
            "{seconds} s: {} of {} reached, {} lines, {} left out, {} kernels",
            whole.reached,
            whole.points,
            whole.table.len(),
            whole.left_out.len(),
            set.len()
        );
        assert!(set.len() <= 60 && set.refused().is_empty(), "{} kernels", set.len());
        assert!(whole.wrong.is_empty() && after.ignored().is_empty());
        match seconds {
            0 => assert!(whole.table.is_empty() && whole.unreached.len() == whole.points),
            2000 => assert!(whole.reached == whole.points && whole.table.len() > whole.points / 2),
            _ => assert!((1..whole.points).contains(&whole.reached) || seconds > 60),
        }
        // What was not reached is what it was, or a kernel that is there anyway.
        for unreached in &whole.unreached {
            let (problem, (first, last)) =
                (unreached.problem.parse().unwrap(), unreached.rows.split_once("..=").unwrap());
            for m in [first, last].map(|m| m.parse().unwrap()) {
                assert_eq!(before.choose(&problem, m).unwrap().spec().variant().to_string(), unreached.variant);
                let now = after.choose(&problem, m).unwrap();
                assert!(set.specs().any(|spec| spec == now.spec()), "{problem} at {m}");
            }
        }
    }
}
