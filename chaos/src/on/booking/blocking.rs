//! A payment's booking, in statements that block the thread.

use diesel::prelude::*;
use fail::fail_point;

use super::Conn;
use crate::bank::{Entry, companies, ledger};

/// Writes the ledger's row and the company's balance.
pub(super) fn book(connection: &mut Conn, entry: Entry) -> QueryResult<()> {
    diesel::insert_into(ledger::table).values(entry.ledger_row()).execute(connection)?;
    fail_point!("mid-handler");
    diesel::update(companies::table.find(entry.company_id))
        .set(companies::balance_cents.eq(companies::balance_cents + entry.amount_cents))
        .execute(connection)?;
    Ok(())
}
