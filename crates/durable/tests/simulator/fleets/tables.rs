//! The tables of fleets, in Markdown, row by row.

use super::herd::Herd;
use super::law;
use super::measured::{Figures, Shared};
use super::scenario::{REST, Scenario, Size, Story};
use crate::simulator::timers::handlers;
use crate::simulator::world::{MILLISECOND, Nanos, SECOND};
use std::iter::once;

/// The number of joins, leaves and deaths in a small fleet.
const OFTEN: u64 = 20;

/// The process that inserts timers pings its subscription once a second.
const CALLERS: f64 = 1.0;

/// The timers that are due each second while workers join, leave and die.
const RATE: u64 = 20;

/// The timers of each worker that are due each second while one of them is slow.
const RATE_OF_WORKER: u64 = 4;

/// The largest fleet with a row for slow workers.
const MOST: usize = 100;

/// The times with a column, in milliseconds after a third of the workers has died.
const AFTER: [Nanos; 7] = [0, 4000, 4500, 5000, 5500, 6000, 6500];

/// Returns the commands per second at rest.
pub(super) fn commands_at_rest(figures: &Figures) -> f64 {
    per_second(figures.rest.commands) - CALLERS
}

fn per_second(count: u64) -> f64 {
    count as f64 * SECOND as f64 / (REST.end - REST.start) as f64
}

fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / SECOND as f64
}

/// Returns the mean of a time until partitions are shared, in milliseconds.
fn mean(figures: &Figures, time: impl Fn(&Shared, Nanos) -> Nanos) -> f64 {
    let all = figures.steps.iter().filter_map(|step| Some(time(step, step.after?)));
    let all: Vec<f64> = all.map(|time| time as f64 / MILLISECOND as f64).collect();
    all.iter().sum::<f64>() / all.len() as f64
}

/// Returns the head of a table, whose columns are numbers.
fn head(columns: &[&str]) -> String {
    let align: String = columns.iter().map(|_| "---:|").collect();
    format!("\n| {} |\n|{align}", columns.join(" | "))
}

/// Returns the table of small fleets, to be compared with fleets on a real server at this distance.
pub(super) fn small(distance: Nanos) -> impl Iterator<Item = String> {
    let columns = [
        "partitions",
        "workers",
        "commands per second at rest",
        "law",
        "join, ms",
        "leave, ms",
        "death, ms",
        "law",
    ];
    let sizes = [16, 256].into_iter().flat_map(|partitions| {
        [1, 2, 4, 8].into_iter().map(move |workers| Size { workers, partitions })
    });
    let row = move |size: Size| {
        let measure = |story| Scenario::of(size, story, 0, distance).measure();
        let [joins, leaves, deaths] =
            [Story::Joins(OFTEN), Story::Leaves(OFTEN), Story::Deaths(OFTEN)].map(measure);
        format!(
            "| {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} |",
            size.partitions,
            size.workers,
            commands_at_rest(&joins),
            law::commands_at_rest(size),
            mean(&joins, |_, after| after),
            mean(&leaves, |_, after| after),
            mean(&deaths, |step, after| after + step.since_heartbeat),
            law::millis_after_death(size),
        )
    };
    once(head(&columns)).chain(sizes.map(row))
}

/// Returns the table of fleets at rest.
pub(super) fn at_rest(sizes: &[Size], distance: Nanos) -> impl Iterator<Item = String> {
    let columns = [
        "partitions",
        "workers",
        "requests per second",
        "heartbeats",
        "commands",
        "law",
        "cores of the server",
    ];
    let row = move |size: &Size| {
        let figures = Scenario::of(*size, Story::Rest, 0, distance).measure();
        format!(
            "| {} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.3} |",
            size.partitions,
            size.workers,
            per_second(figures.rest.requests) - CALLERS,
            per_second(figures.heartbeats),
            commands_at_rest(&figures),
            law::commands_at_rest(*size),
            per_second(figures.rest.time) / SECOND as f64,
        )
    };
    once(head(&columns)).chain(sizes.iter().map(row))
}

/// Returns the changes of a fleet that have a row.
fn stories(size: Size) -> Vec<(&'static str, Story)> {
    let workers = size.workers;
    let mut stories = vec![
        ("one joins", Story::Joins(1)),
        ("one leaves", Story::Leaves(1)),
        ("one dies", Story::Deaths(1)),
        ("ten restart, one at a time", Story::Deploy { workers: 10, at_once: 1 }),
    ];
    if workers > 10 {
        let deploy = Story::Deploy { workers, at_once: workers / 10 };
        stories.push(("all restart, a tenth at a time", deploy));
    }
    stories.push(("a third dies", Story::Zone));
    stories.push(("all start in a second", Story::Start));
    stories
}

/// Returns the table of changes.
pub(super) fn changes(sizes: &[Size], distance: Nanos) -> impl Iterator<Item = String> {
    let columns = [
        "partitions",
        "workers",
        "change",
        "shared again after, s",
        "longest without an owner, s",
        "most without an owner",
        "heartbeats that read the lists",
        "core seconds for them",
        "most waiting requests",
        "lateness p50, ms",
        "p99",
        "max",
    ];
    let all = sizes
        .iter()
        .flat_map(|size| stories(*size).into_iter().map(|(name, story)| (*size, name, story)));
    let row = move |(size, name, story)| {
        let figures = Scenario::of(size, story, RATE, distance).measure();
        change(size, name, &figures)
    };
    once(head(&columns)).chain(all.map(row))
}

