//! Unit tests of the engine, with a server that follows a script, in virtual time.

#![cfg(test)]
#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::panics::ignore_poison;
use crate::store::remote::error::{Kind, RequestError};
use crate::store::remote::queue::{Queue, process_number};
use crate::store::remote::retry::{Limit, RetryPolicy, retry};
use crate::store::remote::sender::{Batch, Engine, Replies, RequestOf, Transport};
use futures_util::future::{FutureExt, join};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, sleep};

const CALL: Duration = Duration::from_secs(5);
const MILLISECOND: Duration = Duration::from_millis(1);

/// The treatment of a batch. Without a step, the server executes it and replies at once.
enum Step {
    /// The reply takes this long.
    Late(Duration),
    /// The server executes the batch, and the reply is lost.
    LoseReply,
    /// The server is not reached, or rejects the batch.
    Fail(Kind, DurableError),
    /// The server executes all operations but this one, whose key is moving.
    Move(&'static str),
    /// The sending task panics.
    Panic,
}

/// A server that executes each batch once, and all that it was sent.
#[derive(Default)]
struct Server {
    script: VecDeque<Step>,
    /// The number of each batch, its operations, and whether an earlier one may be on its way.
    sent: Vec<(u64, Vec<Option<&'static str>>, bool)>,
    last: u64,
    executed: Vec<&'static str>,
}

struct Scripted {
    engine: Engine<Self>,
    server: Mutex<Server>,
}

impl Transport for Scripted {
    type Operation = &'static str;
    /// The operation.
    type Reply = &'static str;
    type Host = Handle;

    fn engine(&self) -> &Engine<Self> {
        &self.engine
    }

    fn bounds(_place: usize) -> (usize, usize) {
        (3, 10)
    }

    fn weight(operation: &&'static str) -> usize {
        operation.len()
    }

    async fn send(
        &self,
        queue: &Queue<RequestOf<Self>>,
        batch: &Batch<Self>,
        _lost: u32,
    ) -> Result<Replies<Self>, RequestError> {
        let operations: Vec<Option<&str>> =
            batch.requests.iter().map(|it| it.as_ref().map(|it| it.operation)).collect();
        let step = {
            let mut server = ignore_poison(self.server.lock());
            server.sent.push((batch.number, operations.clone(), queue.is_ambiguous()));
            server.script.pop_front()
        };
        match &step {
            Some(Step::Late(delay)) => sleep(*delay).await,
            Some(Step::Fail(kind, error)) => {
                return Err(RequestError { kind: *kind, error: error.clone() });
            }
            Some(Step::Panic) => std::panic::resume_unwind(Box::new("scripted")),
            _ => {}
        }
        let moving = if let Some(Step::Move(operation)) = step { Some(operation) } else { None };
        let mut server = ignore_poison(self.server.lock());
        assert!(batch.number >= server.last, "a batch was overtaken");
        if batch.number > server.last {
            server.last = batch.number;
            let some = operations.iter().flatten().filter(|it| moving != Some(**it));
            server.executed.extend(some);
        }
        if let Some(Step::LoseReply) = step {
            return Err(unreachable(Kind::Ambiguous, "lost"));
        }
        let reply = |operation: Option<&'static str>| match operation {
            Some(operation) if moving == Some(operation) => {
                Err(unreachable(Kind::NotExecuted, "it moves"))
            }
            operation => Ok(operation.unwrap_or_default()),
        };
        Ok(operations.into_iter().map(reply).collect())
    }
}

fn unreachable(kind: Kind, what: &str) -> RequestError {
    RequestError { kind, error: DurableError::Unreachable(what.to_owned()) }
}

fn silence() -> DurableError {
    DurableError::Unreachable("silence".to_owned())
}

fn refused() -> Step {
    Step::Fail(Kind::NotExecuted, DurableError::Unreachable("refused".to_owned()))
}

fn full() -> DurableError {
    DurableError::ReadOnly("full".to_owned())
}

/// A store on a scripted server, in a runtime whose time is virtual.
struct Bench {
    store: Arc<Scripted>,
    runtime: Runtime,
}

type Reply = Result<&'static str, DurableError>;

impl Bench {
    fn new(script: impl IntoIterator<Item = Step>) -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime");
        let engine = Engine::new(runtime.handle().clone(), CALL, 1);
        let server = Server { script: script.into_iter().collect(), ..Server::default() };
        Self { store: Arc::new(Scripted { engine, server: Mutex::new(server) }), runtime }
    }

