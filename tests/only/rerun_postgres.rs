//! The trigger on PostgreSQL: types without equality, schemas, and disabled triggers.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Error, Message, Migrations, Outcome, Queueable};

use crate::db::{Conn, Database};

diesel::table! {
    billing.events (id) {
        id -> BigInt,
        payload -> Nullable<Text>,
        place -> Nullable<Text>,
        amount -> Nullable<Numeric>,
    }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = events)]
#[queue(rerun_on_change(payload, place, amount))]
struct Event {
    #[expect(dead_code, reason = "nobody asks which one it is")]
    id: i64,
}

fn database() -> Database {
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(
            "CREATE SCHEMA billing;
             CREATE TABLE billing.events
                 (id bigint PRIMARY KEY, payload json, place point, amount numeric);
             INSERT INTO billing.events VALUES (1, '{\"a\": 1}', '(1, 2)', 1.0)",
        )
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Event>()).unwrap();
    database
}

fn change_count(connection: &mut Conn) -> i64 {
    events::table.select(event_queue::change_count).get_result(connection).unwrap()
}

#[test]
fn a_change_is_seen_in_types_that_have_no_equality() {
    let database = database();
    let mut connection = database.connect();
    let mut count = 0;
    for change in ["payload = '{\"a\": 2}'", "place = '(1, 3)'", "amount = 1.00", "payload = NULL", "place = NULL"] {
        for _ in 0..2 {
            connection.batch_execute(&format!("UPDATE billing.events SET {change}")).unwrap();
        }
        count += 1;
        assert_eq!(change_count(&mut connection), count, "{change}");
    }
}

#[test]
fn the_trigger_fires_behind_the_applications_own_and_sees_what_they_write() {
    let database = database();
    let mut connection = database.connect();
    connection
        .batch_execute(
            "CREATE FUNCTION round_it() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN NEW.amount := round(NEW.amount); RETURN NEW; END $$;
             CREATE TRIGGER z_rounds BEFORE UPDATE ON billing.events FOR EACH ROW EXECUTE FUNCTION round_it();
             UPDATE billing.events SET amount = 2; UPDATE billing.events SET amount = 2.2",
        )
        .unwrap();
    assert_eq!(change_count(&mut connection), 1);
}

#[test]
fn a_poller_does_not_start_while_the_trigger_is_switched_off() {
    let database = database();
    let mut connection = database.connect();
    connection.batch_execute("ALTER TABLE billing.events DISABLE TRIGGER USER").unwrap();
    let done = |_: &Event, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let poller = || Event::poller(database.pool(3), done).workers(1);
    let refused = poller().run_until_idle();
    let Err(Error::Unsafe(findings)) = refused else { panic!("{refused:?}") };
    connection.batch_execute(&findings[0].mend).unwrap();
    poller().run_until_idle().unwrap();
    connection.batch_execute("UPDATE billing.events SET amount = 7").unwrap();
    assert_eq!(change_count(&mut connection), 1);
}

#[test]
fn reverting_takes_the_function_too() {
    let database = database();
    let mut connection = database.connect();
    connection.revert_last_migration(Migrations::new().entity::<Event>()).unwrap();
    connection.batch_execute("DROP TABLE billing.events; DROP SCHEMA billing").unwrap();
}
