//! What the application's own triggers see of the queue, and which of its statements take a row out of the queue.

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;
use queueable::Queueable;
use queueable::report::TriggerMigration;

use crate::db::{self, TEXT};
use crate::suite::bank::{Bank, Payment, book};
use crate::suite::warnings::{is_told, keep_warnings};

/// The triggers of docs/into-your-application.md, with a counter in the place of the time.
fn counting_trigger() -> &'static str {
    match db::NAME {
        "postgres" => {
            "CREATE FUNCTION count_change() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN NEW.changes = OLD.changes || '+'; RETURN NEW; END; $$;
             CREATE TRIGGER set_changes BEFORE UPDATE OF company_id, amount_cents ON payments
                 FOR EACH ROW EXECUTE PROCEDURE count_change()"
        }
        "sqlite" => {
            "CREATE TRIGGER set_changes AFTER UPDATE OF company_id, amount_cents ON payments
                 BEGIN UPDATE payments SET changes = changes || '+' WHERE id = NEW.id; END"
        }
        _ => {
            "CREATE TRIGGER set_changes BEFORE UPDATE ON payments FOR EACH ROW
                 SET NEW.changes = IF(NEW.company_id <=> OLD.company_id AND NEW.amount_cents <=> OLD.amount_cents,
                     OLD.changes, CONCAT(OLD.changes, '+'))"
        }
    }
}

/// The same as an application writes it that has no queue.
fn trigger_without_columns() -> &'static str {
    match db::NAME {
        "postgres" => {
            "CREATE FUNCTION count_change() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN NEW.changes = OLD.changes || '+'; RETURN NEW; END; $$;
             CREATE TRIGGER counts_every_write BEFORE UPDATE ON payments
                 FOR EACH ROW WHEN (NEW.amount_cents > 0) EXECUTE PROCEDURE count_change()"
        }
        "sqlite" => {
            "CREATE TRIGGER counts_every_write AFTER UPDATE ON payments
                 BEGIN UPDATE payments SET changes = changes || '+' WHERE id = NEW.id; END"
        }
        _ => {
            "CREATE TRIGGER counts_every_write BEFORE UPDATE ON payments FOR EACH ROW
                 SET NEW.changes = CONCAT(OLD.changes, '+')"
        }
    }
}

#[test]
fn a_poller_tells_of_a_trigger_that_each_write_of_the_queue_runs() {
    keep_warnings();
    let bank = Bank::new();
    let mut connection = bank.connect();
    let column = format!("ALTER TABLE payments ADD COLUMN changes {TEXT} NOT NULL DEFAULT ''");
    connection.batch_execute(&column).unwrap();
    connection.batch_execute(trigger_without_columns()).unwrap();
    bank.enqueue([10]);
    assert_eq!(bank.run(book).succeeded, 1);
    let changes: String = sql::<Text>("SELECT changes FROM payments").get_result(&mut connection).unwrap();
    assert_eq!(changes, "+");
    assert!(is_told(&[
        "INFO",
        "entity=\"Payment\"",
        "runs the trigger counts_every_write",
        "Payment::trigger_migration"
    ]));
}

#[test]
fn a_trigger_on_the_domains_columns_does_not_see_the_queue() {
    keep_warnings();
    let bank = Bank::new();
    let mut connection = bank.connect();
    let column = format!("ALTER TABLE payments ADD COLUMN changes {TEXT} NOT NULL DEFAULT ''");
    connection.batch_execute(&column).unwrap();
    connection.batch_execute(counting_trigger()).unwrap();
    let mut changes = || sql::<Text>("SELECT changes FROM payments").get_result::<String>(&mut connection).unwrap();
    bank.enqueue([10]);
    assert_eq!(bank.run(book).succeeded, 1);
    assert_eq!(changes(), "");
    bank.connect().batch_execute("UPDATE payments SET amount_cents = 20").unwrap();
    assert_eq!(changes(), "+");
    assert!(!is_told(&["runs the trigger set_changes"]), "the trigger needs no change");
}

/// A trigger whose name and body could be mistaken for its events, and what makes the column that it writes.
fn odd_trigger() -> &'static str {
    match db::NAME {
        "postgres" => {
            "CREATE FUNCTION count_change() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN NEW.changes = NEW.changes || '+'; RETURN NEW; END; $$;
             CREATE TRIGGER \"before update on \"\"it\" BEFORE INSERT OR UPDATE ON payments
                 FOR EACH ROW WHEN (NEW.amount_cents > 0) EXECUTE PROCEDURE count_change('update on');
             ALTER TABLE payments ENABLE ALWAYS TRIGGER \"before update on \"\"it\""
        }
        "sqlite" => {
            "CREATE TRIGGER \"before update on \"\"it\" /* UPDATE ON */ AFTER
                 update -- OR not
                 On payments BEGIN UPDATE payments SET changes = changes || '+' WHERE id = NEW.id; END"
        }
        // It has triggers without conditions, and a column that the server itself sets.
        _ => {
            "ALTER TABLE payments MODIFY changes VARCHAR(100) NOT NULL DEFAULT '',
                 ADD COLUMN `the \"time` TIMESTAMP(6) NOT NULL DEFAULT '2026-01-01' ON UPDATE CURRENT_TIMESTAMP(6),
                 ADD COLUMN seen_at TIMESTAMP NULL ON UPDATE CURRENT_TIMESTAMP"
        }
    }
}

