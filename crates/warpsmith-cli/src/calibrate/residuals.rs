//! Where the model and the measurements differ.

use serde_json::json;
use warpsmith::internal::pick::heuristic::{Tables, load, predict_with};

use super::data::Pair;
use crate::shared::{Result, document, say};

/// Every variant of each pair, a line each: problem, M, whether it was held out, variant, µs measured and predicted, and the
/// parts of the prediction in JSON.
pub fn show(pairs: &[Pair], tables: &Tables) -> Result<()> {
    let mut lines = Vec::new();
    for (pair, (spec, us)) in pairs.iter().flat_map(|pair| pair.timed.iter().map(move |timed| (pair, timed))) {
        let predicted = predict_with(spec, &load(&pair.problem, pair.m), tables.of(&pair.problem));
        let terms = serde_json::to_value(predicted.terms)?;
        let (problem, m, held_out, variant) = (&pair.problem, pair.m, pair.held_out, spec.variant());
        say!("{problem}\t{m}\t{held_out}\t{variant}\t{us:.3}\t{:.3}\t{terms}", predicted.us)?;
        lines.push(json!({
            "problem": problem.to_string(), "m": m, "held_out": held_out, "variant": variant.to_string(), "us": us,
            "predicted_us": predicted.us, "terms": terms,
        }));
    }
    document(&lines)
}
