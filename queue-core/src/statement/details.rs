//! Reads the optional columns of a claimed row, by a statement of its own, so that the plain claim stays the same.

use diesel::query_builder::AstPass;
use diesel::result::{Error as DieselError, QueryResult};

use super::claim::Claimed;
use super::erased::ErasedQueue;
use super::rows::ClaimedRow;
use super::scope::Scope;
use super::writer::Writer;
use crate::backend::{QueueBackend, QueueConnection, Statement, load};
use crate::entity::{Key, KeyedRow};
use crate::row::{Details, DetailsRow, DetailsType, Options};

/// Reads the optional columns of the row with one key; null for those that the entity does not ask for.
pub struct ReadDetails<DB: QueueBackend>(pub KeyedRow<DB>);

impl<DB: QueueBackend> Statement<DB> for ReadDetails<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.0.queue, out);
        let Options { stages, periodic, rerun_on_change, .. } = *sql.queue.options;
        let columns = [
            stages.map(|stages| ("{}", stages.column)),
            periodic.map(|periodic| ("{}", periodic.period)),
            periodic.map(|periodic| ("{}", periodic.cron)),
            periodic.map(|periodic| ("{}", periodic.time_zone)),
            // A row that has not yet run on its schedule begins it with the time at which it was due.
            periodic.map(|periodic| ("COALESCE({}, {next_attempt_time})", periodic.scheduled_time)),
            rerun_on_change.map(|rerun| ("{}", rerun.change_count)),
        ];
        sql.push("SELECT {now}")?;
        for column in columns {
            sql.push(", ")?;
            match column {
                Some((text, column)) => sql.push_with(text, &[column])?,
                None => sql.push("NULL")?,
            }
        }
        sql.push_is_key(" FROM {table} WHERE ", &self.0.is_key)
    }
}

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Reports to the scope how far the claim has come, and reads the other columns that the rows' attempts need.
    pub(crate) fn claimed_within(
        &self,
        connection: &mut C,
        scope: Scope<'_, K>,
        rows: Vec<ClaimedRow<K>>,
    ) -> QueryResult<Vec<Claimed<K>>> {
        if let Some(claim_floor) = scope.claim_floor {
            // In no order: a claim by keys returns the rows in any order.
            let due = || rows.iter().filter_map(|row| Some(row.4.read()?.0?.time));
            claim_floor.is_answered();
            claim_floor.has_claimed(due().min(), due().max());
        }
        self.with_details(connection, rows)
    }

    /// Reads the columns that attempts need beyond the five, if the entity asks for more.
    pub(crate) fn with_details(&self, connection: &mut C, rows: Vec<ClaimedRow<K>>) -> QueryResult<Vec<Claimed<K>>> {
        let mut claimed: Vec<_> = rows.into_iter().map(|row| Claimed::read(self.sql, row)).collect();
        if self.sql.options.needs_details() {
            for row in &mut claimed {
                match load::<DetailsType, DetailsRow, _>(connection, &ReadDetails(self.row(&row.key))) {
                    Ok(details) => {
                        let read = details.into_iter().next().map(Details::from).unwrap_or_default();
                        row.details = read.with_occasion_of(std::mem::take(&mut row.details));
                        row.fence.change_count = row.details.change_count;
                    }
                    // As for the entity itself: a row that cannot be read fails, and does not hold up others.
                    Err(DieselError::DeserializationError(why)) => {
                        if row.message.is_ok() {
                            row.message = Err(why);
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(claimed)
    }
}
