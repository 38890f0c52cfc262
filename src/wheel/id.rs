//! [`TimerId`], which identifies a timer, and [`Generation`], which makes every id unique.
//!
//! ```text
//!   63         56 55                           26   25   24                     0
//!  ┌─────────────┬──────────────────────────────┬─────┬─────────────────────────┐
//!  │  shard (8)  │          index (30)          │  0  │     generation (25)     │
//!  └─────────────┴──────────────────────────────┴─────┴─────────────────────────┘
//! ```
//!
//! The generation and the zero bit above it have the same places as the generation and the refiling
//! flag of an entry's state when the flag is clear ([`state`](crate::wheel::slab::state)). One
//! comparison therefore checks both.
//!
//! The generation of a slab entry is odd while a timer occupies the entry and even while it is
//! vacant. It only ever increases. An id holds the odd generation, so it is never zero, and the id
//! of an ended timer never matches again. An entry that reaches [`Generation::EXHAUSTED`] is
//! retired instead of wrapping.
//!
//! The generations of a shard start at a [random](Generation::drawn) value of 2^23, so an id of
//! another wheel, of the same shard and index, matches with a probability of at most 2^-23.

#![forbid(unsafe_code)]

use crate::wheel::bits::Field;
use std::fmt;
#[cfg(not(modelled))]
use std::hash::{BuildHasher, Hasher, RandomState};
use std::num::NonZeroU64;

const GENERATION: Field = Field::low(Generation::BITS);
const ZERO: Field = GENERATION.above(1);
const INDEX: Field = ZERO.above(30);
const SHARD: Field = INDEX.above(8);

/// The random bits of a first generation. They leave the upper half of all generations for the uses
/// of an entry.
#[cfg(not(modelled))]
const DRAWN: Field = Field::low(Generation::BITS - 2);

/// The bits that all ids have set, so that none is zero: the lowest bit of an odd generation.
const ODD: NonZeroU64 = NonZeroU64::new(GENERATION.put(1)).expect("one bit is set");

/// The identity of one timer of one wheel: shard, slab index and generation in 63 bits.
///
/// A wheel never returns the same id twice. An id that is kept after its timer has ended is
/// harmless, because it refers to nothing. It fits the user data of `epoll` and `io_uring`, and
/// `Option<TimerId>` is as small as the id.
///
/// An id is only meaningful to the wheel that returned it. Each wheel numbers its timers from a
/// random start, so an id that is passed to another wheel by mistake usually behaves like the id of
/// a timer that has ended. Each id that is passed to the wrong wheel matches a timer there with a
/// probability of at most one in eight million (2^-23). A program that passes a million of them
/// therefore hits a foreign timer with a probability of up to 11 %. This protects against rare
/// mistakes, not against attacks, because a peer that knows one id of a wheel can guess others.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, TimerId};
///
/// let (wheel, _sweeper) = Builder::new().build::<&str>()?;
/// let id = wheel.insert("hello", Duration::from_secs(5))?;
///
/// let bits: u64 = id.to_bits();
/// assert_eq!(TimerId::from_bits(bits), Some(id));
/// assert_eq!(wheel.cancel(id), Some("hello"));
/// assert_eq!(wheel.cancel(id), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerId(NonZeroU64);

impl TimerId {
    /// The number of shards that ids can address.
    pub(crate) const SHARDS: usize = 1 << 8;

    /// The number of entries of a shard that ids can address.
    pub(crate) const INDICES: u32 = 1 << 30;

    /// Creates the id of the timer at `index` of `shard` whose entry has this `generation`. If that
    /// is the generation of a vacant entry, the id is that of the next timer in it.
    #[inline]
    pub(crate) fn new(shard: ShardNumber, generation: Generation, index: u32) -> Self {
        let bits = GENERATION.put(u64::from(generation.0)) | INDEX.put(u64::from(index));
        Self(shard.0 | bits)
    }

    /// Returns the id as a number, for places that can carry only that.
    #[must_use]
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// Creates the id whose [`to_bits`](Self::to_bits) returned `bits`, or `None` if no id has
    /// these bits.
    ///
    /// An outdated id matches no timer, but an invented one may, because further ids can be guessed
    /// from a single one. Pass only numbers that came from your own [`to_bits`](Self::to_bits),
    /// never ones that a peer has sent. A cancel or reset by a guessed id, while the insert that is
    /// going to return that id is still in progress, may also delay the next timer in the same
    /// entry.
    #[must_use]
    #[inline]
    pub fn from_bits(bits: u64) -> Option<Self> {
        let odd = Generation(GENERATION.get_u32(bits)).is_armed();
        let fits = ZERO.get(bits) == 0 && SHARD.get(bits) == bits >> SHARD.shift();
        NonZeroU64::new(bits).filter(|_| odd && fits).map(Self)
    }

