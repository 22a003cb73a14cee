//! Every occasion has its own key: the same at each of its attempts, in every mode, and another one for the next
//! occasion.

mod kinds;
mod snapshots;
mod texts;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{
    ClaimStyle, Failure, Handler, HandlerResult, Lease, Message, Migrations, Outcome, Poller, QueueState, Queueable,
    Status, Tally,
};

use crate::db::{BIGINT, Conn, Database};

diesel::table! {
    charges (id) { id -> BigInt, }
}

/// Entities on one table and the same queue columns, one for each mode.
macro_rules! charges {
    ($($name:ident($($key:tt)*);)*) => {$(
        #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
        #[diesel(table_name = charges)]
        #[queue(retry = fixed("1h"), max_tries = 4, timeout = "30s", $($key)*)]
        struct $name {
            id: i64,
        }
    )*};
}

charges! {
    Charge(occasion);
    ChargeInGroup(occasion, group(10));
    ChargeAtOnce(occasion, group(10, optimistic));
    ChargeLeased(occasion, lease = "60s");
    // Without the column.
    Plain(module = plain_queue);
    PlainLeased(module = plain_leased_queue, lease = "60s");
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Transaction,
    Group,
    AtOnce,
    Lease,
    /// As on a database without SKIP LOCKED.
    LeaseByUpdate,
}

const MODES: [Mode; 5] = [Mode::Transaction, Mode::Group, Mode::AtOnce, Mode::Lease, Mode::LeaseByUpdate];

/// Answers for a row.
type Work = fn(i64) -> HandlerResult;

/// The keys that the handlers received, with their rows.
type Seen = Arc<Mutex<Vec<(i64, String)>>>;

struct Till {
    database: Database,
}

impl Till {
    fn new() -> Self {
        let till = Till::before_the_queue();
        till.connect().run_pending_migrations(Migrations::new().entity::<Charge>()).unwrap();
        till
    }

    fn before_the_queue() -> Self {
        let database = Database::new();
        let create = format!("CREATE TABLE charges (id {BIGINT} PRIMARY KEY NOT NULL)");
        database.connect().batch_execute(&create).unwrap();
        Till { database }
    }

    fn with_charges(ids: impl IntoIterator<Item = i64>) -> Self {
        let till = Till::new();
        till.enqueue(ids);
        till
    }

    fn enqueue(&self, ids: impl IntoIterator<Item = i64>) {
        let rows: Vec<_> = ids.into_iter().map(|id| (charges::id.eq(id), Charge::due_now())).collect();
        diesel::insert_into(charges::table).values(rows).execute(&mut self.connect()).unwrap();
    }

    fn connect(&self) -> Conn {
        self.database.connect()
    }

    fn state(&self, id: i64) -> QueueState {
        charges::table.find(id).select(Charge::queue_state()).get_result(&mut self.connect()).unwrap()
    }

    /// Returns how many occasions of a row have ended.
    fn occasion(&self, id: i64) -> i64 {
        charges::table.find(id).select(charge_queue::occasion).get_result(&mut self.connect()).unwrap()
    }

    /// Makes all rows due by the application's own SQL.
    fn make_due(&self) {
        diesel::update(charges::table)
            .set(charge_queue::next_attempt_time.eq(queueable::columns::Now))
            .execute(&mut self.connect())
            .unwrap();
    }

    /// Processes the due rows, and returns the keys in the order of the rows.
    fn keys(&self, mode: Mode, work: Work) -> Vec<String> {
        let seen = Seen::default();
        let poller = match mode {
            Mode::Transaction => {
                Charge::poller(self.database.pool(3), told(&seen, work, |row: &Charge| row.id)).prefetch_at_once()
            }
            Mode::Group => {
                ChargeInGroup::poller(self.database.pool(3), told(&seen, work, |row: &ChargeInGroup| row.id))
            }
            Mode::AtOnce => ChargeAtOnce::poller(self.database.pool(3), told(&seen, work, |row: &ChargeAtOnce| row.id)),
            Mode::Lease | Mode::LeaseByUpdate => self.leased(&seen, mode, work),
        };
        run(poller);
        let mut seen = std::mem::take(&mut *seen.lock().unwrap());
        seen.sort();
        seen.dedup();
        seen.into_iter().map(|(_, key)| key).collect()
    }

