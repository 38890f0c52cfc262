//! Simulated fleets: their cost at rest, and the effects of joins, leaves, deaths and herds.
//!
//! ```text
//!  scenario ──► measured ──► tables ◄── law
//!                  │
//!               server ──► usage ◄── commands, batch
//!               network ──► processor
//! ```
//!
//! A server counts the commands that Redis would execute, and their processor time. Requests wait
//! while the processor is busy. `ci/measure fleets` prints the tables.

pub(crate) mod batch;
pub(crate) mod commands;
mod herd;
mod law;
mod measured;
pub(crate) mod processor;
mod scenario;
mod tables;
pub(crate) mod usage;

use self::measured::Figures;
use self::scenario::{Scenario, Size, Story};
use super::world::{MILLISECOND, Nanos, SECOND};

/// The usual distance between a process and the server.
const NEAR: Nanos = MILLISECOND / 2;

/// The distance between the workers and the server of `ci/measure fleet-scale --latency 20`, at
/// which a change takes much longer than a look at the owners. A round trip takes 42.7 ms.
const FAR: Nanos = 211 * MILLISECOND / 10;

/// A fleet that is simulated within seconds.
const FORTY: Size = Size { workers: 40, partitions: 64 };

fn simulated(story: Story) -> Figures {
    let figures = Scenario::of(FORTY, story, 20, NEAR).measure();
    assert_eq!(figures.violation, None);
    figures
}

#[test]
fn a_deploy_leaves_no_partition_without_an_owner() {
    let figures = simulated(Story::Deploy { workers: FORTY.workers, at_once: 4 });
    let (commands, law) = (tables::commands_at_rest(&figures), law::commands_at_rest(FORTY));
    assert!((commands / law - 1.0).abs() < 0.05, "{commands} commands per second, not {law}");
    let step = &figures.steps[0];
    assert!(step.after.is_some_and(|after| after < SECOND / 10), "{:?}", step.after);
    assert!(step.longest_orphan < SECOND / 20, "{} ns", step.longest_orphan);
    assert!(figures.late_by(1000) < 100, "a lease is {} ms late", figures.late_by(1000));
}

#[test]
fn a_fleet_shares_the_partitions_of_a_zone_within_six_seconds() {
    let figures = simulated(Story::Zone);
    let step = &figures.steps[0];
    assert!(step.after.is_some_and(|after| after < 6 * SECOND), "{:?}", step.after);
    assert!(step.longest_orphan > 3 * SECOND, "a third of the workers has died");
    assert!(figures.late_by(1000) < 6000, "a lease is {} ms late", figures.late_by(1000));
}

/// Prints the tables of `docs/BENCHMARKS.md`, or the table that `FLEETS` names, for the numbers of
/// workers in `FLEETS_WORKERS`.
#[test]
#[ignore = "it prints tables, for `ci/measure fleets`"]
#[allow(clippy::print_stdout, reason = "the tables are the output")]
fn tables_of_fleets() {
    let asked = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let workers = asked("FLEETS_WORKERS").unwrap_or("10,100,1000".to_owned());
    let workers: Vec<usize> =
        workers.split(',').map(|number| number.parse().expect("a number of workers")).collect();
    let partitions = [16, 256, 1024].into_iter();
    let sizes = partitions.flat_map(|partitions| {
        workers.iter().map(move |workers| Size { workers: *workers, partitions })
    });
    let sizes: Vec<Size> = sizes.collect();
    let tables: [(&str, Box<dyn Iterator<Item = String> + '_>); 6] = [
        ("small", Box::new(tables::small(FAR))),
        ("rest", Box::new(tables::at_rest(&sizes, NEAR))),
        ("changes", Box::new(tables::changes(&sizes, NEAR))),
        ("orphans", Box::new(tables::orphans(&sizes, NEAR))),
        ("uneven", Box::new(tables::uneven(&sizes, NEAR))),
        ("herd", Box::new(tables::herds(NEAR))),
    ];
    let name = asked("FLEETS");
    for (table, rows) in tables {
        if name.as_deref().is_none_or(|name| name == table) {
            rows.for_each(|row| println!("{row}"));
        }
    }
}
