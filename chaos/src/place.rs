//! The servers that runs use, and a database on one of them for each run.

use std::sync::{Arc, OnceLock};

use anyhow::Result;

use crate::db::{mysql, postgres, sqlite};
use crate::galera::Cluster;
use crate::options::Backend;

/// A private server. It ends with its last owner, or with the process.
pub(crate) enum Server {
    Postgres(postgres::PrivateServer),
    Mariadb(mysql::PrivateServer),
    Galera(Cluster),
    /// SQLite has none.
    None,
}

impl Server {
    pub(crate) fn start(backend: Backend) -> Arc<Self> {
        Arc::new(match backend {
            Backend::Postgres | Backend::AsyncPostgres => Server::Postgres(postgres::PrivateServer::start()),
            Backend::Mariadb => Server::Mariadb(mysql::PrivateServer::start()),
            Backend::Galera => Server::Galera(Cluster::start()),
            Backend::Sqlite => Server::None,
        })
    }

    /// Ends the server, or the first of its nodes, as `kill -9` does, with all its sessions.
    pub(crate) fn kill(&self) {
        match self {
            Server::Postgres(server) => server.kill(),
            Server::Mariadb(server) => server.kill(),
            Server::Galera(cluster) => cluster.nodes[0].kill(),
            Server::None => {}
        }
    }

    /// Starts a killed server again and returns when it answers.
    pub(crate) fn restart(&self) {
        match self {
            Server::Postgres(server) => server.restart(),
            Server::Mariadb(server) => server.restart(),
            Server::Galera(cluster) => cluster.nodes[0].restart(),
            Server::None => {}
        }
    }
}

/// The servers for runs that leave them as they are. Each starts when a run first asks for it.
#[derive(Default)]
pub(crate) struct Servers {
    postgres: OnceLock<Arc<Server>>,
    mariadb: OnceLock<Arc<Server>>,
    galera: OnceLock<Arc<Server>>,
}

impl Servers {
    pub(crate) fn shared(&self, backend: Backend) -> Arc<Server> {
        match backend {
            Backend::Postgres | Backend::AsyncPostgres => self.postgres.get_or_init(|| Server::start(backend)).clone(),
            Backend::Mariadb => self.mariadb.get_or_init(|| Server::start(backend)).clone(),
            Backend::Galera => self.galera.get_or_init(|| Server::start(backend)).clone(),
            Backend::Sqlite => Server::start(backend),
        }
    }
}

/// A run's own database. It is removed with this value.
pub(crate) struct Place {
    database: Database,
    /// The database's address after it has moved.
    moved: Option<String>,
    pub(crate) server: Arc<Server>,
}

enum Database {
    Postgres(postgres::Database),
    Mariadb(mysql::Database),
    Sqlite(sqlite::Database),
}

impl Place {
    /// An empty database on a server.
    pub(crate) fn on(server: Arc<Server>) -> Result<Self> {
        let database = match &*server {
            Server::Postgres(server) => Database::Postgres(postgres::Database::on(server)),
            Server::Mariadb(server) => Database::Mariadb(mysql::Database::on(server)),
            Server::Galera(cluster) => Database::Mariadb(mysql::Database::on(&cluster.nodes[0])),
            Server::None => Database::Sqlite(sqlite::Database::new()),
        };
        Ok(Place { database, moved: None, server })
    }

    /// Where the database is, as Diesel takes it.
    pub(crate) fn url(&self) -> &str {
        if let Some(url) = &self.moved {
            return url;
        }
        match &self.database {
            Database::Postgres(database) => database.url(),
            Database::Mariadb(database) => database.url(),
            Database::Sqlite(database) => database.url(),
        }
    }

    /// Reaches the database by another of its addresses.
    pub(crate) fn reach_by(&mut self, url: String) {
        self.moved = Some(url);
    }

    /// Moves to another server that has the same database. Returns the old one.
    pub(crate) fn move_to(&mut self, server: Server, url: String) -> Arc<Server> {
        self.reach_by(url);
        std::mem::replace(&mut self.server, Arc::new(server))
    }
}

/// `host:port` of an address that names a server.
pub(crate) fn host_and_port(url: &str) -> Option<&str> {
    let rest = url.split_once("://")?.1;
    let authority = rest.split(['/', '?']).next()?;
    Some(authority.rsplit_once('@').map_or(authority, |(_, server)| server))
}