/// How often the trigger has run, or whether the server has set its column.
fn changes(connection: &mut db::Conn) -> String {
    let select = match db::NAME {
        "mysql" => "SELECT CASE WHEN `the \"time` = '2026-01-01' AND seen_at IS NULL THEN '' ELSE '+' END",
        _ => "SELECT changes",
    };
    sql::<Text>(&format!("{select} FROM payments")).get_result(connection).unwrap()
}

#[test]
fn a_trigger_migration_keeps_the_applications_triggers_from_the_writes_of_the_queue() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    connection.batch_execute(&format!("ALTER TABLE payments ADD COLUMN changes {TEXT} NULL")).unwrap();
    assert_eq!(Payment::trigger_migration(&mut connection).unwrap(), TriggerMigration::default());
    connection.batch_execute(odd_trigger()).unwrap();
    let before = Payment::trigger_migration(&mut connection).unwrap();
    assert_eq!(before.skipped, []);
    connection.batch_execute(&before.up).unwrap();
    let after = Payment::trigger_migration(&mut connection).unwrap();
    assert_eq!(after, TriggerMigration::default(), "a second migration has nothing to do");

    bank.enqueue([10]);
    let unchanged = "UPDATE payments SET changes = ''";
    connection.batch_execute(unchanged).unwrap();
    connection.batch_execute(unchanged).unwrap();
    let counted = changes(&mut connection).len();
    assert_eq!(bank.run(book).succeeded, 1);
    assert_eq!(changes(&mut connection).len(), counted, "{}", before.up);
    connection.batch_execute("UPDATE payments SET amount_cents = 20").unwrap();
    assert_eq!(changes(&mut connection).len(), counted + 1, "{}", before.up);

    connection.batch_execute(&before.down).unwrap();
    assert_eq!(Payment::trigger_migration(&mut connection).unwrap(), before, "all is as it was");
}

#[test]
fn a_trigger_migration_names_the_triggers_that_it_cannot_restrict() {
    let (name, create) = match db::NAME {
        "postgres" => (
            "counts_rows",
            "CREATE FUNCTION count_rows() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END; $$;
             CREATE TRIGGER counts_rows AFTER UPDATE ON payments REFERENCING NEW TABLE AS changed
                 FOR EACH STATEMENT EXECUTE PROCEDURE count_rows()",
        ),
        "mysql" => ("counts_every_write", trigger_without_columns()),
        // SQLite's triggers can all be restricted, but for those of an attached database.
        _ => return,
    };
    let bank = Bank::new();
    let mut connection = bank.connect();
    let column = format!("ALTER TABLE payments ADD COLUMN changes {TEXT} NOT NULL DEFAULT ''");
    connection.batch_execute(&column).unwrap();
    connection.batch_execute(create).unwrap();
    let migration = Payment::trigger_migration(&mut connection).unwrap();
    assert_eq!((migration.up.as_str(), migration.down.as_str()), ("", ""));
    assert_eq!(migration.skipped.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), [name]);
}

#[test]
fn an_upsert_leaves_a_row_in_the_queue_and_replace_takes_it_out() {
    let bank = Bank::new();
    let [id] = bank.enqueue([10])[..] else { panic!("one payment") };
    let row = format!("INTO payments (id, company_id, amount_cents) VALUES ({id}, 1, 20)");
    let upsert = match db::NAME {
        "mysql" => format!("INSERT {row} ON DUPLICATE KEY UPDATE amount_cents = 20"),
        _ => format!("INSERT {row} ON CONFLICT (id) DO UPDATE SET amount_cents = 20"),
    };
    let due = bank.state(id).next_attempt_time;
    bank.connect().batch_execute(&upsert).unwrap();
    assert_eq!((bank.state(id).next_attempt_time, due.is_some()), (due, true));
    // PostgreSQL has no such statement.
    if db::NAME != "postgres" {
        bank.connect().batch_execute(&format!("REPLACE {row}")).unwrap();
        assert_eq!(bank.state(id).next_attempt_time, None);
        assert_eq!(bank.run(book).succeeded, 0);
    }
}
