//! The poller: many workers, several entities, waking, idling, shutting down.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::{Instrumentation, InstrumentationEvent};
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use queueable::{Error, Failure, Message, Outcome, Poller, PollerSettings, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, NewPayment, Payment, book, companies, ledger, payments};

/// How long a test waits for an event before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn many_workers_of_two_pollers_handle_every_row_once() {
    let bank = Bank::new();
    let ids = bank.enqueue(1..=200);
    let start = || Payment::poller(bank.pool(4), book).workers(4);
    let (one, other) = (start(), start());
    let other = std::thread::spawn(move || other.run_until_idle().unwrap());
    let one = one.run_until_idle().unwrap();
    let other = other.join().unwrap();
    assert_eq!(one.succeeded + other.succeeded, 200);
    assert_eq!(bank.booked(), ids);
    assert_eq!(bank.balance(1), (1..=200).sum::<i64>());
}

#[test]
fn one_poller_serves_several_entities_and_what_one_makes_due_for_the_other() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = companies)]
    #[queue(timeout = "30s")]
    struct Company {
        id: i64,
    }

    let bank = Bank::new();
    {
        use diesel_migrations::MigrationHarness;
        let migrations = queueable::Migrations::new().entity::<Payment>().entity::<Company>();
        bank.connect().run_pending_migrations(migrations).unwrap();
    }
    bank.enqueue([5, 6]);
    let audited = Arc::new(AtomicUsize::new(0));
    let audits = audited.clone();
    let tally = Poller::new(bank.pool(2))
        .serve::<Payment>(|payment: &Payment, message: &mut Message<'_, Conn>| {
            diesel::update(companies::table.find(payment.company_id))
                .set(Company::due_now())
                .execute(message.connection())?;
            Ok(Outcome::Done)
        })
        .serve::<Company>(move |company: &Company, _: &mut Message<'_, Conn>| {
            audits.fetch_add(1, Ordering::Relaxed);
            assert_eq!(company.id, 1);
            Ok(Outcome::Done)
        })
        .workers(2)
        .run_until_idle()
        .unwrap();
    assert!(tally.succeeded >= 3, "{tally:?}");
    assert!(audited.load(Ordering::Relaxed) >= 1);
    let state: queueable::QueueState =
        companies::table.find(1).select(Company::queue_state()).first(&mut bank.connect()).unwrap();
    assert_eq!(state.status, Status::Success);
}

#[test]
fn a_row_enqueued_in_this_process_is_noticed_long_before_the_poll_interval() {
    let bank = Bank::new();
    let (handled, wait) = mpsc::channel();
    let handled = Mutex::new(handled);
    let handle = bank
        .poller(move |payment: &Payment, _: &mut Message<'_, Conn>| {
            handled.lock().unwrap().send(payment.id)?;
            Ok(Outcome::Done)
        })
        .poll_interval(Duration::from_secs(600))
        .start()
        .unwrap();
    let mut seen = Vec::new();
    for amount in 1..=3 {
        bank.enqueue([amount]);
        seen.push(wait.recv_timeout(PATIENCE).expect("the poller slept through an enqueue"));
    }
    assert_eq!(seen.len(), 3);
    // This enqueue does not use the library, so the poller needs a call of `wake`.
    diesel::update(payments::table)
        .set(crate::suite::bank::payment_queue::next_attempt_time.eq(queueable::columns::Now))
        .execute(&mut bank.connect())
        .unwrap();
    handle.wake();
    for _ in 0..3 {
        wait.recv_timeout(PATIENCE).expect("the poller slept through wake()");
    }
    handle.shutdown(PATIENCE);
}

#[test]
fn a_retry_within_the_poll_interval_runs_when_it_is_due() {
    let bank = Bank::new();
    let (handled, wait) = mpsc::channel();
    let handled = Mutex::new(handled);
    let handle = bank
        .poller(move |_: &Payment, message: &mut Message<'_, Conn>| {
            handled.lock().unwrap().send(message.try_number())?;
            if message.try_number() == 1 {
                return Err(Failure::retry_after(Duration::from_millis(300), "once"));
            }
            Ok(Outcome::Done)
        })
        .poll_interval(Duration::from_secs(600))
        .start()
        .unwrap();
    bank.enqueue([1]);
    assert_eq!(wait.recv_timeout(PATIENCE), Ok(1));
    assert_eq!(wait.recv_timeout(PATIENCE), Ok(2));
    handle.shutdown(PATIENCE);
}

