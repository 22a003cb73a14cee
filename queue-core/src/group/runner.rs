//! One entity in group mode inside a poller: it takes turns with groups whose size follows the backlog.

use std::any::TypeId;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::result::QueryResult;

use super::end::{Culprit, Decided, GroupEnd, Grouped, HeldGroup, Left, Mark, Why};
use super::group::work_group;
use super::recover::{CommitState, settle_if_committed};
use super::size::{Came, GroupSize};
use crate::attempt::{CONCLUSIONS, Held, Lane, Rest, Served, Slot, Tally, Turn};
use crate::backend::{Link, QueueBackend, QueueConnection};
use crate::entity::QueueTable;
use crate::error::Finding;
use crate::lock::unpoisoned;
use crate::log::Noise;
use crate::row::{Options, Settled, failure_text};
use crate::statement::{Next, QueueOn};

/// An entity whose messages share transactions. A message that runs alone is attempted as in transaction mode.
pub(crate) struct GroupLane<Q: QueueOn<C>, C: QueueConnection> {
    served: Served<Q, C>,
    size: Mutex<GroupSize>,
}

impl<Q: QueueOn<C> + Send, C: QueueConnection> GroupLane<Q, C> {
    pub(crate) fn new(served: Served<Q, C>) -> Self {
        let settings = &served.rules.settings;
        let most = if settings.optimistic { settings.group } else { settings.group.min(C::Backend::MOST_SAVEPOINTS) };
        GroupLane { size: Mutex::new(GroupSize::new(most)), served }
    }

