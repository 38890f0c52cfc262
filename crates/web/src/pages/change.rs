//! Changes of a timer that are asked first: a run, a move and a cancel.

#![forbid(unsafe_code)]

use crate::failure::Failure;
use crate::forms::Form;
use crate::pages::query::{Asked, Timer, to};
use crate::text::ZONE;
use crate::view::frame::{Menu, Page};
use crate::view::parts::{Question, address, address_of, hidden_token, moment, time, zone_field};
use crate::visit::Visit;
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use maud::{Markup, html};
use tourbillon_durable::text::{NewTime, SettingsError, printable};
use tourbillon_durable::{Cancelled, DurableError, DurableTimer, TimerState};

/// Returns a timer.
async fn find(visit: &Visit, id: &str) -> Result<DurableTimer, Failure> {
    visit.site.timers.get(id).await?.ok_or_else(|| missing(id))
}

/// Returns a timer of which no attempt is running.
async fn find_waiting(visit: &Visit, id: &str) -> Result<DurableTimer, Failure> {
    let timer = find(visit, id).await?;
    match timer.is_running() {
        true => Err(refused(DurableError::Running, id)),
        false => Ok(timer),
    }
}

fn missing(id: &str) -> Failure {
    Failure::missing(format!("there is no timer {id:?}"))
}

/// Returns the failure of a change, which leads back to the timer.
fn refused(error: DurableError, id: &str) -> Failure {
    Failure::from(error).back_to(address_of(id), "Go to the timer")
}

/// Shows a question or a form about a timer.
fn page(visit: &Visit, title: &str, main: &Markup) -> Html<String> {
    let page = Page { title, entry: Menu::Timers, is_live: false };
    Html(page.with(visit, main).into_string())
}

/// Asks whether to run a timer now.
pub(super) async fn ask_to_run(
    visit: Visit,
    Asked(Timer { id, .. }): Asked<Timer>,
) -> Result<Html<String>, Failure> {
    let timer = find_waiting(&visit, &id).await?;
    let name = printable(&id);
    let text = html! {
        (effect_of_run(&visit, &timer))
        " A call that has begun cannot be taken back."
        @if visit.site.timers.is_paused().await? {
            " The store is paused, so the attempt begins when it is resumed."
        }
    };
    let question = Question {
        title: &format!("Run {name} now?"),
        text,
        action: &address("run", &[("id", &id)]),
        fields: &[],
        yes: &format!("Run {name} now"),
        is_final: false,
        no: &address_of(&id),
    };
    Ok(page(&visit, question.title, &question.ask(&visit)))
}

/// Says what a run does to a timer in its state.
fn effect_of_run(visit: &Visit, timer: &DurableTimer) -> Markup {
    html! {
        @match timer.state {
            TimerState::Paused => "It is called once, and stays paused.",
            TimerState::Retrying => {
                "Its next attempt (" (timer.attempts + 1) " of " (timer.options.get_attempts())
                ") begins now. It is due " (time(visit, timer.due)) "."
            }
            _ if timer.options.get_rule().is_some() => {
                "It is called once more. Its plan stays as it is, and its next planned call is due "
                (time(visit, timer.next.unwrap_or(timer.due))) "."
            }
            _ if timer.due <= visit.now => "It is due already, and is called as soon as a worker is free.",
            _ => { "It is called now instead of " (time(visit, timer.due)) "." }
        }
    }
}

/// Runs a timer now.
pub(super) async fn run(
    visit: Visit,
    Asked(Timer { id, .. }): Asked<Timer>,
    _: Form,
) -> Result<Response, Failure> {
    match visit.site.timers.run_now(&id).await {
        Ok(true) => Ok(to(&address("timer", &[("id", &id), ("done", "run")]))),
        Ok(false) => Err(missing(&id)),
        Err(error) => Err(refused(error, &id)),
    }
}

/// The new time of a timer, as the reader has filled it in.
#[derive(Default)]
struct Times<'a> {
    at: &'a str,
    zone: &'a str,
    after: &'a str,
}

