//! Rows made e4m3 on the device.

use super::{PIECES, QUANTISE, QuantiseOperands};
use crate::error::Result;
use crate::run::LaunchStream;
use crate::run::simt::{Line, SimtKernel, SimtLaunch};
use crate::spec::Quantise;

const THREADS: u32 = Quantise::E4M3_THREADS;
/// Blocks at most: each of so many takes several rows.
const GRID_MAX: u32 = 1 << 12;
/// Puts the launch into the stream, if there are rows. Formats, and what has to be there, have been checked.
pub(super) fn launch(
    kernel: &SimtKernel,
    quantise: &Quantise,
    stream: &impl LaunchStream,
    operands: &mut QuantiseOperands<'_>,
    is_dependent: bool,
) -> Result<()> {
    let m = operands.m;
    if m == 0 {
        return Ok(());
    }
    let elements = u64::from(m) * u64::from(quantise.row_length());
    let none = |name| Line { name, needed: 0, alignment: 1 };
    let lines = [
        Line { name: "x", needed: elements, alignment: 16 },
        Line { name: "values", needed: elements, alignment: 16 },
        none("scales"),
        none("factor"),
        none("own factor"),
        Line { name: "row factors", needed: u64::from(m) * u64::from(quantise.row_factors()), alignment: 4 },
    ];
    let settled = operands.settled.into();
    let params = |[x, values, _, _, _, factors]: [u64; PIECES]| Params { x, values, factors, rows: m, settled };
    let grid = m.div_ceil(THREADS / quantise.row_threads()).min(GRID_MAX);
    let launch = SimtLaunch::new(QUANTISE, grid, THREADS).apart(kernel, is_dependent);
    // SAFETY: the entry's only parameter has the layout of `Params` (checked below against the template), and it reads and
    // writes as many elements of each piece as its line says. It waits for what was before the launch before it reads or writes,
    // unless whoever made the operands has promised that these are settled.
    unsafe { kernel.launch(stream, operands, &lines, params, &[launch], is_dependent) }
}

/// Passed by value; `QuantiseE4m3Params` in `templates/simt/quantise_e4m3.cu` has the same order and sizes. Addresses are device
/// memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Params {
    x: u64,
    values: u64,
    factors: u64,
    rows: u32,
    settled: i32,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;
    use crate::run::simt::fields_of;

    #[test]
    fn the_parameters_lie_as_on_the_device_side() {
        let source = include_str!("../../../templates/simt/quantise_e4m3.cu");
        let names = fields_of(source, "QuantiseE4m3Params");
        assert_eq!(names, ["x", "values", "factors", "rows", "settled"]);
        assert_eq!((size_of::<Params>(), offset_of!(Params, factors), offset_of!(Params, rows)), (32, 16, 24));
        assert_eq!(offset_of!(Params, settled), 28);
        assert!(source.contains(&format!("THREADS = {THREADS};")));
    }
}
