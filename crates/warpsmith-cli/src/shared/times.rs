//! Times on a command line.

use std::time::Duration;

/// Seconds that may be asked for: far beyond, no clock can tell when they are over.
pub const SECONDS_MAX: u64 = 1_000_000_000;

pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(_) if seconds > SECONDS_MAX as f64 => Err(format!("{seconds} s: at most {SECONDS_MAX}")),
        other => other.map_err(|error| error.to_string()),
    }
}

pub fn duty(text: &str) -> Result<f64, String> {
    let share = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if share > 0.0 && share <= 1.0 { Ok(share) } else { Err(format!("{share} is not above 0 and at most 1")) }
}
