//! Activations of every sort of x, within the error that the oracle states for their evaluation alone.
//!
//! Weights are 0, so that a product is its column's bias: any f32, the infinite ones and NaN among them. Of a dual GEMM
//! gate and up have biases of their own.

use half::f16;
use warpsmith::format::Format;
use warpsmith::spec::{Activation, Arch, Problem, Spec};
use warpsmith_tune::oracle::{Expected, Reference, evaluated};
use warpsmith_tune::{HostColumns, HostMatrix, HostOperands, HostRows, Trial};

use crate::bench::Bench;

const N: usize = 16 * 1024;
const K: usize = 64;

#[derive(Clone, Copy)]
pub struct Case {
    problem: Problem,
}

impl Case {
    pub fn name(&self) -> String {
        format!("activations: every sort of x: {}", self.problem)
    }

    fn variant(&self) -> &'static str {
        match (self.problem.operation().products(), self.problem.is_prepared()) {
            (1, false) => "mma.t8x64x64.s1.single.uniform.direct",
            (_, false) => "mma.t8x64x64.s1.interleaved.uniform.direct",
            (1, true) => "wgmma.t8x64x64.s1.single.ws1.direct",
            (_, true) => "wgmma.t8x64x64.s1.interleaved.ws2.direct",
        }
    }

    fn spec(&self, arch: &Arch) -> Result<Spec, String> {
        let variant = self.variant().parse();
        variant.and_then(|variant| Spec::new(&self.problem, &variant, arch)).map_err(|error| error.to_string())
    }

    fn operands(&self) -> HostOperands {
        let products = self.problem.operation().products() as usize;
        let nothing = HostMatrix::Nvfp4 { codes: vec![0; N * K / 2], scales: vec![0; N * K / 16] };
        HostOperands {
            problem: self.problem,
            m: 1,
            offsets: None,
            a: HostMatrix::F16(vec![f16::ONE; K]),
            b: vec![nothing; products],
            alpha: vec![vec![1.0]; products],
            c_factor: Vec::new(),
            columns: HostColumns { row_scale: Vec::new(), bias: vec![gates(), ups()][..products].to_vec() },
            rows: HostRows::default(),
        }
    }

    fn expected(&self, host: &HostOperands) -> Vec<Expected> {
        let activation = self.problem.operation().activation();
        let products = |column: usize| host.columns.bias.iter().map(|bias| bias[column]).collect::<Vec<_>>();
        (0..N).map(|column| evaluated(activation, &products(column))).collect()
    }
}

/// Half of them dense where activations bend, the others of every binade.
fn gates() -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(29);
    let ends = [0.0, f32::INFINITY, f32::MAX, f32::NAN, 7.0, 16.0, 88.0, 128.0].into_iter().flat_map(|x| [x, -x]);
    let dense = (0..N / 2).map(|i| 28.0 * (i as f32 / (N / 2) as f32 - 0.5));
    let any = std::iter::repeat_with(|| f32::from_bits(rng.u32(..))).filter(|x| !x.is_subnormal());
    ends.chain(dense).chain(any).take(N).collect()
}

fn ups() -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(31);
    let up = |gate: f32| match rng.u32(..32) {
        0 => f32::from_bits(rng.u32(0x0080_0000..0x7F80_0000)),
        // Beside a gate that is neither 0 nor below fp32 then: what would become of 0·∞ is not the question.
        1 if (0.01..5.0).contains(&gate.abs()) => f32::INFINITY,
        2 => f32::NAN,
        _ => 20.0 * (rng.f32() - 0.5),
    };
    gates().into_iter().map(up).collect()
}

/// Every activation, on every path.
pub fn all(arch: &Arch) -> Vec<Case> {
    let single = Activation::UNGATED.iter().map(|activation| Problem::gemm().activation(*activation));
    let dual =
        Activation::GATED.iter().chain([&Activation::SiluClamp(10)]).map(|activation| Problem::dual_gemm(*activation));
    let problems = single.chain(dual).map(|problem| problem.n(N as u32).k(K as u32).c(Format::F32).bias(Format::F32));
    let is_hopper = arch.capability() == Arch::H200.capability();
    problems
        .flat_map(|problem| [problem, problem.prepared()])
        .filter(|problem| is_hopper || !problem.is_prepared())
        .map(|problem| Case { problem })
        .collect()
}

/// Every kernel is legal. Needs no GPU.
pub fn are_legal() -> Result<(), String> {
    all(&Arch::H200).iter().try_for_each(|case| case.spec(&Arch::H200).map(drop))
}

pub fn are_evaluated(bench: &Bench, case: &Case) -> Result<(), String> {
    let wrong = |error: warpsmith::Error| error.to_string();
    let spec = case.spec(bench.arch())?;
    let kernel = bench.kernel(&spec)?;
    let host = case.operands();
    let expected = case.expected(&host);
    let reference = Reference::new(1, N, Format::F32, expected).map_err(wrong)?;
    let _turn = bench.alone();
    let trial = Trial::new(&bench.stream, &host, &reference).map_err(wrong)?;
    let checked = trial.check(&kernel).map_err(wrong)?;
    bench.note(&spec, 1, &checked);
    if checked.passed() { Ok(()) } else { Err(format!("{spec}: {checked}")) }
}
