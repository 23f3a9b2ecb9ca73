//! One test for every refusal.

use super::*;
use crate::spec::{Activation, Arch, Variant, baseline};

const HOME: Home = Home { context: 0x1000, ordinal: 0 };

fn buffer(elements: u64) -> Buffer {
    Buffer { elements, context: HOME.context, ordinal: HOME.ordinal }
}

fn matrix_of(format: Format, elements: u64, scales: u64) -> MatrixSize {
    match format {
        Format::Nvfp4 => MatrixSize { format, values: buffer(elements / 2), scales: Some(buffer(scales)) },
        _ => MatrixSize { format, values: buffer(elements), scales: None },
    }
}

/// Operands without memory.
#[derive(Clone, Copy, Debug)]
struct Sizes<'a> {
    m: u32,
    a: MatrixSize,
    b: WeightSizes<'a>,
    alpha: [Option<Buffer>; 2],
    offsets: Option<Buffer>,
    c: MatrixSize,
    workspace: Option<Buffer>,
}

impl Described for Sizes<'_> {
    fn m(&self) -> u32 {
        self.m
    }

    fn a(&self) -> MatrixSize {
        self.a
    }

    fn b(&self) -> WeightSizes<'_> {
        self.b
    }

    fn alpha(&self) -> [Option<Buffer>; 2] {
        self.alpha
    }

    fn offsets(&self) -> Option<Buffer> {
        self.offsets
    }

    fn c(&self) -> MatrixSize {
        self.c
    }

    fn workspace(&self) -> Option<Buffer> {
        self.workspace
    }
}

const M: u32 = 5;
const N: u32 = 48;
const K: u32 = 192;

fn gemm() -> Problem {
    Problem::gemm().n(N).k(K).a(Format::Nvfp4)
}

fn dual() -> Problem {
    Problem::dual_gemm(Activation::Silu).n(N).k(K)
}

fn spec(problem: &Problem) -> Spec {
    Spec::new(problem, &baseline(problem), &Arch::H200).unwrap()
}

/// Exactly what the spec needs, not an element more.
fn exact(spec: &Spec) -> Sizes<'static> {
    let problem = spec.problem();
    let groups = u64::from(problem.groups().unwrap_or(1));
    let padded = problem.scale_layout() == ScaleLayout::Swizzled128x4;
    let scales = |rows: u64| (if padded { rows.next_multiple_of(128) } else { rows }) * u64::from(K / 16);
    let (m, n, k) = (u64::from(M), u64::from(N), u64::from(K));
    let b = matrix_of(problem.b_format(), groups * n * k, groups * scales(n));
    Sizes {
        m: M,
        a: matrix_of(problem.a_format(), m * k, scales(m)),
        b: WeightSizes::Given([Some(b), (problem.operation().products() == 2).then_some(b)]),
        alpha: [None, Some(buffer(1))],
        offsets: problem.groups().map(|groups| buffer(u64::from(groups) + 1)),
        c: matrix_of(problem.c_format(), m * n, 0),
        workspace: Some(buffer(spec.workspace_bytes(M))),
    }
}

#[track_caller]
fn refused(spec: &Spec, change: impl FnOnce(&mut Sizes), words: &str) {
    let mut operands = exact(spec);
    Contract::new(spec).unwrap().check(HOME, &operands).unwrap();
    change(&mut operands);
    let error = Contract::new(spec).unwrap().check(HOME, &operands).unwrap_err();
    assert!(error.is_operand());
    assert_eq!(error.to_string(), words);
}

#[test]
fn exact_sizes_are_enough_in_every_layout() {
    for problem in [gemm(), dual(), gemm().grouped(3), dual().grouped(3).a(Format::Nvfp4).c(Format::F32)] {
        for layout in [ScaleLayout::Linear, ScaleLayout::Swizzled128x4] {
            let spec = spec(&problem.scales(layout));
            Contract::new(&spec).unwrap().check(HOME, &exact(&spec)).unwrap();
        }
    }
}

#[test]
fn m_has_limits() {
    refused(&spec(&gemm()), |o| o.m = 1 << 25, "m = 33554432: must be at most 16777216");
}

