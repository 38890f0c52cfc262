//! The parts that the servers under load and their clients share: timers in several structures,
//! batches of datagrams, commands of keys, and the start and the end of a server's process.

#![forbid(unsafe_code)]

pub mod command;
pub mod datagrams;
pub mod process;
pub mod timers;