    fn ask(
        &self,
        policy: RetryPolicy,
        operation: &'static str,
        skip: bool,
    ) -> impl Future<Output = Reply> + use<> {
        // Only here the time is virtual.
        let _entered = self.runtime.enter();
        let limit = self.store.engine.limit(policy);
        let asked = Engine::ask(&self.store, 0, operation, limit.clone(), skip, Ok);
        let store = Arc::clone(&self.store);
        async move { limit.within(&store.engine.host, asked, silence).await }
    }

    fn caller(&self, operation: &'static str) -> impl Future<Output = Reply> + use<> {
        self.ask(RetryPolicy::Caller, operation, false)
    }

    fn worker(&self, operation: &'static str) -> impl Future<Output = Reply> + use<> {
        self.ask(RetryPolicy::Worker, operation, true)
    }

    /// Returns the output of a future, and how long it took.
    fn time<A>(&self, future: impl Future<Output = A>) -> (A, Duration) {
        self.runtime.block_on(async {
            let begun = Instant::now();
            let output = future.await;
            (output, begun.elapsed())
        })
    }

    /// Lets tasks run for a while.
    fn pass(&self, time: Duration) {
        self.runtime.block_on(async {
            tokio::task::yield_now().await;
            sleep(time).await;
        });
    }

    fn sent(&self) -> Vec<(u64, Vec<Option<&'static str>>, bool)> {
        ignore_poison(self.store.server.lock()).sent.clone()
    }

    fn executed(&self) -> Vec<&'static str> {
        ignore_poison(self.store.server.lock()).executed.clone()
    }
}

#[test]
fn what_arrives_meanwhile_is_sent_together() {
    let bench = Bench::new([Step::Late(MILLISECOND)]);
    let first = bench.caller("a");
    bench.pass(Duration::ZERO);
    let more = join(join(bench.caller("b"), bench.caller("c")), bench.caller("too long of it"));
    let ((first, more), _) = bench.time(join(first, more));
    assert_eq!((first, more), (Ok("a"), ((Ok("b"), Ok("c")), Ok("too long of it"))));
    let batch = |number, operations: &[&'static str]| {
        (number, operations.iter().map(|&operation| Some(operation)).collect(), false)
    };
    assert_eq!(
        bench.sent(),
        [batch(1, &["a"]), batch(2, &["b", "c"]), batch(3, &["too long of it"])]
    );
}

#[test]
fn a_batch_has_at_most_so_many_operations() {
    let bench = Bench::new([]);
    let all = ["a", "b", "c", "d"].map(|operation| bench.caller(operation));
    bench.time(futures_util::future::join_all(all));
    assert_eq!(bench.sent().iter().map(|(_, some, _)| some.len()).collect::<Vec<_>>(), [3, 1]);
}

#[test]
fn a_batch_whose_reply_is_lost_is_executed_once() {
    let bench = Bench::new([Step::LoseReply, Step::LoseReply]);
    assert_eq!(bench.time(bench.caller("a")), (Ok("a"), 30 * MILLISECOND));
    assert_eq!(bench.executed(), ["a"]);
    let of = |ambiguous| (1, vec![Some("a")], ambiguous);
    assert_eq!(bench.sent(), [of(false), of(true), of(true)]);
    // The reply has settled it.
    assert_eq!(bench.time(bench.caller("b")).0, Ok("b"));
    assert_eq!(bench.sent()[3], (2, vec![Some("b")], false));
}

#[test]
fn a_batch_is_sent_until_the_server_is_back() {
    let bench = Bench::new([refused(), refused(), refused()]);
    assert_eq!(bench.time(bench.caller("a")), (Ok("a"), 70 * MILLISECOND));
    // It was never on its way.
    assert!(bench.sent().iter().all(|(number, _, ambiguous)| *number == 1 && !ambiguous));
}

