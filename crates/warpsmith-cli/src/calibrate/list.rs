//! What is measured: problems with their rows, as data. Constants are fitted to [`list`], and picks looked at with [`held_out`].

use warpsmith::format::Format;
use warpsmith::spec::{Activation, Problem};
use warpsmith_tune::drawn_rows;

use crate::shared::{FURTHER, Result};

/// A problem with the rows that it is measured at.
#[derive(Clone, Debug)]
pub struct Item {
    pub problem: Problem,
    /// Of each group, for every M; one number each if there are no groups.
    pub rows: Vec<Vec<u32>>,
    /// Further draws of them, for every M, which are timed, too: a tile that fits one draw may not fit the next.
    pub further: Vec<Vec<Vec<u32>>>,
    /// Not fitted to.
    pub held_out: bool,
}

impl Item {
    fn new(problem: Problem, rows: Vec<Vec<u32>>) -> Self {
        Self { problem, further: vec![Vec::new(); rows.len()], rows, held_out: false }
    }

    /// With rows drawn as tokens choose experts, `drawn` saying how: the same every time.
    fn drawn(problem: Problem, drawn: &Problem, ms: &[u32]) -> Result<Self> {
        let draw = |m: u32, number: u64| {
            let seed = u64::from(problem.groups().unwrap_or(1)) << 32 | u64::from(m) | number << 48;
            drawn_rows(drawn, m, seed)
        };
        let draws = |m: &u32| (0..=FURTHER).map(|number| draw(*m, number)).collect::<warpsmith::Result<Vec<_>>>();
        let mut all: Vec<_> = ms.iter().map(draws).collect::<warpsmith::Result<_>>()?;
        let rows = all.iter_mut().map(|draws| draws.remove(0)).collect();
        Ok(Self { problem, rows, further: all, held_out: false })
    }

    fn held_out(self) -> Self {
        Self { held_out: true, ..self }
    }

    /// The same with tokens in e4m3; none where tokens are NVFP4, or weights as given.
    pub fn in_e4m3(&self) -> Option<Self> {
        let is_16_bit = matches!(self.problem.a_format(), Format::F16 | Format::Bf16);
        (is_16_bit && self.problem.is_prepared())
            .then(|| Self { problem: self.problem.a(Format::E4m3), ..self.clone() })
    }
}

/// What constants are fitted to: the public benchmarks' N and K, others beside them, and [`wide`].
///
/// # Errors
/// Those of [`wide`].
pub fn list() -> Result<Vec<Item>> {
    Ok([narrow(), wide()?].concat())
}

