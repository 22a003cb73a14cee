//! The answers of several calls, as the messages of a batch: each is applied to its row, if that is still as it was claimed.

use std::cell::Cell;
use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::calls::EndedCall;
use super::leased_rows::{LeasedRow, WatchedRow};
use super::runner::{LateRow, LeaseRunner};
use crate::attempt::Slot;
use crate::backend::{Dialect, QueueConnection, Session};
use crate::batch::{AsItIsNow, BatchBody, BatchRow};
use crate::entity::Key;
use crate::handler::{Answered, HandlerResult, Message};
use crate::row::idempotency_key;
use crate::sync::in_test::note_begun;
use crate::sync::{InTurn, Mutex, fail_point};

/// How long a transaction takes up more answers.
const TAKES_UP_FOR: Duration = Duration::from_millis(20);

/// The same if the server is far away: as long as it takes to lock this many rows, and at most [`TAKES_UP_FOR_AT_MOST`].
const LOCKS_IN_TIME: u32 = 256;

const TAKES_UP_FOR_AT_MOST: Duration = Duration::from_secs(1);

/// How many rows are locked together. The heartbeat extends the leases of the others.
const LOCKED_TOGETHER: usize = 16;

/// The answers of a batch. The thread that gives up a handler which does not return takes them, so that other workers apply them
/// anew.
pub(super) struct Answers<K> {
    /// Those that are to be applied.
    pub(super) next: VecDeque<NextAnswer<K>>,
    /// Those that were applied, the last of which may have failed.
    pub(super) applied: Vec<EndedCall<K>>,
    /// Those that another turn has to deal with: their rows are not as they were claimed, or their leases have ended.
    pub(super) aside: Vec<EndedCall<K>>,
    /// The row of which that thread has recorded that its handler is late.
    pub(super) given_up: Option<Arc<LeasedRow<K>>>,
}

pub(super) type SharedAnswers<K> = Arc<Mutex<Answers<K>>>;

impl<K> Answers<K> {
    pub(super) fn of(next: VecDeque<NextAnswer<K>>) -> Self {
        Answers { next, applied: Vec::new(), aside: Vec::new(), given_up: None }
    }

    /// Takes those that are not begun.
    pub(super) fn take_next(&mut self) -> Vec<EndedCall<K>> {
        self.next.drain(..).map(|next| next.ended).collect()
    }

    /// Takes the others.
    pub(super) fn take_begun(&mut self) -> Vec<EndedCall<K>> {
        self.applied.drain(..).chain(self.aside.drain(..)).collect()
    }
}

/// An answer that is to be applied.
pub(super) struct NextAnswer<K> {
    pub(super) ended: EndedCall<K>,
    /// Whether its row was as it was claimed when the transaction locked it; `None` before that.
    pub(super) is_locked: Option<bool>,
}

/// The answers that are to be applied, one after the other.
pub(super) struct NextAnswers<K>(pub(super) SharedAnswers<K>);

impl<K> Iterator for NextAnswers<K> {
    type Item = NextAnswer<K>;

    fn next(&mut self) -> Option<NextAnswer<K>> {
        self.0.lock().next.pop_front()
    }
}

/// A row whose answer is being applied after others, for the thread that records that its handler is late.
pub(crate) struct LateBatch<K> {
    pub(super) late: LateRow<K>,
    pub(super) answers: SharedAnswers<K>,
}

/// What the answers of one batch are applied by.
pub(super) struct Applying<'a, 'h, K: Key, C: QueueConnection> {
    pub(super) runner: &'a LeaseRunner<'h, K, C>,
    pub(super) answers: SharedAnswers<K>,
    /// How long the transaction takes up more answers. Handlers that take long to apply theirs are for all workers.
    pub(super) takes_up_for: Cell<Duration>,
    /// Whether another thread can put the answers back.
    can_be_put_back: Cell<bool>,
}

impl<'a, 'h, K: Key, C: QueueConnection> Applying<'a, 'h, K, C> {
    pub(super) fn new(runner: &'a LeaseRunner<'h, K, C>, answers: SharedAnswers<K>) -> Self {
        let (takes_up_for, can_be_put_back) = (Cell::new(TAKES_UP_FOR), Cell::default());
        Applying { runner, answers, takes_up_for, can_be_put_back }
    }

