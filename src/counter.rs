//! The processor's counter. A thread derives the age of its last clock reading from it.
//!
//! | target | counter | rate |
//! |---|---|---|
//! | Linux on x86-64 | time-stamp counter | not reported; 0.4 GHz or more is assumed |
//! | Linux on 64-bit Arm | virtual count of the generic timer | as reported by `CNTFRQ_EL0` |
//!
//! Both run at a constant rate, and in the same way on all cores, wherever the kernel computes its
//! own monotonic clock from them. Both are read without a barrier, so a reading may be taken some
//! hundred instructions early or late, which is far less than a microsecond. Other targets have no
//! counter, and its rate is zero.
//!
//! Some Arm processors (Freescale's LS1043A and LS2080A, HiSilicon's Hip05 to Hip07, Allwinner's
//! A64) sometimes return a wrong count. The kernel corrects it, but this module does not. A wheel
//! on them needs a [`MonotonicClock`](crate::MonotonicClock).

use once_cell::race::OnceBool;

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
mod of_target {
    pub(super) const CLOCK_SOURCE: Option<&str> = Some("tsc");

    pub(super) fn rate() -> u64 {
        400_000_000
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: reads a register that every x86-64 processor has.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
}

#[cfg(all(target_os = "linux", target_arch = "aarch64", not(miri)))]
mod of_target {
    use core::arch::asm;

    pub(super) const CLOCK_SOURCE: Option<&str> = Some("arch_sys_counter");

    pub(super) fn rate() -> u64 {
        let rate: u64;
        // SAFETY: reads a register that Linux opens to every program, as its vDSO needs it.
        unsafe {
            asm!("mrs {}, cntfrq_el0", out(reg) rate, options(nomem, nostack, preserves_flags));
        }
        rate & u64::from(u32::MAX)
    }

    #[inline]
    pub(super) fn read() -> u64 {
        let count: u64;
        // SAFETY: as in `rate`.
        unsafe {
            asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags));
        }
        count
    }
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
)))]
mod of_target {
    pub(super) const CLOCK_SOURCE: Option<&str> = None;

    pub(super) fn rate() -> u64 {
        0
    }

    #[inline]
    pub(super) fn read() -> u64 {
        0
    }
}

/// Returns the minimum number of cycles per second. Zero if there is no counter.
pub(crate) fn rate() -> u64 {
    of_target::rate()
}

/// Returns the present count.
#[inline]
pub(crate) fn read() -> u64 {
    of_target::read()
}

/// Returns `true` if the kernel computes its monotonic clock from this counter.
pub(crate) fn is_the_clocks() -> bool {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    // No thread waits for another that computes the answer, because a fork may leave such a thread
    // behind.
    static ANSWER: OnceBool = OnceBool::new();
    of_target::CLOCK_SOURCE.is_some_and(|counter| {
        let is_counter =
            || std::fs::read_to_string(SOURCE).is_ok_and(|name| name.trim() == counter);
        ANSWER.get_or_init(is_counter)
    })
}
