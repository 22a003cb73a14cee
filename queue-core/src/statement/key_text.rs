//! The database's text of a primary key, together with what else distinguishes one occasion of a row from another. It
//! is one text, so that a claim reads only one more column.

use std::any::{Any, TypeId, type_name};
use std::sync::Arc;

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::writer::Writer;
use crate::backend::{QueueBackend, column_names};
use crate::entity::{IsKey, QueueSql, integer_bits};
use crate::row::{Details, RowKey, TextForm, UUID, integer_text};

/// Writes the text that distinguishes a row's key from every other. For several columns it writes the texts of all,
/// separated by commas.
pub(crate) fn push_key_text<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    push_texts(sql, false)
}

/// Writes `SELECT`, the key, and that text.
pub(crate) fn push_select_key<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push("SELECT {key}, ")?;
    push_key_text(sql)
}

/// Writes the same, after the texts of the occasion and the version if the entity has them. The key is left empty if it
/// is an integer, because that reads the same in Rust as in every database; on SQLite, if the row has one of the type.
pub(crate) fn push_occasion_text<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    push_texts(sql, true)
}

fn push_texts<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, with_occasion: bool) -> QueryResult<()> {
    let queue = sql.queue;
    let occasion = queue.options.occasion.filter(|_| with_occasion);
    let version = queue.options.version.filter(|_| with_occasion);
    let parts = queue.key_parts + usize::from(occasion.is_some()) + usize::from(version.is_some());
    let (before, between, after) = if parts > 1 { DB::CONCATENATION } else { ("", "", "") };
    let mut separator = [before, "", ""];
    let mut separate = |sql: &mut Writer<'_, '_, DB>| {
        std::mem::replace(&mut separator, [between, "','", between]).iter().for_each(|part| sql.out.push_sql(part));
    };
    if let Some(occasion) = occasion {
        separate(sql);
        sql.within(DB::AS_TEXT, |sql| sql.push_with("{.}", &[occasion]))?;
    }
    if let Some(version) = version {
        separate(sql);
        sql.push("COALESCE(")?;
        sql.within(DB::KEY_PART_TEXT, |sql| sql.push_with("{.}", &[version]))?;
        sql.push_within((", '", "')"), TextForm::NULL)?;
    }
    match (queue.integer_bits)().filter(|_| with_occasion) {
        Some(bits) => {
            separate(sql);
            sql.push(if DB::TEXT_FORM.tells_types() { text_unless_integer(bits) } else { "''" })?;
        }
        None => {
            let form = if queue.key_parts == 1 { DB::KEY_TEXT } else { DB::KEY_PART_TEXT };
            for key in &column_names(queue.key_columns, sql.out.backend())? {
                separate(sql);
                sql.within(form, |sql| sql.push_with("{.}", &[key]))?;
            }
        }
    }
    sql.out.push_sql(after);
    Ok(())
}

/// Returns the SQL that is empty if a key of SQLite is a whole number of so many bits, and its text otherwise.
fn text_unless_integer(bits: u32) -> &'static str {
    match bits {
        16 => {
            "CASE WHEN typeof({key}) = 'integer' AND {key} BETWEEN -32768 AND 32767 THEN '' ELSE hex(quote({key})) END"
        }
        32 => {
            "CASE WHEN typeof({key}) = 'integer' AND {key} BETWEEN -2147483648 AND 2147483647 THEN '' \
             ELSE hex(quote({key})) END"
        }
        _ => "CASE WHEN typeof({key}) = 'integer' THEN '' ELSE hex(quote({key})) END",
    }
}

/// The types of which each value of the database is another one, and each finds its row.
const EXACT: [&str; 5] = ["i16", "i32", "i64", "alloc::string::String", UUID];

/// Makes a key of its value and the text that [`push_key_text`] has selected for it.
pub(crate) fn key_of<K: Any, DB: QueueBackend>(queue: &QueueSql<DB>, value: K, stored: &str) -> RowKey<K> {
    let number = integer_text(&value);
    let text = match &number {
        Some(number) if stored.is_empty() => number.clone(),
        _ => DB::TEXT_FORM.read_key(stored, queue.key_parts),
    };
    let is_exact = match number {
        Some(number) => number == text,
        // A tuple's name lists those of its parts.
        None => {
            let names = type_name::<K>().trim_matches(['(', ')']);
            !DB::TEXT_FORM.tells_types() && names.split(", ").all(|name| EXACT.contains(&name))
        }
    };
    let key = RowKey::new(value, text);
    if is_exact { key } else { key.stored_as(stored) }
}

/// The condition that a row has this key, and not another one that reads as the same value.
pub(super) struct IsStored<DB: QueueBackend> {
    pub(super) queue: &'static QueueSql<DB>,
    pub(super) is_key: IsKey<DB>,
    pub(super) stored: Arc<str>,
}

impl<DB: QueueBackend> QueryFragment<DB> for IsStored<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.queue, out);
        sql.push_is_key("", &self.is_key)?;
        sql.push(" AND ")?;
        push_key_text(&mut sql)?;
        sql.push(" = ")?;
        DB::bind_text(&mut sql.out, &self.stored)
    }
}

/// Reads the text that [`push_occasion_text`] has selected for this key.
pub(crate) fn occasion_of<K: Any, DB: QueueBackend>(queue: &QueueSql<DB>, key: K, text: &str) -> (RowKey<K>, Details) {
    let options = queue.options;
    let (mut rest, mut details) = (text, Details::default());
    let mut next = || {
        let (part, behind) = rest.split_once(',').unwrap_or((rest, ""));
        rest = behind;
        part
    };
    if options.occasion.is_some() {
        // Only SQLite can store anything but a number there.
        details.occasion = next().parse().ok();
    }
    if options.version.is_some() {
        let version = next();
        details.version = DB::TEXT_FORM.read_value(version);
    }
    (key_of(queue, key, rest), details)
}

/// Tells whether some values of a type have a safe literal.
pub(crate) fn has_literals<K: Any>() -> bool {
    integer_bits::<K>().is_some() || TypeId::of::<K>() == TypeId::of::<String>() || type_name::<K>() == UUID
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_types_have_literals() {
        assert!(has_literals::<i32>() && has_literals::<String>() && !has_literals::<(i64, i64)>());
    }
}
