//! An operator's day over each store, and what the overview reads of it.

use super::bench::{Bench, HOUR, ids};
use super::lists::follow;
use super::postgres_server::PostgresServer;
use super::servers::Server;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tourbillon_durable::{Backoff, DurableTimers, Options, Postgres, Redis};

/// A kind of store, with its server.
enum Place {
    File(Bench),
    Redis(Server),
    Postgres(PostgresServer),
}

impl Place {
    /// Returns the places that this machine has.
    fn all() -> Vec<Self> {
        let file = Some(Self::File(Bench::new()));
        let redis = Server::start(&[]).map(Self::Redis);
        let postgres = PostgresServer::start(&["fsync=off"]).map(Self::Postgres);
        [file, redis, postgres].into_iter().flatten().collect()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Redis(_) => "Redis",
            Self::Postgres(_) => "PostgreSQL",
        }
    }

    /// Opens the store with this name. A file has only one.
    async fn open(&self, name: &str) -> Bench {
        let timers = match self {
            Self::File(bench) => return bench.share(),
            Self::Redis(server) => {
                DurableTimers::spawn(Redis::connect(&server.url(), name).await.unwrap())
            }
            Self::Postgres(server) => {
                DurableTimers::spawn(Postgres::connect(&server.url(), name).await.unwrap())
            }
        };
        Bench::of(timers.unwrap())
    }

    /// Returns what a use of a store costs its server: the commands of Redis, those of scripts
    /// among them, or the rows and keys that PostgreSQL reads.
    async fn cost(&self, name: &str, of: impl AsyncFnOnce(&Bench)) -> u64 {
        let before = self.total(name);
        let bench = self.open(name).await;
        of(&bench).await;
        drop(bench);
        self.total(name) - before
    }

    fn total(&self, name: &str) -> u64 {
        match self {
            Self::File(_) => 0,
            Self::Redis(server) => {
                let commands = server.order("INFO commandstats");
                let calls = commands.split("calls=").skip(1);
                calls.filter_map(|calls| calls.split(',').next()?.parse::<u64>().ok()).sum()
            }
            Self::Postgres(server) => {
                // A connection reports what it has read when it ends.
                let others = "select count(*) from pg_stat_activity
                    where backend_type = 'client backend' and pid <> pg_backend_pid()";
                server.wait_for("the end of connections", |server| server.order(others) == "0");
                let rows = format!(
                    "select coalesce((select sum(seq_tup_read) from pg_stat_user_tables
                        where schemaname = '{name}'), 0) + coalesce((select sum(idx_tup_read)
                        from pg_stat_user_indexes where schemaname = '{name}'), 0)"
                );
                server.order(&rows).parse().unwrap()
            }
        }
    }
}

