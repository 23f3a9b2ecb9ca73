//! The matrix instruction as inline PTX: what `templates/wgmma/instruction.cuh` declares and no C++ can spell, lists of as
//! many registers as a width has sums.

use std::fmt::Write;

use crate::format::Format;

/// What every function on the device begins with.
const FUNCTION: &str = "__device__ __forceinline__";

/// The definitions for tiles of up to so many tokens, multiplied in these widths.
pub(super) fn definitions(tokens: u32, widths: &[u32], compute: Format) -> String {
    let mut text = format!(
        r#"namespace ws {{

// Half of the names are used.
{FUNCTION} void declare_sums() {{ asm volatile(".reg .f32 sum<{tokens}>;"); }}
"#
    );
    for width in widths {
        let list = |separator, item: fn(u32) -> String| (0..width / 2).map(item).collect::<Vec<_>>().join(separator);
        let sums = list(",", |i| format!("sum{i}"));
        let clear = list(" ", |i| format!("mov.f32 sum{i}, 0f00000000;"));
        let read = list(" ", |i| format!("mov.f32 %{i}, sum{i};"));
        let outputs = list(",", |i| format!("\"=f\"(sums[{i}])"));
        let instruction = format!("wgmma.mma_async.sync.aligned.m64n{width}k16.f32.{compute}.{compute}");
        // Writing to a string does not fail.
        let _ = write!(
            text,
            r#"
template <>
{FUNCTION} void clear_sums<{width}>() {{
  asm volatile("{clear}" ::: "memory");
}}

template <>
{FUNCTION} void get_sums<{width}>(float (&sums)[TOKENS / 2]) {{
  asm volatile("{read}" : {outputs}::"memory");
}}

template <>
{FUNCTION} void wgmma<{width}>(const u32 (&a)[4], u64 tokens) {{
  asm volatile("{instruction} {{{sums}}}, {{%0,%1,%2,%3}}, %4, 1, 1, 1, 0;"
               ::"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tokens) : "memory");
}}
"#
        );
    }
    text + "\n}  // namespace ws\n"
}
