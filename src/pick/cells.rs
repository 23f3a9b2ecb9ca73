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
    let (cells, error) = Cell::all(problem, lasts, arch, class);
    let mut kernels = Vec::new();
    let mut tolerance = 1.0;
    for wider in TOLERANCES {
        tolerance = wider;
        kernels = cover(&cells, tolerance, given);
        if kernels.len() <= given.len() + KERNELS {
            break;
        }
    }
    (cells.iter().map(|cell| cell.choice(&kernels, tolerance)).collect(), error)
}

/// Few kernels of which one is good enough in each cell: those that are given, and others, added one by one, each time the
/// one that is good enough for most of the cells that have none yet, the first of several.
fn cover(cells: &[Cell], tolerance: f64, given: &[Spec]) -> Vec<Spec> {
    let mut kernels = given.to_vec();
    let is_open = |cell: &&Cell| !given.iter().any(|spec| cell.accepts(spec, tolerance));
    let mut open: Vec<&Cell> = cells.iter().filter(is_open).collect();
    let mut candidates: Vec<Spec> = Vec::new();
    for cell in &open {
        if !candidates.contains(cell.best.spec()) {
            candidates.push(*cell.best.spec());
        }
    }
    while !open.is_empty() {
        let served = |spec: &Spec| open.iter().filter(|cell| cell.accepts(spec, tolerance)).count();
        // Of equals the last is the greatest, so they are gone through from the end.
        let Some(most) = candidates.iter().rev().copied().max_by_key(served) else { break };
        open.retain(|cell| !cell.accepts(&most, tolerance));
        kernels.push(most);
    }
    kernels
}

/// A cell with the heuristic's choice for its upper end.
struct Cell {
    last: u32,
    best: Choice,
    /// What that is predicted to take.
    least: f64,
}

impl Cell {
    /// As long as there are choices, and why there is none for the next.
    fn all(problem: &Problem, lasts: &[u32], arch: &Arch, class: Option<&Numerics>) -> (Vec<Self>, Option<Error>) {
        let mut cells = Vec::with_capacity(lasts.len());
        for &last in lasts {
            match untuned::choose(problem, last, arch, class) {
                Ok(best) => cells.push(Self { last, best, least: predict(best.spec(), last).us }),
                Err(error) => return (cells, Some(error)),
            }
        }
        (cells, None)
    }

    fn accepts(&self, spec: &Spec, tolerance: f64) -> bool {
        let limit = tolerance * self.least;
        spec == self.best.spec() || (spec.fits_grid(self.last) && predict(spec, self.last).us <= limit)
    }

    /// The best of `kernels` that is good enough; its own, if that is among them.
    fn choice(&self, kernels: &[Spec], tolerance: f64) -> Choice {
        if kernels.contains(self.best.spec()) {
            return self.best;
        }
        let accepted = kernels.iter().filter(|spec| self.accepts(spec, tolerance));
        let predicted = accepted.map(|spec| (predict(spec, self.last).us, spec));
        let best = predicted.min_by(|(a, _), (b, _)| a.total_cmp(b));
        best.map_or(self.best, |(_, spec)| untuned::predicted(*spec, self.last))
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
