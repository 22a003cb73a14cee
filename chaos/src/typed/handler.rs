//! The handler of payments: it books them, or does what their kind says.

use std::fs::File;
use std::io::Write;
use std::process;
use std::thread;
use std::time::Duration;

use fail::fail_point;
use queueable::{Failure, Handler, HandlerResult, Lease, LeaseHandler, Message, Outcome};

use super::misconduct::misbehave;
use super::{Conn, booking};
use crate::bank::{
    Entry, Grouped, HastyGrouped, HastyLeased, HastyLocked, Leased, Locked, OnceGrouped, OnceLeased, OnceLocked,
    PLANNED,
};
use crate::calls::Call;
use crate::odd::Odd;

/// Books payments, and notes every attempt as a call of the outside world.
pub(super) struct Booking {
    /// The file of calls, to which every process of the run appends lines.
    calls: File,
    /// The address for a handler that opens its own connection.
    url: String,
}

/// A payment without its entity's type, which tells the mode.
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

payments!(Locked, Grouped, Leased, HastyLocked, HastyGrouped, HastyLeased, OnceLocked, OnceGrouped, OnceLeased);

impl Booking {
    pub(super) fn new(calls: File, url: &str) -> Self {
        Booking { calls, url: url.to_owned() }
    }

    /// Notes the call in one write, so that no other process writes into the line.
    fn note_call(&self, payment: &Payment<'_>, key: &str, attempt: u32) -> std::io::Result<()> {
        let call = Call { payment: payment.id, key: key.to_owned(), attempt, process: process::id() };
        (&self.calls).write_all(call.to_string().as_bytes())
    }

    /// What happens before the booking; under a lease, outside of the transaction.
    fn call(&self, payment: &Payment<'_>, key: &str, attempt: u32) -> Result<(), Failure> {
        self.note_call(payment, key, attempt)?;
        let fails = fails_as_planned(payment, attempt);
        match payment.kind.split_once(' ').unwrap_or((payment.kind, "")) {
            ("fatal", _) => return Err(Failure::fatal(PLANNED)),
            ("slow", millis) => thread::sleep(Duration::from_millis(millis.parse()?)),
            ("panics", _) if fails => panic!("planned panic"),
            ("errs", _) if fails => return Err(Failure::retry(Odd::of(payment.kind))),
            ("errs", _) => return Err(Failure::fatal(Odd::of(payment.kind))),
            ("aborts", _) => process::abort(),
            _ => {}
        }
        if payment.kind == "late" { Ok(()) } else { fail_as_planned(payment, attempt) }
    }

    fn book(&self, payment: &Payment<'_>, message: &mut Message<'_, Conn>) -> HandlerResult {
        let attempt = i32::try_from(message.try_number())?;
        let Payment { id, company_id, amount_cents, .. } = *payment;
        booking::book(message.connection(), Entry { payment_id: id, company_id, amount_cents, attempt })?;
        misbehave(payment.kind, payment.id, &self.url, message.connection())?;
        fail_point!("effects");
        fail_as_planned(payment, message.try_number())?;
        Ok(Outcome::Done)
    }

    fn handle(&self, payment: &Payment<'_>, message: &mut Message<'_, Conn>) -> HandlerResult {
        self.call(payment, message.idempotency_key(), message.try_number())?;
        self.book(payment, message)
    }
}

fn fails_as_planned(payment: &Payment<'_>, attempt: u32) -> bool {
    i64::from(attempt) <= payment.fails.into()
}

fn fail_as_planned(payment: &Payment<'_>, attempt: u32) -> Result<(), Failure> {
    if fails_as_planned(payment, attempt) { Err(Failure::retry(PLANNED)) } else { Ok(()) }
}

macro_rules! handlers {
    ($($entity:ident),*) => {$(
        impl Handler<$entity, Conn> for Booking {
            fn handle(&self, payment: &$entity, message: &mut Message<'_, Conn>) -> HandlerResult {
                self.handle(&payment.into(), message)
            }
        }
    )*};
}

handlers!(Locked, Grouped, HastyLocked, HastyGrouped, OnceLocked, OnceGrouped);

macro_rules! lease_handlers {
    ($($entity:ident),*) => {$(
        impl LeaseHandler<$entity, Conn> for Booking {
            type Answer = ();

            fn call(&self, payment: &$entity, lease: &Lease) -> Result<(), Failure> {
                self.call(&payment.into(), lease.idempotency_key(), lease.try_number())
            }

            fn apply(&self, payment: &$entity, (): &(), message: &mut Message<'_, Conn>) -> HandlerResult {
                self.book(&payment.into(), message)
            }
        }
    )*};
}

lease_handlers!(Leased, HastyLeased, OnceLeased);
