//! The matrix instruction as inline PTX: what `templates/wgmma/instruction/` declares and no C++ can spell, lists of as
//! many registers as a width has sums.

use crate::format::Format;

/// How sums of e4m3 values become those that are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promotion {
    /// A width is multiplied in so many, one after the other.
    pub(super) parts: u32,
    /// Sums are multiplied with factors of tokens, which have one for each 128 of K.
    pub(super) is_scaled: bool,
}

/// The sums that a warpgroup has registers for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums<'a> {
    /// Of so many tokens.
    pub(super) tokens: u32,
    /// The widths that they are multiplied in.
    pub(super) widths: &'a [u32],
    pub(super) promotion: Promotion,
    /// Each width has registers of its own names, where it alone reads its sums: were they one, ptxas would find none for the products of
    /// many widths, whatever it has (C7511). Where sums are brought together behind the widths, one name costs less.
    pub(super) apart: bool,
}

/// The name of a register for a sum of a width.
#[derive(Clone, Copy)]
struct Names {
    apart: bool,
}

impl Names {
    fn of(self, name: &str, width: u32, i: impl std::fmt::Display) -> String {
        if self.apart { format!("{name}{width}_{i}") } else { format!("{name}{i}") }
    }

    /// Declares those of a width.
    fn declared(self, name: &str, width: u32) -> String {
        format!(".reg .f32 {};", self.of(name, width, format!("<{width}>")))
    }
}

/// The definitions for a kernel, whose weights come from shared memory as its tokens do, or else from registers: calls of what
/// `templates/wgmma/ptx.cuh` defines.
pub(super) fn definitions(sums: Sums, compute: Format, is_decoded: bool) -> String {
    let promotes = compute == Format::E4m3;
    let names = Names { apart: sums.apart };
    let parts = sums.promotion.parts;
    let declare = |width: u32| match promotes {
        true => names.declared("sum", width / parts) + " " + &names.declared("total", width),
        false => names.declared("sum", width),
    };
    let declared = match sums.apart {
        true => sums.widths.iter().map(|width| declare(*width)).collect::<Vec<_>>().join(" "),
        false => declare(sums.tokens),
    };
    let text = format!(
        r#"namespace ws {{

// Half of the names are used.
WS_DECLARE_SUMS({}, "{declared}")
"#,
        sums.tokens
    );
    let of_width = |width: &u32| match promotes {
        true => promoted(*width, sums.promotion, compute, names, if is_decoded { "_SHARED" } else { "" }),
        false => plain(*width, compute, names),
    };
    text + &sums.widths.iter().map(of_width).collect::<String>() + "\n}  // namespace ws\n"
}

/// An item for each sum of so many tokens.
fn list(width: u32, separator: &str, item: impl Fn(u32) -> String) -> String {
    (0..width / 2).map(item).collect::<Vec<_>>().join(separator)
}

fn sums(width: u32, names: Names) -> String {
    list(width, ",", |i| names.of("sum", width, i))
}

fn outputs(width: u32) -> String {
    list(width, ",", |i| format!("\"=f\"(sums[{i}])"))
}

/// Of an instruction that adds to what is kept.
fn plain(width: u32, compute: Format, names: Names) -> String {
    let clear = list(width, " ", |i| format!("mov.f32 {}, 0f00000000;", names.of("sum", width, i)));
    let read = list(width, " ", |i| format!("mov.f32 %{i}, {};", names.of("sum", width, i)));
    let (sums, outputs) = (sums(width, names), outputs(width));
    format!(
        r#"
WS_CLEAR_SUMS({width}, "{clear}")
WS_GET_SUMS({width}, "{read}", {outputs})
WS_WGMMA({width}, {compute}, "{sums}")
"#
    )
}

/// Of one whose sums are promoted to totals: there are sums of a part of the tokens, and totals of all.
fn promoted(
    width: u32,
    Promotion { parts, is_scaled }: Promotion,
    compute: Format,
    names: Names,
    from: &str,
) -> String {
    let part = width / parts;
    let clear = list(width, " ", |i| format!("mov.f32 {}, 0f00000000;", names.of("total", width, i)));
    let clear_sums = list(part, " ", |i| format!("mov.f32 {}, 0f00000000;", names.of("sum", part, i)));
    let read = list(width, " ", |i| format!("mov.f32 %{i}, {};", names.of("total", width, i)));
    let promote = |which: u32| {
        let first = which * part;
        let total = |i: u32| names.of("total", width, first / 2 + i);
        let sum = |i: u32| names.of("sum", part, i);
        if is_scaled {
            return format!("WS_PROMOTE_SCALED_SUMS({part}, {first}, \"{}\")\n", scaled(part, first, total, sum));
        }
        let add = list(part, " ", |i| format!("add.rn.f32 {total}, {total}, {};", sum(i), total = total(i)));
        format!("WS_PROMOTE_SUMS({part}, {first}, \"{add}\")\n")
    };
    let promotions = (0..parts).map(promote).collect::<String>();
    let (sums, outputs) = (sums(part, names), outputs(width));
    format!(
        r#"
WS_CLEAR_TOTALS({width}, {part}, "{clear} {clear_sums}")
{promotions}WS_GET_TOTALS({width}, "{read}", {outputs})
WS_WGMMA_K32{from}({part}, {compute}, "{sums}")
"#
    )
}

/// Each sum of `part` tokens from `first` on times its factor, added to its total. Of eight tokens a thread has the sums of two, for
/// two rows of weights; those factors lie beside the ones of the other eight of sixteen (templates/wgmma/k_factors/).
fn scaled(part: u32, first: u32, total: impl Fn(u32) -> String, sum: impl Fn(u32) -> String) -> String {
    let mut text = String::from("{ .reg .f32 f<4>;");
    let mut eight = 0;
    while eight < part / 8 {
        let (which, is_pair) = (first / 8 + eight, (first / 8 + eight).is_multiple_of(2) && eight + 1 < part / 8);
        let (count, vector, names) = if is_pair { (2, "v4", "f0,f1,f2,f3") } else { (1, "v2", "f0,f1") };
        let at = which / 2 * 64 + which % 2 * 8;
        text += &format!(" ld.shared.{vector}.f32 {{{names}}}, [%0+{at}];");
        for i in 0..4 * count {
            let (which, factor) = (4 * eight + i, i / 4 * 2 + i % 2);
            text += &format!(" fma.rn.f32 {total}, {}, f{factor}, {total};", sum(which), total = total(which));
        }
        eight += count;
    }
    text + " }"
}