    fn size(&self) -> MutexGuard<'_, GroupSize> {
        unpoisoned(self.size.lock())
    }

    fn learn(&self, came: Came) {
        self.size().learn(came, Instant::now());
    }

    /// Attempts one message as in transaction mode.
    fn turn_alone(&self, link: &mut Link<C>, slot: &Slot, noise: &Noise, claimed: &dyn Fn() -> bool) -> Turn {
        let turn = self.served.turn(link, slot, noise, claimed);
        match turn {
            Turn::Idle => self.learn(Came::Idle),
            Turn::Settled(Settled::Retried | Settled::Failed) => self.learn(Came::WithFailure { of: 1 }),
            Turn::Settled(_) => self.learn(Came::Well { claimed: 1, of: 1 }),
            Turn::Interrupted | Turn::Lost | Turn::Suspect | Turn::GivenUp | Turn::Trouble | Turn::Group(_) => {}
        }
        turn
    }

    /// Does what is left after a group, and counts what became of its rows.
    fn conclude(&self, link: &mut Link<C>, noise: &Noise, end: GroupEnd<Q::Key>, begun: usize) -> Turn {
        let mut tally = Tally::default();
        let interrupted = u64::try_from(begun).unwrap_or(u64::MAX);
        match end {
            GroupEnd::Idle => return Turn::Idle,
            GroupEnd::NotClaimed(error) => {
                noise.warn(Q::ENTITY, &format!("no message can be claimed: {error}"));
                return Turn::Trouble;
            }
            GroupEnd::Settled(rows) => self.count(&mut tally, &rows),
            GroupEnd::Undone(Why::Conflict(cause)) => {
                let what = "a group was interrupted, its messages run one by one for a while";
                noise.warn(Q::ENTITY, &format!("{what}: {cause}"));
                tally.interrupted = interrupted;
            }
            GroupEnd::Undone(Why::Alone(cause)) => {
                tracing::debug!(entity = Q::ENTITY, cause, "a group is undone, its messages run one by one");
            }
            GroupEnd::Undone(Why::Shutdown) => tally.interrupted = interrupted,
            GroupEnd::Ended { mark, before, culprit, after } => {
                self.after_end(link, noise, mark, before, *culprit, after, &mut tally);
            }
            GroupEnd::Untold { mark, rows, after, why } => {
                let left: Vec<_> = after.iter().collect();
                match (mark.and_then(|mark| self.commit_state(link, noise, &mark, &rows, &left)), why) {
                    (Some(CommitState::Committed(settled)), _) => {
                        self.count_committed(&mut tally, noise, &rows, settled)
                    }
                    // Or nothing can be found out: what is committed is reserved for a while, so what is due is not.
                    (Some(CommitState::RolledBack) | None, Some(why)) => {
                        return self.conclude(link, noise, GroupEnd::Undone(why), begun);
                    }
                    _ => self.record(link, noise, rows, &mut tally),
                }
            }
            GroupEnd::Unknown(rows, cause) => self.find_out(link, noise, rows, cause, &mut tally),
        }
        Turn::Group(tally)
    }

    fn count(&self, tally: &mut Tally, rows: &[Decided<Q::Key>]) {
        for row in rows {
            self.served.pauses.end(&row.key);
            tally.count(Turn::Settled(row.settled));
        }
    }

    /// Does what is left after a group whose transaction the culprit may have ended: the innocents first.
    #[expect(clippy::too_many_arguments, reason = "the parts of the group's end, and what every end needs")]
    fn after_end(
        &self,
        link: &mut Link<C>,
        noise: &Noise,
        mark: Option<Mark>,
        before: Vec<Decided<Q::Key>>,
        culprit: Culprit<Q::Key>,
        after: Vec<Left<Q::Key>>,
        tally: &mut Tally,
    ) {
        let Culprit { row, rest } = culprit;
        let is_recorded = matches!(rest, Rest::Record(..));
        // A culprit that is not recorded runs again, like those that were not handled.
        let left: Vec<_> = after.iter().chain((!is_recorded).then_some(&row)).collect();
        let Some(mark) = mark else {
            self.count_if_committed(link, noise, before, why_ended(&rest), tally);
            tally.count(self.served.conclude(link, noise, row.key, row.fence, rest));
            return;
        };
        let committed = self.commit_state(link, noise, &mark, &before, &left);
        let rest = match (committed, rest) {
            (Some(CommitState::Committed(settled)), Rest::Record(state, change)) => {
                self.count_committed(tally, noise, &before, settled);
                Rest::RecordReserved(state, change)
            }
            (Some(CommitState::Committed(settled)), rest) => {
                self.count_committed(tally, noise, &before, settled);
                rest
            }
            (Some(CommitState::RolledBack) | None, rest) => {
                before.iter().for_each(|_| tally.count(Turn::Interrupted));
                rest
            }
        };
        tally.count(self.served.conclude(link, noise, row.key, row.fence, rest));
    }

    /// Counts the rows of a transaction that a handler ended: those that were settled in it are so now, if it was committed.
    /// The others are as they were, and due.
    fn count_if_committed(
        &self,
        link: &mut Link<C>,
        noise: &Noise,
        rows: Vec<Decided<Q::Key>>,
        cause: String,
        tally: &mut Tally,
    ) {
        let (written, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.written);
        self.find_out(link, noise, written, cause, tally);
        others.iter().for_each(|_| tally.count(Turn::Interrupted));
    }

    /// Finds out whether a transaction that a handler ended was committed, and settles what came with it.
    fn commit_state(
        &self,
        link: &mut Link<C>,
        noise: &Noise,
        mark: &Mark,
        handled: &[Decided<Q::Key>],
        left: &[&Left<Q::Key>],
    ) -> Option<CommitState> {
        for _ in 0..CONCLUSIONS {
            let committed =
                link.session().and_then(|session| Ok(settle_if_committed::<Q, C>(session, mark, handled, left)?));
            match committed {
                Ok(committed) => return Some(committed),
                Err(error) => {
                    let error = failure_text(&error, 500);
                    noise.warn(Q::ENTITY, &format!("the end of a group cannot be found out: {error}"));
                    link.close();
                }
            }
        }
        None
    }

    fn count_committed(
        &self,
        tally: &mut Tally,
        noise: &Noise,
        rows: &[Decided<Q::Key>],
        settled: Vec<Option<Settled>>,
    ) {
        for (row, settled) in rows.iter().zip(settled) {
            self.served.pauses.end(&row.key);
            if settled.is_none() {
                let what = "was changed by somebody else after a handler of its group had committed its effects";
                noise.warn(Q::ENTITY, &format!("row {:?} {what}", row.key));
            }
            tally.count(settled.map_or(Turn::Interrupted, Turn::Settled));
        }
    }

    /// Records each row in a transaction of its own.
    fn record(&self, link: &mut Link<C>, noise: &Noise, rows: Vec<Decided<Q::Key>>, tally: &mut Tally) {
        for Decided { key, fence, settled, change, .. } in rows {
            tally.count(self.served.conclude(link, noise, key, fence, Rest::Record(settled, Box::new(change))));
        }
    }

    /// Finds out what a COMMIT came to whose answer was lost. Nothing has to be done about it: all rows have reached their
    /// new state, or all are as they were and due, so one of them tells for all.
    fn find_out(
        &self,
        link: &mut Link<C>,
        noise: &Noise,
        rows: Vec<Decided<Q::Key>>,
        cause: String,
        tally: &mut Tally,
    ) {
        let options = Q::Queue::OPTIONS;
        let committed = witness(&rows, &options).is_some_and(|row| {
            let rest = Rest::FindOut(row.settled, row.reached(&options), cause);
            matches!(self.served.conclude(link, noise, row.key.clone(), row.fence, rest), Turn::Settled(_))
        });
        if committed {
            return self.count(tally, &rows);
        }
        rows.iter().for_each(|_| tally.count(Turn::Interrupted));
    }
}

