//! [`Verdict`], the outcome of each timer, derived from the requests, the logs of the workers, and
//! the final contents of the store.
//!
//! A delivery is an id and a planned time. It has *ended* if a worker was notified of its
//! acknowledgement, or it is a dead letter. It has also ended if a handler returned `Ok`, its
//! worker was killed before it could log the outcome, and the timer is no longer in the store.

use crate::log::{Entry, What, millis, timer};
use crate::plan::{Clocks, Kind};
use crate::story::{Cancelled, Fate, Story};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use tourbillon_durable::DeadLetter;

/// The number of offenders of each sort that are printed.
const TOLD: usize = 10;

/// The content of the store at the end of a run.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) timers: HashSet<usize>,
    pub(crate) letters: Vec<DeadLetter>,
}

/// What was true of all timers during a run.
#[derive(Debug)]
pub(crate) struct Conditions {
    pub(crate) clocks: Clocks,
    /// The times at which the store was paused.
    pub(crate) paused: Vec<(u64, u64)>,
}

/// The observations of one delivery.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The start of each attempt.
    begun: Vec<u64>,
    /// A handler returned `Ok`, and its outcome was not logged.
    untold: bool,
    acknowledged: u64,
    /// It ended because it had been cancelled.
    cancelled: bool,
    letters: u64,
}

/// The counts, as they are written.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Verdict {
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) timers: usize,
    pub(crate) acknowledged: usize,
    pub(crate) cancelled: usize,
    pub(crate) dead_lettered: usize,
    /// Neither of these, or still in the store.
    pub(crate) lost: usize,
    /// An attempt began before its time.
    pub(crate) early: usize,
    /// A delivery ended more than once.
    pub(crate) acknowledged_twice: usize,
    /// A delivery that was cancelled, moved or replaced continued, one was never planned, or one
    /// began although it or the store was paused.
    pub(crate) stale: usize,
    pub(crate) attempts: usize,
    /// Attempts that asked for another and were not counted.
    pub(crate) snoozes: usize,
    /// Acknowledgements whose worker was killed before it could log them.
    pub(crate) untold: usize,
    /// Results of handlers that did not count.
    pub(crate) too_late: usize,
    /// Calls that may or may not have been executed.
    pub(crate) unanswered: u64,
    /// Workers that ended by themselves.
    pub(crate) workers_failed: usize,
    pub(crate) faults: BTreeMap<Kind, usize>,
    #[serde(skip)]
    offenders: BTreeMap<&'static str, Vec<String>>,
}

impl Verdict {
    pub(crate) fn new(
        stories: &[Story],
        logs: &[Vec<Entry>],
        left: &Left,
        run: &Conditions,
    ) -> Self {
        let mut verdict = Self { timers: stories.len(), ..Self::default() };
        let mut seen = seen(stories.len(), logs, left);
        let count = |what| logs.iter().flatten().filter(|entry| entry.what == what).count();
        (verdict.attempts, verdict.too_late) = (count(What::Begun), count(What::TooLate));
        verdict.snoozes = count(What::Snoozed);
        for (timer, (story, seen)) in stories.iter().zip(&mut seen).enumerate() {
            verdict.unanswered += story.unanswered;
            verdict.judge(timer, story, seen, left.timers.contains(&timer), run);
        }
        verdict
    }

    /// Returns `true` if no guarantee was broken.
    pub(crate) fn holds(&self) -> bool {
        let ends = self.acknowledged + self.cancelled + self.dead_lettered;
        ends == self.timers && self.offenders.is_empty() && self.workers_failed == 0
    }

