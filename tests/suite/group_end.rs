//! How a group may end early: a handler ends the transaction or takes long, or the poller stops.

use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use queueable::{Failure, Group, Handler, HandlerResult, Message, Outcome, Queueable, Status};

use super::group::{booked, enqueue_group, entity, run};
use crate::db::{Conn, REFUSES_COMMITS, SEES_REFUSED_COMMITS};
use crate::suite::bank::{Bank, Payment, book, ledger, payments};

entity!(Ended, ended_queue, group = 50);
entity!(EndedOptimistic, ended_optimistic_queue, group(50, optimistic));
entity!(Hurried, hurried_group, timeout = "4s", group = 50);
entity!(Unhurried, unhurried_group, timeout = "10s", group = 50);

/// Books five payments in a group of eight. The handler of one of them runs this SQL.
fn one_says(statement: &'static str, culprit: usize, answer: fn() -> HandlerResult) -> (Bank, Vec<i64>) {
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 8, [1; 5]);
    let saying = ids[culprit];
    run::<Ended>(&bank, move |ended: &Ended, message: &mut Message<'_, Conn>| {
        let _ = book(&ended.payment(), message)?;
        if ended.id != saying {
            return Ok(Outcome::Done);
        }
        message.connection().batch_execute(statement)?;
        answer()
    });
    (bank, ids)
}

fn done() -> HandlerResult {
    Ok(Outcome::Done)
}

fn failed() -> HandlerResult {
    Err(Failure::retry("and failed"))
}

#[test]
fn a_handler_that_ends_its_groups_transaction_is_reported_and_its_neighbours_are_booked_once() {
    for statement in ["COMMIT", "ROLLBACK"] {
        for culprit in [0, 2, 4] {
            for answer in [done, failed] {
                let (bank, ids) = one_says(statement, culprit, answer);
                for (i, id) in ids.iter().enumerate() {
                    let state = bank.state(*id);
                    let expected = if i == culprit { Status::Error } else { Status::Success };
                    assert_eq!((state.status, state.try_count), (expected, 1), "{statement} by {culprit}: {i}");
                    let text = state.last_attempt_error_message.unwrap_or_default();
                    if i != culprit {
                        assert_eq!(text, "", "{statement} by {culprit}: {i}");
                    } else if statement == "COMMIT" && REFUSES_COMMITS {
                        assert_eq!(text, REFUSED);
                    } else {
                        let said = "what the handler committed itself is not undone";
                        assert!(text.contains("ended the message's transaction") || text.contains(said), "{text}");
                    }
                }
                let culprits_effects = statement == "COMMIT" && !REFUSES_COMMITS;
                let expected: Vec<_> = ids
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| *i != culprit || culprits_effects)
                    .map(|(_, id)| *id)
                    .collect();
                assert_eq!(booked(&bank), expected, "{statement} by {culprit}");
            }
        }
    }
}

/// The text on the row of a handler whose COMMIT of its group PostgreSQL has refused.
const REFUSED: &str = "the handler tried to commit a transaction that it shares, which was refused; what another attempt has \
                       committed meanwhile is not undone";

#[test]
fn a_handler_that_ignores_that_its_commit_was_refused_fails_with_its_own_words_or_ours() {
    for (answer, says) in
        [(done as fn() -> HandlerResult, REFUSED), (failed, "and failed; besides, the handler had tried")]
    {
        let bank = Bank::new();
        let ids = enqueue_group(&bank, 8, [1; 5]);
        let culprit = ids[2];
        run::<Ended>(&bank, move |ended: &Ended, message: &mut Message<'_, Conn>| {
            let _ = book(&ended.payment(), message)?;
            if ended.id == culprit {
                let is_refused = message.connection().batch_execute("COMMIT").is_err();
                // Otherwise the handler runs once more, alone, where nobody refuses its COMMIT.
                assert!(is_refused == REFUSES_COMMITS || !SEES_REFUSED_COMMITS);
                return answer();
            }
            Ok(Outcome::Done)
        });
        let state = bank.state(culprit);
        assert_eq!((state.status, state.try_count), (Status::Error, 1));
        let text = state.last_attempt_error_message.unwrap_or_default();
        assert_eq!(text.contains(says), SEES_REFUSED_COMMITS, "{text}");
        let booked = booked(&bank);
        assert!(ids.iter().all(|id| booked.contains(id) != (*id == culprit && SEES_REFUSED_COMMITS)), "{booked:?}");
        assert!(booked.is_sorted_by(|one, other| one < other), "none twice: {booked:?}");
    }
}

