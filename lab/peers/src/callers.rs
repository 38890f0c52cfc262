//! The callers of a system, each on a thread of its own and with timers of its own.

use crate::system::System;
use crate::workload::{Plan, Workload};
use std::mem::ManuallyDrop;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A step that all callers take at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Arms the timers of the plan.
    Insert,
    /// Makes the operations that are not measured.
    WarmUp,
    /// Makes the operations that are measured.
    Measured,
}

/// A caller, by the channels for its next step and for the end of a step.
struct Caller {
    steps: Sender<Step>,
    done: Receiver<()>,
}

/// All callers of a system.
pub(crate) struct Callers(Vec<Caller>);

impl Callers {
    /// Starts one caller for each plan.
    pub(crate) fn start<S: System>(workload: Workload, plans: &[Plan]) -> Self {
        let timers = plans.iter().map(|plan| plan.delays.len()).sum();
        let shared = S::start(timers);
        let start = |&plan: &Plan| {
            let ((steps, next_steps), (finished, done)) = (channel(), channel());
            let shared = shared.clone();
            spawn(move || {
                // Never dropped: the process ends with the measurement.
                let mut system = ManuallyDrop::new(S::caller(shared, plan.delays.len()));
                for step in next_steps {
                    operate(&mut *system, workload, plan, step);
                    finished.send(()).expect("`all` waits for it");
                }
            });
            Caller { steps, done }
        };
        Self(plans.iter().map(start).collect())
    }

    /// Lets all callers take a step at the same time and waits for the last one.
    ///
    /// # Panics
    ///
    /// Panics if a caller panicked.
    pub(crate) fn all(&self, step: Step) {
        for caller in &self.0 {
            caller.steps.send(step).expect("no caller panicked");
        }
        for caller in &self.0 {
            caller.done.recv().expect("no caller panicked");
        }
    }
}

fn operate<S: System>(system: &mut S, workload: Workload, plan: Plan, step: Step) {
    let moves = match step {
        Step::Insert => return system.insert(plan.delays),
        Step::WarmUp => plan.warm_up,
        Step::Measured => plan.moves,
    };
    match workload {
        Workload::CancelInsert => system.cancel_insert(moves),
        _ => system.reset(moves),
    }
}

#[allow(clippy::disallowed_methods, reason = "callers are threads")]
fn spawn(caller: impl FnOnce() + Send + 'static) {
    std::thread::spawn(caller);
}