    fn leased(&self, seen: &Seen, mode: Mode, work: Work) -> Poller<Conn> {
        let calls = seen.clone();
        let handler = (
            move |row: &ChargeLeased, lease: &Lease| {
                calls.lock().unwrap().push((row.id, lease.idempotency_key().to_owned()));
                work(row.id).map(|outcome| (outcome, lease.idempotency_key().to_owned()))
            },
            |_: &ChargeLeased, (outcome, key): &(Outcome, String), message: &mut Message<'_, Conn>| {
                assert_eq!(message.idempotency_key(), key, "the answer is applied under the key of its call");
                Ok(*outcome)
            },
        );
        let style = if mode == Mode::Lease { ClaimStyle::Auto } else { ClaimStyle::UpdateThenSelect };
        ChargeLeased::poller(self.database.pool(4), handler).claim_style(style)
    }
}

/// Makes a handler that sends its rows and keys.
fn told<Q: 'static>(seen: &Seen, work: Work, id: fn(&Q) -> i64) -> impl Handler<Q, Conn> + use<Q> {
    let seen = seen.clone();
    move |row: &Q, message: &mut Message<'_, Conn>| {
        seen.lock().unwrap().push((id(row), message.idempotency_key().to_owned()));
        work(id(row))
    }
}

fn run(poller: Poller<Conn>) -> Tally {
    poller.workers(1).run_until_idle().unwrap()
}

fn fails(_: i64) -> HandlerResult {
    Err(Failure::retry("not now"))
}

fn gives_up(_: i64) -> HandlerResult {
    Err(Failure::fatal("never"))
}

fn succeeds(_: i64) -> HandlerResult {
    Ok(Outcome::Done)
}

#[test]
fn every_retry_of_an_occasion_has_its_key_and_the_next_occasion_has_another() {
    for mode in MODES {
        let till = Till::with_charges([1]);
        let queue = Charge::queue().filter(charges::id.eq(1));
        let (first, second, third) = ("charges.status:1", "charges.status:1:occasion=1", "charges.status:1:occasion=2");
        assert_eq!(till.keys(mode, fails), [first], "{mode:?}");
        till.make_due();
        assert_eq!(till.keys(mode, fails), [first], "{mode:?}: due by own SQL after a failure");
        assert_eq!(queue.retry_now(&mut till.connect()).unwrap(), 1);
        assert_eq!(till.keys(mode, |_| panic!("on the way")), [first], "{mode:?}: retried at once");
        queue.postpone_until(&mut till.connect(), chrono::Utc::now()).unwrap();
        assert_eq!(till.keys(mode, gives_up), [first], "{mode:?}: postponed");
        assert_eq!((till.state(1).status, till.occasion(1)), (Status::Failed, 0), "{mode:?}");
        // A row that had no tries left and is made due again is retried.
        queue.retry_now(&mut till.connect()).unwrap();
        assert_eq!(till.keys(mode, gives_up), [first], "{mode:?}: retried after it was given up");
        till.make_due();
        assert_eq!(till.keys(mode, succeeds), [first], "{mode:?}");
        assert_eq!((till.state(1).status, till.occasion(1)), (Status::Success, 1), "{mode:?}");
        till.make_due();
        assert_eq!(till.keys(mode, fails), [second], "{mode:?}: enqueued again by own SQL");
        till.make_due();
        assert_eq!(till.keys(mode, |_| Ok(Outcome::Skip)), [second], "{mode:?}");
        till.make_due();
        assert_eq!(till.keys(mode, gives_up), [third], "{mode:?}: enqueued again after it was skipped");
        assert_eq!(queue.rerun(&mut till.connect()).unwrap(), 1);
        assert_eq!(till.keys(mode, succeeds), ["charges.status:1:occasion=3"], "{mode:?}: run again");
    }
}

#[test]
fn a_message_that_runs_again_later_is_the_same_occasion() {
    for mode in MODES {
        let till = Till::with_charges([1]);
        assert_eq!(till.keys(mode, |_| Ok(Outcome::again_in(Duration::from_secs(3600)))), ["charges.status:1"]);
        till.make_due();
        assert_eq!(till.keys(mode, succeeds), ["charges.status:1"], "{mode:?}");
    }
}

