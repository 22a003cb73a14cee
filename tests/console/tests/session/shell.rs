//! A shell in which `console` is the console of the tests, at a terminal of so many columns.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::setups::{Night, setup};

/// How wide the pages are.
const COLUMNS: u16 = 120;

/// A shell and the database of a session.
pub(crate) struct Shell {
    night: Night,
    address: String,
    programs: TempDir,
    /// What the console needs beside the address.
    environment: &'static [(&'static str, &'static str)],
}

impl Shell {
    /// Puts a database into the state that the session needs.
    pub(crate) fn new(session: &str) -> Self {
        let programs = tempfile::tempdir().expect("a temporary directory");
        let named = programs.path().join("bin");
        fs::create_dir(&named).expect("it is new");
        symlink(env!("CARGO_BIN_EXE_served"), named.join("console")).expect("it is new");
        let script = format!("#!/bin/sh\nexec '{}' \"$@\" --width {COLUMNS}\n", named.join("console").display());
        let console = programs.path().join("console");
        fs::write(&console, script).expect("the directory is new");
        fs::set_permissions(&console, fs::Permissions::from_mode(0o755)).expect("the file is ours");
        let (night, address) = setup(session);
        let environment = if session == "replay" { &[("HANDLERS", "yes")][..] } else { &[] };
        Shell { night, address, programs, environment }
    }

    /// Runs commands, and returns them with what they answer.
    pub(crate) fn run_all(&self, commands: &[String]) -> String {
        let ran = commands.iter().map(|command| format!("$ {command}\n{}", self.run(command)));
        ran.collect::<Vec<_>>().join("\n")
    }

    fn run(&self, command: &str) -> String {
        self.night.heartbeat();
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("sh")
            .args(["-c", &format!("{{ {command}\n}} 2>&1")])
            .env("PATH", format!("{}:{path}", self.programs.path().display()))
            .envs([("DATABASE_URL", &*self.address), ("USER", "ann"), ("TZ", "UTC")])
            .envs(self.environment.iter().copied())
            .current_dir(self.programs.path())
            .stdin(Stdio::null())
            .output()
            .expect("there is a shell");
        let text = String::from_utf8(output.stdout).expect("the console writes UTF-8");
        let text = self.night.told(&text);
        let lines: Vec<_> = text.trim_end().lines().map(str::trim_end).collect();
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}
