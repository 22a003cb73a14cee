//! Operations: the rows are shown first, a person is asked, and then exactly those rows are changed, in batches.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use chrono::SubsecRound;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use queue_core::internals::by_name::{Figure, Holds, Operate, Operated};
use queueable::Error;
use queueable::control::{self, Audit};
use serde_json::{Value, json};
use signal_hook::consts::SIGINT;

use crate::cli::{self, Change, Command};
use crate::command::{Context, condition, group_of, keys};
use crate::console::Parts;
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::queue::{Asked, Author, Facts, Line, Prepared, Queue, Rows, Shape};
use crate::shown::{Cell, Screen, Table, count, exact, rows, typed, visible};

/// How many of the rows are shown first.
const SHOWN: usize = 10;

/// More rows than these are changed in production only by somebody who has typed its name.
const MANY: usize = 1_000;

/// Runs an operation.
pub(crate) fn run<C: Database>(context: &mut Context<'_, C>) -> Answer {
    let (operate, change) = asked_for(&context.line.command)?;
    let queue = context.parts.queue(&change.queue)?;
    let facts = queue.facts();
    let rows = rows_of(facts, change)?;
    let group = change.error_group.as_deref().map(|name| group(context, queue, &rows, name)).transpose()?;
    let author = match change.dry_run {
        true => Author { by: String::new(), reason: String::new(), recorded: false },
        false => author(context, &change.author, "from the console")?,
    };
    let figures = figures(facts);
    let asked = Asked { operate, rows, group, figures, author, batch: change.batch };
    let ready = context.ask(queue, |queue, connection| queue.prepare(connection, &asked))?;
    let found = ready.count();
    if !change.dry_run {
        context.screen.changes();
    }
    preview(context, facts, &*ready, &asked)?;
    if found == 0 {
        return Ok(());
    }
    if change.dry_run {
        return Err(Failure::Found);
    }
    confirm_environment(context, change, found)?;
    let verb = word(&asked.operate);
    if !asked.author.recorded {
        context.screen.say("this session sees no table of the audit: it will not be recorded")?;
    }
    if change.yes {
        return work(context, facts, &*ready, &asked);
    }
    let shape = ready.shape();
    drop(ready);
    confirm(&context.screen, &format!("{verb}: {}. Go on?", crate::shown::rows(found)), change.yes)?;
    // Somebody may have thought for a long time.
    let again = context.ask(queue, |queue, connection| queue.prepare(connection, &asked))?;
    same(&shape, &again.shape())?;
    work(context, facts, &*again, &asked)
}

/// Refuses to work on other rows than were shown.
pub(crate) fn same(shown: &Shape, now: &Shape) -> Answer {
    let other = match now {
        now if now == shown => return Ok(()),
        now if now.count != shown.count => "",
        now if now.figures != shown.figures => " with other sums",
        _ => ", and not the same ones",
    };
    let (before, after) = (rows(shown.count), rows(now.count));
    Err(Failure::Failed(format!(
        "nothing was changed: there were {before}, and now there are {after}{other}; ask again"
    )))
}

/// Returns the operation, and how its rows are chosen.
fn asked_for(command: &Command) -> Answer<(Operate, &Change)> {
    Ok(match command {
        Command::Retry(change) => (Operate::RetryNow, change),
        Command::Skip(change) => (Operate::Skip, change),
        Command::Stop(change) => (Operate::Stop, change),
        Command::Resume(change) => (Operate::Restart, change),
        Command::Rerun(change) => (Operate::Rerun, change),
        Command::Delete(change) => (Operate::Delete, change),
        Command::Archive(change) => (Operate::Archive, change),
        Command::Enqueue(change) => (Operate::EnqueueExisting, change),
        Command::Purge(purge) => (Operate::Purge(purge.older_than), &purge.change),
        Command::Priority(priority) => (Operate::SetPriority(priority.to), &priority.change),
        Command::Redrive(redrive) if redrive.succeeded => (Operate::RedriveSucceeded, &redrive.change),
        Command::Redrive(redrive) => (Operate::Redrive, &redrive.change),
        Command::Postpone(postpone) => {
            let cli::When { until, lasting } = postpone.when;
            let time =
                until.or_else(|| chrono::Utc::now().checked_add_signed(chrono::TimeDelta::from_std(lasting?).ok()?));
            let time = time.ok_or_else(|| Failure::Usage("until when? `--for 2h`, or `--until`".to_owned()))?;
            (Operate::PostponeUntil(time.trunc_subsecs(0)), &postpone.change)
        }
        _ => return Err(Failure::Usage("this is no operation on rows".to_owned())),
    })
}

