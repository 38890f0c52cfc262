//! Redis servers for tests: real processes on free loopback ports. They are killed when they are
//! dropped, and when the tests are killed.
//!
//! The program is `redis-server`, or the program that `REDIS_SERVER` names, such as
//! `valkey-server`. Where it is missing, a test reports that and passes. With `REDIS_TESTS=must` in
//! the environment, as on CI, it fails.

#![allow(clippy::disallowed_methods, reason = "a server is waited for")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Two lines of the log of a server, or of a sentinel, that accepts connections and has read its
/// file.
const READY: [&str; 2] = ["Ready to accept connections", "Sentinel ID is"];

/// A server with its folder and its ports.
pub(crate) struct Server {
    folder: PathBuf,
    pub(crate) port: u16,
    /// The port for the other nodes of its cluster.
    bus: u16,
    options: Vec<String>,
    /// The configuration of a sentinel, which the program rewrites.
    config: Option<String>,
    /// The library that is preloaded for a clock that can be set.
    preload: Option<PathBuf>,
    process: Mutex<Option<Process>>,
}

/// A process that is killed when it is dropped, and also when the tests end without that.
struct Process {
    process: Child,
    /// A shell that waits for the end of its input, which the system closes when the tests end,
    /// however they do. Only then does it kill the process.
    guard: Child,
}

impl Process {
    /// Starts a process with its folder, which the guard removes.
    fn spawn(command: &mut Command, folder: &Path) -> Self {
        let process = command.spawn().expect("it starts");
        let mut guard = Command::new("sh");
        guard.args(["-c", "read -r _; kill -9 \"$0\"; rm -rf \"$1\""]);
        guard.arg(process.id().to_string()).arg(folder).stdin(Stdio::piped());
        // Signals for the group of the tests must not reach the guard.
        own_group(&mut guard);
        Self { process, guard: guard.spawn().expect("there is a shell") }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The guard is first, because the number of a process that has ended may be given again.
        for process in [&mut self.guard, &mut self.process] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn own_group(command: &mut Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(not(unix))]
    let _ = command;
}

impl Server {
    /// Starts a server with further options. Returns `None` if the program is not installed.
    pub(crate) fn start(options: &[&str]) -> Option<Self> {
        Self::launch(options, false, None)
    }

    /// Starts a sentinel with this configuration.
    pub(crate) fn sentinel(config: &str) -> Option<Self> {
        Self::launch(&[], false, Some(config))
    }

    /// Starts a server whose clock can be [set](Self::set_clock).
    pub(crate) fn with_clock() -> Option<Self> {
        Self::launch(&[], true, None)
    }

    fn launch(options: &[&str], clock: bool, config: Option<&str>) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let program = program();
        if Command::new(&program).arg("--version").output().is_err() {
            let must = std::env::var("REDIS_TESTS").is_ok_and(|value| value == "must");
            assert!(!must, "{program} is missing, and REDIS_TESTS is `must`");
            // Not with `eprintln`, whose output is hidden for a test that passes.
            let note = format!("left out: a test on Redis, as {program} is not on the path\n");
            let _ = std::io::stderr().write_all(note.as_bytes());
            return None;
        }
        let count = COUNT.fetch_add(1, SeqCst);
        let name = format!("tourbillon-redis-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder is made");
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let preload = clock.then(|| compiled_clock(&folder));
        let (process, config) = (Mutex::new(None), config.map(str::to_owned));
        let mut server = Self { folder, port: 0, bus: 0, options, config, preload, process };
        for _ in 0..10 {
            // Another program may take a port before the server does.
            (server.port, server.bus) = (free_port(), free_port());
            if server.try_resume() {
                return Some(server);
            }
        }
        panic!("{program} does not start in {:?}", server.folder);
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Kills the process.
    pub(crate) fn kill(&self) {
        drop(self.process().take());
    }

    /// Stops the process. Its connections stay open without replies.
    pub(crate) fn pause(&self) {
        self.signal("-STOP");
    }

