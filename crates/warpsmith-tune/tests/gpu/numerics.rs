//! Equal numerics, equal bits: of a row of C, whatever M is, wherever the row is, and by every variant of a class.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use fastrand::Rng;
use warpsmith::format::Format;
use warpsmith::internal::spec::space;
use warpsmith::pick::{Picker, Policy};
use warpsmith::run::{Kernel, MatrixMut};
use warpsmith::spec::{Activation, Arch, Numerics, Problem, Spec};
use warpsmith_tune::{HostMatrix, HostOperands, Spread, wait};

use crate::bench::{Bench, text};
use crate::families;
use crate::uploaded::{DeviceMatrix, Weights};

const WAIT: std::time::Duration = std::time::Duration::from_secs(20);
/// Rows of each group that there are results of; a launch has some of them, in any order and more than once.
const ROWS: u32 = 256;
/// (M, row) pairs to be compared, at least.
const PAIRS: usize = 10_000;

#[derive(Clone, Debug)]
pub struct Case(Problem);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Problems for an architecture: K fits no deep tile, f32 results show every bit of a sum.
pub fn all(arch: &Arch) -> Vec<Case> {
    let dual = |activation| Problem::dual_gemm(activation).n(256).k(1088).c(Format::F32);
    let gemm = Problem::gemm().n(256).k(1088).c(Format::F32);
    let prepared = [
        dual(Activation::Silu).prepared(),
        dual(Activation::GeluTanh).a(Format::Bf16).prepared(),
        gemm.prepared().c(Format::F16),
        dual(Activation::Silu).grouped(4).prepared(),
        dual(Activation::GeluTanh).grouped(4).a(Format::Nvfp4).prepared(),
        dual(Activation::Silu).grouped(4).a(Format::E4m3).prepared(),
        dual(Activation::Silu).grouped(4).a(Format::E4m3).k_factors().prepared(),
    ];
    let given = [
        dual(Activation::GeluTanh),
        gemm.a(Format::Bf16).b(Format::Bf16),
        dual(Activation::Silu).grouped(4).a(Format::Nvfp4),
    ];
    let is_hopper = arch.capability() == Arch::H200.capability();
    given.into_iter().chain(prepared.into_iter().filter(|_| is_hopper)).map(Case).collect()
}

