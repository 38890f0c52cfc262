//! PostgreSQL servers for tests: real processes on free loopback ports, which end with the test,
//! and with its process if that is killed.
//!
//! The programs come from Debian's package, or from the folder that `POSTGRES_BIN` names. Where
//! they are missing, a test reports that and passes. With `POSTGRES_TESTS=must` in the environment
//! it fails. The server refuses to run as root, so root runs it as the user `postgres`.

#![allow(clippy::disallowed_methods, reason = "a server is waited for")]

use super::servers::{compiled_clock, free_port};
use std::fs::Permissions;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Ends what runs in a folder and removes it, once the standard input is closed. Its processes may
/// be stopped.
const GUARD: &str = "cat > /dev/null
process=$(head -n 1 \"$0/data/postmaster.pid\" 2> /dev/null)
if [ -n \"$process\" ]; then
  children=$(cat /proc/$process/task/$process/children 2> /dev/null)
  kill -KILL $process $children 2> /dev/null
fi
rm -rf \"$0\"";

/// The transaction of [`hold_snapshot`](PostgresServer::hold_snapshot), as the end of a query.
const HOLDER: &str =
    "pg_stat_activity where query like '%pg_sleep(86400)%' and pid <> pg_backend_pid()";

/// Settings that put each commit on the disk, of a size for tests.
const SETTINGS: [&str; 8] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    "shared_buffers=32MB",
    "wal_level=replica",
    "hot_standby=on",
    "wal_keep_size=64MB",
    "log_line_prefix=%m [%p] %a ",
];

/// A folder that its guard removes, with the processes in it.
struct Folder {
    path: PathBuf,
    guard: Child,
}

impl Folder {
    fn new(programs: &Programs) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, SeqCst);
        let name = format!("tourbillon-postgres-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder is made");
        if let Some((user, group)) = programs.user {
            chown(&path, Some(user), Some(group)).expect("root may do so");
        }
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD]).arg(&path).stdin(Stdio::piped());
        guard.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Self { path, guard: guard.spawn().expect("there is `sh`") }
    }

    fn data(&self) -> PathBuf {
        self.path.join("data")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// The programs of the server, and the user that runs them.
struct Programs {
    folder: PathBuf,
    user: Option<(u32, u32)>,
}

/// Reports that a test is left out because a program is missing.
pub(crate) fn leave_out(program: &str) {
    let must = std::env::var("POSTGRES_TESTS").is_ok_and(|value| value == "must");
    assert!(!must, "{program} is missing, and POSTGRES_TESTS is `must`");
    // Not with `eprintln`, whose output is hidden for a test that passes.
    let note = format!("left out: a test on {program}, as it is not installed\n");
    let _ = std::io::stderr().write_all(note.as_bytes());
}

impl Programs {
    /// Returns the installed programs.
    fn find() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Programs>> = OnceLock::new();
        let found = FOUND.get_or_init(|| {
            let folder = match std::env::var("POSTGRES_BIN") {
                Ok(folder) => folder.into(),
                Err(_) => newest(Path::new("/usr/lib/postgresql"))?.join("bin"),
            };
            folder.join("postgres").exists().then(|| Self { folder, user: unprivileged() })
        });
        if found.is_none() {
            leave_out("PostgreSQL");
        }
        found.as_ref()
    }

    fn command(&self, name: &str, folder: &Folder) -> Command {
        let mut command = Command::new(self.folder.join(name));
        command.current_dir(&folder.path).stdin(Stdio::null()).stdout(Stdio::null());
        command.env("LC_ALL", "C");
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }

    /// Returns the files of a server that was never used, which each server begins with.
    fn template(&self) -> &'static Path {
        // The folder goes when its guard notices the end of this process.
        static MADE: OnceLock<Folder> = OnceLock::new();
        let made = MADE.get_or_init(|| {
            let folder = Folder::new(self);
            let mut command = self.command("initdb", &folder);
            command.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8"]);
            command.args(["--locale=C", "--wal-segsize=1", "--no-instructions", "-D", "data"]);
            done(&mut command);
            folder
        });
        &made.path
    }
}

/// Returns the subfolder with the greatest number for its name.
fn newest(folder: &Path) -> Option<PathBuf> {
    let versions = folder.read_dir().ok()?.map(|entry| entry.expect("it can be read").path());
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    versions.max_by_key(number)
}

/// Returns the user and the group of the server if this process is root's.
fn unprivileged() -> Option<(u32, u32)> {
    let is_root = Path::new("/proc/self").metadata().is_ok_and(|process| process.uid() == 0);
    let number = |which| {
        let told = Command::new("id").args([which, "postgres"]).output().expect("there is `id`");
        let number = String::from_utf8_lossy(&told.stdout).trim().parse();
        number.expect("there is a user `postgres`")
    };
    is_root.then(|| (number("-u"), number("-g")))
}

