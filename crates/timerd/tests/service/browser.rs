//! The page in headless Chromium, which ChromeDriver controls.
//!
//! If either program is missing, the tests report that and pass. With `BROWSER_TESTS=must` in the
//! environment, they fail. Their screenshots are in `target/tmp`. If `AXE` names the file of
//! axe-core, each page is checked by it.

#![allow(clippy::disallowed_methods, reason = "a program is waited for")]

use super::bench::{Bench, Folder, TOKEN, until};
use super::calls::allowing;
use super::receiver::{Receiver, status};
use super::servers::free_port;
use axum::response::IntoResponse;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};
use tourbillon_durable::{DurableTimers, Options};

/// The number of timers in the store.
const TIMERS: u32 = 10_000;

/// The size of a window.
const DESKTOP: (u32, u32) = (1280, 900);
const PHONE: (u32, u32) = (390, 844);

/// The running ChromeDriver, which is killed when it is dropped.
struct Driver {
    process: Child,
    port: u16,
}

/// The colours that the reader prefers, as Chromium numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colours {
    Dark = 0,
    Light = 1,
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

    /// Opens a browser whose pages have this size.
    async fn browser(&self, (width, height): (u32, u32), colours: Colours) -> Client {
        let colours = format!("--blink-settings=preferredColorScheme={}", colours as u8);
        let options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", colours],
            "mobileEmulation": { "deviceMetrics": {
                "width": width, "height": height, "pixelRatio": 1.0, "mobile": false, "touch": false,
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

/// An operator in front of a browser.
struct Operator<'a> {
    browser: Client,
    base: String,
    /// The end of the names of pictures.
    name: &'a str,
}

impl<'a> Operator<'a> {
    /// Opens a page, and logs in.
    async fn at(browser: Client, bench: &Bench, page: &str, name: &'a str) -> Self {
        let operator = Self { browser, base: format!("http://{}/", bench.service.address()), name };
        operator.open(page).await;
        operator.picture("login").await;
        operator.fill("token", TOKEN, "Log in").await;
        operator
    }

    async fn open(&self, page: &str) {
        self.browser.goto(&format!("{}{page}", self.base)).await.unwrap();
    }

    /// Fills in a field of the page, and submits its form.
    async fn fill(&self, name: &str, text: &str, button: &str) {
        let field = format!("main input[name={name}]");
        let field = self.browser.wait().for_element(Locator::Css(&field)).await.unwrap();
        field.send_keys(text).await.unwrap();
        self.click(button).await;
    }

    /// Clicks on the first button, link or summary with this text or name.
    async fn click(&self, text: &str) {
        let path = format!(
            "//*[self::button or self::a or self::summary][normalize-space()='{text}' or @aria-label='{text}']"
        );
        let button = self.browser.wait().at_most(Duration::from_secs(20));
        let button = button.for_element(Locator::XPath(&path)).await;
        button.unwrap_or_else(|error| panic!("{text}: {error}")).click().await.unwrap();
    }

    /// Waits until the page contains a text.
    async fn sees(&self, text: &str) {
        until(&format!("{text} on the page"), async || {
            let body = self.browser.find(Locator::Css("body")).await.ok()?.text().await.ok()?;
            body.contains(text).then_some(())
        })
        .await;
    }

    /// Returns the ids of the timers or letters on the page.
    async fn ids(&self) -> Vec<String> {
        let script = "return [...document.querySelectorAll('td a.id')].map((id) => id.textContent)";
        let ids = self.browser.execute(script, Vec::new()).await.unwrap();
        serde_json::from_value(ids).unwrap()
    }

    /// Waits until the first id on the page is another one, and returns it.
    async fn turned(&self, before: &str) -> String {
        until("another page", async || {
            let first = self.ids().await.into_iter().next()?;
            (first != before).then_some(first)
        })
        .await
    }

    /// Saves a picture of the page. It must not be wider than its window, its targets must not be
    /// too small for a finger, and axe must find nothing serious.
    async fn picture(&self, page: &str) {
        let name = format!("{page}-{}", self.name);
        let measure = "
            const small = [...document.querySelectorAll('button, .button, nav a, summary, label.select')]
                .map((it) => [it.textContent, it.getBoundingClientRect()])
                .filter(([_, box]) => box.width > 0 && (box.height < 24 || box.width < 24))
                .map(([text]) => text);
            return [document.documentElement.scrollWidth, window.innerWidth, small]";
        let measured = self.browser.execute(measure, Vec::new()).await.unwrap();
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("timerd-{name}.png"));
        std::fs::write(&file, self.browser.screenshot().await.unwrap()).unwrap();
        let [page, window] = [0, 1].map(|place| measured[place].as_u64().unwrap());
        assert!(page <= window, "{name}: {page} pixels in a window of {window}");
        assert_eq!(measured[2], json!([]), "{name}: targets of less than 24 pixels");
        self.check(&name).await;
    }

    /// Checks the page with axe-core.
    async fn check(&self, name: &str) {
        let Ok(file) = std::env::var("AXE") else { return };
        let axe = std::fs::read_to_string(file).unwrap();
        self.browser.execute(&axe, Vec::new()).await.unwrap();
        let run = "
            const done = arguments[0];
            axe.run().then((found) => done(found.violations
                .filter((it) => ['serious', 'critical'].includes(it.impact))
                .map((it) => [it.id, it.help, it.nodes.map((node) => node.html)])));";
        let found: Value = self.browser.execute_async(run, Vec::new()).await.unwrap();
        assert_eq!(found, json!([]), "{name}");
    }
}

/// Returns the payload of a timer that calls an address.
fn payload(url: &str) -> String {
    let body = json!({ "order": 7, "of": "two cups of tea" }).to_string();
    json!({ "version": "1", "url": url, "method": "POST", "body": body }).to_string()
}

/// Fills a store with timers: some in each hour, a herd at a full hour, and a paused one.
async fn fill_store(store: &Path, receiver: &Receiver) {
    let timers = DurableTimers::open(store).unwrap();
    let now = timers.stats().await.unwrap().now;
    let day = Duration::from_secs(86_400);
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let herd = now + day / 4 - Duration::from_secs(since.as_secs() % 3600);
    let payload = payload(&receiver.url("/hooks/orders?key=secret"));
    let numbers: Vec<u32> = (0..TIMERS).collect();
    for part in numbers.chunks(1000) {
        let each = part.iter().map(|number| {
            let (id, due) = match number {
                0..400 => (format!("invoice-{number:03}"), herd),
                _ => (format!("order-{number:05}-unpaid"), now + (day / 2000) * (number - 350)),
            };
            let (timers, payload) = (&timers, payload.clone());
            async move { timers.insert(&id, payload, due, Options::new()).await.unwrap() }
        });
        futures_util::future::join_all(each).await;
    }
    let weekly = Options::new().cron("0 9 * * MON", "Europe/Berlin");
    let when = tourbillon_durable::When::ByRule;
    timers.insert("weekly-digest", payload.clone(), when, weekly).await.unwrap();
    timers.pause_timer("weekly-digest").await.unwrap();
    let nightly = Options::new().cron("0 3 * * *", "Europe/Berlin");
    timers.insert("nightly-report", payload, when, nightly).await.unwrap();
}

/// Makes calls of each kind, so that there is something to see, and waits for the dead letters.
async fn make_calls(bench: &Bench, receiver: &mut Receiver) {
    let (api, now) = (&bench.api, json!({ "after": "0s" }));
    for number in 0..30 {
        let (id, url) = (format!("hourly-{number}"), receiver.url("/hooks/hourly"));
        api.put(&id, &url, now.clone()).await.json(201);
        receiver.next().await;
    }
    let at = tourbillon_durable::text::show_time(SystemTime::now());
    let every = json!({ "at": at, "every": "5h", "backoff": "1h..7h", "attempts": 20 });
    let flaky = receiver.url("/hooks/flaky");
    api.put("sync-stock", &flaky, every).await.json(201);
    receiver.next().await;
    for id in ["invoice-mail-6", "invoice-mail-7"] {
        let gone = receiver.url("/hooks/gone");
        api.put(id, &gone, now.clone()).await.json(201);
        receiver.next().await;
    }
    api.letters(2).await;
    until("the runs", async || {
        let runs = api.get("/v1/runs?limit=40").await.json(200);
        (runs["runs"].as_array()?.len() == 33).then_some(())
    })
    .await;
}

/// Starts a receiver that knows three kinds of addresses.
async fn receiver() -> Receiver {
    Receiver::by_path(|path| match path.split('?').next().unwrap_or_default() {
        "/hooks/gone" => (http::StatusCode::GONE, "this mailbox has moved away").into_response(),
        "/hooks/flaky" => {
            (http::StatusCode::BAD_GATEWAY, "the stock is being counted").into_response()
        }
        _ => status(200),
    })
    .await
}

#[tokio::test]
async fn an_operators_day() {
    let Some(driver) = Driver::start() else { return };
    let (folder, mut receiver) = (Folder::new(), receiver().await);
    let store = folder.join("timers");
    fill_store(&store, &receiver).await;
    let bench = Bench::at(store.to_str().unwrap(), allowing(receiver.port())).await;
    make_calls(&bench, &mut receiver).await;

    // The link in the alert leads to the newest failure, through the login.
    let browser = driver.browser(DESKTOP, Colours::Light).await;
    let operator = Operator::at(browser, &bench, "dead", "desktop-light").await;
    operator.mends_the_newest_failure(&bench, &mut receiver).await;
    operator.looks_at_what_is_tried_again().await;
    operator.looks_ahead().await;
    operator.turns_pages().await;
    operator.resumes_a_paused_timer(&bench).await;
    operator.cancels_a_timer_after_a_question().await;
    operator.browser.close().await.unwrap();
    pictures(&driver, &bench).await;
    bench.stop().await;
}

impl Operator<'_> {
    async fn mends_the_newest_failure(&self, bench: &Bench, receiver: &mut Receiver) {
        self.sees("Dead letters").await;
        assert_eq!(self.ids().await, ["invoice-mail-7", "invoice-mail-6"]);
        self.picture("dead").await;
        self.click("invoice-mail-7").await;
        self.sees("The handler gave up on it").await;
        self.sees("this mailbox has moved away").await;
        self.picture("letter").await;
        self.click("Redrive invoice-mail-7").await;
        assert_eq!(receiver.next().await.path, "/hooks/gone");
        self.sees("Last 2 runs: 2 failed.").await;
        bench.api.letters(2).await;
    }

    async fn looks_at_what_is_tried_again(&self) {
        self.click("Overview").await;
        self.sees("Due in the next 24 hours").await;
        self.picture("overview").await;
        self.open("timers?show=failing").await;
        self.sees("the stock is being counted").await;
        assert_eq!(self.ids().await, ["sync-stock"]);
        self.picture("failing").await;
        self.click("sync-stock").await;
        self.sees("Next runs").await;
        self.sees("502").await;
        self.picture("timer").await;
    }

    /// Sees the herd before it comes.
    async fn looks_ahead(&self) {
        self.click("Overview").await;
        self.sees("busiest at").await;
        self.click("Timers").await;
        self.click("Filter").await;
        self.fill("q", "invoice-", "Show").await;
        self.sees("invoice-000").await;
    }

    /// Turns pages of ten thousand timers, there and back.
    async fn turns_pages(&self) {
        self.open("timers").await;
        self.sees("50 of 10,0").await;
        self.picture("timers").await;
        let first = self.ids().await[0].clone();
        self.click("Next").await;
        let second = self.turned(&first).await;
        self.click("Next").await;
        let third = self.turned(&second).await;
        self.click("Previous").await;
        assert_eq!(self.turned(&third).await, second);
    }

    async fn resumes_a_paused_timer(&self, bench: &Bench) {
        self.open("timers?show=paused").await;
        assert_eq!(self.ids().await, ["weekly-digest"]);
        self.click("Resume weekly-digest").await;
        self.sees("No timer is paused").await;
        let timer = bench.api.get("/v1/timers/weekly-digest").await.json(200);
        assert_eq!(timer["state"], "resting");
    }

    async fn cancels_a_timer_after_a_question(&self) {
        self.open("timer?id=nightly-report").await;
        self.click("Cancel…").await;
        self.sees("Cancel nightly-report?").await;
        self.picture("cancel").await;
        self.click("Cancel nightly-report").await;
        self.sees("The timer was cancelled.").await;
        self.open("timer?id=nightly-report").await;
        self.sees("There is no such timer").await;
        self.open("nothing/here").await;
        self.sees("there is no such page").await;
        self.picture("error").await;
    }
}

