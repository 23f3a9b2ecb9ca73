//! Without a GPU: which kernels are compared, what the rules make of the numbers, and the report.

use std::time::Instant;

use clap::Parser;
use warpsmith::cache::KernelCache;
use warpsmith::format::Format;
use warpsmith::internal::build::Source;
use warpsmith::internal::spec::{Epilogue, Fusion, Warps, baseline};
use warpsmith::pick::{self, Picker};
use warpsmith::spec::{Activation, Arch, Problem, Spec};

use warpsmith_testing::{self as common, Renders};

use super::experiment::Fault;
use super::nearest::{Pair, Shape};
use super::proposals::{Control, GROUNDS, Ground, PROPOSALS, Value};
use super::report::{CaseLine, Cell, GroundReport, Measured, ProposalReport, Report, Resources, ValueReport};
use super::verdict::{Against, Decision};
use super::*;
use crate::Options;
use crate::shared;
use crate::shared::page::reader;

fn dual(n: u32, k: u32) -> Problem {
    Problem::dual_gemm(Activation::Silu).a(Format::Nvfp4).n(n).k(k)
}

/// The problems of the debate on both matrix paths, with rows and architecture.
fn problems() -> Vec<(Problem, u32, Arch)> {
    let on = |arch: Arch, prepared| {
        let cases = cases::cases(Format::Nvfp4, prepared).unwrap().into_iter();
        cases.map(move |case| (case.problem, case.m(), arch))
    };
    on(Arch::H200, true).chain(on(Arch::H200, false)).chain(on(Arch::L40S, false)).collect()
}

#[test]
fn cases_are_those_of_the_benchmark() {
    let cases = cases::cases(Format::Nvfp4, true).unwrap();
    let labels: Vec<&str> = cases.iter().map(|case| case.label.as_str()).collect();
    assert_eq!(labels[..4], ["256·4096·7168", "512·4096·7168", "256·3072·4096", "512·3072·7168"]);
    assert_eq!(labels[4..8], ["8:1024·4096·7168", "8:1024·7168·2048", "2:512·3072·4096", "2:512·4096·1536"]);
    assert_eq!(labels[4..8], labels[8..]);
    assert!(cases.iter().all(|case| case.problem.a_format() == Format::Nvfp4 && case.problem.is_prepared()));
    let small = cases::own(&[dual(64, 64)], |problem| shared::rows(problem, &[8])).unwrap();
    small[0].operands().check().unwrap();
}

fn start(problem: &Problem, m: u32, arch: &Arch, ground: Ground) -> Spec {
    match ground {
        Ground::Pick => *pick::choose(problem, m, arch).unwrap().spec(),
        Ground::Baseline | Ground::Stack => Spec::new(problem, &baseline(problem), arch).unwrap(),
    }
}

/// Whether a kernel has the value that was asked for.
fn has(spec: &Spec, value: Value) -> bool {
    let variant = spec.variant();
    match value {
        Value::Stages(stages) => variant.stages == stages,
        Value::Tile(tokens, columns) => (variant.tile.tokens, variant.tile.columns) == (tokens, columns),
        Value::Uniform => variant.warps == Warps::Uniform,
        Value::Specialised(_) => variant.warps != Warps::Uniform,
        Value::Fusion(fusion) => variant.fusion == fusion,
        Value::Epilogue(epilogue) => variant.epilogue == epilogue,
        Value::Own => true,
    }
}

#[test]
fn pairs_have_what_was_asked_for_and_differ_in_it() {
    let (start_time, mut pairs) = (Instant::now(), 0);
    for (problem, m, arch) in problems() {
        for (ground, proposal) in GROUNDS.iter().flat_map(|ground| PROPOSALS.iter().map(move |of| (*ground, of))) {
            let shape = Shape::of(&start(&problem, m, &arch, ground));
            let own = (ground == Ground::Pick).then_some(&Value::Own);
            for value in proposal.to.iter().chain(own) {
                let pair = nearest::pair(&problem, &arch, &shape, (proposal.from, *value), proposal.control);
                let Ok(Pair { control, changed }) = pair else { continue };
                pairs += 1;
                assert!(has(&control, proposal.from), "{ground:?} {}: control {control}", proposal.name);
                assert!(has(&changed, *value), "{ground:?} {} {value}: {changed}", proposal.name);
                assert!(control != changed || *value == Value::Own, "{ground:?} {} {value}", proposal.name);
                if proposal.control == Control::Same {
                    let (mut like, of) = (*control.variant(), changed.variant());
                    (like.stages, like.warps, like.epilogue) = (of.stages, of.warps, of.epilogue);
                    assert_eq!(like, *of, "{ground:?} {} {value}: more than one axis differs", proposal.name);
                }
            }
        }
    }
    eprintln!("{pairs} pairs in {:.1} s", start_time.elapsed().as_secs_f64());
    assert!(pairs > 900, "{pairs}");
}

