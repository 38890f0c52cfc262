//! The wheel behind the interfaces of other crates. Each crate has a feature and a file.

#[cfg(feature = "serde")]
pub(crate) mod config;
#[cfg(feature = "metrics")]
pub(crate) mod export;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "hyper")]
mod hyper;
#[cfg(feature = "quinn")]
pub mod quinn;
#[cfg(feature = "tokio")]
pub mod tokio;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "tower")]
mod tower_ready;
#[cfg(feature = "tower")]
mod wraps;
