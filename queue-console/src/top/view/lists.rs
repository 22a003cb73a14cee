//! The lists of the tabs.

use ratatui::text::Line;

use super::grid::{Grid, Value};
use super::over::wrapped;
use super::theme::Theme;
use crate::queue::State;
use crate::shown::{ago, count, number, rows, span, spark};
use crate::top::model::{Model, Running, Tab};
use queue_core::internals::by_name::PageOrder;
use queueable::report::Backlog;

/// How many reasons are shown for which the rows of a queue wait.
const REASONS: usize = 4;

/// What the list is.
pub(super) fn title(model: &Model) -> String {
    match model.tab {
        Tab::Queues => format!("{} queues, {}", model.names.len(), model.sort.name()),
        Tab::Running => of_running(model),
        Tab::Errors => match model.errors.as_ref().map(|errors| errors.left_out) {
            Some(rows @ 1..) => {
                format!("errors, the newest first; the texts of {} more rows were not read", number(rows))
            }
            _ => "errors, the newest first".to_owned(),
        },
        Tab::Rows => of_rows(model),
        Tab::Pollers => "processes that have registered".to_owned(),
    }
}

fn of_running(model: &Model) -> String {
    let leased = model.queues.iter().zip(&model.names).filter_map(|(known, name)| {
        let running = known.backlog.as_ref().ok()?.running.filter(|rows| *rows > 0)?;
        Some(format!("{name} {}", number(running)))
    });
    let leased: Vec<_> = leased.collect();
    match leased.is_empty() {
        true => "what registered processes work on".to_owned(),
        false => format!("what registered processes work on; rows under a lease: {}", leased.join(", ")),
    }
}

fn of_rows(model: &Model) -> String {
    let listed = model.listed();
    let name = model.names.get(listed.queue).map_or("", String::as_str);
    let state = listed.state.map_or("all", state_name);
    let order = match listed.order {
        PageOrder::LatestAttempt => "the latest attempt first",
        PageOrder::NextAttempt => "the next attempt first",
        PageOrder::Key => "by key",
        PageOrder::KeyDescending => "the last key first",
    };
    let filter = listed.filter.map(|filter| format!(", where {filter}")).unwrap_or_default();
    let read = match model.shown_page() {
        Some(Ok(page)) if page.more => format!("the first {}", rows(page.rows.len())),
        Some(Ok(page)) => rows(page.rows.len()),
        _ => "rows".to_owned(),
    };
    format!("{name}: {read}, {state}, {order}{filter}")
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Due => "due",
        State::Scheduled => "scheduled",
        State::Running => "running",
        State::Failed => "failed",
        State::Skipped => "skipped",
        State::Finished => "finished",
    }
}

/// Why the list cannot be read.
pub(super) fn refused(model: &Model, width: u16) -> Option<Vec<String>> {
    let why = match model.tab {
        Tab::Rows => model.shown_page()?.as_ref().err()?.clone(),
        Tab::Errors => {
            let errors = model.errors.as_ref().filter(|errors| errors.groups.is_empty())?;
            let (queue, why) = errors.refused.first()?;
            format!("{}: {why}", model.names[*queue])
        }
        _ => return None,
    };
    Some(why.lines().flat_map(|line| wrapped(line, width)).collect())
}

pub(super) fn grid(model: &Model, theme: Theme) -> Grid {
    match model.tab {
        Tab::Queues => queues(model, theme),
        Tab::Running => running(model),
        Tab::Errors => errors(model, theme),
        Tab::Rows => page(model, theme),
        Tab::Pollers => pollers(model, theme),
    }
}

