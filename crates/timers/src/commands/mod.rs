//! The commands.

#![forbid(unsafe_code)]

pub(crate) mod change;
pub(crate) mod dead;
mod pages;
pub(crate) mod read;
pub(crate) mod schedule;
pub(crate) mod shell;
pub(crate) mod upkeep;
