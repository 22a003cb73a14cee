//! What a payment's handler does: book it, or what its kind says.

use std::fs::File;
use std::io::Write;
use std::process;
use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use fail::fail_point;
use queueable::{Failure, Handler, HandlerResult, Lease, LeaseHandler, Message, Outcome};

use super::Conn;
use crate::bank::{Grouped, Leased, Locked, PLANNED, companies, ledger};

/// Books payments, and notes every attempt as a call of the outside world.
pub(super) struct Booking {
    /// Appended to by every process of the run, a line at a time.
    calls: File,
}

/// A payment without the type by which its mode is told.
struct Payment<'a> {
    id: i64,
    company_id: i64,
    amount_cents: i64,
    kind: &'a str,
    fails: i32,
}

macro_rules! payments {
    ($($entity:ident),*) => {$(
        impl<'a> From<&'a $entity> for Payment<'a> {
            fn from(payment: &'a $entity) -> Self {
                let $entity { id, company_id, amount_cents, kind, fails, .. } = payment;
                Payment { id: *id, company_id: *company_id, amount_cents: *amount_cents, kind, fails: *fails }
            }
        }
    )*};
}

payments!(Locked, Grouped, Leased);

impl Booking {
    pub(super) fn new(calls: File) -> Self {
        Booking { calls }
    }

    /// One write, so that the line is whole whoever else writes and whatever ends the process.
    fn note_call(&self, payment: &Payment<'_>, key: &str, attempt: u32) -> std::io::Result<()> {
        (&self.calls).write_all(format!("{} {key} {attempt} {}\n", payment.id, process::id()).as_bytes())
    }

    /// What happens before anything is booked, and outside the transaction where there is a lease.
    fn call(&self, payment: &Payment<'_>, key: &str, attempt: u32) -> Result<(), Failure> {
        self.note_call(payment, key, attempt)?;
        match payment.kind.split_once(' ').unwrap_or((payment.kind, "")) {
            ("fatal", _) => return Err(Failure::fatal(PLANNED)),
            ("slow", millis) => thread::sleep(Duration::from_millis(millis.parse()?)),
            ("panics", _) => panic!("planned panic"),
            ("aborts", _) => process::abort(),
            _ => {}
        }
        if payment.kind == "late" { Ok(()) } else { fail_as_planned(payment, attempt) }
    }

    fn book(&self, payment: &Payment<'_>, message: &mut Message<'_, Conn>) -> HandlerResult {
        let attempt = i32::try_from(message.try_number())?;
        diesel::insert_into(ledger::table)
            .values((
                ledger::payment_id.eq(payment.id),
                ledger::amount_cents.eq(payment.amount_cents),
                ledger::attempt.eq(attempt),
            ))
            .execute(message.connection())?;
        fail_point!("mid-handler");
        diesel::update(companies::table.find(payment.company_id))
            .set(companies::balance_cents.eq(companies::balance_cents + payment.amount_cents))
            .execute(message.connection())?;
        self.misbehave(payment, message.connection())?;
        fail_point!("effects");
        fail_as_planned(payment, message.try_number())?;
        Ok(Outcome::Done)
    }

    /// What no handler should do.
    fn misbehave(&self, payment: &Payment<'_>, connection: &mut Conn) -> Result<(), Failure> {
        match payment.kind {
            "swallows" => drop(connection.batch_execute("INSERT INTO no_such_table VALUES (1)")),
            _ => {}
        }
        Ok(())
    }

    fn handle(&self, payment: &Payment<'_>, message: &mut Message<'_, Conn>) -> HandlerResult {
        self.call(payment, message.idempotency_key(), message.try_number())?;
        self.book(payment, message)
    }
}

fn fail_as_planned(payment: &Payment<'_>, attempt: u32) -> Result<(), Failure> {
    if i64::from(attempt) <= payment.fails.into() { Err(Failure::retry(PLANNED)) } else { Ok(()) }
}

impl Handler<Locked, Conn> for Booking {
    fn handle(&self, payment: &Locked, message: &mut Message<'_, Conn>) -> HandlerResult {
        self.handle(&payment.into(), message)
    }
}

impl Handler<Grouped, Conn> for Booking {
    fn handle(&self, payment: &Grouped, message: &mut Message<'_, Conn>) -> HandlerResult {
        self.handle(&payment.into(), message)
    }
}

impl LeaseHandler<Leased, Conn> for Booking {
    type Answer = ();

    fn call(&self, payment: &Leased, lease: &Lease) -> Result<(), Failure> {
        self.call(&payment.into(), lease.idempotency_key(), lease.try_number())
    }

    fn apply(&self, payment: &Leased, (): &(), message: &mut Message<'_, Conn>) -> HandlerResult {
        self.book(&payment.into(), message)
    }
}
