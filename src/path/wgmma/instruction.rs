//! The matrix instruction as inline PTX: what `templates/wgmma/instruction/` declares and no C++ can spell, lists of as
//! many registers as a width has sums.

use std::fmt::Write;

use crate::format::Format;

/// The definitions for tiles of up to so many tokens, multiplied in these widths: calls of what `templates/wgmma/ptx.cuh`
/// defines.
pub(super) fn definitions(tokens: u32, widths: &[u32], compute: Format) -> String {
    let promotes = compute == Format::E4m3;
    let declaration = if promotes { "WS_DECLARE_PROMOTED_SUMS" } else { "WS_DECLARE_SUMS" };
    let mut text = format!(
        r#"namespace ws {{

// Half of the names are used.
{declaration}({tokens})
"#
    );
    for width in widths {
        let list = |separator, item: fn(u32) -> String| (0..width / 2).map(item).collect::<Vec<_>>().join(separator);
        let sums = list(",", |i| format!("sum{i}"));
        let outputs = list(",", |i| format!("\"=f\"(sums[{i}])"));
        // Writing to a string does not fail.
        let _ = if promotes {
            let clear = list(" ", |i| format!("mov.f32 total{i}, 0f00000000; mov.f32 sum{i}, 0f00000000;"));
            let add = list(" ", |i| format!("add.rn.f32 total{i}, total{i}, sum{i};"));
            let read = list(" ", |i| format!("mov.f32 %{i}, total{i};"));
            write!(
                text,
                r#"
WS_CLEAR_TOTALS({width}, "{clear}")
WS_PROMOTE_SUMS({width}, "{add}")
WS_GET_TOTALS({width}, "{read}", {outputs})
WS_WGMMA_K32({width}, {compute}, "{sums}")
"#
            )
        } else {
            let clear = list(" ", |i| format!("mov.f32 sum{i}, 0f00000000;"));
            let read = list(" ", |i| format!("mov.f32 %{i}, sum{i};"));
            write!(
                text,
                r#"
WS_CLEAR_SUMS({width}, "{clear}")
WS_GET_SUMS({width}, "{read}", {outputs})
WS_WGMMA({width}, {compute}, "{sums}")
"#
            )
        };
    }
    text + "\n}  // namespace ws\n"
}
