//! The list of dead letters, newest first, and what can be done with many of them.

#![forbid(unsafe_code)]

use crate::failure::Failure;
use crate::forms::Form;
use crate::pages::done::Done;
use crate::pages::query::{Asked, Listed, to};
use crate::read::letters::{Filter, page};
use crate::read::{self, BUDGET};
use crate::view::frame::{Menu, Page};
use crate::view::parts::{Question, address, hidden_token, labels, pager, pill, table, time};
use crate::visit::Visit;
use axum::response::{Html, IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;
use tourbillon_durable::text::{counted, grouped, printable};
use tourbillon_durable::{DeadLetter, DurableError, DurableTimers};

impl Listed {
    fn letters(&self) -> Result<Filter, Failure> {
        let (from, until) = self.range()?;
        Ok(Filter { prefix: self.q.clone(), label: self.label()?, from, until })
    }
}

/// Shows a page of dead letters.
pub(super) async fn show(
    visit: Visit,
    Asked(listed): Asked<Listed>,
) -> Result<Html<String>, Failure> {
    let filter = listed.letters()?;
    let place = listed.place(|text| text.parse().ok())?;
    let found = page(&visit.site.timers, &filter, place).await?;
    let all = visit.site.timers.dead_len().await?;
    Ok(Html(view(&visit, &listed, &found, all).into_string()))
}

fn view(visit: &Visit, listed: &Listed, page: &read::Page<DeadLetter, u64>, all: u64) -> Markup {
    let to = |name: &str, number: Option<u64>| {
        let number = number?.to_string();
        Some(address("dead", &[&listed.filter()[..], &[(name, &*number)]].concat()))
    };
    let (before, after) = (to("before", page.before), to("after", page.after));
    let count = page.rows.len() as u64;
    let words = match listed.is_filtered() {
        _ if before.is_none() && after.is_none() => counted(count, "dead letter"),
        false => format!("{} of {}", grouped(count), counted(all.max(count), "dead letter")),
        true => format!("{} on this page", counted(count, "dead letter")),
    };
    let frame = Page { title: "Dead letters", entry: Menu::DeadLetters, is_live: true };
    frame.with(
        visit,
        &html! {
            div.title { h1 { "Dead letters" } }
            @if let Some((deed, done)) = parse_done(&listed.done) {
                p.banner.is-done role="status" { (deed.report(done)) }
            }
            (listed.form("dead", "Died"))
            @if page.rows.is_empty() && !page.is_cut {
                (nothing(listed))
            } @else if !page.rows.is_empty() {
                form method="post" action=(address("letters", &listed.filter())) {
                    (hidden_token(visit))
                    section.card.list { (letters(visit, &page.rows)) }
                    @if visit.rights.can_operate() { (buttons(listed)) }
                }
            }
            @if page.is_cut {
                p.quiet {
                    "The search for this page stopped after " (grouped(BUDGET as u64)) " dead \
                     letters. There may be more."
                }
            }
            (pager(&words, &address("dead", &listed.filter()), before.as_deref(), after.as_deref()))
        },
    )
}

fn nothing(listed: &Listed) -> Markup {
    html! {
        section.empty {
            @if listed.is_filtered() {
                h2 { "Nothing found" }
                p { "No dead letter matches this filter." }
            } @else {
                h2 { "No dead letters" }
                p {
                    "A timer that is given up becomes a dead letter, which keeps its payload and \
                     its last error. Once you have fixed the cause, redrive it here to call it \
                     again."
                }
            }
        }
    }
}

/// The letters, each with a box to select it if the visitor may change letters.
fn letters(visit: &Visit, letters: &[DeadLetter]) -> Markup {
    let can_select = visit.rights.can_operate();
    let row = |letter: &DeadLetter| {
        let (name, number) = (printable(&letter.id), letter.number.to_string());
        let select = html! {
            label.select {
                input type="checkbox" name="number" value=(number);
                span.unseen { "Select " (name) }
            }
        };
        let mut cells = vec![
            html! {
                a.id href={ "letter?number=" (number) } { (name) }
                span.quiet.summary { (printable(&visit.describe(&letter.payload).summary)) }
                (labels("dead", &letter.options))
                @if !letter.error.is_empty() { span.error.is-dead { (printable(&letter.error)) } }
            },
            time(visit, letter.died),
            html! { (letter.attempts) },
            pill("is-dead", letter.reason.name()),
        ];
        if can_select {
            cells.insert(0, select);
        }
        cells
    };
    let rows: Vec<_> = letters.iter().map(row).collect();
    let titles = ["Select", "Timer", "Died", "Attempts", "Reason"];
    table("Dead letters, newest first", &titles[usize::from(!can_select)..], &rows)
}

fn buttons(listed: &Listed) -> Markup {
    let (redrive, delete) = match listed.is_filtered() {
        true => ("Redrive all matches…", "Delete all matches…"),
        false => ("Redrive all…", "Delete all…"),
    };
    html! {
        div.answers {
            button.primary name="do" value="redrive" { "Redrive selected" }
            button.danger name="do" value="delete" { "Delete selected…" }
            span.gap {}
            button name="do" value="redrive-all" { (redrive) }
            button name="do" value="delete-all" { (delete) }
        }
    }
}

/// What is done with dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Redrive,
    Delete,
}

