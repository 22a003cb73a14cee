//! The queue's indexes: of due times, of the entity's own order, of its lanes, and of the rows that reports look for.

use std::iter;

use super::target::{Named, Target};
use crate::backend::connection::QueueBackend;
use crate::row::{ColumnNames, Lanes, Options};

/// The order of a column in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    /// As the database does by itself: ascending.
    Plain,
    /// Ascending, and the rows without a value before all others.
    NullsFirst,
    /// Descending, and the rows without a value behind all others.
    Descending,
}

/// A column of an index.
pub(crate) struct IndexKey {
    pub(crate) name: String,
    pub(crate) order: KeyOrder,
    /// Whether its values may be too long for an index: the index has the [beginning](Dialect::long_value) of each.
    pub(crate) is_long: bool,
}

impl IndexKey {
    fn plain(name: &str) -> Self {
        IndexKey { name: name.to_owned(), order: KeyOrder::Plain, is_long: false }
    }
}

/// The rows that an index contains, where it can leave out the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexedRows {
    /// Those with a next attempt time.
    Pending,
    /// Those that failed or were skipped: they have the text of a failure, or one of these statuses.
    Reported,
}

impl IndexedRows {
    /// Writes the condition that picks them.
    pub(crate) fn condition(self, target: &Target) -> String {
        let [next, status, text] =
            [target.columns.next_attempt_time, target.columns.status, target.columns.last_attempt_error_message]
                .map(|name| target.table.quoted(name));
        match self {
            IndexedRows::Pending => format!("{next} IS NOT NULL"),
            IndexedRows::Reported => format!("{text} IS NOT NULL OR {status} = 'FAILED' OR {status} = 'SKIPPED'"),
        }
    }
}

/// A column for an index that cannot leave out rows: it is null in those that the index would leave out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(dead_code, reason = "a database with partial indexes needs none")]
pub(crate) struct Computed {
    pub(crate) name: String,
    /// The column of the queue whose value it has in the reported rows. `None`: it is 1 in the pending rows.
    pub(crate) of: Option<&'static str>,
}

