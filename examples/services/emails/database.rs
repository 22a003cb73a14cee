//! The databases: SQLite always, the others when their feature is on.
//!
//! An application has one kind of database and writes against its connection. So does `job.rs`; this example shows all
//! three kinds, so that file is compiled once for each, beside a `Conn` of its own.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;

use anyhow::{Result, bail};

use crate::Options;
use crate::report::Report;

/// Runs the job on the kind of database that the URL names.
pub(crate) fn run(url: &str, options: &Options) -> Result<Report> {
    match url.split_once("://").map_or("sqlite", |(kind, _)| kind) {
        "sqlite" => sqlite::job::run(url, options),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => postgres::job::run(url, options),
        #[cfg(feature = "mysql")]
        "mysql" => mysql::job::run(url, options),
        kind => bail!(
            "this program was built without {kind}:// databases; it knows files, and with the feature of that name \
             postgres:// and mysql://"
        ),
    }
}
