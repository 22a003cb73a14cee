//! What the poller tells `tracing`. A process has one global subscriber, so this is a program of its own.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::{Failure, Message, Migrations, Outcome, Queueable};
use tracing::Level;

use self::schema::payments;

mod schema {
    diesel::table! {
        payments (id) {
            id -> BigInt,
        }
    }
}

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn claim_attempt_and_settle_are_told_with_entity_key_try_and_outcome() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_max_level(Level::DEBUG).with_ansi(false).with_writer(move || writer.clone()).init();

    let directory = tempfile::tempdir().unwrap();
    let url = directory.path().join("app.sqlite").display().to_string();
    let pool = Pool::builder().max_size(2).build(ConnectionManager::<SqliteConnection>::new(&url)).unwrap();
    let mut connection = SqliteConnection::establish(&url).unwrap();
    connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)").unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap();
    let due: Vec<_> = [7, 8, 9].map(|id| (payments::id.eq(id), Payment::due_now())).into();
    diesel::insert_into(payments::table).values(&due).execute(&mut connection).unwrap();
    Payment::poller(pool, |payment: &Payment, _: &mut Message<'_, SqliteConnection>| match payment.id {
        7 => Ok(Outcome::Done),
        8 => Err(Failure::fatal("no route")),
        _ => Err(Failure::retry("the card 4711 is refused by https://me:hunter2@bank.example/cards")),
    })
    .redact(|text| text.replace("4711", "####"))
    .workers(1)
    .run_until_idle()
    .unwrap();

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let span = |key| format!("attempt{{entity=\"Payment\" key={key} try_number=1}}");
    let told = |key, text: &str| log.lines().any(|line| line.contains(&span(key)) && line.contains(text));
    for key in [7, 8, 9] {
        assert!(told(key, "claimed"), "{log}");
    }
    assert!(told(7, "settled outcome=Succeeded"), "{log}");
    assert!(told(8, "error=\"no route\""), "{log}");
    assert!(told(8, "settled outcome=Failed"), "{log}");
    let failed = "a row has failed for good entity=\"Payment\" key=8 tries=1 error=\"no route\"";
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains(failed)), "{log}");
    assert!(told(9, "the card #### is refused by https://me:***@bank.example/cards"), "{log}");
    let retried = "a row has failed and will be retried entity=\"Payment\" key=9 tries=1 retry_in=Some(";
    let with_text = "error=\"the card #### is refused by https://me:***@bank.example/cards\" suppressed=0";
    let is_it = |line: &str| line.contains("INFO") && line.contains(retried) && line.contains(with_text);
    assert_eq!(log.lines().filter(|line| is_it(line)).count(), 1, "{log}");
    let served = "served=[\"Payment: one transaction each, timeout 1s, 20 tries\"] poll_interval=1s lock_timeout=5s";
    assert!(log.lines().any(|line| line.contains("INFO") && line.contains(served)), "{log}");
    assert!(!log.contains("4711") && !log.contains("hunter2"), "{log}");
    let started = "the poller has started entities=[\"Payment\"] workers=1 \
                   connections=2: 1 for each worker, 1 looks for due rows database=";
    for text in [started, "the poller has stopped succeeded=1 retried=1 failed=1 rolled_back=0"] {
        assert!(log.lines().any(|line| line.contains("INFO") && line.contains(text)), "{text}:\n{log}");
    }
    let text: Option<String> =
        payments::table.find(9).select(payment_queue::last_attempt_error_message).get_result(&mut connection).unwrap();
    assert_eq!(text.as_deref(), Some("the card #### is refused by https://me:***@bank.example/cards"));
}
