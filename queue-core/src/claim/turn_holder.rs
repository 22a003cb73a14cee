//! Finds the session that blocks an exclusive queue: anybody who can connect to the database can take the queue's lock,
//! and keep it.

use std::time::{Duration, Instant};

use diesel::connection::TransactionManager;
use diesel::result::QueryResult;

use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::statement::ErasedQueue;
use crate::sync::Mutex;

/// The time between two looks: a worker holds the lock for a moment without a row of its own.
const TURN_HOLDER_LOOK: Duration = Duration::from_secs(5);

/// The time between two lines in the log.
const TURN_HOLDER_WARNING: Duration = Duration::from_secs(60);

/// The session that holds the lock of one queue, as far as it is known.
pub(crate) struct TurnHolder<K: Key, C: QueueConnection> {
    queue: &'static ErasedQueue<K, C>,
    state: Mutex<State>,
}

struct State {
    next_look: Instant,
    /// The session that held the lock at the last look, and the row that was first in line.
    seen: Option<(String, String)>,
}

impl<K: Key, C: QueueConnection> TurnHolder<K, C> {
    pub(crate) fn new(queue: &'static ErasedQueue<K, C>) -> Self {
        TurnHolder { queue, state: Mutex::new(State { next_look: Instant::now() + TURN_HOLDER_LOOK, seen: None }) }
    }

    /// Looks up the session that holds the lock of a queue whose first row is due, and logs a warning if that session
    /// does not process the row.
    pub(crate) fn look(&self, connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<()> {
        let now = Instant::now();
        {
            let mut state = self.state.lock();
            if !self.queue.sql.options.exclusive || now < state.next_look {
                return Ok(());
            }
            state.next_look = now + TURN_HOLDER_LOOK;
        }
        let found = self.idle_holder(connection, stages)?;
        let mut state = self.state.lock();
        if let (Some((session, _)), true) = (&found, found == state.seen) {
            tracing::warn!(
                entity = self.queue.sql.entity,
                "no message is processed: the lock of this exclusive queue is held by {session}, which processes none \
                 of its rows"
            );
            state.next_look = now + TURN_HOLDER_WARNING;
        }
        state.seen = found;
        Ok(())
    }

    /// Returns the session that holds the lock while no worker processes the first row, and that row.
    fn idle_holder(
        &self,
        connection: &mut C,
        stages: Option<&[&'static str]>,
    ) -> QueryResult<Option<(String, String)>> {
        let Some(session) = self.queue.exclusion_holder(connection)? else { return Ok(None) };
        let Some(head) = self.queue.head(connection, stages)? else { return Ok(None) };
        if self.queue.another_is_leased(connection, None)? {
            return Ok(None);
        }
        connection.begin()?;
        let free = self.queue.recall_unless_locked(connection, &head);
        C::TransactionManager::rollback_transaction(connection)?;
        Ok(free?.map(|_| (session, head.text().to_string())))
    }
}
