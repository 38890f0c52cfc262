//! Timers beyond the capacity of a wheel, for an owner that occupies one place in it and cannot be
//! refused a timer.

#![forbid(unsafe_code)]

use super::Call;
use crate::error::{InsertError, Refusal};
use crate::sync::Relaxed;
use crate::wheel::engine::{Engine, OutOfRange};
use crate::wheel::id::TimerId;
use crate::wheel::slab::page_table::NoEntry;
use crate::wheel::thread_id::ThreadId;
use crate::wheel::tick::Tick;

impl<T> Engine<T> {
    /// Arms a timer in the caller's shard, even if the wheel is at its capacity.
    pub(crate) fn insert_over_capacity(
        &self,
        call: Call<'_>,
        value: T,
        deadline: Result<Tick, OutOfRange>,
    ) -> Result<TimerId, InsertError<T>> {
        let deadline = match deadline {
            Ok(deadline) => deadline,
            Err(why) => return Err(self.refuse(value, why)),
        };
        let home = ThreadId::current().home(self.shards.len());
        self.overdraw_room(home);
        let inserted = self.insert_in_room(home, call, value, deadline);
        inserted.map_err(|(value, why)| {
            let reason = match why {
                _ if self.is_closed() => Refusal::Closed,
                NoEntry::OutOfMemory => Refusal::OutOfMemory,
                NoEntry::UsedUp => Refusal::AtCapacity { capacity: self.most() },
            };
            InsertError { reason, value }
        })
    }

    /// Takes room for a timer even if the shard is full. The next timer that ends then makes no
    /// room for another.
    fn overdraw_room(&self, shard: usize) {
        if let Some(capacity) = &self.capacity {
            // Relaxed: as in `make_room`.
            capacity.room[shard].fetch_sub(1, Relaxed);
        }
    }
}