fn done(command: &mut Command) {
    let ended = command.output().expect("it starts");
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
}

/// A server with its folder and its port.
pub(crate) struct PostgresServer {
    pub(crate) port: u16,
    programs: &'static Programs,
    settings: Vec<String>,
    /// The library that is preloaded for a clock that can be set.
    preload: Option<PathBuf>,
    process: Mutex<Option<Child>>,
    // Dropped last, because its guard ends what still runs.
    folder: Folder,
}

impl PostgresServer {
    /// Starts a server with further settings. Returns `None` if the programs are not installed.
    pub(crate) fn start(settings: &[&str]) -> Option<Self> {
        let mut server = Self::new(Programs::find()?, settings);
        server.fill();
        server.launch();
        Some(server)
    }

    /// Starts a server whose clock can be [set](Self::set_clock).
    pub(crate) fn with_clock(settings: &[&str]) -> Option<Self> {
        let mut server = Self::new(Programs::find()?, settings);
        server.preload = Some(compiled_clock(&server.folder.path));
        server.fill();
        server.launch();
        Some(server)
    }

    /// Starts a server with these rules of access (`pg_hba.conf`).
    pub(crate) fn with_access(access: &str) -> Option<Self> {
        let mut server = Self::new(Programs::find()?, &["password_encryption=scram-sha-256"]);
        server.fill();
        server.write("pg_hba.conf", access);
        server.launch();
        Some(server)
    }

    /// Starts a server with TLS: with its certificate and key, the authority that must have signed
    /// client certificates, and the rules of access (`pg_hba.conf`).
    pub(crate) fn with_tls([certificate, key, authority]: [&str; 3], access: &str) -> Option<Self> {
        let mut server = Self::new(Programs::find()?, &["ssl=on", "ssl_ca_file=root.crt"]);
        server.fill();
        let files = [
            ("server.crt", certificate),
            ("server.key", key),
            ("root.crt", authority),
            ("pg_hba.conf", access),
        ];
        for (name, text) in files {
            server.write(name, text);
        }
        server.launch();
        Some(server)
    }

