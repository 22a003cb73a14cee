//! Payments chosen by their state, for threads that work on their table beside the queue.

use anyhow::{Context, Result};

use super::Conn;
use crate::bank::OLD_PAYMENTS;
use crate::session::{Dialect, Session};

/// At most this many of the queue's payments that meet the condition, with their notes.
pub(super) fn pick(connection: &mut Conn, count: u32, condition: &str) -> Result<Vec<(i64, String)>> {
    let id = super::DIALECT.text("id");
    let join = match super::DIALECT {
        Dialect::Mysql => format!("CONCAT_WS(' ', {id}, note)"),
        Dialect::Postgres | Dialect::Sqlite => format!("{id} || ' ' || note"),
    };
    let lines = connection.lines(&format!(
        "SELECT {join} AS line FROM payments WHERE id > {OLD_PAYMENTS} AND {condition} ORDER BY id DESC LIMIT {count}"
    ))?;
    let parts = lines.iter().map(|line| {
        let (id, note) = line.split_once(' ').context("a payment without a note")?;
        Ok((id.parse()?, note.to_owned()))
    });
    parts.collect()
}
