//! Handlers for `replay`. What one does depends on its row's key.

use std::env;
use std::fs::OpenOptions;
use std::io::{Error, Write};

use diesel::Connection;
use queueable::bounds::ConnectionFor;
use queueable::{Failure, HandlerResult, Lease, Message, Outcome};
use queueable_console::{Console, Database, Replayable};

use crate::entities::{Invoice, InvoiceStage, Letter, Payment};

/// Adds the handlers to a console.
pub(crate) fn add<C>(console: Console<C>) -> Console<C>
where
    C: Database + ConnectionFor<Payment> + ConnectionFor<Invoice> + ConnectionFor<Letter>,
    Payment: Replayable<C>,
    Invoice: Replayable<C>,
    Letter: Replayable<C>,
{
    console.handler::<Payment>((charge, book::<C>)).handler::<Invoice>(render::<C>).handler::<Letter>(send::<C>)
}

/// Calls the bank: leaves a line in the file that `CALLS` names.
fn charge(payment: &Payment, lease: &Lease) -> Result<String, Failure> {
    let file = env::var_os("CALLS").ok_or_else(|| Failure::fatal(Error::other("no bank")))?;
    let call = format!("payment {}, try {}", payment.id, lease.try_number());
    writeln!(OpenOptions::new().append(true).create(true).open(file)?, "{call}")?;
    match payment.id {
        6 => Err(Failure::retry(Error::other(format!("card declined: {call}")))),
        _ => Ok(format!("paid: {call}")),
    }
}

fn book<C: Connection>(payment: &Payment, answer: &String, message: &mut Message<'_, C>) -> HandlerResult {
    let update = format!("UPDATE payments SET customer = '{answer}' WHERE id = {}", payment.id);
    message.connection().batch_execute(&update)?;
    Ok(Outcome::Done)
}

fn render<C: Connection>(invoice: &Invoice, message: &mut Message<'_, C>) -> HandlerResult {
    let (site, number, tries) = (&invoice.site, invoice.number, message.try_number());
    let connection = message.connection();
    let update =
        format!("UPDATE invoices SET total_cents = total_cents - 500 WHERE site = '{site}' AND number = {number}");
    connection.batch_execute(&update)?;
    match number {
        1 => return Err(Error::other(format!("no ink at try {tries}")).into()),
        3 => connection.batch_execute("COMMIT")?,
        4 => connection.batch_execute("SELECT 1; COMMIT")?,
        5 => connection.batch_execute("CREATE TABLE made (id INTEGER)")?,
        6 => panic!("the ribbon is torn"),
        7 => connection.batch_execute("UPDATE nowhere SET id = 1")?,
        8 => connection.transaction(|connection| connection.batch_execute("UPDATE invoices SET total_cents = 8"))?,
        9 => return Err(Failure::fatal(Error::other("no such customer"))),
        10 => connection.batch_execute("/* trace 4711 */ COMMIT")?,
        812 => return Err(Error::other("no printer answers at north").into()),
        _ => {}
    }
    Ok(Outcome::next(InvoiceStage::Send))
}

fn send<C>(letter: &Letter, message: &mut Message<'_, C>) -> HandlerResult {
    match letter.id {
        1 => Err(Error::other(format!("no such address at try {}", message.try_number())).into()),
        _ => Ok(Outcome::Done),
    }
}