fn queues(model: &Model, theme: Theme) -> Grid {
    let mut grid = Grid::new("there are no queues")
        .text("queue")
        .column("oldest due", "oldest", true)
        .number("due")
        .column("scheduled", "later", true)
        .column("running", "runs", true)
        .number("failed")
        .column("per minute", "/min", true)
        .column("last 10 min", "10 min", false)
        .column("pollers", "poll", true)
        .column("paused by", "paused by", false);
    for place in model.sorted() {
        let name = Value::new(&model.names[place]);
        let Some(known) = model.queues.get(place) else {
            grid.row([name]);
            continue;
        };
        let backlog = match &known.backlog {
            Ok(backlog) => backlog,
            Err(why) => {
                let why = why.lines().next().unwrap_or_default();
                let nothing = std::iter::repeat_n(Value::default(), 8);
                grid.row(
                    [name.styled(theme.bad())]
                        .into_iter()
                        .chain(nothing)
                        .chain([Value::new(format!("! {why}")).styled(theme.bad())]),
                );
                continue;
            }
        };
        grid.row(queue(model, theme, place, backlog, &known.done));
    }
    grid
}

fn queue(model: &Model, theme: Theme, place: usize, backlog: &Backlog, done: &[i64]) -> Vec<Value> {
    let rate = done.iter().sum::<i64>() as f64 / 10.0;
    let rate = match done {
        [] => String::new(),
        _ if rate > 0.0 => format!("{rate:.1}"),
        _ => "0".to_owned(),
    };
    let some = |rows: i64, style| if rows > 0 { Value::new(number(rows)).styled(style) } else { Value::new("0") };
    let pollers = model.pollers_of(place).map(|pollers| Value::new(pollers.to_string())).unwrap_or_default();
    let paused = match paused(backlog) {
        text if text.is_empty() && model.is_unserved(place) => Value::new("! no poller").styled(theme.bad()),
        text => Value::new(text).styled(theme.warns()),
    };
    vec![
        Value::new(&model.names[place]),
        Value::new(backlog.oldest_due.map(span).unwrap_or_default()),
        Value::new(number(backlog.due)),
        Value::new(number(backlog.scheduled)),
        Value::new(backlog.running.map(number).unwrap_or_default()),
        some(backlog.failed, theme.bad()),
        Value::new(rate),
        Value::new(spark(done)),
        pollers,
        paused,
    ]
}

/// Who has paused it, and for how much of it.
fn paused(backlog: &Backlog) -> String {
    let of = |paused: &queueable::Paused| match (&paused.stage, &paused.value) {
        (Some(stage), _) => format!("{} ({stage})", paused.by),
        (None, Some(value)) => format!("{} ({value})", paused.by),
        (None, None) => paused.by.clone(),
    };
    backlog.paused.iter().map(of).collect::<Vec<_>>().join("; ")
}

/// What is known of the chosen queue: its pauses, its limits, and why its rows wait.
pub(super) fn below_queues(model: &Model, theme: Theme, width: u16) -> Vec<Line<'static>> {
    let Some(chosen) = model.chosen_queue() else { return Vec::new() };
    let mut lines = vec![Line::styled("-".repeat(usize::from(width)), theme.dim())];
    let mut add = |text: String, style| {
        lines.extend(wrapped(&text, width).into_iter().map(|line| Line::styled(line, style)));
    };
    let known = model.queues.get(chosen);
    match known.map(|known| &known.backlog) {
        Some(Ok(backlog)) => {
            backlog.paused.iter().for_each(|paused| add(paused.to_string(), theme.warns()));
            backlog.limits.iter().for_each(|limits| add(limits.to_string(), theme.warns()));
        }
        Some(Err(why)) => why.lines().for_each(|line| add(line.to_owned(), theme.bad())),
        None => {}
    }
    match model.why.as_ref().filter(|(queue, _)| *queue == chosen).map(|(_, why)| why) {
        Some(Ok(why)) => {
            if let Some(unserved) = &why.unserved {
                add(unserved.to_string(), theme.bad());
            }
            for reason in why.reasons.iter().take(REASONS) {
                add(format!("{}, such as {}: {}", rows(reason.rows), reason.example, reason.explanation), theme.dim());
            }
            if why.reasons.is_empty() {
                add(format!("{}: no row is pending", model.names[chosen]), theme.dim());
            }
        }
        Some(Err(why)) if known.is_some_and(|known| known.backlog.is_ok()) => add(why.clone(), theme.bad()),
        _ => {}
    }
    lines
}