#[test]
fn a_caller_gives_up_with_the_last_reason() {
    let bench = Bench::new((0..100).map(|_| refused()));
    let late = Err(DurableError::Unreachable("refused".to_owned()));
    assert_eq!(bench.time(bench.caller("a")), (late, CALL));
    bench.pass(CALL);
    let sent = bench.sent().len();
    bench.pass(CALL);
    assert_eq!(bench.sent().len(), sent, "it is sent no more");
    assert_eq!(bench.executed(), [""; 0]);

    let bench = Bench::new([Step::Late(2 * CALL)]);
    assert_eq!(bench.time(bench.caller("a")), (Err(silence()), CALL));
}

#[test]
fn a_caller_that_gave_up_is_left_out() {
    let bench = Bench::new((0..15).map(|_| refused()));
    let (caller, worker) = (bench.caller("a"), bench.worker("b"));
    let ((caller, worker), _) = bench.time(join(caller, worker));
    assert!(caller.is_err() && worker == Ok("b"), "{caller:?} {worker:?}");
    let sent = bench.sent();
    assert_eq!(sent[0], (1, vec![Some("a"), Some("b")], false));
    // Its place stays, because the server keeps replies by their places.
    assert_eq!(sent.last(), Some(&(1, vec![None, Some("b")], false)));
    assert_eq!(bench.executed(), ["b"]);
}

#[test]
fn callers_that_gave_up_do_not_pile_up() {
    let bench = Bench::new((0..1000).map(|_| refused()));
    let _worker = bench.worker("a");
    bench.pass(MILLISECOND);
    for _ in 0..3 {
        bench.time(bench.caller("b")).0.expect_err("the server is gone");
    }
    bench.pass(MILLISECOND * 600);
    let _last = bench.caller("c");
    let waiting = bench.store.engine.queue(0).remove(|_| true);
    assert_eq!(waiting.iter().map(|request| request.operation).collect::<Vec<_>>(), ["c"]);
}

#[test]
fn callers_get_a_rejection_and_workers_wait() {
    let bench = Bench::new([Step::Late(MILLISECOND), Step::Fail(Kind::Rejected, full())]);
    let first = bench.caller("first");
    bench.pass(Duration::ZERO);
    let (caller, worker) = (bench.caller("a"), bench.worker("b"));
    let ((first, (caller, worker)), _) = bench.time(join(first, join(caller, worker)));
    assert_eq!((first, caller, worker), (Ok("first"), Err(full()), Ok("b")));
    assert_eq!(bench.executed(), ["first", "b"]);
}

#[test]
fn waiting_callers_get_the_error_of_a_server_that_cannot_write() {
    let script = |error| [Step::Late(MILLISECOND), Step::Fail(Kind::Rejected, error)];
    for (error, waits) in [(full(), false), (DurableError::Io("?".to_owned()), true)] {
        let bench = Bench::new(script(error.clone()));
        let first = bench.worker("0123456789");
        bench.pass(Duration::ZERO);
        // These do not fit into one batch.
        let (worker, caller) = (bench.worker("9876543210"), bench.caller("a"));
        let ((_, (worker, caller)), _) = bench.time(join(first, join(worker, caller)));
        assert_eq!(worker, Ok("9876543210"));
        assert_eq!(caller, if waits { Ok("a") } else { Err(error) });
    }
}

#[test]
fn a_fatal_error_fails_all() {
    let denied = DurableError::Denied("no".to_owned());
    let bench = Bench::new([Step::Fail(Kind::Fatal, denied.clone())]);
    let (both, took) = bench.time(join(bench.caller("a"), bench.worker("b")));
    assert_eq!((both, took), ((Err(denied.clone()), Err(denied)), Duration::ZERO));
    assert_eq!(bench.time(bench.caller("c")).0, Ok("c"));
}

#[test]
fn an_operation_that_moves_joins_the_end_of_the_queue() {
    let bench = Bench::new([Step::Move("a")]);
    let (both, took) = bench.time(join(bench.caller("a"), bench.caller("b")));
    assert_eq!((both, took), ((Ok("a"), Ok("b")), 10 * MILLISECOND));
    assert_eq!(bench.executed(), ["b", "a"]);
    assert_eq!(bench.sent()[1], (2, vec![Some("a")], false));
}

#[test]
fn an_insert_whose_future_is_dropped_is_executed() {
    let bench = Bench::new([refused(), refused()]);
    drop(bench.caller("a"));
    bench.pass(CALL);
    assert_eq!(bench.executed(), ["a"]);
    // It is not sent forever.
    let bench = Bench::new((0..20).map(|_| refused()));
    drop(bench.caller("a"));
    bench.pass(4 * CALL);
    assert_eq!(bench.executed(), [""; 0]);
}

