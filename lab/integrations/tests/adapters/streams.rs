//! Timeouts of byte streams in virtual time. Duplex pipes of tokio are tested with the traits of
//! tokio and of `futures-io`.

use crate::common::Time;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio_util::compat::TokioAsyncReadCompatExt;
use tourbillon::Refusal;
use tourbillon::future::Timer;
use tourbillon::io::{Limit, StreamError, StreamHandle, TimeoutStream};
use tourbillon::testing::World;

const SECOND: Duration = Duration::from_secs(1);

/// A stream with room for four bytes each way, and its peer.
fn pipe(timer: &Timer) -> (TimeoutStream<DuplexStream>, DuplexStream) {
    let (near, far) = duplex(4);
    (TimeoutStream::new(timer, near), far)
}

/// Returns the error of an operation that was given up.
fn given_up<T: std::fmt::Debug>(result: io::Result<T>) -> StreamError {
    let error = result.unwrap_err();
    let kind = error.kind();
    let error = error.downcast::<StreamError>().unwrap();
    let elapsed = matches!(error, StreamError::Elapsed(_));
    assert_eq!(kind, if elapsed { ErrorKind::TimedOut } else { ErrorKind::Other });
    error
}

/// Runs a test of a stream, which may spawn tasks.
fn run<F: Future>(test: impl FnOnce(Timer, tourbillon::testing::Spawner) -> F) -> F::Output {
    let mut world = World::new();
    let main = test(world.timer().share(), world.spawner());
    let output = world.block_on(main);
    assert_eq!(world.timer().wheel().len(), 0, "a stream leaves its timers");
    output
}

/// Returns how long a future takes in virtual time, and its output.
async fn timed<F: Future>(timer: &Timer, future: F) -> (Duration, F::Output) {
    let start = timer.now();
    let output = future.await;
    (timer.now() - start, output)
}

#[test]
fn a_read_that_waits_too_long_is_given_up_and_may_be_tried_again() {
    run(|timer, spawner| async move {
        let (mut stream, mut peer) = pipe(&timer);
        stream.set_read_timeout(Some(SECOND * 30));
        assert_eq!(stream.read_timeout(), Some(SECOND * 30));
        for _ in 0..2 {
            let (took, read) = timed(&timer, stream.read_u8()).await;
            assert_eq!((took, given_up(read)), (SECOND * 30, StreamError::Elapsed(Limit::Read)));
        }
        let later = timer.sleep(SECOND * 29);
        spawner.spawn(async move {
            later.await.unwrap();
            peer.write_u8(7).await.unwrap();
            std::future::pending::<()>().await;
        });
        assert_eq!(timed(&timer, stream.read_u8()).await.1.unwrap(), 7);
        assert_eq!(timed(&timer, stream.read_u8()).await.0, SECOND * 30);
    });
}

#[test]
fn a_stream_that_nobody_reads_is_not_ended() {
    run(|timer, _| async move {
        let (mut stream, mut peer) = pipe(&timer);
        stream.set_read_timeout(Some(SECOND));
        stream.set_idle_timeout(Some(SECOND));
        peer.write_all(b"abc").await.unwrap();
        for byte in b"abc" {
            timer.sleep(SECOND * 100).await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), *byte);
        }
        timer.sleep(SECOND * 100).await.unwrap();
        assert_eq!(timed(&timer, stream.read_u8()).await.0, SECOND, "a wait has all its time");
    });
}

#[test]
fn packets_in_time_cost_no_timer() {
    run(|timer, spawner| async move {
        let (mut stream, mut peer) = pipe(&timer);
        stream.set_idle_timeout(Some(SECOND * 60));
        let (pause, until) = (timer.share(), timer.now() + SECOND * 600);
        spawner.spawn(async move {
            while pause.now() < until {
                pause.sleep(SECOND).await.unwrap();
                peer.write_u8(1).await.unwrap();
            }
            std::future::pending::<()>().await;
        });
        let mut read = 0;
        while timer.now() < until {
            read += u32::from(stream.read_u8().await.unwrap());
        }
        let counted = timer.metrics();
        // The peer has armed one timer for each of its pauses. The stream's own fires about once a
        // minute, and is armed again.
        assert_eq!(read, 600);
        assert!(counted.inserted - 600 <= 12, "{counted:?}");
    });
}

