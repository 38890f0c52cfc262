//! The page in headless Chromium, which ChromeDriver controls.
//!
//! If either program is missing, the tests report that and pass. With `BROWSER_TESTS=must` in the
//! environment, they fail. Their screenshots are in `target/tmp`, and with `PICTURES=write` two of
//! them become the pictures of the README of `timers-web`. If `AXE` names the file of axe-core,
//! each page is checked by it.

#![allow(clippy::disallowed_methods, reason = "a program is waited for")]

use super::alerts::{alert, alerting};
use super::bench::{Bench, Folder, TOKEN, arguments, until};
use super::receiver::{Receiver, status};
use super::servers::free_port;
use axum::response::IntoResponse;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use std::cell::Cell;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};
use tourbillon_durable::{DurableTimers, Label, Options};

/// The number of timers in the store.
const TIMERS: u32 = 10_000;

/// The pictures in the README of the page.
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../web/docs");

/// The time zone of the reader.
const ZONE: &str = "Europe/Berlin";

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
        command.env("TZ", ZONE);
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
    /// The number of clicks so far.
    clicks: Cell<u32>,
}

impl<'a> Operator<'a> {
    /// Follows a link to a page, and logs in.
    async fn at(browser: Client, bench: &Bench, link: &str, name: &'a str) -> Self {
        let base = format!("http://{}/", bench.service.address());
        let operator = Self { browser, base, name, clicks: Cell::new(1) };
        operator.browser.goto(link).await.unwrap();
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
        self.click_on(Locator::XPath(&path)).await;
    }

