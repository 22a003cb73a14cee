//! A payment's booking, in async code.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use fail::fail_point;

use super::Conn;
use crate::bank::{Entry, companies, ledger};

/// Writes the ledger's row and the company's balance.
pub(super) fn book(connection: &mut Conn, entry: Entry) -> QueryResult<()> {
    connection.run(async |connection| {
        diesel::insert_into(ledger::table).values(entry.ledger_row()).execute(connection).await?;
        fail_point!("mid-handler");
        diesel::update(companies::table.find(entry.company_id))
            .set(companies::balance_cents.eq(companies::balance_cents + entry.amount_cents))
            .execute(connection)
            .await?;
        Ok(())
    })
}
