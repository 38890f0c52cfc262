//! The systems that are compared, one file each.

pub(crate) mod async_io;
pub(crate) mod delay_queue;
pub(crate) mod floor;
pub(crate) mod heap;
pub(crate) mod hhwt;
pub(crate) mod nexus;
pub(crate) mod pingora;
pub(crate) mod tokio;
#[cfg(tokio_unstable)]
pub(crate) mod tokio_alt;
pub(crate) mod tourbillon;
