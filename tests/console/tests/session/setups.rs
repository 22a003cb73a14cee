//! The databases of the sessions, each in the state that its page speaks of.

use chrono::{DateTime, SubsecRound, TimeDelta, TimeZone, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::columns::Instant;
use queueable::{Queueable, Status};

use crate::db::Conn;
use crate::entities::{Invoice, invoice_queue, invoices, payment_queue, payments};
use crate::served::Served;
use crate::times;

/// How long before a session all times of its rows are later than their ages say: it may take as long until an age of minutes is another.
const LEEWAY: TimeDelta = TimeDelta::seconds(30);

/// How many minutes after the night's time a lease ends: no session takes as long.
const LEASE: i64 = 60;

/// How long ago a poller that lives was seen.
const SEEN: TimeDelta = TimeDelta::seconds(1);

/// The database of a session, and the time at which it begins.
pub(crate) struct Night {
    served: Served,
    now: DateTime<Utc>,
}

/// Makes the database of a session, and returns the address of it that the session uses.
pub(crate) fn setup(session: &str) -> (Night, String) {
    let night = Night { served: Served::new(), now: Utc::now().trunc_subsecs(0) };
    let connection = &mut night.served.connect();
    connection.transaction(|connection| night.fill(session, connection)).expect("the rows are new");
    let address = night.served.database.url();
    let address = if session == "read-only" { format!("file:{address}?mode=ro") } else { address.to_owned() };
    (night, address)
}

impl Night {
    /// Moves the times of what a command has answered to the night of the pages.
    pub(crate) fn told(&self, text: &str) -> String {
        let then = Utc.with_ymd_and_hms(2026, 3, 1, 3, 12, 30).single().expect("a time");
        times::moved(text, self.now, then)
    }

    /// Lets the pollers that have not stopped be seen, as they would be if they ran.
    pub(crate) fn heartbeat(&self) {
        let seen = stored(Utc::now() - SEEN);
        let seen = format!("UPDATE queueable_pollers SET seen_at = '{seen}' WHERE state <> 'stopped'");
        self.served.connect().batch_execute(&seen).expect("the table is there");
    }

    fn ago(&self, minutes: i64) -> DateTime<Utc> {
        self.now - TimeDelta::minutes(minutes) - LEEWAY
    }

    /// A time in the middle of a full hour before this one. A period of a report is a full hour too, and the ages of such times are half
    /// an hour away from whole hours, so it is all the same whether an hour ends during the session.
    fn in_hour(&self, hours: i64) -> DateTime<Utc> {
        use chrono::DurationRound;
        let hour = self.now.duration_trunc(TimeDelta::hours(1)).expect("a time of our days");
        hour - TimeDelta::hours(hours) + TimeDelta::minutes(30)
    }

    fn fill(&self, session: &str, connection: &mut Conn) -> QueryResult<()> {
        let c = connection;
        match session {
            "three-in-the-morning" => {
                self.pollers(c, &[("web-1", "running", 3), ("web-2", "running", 3)], &[])?;
                self.finished(c, 40_000, 1..10, 6)?;
                self.bank_was_down(c, 50_100..50_138, 4)?;
                for (id, minutes) in [(39_998, 95), (39_999, 35)] {
                    let order = Order::new(id, 8, 4_900).of("Bo Ek");
                    order.failed(self.ago(minutes), 1, &format!("card declined for order {id}")).save(c)?;
                }
                (0..2).try_for_each(|id| Order::new(50_200 + id, 8, 2_500).due(self.ago(0)).save(c))
            }
            "shop" => self.shop(c),
            "replay" => {
                let domain = (invoices::site.eq("north"), invoices::number.eq(812), invoices::total_cents.eq(19_900));
                let queue = (
                    invoice_queue::status.eq(Status::Error),
                    invoice_queue::stage.eq("SEND"),
                    invoice_queue::next_attempt_time.eq(Some(Instant::from(self.ago(-48)))),
                    invoice_queue::try_count.eq(2),
                    invoice_queue::last_attempt_time.eq(Some(Instant::from(self.ago(62)))),
                    invoice_queue::last_attempt_error_message.eq("no printer answers at north"),
                );
                diesel::insert_into(invoices::table).values((domain, queue)).execute(c).map(drop)
            }
            "rows-stay-due" => {
                self.pollers(c, &[("web-1", "stopped", 3)], &[])?;
                c.batch_execute(&format!("UPDATE queueable_pollers SET seen_at = '{}'", stored(self.ago(47))))?;
                (0..37).try_for_each(|id| Order::new(50_100 + id, 7, 2_500).due(self.ago(46 - id % 40)).save(c))
            }
            "again-and-again" => {
                self.pollers(c, &[("web-1", "running", 3)], &[])?;
                let text = "queueable: lease expired in attempt 2";
                Order::new(50_117, 7, 1_200).of("Ann Ek").retrying(self.ago(52), self.ago(-8), 2, text).save(c)?;
                self.finished(c, 40_000, 1..10, 2)
            }
            "everything-fails" => {
                self.pollers(c, &[("web-1", "running", 3)], &[])?;
                self.bank_was_down(c, 50_100..50_312, 5)?;
                (0..415).try_for_each(|id| Order::new(51_000 + id, 7 + id % 5, 2_500).due(self.ago(11)).save(c))
            }
            "backlog-grows" => {
                self.pollers(c, &[("web-1", "running", 3)], &[(50_311, 29), (50_312, 27), (50_313, 22)])?;
                for (hours, rows) in [(5, 90), (4, 86), (3, 41), (2, 22), (1, 20)] {
                    let row = |id| Order::new(40_000 + 1_000 * hours + id, 7, 2_500).finished(self.in_hour(hours));
                    (0..rows).try_for_each(|id| row(id).save(c))?;
                }
                let running = |id| Order::new(id, 7, 2_500).running(self.ago(0), self.ago(-LEASE));
                (50_311..50_314).try_for_each(|id| running(id).save(c))?;
                (0..640).try_for_each(|id| Order::new(51_000 + id, 7 + id % 5, 2_500).due(self.ago(194)).save(c))
            }
            "charged-twice" => {
                Order::new(50_117, 7, 129_900).of("Ann Ek").finished(self.ago(64)).save(c)?;
                Order::new(50_098, 7, 4_900).of("Ann Ek").finished(self.ago(610)).save(c)?;
                let rerun =
                    "INSERT INTO queueable_audit (changed_at, id, changed_by, reason, queue, action, filter, row_count)
                     VALUES ('$at', 1, 'bob@example.org', 'customer says it is not paid', 'payments.status', 'rerun',
                         '(\"payments\".\"id\" = 50117)', 1)";
                c.batch_execute(&rerun.replace("$at", &stored(self.ago(65))))
            }
            "in-progress" => {
                self.pollers(c, &[("web-1", "running", 3), ("web-2", "running", 3)], &[(50_311, 30)])?;
                Order::new(50_311, 7, 2_500).running(self.ago(0), self.ago(-LEASE)).save(c)?;
                Order::new(50_312, 7, 2_500).running(self.ago(2), self.ago(0)).save(c)
            }
            "paused" => {
                self.pollers(c, &[("web-1", "paused", 3)], &[])?;
                (0..122).try_for_each(|id| Order::new(50_100 + id, 7 + id % 5, 2_500).due(self.ago(311)).save(c))?;
                let pause = "INSERT INTO queueable_control (queue, scope, paused_at, paused_by, pause_reason)
                     VALUES ('payments.status', '', '$at', 'bob@example.org', 'bank moves its servers');
                     INSERT INTO queueable_audit (changed_at, id, changed_by, reason, queue, action, filter, row_count)
                     VALUES ('$at', 1, 'bob@example.org', 'bank moves its servers', 'payments.status', 'pause', 'the whole queue', 0)";
                c.batch_execute(&pause.replace("$at", &stored(self.ago(312))))
            }
            "flood" => {
                self.pollers(c, &[("web-1", "running", 3)], &[])?;
                (0..900).try_for_each(|id| Order::new(51_000 + id, 3345, 100).due(self.ago(21)).save(c))?;
                (0..40).try_for_each(|id| Order::new(50_000 + id, 7 + id % 2, 2_500).due(self.ago(6)).save(c))
            }
            "copy" => {
                let named =
                    "INSERT INTO queueable_control (queue, scope, environment) VALUES ('queueable', '', 'production')";
                c.batch_execute(named)?;
                (0..84).try_for_each(|id| Order::new(50_100 + id, 7, 2_500).due(self.ago(440)).save(c))?;
                self.invoices(c, 12)
            }
            "two-versions" => {
                self.pollers(c, &[("web-1", "running", 3), ("web-2", "running", 3), ("web-3", "running", 10)], &[])?;
                c.batch_execute("UPDATE queueable_pollers SET application = 'shop 1.4.1' WHERE host = 'web-3'")?;
                let indexes = "SELECT group_concat('DROP INDEX ' || name, ';') FROM sqlite_master
                     WHERE type = 'index' AND tbl_name = 'payments' AND sql IS NOT NULL";
                let drops: String = diesel::dsl::sql::<diesel::sql_types::Text>(indexes).get_result(c)?;
                c.batch_execute(&drops)
            }
            "too-large" => {
                self.finished(c, 1_000, 200_000..200_040, 50)?;
                self.finished(c, 5_000, 1_000..1_010, 50)
            }
            "by-hand" => {
                Order::new(50_117, 7, 2_500).due(self.ago(90)).save(c)?;
                Order::new(50_118, 7, 2_500).due(self.ago(90)).save(c)?;
                Order::new(50_119, 7, 2_500).due(self.ago(90)).save(c)?;
                c.batch_execute(
                    "UPDATE payments SET status = 'DONE' WHERE id = 50117;
                     UPDATE payments SET next_attempt_time = 'tomorrow' WHERE id = 50118;
                     UPDATE payments SET status = 'SUCCESS' WHERE id = 50119",
                )
            }
            "read-only" => self.bank_was_down(c, 50_100..50_138, 4),
            "stop-everything" => {
                self.pollers(c, &[("web-1", "running", 3)], &[(50_311, 12)])?;
                Order::new(50_311, 7, 2_500).running(self.ago(0), self.ago(-LEASE)).save(c)?;
                (0..84).try_for_each(|id| Order::new(51_000 + id, 7, 2_500).due(self.ago(3)).save(c))?;
                self.invoices(c, 12)
            }
            other => panic!("there is no database for the session `{other}`"),
        }
    }

    /// A shop with rows in every state.
    fn shop(&self, c: &mut Conn) -> QueryResult<()> {
        self.pollers(c, &[("web-1", "running", 3), ("web-2", "running", 3)], &[(50_311, 20)])?;
        for (hours, done, failed) in [(4, 30, 0), (3, 42, 1), (2, 12, 9), (1, 36, 0)] {
            let id = 40_000 + 1_000 * hours;
            let row = |more| Order::new(id + more, 7, 2_500).finished(self.in_hour(hours));
            (0..done).try_for_each(|more| row(more).save(c))?;
            let text = |more| format!("card declined for order {}", id + 500 + more);
            let row = |more| Order::new(id + 500 + more, 8, 4_900).failed(self.in_hour(hours), 1, &text(more));
            (0..failed).try_for_each(|more| row(more).save(c))?;
        }
        Order::new(50_311, 7, 2_500).of("Ann Ek").running(self.ago(0), self.ago(-LEASE)).save(c)?;
        let text = "bank answered 503 for order 50312";
        Order::new(50_312, 3345, 129_900).of("Bo Berg").retrying(self.ago(12), self.ago(-48), 1, text).save(c)?;
        (0..12).try_for_each(|id| Order::new(50_400 + id, 7, 2_500).due(self.ago(2)).save(c))?;
        (0..5).try_for_each(|id| Order::new(50_500 + id, 8, 4_900).due(self.ago(1)).save(c))?;
        Order::new(50_600, 8, 990).of("Cy Dahl").save(c)?;
        self.invoices(c, 3)
    }

    /// Payments of one company that the bank has refused until their tries were exhausted.
    fn bank_was_down(&self, c: &mut Conn, mut ids: std::ops::Range<i64>, minutes: i64) -> QueryResult<()> {
        ids.try_for_each(|id| {
            let text = format!("bank answered 503 for order {id}");
            let cents = 2_900 + id % 7 * 1_000;
            Order::new(id, 3345, cents).of("Nordic Parts").failed(self.ago(minutes), 3, &text).save(c)
        })
    }

    /// Some payments that were done in each of these minutes before.
    fn finished(&self, c: &mut Conn, id: i64, mut minutes: std::ops::Range<i64>, rows: i64) -> QueryResult<()> {
        let start = minutes.start;
        minutes.try_for_each(|minute| {
            let row = |more| Order::new(id + (minute - start) * rows + more, 7, 2_500).finished(self.ago(minute));
            (0..rows).try_for_each(|more| row(more).save(c))
        })
    }

    fn invoices(&self, c: &mut Conn, rows: i32) -> QueryResult<()> {
        (1..=rows).try_for_each(|number| {
            let domain = (invoices::site.eq("north"), invoices::number.eq(number), invoices::total_cents.eq(19_900));
            let stage = invoice_queue::stage.eq(if number % 3 == 0 { "SEND" } else { "RENDER" });
            let row = (domain, stage, Invoice::due_at(self.ago(2)));
            diesel::insert_into(invoices::table).values(row).execute(c).map(drop)
        })
    }

    /// Processes that serve both queues, with their state and the tries that they allow; the first one runs some payments, for so
    /// many seconds.
    fn pollers(&self, c: &mut Conn, hosts: &[(&str, &str, u32)], running: &[(i64, i64)]) -> QueryResult<()> {
        (0..).zip(hosts).try_for_each(|(at, (host, state, tries))| {
            let queue = |queue: &str, entity: &str, tries: u32| {
                serde_json::json!({ "queue": queue, "entity": entity, "settings": { "max_tries": tries.to_string() } })
            };
            let queues = serde_json::json!([
                queue("payments.status", "Payment", *tries),
                queue("invoices.status", "Invoice", 20)
            ]);
            let message = |(key, seconds): &(i64, i64)| {
                let key = key.to_string();
                serde_json::json!({ "queue": "payments.status", "key": key, "stage": null, "for_ms": seconds * 1_000 })
            };
            let of_first = if at == 0 { running } else { &[] };
            let running = serde_json::Value::from_iter(of_first.iter().map(message));
            let (pid, seen) = (4_711 + at, stored(self.now));
            c.batch_execute(&format!(
                "INSERT INTO queueable_pollers (id, host, pid, version, application, state, workers, queues, running, started_at, seen_at)
                 VALUES ({pid}, '{host}', {pid}, '0.1.0', 'shop 1.4.2', '{state}', 4, '{queues}', '{running}', '{}', '{seen}')",
                stored(self.ago(3_000))
            ))
        })
    }
}

/// A time as SQLite stores it.
fn stored(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%S%.3f").to_string()
}

/// A payment, and what becomes of it.
struct Order {
    id: i64,
    company: i64,
    cents: i64,
    customer: Option<&'static str>,
    status: Status,
    tries: i32,
    next: Option<DateTime<Utc>>,
    last: Option<DateTime<Utc>>,
    error: Option<String>,
}

impl Order {
    /// A payment that was never enqueued.
    fn new(id: i64, company: i64, cents: i64) -> Self {
        let status = Status::NotAttempted;
        Order { id, company, cents, customer: None, status, tries: 0, next: None, last: None, error: None }
    }

    fn of(self, customer: &'static str) -> Self {
        Order { customer: Some(customer), ..self }
    }

    fn due(self, next: DateTime<Utc>) -> Self {
        Order { next: Some(next), ..self }
    }

    fn running(self, since: DateTime<Utc>, until: DateTime<Utc>) -> Self {
        Order { status: Status::InProgress, tries: 1, next: Some(until), last: Some(since), ..self }
    }

    fn finished(self, last: DateTime<Utc>) -> Self {
        Order { status: Status::Success, tries: 1, last: Some(last), ..self }
    }

    fn failed(self, last: DateTime<Utc>, tries: i32, text: &str) -> Self {
        Order { status: Status::Failed, tries, last: Some(last), error: Some(text.to_owned()), ..self }
    }

    fn retrying(self, last: DateTime<Utc>, next: DateTime<Utc>, tries: i32, text: &str) -> Self {
        let error = Some(text.to_owned());
        Order { status: Status::Error, tries, last: Some(last), next: Some(next), error, ..self }
    }

    fn save(self, c: &mut Conn) -> QueryResult<()> {
        let domain = (
            payments::id.eq(self.id),
            payments::company_id.eq(self.company),
            payments::amount_cents.eq(self.cents),
            payments::customer.eq(self.customer),
        );
        let queue = (
            payment_queue::status.eq(self.status),
            payment_queue::try_count.eq(self.tries),
            payment_queue::next_attempt_time.eq(self.next.map(Instant::from)),
            payment_queue::last_attempt_time.eq(self.last.map(Instant::from)),
            payment_queue::last_attempt_error_message.eq(self.error),
        );
        diesel::insert_into(payments::table).values((domain, queue)).execute(c).map(drop)
    }
}
