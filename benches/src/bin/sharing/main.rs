//! The program of `ci/measure sharing`: it counts, for each operation, the cache lines that move
//! between threads. On a machine with few cores that predicts the throughput with many.
//!
//! Every access of the wheel to an atomic or a value is recorded
//! (`tourbillon::__internals::traced`, under `cfg(traced)`), as if caches never overflowed. Callers
//! are threads that take turns of one operation, so that each run gives the same counts. The wheel
//! is compared with a heap in a lock that has the fewest possible lines.

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
