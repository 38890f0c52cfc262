//! Declares `tokio_unstable`, the cfg of tokio's alternative timer, to rustc.

#[allow(clippy::print_stdout, reason = "how a build script talks to cargo")]
fn main() {
    println!("cargo::rustc-check-cfg=cfg(tokio_unstable)");
    println!("cargo::rerun-if-changed=build.rs");
}