#[test]
fn a_peer_that_does_not_read_ends_a_write() {
    run(|timer, _| async move {
        let (mut stream, mut peer) = pipe(&timer);
        stream.set_write_timeout(Some(SECOND * 5));
        assert_eq!(stream.write_timeout(), Some(SECOND * 5));
        stream.write_all(b"full").await.unwrap();
        timer.sleep(SECOND * 9).await.unwrap();
        let (took, written) = timed(&timer, stream.write_u8(0)).await;
        assert_eq!((took, given_up(written)), (SECOND * 5, StreamError::Elapsed(Limit::Write)));
        assert_eq!(peer.read_u8().await.unwrap(), b'f', "what was written is");
        stream.write_u8(1).await.unwrap();
    });
}

/// A stream that is never ready, except perhaps to be shut down.
struct Stuck {
    shuts: bool,
}

impl AsyncRead for Stuck {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Stuck {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.shuts { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

#[test]
fn flushes_and_shutdowns_are_writes() {
    run(|timer, _| async move {
        let mut stream = TimeoutStream::new(&timer, Stuck { shuts: false });
        stream.set_write_timeout(Some(SECOND));
        let (took, flushed) = timed(&timer, stream.flush()).await;
        assert_eq!((took, given_up(flushed)), (SECOND, StreamError::Elapsed(Limit::Write)));
        let (took, shut) = timed(&timer, stream.shutdown()).await;
        assert_eq!((took, given_up(shut)), (SECOND, StreamError::Elapsed(Limit::Write)));
    });
}

#[test]
fn what_goes_one_way_keeps_the_other_from_being_idle() {
    run(|timer, spawner| async move {
        let (mut stream, mut peer) = pipe(&timer);
        stream.set_idle_timeout(Some(SECOND * 10));
        assert_eq!(stream.idle_timeout(), Some(SECOND * 10));
        let (mut reads, mut writes) = tokio::io::split(stream);
        let start = timer.now();
        let pause = timer.share();
        spawner.spawn(async move {
            for byte in 0..4 {
                pause.sleep(SECOND * 9).await.unwrap();
                writes.write_u8(byte).await.unwrap();
            }
            std::future::pending::<()>().await;
        });
        let ended = given_up(reads.read_u8().await);
        assert_eq!(ended, StreamError::Elapsed(Limit::Idle));
        assert_eq!(timer.now() - start, SECOND * 46, "ten seconds after the last byte");
        assert_eq!(peer.read_u8().await.unwrap(), 0);
    });
}

/// A client that reads all the time and sends requests repeatedly, each of them late in the limit.
/// Each response has the whole limit, unless the stream is configured otherwise.
#[test]
fn a_read_has_its_time_from_what_was_written_last() {
    run(|timer, spawner| async move {
        let (mut stream, mut peer) = pipe(&timer);
        stream.set_read_timeout(Some(SECOND * 10));
        assert!(stream.writes_restart_reads());
        let (answers, answering) = (timer.share(), timer.now() + SECOND * 60);
        spawner.spawn(async move {
            while let Ok(question) = peer.read_u8().await {
                if answers.now() < answering {
                    answers.sleep(SECOND * 4).await.unwrap();
                    peer.write_u8(question).await.unwrap();
                }
            }
        });
        let start = timer.now();
        let (mut reads, mut writes) = tokio::io::split(stream);
        let asks = timer.share();
        spawner.spawn(async move {
            while asks.now() < answering + SECOND * 30 {
                asks.sleep(SECOND * 9).await.unwrap();
                let _ended = writes.write_u8(7).await;
            }
        });
        let mut answered = 0;
        let ended = loop {
            match reads.read_u8().await {
                Ok(answer) => answered += u32::from(answer == 7),
                Err(error) => break given_up::<()>(Err(error)),
            }
        };
        assert_eq!(ended, StreamError::Elapsed(Limit::Read));
        // Requests are sent every nine seconds until the 90th, and answered until the 60th. The
        // requests that are not answered are writes too.
        assert_eq!((answered, timer.now() - start), (6, SECOND * 100));
        timer.sleep(SECOND * 100).await.unwrap();
    });
}

#[test]
fn a_peer_that_must_report_by_itself_is_not_kept_by_what_it_is_sent() {
    run(|timer, spawner| async move {
        let (mut stream, mut peer) = pipe(&timer);
        stream.set_read_timeout(Some(SECOND * 10));
        stream.set_writes_restart_reads(false);
        let start = timer.now();
        let (mut reads, mut writes) = tokio::io::split(stream);
        let pause = timer.share();
        spawner.spawn(async move {
            for byte in 0..4 {
                pause.sleep(SECOND * 3).await.unwrap();
                writes.write_u8(byte).await.unwrap();
            }
        });
        let ended = given_up(reads.read_u8().await);
        assert_eq!(ended, StreamError::Elapsed(Limit::Read));
        assert_eq!(timer.now() - start, SECOND * 10);
        assert_eq!(peer.read_u8().await.unwrap(), 0);
        timer.sleep(SECOND * 3).await.unwrap();
    });
}

#[test]
fn both_halves_hear_of_a_silence() {
    run(|timer, spawner| async move {
        let (mut stream, peer) = pipe(&timer);
        stream.set_idle_timeout(Some(SECOND * 10));
        let (mut reads, mut writes) = tokio::io::split(stream);
        let heard = Rc::new(Cell::new(None));
        let (hears, at) = (Rc::clone(&heard), timer.share());
        let start = timer.now();
        spawner.spawn(async move {
            at.sleep(SECOND * 3).await.unwrap();
            let written = writes.write_all(b"too much").await;
            hears.set(Some((at.now() - start, given_up(written))));
        });
        let ended = given_up(reads.read_u8().await);
        // Four bytes were written after three seconds.
        assert_eq!(timer.now() - start, SECOND * 13);
        timer.sleep(SECOND).await.unwrap();
        assert_eq!(heard.get(), Some((SECOND * 13, ended)));
        assert_eq!(ended, StreamError::Elapsed(Limit::Idle));
        drop(peer);
    });
}

#[test]
fn a_deadline_ends_a_peer_that_drips_and_one_that_never_ends() {
    run(|timer, spawner| async move {
        let (mut stream, mut peer) = pipe(&timer);
        let deadline = timer.now() + SECOND * 60;
        stream.set_read_timeout(Some(SECOND * 10));
        stream.set_deadline(Some(deadline));
        assert_eq!(stream.deadline(), Some(deadline));
        let pause = timer.share();
        spawner.spawn(async move {
            while peer.write_u8(0).await.is_ok() {
                pause.sleep(SECOND * 7).await.unwrap();
            }
        });
        let ended = given_up(stream.read_to_end(&mut Vec::new()).await);
        assert_eq!(ended, StreamError::Elapsed(Limit::Deadline));
        assert_eq!(timer.now(), deadline);

        let mut endless = TimeoutStream::new(&timer, tokio::io::repeat(0));
        endless.set_deadline(Some(deadline));
        assert_eq!(given_up(endless.read_u8().await), StreamError::Elapsed(Limit::Deadline));
        endless.set_deadline(None);
        assert_eq!(endless.read_u8().await.unwrap(), 0);
        drop(stream);
        timer.sleep(SECOND * 7).await.unwrap();
    });
}

#[test]
fn limits_are_set_in_one_expression() {
    run(|timer, _| async move {
        let (near, _far) = duplex(4);
        let deadline = timer.now() + SECOND * 4;
        let stream = TimeoutStream::new(&timer, near)
            .with_read_timeout(SECOND)
            .with_write_timeout(SECOND * 2)
            .with_idle_timeout(SECOND * 3)
            .with_deadline(deadline);
        let limits = [stream.read_timeout(), stream.write_timeout(), stream.idle_timeout()];
        assert_eq!(limits, [1, 2, 3].map(|seconds| Some(SECOND * seconds)));
        assert_eq!(stream.deadline(), Some(deadline));
    });
}

#[test]
fn a_deadline_ends_the_wait() {
    run(|timer, _| async move {
        let (mut stream, _peer) = pipe(&timer);
        stream.set_read_timeout(Some(SECOND * 10));
        stream.set_deadline(Some(timer.now() + SECOND * 5));
        let (took, read) = timed(&timer, stream.read_u8()).await;
        assert_eq!((took, given_up(read)), (SECOND * 5, StreamError::Elapsed(Limit::Deadline)));
        // The next read follows at once, because a late one would renew the wait in any case.
        stream.set_deadline(None);
        let (took, read) = timed(&timer, stream.read_u8()).await;
        assert_eq!((took, given_up(read)), (SECOND * 10, StreamError::Elapsed(Limit::Read)));
    });
}

/// Polled by one task, the write first. A flush of the pipe is always ready.
#[test]
fn a_flush_that_is_ready_leaves_a_write_that_waits() {
    run(|timer, _| async move {
        let (mut stream, _peer) = pipe(&timer);
        stream.write_all(b"full").await.unwrap();
        stream.set_write_timeout(Some(SECOND * 5));
        let both = poll_fn(|context| {
            let written = Pin::new(&mut stream).poll_write(context, b"more");
            assert!(Pin::new(&mut stream).poll_flush(context).is_ready());
            written
        });
        let (took, written) = timed(&timer, timer.timeout(SECOND * 60, both)).await;
        let ended = (took, given_up(written.unwrap()));
        assert_eq!(ended, (SECOND * 5, StreamError::Elapsed(Limit::Write)));
    });
}

#[test]
fn a_write_that_was_dropped_in_its_wait_leaves_reads_their_time() {
    run(|timer, _| async move {
        let (mut stream, _peer) = pipe(&timer);
        stream.write_all(b"full").await.unwrap();
        stream.set_idle_timeout(Some(SECOND * 10));
        timer.timeout(SECOND, stream.write_u8(0)).await.unwrap_err();
        for _ in 0..2 {
            let (took, read) = timed(&timer, stream.read_u8()).await;
            assert_eq!((took, given_up(read)), (SECOND * 10, StreamError::Elapsed(Limit::Idle)));
        }
    });
}

#[test]
fn a_deadline_leaves_a_shutdown_that_need_not_wait() {
    run(|timer, _| async move {
        let mut stream = TimeoutStream::new(&timer, Stuck { shuts: true });
        stream.set_deadline(Some(timer.now()));
        let over = StreamError::Elapsed(Limit::Deadline);
        assert_eq!(given_up(stream.write_u8(0).await), over);
        assert_eq!(given_up(stream.flush().await), over);
        stream.shutdown().await.unwrap();
        let mut stream = TimeoutStream::new(&timer, Stuck { shuts: false });
        stream.set_deadline(Some(timer.now() + SECOND));
        assert_eq!(given_up(stream.shutdown().await), over);
    });
}

#[test]
fn an_earlier_limit_is_kept_beside_a_later_one() {
    run(|timer, _| async move {
        let (mut stream, _peer) = pipe(&timer);
        stream.set_idle_timeout(Some(SECOND * 100));
        let mut first = Box::pin(stream.read_u8());
        let waits = poll_fn(|context| Poll::Ready(first.as_mut().poll(context).is_pending()));
        assert!(waits.await);
        drop(first);
        // Armed for the hundredth second. The wait continues.
        stream.set_read_timeout(Some(SECOND * 20));
        let (took, read) = timed(&timer, stream.read_u8()).await;
        assert_eq!((took, given_up(read)), (SECOND * 20, StreamError::Elapsed(Limit::Read)));
        stream.set_read_timeout(None);
        assert_eq!(timed(&timer, stream.read_u8()).await.0, SECOND * 100);
    });
}

#[test]
fn a_read_that_was_dropped_in_its_wait_goes_on() {
    run(|timer, _| async move {
        let (mut stream, _peer) = pipe(&timer);
        stream.set_read_timeout(Some(SECOND * 10));
        for _ in 0..2 {
            let (took, _) = timed(&timer, timer.timeout(SECOND * 4, stream.read_u8())).await;
            assert_eq!(took, SECOND * 4);
        }
        let (took, read) = timed(&timer, stream.read_u8()).await;
        assert_eq!((took, given_up(read)), (SECOND * 2, StreamError::Elapsed(Limit::Read)));
    });
}

/// A read that lost a `select!`, and another one after more than the limit.
#[test]
fn a_wait_that_was_dropped_leaves_the_next_read_its_time() {
    run(|timer, spawner| async move {
        let (stream, mut peer) = pipe(&timer);
        let mut stream = stream.with_read_timeout(SECOND * 10);
        for byte in 0..3 {
            timer.timeout(SECOND, stream.read_u8()).await.unwrap_err();
            timer.sleep(SECOND * 30).await.unwrap();
            let later = timer.sleep(SECOND * 9);
            let sends = async move {
                later.await.unwrap();
                peer.write_u8(byte).await.unwrap();
                peer
            };
            let (sent, read) = tokio::join!(sends, stream.read_u8());
            peer = sent;
            assert_eq!(read.unwrap(), byte);
        }
        timer.timeout(SECOND, stream.read_u8()).await.unwrap_err();
        timer.sleep(SECOND * 30).await.unwrap();
        let (took, read) = timed(&timer, stream.read_u8()).await;
        assert_eq!((took, given_up(read)), (SECOND * 10, StreamError::Elapsed(Limit::Read)));
        drop((peer, spawner));
    });
}

#[test]
fn a_wait_that_was_dropped_leaves_the_next_write_its_time() {
    run(|timer, _| async move {
        let (stream, mut peer) = pipe(&timer);
        let mut stream = stream.with_write_timeout(SECOND * 10);
        stream.write_all(b"full").await.unwrap();
        timer.timeout(SECOND, stream.write_u8(0)).await.unwrap_err();
        timer.sleep(SECOND * 30).await.unwrap();
        let later = timer.sleep(SECOND * 9);
        let reads = async {
            later.await.unwrap();
            peer.read_u8().await.unwrap()
        };
        let (read, written) = tokio::join!(reads, stream.write_u8(0));
        written.unwrap();
        assert_eq!(read, b'f');
    });
}

/// A task that is late repeatedly does not wait without end.
#[test]
fn a_wait_begins_anew_once_until_bytes_move() {
    run(|timer, _| async move {
        let (stream, mut peer) = pipe(&timer);
        let mut stream = stream.with_idle_timeout(SECOND * 10);
        for _ in 0..2 {
            timer.timeout(SECOND, stream.read_u8()).await.unwrap_err();
            timer.sleep(SECOND * 30).await.unwrap();
        }
        let (took, read) = timed(&timer, stream.read_u8()).await;
        assert_eq!((took, given_up(read)), (Duration::ZERO, StreamError::Elapsed(Limit::Idle)));
        peer.write_u8(1).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 1);
        timer.timeout(SECOND, stream.read_u8()).await.unwrap_err();
        timer.sleep(SECOND * 30).await.unwrap();
        assert_eq!(timed(&timer, stream.read_u8()).await.0, SECOND * 10);
    });
}

/// A clock that jumps over the limit does not count as a wait that was dropped.
#[tokio::test]
async fn a_leap_of_time_ends_a_read() {
    let mut time = Time::new();
    let (near, _far) = duplex(4);
    let mut stream = TimeoutStream::new(&time.timer, near).with_read_timeout(SECOND * 10);
    let read = tokio::spawn(async move { stream.read_u8().await });
    time.pass(SECOND * 3600).await;
    assert!(read.is_finished());
    assert_eq!(given_up(read.await.unwrap()), StreamError::Elapsed(Limit::Read));
    assert_eq!(time.armed(), 0);
}

/// A stream with a buffer of its own, as TLS has, that moves no bytes until it opens.
struct Buffered(Rc<Cell<bool>>);

impl smol::io::AsyncWrite for Buffered {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        if self.0.get() { Poll::Ready(Ok(1)) } else { Poll::Pending }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.get() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

/// A write is dropped in its wait. A flush waits and moves its bytes. A second write waits.
#[test]
fn a_flush_that_has_waited_ends_the_wait_of_a_write() {
    use smol::io::AsyncWriteExt;
    run(|timer, _| async move {
        let open = Rc::new(Cell::new(false));
        let mut stream = TimeoutStream::new(&timer, Buffered(Rc::clone(&open)));
        stream.set_write_timeout(Some(SECOND * 10));
        timer.timeout(SECOND * 4, stream.write(b"x")).await.unwrap_err();
        let mut flush = Box::pin(stream.flush());
        timer.timeout(SECOND * 4, &mut flush).await.unwrap_err();
        open.set(true);
        flush.await.unwrap();
        open.set(false);
        let (took, written) = timed(&timer, stream.write(b"y")).await;
        assert_eq!((took, given_up(written)), (SECOND * 10, StreamError::Elapsed(Limit::Write)));
    });
}

/// Runs a test of a stream whose handle another task has.
fn run_with_handle<A: Future<Output = ()> + 'static, F: Future>(
    elsewhere: impl FnOnce(Timer, StreamHandle) -> A,
    test: impl FnOnce(Timer, TimeoutStream<DuplexStream>) -> F,
) {
    run(|timer, spawner| async move {
        let (stream, _peer) = pipe(&timer);
        spawner.spawn(elsewhere(timer.share(), stream.handle()));
        test(timer, stream).await;
    });
}

#[test]
fn a_handle_moves_the_limits_of_a_read_that_waits() {
    let elsewhere = |timer: Timer, handle: StreamHandle| async move {
        timer.sleep(SECOND * 100).await.unwrap();
        handle.set_idle_timeout(Some(SECOND * 50));
        timer.sleep(SECOND * 40).await.unwrap();
        handle.set_read_timeout(Some(SECOND * 7)); // sooner than what it waits for
        timer.sleep(SECOND * 5).await.unwrap();
        handle.set_idle_timeout(None);
        handle.set_read_timeout(None);
        timer.sleep(SECOND * 500).await.unwrap();
        handle.set_deadline(Some(timer.now() + SECOND * 7));
    };
    run_with_handle(elsewhere, |timer, mut stream| async move {
        let (took, read) = timed(&timer, stream.read_u8()).await;
        assert_eq!((took, given_up(read)), (SECOND * 652, StreamError::Elapsed(Limit::Deadline)));
        assert_eq!(stream.deadline(), Some(timer.now()));
    });
}

#[test]
fn a_handle_ends_a_write_that_waits() {
    let elsewhere = |timer: Timer, handle: StreamHandle| async move {
        timer.sleep(SECOND * 100).await.unwrap();
        handle.set_write_timeout(Some(SECOND * 5));
    };
    run_with_handle(elsewhere, |timer, mut stream| async move {
        let (took, written) = timed(&timer, stream.write_all(b"too much")).await;
        assert_eq!((took, given_up(written)), (SECOND * 105, StreamError::Elapsed(Limit::Write)));
        assert_eq!(stream.write_timeout(), Some(SECOND * 5));
    });
}

/// A stream that is always ready reads the settings too.
#[test]
fn a_handle_ends_a_stream_that_never_waits() {
    run(|timer, _| async move {
        let mut endless = TimeoutStream::new(&timer, tokio::io::repeat(0));
        let handle = endless.handle();
        assert_eq!(endless.read_u8().await.unwrap(), 0);
        handle.set_deadline(Some(timer.now()));
        assert_eq!(given_up(endless.read_u8().await), StreamError::Elapsed(Limit::Deadline));
        handle.set_deadline(None);
        assert_eq!(endless.read_u8().await.unwrap(), 0);
    });
}

/// Two requests that overlap. The pause ends with the last of them.
#[test]
fn limits_count_from_the_end_of_the_last_pause() {
    let elsewhere = |timer: Timer, handle: StreamHandle| async move {
        timer.sleep(SECOND * 9).await.unwrap();
        let first = handle.pause();
        timer.sleep(SECOND * 50).await.unwrap();
        let second = handle.clone().pause();
        drop(first);
        timer.sleep(SECOND * 44).await.unwrap();
        drop(second);
    };
    run_with_handle(elsewhere, |timer, stream| async move {
        let mut stream = stream.with_read_timeout(SECOND * 20).with_idle_timeout(SECOND * 10);
        let (took, read) = timed(&timer, stream.read_u8()).await;
        let expected = SECOND * (9 + 50 + 44 + 10);
        assert_eq!((took, given_up(read)), (expected, StreamError::Elapsed(Limit::Idle)));
    });
}

#[test]
fn a_pause_leaves_the_deadline_and_a_stream_leaves_its_handles() {
    run(|timer, _| async move {
        let (stream, _peer) = pipe(&timer);
        let mut stream = stream.with_idle_timeout(SECOND);
        let handle = stream.handle();
        let paused = handle.pause();
        stream.set_deadline(Some(timer.now() + SECOND * 30));
        let (took, read) = timed(&timer, stream.read_u8()).await;
        assert_eq!((took, given_up(read)), (SECOND * 30, StreamError::Elapsed(Limit::Deadline)));
        stream.set_deadline(None);
        drop(paused);
        let (took, read) = timed(&timer, stream.read_u8()).await;
        assert_eq!((took, given_up(read)), (SECOND, StreamError::Elapsed(Limit::Idle)));
        drop(stream);
        handle.set_read_timeout(Some(SECOND));
        drop(handle.pause());
    });
}

/// Handles of a stream that was dropped do not keep a task that waited in it.
#[test]
fn a_handle_keeps_no_task() {
    run(|timer, _| async move {
        let task = Arc::new(Task);
        let (mut stream, peer) = pipe(&timer);
        let _handle = stream.handle();
        let waker = Waker::from(Arc::clone(&task));
        let mut byte = [0];
        let mut read = ReadBuf::new(&mut byte);
        let waits = Pin::new(&mut stream).poll_read(&mut Context::from_waker(&waker), &mut read);
        assert!(waits.is_pending());
        drop(waker);
        drop(stream);
        drop(peer);
        assert_eq!(Arc::strong_count(&task), 1);
    });
}

struct Task;

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn slices_are_passed_on_and_the_stream_comes_back() {
    fn is_unpin_and_send<T: Unpin + Send>(_: &T) {}
    run(|timer, _| async move {
        let (mut stream, mut peer) = pipe(&timer);
        is_unpin_and_send(&stream);
        stream.set_write_timeout(Some(SECOND));
        assert_eq!(stream.is_write_vectored(), stream.get_ref().is_write_vectored());
        assert!(stream.is_write_vectored());
        let slices = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
        assert_eq!(stream.write_vectored(&slices).await.unwrap(), 4);
        let mut near = stream.into_inner();
        let mut bytes = [0; 4];
        peer.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"abcd");
        peer.write_u8(1).await.unwrap();
        assert_eq!(near.read_u8().await.unwrap(), 1);
    });
}

#[test]
fn without_a_timer_only_what_would_wait_is_refused() {
    run(|timer, _| async move {
        let (mut stream, mut peer) = pipe(&timer);
        stream.set_read_timeout(Some(SECOND));
        peer.write_u8(1).await.unwrap();
        timer.shutdown();
        assert_eq!(stream.read_u8().await.unwrap(), 1);
        assert_eq!(given_up(stream.read_u8().await), StreamError::Refused(Refusal::Closed));
        stream.set_read_timeout(None);
        peer.write_u8(2).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 2);
    });
}

