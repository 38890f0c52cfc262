//! The dashboard, with rates, timers by their distance ahead, lateness and memory.

use super::figures::Figures;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::widgets::{Bar, BarChart, BarGroup, Block, Paragraph, Row, Sparkline, Table};
use ratatui::{Frame, Terminal};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// The number of snapshots that are kept for rates over time.
const KEPT: usize = 300;

/// The snapshots of a wheel, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    heard: VecDeque<Figures>,
}

impl Screen {
    pub(crate) fn hear(&mut self, figures: Figures) {
        if self.heard.len() == KEPT {
            self.heard.pop_front();
        }
        self.heard.push_back(figures);
    }

    /// Draws the snapshots of the program at `from`.
    pub(crate) fn draw(&self, frame: &mut Frame<'_>, from: &str) {
        let [top, middle, bottom] =
            Layout::vertical([Constraint::Length(8), Constraint::Min(8), Constraint::Length(6)])
                .areas(frame.area());
        let Some(now) = self.heard.back() else {
            return frame.render_widget(format!("Nothing was heard of {from} yet; q ends."), top);
        };
        let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(top);
        frame.render_widget(self.rates(now).block(Block::bordered().title(from.bold())), left);
        frame.render_widget(state(now).block(Block::bordered().title("state".bold())), right);
        draw_ahead(frame, middle, now);
        let rates: Vec<u64> = self.rates_over_time().collect();
        let title = "operations a second; q ends".bold();
        let block = Block::bordered().title(title);
        let kept = rates.len().saturating_sub(usize::from(bottom.width).saturating_sub(2));
        let newest = &rates[kept..];
        frame.render_widget(
            Sparkline::default().data(newest).style(Color::Cyan).block(block),
            bottom,
        );
    }

    /// Returns what [`draw`](Self::draw) draws on 30 lines of 100 columns, as text without colours.
    pub(crate) fn text(&self, from: &str) -> io::Result<String> {
        let mut terminal = Terminal::new(TestBackend::new(100, 30))?;
        terminal.draw(|frame| self.draw(frame, from))?;
        let cells = terminal.backend().buffer().content();
        let line =
            |cells: &[Cell]| cells.iter().map(Cell::symbol).chain(["\n"]).collect::<String>();
        Ok(cells.chunks(100).map(line).collect())
    }

    /// Operations per second since the previous snapshot.
    fn rates(&self, now: &Figures) -> Table<'static> {
        let before = self.heard.iter().rev().nth(1).unwrap_or(now);
        let rate = |of: fn(&Figures) -> u64| count(a_second(before, now, of));
        let rows = [
            Row::new(["inserts".to_owned(), rate(|figures| figures.inserted)]),
            Row::new(["resets".to_owned(), rate(|figures| figures.reset)]),
            Row::new(["cancels".to_owned(), rate(|figures| figures.cancelled)]),
            Row::new(["fired".to_owned(), rate(|figures| figures.fired)]),
            Row::new(["all, a second".to_owned(), rate(operations)]).bold(),
        ];
        Table::new(rows, [Constraint::Length(14), Constraint::Fill(1)])
    }

    fn rates_over_time(&self) -> impl Iterator<Item = u64> + '_ {
        let pairs = self.heard.iter().zip(self.heard.iter().skip(1));
        pairs.map(|(before, now)| a_second(before, now, operations))
    }
}

fn operations(figures: &Figures) -> u64 {
    figures.inserted + figures.reset + figures.cancelled + figures.fired
}

/// The growth of a counter per second.
fn a_second(before: &Figures, now: &Figures, of: fn(&Figures) -> u64) -> u64 {
    let millis = now.at.saturating_sub(before.at).as_millis().max(1);
    let grown = u128::from(of(now).saturating_sub(of(before)));
    u64::try_from(grown * 1000 / millis).unwrap_or(u64::MAX)
}

fn state(now: &Figures) -> Paragraph<'static> {
    let [half, most, all] = now.late.map(time);
    let each = now.bytes.checked_div(now.armed).unwrap_or(0);
    let text = [
        format!("armed          {}", count(now.armed)),
        format!("stale refs     {}", count(now.stale)),
        format!("memory         {} KiB, {each} bytes a timer", count(now.bytes / 1024)),
        format!("late           {half} half, {most} 99 %, {all} all"),
        format!("longest sweep  {}", time(now.longest_sweep)),
        format!("watched for    {} s", now.at.as_secs()),
    ];
    Paragraph::new(text.join("\n"))
}

/// A bar for each power of two of ticks that has timers.
fn draw_ahead(frame: &mut Frame<'_>, area: Rect, now: &Figures) {
    let bars: Vec<Bar<'_>> = now
        .ahead
        .iter()
        .filter(|(_, timers)| *timers > 0)
        .map(|(bound, timers)| {
            let bar = Bar::default().value(*timers).text_value(short(*timers));
            bar.label(time(*bound).into())
        })
        .collect();
    let chart = BarChart::default()
        .data(BarGroup::default().bars(&bars))
        .bar_width(7)
        .bar_style(Color::Yellow)
        .value_style(Style::new().black().on_yellow());
    let title = "armed timers, by how far ahead they are at most".bold();
    frame.render_widget(chart.block(Block::bordered().title(title)), area);
}

/// Formats a number with its thousands apart.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut apart = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            apart.push(' ');
        }
        apart.push(digit);
    }
    apart
}

/// Formats a number in five characters.
fn short(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..10_000_000 => format!("{}k", number / 1000),
        _ => format!("{}M", number / 1_000_000),
    }
}

/// Formats a time in one unit, rounded down.
fn time(time: Duration) -> String {
    match time.as_micros() {
        0..1000 => format!("{} µs", time.as_micros()),
        1000..1_000_000 => format!("{} ms", time.as_millis()),
        1_000_000..60_000_000 => format!("{} s", time.as_secs()),
        60_000_000..7_200_000_000 => format!("{} min", time.as_secs() / 60),
        7_200_000_000..172_800_000_000 => format!("{} h", time.as_secs() / 3600),
        _ => format!("{} d", time.as_secs() / 86_400),
    }
}