#[test]
fn a_legal_wish_is_granted_as_it_is() {
    let problem = dual(4096, 7168).prepared();
    let base = start(&problem, 256, &Arch::H200, Ground::Baseline);
    let pair = |from, to, control| nearest::pair(&problem, &Arch::H200, &Shape::of(&base), (from, to), control);

    let stages = pair(Value::Stages(1), Value::Stages(3), Control::Same).unwrap();
    assert_eq!(stages.control, base);
    assert_eq!(stages.changed.variant().to_string(), base.variant().to_string().replace("s1", "s3"));

    // Partial sums leave by registers: the nearest kernel with bulk stores is fused, and so is what it is compared with.
    let (direct, tma) = (Value::Epilogue(Epilogue::Direct), Value::Epilogue(Epilogue::Tma));
    let stores = pair(direct, tma, Control::Same).unwrap();
    assert_eq!(
        (stores.control.variant().fusion, stores.changed.variant().fusion),
        (Fusion::Sequential, Fusion::Sequential)
    );

    // Ping-pong is persistent; two passes stay what they are.
    let (two_pass, ping_pong) = (Value::Fusion(Fusion::TwoPass), Value::Fusion(Fusion::PingPong));
    let fused = pair(two_pass, ping_pong, Control::Before).unwrap();
    assert_eq!(fused.control, base);
    assert!(fused.changed.variant().persistent);

    let wide = pair(Value::Tile(128, 128), Value::Tile(128, 256), Control::Before).unwrap_err();
    assert!(wide.to_string().contains("256"), "{wide}");
}

fn resources(shared_per_sm: u32) -> Resources {
    let (registers, threads) = (128, 256);
    Resources {
        registers,
        spill_bytes: Some(0),
        threads,
        shared: shared_per_sm,
        blocks_per_sm: 1,
        registers_per_sm: registers * threads,
        shared_per_sm,
        occupancy_percent: 12.5,
    }
}

fn measured(speed_up: f64, shared_per_sm: u32) -> Cell {
    let (us, control_us) = (10.0, 10.0 * speed_up);
    Cell::Measured(Measured {
        variant: "a<b>&c".to_owned(),
        us,
        control: "t\"d\"".to_owned(),
        control_us,
        speed_up,
        low: speed_up,
        high: speed_up,
        worst: 0.5,
        resources: Some(resources(shared_per_sm)),
    })
}

#[test]
fn the_rules_decide() {
    let small = 100 * 1024;
    let decide = |cells: &[Cell]| {
        let of_kinds: Vec<_> = cells.iter().map(|cell| ("dual", cell)).collect();
        verdict::summary(&of_kinds, Some((1.5, 1.8)), true)
    };
    let by = |cells: &[Cell]| decide(cells).decision;
    assert_eq!(by(&[measured(1.4, small), measured(1.4001, small)]), Some(Decision::Keep));
    assert_eq!(by(&[measured(1.35, small)]), Some(Decision::Judge));
    assert_eq!(by(&[measured(proposals::WORTH_STACKING, small)]), Some(Decision::Revert));
    assert_eq!(by(&[measured(1.29, small)]), Some(Decision::Revert));
    assert_eq!(by(&[measured(2.0, small), measured(2.0, 200 * 1024)]), Some(Decision::Revert));
    let wrong = || Cell::Wrong { variant: "x".to_owned(), why: "y".to_owned() };
    let failed = || Cell::Failed { variant: "x".to_owned(), why: "y".to_owned() };
    let refused = || Cell::Refused { limit: "z".to_owned() };
    for other in [wrong(), failed(), refused()] {
        let found = decide(&[measured(3.0, small), other]);
        assert_eq!((found.decision, found.speed_up, found.against_claim), (Some(Decision::Revert), None, None));
        assert!((found.by_kind["dual"] - 3.0).abs() < 1e-12);
    }
    // A problem without the axis does not count.
    let found = decide(&[measured(1.0, small), measured(4.0, small), Cell::NotApplicable]);
    assert!((found.speed_up.unwrap() - 2.0).abs() < 1e-12);
    assert_eq!((found.cases, found.against_claim), (2, Some(Against::Above)));
    assert_eq!(decide(&[measured(1.5, small)]).against_claim, Some(Against::Within));
    assert_eq!(decide(&[measured(1.49, small)]).against_claim, Some(Against::Below));
    // Without a device nothing is decided.
    let built = Cell::Built { variant: "x".to_owned(), control: "y".to_owned(), resources: Some(resources(small)) };
    let found = verdict::summary(&[("dual", &built)], None, false);
    assert_eq!((found.decision, found.speed_up, found.right), (None, None, 1));
}

