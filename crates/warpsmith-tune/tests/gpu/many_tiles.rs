//! Groups of many tiles beside groups of one and of none, in every way that a block makes its table of groups.

use warpsmith::format::Format;
use warpsmith::spec::Problem;
use warpsmith_tune::{HostOperands, Spread};

use crate::bench::{Bench, text};

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

pub fn are_right(bench: &Bench) -> Result<(), String> {
    for rows in rows() {
        let problem = Problem::gemm().n(128).k(128).a(Format::F16).prepared().grouped(rows.len() as u32);
        let host = HostOperands::random(&problem, &rows, Spread::Every, 3);
        let reference = host.reference().map_err(text)?;
        for variant in VARIANTS {
            bench.is_right(variant, &host, &reference).map_err(|why| format!("{rows:?}: {why}"))?;
        }
    }
    Ok(())
}