impl Deed {
    fn verb(self) -> &'static str {
        match self {
            Self::Redrive => "Redrive",
            Self::Delete => "Delete",
        }
    }

    /// Returns the name that forms have for a change of all letters of a filter.
    fn to_all(self) -> &'static str {
        match self {
            Self::Redrive => "redrive-all",
            Self::Delete => "delete-all",
        }
    }

    /// Returns what has been done, as a sentence.
    fn report(self, Done { changed, left }: Done) -> String {
        let done = counted(changed, "dead letter");
        let done = match self {
            Self::Redrive => format!("Redrove {done}."),
            Self::Delete => format!("Deleted {done}."),
        };
        match left {
            0 => done,
            left => format!(
                "{done} {} could not be redriven, because a timer with the same id exists.",
                counted(left, "dead letter")
            ),
        }
    }

    async fn change(
        self,
        timers: &DurableTimers,
        letter: u64,
        done: &mut Done,
    ) -> Result<(), DurableError> {
        let changed = match self {
            Self::Redrive => timers.redrive(letter).await,
            Self::Delete => timers.delete_dead_letter(letter).await,
        };
        match changed {
            Ok(changed) => done.changed += u64::from(changed),
            // A timer with the id of the letter exists.
            Err(DurableError::Exists) => done.left += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Parses the outcome of a change.
fn parse_done(text: &str) -> Option<(Deed, Done)> {
    let (verb, done) = Done::parse(text)?;
    let deed = [Deed::Redrive, Deed::Delete].into_iter().find(|deed| deed.verb() == verb)?;
    Some((deed, done))
}

/// Redrives or deletes the selected letters, or all letters of a filter. Asks first if that cannot
/// be undone.
pub(super) async fn change(
    visit: Visit,
    Asked(listed): Asked<Listed>,
    form: Form,
) -> Result<Response, Failure> {
    let is_sure = form.get("sure").is_some();
    match form.get("do").unwrap_or_default() {
        "redrive" => change_selected(&visit, Deed::Redrive, &form).await,
        "delete" if is_sure => change_selected(&visit, Deed::Delete, &form).await,
        "delete" => ask_to_delete(&visit, &form),
        "redrive-all" if is_sure => change_all(&visit, Deed::Redrive, &listed, &form).await,
        "delete-all" if is_sure => change_all(&visit, Deed::Delete, &listed, &form).await,
        "redrive-all" => ask_for_all(&visit, Deed::Redrive, &listed).await,
        "delete-all" => ask_for_all(&visit, Deed::Delete, &listed).await,
        _ => Err(Failure::invalid("do: expected redrive, delete, redrive-all or delete-all")),
    }
}

/// Returns the numbers of the selected letters.
fn selected(form: &Form) -> Result<Vec<u64>, Failure> {
    let numbers: Result<Vec<u64>, _> = form.all("number").map(str::parse).collect();
    match numbers {
        Ok(numbers) if !numbers.is_empty() => Ok(numbers),
        _ => Err(Failure::invalid("no dead letter is selected: go back and select one or more")),
    }
}

async fn change_selected(visit: &Visit, deed: Deed, form: &Form) -> Result<Response, Failure> {
    let (numbers, timers) = (selected(form)?, &visit.site.timers);
    let only = match &numbers[..] {
        [number] if deed == Deed::Redrive => timers.dead_letter(*number).await?,
        _ => None,
    };
    let mut done = Done::default();
    for number in numbers {
        deed.change(timers, number, &mut done).await?;
    }
    match only {
        Some(letter) if done.changed == 1 => {
            Ok(to(&address("timer", &[("id", &letter.id), ("done", "redriven")])))
        }
        _ => Ok(to(&address("dead", &[("done", &done.show(deed.verb()))]))),
    }
}

fn ask_to_delete(visit: &Visit, form: &Form) -> Result<Response, Failure> {
    let numbers: Vec<String> = selected(form)?.iter().map(u64::to_string).collect();
    let mut fields = vec![("do", "delete"), ("sure", "yes")];
    fields.extend(numbers.iter().map(|number| ("number", &**number)));
    let letters = counted(numbers.len() as u64, "dead letter");
    let question = Question {
        title: &format!("Delete {letters}?"),
        text: html! {
            "Their payloads and errors are deleted with them, and they can no longer be redriven. \
             This cannot be undone."
        },
        action: "letters",
        fields: &fields,
        yes: &format!("Delete {letters}"),
        is_final: true,
        no: form.back().unwrap_or("dead"),
    };
    Ok(asked(visit, &question))
}

fn asked(visit: &Visit, question: &Question<'_>) -> Response {
    let page = Page { title: question.title, entry: Menu::DeadLetters, is_live: false };
    Html(page.with(visit, &question.ask(visit)).into_string()).into_response()
}

/// Asks whether to change all letters of a filter that have died so far.
async fn ask_for_all(visit: &Visit, deed: Deed, listed: &Listed) -> Result<Response, Failure> {
    let newest = visit.site.timers.newest_dead_letters(None, 1).await?;
    let Some(newest) = newest.first() else { return Ok(to("dead")) };
    let all = match listed.letters()?.is_all() {
        true => format!("all {}", counted(visit.site.timers.dead_len().await?, "dead letter")),
        false => "all dead letters that match the filter".to_owned(),
    };
    let text = match deed {
        Deed::Redrive => {
            "Each timer becomes due at once, gets all its attempts again, and leaves this list."
        }
        Deed::Delete => "Their payloads and errors are deleted with them. This cannot be undone.",
    };
    let end = newest.number.saturating_add(1).to_string();
    Ok(ask_to_go_on(visit, deed, listed, (&format!("{} {all}?", deed.verb()), text), &end))
}

/// The rest of a change of all letters of a filter.
#[derive(Deserialize)]
pub(super) struct Rest {
    end: u64,
}

/// Asks whether to go on with a change of all letters of a filter.
pub(super) async fn ask_for_rest(
    visit: Visit,
    Asked(listed): Asked<Listed>,
    Asked(Rest { end }): Asked<Rest>,
) -> Result<Response, Failure> {
    let (deed, done) = parse_done(&listed.done)
        .ok_or_else(|| Failure::invalid("done: expected the outcome of a change"))?;
    let searched = counted(BUDGET as u64, "dead letter");
    let text =
        format!("{} Searched {searched}. Older dead letters were not searched.", deed.report(done));
    Ok(ask_to_go_on(&visit, deed, &listed, ("Continue?", &text), &end.to_string()))
}

fn ask_to_go_on(
    visit: &Visit,
    deed: Deed,
    listed: &Listed,
    (title, text): (&str, &str),
    end: &str,
) -> Response {
    let question = Question {
        title,
        text: html! { (text) },
        action: &address("letters", &listed.filter()),
        fields: &[("do", deed.to_all()), ("sure", "yes"), ("end", end)],
        yes: &format!("{} them", deed.verb()),
        is_final: deed == Deed::Delete,
        no: &address("dead", &listed.filter()),
    };
    asked(visit, &question)
}

/// Changes the letters of a filter from a number on, newest first. Letters that die meanwhile have
/// greater numbers. A request looks through a bounded number of letters, and then leads to the
/// question whether to go on.
async fn change_all(
    visit: &Visit,
    deed: Deed,
    listed: &Listed,
    form: &Form,
) -> Result<Response, Failure> {
    let (timers, filter) = (&visit.site.timers, listed.letters()?);
    let end = form.get("end").and_then(|end| end.parse().ok());
    let mut end: u64 = end.ok_or_else(|| Failure::invalid("end: expected a number"))?;
    let (mut done, mut read) = (Done::default(), 0);
    while read < BUDGET {
        let letters = filter.older(timers, Some(end)).await?;
        let Some(last) = letters.last() else {
            return Ok(to(&address("dead", &[("done", &done.show(deed.verb()))])));
        };
        (end, read) = (last.number, read + letters.len());
        for letter in letters.iter().filter(|letter| filter.keeps(letter)) {
            deed.change(timers, letter.number, &mut done).await?;
        }
    }
    // The address has the outcome so far, as it has the whole outcome at the end.
    let (end, done) = (end.to_string(), done.show(deed.verb()));
    let rest = [("end", &*end), ("done", &*done)];
    Ok(to(&address("letters", &[&listed.filter()[..], &rest].concat())))
}