    /// Continues the process.
    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.process().as_ref().expect("it runs").process.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().expect("there is `kill`");
        assert!(sent.success(), "{signal}");
    }

    /// Starts the server again with its persisted data.
    pub(crate) fn resume(&self) {
        assert!(self.try_resume(), "the server starts again");
    }

    fn try_resume(&self) -> bool {
        let (port, bus) = (self.port.to_string(), self.bus.to_string());
        let mut command = Command::new(program());
        if let Some(config) = &self.config {
            let file = self.folder.join("sentinel.conf");
            std::fs::write(&file, config).expect("it is written");
            command.arg(file).arg("--sentinel");
        }
        command.args(["--port", &port, "--cluster-port", &bus, "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--dir"]);
        let log = self.folder.join("log");
        let output = File::create(&log).expect("it is written");
        command.arg(&self.folder).args(&self.options).stdout(output);
        // When the shell that started the tests ends, the kernel continues all stopped processes of
        // their group, so a server that is paused must have its own.
        own_group(&mut command);
        if let Some(clock) = &self.preload {
            command.env("LD_PRELOAD", clock).env("PROCESS_CLOCK", self.folder.join("clock"));
        }
        let mut process = Process::spawn(&mut command, &self.folder);
        for _ in 0..1000 {
            if process.process.try_wait().expect("it is ours").is_some() {
                return false;
            }
            // A reply may be from another server that has taken the port.
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            if READY.iter().any(|ready| said.contains(ready)) {
                *self.process() = Some(process);
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Sets the server's clock `ahead` seconds ahead of the machine's.
    pub(crate) fn set_clock(&self, ahead: i64) {
        let (new, clock) = (self.folder.join("clock.new"), self.folder.join("clock"));
        std::fs::write(&new, ahead.to_string()).expect("it is written");
        // Written in one step, because it is read all the time.
        std::fs::rename(new, clock).expect("it is there");
    }

    /// Returns the time of the server's clock.
    pub(crate) fn now(&self) -> SystemTime {
        let said = self.order("TIME");
        let mut numbers = said.lines().filter_map(|line| line.parse::<u64>().ok());
        let mut next = || numbers.next().expect("a number");
        let (seconds, micros) = (next(), next());
        UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(micros)
    }

    /// Sends one command, in words, on a new connection.
    pub(crate) fn say(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut answer = vec![0; 65_536];
        let length = stream.read(&mut answer).ok()?;
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        // The server is still reading its file.
        (!answer.starts_with("-LOADING")).then_some(answer)
    }

    /// Like [`say`](Self::say), and fails on an error.
    pub(crate) fn order(&self, command: &str) -> String {
        let said = self.say(command).expect("an answer");
        assert!(!said.starts_with('-'), "{command}: {said}");
        said
    }

    /// Returns `true` if its replication information has that line.
    pub(crate) fn is(&self, line: &str) -> bool {
        self.say("INFO replication").is_some_and(|info| info.contains(line))
    }

    /// Waits until the condition holds.
    pub(crate) fn wait_for(&self, what: &str, so: impl Fn(&Self) -> bool) {
        wait_until(what, || so(self));
    }

    /// Returns `true` if the server is a replica that is connected to its master.
    pub(crate) fn follows(&self) -> bool {
        self.is("role:slave") && self.is("master_link_status:up")
    }

    /// Returns the port for TLS.
    pub(crate) fn tls_port(&self) -> Option<u16> {
        let place = self.options.iter().position(|option| option == "--tls-port")?;
        self.options.get(place + 1)?.parse().ok()
    }

    /// Returns the server's name in its cluster.
    fn name(&self) -> String {
        let said = self.order("CLUSTER MYID");
        said.lines().nth(1).expect("a name").to_owned()
    }

    /// Returns a value from `INFO`.
    pub(crate) fn figure(&self, section: &str, name: &str) -> Option<String> {
        let info = self.order(&format!("INFO {section}"));
        let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned());
        info.lines().find_map(value)
    }

    /// Returns the number of calls of a command, including calls in scripts.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let calls = |figure: String| -> Option<u64> {
            figure.strip_prefix("calls=")?.split(',').next()?.parse().ok()
        };
        let figure = self.figure("commandstats", &format!("cmdstat_{command}"));
        figure.map_or(0, |figure| calls(figure).expect("a number of calls"))
    }

