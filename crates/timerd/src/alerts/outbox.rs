//! [`Outbox`], the alerts that wait to be sent. Their number and their rate are bounded, and alerts
//! beyond that are left out and counted.

#![forbid(unsafe_code)]

use super::alert::{Alert, AlertBody, Lead};
use crate::metrics::{ALERTS, AlertOutcome};
use metrics::counter;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tourbillon_durable::Verdict;

/// The maximum number of alerts that wait. A flood of failures says no more in a thousand alerts.
const MAX_WAITING: usize = 100;

/// The number of alerts that are sent without a pause.
const BURST: u32 = 10;

/// The pause after each further alert.
const GAP: Duration = Duration::from_secs(6);

/// The waits between the attempts to send an alert.
const WAITS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(25)];

/// The longest wait that the receiver of alerts may ask for.
const MAX_WAIT: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    changed: Notify,
}

/// An attempt to send an alert.
pub(super) struct Sending {
    /// The idempotency key.
    pub(super) key: String,
    pub(super) attempt: u32,
    pub(super) body: AlertBody,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Alert>,
    /// The number of alerts that were left out or not accepted since the last one that was sent.
    left_out: u64,
    is_closed: bool,
}

impl Outbox {
    /// Adds an alert, or leaves it out if too many wait.
    pub(super) fn push(&self, alert: Alert) {
        let mut state = self.state();
        if state.waiting.len() < MAX_WAITING {
            state.waiting.push_back(alert);
            self.changed.notify_one();
        } else {
            state.left_out += 1;
            count(AlertOutcome::LeftOut);
        }
    }

