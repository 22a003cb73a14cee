//! The command: what it refuses, its transaction, and what it says.

use diesel::connection::TransactionManager;
use queue_core::internals::backend::{Dialect, ErrorClass, Transactions};
use queue_core::internals::by_name::PageOrder;
use queueable::testing::AttemptEnd;
use queueable::{Error, Explanation};

use super::attempt::Replays;
use super::report::Report;
use super::statements::Statements;
use crate::cli::Replay;
use crate::command::{Context, condition, key};
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::filter::Condition;
use crate::queue::{Facts, Line, Paging, Queue, Rows};
use crate::shown::{LONGEST, visible};

/// What the test kit says of a handler that has ended the transaction around its attempt.
const ENDED: &str = "the transaction of the test";

/// Makes the last attempt of a row again, and rolls it back.
pub(crate) fn run<C: Database>(context: &mut Context<'_, C>, replay: &Replay) -> Answer {
    let queue = context.parts.queue(&replay.queue)?;
    let facts = queue.facts();
    let handler = context.parts.handlers.of(&facts.queue).ok_or_else(|| {
        let entity = facts.entity;
        Failure::Usage(format!(
            "this console has no handler for {}: its program adds one by `.handler::<{entity}>(..)`",
            facts.table
        ))
    })?;
    if !replay.rollback {
        return Err(Failure::Usage(
            "a replay is always rolled back: say `--rollback`. For an attempt that stays, `retry` the row".to_owned(),
        ));
    }
    let condition = key(facts, &replay.key)?;
    if facts.leased && !replay.call {
        return Err(Failure::Usage(format!(
            "the handler of {} calls the outside world, and no rollback takes that back: say `--call` if the call is to be made once more",
            facts.table
        )));
    }
    let row = Row { queue, facts, condition, name: format!("{} {}", facts.table, visible(&replay.key)) };
    let attempted = match row.attempt(context, handler) {
        Ok(attempted) => attempted,
        Err(Stopped::Failed(failure)) => return Err(failure),
        Err(Stopped::Running) => return Err(row.running(context)),
        Err(Stopped::Committed(error)) => return Err(row.committed(context, &error)),
    };
    attempted.show(context, facts)?;
    // As a check that has found something.
    if attempted.has_failed() { Err(Failure::Found) } else { Ok(()) }
}

/// Why there is no report.
enum Stopped {
    Failed(Failure),
    /// Another session holds the row.
    Running,
    /// The handler has ended the transaction.
    Committed(Error),
}

impl<F: Into<Failure>> From<F> for Stopped {
    fn from(failure: F) -> Self {
        Stopped::Failed(failure.into())
    }
}

/// The row of a replay.
struct Row<'a, C: Database> {
    queue: &'a dyn Queue<C>,
    facts: &'a Facts,
    condition: Condition,
    name: String,
}

