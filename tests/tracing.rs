//! What the poller tells `tracing`. A process has one global subscriber, so this is a program of its own.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanId, TraceContextExt, TracerProvider};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use queueable::{Failure, Lease, Message, Migrations, Outcome, Queueable};
use tracing::{Level, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
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
#[queue(traceparent, timeout = "30s", retry = fixed("1h"))]
struct Payment {
    id: i64,
}

/// The same rows, in groups and in other columns.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(prefix = "invoice_", module = invoice_queue, group = 10, timeout = "30s", traceparent = "trace_context")]
struct Invoice {
    id: i64,
}

/// And under leases.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(prefix = "parcel_", module = parcel_queue, lease = "60s", traceparent)]
struct Parcel {
    #[allow(dead_code, reason = "a queue has a key")]
    id: i64,
}

/// What an application calls so that attempts have links, as docs/observing.md shows it.
fn set_trace_context() -> bool {
    queueable::set_trace_context(
        || {
            let mut headers = HashMap::new();
            TraceContextPropagator::new().inject_context(&Span::current().context(), &mut headers);
            headers.remove("traceparent")
        },
        |span, traceparent| {
            let headers = HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
            span.add_link(TraceContextPropagator::new().extract(&headers).span().span_context().clone());
        },
    )
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
    // Before the application has said how, there is no context.
    tracing::info_span!("early").in_scope(|| {
        let row = (payments::id.eq(7), Payment::due_now(), Payment::traced());
        diesel::insert_into(payments::table).values(row).execute(&mut connection).unwrap();
    });
    assert!(set_trace_context());
    assert!(!set_trace_context(), "the first call counts");
    tracing::info_span!("request").in_scope(|| {
        let due = [8, 9].map(|id| (payments::id.eq(id), Payment::due_now(), Payment::traced()));
        diesel::insert_into(payments::table).values(due.to_vec()).execute(&mut connection).unwrap();
    });
    let row = (payments::id.eq(10), payment_queue::traceparent.eq("<script>"));
    diesel::insert_into(payments::table).values(row).execute(&mut connection).unwrap();
    Payment::poller(pool.clone(), |payment: &Payment, _: &mut Message<'_, SqliteConnection>| match payment.id {
        7 => Ok(Outcome::Done),
        8 => Err(Failure::fatal("no route")),
        _ => Err(Failure::retry("the card c-4711 is refused by https://me:hunter2@bank.example/cards")),
    })
    .redact(|text| text.replace("c-4711", "####"))
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
    let served = "served=[\"Payment: one transaction each, timeout 30s, 20 tries\"] poll_interval=1s lock_timeout=5s";
    assert!(log.lines().any(|line| line.contains("INFO") && line.contains(served)), "{log}");
    assert!(!log.contains("c-4711") && !log.contains("hunter2"), "{log}");
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

    // The attempts on the rows that the request has enqueued have a link to its span, and nothing else has one.
    let links = |spans: &[SpanData], name: &str| -> Vec<SpanId> {
        let of = spans.iter().filter(|span| span.name == name);
        of.flat_map(|span| span.links.iter().map(|link| link.span_context.span_id())).collect()
    };
    let request =
        |spans: &[SpanData], name: &str| spans.iter().find(|span| span.name == name).unwrap().span_context.span_id();
    assert_eq!(links(&spans, "process payments"), [request(&spans, "request"); 2]);
    assert!(
        spans.iter().filter(|span| span.name == "process payments").all(|span| span.parent_span_id == SpanId::INVALID)
    );

    // The other modes, on which no listener looks.
    tracing::info_span!("nightly").in_scope(|| {
        let due = (Invoice::due_now(), Invoice::traced(), Parcel::due_now(), Parcel::traced());
        diesel::update(payments::table.filter(payments::id.lt(10))).set(due).execute(&mut connection).unwrap();
    });
    // What somebody has written by hand is no context, and the row runs all the same.
    diesel::update(payments::table.find(10)).set(Payment::due_now()).execute(&mut connection).unwrap();
    let done = |_: &Payment, _: &mut Message<'_, SqliteConnection>| Ok(Outcome::Done);
    let tally = Payment::poller(pool.clone(), done).workers(1).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 1);
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
    for name in ["process payments.invoice_status", "process payments.parcel_status"] {
        assert_eq!(links(&spans, name), [request(&spans, "nightly"); 3], "{name}");
    }
    assert_eq!(links(&spans, "process payments").len(), 2);
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
