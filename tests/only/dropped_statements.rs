//! Statements whose futures a handler drops. Not on MySQL: its client takes their answers for those of the next ones, so the
//! session is given up.

use std::sync::{Arc, Mutex};

use diesel_async::{AsyncConnection, RunQueryDsl};
use queueable::{Failure, Message, Outcome, Status};

use crate::async_handlers::{Grouped, booked, polled, run, run_groups, session};
use crate::db::AsyncConn;
use crate::suite::bank::{Bank, Payment};

#[test]
fn a_statement_whose_future_is_dropped_is_a_part_of_the_messages_transaction() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=12);
    let sessions = Arc::new(Mutex::new(Vec::new()));
    let seen = sessions.clone();
    let tally = run(&bank, async move |payment: &Payment, message: &mut Message<'_, AsyncConn>| {
        let on = session(message.connection()).await?;
        seen.lock().unwrap().push(on);
        // Another text each time, which is prepared anew.
        let text = format!("INSERT INTO ledger (payment_id, amount_cents) VALUES ({}, 0)", payment.id);
        polled(payment.amount_cents, diesel::sql_query(text).execute(message.connection())).await;
        if payment.amount_cents % 2 == 0 {
            return Err(Failure::retry("an even one"));
        }
        booked(message.connection(), payment.id, 1).await?;
        Ok(Outcome::Done)
    });
    assert_eq!((tally.succeeded, tally.retried), (6, 6));
    let rows = bank.booked();
    for (number, id) in ids.iter().enumerate() {
        let booked = rows.iter().filter(|booked| *booked == id).count();
        assert!(if number % 2 == 0 { (1..=2).contains(&booked) } else { booked == 0 }, "{number}: {booked} rows");
    }
    sessions.lock().unwrap().dedup();
    assert_eq!(sessions.lock().unwrap().len(), 1, "nothing is in doubt");
}

#[test]
fn an_error_that_a_dropped_future_would_have_told_is_not_committed_over() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=8);
    run(&bank, async |payment: &Payment, message: &mut Message<'_, AsyncConn>| {
        booked(message.connection(), payment.id, 1).await?;
        polled(payment.amount_cents, diesel::sql_query("SELECT 1 / 0").execute(message.connection())).await;
        Ok(Outcome::Done)
    });
    let rows = bank.booked();
    let is_booked = |id: &i64| rows.contains(id);
    assert!(ids.iter().all(|id| is_booked(id) == (bank.state(*id).status == Status::Success)));
    assert!(!is_booked(&ids[7]), "the server has answered by then");
}

#[test]
fn a_transaction_whose_future_is_dropped_anywhere_is_a_failure_and_its_session_is_closed() {
    const MOST_POLLS: i64 = 30;
    let bank = Bank::new();
    let ids = bank.enqueue(1..=MOST_POLLS);
    let sessions = Arc::new(Mutex::new(Vec::new()));
    let seen = sessions.clone();
    run(&bank, async move |payment: &Payment, message: &mut Message<'_, AsyncConn>| {
        let (id, connection) = (payment.id, message.connection());
        let on = session(connection).await?;
        seen.lock().unwrap().push(on);
        let twice = connection.transaction(async move |connection| {
            booked(connection, id, 1).await?;
            booked(connection, id, 2).await?;
            Ok::<_, Failure>(())
        });
        if let Some(answer) = polled(payment.amount_cents, twice).await {
            answer?;
        }
        Ok(Outcome::Done)
    });
    let (rows, sessions) = (bank.booked(), sessions.lock().unwrap().clone());
    assert_eq!(sessions.len(), ids.len(), "each was handled once");
    let mut failed = 0;
    for (number, id) in ids.iter().enumerate() {
        let (state, booked) = (bank.state(*id), rows.iter().filter(|booked| *booked == id).count());
        let is_closed = sessions.get(number + 1).is_some_and(|next| *next != sessions[number]);
        match state.status {
            Status::Success => assert!(matches!(booked, 0 | 2) && !is_closed, "{number}: {booked} rows"),
            _ => {
                assert_eq!((state.status, booked, is_closed), (Status::Error, 0, true), "{number}");
                let text = state.last_attempt_error_message.expect("it has failed");
                assert!(text.contains("a future was dropped before its end"), "{text}");
                failed += 1;
            }
        }
    }
    assert!(failed > 3, "{failed} of {MOST_POLLS}");
    assert_eq!(rows.iter().filter(|booked| **booked == ids[ids.len() - 1]).count(), 2, "more polls than it needs");
}

#[test]
fn a_transaction_cut_short_in_one_message_of_a_group_undoes_that_message() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=7);
    let tally = run_groups(&bank, async |grouped: &Grouped, message: &mut Message<'_, AsyncConn>| {
        let id = grouped.id;
        let twice = message.connection().transaction(async move |connection| {
            booked(connection, id, 1).await?;
            booked(connection, id, 2).await?;
            Ok::<_, Failure>(())
        });
        polled(if grouped.amount_cents == 5 { 3 } else { 100 }, twice).await;
        Ok(Outcome::Done)
    });
    assert_eq!((tally.succeeded, tally.retried), (6, 1));
    let twice: Vec<_> = ids.iter().filter(|id| **id != ids[4]).flat_map(|id| [*id, *id]).collect();
    assert_eq!(bank.booked(), twice);
}
