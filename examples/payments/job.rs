//! The job itself: makes the table a queue, enqueues the file, books the payments, and checks the books.
//!
//! Plain Diesel against one connection type, as an application writes it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::result::{DatabaseErrorKind, Error};
use diesel_migrations::MigrationHarness;
use indicatif::{ProgressBar, ProgressStyle};
use queueable::{Failure, Handler, HandlerResult, Message, Migrations, Outcome, Queueable, Status, Tally};

use super::{Conn, MIGRATIONS, connect};
use crate::bank::{
    Import, LAST_OLD_PAYMENT, NewPayment, Payment, companies, imports, ledger, old_payments, payment_queue, payments,
};
use crate::report::{Check, Company, ErrorGroup, Report};
use crate::{Options, input};

/// Books a payment. Its writes commit together with the payment's queue state, or not at all.
struct BookPayment;

impl Handler<Payment, Conn> for BookPayment {
    fn handle(&self, payment: &Payment, message: &mut Message<'_, Conn>) -> HandlerResult {
        if payment.amount_cents <= 0 {
            return Err(Failure::fatal("the amount is not positive"));
        }
        if payment.amount_cents % 100 == 13 && message.try_number() == 1 {
            return Err(Failure::retry_after(Duration::from_millis(200), "the bank is busy"));
        }
        diesel::insert_into(ledger::table)
            .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents)))
            .execute(message.connection())?;
        diesel::update(companies::table.find(payment.company_id))
            .set(companies::balance_cents.eq(companies::balance_cents + payment.amount_cents))
            .execute(message.connection())?;
        Ok(Outcome::Done)
    }
}

/// Runs the whole job, or the part that an earlier run has left.
pub(crate) fn run(url: &str, options: &Options) -> Result<Report> {
    // A new run reads its file before it touches the database. One that resumes may not need the file any more.
    let new_payments = if options.resume { None } else { Some(input::read(&options.input())?) };

    let mut connection = connect(url).with_context(|| format!("cannot open the database {url}"))?;
    set_up(&mut connection)?;
    let earlier = imports::table.select(Import::as_select()).first(&mut connection).optional()?;
    let import = match earlier {
        Some(earlier) if options.resume => {
            check_it_is_the_same(&earlier, options)?;
            earlier
        }
        Some(earlier) => {
            make_room(&mut connection, &earlier, options)?;
            enqueue(&mut connection, options, new_payments)?
        }
        None => enqueue(&mut connection, options, new_payments)?,
    };

    if options.retry_failed {
        // Ordinary Diesel filters choose the rows, here those of one company.
        let company = Payment::queue().filter(payments::company_id.eq(options.company));
        company.failed().retry_now(&mut connection)?;
    }
    let handled_here = book_all(url, &mut connection, options, &import)?;
    take_stock(&mut connection, options, import, handled_here)
}

/// Creates the application's tables where they are missing, then makes `payments` a queue.
fn set_up(connection: &mut Conn) -> Result<()> {
    connection.run_pending_migrations(MIGRATIONS).map_err(anyhow::Error::from_boxed).context(
        "cannot create the tables of this example; it needs an empty database, or one that it has made itself",
    )?;
    connection
        .run_pending_migrations(Migrations::new().entity::<Payment>())
        .map_err(anyhow::Error::from_boxed)
        .context("cannot add the queue to the table payments")?;

    // If another application owns a table of that name, every claim would fail, for ever.
    payments::table
        .select(Payment::as_select())
        .first(connection)
        .optional()
        .context("the table payments is not this example's: it needs the columns id, company_id and amount_cents")?;
    Ok(())
}

/// A database takes one file. The job may empty the default database, once its run is complete.
fn make_room(connection: &mut Conn, earlier: &Import, options: &Options) -> Result<()> {
    let pending = Payment::queue().pending().count(connection)?;
    let state = format!("{} of {} payments of {} are done", earlier.payments - pending, earlier.payments, earlier.file);
    if options.database_url.is_some() {
        bail!("the database holds a run already ({state}): continue it with --resume, or name an empty database");
    }
    if pending > 0 {
        bail!("{} holds a run that was cut short ({state}): continue it with --resume", options.database_url());
    }
    let all = || Migrations::new().entity::<Payment>().and(MIGRATIONS);
    connection.revert_all_migrations(all()).map_err(anyhow::Error::from_boxed)?;
    set_up(connection)
}

fn check_it_is_the_same(earlier: &Import, options: &Options) -> Result<()> {
    let input = options.input.as_ref().map(|input| input.display().to_string());
    ensure!(
        input.as_ref().is_none_or(|input| *input == earlier.file),
        "the database holds a run of {}, and --resume continues that: name an empty database for another file",
        earlier.file
    );
    Ok(())
}

/// Enqueues all payments in one transaction, together with a note that says so: after a crash either all are there or
/// none is, and a second run knows which.
fn enqueue(connection: &mut Conn, options: &Options, new_payments: Option<Vec<NewPayment>>) -> Result<Import> {
    let input = options.input();
    let new_payments = new_payments.map_or_else(|| input::read(&input), Ok)?;
    let import =
        Import { file: input.display().to_string(), payments: i64::try_from(new_payments.len()).expect("fits") };
    let enqueued = connection.transaction(|connection| {
        // The note comes first: a second process waits for it here, and then finds that the file is enqueued.
        diesel::insert_into(imports::table)
            .values((imports::id.eq(1), imports::file.eq(&import.file), imports::payments.eq(import.payments)))
            .execute(connection)?;
        open_accounts(connection, &new_payments)?;
        for some in new_payments.chunks(1000) {
            let due: Vec<_> = some.iter().map(|payment| (payment, Payment::due_now())).collect();
            diesel::insert_into(payments::table).values(due).execute(connection)?;
        }
        Ok(())
    });
    match enqueued {
        // Another process was faster, or the server has now committed the transaction of a killed process.
        Err(Error::DatabaseError(DatabaseErrorKind::UniqueViolation, _)) => {
            ensure!(options.resume, "another process has enqueued payments meanwhile: join it with --resume");
            let earlier = imports::table.select(Import::as_select()).first(connection)?;
            check_it_is_the_same(&earlier, options)?;
            Ok(earlier)
        }
        enqueued => enqueued.map(|()| import).context("cannot enqueue the payments, nothing was enqueued"),
    }
}

