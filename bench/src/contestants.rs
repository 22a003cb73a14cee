//! The contestants.

use std::env;
use std::path::Path;

use anyhow::{Context, Result};
use contestant::{Backend, Contestant, Reply, Request, serve};

use crate::limits::{Limit, Shape};
use crate::modes::{InMode, Mode};
use crate::program::{Entry, Program};

/// The first argument of this program when it is a contestant itself.
pub(crate) const ROLE: &str = "--be";

/// The programs of the other frameworks, each its own package. A program that was not built is left out.
const PEERS: &[&str] = &[
    "peer-graphile-worker",
    "peer-apalis",
    "peer-sqlxmq",
    "peer-underway",
    "peer-fang",
    "peer-backie",
    "peer-river",
    "peer-river-completer",
    "peer-awa",
    "peer-ruststream-sqlx",
];

pub(crate) const BACKENDS: [Backend; 4] =
    [Backend::Postgres, Backend::Mariadb, Backend::SqliteFull, Backend::SqliteNormal];

/// The contestants in this program.
fn built_in(backend: Backend) -> Vec<Box<dyn Contestant>> {
    let mut all: Vec<Box<dyn Contestant>> = Vec::new();
    for shape in Shape::all(backend) {
        all.push(Box::new(Limit { shape, backend }));
    }
    let modes = [
        Mode::Transaction,
        Mode::Group,
        Mode::Optimistic,
        Mode::AtOnce,
        Mode::Lease,
        Mode::LeaseBatch,
        Mode::Calls,
        Mode::Serial,
        Mode::Fair,
        Mode::Ordered,
        Mode::Reported,
        Mode::Counted,
    ];
    for mode in modes {
        all.push(Box::new(InMode { mode, backend }));
    }
    if backend == Backend::Postgres {
        all.push(Box::new(InMode { mode: Mode::Notify, backend }));
        all.push(Box::new(InMode { mode: Mode::Async, backend }));
    }
    all
}

/// Runs as a contestant, if the arguments say so: `--be <name> <backend> <url>`.
pub(crate) fn be_one_if_asked() -> Result<bool> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [role, name, backend, _url] = &*arguments else { return Ok(false) };
    if role != ROLE {
        return Ok(false);
    }
    let backend = BACKENDS.into_iter().find(|known| known.name() == backend).context("no such database")?;
    let contestant = built_in(backend).into_iter().find(|contestant| contestant.describe().name == *name);
    serve(&*contestant.context("no such contestant")?)?;
    Ok(true)
}

/// The contestants on a database, and the names of those that were not built.
pub(crate) fn all(backend: Backend, log: &Path) -> Result<(Vec<Entry>, Vec<&'static str>)> {
    let command = env::current_exe()?;
    let mut entries: Vec<Entry> = built_in(backend)
        .into_iter()
        .map(|contestant| {
            let description = contestant.describe();
            let arguments = vec![ROLE.to_owned(), description.name.clone(), backend.name().to_owned()];
            Entry { description, backend, command: command.clone(), arguments }
        })
        .collect();
    let mut missing = Vec::new();
    for &peer in PEERS {
        let command = command.with_file_name(peer);
        if !command.is_file() {
            missing.push(peer);
            continue;
        }
        let asked = Program::start(&command, &[], "nowhere", log).and_then(|mut peer| peer.ask(&Request::Describe));
        let Ok(Reply::Description(description)) = asked else {
            // It was built by another version of the benchmark.
            missing.push(peer);
            continue;
        };
        if description.backends.contains(&backend) {
            entries.push(Entry { description, backend, command, arguments: Vec::new() });
        }
    }
    Ok((entries, missing))
}