/// A report with a cell of every kind and texts that must be escaped.
fn sample() -> Report {
    let value = |name: &str, cells: Vec<Cell>| {
        let kinds: Vec<_> = ["dual", "grouped"].into_iter().zip(&cells).collect();
        let summary = verdict::summary(&kinds, Some((1.5, 1.8)), true);
        ValueReport { value: name.to_owned(), summary, cells }
    };
    let wrong = Cell::Wrong { variant: "broken".to_owned(), why: "NaN <at> row 3 & 4".to_owned() };
    let failed = Cell::Failed { variant: "missing".to_owned(), why: "no compiler".to_owned() };
    let refused = Cell::Refused { limit: "not < legal".to_owned() };
    let values = vec![
        value("2", vec![measured(1.6, 4096), measured(1.7, 4096)]),
        value("3", vec![wrong, refused]),
        value("5", vec![failed, Cell::NotApplicable]),
        value("4", vec![measured(0.7, 4096), Cell::NotApplicable]),
    ];
    let case = |kind: &str| CaseLine {
        kind: kind.to_owned(),
        label: "1·2·3".to_owned(),
        problem: format!("{kind}<problem>"),
        rows: vec![1],
    };
    let proposal = ProposalReport { proposal: "stages", claim: Some((1.5, 1.8)), from: "1".to_owned(), values };
    let (ground, meaning) = (Ground::Baseline.name(), Ground::Baseline.meaning());
    Report {
        machine: "device <0> & more".to_owned(),
        measured: true,
        dependent: false,
        turns: 15,
        cases: vec![case("dual"), case("grouped")],
        grounds: vec![GroundReport { ground, meaning, proposals: vec![proposal] }],
    }
}

#[test]
fn the_page_is_whole_and_needs_no_other() {
    let report = sample();
    let html = document::page(&report).unwrap().html().unwrap();
    let (charts, text) = reader::read(&html);
    assert_eq!(charts, 1);
    for expected in ["device <0> & more", "a<b>&c", "t\"d\"", "NaN <at> row 3 & 4", "not < legal", "1.600×", "0.700×"]
    {
        assert!(text.contains(expected), "{expected}");
    }
    // Two values that were measured everywhere, on one ground: two bars; their key is outside the chart.
    assert_eq!((html.matches("fill=\"#0072B2\"").count(), html.matches("color: #0072B2").count()), (2, 1));
    reader::assert_legible(&html);
}

/// As many rows and as long names as a whole study has.
fn large() -> Report {
    let of_debate = cases::cases(Format::Nvfp4, true).unwrap();
    let case = |case: &Case| CaseLine {
        kind: case.kind.clone(),
        label: case.label.clone(),
        problem: case.problem.to_string(),
        rows: case.rows.clone(),
    };
    let cell = |speed_up: f64| match measured(speed_up, 196_608) {
        Cell::Measured(found) => Cell::Measured(Measured {
            variant: "wgmma.t64x128x128.s5.interleaved.ws3.shared.dsmem2".to_owned(),
            control: "wgmma.t128x256x64.s3.two_pass.ws2.shared.bulk.persistent".to_owned(),
            ..found
        }),
        cell => cell,
    };
    let value = |place: usize, value: String, claim| {
        let cells = (0..of_debate.len()).map(|case| match (place, case) {
            (2, 3) => Cell::Refused { limit: "232448 bytes of shared memory a block, 245760 asked for".to_owned() },
            (3, 5) => {
                Cell::Wrong { variant: "wgmma.t64x64x128.s2".to_owned(), why: "row 3, column 17: NaN".to_owned() }
            }
            _ => cell(0.93 + 0.31 * place as f64 + 0.02 * case as f64),
        });
        let cells: Vec<Cell> = cells.collect();
        let kinds: Vec<_> = of_debate.iter().map(|case| case.kind.as_str()).zip(&cells).collect();
        let summary = verdict::summary(&kinds, claim, true);
        ValueReport { value, summary, cells }
    };
    let proposals = || {
        let of = PROPOSALS.iter().map(|proposal| {
            let values = proposal.to.iter().map(Value::to_string).chain(["as picked".to_owned()]);
            let values = values.enumerate().map(|(place, name)| value(place, name, proposal.claim)).collect();
            let (claim, from) = (proposal.claim, proposal.from.to_string());
            ProposalReport { proposal: proposal.name, claim, from, values }
        });
        of.collect()
    };
    let ground =
        |ground: &Ground| GroundReport { ground: ground.name(), meaning: ground.meaning(), proposals: proposals() };
    Report {
        machine: "NVIDIA H200, 132 SMs, driver CUDA 13.0".to_owned(),
        cases: of_debate.iter().map(case).collect(),
        grounds: GROUNDS.iter().map(ground).collect(),
        ..sample()
    }
}

