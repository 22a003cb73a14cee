//! Reads the rows of the application's tables as texts.

use std::collections::BTreeMap;

use diesel::query_builder::QueryId;
use diesel::result::{Error as DieselError, QueryResult};
use diesel::sql_types::Text;
use queue_core::internals::TextForm;
use queue_core::internals::backend::{Loads, TextSql};

use crate::bounds::QueueConnection;

/// Stands between two values in a text.
const BETWEEN: char = '\u{1f}';

/// Stands for null.
const NULL: &str = "\u{1e}";

/// A statement that is found by its text.
enum ByText {}

impl QueryId for ByText {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// How a database lists its columns, and writes a character by its number.
struct Catalogue {
    /// Each line is a table's name, a column's, the expression of its text, the table as a statement names it, and whether the
    /// database counts the column up.
    columns: &'static str,
    /// Before and after the number of a character.
    character: (&'static str, &'static str),
}

const POSTGRES: Catalogue = Catalogue {
    columns: "SELECT concat_ws(chr(31), c.relname, a.attname, 'CAST(' || quote_ident(a.attname) || ' AS text)', \
              quote_ident(n.nspname) || '.' || quote_ident(c.relname), \
              CASE WHEN a.attidentity <> '' OR pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%' THEN 'counted' ELSE '' END) \
              FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid \
              LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum \
              WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 \
              AND NOT a.attisdropped AND has_table_privilege(c.oid, 'SELECT') ORDER BY c.relname, a.attnum",
    character: ("chr(", ")"),
};

const MYSQL: Catalogue = Catalogue {
    columns: "SELECT CONCAT_WS(CHAR(31 USING utf8mb4), t.table_name, c.column_name, \
              IF(c.data_type LIKE '%blob' OR c.data_type LIKE '%binary', \
              CONCAT('HEX(`', c.column_name, '`)'), CONCAT('CAST(`', c.column_name, '` AS CHAR)')), \
              CONCAT('`', t.table_name, '`'), IF(c.extra LIKE '%auto_increment%', 'counted', '')) \
              FROM information_schema.tables t JOIN information_schema.columns c \
              ON c.table_schema = t.table_schema AND c.table_name = t.table_name \
              WHERE t.table_schema = DATABASE() AND t.table_type = 'BASE TABLE' ORDER BY t.table_name, c.ordinal_position",
    character: ("CHAR(", " USING utf8mb4)"),
};

const SQLITE: Catalogue = Catalogue {
    columns: "SELECT m.name || char(31) || c.name || char(31) || 'quote(\"' || replace(c.name, '\"', '\"\"') || '\")' \
              || char(31) || '\"' || replace(m.name, '\"', '\"\"') || '\"' || char(31) \
              || CASE WHEN c.pk = 1 AND upper(c.type) = 'INTEGER' \
              AND (SELECT count(*) FROM pragma_table_info(m.name) k WHERE k.pk > 0) = 1 THEN 'counted' ELSE '' END \
              FROM sqlite_master m, pragma_table_info(m.name) c \
              WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY m.name, c.cid",
    character: ("char(", ")"),
};

/// A table with its rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Table {
    pub(super) columns: Vec<String>,
    /// The columns that the database counts up, or may.
    pub(super) counted: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// The tables by their names.
pub(super) type Tables = BTreeMap<String, Table>;

/// Reads the application's tables, or those of them that are named.
pub(super) fn read<C: QueueConnection>(connection: &mut C, named: &[String]) -> QueryResult<Tables> {
    let catalogue = catalogue::<C::Backend>();
    let mut tables = BTreeMap::<String, (Table, Vec<String>, String)>::new();
    for line in load(connection, catalogue.columns)? {
        let parts: Vec<_> = line.split(BETWEEN).map(str::to_owned).collect();
        let Ok([name, column, text, from, counted]) = <[String; 5]>::try_from(parts) else { continue };
        if is_of_the_application(&name) && (named.is_empty() || named.contains(&name)) {
            let (table, texts, place) = tables.entry(name).or_default();
            if !counted.is_empty() {
                table.counted.push(column.clone());
            }
            table.columns.push(column);
            texts.push(text);
            *place = from;
        }
    }
    if let Some(unknown) = named.iter().find(|name| !tables.contains_key(*name)) {
        let known: Vec<_> = tables.keys().map(String::as_str).collect();
        let text = format!("there is no table {unknown} to compare; of the named ones there are: {}", known.join(", "));
        return Err(DieselError::QueryBuilderError(text.into()));
    }
    let read = |(name, (mut table, texts, from)): (_, (Table, Vec<String>, String))| {
        let rows = load(connection, &rows_of::<C::Backend>(catalogue, &texts, &from))?;
        table.rows = rows.iter().map(|row| row.split(BETWEEN).map(shown).collect()).collect();
        Ok((name, table))
    };
    tables.into_iter().map(read).collect()
}

/// Tells whether a table is none of the library's, and not the record of migrations.
fn is_of_the_application(name: &str) -> bool {
    !name.starts_with("queueable_") && !name.starts_with("__diesel_")
}

fn catalogue<DB: TextSql>() -> &'static Catalogue {
    match DB::TEXT_FORM {
        TextForm::Text => &POSTGRES,
        TextForm::Hex => &MYSQL,
        TextForm::HexOfLiteral => &SQLITE,
    }
}

/// Returns the statement that reads the rows of a table, each as one text.
fn rows_of<DB: TextSql>(catalogue: &Catalogue, texts: &[String], from: &str) -> String {
    let (before, after) = catalogue.character;
    let value = |text: &String| format!("COALESCE({text}, {before}30{after})");
    let (open, then, close) = DB::CONCATENATION;
    let parts: Vec<_> = texts.iter().map(value).collect();
    format!("SELECT {open}{}{close} FROM {from}", parts.join(&format!("{then}{before}31{after}{then}")))
}

fn load<C: QueueConnection>(connection: &mut C, statement: &str) -> QueryResult<Vec<String>> {
    Loads::<Text, String>::load::<ByText>(connection, &statement)
}

/// Returns a value as stories show it. A time of day is only a time, because no two runs have the same.
fn shown(value: &str) -> String {
    if value == NULL {
        return "NULL".to_owned();
    }
    if is_time(value.trim_start_matches('\'')) { "a time".to_owned() } else { value.to_owned() }
}

/// Tells whether a text begins with a date and a time of day.
fn is_time(text: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00 00:00";
    let is_like = |(byte, form): (u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        b' ' => matches!(byte, b' ' | b'T'),
        form => byte == *form,
    };
    text.len() >= FORM.len() && text.bytes().zip(FORM).all(is_like)
}