/// Returns the beginning of a quarter of an hour that is a few quarters ahead.
async fn soon(timers: &DurableTimers) -> SystemTime {
    let now = timers.stats().await.unwrap().now;
    let since = now.duration_since(UNIX_EPOCH).unwrap().as_secs();
    UNIX_EPOCH + Duration::from_secs(since - since % 900 + 7 * 900)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_day() {
    for place in Place::all() {
        println!("{}", place.name());
        let bench = place.open("day").await;
        let (now, soon) = (UNIX_EPOCH, soon(&bench.timers).await);
        let herd = (0..400).map(|number| (format!("herd-{number:03}"), soon));
        let orders = (0..1200).map(|number| {
            (format!("order-{number:04}"), soon + HOUR + Duration::from_secs(60) * number)
        });
        bench.insert(herd.chain(orders)).await;
        bench.insert_labelled("digest", [("weekly-digest".to_owned(), soon + 48 * HOUR)]).await;
        let shop = (0..120).map(|number| (format!("shop-{number:03}"), soon + 72 * HOUR));
        bench.insert_labelled("shop", shop).await;
        bench.timers.pause_timer("weekly-digest").await.unwrap();
        for id in ["mail-6", "mail-7"] {
            bench.timers.insert(id, "a mail", now, Options::new().attempts(1)).await.unwrap();
            bench.deliver(1, |_| Err("410 Gone".to_owned())).await;
        }
        let retried = Options::new().backoff(Backoff::new(HOUR, HOUR));
        bench.timers.insert("sync-stock", "", now, retried).await.unwrap();
        bench.deliver(1, |_| Err("502 Bad Gateway".to_owned())).await;

        // The newest failure, why, and its cure.
        let dead = bench.page("dead").await;
        assert_eq!(ids(&dead), ["mail-7", "mail-6"]);
        let letter = dead.split(r#"href="letter?number="#).nth(1).unwrap();
        let number = letter.split('"').next().unwrap();
        let letter = bench.page(&format!("letter?number={number}")).await;
        assert!(letter.contains("410 Gone") && letter.contains("a mail"), "{letter}");
        let redriven = bench.post("letters", &format!("do=redrive&number={number}")).await;
        assert_eq!(redriven.location(), "timer?id=mail-7&done=redriven");
        bench.deliver(1, |_| Ok(())).await;
        let cured = bench.page("timer?id=mail-7").await;
        assert!(cured.contains("Last 2 runs: 1 failed."), "{cured}");
        assert_eq!(ids(&bench.page("timers?show=failing").await), ["sync-stock"]);

        // A paused timer by the beginning of its id or by its label, and all timers page by page.
        let found = bench.page("timers?q=week").await;
        assert_eq!(ids(&found), ["weekly-digest"]);
        assert!(found.contains(">paused<"), "{found}");
        for filter in ["", "&label=digest", "&label=digest&q=week"] {
            let found = bench.page(&format!("timers?show=paused{filter}")).await;
            assert_eq!(ids(&found), ["weekly-digest"], "{filter}");
        }
        let first = bench.page("timers").await;
        assert!(first.contains("50 of 1,722 timers"), "{first}");
        let (all, last) = follow(&bench, first, "next").await;
        assert_eq!(all.len(), 1722);
        assert_eq!(follow(&bench, last, "prev").await.0, all);

        change_a_label(&bench).await;

        // The herd before it comes, a timer that is run at once, and one that is moved.
        let overview = bench.page("overview").await;
        let (_, busiest) = overview.split_once("busiest at <a href=\"").unwrap();
        let herd = busiest.split('"').next().unwrap().replace("&amp;", "&");
        assert_eq!(follow(&bench, bench.page(&herd).await, "next").await.0.len(), 400);
        bench.post("run?id=order-0007", "").await.location();
        bench.deliver(1, |id| if id == "order-0007" { Ok(()) } else { Err(id.to_owned()) }).await;
        let ran = bench.page("timer?id=order-0007").await;
        assert!(ran.contains("Last 1 run: none failed.") && ran.contains(">gone<"), "{ran}");
        bench.post("move?id=order-0008", "at=2096-10-02T12:30&zone=UTC").await.location();
        let moved = bench.page("timers?from=2096-10-02T12:30").await;
        assert_eq!(ids(&moved), ["order-0008"]);
    }
}

/// Turns the pages of the timers of a label, there and back, and pauses all of them.
async fn change_a_label(bench: &Bench) {
    let first = bench.page("timers?label=shop").await;
    assert!(first.contains("50 of 120 timers"), "{first}");
    let (all, last) = follow(bench, first, "next").await;
    assert_eq!((all.len(), &*all[0], &*all[119]), (120, "shop-000", "shop-119"));
    assert_eq!(follow(bench, last, "prev").await.0, all);
    let paused = bench.post("pause-label?label=shop", "").await;
    assert_eq!(paused.location(), "timers?label=shop&done=Pause.120.0");
    assert_eq!(bench.timers.stats().await.unwrap().paused, 121);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_read_fails_no_page() {
    let Some(server) = PostgresServer::start(&["fsync=off"]) else { return };
    let store = Postgres::connect(&server.url(), "held").await.unwrap();
    let bench = Bench::of(DurableTimers::spawn(store).unwrap());
    bench.insert([("late".to_owned(), UNIX_EPOCH)]).await;
    bench.deliver(1, |_| Ok(())).await;
    bench.timers.insert("later", "", HOUR, Options::new()).await.unwrap();
    let locks = "begin isolation level repeatable read; lock table held.attempt_log;
        select pg_sleep(86400)";
    let holder = server.begin(locks);
    let locked = "select count(*) from pg_locks where relation = 'held.attempt_log'::regclass
        and mode = 'AccessExclusiveLock' and granted";
    server.wait_for("the lock", |server| server.order(locked) == "1");
    for page in ["timer?id=late", "overview"] {
        let page = bench.page(page).await;
        // The server has a limit of its own.
        assert!(page.contains("The history cannot be read"), "{page}");
    }
    server.release_snapshot(holder);
    let page = bench.page("timer?id=late").await;
    assert!(page.contains("Last 1 run: none failed."), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_reads_no_more_for_more_timers() {
    const FEW: u32 = 12_000;
    for place in Place::all() {
        let day = Duration::from_secs(86_000);
        let now = place.open("reads").await.timers.stats().await.unwrap().now;
        let mut costs = Vec::new();
        for (from, until) in [(0, FEW), (FEW, 4 * FEW)] {
            let number =
                move |number: u32| (format!("t{number:06}"), now + day / FEW * (number % FEW + 1));
            place.open("reads").await.insert((from..until).map(number)).await;
            // PostgreSQL counts all timers for the totals, as the README says.
            let totals = place.cost("reads", async |bench| drop(bench.timers.stats().await)).await;
            let mut rows = 0;
            let whole = async |bench: &Bench| rows = bench.get("overview").await.rows();
            let whole = place.cost("reads", whole).await;
            costs.push((rows, whole - totals));
        }
        println!("{}: {costs:?}", place.name());
        let [(few, cheap), (many, dear)] = costs[..] else { unreachable!() };
        let most = 5000 + 96 * 100 + 10;
        assert!(few >= 5000 && many <= most, "{}: {few}, then {many}", place.name());
        assert!(dear <= cheap * 3 / 2, "{}: {cheap}, then {dear}", place.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures for minutes, with `ci/measure page`"]
#[allow(clippy::disallowed_methods, reason = "real time is measured here")]
async fn how_long_pages_take() {
    const ROUNDS: usize = 31;
    let timers = std::env::var("TIMERS").map_or(1_000_000, |timers| timers.parse().unwrap());
    println!(
        "| {timers} timers | overview, ms | totals, ms | first list, ms | rows of the overview |"
    );
    println!("|---|---:|---:|---:|---:|");
    for place in Place::all() {
        let bench = place.open("million").await;
        let now = bench.timers.stats().await.unwrap().now;
        let month = Duration::from_secs(30 * 86_400);
        let rest = (0..timers)
            .map(|number| (format!("timer {number}"), now + HOUR + month / timers * number));
        bench.insert(rest).await;
        let (mut times, mut rows) = ([const { Vec::new() }; 3], 0);
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            rows = bench.get("overview").await.rows();
            times[0].push(begun.elapsed());
            let begun = Instant::now();
            bench.timers.stats().await.unwrap();
            times[1].push(begun.elapsed());
            let begun = Instant::now();
            bench.page("timers").await;
            times[2].push(begun.elapsed());
        }
        let medians = times.map(|mut times| {
            times.sort();
            format!("{:.1}", times[ROUNDS / 2].as_secs_f64() * 1000.0)
        });
        println!("| {} | {} | {rows} |", place.name(), medians.join(" | "));
    }
}
