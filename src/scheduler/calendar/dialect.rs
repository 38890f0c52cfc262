//! [`Dialect`]: how cron expressions are written.

#![forbid(unsafe_code)]

/// How a cron expression is written, and which convention the numbers of its weekdays follow. Names
/// (`MON-FRI`) are the same in both.
///
/// Both know lists, ranges, steps, `?` for a day that is not given, `L` for the last day of a
/// month, `LW` for its last weekday, `15W` for the weekday nearest to the 15th, `FRI#3` for the
/// third Friday and `FRIL` for the last; and, for a whole expression, `@yearly` (or `@annually`),
/// `@monthly`, `@weekly`, `@daily` (or `@midnight`) and `@hourly`.
///
/// * A range may go over the end: `22-2` are the five hours around midnight, `FRI-MON` four days,
///   `NOV-FEB` four months. Years do not begin again.
/// * `5/15` begins at 5 and goes on to the end of the field, of weekdays to Saturday.
/// * A step is at most as large as the largest number of its field: `*/90` is no step of minutes.
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
    /// Five fields (minute, hour, day of the month, month, day of the week) or six, with seconds
    /// first. Weekdays from 0 or 7 for Sunday to 6 for Saturday. If both days are given, either
    /// will do; but both must hold if one is a step from a star, as in Vixie's cron:
    /// `0 0 1-7 * */7` is the first Sunday of a month.
    #[default]
    Unix,
    /// That of Quartz: six fields, with seconds, or seven, with years last, from 1970 to 4999.
    /// Weekdays from 1 for Sunday to 7 for Saturday; `L` alone is a Saturday. `/15` is `*/15`, and
    /// `L-3` is the third day before the last of a month. One of the two days is `?`, and the other
    /// is not.
    Quartz,
}
