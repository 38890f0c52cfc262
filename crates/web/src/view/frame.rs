//! What all pages have in common: the head, the menu and the foot.

#![forbid(unsafe_code)]

use crate::failure::Failure;
use crate::site::TimersWeb;
use crate::view::parts::hidden_token;
use crate::visit::Visit;
use maud::{DOCTYPE, Markup, html};
use tourbillon_durable::text::printable;

/// The skeleton of a page.
pub(crate) struct Frame<'a> {
    pub(crate) site: &'a TimersWeb,
    /// The address of the root of the page, or an empty text beside the other pages.
    pub(crate) root: &'a str,
    pub(crate) title: &'a str,
}

impl Frame<'_> {
    /// Returns a page with this body.
    pub(crate) fn around(&self, body: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " – " (self.site.name) }
                    link rel="stylesheet" href={ (self.root) "style.css" };
                    @if self.site.has_script { script src={ (self.root) "script.js" } defer {} }
                }
                body { (body) }
            }
        }
    }

    /// The name of the site with its mark, a clock.
    pub(crate) fn brand(&self) -> Markup {
        html! {
            a.brand href={ (self.root) "overview" } {
                svg viewBox="0 0 24 24" aria-hidden="true" {
                    circle cx="12" cy="12" r="9" {}
                    path d="M12 7v5l3.5 2" {}
                }
                (self.site.name)
            }
        }
    }
}

/// The entries of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Menu<'a> {
    Overview,
    Timers,
    DeadLetters,
    /// The page of the host with this address.
    Host(&'a str),
    /// No entry, for an error.
    Nothing,
}

/// A page of the site.
pub(crate) struct Page<'a> {
    pub(crate) title: &'a str,
    /// The entry of the menu that the page belongs to.
    pub(crate) entry: Menu<'a>,
    /// `true` if the script may refresh the page.
    pub(crate) is_live: bool,
}

impl Page<'_> {
    /// Returns the page with this main part.
    pub(crate) fn with(&self, visit: &Visit, main: &Markup) -> Markup {
        let frame = Frame { site: &visit.site, root: "", title: self.title };
        frame.around(&html! {
            a.skip href="#main" { "Skip to content" }
            header.top {
                (frame.brand())
                nav aria-label="Pages" {
                    (self.link(Menu::Overview, "overview", "Overview"))
                    (self.link(Menu::Timers, "timers", "Timers"))
                    (self.link(Menu::DeadLetters, "dead", "Dead letters"))
                    @for (address, text) in &visit.site.links {
                        (self.link(Menu::Host(address), address, text))
                    }
                }
                form.search role="search" method="get" action="timers" {
                    label.unseen for="search" { "Timer id, or the beginning of one" }
                    input #search type="search" name="q" placeholder="Find by id…" autocomplete="off";
                    button.plain { "Find" }
                }
                @if let Some(address) = &visit.site.log_out {
                    form method="post" action=(address) {
                        (hidden_token(visit))
                        button.plain { "Log out" }
                    }
                }
            }
            @if let Some(trouble) = visit.site.trouble() {
                p.banner.is-dead role="alert" { (printable(&trouble)) }
            }
            main #main tabindex="-1" data-live[self.is_live] { (main) }
            footer {
                p #zone { "Times are in UTC." }
            }
        })
    }

    fn link(&self, entry: Menu<'_>, address: &str, text: &str) -> Markup {
        let current = (self.entry == entry).then_some("page");
        html! { a href=(address) aria-current=[current] { (text) } }
    }
}

/// An error.
pub(crate) fn failure(visit: &Visit, failure: &Failure) -> Markup {
    let (address, text) = &failure.back;
    let page = Page { title: failure.title(), entry: Menu::Nothing, is_live: false };
    page.with(
        visit,
        &html! {
            div.message {
                h1 { (failure.title()) }
                p role="alert" { (printable(&failure.detail)) }
                p { a.button href=(address) { (text) } }
            }
        },
    )
}
