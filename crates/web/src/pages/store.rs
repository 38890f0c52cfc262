//! Pausing and resuming timers, and the whole store.

#![forbid(unsafe_code)]

use crate::failure::Failure;
use crate::forms::Form;
use crate::pages::query::{Asked, to};
use crate::view::frame::{Menu, Page};
use crate::view::parts::{Question, address_of};
use crate::visit::Visit;
use axum::response::{Html, Response};
use maud::html;
use serde::Deserialize;
use tourbillon_durable::text::Switch;

/// The subject of a button. It is in the address and not in the form, because browsers change line
/// feeds in forms.
#[derive(Deserialize)]
pub(super) struct Subject {
    /// The timer, or `None` for the store.
    id: Option<String>,
}

/// Asks whether to pause the store.
pub(super) async fn ask_to_pause(visit: Visit) -> Html<String> {
    let question = Question {
        title: "Pause the store?",
        text: html! {
            "No worker begins an attempt until the store is resumed. Running attempts continue. \
             Timers that become due in the meantime are called late."
        },
        action: "pause",
        fields: &[],
        yes: "Pause the store",
        is_final: true,
        no: "overview",
    };
    let page = Page { title: question.title, entry: Menu::Overview, is_live: false };
    Html(page.with(&visit, &question.ask(&visit)).into_string())
}

/// Pauses a timer or the store.
pub(super) async fn pause(
    visit: Visit,
    subject: Asked<Subject>,
    form: Form,
) -> Result<Response, Failure> {
    switch(Switch::Pause, &visit, subject, &form).await
}

/// Resumes a timer or the store.
pub(super) async fn resume(
    visit: Visit,
    subject: Asked<Subject>,
    form: Form,
) -> Result<Response, Failure> {
    switch(Switch::Resume, &visit, subject, &form).await
}

async fn switch(
    switch: Switch,
    visit: &Visit,
    Asked(Subject { id }): Asked<Subject>,
    form: &Form,
) -> Result<Response, Failure> {
    let Some(id) = id else {
        switch.store(&visit.site.timers).await?;
        return Ok(to("overview"));
    };
    match switch.timer(&visit.site.timers, &id).await? {
        true => Ok(to(form.back().unwrap_or(&address_of(&id)))),
        false => Err(Failure::missing(format!("there is no timer {id:?}"))),
    }
}
