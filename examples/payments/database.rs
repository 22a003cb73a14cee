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
        kind => bail!("{}", refusal(kind)),
    }
}

fn refusal(kind: &str) -> String {
    let feature = match kind {
        "postgres" | "postgresql" => "postgres",
        "mysql" => "mysql",
        _ => return format!("unknown kind of database `{kind}://`, expected a file, postgres:// or mysql://"),
    };
    format!(
        "this program was built without {kind}:// databases; build it with the feature `{feature}`:\n  \
         cargo run --example payments --features {feature} -- .."
    )
}
