//! The queue columns that the pollers of this process use, and for which entity.

use std::any::TypeId;

use crate::attempt::{Runner, RunnerInfo};
use crate::backend::{QueueConnection, TableName};
use crate::error::{Error, Finding};
use crate::sync::Mutex;

/// The columns of the queue of one entity.
#[derive(Clone)]
struct Columns {
    database: String,
    table: TableName,
    columns: [&'static str; 5],
    entity: &'static str,
    queue: TypeId,
}

impl Columns {
    fn of(database: &str, RunnerInfo { target, queue, entity, .. }: &RunnerInfo) -> Self {
        let columns = target.columns.all();
        Columns { database: database.to_owned(), table: target.table.clone(), columns, entity, queue: *queue }
    }

    /// Finds the columns that another entity's queue has too. Each queue would take the other's rows for its own, and
    /// settle them by its own rules. If the queues share only some columns, neither would find its fence.
    fn conflict(&self, other: &Columns) -> Option<Finding> {
        if self.queue == other.queue || self.database != other.database || self.table != other.table {
            return None;
        }
        let is_shared = |name: &&str| other.columns.iter().any(|other| other.eq_ignore_ascii_case(name));
        let shared: Vec<_> = self.columns.into_iter().filter(is_shared).collect();
        (!shared.is_empty()).then(|| Finding {
            entity: self.entity.to_owned(),
            problem: format!(
                "{} has its queue in the same columns of the table {}: {}",
                other.entity,
                self.table.name,
                shared.join(", ")
            ),
            mend: "give one of the two queues columns of its own, for example with #[queue(prefix = \"queue_\")], and \
                   migrate the table"
                .to_owned(),
        })
    }
}

/// The columns that the pollers of this process use, each poller with its number.
static IN_USE: Mutex<(u64, Vec<(u64, Columns)>)> = Mutex::new((0, Vec::new()));

/// Keeps a poller's queues registered until it is dropped.
pub(crate) struct ColumnsInUse(u64);

impl ColumnsInUse {
    /// Registers the queues of a poller, unless two of its entities share columns. Logs a warning for columns that
    /// another poller uses for another entity. Several pollers may serve one entity.
    pub(crate) fn enter<C: QueueConnection>(database: &str, runners: &[Box<dyn Runner<C>>]) -> Result<Self, Error> {
        let entered: Vec<_> = runners.iter().map(|runner| Columns::of(database, runner.info())).collect();
        let mut in_use = IN_USE.lock();
        let (number, others) = &mut *in_use;
        let mut findings = Vec::new();
        for (i, columns) in entered.iter().enumerate() {
            findings.extend(entered[..i].iter().filter_map(|other| columns.conflict(other)));
            // This is only logged: a mode may be changed while an earlier poller processes its last rows.
            for finding in others.iter().filter_map(|(_, other)| columns.conflict(other)) {
                tracing::warn!("another poller in this process serves the same rows: {finding}");
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
        let mut in_use = IN_USE.lock();
        in_use.1.retain(|(number, _)| *number != self.0);
    }
}