    fn judge(
        &mut self,
        timer: usize,
        story: &Story,
        seen: &mut HashMap<u64, Seen>,
        left: bool,
        run: &Conditions,
    ) {
        let all = format!("{seen:?}");
        let (mut ended, mut last_is_letter, mut lost) = (false, false, left);
        let (mut early, mut twice, mut stale) = (false, false, false);
        let (ahead, slack) = (run.clocks.ahead(), run.clocks.slack());
        let paused = story.paused.map(|(since, until)| (since + slack, until));
        for (planned, fate) in &story.deliveries {
            let one = seen.remove(planned).unwrap_or_default();
            early |= one.begun.iter().any(|at| at + ahead < *planned);
            stale |= one.begun.iter().any(|at| {
                let is_within = |(since, until): &(u64, u64)| (since..until).contains(&at);
                run.paused.iter().chain(&paused).any(is_within)
            });
            twice |= one.acknowledged + one.letters > 1;
            let ends = one.acknowledged + one.letters > 0 || one.untold;
            match fate {
                Fate::Due => (lost, stale) = (lost || !ends, stale || one.cancelled),
                Fate::Perhaps => {}
                Fate::Last => stale |= one.letters > 0,
                Fate::Gone(since) => {
                    let begun = one.begun.iter().any(|at| *at > since + slack);
                    stale |= one.acknowledged > 0 || begun;
                }
                Fate::Replaced => stale |= one.acknowledged > 0,
            }
            if ends && matches!(fate, Fate::Due | Fate::Perhaps | Fate::Last) {
                self.untold += usize::from(one.acknowledged + one.letters == 0);
                (ended, last_is_letter) = (true, one.letters > 0);
            }
        }
        // Deliveries that were not planned.
        stale |= !seen.is_empty();
        lost |= !ended && story.cancelled == Cancelled::No;
        for (so, what, count) in [
            (lost, "lost", &mut self.lost),
            (early, "early", &mut self.early),
            (twice, "acknowledged twice", &mut self.acknowledged_twice),
            (stale, "stale", &mut self.stale),
        ] {
            if so {
                *count += 1;
                let told = self.offenders.entry(what).or_default();
                told.push(format!("timer {timer}: {story:?}; {all}"));
            }
        }
        match () {
            () if lost => {}
            () if !ended || story.cancelled == Cancelled::Yes => self.cancelled += 1,
            () if last_is_letter => self.dead_lettered += 1,
            () => self.acknowledged += 1,
        }
    }
}

/// Returns the observations of each timer's deliveries, by their planned times.
fn seen(timers: usize, logs: &[Vec<Entry>], left: &Left) -> Vec<HashMap<u64, Seen>> {
    let mut all = vec![HashMap::<u64, Seen>::new(); timers];
    for log in logs {
        let mut answered = HashSet::new();
        for Entry { what, timer, planned, at } in log {
            let Some(of_timer) = all.get_mut(*timer) else { continue };
            let seen = of_timer.entry(*planned).or_default();
            match what {
                What::Begun => {
                    seen.begun.push(*at);
                    continue;
                }
                What::Well => {
                    answered.insert((*timer, *planned));
                    continue;
                }
                What::Acknowledged => seen.acknowledged += 1,
                What::Cancelled => seen.cancelled = true,
                What::Dead | What::Retried | What::Snoozed | What::TooLate => {}
            }
            answered.remove(&(*timer, *planned));
        }
        for (timer, planned) in answered {
            all[timer].entry(planned).or_default().untold = true;
        }
    }
    for letter in &left.letters {
        let of_timer = timer(&letter.id).and_then(|timer| all.get_mut(timer));
        if let Some(of_timer) = of_timer {
            of_timer.entry(millis(letter.planned)).or_default().letters += 1;
        }
    }
    all
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, told) in &self.offenders {
            for offender in told.iter().take(TOLD) {
                writeln!(f, "{what}: {offender}")?;
            }
        }
        let counts = [
            ("timers", self.timers),
            ("acknowledged", self.acknowledged),
            ("cancelled", self.cancelled),
            ("dead-lettered", self.dead_lettered),
            ("lost", self.lost),
            ("early", self.early),
            ("acknowledged twice", self.acknowledged_twice),
            ("stale", self.stale),
            ("attempts", self.attempts),
            ("snoozes", self.snoozes),
            ("acknowledged untold", self.untold),
            ("answers too late", self.too_late),
            ("calls not answered", usize::try_from(self.unanswered).unwrap_or(usize::MAX)),
            ("workers that failed", self.workers_failed),
        ];
        for (what, count) in counts {
            writeln!(f, "{what:20} {count:8}")?;
        }
        for (kind, count) in &self.faults {
            writeln!(f, "{:20} {count:8}", format!("{kind:?}"))?;
        }
        writeln!(f, "seed {}, {} seconds", self.seed, self.seconds)
    }
}
