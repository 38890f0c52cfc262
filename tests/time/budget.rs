//! Futures that are always ready yield to other tasks as often as tokio's do.

use super::paused;
use std::cell::Cell;
use std::future::pending;
use std::rc::Rc;
use tokio::task::{LocalSet, yield_now};

const TIMES: u32 = 1000;

/// Runs a task beside one that only yields, and returns how often the latter had its turn.
fn turns_beside(work: impl Future<Output = ()> + 'static) -> u32 {
    let turns = Rc::new(Cell::new(0));
    let other = Rc::clone(&turns);
    paused(LocalSet::new().run_until(async move {
        let work = tokio::task::spawn_local(work);
        tokio::task::spawn_local(async move {
            loop {
                other.set(other.get() + 1);
                yield_now().await;
            }
        });
        work.await.unwrap();
    }));
    turns.get()
}

macro_rules! same_turns {
    ($name:ident, $time:ident => $work:expr) => {
        #[test]
        fn $name() {
            let ours = {
                use tourbillon::time as $time;
                turns_beside(async move { $work })
            };
            let theirs = {
                use tokio::time as $time;
                turns_beside(async move { $work })
            };
            assert!(theirs >= TIMES / 128, "{theirs} turns of tokio's");
            assert_eq!(ours, theirs);
        }
    };
}

same_turns!(elapsed_sleeps, time => {
    let past = time::Instant::now() - super::MS;
    for _ in 0..TIMES {
        time::sleep_until(past).await;
    }
});

same_turns!(elapsed_timeouts, time => {
    let past = time::Instant::now() - super::MS;
    for _ in 0..TIMES {
        assert!(time::timeout_at(past, pending::<()>()).await.is_err());
    }
});

same_turns!(missed_ticks, time => {
    let start = time::Instant::now() - super::MS * TIMES;
    let mut interval = time::interval_at(start, super::MS);
    for _ in 0..TIMES {
        interval.tick().await;
    }
});

same_turns!(a_sleep_that_has_completed, time => {
    let mut sleep = std::pin::pin!(time::sleep_until(time::Instant::now()));
    for _ in 0..TIMES {
        sleep.as_mut().await;
    }
});

#[test]
fn expired_values_of_a_queue() {
    let turns = turns_beside(async {
        let mut queue = tourbillon::time::DelayQueue::new();
        let past = tourbillon::time::Instant::now() - super::MS;
        for value in 0..TIMES {
            queue.insert_at(value, past);
        }
        for value in 0..TIMES {
            let next = std::future::poll_fn(|context| queue.poll_expired(context)).await;
            assert_eq!(next.unwrap().into_inner(), value);
        }
    });
    assert!(turns >= TIMES / 128, "{turns} turns");
}

/// The future of the timeout spends the budget at each poll.
#[test]
fn a_greedy_future_does_not_keep_its_timeout_from_ending() {
    let greedy = async {
        loop {
            tokio::task::coop::consume_budget().await;
        }
    };
    super::running(async {
        assert!(tourbillon::time::timeout(super::MS, greedy).await.is_err());
    });
}