impl Times<'_> {
    /// Returns the time, in the way of the API and the tool.
    fn given(&self) -> NewTime {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        NewTime {
            at: text(self.at).map(|at| format!("{at}[{}]", self.zone)),
            after: text(self.after),
        }
    }
}

/// Shows the form that moves a timer.
pub(super) async fn ask_to_move(
    visit: Visit,
    Asked(Timer { id, .. }): Asked<Timer>,
) -> Result<Html<String>, Failure> {
    let timer = find_waiting(&visit, &id).await?;
    Ok(form_of_move(&visit, &timer, &Times { zone: ZONE, ..Times::default() }, None))
}

/// Moves a timer, or shows the form again if it has no time that can be read.
pub(super) async fn move_to(
    visit: Visit,
    Asked(Timer { id, .. }): Asked<Timer>,
    form: Form,
) -> Result<Response, Failure> {
    let field = |name| form.get(name).unwrap_or_default().trim();
    let times = Times { at: field("at"), zone: field("zone"), after: field("after") };
    let when = match times.given().read() {
        Ok(when) => when,
        Err(error) => {
            let timer = find_waiting(&visit, &id).await?;
            let shown = form_of_move(&visit, &timer, &times, Some(&error));
            return Ok((StatusCode::BAD_REQUEST, shown).into_response());
        }
    };
    match visit.site.timers.reset(&id, when).await {
        Ok(true) => Ok(to(&address("timer", &[("id", &id), ("done", "moved")]))),
        Ok(false) => Err(missing(&id)),
        Err(error) => Err(refused(error, &id)),
    }
}

fn form_of_move(
    visit: &Visit,
    timer: &DurableTimer,
    times: &Times<'_>,
    wrong: Option<&SettingsError>,
) -> Html<String> {
    let title = format!("Move {}", printable(&timer.id));
    let main = html! {
        div.message {
            h1 { (title) }
            p { "It is due " (moment(visit, timer.due)) "." }
            p.quiet {
                "It is called at the new time only, with all its attempts."
                @if timer.options.get_rule().is_some() {
                    " This moves its next call, and the calls after it follow its rule."
                }
                @if timer.state == TimerState::Paused { " It stays paused." }
            }
            @if let Some(wrong) = wrong {
                p.banner.is-dead role="alert" { (printable(&wrong.to_string())) }
            }
            form.filter method="post" action=(address("move", &[("id", &timer.id)])) {
                (hidden_token(visit))
                label { span { "At" } input type="datetime-local" name="at" value=(times.at); }
                (zone_field(times.zone, times.zone == ZONE))
                label.line {
                    span { "Or after" }
                    input name="after" value=(times.after) placeholder="90s, 1h 30m or 7d";
                }
                div.answers {
                    button.primary { "Move it" }
                    a.button href=(address_of(&timer.id)) { "Back" }
                }
            }
        }
    };
    page(visit, &title, &main)
}

/// Asks whether to cancel a timer.
pub(super) async fn ask_to_cancel(
    visit: Visit,
    Asked(Timer { id, .. }): Asked<Timer>,
) -> Result<Html<String>, Failure> {
    let timer = find(&visit, &id).await?;
    let name = printable(&id);
    let text = html! {
        @if timer.is_running() {
            "The attempt that is running continues, but no other follows. The timer and its payload \
             are then deleted. This cannot be undone."
        } @else {
            "It will not be called again, and its payload is deleted. This cannot be undone."
        }
    };
    let question = Question {
        title: &format!("Cancel {name}?"),
        text,
        action: &address("cancel", &[("id", &id)]),
        fields: &[],
        yes: &format!("Cancel {name}"),
        is_final: true,
        no: &address_of(&id),
    };
    Ok(page(&visit, question.title, &question.ask(&visit)))
}

/// Cancels a timer.
pub(super) async fn cancel(
    visit: Visit,
    Asked(Timer { id, .. }): Asked<Timer>,
    _: Form,
) -> Result<Response, Failure> {
    match visit.site.timers.cancel(&id).await? {
        Cancelled::NotFound => Err(missing(&id)),
        Cancelled::Running => Ok(to(&address_of(&id))),
        _ => Ok(to("timers?done=cancelled")),
    }
}