#[test]
fn a_handler_that_closes_all_cursors_costs_its_group_a_turn_and_nothing_else() {
    let (bank, ids) = one_says(if REFUSES_COMMITS { "CLOSE ALL" } else { "SELECT 1" }, 2, done);
    assert_eq!(booked(&bank), ids, "each once");
    assert!(ids.iter().all(|id| (bank.state(*id).status, bank.state(*id).try_count) == (Status::Success, 1)));
}

#[test]
fn ddl_in_the_middle_of_a_group_is_undone_with_it_or_reported() {
    let (bank, ids) = one_says("CREATE TABLE made_by_a_handler (id INT)", 2, done);
    assert_eq!(booked(&bank), ids);
    for (i, id) in ids.iter().enumerate() {
        let state = bank.state(*id);
        if i == 2 && state.status == Status::Error {
            // On MySQL, DDL commits.
            assert!(state.last_attempt_error_message.unwrap_or_default().contains("ended the message's transaction"));
        } else {
            assert_eq!((state.status, state.try_count), (Status::Success, 1));
        }
    }
}

#[test]
fn other_outcomes_and_failures_before_a_commit_by_a_handler_stand_too() {
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 8, 1..=6);
    run::<Ended>(&bank, |ended: &Ended, message: &mut Message<'_, Conn>| {
        let _ = book(&ended.payment(), message)?;
        match ended.amount_cents {
            1 => Ok(Outcome::again_in(Duration::from_secs(3600))),
            2 => Ok(Outcome::Delete),
            3 => Ok(Outcome::Skip),
            4 => Err(Failure::fatal("for good")),
            5 => Ok(message.connection().batch_execute("COMMIT").map(|()| Outcome::Done)?),
            _ => Ok(Outcome::Done),
        }
    });
    let expected: Vec<_> =
        [0, 1, 2, 4, 5].into_iter().filter(|i| *i != 4 || !REFUSES_COMMITS).map(|i| ids[i]).collect();
    assert_eq!(booked(&bank), expected);
    let statuses: Vec<_> = [0, 2, 3, 4, 5].map(|i| bank.state(ids[i]).status).into();
    let expected = [Status::NotAttempted, Status::Skipped, Status::Failed, Status::Error, Status::Success];
    assert_eq!(statuses, expected);
    assert_eq!(bank.state(ids[0]).last_attempt_error_message, None, "the group's mark is gone");
    let left: i64 = payments::table.find(ids[1]).count().get_result(&mut bank.connect()).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn what_a_handler_has_committed_of_its_group_is_nobody_elses_to_repeat() {
    for (optimistic, ignores) in [(false, false), (true, false), (false, true), (true, true)] {
        let bank = Bank::new();
        let ids = enqueue_group(&bank, 8, 1..=8);
        let pool = bank.pool(1);
        let commit_and_let_others_work = move |payment: Payment, message: &mut Message<'_, Conn>| {
            let _ = book(&payment, message)?;
            if payment.amount_cents == 4 {
                let committed = message.connection().batch_execute("COMMIT");
                if !ignores {
                    committed?;
                }
                // Another process, whose worker comes at the worst moment.
                let others = || Payment::poller(pool.clone(), book).workers(1).run_until_idle();
                thread::scope(|scope| scope.spawn(others).join()).unwrap()?;
                if ignores && REFUSES_COMMITS {
                    assert!(book(&payment, message).is_err(), "nothing is written beside the group");
                }
            }
            Ok(Outcome::Done)
        };
        if optimistic {
            run::<EndedOptimistic>(&bank, move |row: &EndedOptimistic, message: &mut Message<'_, Conn>| {
                commit_and_let_others_work(row.payment(), message)
            });
        } else {
            run::<Ended>(&bank, move |row: &Ended, message: &mut Message<'_, Conn>| {
                commit_and_let_others_work(row.payment(), message)
            });
            assert!(ids.iter().all(|id| *id == ids[3] || bank.state(*id).status == Status::Success));
        }
        let mut booked = booked(&bank);
        if !optimistic && !REFUSES_COMMITS {
            // Its own lock is gone with the COMMIT, as in transaction mode.
            booked.retain(|id| *id != ids[3]);
        }
        assert!(booked.is_sorted_by(|one, other| one < other), "none twice: {booked:?}");
        assert!(ids.iter().all(|id| bank.state(*id).next_attempt_time.is_none() || *id == ids[3]));
        if ignores && REFUSES_COMMITS {
            // The rows were free again, and the other worker has processed all of them.
            assert_eq!(booked, ids);
            assert!(ids.iter().all(|id| (bank.state(*id).status, bank.state(*id).try_count) == (Status::Success, 1)));
        }
    }
}

