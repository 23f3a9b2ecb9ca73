//! The grid of M on which choices are made where nothing was measured, and few kernels that are good in all its cells.

use super::choice::Choice;
use super::heuristic::predict;
use super::untuned;
use crate::error::Error;
use crate::spec::{Arch, Numerics, Problem, Spec};

/// Upper ends of cells lie so close together up to here, and then each as far from the next as the second number says.
const STEPS: [(u32, Step); 5] = [
    (64, Step::Rows(8)),
    (128, Step::Rows(16)),
    (512, Step::Octave(4)),
    (8192, Step::Octave(2)),
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

/// A problem has about so many kernels beside those that were measured.
const KERNELS: usize = 9;
/// What a kernel that serves other cells, too, may be predicted to take, over the best one of a cell: the first for which
/// [`KERNELS`] are enough, or else the last.
const TOLERANCES: [f64; 4] = [1.03, 1.05, 1.09, 1.14];

/// The upper ends of all cells, ascending. The last is [`Problem::M_MAX`].
pub(super) fn grid() -> impl Iterator<Item = u32> {
    std::iter::successors(Some(8), |last| {
        let (_, step) = STEPS.iter().find(|(until, _)| last < until)?;
        Some(step.after(*last).min(Problem::M_MAX))
    })
}

/// One choice for each of the cells that end at `lasts`, as long as there is one, and why there is none for the next.
///
/// In every cell it is predicted to take hardly more ([`TOLERANCES`]) than the heuristic's choice for the cell's upper end.
/// The kernels in `given` are there anyway.
pub(super) fn choices(
    problem: &Problem,
    lasts: &[u32],
    arch: &Arch,
    class: Option<&Numerics>,
    given: &[Spec],
) -> (Vec<Choice>, Option<Error>) {
    let (cells, error) = Cell::all(problem, lasts, arch, class, given);
    let mut kernels = Vec::new();
    let mut tolerance = 1.0;
    for wider in TOLERANCES {
        tolerance = wider;
        kernels = cells.cover(tolerance);
        if kernels.len() <= given.len() + KERNELS {
            break;
        }
    }
    let choices = cells.cells.iter().map(|cell| cells.choice(cell, &kernels, tolerance));
    (choices.collect(), error)
}

/// Cells, and the kernels that may serve them.
struct Cells {
    cells: Vec<Cell>,
    /// Those that are given, and then every one that is a cell's best.
    kernels: Vec<Spec>,
    given: usize,
}

/// A cell with the heuristic's choice for its upper end.
struct Cell {
    last: u32,
    best: Choice,
    /// Its place among the kernels.
    best_at: usize,
    /// What each of the kernels is predicted to take; infinite where a grid has no room for it.
    us: Vec<f64>,
}

impl Cells {
    /// Few kernels of which one is good enough in each cell, by their places: those that are given, and others, added one by
    /// one, each time the one that is good enough for most of the cells that have none yet, the first of several.
    fn cover(&self, tolerance: f64) -> Vec<usize> {
        let mut chosen: Vec<usize> = (0..self.given).collect();
        let is_open = |cell: &&Cell| !chosen.iter().any(|kernel| cell.accepts(*kernel, tolerance));
        let mut open: Vec<&Cell> = self.cells.iter().filter(is_open).collect();
        let mut candidates: Vec<usize> = Vec::new();
        for cell in &open {
            if !candidates.contains(&cell.best_at) {
                candidates.push(cell.best_at);
            }
        }
        while !open.is_empty() {
            let served = |kernel: &usize| open.iter().filter(|cell| cell.accepts(*kernel, tolerance)).count();
            // Of equals the last is the greatest, so they are gone through from the end.
            let Some(most) = candidates.iter().rev().copied().max_by_key(served) else { break };
            open.retain(|cell| !cell.accepts(most, tolerance));
            chosen.push(most);
        }
        chosen
    }

    /// The best of `kernels` that is good enough; a cell's own, if that is among them.
    fn choice(&self, cell: &Cell, kernels: &[usize], tolerance: f64) -> Choice {
        if kernels.contains(&cell.best_at) {
            return cell.best;
        }
        let accepted = kernels.iter().filter(|kernel| cell.accepts(**kernel, tolerance));
        let best = accepted.min_by(|a, b| cell.us[**a].total_cmp(&cell.us[**b]));
        best.map_or(cell.best, |kernel| untuned::predicted(self.kernels[*kernel], cell.last))
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
            cells.push(Self { last, best, best_at, us: Vec::new() });
        }
        for cell in &mut cells {
            let us = |spec: &Spec| if spec.fits_grid(cell.last) { predict(spec, cell.last).us } else { f64::INFINITY };
            cell.us = kernels.iter().map(us).collect();
        }
        (Cells { cells, kernels, given: given.len() }, error)
    }

    fn accepts(&self, kernel: usize, tolerance: f64) -> bool {
        kernel == self.best_at || self.us[kernel] <= tolerance * self.us[self.best_at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Activation;

    #[test]
    fn the_grid_is_what_its_documentation_says() {
        let all: Vec<u32> = grid().collect();
        assert!(all.is_sorted_by(|a, b| a < b));
        assert_eq!(all[..12], [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128]);
        assert_eq!(all[12..20], [160, 192, 224, 256, 320, 384, 448, 512]);
        assert_eq!(all[20..28], [768, 1024, 1536, 2048, 3072, 4096, 6144, 8192]);
        assert_eq!(all[28..], [131_072, 2_097_152, Problem::M_MAX]);
    }

    #[test]
    fn a_kernel_stands_in_only_where_it_is_nearly_as_good() {
        let arch = &Arch::H200;
        let problem = Problem::dual_gemm(Activation::Silu).n(2048).k(7168).prepared();
        let lasts: Vec<u32> = grid().collect();
        let (chosen, error) = choices(&problem, &lasts, arch, None, &[]);
        assert!(error.is_none());
        for (choice, &last) in chosen.iter().zip(&lasts) {
            let best = untuned::choose(&problem, last, arch, None).unwrap();
            let (found, least) = (predict(choice.spec(), last).us, predict(best.spec(), last).us);
            assert!(found <= TOLERANCES[3] * least, "{last}: {found} for {least}");
            assert!(choice.spec().fits_grid(last));
        }
    }

    #[test]
    fn what_is_there_anyway_is_used() {
        let (arch, problem) = (&Arch::H200, Problem::gemm().n(4096).k(7168).prepared());
        let own = *untuned::choose(&problem, 64, arch, None).unwrap().spec();
        let (chosen, _) = choices(&problem, &[64], arch, None, &[own]);
        assert_eq!(chosen[0].spec(), &own);
    }
}
