//! Changes that SQLite's trigger cannot see.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Error, Message, Migrations, Outcome, Queueable};

use crate::db::{Conn, Database};

diesel::table! {
    readings (id) {
        id -> BigInt,
        raw -> BigInt,
        doubled -> Nullable<BigInt>,
    }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = readings)]
#[queue(module = plain_queue)]
struct Plain {
    #[expect(dead_code, reason = "only its migration is of interest")]
    id: i64,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = readings)]
#[queue(rerun_on_change(doubled))]
struct Reading {
    #[expect(dead_code, reason = "nobody asks which one it is")]
    id: i64,
}

const SAID: &str = "the column doubled of the table `readings` is generated";

#[test]
fn generated_columns_are_refused_because_no_trigger_sees_them() {
    for kind in ["VIRTUAL", "STORED"] {
        let database = Database::new();
        let mut connection = database.connect();
        connection
            .batch_execute(&format!(
                "CREATE TABLE readings (id INTEGER PRIMARY KEY NOT NULL, raw BIGINT NOT NULL,
                 Doubled BIGINT GENERATED ALWAYS AS (raw * 2) {kind})"
            ))
            .unwrap();
        let refused = connection.run_pending_migrations(Migrations::new().entity::<Reading>()).unwrap_err().to_string();
        assert!(refused.contains(SAID), "{refused}");
        // Whatever was migrated by hand.
        connection.run_pending_migrations(Migrations::new().entity::<Plain>()).unwrap();
        let _ = connection.batch_execute("ALTER TABLE readings ADD COLUMN change_count BIGINT NOT NULL DEFAULT 0");
        let done = |_: &Reading, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        let refused = Reading::poller(database.pool(3), done).workers(1).run_until_idle();
        let Err(Error::Unsafe(findings)) = refused else { panic!("{refused:?}") };
        assert!(findings[0].problem.contains(SAID), "{findings:?}");
        assert!(findings[0].mend.contains("rerun_on_change"), "{findings:?}");
    }
}
