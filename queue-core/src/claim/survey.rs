//! A survey: it reads the keys of the rows that have been due longest, to find those that the database does not refuse among the
//! refused ones.

use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::due_rows::DueRows;
use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::statement::{ClaimedRow, Scope};
use crate::sync::at_end;

impl<K: Key, C: QueueConnection> DueRows<K, C> {
    /// Ends a survey that has begun when the value is dropped.
    pub(super) fn surveying(&self) -> impl Drop {
        at_end(|| self.passed_rows.with_refused(|refused| refused.survey.running.end()))
    }

    /// Makes a survey of this many keys, outside any transaction.
    pub(super) fn survey(&self, connection: &mut C, number: u32) -> QueryResult<()> {
        let (begun, queue) = (Instant::now(), self.queue);
        let present = queue.present(connection)?;
        let keys = if queue.sql.options.due_time_alone_decides() && queue.sql.options.stages.is_none() {
            queue.due_keys(connection, number, None)?
        } else {
            let scope = Scope::<K> { stages: self.stages(), ..Scope::ALL };
            let claim = queue.claim_of(scope, number).locked(false);
            let rows: Vec<ClaimedRow<K>> = (queue.load_claimed)(connection, &claim)?;
            rows.into_iter().map(|row| queue.claimed_key(row)).collect()
        };
        self.passed_rows.with_refused(|refused| refused.arrive(keys, number, present, begun));
        Ok(())
    }

    /// Probes how long it is until a row is due that is not refused, or until a refused one is to be tried again. A
    /// `thorough` probe looks for any due row; a refused one does not count. Only for a queue with refused rows.
    pub(super) fn probe_among_refused(&self, connection: &mut C, thorough: bool) -> QueryResult<Option<Duration>> {
        let (queue, stages) = (self.queue, self.stages());
        if queue.sql.options.exclusive {
            let head = queue.head(connection, stages)?;
            let waits = |head: &_| self.passed_rows.with_refused(|refused| refused.waits(head, Instant::now()));
            let waits = head.and_then(|head| waits(head.text())).map(|waits| Ok((!thorough).then_some(waits)));
            return waits.unwrap_or_else(|| queue.probe_due(connection, stages, None));
        }
        let survey = self.passed_rows.with_refused(|refused| refused.begin_survey(thorough, Instant::now()));
        if let Some(number) = survey {
            let _surveying = self.surveying();
            self.survey(connection, number)?;
        }
        let (is_found, are_all_refused, until_known, from) = self.passed_rows.with_refused(|refused| {
            let (is_found, are_all_refused) = (!refused.found.waiting.is_empty(), refused.survey.is_all_refused);
            let floor = (!refused.start.only_found).then_some(refused.start.floor);
            (is_found, are_all_refused && survey.is_some(), refused.until_known(Instant::now()), floor)
        });
        if is_found || thorough {
            return Ok((is_found || !are_all_refused).then_some(Duration::ZERO));
        }
        let due_in = from.map_or(Ok(None), |floor| queue.probe_due(connection, stages, floor))?;
        Ok(Some(due_in.map_or(until_known, |due_in| due_in.min(until_known))))
    }
}
