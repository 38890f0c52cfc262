//! The lists of timers by state, id and due time.

#![forbid(unsafe_code)]

use crate::failure::Failure;
use crate::pages::label;
use crate::pages::query::{Asked, Listed};
use crate::read::horizon::waits;
use crate::read::walk::{Order, Walk, is_by_id};
use crate::read::{self, BUDGET};
use crate::view::frame::{Menu, Page};
use crate::view::parts::{address, pager};
use crate::view::timers::timers;
use crate::visit::Visit;
use axum::response::Html;
use maud::{Markup, html};
use std::time::{Duration, SystemTime};
use tourbillon_durable::text::{counted, grouped, parse_position, show_position};
use tourbillon_durable::{DurableTimer, Label, ListPosition, Stats, TimerState};

/// The longest lease. A running timer is due at the end of its lease.
const LEASE: Duration = Duration::from_secs(86_400);

/// The timers that a list shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    All,
    Overdue,
    Running,
    Failing,
    Paused,
    Resting,
}

impl Shown {
    const ALL: [Self; 6] =
        [Self::All, Self::Overdue, Self::Running, Self::Failing, Self::Paused, Self::Resting];

    fn of(name: &str) -> Result<Self, Failure> {
        let found = Self::ALL.into_iter().find(|shown| shown.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name)[1..].join(", ");
            Failure::invalid(format!("show: expected one of {names}"))
        })
    }

    /// Returns the name in addresses.
    fn name(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Overdue => "overdue",
            Self::Running => "running",
            Self::Failing => "failing",
            Self::Paused => "paused",
            Self::Resting => "resting",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::All => "All timers",
            Self::Overdue => "Overdue timers",
            Self::Running => "Running timers",
            Self::Failing => "Failing timers",
            Self::Paused => "Paused timers",
            Self::Resting => "Resting timers",
        }
    }

    /// Returns the text of the tab.
    fn tab(self) -> &'static str {
        self.title().trim_end_matches(" timers")
    }

    /// Returns the number of these timers, unless the store does not count them.
    fn total(self, stats: &Stats) -> Option<u64> {
        match self {
            Self::All => Some(stats.timers),
            Self::Overdue => Some(stats.overdue),
            Self::Running => Some(stats.leased),
            Self::Failing => None,
            Self::Paused => Some(stats.paused),
            Self::Resting => Some(stats.resting),
        }
    }

    /// Returns the colour of the tab. A list without timers has none.
    fn colour(self, stats: &Stats) -> Option<&'static str> {
        let colour = match self {
            Self::Overdue => "is-late",
            Self::Running => "is-running",
            Self::Failing => "is-failing",
            Self::All | Self::Paused | Self::Resting => return None,
        };
        Some(colour).filter(|_| self.total(stats) != Some(0))
    }

    fn keeps(self, timer: &DurableTimer) -> bool {
        match self {
            Self::All => true,
            Self::Overdue => timer.state != TimerState::Paused,
            Self::Running => timer.is_running(),
            Self::Failing => timer.state == TimerState::Retrying,
            Self::Paused => timer.state == TimerState::Paused,
            Self::Resting => waits(timer),
        }
    }

    /// Returns what an empty list means.
    fn none(self) -> &'static str {
        match self {
            Self::All => "There are no timers.",
            Self::Overdue => "No timer is overdue. The workers are keeping up.",
            Self::Running => "No attempt is running at this moment.",
            Self::Failing => {
                "No timer is failing. A timer whose attempt has failed is listed here while it \
                 waits for the next attempt."
            }
            Self::Paused => {
                "No timer is paused. A paused timer is listed here until it is resumed."
            }
            Self::Resting => "No timer is resting.",
        }
    }
}

/// Shows a page of a list.
pub(super) async fn show(
    visit: Visit,
    Asked(listed): Asked<Listed>,
) -> Result<Html<String>, Failure> {
    let (shown, store) = (Shown::of(&listed.show)?, &visit.site.timers);
    let stats = store.stats().await?;
    let (mut from, mut until) = listed.range()?;
    match shown {
        Shown::Overdue => until = earlier(until, stats.now),
        Shown::Running => {
            from = Some(from.unwrap_or(stats.now).max(stats.now));
            until = earlier(until, stats.now + LEASE);
        }
        _ => {}
    }
    let label = listed.label()?;
    let is_in_order_of_ids = label.is_some()
        || !listed.q.is_empty() && stats.timers > BUDGET as u64 && is_by_id(store).await?;
    let order = match shown {
        _ if is_in_order_of_ids => Order::Ids(listed.q.clone(), label.clone()),
        Shown::Failing => Order::State(TimerState::Retrying),
        Shown::Paused => Order::State(TimerState::Paused),
        _ => Order::Due,
    };
    let is_in_range = |timer: &DurableTimer| {
        from.is_none_or(|from| timer.due >= from) && until.is_none_or(|until| timer.due < until)
    };
    let keep = |timer: &DurableTimer| {
        shown.keeps(timer) && timer.id.starts_with(&listed.q) && is_in_range(timer)
    };
    let walk = Walk { timers: store, order, from, until, keep: &keep };
    let page = walk.page(listed.place(|text| parse_position(text).ok())?).await?;
    let label = label.as_ref().filter(|_| listed.has_only_label());
    let total = match label {
        Some(label) => Some(store.label_len(label).await?),
        None => shown.total(&stats).filter(|_| !listed.is_filtered()),
    };
    let list = List { shown, listed: &listed, stats: &stats, total, label };
    Ok(Html(list.view(&visit, &page).into_string()))
}

