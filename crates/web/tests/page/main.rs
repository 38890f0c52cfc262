//! The page, as a browser asks for it, without a server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod forms;
mod letters;
mod lists;
mod mounted;
mod overview;