    #[inline]
    pub(crate) fn shard(self) -> usize {
        SHARD.get_u32(self.to_bits()) as usize
    }

    #[inline]
    pub(crate) fn generation(self) -> Generation {
        Generation(GENERATION.get_u32(self.to_bits()))
    }

    #[inline]
    pub(crate) fn index(self) -> u32 {
        INDEX.get_u32(self.to_bits())
    }
}

impl fmt::Debug for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}:{}v{}", self.shard(), self.index(), self.generation().0)
    }
}

impl fmt::Display for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The bits that all ids of a shard have in common: its number, and the lowest bit of an odd
/// generation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardNumber(NonZeroU64);

impl ShardNumber {
    pub(crate) fn new(number: usize) -> Self {
        Self(ODD | SHARD.put(number as u64))
    }

    pub(crate) fn index(self) -> usize {
        SHARD.get_u32(self.0.get()) as usize
    }
}

/// The use count of a slab entry, odd while a timer occupies it and even while it is vacant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Generation(pub(crate) u32);

impl Generation {
    #[cfg(not(modelled))]
    pub(crate) const BITS: u32 = 25;
    /// Small enough for a model to exhaust an entry, which is used six times.
    #[cfg(modelled)]
    pub(crate) const BITS: u32 = 4;

    /// The generation of an entry in memory as the system returned it. It is not the generation of
    /// a timer or of an entry that is ready for one.
    pub(crate) const UNWRITTEN: Generation = Generation(0);

    /// The last vacant generation. An entry that reaches it is never used again.
    pub(crate) const EXHAUSTED: Generation = Generation((1 << Self::BITS) - 2);

    /// Returns a vacant generation to start from, random in the lower half of all generations. Each
    /// entry can then be used at least 2^23 times.
    #[cfg(not(modelled))]
    pub(crate) fn drawn() -> Generation {
        // Each hasher of the standard library has unpredictable keys of its own.
        let random = RandomState::new().build_hasher().finish();
        Generation(2 * (1 + DRAWN.get_u32(random)))
    }

    /// Returns the first generation that could be drawn, so that each run of a model is the same.
    #[cfg(modelled)]
    pub(crate) const fn drawn() -> Generation {
        Generation(2)
    }

    #[inline]
    pub(crate) const fn is_armed(self) -> bool {
        self.0 % 2 == 1
    }

    /// Returns the next generation: armed after vacant, vacant after armed.
    #[inline]
    pub(crate) const fn next(self) -> Generation {
        debug_assert!(self.0 < Self::EXHAUSTED.0);
        Generation(self.0 + 1)
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{Generation, ShardNumber, TimerId};

    #[test]
    fn an_id_keeps_its_parts() {
        let id = TimerId::new(ShardNumber::new(255), Generation((1 << 25) - 1), (1 << 30) - 1);
        assert_eq!((id.shard(), id.index()), (255, (1 << 30) - 1));
        assert_eq!(id.generation(), Generation((1 << 25) - 1));
        assert_eq!(TimerId::from_bits(id.to_bits()), Some(id));
        assert_eq!(
            format!("{:?}", TimerId::new(ShardNumber::new(2), Generation(7), 41)),
            "s2:41v7"
        );
        assert_eq!(size_of::<Option<TimerId>>(), 8);
    }

    #[test]
    fn generations_begin_anywhere_in_the_lower_half() {
        let drawn: Vec<u32> = (0..1000).map(|_| Generation::drawn().0).collect();
        let half = Generation::EXHAUSTED.0 / 2 + 1;
        assert!(drawn.iter().all(|&first| first % 2 == 0 && (2..=half).contains(&first)));
        // Fails by chance once in 2^1000 runs.
        assert!(drawn.iter().any(|&first| first < half / 2));
        assert!(drawn.iter().any(|&first| first > half / 2));
    }

    #[test]
    fn numbers_that_no_wheel_gives_out_are_refused() {
        for bits in [0, 2, 1 << 25, (1 << 25) | 1, 1 << 26, 1 << 63, u64::MAX] {
            assert_eq!(TimerId::from_bits(bits), None);
        }
    }
}
