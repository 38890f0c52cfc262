//! The page in headless Chromium, which ChromeDriver controls.
//!
//! If either program is missing, the test reports that and passes. With `BROWSER_TESTS=must` in the
//! environment, it fails. Its screenshots are in `target/tmp`.

#![allow(clippy::disallowed_methods, reason = "a program is waited for")]

use super::bench::{Bench, TOKEN, until};
use super::calls::allowing;
use super::receiver::Receiver;
use super::servers::free_port;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The running ChromeDriver, which is killed when it is dropped.
struct Driver {
    process: Child,
    port: u16,
}

impl Driver {
    /// Starts the program. Returns `None` if it or the browser is not installed.
    fn start() -> Option<Self> {
        for program in ["chromedriver", "chromium"] {
            if Command::new(program).arg("--version").output().is_err() {
                let must = std::env::var("BROWSER_TESTS").is_ok_and(|value| value == "must");
                assert!(!must, "{program} is missing, and BROWSER_TESTS is `must`");
                // Not with `eprintln`, whose output is hidden for a test that passes.
                let note =
                    format!("left out: a test of the page, as {program} is not on the path\n");
                let _ = std::io::stderr().write_all(note.as_bytes());
                return None;
            }
        }
        let port = free_port();
        let mut command = Command::new("chromedriver");
        let command = command.arg(format!("--port={port}")).stdout(Stdio::null());
        Some(Self { process: command.spawn().unwrap(), port })
    }

    /// Opens a browser whose pages have this width.
    async fn browser(&self, width: u32) -> Client {
        let options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            "mobileEmulation": { "deviceMetrics": {
                "width": width, "height": 900, "pixelRatio": 1.0, "mobile": false, "touch": false,
            } },
        });
        let capabilities = [("goog:chromeOptions".to_owned(), options)].into_iter().collect();
        let address = format!("http://127.0.0.1:{}", self.port);
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(capabilities);
        until("the browser", async || builder.connect(&address).await.ok()).await
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Fills in a field of the page, and submits its form.
async fn fill(browser: &Client, name: &str, text: &str, button: &str) {
    let field = Locator::Css(&format!("input[name={name}]"));
    browser.wait().for_element(field).await.unwrap().send_keys(text).await.unwrap();
    click(browser, button).await;
}

/// Clicks on the first button with this text.
async fn click(browser: &Client, text: &str) {
    let path = format!("//button[normalize-space()='{text}']");
    let button = browser.wait().at_most(Duration::from_secs(10));
    button.for_element(Locator::XPath(&path)).await.unwrap().click().await.unwrap();
}

/// Waits until the page contains a text.
async fn shows(browser: &Client, text: &str) {
    until(&format!("{text} on the page"), async || {
        let body = browser.find(Locator::Css("body")).await.ok()?.text().await.ok()?;
        body.contains(text).then_some(())
    })
    .await;
}

/// Saves a picture of the page, which must not be wider than its window.
async fn picture(browser: &Client, name: &str) {
    let width = "return [document.documentElement.scrollWidth, window.innerWidth]";
    let widths = browser.execute(width, Vec::new()).await.unwrap();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("timerd-{name}.png"));
    std::fs::write(&file, browser.screenshot().await.unwrap()).unwrap();
    let [page, window] = [0, 1].map(|place| widths[place].as_u64().unwrap());
    assert!(page <= window, "{name}: {page} pixels in a window of {window}");
}

/// Inserts the timers and the dead letter that the page lists.
async fn fill_store(bench: &Bench, receiver: &mut Receiver) {
    let api = &bench.api;
    let url = receiver.url("/hooks/reports?key=secret");
    api.put("nightly%20report", &url, json!({ "cron": "0 3 * * *", "zone": "Europe/Berlin" }))
        .await
        .json(201);
    api.put("order%207%0Areminder", &url, json!({ "after": "30d" })).await.json(201);
    let long = format!("invoice-{}", "0123456789abcdef".repeat(6));
    api.put(&long, &receiver.url("/a/rather/long/path"), json!({ "every": "1h 30m" }))
        .await
        .json(201);
    api.put("refused", &url, json!({ "after": "0s" })).await.json(201);
    receiver.next().await;
    api.letters(1).await;
}

#[tokio::test]
async fn the_page_works_in_a_browser() {
    let Some(driver) = Driver::start() else { return };
    let mut receiver = Receiver::with(&[410]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    fill_store(&bench, &mut receiver).await;
    let state = async |path: &str| -> Value {
        bench.api.get(&format!("/v1/timers/{path}")).await.json(200)["state"].take()
    };
    for width in [1200, 400] {
        let browser = driver.browser(width).await;
        browser.goto(&format!("http://{}/", bench.service.address())).await.unwrap();
        picture(&browser, &format!("login-{width}")).await;
        fill(&browser, "token", TOKEN, "Log in").await;
        shows(&browser, "Due next").await;
        picture(&browser, &format!("overview-{width}")).await;

        fill(&browser, "id", "nightly report", "Find").await;
        shows(&browser, "Runs").await;
        click(&browser, "Pause").await;
        shows(&browser, "paused").await;
        assert_eq!(state("nightly%20report").await, "paused");
        picture(&browser, &format!("timer-{width}")).await;
        click(&browser, "Resume").await;
        shows(&browser, "resting").await;
        assert_eq!(state("nightly%20report").await, "resting");
        browser.close().await.unwrap();
    }

    let browser = driver.browser(1200).await;
    browser.goto(&format!("http://{}/", bench.service.address())).await.unwrap();
    fill(&browser, "token", TOKEN, "Log in").await;
    // An id with a line feed, which forms would change.
    let link = browser.wait().for_element(Locator::LinkText("order 7\\nreminder")).await;
    link.unwrap().click().await.unwrap();
    shows(&browser, "Runs").await;
    click(&browser, "Pause").await;
    shows(&browser, "paused").await;
    assert_eq!(state("order%207%0Areminder").await, "paused");
    browser.find(Locator::LinkText("timerd")).await.unwrap().click().await.unwrap();
    click(&browser, "Redrive").await;
    assert_eq!(receiver.next().await.path, "/hooks/reports?key=secret");
    bench.api.letters(0).await;
    browser.close().await.unwrap();
    bench.stop().await;
}
