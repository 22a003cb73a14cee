//! How a worker's transactions are committed, and how those of a group begin.

use diesel::connection::TransactionManager;
use diesel::result::QueryResult;

use super::{Begun, Session};
use crate::backend::connection::QueueConnection;
use crate::backend::dialect::Dialect;
use crate::sync::in_test::{FailedCommit, take_failed_commit};

impl<C: QueueConnection> Session<'_, C> {
    /// Commits. If it costs nothing, the next transaction begins with the commit.
    pub(crate) fn commit(&mut self) -> QueryResult<()> {
        self.unless_it_fails(Self::commit_and_go_on)
    }

    fn commit_and_go_on(&mut self) -> QueryResult<()> {
        if C::Backend::COMMITS_AND_BEGINS && !self.is_of_test() && self.is_in_our_transaction_alone() {
            self.connection.commit_and_begin()?;
            self.next.has_begun = Some(Begun::Message);
            return Ok(());
        }
        C::TransactionManager::commit_transaction(&mut *self.connection)
    }

    /// Commits, and begins nothing.
    pub(crate) fn commit_alone(&mut self) -> QueryResult<()> {
        self.unless_it_fails(|session| C::TransactionManager::commit_transaction(&mut *session.connection))
    }

    /// Commits, unless a test has the commit refused. It may also have the answer lost.
    fn unless_it_fails(&mut self, commit: impl FnOnce(&mut Self) -> QueryResult<()>) -> QueryResult<()> {
        match take_failed_commit() {
            None => commit(self),
            Some(FailedCommit { error, is_committed: true }) => commit(self).and(Err(error)),
            Some(FailedCommit { error, is_committed: false }) => {
                C::TransactionManager::rollback_transaction(&mut *self.connection).and(Err(error))
            }
        }
    }

    /// Begins a group's transaction in the same way, see [`QueueConnection::begin_impatiently`].
    pub(crate) fn begin_group(&mut self) -> QueryResult<()> {
        let wait = self.group_lock_timeout();
        if self.try_continue(Begun::Group(wait))? {
            return Ok(());
        }
        if self.is_of_test() {
            return self.connection.begin();
        }
        self.is_impatient = true;
        self.connection.begin_impatiently(wait)
    }

    /// Commits a group. If `goes_on` and it costs nothing, the next group's transaction begins with the commit.
    pub(crate) fn commit_group(&mut self, goes_on: bool) -> QueryResult<()> {
        self.unless_it_fails(|session| session.commit_group_and_go_on(goes_on))
    }

    fn commit_group_and_go_on(&mut self, goes_on: bool) -> QueryResult<()> {
        if self.is_of_test() || !self.is_in_our_transaction_alone() {
            // A handler has left its own transaction open, or has ended the group's. The commit reports which.
            return C::TransactionManager::commit_transaction(&mut *self.connection);
        }
        let wait = goes_on.then(|| self.group_lock_timeout());
        if self.connection.commit_group(wait)? {
            self.next.has_begun = wait.map(Begun::Group);
        }
        Ok(())
    }
}
