//! A store, and a browser without a screen.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use timers_web::TimersWeb;
use tokio::sync::oneshot;
use tourbillon_durable::{DurableTimers, Event, Label, LogBounds, Options, Outcome};
use tower::ServiceExt;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A store and its page.
pub(crate) struct Bench {
    pub(crate) timers: DurableTimers,
    pub(crate) web: TimersWeb,
    /// The file of the store, which is removed once no bench uses it.
    file: Option<Arc<File>>,
}

struct File(PathBuf);

/// A response with its body.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Bench {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Relaxed);
        let name = format!("timers-web-test-{}-{count}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let timers = DurableTimers::open(&file).unwrap();
        Self { file: Some(Arc::new(File(file))), ..Self::of(timers) }
    }

    /// Creates the page of a store on a server.
    pub(crate) fn of(timers: DurableTimers) -> Self {
        let log = timers.attempt_log(LogBounds::new());
        let web = TimersWeb::new(&timers).log(&log);
        Self { timers, web, file: None }
    }

    /// Returns another page of the same store.
    pub(crate) fn share(&self) -> Self {
        Self { file: self.file.clone(), ..Self::of(self.timers.clone()) }
    }

    /// Inserts timers at once. Each has an id and a due time.
    pub(crate) async fn insert(&self, timers: impl IntoIterator<Item = (String, SystemTime)>) {
        self.insert_with(&Options::new(), timers).await;
    }

    /// Inserts timers with a label at once.
    pub(crate) async fn insert_labelled(
        &self,
        label: &str,
        timers: impl IntoIterator<Item = (String, SystemTime)>,
    ) {
        self.insert_with(&Options::new().label(Label::new(label).unwrap()), timers).await;
    }

    async fn insert_with(
        &self,
        options: &Options,
        timers: impl IntoIterator<Item = (String, SystemTime)>,
    ) {
        let timers: Vec<_> = timers.into_iter().collect();
        for part in timers.chunks(1000) {
            let each = part
                .iter()
                .map(|(id, due)| self.timers.insert(id, "payload", *due, options.clone()));
            for inserted in futures_util::future::join_all(each).await {
                inserted.unwrap();
            }
        }
    }

    /// Delivers due timers to a handler until this many attempts have ended.
    pub(crate) async fn deliver(&self, attempts: usize, handle: fn(&str) -> Result<(), String>) {
        let (end, ends) = oneshot::channel::<()>();
        let (end, ended) = (std::sync::Mutex::new(Some(end)), AtomicU32::new(0));
        let log = self.timers.attempt_log(LogBounds::new());
        let worker = self.timers.worker().log(&log).until(async { drop(ends.await) });
        let worker = worker.observe(move |event| {
            let Event::Attempt(attempt) = event else { return };
            let is_counted = !matches!(attempt.outcome, Outcome::GivenBack);
            let ended = ended.fetch_add(u32::from(is_counted), Relaxed) + u32::from(is_counted);
            if ended as usize >= attempts {
                end.lock().unwrap().take();
            }
        });
        worker.run(move |delivery| async move { handle(&delivery.id) }).await.unwrap();
    }

    pub(crate) async fn get(&self, address: &str) -> Reply {
        get(&self.web.router(), &format!("/{address}")).await
    }

    /// Returns a page that must be there.
    pub(crate) async fn page(&self, address: &str) -> String {
        let reply = self.get(address).await;
        assert_eq!(reply.status, StatusCode::OK, "{address}: {reply:?}");
        reply.text
    }

    /// Sends a form from a page of the site.
    pub(crate) async fn post(&self, address: &str, fields: &str) -> Reply {
        let headers = [("sec-fetch-site", "same-origin")];
        post(&self.web.router(), &format!("/{address}"), fields, &headers).await
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(format!("{}.history", self.0.display()));
    }
}

pub(crate) async fn get(router: &Router, address: &str) -> Reply {
    send(router, Request::get(address).body(Body::empty()).unwrap()).await
}

/// Sends a form with these headers.
pub(crate) async fn post(
    router: &Router,
    address: &str,
    fields: &str,
    headers: &[(&str, &str)],
) -> Reply {
    let mut request = Request::post(address).header("host", "timers.example.org");
    request = request.header("content-type", "application/x-www-form-urlencoded");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(router, request.body(Body::from(fields.to_owned())).unwrap()).await
}

async fn send(router: &Router, request: Request<Body>) -> Reply {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    Reply { status: parts.status, headers: parts.headers, text }
}

impl Reply {
    /// Returns the number of rows that were read for the overview.
    pub(crate) fn rows(&self) -> usize {
        let timing = self.headers["server-timing"].to_str().unwrap();
        let rows = timing.strip_prefix("rows;desc=\"").and_then(|rows| rows.strip_suffix('"'));
        rows.unwrap().parse().unwrap()
    }

    /// Returns the address that the reply redirects to.
    pub(crate) fn location(&self) -> &str {
        assert_eq!(self.status, StatusCode::SEE_OTHER, "{self:?}");
        self.headers["location"].to_str().unwrap()
    }
}

/// Returns the ids in the rows of a page.
pub(crate) fn ids(page: &str) -> Vec<&str> {
    let rows = page.split(r#"<a class="id" href=""#).skip(1);
    rows.map(|row| row.split('>').nth(1).unwrap().split('<').next().unwrap()).collect()
}

/// Returns the address of the page before (`prev`) or after (`next`) a page of a list.
pub(crate) fn link(page: &str, relation: &str) -> Option<String> {
    let (before, _) = page.split_once(&format!(r#"" rel="{relation}""#))?;
    let address = before.rsplit('"').next()?;
    Some(address.replace("&amp;", "&"))
}
