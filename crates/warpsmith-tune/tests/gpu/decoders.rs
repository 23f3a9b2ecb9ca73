//! Warps that decode for others, more of them than a stage has tasks, where K ends inside a stage: each does the task that is as many as
//! there are behind its last, or takes a line that is not empty for one that is.

use warpsmith::format::Format;
use warpsmith::spec::Problem;
use warpsmith_tune::{HostOperands, Spread};

use crate::bench::{Bench, text};

const VARIANTS: [&str; 2] =
    ["wgmma.t16x64x256.s8.single.ws2d2.shared.persistent", "wgmma.t16x64x256.s8.single.ws2d2.shared"];

pub fn leave_no_task_out(bench: &Bench) -> Result<(), String> {
    // 64 of the last 256 along K; tokens that come later than weights.
    let problem = Problem::gemm().n(144).k(1088).a(Format::E4m3).gathered().prepared();
    let host = HostOperands::random(&problem, &[70], Spread::Exact, 3);
    let reference = host.reference().map_err(text)?;
    VARIANTS.iter().try_for_each(|variant| bench.is_right(variant, &host, &reference))
}