#[test]
fn an_optimistic_group_whose_transaction_was_ended_is_reported_and_not_run_again() {
    for statement in ["COMMIT", "ROLLBACK"] {
        let bank = Bank::new();
        let ids = enqueue_group(&bank, 8, 1..=12);
        run::<EndedOptimistic>(&bank, move |ended: &EndedOptimistic, message: &mut Message<'_, Conn>| {
            let _ = book(&ended.payment(), message)?;
            if ended.amount_cents == 4 {
                message.connection().batch_execute(statement)?;
            }
            Ok(Outcome::Done)
        });
        // If the worker sees the end of the transaction at once, it knows which handler ended it.
        let (seen, ended) = (&ids[3..4], if REFUSES_COMMITS { &ids[..0] } else { &ids[..8] });
        for id in ended {
            let state = bank.state(*id);
            assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::Failed, 1, None));
            let text = state.last_attempt_error_message.unwrap_or_default();
            assert!(text.contains("may have been committed: check them"), "{text}");
        }
        let expected = |id| match REFUSES_COMMITS {
            true if seen.contains(id) => Status::Error,
            false if ended.contains(id) => Status::Failed,
            _ => Status::Success,
        };
        assert!(ids.iter().all(|id| bank.state(*id).status == expected(id)));
        let booked = booked(&bank);
        assert!(booked.is_sorted_by(|one, other| one < other), "none twice: {booked:?}");
    }
}

#[test]
fn a_group_handled_at_once_whose_transaction_was_ended_is_reported_and_not_run_again() {
    struct Commits(Pool<ConnectionManager<Conn>>, bool);

    impl Handler<Ended, Conn> for Commits {
        fn handle(&self, ended: &Ended, message: &mut Message<'_, Conn>) -> HandlerResult {
            book(&ended.payment(), message)
        }

        fn handle_group(&self, entities: &[Ended], group: &mut Group<'_, Conn>) -> Option<Vec<HandlerResult>> {
            let row = |ended: &Ended| (ledger::payment_id.eq(ended.id), ledger::amount_cents.eq(ended.amount_cents));
            let book_all = |connection: &mut Conn| {
                let rows: Vec<_> = entities.iter().map(row).collect();
                diesel::insert_into(ledger::table).values(rows).execute(connection)
            };
            book_all(group.connection()).unwrap();
            if entities.iter().any(|ended| ended.amount_cents == 4) {
                let committed = group.connection().batch_execute("COMMIT");
                assert_eq!(committed.is_err(), REFUSES_COMMITS);
                if REFUSES_COMMITS && self.1 {
                    Payment::poller(self.0.clone(), book).workers(1).run_until_idle().unwrap();
                    assert!(book_all(group.connection()).is_err(), "nothing is written beside the group");
                }
            }
            Some(entities.iter().map(|_| done()).collect())
        }
    }

    for goes_on in [false, true] {
        let bank = Bank::new();
        let ids = enqueue_group(&bank, 8, 1..=12);
        run::<Ended>(&bank, Commits(bank.pool(1), goes_on));
        // PostgreSQL undoes the transaction whose COMMIT it refuses, so there is no doubt about it.
        let of_the_group = if REFUSES_COMMITS { Status::Success } else { Status::Failed };
        assert!(ids[..8].iter().all(|id| bank.state(*id).status == of_the_group));
        assert!(ids[8..].iter().all(|id| bank.state(*id).status == Status::Success));
        assert_eq!(booked(&bank), ids, "each once");
    }
}

#[test]
fn a_slow_handler_closes_its_group_early_and_the_rest_of_the_group_is_not_punished() {
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 8, 1..=8);
    let (_nobody, wait) = mpsc::channel::<()>();
    let (wait, slow, outside) = (Mutex::new(wait), ids[2], Mutex::new(bank.connect()));
    let tally = run::<Unhurried>(&bank, move |unhurried: &Unhurried, message: &mut Message<'_, Conn>| {
        let _ = book(&unhurried.payment(), message)?;
        if unhurried.id == slow {
            // Nobody ever sends. This takes more than half the timeout, but not all of it.
            let _ = wait.lock().unwrap().recv_timeout(Duration::from_millis(5500));
        } else if unhurried.id == slow + 1 {
            let committed = ledger::table.filter(ledger::payment_id.eq(slow)).count();
            let committed: i64 = committed.get_result(&mut *outside.lock().unwrap())?;
            assert_eq!(committed, 1, "the group of the slow one is over");
        }
        Ok(Outcome::Done)
    });
    assert_eq!(tally.succeeded, 7 + 8);
    assert_eq!(booked(&bank), ids);
}