#[test]
fn an_idle_poller_asks_once_per_interval_whatever_the_number_of_workers() {
    // An entity of its own: other tests of this process enqueue payments, and that wakes pollers.
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = idle_queue)]
    #[expect(dead_code, reason = "no row is ever due")]
    struct Idle {
        id: i64,
    }

    let bank = Bank::new();
    let queries = Arc::new(AtomicUsize::new(0));
    let pool = Pool::builder()
        .max_size(18)
        .min_idle(Some(0))
        .connection_customizer(Box::new(Counting(queries.clone())))
        .build(ConnectionManager::<Conn>::new(bank.database.url()))
        .unwrap();
    let handle =
        Idle::poller(pool, |_: &Idle, _: &mut Message<'_, Conn>| Ok(Outcome::Done)).workers(16).start().unwrap();
    let (began, before) = (Instant::now(), queries.load(Ordering::Relaxed));
    let (_never, wait) = mpsc::channel::<()>();
    assert_eq!(wait.recv_timeout(Duration::from_secs(4)), Err(RecvTimeoutError::Timeout));
    let asked = queries.load(Ordering::Relaxed) - before;
    // The scout goes on while the machine keeps this thread waiting.
    let seconds = began.elapsed().as_secs_f64().ceil();
    // The scout's session is prepared within this time too.
    assert!(asked as f64 <= seconds + SESSION_QUERIES as f64, "{asked} queries in {seconds} seconds");
    handle.shutdown(PATIENCE);
}

/// An upper bound for the statements that prepare a session and read its settings back.
const SESSION_QUERIES: usize = 14;

#[derive(Debug)]
struct Counting(Arc<AtomicUsize>);

impl CustomizeConnection<Conn, diesel::r2d2::Error> for Counting {
    fn on_acquire(&self, connection: &mut Conn) -> Result<(), diesel::r2d2::Error> {
        let queries = self.0.clone();
        connection.set_instrumentation(Counter(queries));
        Ok(())
    }
}

struct Counter(Arc<AtomicUsize>);

impl Instrumentation for Counter {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        if let InstrumentationEvent::StartQuery { .. } = event {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn shutdown_lets_a_running_handler_finish_and_claims_no_more() {
    let bank = Bank::new();
    bank.enqueue([1, 2, 3]);
    let (entered, wait) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (entered, released) = (Mutex::new(entered), Mutex::new(released));
    let handle = bank
        .poller(move |payment: &Payment, message: &mut Message<'_, Conn>| {
            entered.lock().unwrap().send(payment.id)?;
            let _ = released.lock().unwrap().recv_timeout(PATIENCE);
            book(payment, message)
        })
        .start()
        .unwrap();
    let first = wait.recv_timeout(PATIENCE).unwrap();
    let stopping = std::thread::spawn(move || handle.shutdown(PATIENCE));
    drop(release);
    let shutdown = stopping.join().unwrap();
    assert_eq!(shutdown.rolled_back, 0);
    assert_eq!(bank.booked().len() as u64, shutdown.tally.succeeded);
    assert_eq!(bank.booked()[0], first);
}

#[test]
fn a_handler_that_outlasts_the_grace_is_rolled_back_and_its_row_is_due() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let (entered, wait) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (entered, released) = (Mutex::new(entered), Mutex::new(released));
    let returned = Arc::new(AtomicBool::new(false));
    let handle = bank
        .poller({
            let returned = returned.clone();
            move |payment: &Payment, message: &mut Message<'_, Conn>| {
                let _ = book(payment, message)?;
                entered.lock().unwrap().send(())?;
                let _ = released.lock().unwrap().recv_timeout(PATIENCE);
                returned.store(true, Ordering::Relaxed);
                Ok(Outcome::Done)
            }
        })
        .start()
        .unwrap();
    wait.recv_timeout(PATIENCE).unwrap();
    let shutdown = handle.shutdown(Duration::ZERO);
    assert_eq!(shutdown.rolled_back, 1);
    assert!(!returned.load(Ordering::Relaxed), "the shutdown did not wait for the handler");
    drop(release);
    // Wherever the handler's thread is now, another poller finds the row as it was.
    assert_eq!(bank.run(book).succeeded, 1);
    assert_eq!(bank.booked(), [id]);
    assert_eq!(bank.state(id).try_count, 1);
}