fn samples() -> usize {
    std::env::var("WARPSMITH_TEST_SAMPLES").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// What `Policy::BatchInvariant` may choose, at random M: each row as in one launch of all rows.
pub fn is_batch_invariant(bench: &Bench, Case(problem): &Case) -> Result<(), String> {
    let picker = Picker::builder(bench.device.name(), bench.arch()).policy(Policy::BatchInvariant).build();
    let picker = picker.map_err(text)?;
    let class = picker.class(problem).map_err(text)?.ok_or("there is no class")?;
    let mut rng = Rng::with_seed(11);
    let mut legal: Vec<Spec> = space(problem, bench.arch()).filter(|spec| spec.numerics() == class).collect();
    rng.shuffle(&mut legal);
    legal.truncate(samples());
    for m in [1, 40, 200, 1000] {
        legal.push(*picker.choose(problem, m).map_err(text)?.spec());
    }
    if let Some(other) = legal.iter().find(|spec| spec.numerics() != class) {
        return Err(format!("{other} adds up as {}, not as {class}", other.numerics()));
    }
    bench.compile(&legal);

    let _turn = bench.alone();
    let device = AllRows::new(bench, problem)?;
    let kernels = legal.iter().map(|spec| bench.kernel(spec)).collect::<Result<Vec<_>, _>>()?;
    let whole = device.whole(&kernels[0])?;
    let mut pairs = 0;
    for kernel in kernels.iter().cycle().take(kernels.len() * 8).chain(kernels.iter().cycle()) {
        // As many small M as large ones.
        let m = (2.0f64.powf(9.5 * rng.f64())) as u32;
        let rows = device.random_rows(m, &mut rng);
        device.compare(kernel, &rows, &whole)?;
        pairs += rows.of_all.len();
        if pairs >= PAIRS && m > 300 {
            break;
        }
    }
    Ok(())
}

/// Of many classes a few variants each, that differ in all that is not in the class.
pub fn equal_classes_give_equal_bits(bench: &Bench, Case(problem): &Case) -> Result<(), String> {
    let mut rng = Rng::with_seed(12);
    let mut classes: BTreeMap<String, Vec<Spec>> = BTreeMap::new();
    for spec in space(problem, bench.arch()) {
        classes.entry(spec.numerics().to_string()).or_default().push(spec);
    }
    let mut classes: Vec<Vec<Spec>> = classes.into_values().filter(|specs| specs.len() > 1).collect();
    rng.shuffle(&mut classes);
    classes.truncate(samples());
    for specs in &mut classes {
        rng.shuffle(specs);
        specs.truncate(4);
    }
    bench.compile(&classes.concat());

    let _turn = bench.alone();
    let device = AllRows::new(bench, problem)?;
    let mut results: HashMap<Numerics, Vec<u8>> = HashMap::new();
    for spec in classes.iter().flatten() {
        let kernel = bench.kernel(spec)?;
        match results.get(&spec.numerics()) {
            None => drop(results.insert(spec.numerics(), device.whole(&kernel)?)),
            Some(whole) => {
                device.compare(&kernel, &device.all_rows(), whole)?;
                device.compare(&kernel, &device.random_rows(77, &mut rng), whole)?;
            }
        }
    }
    // Else nothing would be seen of an order that is not stated.
    let distinct: HashSet<&Vec<u8>> = results.values().collect();
    if problem.c_format() == Format::F32 && distinct.len() * 2 < results.len() {
        return Err(format!(
            "{} classes give {} results: the data does not tell them apart",
            results.len(),
            distinct.len()
        ));
    }
    Ok(())
}

/// Rows of a launch: which of all rows each is, and how many are of each group.
struct Rows {
    of_all: Vec<usize>,
    per_group: Vec<u32>,
}

/// All rows on the host, the weights on the device.
struct AllRows {
    stream: Arc<CudaStream>,
    host: HostOperands,
    weights: Weights,
}

/// Rows of a matrix of `k` columns, scales in the linear layout, in the order asked for.
fn rows_of(matrix: &HostMatrix, k: usize, rows: &[usize]) -> HostMatrix {
    fn pick<T: Copy>(values: &[T], row_length: usize, rows: &[usize]) -> Vec<T> {
        rows.iter().flat_map(|row| values[row * row_length..(row + 1) * row_length].iter().copied()).collect()
    }
    match matrix {
        HostMatrix::Nvfp4 { codes, scales } => {
            HostMatrix::Nvfp4 { codes: pick(codes, k / 2, rows), scales: pick(scales, k / 16, rows) }
        }
        HostMatrix::Mxfp4 { codes, scales } => {
            HostMatrix::Mxfp4 { codes: pick(codes, k / 2, rows), scales: pick(scales, k / 32, rows) }
        }
        HostMatrix::E4m3 { values, factors } => HostMatrix::E4m3 {
            values: pick(values, k, rows),
            factors: pick(factors, factors.len() / (values.len() / k), rows),
        },
        HostMatrix::F16(values) => HostMatrix::F16(pick(values, k, rows)),
        HostMatrix::Bf16(values) => HostMatrix::Bf16(pick(values, k, rows)),
    }
}

impl AllRows {
    fn new(bench: &Bench, problem: &Problem) -> Result<Self, String> {
        let stream = Arc::clone(&bench.stream);
        let groups = problem.groups().unwrap_or(1) as usize;
        let host = HostOperands::random(problem, &vec![ROWS; groups], Spread::Every, 5);
        let weights = Weights::upload(&stream, &host)?;
        Ok(Self { stream, host, weights })
    }

    fn all_rows(&self) -> Rows {
        let groups = self.host.problem.groups().unwrap_or(1) as usize;
        Rows { of_all: (0..self.host.m as usize).collect(), per_group: vec![ROWS; groups] }
    }

    /// `m` rows, each any of its group.
    fn random_rows(&self, m: u32, rng: &mut Rng) -> Rows {
        let per_group = families::rows(&self.host.problem, m, rng.u64(..));
        let of_group = |(group, rows): (usize, &u32)| vec![group * ROWS as usize; *rows as usize];
        let first: Vec<usize> = per_group.iter().enumerate().flat_map(of_group).collect();
        Rows { of_all: first.into_iter().map(|first| first + rng.usize(..ROWS as usize)).collect(), per_group }
    }

    fn whole(&self, kernel: &Kernel) -> Result<Vec<u8>, String> {
        self.launch(kernel, &self.all_rows())
    }

    fn row_bytes(&self) -> usize {
        self.host.problem.c_format().bytes(self.host.problem.columns() as usize)
    }

    /// C `[rows, N]`.
    fn launch(&self, kernel: &Kernel, rows: &Rows) -> Result<Vec<u8>, String> {
        let (stream, problem) = (&self.stream, &self.host.problem);
        let m = rows.of_all.len() as u32;
        let a = rows_of(&self.host.a, problem.depth() as usize, &rows.of_all);
        let a = DeviceMatrix::upload(stream, &a)?;
        let ends = rows.per_group.iter().scan(0, |end, rows| {
            *end += *rows as i32;
            Some(*end)
        });
        let offsets: Vec<i32> = std::iter::once(0).chain(ends).collect();
        let offsets = stream.clone_htod(&offsets).map_err(text)?;
        let mut workspace = kernel.workspace(stream, m).map_err(text)?;
        // Not a number in any format, so that an element that is not written differs.
        let mut buffer = stream.clone_htod(&vec![0xFFu8; rows.of_all.len() * self.row_bytes()]).map_err(text)?;
        let mut view = buffer.as_view_mut();
        let c = MatrixMut::from_bytes(problem.c_format(), &mut view).map_err(text)?;
        let operands = self.weights.operands(problem.operation(), m, &a, c);
        let operands = match &self.host.alpha[..] {
            [alpha] => operands.alpha(alpha[0]),
            [first, second, ..] => operands.alphas(first[0], second[0]),
            [] => operands,
        };
        let operands = if problem.groups().is_some() { operands.offsets(offsets.as_view()) } else { operands };
        kernel.launch(stream, operands.workspace(&mut workspace)).map_err(text)?;
        wait(stream, WAIT).map_err(|error| format!("{}, m = {m}: {error}", kernel.spec()))?;
        stream.clone_dtoh(&buffer).map_err(text)
    }

    /// Whether each row of a launch has the bits that it has in `whole`.
    fn compare(&self, kernel: &Kernel, rows: &Rows, whole: &[u8]) -> Result<(), String> {
        let (found, bytes) = (self.launch(kernel, rows)?, self.row_bytes());
        for (place, (row, found)) in rows.of_all.iter().zip(found.chunks(bytes)).enumerate() {
            let expected = &whole[row * bytes..(row + 1) * bytes];
            if found != expected {
                let step = self.host.problem.c_format().bytes(1);
                let column = found.chunks(step).zip(expected.chunks(step)).position(|(a, b)| a != b).unwrap_or(0);
                let bits = |row: &[u8]| format!("{:02x?}", &row[column * step..(column + 1) * step]);
                return Err(format!(
                    "{}, {}, m = {}: row {row} at place {place} has in column {column} {}, before it had {}",
                    kernel.spec(),
                    kernel.spec().numerics(),
                    rows.of_all.len(),
                    bits(found),
                    bits(expected),
                ));
            }
        }
        Ok(())
    }
}
