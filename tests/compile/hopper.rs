//! The path `wgmma`: its space, thinly, and what its machine code has to have.

use std::sync::Mutex;

use object::{Object as _, ObjectSection as _};
use warpsmith::build::Cubin;
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::build::{Header, Source};
use warpsmith::internal::spec::space;
use warpsmith::pick;
use warpsmith::spec::{Activation, Arch, Problem, Spec, Variant};
use warpsmith_testing as common;
use warpsmith_tune::suite::Suite;

use crate::{
    assert_compiled, compile_all, every_operation, moved, sampled, slow, slow_or_warning, turn, varied, warning,
};

/// The space of the path `wgmma`, thinly, over problems that fit no tile, and every format of C.
#[test]
fn sampled_variants_for_prepared_weights_compile_without_a_warning() {
    let Some(toolchain) = common::toolchain("sampled variants for prepared weights") else { return };
    let _turn = turn();
    let mut specs = Vec::new();
    let shapes = Suite::built_in().unwrap().words.shapes;
    let operations = [Problem::gemm(), Problem::dual_gemm(Activation::Silu), Problem::dual_gemm(Activation::GeluTanh)];
    let known = operations.len();
    let others = every_operation().into_iter().filter(|problem| !operations.contains(problem));
    for (index, operation) in operations.into_iter().chain(others).enumerate() {
        for (turn, a) in [Format::F16, Format::Bf16, Format::Nvfp4].into_iter().enumerate() {
            let index = 3 * index + turn;
            let c = [Format::F16, Format::Bf16, Format::F32][(index + index / 3) % 3];
            let layout = [ScaleLayout::Linear, ScaleLayout::Swizzled128x4][index % 2];
            let (n, k) = shapes[index % shapes.len()];
            let problem = operation.n(n).k(k).a(a).c(c).scales(layout).prepared();
            let problem = if index % 4 < 2 { problem.grouped(40) } else { problem };
            let problem = if index % 2 == 0 { problem } else { problem.row_scale().bias(c) };
            let problem = moved(problem, index);
            let count = if index < 3 * known { 2 } else { 1 };
            specs.extend(sampled(&problem, &Arch::H200, count, 101 * index));
        }
    }
    // The tallest tiles of tokens that the kernel itself decodes, by as many warps as there may be.
    let decoded = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).a(Format::Nvfp4).prepared();
    let tall = space(&decoded, &Arch::H200).filter(|spec| spec.variant().tile.tokens >= 192 && !spec.variant().prepass);
    let tall: Vec<Spec> = tall.collect();
    specs.extend(tall.iter().step_by((tall.len() / 6).max(1)).copied());
    let specs = common::thinned(specs, 8);
    assert_compiled(&toolchain, &specs, "sampled variants for prepared weights", warning);
}

