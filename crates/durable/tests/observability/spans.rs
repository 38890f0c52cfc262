//! The spans of attempts and the events of workers, as a subscriber receives them.

#![allow(clippy::disallowed_methods, reason = "a worker has a thread of its own")]

use crate::common::bench::{Bench, OneFile, SECOND, quick, start, wait};
use futures_channel::oneshot;
use futures_util::FutureExt;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Once;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::UNIX_EPOCH;
use tourbillon_durable::{Delivery, DurableError, Verdict};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Fields by name.
#[derive(Clone, Debug, Default, PartialEq)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

/// An event with the fields of the span around it.
#[derive(Debug)]
struct Told {
    level: Level,
    fields: Fields,
    span: Option<Fields>,
}

thread_local! {
    /// The receiver of the events of this thread.
    static TELL: RefCell<Option<Sender<Told>>> = const { RefCell::new(None) };
}

/// Sends the events of each thread to its receiver.
struct Capture;

/// Installs the subscriber, once for the program. A place in the code that is reached for the first
/// time while a subscriber is being installed may stay without it.
pub(crate) fn subscribe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::registry().with(Capture);
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        values.record(span.extensions_mut().get_mut::<Fields>().unwrap());
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let span = context.event_span(event).map(|span| span.extensions().get().cloned().unwrap());
        let told = Told { level: *event.metadata().level(), fields, span };
        TELL.with_borrow(|tell| tell.as_ref().map(|tell| tell.send(told)));
    }
}

/// A worker on a thread with a subscriber.
struct Traced {
    told: Receiver<Told>,
    end: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), DurableError>>,
}

impl Traced {
    fn start<F>(bench: &Bench<OneFile>, handler: fn(Delivery) -> F) -> Self
    where
        F: Future<Output = Verdict> + Send + 'static,
    {
        subscribe();
        let ((send, told), (end, ends)) = (channel(), oneshot::channel::<()>());
        let run = bench.timers().worker().until(ends.map(drop)).run(handler);
        let thread = std::thread::spawn(|| {
            TELL.set(Some(send));
            wait(run)
        });
        Self { told, end, thread }
    }

    /// Returns the next event of the worker, or of its handlers.
    fn next(&self, step: impl Fn()) -> Told {
        for _ in 0..600 {
            if let Ok(told) = self.told.recv_timeout(SECOND / 10)
                && told.fields.0.contains_key("message")
            {
                return told;
            }
            step();
        }
        panic!("there is no event");
    }

    fn stop(self) {
        drop(self.end);
        assert_eq!(self.thread.join().unwrap(), Ok(()));
    }
}

fn value<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    fields.0.get(name).map(String::as_str)
}

#[test]
fn an_attempt_has_a_span_with_the_trace_of_its_timer() {
    let bench = Bench::new(OneFile::new());
    let traced = Traced::start(&bench, |delivery| async move {
        tracing::info!("the handler works");
        match delivery.attempt {
            1 => Verdict::Retry("no".to_owned()),
            _ => Verdict::Done,
        }
    });
    let options = quick().header("Traceparent", TRACEPARENT);
    wait(bench.timers().insert("id", "", SECOND, options)).unwrap();
    bench.advance(SECOND);

    let works = traced.next(|| ());
    let span = works.span.unwrap();
    let planned = (start() + SECOND).duration_since(UNIX_EPOCH).unwrap().as_millis().to_string();
    let expected = [
        ("attempt", "1"),
        ("due", &planned),
        ("id", "id"),
        ("otel.kind", "consumer"),
        ("planned", &planned),
        ("traceparent", TRACEPARENT),
    ];
    let expected = expected.map(|(name, value)| (name, value.to_owned()));
    assert_eq!(span, Fields(BTreeMap::from(expected)));

    let ended = traced.next(|| ());
    assert_eq!(ended.level, Level::WARN);
    assert_eq!(value(&ended.fields, "message"), Some("an attempt has ended"));
    assert_eq!(value(&ended.fields, "outcome"), Some("retry"));
    let span = ended.span.unwrap();
    assert_eq!((value(&span, "id"), value(&span, "outcome")), (Some("id"), Some("retry")));

    bench.advance(SECOND);
    let span = traced.next(|| ()).span.unwrap();
    assert_eq!((value(&span, "attempt"), value(&span, "outcome")), (Some("2"), None));
    let ended = traced.next(|| ());
    assert_eq!((ended.level, value(&ended.fields, "lateness")), (Level::DEBUG, Some("0.0")));
    traced.stop();
}

#[test]
fn a_timer_without_a_trace_and_the_wait_of_its_worker() {
    let bench = Bench::new(OneFile::new());
    let traced = Traced::start(&bench, |_| async { Verdict::Done });
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    let span = traced.next(|| ()).span.unwrap();
    assert_eq!((value(&span, "id"), value(&span, "traceparent")), (Some("id"), None));
    wait(bench.timers().pause()).unwrap();
    let waits = traced.next(|| bench.advance(SECOND));
    assert_eq!((waits.level, waits.span), (Level::INFO, None));
    assert_eq!(value(&waits.fields, "message"), Some("the worker waits"));
    assert_eq!(value(&waits.fields, "reason"), Some("store_paused"));
    traced.stop();
}