fn narrow() -> Vec<Item> {
    let fit = Item::new;
    let spread = |groups, ms: &[u32]| ms.iter().map(|m| uneven(groups, *m)).collect();
    vec![
        fit(gemm(4096, 1536).grouped(2), vec![vec![128, 384]]),
        fit(dual(3072, 4096).grouped(2), vec![vec![192, 320]]),
        fit(dual(4096, 7168), each(&[1, 8, 16, 32, 64, 128, 256, 512, 1024])),
        fit(dual(2048, 5120), each(&[1, 16, 48, 96, 192, 384, 1024])),
        fit(dual(7168, 2048), each(&[8, 48, 64, 128, 256])),
        fit(dual(5120, 3584), each(&[8, 32, 128, 256, 512])),
        fit(dual(3072, 4096), each(&[16, 96, 192, 256, 512])),
        fit(dual(14_336, 4096), each(&[1, 32, 96, 256, 512])),
        fit(gemm(7168, 2048), each(&[1, 16, 64, 192, 512])),
        fit(gemm(8192, 3072), each(&[1, 32, 128, 384, 1024])),
        fit(dual(3072, 7168), each(&[32, 128, 384, 512])),
        fit(dual(1536, 6144), each(&[8, 64, 256, 512])),
        fit(gemm(4096, 7168).grouped(8), vec![uneven(8, 128), vec![80, 176, 128, 72, 64, 248, 96, 160]]),
        fit(gemm(5120, 3584).grouped(8), spread(8, &[256, 2048])),
        fit(dual(7168, 2048).grouped(8), vec![uneven(8, 128), vec![40, 76, 168, 72, 164, 148, 196, 160]]),
        fit(dual(1408, 2048).grouped(32), spread(32, &[128, 512, 2048])),
        fit(dual(4096, 7168).a(Format::Nvfp4), each(&[16, 128, 256, 512])),
        fit(dual(2048, 5120).a(Format::Nvfp4), each(&[32, 192, 512])),
        fit(gemm(4096, 1536), each(&[8, 48, 256, 1024])),
        fit(gemm(2816, 1408), each(&[16, 128, 512])),
        fit(dual(4096, 1536).a(Format::Bf16).c(Format::Bf16), each(&[8, 64, 256])),
        fit(gemm(6144, 2560).a(Format::Bf16).c(Format::Bf16), each(&[16, 256])),
        fit(dual(2048, 2816).grouped(8), spread(8, &[64, 1024])),
        fit(gemm(3072, 4096).grouped(32), spread(32, &[256, 1024])),
        fit(given(dual(4096, 7168)), each(&[1, 64, 256])),
        fit(given(dual(2816, 3584)), each(&[16, 128, 512])),
        fit(given(gemm(7168, 2048)), each(&[16, 256])),
    ]
}

/// More to fit to: few columns, deep and shallow K, groups with rows as tokens choose experts.
///
/// # Errors
/// Those of [`drawn_rows`]: a problem that is not legal.
fn wide() -> Result<Vec<Item>> {
    let dense = [
        (dual(512, 4096), &[1, 16, 64, 256, 1024][..]),
        (dual(1536, 1536), &[1, 32, 128, 512, 2048]),
        (gemm(3072, 9216), &[1, 8, 32, 128]),
        (gemm(1536, 3584), &[1, 16, 64, 256, 1024]),
        (dual(12_288, 3072), &[1, 24, 96]),
        (gemm(10_240, 5120), &[1, 32, 128]),
        (dual(2048, 3584).bf16(), &[1, 24, 96]),
        (gemm(4096, 3584).a(Format::Nvfp4), &[1, 64, 256]),
        (gemm(4096, 4096), &[1, 8, 16, 32, 64]),
        (gemm(2048, 4096), &[1, 8, 32]),
        (gemm(5120, 8192), &[1, 8, 32, 64]),
        (gemm(2560, 9728), &[1, 16, 64]),
        (gemm(3584, 18_944), &[8, 32]),
    ];
    let experts = [
        (dual(1024, 1536), 64, 8, &[8, 64, 512, 4096][..]),
        (gemm(1536, 896), 128, 8, &[8, 64, 1024, 8192]),
        (dual(256, 1024), 256, 8, &[16, 128, 2048]),
        (gemm(3072, 1024), 256, 4, &[8, 64, 512]),
        (dual(2048, 1024), 16, 2, &[2, 32, 256, 2048]),
        (gemm(4096, 1792), 8, 2, &[2, 16, 128, 1024, 8192]),
        (dual(2816, 1408), 8, 1, &[1, 8, 64, 512]),
    ];
    let dense = dense.into_iter().map(|(problem, ms)| Ok(Item::new(problem, each(ms))));
    let experts = experts.into_iter().map(|(problem, groups, top_k, ms)| {
        let problem = problem.grouped(groups).experts_per_token(top_k);
        Item::drawn(problem, &problem, ms)
    });
    dense.chain(experts).collect()
}

