//! The three ways in which messages are worked, and what a handler is in each.

/// One message, one transaction: the default. For short handlers whose effects are in the database.
#[derive(Debug, Clone, Copy)]
pub enum TransactionMode {}

/// Many messages, one transaction, a savepoint for each: `#[queue(group = 50)]`. For many small handlers whose effects
/// are in the database.
///
/// The rows that are due are claimed together, their successes are written by one statement, and one commit makes all of it
/// last. Effects in the database still come exactly once, and a message that fails is undone alone. What is different from
/// [`TransactionMode`]:
///
/// - A group is never waited for. Its size follows the backlog: one message while little is due, twice as many each time the
///   group comes back full, half as many after a failure, at most what the attribute says (on PostgreSQL 60, because of what
///   more savepoints cost every other session).
/// - The timeout is the group's. A group whose handlers have used half of it is closed early, and a message that takes longer
///   than the rest is tried again alone, with all of it.
/// - Row locks that a handler takes live as long as the group. Handlers that update shared rows hold each other's groups
///   up, or deadlock: name the shared row's column by `order_in_group = company_id`, and the messages of a group are handled in
///   its order. Statements of a group wait a quarter of a second for a lock (on MySQL one second); after a longer wait, a
///   deadlock or a lost connection the group is rolled back, no try is used, and the entity's messages run one by one
///   for five seconds.
/// - After a crash the external calls of a whole group are repeated, not those of one message.
/// - While a group runs, its handlers see their own row's next attempt time and error text as the group has set them.
///
/// `#[queue(group(50, optimistic))]` gives the group one savepoint instead of one for each message: for handlers that seldom
/// fail and have effects in the database only. At the first failure the group is rolled back and its messages run one by one.
///
/// A handler that works on the whole group by a few statements implements
/// [`Handler::handle_group`](crate::Handler::handle_group) besides.
///
/// A handler that ends the group's transaction, by `COMMIT` or by DDL on MySQL, is found out: its message fails, and the
/// messages before it succeed if it has committed their effects, and run again if not. Where nobody can tell which handler it
/// was, in `handle_group`, or in an optimistic group on MySQL and SQLite, every message that was handled becomes `FAILED` with a
/// text that says that its effects may be committed.
///
/// PostgreSQL refuses the `COMMIT` of a group's handler, rolls the group back and ends the session: a handler that ignores the
/// error writes nothing more, and all messages but its own run again. Its own fails with a text that says so, or, if the handler
/// has used the connection again, runs again alone, as in [`TransactionMode`]. This takes a cursor that is open while the group
/// runs. `CLOSE ALL` and `DISCARD ALL` in a handler close it: the group is then not committed, its messages run one by one, and
/// the log says why. After a `ROLLBACK` of a handler's nothing is protected any more: what it writes then, or commits after a
/// `BEGIN` of its own, stays. Where the right to call `pg_terminate_backend` was revoked, which everybody has otherwise, the
/// session does not end with a refusal, and what is written after it stays, too.
#[derive(Debug, Clone, Copy)]
pub enum GroupMode {}

/// The claim is committed, the work runs without a transaction, its end is written in a short one:
/// `#[queue(lease = "60s")]`. For handlers that call the outside world or take long.
#[derive(Debug, Clone, Copy)]
pub enum LeaseMode {}