/// Why a group ended at its culprit.
fn why_ended(rest: &Rest) -> String {
    match rest {
        Rest::Postpone(cause) | Rest::FindOut(_, _, cause) => cause.clone(),
        Rest::Leave => "the poller took the transaction away".to_owned(),
        Rest::Record(..) | Rest::RecordReserved(..) => "a handler has ended its group's transaction".to_owned(),
    }
}

/// The row that tells whether its group was committed: best one that is not due again, because nobody has worked that
/// meanwhile.
fn witness<'a, K>(rows: &'a [Decided<K>], options: &Options) -> Option<&'a Decided<K>> {
    let moved = rows.iter().filter(|row| row.reached(options).is_none_or(|reached| !reached.reads_as(row.fence)));
    moved.max_by_key(|row| row.change.next == Some(Next::Never))
}

/// What the end of a group says of the next one's size.
fn lesson<K>(grouped: &Grouped<K>, size: u32) -> Option<Came> {
    let number = |rows: usize| u32::try_from(rows).unwrap_or(u32::MAX);
    Some(match &grouped.end {
        GroupEnd::Idle => Came::Idle,
        GroupEnd::NotClaimed(_) => return None,
        GroupEnd::Settled(rows) if rows.iter().any(|row| matches!(row.settled, Settled::Retried | Settled::Failed)) => {
            Came::WithFailure { of: size }
        }
        // One that was closed early is as large as it should be.
        GroupEnd::Settled(rows) => Came::Well { claimed: number(rows.len()), of: size },
        GroupEnd::Undone(Why::Conflict(_))
        | GroupEnd::Unknown(..)
        | GroupEnd::Untold { why: Some(Why::Conflict(_)), .. } => Came::Conflict,
        GroupEnd::Ended { culprit, .. } if matches!(culprit.rest, Rest::Postpone(_)) => Came::Conflict,
        GroupEnd::Undone(_) | GroupEnd::Ended { .. } | GroupEnd::Untold { .. } => Came::Undone(number(grouped.claimed)),
    })
}

