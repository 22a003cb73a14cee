//! The macros.

/// Asserts that a row of an entity is pending: that it has a next attempt time, due or not.
///
/// It takes the test's connection, the entity, a condition on its rows, and options. The condition is any that
/// [`QueueRows::filter`](crate::QueueRows::filter) takes, and may be left out. Each option is `name = value`, in any order:
///
/// | option | asks for |
/// |---|---|
/// | `times = 2` | so many rows, no more and no less. Without it, one row or more |
/// | `at = time` | rows that are due then: a `DateTime` of any time zone, or a `SystemTime` |
/// | `in = "10s"` | rows that are due so long after the present |
/// | `in = "10s".."20s"` | rows that are due between these two, which count too; `"10s"..` and `.."20s"` have one end |
/// | `within = "1m"` | alone: rows that are due by then, or already. Beside `at` or `in`: by how much the time may differ |
///
/// The present is that of the [test's clock](crate::testing::now). A length of time is a text such as `"10s"` or `"1h 30m"`, a
/// `TimeDelta` such as [`minutes(5)`](crate::testing::minutes), or a `Duration`. Beside `at` and `in`, times may differ by a second,
/// because a test takes some time itself; [`freeze`](crate::testing::freeze) and `within = "0s"` make them exact. SQLite's times
/// have milliseconds.
///
/// # Panics
///
/// If there are no such rows. The message says what was asked, and shows at most five rows that are there instead: those that match
/// all but the time; or those that match and are not pending, and the pending ones that come next. Each has its state, the columns
/// that the condition names, and what [`explain`](crate::Queueable::explain) says of it.
///
/// # Examples
///
/// ```
/// use queueable::testing::{self, assert_enqueued};
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{Migrations, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64, company_id: i64 }
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
/// # let connection = &mut connection;
/// connection.begin_test_transaction()?;
/// for (id, minutes) in [(1, 5), (2, 90)] {
///     let payment = (payments::id.eq(id), payments::company_id.eq(3345));
///     let due = Payment::due_in(std::time::Duration::from_secs(60 * minutes));
///     diesel::insert_into(payments::table).values((payment, due)).execute(connection)?;
/// }
/// let in_an_hour_and_a_half = testing::now(connection)? + testing::minutes(90);
///
/// assert_enqueued!(connection, Payment);
/// assert_enqueued!(connection, Payment, payments::company_id.eq(3345), times = 2);
/// assert_enqueued!(connection, Payment, payments::company_id.eq(3345), in = "1m".."10m");
/// assert_enqueued!(connection, Payment, at = in_an_hour_and_a_half, times = 1);
/// assert_enqueued!(connection, Payment, payments::id.eq(1), within = "10m");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// ```should_panic
/// # use queueable::testing::assert_enqueued;
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{Migrations, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # let mut connection = SqliteConnection::establish(":memory:").unwrap();
/// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)").unwrap();
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap();
/// # let connection = &mut connection;
/// diesel::insert_into(payments::table).values(payments::id.eq(7)).execute(connection).unwrap(); // and nothing enqueues it
/// assert_enqueued!(connection, Payment, payments::id.eq(7));
/// // expected a pending row of Payment with (`payments`.`id` = 7)
/// // found none, at 2030-01-02 03:00:00.000 UTC by the clock of the test
/// // these match and are not pending:
/// //   Payment 7: NOT_ATTEMPTED, no next attempt, id = 7; explain: not queued
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! __assert_enqueued {
    ($connection:expr, $entity:ty $(,)?) => {
        $crate::__check_enqueued!(enqueued($connection, $entity, |rows| rows,))
    };
    ($connection:expr, $entity:ty, $option:ident = $($options:tt)+) => {
        $crate::__check_enqueued!(enqueued($connection, $entity, |rows| rows, $option = $($options)+))
    };
    ($connection:expr, $entity:ty, $filter:expr $(, $($options:tt)*)?) => {
        $crate::__check_enqueued!(enqueued($connection, $entity, |rows| rows.filter($filter), $($($options)*)?))
    };
}

/// Asserts that no row of an entity is pending for which a condition holds, or that none is due at a time.
///
/// It takes what [`assert_enqueued!`](crate::testing::assert_enqueued) takes, without `times`.
///
/// # Panics
///
/// If there is such a row. The message shows at most five of them.
///
/// ```
/// use queueable::testing::refute_enqueued;
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{Migrations, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64, company_id: i64 }
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
/// # let connection = &mut connection;
/// connection.begin_test_transaction()?;
/// let payment = (payments::id.eq(1), payments::company_id.eq(3345));
/// let due = Payment::due_in(std::time::Duration::from_secs(3600));
/// diesel::insert_into(payments::table).values((payment, due)).execute(connection)?;
///
/// refute_enqueued!(connection, Payment, payments::company_id.eq(7));
/// refute_enqueued!(connection, Payment, payments::company_id.eq(3345), within = "30m");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! __refute_enqueued {
    ($connection:expr, $entity:ty $(,)?) => {
        $crate::__check_enqueued!(not_enqueued($connection, $entity, |rows| rows,))
    };
    ($connection:expr, $entity:ty, $option:ident = $($options:tt)+) => {
        $crate::__check_enqueued!(not_enqueued($connection, $entity, |rows| rows, $option = $($options)+))
    };
    ($connection:expr, $entity:ty, $filter:expr $(, $($options:tt)*)?) => {
        $crate::__check_enqueued!(not_enqueued($connection, $entity, |rows| rows.filter($filter), $($($options)*)?))
    };
}

