//! Small parts of pages: addresses, times, buttons, tables.

#![forbid(unsafe_code)]

use crate::forms::{BACK, FIELD};
use crate::text::{clock, relative, utc};
use crate::visit::Visit;
use maud::{Markup, html};
use std::time::SystemTime;
use tourbillon_durable::text::{printable, show_time};
use tourbillon_durable::{Label, Options};

/// Returns an address with a query. Values that are empty are left out.
pub(crate) fn address(path: &str, query: &[(&str, &str)]) -> String {
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    pairs.extend_pairs(query.iter().filter(|(_, value)| !value.is_empty()));
    match pairs.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

/// Returns the address of the page of a timer.
pub(crate) fn address_of(id: &str) -> String {
    address("timer", &[("id", id)])
}

/// A time as its distance from now.
pub(crate) fn time(visit: &Visit, time: SystemTime) -> Markup {
    html! {
        time datetime=(show_time(time)) title=(utc(time)) data-shown="relative" {
            (relative(time, visit.now))
        }
    }
}

/// A time as its distance from now, and as a date.
pub(crate) fn moment(visit: &Visit, at: SystemTime) -> Markup {
    html! {
        (time(visit, at)) " "
        time.quiet datetime=(show_time(at)) data-shown="date" { (utc(at)) }
    }
}

/// A time of the day.
pub(crate) fn hour(at: SystemTime) -> Markup {
    html! { time datetime=(show_time(at)) title=(utc(at)) data-shown="clock" { (clock(at)) } }
}

/// A link to the page of a timer.
pub(crate) fn link(id: &str) -> Markup {
    html! { a.id href=(address_of(id)) { (printable(id)) } }
}

/// The labels of a timer. Each leads to the rows of a list that have it.
pub(crate) fn labels(list: &str, options: &Options) -> Markup {
    let to = |label: &Label| address(list, &[("label", label.as_str())]);
    html! {
        @if options.get_labels().next().is_some() {
            ul.labels aria-label="Labels" {
                @for label in options.get_labels() {
                    li { a.label href=(to(label)) { (printable(label.as_str())) } }
                }
            }
        }
    }
}

/// A state or an outcome, in a colour.
pub(crate) fn pill(colour: &str, text: &str) -> Markup {
    html! { span class={ "pill " (colour) } { (text) } }
}

/// The token of a form, and the page that it leads back to.
pub(crate) fn hidden_token(visit: &Visit) -> Markup {
    html! {
        @if let Some(token) = &visit.token {
            input type="hidden" name=(FIELD) value=(token.text());
        }
        input type="hidden" name=(BACK) value=(visit.address);
    }
}

/// A button in its own form, such as *Pause* of `order 7`.
pub(crate) fn button(visit: &Visit, action: &str, verb: &str, of: &str) -> Markup {
    html! {
        form method="post" action=(action) {
            (hidden_token(visit))
            button aria-label={ (verb) " " (printable(of)) } { (verb) }
        }
    }
}

/// A link to the question before a change of a timer, such as *Run now…* of `order 7`.
pub(crate) fn question(colour: &str, path: &str, verb: &str, id: &str) -> Markup {
    html! {
        a class={ "button " (colour) } href=(address(path, &[("id", id)])) aria-label={ (verb) " " (printable(id)) "…" } {
            (verb) "…"
        }
    }
}

/// The field for the time zone of other fields. The script fills in the reader's zone if `is_free`.
pub(crate) fn zone_field(zone: &str, is_free: bool) -> Markup {
    html! {
        label {
            span { "In the time zone" }
            input name="zone" value=(zone) data-zone[is_free];
        }
    }
}

/// The title of a column of buttons, which is not shown.
pub(crate) const ACTIONS: &str = "Actions";

/// A table. On a phone, each row becomes a block and each cell a line with its title, so the roles
/// that the elements lose by that are stated.
pub(crate) fn table(caption: &str, titles: &[&str], rows: &[Vec<Markup>]) -> Markup {
    let class = |title: &str| (title == ACTIONS).then_some("actions");
    html! {
        table role="table" {
            caption { (caption) }
            thead role="rowgroup" {
                tr role="row" { @for title in titles {
                    th role="columnheader" scope="col" class=[class(title)] data-title=(title) {
                        span class=[(*title == ACTIONS).then_some("unseen")] { (title) }
                    }
                } }
            }
            tbody role="rowgroup" { @for row in rows {
                tr role="row" { @for (title, cell) in titles.iter().zip(row) {
                    td role="cell" class=[class(title)] data-title=(title) { (cell) }
                } }
            } }
        }
    }
}

/// The links to the pages before and after a page of a list.
pub(crate) fn pager(shown: &str, first: &str, before: Option<&str>, after: Option<&str>) -> Markup {
    let link = |address: Option<&str>, relation: &str, text: &str| {
        html! { @if let Some(address) = address { a.button href=(address) rel=(relation) { (text) } } }
    };
    html! {
        nav.pager aria-label="Pagination" {
            p.quiet { (shown) }
            @if before.is_some() { a.button href=(first) { "First page" } }
            (link(before, "prev", "Previous"))
            (link(after, "next", "Next"))
        }
    }
}

/// A page that asks before something that cannot be undone.
pub(crate) struct Question<'a> {
    pub(crate) title: &'a str,
    pub(crate) text: Markup,
    pub(crate) action: &'a str,
    pub(crate) fields: &'a [(&'a str, &'a str)],
    /// The text of the button.
    pub(crate) yes: &'a str,
    /// `true` if something is lost.
    pub(crate) is_final: bool,
    /// The address of the page to go back to.
    pub(crate) no: &'a str,
}

impl Question<'_> {
    pub(crate) fn ask(&self, visit: &Visit) -> Markup {
        html! {
            div.message {
                h1 { (self.title) }
                p { (self.text) }
                form.answers method="post" action=(self.action) {
                    (hidden_token(visit))
                    @for (name, value) in self.fields {
                        input type="hidden" name=(name) value=(value);
                    }
                    button class=(if self.is_final { "danger" } else { "primary" }) { (self.yes) }
                    a.button href=(self.no) { "Back" }
                }
            }
        }
    }
}
