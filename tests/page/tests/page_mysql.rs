//! The page on MariaDB: the whole way of a person, and a server that goes away. A browser shows the same on each database, and
//! `queue-console/tests/web` reads on each of them what it is given to show.

#[allow(unused, reason = "each root needs some of it")]
mod browser;
#[allow(unused, reason = "the three `db` modules offer the same, also where a root needs less")]
#[path = "../../db/mysql.rs"]
mod db;
#[path = "only/server.rs"]
mod server;
mod site;

/// The part of the suite in which the database counts.
#[allow(unused, reason = "the whole suite needs more of it")]
mod suite {
    pub(crate) mod entities;
    pub(crate) mod served;
    mod whole_way;
}
