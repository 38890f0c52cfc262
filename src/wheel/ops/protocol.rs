//! The protocol: what each operation does to the two words of an entry, and how each race between
//! callers and the sweeper ends. This file has no code.
//!
//! # Terms
//!
//! * **State** and **`next_visit`** are the two words of an entry. A reference in a slot leads to
//!   the entry (I1), and `next_visit` is the tick at which the earliest known reference is visited
//!   (I2). It *describes* that reference.
//! * An **old** reference was filed before the operation began, perhaps for a previous timer of the
//!   entry. An **earlier** reference is one that is visited earlier, whenever it was filed.
//! * **In time**: `next_visit` lies after the sweep and not after the deadline.
//! * **Revalidate**: exchange the state for itself. If that fails, the operation reads the new
//!   state and starts again.
//! * **Refiling flag**: a bit of the state. The thread that set it owns `next_visit` and is the
//!   only one that clears the flag.
//! * **Re-check**: read the sweep's tick (F6) or the wake-up tick (F7) again, after a full fence.
//!
//! # The operations
//!
//! The steps F1 to F7 of a filer and S1 to S4 of the sweeper are in
//! [`progress`](crate::wheel::progress).
//!
//! **Insert** ([`insert`](super::insert)).
//!
//! * **A1** Claim a vacant entry and write the value.
//! * **A2** If `next_visit` is in time, arm by an exchange and check `next_visit` again, as R2
//!   does. This is the common case. If it is no longer in time, go on with R3.
//! * **A3** Otherwise write `next_visit`, and arm by a store.
//! * **A4** File the reference, F1 to F7. If F6 finds that the slot has expired, go on as a reset
//!   that needs an earlier reference ([`refile`](super::refile)).
//! * **A5** If the wheel was closed meanwhile, or there is no memory for the reference, take the
//!   timer back.
//!
//! If a resetter of a previous timer still owns the refiling flag, the insert arms by an exchange
//! that keeps the flag, leaves `next_visit` alone, and does R4 and R6.
//!
//! **Cancel** ([`cancel`](super::cancel)). One exchange on the state ends the timer. References and
//! `next_visit` stay.
//!
//! **Reset** ([`reset`](super::reset)).
//!
//! * **R1** Set the deadline by an exchange on the state.
//! * **R2** Read `next_visit`. If it is in time, the reference that it describes will be visited in
//!   time, and the sweeper will read the new deadline. Then read the state again. If another thread
//!   has set the refiling flag, do R4 and R6 only. Otherwise this is all, in the common case.
//!   Moving a deadline later costs one exchange and a few loads, from one cache line except for the
//!   sweep's tick.
//! * **R3** Otherwise set the refiling flag. If `next_visit` is not in time even before R1, the
//!   exchange of R1 sets the flag as well.
//! * **R4** File a reference, F1, half way to the deadline.
//! * **R5** Exchange `next_visit` for the tick of that reference, unless it describes an earlier
//!   one already, or the reference is overdue.
//! * **R6** Go on with F2 to F7. If F6 finds that the slot has expired, return to R4.
//! * **R7** Clear the flag.
//!
//! A resetter that finds the flag already set does R4 and R6 only and leaves `next_visit` alone.
//!
//! **Visit** ([`visit`](super::visit), by the sweeper, for each reference that it has taken).
//! Pruning does V3 and V4 only. It reads the state, and the first of these steps that applies
//! completes the visit:
//!
//! * **V1** If the timer is due, end it and own the value. If the refiling flag is set, file the
//!   reference again for its slot's next expiry. Otherwise, if `next_visit` lies ahead and refers
//!   to that slot, clear it.
//! * **V2** If the flag is set, `next_visit` belongs to the resetter and may come to describe this
//!   very reference. File it again in its slot, for its next expiry. If the entry holds a timer
//!   that is due before that, file another for its deadline. Revalidate. (An overdue reference has
//!   no slot, and is filed for the deadline alone.)
//! * **V3** If the entry holds no timer, the reference is stale. If `next_visit` refers to the slot
//!   from which the reference was taken, clear it. Revalidate, and discard the reference.
//!   The reference of a pristine or absent entry is discarded at once.
//! * **V4** If `next_visit` is in time and refers to another slot, another reference waits there
//!   and this one is redundant. Revalidate, and discard it.
//! * **V5** Otherwise exchange `next_visit` to the tick of the new slot, file the reference there,
//!   and revalidate.
//!
//! # The races
//!
//! **Reset or insert against visit.** The states of an entry form one order, and all its exchanges
//! synchronise along it. If the reset (or the arming, by exchange) comes before the sweeper's
//! revalidation, the revalidation fails and the sweeper reads the new state. If the revalidation
//! finds the same state again, the sweeper has already handled this deadline. If the reset comes
//! after the revalidation, the resetter sees the sweeper's `next_visit` and the tick of its sweep,
//! and does not rely on a reference that was moved or discarded. A tick that the sweeper writes
//! into `next_visit` is always filed, even when its revalidation then fails. An insert that arms by
//! a store relies only on the reference that it files.
//!
//! **A reference visited before its expiry.** A sweep that advances by more than one slot takes a
//! slot for an expiry that is past. It may find a reference there that was filed a moment ago, by
//! the tick just published, for the slot's next expiry. `next_visit` then refers to this very slot,
//! so the reference is filed again and not mistaken for redundant. While a resetter holds the flag,
//! `next_visit` may refer to this slot now, or once the resetter has written it. The reference is
//! therefore filed there again, whatever else is filed, and `next_visit` is correct when the flag
//! is cleared.
//!
//! **Reset against a redundant reference.** The sweeper drops a reference because `next_visit`
//! is a later tick L, and revalidates the state after it has read L. A resetter whose exchange
//! comes after that sees L, or a next visit written later. A resetter whose exchange comes before
//! makes the revalidation fail, or leaves the deadline that the sweeper has compared with L.
//!
//! **A deadline that is read during a reset.** The deadline can be read from R1 on,
//! and no sweep that begins after F2, or after F6 if the shard was reported, passes it. In
//! between, a thread may read it, and a sweep that begins then may pass it without visiting the
//! timer. I1 holds again before the reset returns. A reset therefore takes effect in two steps
//! (`tests/wheel/linearizability.rs` tests that).
//!
//! **A resetter that is held up between R4 and R5.** Its reference may be visited before
//! `next_visit` describes it. If `next_visit` then came to describe a reference that is gone, a
//! later resetter would rely on it. If the reference is visited at its expiry, the sweeper does not
//! expect it any more, and F6 finds the sweep that visited it. If it is visited before its
//! expiry, it is filed again (V1 and V2), even when it has ended its timer.
//!
//! **A resetter that is held up while it owns the flag** keeps other threads from using
//! `next_visit`, but not from working, because they file references of their own. Its timer may
//! end, and the entry be claimed and armed again. The flag stays until that thread clears it,
//! whatever timer the entry holds by then, and what the thread writes into `next_visit` is true of
//! the entry. The entry's page stays as long, unless it is exhausted
//! ([`page_table`](crate::wheel::slab::page_table)).
//!
//! **The sweeper's exchange of `next_visit` against an inserter's store.** Each of the two
//! describes a reference that its writer files, or none. Whichever comes last, `next_visit` is
//! correct.
//!
//! **An inserter that is held up after choosing its slot** finds that the sweeper does not expect
//! the reference, and at its re-check that the slot's expiry has passed
//! ([`crate::wheel::progress::swept`]). The reference that it filed there is
//! visited a revolution later, as stale, redundant or, at worst, early, and is then filed again.
//!
//! **An inserter or resetter that is held up while the sweep leaps.** The state holds only the low
//! bits of a deadline. Once the sweep is more than [`PAST`](crate::wheel::tick::Tick::PAST) past
//! it, they stand for another deadline. The re-check therefore also checks how far behind the
//! deadline is:
//!
//! * At most `PAST - MAX_REST`: the reference is in a slot that is still to be taken, or it is
//!   overdue. The sweeper takes the overdue references once in `MAX_REST`, and so visits it
//!   within `PAST`.
//! * More: the bits may already stand for another deadline, for which the sweeper may have filed a
//!   reference 2^38 ticks ahead. The operation exchanges its deadline for the oldest one that can
//!   be represented, files once more, and checks again ([`refile`]). If another thread has set
//!   another deadline meanwhile, that thread ensures the visit. If it has set a deadline with the
//!   same bits, the exchange counts as this operation, which has not returned and so may come after
//!   the other one.
//!
//! **A shard that the sweeper does not scan.** A step of the sweep scans only the shards in which
//! it knows of an expiry, or of which it has a report. A filer that returns has found in F3 that
//! the sweeper knows of an expiry that is not later than its own, or has reported the shard (F4)
//! before F5 and F6. [`next_scan`](crate::wheel::progress::next_scan) shows that the step that
//! passes the slot then finds the reference, or the re-check finds that step.  **Wake-ups.** A
//! thread that relies on a reference also relies on its filer to wake the sweeper, if the sweeper
//! does not expect the reference. An insert wakes it before it returns its id. A resetter wakes it
//! before it clears the flag, so a thread that relies on `next_visit` reads the flag once more
//! after `next_visit`. The sweeper needs no wake-up for the references that it files.
//!
//! [`refile`]: super::refile

#![forbid(unsafe_code)]
