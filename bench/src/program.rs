//! A contestant's process, and the benchmark's requests to it.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use contestant::{Backend, Description, Reply, Request, Skill};

use crate::limits::REFERENCE;

/// How long an answer may take: long enough to fill in a million rows.
const PATIENCE: Duration = Duration::from_secs(300);

/// A contestant.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) description: Description,
    pub(crate) backend: Backend,
    pub(crate) command: PathBuf,
    pub(crate) arguments: Vec<String>,
}

impl Entry {
    pub(crate) fn can(&self, skill: Skill) -> bool {
        self.description.skills.contains(&skill)
    }

    /// Whether the tables divide by this contestant.
    pub(crate) fn is_reference(&self) -> bool {
        self.description.name == REFERENCE
    }
}

/// A process of a contestant. It is killed with this value.
pub(crate) struct Program {
    child: Child,
    stdin: ChildStdin,
    replies: Receiver<String>,
}

impl Program {
    /// Starts a contestant's process on a database. Its standard error goes into a log.
    pub(crate) fn start(command: &Path, arguments: &[String], url: &str, log: &Path) -> Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut child = Command::new(command)
            .args(arguments)
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("{} does not run", command.display()))?;
        let stdin = child.stdin.take().context("the child's input is a pipe")?;
        let stdout = BufReader::new(child.stdout.take().context("the child's output is a pipe")?);
        let (send, replies) = sync_channel(1);
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Ok(Program { child, stdin, replies })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply> {
        serde_json::to_writer(&mut self.stdin, request)?;
        self.stdin.write_all(b"\n")?;
        self.stdin.flush()?;
        let line = match self.replies.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => bail!("no answer to {request:?} within {PATIENCE:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("it ended instead of answering {request:?}"),
        };
        match serde_json::from_str(&line).with_context(|| format!("not an answer: {line}"))? {
            Reply::Trouble(text) => bail!("{text}"),
            reply => Ok(reply),
        }
    }

    /// Asks for something to be done.
    pub(crate) fn tell(&mut self, request: &Request) -> Result<()> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            reply => bail!("an answer to another question than {request:?}: {reply:?}"),
        }
    }

    /// How many messages its handlers have begun.
    pub(crate) fn count(&mut self) -> Result<u64> {
        match self.ask(&Request::Count)? {
            Reply::Handled(count) => Ok(count),
            reply => bail!("not a count: {reply:?}"),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
