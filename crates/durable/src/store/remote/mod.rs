//! The parts that the stores in Redis and in PostgreSQL share: how their requests are sent, and
//! sent again.

pub(crate) mod error;
pub(crate) mod host;
pub(crate) mod retry;
pub(crate) mod trouble;
