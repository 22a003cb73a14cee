//! The job itself: makes the table of webhooks a queue, enqueues some, posts them, and checks the result.
//!
//! Plain Diesel against one connection type, as an application writes it.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::{
    Entity, Failure, HandlerResult, Lease, LeaseHandler, Message, Migrations, Outcome, QueueState, Queueable, Status,
    Tally,
};

use super::{Conn, TABLES, connect};
use crate::client::{Answer, Client};
use crate::endpoint::{self, Calls};
use crate::report::{Check, Report};
use crate::webhook::{Kind, Webhook, answers, path, webhooks};
use crate::{Options, Part};

/// Posts a webhook, and writes down the answer.
struct Post {
    client: Client,
}

impl LeaseHandler<Webhook, Conn> for Post {
    type Answer = Answer;

    /// No transaction is open here: an endpoint may take its time.
    fn call(&self, webhook: &Webhook, lease: &Lease) -> Result<Answer, Failure> {
        self.client.post(webhook, lease.idempotency_key())
    }

    /// Commits together with the queue state if the row still belongs to this attempt; otherwise it writes nothing.
    fn apply(&self, webhook: &Webhook, answer: &Answer, message: &mut Message<'_, Conn>) -> HandlerResult {
        diesel::insert_into(answers::table)
            .values((
                answers::webhook_id.eq(webhook.id),
                answers::try_number.eq(i32::try_from(message.try_number())?),
                answers::status.eq(i32::from(answer.status.as_u16())),
                answers::took_ms.eq(i32::try_from(answer.took.as_millis())?),
                answers::answered_at.eq(diesel::dsl::now),
            ))
            .execute(message.connection())?;
        Ok(Outcome::Done)
    }
}

/// Runs the whole job on an empty database, or a part of it.
pub(crate) fn run(url: &str, options: &Options) -> Result<Report> {
    let mut connection = connect(url).with_context(|| format!("cannot open the database {url}"))?;
    let does = |part: Part| options.only.is_none_or(|only| only == part);
    let mut report = Report::default();
    if does(Part::Enqueue) {
        set_up(&mut connection).context("cannot create the tables of this example; it needs an empty database")?;
        enqueue(&mut connection, options).context("cannot enqueue the webhooks, nothing was enqueued")?;
    }
    if does(Part::Work) {
        report.handled_here = Some(post_all(url, &mut connection, options)?);
    }
    if does(Part::Check) {
        report.check = Some(check(&mut connection, options)?);
    }
    Ok(report)
}

fn set_up(connection: &mut Conn) -> Result<()> {
    connection.batch_execute(TABLES)?;
    connection.run_pending_migrations(Migrations::new().entity::<Webhook>()).map_err(anyhow::Error::from_boxed)?;
    Ok(())
}

fn enqueue(connection: &mut Conn, options: &Options) -> QueryResult<()> {
    let interval = Duration::from_secs(options.over.into()) / u32::from(options.webhooks);
    let new = |place: u32| {
        let id = i64::from(place) + 1;
        (
            webhooks::id.eq(id),
            webhooks::url.eq(Kind::of(id, options.seed).url(options.endpoint(), id)),
            webhooks::payload.eq(format!("{{\"order\":{id}}}")),
            Webhook::due_in(interval * place),
        )
    };
    connection.transaction(|connection| {
        let places: Vec<u32> = (0..options.webhooks.into()).collect();
        for some in places.chunks(1000) {
            let due: Vec<_> = some.iter().copied().map(new).collect();
            diesel::insert_into(webhooks::table).values(due).execute(connection)?;
        }
        Ok(())
    })
}

/// Runs the poller until no webhook is pending, not even one that waits for its retry or for the end of a lease.
fn post_all(url: &str, connection: &mut Conn, options: &Options) -> Result<Tally> {
    // One connection for each worker, and some for the poller, its heartbeat, and late settlements.
    let pool = Pool::builder()
        .max_size(u32::from(options.workers) + 3)
        .min_idle(Some(0))
        .build(ConnectionManager::<Conn>::new(url))
        .context("cannot open connections for the workers")?;
    let poller = Webhook::poller(pool, Post { client: Client::new() })
        .workers(options.workers.into())
        .start()
        .context("cannot start the poller")?;
    while Webhook::queue().pending().count(connection)? > 0 {
        thread::sleep(Duration::from_millis(50));
    }
    Ok(poller.shutdown(Duration::from_secs(10)).tally)
}

