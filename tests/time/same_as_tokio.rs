//! The same random script runs on `tokio::time` and on `tourbillon::time`, and gives the same log.

use super::{paused, running};
use proptest::prelude::*;
use tokio::task::coop::unconstrained;

/// A step of the script. Times are in microseconds, so that deadlines lie between ticks.
#[derive(Clone, Debug)]
enum Step {
    Advance { by: u64 },
    Sleep { after: u64 },
    SleepUntil { ago: u64 },
    Timeout { after: u64, ready_after: u64 },
    Poll { which: usize },
    IsElapsed { which: usize },
    Reset { which: usize, after: u64 },
    Drop { which: usize },
    Interval { in_time: u64, period: u64, missed: usize },
    Tick,
    ResetInterval { how: usize, by: u64 },
    Await { after: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let micros = || prop_oneof![Just(0), 0..2_000_u64, (0..50_u64).prop_map(|ms| ms * 1000)];
    let which = any::<usize>;
    prop_oneof![
        6 => micros().prop_map(|by| Step::Advance { by }),
        4 => micros().prop_map(|after| Step::Sleep { after }),
        1 => micros().prop_map(|ago| Step::SleepUntil { ago }),
        2 => (micros(), micros())
            .prop_map(|(after, ready_after)| Step::Timeout { after, ready_after }),
        8 => which().prop_map(|which| Step::Poll { which }),
        3 => which().prop_map(|which| Step::IsElapsed { which }),
        3 => (which(), micros()).prop_map(|(which, after)| Step::Reset { which, after }),
        1 => which().prop_map(|which| Step::Drop { which }),
        1 => (micros(), 1..20_000_u64, 0..3_usize)
            .prop_map(|(in_time, period, missed)| Step::Interval { in_time, period, missed }),
        6 => Just(Step::Tick),
        1 => (0..4_usize, micros()).prop_map(|(how, by)| Step::ResetInterval { how, by }),
        2 => micros().prop_map(|after| Step::Await { after }),
    ]
}

mod theirs {
    use tokio::time;
    include!("script.rs");
}

mod ours {
    use tourbillon::time;
    include!("script.rs");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn a_script_has_the_same_log(steps in proptest::collection::vec(step(), 1..80)) {
        let theirs = paused(unconstrained(theirs::run(&steps)));
        prop_assert_eq!(paused(unconstrained(ours::run(&steps))), theirs);
    }

    /// The clock is paused between two ticks of the runtime, wherever the system's stands.
    #[test]
    fn so_it_has_if_the_clock_is_paused_late(steps in proptest::collection::vec(step(), 1..80)) {
        // Whole milliseconds only: the place between two ticks differs from run to run.
        let whole = |micros: u64| micros / 1000 * 1000;
        let steps: Vec<Step> = steps.into_iter().map(|step| step.with(whole)).collect();
        let late = |run: std::pin::Pin<Box<dyn Future<Output = Vec<String>> + '_>>| {
            running(unconstrained(async {
                std::thread::sleep(std::time::Duration::from_micros(300));
                tokio::time::pause();
                // tokio's timer notices how late it is when the runtime has nothing to do.
                tokio::task::yield_now().await;
                run.await
            }))
        };
        let theirs = late(Box::pin(theirs::run(&steps)));
        prop_assert_eq!(late(Box::pin(ours::run(&steps))), theirs);
    }
}

impl Step {
    /// Changes each time.
    fn with(self, change: impl Fn(u64) -> u64) -> Self {
        match self {
            Step::Advance { by } => Step::Advance { by: change(by) },
            Step::Sleep { after } => Step::Sleep { after: change(after) },
            Step::SleepUntil { ago } => Step::SleepUntil { ago: change(ago) },
            Step::Timeout { after, ready_after } => {
                Step::Timeout { after: change(after), ready_after: change(ready_after) }
            }
            Step::Reset { which, after } => Step::Reset { which, after: change(after) },
            Step::Interval { in_time, period, missed } => {
                Step::Interval { in_time: change(in_time), period: change(period) + 1000, missed }
            }
            Step::ResetInterval { how, by } => Step::ResetInterval { how, by: change(by) },
            Step::Await { after } => Step::Await { after: change(after) },
            other => other,
        }
    }
}