    /// Returns a server that the tests of this process share. It does not survive a failure of
    /// power, so that it is fast.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<PostgresServer>> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&["fsync=off", "max_connections=500"])).as_ref()
    }

    /// Starts a standby of this server, with a clock that can be set if this server has one.
    pub(crate) fn standby(&self, settings: &[&str]) -> Self {
        let mut standby = Self::new(self.programs, settings);
        standby.preload = self.preload.is_some().then(|| compiled_clock(&standby.folder.path));
        standby.copy(self);
        standby.launch();
        standby
    }

    /// Starts this server, which was killed, as a standby of another one.
    pub(crate) fn follow(&self, primary: &Self) {
        std::fs::remove_dir_all(self.folder.data()).expect("the data are removed");
        self.copy(primary);
        self.resume();
    }

    fn new(programs: &'static Programs, settings: &[&str]) -> Self {
        let settings = SETTINGS.iter().chain(settings).map(|&setting| setting.to_owned()).collect();
        let (folder, process) = (Folder::new(programs), Mutex::new(None));
        Self { port: 0, programs, settings, preload: None, process, folder }
    }

    /// Gives it the data of a server that was never used.
    fn fill(&self) {
        let template = self.programs.template().join("data");
        done(Command::new("cp").arg("-a").arg(template).arg(&self.folder.path));
    }

    /// Writes a file of its data, for it alone.
    fn write(&self, name: &str, text: &str) {
        let path = self.folder.data().join(name);
        std::fs::write(&path, text).expect("it is written");
        // The server refuses a key that other users can read.
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
        if let Some((user, group)) = self.programs.user {
            chown(&path, Some(user), Some(group)).expect("root may do so");
        }
    }

    /// Gives it the data of another server, whose log it replicates.
    fn copy(&self, primary: &Self) {
        let mut copy = self.programs.command("pg_basebackup", &self.folder);
        copy.args(["--pgdata=data", "--checkpoint=fast", "--wal-method=stream", "--no-sync"]);
        copy.args(["--write-recovery-conf", "--dbname"]);
        done(copy.arg(format!("{} application_name=standby", primary.address("postgres"))));
    }

    fn launch(&mut self) {
        for _ in 0..10 {
            // Another program may take a port before the server does.
            self.port = free_port();
            if self.try_resume() {
                return;
            }
        }
        panic!("PostgreSQL does not start:\n{}", self.log());
    }

    pub(crate) fn url(&self) -> String {
        url(Ipv4Addr::LOCALHOST, &[self.port])
    }

    /// Returns its address for the programs of PostgreSQL.
    fn address(&self, database: &str) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname={database}", self.port)
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last lines of its log.
    pub(crate) fn log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Returns the lines of its log that meet a condition.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn logged(&self, which: impl Fn(&str) -> bool) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.path.join("log")).unwrap_or_default();
        log.lines().filter(|line| which(line)).map(str::to_owned).collect()
    }

    /// Kills all processes of the server.
    pub(crate) fn kill(&self) {
        let Some(mut process) = self.process().take() else { return };
        // Stopped first, so that it starts no other.
        signal("-STOP", &[process.id()]);
        let children = children(process.id());
        signal("-KILL", &children);
        let _ = process.kill();
        let _ = process.wait();
        self.wait_for("the end of its processes", |_| children.iter().all(|id| has_ended(*id)));
    }

    /// Stops all processes of the server. Its connections stay open without replies.
    pub(crate) fn pause(&self) {
        let id = self.id();
        signal("-STOP", &[id]);
        signal("-STOP", &children(id));
    }

    /// Continues the server.
    pub(crate) fn go_on(&self) {
        let id = self.id();
        signal("-CONT", &children(id));
        signal("-CONT", &[id]);
    }

    fn id(&self) -> u32 {
        self.process().as_ref().expect("it runs").id()
    }

    /// Starts the server again with its data.
    pub(crate) fn resume(&self) {
        assert!(self.try_resume(), "the server starts again:\n{}", self.log());
    }

    fn try_resume(&self) -> bool {
        let log = self.folder.path.join("log");
        let log = std::fs::File::options().create(true).append(true).open(log);
        let log = log.expect("a file is made");
        let mut command = self.programs.command("postgres", &self.folder);
        command.args(["-D", "data", "-p", &self.port.to_string()]).stderr(log);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        if let Some(clock) = &self.preload {
            command.env("LD_PRELOAD", clock).env("PROCESS_CLOCK", self.folder.path.join("clock"));
        }
        // When the shell that started the tests ends, the kernel continues all stopped processes of
        // their group, so a server that is paused must have its own.
        command.process_group(0);
        let mut process = command.spawn().expect("it starts");
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if process.try_wait().expect("it is ours").is_some() {
                return false;
            }
            if self.is_ready(process.id()) {
                *self.process() = Some(process);
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = process.kill();
        let _ = process.wait();
        false
    }

    /// Sets the server's clock `ahead` seconds ahead of the machine's.
    pub(crate) fn set_clock(&self, ahead: i64) {
        let (new, clock) = (self.folder.path.join("clock.new"), self.folder.path.join("clock"));
        std::fs::write(&new, ahead.to_string()).expect("it is written");
        // Written in one step, because it is read all the time.
        std::fs::rename(new, clock).expect("it is there");
    }

    /// Returns the time of the server's clock.
    pub(crate) fn now(&self) -> SystemTime {
        let micros = self.order("select (extract(epoch from clock_timestamp()) * 1000000)::bigint");
        UNIX_EPOCH + Duration::from_micros(micros.parse().expect("a number"))
    }

    /// Returns `true` if that process accepts connections.
    fn is_ready(&self, process: u32) -> bool {
        let file = self.folder.data().join("postmaster.pid");
        let told = std::fs::read_to_string(file).unwrap_or_default();
        let mut lines = told.lines().map(str::trim);
        let own = lines.next() == Some(&*process.to_string());
        own && lines.nth(6).is_some_and(|status| ["ready", "standby"].contains(&status))
    }

    /// Executes SQL on a new connection. Returns the rows, with `|` between columns, or `None` if
    /// the server does not respond or rejects it.
    pub(crate) fn say(&self, sql: &str) -> Option<String> {
        self.psql(sql).ok()
    }

    /// Like [`say`](Self::say), and fails on an error.
    pub(crate) fn order(&self, sql: &str) -> String {
        self.psql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Executes SQL in another database, and fails on an error.
    #[allow(dead_code, reason = "each program uses a part")]
    pub(crate) fn order_in(&self, database: &str, sql: &str) -> String {
        let told = psql(&mut self.client_of(database, sql));
        told.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Starts a session of another client that executes SQL.
    #[allow(dead_code, reason = "each program uses a part")]
    pub(crate) fn begin(&self, sql: &str) -> Child {
        self.client(sql).spawn().expect("it starts")
    }

    /// Starts a transaction of another client with a snapshot of now. While it is open, the rows
    /// that are deleted cannot be vacuumed away.
    pub(crate) fn hold_snapshot(&self) -> Child {
        let holds = "begin isolation level repeatable read; select pg_sleep(86400)";
        let holder = self.client(holds).spawn().expect("it starts");
        self.wait_for("the transaction", Self::holds_snapshot);
        holder
    }

    /// Returns `true` if that transaction is open.
    pub(crate) fn holds_snapshot(&self) -> bool {
        self.order(&format!("select count(*) from {HOLDER} and backend_xmin is not null")) == "1"
    }

    /// Ends that transaction.
    pub(crate) fn release_snapshot(&self, mut holder: Child) {
        self.order(&format!("select pg_terminate_backend(pid) from {HOLDER}"));
        holder.wait().expect("it ends");
    }

    fn psql(&self, sql: &str) -> Result<String, String> {
        psql(&mut self.client(sql))
    }

    fn client(&self, sql: &str) -> Command {
        self.client_of("postgres", sql)
    }

    fn client_of(&self, database: &str, sql: &str) -> Command {
        let mut command = self.programs.command("psql", &self.folder);
        command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql]).arg(self.address(database));
        command.env("PGCONNECT_TIMEOUT", "30").env("PGAPPNAME", "test").stdout(Stdio::piped());
        // Whatever the server's defaults are.
        command.env("PGOPTIONS", "-c statement_timeout=0 -c default_transaction_read_only=off");
        command
    }

    /// Changes a setting of the running server.
    pub(crate) fn configure(&self, setting: &str, value: &str) {
        self.order(&format!("alter system set {setting} = '{value}'"));
        let loaded = "select pg_conf_load_time()";
        let before = self.order(loaded);
        self.order("select pg_reload_conf()");
        // The server signals all sessions before a new session sees another time of the load.
        self.wait_for(setting, |server| server.order(loaded) != before);
    }

    /// Returns the processor time of all its processes in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        let id = self.id();
        let own = ticks(id, 4);
        (own + children(id).into_iter().map(|child| ticks(child, 2)).sum::<f64>()) / 100.0
    }

    /// Ends all connections of other programs. Returns their number.
    pub(crate) fn cut(&self) -> usize {
        let cut = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where backend_type = 'client backend' and application_name <> 'test'";
        self.order(cut).lines().count()
    }

    /// Makes a standby the primary.
    pub(crate) fn promote(&self) {
        assert_eq!(self.order("select pg_promote()"), "t", "{}", self.log());
    }

    /// Waits until the condition holds.
    pub(crate) fn wait_for(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !so(self) {
            assert!(begun.elapsed() < PATIENCE, "PostgreSQL: {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until its standby has replayed all that this server has written.
    pub(crate) fn wait_until_copied(&self) {
        let copied = "select count(*) > 0 and bool_and(replay_lsn >= pg_current_wal_lsn()) \
                      from pg_stat_replication";
        self.wait_for("the standby has it all", |server| server.order(copied) == "t");
    }
}

/// Runs a client to its end. Returns its output, or its errors if it fails.
fn psql(client: &mut Command) -> Result<String, String> {
    let told = client.output().expect("it starts");
    let text = |bytes| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if told.status.success() { Ok(text(&told.stdout)) } else { Err(text(&told.stderr)) }
}

/// The timeout for servers to get into a state.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the address of several servers, one of them the primary.
pub(crate) fn url(host: Ipv4Addr, ports: &[u16]) -> String {
    let hosts: Vec<String> = ports.iter().map(|port| format!("{host}:{port}")).collect();
    let which = if hosts.len() > 1 { "?target_session_attrs=read-write" } else { "" };
    format!("postgres://postgres@{}/postgres{which}", hosts.join(","))
}

/// Returns the child processes of a process.
fn children(process: u32) -> Vec<u32> {
    let file = format!("/proc/{process}/task/{process}/children");
    let told = std::fs::read_to_string(file).unwrap_or_default();
    told.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// Returns `true` if the process does not exist any more, or only as an entry without a parent that
/// asks for it.
fn has_ended(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat"));
    status.map_or(true, |status| status.contains(") Z "))
}

/// Returns the processor time of a process in Linux's ticks, a hundred per second: the user's and
/// the system's time, and with four fields also the time of its children that have ended.
fn ticks(process: u32, fields: usize) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    after_name.skip(11).take(fields).filter_map(|ticks| ticks.parse::<f64>().ok()).sum()
}

/// Sends a signal to processes, some of which may have ended.
fn signal(signal: &str, processes: &[u32]) {
    let ids = processes.iter().map(u32::to_string);
    let sent = Command::new("kill").arg(signal).args(ids).stderr(Stdio::null()).status();
    sent.expect("there is `kill`");
}
