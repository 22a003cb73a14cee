//! What a database can say of its own health: its checks as data, and how it runs one.

use diesel::Connection;
use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, QueryableByName};
use diesel::query_builder::AstPass;
use diesel::result::QueryResult;
use diesel::row::{NamedRow, Row};
use diesel::sql_types::{Nullable, Text, Untyped};

use super::statement::{Loads, Statement, load};
use crate::ill::{Ill, IllKind, Severity};

/// One look at the catalogue, a setting or a statistic.
///
/// The SQL returns a row of texts for each ill, and none if all is well. In the problem and in the mend, `{1}` stands for the
/// first text of the row, and so on. In all three, the names of [`LIMITS`] stand for numbers; in the checks of a table, `{table}`
/// stands for its name as SQL, `{name}` and `{schema}` for both parts as literals, and `{columns}` and `{indexes}` for literals of
/// the queue's.
pub struct Check {
    /// What it finds.
    pub kind: IllKind,
    /// How bad that is.
    pub severity: Severity,
    /// The query.
    pub sql: &'static str,
    /// What is wrong.
    pub problem: &'static str,
    /// What mends it.
    pub mend: &'static str,
}

/// From where on something is an ill, by the name in a [`Check`].
const LIMITS: [(&str, &str); 9] = [
    // A guess: no handler with the default timeout of 30 seconds holds its transaction for so long.
    ("{old_seconds}", "600"),
    // A guess: a pool that grows by a quarter has no connections then.
    ("{full_percent}", "80"),
    // A guess: shorter than many a statement of an application takes.
    ("{short_seconds}", "1"),
    // A guess: a pool gives out connections that have rested for as long.
    ("{short_rest_seconds}", "30"),
    // A guess: autovacuum begins at 50 and a fifth of the table, and half of what a claim reads is dead then.
    ("{dead_rows}", "10000"),
    // A guess: MySQL purges so many versions in a minute or so, if it can.
    ("{history}", "1000000"),
    // The server stops at 2^31 less 3 million. Autovacuum makes an effort from 200 million on.
    ("{transaction_ids}", "1500000000"),
    // 8 MiB: a smaller index is read in a moment, however empty it is.
    ("{small_index}", "8388608"),
    // 40 MiB, in pages of 4 KiB.
    ("{small_file_pages}", "10000"),
];

/// How many seconds a look may take, on databases that can end it.
#[allow(dead_code, reason = "SQLite ends no statement")]
pub(super) const LOOKS_FOR: u32 = 5;

/// A database's answers about its own health. It only reads.
pub trait Examination<DB = <Self as Connection>::Backend>: Loads<Untyped, Figures> {
    /// The checks of the server, or of the file.
    const OF_DATABASE: &'static [Check];

    /// The checks of a queue's table.
    const OF_TABLE: &'static [Check];

    /// The query for the version.
    const VERSION: &'static str;

    /// The queries for the names and values of the settings that decide how fast and how safe queues are, and of what is in use where
    /// they set a limit. None may hold a password.
    const SETTINGS: &'static [&'static str];

    /// The query for the names, bytes and rows of a queue's table and of its indexes. The names in braces are those of the checks of a
    /// table.
    const SIZES: &'static str;

    /// Whether EXPLAIN asks for the rights that its statement needs.
    const EXPLAINS_RIGHTS: bool = true;

    /// Looks at something for no longer than [`LOOKS_FOR`], and leaves neither settings nor a failed transaction behind.
    fn bounded<T>(&mut self, look: impl FnOnce(&mut Self) -> QueryResult<T>) -> QueryResult<T> {
        look(self)
    }

    /// Runs the query of a check.
    fn look(&mut self, sql: String) -> QueryResult<Vec<Figures>> {
        load::<Untyped, Figures, _>(self, &Explained("", &sql.as_str()))
    }

    /// Returns the plan of a statement, which does not run.
    fn plan(&mut self, statement: &dyn Statement<DB>) -> QueryResult<String>;

    /// Finds what no query shows.
    fn beyond_queries(&mut self) -> QueryResult<Vec<Ill>> {
        Ok(Vec::new())
    }
}

/// A row of texts.
pub struct Figures(pub(crate) Vec<String>);

impl Figures {
    /// Returns the last text of each row, as lines: a plan of SQLite has its words there, and the others have one column.
    pub(super) fn lines(rows: Vec<Self>) -> String {
        let lines: Vec<_> = rows.into_iter().filter_map(|Figures(mut texts)| texts.pop()).collect();
        lines.join("\n")
    }
}

impl<DB: Backend> QueryableByName<DB> for Figures
where
    Option<String>: FromSql<Nullable<Text>, DB>,
{
    fn build<'a>(row: &impl NamedRow<'a, DB>) -> deserialize::Result<Self> {
        let text = |place| Row::get_value::<Nullable<Text>, Option<String>, _>(row, place);
        (0..Row::field_count(row))
            .map(|place| Ok(text(place)?.unwrap_or_default()))
            .collect::<deserialize::Result<_>>()
            .map(Figures)
    }
}

/// A statement behind the words that have it explained.
pub(super) struct Explained<'a, DB: Backend>(pub(super) &'static str, pub(super) &'a dyn Statement<DB>);

impl<DB: Backend> Statement<DB> for Explained<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        out.push_sql(self.0);
        self.1.walk_ast(out)
    }
}

impl Check {
    /// Writes a text of a check with these names for their values, and then the limits.
    pub(crate) fn filled(text: &str, names: &[(&str, String)]) -> String {
        let text = names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
        LIMITS.iter().fold(text, |text, (name, value)| text.replace(name, value))
    }

    /// Runs it. `names`: what stands for the names of a queue's table.
    pub(crate) fn run<C: Examination>(&self, connection: &mut C, names: &[(&str, String)]) -> QueryResult<Vec<Ill>> {
        let found = connection.bounded(|connection| connection.look(Self::filled(self.sql, names)))?;
        let mut ills: Vec<_> = found
            .into_iter()
            .map(|Figures(figures)| {
                let places = (1..=figures.len()).map(|place| format!("{{{place}}}")).collect::<Vec<_>>();
                let figures =
                    places.iter().map(String::as_str).zip(figures).chain(names.iter().cloned()).collect::<Vec<_>>();
                Ill::new(
                    self.kind,
                    self.severity,
                    Self::filled(self.problem, &figures),
                    Self::filled(self.mend, &figures),
                )
            })
            .collect();
        // MariaDB has some settings under two names.
        ills.dedup();
        Ok(ills)
    }
}