/// The same of e4m3 tokens, whose kernels have registers for sums and for what these are added to.
#[test]
fn sampled_variants_of_e4m3_tokens_compile_without_a_warning() {
    let Some(toolchain) = common::toolchain("sampled variants of e4m3 tokens") else { return };
    let _turn = turn();
    let mut specs = Vec::new();
    let shapes = Suite::built_in().unwrap().words.shapes;
    for (index, operation) in every_operation().into_iter().enumerate() {
        let c = [Format::F16, Format::Bf16, Format::F32][index % 3];
        let (n, k) = shapes[index % shapes.len()];
        let problem = varied(operation.n(n).k(k).a(Format::E4m3).c(c).prepared(), index, c);
        specs.extend(sampled(&problem, &Arch::H200, 2, 101 * index));
        specs.extend(sampled(&problem.k_factors(), &Arch::H200, 2, 103 * index));
        let expanded = if index % 2 == 0 { problem.expanded() } else { problem.expanded().k_factors() };
        specs.extend(sampled(&expanded, &Arch::H200, 2, 107 * index));
    }
    // Every way along K that has registers for little more.
    let dual = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).a(Format::E4m3).k_factors().prepared();
    for variant in [
        "wgmma.t16x32x256.s12.interleaved.ws4.direct",
        "wgmma.t64x32x256.s8.interleaved.ws2.shared",
        "wgmma.t128x32x256.s5.interleaved.ws2.shared",
        "wgmma.t160x32x128.s8.interleaved.ws2.shared",
        "wgmma.t256x32x256.s3.interleaved.ws1.shared",
        "wgmma.t240x64x128.s4.interleaved.ws2.shared.persistent",
        "wgmma.t240x64x256.s2.interleaved.ws2.shared.persistent",
    ] {
        specs.push(Spec::new(&dual, &variant.parse().unwrap(), &Arch::H200).unwrap());
    }
    // What is launched: the tallest tiles, which have no register to spare, are chosen, and seldom drawn.
    let picker = pick::Picker::new("NVIDIA H200", &Arch::H200);
    let dual = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).a(Format::E4m3).prepared();
    specs.extend(picker.schedule(&dual).unwrap().specs());
    specs.extend(picker.schedule(&dual.expanded()).unwrap().specs());
    let experts = Problem::dual_gemm(Activation::Silu).n(768).k(2048).a(Format::E4m3).grouped(128).gathered();
    let experts = experts.experts_per_token(8);
    specs.extend(picker.schedule(&experts.expanded().m_up_to(65536)).unwrap().specs());
    let few = experts.n(14336).k(4096).grouped(8).experts_per_token(2);
    specs.extend(picker.schedule(&few.prepared().m_up_to(16384)).unwrap().specs());
    let mut specs = common::thinned(specs, 8);
    // Who gathers has an address for each of its rows, and fewer warps where one stores tiles.
    let gathered = Problem::dual_gemm(Activation::Silu).n(256).k(4096).a(Format::E4m3).grouped(8).gathered().prepared();
    for variant in [
        "wgmma.t152x64x256.s3.interleaved.ws2.shared.persistent",
        "wgmma.t128x64x256.s3.interleaved.ws2.direct.persistent",
    ] {
        specs.push(Spec::new(&gathered, &variant.parse().unwrap(), &Arch::H200).unwrap());
    }
    assert_compiled(&toolchain, &specs, "sampled variants of e4m3 tokens", slow_or_warning);
}

/// Products of e4m3 values in the machine code: instructions of 16 bytes, the opcode in the lowest bits.
fn products(cubin: &Cubin) -> usize {
    const OPCODES: [u16; 2] = [0xDF3, 0x9F3];
    let file = object::File::parse(cubin.image()).unwrap();
    let code = file.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".text.")));
    let opcodes = code.flat_map(|section| {
        let bytes = section.data().unwrap().chunks_exact(16);
        bytes.map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]) & 0xFFF).collect::<Vec<_>>()
    });
    opcodes.filter(|opcode| OPCODES.contains(opcode)).count()
}

/// ptxas has left products out where a warpgroup multiplies in halves and K has no more than two stages.
#[test]
fn all_products_of_e4m3_values_are_in_the_machine_code() {
    let mut toolchains = common::toolchains("products in machine code");
    toolchains.extend(common::toolchain("products in machine code"));
    toolchains.dedup_by_key(|toolchain| toolchain.identity().to_owned());
    let _turn = turn();
    let dual = Problem::dual_gemm(Activation::Silu).n(272).a(Format::E4m3);
    let mut specs = Vec::new();
    for (index, k) in [128, 192, 256, 320, 448, 512].into_iter().enumerate() {
        for (turn, problem) in [dual.k(k).prepared(), dual.k(k).expanded()].into_iter().enumerate() {
            let problem = if (index + turn).is_multiple_of(2) { problem.gathered() } else { problem.grouped(3) };
            let tall = space(&problem, &Arch::H200).filter(|spec| {
                let Variant { tile, .. } = spec.variant();
                tile.tokens >= 192 && tile.k == if k < 256 { 128 } else { 256 }
            });
            let tall: Vec<Spec> = tall.collect();
            specs.push(tall[101 * (2 * index + turn) % tall.len()]);
        }
    }
    // The same where K is shared by as many blocks as it has stages.
    for variant in ["t256x32x256.s1.interleaved.ws1.shared.dsmem4", "t192x32x256.s2.interleaved.ws1.direct.k4"] {
        let variant = format!("wgmma.{variant}").parse().unwrap();
        let problems = [dual.k(1024).prepared(), dual.k(1024).expanded()];
        specs.extend(problems.iter().map(|problem| Spec::new(problem, &variant, &Arch::H200).unwrap()));
    }
    let compilers = toolchains.len();
    for (toolchain, specs) in &common::shares(toolchains, &specs) {
        let wrong = compile_all(toolchain, specs, |spec, cubin| {
            let source = warpsmith::internal::build::render(spec).unwrap();
            let text = warpsmith::internal::build::ptx(toolchain, &source, spec.arch().target()).unwrap();
            let (wanted, found) = (text.matches("wgmma.mma_async").count(), products(cubin));
            (wanted == 0 || wanted != found).then(|| format!("{spec}: {found} of {wanted} products"))
        });
        assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), specs.len(), wrong.join("\n"));
    }
    eprintln!("{} kernels have all their products, by {compilers} compilers", specs.len());
}