#[test]
fn the_traits_of_futures_io_are_the_same() {
    use smol::io::{AsyncReadExt, AsyncWriteExt};
    run(|timer, _| async move {
        let (near, far) = duplex(4);
        let (mut stream, mut peer) = (TimeoutStream::new(&timer, near.compat()), far.compat());
        stream.set_read_timeout(Some(SECOND));
        stream.set_write_timeout(Some(SECOND * 2));
        let (took, read) = timed(&timer, stream.read(&mut [0])).await;
        assert_eq!((took, given_up(read)), (SECOND, StreamError::Elapsed(Limit::Read)));
        stream.write_all(b"abcd").await.unwrap();
        let (took, written) = timed(&timer, stream.write(b"e")).await;
        assert_eq!((took, given_up(written)), (SECOND * 2, StreamError::Elapsed(Limit::Write)));
        stream.flush().await.unwrap();
        stream.close().await.unwrap();
        let mut all = Vec::new();
        peer.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"abcd");

        let mut memory = TimeoutStream::new(&timer, Whole);
        memory.set_deadline(Some(timer.now() + SECOND));
        let slices = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
        assert_eq!(memory.write_vectored(&slices).await.unwrap(), 4);
        let (mut first, mut rest) = ([0], [0; 3]);
        let mut slices = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut rest)];
        assert_eq!(memory.read_vectored(&mut slices).await.unwrap(), 4);
    });
}

/// A stream that moves all bytes that it is asked for, if they are in slices.
struct Whole;

impl smol::io::AsyncRead for Whole {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(0))
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }
}

impl smol::io::AsyncWrite for Whole {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(0))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
