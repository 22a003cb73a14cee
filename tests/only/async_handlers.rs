//! Async handlers: their writes commit with the state, and a future that ends too early commits nothing.

use std::future::{self, Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use diesel::prelude::*;
use diesel_async::{AsyncConnection, RunQueryDsl};
use queueable::{
    Async, AsyncHandler, Event, Failure, Group, HandlerResult, Lease, Message, Outcome, Poller, PollerHandle,
    Queueable, Status, Tally,
};
use tokio::sync::Notify;

use crate::db::{AsyncConn, Conn, SESSION, fail_quoting};
use crate::suite::bank::{Bank, Payment, companies, ledger, payments};

/// A payment that shares its transaction with others.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = grouped_queue, group = 50, retry = fixed("1h"))]
pub(crate) struct Grouped {
    pub(crate) id: i64,
    pub(crate) amount_cents: i64,
}

/// A payment that is charged by a call to the outside world.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = charge_queue, lease = "60s", retry = fixed("1h"))]
struct Charge {
    id: i64,
    amount_cents: i64,
}

/// Books a payment by an async statement.
pub(crate) async fn booked(connection: &mut AsyncConn, payment: i64, cents: i64) -> QueryResult<usize> {
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(payment), ledger::amount_cents.eq(cents)))
        .execute(connection)
        .await
}

async fn book(payment: &Payment, message: &mut Message<'_, AsyncConn>) -> HandlerResult {
    booked(message.connection(), payment.id, payment.amount_cents).await?;
    // A handler may wait for the runtime's timer, in the middle of its transaction.
    tokio::time::sleep(Duration::from_millis(1)).await;
    diesel::update(companies::table.find(payment.company_id))
        .set(companies::balance_cents.eq(companies::balance_cents + payment.amount_cents))
        .execute(message.connection())
        .await?;
    Ok(Outcome::Done)
}

pub(crate) fn run<H: AsyncHandler<Payment, AsyncConn> + 'static>(bank: &Bank, handler: H) -> Tally {
    bank.run(Async(handler))
}

/// Returns the number by which the server knows the session.
pub(crate) async fn session(connection: &mut AsyncConn) -> QueryResult<i64> {
    diesel::select(diesel::dsl::sql::<diesel::sql_types::BigInt>(SESSION)).get_result(connection).await
}

/// Polls a future so many times, and drops it then. Returns its answer if it ended before.
pub(crate) async fn polled<T>(times: i64, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut polls) = (pin!(future), 0);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => {
            polls += 1;
            if polls == times { Poll::Ready(None) } else { Poll::Pending }
        }
    })
    .await
}

#[test]
fn what_an_async_fn_writes_commits_with_the_state() {
    let bank = Bank::new();
    let ids = bank.enqueue([100, 200, 300]);
    let tally = run(&bank, book);
    assert_eq!((tally.succeeded, bank.booked(), bank.balance(1)), (3, ids.clone(), 600));
    assert!(ids.iter().all(|id| bank.state(*id).status == Status::Success));
}

/// Waits for what a task does after its handler has returned, when nothing else is due.
fn expect_tasks_to_go_on(start: impl FnOnce(Poller<Conn>) -> PollerHandle) {
    let bank = Bank::new();
    bank.enqueue([1]);
    let ((settled, is_settled), (sender, done)) = (mpsc::channel(), mpsc::channel());
    let ended = Arc::new(Notify::new());
    let has_ended = ended.clone();
    let handler = async move |_: &Payment, _: &mut Message<'_, AsyncConn>| {
        let (sender, has_ended) = (sender.clone(), has_ended.clone());
        tokio::spawn(async move {
            has_ended.notified().await;
            // A timer runs there too.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let _ = sender.send(());
        });
        Ok(Outcome::Done)
    };
    let tell = move |event: &Event| {
        if let Event::Succeeded(_) = event {
            let _ = settled.send(());
        }
    };
    let handle = start(bank.poller(Async(handler)).on_event(tell));
    is_settled.recv_timeout(Duration::from_secs(60)).expect("the message is settled");
    ended.notify_one();
    done.recv_timeout(Duration::from_secs(60)).expect("the task goes on between messages");
    let _ = handle.shutdown(Duration::from_secs(60));
}

