//! The rules of time zones, in processes whose system database is a folder of the test.

use crate::common::desk::{Desk, counting};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};
use std::{env, fs, process};
use tourbillon::scheduler::{Calendar, CalendarError};

const HOUR: Duration = Duration::from_secs(3600);
const ZONE: &str = "Test/Zone";

/// The variable that tells a process that it runs a test again, and the folder.
const FOLDER: &str = "TOURBILLON_TEST_ZONES";

/// Runs the test of this name again, in a process that reads its time zones from a folder. `test`
/// runs there, with the folder, whose [`ZONE`] is an hour ahead of UTC.
fn with_database(name: &str, test: impl FnOnce(&Path)) {
    if let Some(folder) = env::var_os(FOLDER) {
        test(folder.as_ref());
        return fs::write(Path::new(&folder).join("held"), "").unwrap();
    }
    let folder = env::temp_dir().join(format!("tourbillon-{}-{name}", process::id()));
    fs::create_dir_all(folder.join("Test")).unwrap();
    write_zone(&folder, 1);
    let mut again = Command::new(env::current_exe().unwrap());
    let again = again.args(["--exact", &format!("zones::{name}")]);
    let status = again.env(FOLDER, &folder).env("TZDIR", &folder).status().unwrap();
    let held = folder.join("held").exists();
    fs::remove_dir_all(&folder).unwrap();
    assert!(status.success() && held, "the process has run the test");
}

/// Writes the zone, in the format of RFC 9636, with this many hours ahead of UTC at all times.
fn write_zone(folder: &Path, hours: u8) {
    let mut part = b"TZif2".to_vec();
    part.extend([0; 15]);
    for count in [0_u32, 0, 0, 0, 1, 4] {
        part.extend(count.to_be_bytes());
    }
    part.extend((u32::from(hours) * 3600).to_be_bytes());
    part.extend([0, 0]);
    part.extend(format!("+0{hours}\0").bytes());
    let mut file = part.repeat(2);
    file.extend(format!("\n<+0{hours}>-{hours}\n").bytes());
    fs::write(folder.join(ZONE), file).unwrap();
    // A program waits some minutes instead.
    jiff::tz::db().reset();
}

/// A government changes a zone, and the package of the database is updated.
#[test]
fn an_update_of_the_database_takes_effect_in_a_running_scheduler() {
    with_database("an_update_of_the_database_takes_effect_in_a_running_scheduler", |folder| {
        let mut desk = Desk::new();
        let noon = Calendar::builder("0 12 * * *").zone(ZONE).wall_clock(desk.clock.clone());
        let noon = noon.build().unwrap();
        let scheduled = desk.scheduler.by(noon.clone()).run(counting().1).unwrap();
        let day = SystemTime::UNIX_EPOCH + HOUR * 24;
        let mut expect = |hours| {
            desk.advance(Duration::from_secs(60));
            let next = scheduled.next_time().unwrap();
            assert_eq!((next, noon.next_after(day)), (day - HOUR * 24 + hours, Some(day + hours)));
        };
        expect(HOUR * 11);
        write_zone(folder, 2);
        expect(HOUR * 10);
        fs::remove_file(folder.join(ZONE)).unwrap();
        jiff::tz::db().reset();
        let mut still = || {
            desk.advance(Duration::from_secs(60));
            scheduled.next_time().unwrap()
        };
        assert_eq!(still(), SystemTime::UNIX_EPOCH + HOUR * 10, "while the update is in progress");
        let gone = Calendar::new("0 12 * * *", ZONE).unwrap_err();
        assert_eq!(gone, CalendarError::Zone(ZONE.into()));
    });
}

#[test]
#[cfg(feature = "tzdb")]
fn the_database_of_the_program_has_the_zones_that_the_system_lacks() {
    with_database("the_database_of_the_program_has_the_zones_that_the_system_lacks", |_| {
        let noon = |zone| Calendar::new("0 12 * * *", zone).unwrap();
        let next = |zone| noon(zone).next_after(SystemTime::UNIX_EPOCH);
        assert_eq!(next("US/Pacific"), Some(SystemTime::UNIX_EPOCH + HOUR * 20));
        assert_eq!(next(ZONE), Some(SystemTime::UNIX_EPOCH + HOUR * 11), "of the system");
    });
}

#[test]
fn an_offset_is_at_most_18_hours() {
    let noon = |zone: &str| {
        Calendar::new("0 12 * * *", zone)
            .map(|noon| noon.next_after(SystemTime::UNIX_EPOCH + HOUR * 48).unwrap())
    };
    assert_eq!(noon("+18:00"), Ok(SystemTime::UNIX_EPOCH + HOUR * (48 + 18)));
    assert_eq!(noon("-18:00"), Ok(SystemTime::UNIX_EPOCH + HOUR * (48 + 6)));
    for refused in ["+18:00:01", "-18:01", "+25:00", "-25:59:59"] {
        assert_eq!(noon(refused), Err(CalendarError::Zone(refused.into())));
    }
}
