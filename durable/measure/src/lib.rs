//! Programs that measure durable timers at full size, and test them under faults.

/// Returns the median of some rounds, the upper one of two, or NaN if there are none.
#[must_use]
pub fn median(rounds: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = rounds.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