/// Compares every row with its answers, and with the calls that the endpoint has heard.
fn check(connection: &mut Conn, options: &Options) -> Result<Check> {
    let mut answered: BTreeMap<i64, Vec<i32>> = BTreeMap::new();
    let written: Vec<(i64, i32)> =
        answers::table.select((answers::webhook_id, answers::try_number)).load(connection)?;
    for (webhook, try_number) in &written {
        answered.entry(*webhook).or_default().push(*try_number);
    }
    let mut heard: BTreeMap<&str, (usize, u32)> = BTreeMap::new();
    let calls = endpoint::calls(options.endpoint())?;
    for call in calls.values() {
        let (keys, calls) = heard.entry(&call.path).or_default();
        *keys += 1;
        *calls += call.calls;
    }

    let (mut faults, mut unheard) = (Vec::new(), 0);
    let rows: Vec<(Webhook, QueueState)> = Webhook::queue().all_rows().load(connection)?;
    for (webhook, state) in &rows {
        let (keys, calls) = heard.get(path(&webhook.url)).copied().unwrap_or_default();
        let found = Found { tries: state.try_count.unsigned_abs(), calls, status: state.status };
        let expected = expected(webhook);
        let agrees = if options.after_a_crash { found.is_like(&expected) } else { found == expected };
        if !agrees {
            faults.push(format!("{} is {found:?}, expected {expected:?}", webhook.url));
        }
        if keys > 1 {
            faults.push(format!("{} was called under {keys} keys", webhook.url));
        }
        let answers = answered.remove(&webhook.id).unwrap_or_default();
        let last_try = if state.status == Status::Success { vec![state.try_count] } else { Vec::new() };
        if answers != last_try {
            faults.push(format!("{} has answers of the tries {answers:?}, expected {last_try:?}", webhook.url));
        }
        unheard += if expected.calls == 0 { 0 } else { found.tries.saturating_sub(calls) };
    }
    let early = calls.values().map(|heard| heard.early).sum();
    if early > 0 && !options.after_a_crash {
        faults.push(format!("{early} calls came before the time that the endpoint had asked for"));
    }
    if rows.len() != usize::from(options.webhooks) {
        faults.push(format!("{} webhooks are in the table, expected {}", rows.len(), options.webhooks));
    }
    Ok(Check {
        statuses: Webhook::queue().all_rows().counts_by_status(connection)?,
        answers: written.len(),
        calls_per_key: histogram(&calls),
        unheard,
        early,
        holds: faults.is_empty(),
        faults,
    })
}

fn histogram(calls: &Calls) -> BTreeMap<u32, usize> {
    let mut histogram = BTreeMap::new();
    for heard in calls.values() {
        *histogram.entry(heard.calls).or_default() += 1;
    }
    histogram
}

/// The result of a webhook.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    status: Status,
    tries: u32,
    calls: u32,
}

/// The required result of a webhook when no process is disturbed: the endpoint hears every try.
fn expected(webhook: &Webhook) -> Found {
    let all = Webhook::SETTINGS.max_tries;
    let (status, tries, calls) = match Kind::of_path(path(&webhook.url)) {
        Some(Kind::Ok | Kind::Slow) => (Status::Success, 1, 1),
        Some(Kind::Busy | Kind::Limited | Kind::Closed) => (Status::Success, 2, 2),
        Some(Kind::Broken) => (Status::Failed, all, all),
        Some(Kind::Down) => (Status::Failed, all, 0),
        Some(Kind::Gone) | None => (Status::Failed, 1, 1),
    };
    Found { status, tries, calls }
}

impl Found {
    /// Whether this result is allowed for a webhook whose process was killed or frozen, perhaps more than once: it ends
    /// the same way. Such a process may have called or not, so the endpoint hears a try once or not at all.
    fn is_like(&self, expected: &Found) -> bool {
        let heard = if expected.calls == 0 { 0..=0 } else { 1..=self.tries };
        self.status == expected.status && heard.contains(&self.calls)
    }
}