#[test]
fn formats_are_the_kernels() {
    refused(&spec(&gemm()), |o| o.a = matrix_of(Format::F16, 960, 0), "a is f16, the kernel is for nvfp4");
    refused(&spec(&dual()), |o| o.c.format = Format::Bf16, "c is bf16, the kernel is for f16");
    refused(
        &spec(&dual()),
        |o| given(o)[1] = Some(matrix_of(Format::F16, 48 * 192, 0)),
        "b2 is f16, the kernel is for nvfp4",
    );
}

#[test]
fn an_element_too_few_is_refused() {
    refused(&spec(&gemm()), |o| o.a.values.elements -= 1, "a has 479 bytes of codes, 480 are needed");
    refused(&spec(&gemm()), |o| o.a.scales = Some(buffer(59)), "a has 59 bytes of block scales, 60 are needed");
    refused(&spec(&dual()), |o| o.a.values.elements -= 1, "a has 959 elements, 960 are needed");
    refused(&spec(&dual()), |o| o.c.values.elements -= 1, "c has 239 elements, 240 are needed");
    let grouped = spec(&gemm().grouped(3));
    refused(
        &grouped,
        |o| given(o)[0] = Some(matrix_of(Format::Nvfp4, 2 * 48 * 192, 3 * 48 * 12)),
        "b has 9216 bytes of codes, 13824 are needed",
    );
}

#[test]
fn padded_scales_are_counted_by_group() {
    let grouped = spec(&gemm().grouped(3).scales(ScaleLayout::Swizzled128x4));
    refused(
        &grouped,
        |o| given(o)[0] = Some(matrix_of(Format::Nvfp4, 3 * 48 * 192, 256 * 12)),
        "b has 3072 bytes of block scales, 4608 are needed",
    );
    refused(&grouped, |o| o.a.scales = Some(buffer(60)), "a has 60 bytes of block scales, 1536 are needed");
}

#[test]
fn the_number_of_bs_is_the_operations() {
    let b2 = given(&mut exact(&spec(&dual())))[1];
    refused(&spec(&gemm()), |o| given(o)[1] = b2, "two B given, gemm takes one: use Operands::gemm");
    refused(&spec(&dual()), |o| given(o)[1] = None, "one B given, dual_gemm takes two: use Operands::dual_gemm");
}

#[test]
fn offsets_go_with_groups() {
    let grouped = spec(&dual().grouped(3));
    refused(&grouped, |o| o.offsets = None, "no offsets given: 3 groups need 4 of them");
    refused(&grouped, |o| o.offsets = Some(buffer(3)), "offsets has 3 elements, 4 are needed");
    refused(&spec(&dual()), |o| o.offsets = Some(buffer(4)), "offsets given, but the problem is not grouped");
}

#[test]
fn alpha_is_one_or_one_a_group() {
    let grouped = spec(&dual().grouped(3));
    refused(
        &grouped,
        |o| o.alpha[1] = Some(buffer(2)),
        "alpha2 has 2 elements, expected 1 or one for each of 3 groups",
    );
    refused(&spec(&gemm()), |o| o.alpha[0] = Some(buffer(3)), "alpha has 3 elements, expected 1");
    let mut each = exact(&grouped);
    each.alpha = [Some(buffer(3)), Some(buffer(1))];
    Contract::new(&grouped).unwrap().check(HOME, &each).unwrap();
}

#[test]
fn workspace_is_asked_for_where_partial_sums_leave_the_kernel() {
    let two_pass = spec(&dual());
    refused(&two_pass, |o| o.workspace = None, "no workspace given: 1920 bytes are needed for m = 5");
    refused(&two_pass, |o| o.workspace = Some(buffer(1919)), "workspace has 1919 bytes, 1920 are needed");
    let interleaved: Variant = "mma.t64x128x64.s3.interleaved.uniform.direct".parse().unwrap();
    let interleaved = Spec::new(&dual(), &interleaved, &Arch::H200).unwrap();
    let without = Sizes { workspace: None, ..exact(&interleaved) };
    Contract::new(&interleaved).unwrap().check(HOME, &without).unwrap();
}

