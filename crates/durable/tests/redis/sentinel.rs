//! A store whose master is named by sentinels, and fails.

#![allow(clippy::disallowed_methods, reason = "servers and workers are waited for")]

use crate::common::bench::{SECOND, wait};
use crate::common::process::{Process, all_are_acknowledged_once, ids, quick, runtime};
use crate::common::sentinels::Watched;
use std::time::Duration;
use tourbillon_durable::{DurableError, Inserted, Redis};

fn connect(watched: &Watched, master: &str) -> Result<Process, DurableError> {
    let runtime = runtime();
    let urls = watched.urls();
    let sentinels = urls.iter().map(String::as_str);
    let store = runtime.block_on(Redis::connect_sentinel(master, sentinels, "timers"))?;
    Ok(Process::of(store, runtime))
}

#[test]
fn the_timers_of_a_master_that_is_killed_go_on_each_once() {
    let Some(watched) = Watched::start() else { return };
    let process = connect(&watched, "redis://mymaster/").unwrap();
    let work = process.work();
    let all = ids(200);
    for (place, id) in all.iter().enumerate() {
        // Some fall due while there is no master.
        let delay = SECOND + Duration::from_millis(20 * place as u64);
        wait(process.timers.insert(id, "", delay, quick())).unwrap();
    }
    watched.wait_until_copied();
    watched.master.kill();
    watched.wait_until_taken_over();
    // Calls find the new master as well.
    let later = process.timers.insert("later", "", SECOND, quick());
    assert_eq!(wait(later), Ok(Inserted::New));
    let all = all.into_iter().chain(["later".to_owned()]).collect();
    all_are_acknowledged_once(&process.timers, vec![work], all);
    let there = watched.replica.figure("keyspace", "db0");
    assert!(there.is_some(), "the store is on the new master");
}

#[test]
fn a_master_that_becomes_a_replica_is_left_for_the_new_one() {
    let Some(watched) = Watched::start() else { return };
    let process = connect(&watched, "redis://mymaster/").unwrap();
    let work = process.work();
    wait(process.timers.insert("before", "", SECOND / 5, quick())).unwrap();
    assert_eq!(work.next(), "before");
    watched.fail_over();
    // The old master lives, and refuses.
    wait(process.timers.insert("after", "", SECOND / 5, quick())).unwrap();
    assert_eq!(work.next(), "after");
    assert_eq!(work.stop(), [""; 0]);
}

#[test]
fn a_name_that_the_sentinels_do_not_know_is_told() {
    let Some(watched) = Watched::start() else { return };
    let unknown = connect(&watched, "redis://another/").err().unwrap();
    assert!(
        matches!(&unknown, DurableError::Unreachable(why) if why.contains("another")),
        "{unknown:?}"
    );
}
