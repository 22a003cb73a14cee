//! The databases to which the console connects.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use diesel::Connection;
use diesel::r2d2::R2D2Connection;
use diesel::result::QueryResult;
use diesel_migrations::MigrationHarness;
use queue_core::internals::backend::SessionLimits;
use queue_core::{AsQueueConnection, PollerSettings, QueueConnection};

use crate::failure::{Answer, Failure};
use crate::filter::FilterSql;

/// A kind of connection that the console can make.
#[expect(private_bounds, reason = "nobody else implements it")]
pub trait Database:
    QueueConnection<Backend: FilterSql>
    + AsQueueConnection<Connection = Self>
    + MigrationHarness<<Self as Connection>::Backend>
    + R2D2Connection
    + Sized
    + 'static
{
    /// Its name for people.
    #[doc(hidden)]
    const NAME: &'static str;

    /// How an address of it begins.
    #[doc(hidden)]
    const SCHEMES: &'static [&'static str];

    /// Sets up a new connection.
    #[doc(hidden)]
    fn set_up(&mut self) -> QueryResult<()> {
        Ok(())
    }

    /// Gives the connection the settings of a worker's session, for an attempt that may take as long as a person needs.
    #[doc(hidden)]
    fn set_up_attempt(&mut self) -> QueryResult<()> {
        const LONG: Duration = Duration::from_secs(24 * 3_600);
        let lock_timeout = PollerSettings::default().lock_timeout;
        self.prepare_session(SessionLimits { lock_timeout, timeout: LONG, statement_timeout: LONG, attempts: true })
    }

    /// The first words of statements that end a transaction, whatever comes after them.
    #[doc(hidden)]
    const ENDS: &'static [&'static str] = &["ABORT", "COMMIT", "END"];

    /// Whether it runs the text of a comment that begins with `/*!`.
    #[doc(hidden)]
    const RUNS_COMMENTS: bool = false;

    /// Whether a statement would end the transaction in which it runs.
    #[doc(hidden)]
    fn ends_transaction(statement: &str) -> bool {
        let statement = without_comments(statement, Self::RUNS_COMMENTS);
        let words = statement.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let words: Vec<_> = words.take(5).map(str::to_uppercase).collect();
        match &*words.iter().map(String::as_str).collect::<Vec<_>>() {
            ["ROLLBACK", more @ ..] => !more.contains(&"TO"),
            ["PREPARE", "TRANSACTION", ..] => true,
            ["CREATE" | "DROP", more @ ..] if more.contains(&"TEMPORARY") => false,
            [first, ..] => Self::ENDS.contains(first),
            [] => false,
        }
    }
}

/// A statement without the comments before it, in which tracers write. `runs`: the database runs the text of some of them.
fn without_comments(statement: &str, runs: bool) -> &str {
    let mut rest = statement.trim_start();
    loop {
        if let Some(run) = rest.strip_prefix("/*!").or(rest.strip_prefix("/*M!")).filter(|_| runs) {
            return run.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        let end = match rest.strip_prefix("/*") {
            Some(comment) => comment.split_once("*/"),
            None if rest.starts_with("--") || rest.starts_with('#') => rest.split_once('\n'),
            None => return rest,
        };
        rest = end.map_or("", |(_, after)| after.trim_start());
    }
}

/// The one database whose feature is on: the type of the connection follows from it.
#[diagnostic::on_unimplemented(
    message = "`{C}` is no connection that the console knows",
    note = "switch on one of queueable-console's features `postgres`, `mysql` and `sqlite`"
)]
pub trait TheDatabase<C> {}

#[cfg(feature = "postgres")]
mod postgres {
    use diesel::PgConnection;

    impl super::Database for PgConnection {
        const NAME: &'static str = "PostgreSQL";
        const SCHEMES: &'static [&'static str] = &["postgres://", "postgresql://"];
    }

    impl super::TheDatabase<PgConnection> for () {}
}

#[cfg(feature = "mysql")]
mod mysql {
    use diesel::MysqlConnection;

    impl super::Database for MysqlConnection {
        const NAME: &'static str = "MySQL or MariaDB";
        const RUNS_COMMENTS: bool = true;
        const SCHEMES: &'static [&'static str] = &["mysql://"];

        // "Statements That Cause an Implicit Commit" in the manual.
        const ENDS: &'static [&'static str] = &[
            "ALTER",
            "ANALYZE",
            "BEGIN",
            "CHECK",
            "COMMIT",
            "CREATE",
            "DROP",
            "FLUSH",
            "GRANT",
            "INSTALL",
            "LOCK",
            "OPTIMIZE",
            "RENAME",
            "REPAIR",
            "RESET",
            "REVOKE",
            "START",
            "TRUNCATE",
            "UNINSTALL",
            "UNLOCK",
        ];
    }

    impl super::TheDatabase<MysqlConnection> for () {}
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use diesel::SqliteConnection;
    use diesel::connection::SimpleConnection;
    use diesel::result::QueryResult;

    impl super::Database for SqliteConnection {
        const NAME: &'static str = "SQLite";
        const SCHEMES: &'static [&'static str] = &[];

        // While a worker writes, others wait for so long.
        fn set_up(&mut self) -> QueryResult<()> {
            self.batch_execute("PRAGMA busy_timeout = 5000")
        }

        // A worker's session would also switch the file to WAL, and that stays.
        fn set_up_attempt(&mut self) -> QueryResult<()> {
            self.set_up()
        }
    }

    impl super::TheDatabase<SqliteConnection> for () {}
}

