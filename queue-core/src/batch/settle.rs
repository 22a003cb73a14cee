//! How the rows of a batch are settled, and its transaction ends.

use diesel::connection::TransactionManager;

use super::open::{BatchBody, OpenBatch};
use super::rows::{BatchEnd, DecidedRow, Handled, SETTLED_AT_ONCE, expect_rows, undone, write};
use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::row::Settlement;
use crate::statement::Change;
use crate::sync::fail_point;

impl<K: Key, C: QueueConnection, B: BatchBody<K, C>> OpenBatch<'_, '_, K, C, B> {
    /// Writes the new states that are not written yet: those of rows that end alike by one statement. Each is fenced, and
    /// every row must be changed.
    pub(crate) fn settle(&mut self) -> Handled<K> {
        let decided = std::mem::take(&mut self.decided);
        // Then the written values differ from row to row.
        let decides_by_details = self.served.queue.sql.options.decides_by_details();
        let unwritten = decided.iter().filter(|row| !row.written);
        let (plain, others): (Vec<_>, Vec<_>) =
            unwritten.partition(|row| row.is_plain_success() && !decides_by_details);
        if let Some(first) = plain.first() {
            let success = Change { try_count: None, another_try: true, ..first.new.change.clone() };
            self.settle_alike(&plain, &success)?;
        }
        let mut alike: Vec<Vec<&DecidedRow<K>>> = Vec::new();
        for row in others {
            let settled = row.new.settled;
            // Under `rerun_on_change`, a row that runs again looks the same afterwards.
            let looks_the_same = decides_by_details && settled == Settlement::Again;
            let stands_alone = row.new.change.removes || settled.is_failure() || looks_the_same;
            let is_alike = |rows: &&mut Vec<&DecidedRow<K>>| !stands_alone && rows[0].new.change == row.new.change;
            match alike.iter_mut().find(is_alike) {
                Some(rows) => rows.push(row),
                None => alike.push(vec![row]),
            }
        }
        for rows in alike {
            let failed = rows[0].new.settled.is_failure();
            if failed {
                fail_point("recording");
            }
            match &*rows {
                [row] => write(self.served.queue, self.session, row)?,
                rows => self.settle_alike(rows, &rows[0].new.change)?,
            }
            if failed {
                fail_point("recorded");
            }
        }
        self.decided = decided;
        Ok(())
    }

    fn settle_alike(&mut self, rows: &[&DecidedRow<K>], change: &Change) -> Handled<K> {
        let rows: Vec<_> = rows.iter().map(|row| (&row.key, row.fence)).collect();
        for rows in rows.chunks(SETTLED_AT_ONCE) {
            expect_rows::<K, C>(self.served.queue.settle_many(self.session, rows, change), rows.len())?;
        }
        Ok(())
    }

    /// Commits, unless the transaction was taken away, and evaluates the result.
    pub(crate) fn commit(&mut self) -> Handled<K> {
        self.slot.begin_commit().map_err(|why| BatchEnd::Undone(self.revoked(why)))?;
        fail_point("committing");
        let Err(error) = self.session.commit_group(B::BEGINS_NEXT) else {
            fail_point("committed");
            return Ok(());
        };
        if C::leaves_commit_in_doubt(&error) {
            return Err(BatchEnd::Unknown(std::mem::take(&mut self.decided), error.to_string()));
        }
        if C::lacks_group_cursor(&error) {
            let what = "a handler has closed a cursor that is not its own (by CLOSE ALL or DISCARD ALL), without which its \
                        transaction is not committed: its messages run one by one";
            self.remark = Some(what.to_owned());
        }
        Err(undone::<K, C>(error))
    }

    /// Rolls back, and tells whether no transaction is left open: a handler may have opened one inside ours.
    pub(crate) fn roll_back(&mut self) -> bool {
        C::TransactionManager::rollback_transaction(&mut **self.session).is_ok() && self.session.is_in_no_transaction()
    }
}