#[test]
fn a_whole_study_is_legible() {
    let html = document::page(&large()).unwrap().html().unwrap();
    let (charts, text) = reader::read(&html);
    assert_eq!(charts, PROPOSALS.len());
    assert!(text.contains("wgmma.t64x128x128.s5.interleaved.ws3.shared.dsmem2"));
    reader::assert_legible(&html);
}

#[test]
fn text_and_json_say_the_same() {
    let report = sample();
    let proposal = &report.grounds[0].proposals[0];
    let lines = show::proposal("alone", proposal, 2).join("\n") + &show::notes(proposal).join("\n");
    for expected in
        ["1.50–1.80× promised", "keep: at least 1.4×; as promised", "WRONG", " FAIL ", "not legal: not < legal"]
    {
        assert!(lines.contains(expected), "{expected} in\n{lines}");
    }
    assert!(show::overview(&report).join("\n").contains("1.65× (2, keep)"));
    assert!(show::promise(Some((1.12, 1.15))).contains("even if"));
    let json = serde_json::to_value(&report).unwrap();
    let value = &json["grounds"][0]["proposals"][0]["values"][0];
    assert_eq!(
        (value["summary"]["decision"].as_str(), value["cells"][0]["outcome"].as_str()),
        (Some("keep"), Some("measured"))
    );
    assert_eq!(value["cells"][0]["resources"]["registers"], 128);
    assert!(show::rules().contains("200 KiB") && show::cases(&report).len() == 2 && show::letter(26) == "27");
}

#[test]
fn the_command_line_is_read() {
    let args = |line: &str| Options::<Args>::try_parse_from(line.split(' ')).map(|options| options.own);
    let plain = args("study").unwrap();
    assert_eq!((plain.tokens, plain.turns, plain.device, plain.arch), (Format::Nvfp4, 15, 0, None));
    assert!(!plain.dependent && !plain.unprepared && plain.html.is_none());
    let own = args("study --problem gemm:f16*nvfp4>f16:n64:k64 --m 8 --dependent --turns 3 --html x.html").unwrap();
    assert_eq!((own.problem.len(), own.m), (1, vec![8]));
    let problem = "study --problem gemm:f16*nvfp4>f16:n64:k64 --tokens f16";
    let waived = "study --m 1 --tokens f16";
    for wrong in ["study --m 1", "study --m 1 --unprepared", waived, "study --turns 2", problem] {
        assert!(args(wrong).is_err(), "{wrong}");
    }
}

/// Empty kernels by the right names: they are built sooner.
fn empty(spec: &Spec) -> warpsmith::Result<Source> {
    let symbol = spec.symbol();
    let text = format!("extern \"C\" __global__ void {symbol}() {{}}");
    Ok(Source::new(format!("{symbol}.cu"), text, &[], [symbol]))
}

/// What a kernel takes in a world where stages, fusing and loading warps help, and bulk stores do not.
fn imagined_us(spec: &Spec) -> f64 {
    let variant = spec.variant();
    let fusion = match variant.fusion {
        Fusion::TwoPass => 2.0,
        Fusion::Interleaved => 1.0,
        _ => 1.3,
    };
    let warps = if variant.warps == Warps::Uniform { 1.35 } else { 1.0 };
    let epilogue = if variant.epilogue == Epilogue::Tma { 1.25 } else { 1.0 };
    let columns = if variant.tile.columns == 64 { 1.0 } else { 1.1 };
    10.0 * (1.0 + 1.0 / f64::from(variant.stages)) * fusion * warps * epilogue * columns
}

