//! The grid of M on which choices are made where nothing was measured, and few kernels that are good in all its cells.

use super::choice::Choice;
use super::heuristic::predict_for;
use super::untuned;
use crate::error::Error;
use crate::spec::{Arch, Numerics, Problem, Spec};

/// Upper ends of cells lie so close together up to here, and then each as far from the next as the second number says.
const STEPS: [(u32, Step); 7] = [
    (8, Step::Times(2)),
    (64, Step::Rows(8)),
    (128, Step::Rows(16)),
    (512, Step::Octave(4)),
    (8192, Step::Octave(2)),
    (131_072, Step::Octave(1)),
    (Problem::M_MAX, Step::Times(16)),
];

/// From the upper end of a cell to that of the next.
#[derive(Clone, Copy)]
enum Step {
    /// So many rows further.
    Rows(u32),
    /// This part of an octave further.
    Octave(u32),
    /// So many times as many rows.
    Times(u32),
}

impl Step {
    fn after(self, last: u32) -> u32 {
        match self {
            Step::Rows(rows) => last + rows,
            Step::Octave(parts) => last + (1 << last.ilog2()) / parts,
            Step::Times(factor) => last.saturating_mul(factor),
        }
    }
}

/// A problem has at most so many kernels. Beside those that were measured it has as large a part of them as the cells count
/// for which nothing was.
const KERNELS: usize = 10;
/// Over the best kernel of a cell, what another one may be predicted to take for that one not to be wanted.
const ENOUGH: f64 = 1.02;
/// What a further kernel spares more than: what it does where an octave of rows takes 3 % longer without it.
const LITTLE: f64 = 0.03 * 0.03;
/// How much slower nothing at all is taken to be.
const NOTHING_FITS: f64 = 100.0;
/// A cell counts by its octaves, so what serves one to eight sequences for four. One of more rows than these counts little.
const COMMON: u32 = 8192;
const RARE: f64 = 0.5;
/// A cell that ends at a power of two counts so much more: engines capture graphs for these, and pad to them.
const USUAL: f64 = 1.0;

/// The upper ends of all cells, ascending. The last is [`Problem::M_MAX`].
pub(super) fn grid() -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1), |last| {
        let (_, step) = STEPS.iter().find(|(until, _)| last < until)?;
        Some(step.after(*last).min(Problem::M_MAX))
    })
}

/// One choice for each of the cells that end at `lasts`, as long as there is one, and why there is none for the next.
///
/// They are of at most as many kernels as is their share of [`KERNELS`], those that lose least over all these cells. The kernels
/// in `given` are there anyway.
pub(super) fn choices(
    problem: &Problem,
    lasts: &[u32],
    arch: &Arch,
    class: Option<&Numerics>,
    given: &[Spec],
) -> (Vec<Choice>, Option<Error>) {
    let (cells, error) = Cell::all(problem, lasts, arch, class, given);
    let kernels = cells.cover();
    (cells.cells.iter().map(|cell| cells.choice(problem, cell, &kernels)).collect(), error)
}

/// Cells, and the kernels that may serve them.
struct Cells {
    cells: Vec<Cell>,
    /// Those that are given, and then every one that is a cell's best.
    kernels: Vec<Spec>,
    given: usize,
    /// How many of the others may be chosen.
    most: usize,
}

/// A cell with the heuristic's choice for its upper end.
struct Cell {
    last: u32,
    best: Choice,
    /// Its place among the kernels.
    best_at: usize,
    /// What each of the kernels is predicted to take; infinite where a grid has no room for it.
    us: Vec<f64>,
    /// What each loses to the best one, as it counts.
    losses: Vec<f64>,
}

impl Cells {
    /// Few kernels that together lose least, by their places: those that are given, and of the cells' best ones first the
    /// one that spares most, then the next, and so on, as long as it is no [little](LITTLE); then each is exchanged for another
    /// where that spares something.
    fn cover(&self) -> Vec<usize> {
        let mut chosen: Vec<usize> = (0..self.given).collect();
        while chosen.len() < self.given + self.most && !self.is_enough(&chosen) {
            let with = |kernel| [&chosen[..], &[kernel]].concat();
            let Some(kernel) = self.better(&chosen, LITTLE, with) else { break };
            chosen.push(kernel);
        }
        // Each round spares something, so there is a last one.
        let mut exchanging = true;
        while exchanging {
            exchanging = false;
            for at in self.given..chosen.len() {
                let exchanged = |kernel| {
                    let mut kernels = chosen.clone();
                    kernels[at] = kernel;
                    kernels
                };
                if let Some(kernel) = self.better(&chosen, 0.0, exchanged) {
                    chosen[at] = kernel;
                    exchanging = true;
                }
            }
        }
        chosen
    }

    /// The kernel with which least is lost, the first of several, if that spares more than `little` beside those that are chosen.
    fn better(&self, chosen: &[usize], little: f64, with: impl Fn(usize) -> Vec<usize>) -> Option<usize> {
        let losses = (self.given..self.kernels.len()).map(|kernel| (kernel, self.loss(&with(kernel))));
        let (kernel, loss) = losses.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        (self.loss(chosen) - loss > little).then_some(kernel)
    }

    /// What all cells lose together.
    fn loss(&self, kernels: &[usize]) -> f64 {
        self.cells.iter().map(|cell| least(kernels, &cell.losses)).sum()
    }

    fn is_enough(&self, kernels: &[usize]) -> bool {
        self.cells.iter().all(|cell| least(kernels, &cell.us) <= ENOUGH * cell.us[cell.best_at])
    }