#[test]
fn the_rows_of_a_group_have_keys_of_their_own() {
    for mode in MODES {
        let till = Till::with_charges(1..=9);
        let keys: Vec<_> = (1..=9).map(|id| format!("charges.status:{id}")).collect();
        // One of them fails, so that the rows before and behind it are not settled together.
        assert_eq!(till.keys(mode, |id| if id == 5 { fails(id) } else { succeeds(id) }), keys, "{mode:?}");
        till.make_due();
        let keys: Vec<_> =
            (1..=9).map(|id| format!("charges.status:{id}{}", if id == 5 { "" } else { ":occasion=1" })).collect();
        assert_eq!(till.keys(mode, succeeds), keys, "{mode:?}");
    }
}

#[test]
fn a_skipped_row_begins_a_new_occasion_and_a_stopped_one_goes_on() {
    let till = Till::with_charges([1]);
    let queue = Charge::queue().filter(charges::id.eq(1));
    till.keys(Mode::Transaction, fails);
    queue.stop(&mut till.connect()).unwrap();
    queue.restart(&mut till.connect()).unwrap();
    assert_eq!(till.keys(Mode::Transaction, fails), ["charges.status:1"]);
    queue.skip(&mut till.connect()).unwrap();
    till.make_due();
    assert_eq!(till.keys(Mode::Transaction, succeeds), ["charges.status:1:occasion=1"]);
}

#[test]
fn a_failure_may_ask_for_a_new_key() {
    for mode in MODES {
        let till = Till::with_charges([1]);
        let asks: Work = |_| Err(Failure::retry("the provider has stored a 500").with_new_key());
        assert_eq!(till.keys(mode, asks), ["charges.status:1"], "{mode:?}");
        let state = till.state(1);
        assert_eq!((state.status, state.try_count), (Status::Error, 1), "{mode:?}");
        assert_eq!(state.last_attempt_error_message.as_deref(), Some("the provider has stored a 500"), "{mode:?}");
        till.make_due();
        assert_eq!(till.keys(mode, fails), ["charges.status:1:occasion=1"], "{mode:?}");
        till.make_due();
        let gives_up: Work = |_| Err(Failure::fatal("stored as well").with_new_key());
        assert_eq!(till.keys(mode, gives_up), ["charges.status:1:occasion=1"], "{mode:?}");
        Charge::queue().filter(charges::id.eq(1)).retry_now(&mut till.connect()).unwrap();
        assert_eq!(till.keys(mode, succeeds), ["charges.status:1:occasion=2"], "{mode:?}");
    }
}

#[test]
fn where_there_is_no_column_for_a_new_key_the_failure_says_so() {
    let till = Till::before_the_queue();
    till.connect().run_pending_migrations(Migrations::new().entity::<Plain>()).unwrap();
    till.enqueue([1, 2]);
    let seen = Seen::default();
    let asks: Work = |_| Err(Failure::retry("the provider has stored a 500").with_new_key());
    let handler = told(&seen, asks, |row: &Plain| row.id);
    let first = || Plain::queue().filter(charges::id.eq(1));
    Plain::queue().filter(charges::id.eq(2)).stop(&mut till.connect()).unwrap();
    run(Plain::poller(till.database.pool(3), handler));
    Plain::queue().filter(charges::id.eq(2)).restart(&mut till.connect()).unwrap();
    let calls = seen.clone();
    let call = move |row: &PlainLeased, lease: &Lease| -> Result<(), Failure> {
        calls.lock().unwrap().push((row.id, lease.idempotency_key().to_owned()));
        Err(Failure::retry("the provider has stored a 500").with_new_key())
    };
    let apply = |_: &PlainLeased, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    run(PlainLeased::poller(till.database.pool(4), (call, apply)));
    for id in [1, 2] {
        let state = till.state(id);
        assert_eq!(
            state.last_attempt_error_message.as_deref(),
            Some(
                "there is no new idempotency key for the next attempt: add `#[queue(occasion)]` to the entity; \
                 the failure: the provider has stored a 500"
            )
        );
        assert_eq!((state.status, state.try_count), (Status::Error, 1), "it is retried as it was to be");
    }
    // Nor is there a new key for a row that runs again.
    diesel::update(charges::table.find(1))
        .set(charge_queue::status.eq(Status::Success))
        .execute(&mut till.connect())
        .unwrap();
    assert_eq!(first().rerun(&mut till.connect()).unwrap(), 1);
    run(Plain::poller(till.database.pool(3), told(&seen, succeeds, |row: &Plain| row.id)));
    let plain = "charges.status:1".to_owned();
    assert_eq!(*seen.lock().unwrap(), [(1, plain.clone()), (2, "charges.status:2".to_owned()), (1, plain)]);
}
