//! [`AttemptSpan`], the span of an attempt for the facade `tracing`, and the events of a worker for
//! it. Without the feature `tracing` they do nothing.

#![forbid(unsafe_code)]

#[cfg(feature = "tracing")]
pub(crate) use enabled::{AttemptSpan, emit};

#[cfg(not(feature = "tracing"))]
pub(crate) use disabled::{AttemptSpan, emit};

#[cfg(feature = "tracing")]
mod enabled {
    use crate::model::clock::Millis;
    use crate::model::event::{Event, Outcome, Wait};
    use crate::model::record::Record;
    use tracing::{Instrument, Level, Span, field};

    /// The header with the trace context of the insert.
    const TRACEPARENT: &str = "traceparent";

    /// The span of an attempt whose handler is called.
    #[derive(Debug)]
    pub(crate) struct AttemptSpan(Span);

    impl AttemptSpan {
        pub(crate) fn none() -> Self {
            Self(Span::none())
        }

        pub(crate) fn of(id: &str, record: &Record, due: Millis) -> Self {
            let headers = record.settings.headers.iter();
            let mut found = headers.filter(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT));
            let traceparent = found.next().map(|(_, value)| value.as_str());
            Self(tracing::info_span!(
                target: "tourbillon_durable",
                "attempt",
                otel.kind = "consumer",
                id,
                attempt = record.attempt,
                due,
                planned = record.planned,
                traceparent,
                outcome = field::Empty,
            ))
        }

        /// Runs a future within the span.
        pub(crate) fn around<F: Future>(&self, future: F) -> impl Future<Output = F::Output> {
            future.instrument(self.0.clone())
        }

        /// Calls `report` within the span.
        pub(crate) fn report(&self, event: &Event, report: impl FnOnce()) {
            if let Event::Attempt(attempt) = event {
                self.0.record("outcome", attempt.outcome.name());
            }
            self.0.in_scope(report);
        }
    }

    fn level(event: &Event) -> Level {
        match event {
            Event::Attempt(attempt) => match attempt.outcome {
                Outcome::Acknowledged | Outcome::Again { .. } | Outcome::GivenBack => Level::DEBUG,
                Outcome::Cancelled { .. } => Level::INFO,
                Outcome::Dead { .. } | Outcome::Unreadable { .. } => Level::ERROR,
                _ => Level::WARN,
            },
            Event::Waiting { reason: Wait::StorePaused | Wait::Busy, .. } => Level::INFO,
            Event::Waiting { .. } | Event::LeaseLost { .. } | Event::NoticesLost => Level::WARN,
            Event::LogFailed { .. } => Level::WARN,
            Event::Emptied | Event::LogSetAside { .. } => Level::ERROR,
            _ => Level::INFO,
        }
    }

    /// Emits an event of the facade at a level that is known at run time only.
    macro_rules! at {
        ($level:expr, $($fields:tt)*) => {
            match $level {
                Level::ERROR => tracing::error!(target: "tourbillon_durable", $($fields)*),
                Level::WARN => tracing::warn!(target: "tourbillon_durable", $($fields)*),
                Level::INFO => tracing::info!(target: "tourbillon_durable", $($fields)*),
                _ => tracing::debug!(target: "tourbillon_durable", $($fields)*),
            }
        };
    }

    #[allow(clippy::cognitive_complexity, reason = "the macros of the facade expand to branches")]
    pub(crate) fn emit(event: &Event) {
        let level = level(event);
        match event {
            Event::Attempt(it) => at!(
                level,
                id = it.id,
                attempt = it.attempt,
                outcome = it.outcome.name(),
                lateness = it.lateness.as_secs_f64(),
                duration = it.duration.map(|duration| duration.as_secs_f64()),
                detail = ?it.outcome,
                "an attempt has ended"
            ),
            Event::LeaseLost { id, attempt, reason } => {
                at!(level, id, attempt, reason = reason.name(), "a lease is lost");
            }
            Event::Waiting { reason, error } => {
                let error = error.as_ref().map(field::display);
                at!(level, reason = reason.name(), error, "the worker waits");
            }
            Event::Resumed { reason, waited } => {
                at!(
                    level,
                    reason = reason.name(),
                    waited = waited.as_secs_f64(),
                    "the worker continues"
                );
            }
            Event::NoticesLost => at!(level, "notices are lost"),
            Event::NoticesRestored => at!(level, "notices are restored"),
            Event::PartitionsGained { partitions } => {
                at!(level, ?partitions, "the worker owns more partitions");
            }
            Event::PartitionsLost { partitions } => {
                at!(level, ?partitions, "other workers have taken over partitions");
            }
            Event::Emptied => at!(level, "the store was emptied"),
            Event::LogFailed { lost, error } => {
                let error = error.as_ref().map(field::display);
                at!(level, lost, error, "attempts are not logged");
            }
            Event::LogSetAside { file } => {
                at!(level, file = %file.display(), "the log is damaged and was set aside");
            }
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod disabled {
    use crate::model::clock::Millis;
    use crate::model::event::Event;
    use crate::model::record::Record;

    #[derive(Debug)]
    pub(crate) struct AttemptSpan;

    impl AttemptSpan {
        pub(crate) fn none() -> Self {
            Self
        }

        pub(crate) fn of(_id: &str, _record: &Record, _due: Millis) -> Self {
            Self
        }

        pub(crate) fn around<F: Future>(&self, future: F) -> F {
            future
        }

        pub(crate) fn report(&self, _event: &Event, report: impl FnOnce()) {
            report();
        }
    }

    pub(crate) fn emit(_event: &Event) {}
}