    async fn click_on(&self, place: Locator<'_>) {
        let button = self.browser.wait().at_most(Duration::from_secs(20)).for_element(place).await;
        button.unwrap_or_else(|error| panic!("{place:?}: {error}")).click().await.unwrap();
        self.clicks.set(self.clicks.get() + 1);
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
        let picture = self.browser.screenshot().await.unwrap();
        std::fs::write(&file, &picture).unwrap();
        let is_in_docs = ["overview-desktop-light", "timer-desktop-light"].contains(&&*name);
        if is_in_docs && std::env::var("PICTURES").is_ok_and(|value| value == "write") {
            std::fs::write(format!("{DOCS}/{page}.png"), &picture).unwrap();
        }
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

/// The body of all calls.
fn body() -> String {
    json!({ "order": 7, "of": "two cups of tea", "for": { "name": "Ada", "seats": [3, 4] } })
        .to_string()
}

/// Returns the payload of a timer that calls an address.
fn payload(url: &str) -> String {
    json!({ "version": "1", "url": url, "method": "POST", "body": body() }).to_string()
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
    let reports = || Options::new().label(Label::new("reports").unwrap());
    let weekly = reports().cron("0 9 * * MON", "Europe/Berlin");
    let when = tourbillon_durable::When::ByRule;
    timers.insert("weekly-digest", payload.clone(), when, weekly).await.unwrap();
    timers.pause_timer("weekly-digest").await.unwrap();
    for look in LOOKS {
        let nightly = reports().cron("0 3 * * *", "Europe/Berlin");
        timers.insert(look.nightly, payload.clone(), when, nightly).await.unwrap();
    }
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
    let every = json!({ "at": at, "every": "5h", "backoff": "1h..7h", "attempts": 20,
        "labels": ["shop", "stock"] });
    let once = json!({ "after": "0s", "labels": ["shop", "customer 7"] });
    for (id, path, schedule, letters) in [
        ("sync-stock", "/hooks/flaky", every, 0),
        ("invoice-mail-6", "/hooks/gone", once.clone(), 1),
        ("invoice-mail-7", "/hooks/gone", once, 2),
    ] {
        let webhook = json!({ "url": receiver.url(path), "body": body() });
        let timer = json!({ "webhook": webhook, "schedule": schedule }).to_string();
        api.send("PUT", &format!("/v1/timers/{id}"), &timer).await.json(201);
        receiver.next().await;
        api.letters(letters).await;
    }
    until("the runs", async || {
        let runs = api.get("/v1/runs?limit=40").await.json(200);
        (runs["runs"].as_array()?.len() == 33).then_some(())
    })
    .await;
}

/// Starts a service that calls one receiver, and sends alerts with links to its page to another.
async fn alerting_bench(store: &str, receiver: &Receiver, chat: &Receiver) -> Bench {
    let mut arguments = arguments(store);
    arguments.listen = format!("127.0.0.1:{}", free_port());
    let kinds = "kinds = [\"dead_letter\"]";
    let more = format!("{kinds}\npage = \"http://{}/\"", arguments.listen);
    let ports = [receiver.port(), chat.port()];
    let config = alerting(&ports, &chat.url("/incoming"), &more);
    Bench::of(arguments, config, timerd::system_resolver(), Folder::new()).await
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

/// A screen and its colours, with the timers that the operator in front of it changes.
struct Look {
    name: &'static str,
    size: (u32, u32),
    colours: Colours,
    /// The timer that is run now.
    order: &'static str,
    /// The timer that is moved.
    moved: &'static str,
    /// The timer that is cancelled.
    nightly: &'static str,
}

const LOOKS: [Look; 4] = [
    Look {
        name: "desktop-light",
        size: DESKTOP,
        colours: Colours::Light,
        order: "order-00501-unpaid",
        moved: "order-00601-unpaid",
        nightly: "nightly-report",
    },
    Look {
        name: "desktop-dark",
        size: DESKTOP,
        colours: Colours::Dark,
        order: "order-00502-unpaid",
        moved: "order-00602-unpaid",
        nightly: "nightly-backup",
    },
    Look {
        name: "phone-light",
        size: PHONE,
        colours: Colours::Light,
        order: "order-00503-unpaid",
        moved: "order-00603-unpaid",
        nightly: "nightly-cleanup",
    },
    Look {
        name: "phone-dark",
        size: PHONE,
        colours: Colours::Dark,
        order: "order-00504-unpaid",
        moved: "order-00604-unpaid",
        nightly: "nightly-invoices",
    },
];

#[tokio::test]
async fn an_operators_day() {
    let Some(driver) = Driver::start() else { return };
    let (folder, mut receiver) = (Folder::new(), receiver().await);
    let store = folder.join("timers");
    fill_store(&store, &receiver).await;
    let mut chat = Receiver::with(&[]).await;
    let bench = alerting_bench(store.to_str().unwrap(), &receiver, &chat).await;
    make_calls(&bench, &mut receiver).await;
    assert_eq!(alert(&chat.next().await)["id"], "invoice-mail-6");
    for (day, look) in LOOKS.iter().enumerate() {
        let browser = driver.browser(look.size, look.colours).await;
        // The link in the alert leads to the newest failure, through the login.
        let alert = alert(&chat.next().await);
        assert_eq!(alert["id"], "invoice-mail-7");
        let link = alert["link"].as_str().unwrap();
        let operator = Operator::at(browser, &bench, link, look.name).await;
        operator.mends_the_newest_failure(&bench, &mut receiver, day).await;
        operator.looks_at_what_is_tried_again().await;
        operator.looks_ahead().await;
        operator.turns_pages().await;
        operator.finds_a_paused_timer().await;
        operator.follows_a_label().await;
        operator.resumes_a_paused_timer(&bench).await;
        operator.pauses_a_timer().await;
        operator.runs_a_timer_now(look.order, &mut receiver).await;
        operator.moves_a_timer(look.moved, &bench).await;
        operator.asks_before_what_cannot_be_undone(look.nightly).await;
        operator.goes_astray().await;
        operator.browser.close().await.unwrap();
    }
    bench.stop().await;
}

impl Operator<'_> {
    /// Comes from an alert, and redrives the letter within four clicks, the link in the alert and
    /// the login among them.
    async fn mends_the_newest_failure(&self, bench: &Bench, receiver: &mut Receiver, day: usize) {
        self.reads_why().await;
        self.click("Redrive invoice-mail-7").await;
        self.sees("The dead letter was redriven.").await;
        assert_eq!(receiver.next().await.path, "/hooks/gone");
        assert!((3..=4).contains(&self.clicks.get()), "{} clicks", self.clicks.get());
        let runs = day + 2;
        self.sees(&format!("Last {runs} runs: {runs} failed.")).await;
        bench.api.letters(2).await;
        self.open("dead").await;
        self.sees("Dead letters").await;
        assert_eq!(self.ids().await, ["invoice-mail-7", "invoice-mail-6"]);
        self.picture("dead").await;
    }

    /// Reads why the timer has become a dead letter.
    async fn reads_why(&self) {
        for text in
            ["The handler gave up on it", "this mailbox has moved away", "\"name\": \"Ada\""]
        {
            self.sees(text).await;
        }
        self.picture("letter").await;
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
        self.sees("\"of\": \"two cups of tea\"").await;
        self.sees("502").await;
        self.picture("timer").await;
    }

    /// Sees the herd before it comes.
    async fn looks_ahead(&self) {
        self.click("Overview").await;
        self.sees("busiest at").await;
        self.click_on(Locator::Css("figcaption p a")).await;
        self.sees("50 timers on this page").await;
        assert!(self.ids().await.iter().any(|id| id.starts_with("invoice-")));
        self.picture("herd").await;
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

    /// Finds a paused timer by the beginning of its id and by its label.
    async fn finds_a_paused_timer(&self) {
        self.finds("weekly").await;
        assert_eq!(self.ids().await, ["weekly-digest"]);
        self.sees("paused").await;
        self.chooses_a_label().await;
        self.click("Paused 1").await;
        self.sees("Paused timers").await;
        assert_eq!(self.ids().await, ["weekly-digest"]);
        self.picture("paused").await;
    }

    /// Chooses the timers with a label, of which one is paused.
    async fn chooses_a_label(&self) {
        self.open("timers").await;
        self.click("Filter").await;
        self.fill("label", "reports", "Show").await;
        self.sees("Cancel all…").await;
        assert!(self.ids().await.len() > 1, "other reports are not paused");
        self.picture("label").await;
    }

    /// Follows the label in a row to all timers that have it, and is asked before all are paused.
    async fn follows_a_label(&self) {
        self.click("reports").await;
        self.sees("All timers").await;
        self.click("Pause all…").await;
        self.sees("with the label reports?").await;
        self.picture("pause-label").await;
    }

    /// Resumes the paused timer.
    async fn resumes_a_paused_timer(&self, bench: &Bench) {
        self.open("timers?show=paused&label=reports").await;
        assert_eq!(self.ids().await, ["weekly-digest"]);
        self.click("Resume weekly-digest").await;
        self.sees("No timer in this list matches the filter").await;
        let timer = bench.api.get("/v1/timers/weekly-digest").await.json(200);
        assert_eq!(timer["state"], "resting");
    }

    /// Pauses the timer again, for the next operator.
    async fn pauses_a_timer(&self) {
        self.open("timer?id=weekly-digest").await;
        self.click("Pause weekly-digest").await;
        self.click("Resume weekly-digest").await;
        self.click("Pause weekly-digest").await;
        self.sees("paused").await;
    }

    /// Searches for the beginning of an id, from any page.
    async fn finds(&self, beginning: &str) {
        let field = self.browser.find(Locator::Css("#search")).await.unwrap();
        field.send_keys(beginning).await.unwrap();
        self.click("Find").await;
        self.sees(beginning).await;
    }

    async fn runs_a_timer_now(&self, id: &str, receiver: &mut Receiver) {
        self.finds(id).await;
        self.click(id).await;
        self.click(&format!("Run now {id}…")).await;
        self.sees(&format!("Run {id} now?")).await;
        self.picture("run").await;
        self.click(&format!("Run {id} now")).await;
        assert_eq!(receiver.next().await.path, "/hooks/orders?key=secret");
        self.sees("Last 1 run: none failed.").await;
    }

    /// Moves a timer to a time in the reader's zone.
    async fn moves_a_timer(&self, id: &str, bench: &Bench) {
        self.open(&format!("timer?id={id}")).await;
        self.click(&format!("Move {id}…")).await;
        self.sees(&format!("Move {id}")).await;
        self.picture("move").await;
        // What is typed into such a field depends on the reader's country.
        let script = "
            const field = (name) => document.querySelector(`input[name=${name}]`);
            field('at').value = '2096-10-02T14:30';
            return field('zone').value";
        assert_eq!(self.browser.execute(script, Vec::new()).await.unwrap(), json!(ZONE));
        self.click("Move it").await;
        self.sees("The timer was moved.").await;
        let timer = bench.api.get(&format!("/v1/timers/{id}")).await.json(200);
        assert_eq!(timer["due"], "2096-10-02T12:30:00.000Z");
    }

    async fn asks_before_what_cannot_be_undone(&self, id: &str) {
        self.open("overview").await;
        self.click("Pause the store…").await;
        self.sees("Pause the store?").await;
        self.picture("pause").await;
        self.open(&format!("timer?id={id}")).await;
        self.click("Cancel…").await;
        self.sees(&format!("Cancel {id}?")).await;
        self.picture("cancel").await;
        self.click(&format!("Cancel {id}")).await;
        self.sees("The timer was cancelled.").await;
        self.open(&format!("timer?id={id}")).await;
        self.sees("There is no such timer").await;
    }

    async fn goes_astray(&self) {
        self.open("nothing/here").await;
        self.sees("there is no such page").await;
        self.picture("error").await;
    }
}

#[tokio::test]
async fn the_page_refreshes_itself_and_shows_local_times() {
    let Some(driver) = Driver::start() else { return };
    let bench = Bench::start().await;
    let browser = driver.browser(DESKTOP, Colours::Light).await;
    let page = format!("http://{}/overview", bench.service.address());
    let operator = Operator::at(browser, &bench, &page, "empty").await;
    operator.sees("No timers yet").await;
    operator.picture("overview").await;
    operator.sees("Live").await;
    operator.sees(&format!("Times are in {ZONE}.")).await;
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
