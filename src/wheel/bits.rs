//! Bit fields of packed words. All shifts and masks of packed words are in this file.
//!
//! Each packed word of the wheel declares its [`Field`]s as constants, lowest first, each
//! [`above`](Field::above) the one before. Overlaps and overflows are then compile errors.

#![forbid(unsafe_code)]

/// A range of bits in a `u64`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    shift: u32,
    bits: u32,
}

impl Field {
    /// Returns the field of the lowest `bits` bits of the word.
    #[inline]
    pub(crate) const fn low(bits: u32) -> Self {
        assert!(bits > 0 && bits < 64);
        Self { shift: 0, bits }
    }

    /// Returns the field of the `bits` bits directly above this one.
    #[inline]
    pub(crate) const fn above(self, bits: u32) -> Self {
        let shift = self.shift + self.bits;
        assert!(bits > 0 && shift + bits <= 64);
        Self { shift, bits }
    }

    /// Returns the number of bits below the field.
    #[inline]
    pub(crate) const fn shift(self) -> u32 {
        self.shift
    }

    /// Returns the greatest value the field can hold.
    #[inline]
    pub(crate) const fn max(self) -> u64 {
        (1 << self.bits) - 1
    }

    /// Returns the field's value in `word`.
    #[inline]
    pub(crate) const fn get(self, word: u64) -> u64 {
        (word >> self.shift) & self.max()
    }

    /// Returns the field's value in `word`, for fields of at most 32 bits.
    #[allow(clippy::cast_possible_truncation, reason = "asserted: the field has at most 32 bits")]
    #[inline]
    pub(crate) const fn get_u32(self, word: u64) -> u32 {
        assert!(self.bits <= 32);
        self.get(word) as u32
    }

    /// Returns a word with `value` in the field and all other bits zero.
    #[inline]
    pub(crate) const fn put(self, value: u64) -> u64 {
        debug_assert!(value <= self.max());
        (value & self.max()) << self.shift
    }
}

/// Returns the chunk and the offset of an element, in chunks of doubling size of which the first
/// has `2^first_bits` elements.
#[inline]
pub(crate) const fn in_chunks(index: u32, first_bits: u32) -> (usize, usize) {
    let number = index + (1 << first_bits);
    let bits = number.ilog2();
    // As wide as `usize`, because the offset is a part of an address.
    (bits as usize - first_bits as usize, (number ^ (1 << bits)) as usize)
}

/// Returns `value` as an index into memory. Every index in use is known to fit.
#[allow(clippy::cast_possible_truncation, reason = "callers index existing memory")]
#[inline]
pub(crate) const fn to_index(value: u64) -> usize {
    value as usize
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::Field;

    const LOW: Field = Field::low(38);
    const FLAG: Field = LOW.above(1);
    const HIGH: Field = FLAG.above(25);

    #[test]
    fn fields_do_not_disturb_each_other() {
        let word = LOW.put(LOW.max()) | HIGH.put(7);
        assert_eq!(LOW.get(word), LOW.max());
        assert_eq!(FLAG.get(word), 0);
        assert_eq!(HIGH.get_u32(word), 7);
        assert_eq!(LOW.put(LOW.max()) | FLAG.put(1) | HIGH.put(HIGH.max()), u64::MAX);
    }
}