/// Adds the companies that are new, with a balance of zero.
fn open_accounts(connection: &mut Conn, payments: &[NewPayment]) -> QueryResult<()> {
    let known: Vec<i64> = companies::table.select(companies::id).load(connection)?;
    let mut missing: Vec<_> = payments.iter().map(|payment| payment.company_id).collect();
    missing.sort_unstable();
    missing.dedup();
    missing.retain(|company| !known.contains(company));
    for some in missing.chunks(1000) {
        let accounts: Vec<_> = some.iter().map(|id| (companies::id.eq(*id), companies::balance_cents.eq(0))).collect();
        diesel::insert_into(companies::table).values(accounts).execute(connection)?;
    }
    Ok(())
}

/// Runs the poller until no payment is pending, not even one that waits for its retry, or until a signal asks it to
/// end.
fn book_all(url: &str, connection: &mut Conn, options: &Options, import: &Import) -> Result<Tally> {
    let workers = options.workers;
    // One connection for each worker, one for the poller, and one to spare.
    let pool = Pool::builder()
        .max_size(u32::from(workers) + 2)
        .min_idle(Some(0))
        .build(ConnectionManager::<Conn>::new(url))
        .context("cannot open connections for the workers")?;
    let poller =
        Payment::poller(pool, BookPayment).workers(workers.into()).start().context("cannot start the poller")?;

    // Drawn on a terminal only.
    let bar = ProgressBar::new(import.payments.unsigned_abs())
        .with_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} payments, {per_sec}, {eta} left")?);
    loop {
        let pending =
            Payment::queue().pending().count(connection).context("lost the database, continue with --resume")?;
        bar.set_position((import.payments - pending).max(0).unsigned_abs());
        if pending == 0 || options.stopping.load(Ordering::Relaxed) {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    bar.finish_and_clear();
    Ok(poller.shutdown(Duration::from_secs(10)).tally)
}

/// Reads the results of the payments, in domain terms and with ordinary Diesel.
fn take_stock(connection: &mut Conn, options: &Options, import: Import, handled_here: Tally) -> Result<Report> {
    let statuses = Payment::queue().filter(payments::id.gt(LAST_OLD_PAYMENT)).counts_by_status(connection)?;
    let errors: Vec<(Option<String>, i64)> = payments::table
        .filter(payment_queue::last_attempt_error_message.is_not_null())
        .group_by(payment_queue::last_attempt_error_message)
        .select((payment_queue::last_attempt_error_message, count_star()))
        .order(count_star().desc())
        .load(connection)?;
    let company = Payment::queue().filter(payments::company_id.eq(options.company));
    let company =
        Company::new(options.company, company.clone().pending().load(connection)?, company.failed().load(connection)?);
    Ok(Report {
        file: import.file,
        payments: import.payments,
        statuses,
        errors: errors.into_iter().map(ErrorGroup::from).collect(),
        company,
        check: check(connection)?,
        handled_here,
    })
}

/// Compares payments, ledger and balances row by row.
fn check(connection: &mut Conn) -> Result<Check> {
    let mut succeeded: Vec<(i64, i64)> = Vec::new();
    let mut balances: BTreeMap<i64, i64> = BTreeMap::new();
    let success: Vec<Payment> = payments::table
        .filter(payment_queue::status.eq(Status::Success))
        .order(payments::id)
        .select(Payment::as_select())
        .load(connection)?;
    for payment in success {
        succeeded.push((payment.id, payment.amount_cents));
        *balances.entry(payment.company_id).or_default() += payment.amount_cents;
    }
    let booked: Vec<(i64, i64)> = ledger::table.order((ledger::payment_id, ledger::amount_cents)).load(connection)?;
    let found: Vec<(i64, i64)> =
        companies::table.filter(companies::balance_cents.ne(0)).order(companies::id).load(connection)?;
    let old = Payment::queue().filter(payments::id.le(LAST_OLD_PAYMENT)).load(connection)?;
    let untouched = old_payments()
        .zip(&old)
        .filter(|(expected, (payment, state))| {
            expected == payment
                && (state.status, state.try_count) == (Status::NotAttempted, 0)
                && state.next_attempt_time.is_none()
                && state.last_attempt_time.is_none()
        })
        .count();
    Ok(Check {
        success_rows: succeeded.len(),
        success_cents: succeeded.iter().map(|(_, amount)| amount).sum(),
        ledger_rows: booked.len(),
        ledger_cents: booked.iter().map(|(_, amount)| amount).sum(),
        balance_cents: found.iter().map(|(_, balance)| balance).sum(),
        old_rows: old.len(),
        old_rows_untouched: untouched,
        holds: booked == succeeded
            && found == Vec::from_iter(balances)
            && (old.len(), untouched) == (old_payments().count(), old_payments().count()),
    })
}
