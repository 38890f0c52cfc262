//! [`Flows`]: the state of each flow, and its next segment.

use nix::sys::socket::SockaddrIn;
use std::time::{Duration, Instant};
use tourbillon_servers::datagrams::Datagram;
use tourbillon_servers::timers::{Batch, Records};

/// A flow.
#[derive(Debug)]
struct Flow<Id> {
    peer: SockaddrIn,
    /// The number of the segment that is not acknowledged yet.
    segment: u32,
    /// The microsecond when the segment was sent, or `None` if it has been repeated.
    sent: Option<u32>,
    /// Microseconds until it is repeated.
    timeout: u32,
    timer: Option<Id>,
}

/// The longest timeout.
const LONGEST: u32 = 60_000_000;

/// All flows, by their numbers.
#[derive(Debug)]
pub(crate) struct Flows<Id> {
    flows: Vec<Option<Flow<Id>>>,
    start: Instant,
    shortest: u32,
    repeated: u64,
}

/// Datagrams with the address of their receiver or their sender.
pub(crate) type Datagrams = Vec<(Datagram, SockaddrIn)>;

/// The timeout of a flow before its round trip is known, as a multiple of the shortest timeout.
const AT_FIRST: u32 = 4;

/// The greatest number of a flow.
const MAX_FLOWS: u32 = 1 << 26;

impl<Id> Flows<Id> {
    pub(crate) fn new(shortest: Duration) -> Self {
        let shortest = u32::try_from(shortest.as_micros()).unwrap_or(u32::MAX).min(LONGEST);
        Self { flows: Vec::new(), start: Instant::now(), shortest, repeated: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.iter().flatten().count()
    }

    /// The number of segments that were sent again.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// The microseconds since the start, which wrap after an hour.
    fn micros(&self, now: Instant) -> u32 {
        let micros = now.saturating_duration_since(self.start).as_micros() % (1 << 32);
        u32::try_from(micros).unwrap_or(u32::MAX)
    }

    /// Answers acknowledgements with the next segments.
    pub(crate) fn advance<B: Batch<u32, Id = Id>>(
        &mut self,
        timers: &mut B,
        received: &mut Datagrams,
        segments: &mut Datagrams,
    ) {
        for (datagram, _) in &*received {
            if let Some(timer) = self.timer(&datagram.flow) {
                timers.prefetch(timer);
            }
        }
        let now = self.micros(timers.now());
        for (Datagram { flow: number, segment, .. }, peer) in received.drain(..) {
            if number >= MAX_FLOWS {
                continue;
            }
            let place = number as usize;
            if place >= self.flows.len() {
                self.flows.resize_with(place + 1, || None);
            }
            let shortest = self.shortest;
            let flow = self.flows[place].get_or_insert_with(|| Flow {
                peer,
                segment: 0,
                sent: None,
                timeout: shortest.saturating_mul(AT_FIRST),
                timer: None,
            });
            if segment != flow.segment {
                continue; // of a segment that was repeated
            }
            if let Some(sent) = flow.sent {
                let round_trip = now.wrapping_sub(sent);
                flow.timeout = round_trip.saturating_add(round_trip / 2).clamp(shortest, LONGEST);
            }
            flow.segment += 1;
            flow.sent = Some(now);
            let timeout = flow.timeout;
            let delay = Duration::from_micros(timeout.into());
            match &mut flow.timer {
                Some(timer) => {
                    let reset = timers.reset(timer, &number, delay);
                    assert!(reset, "the timer of flow {number} ended without an expiry");
                }
                timer => *timer = Some(timers.arm(number, delay)),
            }
            segments.push((Datagram { flow: number, segment: flow.segment, timeout }, flow.peer));
        }
    }

    /// Repeats the segments of these flows, whose timers have expired.
    pub(crate) fn repeat<B: Batch<u32, Id = Id>>(
        &mut self,
        timers: &mut B,
        due: &mut Vec<u32>,
        segments: &mut Datagrams,
    ) {
        self.repeated += due.len() as u64;
        for number in due.drain(..) {
            let flow = self.flows[number as usize].as_mut().expect("its timer was armed");
            flow.sent = None;
            // Doubled, so that a network that is too slow gets fewer repetitions.
            flow.timeout = flow.timeout.saturating_mul(2).min(LONGEST);
            flow.timer = Some(timers.arm(number, Duration::from_micros(flow.timeout.into())));
            let segment = Datagram { flow: number, segment: flow.segment, timeout: flow.timeout };
            segments.push((segment, flow.peer));
        }
    }

    /// Cancels all timers, and returns the number of those that were not armed.
    pub(crate) fn close<B: Batch<u32, Id = Id>>(&mut self, timers: &mut B) -> usize {
        let open = self.flows.iter_mut().flatten();
        let armed = |flow: &mut Flow<Id>| flow.timer.take().is_some_and(|id| timers.cancel(id));
        open.map(armed).filter(|armed| !armed).count()
    }
}

impl<Id> Records<u32, Id> for Flows<Id> {
    fn timer(&mut self, number: &u32) -> Option<&mut Id> {
        self.flows.get_mut(*number as usize)?.as_mut()?.timer.as_mut()
    }
}