/// Reads how the rows are chosen. Nothing chosen is not everything.
fn rows_of(facts: &Facts, change: &Change) -> Answer<Rows> {
    let states = change.states.of();
    let mut conditions = Vec::new();
    if let Some(text) = &change.filter {
        conditions.push(condition(facts, text)?);
    }
    if !change.keys.is_empty() {
        conditions.push(keys(facts, &change.keys)?);
    }
    let chosen = !conditions.is_empty() || !states.is_empty() || change.error_group.is_some();
    if !chosen && !change.all {
        return Err(Failure::Usage(
            "which rows? Give keys, `--where`, a state such as `--failed`, `--error-group`, or `--all`".to_owned(),
        ));
    }
    if change.all && (!conditions.is_empty() || change.error_group.is_some()) {
        return Err(Failure::Usage("`--all` takes no condition beside it".to_owned()));
    }
    let filter = match conditions.len() {
        0 => None,
        _ => Some(crate::filter::Condition::all(conditions)),
    };
    Ok(Rows { states, within: None, filter })
}

/// Finds the pattern of a group of failures by its short name.
fn group<C: Database>(context: &mut Context<'_, C>, queue: &dyn Queue<C>, rows: &Rows, name: &str) -> Answer<String> {
    let report = context.ask(queue, |queue, connection| queue.errors(connection, rows))?;
    let found = group_of(report, name)?;
    let table = &queue.facts().table;
    let refused = || Failure::Usage(format!("there is no group `{name}` of errors: see `errors {table}`"));
    found.map(|group| group.pattern).ok_or_else(refused)
}

/// The sums of the domain's numbers, and how many values there are by which the rows take turns.
pub(crate) fn figures(facts: &Facts) -> Vec<Figure> {
    let lane = facts.options.lanes.map(|lanes| lanes.column);
    let domain = facts.columns.list[..facts.domain].iter().filter(|column| !facts.secret.contains(&column.name));
    let is_identity = |name: &str| name == "id" || name.ends_with("_id") || facts.key.iter().any(|key| key == name);
    let figures = domain.filter_map(|column| match column.holds {
        _ if lane == Some(column.name.as_str()) => Some(Figure::Distinct(column.name.clone())),
        Holds::Integers(_) | Holds::Unsigned(_) | Holds::Decimals if !is_identity(&column.name) => {
            Some(Figure::Sum(column.name.clone()))
        }
        _ => None,
    });
    figures.collect()
}

/// Shows the number of rows, the sums, and the first rows.
fn preview<C: Database>(context: &mut Context<'_, C>, facts: &Facts, ready: &dyn Prepared<C>, asked: &Asked) -> Answer {
    let columns = facts.listed(&[])?;
    let longest = context.screen.longest();
    let some: Vec<Line> = ready.some(&mut context.connection, &columns, longest, SHOWN)?;
    let sums = sums(ready, asked);
    context.screen.object(|| {
        let rows: Vec<Value> = some.iter().map(|line| facts.json_of(columns.iter().zip(&line.values))).collect();
        let figures: Value = sums.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect();
        json!({
            "queue": facts.queue, "operation": word(&asked.operate), "argument": argument(&asked.operate),
            "rows": ready.count(), "figures": figures, "some": rows,
        })
    })?;
    context.screen.say(summary(facts, ready, asked))?;
    if some.is_empty() {
        return Ok(());
    }
    let mut table = columns.iter().fold(Table::default(), |table, column| table.text(&column.name));
    for line in &some {
        let values = columns.iter().zip(&line.values);
        table.line(values.map(|(column, value)| match value {
            None => Cell::default(),
            Some(_) => facts.shown(context, &column.name, typed(value.as_deref(), column.holds)),
        }));
    }
    context.screen.table(&table.without_empty_columns())?;
    match ready.count() - some.len() {
        0 => Ok(()),
        more => context.screen.say(format!("and {} more", count(more))),
    }
}

