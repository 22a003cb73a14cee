//! Private, throw-away servers: each belongs to one test process and does not outlive it.
//!
//! `postgres.rs` and `mysql.rs` mount this file, so `super` is the database it works for. They provide the names
//! (`PRODUCT`, `PACKAGE`, `VARIABLE`, `ACCOUNT`), the two commands (`initialize`, `serve`), `root_url`, and
//! `DATA_DIRECTORY`, the SQL expression that identifies a server by its directory.

mod installed;
mod watcher;

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};
use std::{env, process};

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;

pub(super) use self::installed::program;
#[allow(unused, reason = "PostgreSQL's root needs it")]
pub(super) use self::installed::program_of;

use self::installed::Account;
use self::watcher::Watcher;
use super::Conn;

/// How long a server may take to create its files, to answer, or to come back after a kill.
const PATIENCE: Duration = Duration::from_secs(300);

/// The server that this process's tests share: the one that the variable names, or a private one, which the first test starts.
pub(super) fn shared_url() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    static SERVER: OnceLock<PrivateServer> = OnceLock::new();
    URL.get_or_init(|| match env::var(super::VARIABLE) {
        Ok(url) if !url.is_empty() => url,
        _ => SERVER.get_or_init(PrivateServer::start).url().to_owned(),
    })
}

/// A server that only its owner uses, for tests that take it down.
///
/// It listens on one loopback port for all its life. Dropping the value ends the server and removes its files; so does any
/// end of the test process.
pub(crate) struct PrivateServer {
    site: Site,
    port: u16,
    url: String,
    process: Mutex<Child>,
}

impl PrivateServer {
    /// Creates a server's files in a directory of its own, starts it, and waits until it answers.
    pub(crate) fn start() -> Self {
        Self::start_with(super::initialize, Vec::new())
    }

    /// The same with another command to create the files, and with further arguments for the server.
    pub(crate) fn start_with(initialize: impl FnOnce(&Path) -> Command, arguments: Vec<String>) -> Self {
        Self::start_as(Kind { serve: super::serve, is_there }, initialize, arguments)
    }

    /// The same with a program of another kind, which speaks the database's protocol.
    pub(crate) fn start_as(kind: Kind, initialize: impl FnOnce(&Path) -> Command, arguments: Vec<String>) -> Self {
        let site = Site::prepare(kind, initialize, arguments);
        let mut refusals = Vec::new();
        for port in free_ports().take(10) {
            let url = super::root_url(port);
            match site.launch(port, &url) {
                Ok(process) => return Self { site, port, url, process: Mutex::new(process) },
                // Another process may have taken the port at this moment: try the next one.
                Err(status) => refusals.push(format!("port {port}: {status}")),
            }
        }
        panic!("{} does not start: {}\n{}", super::PRODUCT, refusals.join(", "), site.log())
    }

    /// The address of the server itself; a test works in a [`Database::on`](super::Database::on) it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The port on which it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Gives it other arguments from its next start on.
    pub(crate) fn set_arguments(&self, arguments: Vec<String>) {
        *self.site.arguments.lock().expect("nobody panics while holding the arguments") = arguments;
    }

    /// Where it keeps its files.
    pub(crate) fn directory(&self) -> &Path {
        &self.site.directory
    }

    /// The end of its log.
    pub(crate) fn log(&self) -> String {
        self.site.log()
    }

    /// Kills the server and its sessions as `kill -9` does, and returns when it is gone. Does nothing to a server that has ended.
    pub(crate) fn kill(&self) {
        let mut process = self.process.lock().expect("nobody panics while holding the server");
        if process.try_wait().expect("the server is a child of this process").is_some() {
            return self.site.watcher.forget();
        }
        let killed = Command::new("sh").args(["-c", KILL, "kill"]).arg(process.id().to_string()).status();
        assert!(killed.is_ok_and(|status| status.success()), "the server belongs to this process");
        // In this order, because until the wait the system cannot give the process id to another process.
        self.site.watcher.forget();
        process.wait().expect("the server is a child of this process");
    }

    /// Starts a killed server again, on the same files and the same port, and waits until it answers.
    pub(crate) fn restart(&self) {
        let mut process = self.process.lock().expect("nobody panics while holding the server");
        let ended = process.try_wait().expect("the server is a child of this process");
        assert!(ended.is_some(), "restart() is for a server that was killed");
        let deadline = Instant::now() + PATIENCE;
        loop {
            // PostgreSQL refuses to start while a process of the killed server still runs.
            match self.site.launch(self.port, &self.url) {
                Ok(started) => break *process = started,
                Err(status) if Instant::now() > deadline => panic!("no restart: {status}\n{}", self.site.log()),
                Err(_) => {}
            }
        }
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.site.watcher.finish(process);
    }
}

