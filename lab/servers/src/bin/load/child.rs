//! [`Child`] is a server in a process of its own, so that its CPU time is separate.

use crate::Failure;
use crate::servers::Server;
use nix::sys::time::TimeValLike;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use serde_json::Value;
use std::env::consts::EXE_SUFFIX;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{self, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A running server. Dropping it ends the process.
pub(crate) struct Child {
    process: process::Child,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Child {
    /// Starts the server and waits until it listens.
    pub(crate) fn start(server: &Server, timeout: Duration) -> Result<Self, Failure> {
        let beside = std::env::current_exe()?;
        let program = beside.with_file_name(format!("{}{EXE_SUFFIX}", server.program));
        let mut process = Command::new(&program)
            .args(["--listen", "127.0.0.1:0", "--idle"])
            .arg(humantime::format_duration(timeout).to_string().replace(' ', ""))
            .args(server.protocol)
            .args(server.options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let mut output = BufReader::new(process.stdout.take().ok_or("it has no output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        // listening on ADDRESS; ends with standard input
        let address = line.strip_prefix("listening on ").and_then(|rest| rest.split_once(';'));
        let address = address.and_then(|(address, _)| address.parse().ok());
        let address = address.ok_or("it did not say what address it listens on")?;
        Ok(Self { process, output, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reads the next line of its output.
    pub(crate) fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    /// The CPU time used so far.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        let id = Pid::from_raw(i32::try_from(self.process.id())?);
        let used = clock_getcpuclockid(id)?.now()?;
        Ok(Duration::from_nanos(u64::try_from(used.num_nanoseconds())?))
    }

    /// Ends the server and returns its report.
    pub(crate) fn stop(mut self) -> Result<Value, Failure> {
        drop(self.process.stdin.take());
        let mut report = String::new();
        self.output.read_to_string(&mut report)?;
        let status = self.process.wait()?;
        let report = report.lines().last().ok_or_else(|| format!("no report; {status}"))?;
        Ok(serde_json::from_str(report)?)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It has ended already, unless something went wrong.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