/// The check above can fail: registers of a product that is under way, read before it is waited for, are found.
#[test]
fn products_that_wait_for_each_other_are_found() {
    let Some(toolchain) = common::toolchain("serialised products") else { return };
    let _turn = turn();
    let problem = Problem::gemm().n(256).k(1024).prepared();
    let variant = "wgmma.t64x64x64.s4.single.ws1.direct".parse().unwrap();
    let spec = Spec::new(&problem, &variant, &Arch::H200).unwrap();
    let source = warpsmith::internal::build::render(&spec).unwrap();
    let (from, to) =
        ("multiply<WIDTH>(buffer,", "asm volatile(\"add.f32 sum0, sum0, sum0;\"); multiply<WIDTH>(buffer,");
    let changed: Vec<Header> = source
        .headers()
        .iter()
        .map(|header| Header { name: header.name, text: header.text.replace(from, to).leak() })
        .collect();
    assert_ne!(changed, source.headers());
    let changed = Source::new(source.name(), source.text(), changed.leak(), source.entries().to_vec());
    let compile = |source| warpsmith::internal::build::compile(&toolchain, source, spec.arch().target()).unwrap();
    assert_eq!(slow(&compile(&source)), None);
    let found = slow(&compile(&changed)).unwrap_or_default();
    assert!(found.contains("serialized"), "{found}");
}

/// Prepared MXFP4 weights take hardly more registers than NVFP4's in the same kernel, and leave an SM as many blocks.
#[test]
fn prepared_mxfp4_takes_hardly_more_registers() {
    let Some(toolchain) = common::toolchain("registers of prepared MXFP4 weights") else { return };
    let _turn = turn();
    let registers = Mutex::new(Vec::new());
    let mut pairs = Vec::new();
    for (index, operation) in common::thinned(every_operation().into_iter().enumerate().step_by(2), 2) {
        let a = [Format::Bf16, Format::F16][index / 2 % 2];
        let problem = moved(operation.n(272).k(448).a(a).b(Format::Mxfp4).c(a).prepared(), index);
        for spec in sampled(&problem, &Arch::H200, 2, index) {
            pairs.push(Spec::new(&problem.b(Format::Nvfp4), spec.variant(), &Arch::H200).unwrap());
            pairs.push(spec);
        }
    }
    let note = |spec: &Spec, cubin: &Cubin| {
        let most = cubin.resources().iter().map(|entry| entry.registers()).max().unwrap();
        registers.lock().unwrap().push((*spec, most));
        slow(cubin)
    };
    assert_eq!(compile_all(&toolchain, &pairs, note), Vec::<String>::new());
    let registers = registers.into_inner().unwrap();
    let of = |spec: &Spec| registers.iter().find(|(known, _)| known == spec).unwrap().1;
    for pair in pairs.chunks(2) {
        let (nvfp4, mxfp4) = (of(&pair[0]), of(&pair[1]));
        eprintln!("{}: {mxfp4} registers, of NVFP4 {nvfp4}", pair[1]);
        // f16's large scales have a way of their own.
        let more = if pair[1].problem().compute_format() == Format::F16 { 3 } else { 1 };
        assert!(mxfp4 <= nvfp4 + more, "{}: {mxfp4} registers, of NVFP4 {nvfp4}", pair[1]);
        let geometry = pair[1].geometry();
        let resident = |registers| Arch::H200.blocks_per_sm(geometry.threads, geometry.shared_bytes, registers);
        assert_eq!(resident(mxfp4), resident(nvfp4), "{}: {mxfp4} registers, of NVFP4 {nvfp4}", pair[1]);
    }
}