impl<C: Database> Row<'_, C> {
    /// Makes the attempt in a transaction, which ends with a rollback whatever happens.
    fn attempt(&self, context: &mut Context<'_, C>, handler: &dyn Replays<C>) -> Result<Report, Stopped> {
        let connection = &mut context.connection;
        connection.set_up_attempt()?;
        match Transactions::begin(connection) {
            // Others write to the one file.
            Err(error) if C::classify(&error) == ErrorClass::Conflict => return Err(Stopped::Running),
            begun => begun?,
        }
        let attempted = self.attempt_inside(context, handler);
        match (attempted, C::TransactionManager::rollback_transaction(&mut context.connection)) {
            (Ok(_), Err(error)) => Err(Failure::from(error).into()),
            (attempted, _) => attempted,
        }
    }

    fn attempt_inside(&self, context: &mut Context<'_, C>, handler: &dyn Replays<C>) -> Result<Report, Stopped> {
        let name = &self.name;
        let Some(before) = self.read(context)? else {
            return Err(Failure::Failed(format!("{name}: there is no such row")).into());
        };
        let tries = self.tries_before(&before)?;
        if !handler.prepare(&mut context.connection, &self.unchanged(&before)?, tries)? {
            return Err(Stopped::Running);
        }
        context.screen.say(format!("{name}: {}", self.warning()))?;
        let statements = Statements::hear(&mut context.connection);
        let attempted = handler.attempt(&mut context.connection, &self.condition);
        let heard = statements.end(&mut context.connection);
        if let Some(statement) = heard.stopped {
            return Err(Failure::Failed(format!(
                "{name}: the handler runs `{}`, which would end the transaction and keep what it has written. The console has stopped it \
                 before this statement, and has rolled everything back: a handler that commits cannot be replayed",
                visible(&statement)
            ))
            .into());
        }
        let turned = match attempted {
            Err(error @ Error::Setting { setting: ENDED, .. }) => return Err(Stopped::Committed(error)),
            attempted => attempted.map_err(Failure::of::<C>)?,
        };
        let Some((end, event)) = turned.events.iter().rev().find_map(AttemptEnd::of) else {
            return Err(self.not_taken(context, turned.is_trouble)?.into());
        };
        let next = turned.next.iter().rev().find(|(key, _)| *key == event.key).map(|(_, time)| *time);
        let after = self.read(context)?;
        Ok(Report { end, event: event.clone(), next, statements: heard.statements, before, after })
    }

    /// Reads all columns of the row.
    fn read(&self, context: &mut Context<'_, C>) -> Answer<Option<Line>> {
        let rows = Rows { filter: Some(self.condition.clone()), ..Rows::default() };
        let columns = self.facts.all_columns();
        let paging =
            Paging { columns, longest: LONGEST, order: PageOrder::Key, backwards: false, after: None, limit: 1 };
        let lines = context.ask(self.queue, |queue, connection| queue.page(connection, &rows, &paging))?;
        Ok(lines.into_iter().next())
    }

    /// Returns how many tries the row had before its last attempt.
    fn tries_before(&self, row: &Line) -> Answer<i32> {
        let tries = self.facts.value(row, self.facts.names.try_count).unwrap_or_default();
        let unread = |_| Failure::Failed(format!("{}: its number of tries is `{}`", self.name, visible(tries)));
        Ok(tries.parse::<i32>().map_err(unread)?.saturating_sub(1).max(0))
    }

    /// Picks the row for as long as nobody has attempted it since.
    fn unchanged(&self, row: &Line) -> Answer<Condition> {
        let names = self.facts.names;
        let is = |column: &str| self.facts.value(row, column).map(|value| self.facts.is(column, value));
        let same: Vec<_> = [names.status, names.try_count].into_iter().filter_map(is).collect();
        Ok(Condition::all(vec![self.condition.clone(), condition(self.facts, &same.join(" and "))?]))
    }

    /// What the attempt keeps others from meanwhile, and what no rollback takes back.
    fn warning(&self) -> &'static str {
        match (self.facts.leased, C::Backend::ONE_WRITER) {
            (true, true) => {
                "the call is made for real, and nobody else can write to the database until the replay ends"
            }
            (true, false) => "the call is made for real, and the row is locked until the replay ends",
            (false, true) => "nobody else can write to the database until the replay ends",
            (false, false) => "the row is locked until the replay ends",
        }
    }

    /// Says why a worker would not attempt the row although it is due.
    fn not_taken(&self, context: &mut Context<'_, C>, is_trouble: bool) -> Answer<Failure> {
        let name = &self.name;
        if is_trouble {
            return Ok(Failure::Failed(format!(
                "{name}: the worker could not work; it writes why as warnings of `tracing`, if the console's program has a subscriber"
            )));
        }
        let explained = context.ask(self.queue, |queue, connection| queue.explain(connection, &self.condition))?;
        let why = match explained {
            Some((_, Explanation::Due)) | None => "a condition, an order or a limit keeps it back".to_owned(),
            Some((_, why)) => why.to_string(),
        };
        Ok(Failure::Failed(format!("{name}: a worker would not attempt the row: {why}")))
    }

    /// Says who holds the row.
    fn running(&self, context: &mut Context<'_, C>) -> Failure {
        let explained = context.ask(self.queue, |queue, connection| queue.explain(connection, &self.condition));
        let why = match explained {
            Err(failure) => return failure,
            Ok(None) => return Failure::Failed(format!("{}: there is no such row", self.name)),
            Ok(Some((_, why @ Explanation::Held { .. }))) => why.to_string(),
            Ok(Some(_)) => "another session has changed or locked it".to_owned(),
        };
        Failure::Failed(format!("{}: nothing was replayed, because an attempt may be running now: {why}", self.name))
    }

    /// Says what is left of an attempt whose handler has ended the transaction.
    fn committed(&self, context: &mut Context<'_, C>, error: &Error) -> Failure {
        // The state of the old one is unknown.
        let explained = context.parts.connect(&context.line.global).and_then(|connection| {
            context.connection = connection;
            context.ask(self.queue, |queue, connection| queue.explain(connection, &self.condition))
        });
        let now = match explained {
            Ok(Some((_, now))) => format!("The row is now: {now}"),
            Ok(None) => "The row is gone".to_owned(),
            Err(failure) => format!("The row could not be read: {failure}"),
        };
        Failure::Failed(format!(
            "{}: the replay could not be rolled back, because the handler has ended the transaction. What the handler has written until \
             then is committed. So is the change by which the replay made the row due: workers will attempt it. {now}\n{error}",
            self.name
        ))
    }
}
