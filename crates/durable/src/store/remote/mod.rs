//! The engine that the stores in Redis and in PostgreSQL share: how operations are sent, and sent
//! again.
//!
//! ```text
//!   insert   ─┐   waiting            on its way
//!   cancel   ─┼─► ┌──┬──┬──┬──┐      ┌──┬──┬──┬──┐ number 7   one call of a script,
//!   lease    ─┤   │  │  │  │  │ ───► │  │  │  │  │ ─────────► or one statement
//!   finish   ─┘   └──┴──┴──┴──┘      └──┴──┴──┴──┘
//! ```
//!
//! A store is a [`Transport`](sender::Transport), which sends a batch once and classifies the
//! error. Its [`Engine`](sender::Engine) has several queues, one for each partition in Redis, and a
//! few lanes in PostgreSQL. All operations of an id are in the same queue.
//!
//! **One batch per queue is in flight at a time**, and the next accumulates meanwhile. A single
//! operation is sent at once, and under load many share the cost of a request.
//!
//! **Retried, executed once.** The batches of a queue are numbered consecutively. A batch is resent
//! under its number, with the same operations in the same positions, until a reply arrives. The
//! server keeps its last reply to each queue, returns it on a resend, and rejects lower numbers.
//! While a reply is missing, the queue is *ambiguous*: a copy of the batch may still be executed.
//!
//! **Each operation has its own outcome.** An operation that was certainly not executed, although
//! its batch was, leaves the batch and joins the end of the queue. If the whole batch fails, the
//! transport can take it over ([`recover`](sender::Transport::recover)).
//!
//! **An error decides about callers and workers.** A fatal error fails all operations of the batch.
//! If the server rejects the batch, callers get the error, and workers wait until an operator has
//! fixed the server. All other errors only lead to a resend.
//!
//! **Callers that timed out** have received the last reason why there was no reply. Their
//! operations are left out of a resend. **Dropped futures** have no effect, and the operation is
//! executed. Only operations such as the request of a lease are skipped if they were not sent yet.

pub(crate) mod answers;
pub(crate) mod error;
pub(crate) mod host;
pub(crate) mod notices;
pub(crate) mod queue;
pub(crate) mod request;
pub(crate) mod retry;
pub(crate) mod sender;
pub(crate) mod store;
#[cfg(test)]
mod tests;
pub(crate) mod trouble;