    /// The best of `kernels`; a cell's own, if that is among them, or if none of them fits.
    fn choice(&self, problem: &Problem, cell: &Cell, kernels: &[usize]) -> Choice {
        let best = kernels.iter().copied().min_by(|a, b| cell.us[*a].total_cmp(&cell.us[*b]));
        match best {
            Some(kernel) if !kernels.contains(&cell.best_at) && cell.us[kernel].is_finite() => {
                untuned::predicted(self.kernels[kernel], &problem.load(cell.last))
            }
            _ => cell.best,
        }
    }
}

impl Cell {
    /// As long as there are choices, and why there is none for the next.
    fn all(
        problem: &Problem,
        lasts: &[u32],
        arch: &Arch,
        class: Option<&Numerics>,
        given: &[Spec],
    ) -> (Cells, Option<Error>) {
        let mut kernels = given.to_vec();
        let mut cells = Vec::with_capacity(lasts.len());
        let mut error = None;
        for &last in lasts {
            let best = match untuned::choose(problem, last, arch, class) {
                Ok(best) => best,
                Err(why) => {
                    error = Some(why);
                    break;
                }
            };
            let known = kernels.iter().position(|kernel| kernel == best.spec());
            let best_at = known.unwrap_or_else(|| {
                kernels.push(*best.spec());
                kernels.len() - 1
            });
            cells.push(Self { last, best, best_at, us: Vec::new(), losses: Vec::new() });
        }
        let mut before = 0;
        for cell in &mut cells {
            let load = problem.load(cell.last);
            let us = |spec: &Spec| if spec.fits_grid(cell.last) { predict_for(spec, &load).us } else { f64::INFINITY };
            cell.us = kernels.iter().map(us).collect();
            // Squares of logarithms: much in one cell counts more than little in many.
            let (weight, own) = (weight(before, cell.last), cell.us[cell.best_at]);
            let loss = |us: &f64| weight * (us / own).clamp(1.0, NOTHING_FITS).ln().powi(2);
            cell.losses = cell.us.iter().map(loss).collect();
            before = cell.last;
        }
        (Cells { cells, kernels, given: given.len(), most: share(lasts) }, error)
    }
}

/// The least of what these `kernels` have in `of`; without bound if there are none.
fn least(kernels: &[usize], of: &[f64]) -> f64 {
    kernels.iter().map(|kernel| of[*kernel]).fold(f64::INFINITY, f64::min)
}

/// Of [`KERNELS`], the share of the cells that end at `lasts`, rounded up.
fn share(lasts: &[u32]) -> usize {
    let (mut before, mut own, mut all) = (0, 0.0, 0.0);
    for last in grid() {
        let weight = weight(before, last);
        all += weight;
        own += if lasts.binary_search(&last).is_ok() { weight } else { 0.0 };
        before = last;
    }
    (KERNELS as f64 * own / all).ceil() as usize
}

/// How much the rows behind `before`, up to `last`, count. The first rows begin at half a row.
fn weight(before: u32, last: u32) -> f64 {
    let octaves = (f64::from(last) / f64::from(before).max(0.5)).log2();
    if last > COMMON { RARE } else { octaves + if last.is_power_of_two() { USUAL } else { 0.0 } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pick::heuristic::predict;
    use crate::spec::Activation;

    #[test]
    fn the_grid_is_what_its_documentation_says() {
        let all: Vec<u32> = grid().collect();
        assert!(all.is_sorted_by(|a, b| a < b));
        assert_eq!(all[..15], [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128]);
        assert_eq!(all[15..23], [160, 192, 224, 256, 320, 384, 448, 512]);
        assert_eq!(all[23..31], [768, 1024, 1536, 2048, 3072, 4096, 6144, 8192]);
        assert_eq!(all[31..], [16_384, 32_768, 65_536, 131_072, 2_097_152, Problem::M_MAX]);
    }

    #[test]
    fn a_kernel_stands_in_only_where_it_is_nearly_as_good() {
        let arch = &Arch::H200;
        let problem = Problem::dual_gemm(Activation::Silu).n(2048).k(7168).prepared();
        let lasts: Vec<u32> = grid().collect();
        let (chosen, error) = choices(&problem, &lasts, arch, None, &[]);
        assert!(error.is_none());
        let mut kernels: Vec<&Spec> = chosen.iter().map(Choice::spec).collect();
        kernels.sort_unstable_by_key(|spec| spec.to_string());
        kernels.dedup();
        assert!(kernels.len() <= KERNELS, "{}", kernels.len());
        let mut logarithms = 0.0;
        for (choice, &last) in chosen.iter().zip(&lasts) {
            let best = untuned::choose(&problem, last, arch, None).unwrap();
            let (found, least) = (predict(choice.spec(), &problem, last).us, predict(best.spec(), &problem, last).us);
            assert!(found <= 1.25 * least, "{last}: {found} for {least}");
            assert!(choice.spec().fits_grid(last));
            logarithms += (found / least).ln();
        }
        let mean = (logarithms / lasts.len() as f64).exp();
        assert!(mean <= 1.05, "{mean}");
    }

    #[test]
    fn kernels_are_shared_by_what_cells_count() {
        let all: Vec<u32> = grid().collect();
        assert_eq!([&all[..], &all[31..], &all[35..], &[]].map(share), [KERNELS, 1, 1, 0]);
        let shares: Vec<usize> = (0..=all.len()).map(|count| share(&all[..count])).collect();
        assert!(shares.is_sorted() && shares[19] > 4 && shares[19] < KERNELS, "{shares:?}");
    }

    #[test]
    fn what_is_there_anyway_is_used() {
        let (arch, problem) = (&Arch::H200, Problem::gemm().n(4096).k(7168).prepared());
        let own = *untuned::choose(&problem, 64, arch, None).unwrap().spec();
        let (chosen, _) = choices(&problem, &[64], arch, None, &[own]);
        assert_eq!(chosen[0].spec(), &own);
    }
}
