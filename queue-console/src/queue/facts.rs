//! What is known of a queue without its database: names, columns, and which of them are hidden.

use std::any::TypeId;

use queue_core::internals::by_name::{DeclaredColumn, Holds, TextColumn, key_names, queue_name_of};
use queue_core::{ColumnNames, ComparesSchema, LeaseMode, Options, QueueOn, QueueTable, StoredIn};
use queueable::{Queueable, Status};

use crate::database::Database;
use crate::filter::{Column, Columns, FilterSql};

/// What the console knows of a queue without asking the database.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// The name of the struct.
    pub(crate) entity: &'static str,
    /// The table, as people name it.
    pub(crate) table: String,
    /// The queue's name in the control table.
    pub(crate) queue: String,
    /// The columns of the table, those of the domain first, those of the queue after them.
    pub(crate) columns: Columns,
    /// How many of them are of the domain.
    pub(crate) domain: usize,
    /// The columns of the primary key.
    pub(crate) key: Vec<String>,
    /// Whether a condition can pick the rows that the database sorts after a key.
    pub(crate) is_ordered: bool,
    /// The columns whose values are never shown.
    pub(crate) secret: Vec<String>,
    pub(crate) options: &'static Options,
    /// Whether workers hold rows under leases.
    #[allow(dead_code, reason = "only a page asks for it")]
    pub(crate) leased: bool,
    pub(crate) names: ColumnNames,
}

impl Facts {
    /// Reads them from an entity. `hidden`: the columns whose values the application does not want to be shown.
    pub(super) fn of<Q, C>(hidden: Vec<String>) -> Result<Self, String>
    where
        C: Database + ComparesSchema<Q>,
        Q: Queueable + QueueOn<C> + StoredIn<C::Backend>,
    {
        let (options, names) = (&<Q::Queue as QueueTable>::OPTIONS, <Q::Queue as QueueTable>::COLUMNS);
        let queue = queue_name_of::<Q, C::Backend>().map_err(|error| error.to_string())?;
        let (table, _) = queue.rsplit_once('.').unwrap_or((&queue, ""));
        let own = own_columns(options, names);
        let declared = <C as ComparesSchema<Q>>::declared().map_err(|error| error.to_string())?;
        let is_own = |column: &DeclaredColumn| own.iter().any(|own| own.name == column.name);
        let mut columns: Vec<Column> =
            declared.into_iter().filter(|column| !is_own(column)).map(Column::from).collect();
        let domain = columns.len();
        columns.extend(own);
        let columns = Columns { table: table.to_owned(), list: columns };
        let key = key_names::<Q, C::Backend>().map_err(|error| error.to_string())?;
        let is_of_domain = |name: &&String| columns.list[..domain].iter().any(|column| column.name == **name);
        let all: Vec<&String> = columns.list.iter().map(|column| &column.name).collect();
        for name in &hidden {
            if !all.contains(&name) {
                return Err(format!(
                    "{}: a column that is to be hidden is misspelled: {}",
                    Q::ENTITY,
                    columns.lacks(name)
                ));
            }
            if key.contains(name) {
                return Err(format!("{}: `{name}` is part of the key, which every report shows", Q::ENTITY));
            }
            if !is_of_domain(&name) {
                return Err(format!("{}: `{name}` is the queue's own, and reports show what it has", Q::ENTITY));
            }
        }
        let is_hidden = |name: &&&String| is_secret(name) && !key.contains(name) && is_of_domain(name);
        let secret = all.iter().filter(is_hidden).map(|name| (*name).clone()).chain(hidden).collect();
        Ok(Facts {
            entity: Q::ENTITY,
            table: table.to_owned(),
            queue: queue.clone(),
            is_ordered: is_ordered::<C>(&columns, &key),
            columns,
            domain,
            key,
            secret,
            options,
            leased: TypeId::of::<Q::Mode>() == TypeId::of::<LeaseMode>(),
            names,
        })
    }

    /// The columns of the key.
    pub(crate) fn key_columns(&self) -> Vec<TextColumn> {
        let holds = |name: &String| self.columns.list.iter().find(|column| column.name == *name).map(|of| of.holds);
        let column = |name: &String| TextColumn { name: name.clone(), holds: holds(name).unwrap_or(Holds::Others) };
        self.key.iter().map(column).collect()
    }
}

/// Whether a condition can pick the rows that the database sorts after a key with these columns.
fn is_ordered<C: Database>(columns: &Columns, key: &[String]) -> bool {
    let holds = |name: &String| columns.list.iter().find(|of| of.name == *name).map_or(Holds::Others, |of| of.holds);
    !key.iter().any(|name| <C::Backend as FilterSql>::UNORDERED.contains(&holds(name)))
}

/// The queue's own columns, with what they hold.
fn own_columns(options: &Options, names: ColumnNames) -> Vec<Column> {
    let mut columns = vec![
        Column::new(names.status, Holds::Texts, false).of_values(Status::ALL.map(|status| status.to_string())),
        Column::new(names.next_attempt_time, Holds::Instants, true),
        Column::new(names.try_count, Holds::Integers(4), false),
        Column::new(names.last_attempt_time, Holds::Instants, true),
        Column::new(names.last_attempt_error_message, Holds::Texts, true),
    ];
    if let Some(stages) = options.stages {
        columns.push(Column::new(stages.column, Holds::Texts, false).of_values(stages.names.iter().copied()));
    }
    columns.extend(options.priority.map(|name| Column::new(name, Holds::Integers(4), false)));
    columns
}

/// Names that say that the value is nobody's business.
fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 9] =
        ["password", "passwd", "secret", "token", "api_key", "apikey", "private_key", "credential", "cvv"];
    let name = name.to_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}
