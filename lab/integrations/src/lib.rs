//! Tests and examples against real crates.
