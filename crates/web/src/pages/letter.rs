//! The page of a dead letter.

#![forbid(unsafe_code)]

use crate::failure::Failure;
use crate::pages::query::Asked;
use crate::pages::timer::{latest, options, payload};
use crate::view::frame::{Menu, Page};
use crate::view::parts::{hidden_token, link, moment, pill};
use crate::view::runs::runs;
use crate::visit::Visit;
use axum::response::Html;
use maud::html;
use serde::Deserialize;
use tourbillon_durable::DeadReason;
use tourbillon_durable::text::printable;

#[derive(Deserialize)]
pub(super) struct Letter {
    number: u64,
}

/// Shows a dead letter and the runs of its timer.
pub(super) async fn show(
    visit: Visit,
    Asked(Letter { number }): Asked<Letter>,
) -> Result<Html<String>, Failure> {
    let found = visit.site.timers.dead_letter(number).await?;
    let missing = || Failure::missing(format!("there is no dead letter {number} any more"));
    let letter = found.ok_or_else(missing)?;
    let log = latest(&visit.site, &letter.id).await;
    let name = printable(&letter.id);
    let page = Page { title: &name, entry: Menu::DeadLetters, is_live: true };
    let main = html! {
        div.title {
            h1.id { (name) }
            (pill("is-dead", "dead"))
            @if visit.rights.can_operate() {
                form.answers method="post" action="letters" {
                    (hidden_token(&visit))
                    input type="hidden" name="number" value=(number);
                    button.primary name="do" value="redrive" aria-label={ "Redrive " (name) } { "Redrive" }
                    button.danger name="do" value="delete" aria-label={ "Delete " (name) "…" } { "Delete…" }
                }
            }
        }
        section.banner.is-dead {
            h2 { (reason(letter.reason)) }
            @if !letter.error.is_empty() { p { (printable(&letter.error)) } }
        }
        div.columns {
            section.card aria-labelledby="letter" {
                h2 #letter { "Dead letter " (number) }
                dl {
                    dt { "Timer" } dd { (link(&letter.id)) }
                    dt { "Died" } dd { (moment(&visit, letter.died)) }
                    dt { "Planned" } dd { (moment(&visit, letter.planned)) }
                    dt { "Attempts" } dd { (letter.attempts) " of " (letter.options.get_attempts()) }
                    (options(&letter.options, "dead"))
                }
            }
            (payload(&visit, &letter.payload, &letter.options))
        }
        (runs(&visit, log.as_deref()))
    };
    Ok(Html(page.with(&visit, &main).into_string()))
}

/// Returns the reason as a sentence.
fn reason(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::Attempts => "All attempts failed",
        DeadReason::Failed => "The handler gave up on it",
        DeadReason::Expired => "Its time to live passed before an attempt",
        DeadReason::Rule => "Its rule cannot be read",
        _ => "It was given up",
    }
}