fn running(model: &Model) -> Grid {
    let empty = match &model.pollers {
        None => "No process registers. `Poller::register` and the table of `Migrations::pollers` show what runs where.",
        Some(pollers) if pollers.is_empty() => "No process has registered within the last minute.",
        Some(_) => "Nothing runs, as far as the processes have said so within the last five seconds.",
    };
    let mut grid = Grid::new(empty).text("queue").text("key").text("stage").text("host").number("pid").number("for");
    for Running { poller, message } in model.running() {
        // By the clock of the database alone, and what has passed since its word.
        let runs = (poller.seen - message.since).to_std().unwrap_or_default();
        grid.row([
            Value::new(model.name_of(&message.queue)),
            Value::new(&message.key),
            Value::new(message.stage.as_deref().unwrap_or_default()),
            Value::new(&poller.host),
            Value::new(poller.pid.to_string()),
            Value::new(span(runs)),
        ]);
    }
    grid
}

fn errors(model: &Model, theme: Theme) -> Grid {
    let empty = if model.errors.is_some() { "no row has failed" } else { "is read" };
    let mut grid = Grid::new(empty).text("queue").number("rows").number("failed").text("last").text("error");
    for group in model.errors.iter().flat_map(|errors| &errors.groups) {
        let failed = Value::new(number(group.failed));
        grid.row([
            Value::new(&model.names[group.queue]),
            Value::new(number(group.rows)),
            if group.failed > 0 { failed.styled(theme.bad()) } else { failed },
            Value::new(group.last.map(|time| ago(time, model.now)).unwrap_or_default()),
            Value::new(group.pattern.lines().next().unwrap_or_default()),
        ]);
    }
    grid
}

fn page(model: &Model, theme: Theme) -> Grid {
    let Some(Ok(page)) = model.shown_page() else { return Grid::new("is read") };
    let grid = Grid::new("no rows");
    let mut grid = page.columns.iter().fold(grid, |grid, (name, is_number)| grid.column(name, name, *is_number));
    for row in &page.rows {
        grid.row(row.values.iter().map(|value| match value {
            Ok(text) => Value::new(text),
            Err(instead) => Value::new(instead).styled(theme.dim()),
        }));
    }
    grid
}

fn pollers(model: &Model, theme: Theme) -> Grid {
    let empty = match model.pollers {
        None => {
            "No process registers. `Poller::register` and the table of `Migrations::pollers` show who serves the queues."
        }
        Some(_) => "No process has registered within the last minute.",
    };
    let mut grid = Grid::new(empty)
        .text("host")
        .number("pid")
        .text("application")
        .text("state")
        .number("workers")
        .number("running")
        .text("started")
        .text("seen")
        .text("queues")
        .text("differs");
    for poller in model.pollers.iter().flatten() {
        let queues: Vec<_> = poller.queues.iter().map(|of| model.name_of(&of.queue)).collect();
        let differs: Vec<_> = poller.queues.iter().flat_map(|of| &of.differs).map(String::as_str).collect();
        grid.row([
            Value::new(&poller.host),
            Value::new(poller.pid.to_string()),
            Value::new(poller.application.as_deref().unwrap_or_default()),
            Value::new(poller.state.to_string()),
            Value::new(poller.workers.to_string()),
            Value::new(count(poller.running.len())),
            Value::new(ago(poller.started, model.now)),
            Value::new(ago(poller.seen, model.now)),
            Value::new(queues.join(" ")),
            Value::new(differs.join(", ")).styled(theme.warns()),
        ]);
    }
    grid
}