    /// Locks the row of this answer, and those of the next ones where one statement does. Returns whether it is as it was claimed.
    ///
    /// MySQL waits for each locked row that a reading statement passes, and several keys may make it pass others.
    fn lock(&self, session: &mut Session<C>, row: &WatchedRow<K>, is_first: bool) -> QueryResult<bool> {
        let others = if C::Backend::REFUSES_COMMITS { LOCKED_TOGETHER - 1 } else { 0 };
        let rows: Vec<_> = {
            let answers = self.answers.lock();
            let next = answers.next.iter().take(others).map(|next| &next.ended.row);
            // If the database does not answer from here on, their leases end.
            let rows = iter::once(row).chain(next).inspect(|row| {
                let _ = row.clock.answered();
            });
            rows.map(|row| (row.key.clone(), row.fence)).collect()
        };
        let (sent, queue) = (Instant::now(), self.runner.served.queue);
        let locked = match &*rows {
            [(key, fence)] => queue.is_still(session, key, *fence)?.then_some(0).into_iter().collect(),
            rows => queue.lock_still(session, &rows.iter().map(|(key, fence)| (key, *fence)).collect::<Vec<_>>())?,
        };
        if is_first {
            let times = LOCKS_IN_TIME / u32::try_from(others + 1).unwrap_or(1);
            self.takes_up_for.set(TAKES_UP_FOR.max((sent.elapsed() * times).min(TAKES_UP_FOR_AT_MOST)));
        }
        let mut answers = self.answers.lock();
        for (place, next) in answers.next.iter_mut().take(rows.len() - 1).enumerate() {
            next.is_locked = Some(locked.contains(&(place + 1)));
        }
        Ok(locked.contains(&0))
    }

    /// Returns the rows of the answers that are to be applied.
    pub(super) fn rows(&self) -> Vec<BatchRow<K>> {
        let answers = self.answers.lock();
        let answered = answers.next.iter().filter_map(|NextAnswer { ended, .. }| Some((&ended.row, ended.answer()?)));
        let key_prefix = &self.runner.served.info.key_prefix;
        let row = |(row, answered): (&WatchedRow<K>, &Answered)| BatchRow {
            key: row.key.clone(),
            fence: row.fence,
            before: row.before,
            tries: row.tries,
            state: answered.message.1.clone(),
            details: row.details.clone(),
            idempotency_key: idempotency_key(key_prefix, &row.key, &row.details),
            watch: row.watch.clone(),
        };
        answered.map(row).collect()
    }
}

impl<K: Key, C: QueueConnection> BatchBody<K, C> for Applying<'_, '_, K, C> {
    type Entity = NextAnswer<K>;
    type Entities = NextAnswers<K>;

    // The next calls are made in no transaction.
    const BEGINS_NEXT: bool = false;

    /// Each has the whole timeout.
    fn begin(&self, slot: &Slot, NextAnswer { ended, .. }: &NextAnswer<K>, _row: &BatchRow<K>) {
        let late = LateRow { row: ended.row.clone(), timeout: self.runner.served.info.timeout };
        slot.hold_next(Box::new(LateBatch { late, answers: self.answers.clone() }), &ended.row.watch);
        if !self.can_be_put_back.replace(true) {
            // The heartbeat goes on extending the leases of those that wait.
            let answers = self.answers.lock();
            let waiting = answers.next.iter().filter(|next| next.is_locked.is_none());
            waiting.for_each(|next| next.ended.row.clock.awaits_writing());
        }
    }

    fn call(&self, next: &NextAnswer<K>, message: &mut Message<'_, C>) -> HandlerResult {
        let answered = next.ended.answer().expect("only calls with an answer are taken");
        note_begun(next.ended.row.key.text());
        let _in_turn = InTurn::begin();
        self.runner.handler.apply(&answered.message.0, &answered.answer, message)
    }

    fn take_back(&self, next: NextAnswer<K>) {
        self.answers.lock().applied.push(next.ended);
    }

    fn has_time(&self, open_for: Duration) -> bool {
        let has_time = open_for < self.takes_up_for.get();
        if !has_time {
            // The first ones took long, so the others are for other workers.
            let mut answers = self.answers.lock();
            let left = answers.take_next();
            answers.aside.extend(self.runner.calls.hand_on(left));
        }
        has_time
    }

    /// Leaves an answer aside whose lease has ended meanwhile, or whose row was changed.
    fn as_it_is_now(
        &self,
        session: &mut Session<C>,
        is_first: bool,
        NextAnswer { ended, is_locked }: NextAnswer<K>,
        _row: &BatchRow<K>,
    ) -> QueryResult<AsItIsNow<NextAnswer<K>, K>> {
        let (row, may_join) = (ended.row.clone(), ended.may_join());
        // Where it is not lost if the statement fails or panics.
        self.answers.lock().aside.push(ended);
        let is_still = match is_locked {
            _ if !may_join => false,
            Some(is_still) => is_still,
            None => {
                let is_still = self.lock(session, &row, is_first)?;
                fail_point("lease-locked");
                is_still
            }
        };
        let ended = if is_still { self.answers.lock().aside.pop() } else { None };
        Ok(ended.map(|ended| (NextAnswer { ended, is_locked: Some(true) }, None)))
    }
}