/// An index of the queue.
pub(crate) struct Index {
    /// The step of the migration that creates it.
    pub(crate) step: &'static str,
    pub(crate) name: String,
    /// All columns, as SQL.
    pub(crate) columns: String,
    /// The same one by one.
    pub(crate) keys: Vec<IndexKey>,
    /// The step that makes it wider, how many columns it has until then, and how many after that is undone: a queue has made the
    /// narrower index before it asked for more.
    #[allow(dead_code, reason = "MySQL's indexes alone are widened")]
    pub(crate) widened: Option<(&'static str, usize, usize)>,
    /// The rows that it contains, where it can leave out the others.
    #[allow(dead_code, reason = "MySQL's indexes contain all rows")]
    pub(crate) rows: IndexedRows,
    /// Its columns that are computed, where it cannot.
    #[allow(dead_code, reason = "a database with partial indexes needs none")]
    pub(crate) computed: Vec<Computed>,
}

impl Index {
    /// An index of the pending rows, without a column that is computed.
    fn of<DB: QueueBackend>(target: &Target, step: &'static str, named: Named<'_>, keys: Vec<IndexKey>) -> Self {
        let column = |key: &IndexKey| {
            let (before, after) = DB::indexed(key.is_long, target.options.long_columns());
            let order = match key.order {
                KeyOrder::Plain => "",
                KeyOrder::NullsFirst => DB::NULLS_FIRST,
                KeyOrder::Descending => DB::DESCENDING,
            };
            [before, &target.table.quoted(&key.name), after, order].concat()
        };
        let columns = keys.iter().map(column).collect::<Vec<_>>().join(", ");
        let (rows, widened, computed) = (IndexedRows::Pending, None, Vec::new());
        Index { step, name: target.name_of(named), columns, keys, widened, rows, computed }
    }
}

/// Returns the index of due times, the one of the entity's own order: by order and due time, or for an exclusive entity
/// by order and primary key; the one of stages, for pollers that serve some of them: by stage and due time, or for an
/// exclusive entity by stage, order and primary key; the one of lanes: by lane, order and due time, and where ties need it, by
/// primary key; the one of what holds strictly serial lanes back: by lane and status, and where it cannot leave out the rows
/// that are not pending, by due time; and the one of what reports look for: by status and time.
pub(crate) fn indexes<DB: QueueBackend>(target: &Target) -> Vec<Index> {
    let next = target.columns.next_attempt_time;
    let key = || target.key.iter().map(String::as_str);
    let (mut due, mut widened) = (vec![IndexKey::plain(next)], None);
    if target.options.report_index && !DB::PARTIAL_INDEXES {
        // With the status, a count of the due rows reads no row. The key stays before it, so that rows of one time keep their order.
        add_new(&mut due, key().chain([target.columns.status]).map(IndexKey::plain));
        widened = Some(("status", 1, if target.options.report_by.is_some() { due.len() } else { 1 }));
        add_new(&mut due, target.options.report_by.map(|(column, _)| IndexKey::plain(column)));
    }
    let mut indexes = vec![Index { widened, ..Index::of::<DB>(target, "index", Named::Index, due) }];
    let Options { order, exclusive, lanes, stages, report_index, .. } = target.options;
    if order.is_some() || exclusive {
        let last = if exclusive { key().collect() } else { vec![next] };
        indexes.push(index_of_pending::<DB>(target, "order", Named::Order, None, last));
    }
    indexes.extend(stages.map(|stages| stage_index::<DB>(target, stages.column)));
    if let Some(lanes) = lanes {
        let last = iter::once(next).chain(key().filter(|_| target.ties_by_key)).collect();
        indexes.push(index_of_pending::<DB>(target, "lanes", Named::Lanes, Some(lane_key(lanes)), last));
        if lanes.strict {
            indexes.push(strict_index::<DB>(target, lanes));
        }
    }
    indexes.extend(report_index.then(|| report_index_on::<DB>(target)));
    indexes
}

/// Returns the index of what reports look for. Rows without a time come first, so that a walk from the latest ends with them.
fn report_index_on<DB: QueueBackend>(target: &Target) -> Index {
    let ColumnNames { status, next_attempt_time, last_attempt_time, .. } = target.columns;
    let name = |column: &'static str| target.name_of(Named::Reported(column));
    let key =
        |column: &'static str| IndexKey::plain(&if DB::PARTIAL_INDEXES { column.to_owned() } else { name(column) });
    let mut keys = vec![key(status), IndexKey { order: KeyOrder::NullsFirst, ..key(last_attempt_time) }];
    let mut computed = vec![status, last_attempt_time];
    let by = target.options.report_by.filter(|_| !DB::PARTIAL_INDEXES);
    if let Some((column, _)) = by {
        // A count of the failed rows by this column reads no row. The key stays before it, for pages.
        computed.push(next_attempt_time);
        let own_key = target.key.iter().map(|name| IndexKey::plain(name));
        add_new(&mut keys, own_key.chain([key(next_attempt_time), IndexKey::plain(column)]));
    }
    computed.retain(|_| !DB::PARTIAL_INDEXES);
    let computed = computed.into_iter().map(|of| Computed { name: name(of), of: Some(of) }).collect();
    let widened = by.map(|_| ("reports_by", 2, 2));
    let index = Index::of::<DB>(target, "reports", Named::Reports, keys);
    Index { rows: IndexedRows::Reported, computed, widened, ..index }
}

/// Adds columns to an index. No database wants one twice there, and what comes first decides.
fn add_new(keys: &mut Vec<IndexKey>, more: impl IntoIterator<Item = IndexKey>) {
    for key in more {
        if keys.iter().all(|before| before.name != key.name) {
            keys.push(key);
        }
    }
}

/// Returns the index of stages, whose column has this name.
pub(super) fn stage_index<DB: QueueBackend>(target: &Target, column: &str) -> Index {
    let (stage, named) = (IndexKey::plain(column), Named::Stages(column));
    if target.options.exclusive {
        let last = target.key.iter().map(String::as_str).collect();
        // The pending flag comes and goes with the index of the order.
        return Index { computed: Vec::new(), ..index_of_pending::<DB>(target, "stages", named, Some(stage), last) };
    }
    Index::of::<DB>(target, "stages", named, vec![stage, IndexKey::plain(target.columns.next_attempt_time)])
}

/// Returns the index of what holds strictly serial lanes back. It does without the pending flag, because few rows have its
/// statuses. And with the flag MariaDB (10.11) overlooks, in a sorted result, a row that another session has committed
/// within the last milliseconds.
fn strict_index<DB: QueueBackend>(target: &Target, lanes: Lanes) -> Index {
    let mut keys = vec![lane_key(lanes), IndexKey::plain(target.columns.status)];
    if !DB::PARTIAL_INDEXES {
        keys.push(IndexKey::plain(target.columns.next_attempt_time));
    }
    Index::of::<DB>(target, "strict", Named::Strict, keys)
}

fn lane_key(Lanes { column, of, .. }: Lanes) -> IndexKey {
    IndexKey { is_long: of.kind.is_long(), ..IndexKey::plain(column) }
}

/// Returns an index of the pending rows: by the first column, if there is one, by the entity's order, and by the last
/// columns.
fn index_of_pending<DB: QueueBackend>(
    target: &Target,
    step: &'static str,
    named: Named<'_>,
    first: Option<IndexKey>,
    last: Vec<&str>,
) -> Index {
    let flag = (!DB::PARTIAL_INDEXES).then(|| target.name_of(Named::PendingFlag));
    let ordered = target.options.order.iter().flat_map(|order| order.columns).map(|column| {
        let order = if column.descending { KeyOrder::Descending } else { KeyOrder::NullsFirst };
        IndexKey { name: column.name.to_owned(), order, is_long: column.is_long }
    });
    let last = last.into_iter().map(IndexKey::plain);
    let mut keys: Vec<IndexKey> = flag.as_deref().map(IndexKey::plain).into_iter().chain(first).collect();
    add_new(&mut keys, ordered.chain(last));
    let computed = flag.map(|name| Computed { name, of: None }).into_iter().collect();
    Index { computed, ..Index::of::<DB>(target, step, named, keys) }
}
