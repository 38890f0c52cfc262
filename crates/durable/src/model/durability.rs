//! [`Durability`], the events that the timers of a store survive.

#![forbid(unsafe_code)]

/// The events that acknowledged changes survive, as the store is configured at present. Returned by
/// [`DurableTimers::durability`](crate::DurableTimers::durability).
///
/// For a cluster the losses and the replicas are the worst values of its masters.
///
/// # Examples
///
/// A program that does not start on a store that forgets:
///
/// ```
/// use tourbillon_durable::{DurableTimers, Loss};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-loss-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// let durability = pollster::block_on(timers.durability())?;
/// assert!(durability.power_failure <= Loss::LastSeconds, "{durability:?}");
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Durability {
    /// The loss if the process of the store is killed, which is this process for a file.
    pub killed: Loss,
    /// The loss if the machine of the store fails or loses its power.
    pub power_failure: Loss,
    /// The number of connected replicas. Changes reach the replicas after they were acknowledged,
    /// so a failover loses some.
    pub replicas: u64,
    /// The name and version of the server, or of one master of a cluster. `None` for a file.
    pub version: Option<String>,
}

/// The acknowledged changes that an event loses, from the least to the most.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::Loss;
///
/// assert!(Loss::Nothing < Loss::LastSeconds && Loss::LastSeconds < Loss::Everything);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Loss {
    /// Nothing is lost (`appendfsync always`).
    Nothing,
    /// The last second, up to two while the disk is slow (`appendfsync everysec`).
    LastSeconds,
    /// Everything that the operating system has not written yet, usually half a minute
    /// (`appendfsync no`).
    Unflushed,
    /// Everything since the last snapshot (`save`, without an append-only file).
    SinceSnapshot,
    /// Everything, because the server keeps timers in memory only.
    Everything,
    /// Unknown, because the server does not reveal its configuration (`CONFIG GET` is forbidden, as
    /// on many managed servers).
    Unknown,
}
