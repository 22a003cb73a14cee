//! The clock of a test.

use chrono::{DateTime, TimeDelta, Utc};
use queue_core::internals::testing;

use crate::Error;
use crate::bounds::AsQueueConnection;

/// Moves the queue's clock in this test on by a duration; back, if the duration is negative.
///
/// From now on, "now" is that much later for every statement of the library on this thread: for the due times that an insert
/// gives ([`due_now`](crate::Queueable::due_now), [`due_in`](crate::Queueable::due_in)), for what is due, for backoff, schedules,
/// windows, leases, reports and [`explain`](crate::Queueable::explain). The rows stay as they are. The application's own SQL
/// and `SystemTime::now()` in a handler know nothing of it.
///
/// All connections of a thread follow one clock. It ends with [`travel_back`], and with the connection that has moved it first; if
/// that one has moved it in a transaction, it ends with the transaction too. Tests on other threads never notice it. To know when the transaction ends, it takes the connection's
/// [instrumentation](diesel::connection::Instrumentation).
///
/// ```
/// use queueable::testing::{self, TestQueue, hours};
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{HandlerResult, Message, Migrations, Outcome, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
/// connection.begin_test_transaction()?;
/// let in_an_hour = Payment::due_in(std::time::Duration::from_secs(3600));
/// diesel::insert_into(payments::table).values((payments::id.eq(1), in_an_hour)).execute(&mut connection)?;
///
/// assert_eq!(Payment::drain(&mut connection, &charge)?.attempts.len(), 0);
/// testing::travel(&mut connection, hours(1));
/// assert_eq!(Payment::drain(&mut connection, &charge)?.attempts.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub fn travel(connection: &mut impl AsQueueConnection, by: TimeDelta) {
    testing::travel(connection.as_queue_connection(), by);
}

/// Moves the queue's clock in this test to a time, as [`travel`] does. From there it goes on, unless it [stands
/// still](freeze).
///
/// # Errors
///
/// [`Error::Database`].
///
/// ```
/// # use diesel::prelude::*;
/// use queueable::testing;
///
/// let mut connection = SqliteConnection::establish(":memory:")?;
/// let night: chrono::DateTime<chrono::Utc> = "2030-01-02T03:00:00Z".parse()?;
/// testing::travel_to(&mut connection, night)?;
/// assert!(testing::now(&mut connection)? - night < testing::minutes(1));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub fn travel_to(connection: &mut impl AsQueueConnection, time: impl Into<DateTime<Utc>>) -> Result<(), Error> {
    Ok(testing::travel_to(connection.as_queue_connection(), time.into())?)
}

/// Stops the queue's clock in this test, so that two times of it can be compared for equality. [`travel`] and [`travel_to`]
/// move a clock that stands still, and it stands still there. It ends as they do.
///
/// # Errors
///
/// [`Error::Database`].
///
/// ```
/// # use diesel::prelude::*;
/// use queueable::testing;
///
/// let mut connection = SqliteConnection::establish(":memory:")?;
/// testing::freeze(&mut connection)?;
/// let before = testing::now(&mut connection)?;
/// testing::travel(&mut connection, testing::seconds(90));
/// assert_eq!(testing::now(&mut connection)?, before + testing::seconds(90));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub fn freeze(connection: &mut impl AsQueueConnection) -> Result<(), Error> {
    Ok(testing::freeze(connection.as_queue_connection())?)
}

/// Has the queue's clock of this thread agree with the database's again.
///
/// ```
/// queueable::testing::travel_back();
/// ```
pub fn travel_back() {
    testing::travel_back();
}

/// Reads the queue's clock of this test: the database's, as far as it was not [moved](travel).
///
/// # Errors
///
/// [`Error::Database`].
///
/// ```
/// # use diesel::prelude::*;
/// let mut connection = SqliteConnection::establish(":memory:")?;
/// println!("{}", queueable::testing::now(&mut connection)?);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub fn now(connection: &mut impl AsQueueConnection) -> Result<DateTime<Utc>, Error> {
    Ok(testing::present(connection.as_queue_connection())?)
}

macro_rules! durations {
    ($($name:ident $unit:literal;)*) => {$(
        #[doc = concat!("So many ", $unit, ", for [`travel`].")]
        ///
        /// ```
        #[doc = concat!("assert_eq!(queueable::testing::", stringify!($name), "(2), chrono::TimeDelta::", stringify!($name), "(2));")]
        /// ```
        pub const fn $name(number: i32) -> TimeDelta {
            TimeDelta::$name(number as i64)
        }
    )*};
}

durations! {
    seconds "seconds";
    minutes "minutes";
    hours "hours";
    days "days of 24 hours";
}
