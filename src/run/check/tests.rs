//! One test for every refusal.

use super::*;
use crate::format::ScaleLayout;
use crate::spec::{Activation, Arch, Variant, baseline};

const CONTEXT: ContextId = ContextId { context: 0x1000, ordinal: 0 };

fn buffer(elements: u64) -> Buffer {
    Buffer { elements, context: CONTEXT.context, ordinal: CONTEXT.ordinal }
}

/// Operands without memory.
#[derive(Clone, Debug)]
struct Sizes {
    m: u32,
    pieces: Vec<(Operand, Format, Buffer)>,
    prepared: Option<(PreparedLayout, Buffer)>,
}

impl Sizes {
    fn check(&self, operand_spec: &OperandSpec) -> Result<()> {
        let mut check = operand_spec.check(CONTEXT, self.m)?;
        self.pieces.iter().try_for_each(|(operand, format, buffer)| check.piece(*operand, *format, buffer))?;
        self.prepared.iter().try_for_each(|(layout, bytes)| check.prepared_weights(layout, bytes))?;
        check.finish()
    }

    fn piece(&mut self, operand: Operand) -> &mut (Operand, Format, Buffer) {
        self.pieces.iter_mut().find(|piece| piece.0 == operand).unwrap()
    }

    fn elements(&mut self, operand: Operand) -> &mut u64 {
        &mut self.piece(operand).2.elements
    }

    fn without(&mut self, operand: Operand) {
        self.pieces.retain(|piece| piece.0 != operand);
    }

