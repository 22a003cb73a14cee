//! The driver that starts the browsers of this process and speaks with them.

#[allow(unused, clippy::duplicate_mod, reason = "the database servers mount it too, and need all of it")]
#[path = "../../../db/server/watcher.rs"]
mod watcher;

use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;

use tempfile::TempDir;

use self::watcher::Watcher;

/// chromedriver on a port of its own. It, its browsers and their files do not outlive the test process, by whatever it ends: the same
/// watcher ends them that ends the database servers.
pub(super) struct Driver {
    address: String,
    directory: PathBuf,
    browser: PathBuf,
    _process: Child,
    _watcher: Watcher,
}

/// The driver that the tests of this process share; the first one starts it.
pub(super) fn shared() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(Driver::start)
}

impl Driver {
    fn start() -> Self {
        let (driver, browser) = (program("chromedriver"), program("chromium"));
        let directory = tempfile::Builder::new().prefix("queueable-browser-").tempdir();
        let directory = directory.expect("the system's temporary directory is writable");
        let watcher = Watcher::over(directory.path());
        let directory = directory.keep();
        let log = File::create(directory.join("log")).expect("the directory is writable");
        let mut process = Command::new(&driver)
            .arg("--port=0")
            .current_dir(&directory)
            // Chromium keeps some files beside its profile.
            .env("HOME", &directory)
            .env("TMPDIR", &directory)
            .env("TZ", "UTC")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_CACHE_HOME")
            .env_remove("DISPLAY")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not run: {error}", driver.display()));
        watcher.follow(&process);
        let mut said = BufReader::new(process.stdout.take().expect("it is piped"));
        let address = address_in(&mut said, &directory);
        // So that it never waits for a reader.
        thread::spawn(move || io::copy(&mut said, &mut io::sink()));
        Driver { address, directory, browser, _process: process, _watcher: watcher }
    }

    /// Where it takes commands.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The browser's program.
    pub(super) fn browser(&self) -> &Path {
        &self.browser
    }

    /// An empty profile, which nobody else uses.
    pub(super) fn profile(&self) -> TempDir {
        let profile = tempfile::Builder::new().prefix("profile-").tempdir_in(&self.directory);
        profile.expect("the driver's directory is writable")
    }

    /// What the driver and its browsers have complained about.
    pub(super) fn log(&self) -> String {
        log_in(&self.directory)
    }
}

/// The driver says its port when it listens.
fn address_in(said: &mut impl BufRead, directory: &Path) -> String {
    let port = said.lines().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse::<u16>().ok()
    });
    let port = port.unwrap_or_else(|| panic!("chromedriver has ended without a port: {}", log_in(directory)));
    format!("http://127.0.0.1:{port}")
}

fn log_in(directory: &Path) -> String {
    let log = fs::read(directory.join("log")).unwrap_or_default();
    String::from_utf8_lossy(&log).into_owned()
}

fn program(name: &str) -> PathBuf {
    let in_path = env::var_os("PATH").into_iter().flat_map(|path| env::split_paths(&path).collect::<Vec<_>>());
    in_path.map(|directory| directory.join(name)).find(|file| file.is_file()).unwrap_or_else(|| {
        panic!(
            "these tests need a real browser, and the program `{name}` is not in PATH. Install the Debian packages `chromium` and \
             `chromium-driver`."
        )
    })
}
