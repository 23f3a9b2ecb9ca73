//! The tuning table as text: what is written is read, what cannot be read is left out, and merging has no order.
#![allow(clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use jiff::civil::{Date, date};
use proptest::prelude::*;
use warpsmith::internal::pick::{Entry, Evidence, Measured, TableChange};
use warpsmith::internal::spec::{Tile, baseline};
use warpsmith::pick::Table;
use warpsmith::spec::{Activation, Arch, Problem, Variant};

fn problem() -> Problem {
    Problem::dual_gemm(Activation::Silu).n(4096).k(7168).prepared()
}

fn evidence(us: f64, candidates: u32, day: Date) -> Evidence {
    let measured = Measured { us, over_baseline: 7.3125, over_heuristic: 1.0, spread: 0.0123, candidates };
    Evidence { measured, driver: "13.0".to_owned(), nvrtc: "13.0.88".to_owned(), date: day }
}

fn entry(m: std::ops::RangeInclusive<u32>, evidence: Evidence) -> Entry {
    Entry::new("NVIDIA H200", &Arch::H200, &problem(), m, &baseline(&problem()), evidence).unwrap()
}

fn entries() -> impl Strategy<Value = Entry> {
    let device = prop::sample::select(vec![("NVIDIA H200", Arch::H200), ("NVIDIA A100-SXM4-40GB", Arch::A100)]);
    let problem = (1u32..4, 1u32..4, any::<bool>(), prop::option::of(1u32..4)).prop_map(|(n, k, dual, groups)| {
        let problem = if dual { Problem::dual_gemm(Activation::GeluTanh) } else { Problem::gemm() };
        let problem = problem.n(16 * n).k(64 * k).m_up_to(77);
        groups.map_or(problem, |groups| problem.grouped(groups))
    });
    let m = (1u32..6, 0u32..6).prop_map(|(from, more)| from..=from + more);
    let numbers = (0.001f64..1e6, 0.001f64..1e3, 0.001f64..1e3, 0.0f64..1.0, 1u32..3);
    let rest = ("[0-9]{1,2}\\.[0-9]", "[0-9]{2}\\.[0-9]\\.[0-9]{1,3}", 1i8..4);
    (device, problem, m, 1u32..9, numbers, rest).prop_map(|((device, arch), problem, m, stages, numbers, rest)| {
        let (us, over_baseline, over_heuristic, spread, candidates) = numbers;
        let measured = Measured { us, over_baseline, over_heuristic, spread, candidates };
        let evidence = Evidence { measured, driver: rest.0, nvrtc: rest.1, date: date(2026, 11, rest.2) };
        let variant = Variant { stages, ..baseline(&problem) };
        Entry::new(device, &arch, &problem, m, &variant, evidence).unwrap()
    })
}

fn tables() -> impl Strategy<Value = Table> {
    prop::collection::vec(entries(), 0..20).prop_map(table)
}

fn table(entries: Vec<Entry>) -> Table {
    let mut table = Table::new();
    for entry in entries {
        table.insert(entry);
    }
    table
}

fn decisions(table: &Table) -> Vec<Entry> {
    table.entries().cloned().collect()
}

fn merged(a: &Table, b: &Table) -> Table {
    let mut both = a.clone();
    both.merge(b);
    both
}