/// An operation as its command names it.
pub(crate) fn word(operate: &Operate) -> &'static str {
    match operate {
        Operate::RetryNow => "retry",
        Operate::PostponeUntil(_) => "postpone",
        Operate::Stop => "stop",
        Operate::Restart => "resume",
        Operate::Rerun => "rerun",
        Operate::Skip => "skip",
        Operate::Delete => "delete",
        Operate::Purge(_) => "purge",
        Operate::Archive => "archive",
        Operate::Redrive | Operate::RedriveSucceeded => "redrive",
        Operate::SetPriority(_) => "priority",
        Operate::EnqueueExisting => "enqueue",
    }
}

/// What an operation says beyond its name.
fn argument(operate: &Operate) -> Option<String> {
    match operate {
        Operate::PostponeUntil(time) => Some(format!("until {}", time.format("%Y-%m-%dT%H:%M:%SZ"))),
        Operate::Purge(age) => Some(format!("older than {}", exact(*age))),
        Operate::SetPriority(priority) => Some(format!("to {priority}")),
        Operate::RedriveSucceeded => Some("succeeded".to_owned()),
        _ => None,
    }
}

/// The figures with their names.
fn sums<'r, C>(ready: &'r dyn Prepared<C>, asked: &Asked) -> Vec<(String, &'r str)> {
    if ready.count() == 0 {
        return Vec::new();
    }
    let sums = asked.figures.iter().zip(ready.figures()).filter_map(|(figure, value)| {
        Some(match (figure, value.as_deref()?) {
            (Figure::Sum(column), value) => (format!("sum of {column}"), value),
            (Figure::Distinct(column), value) => (format!("values of {column}"), value),
        })
    });
    sums.collect()
}

/// The number of rows and the sums, in one line.
pub(crate) fn summary<C>(facts: &Facts, ready: &dyn Prepared<C>, asked: &Asked) -> String {
    let sums = sums(ready, asked);
    let sums: String = sums.iter().map(|(name, value)| format!(", {name}: {}", visible(value))).collect();
    let argument = argument(&asked.operate).map(|argument| format!(" {argument}")).unwrap_or_default();
    format!("{} of {}{argument}: {}{sums}", word(&asked.operate), facts.table, rows(ready.count()))
}

/// Who asks, why, and whether that is recorded.
pub(crate) fn author<C: Database>(context: &mut Context<'_, C>, of: &cli::Author, reason: &str) -> Answer<Author> {
    let by = user(of).ok_or_else(|| Failure::Usage("who are you? Give `--by NAME`".to_owned()))?;
    let recorded = is_recorded(&mut context.connection)?;
    Ok(Author { by, reason: of.reason.clone().unwrap_or_else(|| reason.to_owned()), recorded })
}

/// Who asks: the option, or the user's name.
pub(crate) fn user(of: &cli::Author) -> Option<String> {
    let user = || ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| std::env::var(name).ok());
    of.by.clone().or_else(user).filter(|name| !name.trim().is_empty())
}

