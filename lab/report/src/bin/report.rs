//! One page with the benchmarks, plots and checks of this commit, which needs no network:
//! `ci/measure report [FILE]`. It measures nothing. Each number is of the commit that its table
//! names.
//!
//! It is made of the pages in `docs`, with their tables and plots. Links between these lead to
//! their places in the page.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that reports to a person")]

use clap::Parser;
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Tag, TagEnd, html};
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The pages of `docs`, in their order in the page.
const PAPERS: [&str; 2] = ["BENCHMARKS", "VERIFICATION"];

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;\
    padding:0 1rem;color:#222;background:#fff}table{border-collapse:collapse;display:block;\
    overflow-x:auto;margin:1rem 0}th,td{border:1px solid #ccc;padding:.2rem .6rem;\
    text-align:left;font-variant-numeric:tabular-nums}th{background:#f3f3f3}\
    code{background:#f3f3f3;padding:0 .2rem}pre{overflow-x:auto}nav ul{columns:2;list-style:none;\
    padding:0}svg{max-width:100%;height:auto}h1{border-top:3px solid #222;padding-top:1rem}";

/// Writes one page of all benchmarks, plots and checks.
#[derive(Parser)]
struct Arguments {
    /// The file. Its folders are created.
    #[arg(default_value = "target/report.html")]
    file: PathBuf,
}

/// The page under construction.
#[derive(Default)]
struct Page {
    contents: String,
    body: String,
}

impl Page {
    /// Adds a page of a folder.
    fn add(&mut self, folder: &Path, name: &str) -> Result<(), Box<dyn Error>> {
        let text = read(&folder.join(format!("{name}.md")))?;
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
        let mut events = Vec::new();
        let mut parser = pulldown_cmark::Parser::new_ext(&text, options);
        while let Some(event) = parser.next() {
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    let inner = until(&mut parser, |end| matches!(end, TagEnd::Heading(_)));
                    events.push(self.heading(name, level, &inner));
                }
                Event::Start(Tag::Image { dest_url, .. }) => {
                    until(&mut parser, |end| *end == TagEnd::Image);
                    let plot = read(&folder.join(&*dest_url))?;
                    // Without the text before the picture, such as the document type.
                    let start = plot.find("<svg").ok_or("a plot is no picture")?;
                    events.push(Event::Html(CowStr::from(plot[start..].to_owned())));
                }
                Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                    let dest_url = CowStr::from(within_the_page(&dest_url));
                    events.push(Event::Start(Tag::Link { link_type, dest_url, title, id }));
                }
                other => events.push(other),
            }
        }
        html::push_html(&mut self.body, events.into_iter());
        Ok(())
    }

    /// A heading with an anchor for the table of contents.
    fn heading(&mut self, paper: &str, level: HeadingLevel, inner: &[Event<'_>]) -> Event<'static> {
        let (mut text, mut title) = (String::new(), String::new());
        html::push_html(&mut text, inner.iter().cloned());
        for event in inner {
            if let Event::Text(part) | Event::Code(part) = event {
                title.push_str(part);
            }
        }
        let name = anchor(paper, if level == HeadingLevel::H1 { "" } else { &title });
        if level <= HeadingLevel::H2 {
            let _ = writeln!(self.contents, "<li><a href=\"#{name}\">{text}</a></li>");
        }
        Event::Html(CowStr::from(format!("<{level} id=\"{name}\">{text}</{level}>\n")))
    }
}

/// The events before this end.
fn until<'a>(
    events: &mut impl Iterator<Item = Event<'a>>,
    is_end: impl Fn(&TagEnd) -> bool,
) -> Vec<Event<'a>> {
    events.take_while(|event| !matches!(event, Event::End(end) if is_end(end))).collect()
}

/// The anchor of a heading in the page.
fn anchor(paper: &str, title: &str) -> String {
    let kept = title.to_lowercase().replace(' ', "-");
    let kept: String = kept.chars().filter(|&c| c.is_alphanumeric() || c == '-').collect();
    format!("{paper}-{kept}").trim_end_matches('-').to_lowercase()
}

/// Rewrites a link to a page of `docs` as a link within the page.
fn within_the_page(link: &str) -> String {
    for paper in PAPERS {
        if let Some(rest) = link.strip_prefix(&format!("{paper}.md")) {
            return format!("#{}", anchor(paper, rest.trim_start_matches('#')));
        }
    }
    link.to_owned()
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// Writes the page and creates its folders.
fn write(file: &Path, html: &str) -> Result<(), String> {
    let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
    let written = folder.and_then(|()| fs::write(file, html));
    written.map_err(|error| format!("{}: {error}", file.display()))
}

/// The output of git.
fn git(arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let output = Command::new("git").args(arguments).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn main() -> ExitCode {
    match report(&Arguments::parse().file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn report(file: &Path) -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut page = Page::default();
    for paper in PAPERS {
        page.add(&root.join("docs"), paper)?;
    }
    let (commit, date) =
        (git(&["rev-parse", "--short", "HEAD"])?, git(&["log", "-1", "--format=%cs"])?);
    let Page { contents, body } = page;
    let html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>tourbillon at {commit}</title><style>{STYLE}</style></head><body>\n\
         <p><strong>tourbillon</strong> at commit <code>{commit}</code> of {date}</p>\n\
         <nav><ul>\n{contents}</ul></nav>\n{body}</body></html>\n"
    );
    write(file, &html)?;
    println!("{}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{PAPERS, Page, read, within_the_page, write};
    use std::path::Path;

    fn page() -> Page {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut page = Page::default();
        for paper in PAPERS {
            page.add(&docs, paper).expect("the papers are there");
        }
        page
    }

    #[test]
    fn all_is_in_the_page_and_all_its_links_lead_somewhere() {
        let Page { contents, body } = page();
        assert!(!body.contains("<img") && !body.contains("src=\""), "it needs the network");
        let plots = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/plots"));
        let plots = plots.expect("there are plots").count();
        assert_eq!(body.matches("<svg").count(), plots);
        let all = contents + &body;
        for link in all.split("href=\"#").skip(1) {
            let name = link.split('"').next().unwrap_or_default();
            assert!(body.contains(&format!("id=\"{name}\"")), "#{name} leads nowhere");
        }
    }

    #[test]
    fn links_between_the_papers_stay_in_the_page() {
        assert_eq!(within_the_page("VERIFICATION.md"), "#verification");
        assert_eq!(within_the_page("BENCHMARKS.md#several-callers"), "#benchmarks-several-callers");
        assert_eq!(within_the_page("https://example.org"), "https://example.org");
    }

    #[test]
    fn folders_are_created_and_errors_name_the_file() {
        let folder = std::env::temp_dir().join(format!("report-{}", std::process::id()));
        let file = folder.join("missing/report.html");
        write(&file, "page").expect("its folders can be created");
        assert_eq!(read(&file).as_deref(), Ok("page"));
        let below_a_file = file.join("report.html");
        let error = write(&below_a_file, "page").expect_err("a file is no folder");
        assert!(error.starts_with(&format!("{}: ", below_a_file.display())), "{error}");
        let absent = folder.join("absent");
        let error = read(&absent).expect_err("there is no such file");
        assert!(error.starts_with(&format!("{}: ", absent.display())), "{error}");
        std::fs::remove_dir_all(&folder).expect("it exists");
    }
}