    fn with(&mut self, operand: Operand, elements: u64) {
        self.pieces.push((operand, Format::F32, buffer(elements)));
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

/// Exactly what the spec needs, not an element more; of α only the last, and without a bias.
fn exact(spec: &Spec) -> Sizes {
    let problem = spec.problem();
    let groups = u64::from(problem.groups().unwrap_or(1));
    let padded = problem.scale_layout() == ScaleLayout::Swizzled128x4;
    let scales = |rows: u64, length: u64| (if padded { rows.next_multiple_of(128) } else { rows }) * (length / 16);
    let (m, n, k) = (u64::from(M), u64::from(problem.columns()), u64::from(K));
    let mut pieces = Vec::new();
    let mut matrix = |[values, block_scales]: [Operand; 2], format: Format, elements: u64, scales: u64| {
        let is_coded = format == Format::Nvfp4;
        pieces.push((values, format, buffer(if is_coded { elements / 2 } else { elements })));
        if is_coded {
            pieces.push((block_scales, format, buffer(scales)));
        }
    };
    let products = problem.operation().products() as usize;
    matrix(Operand::TOKENS, problem.a_format(), m * k, scales(m, k));
    let of_b = groups * scales(n, k);
    Operand::B[..products].iter().for_each(|of| matrix(*of, problem.b_format(), groups * n * k, of_b));
    matrix([Operand::C, Operand::CScales], problem.c_format(), m * n, scales(m, n));
    pieces.push(([Operand::Alpha1, Operand::Alpha2][products - 1], Format::F32, buffer(1)));
    pieces.push((Operand::Workspace, Format::F32, buffer(spec.workspace_bytes(M))));
    if problem.groups().is_some() {
        pieces.push((Operand::Offsets, Format::F32, buffer(groups + 1)));
    }
    Sizes { m: M, pieces, prepared: None }
}

/// As [`refused`], where there is something to be done before it is right.
#[track_caller]
fn refused_of(spec: &Spec, right: impl FnOnce(&mut Sizes), change: impl FnOnce(&mut Sizes), words: &str) {
    let (mut operands, mut wrong) = (exact(spec), exact(spec));
    right(&mut operands);
    operands.check(&OperandSpec::new(spec).unwrap()).unwrap();
    change(&mut wrong);
    let error = wrong.check(&OperandSpec::new(spec).unwrap()).unwrap_err();
    assert!(error.is_operand());
    assert_eq!(error.to_string(), words);
}

#[track_caller]
fn refused(spec: &Spec, change: impl FnOnce(&mut Sizes), words: &str) {
    let mut operands = exact(spec);
    operands.check(&OperandSpec::new(spec).unwrap()).unwrap();
    change(&mut operands);
    let error = operands.check(&OperandSpec::new(spec).unwrap()).unwrap_err();
    assert!(error.is_operand());
    assert_eq!(error.to_string(), words);
}

#[test]
fn exact_sizes_are_enough_in_every_layout() {
    for problem in [gemm(), dual(), gemm().grouped(3), dual().grouped(3).a(Format::Nvfp4).c(Format::F32)] {
        for layout in [ScaleLayout::Linear, ScaleLayout::Swizzled128x4] {
            let spec = spec(&problem.scales(layout));
            exact(&spec).check(&OperandSpec::new(&spec).unwrap()).unwrap();
        }
    }
}

#[test]
fn m_has_limits() {
    refused(&spec(&gemm()), |o| o.m = 1 << 25, "m = 33554432: must be at most 16777216");
}

#[test]
fn formats_are_the_kernels() {
    refused(&spec(&gemm()), |o| o.piece(Operand::A).1 = Format::F16, "a is f16, the kernel is for nvfp4");
    refused(&spec(&dual()), |o| o.piece(Operand::C).1 = Format::Bf16, "c is bf16, the kernel is for f16");
    refused(&spec(&dual()), |o| o.piece(Operand::B2).1 = Format::F16, "b2 is f16, the kernel is for nvfp4");
}

#[test]
fn an_element_too_few_is_refused() {
    let (gemm, dual, grouped) = (spec(&gemm()), spec(&dual()), spec(&gemm().grouped(3)));
    refused(&gemm, |o| *o.elements(Operand::A) -= 1, "a has 479 bytes of codes, 480 are needed");
    refused(&gemm, |o| *o.elements(Operand::AScales) -= 1, "a has 59 bytes of block scales, 60 are needed");
    refused(&dual, |o| *o.elements(Operand::A) -= 1, "a has 959 elements, 960 are needed");
    refused(&dual, |o| *o.elements(Operand::C) -= 1, "c has 239 elements, 240 are needed");
    refused(&grouped, |o| *o.elements(Operand::B1) = 9216, "b has 9216 bytes of codes, 13824 are needed");
}

#[test]
fn padded_scales_are_counted_by_group() {
    let grouped = spec(&gemm().grouped(3).scales(ScaleLayout::Swizzled128x4));
    refused(&grouped, |o| *o.elements(Operand::B1Scales) = 3072, "b has 3072 bytes of block scales, 4608 are needed");
    refused(&grouped, |o| *o.elements(Operand::AScales) = 60, "a has 60 bytes of block scales, 1536 are needed");
}

#[test]
fn gathered_rows_have_as_many_scales_as_a_has_rows() {
    let gathered = spec(&gemm().gathered());
    let rows = |o: &mut Sizes, rows: u64| {
        o.with(Operand::Rows, M.into());
        *o.elements(Operand::A) = rows * u64::from(K) / 2;
    };
    refused_of(&gathered, |o| rows(o, 2), |o| rows(o, 7), "a has 60 bytes of block scales, 84 are needed");
    let padded = spec(&gemm().gathered().scales(ScaleLayout::Swizzled128x4));
    refused_of(&padded, |o| rows(o, 128), |o| rows(o, 129), "a has 1536 bytes of block scales, 3072 are needed");
    let problem = gemm().a(Format::E4m3).prepared().gathered();
    let layout = problem.prepared_layout().unwrap();
    let rows = |o: &mut Sizes, rows: u64| {
        [Operand::B1, Operand::B1Scales].iter().for_each(|of| o.without(*of));
        o.prepared = Some((layout, buffer(layout.bytes() as u64)));
        *o.elements(Operand::A) = rows * u64::from(K);
        let behind = o.pieces.iter().position(|piece| piece.0 == Operand::A).unwrap() + 1;
        o.pieces.insert(behind, (Operand::AScales, Format::E4m3, buffer(M.into())));
        o.with(Operand::Rows, M.into());
    };
    refused_of(&spec(&problem), |o| rows(o, 5), |o| rows(o, 6), "a has 5 factors of rows, 6 are needed");
    // Two for each row: K is 192.
    let along_k = |o: &mut Sizes, factors: u64| {
        rows(o, 5);
        *o.elements(Operand::AScales) = factors;
    };
    let problem = problem.k_factors();
    refused_of(&spec(&problem), |o| along_k(o, 10), |o| along_k(o, 9), "a has 9 factors of rows, 10 are needed");
}

#[test]
fn a_result_in_nvfp4_has_codes_scales_and_a_factor() {
    let coded = || gemm().n(64).c(Format::Nvfp4);
    let linear = spec(&coded());
    refused(&linear, |o| *o.elements(Operand::C) -= 1, "c has 159 bytes of codes, 160 are needed");
    refused(&linear, |o| *o.elements(Operand::CScales) -= 1, "c has 19 bytes of block scales, 20 are needed");
    refused(&linear, |o| o.without(Operand::CScales), "no scales of c given");
    let padded = spec(&coded().scales(ScaleLayout::Swizzled128x4));
    refused(&padded, |o| *o.elements(Operand::CScales) = 20, "c has 20 bytes of block scales, 512 are needed");
    let put = |o: &mut Sizes, rows: u64| {
        o.with(Operand::Slots, M.into());
        *o.elements(Operand::C) = 32 * rows;
    };
    let slots = spec(&coded().slots());
    refused_of(&slots, |o| put(o, 5), |o| put(o, 9), "c has 20 bytes of block scales, 36 are needed");
    let grouped = spec(&coded().grouped(3));
    let words = "c_factor has 2 elements, expected 1, or 1 for each of 3 groups";
    refused(&grouped, |o| o.with(Operand::CFactor, 2), words);
    refused(&spec(&gemm()), |o| o.with(Operand::CFactor, 1), "c_factor given, but the problem has none");

    let takes = |problem: &Problem, factor: f32| {
        let operand_spec = OperandSpec::new(&spec(problem)).unwrap();
        operand_spec.check_c_factor(factor).map_err(|error| error.to_string())
    };
    assert_eq!(takes(&coded(), 0.5), Ok(()));
    assert_eq!(takes(&coded(), 0.0), Err("c_factor is 0e0: it must be positive and normal".to_owned()));
    assert_eq!(takes(&gemm(), 1.0), Ok(()));
    assert_eq!(takes(&gemm(), 0.5), Err("c_factor given, but the problem has none".to_owned()));
}

#[test]
fn the_number_of_bs_is_the_operations() {
    let two = |o: &mut Sizes| o.pieces.push((Operand::B2, Format::Nvfp4, buffer(1 << 20)));
    refused(&spec(&gemm()), two, "two B given, gemm takes one: use Operands::gemm");
    let one = |o: &mut Sizes| {
        o.without(Operand::B2);
        o.without(Operand::B2Scales);
    };
    refused(&spec(&dual()), one, "one B given, dual_gemm takes two: use Operands::dual_gemm");
    refused(&spec(&gemm()), |o| o.with(Operand::Alpha2, 1), "alpha given, but the problem has none");
}

#[test]
fn offsets_go_with_groups() {
    let grouped = spec(&dual().grouped(3));
    refused(&grouped, |o| o.without(Operand::Offsets), "no offsets given: 3 groups need 4 of them");
    refused(&grouped, |o| *o.elements(Operand::Offsets) = 3, "offsets has 3 elements, 4 are needed");
    refused(&spec(&dual()), |o| o.with(Operand::Offsets, 4), "offsets given, but the problem is not grouped");
}

#[test]
fn alpha_is_one_or_one_a_group() {
    let grouped = spec(&dual().grouped(3));
    refused(
        &grouped,
        |o| *o.elements(Operand::Alpha2) = 2,
        "alpha2 has 2 elements, expected 1, or 1 for each of 3 groups",
    );
    refused(&spec(&gemm()), |o| *o.elements(Operand::Alpha1) = 3, "alpha has 3 elements, expected 1");
    let mut each = exact(&grouped);
    each.with(Operand::Alpha1, 3);
    each.check(&OperandSpec::new(&grouped).unwrap()).unwrap();
}

#[test]
fn what_columns_have_is_there_where_the_problem_has_it() {
    for [first, second] in [[Operand::RowScale1, Operand::RowScale2], [Operand::Bias1, Operand::Bias2]] {
        let (problem, name) = match first {
            Operand::Bias1 => (dual().grouped(3).bias(Format::F32), "bias"),
            _ => (dual().grouped(3).row_scale(), "row_scale"),
        };
        let operand_spec = OperandSpec::new(&spec(&problem)).unwrap();
        let of = |elements: [u64; 2]| {
            let mut sizes = exact(&spec(&problem));
            sizes.with(first, elements[0]);
            sizes.with(second, elements[1]);
            sizes.check(&operand_spec).map_err(|error| error.to_string())
        };
        of([48, 144]).unwrap();
        of([144, 48]).unwrap();
        let wrong = format!("{name}2 has 96 elements, expected 48, or 48 for each of 3 groups");
        assert_eq!(of([48, 96]), Err(wrong));
        let missing = exact(&spec(&problem)).check(&operand_spec).unwrap_err().to_string();
        assert_eq!(missing, format!("no {name}1 given: the problem has one, of 48 elements"));
        let unwanted = format!("{name} given, but the problem has none");
        refused(&spec(&gemm()), |o| o.with(first, 48), &unwanted);
    }
    let halves = spec(&gemm().bias(Format::Bf16));
    let mut sizes = exact(&halves);
    sizes.with(Operand::Bias1, 48);
    let error = sizes.check(&OperandSpec::new(&halves).unwrap()).unwrap_err().to_string();
    assert_eq!(error, "bias is f32, the kernel is for bf16");
}

#[test]
fn workspace_is_asked_for_where_partial_sums_leave_the_kernel() {
    let two_pass = spec(&dual());
    refused(&two_pass, |o| o.without(Operand::Workspace), "no workspace given: 1920 bytes are needed for m = 5");
    refused(&two_pass, |o| *o.elements(Operand::Workspace) = 1919, "workspace has 1919 bytes, 1920 are needed");
    let interleaved: Variant = "mma.t64x128x64.s3.interleaved.uniform.direct".parse().unwrap();
    let interleaved = Spec::new(&dual(), &interleaved, &Arch::H200).unwrap();
    let mut without = exact(&interleaved);
    without.without(Operand::Workspace);
    without.check(&OperandSpec::new(&interleaved).unwrap()).unwrap();
}

#[test]
fn everything_is_in_the_streams_context() {
    let grouped = spec(&dual().grouped(3));
    let elsewhere = |operand| {
        move |o: &mut Sizes| {
            let buffer = &mut o.piece(operand).2;
            (buffer.ordinal, buffer.context) = (2, 0x3000);
        }
    };
    for (operand, name) in [
        (Operand::A, "a"),
        (Operand::B2Scales, "b2"),
        (Operand::Offsets, "offsets"),
        (Operand::Alpha2, "alpha2"),
        (Operand::Workspace, "workspace"),
    ] {
        refused(&grouped, elsewhere(operand), &format!("{name} is on device 2, the stream on device 0"));
    }
    refused(
        &grouped,
        |o| o.piece(Operand::C).2.context = 7,
        "c and the stream belong to two CudaContext objects of device 0, which do not order each other's work: make all \
         operands and streams from one (Device::of_context opens a device on it)",
    );
}

fn params(operand: Operand, address: u64) -> Params {
    let mut params = Params::default();
    *params.address(operand) = address;
    params
}

#[test]
fn addresses_are_aligned() {
    let operand_spec = OperandSpec::new(&spec(&dual())).unwrap();
    operand_spec.aligned(params(Operand::A, 0x100)).unwrap();
    for (operand, address, words) in [
        (Operand::A, 0x108, "a begins at 0x108, which is not a multiple of 16 bytes"),
        (Operand::B2, 0x304, "b2 begins at 0x304, which is not a multiple of 16 bytes"),
        (Operand::C, 0x402, "c begins at 0x402, which is not a multiple of 16 bytes"),
        (Operand::Workspace, 4, "workspace begins at 0x4, which is not a multiple of 16 bytes"),
        (Operand::B1Scales, 2, "scales of b1 begins at 0x2, which is not a multiple of 4 bytes"),
        (Operand::Alpha2, 3, "alpha2 begins at 0x3, which is not a multiple of 4 bytes"),
        (Operand::Bias1, 2, "bias1 begins at 0x2, which is not a multiple of 4 bytes"),
        (Operand::Offsets, 0x606, "offsets begins at 0x606, which is not a multiple of 4 bytes"),
    ] {
        let error = operand_spec.aligned(params(operand, address)).unwrap_err();
        assert!(error.is_operand());
        assert_eq!(error.to_string(), words);
    }
}

#[test]
fn scales_that_are_not_copied_begin_at_a_multiple_of_16() {
    let of = |layout: ScaleLayout, variant: &str| {
        let problem = Problem::dual_gemm(Activation::Silu).a(Format::Nvfp4).scales(layout).n(4096).k(7168);
        OperandSpec::new(&Spec::new(&problem, &variant.parse().unwrap(), &Arch::B200).unwrap()).unwrap()
    };
    let single = "tcgen05.t128x64x256.s3.interleaved.ws1.direct.token_rows";
    let pair = "tcgen05.t256x64x256.s7.interleaved.ws1.direct.pair.token_rows";
    for variant in [single, pair] {
        let operand_spec = of(ScaleLayout::Swizzled128x4, variant);
        for (operand, address, begin) in [
            (Operand::AScales, 0x204, "scales of a begins at 0x204"),
            (Operand::B1Scales, 0x408, "scales of b1 begins at 0x408"),
            (Operand::B2Scales, 0x404, "scales of b2 begins at 0x404"),
        ] {
            operand_spec.aligned(params(operand, 0x200)).unwrap();
            let error = operand_spec.aligned(params(operand, address)).unwrap_err();
            assert!(error.is_operand() && error.to_string().starts_with(begin), "{variant}: {error}");
        }
    }
    for operand in [Operand::AScales, Operand::B1Scales, Operand::B2Scales] {
        of(ScaleLayout::Linear, single).aligned(params(operand, 0x204)).unwrap();
    }
}

#[test]
fn prepared_weights_are_those_of_the_problem() {
    let problem = gemm().prepared();
    let layouts = [problem, problem.n(2 * problem.columns())].map(|problem| problem.prepared_layout().unwrap());
    let [right, wider] = layouts.map(|layout| (layout, buffer(layout.bytes() as u64)));
    let (wgmma, mma) = (spec(&problem), spec(&gemm()));
    let answer = |spec: &Spec, prepared, is_given: bool| {
        let mut sizes = exact(&mma);
        *sizes.elements(Operand::Workspace) = wgmma.workspace_bytes(M);
        sizes.prepared = prepared;
        if !is_given {
            sizes.without(Operand::B1);
            sizes.without(Operand::B1Scales);
        }
        sizes.check(&OperandSpec::new(spec).unwrap()).map_err(|error| error.to_string())
    };
    answer(&wgmma, Some(right), false).unwrap();
    let wrong = answer(&wgmma, Some(wider), false).unwrap_err();
    assert!(wrong.contains(&wider.0.to_string()) && wrong.contains(&right.0.to_string()), "{wrong}");
    let short = Buffer { elements: right.1.elements - 1, ..right.1 };
    let wrong = answer(&wgmma, Some((right.0, short)), false).unwrap_err();
    assert!(wrong.contains(&right.1.elements.to_string()), "{wrong}");
    assert!(answer(&mma, Some(right), false).unwrap_err().contains("weights as they are"));
    assert!(answer(&wgmma, None, true).unwrap_err().contains("Engine::prepare"));
    assert_eq!(answer(&wgmma, None, false).unwrap_err(), "no b given");
}
