//! What a launch is given: a line for each piece of device memory, and the parameter that kernels find it in.

use crate::format::Format;
use crate::path::{ScaleLoads, Tokens};
use crate::spec::{Operation, Problem, Spec};

/// Loaded from, or stored to, 16 bytes at a time.
const WIDE: u64 = 16;
/// One value at a time.
const NARROW: u64 = 4;

/// What a piece of memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// `m × K` values of A, or their block scales (of e4m3 f32 factors of rows).
    Tokens,
    TokenScales,
    /// `[G, N, K]` values of a B (the first may be prepared weights), or their block scales.
    Weights,
    WeightScales,
    /// A number for a product, or one a group; 1 if not given.
    Factor,
    /// Where each group begins, and the end of the last.
    Offsets,
    /// `m × N` values, their block scales, and the factor of those; 1 if not given.
    Result,
    ResultScales,
    ResultFactor,
    /// Bytes.
    Workspace,
    /// `[N]` for all groups, or `[G, N]`: f32 factors of rows of B.
    RowScale,
    /// `[N]` for all groups, or `[G, N]`: addends of columns of C.
    Bias,
    /// `m` numbers of rows of A, or of C.
    Gathered,
    Slots,
    /// `m` factors of rows of C; 1 if not given.
    SlotFactors,
}

macro_rules! operands {
    ($($operand:ident: $name:literal, $product:expr, $shape:ident, $alignment:ident, ($($place:tt)+);)+) => {
        /// A piece of device memory of a launch.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Operand { $($operand),+ }

        impl Operand {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$operand),+];

            #[inline(always)]
            const fn line(self) -> (&'static str, Option<u32>, Shape, u64) {
                match self { $(Self::$operand => ($name, $product, Shape::$shape, $alignment)),+ }
            }
        }

        impl Params {
            /// Where an operand's address stands.
            #[inline(always)]
            pub(crate) fn address(&mut self, operand: Operand) -> &mut u64 {
                match operand { $(Operand::$operand => &mut self.$($place)+),+ }
            }
        }
    };
}

operands! {
    // what     name         of product  shape         alignment, place in Params
    A:          "a",         None,       Tokens,       WIDE,   (kernel.a);
    AScales:    "a",         None,       TokenScales,  NARROW, (kernel.a_scales);
    B1:         "b",         Some(1),    Weights,      WIDE,   (kernel.b[0]);
    B2:         "b",         Some(2),    Weights,      WIDE,   (kernel.b[1]);
    B1Scales:   "b",         Some(1),    WeightScales, NARROW, (kernel.b_scales[0]);
    B2Scales:   "b",         Some(2),    WeightScales, NARROW, (kernel.b_scales[1]);
    Alpha1:     "alpha",     Some(1),    Factor,       NARROW, (kernel.alpha[0]);
    Alpha2:     "alpha",     Some(2),    Factor,       NARROW, (kernel.alpha[1]);
    Offsets:    "offsets",   None,       Offsets,      NARROW, (kernel.offsets);
    C:          "c",         None,       Result,       WIDE,   (kernel.c);
    CScales:    "c",         None,       ResultScales, NARROW, (coded.scales);
    CFactor:    "c_factor",  None,       ResultFactor, NARROW, (coded.factor);
    Workspace:  "workspace", None,       Workspace,    WIDE,   (kernel.workspace);
    RowScale1:  "row_scale", Some(1),    RowScale,     NARROW, (columns.row_scale[0]);
    RowScale2:  "row_scale", Some(2),    RowScale,     NARROW, (columns.row_scale[1]);
    Bias1:      "bias",      Some(1),    Bias,         NARROW, (columns.bias[0]);
    Bias2:      "bias",      Some(2),    Bias,         NARROW, (columns.bias[1]);
    Rows:       "rows",      None,       Gathered,     NARROW, (moved.rows);
    Slots:      "slots",     None,       Slots,        NARROW, (moved.slots);
    SlotFactors: "slot_factors", None,   SlotFactors,  NARROW, (moved.slot_factors);
}

/// What a problem needs of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// It must not be given.
    Nothing,
    /// So many elements (bytes of codes, scales and workspace), or more.
    Elements(u64),
    /// So many for each row of A and C, which come `mask + 1` at a time (a power of two).
    Rows { each: u64, mask: u32 },
    /// The same for each row that the operand before it has, `row` elements of it a row.
    RowsOfValues { row: u64, each: u64, mask: u32 },
    /// So many for all groups, or for each of them.
    OneOrEach { one: u32, groups: u32 },
}

impl Operand {
    /// How many there are.
    pub(crate) const COUNT: usize = Self::ALL.len();
    /// Values and scales of A.
    pub(crate) const TOKENS: [Self; 2] = [Self::A, Self::AScales];
    /// Values and scales of B, or of B1 and B2.
    pub(crate) const B: [[Self; 2]; 2] = [[Self::B1, Self::B1Scales], [Self::B2, Self::B2Scales]];

