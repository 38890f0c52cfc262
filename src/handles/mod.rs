//! Handles of timers: what a caller keeps in place of an id. They use the wheel's public interface
//! only.

#![forbid(unsafe_code)]

mod owned;
mod series;

pub use owned::OwnedTimer;
pub use series::Series;