proptest! {
    #[test]
    fn an_entry_parses_back(entry in entries()) {
        prop_assert_eq!(entry.to_string().parse::<Entry>().unwrap(), entry);
    }

    #[test]
    fn a_table_parses_back_to_the_same_text(table in tables()) {
        let text = table.to_string();
        let (read, skipped) = Table::parse(&text);
        prop_assert!(skipped.is_empty(), "{:?}", skipped);
        prop_assert_eq!(decisions(&read), decisions(&table));
        prop_assert_eq!(read.to_string(), text);
    }

    #[test]
    fn merging_has_no_order_and_once_is_enough(a in tables(), b in tables(), c in tables()) {
        let ab = merged(&a, &b);
        prop_assert_eq!(decisions(&ab), decisions(&merged(&b, &a)));
        prop_assert_eq!(decisions(&merged(&ab, &b)), decisions(&ab));
        prop_assert_eq!(decisions(&merged(&ab, &c)), decisions(&merged(&a, &merged(&b, &c))));
        prop_assert!(merged(&a, &a).diff(&a).is_empty());
    }

    #[test]
    fn a_diff_tells_every_change(before in tables(), after in tables()) {
        let mut lines = decisions(&before);
        for change in after.diff(&before) {
            match change {
                TableChange::Added(entry) => lines.push(entry),
                TableChange::Removed(entry) => lines.retain(|line| *line != entry),
            }
        }
        prop_assert_eq!(decisions(&table(lines)), decisions(&after));
    }

    #[test]
    fn nothing_panics_on_a_damaged_table(table in tables(), at in any::<prop::sample::Index>(), junk in "[ -~|\n]{0,12}") {
        let mut text = table.to_string();
        text.insert_str(at.index(text.len()), &junk);
        let (read, _) = Table::parse(&text);
        prop_assert_eq!(decisions(&Table::parse(&read.to_string()).0), decisions(&read));
    }
}

#[test]
fn a_line_is_what_the_documentation_says() {
    let entry = entry(33..=64, evidence(20.1134, 412, date(2026, 11, 22)));
    assert_eq!(
        entry.to_string(),
        "NVIDIA H200 | 132 SMs | sm_90a | dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared | m 33..=64 \
         | wgmma.t128x128x64.s1.two_pass.uniform.direct | 20.113 us | 7.313x baseline | 1.000x heuristic \
         | spread 0.0123 | 412 candidates | driver 13.0 | NVRTC 13.0.88 | 2026-11-22"
    );
    let documented = include_str!("../docs/choosing.md");
    let example = documented.lines().find(|line| line.starts_with("NVIDIA H200 |")).unwrap();
    assert_eq!(example.parse::<Entry>().unwrap().to_string(), example);
}

#[test]
fn lines_that_cannot_be_read_are_left_out_with_their_reason() {
    let good = entry(1..=8, evidence(12.0, 10, date(2026, 11, 22))).to_string();
    let text = [
        "# ours".to_owned(),
        String::new(),
        "half a line | 132 SMs".to_owned(),
        good.replace("interleaved", "woven").replace("two_pass", "woven"),
        good.replace("12.000 us", "-1.000 us"),
        good.replace("12.000 us", "NaN us"),
        good.replace("m 1..=8", "m 8..=1"),
        good.replace("2026-11-22", "2026-13-22"),
        good.replace("132 SMs", "many SMs"),
        good.clone(),
        "# between".to_owned(),
    ];
    let (table, skipped) = Table::parse(&text.join("\n"));
    assert_eq!(decisions(&table), [good.parse().unwrap()]);
    let lines: Vec<_> = skipped.iter().map(|skipped| skipped.line).collect();
    assert_eq!(lines, [3, 4, 5, 6, 7, 8, 9]);
    for (skipped, why) in
        skipped.iter().zip(["14 columns", "woven", "us = -1", "us = NaN", "8..=1", "2026-13-22", "many"])
    {
        assert!(skipped.why.contains(why), "{skipped}");
    }
    // The comment before the first decision stays, the other has no place.
    assert_eq!(table.to_string(), format!("# ours\n{good}\n"));
}

#[test]
fn what_a_line_cannot_hold_is_refused() {
    let build = |device: &str, m: std::ops::RangeInclusive<u32>, us: f64| {
        let evidence = evidence(us, 1, date(2026, 11, 22));
        Entry::new(device, &Arch::H200, &problem(), m, &baseline(&problem()), evidence)
    };
    assert!(build("NVIDIA H200", 1..=8, 1.0).is_ok());
    for device in ["", "a|b", "a\nb", " padded", "#1"] {
        assert!(build(device, 1..=8, 1.0).is_err_and(|error| error.is_data()), "{device:?}");
    }
    for m in [0..=8, std::ops::RangeInclusive::new(9, 8), 1..=Problem::M_MAX + 1] {
        assert!(build("NVIDIA H200", m.clone(), 1.0).is_err_and(|error| error.is_data()), "{m:?}");
    }
    for us in [0.0, 0.0001, -1.0, f64::NAN, f64::INFINITY] {
        assert!(build("NVIDIA H200", 1..=8, us).is_err_and(|error| error.is_data()), "{us}");
    }
}

