//! The database's current time, as an expression.

use std::borrow::Cow;
use std::time::Duration;

use chrono::DateTime;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::sql_types::Nullable;
use diesel::{AppearsOnTable, Expression, SelectableExpression};

use super::connection::QueueBackend;
use crate::row::{TimestampUtc, microseconds};
use crate::sync::in_test::{MovedClock, moved_clock};

/// The database's current time, as an expression.
#[derive(Debug, Clone, Copy, QueryId)]
pub struct Now;

/// The database's current time plus a delay, as an expression.
#[derive(Debug, Clone, Copy, QueryId)]
pub struct NowPlus(pub(crate) Duration);

impl<DB: QueueBackend> QueryFragment<DB> for Now {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        if moved_clock().is_some() {
            out.unsafe_to_cache_prepared();
        }
        out.push_sql(&now::<DB>());
        Ok(())
    }
}

impl<DB> QueryFragment<DB> for NowPlus
where
    DB: QueueBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        push_now_plus(&mut out, self.0);
        Ok(())
    }
}

/// Writes `now + delay`. The number is written out, not bound: it consists of digits, and a bound one would have to
/// outlive the query. If the number differs each time, the statement must not be cached.
pub(crate) fn push_now_plus<DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>, delay: Duration) {
    if moved_clock().is_some() {
        out.unsafe_to_cache_prepared();
    }
    out.push_sql(&now_plus::<DB>(delay));
}

/// Returns the SQL of `now + delay`.
pub(crate) fn now_plus<DB: QueueBackend>(delay: Duration) -> String {
    time_plus::<DB>(DB::NOW_PLUS_MICROSECONDS, microseconds(delay))
}

/// Returns the SQL of the time when it is evaluated.
pub(crate) fn now<DB: QueueBackend>() -> Cow<'static, str> {
    match moved_clock() {
        None => DB::NOW.into(),
        Some(_) => time_plus::<DB>(DB::NOW_PLUS_MICROSECONDS, 0).into(),
    }
}

/// Returns the SQL of the time when its statement began.
pub(crate) fn statement_time<DB: QueueBackend>() -> Cow<'static, str> {
    match moved_clock() {
        None => DB::STATEMENT_TIME.into(),
        Some(_) => statement_time_plus::<DB>(0).into(),
    }
}

/// Returns the SQL of the time when its statement began plus so many microseconds.
pub(crate) fn statement_time_plus<DB: QueueBackend>(microseconds: i64) -> String {
    time_plus::<DB>(DB::STATEMENT_TIME_PLUS_MICROSECONDS, microseconds)
}

/// Returns the SQL of a time plus so many microseconds. In a test, it is the time of the test's clock.
fn time_plus<DB: QueueBackend>((before, after): (&str, &str), microseconds: i64) -> String {
    match moved_clock() {
        None => format!("{before}{microseconds}{after}"),
        Some(MovedClock::Later(by)) => format!("{before}{}{after}", microseconds.saturating_add(by)),
        Some(MovedClock::At(at)) => {
            let (before, after) = DB::TIME_LITERAL;
            let time = DateTime::from_timestamp_micros(at.saturating_add(microseconds)).unwrap_or_default();
            format!("{before}{}{after}", time.format("%Y-%m-%d %H:%M:%S%.6f"))
        }
    }
}

/// A due time whose statement wakes the pollers of this process. Diesel walks an expression each time it runs a statement
/// with it, right before it sends that: to collect the values, if not to write the text. A value that is made and never sent
/// wakes nobody.
#[derive(Debug, Clone, Copy)]
pub struct Waking<Time> {
    time: Time,
    wake: fn(),
}

impl<Time> Waking<Time> {
    pub(crate) fn new(time: Time, wake: fn()) -> Self {
        Waking { time, wake }
    }
}

impl<Time: QueryFragment<DB>, DB: QueueBackend> QueryFragment<DB> for Waking<Time> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        (self.wake)();
        self.time.walk_ast(out)
    }
}

impl<Time: QueryId> QueryId for Waking<Time> {
    type QueryId = Waking<Time::QueryId>;
    const HAS_STATIC_QUERY_ID: bool = Time::HAS_STATIC_QUERY_ID;
}

macro_rules! time_expression {
    ($($name:ty $(, $time:ident)?;)*) => {$(
        impl$(<$time>)? Expression for $name {
            type SqlType = Nullable<TimestampUtc>;
        }
        impl<QS $(, $time)?> AppearsOnTable<QS> for $name {}
        impl<QS $(, $time)?> SelectableExpression<QS> for $name {}
        impl<GB $(, $time)?> diesel::expression::ValidGrouping<GB> for $name {
            type IsAggregate = diesel::expression::is_aggregate::Never;
        }
    )*};
}

time_expression! {
    Now;
    NowPlus;
    Waking<Time>, Time;
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use diesel::{Connection, RunQueryDsl, SqliteConnection};

    use super::*;

    static WOKEN: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn a_due_time_wakes_whenever_a_statement_is_sent_with_it_and_not_before() {
        let mut connection = SqliteConnection::establish(":memory:").expect("a database in memory");
        let due = Waking::new(Now, || _ = WOKEN.fetch_add(1, Ordering::Relaxed));
        assert_eq!(WOKEN.load(Ordering::Relaxed), 0);
        // Diesel writes the text once, and takes it from its cache then.
        for sent in 1..=3 {
            WOKEN.store(0, Ordering::Relaxed);
            diesel::select(due).execute(&mut connection).expect("it needs no table");
            assert!(WOKEN.load(Ordering::Relaxed) > 0, "{sent}");
        }
    }
}
