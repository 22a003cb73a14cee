//! The three modes in which messages are handled, and what a handler is in each.

/// One message, one transaction: the default. It is for short handlers whose effects are in the database.
#[derive(Debug, Clone, Copy)]
pub enum TransactionMode {}

/// Many messages, one transaction, a savepoint for each: `#[queue(group = 50)]`. It is for many small handlers whose
/// effects are in the database.
///
/// A worker claims the due rows together, writes their successes by one statement, and commits once for all of them.
/// Effects in the database still happen exactly once, and a message that fails is undone alone. The differences from
/// [`TransactionMode`] are:
///
/// - A worker never waits for a group to fill up. The group's size follows the backlog: one message while little is
///   due, twice as many each time the group comes back full, half as many after a failure, at most what the attribute
///   says (on PostgreSQL 60, because more savepoints slow down every other session).
/// - The timeout is the group's. A group whose handlers have used half of it is closed early, and a message that takes
///   longer than the rest is tried again alone, with the whole timeout.
/// - Row locks that a handler takes last as long as the group. Handlers that update shared rows block each other's
///   groups, or deadlock. Name the shared row's column by `order_in_group = company_id`, and the worker handles the
///   messages of a group in its order. Statements of a group wait a quarter of a second for a lock (on MySQL one
///   second). After a longer wait, a deadlock or a lost connection the group is rolled back, no try is used, and the
///   entity's messages run one by one for five seconds.
/// - After a crash the external calls of a whole group are repeated, not those of one message.
/// - While a group runs, its handlers see their own row's next attempt time and error text as the group has set them.
///
/// `#[queue(group(50, optimistic))]` gives the group one savepoint instead of one for each message: for handlers that seldom
/// fail and have effects in the database only. At the first failure the group is rolled back and its messages run one by one.
///
/// A handler that processes the whole group by a few statements implements
/// [`Handler::handle_group`](crate::Handler::handle_group) too.
///
/// The worker detects a handler that ends the group's transaction, by `COMMIT` or by DDL on MySQL. That handler's
/// message fails. The messages before it succeed if the handler has committed their effects, and run again if not. In
/// `handle_group`, and in an optimistic group on MySQL and SQLite, the worker cannot tell which handler it was. Every
/// message that was handled then becomes `FAILED`, with a text that says that its effects may be committed.
///
/// PostgreSQL refuses the `COMMIT` of a group's handler, rolls the group back and ends the session: a handler that
/// ignores the error writes nothing more, and all messages but its own run again. Its own message fails with a text
/// that says so. If the handler has used the connection again, its message runs again alone instead, as in
/// [`TransactionMode`].
///
/// This protection is a cursor that is open while the group runs. `CLOSE ALL` and `DISCARD ALL` in a handler close it.
/// The worker then does not commit the group, runs its messages one by one, and logs why. After a handler's `ROLLBACK`
/// nothing is protected any more: what the handler writes then, or commits after a `BEGIN` of its own, stays. The
/// session ends only if the poller's role may call `pg_terminate_backend`, as every role may by default. Where that right
/// was revoked, the session goes on after a refusal, and what is written after it stays, too.
#[derive(Debug, Clone, Copy)]
pub enum GroupMode {}

/// The claim is committed, the work runs without a transaction, and a short transaction writes its result:
/// `#[queue(lease = "60s")]`. It is for handlers that call external services or take long.
#[derive(Debug, Clone, Copy)]
pub enum LeaseMode {}