#[test]
fn dropping_the_handle_shuts_the_poller_down() {
    let bank = Bank::new();
    let pool = bank.pool(1);
    let handle = Payment::poller(pool.clone(), book).workers(1).start().unwrap();
    drop(handle);
    bank.enqueue([1]);
    assert!(bank.booked().is_empty());
    assert_eq!(bank.run(book).succeeded, 1);
}

#[test]
fn the_pool_gets_no_connection_back_that_the_queue_has_changed() {
    let bank = Bank::new();
    let pool: Pool<ConnectionManager<Conn>> = bank.pool(1);
    bank.enqueue([1]);
    Payment::poller(pool.clone(), book).workers(1).run_until_idle().unwrap();
    let mut connection = pool.get().unwrap();
    // With autocommit off, or in an open transaction, this would be lost with the connection.
    diesel::insert_into(payments::table)
        .values(NewPayment { company_id: 2, amount_cents: 1 })
        .execute(&mut connection)
        .unwrap();
    drop(connection);
    drop(pool);
    let of_two = payments::table.filter(payments::company_id.eq(2)).count();
    assert_eq!(of_two.get_result(&mut bank.connect()), Ok(1_i64));
}

#[test]
fn an_undecodable_row_fails_alone() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = checked_queue, retry = fixed("1h"), timeout = "30s")]
    struct Checked {
        id: i64,
        #[diesel(deserialize_as = Positive)]
        amount_cents: i64,
    }

    #[derive(Debug, diesel::deserialize::FromSqlRow)]
    struct Positive(i64);

    impl TryInto<i64> for Positive {
        type Error = String;

        fn try_into(self) -> Result<i64, String> {
            if self.0 > 0 { Ok(self.0) } else { Err(format!("{} is no amount", self.0)) }
        }
    }

    impl<DB> diesel::deserialize::FromSql<diesel::sql_types::BigInt, DB> for Positive
    where
        DB: diesel::backend::Backend,
        i64: diesel::deserialize::FromSql<diesel::sql_types::BigInt, DB>,
    {
        fn from_sql(bytes: DB::RawValue<'_>) -> diesel::deserialize::Result<Self> {
            i64::from_sql(bytes).map(Positive)
        }
    }

    let bank = Bank::new();
    let ids = bank.enqueue((1..=100).map(|amount| if amount == 42 { -42 } else { amount }));
    let tally = Checked::poller(bank.pool(1), |checked: &Checked, message: &mut Message<'_, Conn>| {
        diesel::insert_into(ledger::table)
            .values((ledger::payment_id.eq(checked.id), ledger::amount_cents.eq(checked.amount_cents)))
            .execute(message.connection())?;
        Ok(Outcome::Done)
    })
    .workers(1)
    .run_until_idle()
    .unwrap();
    assert_eq!((tally.succeeded, tally.retried), (99, 1));
    let state = bank.state(ids[41]);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    let text = state.last_attempt_error_message.unwrap();
    assert!(text.starts_with("the row cannot be decoded") && text.contains("-42 is no amount"), "{text}");
}

#[test]
fn a_pool_without_a_connection_for_every_worker_is_refused() {
    let bank = Bank::new();
    let error = Payment::poller(bank.database.pool(4), book).workers(4).start().unwrap_err();
    assert!(matches!(error, Error::Setting { setting: "the pool's max_size", .. }), "{error}");
}

#[test]
fn settings_beyond_all_measure_are_refused_by_name() {
    type Set = fn(&mut PollerSettings);
    let bank = Bank::new();
    let cases: [(&str, Set); 5] = [
        ("pool_timeout", |settings| settings.pool_timeout = Duration::MAX),
        ("pool_timeout", |settings| settings.pool_timeout = Duration::ZERO),
        ("network_timeout", |settings| settings.network_timeout = Duration::MAX),
        ("network_timeout", |settings| settings.network_timeout = Duration::ZERO),
        ("the pool's max_size", |settings| settings.workers = usize::MAX),
    ];
    for (name, set) in cases {
        let mut settings = PollerSettings::default();
        set(&mut settings);
        let error = bank.poller(book).settings(settings).start().unwrap_err();
        assert!(matches!(error, Error::Setting { setting, .. } if setting == name), "{error}");
    }
}