/// A session of PostgreSQL is a process of its own, which outlives the server by a moment and may answer one more query.
/// So the server is stopped first, to have no further children, and then killed together with those it has.
const KILL: &str = r#"
kill -s STOP "$1"
kill -s KILL "$1" $(cat "/proc/$1/task/$1/children" || pgrep -P "$1")
"#;

/// A kind of server.
pub(crate) struct Kind {
    /// The command that serves on a port, with its files in a directory.
    pub(crate) serve: fn(&Path, u16) -> Command,
    /// Whether the server with its files in this directory answers there.
    pub(crate) is_there: fn(&str, &Path) -> bool,
}

/// Where a server lives: a directory, the account that owns it, and the watcher that removes it.
struct Site {
    kind: Kind,
    directory: PathBuf,
    /// Further arguments for its start.
    arguments: Mutex<Vec<String>>,
    account: Option<Account>,
    watcher: Watcher,
}

impl Site {
    fn prepare(kind: Kind, initialize: impl FnOnce(&Path) -> Command, arguments: Vec<String>) -> Self {
        let directory = tempfile::Builder::new()
            .prefix(&format!("queueable-{}-", super::NAME))
            .tempdir()
            .expect("the system's temporary directory is writable");
        let watcher = Watcher::over(directory.path());
        let directory = directory.keep();
        let account = Account::needed_in(&directory);
        if let Some(account) = &account {
            chown(&directory, Some(account.user), Some(account.group)).expect("root may give a directory away");
        }
        let site = Self { kind, directory, arguments: Mutex::new(arguments), account, watcher };
        let mut initialize = site.spawn(initialize(&site.data()));
        let status = initialize.wait().expect("the command is a child of this process");
        site.watcher.forget();
        assert!(status.success(), "{} cannot create its files: {status}\n{}", super::PRODUCT, site.log());
        site
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Starts the server and waits until it answers; `Err` if it ended instead.
    fn launch(&self, port: u16, url: &str) -> Result<Child, ExitStatus> {
        let mut command = (self.kind.serve)(&self.data(), port);
        command.args(&*self.arguments.lock().expect("nobody panics while holding the arguments"));
        let mut server = self.spawn(command);
        let status = eventually("a new server answers or ends", || {
            if let Some(status) = server.try_wait().expect("the server is a child of this process") {
                return Some(Some(status));
            }
            // Another server may have taken the port. This one is about to end then.
            (self.kind.is_there)(url, &self.data()).then_some(None)
        });
        match status {
            None => Ok(server),
            Some(status) => {
                self.watcher.forget();
                Err(status)
            }
        }
    }

    fn spawn(&self, mut command: Command) -> Child {
        let log = File::options().create(true).append(true).open(self.log_file()).expect("the directory is writable");
        if let Some(account) = &self.account {
            command.gid(account.group).uid(account.user);
        }
        let child = command
            .current_dir(&self.directory)
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            // MariaDB servers that share a directory for temporary tables remove each other's.
            .env("TMPDIR", &self.directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file handle can be copied"))
            .stderr(log)
            // Its own process group, so that Ctrl-C reaches only the tests, and the watcher can end the group.
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not run: {error}"));
        self.watcher.follow(&child);
        child
    }

    fn log_file(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// The end of the server's log, for a panic's message.
    fn log(&self) -> String {
        let log = fs::read(self.log_file()).unwrap_or_default();
        let lines: Vec<_> = log.split(|&byte| byte == b'\n').collect();
        let end = &lines[lines.len().saturating_sub(50)..];
        String::from_utf8_lossy(&end.join(&b'\n')).into_owned()
    }
}

/// Ports that are free, none twice in this process.
///
/// They lie below the range from which systems choose the client's end of a connection. Within it, a client that keeps
/// trying the port of a killed server may get that very port as its own, and connect to itself.
pub(crate) fn free_ports() -> impl Iterator<Item = u16> {
    const COUNT: u16 = 7_500;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = process::id().wrapping_mul(131);
    std::iter::repeat_with(move || {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).into()) % u32::from(COUNT);
        super::FIRST_PORT + u16::try_from(offset).expect("an offset is less than COUNT")
    })
    .filter(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
}

/// Whether the server that answers there has this data directory.
fn is_there(url: &str, data: &Path) -> bool {
    let Ok(mut connection) = Conn::establish(url) else { return false };
    let directory = diesel::select(sql::<Text>(super::DATA_DIRECTORY)).get_result::<String>(&mut connection);
    let Ok((directory, data)) =
        directory.map(|directory| (PathBuf::from(directory).canonicalize(), data.canonicalize()))
    else {
        return false;
    };
    directory.ok().zip(data.ok()).is_some_and(|(directory, data)| directory == data)
}

/// Asks again and again until there is an answer. Other processes send no signal to wait for, so an empty channel paces it.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    let (_nobody, pace) = mpsc::channel::<()>();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        let _ = pace.recv_timeout(Duration::from_millis(20));
    }
}
