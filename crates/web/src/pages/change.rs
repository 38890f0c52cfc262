//! Changes of a timer that are asked first.

#![forbid(unsafe_code)]

use crate::failure::Failure;
use crate::forms::Form;
use crate::pages::query::{Asked, Timer, to};
use crate::view::frame::{Menu, Page};
use crate::view::parts::{Question, address, address_of};
use crate::visit::Visit;
use axum::response::{Html, Response};
use tourbillon_durable::Cancelled;
use tourbillon_durable::text::printable;

/// Asks whether to cancel a timer.
pub(super) async fn ask_to_cancel(
    visit: Visit,
    Asked(Timer { id }): Asked<Timer>,
) -> Result<Html<String>, Failure> {
    let timer = visit.site.timers.get(&id).await?;
    let timer = timer.ok_or_else(|| Failure::missing(format!("there is no timer {id:?}")))?;
    let name = printable(&id);
    let text = match timer.is_running() {
        true => {
            "The attempt that is running continues, but no other follows. The timer and its \
                 payload are then deleted. This cannot be undone."
        }
        false => "It will not be called again, and its payload is deleted. This cannot be undone.",
    };
    let question = Question {
        title: &format!("Cancel {name}?"),
        text,
        action: &address("cancel", &[("id", &id)]),
        fields: &[],
        yes: &format!("Cancel {name}"),
        no: &address_of(&id),
    };
    let page = Page { title: question.title, entry: Menu::Timers, is_live: false };
    Ok(Html(page.with(&visit, &question.ask(&visit)).into_string()))
}

/// Cancels a timer.
pub(super) async fn cancel(
    visit: Visit,
    Asked(Timer { id }): Asked<Timer>,
    _: Form,
) -> Result<Response, Failure> {
    match visit.site.timers.cancel(&id).await? {
        Cancelled::NotFound => Err(Failure::missing(format!("there is no timer {id:?}"))),
        Cancelled::Running => Ok(to(&address_of(&id))),
        _ => Ok(to("timers?done=cancelled")),
    }
}
