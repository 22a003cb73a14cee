//! The database's text of a primary key, together with what else distinguishes one occasion of a row from another. It
//! is one text, so that a claim reads only one more column.

use std::any::Any;

use diesel::result::QueryResult;

use super::writer::Writer;
use crate::backend::{QueueBackend, column_names};
use crate::entity::QueueSql;
use crate::row::{Details, TextForm};

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
/// is an integer, because that reads the same in Rust as in every database.
pub(crate) fn push_occasion_text<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    push_texts(sql, true)
}

fn push_texts<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, with_occasion: bool) -> QueryResult<()> {
    let queue = sql.queue;
    let occasion = queue.options.occasion.filter(|_| with_occasion);
    let version = queue.options.version.filter(|_| with_occasion);
    let keys = column_names(queue.key_columns, sql.out.backend())?;
    let parts = keys.len() + usize::from(occasion.is_some()) + usize::from(version.is_some());
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
    let form = if keys.len() == 1 { DB::KEY_TEXT } else { DB::KEY_PART_TEXT };
    for key in &keys {
        separate(sql);
        if with_occasion && (queue.has_integer_key)() {
            sql.push("''")?;
            continue;
        }
        sql.within(form, |sql| sql.push_with("{.}", &[key]))?;
    }
    sql.out.push_sql(after);
    Ok(())
}

/// Returns the text of a key that is a whole number.
pub(crate) fn integer_text(key: &dyn Any) -> Option<String> {
    let text = key.downcast_ref::<i64>().map(i64::to_string);
    text.or_else(|| key.downcast_ref::<i32>().map(i32::to_string))
        .or_else(|| key.downcast_ref::<i16>().map(i16::to_string))
}

/// Reads the text that [`push_occasion_text`] has selected for this key.
pub(crate) fn occasion_of<K: Any, DB: QueueBackend>(queue: &QueueSql<DB>, key: &K, text: &str) -> (String, Details) {
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
    (integer_text(key).unwrap_or_else(|| DB::TEXT_FORM.read_key(rest, queue.key_parts)), details)
}
