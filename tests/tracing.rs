//! What the poller tells `tracing`. A process has one global subscriber, so this is a program of its own.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use queueable::{Failure, Lease, Message, Migrations, Outcome, Queueable};
use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

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

/// The same rows, in groups and in other columns.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(prefix = "invoice_", module = invoice_queue, group = 10)]
struct Invoice {
    id: i64,
}

/// And under leases.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(prefix = "parcel_", module = parcel_queue, lease = "60s")]
struct Parcel {
    #[allow(dead_code, reason = "a queue has a key")]
    id: i64,
}

/// Returns the fields of the exported spans with this name, each in the order of their names, and their kind and status.
fn exported(spans: &[SpanData], name: &str) -> Vec<String> {
    let line = |span: &SpanData| {
        let mut fields: Vec<_> = span.attributes.iter().map(|field| format!("{}={}", field.key, field.value)).collect();
        // What the bridge adds of the source and of the thread.
        fields.retain(|field| {
            !["code.", "thread.", "busy_", "idle_", "target", "level"].iter().any(|of| field.starts_with(of))
        });
        fields.sort();
        format!("{:?} {:?} {}", span.span_kind, span.status, fields.join(" "))
    };
    spans.iter().filter(|span| span.name == name).map(line).collect()
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
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
    tracing_subscriber::registry()
        .with(lines.with_filter(LevelFilter::from_level(Level::DEBUG)))
        .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("test")).with_filter(LevelFilter::INFO))
        .init();

    let directory = tempfile::tempdir().unwrap();
    let url = directory.path().join("app.sqlite").display().to_string();
    let pool = Pool::builder().max_size(3).build(ConnectionManager::<SqliteConnection>::new(&url)).unwrap();
    let mut connection = SqliteConnection::establish(&url).unwrap();
    connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)").unwrap();
    connection
        .run_pending_migrations(Migrations::new().entity::<Payment>().entity::<Invoice>().entity::<Parcel>())
        .unwrap();
    let due: Vec<_> = [7, 8, 9].map(|id| (payments::id.eq(id), Payment::due_now())).into();
    diesel::insert_into(payments::table).values(&due).execute(&mut connection).unwrap();
    Payment::poller(pool.clone(), |payment: &Payment, _: &mut Message<'_, SqliteConnection>| match payment.id {
        7 => Ok(Outcome::Done),
        8 => Err(Failure::fatal("no route")),
        _ => Err(Failure::retry("the card 4711 is refused by https://me:hunter2@bank.example/cards")),
    })
    .redact(|text| text.replace("4711", "####"))
    .workers(1)
    .run_until_idle()
    .unwrap();

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let span = |key| {
        format!(
            "messaging.destination.name=\"payments\" messaging.message.id=\"{key}\" entity=\"Payment\" try_number=1"
        )
    };
    let told = |key, text: &str| log.lines().any(|line| line.contains(&span(key)) && line.contains(text));
    for key in [7, 8, 9] {
        let claimed = format!("claimed entity=\"Payment\" key={key}");
        assert!(log.lines().any(|line| line.contains("DEBUG") && line.contains(&claimed)), "{log}");
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

    let spans = exporter.get_finished_spans().unwrap();
    let fields = |key, error: &str, outcome| {
        format!(
            "entity=Payment {error}messaging.destination.name=payments messaging.message.id={key} \
             messaging.operation.name=process messaging.operation.type=process messaging.system=queueable outcome={outcome} \
             try_number=1"
        )
    };
    let failed = |key, text: &str, outcome| {
        format!(
            "Consumer Error {{ description: {text:?} }} {}",
            fields(key, &format!("error.type={outcome} "), outcome)
        )
    };
    let mut expected = [
        format!("Consumer Unset {}", fields(7, "", "succeeded")),
        failed(8, "no route", "gave_up"),
        failed(9, "the card #### is refused by https://me:***@bank.example/cards", "will_retry"),
    ];
    let mut found = exported(&spans, "process payments");
    found.sort();
    expected.sort();
    assert_eq!(found, expected);

    // The other modes, on which no listener looks.
    diesel::update(payments::table).set((Invoice::due_now(), Parcel::due_now())).execute(&mut connection).unwrap();
    let handler = |invoice: &Invoice, _: &mut Message<'_, SqliteConnection>| {
        if invoice.id == 8 { Ok(Outcome::Skip) } else { Ok(Outcome::Done) }
    };
    Invoice::poller(pool.clone(), handler).workers(1).run_until_idle().unwrap();
    let call = |_: &Parcel, _: &Lease| tracing::info_span!("call").in_scope(|| Ok(()));
    let apply = |_: &Parcel, (): &(), _: &mut Message<'_, SqliteConnection>| Ok(Outcome::Done);
    Parcel::poller(pool, (call, apply)).workers(1).run_until_idle().unwrap();
    let spans = exporter.get_finished_spans().unwrap();
    let found = exported(&spans, "process payments.invoice_status");
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found.iter().filter(|span| span.contains("outcome=skipped")).count(), 1, "{found:?}");
    assert_eq!(exported(&spans, "process payments.parcel_status").len(), 3);
    // What a handler does is inside the attempt's span.
    let parents: Vec<_> = spans
        .iter()
        .filter(|span| span.name == "process payments.parcel_status")
        .map(|span| span.span_context.span_id())
        .collect();
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "call").collect();
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| parents.contains(&call.parent_span_id)), "{calls:?}");
}