#[test]
fn everything_is_in_the_streams_context() {
    let grouped = spec(&dual().grouped(3));
    let on_1 = Buffer { ordinal: 1, context: 0x2000, ..exact(&grouped).a.values };
    refused(&grouped, |o| o.a.values = on_1, "a is on device 1, the stream on device 0");
    refused(
        &grouped,
        |o| o.c.values.context = 7,
        "c and the stream belong to two CudaContext objects of device 0, which do not order each other's work: make all \
         operands and streams from one (Device::of_context opens a device on it)",
    );
    let elsewhere = |elements| Buffer { ordinal: 2, context: 0x3000, ..buffer(elements) };
    refused(&grouped, |o| o.offsets = Some(elsewhere(4)), "offsets is on device 2, the stream on device 0");
    refused(&grouped, |o| o.alpha[0] = Some(elsewhere(3)), "alpha1 is on device 2, the stream on device 0");
    refused(&grouped, |o| o.workspace = Some(elsewhere(1 << 20)), "workspace is on device 2, the stream on device 0");
}

#[test]
fn addresses_are_aligned() {
    let good = Params { a: 0x100, b: [0x200, 0x300], c: 0x400, a_scales: 0x504, offsets: 0x608, ..Params::default() };
    alignment(&good).unwrap();
    for (bad, words) in [
        (Params { a: 0x108, ..good }, "a begins at 0x108, which is not a multiple of 16 bytes"),
        (Params { b: [0x200, 0x304], ..good }, "b2 begins at 0x304, which is not a multiple of 16 bytes"),
        (Params { c: 0x402, ..good }, "c begins at 0x402, which is not a multiple of 16 bytes"),
        (Params { workspace: 4, ..good }, "workspace begins at 0x4, which is not a multiple of 16 bytes"),
        (Params { b_scales: [2, 0], ..good }, "scales of b begins at 0x2, which is not a multiple of 4 bytes"),
        (Params { alpha: [0, 3], ..good }, "alpha2 begins at 0x3, which is not a multiple of 4 bytes"),
        (Params { offsets: 0x606, ..good }, "offsets begins at 0x606, which is not a multiple of 4 bytes"),
    ] {
        let error = alignment(&bad).unwrap_err();
        assert!(error.is_operand());
        assert_eq!(error.to_string(), words);
    }
}

/// B, or B1 and B2, as they are given.
fn given<'a>(sizes: &'a mut Sizes<'_>) -> &'a mut [Option<MatrixSize>; 2] {
    match &mut sizes.b {
        WeightSizes::Given(b) => b,
        WeightSizes::Prepared(_) => panic!("prepared weights"),
    }
}

#[test]
fn prepared_weights_are_those_of_the_problem() {
    let problem = gemm().prepared();
    let layouts = [problem, problem.n(2 * problem.columns())].map(|problem| problem.prepared_layout().unwrap());
    let [right, wider] = layouts.each_ref().map(|layout| {
        let WeightSizes::Given([Some(b), _]) = exact(&spec(&gemm())).b else { panic!("prepared weights") };
        PreparedSize { layout, bytes: Buffer { elements: layout.bytes() as u64, ..b.values } }
    });
    let wgmma = spec(&problem);
    let mut operands = exact(&spec(&gemm()));
    operands.workspace = Some(buffer(wgmma.workspace_bytes(M)));
    let answer = |b: WeightSizes<'_>, spec: &Spec| {
        Contract::new(spec).unwrap().check(HOME, &Sizes { b, ..operands }).map_err(|error| error.to_string())
    };
    answer(WeightSizes::Prepared(right), &wgmma).unwrap();
    let wrong = answer(WeightSizes::Prepared(wider), &wgmma).unwrap_err();
    assert!(wrong.contains(&wider.layout.to_string()) && wrong.contains(&right.layout.to_string()), "{wrong}");
    let short = Buffer { elements: right.bytes.elements - 1, ..right.bytes };
    let wrong = answer(WeightSizes::Prepared(PreparedSize { bytes: short, ..right }), &wgmma).unwrap_err();
    assert!(wrong.contains(&right.bytes.elements.to_string()), "{wrong}");
    assert!(answer(WeightSizes::Prepared(right), &spec(&gemm())).unwrap_err().contains("weights as they are"));
    assert!(answer(WeightSizes::Given([None, None]), &wgmma).unwrap_err().contains("Engine::prepare"));
}
