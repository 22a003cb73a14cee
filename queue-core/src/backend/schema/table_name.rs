//! A table's name as the catalogue knows it, read from the SQL that Diesel writes for the table.

use std::fmt;

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryBuilder, QueryFragment};
use diesel::result::QueryResult;

/// The longest identifier that all three databases take, in bytes (PostgreSQL's `NAMEDATALEN` less one).
const MAX_IDENTIFIER: usize = 63;

/// A table's schema and name, and both as quoted SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    /// The schema (MySQL: the database), if the `table!` names one.
    pub schema: Option<String>,
    /// The name.
    pub name: String,
    sql: String,
    quote: char,
}

impl TableName {
    /// Reads the name from a table's SQL. Diesel quotes every part, so the parts can be separated.
    pub fn of<DB: Backend<QueryBuilder: Default>>(table: &dyn QueryFragment<DB>, backend: &DB) -> QueryResult<Self> {
        Ok(TableName::parse(sql_of(table, backend)?))
    }

    fn parse(sql: String) -> Self {
        let (quote, mut names) = names(&sql);
        let mut parts = names.pop().expect("there is always a name");
        let name = parts.pop().expect("there is always a part");
        TableName { schema: parts.pop(), name, sql, quote }
    }

    /// Quotes an identifier the way this table's database does.
    pub fn quoted(&self, identifier: &str) -> String {
        let doubled = identifier.replace(self.quote, &format!("{0}{0}", self.quote));
        format!("{0}{doubled}{0}", self.quote)
    }

    /// Quotes identifiers, with commas between them.
    pub(crate) fn quoted_all(&self, identifiers: impl IntoIterator<Item = impl AsRef<str>>) -> String {
        identifiers.into_iter().map(|name| self.quoted(name.as_ref())).collect::<Vec<_>>().join(", ")
    }

    /// Returns the name of another table in the same schema.
    pub fn beside(&self, name: &str) -> Self {
        TableName { schema: self.schema.clone(), name: name.to_owned(), sql: self.sibling(name), quote: self.quote }
    }

    /// Returns the name of a table in another schema.
    #[allow(dead_code, reason = "only partitions may be elsewhere than their table")]
    pub(crate) fn in_schema(&self, schema: &str, name: &str) -> Self {
        let schema = Some(schema.to_owned());
        let mut other = TableName { schema, name: name.to_owned(), sql: String::new(), quote: self.quote };
        other.sql = other.sibling(name);
        other
    }

    /// Writes the name into a statement.
    pub(crate) fn push<DB: Backend>(&self, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
        if let Some(schema) = &self.schema {
            out.push_identifier(schema)?;
            out.push_sql(".");
        }
        out.push_identifier(&self.name)
    }

    /// Quotes an identifier that lives in the table's schema, such as its index.
    pub fn sibling(&self, identifier: &str) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", self.quoted(schema), self.quoted(identifier)),
            None => self.quoted(identifier),
        }
    }
}

/// Reads the names of columns from their SQL.
pub(crate) fn column_names<DB: Backend<QueryBuilder: Default>>(
    columns: &dyn QueryFragment<DB>,
    backend: &DB,
) -> QueryResult<Vec<String>> {
    let (_, names) = names(&sql_of(columns, backend)?);
    Ok(names.into_iter().filter_map(|mut parts| parts.pop()).collect())
}

/// Returns the quote of a list of quoted names, and the parts of each of them.
fn names(sql: &str) -> (char, Vec<Vec<String>>) {
    let quote = sql.chars().find(|c| matches!(c, '`' | '"')).unwrap_or('"');
    let mut names = vec![vec![String::new()]];
    let mut quoted = false;
    let mut chars = sql.chars().peekable();
    while let Some(c) = chars.next() {
        let name = names.last_mut().expect("there is always a name");
        let part = name.last_mut().expect("there is always a part");
        match c {
            _ if c == quote && quoted && chars.peek() == Some(&quote) => {
                chars.next();
                part.push(quote);
            }
            _ if c == quote => quoted = !quoted,
            _ if quoted => part.push(c),
            '.' => name.push(String::new()),
            ',' => names.push(vec![String::new()]),
            ' ' | '(' | ')' => {}
            _ => part.push(c),
        }
    }
    (quote, names)
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sql)
    }
}

fn sql_of<DB: Backend<QueryBuilder: Default>>(fragment: &dyn QueryFragment<DB>, backend: &DB) -> QueryResult<String> {
    let mut builder = DB::QueryBuilder::default();
    fragment.to_sql(&mut builder, backend)?;
    Ok(builder.finish())
}

/// Makes an identifier of a table's name and a hash of it and a column's name, within the length that every database
/// takes.
pub(crate) fn with_fingerprint(prefix: &str, table: &str, column: &str) -> String {
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

/// Writes a text as SQL, for people to run.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
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
    fn the_names_of_columns_are_read_from_a_list() {
        let (_, columns) = names(r#""t,.able"."id", "t,.able"."part, ""two""" "#);
        let columns: Vec<_> = columns.into_iter().filter_map(|mut parts| parts.pop()).collect();
        assert_eq!(columns, ["id", "part, \"two\""]);
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
