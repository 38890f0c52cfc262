//! Runs the program on a store.

use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The program, with the address of a store or without one.
pub(crate) struct Tool {
    address: String,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) errors: String,
}

/// A folder that is removed at the end of its test.
pub(crate) struct Folder(PathBuf);

impl Tool {
    pub(crate) fn at(address: &str) -> Self {
        Self { address: address.to_owned() }
    }

    pub(crate) fn file(path: &Path) -> Self {
        Self::at(path.to_str().unwrap())
    }

    /// Runs a command.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, b"")
    }

    /// Runs a command with bytes in its standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        process.stdin.take().unwrap().write_all(input).unwrap();
        let output = process.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap();
        Ran { code, out: text(output.stdout), errors: text(output.stderr) }
    }

    /// Returns a command for the test to run.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_timers"));
        command.args(arguments);
        match &*self.address {
            "" => command.env_remove("TIMERS_STORE"),
            address => command.env("TIMERS_STORE", address),
        };
        command
    }

    /// Runs a command that must succeed, and returns its lines as JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let ran = self.run(&[&["--json"], arguments].concat());
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Runs a list, and returns its objects and, if there are more, its `next`.
    pub(crate) fn page(&self, arguments: &[&str]) -> (Vec<Value>, Option<Value>) {
        let mut found = self.json(arguments);
        let last = found.pop_if(|last| last.get("next").is_some());
        (found, last.map(|mut last| last["next"].take()))
    }

    /// Returns a field of each line of a command.
    pub(crate) fn field(&self, name: &str, arguments: &[&str]) -> Vec<Value> {
        self.json(arguments).into_iter().map(|mut line| line[name].take()).collect()
    }
}

/// Returns unwritable outputs: a pipe without a reader, and a full disk.
pub(crate) fn unwritable() -> [Stdio; 2] {
    let (_, pipe) = std::io::pipe().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    [pipe.into(), full.into()]
}

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Relaxed);
        let folder = std::env::temp_dir().join(format!("timers-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
