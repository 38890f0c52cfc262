//! Switches the sources of tourbillon to the explorer's atomics, for this crate only.

#![allow(clippy::print_stdout, reason = "how a build script speaks to cargo")]

fn main() {
    let shuttle = std::env::var_os("CARGO_FEATURE_SHUTTLE").is_some();
    println!("cargo::rustc-cfg=modelled");
    println!("cargo::rustc-cfg={}", if shuttle { "shuttle" } else { "loom" });
    println!("cargo::rerun-if-changed=build.rs");
}
