//! [`TimersWeb`], which a host builds and mounts.

#![forbid(unsafe_code)]

use crate::activity::Activity;
use crate::description::Description;
use std::fmt;
use std::sync::Arc;
use tourbillon_durable::{AttemptLog, DurableTimers};

type Describe = Arc<dyn Fn(&[u8]) -> Description + Send + Sync>;
type Notice = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The code that an empty store shows by default.
const EXAMPLE: &str = "\
let in_an_hour = Duration::from_secs(3600);
timers.insert(\"order 7\", \"unpaid\", in_an_hour, Options::new()).await?;";

/// The web page of a store of durable timers. Mount its [router](Self::router) in a server that
/// uses [axum], at the root or below any prefix.
///
/// The page has no authentication of its own. Everyone with access to it can read payloads and,
/// without fewer [`Rights`](crate::Rights), cancel timers, so wrap the router in the authentication
/// layer of the host.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use timers_web::TimersWeb;
/// use tourbillon_durable::{DurableTimers, LogBounds};
///
/// # let file = std::env::temp_dir().join(format!("timers-web-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// let log = timers.attempt_log(LogBounds::new()); // the workers write it
/// let web = TimersWeb::new(&timers).log(&log).name("reminders");
/// let app: Router = Router::new().nest("/admin/timers", web.router());
/// # drop((timers, log, web, app));
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct TimersWeb {
    pub(crate) timers: DurableTimers,
    pub(crate) log: Option<AttemptLog>,
    pub(crate) activity: Option<Activity>,
    pub(crate) name: String,
    pub(crate) describe: Describe,
    pub(crate) log_out: Option<String>,
    pub(crate) example: String,
    pub(crate) has_script: bool,
    /// The addresses and texts of the host's entries of the menu.
    pub(crate) links: Vec<(String, String)>,
    /// The prefix of the ids that the host has reserved.
    reserved: Option<String>,
    notice: Notice,
}

impl fmt::Debug for TimersWeb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimersWeb").field("name", &self.name).finish_non_exhaustive()
    }
}

impl TimersWeb {
    /// Creates the page of a store.
    pub fn new(timers: &DurableTimers) -> Self {
        Self {
            timers: timers.clone(),
            log: None,
            activity: None,
            name: "timers".to_owned(),
            describe: Arc::new(Description::of_bytes),
            log_out: None,
            example: EXAMPLE.to_owned(),
            has_script: true,
            links: Vec::new(),
            reserved: None,
            notice: Arc::new(|| None),
        }
    }

    /// Shows the runs in a log, which the workers have to [write](tourbillon_durable::Worker::log).
    /// If the log fails or does not reply within two seconds, a page says so in place of the runs.
    pub fn log(mut self, log: &AttemptLog) -> Self {
        self.log = Some(log.clone());
        self
    }

    /// Shows the calls counted in this process if the log has more than the page reads.
    pub fn activity(mut self, activity: &Activity) -> Self {
        self.activity = Some(activity.clone());
        self
    }

    /// Sets the name at the top of each page. The default is `timers`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how payloads are described.
    pub fn describe(
        mut self,
        describe: impl Fn(&[u8]) -> Description + Send + Sync + 'static,
    ) -> Self {
        self.describe = Arc::new(describe);
        self
    }

    /// Sets a function that returns the warning to show on each page, or `None`.
    pub fn notice(mut self, notice: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.notice = Arc::new(notice);
        self
    }

    /// Adds a button to each page, which posts a form to this address. The host ends the session
    /// when it receives the form. The address is relative to the root of the page.
    pub fn log_out(mut self, address: impl Into<String>) -> Self {
        self.log_out = Some(address.into());
        self
    }

    /// Adds an entry to the menu that leads to a page of the host, which
    /// [`page_in_menu`](Self::page_in_menu) can show in the same frame. The address is relative to
    /// the root of the page, such as `receivers`.
    pub fn link(mut self, address: impl Into<String>, text: impl Into<String>) -> Self {
        self.links.push((address.into(), text.into()));
        self
    }

    /// Reserves the ids that begin with a prefix for timers that the host itself needs. The page
    /// shows these timers, but no visitor can run, move, pause, resume or cancel them, whatever the
    /// visitor's [`Rights`](crate::Rights). It rejects such a request with status 403. Give these
    /// timers no labels, because a change of all timers with a label does not look at ids.
    pub fn reserve(mut self, prefix: impl Into<String>) -> Self {
        self.reserved = Some(prefix.into());
        self
    }

    /// Sets the example code that the page of an empty store shows, which inserts a timer.
    pub fn example(mut self, code: impl Into<String>) -> Self {
        self.example = code.into();
        self
    }

    /// Switches the script on or off. It is on by default. It refreshes numbers and lists every ten
    /// seconds, and shows times in the time zone of the reader. The page works without it, and then
    /// shows times in UTC. The content security policy allows scripts only if the script is on, and
    /// never allows inline scripts.
    pub fn script(mut self, is_on: bool) -> Self {
        self.has_script = is_on;
        self
    }

    /// Returns `true` if the host has reserved an id.
    pub(crate) fn is_reserved(&self, id: &str) -> bool {
        self.reserved.as_ref().is_some_and(|prefix| id.starts_with(prefix))
    }

    /// Returns the warning of the host, if there is one.
    pub(crate) fn trouble(&self) -> Option<String> {
        (self.notice)()
    }
}
