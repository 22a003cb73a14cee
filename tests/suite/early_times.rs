//! A due time may lie before every calendar in use: the zero time of other languages, or a year before our era. The row is due at
//! once and is processed like any other, once, whatever the mode.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{HandlerResult, Lease, Message, Outcome, Poller, Queueable, Status};

use crate::db::{Conn, NAME};
use crate::suite::bank::{Bank, book, ledger};
use crate::suite::lease::{Charge, apply};
use crate::suite::modes::Grouped;

/// Times that the column can hold, as SQL.
fn early() -> &'static [&'static str] {
    match NAME {
        "postgres" => &[
            "'0001-01-01 00:00:00+00'",
            "'0999-12-31 23:59:59.999999+00'",
            "'0001-12-31 23:59:59+00 BC'",
            "'4713-11-24 00:00:00+00 BC'",
        ],
        "mysql" => &["'0001-01-01 00:00:00'", "'0999-12-31 23:59:59.999999'", "'0000-01-01 00:00:00'"],
        _ => &["'0001-01-01 00:00:00.000'", "'0999-12-31 23:59:59.999'", "'0000-01-01 00:00:00.000'"],
    }
}

fn enter(id: i64, amount_cents: i64, message: &mut Message<'_, Conn>) -> HandlerResult {
    let row = (ledger::payment_id.eq(id), ledger::amount_cents.eq(amount_cents));
    diesel::insert_into(ledger::table).values(row).execute(message.connection())?;
    Ok(Outcome::Done)
}

#[test]
fn a_row_that_was_due_in_another_age_is_processed_once_in_all_modes() {
    let in_modes: [fn(&Bank) -> Poller<Conn>; 3] = [
        |bank| bank.poller(book),
        |bank| {
            let handler = |row: &Grouped, message: &mut Message<'_, Conn>| enter(row.id, row.amount_cents, message);
            Grouped::poller(bank.pool(4), handler)
        },
        |bank| Charge::poller(bank.pool(5), (|charge: &Charge, _: &Lease| Ok(charge.amount_cents), apply)),
    ];
    for in_mode in in_modes {
        let bank = Bank::new();
        let ids = bank.enqueue(1..=8);
        for (id, time) in ids.iter().skip(2).zip(early()) {
            let set = format!("UPDATE payments SET next_attempt_time = {time} WHERE id = {id}");
            bank.connect().batch_execute(&set).unwrap();
        }
        let tally = in_mode(&bank).workers(2).run_until_idle().unwrap();
        let states: Vec<_> = ids.iter().map(|id| bank.state(*id)).collect();
        assert!(states.iter().all(|state| state.status == Status::Success), "{states:?}");
        assert_eq!((tally.succeeded, tally.retried, tally.failed), (8, 0, 0), "{tally:?}");
        assert_eq!(bank.booked(), ids);
    }
}