#[test]
fn a_task_that_a_handler_spawns_goes_on_between_messages() {
    expect_tasks_to_go_on(|poller| poller.start().unwrap());
}

#[test]
fn a_task_that_a_handler_spawns_runs_on_the_runtime_of_the_application() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("the application's")
        .enable_all()
        .build()
        .unwrap();
    expect_tasks_to_go_on(|poller| runtime.block_on(poller.start_async()).unwrap());
    let bank = Bank::new();
    bank.enqueue([1]);
    let (sender, done) = mpsc::channel();
    let handler = async move |_: &Payment, _: &mut Message<'_, AsyncConn>| {
        let sender = sender.clone();
        tokio::spawn(async move { drop(sender.send(thread::current().name().map(str::to_owned))) });
        Ok(Outcome::Done)
    };
    let tally = runtime.block_on(bank.poller(Async(handler)).run_until_idle_async()).unwrap();
    assert_eq!(tally.succeeded, 1);
    let name = done.recv_timeout(Duration::from_secs(60)).expect("the task runs");
    assert_eq!(name.as_deref(), Some("the application's"));
}

#[test]
fn a_poller_stops_when_the_runtime_of_its_handlers_tasks_has_ended() {
    let bank = Bank::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let poller = Payment::poller(bank.pool(3), Async(book)).workers(2);
    let handle = runtime.block_on(poller.start_async()).unwrap();
    runtime.shutdown_timeout(Duration::from_secs(60));
    let ids = bank.enqueue(1..=4);
    while handle.health().alive {
        thread::yield_now();
    }
    let _ = handle.shutdown(Duration::from_secs(60));
    // The failure by which a worker finds out costs a try.
    let tries: i32 = ids.iter().map(|id| bank.state(*id).try_count).sum();
    assert!(tries <= 2, "{tries} tries");
    assert!(bank.booked().is_empty());
}

#[test]
fn several_pollers_share_an_async_handler() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    let handler = Arc::new(Async(book));
    assert_eq!(bank.poller(handler.clone()).run_until_idle().unwrap().succeeded, 2);
    let later = bank.enqueue([3]);
    assert_eq!(bank.poller(handler).run_until_idle().unwrap().succeeded, 1);
    assert_eq!(bank.booked(), [ids, later].concat());
}

#[test]
fn an_async_closure_knows_its_message_and_what_fails_leaves_nothing() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2, 3, 4]);
    let tally = run(&bank, async |payment: &Payment, message: &mut Message<'_, AsyncConn>| {
        assert_eq!(message.idempotency_key(), format!("payments.status:{}", payment.id));
        assert_eq!((message.try_number(), message.queue_state().status), (1, Status::NotAttempted));
        booked(message.connection(), payment.id, payment.amount_cents).await?;
        match payment.amount_cents {
            1 => return Err(Failure::retry("no route to the bank")),
            2 => panic!("a payment of two"),
            3 => {
                diesel::sql_query(fail_quoting("a payment of three")).execute(message.connection()).await?;
            }
            _ => {}
        }
        Ok(Outcome::Done)
    });
    assert_eq!((tally.succeeded, tally.retried), (1, 3));
    assert_eq!(bank.booked(), ids[3..]);
    let text = |id| bank.state(id).last_attempt_error_message.expect("it has failed");
    assert_eq!(text(ids[0]), "no route to the bank");
    assert!(text(ids[1]).contains("panicked: a payment of two"));
    assert!(text(ids[2]).contains("a payment of three"));
}

#[test]
fn an_answer_is_applied_by_async_code() {
    let bank = Bank::new();
    let ids = bank.enqueue([100, 200]);
    let call = |charge: &Charge, _: &Lease| Ok(charge.amount_cents + 1);
    let apply = async |charge: &Charge, receipt: &i64, message: &mut Message<'_, AsyncConn>| {
        booked(message.connection(), charge.id, *receipt).await?;
        Ok(Outcome::Done)
    };
    let tally = Charge::poller(bank.pool(1), (call, Async(apply))).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, bank.booked()), (2, ids));
}

/// Books a group at once, after it has waited for something else.
struct AtOnce(fn(usize) -> Option<Vec<HandlerResult>>);

