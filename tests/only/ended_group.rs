//! Handlers that end the transaction of their group, on a client that does not see in an answer that the transaction is over.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{Message, Outcome, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book, payments};
use crate::suite::group::{booked, enqueue_group, entity, run};

entity!(InTurn, in_turn_queue, group = 50);
entity!(UnderOne, under_one_queue, group(50, optimistic));

#[test]
fn a_handler_that_ends_the_transaction_of_its_group_costs_its_neighbours_nothing() {
    for statement in ["COMMIT", "ROLLBACK"] {
        for ignores in [false, true] {
            for optimistic in [false, true] {
                let bank = Bank::new();
                let ids = enqueue_group(&bank, 8, 1..=8);
                let end = move |amount: i64, message: &mut Message<'_, Conn>| -> queueable::HandlerResult {
                    if amount == 4 {
                        let ended = message.connection().batch_execute(statement);
                        if !ignores {
                            ended?;
                        }
                    }
                    Ok(Outcome::Done)
                };
                if optimistic {
                    run::<UnderOne>(&bank, move |row: &UnderOne, message: &mut Message<'_, Conn>| {
                        let _ = book(&row.payment(), message)?;
                        end(row.amount_cents, message)
                    });
                } else {
                    run::<InTurn>(&bank, move |row: &InTurn, message: &mut Message<'_, Conn>| {
                        let _ = book(&row.payment(), message)?;
                        end(row.amount_cents, message)
                    });
                }
                let case = format!("{statement}, ignores: {ignores}, optimistic: {optimistic}");
                let booked = booked(&bank);
                for id in &ids {
                    let (state, times) = (bank.state(*id), booked.iter().filter(|booked| *booked == id).count());
                    let is_culprit = *id == ids[3];
                    let expected = if is_culprit { Status::Error } else { Status::Success };
                    assert_eq!((state.status, state.try_count), (expected, 1), "{case}: row {id}, {state:?}");
                    // What the culprit commits when it runs alone stays.
                    assert!(times == 1 || is_culprit && times == 0, "{case}: row {id} is booked {times} times");
                }
            }
        }
    }
}
