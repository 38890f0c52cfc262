//! Loads a server with TCP connections. Few are busy, and the others become idle, or all of them
//! send a request now and then.

use crate::Failure;
use crate::busy::{Answers, Crew};
use crate::child::Child;
use crate::client::Target;
use crate::crowd::Crowd;
use crate::measure::{Load, Outcome, Window, joined};
use crate::protocol::Protocol;
use crate::servers::Habit;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

/// The number of threads of the busy clients.
const CREWS: usize = 2;

/// Loads the server, and stops it once all idle connections are closed.
pub(crate) fn load(
    child: Child,
    protocol: Protocol,
    habit: Habit,
    load: &Load,
) -> Result<Outcome, Failure> {
    let target = Target { address: child.address(), protocol };
    let crowd = match habit {
        Habit::Few => Crowd::new(target, load.idle, habit, load)?,
        Habit::Steady => Crowd::new(target, load.idle + load.busy, habit, load)?,
    };
    let (opened, all_open) = mpsc::channel();
    let (closings, mut answers, cpu) = thread::scope(|scope| {
        let crowd = scope.spawn(move || crowd.run(&opened));
        // It fails if the crowd has failed, and then joining the crowd returns the cause.
        let busy = all_open.recv().map(|window| match habit {
            Habit::Few => keep_busy(&child, target, load),
            Habit::Steady => Ok((Answers::none()?, window.cpu(&child)?)),
        });
        let closings = joined(crowd)?;
        let (answers, cpu) = busy.unwrap_or_else(|error| Err(error.into()))?;
        Ok::<_, Failure>((closings, answers, cpu))
    })?;
    answers.add(&closings.answers)?;
    Ok(Outcome {
        answers,
        cpu,
        early: closings.early,
        latest: closings.latest,
        lost: closings.lost,
        report: child.stop()?,
    })
}

/// Runs the busy clients, and returns their results with the CPU time that the server used
/// meanwhile.
fn keep_busy(child: &Child, target: Target, load: &Load) -> Result<(Answers, Duration), Failure> {
    let crews = CREWS.min(load.busy);
    let crews: Vec<_> = (0..crews)
        .map(|crew| {
            let first = |crew| load.idle + load.busy * crew / crews;
            Crew::connect(target, first(crew)..first(crew + 1))
        })
        .collect::<Result<_, _>>()?;
    let ready = Barrier::new(crews.len() + 1);
    thread::scope(|scope| {
        let ready = &ready;
        let start = |crew: Crew| {
            scope.spawn(move || {
                ready.wait();
                crew.run(load.window)
            })
        };
        let crews: Vec<_> = crews.into_iter().map(start).collect();
        ready.wait();
        let cpu = Window::after(Duration::ZERO, load.window).cpu(child)?;
        let mut answers = Answers::none()?;
        for crew in crews {
            answers.add(&joined(crew)?)?;
        }
        Ok((answers, cpu))
    })
}