impl AsyncHandler<Grouped, AsyncConn> for AtOnce {
    async fn handle(&self, grouped: &Grouped, message: &mut Message<'_, AsyncConn>) -> HandlerResult {
        booked(message.connection(), grouped.id, -1).await?;
        Ok(Outcome::Done)
    }

    async fn handle_group(&self, entities: &[Grouped], group: &mut Group<'_, AsyncConn>) -> Option<Vec<HandlerResult>> {
        // A handler of a group may wait for the runtime's timer too.
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(group.queue_state(entities.len() - 1).status, Status::NotAttempted);
        let rows: Vec<_> = entities
            .iter()
            .map(|grouped| (ledger::payment_id.eq(grouped.id), ledger::amount_cents.eq(grouped.amount_cents)))
            .collect();
        diesel::insert_into(ledger::table).values(rows).execute(group.connection()).await.unwrap();
        (self.0)(entities.len())
    }
}

pub(crate) fn run_groups<H: AsyncHandler<Grouped, AsyncConn> + 'static>(bank: &Bank, handler: H) -> Tally {
    Grouped::poller(bank.pool(1), Async(handler)).workers(1).run_until_idle().unwrap()
}

fn amounts(bank: &Bank) -> Vec<i64> {
    let query = ledger::table.order((ledger::payment_id, ledger::id)).select(ledger::amount_cents);
    diesel::RunQueryDsl::load(query, &mut bank.connect()).unwrap()
}

#[test]
fn async_code_handles_a_group_at_once() {
    let bank = Bank::new();
    bank.enqueue(1..=7);
    // Groups of one, two and four.
    let tally = run_groups(&bank, AtOnce(|messages| Some((0..messages).map(|_| Ok(Outcome::Done)).collect())));
    assert_eq!((tally.succeeded, amounts(&bank)), (7, vec![-1, 2, 3, 4, 5, 6, 7]));
}

#[test]
fn what_async_code_has_written_for_a_group_that_it_leaves_is_undone() {
    for answer in [|_| None, |_| Some(vec![Err(Failure::retry("not this group"))]), |_| panic!("a group")] {
        let bank = Bank::new();
        bank.enqueue(1..=7);
        let tally = run_groups(&bank, AtOnce(answer));
        assert_eq!((tally.succeeded, amounts(&bank)), (7, vec![-1; 7]));
    }
}

#[test]
fn the_messages_of_a_group_are_handled_by_async_code_one_by_one() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=7);
    let tally = run_groups(&bank, async |grouped: &Grouped, message: &mut Message<'_, AsyncConn>| {
        booked(message.connection(), grouped.id, grouped.amount_cents).await?;
        if grouped.amount_cents == 5 { Err(Failure::retry("no fives")) } else { Ok(Outcome::Done) }
    });
    assert_eq!((tally.succeeded, tally.retried), (6, 1));
    assert_eq!(bank.booked(), [&ids[..4], &ids[5..]].concat());
}

#[test]
fn a_select_that_cuts_a_transaction_short_undoes_the_attempt() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    let tally = run(&bank, async |payment: &Payment, message: &mut Message<'_, AsyncConn>| {
        let (id, cents) = (payment.id, payment.amount_cents);
        let reached = Notify::new();
        let reaches = &reached;
        let waiting = message.connection().transaction(async move |connection| {
            booked(connection, id, cents).await?;
            if cents == 1 {
                reaches.notify_one();
                future::pending::<()>().await;
            }
            Ok::<_, Failure>(())
        });
        tokio::select! {
            answer = waiting => answer?,
            () = reached.notified() => {}
        }
        Ok(Outcome::Done)
    });
    assert_eq!((tally.succeeded, tally.retried, bank.booked()), (1, 1, ids[1..].to_vec()));
}

#[test]
fn a_panic_in_a_transaction_of_the_handlers_own_leaves_nothing() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    let tally = run(&bank, async |payment: &Payment, message: &mut Message<'_, AsyncConn>| {
        let (id, cents) = (payment.id, payment.amount_cents);
        message
            .connection()
            .transaction(async move |connection| {
                booked(connection, id, cents).await?;
                assert_ne!(cents, 1, "a payment of one");
                Ok::<_, Failure>(Outcome::Done)
            })
            .await
    });
    assert_eq!((tally.succeeded, tally.retried, bank.booked()), (1, 1, ids[1..].to_vec()));
    assert!(bank.state(ids[0]).last_attempt_error_message.unwrap().contains("a payment of one"));
}

