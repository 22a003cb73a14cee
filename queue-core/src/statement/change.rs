//! The new values that a write gives the queue columns of a row.

use std::time::Duration;

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::names::push_names;
use crate::backend::{QueueBackend, push_now_plus};
use crate::entity::QueueSql;
use crate::redact::Redact;
use crate::row::{ColumnNames, Details, ErrorText, Fence, Instant, Options, Periodic, Status};

/// The new values of a row's queue columns; `None` leaves a column as it is.
///
/// It has many fields because each is the new value of one column, or a condition of one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// The status.
    pub status: Option<Status>,
    /// When the row is due next.
    pub next: Option<Next>,
    /// Whether a row that was stopped under a lease stays stopped, so that this change does not make it due.
    pub unless_stopped: bool,
    /// The number of recorded attempts.
    pub try_count: Option<i32>,
    /// Whether the number of recorded attempts is incremented, instead of being set.
    pub another_try: bool,
    /// Whether the row's next attempt is a new occasion, if the entity counts occasions: it then has another
    /// idempotency key.
    pub next_occasion: bool,
    /// Whether an attempt ends now.
    pub attempted: bool,
    /// When an attempt under a lease begins. It distinguishes the lease from every other of the row.
    pub began: Option<Instant>,
    /// The text of the last failure.
    pub error: ErrorText,
    /// How the application redacts texts that a settlement may add.
    pub redact: Option<Redact>,
    /// When the attempt that ends now began, for entities that store it.
    pub begin: Option<Instant>,
    /// Whether the change is an attempt's result for the row's content. If the content has changed since the claim, the
    /// row becomes what a change of the content right after the attempt would have made of it: due, with its tries
    /// counted from the start.
    pub of_content: bool,
    /// Whether a row whose work ends with this change stays in its table, whatever the entity asks for.
    pub stays: bool,
}

/// When a row is due next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is not to be processed.
    Never,
    /// After a delay from now, by the database's clock.
    In(Duration),
    /// At a given time.
    At(Instant),
    /// At the next time on its schedule.
    Scheduled(Instant),
    /// Now, ahead of the next time on its schedule, which is this one.
    AheadOf(Instant),
    /// Now, in another stage.
    InStage(&'static str),
}

impl Change {
    /// Makes a change by an attempt with these details of its row.
    pub(crate) fn of(details: &Details) -> Self {
        Change { begin: details.now.map(Instant::from), of_content: true, ..Change::default() }
    }

    /// Returns the change to write instead of this one if the content has changed meanwhile.
    pub(crate) fn after_new_content(&self) -> Self {
        Change {
            status: Some(Status::NotAttempted),
            next: Some(match self.next {
                // The attempt that has ended used the scheduled time, so the next attempt does not use it again.
                Some(Next::Scheduled(next)) => Next::AheadOf(next),
                _ => Next::In(Duration::ZERO),
            }),
            try_count: Some(0),
            another_try: false,
            of_content: false,
            ..self.clone()
        }
    }

