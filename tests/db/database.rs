//! A test's own database on a server. `super` is the database system, as in `server.rs`.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};

use super::Conn;
use super::server::{PrivateServer, shared_url};

/// A database that only this value's owner uses. It is dropped with the value, even if sessions are still open.
pub(crate) struct Database {
    name: String,
    url: String,
    server: String,
}

impl Database {
    /// Creates an empty database on the server that this process's tests share.
    pub(crate) fn new() -> Self {
        Self::at(shared_url())
    }

    /// Creates an empty database on a server of the test's own.
    pub(crate) fn on(server: &PrivateServer) -> Self {
        Self::at(server.url())
    }

    fn at(server: &str) -> Self {
        let name = unique_name();
        connect(server)
            .batch_execute(&super::create_database(&name))
            .unwrap_or_else(|error| panic!("no database on {server}: {error}"));
        Self { url: with_database(server, &name), name, server: server.to_owned() }
    }

    /// Where the database is, as Diesel takes it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Opens a session.
    pub(crate) fn connect(&self) -> Conn {
        connect(&self.url)
    }

    /// Opens a pool of `size` sessions.
    pub(crate) fn pool(&self, size: u32) -> Pool<ConnectionManager<Conn>> {
        Pool::builder().max_size(size).build(ConnectionManager::new(self.url())).expect("the server takes connections")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // On a server that the test has killed there is nothing to drop.
        let Ok(mut connection) = Conn::establish(&self.server) else { return };
        if let Err(error) = super::drop_database(&mut connection, &self.name) {
            eprintln!("the database {} stays behind: {error}", self.name);
        }
    }
}

fn connect(url: &str) -> Conn {
    Conn::establish(url).unwrap_or_else(|error| panic!("no connection to {url}: {error}"))
}

/// A name that no other test has, on any machine, because several machines may use one server.
fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let started = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_nanos();
    format!("queueable_{started:x}_{}_{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Replaces the database's name in a server's URL, or adds it.
fn with_database(server: &str, name: &str) -> String {
    let (address, options) = server.split_once('?').map_or((server, None), |(address, rest)| (address, Some(rest)));
    let (scheme, rest) = address.split_once("://").unwrap_or_else(|| panic!("not a URL: {server}"));
    let host = rest.split_once('/').map_or(rest, |(host, _)| host);
    let options = options.map_or_else(String::new, |options| format!("?{options}"));
    format!("{scheme}://{host}/{name}{options}")
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn a_database_takes_the_place_of_the_one_in_the_url() {
        for (server, database) in [
            ("db://root@127.0.0.1:1", "db://root@127.0.0.1:1/new"),
            ("db://me:secret@host/old", "db://me:secret@host/new"),
            ("db://host/old?sslmode=disable", "db://host/new?sslmode=disable"),
            ("db://host?socket=/run/db", "db://host/new?socket=/run/db"),
        ] {
            assert_eq!(with_database(server, "new"), database);
        }
    }
}
