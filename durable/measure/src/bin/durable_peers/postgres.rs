//! [`Postgres`], Debian's server with a data directory of its own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running server. It is stopped, and its data removed, when it is dropped.
pub(crate) struct Postgres {
    folder: PathBuf,
    programs: PathBuf,
    port: u16,
}

impl Postgres {
    /// Starts a server with the default settings, by which a commit is on the disk.
    pub(crate) fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("peers-postgres-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let server = Self { folder, programs: programs(), port };
        let run =
            |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
        run(Command::new("chown").arg("postgres").arg(&server.folder));
        run(server
            .command("initdb")
            .args(["--auth", "trust", "--no-instructions", "-D"])
            .arg(server.data()));
        let settings =
            format!("-p {port} -k {} -c listen_addresses=127.0.0.1", server.folder.display());
        run(server.control("start").args(["-w", "-o", &settings]));
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Returns a command of the server's, which refuses to run as root.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(self.programs.join(name));
        command.current_dir(&self.folder).stdout(std::process::Stdio::null());
        command
    }

    fn control(&self, action: &str) -> Command {
        let mut command = self.command("pg_ctl");
        command.arg(action).arg("-D").arg(self.data()).arg("-l").arg(self.folder.join("log"));
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = self.control("stop").args(["-m", "immediate"]).status();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the folder with the programs of the newest installed version.
fn programs() -> PathBuf {
    let versions = Path::new("/usr/lib/postgresql").read_dir().expect("Postgres is installed");
    let versions = versions.map(|entry| entry.unwrap().path());
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    versions.max_by_key(number).expect("a version").join("bin")
}