/// Pairs to look at picks with: other N and K than above, groups with rows as tokens choose experts. Of some of these it is
/// not stated that a few experts are chosen more often than the others.
///
/// # Errors
/// Those of [`drawn_rows`]: a problem that is not legal.
pub fn held_out() -> Result<Vec<Item>> {
    let bf16 = |problem: Problem| problem.bf16();
    let nvfp4 = |problem: Problem| problem.a(Format::Nvfp4);
    let dense = [
        (dual(2560, 2048), &[1, 4, 16, 48, 64, 128, 384, 1024][..]),
        (dual(6144, 4096), &[1, 8, 24, 64, 160, 320]),
        (dual(9216, 3072), &[1, 12, 32, 80, 128, 256]),
        (dual(11_008, 4096), &[1, 16, 64, 128]),
        (dual(3584, 5120), &[2, 16, 40, 64, 96, 256, 512]),
        (dual(1024, 7168), &[1, 8, 32, 64, 128, 512, 1024]),
        (dual(192, 3072), &[1, 64, 256, 2048]),
        (dual(768, 2048), &[1, 16, 64, 320, 2048]),
        (gemm(4096, 14_336), &[1, 4, 16, 64, 128]),
        (gemm(6144, 4096), &[1, 8, 64, 96, 256, 768]),
        (gemm(2048, 2048), &[1, 16, 64, 128, 512, 2048]),
        (gemm(5120, 6400), &[1, 24, 64, 200, 400]),
        (gemm(12_288, 4096), &[1, 16, 64, 256]),
        (gemm(1024, 5120), &[1, 8, 48, 256, 1536]),
        (bf16(dual(3584, 2560)), &[1, 16, 64, 192, 640]),
        (bf16(gemm(2560, 4096)), &[1, 32, 128, 512]),
        (nvfp4(dual(3584, 2560)), &[1, 16, 64, 256]),
        (nvfp4(gemm(5120, 2560)), &[1, 48, 192, 768]),
        (given(dual(1536, 3072)), &[1, 32, 192]),
        (given(gemm(5120, 2560)), &[1, 64, 384]),
    ];
    let dense = dense.into_iter().map(|(problem, ms)| Item::new(problem, each(ms)).held_out());
    // Experts of a layer, how many a token takes, how unlike they are, whether that is stated, rows.
    let experts = [
        (dual(768, 2048), 128, 8, 0, true, &[8, 64, 256, 2048, 16_384][..]),
        (gemm(2048, 768), 128, 8, 0, true, &[8, 32, 512, 8192]),
        (dual(512, 2048), 256, 8, 0, true, &[8, 128, 1024, 8192]),
        (gemm(2048, 512), 256, 8, 0, true, &[16, 64, 512, 4096]),
        (gemm(1024, 512), 64, 8, 0, true, &[8, 1024, 65_536]),
        (dual(192, 2048), 256, 8, 0, true, &[8, 64, 1024, 16_384]),
        (dual(704, 2816), 128, 4, 0, true, &[4, 32, 512, 4096]),
        (dual(1536, 1024), 16, 2, 0, true, &[2, 16, 256, 2048]),
        (dual(3072, 2048), 8, 2, 0, true, &[2, 32, 512, 4096]),
        (gemm(2048, 3584), 8, 1, 0, true, &[1, 8, 64, 1024, 4096]),
        (bf16(dual(768, 1536)), 64, 6, 0, true, &[6, 48, 384, 3072]),
        (nvfp4(dual(1024, 2048)), 32, 4, 0, true, &[4, 64, 512, 4096]),
        (dual(896, 2048), 64, 4, 80, false, &[4, 64, 512, 4096]),
        (gemm(1536, 1024), 128, 8, 100, false, &[8, 256, 2048]),
        (dual(640, 1280), 32, 2, 60, true, &[2, 32, 512, 4096]),
        (dual(512, 1024), 256, 8, 120, true, &[64, 1024, 8192]),
    ];
    let item = |(problem, groups, top_k, skew, is_stated, ms): (Problem, u32, u32, u32, bool, &[u32])| {
        let stated = problem.grouped(groups).experts_per_token(top_k);
        let skewed = if skew > 0 { stated.skew(skew) } else { stated };
        Ok(Item::drawn(if is_stated { skewed } else { stated }, &skewed, ms)?.held_out())
    };
    let mut experts = experts.into_iter().map(item).collect::<Result<Vec<_>>>()?.into_iter();
    // In turn, so that parts of the list are alike.
    let mut items = Vec::new();
    for dense in dense {
        items.push(dense);
        items.extend(experts.next());
    }
    items.extend(experts);
    Ok(items)
}