    fn process(&self) -> std::sync::MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the program of a server.
fn program() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// Compiles the library that is preloaded into a process whose clock can be set.
pub(crate) fn compiled_clock(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, include_str!("clock.c")).expect("it is written");
    let mut compiler = Command::new("cc");
    let compiler = compiler.args(["-shared", "-fPIC"]).arg(source).arg("-ldl");
    let compiler = compiler.arg("-o").arg(&library);
    assert!(compiler.status().expect("there is `cc`").success(), "it compiles");
    library
}

pub(crate) fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    free.local_addr().expect("it has an address").port()
}

/// The timeout for a cluster to get into a state.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn wait_until(what: &str, so: impl Fn() -> bool) {
    assert!(is_in_time(PATIENCE, so), "the servers: {what}");
}

fn is_in_time(limit: Duration, so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !so() {
        if begun.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Three masters that share the slots of a cluster, each with a replica if there are any. The
/// master nodes change when a replica takes over.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
}

impl Cluster {
    pub(crate) fn start() -> Option<Self> {
        Some(Self::assemble((0..3).map(|_| Self::node(&[], 0)).collect::<Option<_>>()?))
    }

    /// Like [`start`](Self::start), with six nodes and further options.
    pub(crate) fn with_replicas(options: &[&str]) -> Option<Self> {
        Self::with_clocks(options, &[0; 6])
    }

    /// Like [`with_replicas`](Self::with_replicas), with nodes whose clocks are some seconds ahead,
    /// or behind.
    pub(crate) fn with_clocks(options: &[&str], clocks: &[i64; 6]) -> Option<Self> {
        let node = |ahead: &i64| Self::node(options, *ahead);
        let cluster = Self::assemble(clocks.iter().map(node).collect::<Option<_>>()?);
        let (masters, replicas) = cluster.nodes.split_at(3);
        for (replica, master) in replicas.iter().zip(masters) {
            replica.order(&format!("CLUSTER REPLICATE {}", master.name()));
        }
        wait_until("the replicas follow", || replicas.iter().all(Server::follows));
        cluster.settle();
        Some(cluster)
    }

    /// Like [`start`](Self::start), with the options for a port with TLS.
    pub(crate) fn with_tls(options: impl Fn(u16) -> Vec<String>) -> Option<Self> {
        let node = |_| {
            let more = [options(free_port()), vec!["--tls-cluster".into(), "yes".into()]].concat();
            Self::node(&more.iter().map(String::as_str).collect::<Vec<_>>(), 0)
        };
        Some(Self::assemble((0..3).map(node).collect::<Option<_>>()?))
    }

    /// Starts a node whose clock is `ahead` seconds ahead.
    fn node(more: &[&str], ahead: i64) -> Option<Server> {
        let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
        let options = [&options, more].concat();
        if ahead == 0 {
            return Server::start(&options);
        }
        let node = Server::launch(&options, true, None)?;
        node.set_clock(ahead);
        Some(node)
    }

    fn assemble(nodes: Vec<Server>) -> Self {
        for (node, slots) in nodes.iter().zip(["0 5460", "5461 10922", "10923 16383"]) {
            node.order(&format!("CLUSTER ADDSLOTSRANGE {slots}"));
        }
        for (place, node) in nodes.iter().enumerate() {
            node.order(&format!("CLUSTER SET-CONFIG-EPOCH {}", place + 1));
            let port = node.tls_port().unwrap_or(node.port);
            nodes[0].order(&format!("CLUSTER MEET 127.0.0.1 {port} {}", node.bus));
        }
        let cluster = Self { nodes };
        cluster.settle();
        cluster
    }

    /// Waits until all nodes know all slots.
    pub(crate) fn settle(&self) {
        let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
        let whole = |node: &Server| {
            let info = node.say("CLUSTER INFO").unwrap_or_default();
            info.contains("cluster_state:ok") && info.contains(&known)
        };
        wait_until("it comes together", || self.nodes.iter().all(whole));
    }

    /// Returns the master of the slot of a key.
    pub(crate) fn owner(&self, key: &str) -> &Server {
        let owns = |node: &&Server| {
            let value = node.say(&format!("GET {key}")).unwrap_or_default();
            !value.starts_with("-MOVED")
        };
        self.nodes.iter().find(owns).expect("somebody owns it")
    }

    /// Moves the slot of a key to the next master, key by key, while it is in use.
    pub(crate) fn move_slot(&self, key: &str) {
        let Move { slot, from, to } = self.begin_move(key);
        loop {
            let keys = from.order(&format!("CLUSTER GETKEYSINSLOT {slot} 10"));
            let keys: Vec<&str> = keys.lines().filter(|line| line.starts_with('{')).collect();
            if keys.is_empty() {
                break;
            }
            let keys = keys.join(" ");
            from.order(&format!("MIGRATE 127.0.0.1 {} \"\" 0 5000 KEYS {keys}", to.port));
            std::thread::sleep(Duration::from_millis(2));
        }
        for node in [to, from] {
            node.order(&format!("CLUSTER SETSLOT {slot} NODE {}", to.name()));
        }
    }

    /// Starts to move the slot of a key to the next master, without moving any key yet.
    pub(crate) fn begin_move(&self, key: &str) -> Move<'_> {
        let number = |said: String| said.trim_start_matches(':').trim().to_owned();
        let slot = number(self.nodes[0].order(&format!("CLUSTER KEYSLOT {key}")));
        let from = self.owner(key);
        let mut after = self.nodes.iter().cycle().skip_while(|node| node.port != from.port).skip(1);
        let to = after.find(|node| node.is("role:master")).expect("there are masters");
        to.order(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.name()));
        from.order(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.name()));
        Move { slot, from, to }
    }

    /// Waits until the replica of the master of a key's slot is up to date.
    pub(crate) fn wait_until_copied(&self, key: &str) {
        let master = self.owner(key);
        let replica = self.replica_of(master);
        wait_until("the replica has it all", || {
            let sent = master.figure("replication", "master_repl_offset");
            sent.is_some() && sent == replica.figure("replication", "slave_repl_offset")
        });
    }

    fn replica_of(&self, master: &Server) -> &Server {
        let its = format!("master_port:{}\r", master.port);
        self.nodes.iter().find(|node| node.is(&its)).expect("it has a replica")
    }

    /// Makes the replica of the master of a key's slot take over once it is up to date. The master
    /// then becomes its replica.
    pub(crate) fn fail_over(&self, key: &str) {
        let old = self.owner(key);
        let new = self.replica_of(old);
        wait_until("the replica follows", || new.follows());
        // The server gives an attempt up after five seconds if the master is busy.
        let taken_over = || {
            new.order("CLUSTER FAILOVER");
            is_in_time(Duration::from_secs(6), || new.is("role:master"))
        };
        assert!((0..5).any(|_| taken_over()), "the replica takes over");
        wait_until("the old master follows", || old.follows());
        self.settle();
    }
}

/// A slot that is being moved from one node to another.
pub(crate) struct Move<'a> {
    slot: String,
    from: &'a Server,
    to: &'a Server,
}

impl Move<'_> {
    /// Cancels the move.
    pub(crate) fn give_up(self) {
        for node in [self.from, self.to] {
            node.order(&format!("CLUSTER SETSLOT {} STABLE", self.slot));
        }
    }
}