    /// The name, with the product's number where the operation has two.
    pub(crate) fn name(self, operation: Operation) -> String {
        match self.line() {
            (name, Some(product), ..) if operation.products() > 1 => format!("{name}{product}"),
            (name, ..) => name.to_owned(),
        }
    }

    /// The address is a multiple of this, for any kernel.
    pub(crate) const fn alignment(self) -> u64 {
        self.line().3
    }

    /// The same for kernels of `spec`: block scales that are not copied by four bytes are loaded whole.
    pub(crate) fn alignment_for(self, spec: &Spec) -> u64 {
        match (spec.tokens(), self.line().2) {
            (Tokens::Codes(boxes), Shape::TokenScales) if boxes.token_scales != ScaleLoads::Copied => WIDE,
            (Tokens::Codes(boxes), Shape::WeightScales) if boxes.weight_scales != ScaleLoads::Copied => WIDE,
            _ => self.alignment(),
        }
    }

    /// What its elements are called.
    pub(crate) fn unit(self, format: Format) -> &'static str {
        match self.line().2 {
            Shape::TokenScales if format == Format::E4m3 => "factors of rows",
            Shape::TokenScales | Shape::WeightScales | Shape::ResultScales => "bytes of block scales",
            Shape::Tokens | Shape::Weights | Shape::Result if format.is_coded() => "bytes of codes",
            Shape::Workspace => "bytes",
            _ => "elements",
        }
    }

    /// The name, and of what it is the scales.
    pub(crate) fn title(self, operation: Operation) -> String {
        let name = self.name(operation);
        let is_scales = matches!(self.line().2, Shape::TokenScales | Shape::WeightScales | Shape::ResultScales);
        if is_scales { format!("scales of {name}") } else { name }
    }

    /// Whether it is B, B1, B2, or the scales of one.
    pub(crate) fn is_of_weights(self) -> bool {
        matches!(self.line().2, Shape::Weights | Shape::WeightScales)
    }

    /// Whether it may be in one of several formats.
    #[inline(always)]
    pub(crate) const fn has_formats(self) -> bool {
        matches!(self.line().2, Shape::Tokens | Shape::Weights | Shape::Result | Shape::Bias)
    }

    /// Whether what it needs are so many for all groups, or for each of them.
    #[inline(always)]
    pub(crate) const fn is_one_or_each(self) -> bool {
        matches!(self.line().2, Shape::Factor | Shape::RowScale | Shape::Bias | Shape::ResultFactor)
    }

    /// Whether kernels do without it.
    pub(crate) fn is_optional(self) -> bool {
        matches!(self.line().2, Shape::Factor | Shape::ResultFactor | Shape::Workspace | Shape::SlotFactors)
    }

    /// The format that it has to be in, where there is a choice.
    pub(crate) fn format(self, problem: &Problem) -> Option<Format> {
        match self.line().2 {
            Shape::Tokens => Some(problem.a_format()),
            Shape::Weights => Some(problem.b_format()),
            Shape::Result => Some(problem.c_format()),
            Shape::Bias => problem.bias_format(),
            _ => None,
        }
    }

    /// What kernels of `spec` need of it, where weights are as they are given.
    pub(crate) fn needs(self, spec: &Spec) -> Needs {
        match self.line().2 {
            Shape::Workspace => Needs::Rows { each: spec.workspace_bytes(1), mask: 0 },
            _ => self.needs_of(spec.problem()),
        }
    }

    /// The same, but for workspace, which is the kernel's.
    pub(crate) fn needs_of(self, problem: &Problem) -> Needs {
        let (n, k) = (u64::from(problem.columns()), u64::from(problem.depth()));
        let (groups, layout) = (u64::from(problem.groups().unwrap_or(1)), problem.scale_layout());
        let (_, product, shape, _) = self.line();
        let values = |format: Format, elements: u64| if format.is_coded() { elements / 2 } else { elements };
        let scale_bytes = |format: Format, rows| format.scale_bytes(layout, rows, problem.depth() as usize);
        // Scales, or factors, of rows of so many elements: as many as there are values, where these may be any number.
        let scales_of_rows = |format: Format, length: u64, is_any: bool| {
            let rows = layout.rows();
            let (each, mask) = match format {
                Format::E4m3 => (problem.token_factors().into(), 0),
                _ if format.is_coded() => {
                    ((format.scale_bytes(layout, rows, length as usize) / rows) as u64, rows as u32 - 1)
                }
                _ => return Needs::Nothing,
            };
            match is_any {
                true => Needs::RowsOfValues { row: values(format, length), each, mask },
                false => Needs::Rows { each, mask },
            }
        };
        let one_or_each = |one| Needs::OneOrEach { one, groups: problem.groups().unwrap_or(1) };
        if product.is_some_and(|product| product > problem.operation().products()) {
            return Needs::Nothing;
        }
        match shape {
            Shape::Tokens if problem.is_gathered() => Needs::Elements(0),
            Shape::Tokens => Needs::Rows { each: values(problem.a_format(), k), mask: 0 },
            Shape::TokenScales => scales_of_rows(problem.a_format(), k, problem.is_gathered()),
            Shape::Weights => Needs::Elements(values(problem.b_format(), groups * n * k)),
            Shape::WeightScales if problem.b_format().is_coded() => {
                Needs::Elements(groups * scale_bytes(problem.b_format(), problem.columns() as usize) as u64)
            }
            Shape::Factor => one_or_each(1),
            Shape::Offsets if problem.groups().is_some() => Needs::Elements(groups + 1),
            Shape::Result if problem.has_slots() => Needs::Elements(0),
            Shape::Result => Needs::Rows { each: values(problem.c_format(), n), mask: 0 },
            Shape::ResultScales => scales_of_rows(problem.c_format(), n, problem.has_slots()),
            Shape::ResultFactor if problem.c_format().is_coded() => one_or_each(1),
            Shape::RowScale if problem.has_row_scale() => one_or_each(problem.columns()),
            Shape::Bias if problem.bias_format().is_some() => one_or_each(problem.columns()),
            Shape::Gathered if problem.is_gathered() => Needs::Rows { each: 1, mask: 0 },
            Shape::Slots | Shape::SlotFactors if problem.has_slots() => Needs::Rows { each: 1, mask: 0 },
            _ => Needs::Nothing,
        }
    }
}

