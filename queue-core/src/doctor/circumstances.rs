//! What a person who helps from afar asks first: the database's version and settings, the sizes of a queue's table, and the plans of
//! its statements. No text has a value of a row, and none is read of a setting that may hold a password.

use std::collections::BTreeMap;

use diesel::result::QueryResult;
use serde::Serialize;

use super::queue::names_of;
use crate::attempt::ComparesSchema;
use crate::backend::{AsQueueConnection, Check, Examination, QueueConnection, Statement};
use crate::entity::Entity;
use crate::error::{Error, refused};
use crate::statement::{Claimable, due_lanes, oldest_due, probe_due};

/// The version of the library.
pub const LIBRARY_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The size of a table, of an index, or of what the database counts together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Size {
    /// What it is the size of.
    pub of: String,
    /// Its bytes.
    pub bytes: Option<i64>,
    /// About how many rows or entries it has, as the planner knows them.
    pub rows: Option<i64>,
}

/// Reads the version of the database.
pub fn version<C: AsQueueConnection>(connection: &mut C) -> Result<String, Error> {
    let mut versions = looked(connection.as_queue_connection(), C::Connection::VERSION.to_owned())?.into_iter();
    let version = versions.next().and_then(|texts| texts.into_iter().next());
    Ok(version.ok_or_else(|| refused("the database says no version".to_owned()))?)
}

/// Reads the settings that decide how fast and how safe queues are, and how much of their limits is in use.
pub fn settings<C: AsQueueConnection>(connection: &mut C) -> Result<BTreeMap<String, String>, Error> {
    let mut settings = BTreeMap::new();
    for query in C::Connection::SETTINGS {
        for texts in looked(connection.as_queue_connection(), (*query).to_owned())? {
            if let Ok([name, value]) = <[String; 2]>::try_from(texts) {
                settings.insert(name, value);
            }
        }
    }
    Ok(settings)
}

/// Reads the sizes of a queue's table and of its indexes from the catalogue.
pub fn sizes<Q: Entity, C: ComparesSchema<Q>>(connection: &mut C) -> Result<Vec<Size>, Error> {
    let target = C::queue_of().target()?;
    let query = Check::filled(C::SIZES, &names_of(&target, &C::index_names(&target)));
    let sizes = looked(connection, query)?.into_iter().filter_map(|texts| {
        let [of, bytes, rows] = <[String; 3]>::try_from(texts).ok()?;
        Some(Size { of, bytes: bytes.parse().ok(), rows: rows.parse().ok() })
    });
    Ok(sizes.collect())
}

/// Has the database explain the statements by which workers find their rows, without running them. The names of plans are stable:
/// a console writes them.
pub fn plans<Q: Entity, C: ComparesSchema<Q>>(connection: &mut C) -> Result<BTreeMap<&'static str, String>, Error> {
    let queue = C::queue_of();
    let due = || Claimable::new(queue.sql, None);
    // An account that may only read has no right to lock.
    let some = || queue.claim_all().some(1, Vec::new()).locked(false);
    let (claim, sorted) = (some(), some().of_few(true));
    let (probe, oldest, lanes) = (probe_due(due()), oldest_due(due()), due_lanes(due(), 1));
    let mut statements: Vec<(_, &dyn Statement<C::Backend>)> =
        vec![("claim", &claim), ("probe", &probe), ("oldest_due", &oldest)];
    if queue.sql.options.order.is_some() {
        statements.push(("claim_sorted", &sorted));
    }
    if queue.sql.options.lanes.is_some() {
        statements.push(("lanes", &lanes));
    }
    let mut plans = BTreeMap::new();
    for (name, statement) in statements {
        plans.insert(name, connection.bounded(|connection| connection.plan(statement))?);
    }
    Ok(plans)
}

fn looked<C: QueueConnection>(connection: &mut C, query: String) -> QueryResult<Vec<Vec<String>>> {
    let rows = connection.bounded(|connection| connection.look(query))?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}