/// Workers learn of the change by the reply.
#[test]
fn the_reply_to_a_caller_that_has_gone_is_read() {
    let bench = Bench::new([Step::Late(MILLISECOND)]);
    let read = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&read);
    let note = move |operation| {
        ignore_poison(noted.lock()).push(operation);
        Ok(())
    };
    let limit = bench.store.engine.limit(RetryPolicy::Worker);
    drop(Engine::ask(&bench.store, 0, "a", limit, false, note));
    bench.pass(2 * MILLISECOND);
    assert_eq!(*ignore_poison(read.lock()), ["a"]);
}

#[test]
fn a_lease_whose_future_is_dropped_is_skipped() {
    let bench = Bench::new([]);
    drop(bench.worker("a"));
    bench.pass(MILLISECOND);
    assert_eq!(bench.sent(), []);
    // It was on its way.
    let bench = Bench::new([refused()]);
    let (lease, kept) = (bench.worker("a"), bench.worker("b"));
    bench.pass(MILLISECOND);
    drop(lease);
    assert_eq!(bench.time(kept).0, Ok("b"));
    assert_eq!(bench.executed(), ["b"]);
}

#[test]
fn a_waker_that_panics_does_not_end_the_task() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("scripted"));
        }
    }
    let bench = Bench::new([]);
    let mut panics = pin!(bench.worker("a"));
    let waker = Waker::from(Arc::new(Panics));
    assert_eq!(panics.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    assert_eq!(bench.time(bench.worker("b")).0, Ok("b"));
    assert_eq!(panics.now_or_never(), Some(Ok("a")));
}

#[test]
fn requests_of_a_task_that_panics_fail() {
    let bench = Bench::new([Step::Late(MILLISECOND), Step::Panic]);
    let first = bench.worker("a");
    bench.pass(Duration::ZERO);
    let ((_, (sent, waits)), _) =
        bench.time(join(first, join(bench.worker("0123456789"), bench.worker("b"))));
    assert_eq!((sent, waits), (Err(DurableError::Closed), Err(DurableError::Closed)));
    assert_eq!(bench.time(bench.worker("c")).0, Ok("c"));
}

#[test]
fn a_request_is_repeated_as_long_as_its_policy_says() {
    let bench = Bench::new([]);
    let (host, tries) = (bench.runtime.handle(), Mutex::new(Vec::new()));
    let run = |policy, kind| {
        let ask = |lost| {
            ignore_poison(tries.lock()).push(lost);
            let lost = unreachable(kind, "lost");
            async { Err::<(), _>(lost) }
        };
        bench.time(retry(host, (policy, CALL), ask, silence))
    };
    let lost = Err(DurableError::Unreachable("lost".to_owned()));
    assert_eq!(run(RetryPolicy::Caller, Kind::Fatal), (lost.clone(), Duration::ZERO));
    assert_eq!(run(RetryPolicy::Caller, Kind::Rejected), (lost.clone(), Duration::ZERO));
    assert_eq!(run(RetryPolicy::Caller, Kind::NotExecuted), (lost.clone(), CALL));
    assert!(std::mem::take(&mut *ignore_poison(tries.lock())).iter().all(|lost| *lost == 0));
    assert_eq!(run(RetryPolicy::Caller, Kind::Ambiguous), (lost, CALL));
    assert_eq!(ignore_poison(tries.lock())[..3], [0, 1, 2]);
}

#[test]
fn a_limit_that_has_not_begun_does_not_end() {
    let bench = Bench::new([]);
    let limit = Limit::new(bench.runtime.handle(), None);
    limit.note("a reason");
    let slow = async {
        sleep(100 * CALL).await;
        Ok(())
    };
    assert_eq!(
        bench.time(limit.within(bench.runtime.handle(), slow, silence)),
        (Ok(()), 100 * CALL)
    );
}

#[test]
fn no_two_queues_have_the_same_number() {
    let number = || {
        // As after a fork, which copies the state of each generator.
        fastrand::seed(7);
        process_number()
    };
    assert_ne!(number(), number());
}