#[test]
fn what_is_faster_is_stacked() {
    let Some(toolchain) = common::toolchain("what_is_faster_is_stacked") else { return };
    let cache = KernelCache::builder().toolchain(toolchain).no_disk().renders(empty).build();
    let problems = [dual(512, 1024).prepared(), Problem::gemm().n(512).k(1024).grouped(2).prepared()];
    let cases = cases::own(&problems, |problem| shared::rows(problem, &[256])).unwrap();
    let picker = Picker::new(&Arch::H200.to_string(), &Arch::H200);
    let mut debate = debate::Debate::new(&picker, &cases).unwrap();
    debate.build_ahead(&cache);
    let mut clock = |_: usize, specs: &[Spec]| {
        let timed = |us: f64| experiment::Timed { us: vec![us, 1.1 * us, us], worst: 0.5, blocks_per_sm: 1 };
        Ok(specs.iter().map(|spec| (*spec, Ok(timed(imagined_us(spec))))).collect())
    };
    let grounds = debate.run(&cache, Some(&mut clock)).unwrap();

    assert_eq!(grounds.iter().map(|ground| ground.ground).collect::<Vec<_>>(), ["alone", "stacked", "in the pick"]);
    let best = |ground: usize, proposal: &str| {
        let report = grounds[ground].proposals.iter().find(|report| report.proposal == proposal).unwrap();
        report.best().map(|best| (best.value.as_str(), best.summary.speed_up.unwrap()))
    };
    let (stages, worth) = best(0, "stages").unwrap();
    assert_eq!((stages, (worth - 2.0 / 1.25).abs() < 1e-9), ("4", true));
    assert!(best(1, "TMA store").unwrap().1 < 1.0);
    let whole = grounds[1].proposals.last().unwrap();
    assert_eq!(whole.proposal, "all together");
    let (low, high) = whole.claim.unwrap();
    assert!((low - 1.5 * 1.8 * 1.25 * 1.12).abs() < 1e-9 && (high - 1.8 * 2.5 * 1.4 * 1.15).abs() < 1e-9);
    let stack = whole.values[0].cells[0].measured().unwrap();
    for part in [".s4.", ".interleaved.", ".direct"] {
        assert!(stack.variant.contains(part), "{}", stack.variant);
    }
    assert!(!stack.variant.contains("uniform") && stack.speed_up > 3.0, "{stack:?}");
    // Plain products have nothing to fuse.
    let fusion = grounds[0].proposals.iter().find(|report| report.proposal == "fusion").unwrap();
    assert!(fusion.values.iter().all(|value| matches!(value.cells[1], Cell::NotApplicable)));
    let count = |grounds: &[GroundReport], of: fn(&Cell) -> bool| {
        let values = grounds.iter().flat_map(|ground| &ground.proposals).flat_map(|report| &report.values);
        values.flat_map(|value| &value.cells).filter(|cell| of(cell)).count()
    };
    let is_wrong = |cell: &Cell| matches!(cell, Cell::Wrong { why, .. } if why.ends_with(": NaN"));
    let has_failed = |cell: &Cell| matches!(cell, Cell::Failed { why, .. } if why.ends_with(": no memory"));
    let is_faulty = |cell: &Cell| matches!(cell, Cell::Wrong { .. } | Cell::Failed { .. });
    assert_eq!(count(&grounds, is_faulty), 0);

    // Wrong is one thing, and not to be done another.
    let mut clock = |_: usize, specs: &[Spec]| {
        let found = |spec: &Spec| match (spec.variant().epilogue, spec.variant().stages) {
            (Epilogue::Tma, _) => Err(Fault::Wrong("NaN".to_owned())),
            (_, 3) => Err(Fault::Failed("no memory".to_owned())),
            _ => Ok(experiment::Timed { us: vec![1.0], worst: 0.5, blocks_per_sm: 1 }),
        };
        Ok(specs.iter().map(|spec| (*spec, found(spec))).collect())
    };
    let grounds = debate.run(&cache, Some(&mut clock)).unwrap();
    let (wrong, failed) = (count(&grounds, is_wrong), count(&grounds, has_failed));
    assert!(wrong > 0 && failed > 0 && wrong + failed == count(&grounds, is_faulty), "{wrong}, {failed}");
}