#[test]
fn a_handler_past_its_timeout_is_judged_alone_and_its_group_is_not() {
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 4, 1..=4);
    let (_nobody, wait) = mpsc::channel::<()>();
    let (wait, slow) = (Mutex::new(wait), ids[2]);
    let tally = run::<Hurried>(&bank, move |hurried: &Hurried, message: &mut Message<'_, Conn>| {
        let _ = book(&hurried.payment(), message)?;
        if hurried.id == slow {
            let _ = wait.lock().unwrap().recv_timeout(Duration::from_secs(6));
        }
        Ok(Outcome::Done)
    });
    assert_eq!((tally.succeeded, tally.retried), (3 + 3, 1));
    assert_eq!(booked(&bank), [ids[0], ids[1], ids[3]]);
    let state = bank.state(slow);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(state.last_attempt_error_message.unwrap_or_default().contains("longer than its timeout of 4s"));
}

#[test]
fn a_shutdown_in_the_middle_of_a_group_leaves_its_rows_as_they_were_and_due() {
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 8, 1..=8);
    let (running, is_running) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (may_go_on, stopping) = (Mutex::new(may_go_on), ids[3]);
    let handle = Ended::poller(bank.pool(1), move |ended: &Ended, message: &mut Message<'_, Conn>| {
        let _ = book(&ended.payment(), message)?;
        if ended.id == stopping {
            running.send(()).unwrap();
            // This ends with the test at the latest, even if the test fails.
            let _ = may_go_on.lock().unwrap().recv();
        }
        Ok(Outcome::Done)
    })
    .workers(1)
    .start()
    .unwrap();
    is_running.recv().unwrap();
    assert_eq!(handle.shutdown(Duration::ZERO).rolled_back, 1);
    drop(go_on);
    let tally = run::<Ended>(&bank, |ended: &Ended, message: &mut Message<'_, Conn>| book(&ended.payment(), message));
    assert_eq!(tally.succeeded, 8);
    assert_eq!(booked(&bank), ids, "each once");
    assert!(ids.iter().all(|id| bank.state(*id).try_count == 1));
}

#[test]
fn a_shutdown_with_grace_ends_a_group_after_the_message_that_is_handled() {
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 8, 1..=8);
    let (running, is_running) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (may_go_on, last) = (Mutex::new(may_go_on), ids[3]);
    let (leaving, scout_left) = mpsc::channel();
    let pool = Pool::builder()
        .max_size(3)
        .connection_customizer(Box::new(ScoutLeaves(Mutex::new(leaving))))
        .build(ConnectionManager::<Conn>::new(bank.database.url()))
        .unwrap();
    let handle = Ended::poller(pool, move |ended: &Ended, message: &mut Message<'_, Conn>| {
        let _ = book(&ended.payment(), message)?;
        if ended.id == last {
            running.send(()).unwrap();
            // This ends with the test at the latest, even if the test fails.
            let _ = may_go_on.lock().unwrap().recv();
        }
        Ok(Outcome::Done)
    })
    .workers(1)
    .start()
    .unwrap();
    is_running.recv().unwrap();
    let stopping = std::thread::spawn(move || handle.shutdown(Duration::from_secs(30)));
    // The scout leaves when it sees that the poller stops.
    scout_left.recv_timeout(Duration::from_secs(30)).unwrap();
    drop(go_on);
    let shutdown = stopping.join().unwrap();
    assert_eq!((shutdown.tally.succeeded, shutdown.rolled_back), (7 + 4, 0));
    assert_eq!(booked(&bank), ids[..4], "those that were handled, in one commit");
    assert!(ids[4..].iter().all(|id| bank.state(*id).try_count == 0 && bank.state(*id).next_attempt_time.is_some()));
}

/// Reports when the scout gives its connection up.
#[derive(Debug)]
pub(crate) struct ScoutLeaves(pub(crate) Mutex<mpsc::Sender<()>>);

impl CustomizeConnection<Conn, diesel::r2d2::Error> for ScoutLeaves {
    fn on_release(&self, _: Conn) {
        if std::thread::current().name() == Some("queueable-scout") {
            let _ = self.0.lock().unwrap().send(());
        }
    }
}