/// Structs of parameters, and their text in CUDA.
macro_rules! params {
    ($($(#[$about:meta])* $params:ident = $head:literal { $($field:ident: $type:ty, $cuda:literal, $doc:literal;)+ })+) => {
        $(
            $(#[$about])*
            #[derive(Clone, Copy, Debug, Default, PartialEq)]
            #[repr(C)]
            pub(crate) struct $params { $(#[doc = $doc] pub(crate) $field: $type,)+ }
        )+

        /// The text of `params.cuh`.
        pub(crate) const PARAMS_CUH: &str = concat!(
            "// What kernels are given by value.\n#pragma once\n\nnamespace ws {\n",
            $("\nstruct ", $head, " {\n", $("  ", $cuda, ";  // ", $doc, "\n",)+ "};\n",)+
            "\n}  // namespace ws\n"
        );
    };
}

params! {
    /// What every kernel is given. Addresses are device memory, 0 stands for "none".
    KernelParams = "Params" {
        a: u64, "const u8* a", "values of A";
        a_scales: u64, "const u8* a_scales", "its block scales, or factors of rows, if it has such";
        b: [u64; 2], "const u8* b[2]", "values of B, or of B1 and B2";
        b_scales: [u64; 2], "const u8* b_scales[2]", "their block scales, if they have such";
        alpha: [u64; 2], "const float* alpha[2]", "α in device memory, or null";
        offsets: u64, "const int* offsets", "GROUPS + 1 row offsets, if grouped";
        c: u64, "u8* c", "the result";
        workspace: u64, "float* workspace", "partial sums [split, product, row, column], if the variant has them";
        decoded: u64, "u8* decoded", "NVFP4 tokens as 16-bit values [m, K], if the variant has a prepass";
        alpha_value: [f32; 2], "float alpha_value[2]", "α where `alpha` is null";
        alpha_step: [i32; 2], "int alpha_step[2]", "0: one α for all groups; 1: one a group";
        m: i32, "int m", "rows of A and C, of all groups together";
        product: i32, "int product", "which product this launch computes, where it computes one of two";
        early: i32, "int early", "whether the prepass, if there is one, may begin before what came before is done";
        settled: i32, "int settled", "whether the offsets were there before what came before began";
        next: u64, "const u8* next", "prepared weights that the launch behind this one reads first";
        next_stride: u64, "u64 next_stride", "bytes from one strip of them to the next";
        next_strips: i32, "int next_strips", "strips of each group; 0: there is nothing to ask for";
        next_bytes: u32, "u32 next_bytes", "of a strip, from its begin on";
    }
    /// What those are given besides that know of columns.
    ColumnParams = "ColumnParams : Params" {
        row_scale: [u64; 2], "const float* row_scale[2]", "factors of the rows of B, or of B1 and B2";
        bias: [u64; 2], "const u8* bias[2]", "addends of the columns of each product";
        row_scale_step: [i32; 2], "int row_scale_step[2]", "from group to group: 0 or N";
        bias_step: [i32; 2], "int bias_step[2]", "from group to group: 0 or N";
    }
    /// What those are given besides that take rows of A, or put rows of C, by their numbers.
    MovedParams = "MovedParams : ColumnParams" {
        rows: u64, "const int* rows", "[m], of A";
        slots: u64, "const int* slots", "[m], of C";
        slot_factors: u64, "const float* slot_factors", "[m], or null";
        a_rows: i32, "int a_rows", "rows that A has";
        c_rows: i32, "int c_rows", "rows that C has";
    }
    /// What those are given besides whose result is in NVFP4.
    CodedParams = "CodedParams : MovedParams" {
        scales: u64, "u8* c_scales", "block scales of C";
        factor: u64, "const float* c_factor", "their factor in device memory, or null";
        factor_value: f32, "float c_factor_value", "the factor where `c_factor` is null";
        factor_step: i32, "int c_factor_step", "0: one factor for all groups; 1: one a group";
    }
}

/// The first argument of every kernel. The driver copies as much of it as the kernel says that it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub(crate) struct Params {
    pub(crate) kernel: KernelParams,
    pub(crate) columns: ColumnParams,
    pub(crate) moved: MovedParams,
    pub(crate) coded: CodedParams,
}

impl Params {
    /// What kernels of a problem take, in CUDA.
    pub(crate) fn cuda_name(problem: &Problem) -> &'static str {
        match () {
            () if problem.c_format().is_coded() => "CodedParams",
            () if problem.is_gathered() || problem.has_slots() => "MovedParams",
            () if problem.has_row_scale() || problem.bias_format().is_some() => "ColumnParams",
            () => "Params",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of, size_of};

    use super::*;

    /// Without padding but at the end, so that the compilers of both sides lay them out alike.
    #[test]
    fn parameters_have_no_gaps() {
        assert_eq!((size_of::<KernelParams>(), align_of::<KernelParams>()), (152, 8));
        let offsets = [
            offset_of!(KernelParams, a),
            offset_of!(KernelParams, a_scales),
            offset_of!(KernelParams, b),
            offset_of!(KernelParams, b_scales),
            offset_of!(KernelParams, alpha),
            offset_of!(KernelParams, offsets),
            offset_of!(KernelParams, c),
            offset_of!(KernelParams, workspace),
            offset_of!(KernelParams, decoded),
            offset_of!(KernelParams, alpha_value),
            offset_of!(KernelParams, alpha_step),
            offset_of!(KernelParams, m),
            offset_of!(KernelParams, product),
            offset_of!(KernelParams, early),
            offset_of!(KernelParams, settled),
            offset_of!(KernelParams, next),
            offset_of!(KernelParams, next_stride),
            offset_of!(KernelParams, next_strips),
            offset_of!(KernelParams, next_bytes),
        ];
        assert_eq!(offsets, [0, 8, 16, 32, 48, 64, 72, 80, 88, 96, 104, 112, 116, 120, 124, 128, 136, 144, 148]);
        let columns = [
            offset_of!(ColumnParams, row_scale),
            offset_of!(ColumnParams, bias),
            offset_of!(ColumnParams, row_scale_step),
            offset_of!(ColumnParams, bias_step),
        ];
        assert_eq!((columns, size_of::<ColumnParams>(), offset_of!(Params, columns)), ([0, 16, 32, 40], 48, 152));
        let moved = [
            offset_of!(MovedParams, rows),
            offset_of!(MovedParams, slots),
            offset_of!(MovedParams, slot_factors),
            offset_of!(MovedParams, a_rows),
            offset_of!(MovedParams, c_rows),
        ];
        assert_eq!((moved, size_of::<MovedParams>(), offset_of!(Params, moved)), ([0, 8, 16, 24, 28], 32, 200));
        let coded = [
            offset_of!(CodedParams, scales),
            offset_of!(CodedParams, factor),
            offset_of!(CodedParams, factor_value),
            offset_of!(CodedParams, factor_step),
        ];
        assert_eq!((coded, size_of::<CodedParams>(), offset_of!(Params, coded)), ([0, 8, 16, 20], 24, 232));
        assert!(PARAMS_CUH.contains("  const float* row_scale[2];  // factors"));
    }

    #[test]
    fn every_operand_has_a_place_of_its_own() {
        let mut params = Params::default();
        for operand in Operand::ALL {
            assert_eq!(*params.address(*operand), 0, "{operand:?}");
            *params.address(*operand) = 1;
        }
    }

    #[test]
    fn names_carry_the_product_where_there_are_two() {
        let dual = Operation::DualGemm(crate::spec::Activation::Silu);
        let single = Operation::Gemm(crate::spec::Activation::None);
        assert_eq!((Operand::B1.name(single), Operand::B1.name(dual)), ("b".to_owned(), "b1".to_owned()));
        assert_eq!(Operand::Offsets.name(dual), "offsets");
    }
}
