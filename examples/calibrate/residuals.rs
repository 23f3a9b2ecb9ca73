//! Where the model and the measurements differ.

use warpsmith::pick::heuristic::{Constants, predict_with};

use crate::data::Pair;
use crate::shared::{Result, say};

/// Every variant of a pair, a line each: problem, M, whether it was held out, variant, µs measured and predicted, and the
/// parts of the prediction in JSON.
pub fn show(pair: &Pair, constants: &Constants) -> Result<()> {
    for (spec, us) in &pair.timed {
        let predicted = predict_with(spec, pair.m, constants);
        let terms = serde_json::to_string(&predicted.terms)?;
        let (problem, m, held_out, variant) = (&pair.problem, pair.m, pair.held_out, spec.variant());
        say!("{problem}\t{m}\t{held_out}\t{variant}\t{us:.3}\t{:.3}\t{terms}", predicted.us)?;
    }
    Ok(())
}