fn dual(n: u32, k: u32) -> Problem {
    Problem::dual_gemm(Activation::Silu).n(n).k(k).prepared()
}

fn gemm(n: u32, k: u32) -> Problem {
    Problem::gemm().n(n).k(k).prepared()
}

/// The same with weights as they are given.
fn given(problem: Problem) -> Problem {
    let activation = problem.operation().activation();
    let given = match problem.operation().products() {
        1 => Problem::gemm().activation(activation),
        _ => Problem::dual_gemm(activation),
    };
    given.n(problem.columns()).k(problem.depth())
}

fn each(ms: &[u32]) -> Vec<Vec<u32>> {
    ms.iter().map(|m| vec![*m]).collect()
}

/// `m` rows shared out unevenly, as a router does: 0.4 to 1.6 times the average, the same every time.
pub fn uneven(groups: u32, m: u32) -> Vec<u32> {
    let mut rng = fastrand::Rng::with_seed(u64::from(groups) << 32 | u64::from(m));
    let weights: Vec<f64> = (0..groups).map(|_| 0.4 + 1.2 * rng.f64()).collect();
    let all: f64 = weights.iter().sum();
    let ends = weights.iter().scan(0.0, |end, weight| {
        *end += weight;
        Some((f64::from(m) * *end / all).round() as u32)
    });
    let starts = std::iter::once(0).chain(ends.clone());
    starts.zip(ends).map(|(start, end)| end - start).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn what_is_held_out_is_apart_and_as_wide_as_it_should_be() {
        let items = held_out().unwrap();
        let pairs = |items: &[Item]| items.iter().map(|item| item.rows.len()).sum::<usize>();
        let grouped: Vec<Item> = items.iter().filter(|item| item.problem.groups().is_some()).cloned().collect();
        assert!(pairs(&items) >= 150 && pairs(&grouped) >= 50, "{} {}", pairs(&items), pairs(&grouped));
        let shape = |item: &Item| (item.problem.operation(), item.problem.columns(), item.problem.depth());
        let fitted: HashSet<_> = list().unwrap().iter().filter(|item| !item.held_out).map(shape).collect();
        assert!(items.iter().all(|item| item.held_out && !fitted.contains(&shape(item))));
        assert!(items.iter().all(|item| item.problem.check().is_ok()));
        // A line of the file is found again by problem and M.
        let known: HashSet<_> = items.iter().map(|item| item.problem.to_string()).collect();
        assert_eq!(known.len(), items.len());
        let top_k = |item: &Item| item.problem.routing().top_k;
        assert!([1, 8].iter().all(|k| grouped.iter().any(|item| top_k(item) == Some(*k))));
        assert!([8, 256].iter().all(|groups| grouped.iter().any(|item| item.problem.groups() == Some(*groups))));
        let rows = |item: &Item| item.rows.iter().map(|rows| rows.iter().sum::<u32>()).collect::<Vec<_>>();
        assert!(grouped.iter().any(|item| rows(item).contains(&1)));
        assert!(grouped.iter().any(|item| rows(item).contains(&65_536)));
        // The host's reference, on the cores of a machine with a GPU, and weights on the device take their time, too.
        let most = |item: &Item| rows(item).into_iter().max().unwrap_or(0);
        let flop: f64 = items.iter().map(|item| item.problem.flop(u64::from(most(item)))).sum();
        assert!(flop < 2e12, "{flop:e}");
        let weights = |item: &Item| item.problem.bytes_of(&vec![1; item.problem.groups().unwrap_or(1) as usize]);
        assert!(items.iter().all(|item| weights(item) < 0.4e9));
    }
}