/// Connects, and waits no longer than this for it.
pub(crate) fn connect<C: Database>(address: &str, patience: Duration) -> Answer<C> {
    let name = without_password(address);
    check::<C>(address)?;
    let (sender, receiver) = sync_channel(1);
    let connecting = address.to_owned();
    // A client library may wait for minutes for a server that says nothing.
    thread::spawn(move || sender.send(C::establish(&connecting)));
    match receiver.recv_timeout(patience) {
        Ok(Ok(mut connection)) => {
            connection.set_up()?;
            Ok(connection)
        }
        Ok(Err(error)) => {
            let text = without_address(&error.to_string(), address, &name);
            Err(Failure::NoConnection(format!("cannot connect to {name}: {text}")))
        }
        Err(RecvTimeoutError::Timeout) => Err(Failure::NoConnection(format!(
            "{name} has not answered within {patience:?}: is the server up, and does a firewall let you through? \
             `--timeout` waits longer"
        ))),
        Err(RecvTimeoutError::Disconnected) => Err(Failure::NoConnection(format!("cannot connect to {name}"))),
    }
}

/// Refuses what is no address of the database.
pub(crate) fn check<C: Database>(address: &str) -> Answer {
    let name = without_password(address);
    if C::SCHEMES.iter().any(|scheme| address.starts_with(scheme)) {
        return Ok(());
    }
    if !C::SCHEMES.is_empty() {
        let begins = C::SCHEMES.join("` or `");
        return Err(Failure::Usage(format!("`{name}` is no address of {}: it begins with `{begins}`", C::NAME)));
    }
    // SQLite would create the file.
    match file_of(address) {
        _ if address.contains("://") && !address.starts_with("sqlite://") => {
            Err(Failure::Usage(format!("`{name}` is no file of {}", C::NAME)))
        }
        file if address == ":memory:" || Path::new(file).is_file() => Ok(()),
        _ => Err(Failure::NoConnection(format!("there is no file `{name}`"))),
    }
}

/// The file that an address of SQLite names.
pub(crate) fn file_of(address: &str) -> &str {
    let file = address.strip_prefix("sqlite://").or(address.strip_prefix("file:")).unwrap_or(address);
    file.split('?').next().unwrap_or(file)
}

/// The address without its password. What is no address and no plain file name is not shown at all.
pub(crate) fn without_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        let file = address.split('?').next().unwrap_or_default();
        return if file.contains(['@', '=']) { "[hidden]".to_owned() } else { file.to_owned() };
    };
    // A password may have any character in it. A parameter may be a password too.
    let (account, place) = rest.rsplit_once('@').map_or((None, rest), |(account, place)| (Some(account), place));
    let place = place.split('?').next().unwrap_or_default();
    match account.map(|account| account.split([':', '?']).next().unwrap_or_default()) {
        Some(user) => format!("{scheme}://{user}@{place}"),
        None => format!("{scheme}://{place}"),
    }
}

/// A client's message may repeat the address, the password, or what it takes for a part of the address.
fn without_address(text: &str, address: &str, name: &str) -> String {
    const SHORTEST: usize = 3;
    let text = text.replace(address, name);
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let account = rest.rsplit_once('@').map_or("", |(account, _)| account);
    let password = account.split_once(':').map_or("", |(_, password)| password);
    let parameters = rest.split_once('?').map_or("", |(_, parameters)| parameters);
    let values = parameters.split('&').filter_map(|parameter| Some(parameter.split_once('=')?.1));
    let parts = values.chain([password]).flat_map(|secret| secret.split(|c: char| !c.is_alphanumeric()));
    parts.filter(|part| part.len() >= SHORTEST).fold(text, |text, part| text.replace(part, "[hidden]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_read_behind_its_comments() {
        for statement in [
            "COMMIT",
            "/* trace 4711 */ COMMIT",
            "\n-- COMMIT?\n/*a*/ /*b*/\n# c\nCOMMIT",
            "/*! COMMIT",
            "/*!50003 COMMIT",
            "/*M!100100 COMMIT",
        ] {
            assert_eq!(without_comments(statement, true).trim_start(), "COMMIT", "{statement}");
        }
        assert_eq!(without_comments("/*! a */ COMMIT", false), "COMMIT");
        for statement in ["-- COMMIT", "/* COMMIT", ""] {
            assert_eq!(without_comments(statement, true), "", "{statement}");
        }
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (address, shown) in [
            ("postgres://shop:se:cret@db.example.org/shop", "postgres://shop@db.example.org/shop"),
            ("postgres://shop:p%40ss@db/shop?password=x&sslmode=require", "postgres://shop@db/shop"),
            ("mysql://root@127.0.0.1:3306/test", "mysql://root@127.0.0.1:3306/test"),
            ("postgres://u:p@ss/word@host/db", "postgres://u@host/db"),
            ("postgres://u:pa/ss@host/db", "postgres://u@host/db"),
            ("postgres://u:pa?ss@host/db?x=1", "postgres://u@host/db"),
            ("postgres://host/db?password=a@b", "postgres://host/db@b"),
            ("host=db user=shop password=hunter2", "[hidden]"),
            ("postgres:/shop:secret@db/x", "[hidden]"),
            ("file:app.sqlite?mode=ro", "file:app.sqlite"),
            ("app.sqlite", "app.sqlite"),
        ] {
            assert_eq!(without_password(address), shown);
        }
        let text = without_address("password \"x1y2\" of u failed", "postgres://u:x1y2@h/d", "postgres://u@h/d");
        assert_eq!(text, "password \"[hidden]\" of u failed");
    }
}
