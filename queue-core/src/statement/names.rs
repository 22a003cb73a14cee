//! The names of the queue's table and columns in the text of a statement.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use crate::backend::QueueBackend;
use crate::entity::QueueSql;

/// Writes a text in which each `{}` stands for one of these names.
pub(crate) fn push_names<DB: QueueBackend>(
    out: &mut AstPass<'_, '_, DB>,
    text: &str,
    names: &[&str],
) -> QueryResult<()> {
    push_each(out, text, names, |out, name| out.push_identifier(name))
}

/// Writes a text in which each `{}` stands for one of these columns, with the table's name.
pub(crate) fn push_columns<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
    text: &str,
    columns: &[&str],
) -> QueryResult<()> {
    push_each(out, text, columns, |out, column| push_column(queue, out, column))
}

fn push_each<'a, 'b, DB: QueueBackend>(
    out: &mut AstPass<'a, 'b, DB>,
    text: &str,
    names: &[&str],
    push_name: impl Fn(&mut AstPass<'a, 'b, DB>, &str) -> QueryResult<()>,
) -> QueryResult<()> {
    let mut parts = text.split("{}");
    debug_assert_eq!(parts.clone().count(), names.len() + 1, "each name has its place in `{text}`");
    out.push_sql(parts.next().unwrap_or_default());
    names.iter().zip(parts).try_for_each(|(name, part)| {
        push_name(out, name)?;
        out.push_sql(part);
        Ok(())
    })
}

/// Writes a column with the table's name.
pub(crate) fn push_column<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
    column: &str,
) -> QueryResult<()> {
    queue.table.walk_ast(out.reborrow())?;
    out.push_sql(".");
    out.push_identifier(column)
}

/// Writes a text and the table's name after it.
pub(crate) fn push_table<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
    before: &str,
) -> QueryResult<()> {
    out.push_sql(before);
    queue.table.walk_ast(out.reborrow())
}

/// Writes that the row is written now, between two separators, if the entity stores that.
pub(crate) fn push_updated<DB: QueueBackend>(
    queue: &QueueSql<DB>,
    out: &mut AstPass<'_, '_, DB>,
    before: &str,
    after: &str,
) -> QueryResult<()> {
    let Some(updated) = queue.options.timestamps.updated else { return Ok(()) };
    out.push_sql(before);
    push_names(out, "{} = ", &[updated])?;
    [DB::NOW, after].iter().for_each(|part| out.push_sql(part));
    Ok(())
}

/// Writes an expression within the parts of SQL before and after it.
pub(crate) fn push_within<'a, 'b, DB: QueueBackend>(
    out: &mut AstPass<'a, 'b, DB>,
    (before, after): (&str, &str),
    push_expression: impl FnOnce(&mut AstPass<'a, 'b, DB>) -> QueryResult<()>,
) -> QueryResult<()> {
    out.push_sql(before);
    push_expression(out)?;
    out.push_sql(after);
    Ok(())
}
