//! The lock of an exclusive queue, and the places of a lane, as locks of the server's by name.

use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Nullable, Text};

use super::mysql_session::MysqlSession;
use crate::backend::exclusion::Exclusion;
use crate::backend::one::One;
use crate::backend::table_name::fingerprint;
use crate::backend::target::Target;

use diesel::prelude::*;

impl<C: MysqlSession> Exclusion<Mysql> for C {
    fn try_exclude(&mut self, target: &Target) -> QueryResult<bool> {
        // A lock that is taken twice has to be given back twice.
        take(self, target, &exclusion_of(target), 1)
    }

    fn exclusion_holder(&mut self, target: &Target) -> QueryResult<Option<String>> {
        let holder = format!("NULLIF(IS_USED_LOCK({EXCLUSION}), CONNECTION_ID())");
        let holder = answer(self, target, &exclusion_of(target), &holder)?;
        Ok(holder.map(|session| format!("the connection {session}")))
    }

    fn end_exclusion(&mut self, target: &Target) -> QueryResult<()> {
        release(self, target, &exclusion_of(target))
    }

    fn take_place(&mut self, target: &Target, lane: &str, places: u32) -> QueryResult<Option<u32>> {
        for place in 0..places {
            // A session holds at most one place of a lane, and gives it back once.
            if take(self, target, &place_of(target, lane, place), 0)? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    fn leave_place(&mut self, target: &Target, lane: &str, place: u32) -> QueryResult<()> {
        release(self, target, &place_of(target, lane, place))
    }
}

/// The name of a lock. Such names are global to the server, so it contains the database. A session's lock outlives its
/// transactions.
const EXCLUSION: &str = "CONCAT('queueable_', MD5(CONVERT(COALESCE(?, DATABASE()) USING utf8mb4)), '_', ?)";

/// Returns the part of the name of an exclusive queue's lock that tells it from others in its database.
fn exclusion_of(target: &Target) -> String {
    format!("{:016x}", fingerprint(&format!("{}\n{}", target.table.name, target.columns.status)))
}

/// Returns the part of the name of a place that tells it from others in its database.
fn place_of(target: &Target, lane: &str, place: u32) -> String {
    let lane = fingerprint(&format!("{}\n{}\n{lane}", target.table.name, target.columns.status));
    format!("{lane:016x}{place:x}")
}

/// Takes a lock without waiting. `again` is 1 if the session may hold it already.
fn take(connection: &mut impl MysqlSession, target: &Target, name: &str, again: u8) -> QueryResult<bool> {
    let taken =
        format!("IF(IS_USED_LOCK({EXCLUSION}) <=> CONNECTION_ID(), {again}, COALESCE(GET_LOCK({EXCLUSION}, 0), 0))");
    Ok(answer(connection, target, name, &taken)? == Some(1))
}

fn release(connection: &mut impl MysqlSession, target: &Target, name: &str) -> QueryResult<()> {
    answer(connection, target, name, &format!("RELEASE_LOCK({EXCLUSION})")).map(drop)
}

/// Evaluates an expression with the name of a lock.
fn answer(connection: &mut impl MysqlSession, target: &Target, name: &str, of: &str) -> QueryResult<Option<i64>> {
    let mut query = diesel::sql_query(format!("SELECT CAST({of} AS SIGNED) AS answer")).into_boxed();
    for _ in of.matches(EXCLUSION) {
        query = query.bind::<Nullable<Text>, _>(target.table.schema.as_deref()).bind::<Text, _>(name);
    }
    query.get_result::<One<Nullable<BigInt>, _>>(connection).map(|answer| answer.0)
}
