//! The advisory locks by which PostgreSQL lets one message run at a time, or a few of each lane.

use diesel::pg::Pg;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};

use super::pg_session::PgSession;
use crate::backend::exclusion::{Exclusion, Place};
use crate::backend::one::One;
use crate::backend::table_name::fingerprint;
use crate::backend::target::Target;

use diesel::prelude::*;

impl<C: PgSession> Exclusion<Pg> for C {
    fn try_exclude(&mut self, target: &Target) -> QueryResult<bool> {
        // The table by its OID, because each tenant's schema may have one of the same name. The server releases the
        // lock after the transaction's changes are visible.
        let locked: One<Bool, bool> = diesel::sql_query(
            "SELECT pg_catalog.pg_try_advisory_xact_lock($1, CAST(CAST(CAST($2 AS regclass) AS oid) AS integer)) AS excluded",
        )
        .bind::<Integer, _>(exclusion_of(target) as i32)
        .bind::<Text, _>(target.table.to_string())
        .get_result(self)?;
        Ok(locked.0)
    }

    fn exclusion_holder(&mut self, target: &Target) -> QueryResult<Option<String>> {
        let holders: Vec<One<Text, String>> = diesel::sql_query(
            "SELECT pg_catalog.concat('the session with the pid ', l.pid, ' (', COALESCE(a.application_name, ''), ')') AS session \
             FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid \
             WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.pid <> pg_catalog.pg_backend_pid() \
             AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()) \
             AND l.classid = CAST($1 AS oid) AND l.objid = CAST(CAST($2 AS regclass) AS oid)",
        )
        .bind::<Text, _>((exclusion_of(target) as u32).to_string())
        .bind::<Text, _>(target.table.to_string())
        .load(self)?;
        Ok(holders.into_iter().next().map(|holder| holder.0))
    }

    fn take_place(&mut self, target: &Target, lane: &str, places: u32) -> QueryResult<Option<u32>> {
        let [start, queue, table, lane_part, end] = PLACES;
        let query = format!("SELECT {start}$1{queue}$2{table}$3{lane_part}$4{end} AS place");
        let place = Place::of(target, lane, places);
        let query = diesel::sql_query(query).bind::<BigInt, _>(place.places).bind::<Text, _>(place.queue);
        let taken: One<Nullable<Integer>, Option<i32>> =
            query.bind::<Text, _>(place.table).bind::<Text, _>(place.lane).get_result(self)?;
        Ok(taken.0.map(i32::unsigned_abs))
    }
}

/// The SQL around the number of places, the queue, its table and the lane: it takes one of the places for the transaction.
/// A hash of 64 bits: two lanes of one hash share their places, which limits them more and never less. With a limit of one
/// row, the server tries one place after the other and stops at the first that is free.
pub(super) const PLACES: [&str; 5] = [
    "(SELECT place FROM pg_catalog.generate_series(0, CAST(",
    " AS integer) - 1) AS places(place) WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(pg_catalog.concat(",
    ", ' ', CAST(CAST(",
    " AS regclass) AS oid), ' ', ",
    "), place)) LIMIT 1)",
];

/// Returns the number that tells the lock of a queue from others on its table.
fn exclusion_of(target: &Target) -> u64 {
    fingerprint(&format!("queueable\n{}", target.columns.status))
}