    /// Writes ` SET column = value, ..`. Without a column this would not be valid SQL, so there is always one.
    pub(crate) fn push_set<'b, DB: QueueBackend>(
        &'b self,
        queue: &QueueSql<DB>,
        out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        let mut columns = SetColumns { separator: " SET ", names: queue.names, options: queue.options, out };
        self.push_status(&mut columns)?;
        self.push_stage(&mut columns)?;
        // Before the next attempt time, because MySQL assigns from left to right and reads what it has assigned.
        self.push_scheduled_time(&mut columns)?;
        self.push_next_attempt_time(&mut columns)?;
        self.push_tries(&mut columns)?;
        self.push_attempt_times(&mut columns)?;
        self.push_error(&mut columns)
    }

    fn push_status<'b, DB: QueueBackend>(&'b self, columns: &mut SetColumns<'_, 'b, DB>) -> QueryResult<()> {
        let Some(status) = &self.status else { return Ok(()) };
        columns.begin(columns.names.status)?;
        DB::bind_text(&mut columns.out, status.as_str())
    }

    fn push_stage<'b, DB: QueueBackend>(&'b self, columns: &mut SetColumns<'_, 'b, DB>) -> QueryResult<()> {
        if let (Some(Next::InStage(stage)), Some(stages)) = (&self.next, columns.options.stages) {
            columns.begin(stages.column)?;
            DB::bind_text(&mut columns.out, stage)?;
        }
        Ok(())
    }

    /// Writes the scheduled time of the row's next run.
    fn push_scheduled_time<'b, DB: QueueBackend>(&'b self, columns: &mut SetColumns<'_, 'b, DB>) -> QueryResult<()> {
        let (Some(next), Some(periodic)) = (&self.next, columns.options.periodic) else { return Ok(()) };
        columns.begin(periodic.scheduled_time)?;
        match next {
            Next::Scheduled(time) | Next::AheadOf(time) => DB::bind_time(&mut columns.out, time),
            _ => push_begun_schedule(periodic, columns.names, &mut columns.out),
        }
    }

    /// Writes when the row is due next, unless it must stay stopped.
    fn push_next_attempt_time<'b, DB: QueueBackend>(&'b self, columns: &mut SetColumns<'_, 'b, DB>) -> QueryResult<()> {
        let Some(next) = &self.next else { return Ok(()) };
        let name = columns.names.next_attempt_time;
        columns.begin(name)?;
        let out = &mut columns.out;
        let unless_stopped = self.unless_stopped && *next != Next::Never;
        if unless_stopped {
            push_names(out, "CASE WHEN {} IS NULL THEN NULL ELSE ", &[name])?;
        }
        match next {
            Next::Never => out.push_sql("NULL"),
            // All leases of an entity have one length, so that the statement is prepared once.
            Next::In(lease) if self.began.is_some() => push_now_plus(out, *lease),
            Next::In(delay) => {
                out.unsafe_to_cache_prepared();
                push_now_plus(out, *delay);
            }
            Next::InStage(_) | Next::AheadOf(_) => out.push_sql(DB::NOW),
            Next::At(time) | Next::Scheduled(time) => DB::bind_time(out, time)?,
        }
        if unless_stopped {
            out.push_sql(" END");
        }
        Ok(())
    }

    /// Writes the number of recorded attempts and the number of the occasion.
    fn push_tries<'b, DB: QueueBackend>(&'b self, columns: &mut SetColumns<'_, 'b, DB>) -> QueryResult<()> {
        let name = columns.names.try_count;
        if let Some(try_count) = &self.try_count {
            columns.begin(name)?;
            DB::bind_integer(&mut columns.out, try_count)?;
        }
        if self.another_try {
            columns.begin(name)?;
            columns.out.push_identifier(name)?;
            columns.out.push_sql(" + 1");
        }
        if let Some(occasion) = columns.options.occasion.filter(|_| self.next_occasion) {
            columns.begin(occasion)?;
            push_next_occasion(occasion, &mut columns.out)?;
        }
        Ok(())
    }

    /// Writes the times of the attempt that ends or begins, and the time of this write.
    fn push_attempt_times<'b, DB: QueueBackend>(&'b self, columns: &mut SetColumns<'_, 'b, DB>) -> QueryResult<()> {
        if self.attempted {
            columns.begin(columns.names.last_attempt_time)?;
            columns.out.push_sql(DB::NOW);
            self.push_measured_times(columns)?;
        }
        if let Some(updated) = columns.options.timestamps.updated {
            columns.begin(updated)?;
            columns.out.push_sql(DB::NOW);
        }
        if let Some(began) = &self.began {
            columns.begin(columns.names.last_attempt_time)?;
            DB::bind_time(&mut columns.out, began)?;
        }
        Ok(())
    }

    /// Writes when the attempt that ends now began and ended, if the entity stores that.
    fn push_measured_times<'b, DB: QueueBackend>(&'b self, columns: &mut SetColumns<'_, 'b, DB>) -> QueryResult<()> {
        let timestamps = columns.options.timestamps;
        // An attempt whose process died is not measured, because its end is unknown. The times of an earlier attempt
        // are not its own.
        let measured = timestamps.begin.is_none() || self.begin.is_some();
        if let Some(name) = timestamps.begin {
            columns.begin(name)?;
            match &self.begin {
                Some(begin) => DB::bind_time(&mut columns.out, begin)?,
                None => columns.out.push_sql("NULL"),
            }
        }
        if let Some(name) = timestamps.end {
            columns.begin(name)?;
            columns.out.push_sql(if measured { DB::NOW } else { "NULL" });
        }
        Ok(())
    }

    /// Writes the text of the last failure.
    fn push_error<'b, DB: QueueBackend>(&'b self, columns: &mut SetColumns<'_, 'b, DB>) -> QueryResult<()> {
        let (name, next_attempt_time) = (columns.names.last_attempt_error_message, columns.names.next_attempt_time);
        match &self.error {
            ErrorText::Keep => Ok(()),
            // A stopped row keeps the text that marks it as one that can be resumed. Its time stays null, so that
            // MySQL, which reads what it has just assigned, sees null too.
            ErrorText::Clear if self.unless_stopped && self.next != Some(Next::Never) => {
                columns.begin(name)?;
                columns.out.push_sql("CASE WHEN ");
                columns.out.push_identifier(next_attempt_time)?;
                columns.out.push_sql(" IS NULL THEN ");
                columns.out.push_identifier(name)?;
                columns.out.push_sql(" END");
                Ok(())
            }
            ErrorText::Clear => {
                columns.begin(name)?;
                columns.out.push_sql("NULL");
                Ok(())
            }
            ErrorText::Set(text) => {
                columns.begin(name)?;
                DB::bind_text(&mut columns.out, text)
            }
        }
    }
}

