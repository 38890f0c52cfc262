//! Stores whose keys are divided into partitions, which their servers can read one by one.

pub(crate) mod idle;