fn earlier(time: Option<SystemTime>, limit: SystemTime) -> Option<SystemTime> {
    Some(time.unwrap_or(limit).min(limit))
}

/// A list to show.
struct List<'a> {
    shown: Shown,
    listed: &'a Listed,
    stats: &'a Stats,
    /// The number of timers on all pages, if it is known.
    total: Option<u64>,
    /// The label, if the list has all of its timers.
    label: Option<&'a Label>,
}

impl List<'_> {
    fn view(&self, visit: &Visit, page: &read::Page<DurableTimer, ListPosition>) -> Markup {
        let Self { shown, listed, stats, total, label } = *self;
        let to = |name: &str, position: &Option<ListPosition>| {
            let position = position.as_ref().map(show_position)?;
            let query = [&listed.filter()[..], &[(name, &*position)]].concat();
            Some(address("timers", &query))
        };
        let (before, after) = (to("before", &page.before), to("after", &page.after));
        let count = page.rows.len() as u64;
        let is_whole = before.is_none() && after.is_none();
        let words = match total {
            _ if is_whole => counted(count, "timer"),
            Some(total) => format!("{} of {}", grouped(count), counted(total.max(count), "timer")),
            None => format!("{} on this page", counted(count, "timer")),
        };
        let first = address("timers", &listed.filter());
        let frame = Page { title: shown.title(), entry: Menu::Timers, is_live: true };
        frame.with(
            visit,
            &html! {
                div.title { h1 { (shown.title()) } }
                @if listed.done == "cancelled" {
                    p.banner.is-done role="status" { "The timer was cancelled." }
                } @else if let Some(report) = label::report(&listed.done) {
                    p.banner.is-done role="status" { (report) }
                }
                (tabs(shown, listed, stats))
                (listed.form("timers", "Due"))
                @if page.rows.is_empty() && !page.is_cut {
                    (nothing(visit, shown, listed, stats))
                } @else if !page.rows.is_empty() {
                    section.card.list { (timers(visit, shown.title(), &page.rows)) }
                    @if let Some(label) = label { (label::links(visit, label)) }
                }
                @if page.is_cut {
                    p.quiet {
                        "The search for this page stopped after " (grouped(BUDGET as u64)) " timers. \
                         There may be more."
                    }
                }
                (pager(&words, &first, before.as_deref(), after.as_deref()))
            },
        )
    }
}

/// The lists by state, and the dead letters. They keep the other filters. Dead letters are chosen
/// by other times.
fn tabs(current: Shown, listed: &Listed, stats: &Stats) -> Markup {
    let to = |shown: Shown| {
        let mut query = listed.filter();
        query[0].1 = shown.name();
        address("timers", &query)
    };
    let dead = [("q", &*listed.q), ("label", &listed.label)];
    html! {
        nav.tabs aria-label="Lists of timers" {
            @for shown in Shown::ALL {
                a class=[shown.colour(stats)] href=(to(shown))
                    aria-current=[(shown == current).then_some("page")]
                {
                    (shown.tab())
                    @if let Some(total) = shown.total(stats) { " " span.count { (grouped(total)) } }
                }
            }
            a class=[(stats.dead_letters > 0).then_some("is-dead")] href=(address("dead", &dead)) {
                "Dead " span.count { (grouped(stats.dead_letters)) }
            }
        }
    }
}

/// What an empty list shows.
fn nothing(visit: &Visit, shown: Shown, listed: &Listed, stats: &Stats) -> Markup {
    html! {
        section.empty {
            @if listed.is_filtered() {
                h2 { "Nothing found" }
                p { "No timer in this list matches the filter." }
                @if !listed.q.is_empty() {
                    p {
                        "A timer that has run is deleted, but the history may show its runs. "
                        a href=(address("timer", &[("id", &listed.q)])) { "Look for its runs" }
                    }
                }
            } @else {
                h2 { (shown.none()) }
                @if stats.timers == 0 {
                    p { "Insert the first timer like this:" }
                    pre { code { (visit.site.example) } }
                }
            }
        }
    }
}
