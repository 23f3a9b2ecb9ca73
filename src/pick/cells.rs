//! The grid of M on which choices are made where nothing was measured, and few kernels that are good in all its cells.

use super::choice::Choice;
use super::ladder;
use super::untuned::{Untuned, predicted};
use crate::error::Error;
use crate::spec::{Arch, Numerics, Problem, Spec};

/// Up to here every multiple of [`STEP`] is the upper end of a cell.
const DENSE: u32 = 128;
const STEP: u32 = 8;
/// Up to here an octave has four cells; beyond, one.
const QUARTERED: u32 = 8192;
/// A problem has about so many kernels beside those that were measured.
const KERNELS: usize = 10;
/// What a kernel that serves other cells, too, may be predicted to take, over the best one of a cell: the first for which
/// [`KERNELS`] are enough, or else the last.
const TOLERANCES: [f64; 4] = [1.03, 1.05, 1.08, 1.12];

/// The upper ends of all cells, ascending. The last is [`Problem::M_MAX`].
pub(super) fn grid() -> impl Iterator<Item = u32> {
    std::iter::successors(Some(STEP), |last| {
        let octave = 1 << last.ilog2();
        let step = match *last {
            last if last < DENSE => STEP,
            last if last < QUARTERED => octave / 4,
            _ => octave,
        };
        (*last < Problem::M_MAX).then(|| last + step)
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
        let untuned = Untuned::new(problem, arch, class);
        let mut cells = Vec::with_capacity(lasts.len());
        for &last in lasts {
            match untuned.choose(last) {
                Ok(best) => cells.push(Self { last, best, least: predicted(best.spec(), last) }),
                Err(error) => return (cells, Some(error)),
            }
        }
        (cells, None)
    }

    fn accepts(&self, spec: &Spec, tolerance: f64) -> bool {
        let limit = tolerance * self.least;
        spec == self.best.spec() || (spec.fits_grid(self.last) && predicted(spec, self.last) <= limit)
    }

    /// The best of `kernels` that is good enough; its own, if that is among them.
    fn choice(&self, kernels: &[Spec], tolerance: f64) -> Choice {
        if kernels.contains(self.best.spec()) {
            return self.best;
        }
        let accepted = kernels.iter().filter(|spec| self.accepts(spec, tolerance));
        match accepted.min_by(|a, b| predicted(a, self.last).total_cmp(&predicted(b, self.last))) {
            Some(spec) => Choice::new(*spec, ladder::numbers(spec, self.last)),
            None => self.best,
        }
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
        assert_eq!(all[..16], [8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128]);
        assert_eq!(all[16..24], [160, 192, 224, 256, 320, 384, 448, 512]);
        assert_eq!(all[36..42], [5120, 6144, 7168, 8192, 16_384, 32_768]);
        assert_eq!(all.last(), Some(&Problem::M_MAX));
    }

    #[test]
    fn a_kernel_stands_in_only_where_it_is_nearly_as_good() {
        let arch = &Arch::H200;
        let problem = Problem::dual_gemm(Activation::Silu).n(2048).k(7168).prepared();
        let lasts: Vec<u32> = grid().collect();
        let (chosen, error) = choices(&problem, &lasts, arch, None, &[]);
        assert!(error.is_none());
        for (choice, &last) in chosen.iter().zip(&lasts) {
            let best = Untuned::new(&problem, arch, None).choose(last).unwrap();
            let (found, least) = (predicted(choice.spec(), last), predicted(best.spec(), last));
            assert!(found <= TOLERANCES[3] * least, "{last}: {found} for {least}");
            assert!(choice.spec().fits_grid(last));
        }
    }

    #[test]
    fn what_is_there_anyway_is_used() {
        let (arch, problem) = (&Arch::H200, Problem::gemm().n(4096).k(7168).prepared());
        let own = *Untuned::new(&problem, arch, None).choose(64).unwrap().spec();
        let (chosen, _) = choices(&problem, &[64], arch, None, &[own]);
        assert_eq!(chosen[0].spec(), &own);
    }
}
