//! The new values that a write gives the queue columns of a row.

use std::time::Duration;

use diesel::result::QueryResult;

use super::writer::Writer;
use crate::backend::{QueueBackend, now, push_now_plus};
use crate::entity::QueueSql;
use crate::log::Redact;
use crate::row::{Details, ErrorText, Fence, Instant, Periodic, Status};

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
    /// Whether the row is removed from its table, whatever the entity asks for.
    pub removes: bool,
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
    pub(crate) fn push_set<'b, DB: QueueBackend>(&'b self, sql: &mut Writer<'_, 'b, DB>) -> QueryResult<()> {
        let mut set = Set { separator: " SET ", queue: sql.queue, sql };
        if let Some(status) = &self.status {
            DB::bind_text(&mut set.column(set.queue.names.status)?.out, status.as_str())?;
        }
        if let (Some(Next::InStage(stage)), Some(stages)) = (&self.next, set.queue.options.stages) {
            DB::bind_text(&mut set.column(stages.column)?.out, stage)?;
        }
        if let Some(next) = &self.next {
            // Before the next attempt time, because MySQL assigns from left to right and reads what it has assigned.
            push_scheduled_time(next, &mut set)?;
            self.push_next_attempt_time(next, &mut set)?;
        }
        self.push_tries(&mut set)?;
        self.push_attempt_times(&mut set)?;
        self.push_error(&mut set)
    }

    /// Writes when the row is due next, unless it must stay stopped.
    fn push_next_attempt_time<'b, DB: QueueBackend>(
        &'b self,
        next: &'b Next,
        set: &mut Set<'_, '_, 'b, DB>,
    ) -> QueryResult<()> {
        let sql = set.column(set.queue.names.next_attempt_time)?;
        let unless_stopped = self.unless_stopped && *next != Next::Never;
        if unless_stopped {
            sql.push("CASE WHEN {next_attempt_time} IS NULL THEN NULL ELSE ")?;
        }
        let out = &mut sql.out;
        match next {
            Next::Never => out.push_sql("NULL"),
            // All leases of an entity have one length, so that the statement is prepared once.
            Next::In(lease) if self.began.is_some() => push_now_plus(out, *lease),
            Next::In(delay) => {
                out.unsafe_to_cache_prepared();
                push_now_plus(out, *delay);
            }
            Next::InStage(_) | Next::AheadOf(_) => out.push_sql(&now::<DB>()),
            Next::At(time) | Next::Scheduled(time) => DB::bind_time(out, time)?,
        }
        sql.push(if unless_stopped { " END" } else { "" })
    }

    /// Writes the number of recorded attempts and the number of the occasion.
    fn push_tries<'b, DB: QueueBackend>(&'b self, set: &mut Set<'_, '_, 'b, DB>) -> QueryResult<()> {
        let name = set.queue.names.try_count;
        if let Some(try_count) = &self.try_count {
            DB::bind_integer(&mut set.column(name)?.out, try_count)?;
        }
        if self.another_try {
            set.column(name)?.push("{try_count} + 1")?;
        }
        if let Some(occasion) = set.queue.options.occasion.filter(|_| self.next_occasion) {
            set.column(occasion)?.push_with("{} + 1", &[occasion])?;
        }
        Ok(())
    }

    /// Writes the times of the attempt that ends or begins, and the time of this write.
    fn push_attempt_times<'b, DB: QueueBackend>(&'b self, set: &mut Set<'_, '_, 'b, DB>) -> QueryResult<()> {
        if self.attempted {
            set.column(set.queue.names.last_attempt_time)?.push("{now}")?;
            self.push_measured_times(set)?;
        }
        if let Some(updated) = set.queue.options.timestamps.updated {
            set.column(updated)?.push("{now}")?;
        }
        if let Some(began) = &self.began {
            DB::bind_time(&mut set.column(set.queue.names.last_attempt_time)?.out, began)?;
        }
        Ok(())
    }

    /// Writes when the attempt that ends now began and ended, if the entity stores that.
    fn push_measured_times<'b, DB: QueueBackend>(&'b self, set: &mut Set<'_, '_, 'b, DB>) -> QueryResult<()> {
        let timestamps = set.queue.options.timestamps;
        // An attempt whose process died is not measured, because its end is unknown. The times of an earlier attempt
        // are not its own.
        let measured = timestamps.begin.is_none() || self.begin.is_some();
        if let Some(name) = timestamps.begin {
            let sql = set.column(name)?;
            match &self.begin {
                Some(begin) => DB::bind_time(&mut sql.out, begin)?,
                None => sql.push("NULL")?,
            }
        }
        if let Some(name) = timestamps.end {
            set.column(name)?.push(if measured { "{now}" } else { "NULL" })?;
        }
        Ok(())
    }

    /// Writes the text of the last failure.
    fn push_error<'b, DB: QueueBackend>(&'b self, set: &mut Set<'_, '_, 'b, DB>) -> QueryResult<()> {
        if self.error == ErrorText::Keep {
            return Ok(());
        }
        let sql = set.column(set.queue.names.last_attempt_error_message)?;
        match self.error.text() {
            Some(text) => DB::bind_text(&mut sql.out, text),
            // A stopped row keeps the text that marks it as one that can be restarted. Its time stays null, so that
            // MySQL, which reads what it has just assigned, sees null too.
            None if self.unless_stopped && self.next != Some(Next::Never) => {
                sql.push("CASE WHEN {next_attempt_time} IS NULL THEN {last_attempt_error_message} END")
            }
            None => sql.push("NULL"),
        }
    }
}

