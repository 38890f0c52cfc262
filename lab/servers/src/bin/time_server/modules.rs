//! The protocols, once with each module `time`.

#![allow(clippy::duplicate_mod, reason = "the imports differ")]

/// The protocols on tokio's own timers.
#[path = "."]
pub(crate) mod on_tokio {
    /// The items of `tourbillon::time`, which come from two crates on tokio.
    mod time {
        pub(super) use ::tokio::time::*;
        pub(super) use ::tokio_util::time::*;
    }

    #[path = "protocols/mod.rs"]
    pub(crate) mod protocols;
}

/// The protocols on the wheel.
#[path = "."]
pub(crate) mod on_tourbillon {
    use tourbillon::time;

    #[path = "protocols/mod.rs"]
    pub(crate) mod protocols;
}
