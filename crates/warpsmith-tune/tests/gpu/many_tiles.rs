//! Groups of many tiles beside groups of one and of none, in every way that a block makes its table of groups; tall tiles in bands.

use warpsmith::format::Format;
use warpsmith::spec::{Problem, Spec};
use warpsmith_tune::oracle::Reference;
use warpsmith_tune::{Checked, HostOperands, Spread};

use crate::bench::{Bench, changed, text};

/// Rows of a tile: 8 are not sorted, 64 are.
const VARIANTS: [&str; 6] = [
    "wgmma.t8x64x64.s4.single.ws1.direct.persistent",
    "wgmma.t64x64x64.s4.single.ws1.shared.persistent",
    "wgmma.t16x64x64.s4.ping_pong.ws2.direct.persistent",
    "wgmma.t64x128x64.s6.ping_pong.ws4.shared.persistent",
    "wgmma.t8x64x64.s4.single.ws1.direct",
    "wgmma.t64x64x64.s4.single.ws1.direct",
];

/// Of few groups a warp sorts all, of many each block counts them.
fn rows() -> [Vec<u32>; 4] {
    let mut many = vec![0; 40];
    (many[3], many[4], many[17], many[39]) = (1, 500, 130, 64);
    [vec![700, 0, 30], vec![1, 0, 0, 0, 900], many, (0..40).map(|group| group % 3 * 40).collect()]
}

/// Of e4m3 values, in lines of three warpgroups and in halves of four: registers change hands, and a warp of its own stores some.
const ROUNDED: [&str; 4] = [
    "wgmma.t80x192x256.s3.single.ws3.shared.persistent",
    "wgmma.t64x192x256.s3.single.ws3.tma.persistent",
    "wgmma.t80x256x128.s4.single.ws4.shared.persistent",
    "wgmma.t64x256x128.s4.single.ws4.tma.persistent",
];

pub fn are_right(bench: &Bench) -> Result<(), String> {
    are_right_by(bench, &VARIANTS, &Problem::gemm().n(128).k(128).a(Format::F16).prepared())
}

pub fn are_right_rounded(bench: &Bench) -> Result<(), String> {
    let problem = Problem::gemm().n(400).k(320).a(Format::E4m3).prepared();
    are_right_by(bench, &ROUNDED, &problem)?;
    are_right_by(bench, &ROUNDED, &problem.gathered())
}

fn are_right_by(bench: &Bench, variants: &[&str], problem: &Problem) -> Result<(), String> {
    for rows in rows() {
        let host = HostOperands::random(&problem.grouped(rows.len() as u32), &rows, Spread::Every, 3);
        let reference = host.reference().map_err(text)?;
        for variant in variants {
            bench.is_right(variant, &host, &reference).map_err(|why| format!("{rows:?}: {why}"))?;
        }
    }
    Ok(())
}

/// Columns have more tiles than the order of groups is left as it is for.
const BANDS: [&str; 3] = [
    "wgmma.t128x64x64.s4.single.ws1.shared.persistent",
    "wgmma.t136x64x64.s4.single.ws1.direct.persistent",
    "wgmma.t128x64x64.s4.single.ws1.shared",
];

/// In bands of which the last is lower, as if nothing stayed in the cache; bands that are all the first are not.
pub fn are_right_in_bands(bench: &Bench) -> Result<(), String> {
    let problem = Problem::gemm().n(65 * 64 + 16).k(64).a(Format::F16).prepared();
    let groups = [vec![1200, 0, 200, 901, 1], vec![1], vec![0, 0]];
    let alone = HostOperands::random(&problem, &[17 * 128 + 5], Spread::Every, 3);
    let reference = alone.reference().map_err(text)?;
    let wrong = [UNCACHED, ("first + place % here", "place % here")];
    if checked_with(bench, BANDS[0], &alone, &reference, &wrong)?.passed() {
        return Err("bands that are all the first pass".to_owned());
    }
    let are_right = |host: &HostOperands, reference: &Reference| {
        BANDS.iter().try_for_each(|variant| {
            let checked = checked_with(bench, variant, host, reference, &[UNCACHED])?;
            if checked.passed() { Ok(()) } else { Err(format!("{} by {variant}: {checked}", host.problem)) }
        })
    };
    are_right(&alone, &reference)?;
    groups.iter().try_for_each(|rows| {
        let host = HostOperands::random(&problem.grouped(rows.len() as u32), rows, Spread::Every, 3);
        are_right(&host, &host.reference().map_err(text)?)
    })
}

const UNCACHED: (&str, &str) = ("CACHED = 24 << 20", "CACHED = 0");

/// What a variant's kernel with these changes gives.
fn checked_with(
    bench: &Bench,
    variant: &str,
    host: &HostOperands,
    reference: &Reference,
    changes: &[(&'static str, &str)],
) -> Result<Checked, String> {
    let spec = Spec::new(&host.problem, &variant.parse().map_err(text)?, bench.arch()).map_err(text)?;
    let source = warpsmith::internal::build::render(&spec).map_err(text)?;
    let source = changed(&source, changes).map_err(|from| format!("{from:?} is nowhere"))?;
    bench.checked(&bench.kernel_of(&spec, &source)?, host, reference)
}