/// Writes the columns of a table as ` SET column = value, ..`, one after the other.
struct SetColumns<'a, 'b, DB: QueueBackend> {
    /// The text before the next column.
    separator: &'static str,
    names: ColumnNames,
    options: &'static Options,
    out: AstPass<'a, 'b, DB>,
}

impl<DB: QueueBackend> SetColumns<'_, '_, DB> {
    /// Writes the column's name. Its value follows.
    fn begin(&mut self, name: &str) -> QueryResult<()> {
        self.out.push_sql(std::mem::replace(&mut self.separator, ", "));
        self.out.push_identifier(name)?;
        self.out.push_sql(" = ");
        Ok(())
    }
}

/// Writes the number of the next occasion.
pub(crate) fn push_next_occasion<DB: QueueBackend>(occasion: &str, out: &mut AstPass<'_, '_, DB>) -> QueryResult<()> {
    push_names(out, "{} + 1", &[occasion])?;
    Ok(())
}

/// Tells whether a change that changed no row may have failed because of new content.
pub(crate) fn hangs_on_content(change: &Change, fence: Fence) -> bool {
    change.of_content && fence.change_count.is_some()
}

/// Writes the scheduled time as it is. For a row with a schedule that has not run yet, it writes the time at which the
/// row is due: the statement replaces that time, and the schedule is to begin with it.
pub(crate) fn push_begun_schedule<DB: QueueBackend>(
    periodic: Periodic,
    names: ColumnNames,
    out: &mut AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    push_names(
        out,
        "CASE WHEN {} IS NULL AND {} IS NULL THEN {} ELSE COALESCE({}, {}) END",
        &[periodic.period, periodic.cron, periodic.scheduled_time, periodic.scheduled_time, names.next_attempt_time],
    )?;
    Ok(())
}