fn change(size: Size, name: &str, figures: &Figures) -> String {
    let Some(step) = figures.steps.first() else { return String::new() };
    let after = step.after.map_or("never".to_owned(), |after| format!("{:.2}", seconds(after)));
    let most = step.orphans.iter().map(|(_, share)| *share).fold(0.0, f64::max);
    format!(
        "| {} | {} | {name} | {after} | {:.2} | {:.0} % | {} | {:.2} | {} | {}",
        size.partitions,
        size.workers,
        seconds(step.longest_orphan),
        most * 100.0,
        step.assignments.requests,
        seconds(step.assignments.time),
        step.most_waiting,
        lateness(figures),
    )
}

/// Returns the columns for the lateness of leases, and the first promise that was not kept.
fn lateness(figures: &Figures) -> String {
    let [middle, most, all] = [500, 990, 1000].map(|share| figures.late_by(share));
    format!("{middle} | {most} | {all} |{}", violation(figures))
}

fn violation(figures: &Figures) -> String {
    figures.violation.iter().map(|violation| format!(" {violation}")).collect()
}

/// Returns the table of the partitions without an owner after a third of the workers has died.
pub(super) fn orphans(sizes: &[Size], distance: Nanos) -> impl Iterator<Item = String> {
    let times = AFTER.map(|millis| format!("{} s", millis as f64 / 1000.0));
    let columns: Vec<&str> =
        ["partitions", "workers"].into_iter().chain(times.iter().map(String::as_str)).collect();
    let row = move |size: &Size| {
        let figures = Scenario::of(*size, Story::Zone, 0, distance).measure();
        let mut row = format!("| {} | {} |", size.partitions, size.workers);
        for time in AFTER {
            let series = figures.steps.iter().flat_map(|step| &step.orphans);
            let mut until = series.take_while(|(at, _)| *at <= time * MILLISECOND + MILLISECOND);
            let share = until.by_ref().last().map_or(0.0, |(_, share)| *share);
            row += &format!(" {:.0} % |", share * 100.0);
        }
        row
    };
    once(head(&columns)).chain(sizes.iter().map(row))
}

/// Returns the table of slow workers and hot partitions.
pub(super) fn uneven(sizes: &[Size], distance: Nanos) -> impl Iterator<Item = String> {
    let columns = ["partitions", "workers", "", "lateness p50, ms", "p99", "max"];
    let stories = [
        ("nothing", Story::Rest),
        ("half of the timers are in one partition", Story::Hot),
        ("the messages of one worker take 0.3 s longer", Story::SlowNetwork(3 * SECOND / 10)),
        ("the handlers of one worker take 1 s longer", Story::SlowHandlers(SECOND)),
        ("the handlers of one worker take 10 s longer", Story::SlowHandlers(10 * SECOND)),
    ];
    let few = sizes.iter().filter(|size| size.workers <= MOST);
    let all = few.flat_map(move |size| stories.map(|(name, story)| (*size, name, story)));
    let row = move |(size, name, story): (Size, &str, Story)| {
        let rate = RATE_OF_WORKER * size.workers as u64;
        let figures = Scenario::of(size, story, rate, distance).measure();
        format!("| {} | {} | {name} | {}", size.partitions, size.workers, lateness(&figures))
    };
    once(head(&columns)).chain(all.map(row))
}

/// Returns the table of herds.
pub(super) fn herds(distance: Nanos) -> impl Iterator<Item = String> {
    let columns = [
        "workers",
        "handlers of each",
        "timers",
        "due within, s",
        "late by at most, s",
        "law",
        "others late by at most, s",
    ];
    let herd = |workers, concurrency, spread| Herd {
        size: Size { workers, partitions: 64 },
        concurrency,
        timers: 100_000,
        spread,
    };
    let herds = [
        herd(8, 64, SECOND),
        herd(16, 64, SECOND),
        herd(8, 512, SECOND),
        herd(8, 64, 10 * SECOND),
        herd(8, 64, 60 * SECOND),
    ];
    let row = move |herd: Herd| {
        let figures = herd.measure(distance);
        let is_of_herd = |handler| handler == Some(handlers::LIKE_A_WEBHOOK);
        let seconds = |millis| millis as f64 / 1000.0;
        format!(
            "| {} | {} | {} | {:.0} | {:.2} | {:.2} | {:.2} |{}",
            herd.size.workers,
            herd.concurrency,
            herd.timers,
            herd.spread as f64 / SECOND as f64,
            seconds(figures.late_of(is_of_herd, 1000)),
            law::lateness_of_herd(&herd).as_secs_f64(),
            seconds(figures.late_of(|handler| !is_of_herd(handler), 1000)),
            violation(&figures),
        )
    };
    once(head(&columns)).chain(herds.into_iter().map(row))
}