/// Tells when it is dropped.
struct ToldOnDrop(mpsc::Sender<()>);

impl Drop for ToldOnDrop {
    fn drop(&mut self) {
        // The test may have ended.
        let _ = self.0.send(());
    }
}

#[test]
fn a_future_past_its_timeout_is_dropped_and_its_worker_goes_on() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = hurried_queue, timeout = "3s", retry = fixed("1h"))]
    struct Hurried {
        id: i64,
        amount_cents: i64,
    }

    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    let (ends, ended) = mpsc::channel();
    let handler = async move |hurried: &Hurried, message: &mut Message<'_, AsyncConn>| {
        booked(message.connection(), hurried.id, 0).await?;
        if hurried.amount_cents == 1 {
            let _told = ToldOnDrop(ends.clone());
            future::pending::<()>().await;
        }
        Ok(Outcome::Done)
    };
    let poller = Hurried::poller(bank.pool(1), Async(handler)).workers(1).max_stuck_workers(0);
    let tally = poller.run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.retried, bank.booked()), (1, 1, ids[1..].to_vec()));
    assert_eq!(ended.try_recv(), Ok(()));
    let state = bank.state(ids[0]);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(state.last_attempt_error_message.unwrap().contains("longer than its timeout of 3s"));
}

#[test]
fn a_future_for_a_group_past_its_timeout_is_dropped_and_nothing_of_it_commits() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = hurried_groups_queue, group = 50, timeout = "3s", retry = fixed("1h"))]
    struct HurriedGroup {
        id: i64,
    }

    struct Never(mpsc::Sender<()>);

    impl AsyncHandler<HurriedGroup, AsyncConn> for Never {
        async fn handle(&self, hurried: &HurriedGroup, message: &mut Message<'_, AsyncConn>) -> HandlerResult {
            booked(message.connection(), hurried.id, -1).await?;
            Ok(Outcome::Done)
        }

        async fn handle_group(
            &self,
            entities: &[HurriedGroup],
            group: &mut Group<'_, AsyncConn>,
        ) -> Option<Vec<HandlerResult>> {
            booked(group.connection(), entities[0].id, 0).await.unwrap();
            let _told = ToldOnDrop(self.0.clone());
            future::pending().await
        }
    }

    let bank = Bank::new();
    // The first group has one message, the second two.
    bank.enqueue(1..=3);
    let (ends, ended) = mpsc::channel();
    let poller = HurriedGroup::poller(bank.pool(1), Async(Never(ends))).workers(1).max_stuck_workers(0);
    poller.run_until_idle().unwrap();
    assert_eq!(ended.try_recv(), Ok(()));
    assert!(amounts(&bank).iter().all(|amount| *amount == -1), "{:?}", amounts(&bank));
}

#[test]
fn a_shutdown_without_grace_drops_a_future_that_waits_and_commits_nothing_of_it() {
    let bank = Bank::new();
    let ids = bank.enqueue([1]);
    let (waits, has_begun) = mpsc::channel();
    let (ends, ended) = mpsc::channel();
    let handler = async move |payment: &Payment, message: &mut Message<'_, AsyncConn>| {
        booked(message.connection(), payment.id, payment.amount_cents).await?;
        let _told = ToldOnDrop(ends.clone());
        waits.send(()).unwrap();
        future::pending::<HandlerResult>().await
    };
    let handle = bank.poller(Async(handler)).start().unwrap();
    has_begun.recv().unwrap();
    let shutdown = handle.shutdown(Duration::ZERO);
    assert_eq!((shutdown.rolled_back, shutdown.tally.succeeded), (1, 0));
    ended.recv().unwrap();
    assert!(bank.booked().is_empty());
    let state = bank.state(ids[0]);
    assert_eq!((state.status, state.try_count, state.next_attempt_time.is_some()), (Status::NotAttempted, 0, true));
    assert_eq!((run(&bank, book).succeeded, bank.booked()), (1, ids));
}
