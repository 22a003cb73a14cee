//! The DDL of the control table: what the three databases share.

use diesel::Connection;
use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::archive::ArchiveSchema;
use super::control_schema::{CONTROL_COLUMNS, CONTROL_TABLE, ControlSchema};
use super::live_table::until_done;
use super::table_name::TableName;
use super::target::Step;
use crate::error::refused;

/// A database's words for the control table.
pub(crate) trait ControlDdl<DB = <Self as Connection>::Backend>: ArchiveSchema<DB> {
    /// The statement that creates the table, unless it exists. Its checks refuse what no pause can be.
    const CREATE: &'static str;

    /// The statement that drops the table.
    const DROP: &'static str;
}

struct Named(&'static str);

impl<DB: Backend> QueryFragment<DB> for Named {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_identifier(self.0)
    }
}

/// Returns the names of the columns that the control table lacks; `None` if there is no such table.
fn lacking<D: ControlDdl>(connection: &mut D) -> QueryResult<Option<Vec<&'static str>>> {
    let table = TableName::of(&Named(CONTROL_TABLE), &D::Backend::default())?;
    let live = connection.table_columns(&table)?;
    let is_there = |name: &&str| live.iter().any(|column| column.name.eq_ignore_ascii_case(name));
    Ok((!live.is_empty()).then(|| CONTROL_COLUMNS.into_iter().filter(|name| !is_there(name)).collect()))
}

fn add<D: ControlDdl>(connection: &mut D) -> QueryResult<()> {
    until_done(
        connection,
        |connection| Ok(lacking(connection)?.is_none().then_some(())),
        |connection, ()| connection.run_ddl(D::CREATE),
    )?;
    match lacking(connection)?.unwrap_or_default().as_slice() {
        [] => Ok(()),
        lacking => Err(refused(format!(
            "there is a table {CONTROL_TABLE} that is not the queue's: it has no column {}; rename it",
            lacking.join(", ")
        ))),
    }
}

impl<D: ControlDdl> ControlSchema for D {
    fn control_step() -> Step {
        Step {
            name: "control",
            up: vec![D::CREATE.to_owned()],
            down: vec![D::DROP.to_owned()],
            in_transaction: D::ALTERS_IN_TRANSACTION,
            alone: false,
        }
    }

    fn add_control(&mut self) -> QueryResult<()> {
        add(self)
    }

    fn remove_control(&mut self) -> QueryResult<()> {
        match lacking(self)? {
            Some(lacking) if lacking.is_empty() => self.run_ddl(D::DROP),
            // It is not the queue's.
            _ => Ok(()),
        }
    }

    fn has_control(&mut self) -> QueryResult<bool> {
        Ok(lacking(self)?.is_some_and(|lacking| lacking.is_empty()))
    }
}
