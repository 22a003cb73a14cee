//! A session whose connection async code can use.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::session_runtime::SessionRuntime;

/// A session of a poller over a connection of diesel-async's.
pub trait AsyncSession {
    /// The connection that async code uses.
    type AsyncConnection;

    /// Returns that connection.
    fn async_connection(&mut self) -> &mut Self::AsyncConnection;

    /// Returns what drives the futures of that connection.
    fn runtime(&self) -> SessionRuntime;

    /// Returns how many transactions are open, one in the other.
    fn open_transactions(&mut self) -> Option<u32>;

    /// Counts `open` transactions again if more are counted, or if the statement that begins or ends one was given up.
    /// Returns whether that was so.
    fn forget_transactions_above(&mut self, open: u32) -> bool;

    /// Checks that the server's next answer belongs to the next statement. `false`: a statement was given up, and the
    /// session sends no other.
    fn keeps_step(&mut self) -> bool;
}

/// Runs async code that has a session, and checks that it has ended each transaction that it began. Otherwise a future
/// was dropped in the middle of one, and what it has written must not be committed with the rest. `None` of the code means
/// that it was dropped itself, and that nothing of it will be committed.
///
/// # Panics
///
/// If the code has not ended a transaction. As many are counted as before, and nobody can rely on the session. Also if it
/// has given up a statement whose answer the next one would take for its own.
pub(crate) fn ending_transactions<P, S: AsyncSession, T>(
    place: &mut P,
    session: impl Fn(&mut P) -> &mut S,
    work: impl FnOnce(&mut P) -> Option<T>,
) -> Option<T> {
    let open = session(place).open_transactions();
    let answer = catch_unwind(AssertUnwindSafe(|| work(place)));
    let left_one = open.is_some_and(|open| session(place).forget_transactions_above(open));
    let keeps_step = matches!(answer, Ok(None)) || session(place).keeps_step();
    let answer = answer.unwrap_or_else(|panic| resume_unwind(panic));
    assert!(keeps_step, "async code has left a statement without its answer: a future was dropped before its end");
    assert!(
        !left_one || answer.is_none(),
        "async code has left a transaction open: a future was dropped before its end"
    );
    answer
}

/// Runs async code on a session's connection, and waits for it.
///
/// # Panics
///
/// Like [`ending_transactions`].
pub(crate) fn run_on<S: AsyncSession, T>(
    session: &mut S,
    work: impl AsyncFnOnce(&mut S::AsyncConnection) -> Option<T>,
) -> Option<T> {
    let runtime = session.runtime();
    ending_transactions(session, |session| session, |session| runtime.block_on(work(session.async_connection())))
}
