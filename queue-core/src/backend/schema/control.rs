//! The control table: its name, its columns, and how it is created.

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::columns::Ddl;
use super::live_table::until_done;
use super::table_name::TableName;
use crate::error::refused;

/// The name of the control table. It has no schema: a session finds it where it finds a new table of its own.
pub(crate) const CONTROL_TABLE: &str = "queueable_control";

/// The columns of the control table.
pub(crate) const CONTROL_COLUMNS: [&str; 6] =
    ["queue", "scope", "paused_at", "paused_until", "paused_by", "pause_reason"];

struct Named(&'static str);

impl<DB: Backend> QueryFragment<DB> for Named {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_identifier(self.0)
    }
}

/// Returns the names of the columns that the control table lacks; `None` if there is no such table.
pub(crate) fn lacking<D: Ddl>(connection: &mut D) -> QueryResult<Option<Vec<&'static str>>> {
    let table = TableName::of(&Named(CONTROL_TABLE), &D::Backend::default())?;
    let live = connection.columns(&table)?;
    let is_there = |name: &&str| live.iter().any(|column| column.name.eq_ignore_ascii_case(name));
    Ok((!live.is_empty()).then(|| CONTROL_COLUMNS.into_iter().filter(|name| !is_there(name)).collect()))
}

/// Creates the control table, unless it exists.
///
/// # Errors
///
/// If another table has its name.
pub(crate) fn add<D: Ddl>(connection: &mut D) -> QueryResult<()> {
    let left_to_do = |connection: &mut D| match lacking(connection)? {
        None => Ok(vec![D::CREATE_CONTROL.to_owned()]),
        Some(_) => Ok(Vec::new()),
    };
    until_done(connection, left_to_do, D::run_ddl)?;
    match lacking(connection)?.unwrap_or_default().as_slice() {
        [] => Ok(()),
        lacking => Err(refused(format!(
            "there is a table {CONTROL_TABLE} that is not the queue's: it has no column {}; rename it",
            lacking.join(", ")
        ))),
    }
}
