//! Redis servers for tests: real processes on free loopback ports, killed when they are dropped.
//!
//! Where there is no `redis-server` on the path a test says so and passes; with `REDIS_TESTS=must`
//! in the environment, as on CI, that is a failure.

#![allow(clippy::disallowed_methods, reason = "a server is waited for")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A server, its folder and its port.
pub(crate) struct Server {
    folder: PathBuf,
    pub(crate) port: u16,
    options: Vec<String>,
    process: Mutex<Option<Child>>,
}

impl Server {
    /// Starts a server with further options; `None`: there is no such program.
    pub(crate) fn start(options: &[&str]) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if Command::new("redis-server").arg("--version").output().is_err() {
            let must = std::env::var("REDIS_TESTS").is_ok_and(|value| value == "must");
            assert!(!must, "redis-server is missing, and REDIS_TESTS is `must`");
            // Not by `eprintln`, which the output of a test that passes does not show.
            let note = b"left out: a test on Redis, as redis-server is not on the path\n";
            let _ = std::io::stderr().write_all(note);
            return None;
        }
        let count = COUNT.fetch_add(1, SeqCst);
        let name = format!("tourbillon-redis-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder is made");
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self { folder, port: 0, options, process: Mutex::new(None) };
        for _ in 0..10 {
            // Somebody may take the port before the server does.
            server.port = free_port();
            if server.try_resume() {
                return Some(server);
            }
        }
        panic!("redis-server does not start in {:?}", server.folder);
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Ends the process at once.
    pub(crate) fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts it again, with what it had written.
    pub(crate) fn resume(&self) {
        assert!(self.try_resume(), "the server starts again");
    }

    fn try_resume(&self) -> bool {
        let port = self.port.to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir"]);
        command.arg(&self.folder).args(&self.options).stdout(Stdio::null());
        let mut process = command.spawn().expect("it starts");
        for _ in 0..1000 {
            if process.try_wait().expect("it is ours").is_some() {
                return false;
            }
            if self.say("PING").is_some_and(|said| said.starts_with(['+', '-'])) {
                *self.process() = Some(process);
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = process.kill();
        let _ = process.wait();
        false
    }

    /// Sends one command, in words, on a connection of its own.
    pub(crate) fn say(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut answer = vec![0; 65_536];
        let length = stream.read(&mut answer).ok()?;
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        // It still reads its file.
        (!answer.starts_with("-LOADING")).then_some(answer)
    }

    /// As [`say`](Self::say), with an answer that is no error.
    pub(crate) fn order(&self, command: &str) -> String {
        let said = self.say(command).expect("an answer");
        assert!(!said.starts_with('-'), "{command}: {said}");
        said
    }

    fn process(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    free.local_addr().expect("it has an address").port()
}

/// Three masters that share the slots of a cluster.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
}

impl Cluster {
    pub(crate) fn start() -> Option<Self> {
        let mut nodes = Vec::new();
        let mut buses = Vec::new();
        for _ in 0..3 {
            let bus = free_port().to_string();
            let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
            nodes.push(Server::start(&[&options[..], &["--cluster-port", &bus]].concat())?);
            buses.push(bus);
        }
        let slots = ["0 5460", "5461 10922", "10923 16383"];
        for (place, node) in nodes.iter().enumerate() {
            node.order(&format!("CLUSTER ADDSLOTSRANGE {}", slots[place]));
            node.order(&format!("CLUSTER SET-CONFIG-EPOCH {}", place + 1));
            let met = format!("CLUSTER MEET 127.0.0.1 {} {}", node.port, buses[place]);
            nodes[0].order(&met);
        }
        let cluster = Self { nodes };
        cluster.settle();
        Some(cluster)
    }

    /// Waits until all nodes know of all slots.
    fn settle(&self) {
        let whole = |node: &Server| {
            let info = node.say("CLUSTER INFO").unwrap_or_default();
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        };
        for _ in 0..3000 {
            if self.nodes.iter().all(whole) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the cluster does not come together");
    }

    /// Moves the slot of a key to the next node, key by key, while others use it.
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
            node.order(&format!("CLUSTER SETSLOT {slot} NODE {}", name(to)));
        }
    }

    /// Begins to move the slot of a key to the next node: no key has been moved yet.
    pub(crate) fn begin_move(&self, key: &str) -> Move<'_> {
        let number = |said: String| said.trim_start_matches(':').trim().to_owned();
        let slot = number(self.nodes[0].order(&format!("CLUSTER KEYSLOT {key}")));
        let owns = |node: &&Server| {
            let count = node.say(&format!("GET {key}")).unwrap_or_default();
            !count.starts_with("-MOVED")
        };
        let from = self.nodes.iter().position(|node| owns(&node)).expect("somebody owns it");
        let (from, to) = (&self.nodes[from], &self.nodes[(from + 1) % 3]);
        to.order(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", name(from)));
        from.order(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", name(to)));
        Move { slot, from, to }
    }
}

/// A slot that is being moved from one node to another.
pub(crate) struct Move<'a> {
    slot: String,
    from: &'a Server,
    to: &'a Server,
}

impl Move<'_> {
    /// It stays where it is after all.
    pub(crate) fn give_up(self) {
        for node in [self.from, self.to] {
            node.order(&format!("CLUSTER SETSLOT {} STABLE", self.slot));
        }
    }
}

fn name(node: &Server) -> String {
    let said = node.order("CLUSTER MYID");
    said.lines().nth(1).expect("a name").to_owned()
}