/// Writes the columns of a table as ` SET column = value, ..`, one after the other.
struct Set<'w, 'a, 'b, DB: QueueBackend> {
    /// The text before the next column.
    separator: &'static str,
    queue: &'static QueueSql<DB>,
    sql: &'w mut Writer<'a, 'b, DB>,
}

impl<'a, 'b, DB: QueueBackend> Set<'_, 'a, 'b, DB> {
    /// Writes the column's name, and returns what writes its value.
    fn column(&mut self, name: &str) -> QueryResult<&mut Writer<'a, 'b, DB>> {
        self.sql.push(std::mem::replace(&mut self.separator, ", "))?;
        self.sql.out.push_identifier(name)?;
        self.sql.out.push_sql(" = ");
        Ok(self.sql)
    }
}

/// Writes the scheduled time of the row's next run.
fn push_scheduled_time<'b, DB: QueueBackend>(next: &'b Next, set: &mut Set<'_, '_, 'b, DB>) -> QueryResult<()> {
    let Some(periodic) = set.queue.options.periodic else { return Ok(()) };
    let sql = set.column(periodic.scheduled_time)?;
    match next {
        Next::Scheduled(time) | Next::AheadOf(time) => DB::bind_time(&mut sql.out, time),
        _ => push_begun_schedule(periodic, sql),
    }
}

/// Tells whether a change that changed no row may have failed because of new content.
pub(crate) fn hangs_on_content(change: &Change, fence: Fence) -> bool {
    change.of_content && fence.change_count.is_some()
}

/// Writes `scheduled_time = .., ` with the time as it is or begins, if rows have schedules.
pub(crate) fn push_schedule<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    let Some(periodic) = sql.queue.options.periodic else { return Ok(()) };
    sql.push_with("{} = ", &[periodic.scheduled_time])?;
    push_begun_schedule(periodic, sql)?;
    sql.push(", ")
}

/// Writes the scheduled time as it is. For a row with a schedule that has not run yet, it writes the time at which the
/// row is due: the statement replaces that time, and the schedule is to begin with it.
fn push_begun_schedule<DB: QueueBackend>(periodic: Periodic, sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push_with(
        "CASE WHEN {} IS NULL AND {} IS NULL THEN {} ELSE COALESCE({}, {next_attempt_time}) END",
        &[periodic.period, periodic.cron, periodic.scheduled_time, periodic.scheduled_time],
    )
}
