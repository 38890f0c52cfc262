//! The workers, from the view of their parent process. They can be killed, paused, and cut from the
//! servers by their [`Line`].

use crate::Failure;
use crate::line::{Line, State};
use crate::log::{self, Entry};
use crate::plan::WORKERS;
use crate::servers::compiled_clock;
use crate::site::Site;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One worker after another, on one line.
#[derive(Debug)]
pub(crate) struct Member {
    line: Line,
    /// The addresses of the servers on that line.
    urls: Vec<String>,
    folder: PathBuf,
    pub(crate) number: usize,
    /// The number of seconds that its clock is ahead.
    ahead: i64,
    process: Mutex<Process>,
}

#[derive(Debug, Default)]
struct Process {
    /// `None` while it is killed.
    child: Option<Child>,
    /// The logs of the workers.
    logs: Vec<PathBuf>,
    /// The workers that ended by themselves, with the reasons.
    failed: Vec<String>,
}

impl Member {
    fn lock(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the next one.
    pub(crate) fn start(&self) -> Result<(), Failure> {
        let mut process = self.lock();
        let log = self.folder.join(format!("{}-{}", self.number, process.logs.len()));
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("worker").arg("--log").arg(&log).args(&self.urls);
        command.env("LD_PRELOAD", self.folder.join("clock.so"));
        command.env("PROCESS_CLOCK", self.clock());
        process.child = Some(command.stdin(Stdio::piped()).spawn()?);
        process.logs.push(log);
        Ok(())
    }

    /// Returns the file with the state of its clock.
    fn clock(&self) -> PathBuf {
        self.folder.join(format!("{}-clock", self.number))
    }

    fn read(&self, path: &Path) -> Result<Vec<Entry>, Failure> {
        log::read(path, 1_000 * self.ahead)
    }

    /// Kills the worker.
    pub(crate) fn kill(&self) -> Result<(), Failure> {
        if let Some(mut child) = self.lock().child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Stops its process, or continues it.
    pub(crate) fn pause(&self, paused: bool) -> Result<(), Failure> {
        if let Some(child) = &self.lock().child {
            let signal = if paused { "-STOP" } else { "-CONT" };
            Command::new("kill").arg(signal).arg(child.id().to_string()).status()?;
        }
        Ok(())
    }

    pub(crate) fn set_line(&self, state: State) {
        self.line.set(state);
    }

    /// Starts another worker if this one has ended by itself, which is an error.
    pub(crate) fn look_after(&self) -> Result<(), Failure> {
        let ended = match &mut self.lock().child {
            Some(child) => child.try_wait()?,
            None => None,
        };
        let Some(status) = ended else { return Ok(()) };
        let mut process = self.lock();
        let which = format!("worker {} ended by itself: {status}", self.number);
        eprintln!("{which}");
        process.failed.push(which);
        drop(process);
        self.start()
    }

    /// Returns the entries that its workers have logged so far.
    pub(crate) fn entries(&self) -> Result<Vec<Entry>, Failure> {
        let logs = self.lock().logs.clone();
        let logs = logs.iter().filter(|path| path.exists()).map(|path| self.read(path));
        Ok(logs.collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// Ends the worker cleanly.
    fn end(&self) -> Result<(), Failure> {
        if let Some(mut child) = self.lock().child.take() {
            drop(child.stdin.take());
            child.wait()?;
        }
        Ok(())
    }
}

/// All workers, and the folder of their logs.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) members: Vec<Member>,
    folder: PathBuf,
}

impl Crew {
    /// Starts workers whose clocks are some seconds ahead.
    pub(crate) async fn start(site: &Site, clocks: [i64; WORKERS]) -> Result<Self, Failure> {
        let name = format!("tourbillon-faults-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder)?;
        let mut crew = Self { members: Vec::new(), folder: folder.clone() };
        compiled_clock(&folder);
        for (number, ahead) in clocks.into_iter().enumerate() {
            let line = Line::new(number, &site.ports()).await?;
            let (urls, folder, process) =
                (site.urls(line.address), folder.clone(), Mutex::default());
            let member = Member { line, urls, folder, number, ahead, process };
            std::fs::write(member.clock(), ahead.to_string())?;
            crew.members.push(member);
        }
        crew.members.iter().try_for_each(Member::start)?;
        Ok(crew)
    }

    /// Ends the workers cleanly. Returns the log of each, and the failures.
    pub(crate) fn end(&self) -> Result<(Vec<Vec<Entry>>, Vec<String>), Failure> {
        self.members.iter().try_for_each(Member::end)?;
        let (mut logs, mut failed) = (Vec::new(), Vec::new());
        for member in &self.members {
            let process = member.lock();
            failed.extend_from_slice(&process.failed);
            for path in process.logs.iter().filter(|path| path.exists()) {
                logs.push(member.read(path)?);
            }
        }
        Ok((logs, failed))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &self.members {
            let _ = member.kill();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
