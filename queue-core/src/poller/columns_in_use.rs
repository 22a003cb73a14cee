//! Which queue columns the pollers of this process work, and for which entity.

use std::any::TypeId;
use std::sync::{Mutex, PoisonError};

use crate::attempt::Runner;
use crate::backend::{QueueConnection, Target};
use crate::error::{Error, Finding};

/// The columns of the queue of one entity.
#[derive(Clone)]
struct Columns {
    database: String,
    /// The schema, where the `table!` names one, and the table.
    table: (Option<String>, String),
    columns: [&'static str; 5],
    entity: &'static str,
    queue: TypeId,
}

impl Columns {
    fn of(database: &str, target: Target, queue: TypeId) -> Self {
        let names = target.columns;
        let columns = [
            names.status,
            names.next_attempt_time,
            names.try_count,
            names.last_attempt_time,
            names.last_attempt_error_message,
        ];
        let table = (target.table.schema, target.table.name);
        Columns { database: database.to_owned(), table, columns, entity: target.entity, queue }
    }

    /// The columns that another entity's queue has too. Each would take the other's rows for its own, and settle them by its own
    /// rules; where only some are shared, neither would find its fence.
    fn shared_with(&self, other: &Columns) -> Vec<&'static str> {
        if self.queue == other.queue || self.database != other.database || self.table != other.table {
            return Vec::new();
        }
        self.columns.into_iter().filter(|name| other.columns.iter().any(|o| o.eq_ignore_ascii_case(name))).collect()
    }

    fn conflict(&self, other: &Columns) -> Option<Finding> {
        let shared = self.shared_with(other);
        (!shared.is_empty()).then(|| Finding {
            entity: self.entity.to_owned(),
            problem: format!(
                "{} has its queue in the same columns of the table {}: {}",
                other.entity,
                self.table.1,
                shared.join(", ")
            ),
            mend: "give one of the two queues columns of its own, for example with #[queue(prefix = \"queue_\")], and \
                   migrate the table"
                .to_owned(),
        })
    }
}

/// What the pollers of this process work, each poller with its number.
static IN_USE: Mutex<(u64, Vec<(u64, Columns)>)> = Mutex::new((0, Vec::new()));

/// Says that a poller works its queues, until it is dropped.
pub(crate) struct ColumnsInUse(u64);

impl ColumnsInUse {
    /// Enters the queues of a poller, unless two of its entities share columns, and tells of those of other pollers. Several
    /// pollers may work one entity.
    pub(crate) fn enter<C: QueueConnection>(database: &str, runners: &[Box<dyn Runner<C>>]) -> Result<Self, Error> {
        let mut entered = Vec::new();
        for runner in runners {
            entered.push(Columns::of(database, runner.probes().target()?, runner.info().queue));
        }
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, others) = &mut *in_use;
        let mut findings = Vec::new();
        for (i, columns) in entered.iter().enumerate() {
            findings.extend(entered[..i].iter().filter_map(|other| columns.conflict(other)));
            // Told, not refused: a mode may be changed while a poller of before works its last rows.
            for finding in others.iter().filter_map(|(_, other)| columns.conflict(other)) {
                tracing::warn!("another poller of this process works the same rows: {finding}");
            }
        }
        if !findings.is_empty() {
            return Err(Error::Unsafe(findings));
        }
        *number += 1;
        let number = *number;
        others.extend(entered.into_iter().map(|columns| (number, columns)));
        Ok(ColumnsInUse(number))
    }
}

impl Drop for ColumnsInUse {
    fn drop(&mut self) {
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.1.retain(|(number, _)| *number != self.0);
    }
}
