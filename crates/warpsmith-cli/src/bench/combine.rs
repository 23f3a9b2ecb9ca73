//! Combiners: checked against the oracle, then timed with rows that are not in the L2 cache.

use std::time::Duration;

use cudarc::driver::CudaSlice;
use warpsmith::cache::KernelCache;
use warpsmith::format::Format;
use warpsmith::run::{CombineOperands, Combiner};
use warpsmith::spec::{Arch, Combine};
use warpsmith_tune::oracle::combine::{Terms, combine as expected, rounded};
use warpsmith_tune::{Numbers, operand_sets, wait};

use super::Args;
use super::small;
use crate::shared::Result;
use crate::shared::gpu::Gpu;
use crate::shared::place::Place;

/// Numbers of tokens where none are said.
const TOKENS: [u32; 6] = [1, 8, 32, 128, 1024, 8192];
/// Tokens that the oracle adds up at most.
const CHECKED: u32 = 16;
/// Values that are drawn; longer operands repeat them.
const DRAWN: usize = 1 << 20;
const LIMIT: Duration = Duration::from_secs(10);

/// Whether everything is right.
pub fn run(args: &Args, place: &Place, cache: KernelCache) -> Result<bool> {
    for combine in &args.combine {
        combine.check()?;
    }
    let tokens = if args.tokens.is_empty() { &TOKENS[..] } else { &args.tokens };
    small::run(&args.combine, "combine", tokens, place, cache, |gpu, combine, tokens, arch| {
        let combiner = gpu.engine().combine(combine)?;
        Ok(match is_as_expected(gpu, &combiner, tokens.min(CHECKED))? {
            true => Ok(timed(gpu, &combiner, tokens, arch)?),
            false => Err("other bits than the oracle's".to_owned()),
        })
    })
}

/// The operands of one launch.
struct Set {
    rows: Numbers,
    weights: CudaSlice<f32>,
    positions: CudaSlice<i32>,
    shared: Numbers,
    x: Numbers,
    vector: CudaSlice<f32>,
    residual: Numbers,
    out: Numbers,
}

/// What the operands of some tokens are made of.
struct Drawn {
    values: Vec<f32>,
    weights: Vec<f32>,
    positions: Vec<i32>,
}

impl Drawn {
    fn new(combine: &Combine, tokens: u32) -> Self {
        let slots = (tokens * combine.rows_per_token()) as usize;
        let mut random = fastrand::Rng::with_seed(0x5EED);
        // Exact in every format.
        let values =
            (0..DRAWN).map(|_| rounded(Format::Bf16, rounded(Format::F16, random.f32() * 2.0 - 1.0))).collect();
        let weights = (0..slots).map(|_| random.f32()).collect();
        let mut positions: Vec<i32> = (0..slots as i32).collect();
        random.shuffle(&mut positions);
        Self { values, weights, positions }
    }
}

impl Set {
    fn new(gpu: &Gpu, combine: &Combine, tokens: u32, drawn: &Drawn) -> Result<Self> {
        let (stream, out) = (gpu.stream(), combine.out_format());
        let elements = tokens as usize * combine.hidden_size() as usize;
        let memory = |format, length| Numbers::new(stream, format, &drawn.values, length);
        // What is not wanted takes no room.
        let if_any = |has| if has { elements } else { 1 };
        Ok(Self {
            rows: memory(combine.rows_format(), elements * combine.rows_per_token() as usize)?,
            weights: stream.clone_htod(&drawn.weights)?,
            positions: stream.clone_htod(&drawn.positions)?,
            shared: memory(out, if_any(combine.has_shared()))?,
            x: memory(combine.rows_format(), if_any(combine.has_shared_gate()))?,
            vector: stream.clone_htod(&drawn.values[..combine.hidden_size() as usize])?,
            residual: memory(out, if_any(combine.has_residual()))?,
            out: memory(out, elements)?,
        })
    }

    fn operands(&mut self, combine: &Combine, tokens: u32) -> CombineOperands<'_> {
        let mut operands = CombineOperands::new(tokens, self.rows.values(), self.out.result());
        if combine.is_weighted() {
            operands = operands.weights(&self.weights);
        }
        if combine.is_placed() {
            operands = operands.positions(&self.positions);
        }
        if combine.has_shared() {
            operands = operands.shared(self.shared.values());
        }
        if combine.has_shared_gate() {
            operands = operands.shared_gate(self.x.values(), &self.vector);
        }
        if combine.has_residual() {
            operands = operands.residual(self.residual.values());
        }
        operands
    }
}

fn is_as_expected(gpu: &Gpu, combiner: &Combiner, tokens: u32) -> Result<bool> {
    let combine = combiner.combine();
    let drawn = Drawn::new(combine, tokens);
    let mut set = Set::new(gpu, combine, tokens, &drawn)?;
    combiner.launch(gpu.stream(), set.operands(combine, tokens))?;
    wait(gpu.stream(), LIMIT)?;
    let elements = tokens as usize * combine.hidden_size() as usize;
    let values = |has: bool, length: usize| -> Vec<f32> {
        if has { drawn.values.iter().copied().cycle().take(length).collect() } else { Vec::new() }
    };
    let rows = values(true, elements * combine.rows_per_token() as usize);
    let (shared, residual) = (values(combine.has_shared(), elements), values(combine.has_residual(), elements));
    let x = values(combine.has_shared_gate(), elements);
    let vector = values(combine.has_shared_gate(), combine.hidden_size() as usize);
    let terms = Terms {
        rows: &rows,
        weights: if combine.is_weighted() { &drawn.weights } else { &[] },
        positions: if combine.is_placed() { &drawn.positions } else { &[] },
        shared: &shared,
        gate: (&x, &vector),
        residual: &residual,
    };
    Ok(set.out.to_host(gpu.stream())? == expected(combine, tokens, &terms)?)
}

/// Microseconds of a plain and of a dependent launch, and those that its bytes take.
fn timed(gpu: &Gpu, combiner: &Combiner, tokens: u32, arch: &Arch) -> Result<[f64; 3]> {
    let combine = combiner.combine();
    let elements = u64::from(tokens) * u64::from(combine.hidden_size());
    let slots = u64::from(tokens) * u64::from(combine.rows_per_token());
    let row = combine.rows_format().bytes(1) as u64 * u64::from(combine.hidden_size());
    let of_out = combine.out_format().bytes(1) as u64 * elements;
    let lists = 4 * slots * (u64::from(combine.is_weighted()) + u64::from(combine.is_placed()));
    let of_gate = u64::from(combine.has_shared_gate()) * u64::from(tokens) * row;
    let of_result = of_out * (1 + u64::from(combine.has_shared()) + u64::from(combine.has_residual()));
    let bytes = slots * row + of_result + of_gate + lists;
    let drawn = Drawn::new(combine, tokens);
    let sets = (0..operand_sets(bytes, arch.l2_bytes())).map(|_| Set::new(gpu, combine, tokens, &drawn));
    let mut sets = sets.collect::<Result<Vec<_>>>()?;
    small::times(gpu, arch, bytes, sets.len(), |set, is_dependent| {
        let operands = sets[set].operands(combine, tokens);
        match is_dependent {
            true => combiner.launch_dependent(gpu.stream(), operands),
            false => combiner.launch(gpu.stream(), operands),
        }
    })
}
