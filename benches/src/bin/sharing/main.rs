//! The program of `ci/measure sharing`: it counts, for each operation, the cache lines that move
//! between threads. On a machine with few cores that predicts the throughput with many.
//!
//! Every access of the wheel to an atomic or a value is noted (`tourbillon::__internals::traced`,
//! under `cfg(traced)`), as by processors with caches that never overflow. Callers are threads that
//! take turns, an operation each, so that a run is the same each time. Beside the wheel stands a
//! heap in a lock, with no more than the lines that it cannot do without.

#[cfg(traced)]
mod replay;
#[cfg(traced)]
mod report;
#[cfg(traced)]
mod systems;

#[cfg(traced)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    report::run(&clap::Parser::parse())
}

#[cfg(not(traced))]
fn main() {
    panic!("what is not built with `--cfg traced` notes nothing: call ci/measure sharing");
}
