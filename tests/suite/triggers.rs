//! What the application's own triggers see of the queue, and which of its statements take a row out of the queue.

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;

use crate::db::{self, TEXT};
use crate::suite::bank::{Bank, book};
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
        "into-your-application.md"
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
