//! Tells rustc of `tokio_unstable`, the cfg that brings tokio's alternative timer.

#[allow(clippy::print_stdout, reason = "how a build script talks to cargo")]
fn main() {
    println!("cargo::rustc-check-cfg=cfg(tokio_unstable)");
    println!("cargo::rerun-if-changed=build.rs");
}
