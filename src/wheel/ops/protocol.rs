//! The protocol of a shard: what each operation does to an entry's two words, and how each race
//! between callers and the sweeper ends. All documentation, no code: the functions are in [`super`]
//! and in [`visit`](super::visit), the invariants I1 and I2 at the top of [`super`].
//!
//! # The operations
//!
//! **Insert.** Claim a vacant entry and write the value. If `next_visit` tells of a reference that
//! will be visited in time, arm by an exchange, and look at `next_visit` again, as a reset does.
//! Otherwise write `next_visit`; arm by a store; file the reference; fence; look at the sweep again
//! and, if the slot's expiry has come, file once more ([`refile`]). If a resetter of an earlier
//! timer still holds the refiling flag, arm by an exchange that keeps it, and leave `next_visit`
//! alone.
//!
//! **Cancel.** One exchange on the state ends the timer. The reference and `next_visit` stay.
//!
//! **Reset.** One exchange on the state sets the deadline. Then `next_visit` is read: if its tick
//! lies after the sweep and not after the new deadline, the reference there will be visited in
//! time, and the sweeper will read the new deadline. That is the common case: pushing a deadline
//! back costs one exchange and one load from the same cache line. Otherwise an earlier reference is
//! needed ([`refile`]):
//!
//! 1. set the refiling flag (with the deadline, in the same exchange, when `next_visit` already
//!    shows that it will be needed); 2. file a reference, half way there; 3. exchange `next_visit`;
//!    4. fence; 5. if the sweep has passed the slot meanwhile, again from 2; 6. wake the sweeper if
//!    the sweeper rests for too long; 7. clear the flag.
//!
//! A resetter that finds the flag already set does 2, 4, 5 and 6 only and leaves `next_visit`
//! alone.
//!
//! **Visit** (the sweeper, for each reference it has taken). Read the state. Due: end the timer;
//! the value is the sweeper's. If `next_visit` refers to this reference for a later expiry, clear
//! it; if the refiling flag is set, re-file the reference as in step 4. Not due: while the flag is
//! clear, read `next_visit`:
//!
//! 1. no timer lives here: the reference is stale. If `next_visit` refers to the slot that it was
//!    taken from, clear it; revalidate the state by an exchange to the same value; drop it;
//! 2. the `next_visit`'s tick lies after the sweep and not after the deadline, and is not the slot
//!    that this reference was taken from: another reference waits there, and this one is redundant;
//!    revalidate the state, and drop it;
//! 3. otherwise exchange `next_visit` to the tick of the new slot, file the reference there, and
//!    revalidate the state.
//!
//! A revalidation that fails says that somebody was faster: read the state again. While the flag
//! is set, `next_visit` is the resetter's, and may come to tell of this very reference:
//!
//! 4. put it back into its slot, for its next expiry; if that is after the deadline, file
//!    another for the deadline; revalidate.
//!
//! # The races
//!
//! **Reset or insert against visit.** The states of an entry form one order, and all its exchanges
//! synchronise along it. If the reset (or the arming, by exchange) comes before the sweeper's
//! revalidation, the revalidation fails and the sweeper reads the new state; or it finds the same
//! state again, and has seen to this very deadline. If it comes after,
//! the resetter sees the sweeper's `next_visit`, and the tick of its sweep, and does not rely on a
//! reference that was moved or discarded. A tick promised in `next_visit` by the sweeper is always
//! filed, even when its revalidation then fails. An insert that arms by a store relies on nothing
//! but the reference it files.
//!
//! **A reference visited before its expiry.** A sweep that moves on by more than one slot takes a
//! slot for an expiry that is past, and may find in it a reference that was filed a moment ago, by
//! the tick just published, for its next expiry. `next_visit` then refers to this very slot, and so
//! the reference is filed again, not taken for redundant. While a resetter holds the flag,
//! `next_visit` may refer to this slot now, or when the resetter has written it: so the reference
//! goes back there, whatever else is filed, and `next_visit` tells the truth when the flag is
//! cleared.
//!
//! **Reset against a redundant reference.** The sweeper drops a reference because `next_visit`
//! refers to a later tick L, and revalidates the state after it has read L. A resetter whose
//! exchange comes after that sees L, or a next visit written later; one whose exchange comes before
//! makes the revalidation fail, or leaves the deadline that the sweeper has compared with L.
//!
//! **A look at the deadline during a reset.** The deadline can be seen from the first exchange on,
//! and no sweep that begins after step 5 passes it. In between a thread may see it, and a sweep
//! that begins then may pass it without the timer; I1 holds again before the reset returns. So a
//! reset takes effect in two steps (`tests/wheel/linearizability.rs` holds it to that).
//!
//! **A resetter held up between 2 and 3.** Its reference may be visited before `next_visit` says
//! that it is there: a next visit that lies would make a later resetter rely on nothing. If the
//! reference is visited at its expiry, step 5 finds the sweep that visited it; if before its
//! expiry, it is put back (visit, 4), also when it has ended its timer.
//!
//! **A resetter held up between 1 and 7** keeps others from using `next_visit`, not from working:
//! they file references of their own. Its timer may end and the entry be claimed and armed: the
//! flag stays until that thread clears it, whatever lives in the entry by then, and what it writes
//! into `next_visit` is true of the entry. The entry's page stays as long, unless it is exhausted
//! ([`page_table`](crate::wheel::slab::page_table)).
//!
//! **The sweeper's exchange of `next_visit` against an inserter's store.** Each tells of a
//! reference that its writer files, or of nothing; whichever comes last, `next_visit` tells the
//! truth.
//!
//! **An inserter held up after choosing its slot** finds at its re-check that the slot's expiry
//! has come ([`crate::wheel::progress::swept`]). What it filed there is visited a revolution later,
//! as stale, redundant or, at worst, early, and then filed again.
//!
//! **An inserter or resetter held up while the sweep leaps.** The state holds the low bits of a
//! deadline, which mean another once the sweep has left it behind by
//! [`PAST`](crate::wheel::tick::Tick::PAST). So the re-check also asks how far behind the
//! deadline is:
//!
//! * at most `PAST - LONGEST_REST`: the reference is in a slot still to come, or it is overdue and
//!   the sweeper, which takes what is overdue once in `LONGEST_REST`, visits it within `PAST`;
//! * more: the bits may mean another deadline already, by which the sweeper may have filed a
//!   reference 2^38 ticks ahead. The operation exchanges its own deadline for the oldest one that
//!   can be told, files once more, and checks again ([`refile`]). If another thread has set another
//!   deadline meanwhile, that thread sees to it. If it has set one with the very same bits, the
//!   exchange stands for this operation, which has not returned and so may come after the other.
//!
//! **Wake-ups.** Whoever relies on a reference relies also on its filer having woken the wakeup: an
//! insert wakes it before it returns its id, a resetter before it clears the flag (so whoever
//! relies on a next visit looks at the flag once more, after `next_visit`), and the sweeper itself
//! needs none.
//!
//! [`refile`]: super::refile

#![forbid(unsafe_code)]
