//! The check of the control table before a poller starts that takes part in control.

use diesel::result::QueryResult;

use super::paused::standing_pauses;
use crate::backend::{CONTROL_TABLE, ErrorClass, QueueConnection};
use crate::error::Finding;
use crate::row::failure_text;

/// Finds out whether the session can read the control table.
pub(crate) fn check_control<C: QueueConnection>(connection: &mut C) -> QueryResult<Option<Finding>> {
    let finding = |problem, mend| Some(Finding { entity: "control".to_owned(), problem, mend });
    let grant = match connection.grantee()? {
        Some(grantee) => format!("GRANT SELECT ON {CONTROL_TABLE} TO {grantee}"),
        None => "let the process read the database's file".to_owned(),
    };
    if !connection.has_control()? {
        return Ok(finding(
            format!("there is no table {CONTROL_TABLE} that this session can see, and the poller asks for `control`"),
            format!(
                "run the migration of `Migrations::new().control()`; or if there is one, {grant}, and put its schema into \
                 the search path of the session"
            ),
        ));
    }
    match standing_pauses(connection) {
        Err(error) if C::classify(&error) == ErrorClass::Other => {
            Ok(finding(format!("the table {CONTROL_TABLE} cannot be read: {}", failure_text(&error, 500)), grant))
        }
        read => read.map(|_| None),
    }
}
