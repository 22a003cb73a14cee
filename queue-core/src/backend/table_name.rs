//! A table's name as the catalogue knows it, read from the SQL that Diesel writes for the table.

use std::fmt;

use diesel::backend::Backend;
use diesel::query_builder::{QueryBuilder, QueryFragment};
use diesel::result::QueryResult;

/// The longest identifier that all three databases take, in bytes (PostgreSQL's `NAMEDATALEN` less one).
const MAX_IDENTIFIER: usize = 63;

/// A table's schema and name, and both as quoted SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    /// The schema (MySQL: the database), where the `table!` names one.
    pub schema: Option<String>,
    /// The name.
    pub name: String,
    sql: String,
    quote: char,
}

impl TableName {
    /// Reads the name from a table's SQL: Diesel quotes every part, so the parts can be told apart.
    pub(crate) fn of<DB>(table: &impl QueryFragment<DB>, backend: &DB) -> QueryResult<Self>
    where
        DB: Backend,
        DB::QueryBuilder: Default,
    {
        Ok(TableName::parse(sql_of(table, backend)?))
    }

    fn parse(sql: String) -> Self {
        let quote = quote_of(&sql);
        let mut parts = split(&sql, '.');
        let name = parts.pop().expect("there is always a part");
        TableName { schema: parts.pop(), name, sql, quote }
    }

    /// Quotes an identifier the way this table's database does.
    pub fn quoted(&self, identifier: &str) -> String {
        let doubled = identifier.replace(self.quote, &format!("{0}{0}", self.quote));
        format!("{0}{doubled}{0}", self.quote)
    }

    /// Quotes an identifier that lives in the table's schema, such as its index.
    pub fn sibling(&self, identifier: &str) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", self.quoted(schema), self.quoted(identifier)),
            None => self.quoted(identifier),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sql)
    }
}

/// Reads the names of columns from the SQL of one, or of a tuple of them.
pub(crate) fn column_names<DB>(columns: &impl QueryFragment<DB>, backend: &DB) -> QueryResult<Vec<String>>
where
    DB: Backend,
    DB::QueryBuilder: Default,
{
    // A column follows its table after a dot, and the tuple's next one after a comma.
    let sql = sql_of(columns, backend)?;
    let name = |column: &String| split(column, '.').pop().unwrap_or_default();
    Ok(split_quoted(&sql, ',').iter().map(name).collect())
}

fn sql_of<DB>(fragment: &impl QueryFragment<DB>, backend: &DB) -> QueryResult<String>
where
    DB: Backend,
    DB::QueryBuilder: Default,
{
    let mut builder = DB::QueryBuilder::default();
    fragment.to_sql(&mut builder, backend)?;
    Ok(builder.finish())
}

fn quote_of(sql: &str) -> char {
    sql.trim_start().chars().next().filter(|c| *c == '`').unwrap_or('"')
}

/// Splits SQL where the separator stands outside quotes, and takes the quotes off.
fn split(sql: &str, separator: char) -> Vec<String> {
    let quote = quote_of(sql);
    let unquoted = |part: &String| {
        let part = part.trim();
        let inner = part.strip_prefix(quote).and_then(|part| part.strip_suffix(quote)).unwrap_or(part);
        inner.replace(&format!("{quote}{quote}"), &quote.to_string())
    };
    split_quoted(sql, separator).iter().map(unquoted).collect()
}

/// Splits SQL where the separator stands outside quotes.
fn split_quoted(sql: &str, separator: char) -> Vec<String> {
    let quote = quote_of(sql);
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in sql.chars() {
        // A doubled quote ends and begins at once.
        quoted ^= c == quote;
        match parts.last_mut() {
            Some(part) if c != separator || quoted => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts
}

/// Makes an identifier of a table's name and a hash of it and a column's, in what every database takes.
pub(super) fn with_fingerprint(prefix: &str, table: &str, column: &str) -> String {
    let hash = format!("_{:016x}", fingerprint(&format!("{table}\n{column}")));
    let mut end = table.len().min(MAX_IDENTIFIER - prefix.len() - hash.len());
    while !table.is_char_boundary(end) {
        end -= 1;
    }
    [prefix, &table[..end], &hash].concat()
}

/// The 64 bit FNV-1a hash: names derived from it are stored in databases, so it must never change between releases,
/// which the standard library's hashers do not promise.
pub(crate) fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_quoted_name_are_told_apart() {
        let name = TableName::parse(r#""bil.ling"."In""voice""#.into());
        assert_eq!(name.schema.as_deref(), Some("bil.ling"));
        assert_eq!(name.name, "In\"voice");
        assert_eq!(name.sibling("a\"b"), r#""bil.ling"."a""b""#);
        assert_eq!(TableName::parse("`order`".into()).quoted("x`y"), "`x``y`");
    }

    #[test]
    fn the_columns_of_a_key_are_told_apart() {
        let names = |sql| split_quoted(sql, ',').iter().map(|c| split(c, '.').pop().unwrap()).collect::<Vec<_>>();
        assert_eq!(names(r#""a,b"."c.d""#), ["c.d"]);
        assert_eq!(names("`t`.`x``y`, `s`.`t`.`z`"), ["x`y", "z"]);
    }

    #[test]
    fn the_name_of_an_index_is_short_and_tells_queues_apart() {
        let name = |table: &str, column| with_fingerprint("queueable_", table, column);
        assert!(name(&"ä".repeat(40), "next").len() <= MAX_IDENTIFIER);
        assert_ne!(name(&("ä".repeat(40) + "a"), "next"), name(&("ä".repeat(40) + "b"), "next"));
        assert_ne!(name("payments", "x_next"), name("payments_x", "next"));
        assert_eq!(name("payments", "next"), "queueable_payments_13b3ec1e09ed9ddd");
    }
}
