//! What makes a queue slow or unsafe on its database, worst first, each with what mends it.
//!
//! What differs between databases is in `backend/<database>/examination.rs`, as data. Here are the looks that all databases share:
//! at processes and pauses, at the schema, and at a bounded number of rows.

mod circumstances;
mod database;
mod queue;
mod rows;

pub use self::circumstances::{LIBRARY_VERSION, Size, plans, settings, sizes, version};
pub use self::database::{examine, examine_from};
pub(crate) use self::queue::examine_queue;

use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::{ErrorClass, QueueConnection, is_of_a_pooler};
use crate::ill::{Ill, IllKind, Severity};

/// Adds what one look has found. A look that fails becomes a note, unless the connection is lost, so that the others go on.
fn add<C: QueueConnection>(ills: &mut Vec<Ill>, what: &str, found: QueryResult<Vec<Ill>>) -> QueryResult<()> {
    match found {
        Ok(found) => ills.extend(found),
        Err(error) if is_lost::<C>(&error) => return Err(error),
        Err(error) if is_of_a_pooler(&error.to_string()) => ills.push(pooler(error.to_string())),
        Err(error) => ills.push(Ill::unread(what, &error)),
    }
    Ok(())
}

/// An ill that says that a pooler gives the sessions of the server away.
fn pooler(problem: String) -> Ill {
    let mend = "give pollers the server's own URL, or a port of the pooler in session mode";
    Ill::new(IllKind::Pooler, Severity::Error, problem, mend)
}

fn is_lost<C: QueueConnection>(error: &DieselError) -> bool {
    C::classify(error) == ErrorClass::ConnectionLost
}