/// Takes pictures on a phone and in the dark.
async fn pictures(driver: &Driver, bench: &Bench) {
    for (size, colours, name) in [
        (DESKTOP, Colours::Dark, "desktop-dark"),
        (PHONE, Colours::Light, "phone-light"),
        (PHONE, Colours::Dark, "phone-dark"),
    ] {
        let browser = driver.browser(size, colours).await;
        let operator = Operator::at(browser, bench, "overview", name).await;
        operator.sees("Due in the next 24 hours").await;
        operator.picture("overview").await;
        for (page, text, picture) in [
            ("timers", "50 of", "timers"),
            ("timers?show=failing", "sync-stock", "failing"),
            ("timer?id=sync-stock", "Next runs", "timer"),
            ("dead", "invoice-mail-7", "dead"),
            ("pause", "Pause the store?", "pause"),
        ] {
            operator.open(page).await;
            operator.sees(text).await;
            operator.picture(picture).await;
        }
        operator.browser.close().await.unwrap();
    }
}

#[tokio::test]
async fn the_page_refreshes_itself_and_shows_local_times() {
    let Some(driver) = Driver::start() else { return };
    let bench = Bench::start().await;
    let browser = driver.browser(DESKTOP, Colours::Light).await;
    let operator = Operator::at(browser, &bench, "overview", "empty").await;
    operator.sees("No timers yet").await;
    operator.picture("overview").await;
    operator.sees("Live").await;
    operator.sees("Times are in ").await;
    let schedule = json!({ "after": "30d" });
    // An id with a line feed, which forms would change.
    bench.api.put("a%0Ab", "https://example.org/", schedule).await.json(201);
    operator.sees("Due next").await;
    operator.click("Pause a\\nb").await;
    until("the pause", async || {
        let timer = bench.api.get("/v1/timers/a%0Ab").await.json(200);
        (timer["state"] == "paused").then_some(())
    })
    .await;
    operator.click("Log out").await;
    operator.sees("Log in to timerd").await;
    operator.browser.close().await.unwrap();
    bench.stop().await;
}
