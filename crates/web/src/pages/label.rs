//! Changes of all timers with a label, each after a question.

#![forbid(unsafe_code)]

use crate::failure::Failure;
use crate::forms::Form;
use crate::pages::done::Done;
use crate::pages::query::{Asked, parse_label, to};
use crate::read::{BUDGET, STEP};
use crate::rights::Rights;
use crate::view::frame::{Menu, Page};
use crate::view::parts::{Question, address};
use crate::visit::Visit;
use axum::response::{Html, Response};
use maud::{Markup, html};
use serde::Deserialize;
use tourbillon_durable::text::{counted, printable};
use tourbillon_durable::{BulkChange, DurableError, DurableTimers, Label};

/// A change of all timers with a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Pause,
    Resume,
    Cancel,
}

/// The query that names a label. It is in the address and not in the form, because ids may contain
/// line feeds, which browsers change in forms.
#[derive(Deserialize)]
pub(super) struct Subject {
    label: String,
    /// Only timers with an id greater than this.
    after: Option<String>,
    /// The outcome so far.
    #[serde(default)]
    done: String,
}

impl Deed {
    const ALL: [Self; 3] = [Self::Pause, Self::Resume, Self::Cancel];

    fn verb(self) -> &'static str {
        match self {
            Self::Pause => "Pause",
            Self::Resume => "Resume",
            Self::Cancel => "Cancel",
        }
    }

    /// Returns the path of the question and of its form.
    fn path(self) -> &'static str {
        match self {
            Self::Pause => "pause-label",
            Self::Resume => "resume-label",
            Self::Cancel => "cancel-label",
        }
    }

    /// Returns the effect on each timer.
    fn effect(self) -> &'static str {
        match self {
            Self::Pause => {
                "Paused timers are not called until they are resumed. Running attempts continue."
            }
            Self::Resume => {
                "Overdue timers are called at once, unless their options skip late runs."
            }
            Self::Cancel => {
                "They will not be called again, and their payloads are deleted. Running attempts \
                 continue, but no others follow. This cannot be undone."
            }
        }
    }

    fn is_allowed(self, rights: Rights) -> bool {
        rights.can_operate() && (self != Self::Cancel || rights.can_schedule())
    }

    /// Returns the outcome as a sentence.
    fn report(self, Done { changed, left }: Done) -> String {
        let verb = match self {
            Self::Pause => "Paused",
            Self::Resume => "Resumed",
            Self::Cancel => "Cancelled",
        };
        let changed = format!("{verb} {}.", counted(changed, "timer"));
        match left {
            0 => changed,
            left => format!("{changed} {} cannot be read.", counted(left, "timer")),
        }
    }

    async fn change(
        self,
        timers: &DurableTimers,
        label: &Label,
        after: Option<&str>,
    ) -> Result<BulkChange, DurableError> {
        match self {
            Self::Pause => timers.pause_label(label, after, STEP).await,
            Self::Resume => timers.resume_label(label, after, STEP).await,
            Self::Cancel => timers.cancel_label(label, after, STEP).await,
        }
    }
}

/// The links to the questions before a change of all timers with a label.
pub(super) fn links(visit: &Visit, label: &Label) -> Markup {
    let to = |deed: Deed| address(deed.path(), &[("label", label.as_str())]);
    let deeds = Deed::ALL.into_iter().filter(|deed| deed.is_allowed(visit.rights));
    html! {
        div.answers {
            @for deed in deeds {
                a.button.danger[deed == Deed::Cancel] href=(to(deed)) { (deed.verb()) " all…" }
            }
        }
    }
}

/// Returns the outcome of a change, as a sentence, if an address has one.
pub(super) fn report(done: &str) -> Option<String> {
    let (verb, done) = Done::parse(done)?;
    let deed = Deed::ALL.into_iter().find(|deed| deed.verb() == verb)?;
    Some(deed.report(done))
}

/// Asks whether to change all timers with a label, or the rest of them.
pub(super) async fn ask(
    deed: Deed,
    visit: Visit,
    Asked(subject): Asked<Subject>,
) -> Result<Html<String>, Failure> {
    let label = parse_label(&subject.label)?;
    let count = visit.site.timers.label_len(&label).await?;
    let verb = deed.verb();
    let which = match &subject.after {
        None => format!("all {}", counted(count, "timer")),
        Some(_) => "the rest of the timers".to_owned(),
    };
    let title = format!("{verb} {which} with the label {}?", printable(label.as_str()));
    let text = html! {
        @if let Some(report) = report(&subject.done) { (report) " " }
        (deed.effect())
    };
    let query =
        [("label", label.as_str()), ("after", subject.after.as_deref().unwrap_or_default())];
    let question = Question {
        title: &title,
        text,
        action: &address(deed.path(), &query),
        fields: &[],
        yes: &format!("{verb} them"),
        is_final: deed == Deed::Cancel,
        no: &address("timers", &query[..1]),
    };
    let page = Page { title: question.title, entry: Menu::Timers, is_live: false };
    Ok(Html(page.with(&visit, &question.ask(&visit)).into_string()))
}

/// Changes the timers with a label in the order of their ids. A request changes a bounded number of
/// timers, and then leads to the question whether to go on.
pub(super) async fn change(
    deed: Deed,
    visit: Visit,
    Asked(subject): Asked<Subject>,
    _: Form,
) -> Result<Response, Failure> {
    let label = parse_label(&subject.label)?;
    let (mut after, mut done) = (subject.after, Done::default());
    for _ in 0..BUDGET / STEP {
        let page = deed.change(&visit.site.timers, &label, after.as_deref()).await?;
        done.changed += page.changed;
        done.left += page.unreadable;
        let Some(last) = page.last else {
            let query = [("label", label.as_str()), ("done", &*done.show(deed.verb()))];
            return Ok(to(&address("timers", &query)));
        };
        after = Some(last);
    }
    let after = after.unwrap_or_default();
    let done = done.show(deed.verb());
    Ok(to(&address(deed.path(), &[("label", label.as_str()), ("after", &after), ("done", &done)])))
}
