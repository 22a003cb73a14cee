//! The lock of an exclusive queue, and the places of a lane, as locks of the server's by name.

use diesel::deserialize::QueryableByName;
use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Nullable, Text};

use super::mysql_session::MysqlSession;
use crate::backend::exclusion::Exclusion;
use crate::backend::table_name::fingerprint;
use crate::backend::target::Target;

use diesel::prelude::*;

impl<C: MysqlSession> Exclusion<Mysql> for C {
    fn try_exclude(&mut self, target: &Target) -> QueryResult<bool> {
        // A lock that is taken twice has to be given back twice.
        let query = format!(
            "SELECT CAST(IF(IS_USED_LOCK({EXCLUSION}) <=> CONNECTION_ID(), 1, COALESCE(GET_LOCK({EXCLUSION}, 0), 0)) \
             AS SIGNED) AS answer"
        );
        let (schema, queue) = exclusion_of(target);
        let query = diesel::sql_query(query).bind::<Nullable<Text>, _>(schema).bind::<Text, _>(queue.clone());
        let query = query.bind::<Nullable<Text>, _>(schema).bind::<Text, _>(queue);
        Ok(query.get_result::<Answer>(self)?.answer == Some(1))
    }

    fn exclusion_holder(&mut self, target: &Target) -> QueryResult<Option<String>> {
        let (schema, queue) = exclusion_of(target);
        let query = format!("SELECT CAST(NULLIF(IS_USED_LOCK({EXCLUSION}), CONNECTION_ID()) AS SIGNED) AS answer");
        let query = diesel::sql_query(query).bind::<Nullable<Text>, _>(schema).bind::<Text, _>(queue);
        Ok(query.get_result::<Answer>(self)?.answer.map(|session| format!("the connection {session}")))
    }

    fn end_exclusion(&mut self, target: &Target) -> QueryResult<()> {
        let (schema, queue) = exclusion_of(target);
        let query = format!("SELECT CAST(RELEASE_LOCK({EXCLUSION}) AS SIGNED) AS answer");
        let query = diesel::sql_query(query).bind::<Nullable<Text>, _>(schema).bind::<Text, _>(queue);
        query.get_result::<Answer>(self).map(drop)
    }

    fn take_place(&mut self, target: &Target, lane: &str, places: u32) -> QueryResult<Option<u32>> {
        let (schema, lane) = lane_of(target, lane);
        for place in 0..places {
            // A session holds at most one place of a lane, and gives it back once.
            let query = format!(
                "SELECT CAST(IF(IS_USED_LOCK({EXCLUSION}) <=> CONNECTION_ID(), 0, COALESCE(GET_LOCK({EXCLUSION}, 0), 0)) \
                 AS SIGNED) AS answer"
            );
            let name = place_of(&lane, place);
            let query = diesel::sql_query(query).bind::<Nullable<Text>, _>(schema).bind::<Text, _>(&name);
            let query = query.bind::<Nullable<Text>, _>(schema).bind::<Text, _>(&name);
            if query.get_result::<Answer>(self)?.answer == Some(1) {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    fn leave_place(&mut self, target: &Target, lane: &str, place: u32) -> QueryResult<()> {
        let (schema, lane) = lane_of(target, lane);
        let query = format!("SELECT CAST(RELEASE_LOCK({EXCLUSION}) AS SIGNED) AS answer");
        let name = place_of(&lane, place);
        let query = diesel::sql_query(query).bind::<Nullable<Text>, _>(schema).bind::<Text, _>(name);
        query.get_result::<Answer>(self).map(drop)
    }
}

/// Returns the database of a queue, if it is not the session's own, and the part of the name that tells the places of a
/// lane from others there.
fn lane_of<'t>(target: &'t Target, lane: &str) -> (Option<&'t str>, String) {
    let lane = fingerprint(&format!("{}\n{}\n{lane}", target.table.name, target.columns.status));
    (exclusion_of(target).0, format!("{lane:016x}"))
}

fn place_of(lane: &str, place: u32) -> String {
    format!("{lane}{place:x}")
}

/// The name of an exclusive queue's lock. Such names are global to the server, so it contains the database. A session's
/// lock outlives its transactions.
const EXCLUSION: &str = "CONCAT('queueable_', MD5(CONVERT(COALESCE(?, DATABASE()) USING utf8mb4)), '_', ?)";

/// Returns the database of a queue, if it is not the session's own, and the part of the name that tells its lock from
/// others there.
fn exclusion_of(target: &Target) -> (Option<&str>, String) {
    let queue = fingerprint(&format!("{}\n{}", target.table.name, target.columns.status));
    (target.table.schema.as_deref(), format!("{queue:016x}"))
}

#[derive(QueryableByName)]
struct Answer {
    #[diesel(sql_type = Nullable<BigInt>)]
    answer: Option<i64>,
}
