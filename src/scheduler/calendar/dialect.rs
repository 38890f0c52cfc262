//! [`Dialect`]: the notation of cron expressions.

#![forbid(unsafe_code)]

/// The notation of a cron expression, including how weekdays are numbered. Names (`MON-FRI`) are
/// the same in both dialects.
///
/// Both dialects support lists, ranges, steps, `?` for a day that is not given, `L` for the last
/// day of a month, `LW` for its last weekday, `15W` for the weekday nearest to the 15th, `FRI#3`
/// for the third Friday and `FRIL` for the last. A whole expression may be `@yearly` (or
/// `@annually`), `@monthly`, `@weekly`, `@daily` (or `@midnight`) or `@hourly`.
///
/// * A range may wrap around. `22-2` means the five hours around midnight, `FRI-MON` four days, and
///   `NOV-FEB` four months. Ranges of years do not wrap.
/// * `5/15` begins at 5 and continues to the end of the field. For weekdays in the dialect of Unix,
///   programs differ about the end. A step that includes the last Sunday for some of them, such as
///   `1/3`, is therefore refused. Write a range such as `1-6/3`.
/// * `*/2` for weekdays begins with Sunday, as in Vixie's cron. In Spring it begins with Monday.
/// * A step may not exceed the largest number of its field. `*/90` is not a valid step of minutes.
///
/// # Examples
///
/// ```
/// use tourbillon::scheduler::{Calendar, Dialect};
///
/// let unix = Calendar::builder("15 10 * * 1-5").build()?;
/// let quartz = Calendar::builder("0 15 10 ? * 2-6").dialect(Dialect::Quartz).build()?;
/// let now = std::time::SystemTime::now();
/// assert_eq!(unix.next_after(now), quartz.next_after(now)); // Monday to Friday
/// # Ok::<(), tourbillon::scheduler::CalendarError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// Five fields (minute, hour, day of the month, month, day of the week), or six with seconds
    /// first, which a `*` for the year may follow. Weekdays count from 0 or 7 for Sunday to 6 for
    /// Saturday. If both days are given, a time needs to match only one of them, unless one is a
    /// step from a star. Then it must match both, as in Vixie's cron: `0 0 1-7 * */7` is the first
    /// Sunday of a month.
    #[default]
    Unix,
    /// The dialect of Quartz, with six fields including seconds, or seven with years from 1970 to
    /// 4999 last. Weekdays count from 1 for Sunday to 7 for Saturday, and `L` alone is a Saturday.
    /// `/15` is the same as `*/15`, and `L-3` is the third day before the last of a month. Exactly
    /// one of the two days must be `?`.
    Quartz,
}
