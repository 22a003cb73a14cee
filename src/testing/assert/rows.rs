//! What assertions read: the one place that says on which connections they can.

use chrono::{DateTime, Utc};
use diesel::Connection;
use queue_core::internals::backend::{DeclaredColumn, Holds, TableName};
use queue_core::internals::by_name::{Picked, TextColumn, TextRow, key_names};
use queue_core::internals::statement::{Archive, Condition, PageFrom, PageOrder, SampleRow, StateCondition};

use crate::__derive::{OnFinish, QueueTable};
use crate::bounds::{
    AllFilters, AsQueueConnection, ComparesSchema, Explains, LoadsRows, QueueBackend, QueueOn, StoredIn,
};
use crate::{Entity, Error, Explanation, Queueable};

/// How many characters of a column's text a message shows.
const CHARACTERS: u32 = 60;

/// The database of a connection.
pub(super) type BackendOf<C> = <<C as AsQueueConnection>::Connection as Connection>::Backend;

/// A row as an assertion compares it.
pub struct Row<K> {
    /// Its key, if that can be decoded.
    pub(super) key: Option<K>,
    pub(super) status: String,
    pub(super) tries: i32,
    pub(super) next: Option<DateTime<Utc>>,
    pub(super) error: Option<String>,
    /// Whether its entity can be decoded. If not, its time and its error are missing too.
    pub(super) is_decoded: bool,
}

impl<K> Row<K> {
    fn of<Q: Entity<Key = K>>((key, _, status, tries, rest): SampleRow<Q>) -> Self {
        let rest = rest.ok();
        let is_decoded = rest.is_some();
        let (next, error) = rest.map_or((None, None), |(next, _, error, _)| (next, error));
        Row { key: key.ok().map(|(key,)| key), status, tries, next: next.map(DateTime::from), error, is_decoded }
    }
}

/// Which rows of a condition are read, and in which order.
#[derive(Debug, Clone, Copy)]
pub enum Which {
    /// Those that wait for their next attempt, the soonest first.
    Pending,
    /// The others, those with the highest keys first.
    NotPending,
    /// All, those with the highest keys first.
    Last,
}

/// A connection on which assertions on the rows of an entity can be made. It is implemented wherever Diesel can run the
/// statements.
#[diagnostic::on_unimplemented(
    message = "no assertion on rows of `{Q}` can be made on `{Self}`",
    note = "a queue works on `PgConnection`, `MysqlConnection` and `SqliteConnection`, alone or from a pool, and every field can be read \
            from it"
)]
pub trait Inspects<Q: Queueable>: AsQueueConnection + Sized {
    /// Returns the condition that picks the rows in all of these states.
    fn rows_in(states: &[StateCondition]) -> Condition<'_, BackendOf<Self>>;
    fn read(
        &mut self,
        rows: Condition<'_, BackendOf<Self>>,
        which: Which,
        most: usize,
    ) -> Result<Vec<Row<Q::Key>>, String>;
    /// Reads the row with this key; if it is not there, from the archives of the entity.
    fn read_row(&mut self, key: &Q::Key) -> Result<Vec<Row<Q::Key>>, String>;
    fn explain_row(&mut self, key: &Q::Key) -> Result<Explanation, String>;
    /// Reads the texts of the key's columns, and of others.
    fn texts(&mut self, key: Q::Key, columns: &[TextColumn]) -> Result<Option<TextRow<Q::Key>>, String>;
    /// Returns the columns that the `table!` declares.
    fn columns() -> Result<Vec<TextColumn>, String>;
}

#[diagnostic::do_not_recommend]
impl<Q, C> Inspects<Q> for C
where
    Q: Queueable + QueueOn<C::Connection> + 'static,
    C: LoadsRows<Q, AllFilters> + Explains<Q, Connection: ComparesSchema<Q>>,
{
    fn rows_in(states: &[StateCondition]) -> Condition<'_, BackendOf<C>> {
        Condition::new(Q::SQL, None, states)
    }

    fn read(
        &mut self,
        rows: Condition<'_, BackendOf<C>>,
        which: Which,
        most: usize,
    ) -> Result<Vec<Row<Q::Key>>, String> {
        let (order, backwards, timed) = match which {
            Which::Pending => (PageOrder::NextAttempt, false, true),
            Which::NotPending => (PageOrder::NextAttempt, true, false),
            Which::Last => (PageOrder::KeyDescending, false, false),
        };
        let from = PageFrom { order, backwards, timed, after: None };
        let rows = self.load_page(rows, from, most).map_err(unread)?;
        Ok(rows.into_iter().map(Row::of::<Q>).collect())
    }

    fn read_row(&mut self, key: &Q::Key) -> Result<Vec<Row<Q::Key>>, String> {
        let is_key = C::are_keys(std::slice::from_ref(key));
        let row = Condition::of_keys(Q::SQL, &is_key);
        let mut rows = self.read(row, Which::Last, 1)?;
        if rows.is_empty() {
            for archive in &archives_of::<Q, BackendOf<C>>().map_err(unread)? {
                rows.extend(self.read(row.within(Some(archive)), Which::Last, 1)?);
            }
        }
        Ok(rows)
    }

    fn explain_row(&mut self, key: &Q::Key) -> Result<Explanation, String> {
        Q::explain(self, key).map_err(unread)
    }

    fn texts(&mut self, key: Q::Key, columns: &[TextColumn]) -> Result<Option<TextRow<Q::Key>>, String> {
        let all = Self::columns()?;
        let column = |name: String| {
            let declared = all.iter().find(|column| column.name == name).cloned();
            declared.unwrap_or(TextColumn { name, holds: Holds::Others })
        };
        let keys: Vec<_> = key_names::<Q, BackendOf<C>>().map_err(unread)?.into_iter().map(column).collect();
        let texts = Q::queue().texts_of(self, &Picked::of(key), (&keys, columns), CHARACTERS, 1).map_err(unread)?;
        Ok(texts.into_iter().next())
    }

    fn columns() -> Result<Vec<TextColumn>, String> {
        let column = |DeclaredColumn { name, holds, .. }| TextColumn { name, holds };
        Ok(C::Connection::declared().map_err(unread)?.into_iter().map(column).collect())
    }
}

/// Says that an assertion could not be made.
pub(super) fn unread(error: impl Into<Error>) -> String {
    format!("the rows cannot be read: {}", error.into())
}

/// Returns the archives of an entity.
fn archives_of<Q: StoredIn<DB>, DB: QueueBackend>() -> Result<Vec<Archive>, Error> {
    let options = &<Q::Queue as QueueTable>::OPTIONS;
    let name = |on_finish| match on_finish {
        OnFinish::Archive(name) => Some(name),
        _ => None,
    };
    let mut names: Vec<_> = [options.on_success, options.on_failure].into_iter().filter_map(name).collect();
    names.dedup();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let live = TableName::of(<Q::Queue as QueueTable>::TABLE, &DB::default())?;
    names.into_iter().map(|name| Archive::of(&live, name)).collect()
}
