//! [`Verdict`], the outcome of each timer, derived from the requests, the logs of the workers, and
//! the final contents of the store.
//!
//! A delivery is an id and a planned time. It has *ended* if a worker was notified of its
//! acknowledgement, or it is a dead letter. It has also ended if a handler returned `Ok`, its
//! worker was killed before it could log the outcome, and the timer is no longer in the store.
//! `chain.rs` judges the deliveries of a timer that repeats.

use crate::chain::{self, Chain};
use crate::log::{Entry, What, millis, timer};
use crate::plan::Kind;
use crate::seen::{Broken, Conditions, Seen};
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

/// The counts, as they are written.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Verdict {
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) timers: usize,
    pub(crate) acknowledged: usize,
    pub(crate) cancelled: usize,
    pub(crate) dead_lettered: usize,
    /// Repetitions that a handler ended.
    pub(crate) repeated: usize,
    /// None of these, still in the store, or a time of a repetition was left out.
    pub(crate) lost: usize,
    /// An attempt began before its time.
    pub(crate) early: usize,
    /// A delivery ended more than once.
    pub(crate) acknowledged_twice: usize,
    /// A delivery that was cancelled, moved or replaced continued, one was never planned or had
    /// been made up for, or one began although it or the store was paused.
    pub(crate) stale: usize,
    /// Deliveries of timers that repeat.
    pub(crate) occurrences: usize,
    /// Times of timers that repeat, made up for by the previous delivery.
    pub(crate) missed: usize,
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
            let left = left.timers.contains(&timer);
            match story.every {
                None => verdict.judge(timer, story, seen, left, run),
                Some(every) => {
                    let chain = chain::judge(story, every, seen, run);
                    verdict.count_chain(timer, story, seen, left, &chain);
                }
            }
        }
        verdict
    }

    /// Returns `true` if no guarantee was broken.
    pub(crate) fn holds(&self) -> bool {
        let ends = self.acknowledged + self.cancelled + self.dead_lettered + self.repeated;
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
        let (mut ended, mut last_is_letter) = (false, false);
        let mut broken = Broken { lost: left, ..Broken::default() };
        let slack = run.clocks.slack();
        for (planned, fate) in &story.deliveries {
            let one = seen.remove(planned).unwrap_or_default();
            broken.add(*planned, &one, story, run);
            let ends = one.has_ended();
            match fate {
                Fate::Due => {
                    broken.lost |= !ends;
                    broken.stale |= one.cancelled;
                }
                Fate::Perhaps => {}
                Fate::Last => broken.stale |= one.letters > 0,
                Fate::Gone(since) => {
                    let begun = one.begun.iter().any(|at| *at > since + slack);
                    broken.stale |= one.acknowledged > 0 || begun;
                }
                Fate::Replaced => broken.stale |= one.acknowledged > 0,
            }
            if ends && matches!(fate, Fate::Due | Fate::Perhaps | Fate::Last) {
                self.untold += usize::from(one.is_untold());
                (ended, last_is_letter) = (true, one.letters > 0);
            }
        }
        // Deliveries that were not planned.
        broken.stale |= !seen.is_empty();
        broken.lost |= !ended && story.cancelled == Cancelled::No;
        self.count_broken(broken, || format!("timer {timer}: {story:?}; {all}"));
        match () {
            () if broken.lost => {}
            () if !ended || story.cancelled == Cancelled::Yes => self.cancelled += 1,
            () if last_is_letter => self.dead_lettered += 1,
            () => self.acknowledged += 1,
        }
    }

    /// Counts a timer that repeats.
    fn count_chain(
        &mut self,
        timer: usize,
        story: &Story,
        seen: &HashMap<u64, Seen>,
        left: bool,
        chain: &Chain,
    ) {
        let mut broken = chain.broken;
        broken.lost |= left;
        self.count_broken(broken, || {
            let sorted: BTreeMap<_, _> = seen.iter().collect();
            format!("timer {timer}: {story:?}; {sorted:?}")
        });
        self.occurrences += seen.values().filter(|one| one.has_ended()).count();
        self.untold += seen.values().filter(|one| one.is_untold()).count();
        self.missed += chain.missed;
        match () {
            () if broken.lost => {}
            () if chain.is_complete => self.repeated += 1,
            () => self.cancelled += 1,
        }
    }

    fn count_broken(&mut self, broken: Broken, told: impl Fn() -> String) {
        for (so, what, count) in [
            (broken.lost, "lost", &mut self.lost),
            (broken.early, "early", &mut self.early),
            (broken.twice, "acknowledged twice", &mut self.acknowledged_twice),
            (broken.stale, "stale", &mut self.stale),
        ] {
            if so {
                *count += 1;
                self.offenders.entry(what).or_default().push(told());
            }
        }
    }
}

/// Returns the observations of each timer's deliveries, by their planned times.
fn seen(timers: usize, logs: &[Vec<Entry>], left: &Left) -> Vec<HashMap<u64, Seen>> {
    let mut all = vec![HashMap::<u64, Seen>::new(); timers];
    for log in logs {
        let mut answered = HashSet::new();
        for Entry { what, timer, planned, at, leased } in log {
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
                What::Ends => {
                    seen.ends_repetition = true;
                    continue;
                }
                What::Acknowledged => {
                    seen.acknowledged += 1;
                    seen.leased = *leased;
                }
                What::Dead => seen.leased = *leased,
                What::Cancelled => seen.cancelled = true,
                What::Retried | What::Snoozed | What::TooLate => {}
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
            ("repeated", self.repeated),
            ("lost", self.lost),
            ("early", self.early),
            ("acknowledged twice", self.acknowledged_twice),
            ("stale", self.stale),
            ("occurrences", self.occurrences),
            ("missed", self.missed),
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