#[test]
fn better_evidence_stays() {
    let old = entry(1..=8, evidence(12.0, 500, date(2026, 11, 21)));
    let newer = entry(1..=8, evidence(13.0, 10, date(2026, 11, 22)));
    let wider = entry(1..=8, evidence(14.0, 11, date(2026, 11, 22)));
    let elsewhere = entry(9..=16, evidence(14.0, 11, date(2026, 11, 22)));
    let mut table = Table::new();
    assert!(table.insert(newer.clone()) && !table.insert(old) && table.insert(wider.clone()) && !table.insert(newer));
    assert!(table.insert(elsewhere.clone()));
    assert_eq!(decisions(&table), [wider, elsewhere]);
}

#[test]
fn decisions_are_sorted_by_number_and_change_one_line() {
    let day = date(2026, 11, 22);
    let before = table(vec![
        entry(128..=255, evidence(3.0, 1, day)),
        entry(9..=16, evidence(2.0, 1, day)),
        entry(1..=8, evidence(1.0, 1, day)),
    ]);
    let starts: Vec<_> = before.entries().map(|entry| *entry.m().start()).collect();
    assert_eq!(starts, [1, 9, 128]);
    let mut after = before.clone();
    after.insert(entry(9..=16, evidence(1.5, 1, date(2026, 11, 23))));
    let (old, new) = (before.to_string(), after.to_string());
    assert_eq!(old.lines().zip(new.lines()).filter(|(old, new)| old != new).count(), 1);
    let changes = after.diff(&before);
    assert!(matches!(&changes[..], [TableChange::Removed(_), TableChange::Added(_)]));
    assert!(
        changes[0].to_string().starts_with("-NVIDIA H200 | ") && changes[1].to_string().starts_with("+NVIDIA H200 | ")
    );
}

#[test]
fn a_file_is_replaced_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("our.tuning");
    assert!(Table::load(&path).is_err_and(|error| error.is_data() && error.to_string().contains("our.tuning")));
    let day = date(2026, 11, 22);
    let first = table((1..200).map(|m| entry(m..=m, evidence(1.0, 1, day))).collect());
    let second = table(vec![entry(1..=8, evidence(1.0, 1, day))]);
    first.save(&path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..50).for_each(|turn| [&first, &second][turn % 2].save(&path).unwrap()));
        for _ in 0..200 {
            let (read, skipped) = Table::load(&path).unwrap();
            assert!(skipped.is_empty() && (read.len() == 1 || read.len() == 199), "{} {skipped:?}", read.len());
        }
    });
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["our.tuning"]);
    assert!(first.save(&dir.path().join("nowhere/our.tuning")).is_err_and(|error| error.is_data()));
}

#[test]
fn a_link_to_a_table_stays_one_and_the_table_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("our.tuning"), dir.path().join("link"));
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    symlink(&path, &link).unwrap();
    let table = table(vec![entry(1..=8, evidence(1.0, 1, date(2026, 11, 22)))]);
    table.save(&link).unwrap();
    assert!(link.is_symlink());
    assert_eq!(decisions(&Table::load(&path).unwrap().0), decisions(&table));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_stated_range_of_m_is_no_part_of_the_key() {
    let evidence = evidence(1.0, 1, date(2026, 11, 22));
    let variant =
        Variant::wgmma(Tile { tokens: 64, columns: 64, k: 128 }, 4, warpsmith::internal::spec::Fusion::Interleaved, 2);
    let stated = problem().m_up_to(512);
    let entry = Entry::new("NVIDIA H200", &Arch::H200, &stated, 1..=8, &variant, evidence).unwrap();
    assert_eq!(*entry.problem(), problem());
    // How rows fell into groups when it was measured is.
    let stated = problem().grouped(8).experts_per_token(2).m_up_to(512);
    let evidence = entry.evidence().clone();
    let entry = Entry::new("NVIDIA H200", &Arch::H200, &stated, 1..=8, &variant, evidence).unwrap();
    assert_eq!(*entry.problem(), problem().grouped(8).experts_per_token(2));
    assert_eq!(entry.to_string().parse::<Entry>().unwrap(), entry);
}
