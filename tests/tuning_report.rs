//! The report of `examples/tune`, from sample data.

#![allow(clippy::unwrap_used)]

#[path = "../examples/shared/page/mod.rs"]
mod page;
#[path = "page/mod.rs"]
mod reader;
#[path = "../examples/tune/report/mod.rs"]
mod report;

use warpsmith::spec::Arch;

use report::{Candidate, Ceilings, Report, Row};

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
        seconds: 2.5,
        candidates: vec![
            candidate(&format!("slow{m}"), Some(20.0), measured_us.map(|us| 2.0 * us)),
            candidate(&format!("chosen{m}"), Some(11.0), measured_us),
            Candidate { refused, ..candidate(&format!("bad{m}"), Some(9.0), None) },
        ],
    }
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
fn shares_are_of_the_lower_ceiling() {
    let (_, text) = reader::read(&sample().page().unwrap().html().unwrap());
    // 33 MB in 10 µs of 4.3 TB/s, and 30 GFLOP in 40 µs of 790 TFLOP/s.
    assert!(text.contains("77 %") && text.contains("95 %"), "{text}");
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