impl<Q: QueueOn<C> + Send, C: QueueConnection> Lane<C> for GroupLane<Q, C> {
    fn entity(&self) -> &'static str {
        self.served.entity()
    }

    fn queue(&self) -> TypeId {
        self.served.queue()
    }

    fn recorded_as(&self) -> Option<&str> {
        self.served.recorded_as()
    }

    fn timeout(&self) -> Duration {
        self.served.timeout()
    }

    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>> {
        self.served.check(connection)
    }

    fn look(&self, connection: &mut C, thorough: bool) -> QueryResult<Option<Duration>> {
        self.served.look(connection, thorough)
    }

    fn sound(&self, connection: &mut C) -> QueryResult<()> {
        self.served.sound(connection)
    }

    fn turn(&self, link: &mut Link<C>, slot: &Slot, noise: &Noise, claimed: &dyn Fn() -> bool) -> Turn {
        let size = self.size().next(Instant::now());
        // Who is alone in the process is so for a suspect, and nobody else runs meanwhile.
        if size <= 1 || slot.recorder().is_strict() || slot.recorder().is_alone() {
            return self.turn_alone(link, slot, noise, claimed);
        }
        let (passed_over, reach) = (self.served.pauses.passed_over(), self.served.low_water.reach());
        let plan = self.served.plan(slot, false, &passed_over, &reach);
        let grouped = match link.session_as_it_is() {
            Ok(session) => work_group::<Q, C>(session, &plan, size, claimed),
            Err(error) => {
                noise.warn(Q::ENTITY, &failure_text(&error, 500));
                return Turn::Trouble;
            }
        };
        if !grouped.session_is_sound {
            link.close();
        }
        if grouped.given_up {
            return Turn::GivenUp;
        }
        if let Some(remark) = &grouped.remark {
            noise.warn(Q::ENTITY, remark);
        }
        if !matches!(grouped.end, GroupEnd::Settled(_) | GroupEnd::Idle) {
            // Its rows run next, one by one.
            self.served.ahead.forget();
        }
        // Of a group that was closed early, some rows were given back.
        if matches!(&grouped.end, GroupEnd::Settled(rows) if rows.len() == grouped.claimed) {
            reach.keep();
        }
        if let Some(came) = lesson(&grouped, size) {
            self.learn(came);
        }
        self.conclude(link, noise, grouped.end, grouped.begun)
    }

    fn give_up(&self, link: &mut Link<C>, slot: &Slot, noise: &Noise, row: Held) -> Result<Turn, Held> {
        let group = match row.downcast::<HeldGroup<Q>>() {
            Ok(group) => group,
            Err(row) => return self.served.give_up(link, slot, noise, row),
        };
        // Which of its handlers is the late one, and whether it had its time, shows when each runs alone.
        self.learn(Came::Undone(u32::try_from(group.claimed).unwrap_or(u32::MAX)));
        self.served.ahead.forget();
        Ok(Turn::Interrupted)
    }

    fn window(&self) -> Option<&'static str> {
        self.served.window()
    }

    fn channel(&self) -> QueryResult<Option<String>> {
        self.served.channel()
    }

    fn present(&self, connection: &mut C) -> QueryResult<DateTime<Utc>> {
        self.served.present(connection)
    }

    fn use_low_water_at_once(&mut self) {
        self.served.use_low_water_at_once();
    }

    fn serve_stages(&mut self, stages: Vec<&'static str>) {
        self.served.serve_stages(stages);
    }

    fn has_interrupted(&self) -> bool {
        self.served.has_interrupted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Fence;
    use crate::row::Status;
    use crate::statement::Change;

    fn decided(key: u32, settled: Settled, status: Status, next: Next) -> Decided<u32> {
        let change = Change { status: Some(status), try_count: Some(1), next: Some(next), ..Change::default() };
        Decided { key, fence: Fence::new(Status::NotAttempted, 0), settled, change, written: false }
    }

    #[test]
    fn a_row_that_somebody_may_have_worked_meanwhile_does_not_tell_for_its_group() {
        let retried = decided(1, Settled::Retried, Status::Error, Next::In(Duration::ZERO));
        let succeeded = decided(2, Settled::Succeeded, Status::Success, Next::Never);
        let again = Decided {
            change: Change::default(),
            ..decided(3, Settled::Again, Status::NotAttempted, Next::In(Duration::ZERO))
        };
        let key_of = |rows: &[Decided<u32>]| witness(rows, &Options::NONE).map(|row| row.key);
        let rows = [retried, succeeded, again];
        assert_eq!(key_of(&rows), Some(2));
        assert_eq!(key_of(&rows[..1]), Some(1));
        // It looks the same before and after.
        assert_eq!(key_of(&rows[2..]), None);
    }
}