/// Asserts what has become of a row: its status, and a part of the text of its last failure.
///
/// It takes the test's connection, the entity, the key as the entity has it (a tuple, if the key has several columns), a
/// [`Status`](crate::Status), whose path may be left out, and the text, if the failure matters. A row that the queue has moved to an
/// [archive](derive@crate::Queueable) is looked for there. One that it has deleted is missing.
///
/// # Panics
///
/// If the row is in another state, or missing. The message shows it, and what [`explain`](crate::Queueable::explain) says of it.
///
/// ```
/// use queueable::testing::{TestQueue, assert_settled};
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{Failure, HandlerResult, Message, Migrations, Outcome, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// fn charge(payment: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
///     if payment.id == 2 { Err(Failure::fatal(std::io::Error::other("card declined"))) } else { Ok(Outcome::Done) }
/// }
///
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
/// # let connection = &mut connection;
/// connection.begin_test_transaction()?;
/// for id in [1, 2] {
///     diesel::insert_into(payments::table).values((payments::id.eq(id), Payment::due_now())).execute(connection)?;
/// }
/// Payment::drain(connection, &charge)?;
///
/// assert_settled!(connection, Payment, 1, Success);
/// assert_settled!(connection, Payment, 2, Failed, "card declined");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! __assert_settled {
    ($connection:expr, $entity:ty, $key:expr, $status:path $(,)?) => {
        $crate::__check_settled!($connection, $entity, $key, $status, ::core::option::Option::None)
    };
    ($connection:expr, $entity:ty, $key:expr, $status:path, $error:expr $(,)?) => {
        $crate::__check_settled!(
            $connection,
            $entity,
            $key,
            $status,
            ::core::option::Option::Some(::core::convert::AsRef::<str>::as_ref(&$error))
        )
    };
}

/// Asserts when a row is due next.
///
/// It takes the test's connection, the entity, the key as [`assert_settled!`](crate::testing::assert_settled) does, and `at`, `in` or
/// `within` as [`assert_enqueued!`](crate::testing::assert_enqueued) does.
///
/// # Panics
///
/// If the row is due at another time, not pending, or missing. The message shows it, and what
/// [`explain`](crate::Queueable::explain) says of it.
///
/// ```
/// use queueable::testing::{TestQueue, assert_next};
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{HandlerResult, Message, Migrations, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// #[derive(Queryable, Selectable, Queueable)]
/// #[queue(retry = fixed("15s"))]
/// struct Payment { id: i64 }
///
/// fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
///     Err(std::io::Error::other("card declined").into())
/// }
///
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
/// # let connection = &mut connection;
/// connection.begin_test_transaction()?;
/// diesel::insert_into(payments::table).values((payments::id.eq(1), Payment::due_now())).execute(connection)?;
/// Payment::drain(connection, &charge)?;
///
/// assert_next!(connection, Payment, 1, in = "10s".."20s");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! __assert_next {
    ($connection:expr, $entity:ty, $key:expr $(,)?) => {
        ::core::compile_error!("say when the row is due: `at = ..`, `in = ..` or `within = ..`")
    };
    ($connection:expr, $entity:ty, $key:expr, $($options:tt)+) => {
        match (&$key, $crate::__asked!(next, $crate::testing::__assert::Asked::new(), $($options)+)) {
            (key, asked) => $crate::testing::__assert::passes($crate::testing::__assert::next::<$entity, _>(
                &mut *$connection,
                key,
                asked,
            )),
        }
    };
}