/// Whether the table of the audit is there.
pub(crate) fn is_recorded<C: Database>(connection: &mut C) -> Answer<bool> {
    match control::audit(connection, &Audit::new().limit(1)) {
        Ok(_) => Ok(true),
        Err(Error::Control(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Asks a person, unless `--yes` has answered.
pub(crate) fn confirm(screen: &Screen, question: &str, yes: bool) -> Answer {
    if yes {
        return Ok(());
    }
    if !screen.asks() {
        return Err(Failure::Usage("nobody can be asked here: `--yes` answers".to_owned()));
    }
    match asked_line(&format!("{question} [y/N] "))?.to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::Interrupted("nothing was changed".to_owned())),
    }
}

/// Returns the environment whose name is asked for before so many rows are changed.
pub(crate) fn environment_asked<C: Database>(
    parts: &Parts<C>,
    connection: &mut C,
    found: usize,
) -> Answer<Option<String>> {
    match control::environment(connection) {
        Ok(environment) => Ok(environment.filter(|name| *name == parts.production && found > MANY)),
        // There is no table.
        Err(Error::Control(_)) => Ok(None),
        Err(error) => Err(Failure::of::<C>(error)),
    }
}

fn confirm_environment<C: Database>(context: &mut Context<'_, C>, change: &Change, found: usize) -> Answer {
    let Some(name) = environment_asked(context.parts, &mut context.connection, found)? else { return Ok(()) };
    let typed = match (&change.environment, context.screen.asks()) {
        (Some(typed), _) => typed.clone(),
        (None, true) => asked_line(&format!("This changes {}. Type the name of the environment: ", rows(found)))?,
        (None, false) => String::new(),
    };
    match typed == name {
        true => Ok(()),
        false => Err(Failure::Usage(format!(
            "nothing was changed: more than {} rows of `{name}` need `--environment {name}`",
            count(MANY)
        ))),
    }
}

fn asked_line(question: &str) -> Answer<String> {
    write!(stderr(), "{question}")?;
    stderr().flush()?;
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// Works on the rows, until they are done or somebody presses Ctrl-C.
fn work<C: Database>(context: &mut Context<'_, C>, facts: &Facts, ready: &dyn Prepared<C>, asked: &Asked) -> Answer {
    let interrupts = Interrupts::begin()?;
    let bar = bar(&context.screen, ready.count());
    let done = ready.work(&mut context.connection, &mut |progress| {
        bar.set_position(progress.done as u64);
        !interrupts.came()
    });
    bar.finish_and_clear();
    drop(interrupts);
    let Operated { rows: changed, refused, refusal, seen, .. } = done.map_err(|error| {
        Failure::of::<C>(error).with("the rows that were changed stay so; the same command goes on with the others")
    })?;
    let left = seen.saturating_sub(changed + refused);
    context.screen.object(|| {
        json!({
            "queue": facts.queue, "operation": word(&asked.operate), "changed": changed, "refused": refused,
            "refusal": refusal, "left": ready.count().saturating_sub(changed + refused), "interrupted": seen < ready.count(),
        })
    })?;
    context.screen.say(format!("{}: {} changed", word(&asked.operate), rows(changed)))?;
    if left > 0 {
        context.screen.say(format!(
            "{} left alone: they run, another session has locked them, or they have changed meanwhile",
            rows(left)
        ))?;
    }
    if seen < ready.count() {
        let rest = rows(ready.count() - seen);
        return Err(Failure::Interrupted(format!(
            "stopped between two transactions: {} changed, {rest} not looked at; the same command goes on with them",
            rows(changed)
        )));
    }
    match refusal {
        None => Ok(()),
        Some(why) => Err(Failure::Failed(format!("the database refused {}: {why}", rows(refused)))),
    }
}

/// Takes Ctrl-C while an operation runs. Before and after, it ends the process as it always does.
struct Interrupts(&'static Flags);

#[derive(Default)]
struct Flags {
    came: Arc<AtomicBool>,
    is_idle: Arc<AtomicBool>,
}

impl Interrupts {
    fn begin() -> Answer<Self> {
        static FLAGS: OnceLock<Flags> = OnceLock::new();
        let flags = match FLAGS.get() {
            Some(flags) => flags,
            None => {
                let flags = Flags::default();
                signal_hook::flag::register_conditional_default(SIGINT, flags.is_idle.clone())?;
                // The second one ends the process, if the server does not answer.
                signal_hook::flag::register_conditional_shutdown(SIGINT, 130, flags.came.clone())?;
                signal_hook::flag::register(SIGINT, flags.came.clone())?;
                FLAGS.get_or_init(|| flags)
            }
        };
        flags.came.store(false, Ordering::SeqCst);
        flags.is_idle.store(false, Ordering::SeqCst);
        Ok(Interrupts(flags))
    }

    fn came(&self) -> bool {
        self.0.came.load(Ordering::SeqCst)
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.0.is_idle.store(true, Ordering::SeqCst);
    }
}

/// Progress, for a person at a terminal.
fn bar(screen: &Screen, rows: usize) -> ProgressBar {
    let target = match !screen.json && stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} rows, {eta} left");
    let bar = ProgressBar::with_draw_target(Some(rows as u64), target);
    style.map_or(bar.clone(), |style| bar.with_style(style))
}
