//! The job itself: makes the article's table a queue, enqueues mails, has them sent, and checks the result.
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
use lettre::SmtpTransport;
use queueable::{Migrations, QueueState, Queueable, Status, Tally};

use super::send::Send;
use super::{Conn, TABLES, connect};
use crate::Options;
use crate::mails::{CLAIMED, DEAD_OWNER, EmailText, Recipient, SENT, UnsentEmail, email_texts, unsent_emails};
use crate::report::{Check, Report};
use crate::sink::Sink;

/// Runs the whole job on an empty database.
pub(crate) fn run(url: &str, options: &Options) -> Result<Report> {
    let mut connection = connect(url).with_context(|| format!("cannot open the database {url}"))?;
    set_up(&mut connection).context("cannot create the tables of this example; it needs an empty database")?;
    enqueue(&mut connection, options)?;
    let sink = Sink::start().context("cannot start the mail server")?;
    let tally = send_all(url, &mut connection, options, &sink)?;
    let check = check(&mut connection, &sink, &tally)?;
    let rows = UnsentEmail::queue().filter(unsent_emails::id.gt(*SENT.end()));
    Ok(Report { statuses: rows.counts_by_status(&mut connection)?, tally, check })
}

/// Creates the article's table with a history, then makes it a queue. The rows of the history are not enqueued.
fn set_up(connection: &mut Conn) -> Result<()> {
    connection.batch_execute(TABLES)?;
    let row = |id: i32, status: &'static str, owner: i64| {
        (unsent_emails::id.eq(id), unsent_emails::status.eq(status), unsent_emails::owner.eq(owner))
    };
    let sent = SENT.map(|id| row(id, "sent", 0));
    let claimed = CLAIMED.map(|id| row(id, "claimed", DEAD_OWNER));
    let history: Vec<_> = sent.chain(claimed).collect();
    diesel::insert_into(unsent_emails::table).values(history).execute(connection)?;
    let texts: Vec<_> = SENT.chain(CLAIMED).map(EmailText::of).collect();
    diesel::insert_into(email_texts::table).values(texts).execute(connection)?;
    connection.run_pending_migrations(Migrations::new().entity::<UnsentEmail>()).map_err(anyhow::Error::from_boxed)?;
    Ok(())
}

/// Enqueues new mails with an insert. An update enqueues the old mails that were claimed and never sent.
///
/// That update runs once, when the queue is introduced. The article needs a timer for it, because every process that
/// dies leaves claimed rows behind. Here a claim is a row lock, and the database releases it when the session ends.
fn enqueue(connection: &mut Conn, options: &Options) -> Result<()> {
    let ids: Vec<i32> = (CLAIMED.end() + 1..).take(options.mails.into()).collect();
    connection
        .transaction::<_, diesel::result::Error, _>(|connection| {
            let due: Vec<_> = ids
                .iter()
                .map(|id| (unsent_emails::id.eq(*id), unsent_emails::status.eq("unsent"), UnsentEmail::due_now()))
                .collect();
            diesel::insert_into(unsent_emails::table).values(due).execute(connection)?;
            let texts: Vec<_> = ids.iter().copied().map(EmailText::of).collect();
            diesel::insert_into(email_texts::table).values(texts).execute(connection)?;
            diesel::update(unsent_emails::table.filter(unsent_emails::status.eq("claimed")))
                .set((unsent_emails::status.eq("unsent"), unsent_emails::owner.eq(0), UnsentEmail::due_now()))
                .execute(connection)
        })
        .context("cannot enqueue the mails, nothing was enqueued")?;
    Ok(())
}

/// Runs the poller until no mail is pending, not even one that waits for its retry.
fn send_all(url: &str, connection: &mut Conn, options: &Options, sink: &Sink) -> Result<Tally> {
    let smtp =
        SmtpTransport::builder_dangerous("127.0.0.1").port(sink.port).timeout(Some(Duration::from_secs(5))).build();
    // One connection for each worker, one for the poller, and one to spare.
    let pool = Pool::builder()
        .max_size(u32::from(options.workers) + 2)
        .min_idle(Some(0))
        .build(ConnectionManager::<Conn>::new(url))
        .context("cannot open connections for the workers")?;
    let poller = UnsentEmail::poller(pool, Send { smtp })
        .workers(options.workers.into())
        .start()
        .context("cannot start the poller")?;
    while UnsentEmail::queue().pending().count(connection)? > 0 {
        thread::sleep(Duration::from_millis(50));
    }
    Ok(poller.shutdown(Duration::from_secs(10)).tally)
}

/// Compares every row with the mails that the server has seen.
fn check(connection: &mut Conn, sink: &Sink, tally: &Tally) -> Result<Check> {
    let rows: Vec<(i32, Option<String>, i64, QueueState)> = unsent_emails::table
        .order(unsent_emails::id)
        .select((unsent_emails::id, unsent_emails::status, unsent_emails::owner, UnsentEmail::queue_state()))
        .load(connection)?;
    let seen = sink.seen();
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    for (recipient, _message_id) in seen.taken.keys() {
        *taken.entry(recipient).or_default() += 1;
    }

    let (mut faults, mut sent, mut refused, mut old_rows_untouched) = (Vec::new(), 0, 0, 0);
    for (id, status, owner, state) in rows {
        let found = (state.status, state.try_count, status.as_deref().unwrap_or("NULL"));
        if SENT.contains(&id) {
            if found == (Status::NotAttempted, 0, "sent") && state.next_attempt_time.is_none() {
                old_rows_untouched += 1;
            } else {
                faults.push(format!("the old mail {id} was touched: {found:?}"));
            }
            continue;
        }
        let recipient = Recipient::of(id);
        let mut expected = match recipient {
            Recipient::Reader => (Status::Success, 1, "sent"),
            Recipient::Full => (Status::Success, 2, "sent"),
            Recipient::Nobody => (Status::Failed, 1, "unsent"),
        };
        if tally.interrupted > 0 {
            // A group that did not commit has counted no try, although the server may have refused its mails.
            expected.1 = found.1;
        }
        if (found, owner) != (expected, 0) {
            faults.push(format!("mail {id} is {found:?} of {owner}, expected {expected:?}"));
        }
        // Repeats have the Message-ID of the first mail; two of them would be two mails to the reader.
        let ids = taken.get(&*recipient.address(id)).copied().unwrap_or_default();
        if ids != usize::from(recipient != Recipient::Nobody) {
            faults.push(format!("mail {id} was taken under {ids} different Message-IDs"));
        }
        sent += usize::from(found.0 == Status::Success);
        refused += usize::from(found.0 == Status::Failed);
    }
    if seen.taken.len() != sent {
        faults.push(format!("the server has taken {} mails, the table knows of {sent}", seen.taken.len()));
    }
    let repeated = seen.taken.values().map(|times| times - 1).sum();
    let holds = faults.is_empty();
    Ok(Check {
        sent,
        refused,
        taken: seen.taken.len(),
        repeated,
        refusals: seen.refused,
        old_rows_untouched,
        faults,
        holds,
    })
}
