//! Rows of groups, drawn as tokens choose experts.

use fastrand::Rng;
use warpsmith::Result;
use warpsmith::internal::spec::Routing;
use warpsmith::spec::Problem;

/// `m` rows of a problem that fall into its groups as it states ([`Routing`]): each token takes its number of different
/// groups (the last token fewer, where they do not divide `m`), popular ones more often, in an order that is drawn, too.
/// With nothing stated each row takes one. One number if there are no groups. The same seed gives the same rows.
///
/// # Errors
/// Those of [`Problem::check_for`].
pub fn drawn_rows(problem: &Problem, m: u32, seed: u64) -> Result<Vec<u32>> {
    problem.check_for(m)?;
    let Some(groups) = problem.groups() else { return Ok(vec![m]) };
    let routing = *problem.routing();
    let (top_k, exponent) = (routing.top_k.unwrap_or(1), f64::from(routing.skew.unwrap_or(0)) / 100.0);
    let popularity = |rank: u32| match routing == Routing::default() {
        true => 1.0 + Routing::UNEVEN * (f64::from(2 * rank - 1) / f64::from(groups) - 1.0),
        false => f64::from(rank).powf(-exponent),
    };
    let mut rng = Rng::with_seed(seed);
    let mut ranks: Vec<u32> = (1..=groups).collect();
    rng.shuffle(&mut ranks);
    let liked: Vec<f64> = ranks.iter().map(|rank| popularity(*rank).ln()).collect();
    let mut rows = vec![0; groups as usize];
    let mut left = m;
    let mut keys: Vec<(f64, usize)> = Vec::with_capacity(groups as usize);
    while left > 0 {
        let taken = top_k.min(left);
        // The largest of what is liked, with noise of Gumbel's distribution, are a draw without replacement.
        let noise = |rng: &mut Rng| -(-rng.f64().max(f64::MIN_POSITIVE).ln()).ln();
        keys.clear();
        keys.extend(liked.iter().enumerate().map(|(group, liked)| (liked + noise(&mut rng), group)));
        keys.select_nth_unstable_by(taken as usize - 1, |a, b| b.0.total_cmp(&a.0));
        keys[..taken as usize].iter().for_each(|(_, group)| rows[*group] += 1);
        left -= taken;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experts(groups: u32, top_k: u32) -> Problem {
        Problem::gemm().n(64).k(64).grouped(groups).experts_per_token(top_k)
    }

    #[test]
    fn each_token_takes_different_groups() {
        for (groups, top_k, m) in [(128, 8, 8), (8, 8, 800), (16, 3, 7), (256, 1, 1000), (64, 4, 4096)] {
            let problem = experts(groups, top_k);
            let rows = drawn_rows(&problem, m, 5).unwrap();
            assert_eq!((rows.len(), rows.iter().sum::<u32>()), (groups as usize, m));
            assert!(rows.iter().all(|rows| *rows <= m.div_ceil(top_k)), "{rows:?}");
            assert_eq!(rows, drawn_rows(&problem, m, 5).unwrap());
            assert!(groups == top_k || rows != drawn_rows(&problem, m, 6).unwrap());
        }
        assert_eq!(drawn_rows(&Problem::gemm().n(64).k(64), 9, 1).unwrap(), [9]);
        assert!(
            drawn_rows(&experts(4, 5), 8, 1).unwrap_err().to_string().contains("experts per token = 5: must be 1 to 4")
        );
    }

    #[test]
    fn popular_groups_have_more_rows() {
        let sorted = |problem: &Problem| {
            let mut rows = drawn_rows(problem, 4096, 1).unwrap();
            rows.sort_unstable();
            rows
        };
        let (even, skewed) = (sorted(&experts(64, 2)), sorted(&experts(64, 2).skew(100)));
        assert!(skewed[63] > 3 * even[63] && skewed[0] < even[0], "{even:?} {skewed:?}");
    }
}