    /// Lets [`send`](Self::send) end once no alert waits.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_one();
    }

    /// Sends alerts one after another until the outbox is closed and empty. `lead` finds where an
    /// alert leads to.
    pub(super) async fn send<L, F>(&self, lead: impl Fn(Alert) -> L, send: impl Fn(Sending) -> F)
    where
        L: Future<Output = Lead>,
        F: Future<Output = Verdict>,
    {
        // The time until which the present rate is used up (the generic cell rate algorithm).
        let mut used_until = Instant::now();
        while let Some((alert, left_out)) = self.next().await {
            sleep_until(used_until.checked_sub(GAP * (BURST - 1)).unwrap_or(used_until)).await;
            used_until = used_until.max(Instant::now()) + GAP;
            let body = alert.body(left_out, lead(alert.clone()).await);
            match deliver(alert.key(), body, &send).await {
                Ok(()) => count(AlertOutcome::Sent),
                Err(error) => {
                    let (kind, id) = (alert.kind().name(), alert.id());
                    tracing::warn!(alert = kind, id, %error, "an alert could not be sent");
                    count(AlertOutcome::Failed);
                    self.state().left_out += left_out + 1;
                }
            }
        }
    }

    /// Returns the next alert, and the number of alerts that were left out before it. Returns
    /// `None` once the outbox is closed and empty.
    async fn next(&self) -> Option<(Alert, u64)> {
        loop {
            {
                let mut state = self.state();
                if let Some(alert) = state.waiting.pop_front() {
                    return Some((alert, std::mem::take(&mut state.left_out)));
                }
                if state.is_closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tries to send an alert a few times. Returns the error of the last attempt.
async fn deliver<F: Future<Output = Verdict>>(
    key: String,
    body: AlertBody,
    send: &impl Fn(Sending) -> F,
) -> Result<(), String> {
    let mut waits = WAITS.into_iter();
    let mut attempt = 1;
    loop {
        let sending = Sending { key: key.clone(), attempt, body: body.clone() };
        let (wait, error) = match send(sending).await {
            Verdict::Done => return Ok(()),
            Verdict::Fail(error) | Verdict::Stop(error) => return Err(error),
            Verdict::Again { after, .. } => (after, "the receiver is busy".to_owned()),
            Verdict::Retry(error) => (Duration::ZERO, error),
            other => return Err(format!("{other:?}")),
        };
        let Some(least) = waits.next() else { return Err(error) };
        sleep(wait.clamp(least, MAX_WAIT)).await;
        attempt += 1;
    }
}

fn count(outcome: AlertOutcome) {
    counter!(ALERTS, "outcome" => outcome.label()).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::time::UNIX_EPOCH;

    fn alert(number: usize) -> Alert {
        Alert::skipped(number.to_string(), UNIX_EPOCH)
    }

    fn left_out(body: &AlertBody) -> u64 {
        serde_json::to_value(body).expect("a body")["left_out"].as_u64().expect("a number")
    }

    /// Sends all alerts, and returns when each call was made, with its key, its attempt and the
    /// number of alerts that were left out.
    async fn sent(
        outbox: &Outbox,
        verdict: impl Fn(&str, u32) -> Verdict,
    ) -> Vec<(Duration, String, u32, u64)> {
        let (begun, calls) = (Instant::now(), RefCell::new(Vec::new()));
        outbox.close();
        outbox
            .send(
                |_| async { Lead::default() },
                |Sending { key, attempt, body }| {
                    let verdict = verdict(&key, attempt);
                    calls.borrow_mut().push((begun.elapsed(), key, attempt, left_out(&body)));
                    async { verdict }
                },
            )
            .await;
        calls.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn alerts_beyond_a_number_are_left_out_and_counted_in_the_next() {
        let outbox = Outbox::default();
        for number in 0..MAX_WAITING + 50 {
            outbox.push(alert(number));
        }
        let calls = sent(&outbox, |_, _| Verdict::Done).await;
        let counts: Vec<u64> = calls.iter().map(|call| call.3).collect();
        assert_eq!((counts.len(), counts[0]), (MAX_WAITING, 50));
        assert!(counts[1..].iter().all(|count| *count == 0), "{counts:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn alerts_have_a_rate() {
        let outbox = Outbox::default();
        for number in 0..40 {
            outbox.push(alert(number));
        }
        let times: Vec<u64> =
            sent(&outbox, |_, _| Verdict::Done).await.iter().map(|call| call.0.as_secs()).collect();
        assert_eq!(times[..10], [0; 10]);
        assert_eq!(times[10..14], [6, 12, 18, 24]);
        // A pause earns no more than another burst.
        tokio::time::advance(Duration::from_secs(3600)).await;
        for number in 0..20 {
            outbox.push(alert(number));
        }
        let times: Vec<u64> =
            sent(&outbox, |_, _| Verdict::Done).await.iter().map(|call| call.0.as_secs()).collect();
        assert_eq!(times[..11], [[0; 10].as_slice(), &[6]].concat());
    }

    #[tokio::test(start_paused = true)]
    async fn an_alert_is_tried_a_few_times_with_one_key() {
        let outbox = Outbox::default();
        outbox.push(alert(0));
        outbox.push(alert(1));
        let is_first = |key: &str| key == alert(0).key();
        let calls = sent(&outbox, |key, _| match is_first(key) {
            true => Verdict::Retry("away".to_owned()),
            false => Verdict::Done,
        })
        .await;
        let of_first: Vec<_> = calls[..4].iter().map(|call| (call.0.as_secs(), call.2)).collect();
        assert_eq!(of_first, [(0, 1), (1, 2), (6, 3), (31, 4)]);
        assert!(calls[..4].iter().all(|call| is_first(&call.1)), "{calls:?}");
        assert_eq!((calls[4].2, calls[4].3, calls.len()), (1, 1, 5), "the other counts the first");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_final_and_a_busy_receiver_is_called_when_it_asks_for_it() {
        let outbox = Outbox::default();
        outbox.push(alert(0));
        let calls = sent(&outbox, |_, _| Verdict::Fail("gone".to_owned())).await;
        assert_eq!(calls.len(), 1);
        outbox.push(alert(1));
        let hours = Duration::from_secs(7200);
        let calls = sent(&outbox, |_, attempt| match attempt {
            1 => Verdict::Again { after: Duration::from_secs(20), counted: false },
            2 => Verdict::Again { after: hours, counted: false },
            _ => Verdict::Done,
        })
        .await;
        let times: Vec<u64> = calls.iter().map(|call| call.0.as_secs()).collect();
        assert_eq!(times, [0, 20, 80]);
        assert_eq!(calls[2].3, 1, "the refused alert");
    }
}