/// Asserts that no row of an entity is due, or of several.
///
/// A row that waits for a later time, by the [test's clock](crate::testing::now), is not due. One that is due and kept back, by a pause
/// or a window for example, is.
///
/// # Panics
///
/// If a row is due. The message shows at most five of each entity, and why each of them does not run.
///
/// ```
/// use queueable::testing::{self, assert_nothing_due, hours};
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{Migrations, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # diesel::table! { emails (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # #[derive(Queryable, Selectable, Queueable)] struct Email { id: i64 }
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL);
/// #     CREATE TABLE emails (id INTEGER PRIMARY KEY NOT NULL)")?;
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>().entity::<Email>())?;
/// # let connection = &mut connection;
/// connection.begin_test_transaction()?;
/// let due = Payment::due_in(std::time::Duration::from_secs(3600));
/// diesel::insert_into(payments::table).values((payments::id.eq(1), due)).execute(connection)?;
///
/// assert_nothing_due!(connection, Payment, Email);
/// testing::travel(connection, hours(1));
/// assert_nothing_due!(connection, Email);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! __assert_nothing_due {
    ($connection:expr, $($entity:ty),+ $(,)?) => {
        match &mut *$connection {
            connection => $crate::testing::__assert::passes($crate::testing::__assert::all([
                $($crate::testing::__assert::nothing_due::<$entity, _>(&mut *connection)),+
            ])),
        }
    };
}

/// Calls a check on the pending rows of an entity. What the caller writes is evaluated before the connection is borrowed.
#[macro_export]
#[doc(hidden)]
macro_rules! __check_enqueued {
    ($check:ident($connection:expr, $entity:ty, |$rows:ident| $selected:expr, $($options:tt)*)) => {
        match (
            match <$entity as $crate::Queueable>::queue() {
                $rows => $selected,
            },
            $crate::__asked!($check, $crate::testing::__assert::Asked::new(), $($options)*),
        ) {
            (rows, asked) => {
                $crate::testing::__assert::passes($crate::testing::__assert::$check(&mut *$connection, rows, asked))
            }
        }
    };
}

/// Calls the check on a row's status.
#[macro_export]
#[doc(hidden)]
macro_rules! __check_settled {
    ($connection:expr, $entity:ty, $key:expr, $status:path, $error:expr) => {
        match (
            &$key,
            {
                #[allow(unused_imports)]
                use $crate::Status::*;
                $status
            },
            $error,
        ) {
            (key, status, error) => $crate::testing::__assert::passes(
                $crate::testing::__assert::settled::<$entity, _>(&mut *$connection, key, status, error),
            ),
        }
    };
}

/// Reads the options of an assertion.
#[macro_export]
#[doc(hidden)]
macro_rules! __asked {
    ($check:ident, $asked:expr, $(,)?) => {
        $asked
    };
    ($check:ident, $asked:expr, at = $time:expr $(, $($rest:tt)*)?) => {
        $crate::__asked!($check, $asked.at($time), $($($rest)*)?)
    };
    ($check:ident, $asked:expr, in = $lengths:expr $(, $($rest:tt)*)?) => {
        $crate::__asked!($check, $asked.due_in($lengths), $($($rest)*)?)
    };
    ($check:ident, $asked:expr, within = $length:expr $(, $($rest:tt)*)?) => {
        $crate::__asked!($check, $asked.within($length), $($($rest)*)?)
    };
    (enqueued, $asked:expr, times = $rows:expr $(, $($rest:tt)*)?) => {
        $crate::__asked!(enqueued, $asked.times($rows), $($($rest)*)?)
    };
    (not_enqueued, $asked:expr, times = $($rest:tt)*) => {
        ::core::compile_error!("no row may be pending here, so `times` says nothing: use `assert_enqueued!` to count rows")
    };
    (enqueued, $asked:expr, $($other:tt)*) => {
        ::core::compile_error!("expected the options `at = ..`, `in = ..`, `within = ..` or `times = ..`, with commas between them")
    };
    ($check:ident, $asked:expr, $($other:tt)*) => {
        ::core::compile_error!("expected the options `at = ..`, `in = ..` or `within = ..`, with commas between them")
    };
}
