//! A poller's sessions on PostgreSQL, as an operator sees them.

use std::sync::mpsc;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queueable::{Error, Message, Migrations, Outcome, Queueable};

use crate::db::{Conn, Database};
use crate::suite::bank::{Bank, Payment};

fn application_name(bank: &Bank, url: &str) -> String {
    bank.enqueue([1]);
    let pool = Pool::builder().max_size(3).build(ConnectionManager::<Conn>::new(url)).unwrap();
    let (tell, told) = mpsc::channel();
    let handler = move |_: &Payment, message: &mut Message<'_, Conn>| {
        let name = diesel::select(sql::<Text>("current_setting('application_name')"));
        tell.send(name.get_result::<String>(message.connection())?)?;
        Ok(Outcome::Done)
    };
    Payment::poller(pool, handler).workers(1).run_until_idle().unwrap();
    told.recv().unwrap()
}

#[test]
fn sessions_bear_the_librarys_name_unless_the_url_gives_them_another() {
    let bank = Bank::new();
    let url = bank.database.url().to_owned();
    assert_eq!(application_name(&bank, &url), "queueable");
    let separator = if url.contains('?') { '&' } else { '?' };
    assert_eq!(application_name(&bank, &format!("{url}{separator}application_name=billing")), "billing");
}

#[test]
fn no_error_tells_the_password_of_a_url_that_cannot_be_read() {
    for url in [
        "postgres://me:hunter2/x@127.0.0.1:1/app",
        "postgres://me:hunter2%zz@127.0.0.1:1/app",
        "postgres://me:x@hunter2@127.0.0.1:1/app",
        "host=127.0.0.1 port=1 password=hunter2 hunter2",
    ] {
        let manager = ConnectionManager::<Conn>::new(url);
        let error_log = Box::new(queueable::PoolErrorLog::default());
        let pool = Pool::builder().max_size(2).error_handler(error_log).build_unchecked(manager);
        let mut settings = queueable::PollerSettings::default();
        (settings.workers, settings.pool_timeout) = (1, Duration::from_secs(2));
        let handler = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        let error = Payment::poller(pool, handler).settings(settings).start().unwrap_err();
        assert!(matches!(error, Error::Connect(_)), "{error}");
        let told = format!("{error} {error:?}");
        assert!(told.contains(": ") && !told.contains("hunter2"), "{told}");
    }
}

diesel::table! {
    elsewhere (id) {
        id -> BigInt,
    }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = elsewhere)]
#[allow(dead_code, reason = "only its table is looked at")]
struct Elsewhere {
    id: i64,
}

#[test]
fn a_foreign_table_cannot_have_a_queue() {
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(
            "CREATE FOREIGN DATA WRAPPER none; CREATE SERVER nobody FOREIGN DATA WRAPPER none;
             CREATE FOREIGN TABLE elsewhere (id bigint NOT NULL) SERVER nobody",
        )
        .unwrap();
    let refused = connection.run_pending_migrations(Migrations::new().entity::<Elsewhere>()).unwrap_err().to_string();
    assert!(refused.contains("is a foreign table, and a queue needs an ordinary table"), "{refused}");
    assert!(refused.ends_with("run the poller on the server that has the table"), "{refused}");
}
