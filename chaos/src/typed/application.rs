//! What the application does through Diesel and the library: it enqueues payments.

use anyhow::Result;
use diesel::prelude::*;
use queueable::Queueable;

use super::Conn;
use crate::bank::{Locked, NewPayment, payments};

/// Enqueues payments, some at a time.
pub(crate) fn enqueue(url: &str, new: &[NewPayment]) -> Result<()> {
    let connection = &mut connect(url)?;
    for some in new.chunks(1000) {
        let some: Vec<_> = some.iter().map(|payment| (payment.clone(), Locked::due_now())).collect();
        diesel::insert_into(payments::table).values(some).execute(connection)?;
    }
    Ok(())
}

/// A connection as patient as an application with a busy database has to be.
pub(crate) fn connect(url: &str) -> Result<Conn> {
    use diesel::connection::SimpleConnection;
    let mut connection = Conn::establish(url)?;
    if url.split_once("://").is_none() {
        connection.batch_execute("PRAGMA busy_timeout = 20000")?;
    }
    Ok(connection)
}
