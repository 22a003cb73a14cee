//! `pause`, `unpause`, `limits`, `pollers`, `audit`, `environment`: the library's own tables.

use queueable::control::{self, Audit};
use queueable::report::PollerProcess;
use serde_json::json;

use super::{Context, condition};
use crate::change::{author, confirm};
use crate::cli;
use crate::console::Parts;
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::queue::{Ends, Facts, Limiting, Scope};
use crate::shown::{Cell, Table, ago, count, of_report, span};

/// Reads what a pause is about.
pub(crate) fn scope(facts: &Facts, stage: Option<&str>, value: Option<&str>) -> Answer<Scope> {
    let stage = match stage {
        None => None,
        Some(asked) => {
            let names = facts.options.stages.map_or(&[][..], |stages| stages.names);
            let found = names.iter().find(|name| name.eq_ignore_ascii_case(asked));
            let refused = || match names {
                [] => format!("{} has no stages", facts.table),
                names => format!("`{asked}` is no stage of {}: it has {}", facts.table, names.join(", ")),
            };
            Some(*found.ok_or_else(|| Failure::Usage(refused()))?)
        }
    };
    let value = match value {
        None => None,
        Some(text) => {
            let refused = || Failure::Usage(format!("`{text}` is no single value: write `company_id = 3345`"));
            Some(condition(facts, text)?.into_equal().ok_or_else(refused)?)
        }
    };
    Ok(Scope { stage, value })
}

pub(super) fn pause<C: Database>(context: &mut Context<'_, C>, pause: &cli::Pause) -> Answer {
    let queue = context.parts.queue(&pause.scope.queue)?;
    let of = scope(queue.facts(), pause.scope.stage.as_deref(), pause.scope.value.as_deref())?;
    let author = author(context, &pause.scope.author, "paused from the console")?;
    let ends = match (pause.until, pause.lasting) {
        (Some(time), _) => Ends::At(time),
        (None, Some(time)) => Ends::After(time),
        (None, None) => Ends::Never,
    };
    context.ask(queue, |queue, connection| queue.pause(connection, &of, ends, &author))?;
    for paused in queueable::pauses(&mut context.connection)? {
        if paused.queue == queue.facts().queue {
            let paused = queue.facts().shown_pause(paused);
            context.screen.object(|| json!({ "queue": paused.queue, "pause": of_report(&paused) }))?;
            context.screen.say(format!("{}: {paused}", queue.facts().name(context.parts)))?;
        }
    }
    context.screen.say("no attempt begins from two seconds on; what runs goes on to its end")
}

pub(super) fn unpause<C: Database>(context: &mut Context<'_, C>, unpause: &cli::Scope) -> Answer {
    let queue = context.parts.queue(&unpause.queue)?;
    let of = scope(queue.facts(), unpause.stage.as_deref(), unpause.value.as_deref())?;
    let author = author(context, &unpause.author, "unpaused from the console")?;
    let was = context.ask(queue, |queue, connection| queue.unpause(connection, &of, &author))?;
    context.screen.object(|| json!({ "queue": queue.facts().queue, "unpaused": was }))?;
    context.screen.say(if was { "the pause has ended" } else { "there was no such pause" })?;
    let left = queueable::pauses(&mut context.connection)?;
    let of_queue = left.into_iter().filter(|paused| paused.queue == queue.facts().queue);
    for paused in of_queue.map(|paused| queue.facts().shown_pause(paused)) {
        context.screen.say(format!("still {paused}"))?;
    }
    Ok(())
}

impl cli::Limits {
    pub(super) fn changes(&self) -> bool {
        self.end || self.workers.is_some() || self.at_most.is_some() || self.retry_delay.is_some()
    }
}

pub(super) fn limits<C: Database>(context: &mut Context<'_, C>, limits: &cli::Limits) -> Answer {
    let cli::Limits { workers, at_most, retry_delay, .. } = *limits;
    let asked = limits.queue.as_deref().map(|name| context.parts.queue(name)).transpose()?;
    if let Some(queue) = asked.filter(|_| limits.changes()) {
        let author = author(context, &limits.author, "limited from the console")?;
        if limits.end {
            let were = context.ask(queue, |queue, connection| queue.end_limits(connection, &author))?;
            context.screen.object(|| json!({ "queue": queue.facts().queue, "ended": were }))?;
            context.screen.say(if were { "the limits have ended" } else { "there were no limits" })?;
        } else {
            let limiting = Limiting { workers, at_most, retry_delay };
            context.ask(queue, |queue, connection| queue.limit(connection, limiting, &author))?;
        }
    }
    let all = control::limits(&mut context.connection)?;
    let of_asked = |queue: &str| asked.is_none_or(|asked| asked.facts().queue == queue);
    let all: Vec<_> = all.iter().filter(|limited| of_asked(&limited.queue)).collect();
    for limited in &all {
        context.screen.object(|| json!({ "queue": limited.queue, "limits": of_report(limited) }))?;
        context.screen.say(format!("{}: {limited}", limited.queue))?;
    }
    if all.is_empty() && !limits.end {
        context.screen.say("no limits")?;
    }
    Ok(())
}

/// Writes the keys of what runs as people write them. One that was cut stays as it is, and one of a queue of another application.
pub(crate) fn with_keys<C: Database>(parts: &Parts<C>, mut pollers: Vec<PollerProcess>) -> Vec<PollerProcess> {
    for message in pollers.iter_mut().flat_map(|poller| &mut poller.running) {
        let queue = parts.queues.iter().find(|queue| queue.facts().queue == message.queue);
        if let Some(key) = queue.and_then(|queue| queue.facts().key_of_poller(&message.key)) {
            message.key = key;
        }
    }
    pollers
}

pub(super) fn pollers<C: Database>(context: &mut Context<'_, C>) -> Answer {
    let pollers = with_keys(context.parts, queueable::pollers(&mut context.connection)?);
    let now = context.now();
    let mut table = Table::default();
    for name in ["host", "pid", "application", "library", "state"] {
        table = if name == "pid" { table.number(name) } else { table.text(name) };
    }
    let mut table = table.number("workers").number("running").whole("started").whole("seen").text("queues");
    let mut differing = Vec::new();
    for poller in &pollers {
        context.screen.object(|| of_report(poller))?;
        let queues: Vec<_> = poller.queues.iter().map(|of| of.queue.as_str()).collect();
        table.line([
            Cell::new(&poller.host),
            Cell::new(poller.pid.to_string()),
            Cell::new(poller.application.as_deref().unwrap_or_default()),
            Cell::new(&poller.version),
            Cell::new(poller.state.to_string()),
            Cell::new(poller.workers.to_string()),
            Cell::new(count(poller.running.len())),
            Cell::new(ago(poller.started, now)),
            Cell::new(ago(poller.seen, now)),
            Cell::new(queues.join(" ")),
        ]);
        for of in &poller.queues {
            differing.extend(of.differs.iter().map(|setting| {
                let value = of.settings.get(setting).map_or("none", |value| value);
                format!("{} on {}: {setting} differs from the others: {value}", of.queue, poller.host)
            }));
        }
    }
    match table.is_empty() {
        true => context.screen.say("no process has registered within the last minute")?,
        false => context.screen.table(&table.without_empty_columns())?,
    }
    for poller in &pollers {
        for message in &poller.running {
            let (queue, host) = (&message.queue, &poller.host);
            let since = span((poller.seen - message.since).to_std().unwrap_or_default());
            context
                .screen
                .say(format!("{queue} {} runs on {host} for {since}", crate::shown::visible(&message.key)))?;
        }
    }
    differing.iter().try_for_each(|line| context.screen.say(format!("! {}", crate::shown::visible(line))))
}

pub(super) fn audit<C: Database>(context: &mut Context<'_, C>, of: &cli::Audit) -> Answer {
    let refused = |_| Failure::Usage("that is not what a page of the audit ends with".to_owned());
    let asked = match &of.after {
        Some(cursor) => serde_json::from_str::<Audit>(cursor).map_err(refused)?,
        None => Audit::new(),
    };
    let mut asked = asked.limit(of.limit);
    if let Some(name) = &of.queue {
        asked = asked.queue(&context.parts.queue(name)?.facts().queue);
    }
    let page = control::audit(&mut context.connection, &asked)?;
    let mut table = Table::default()
        .whole("when")
        .text("who")
        .text("queue")
        .text("action")
        .number("rows")
        .text("filter")
        .text("reason");
    let all = context.parts.queues(None)?;
    for mut audited in page.rows {
        if let Some(queue) = all.iter().find(|queue| queue.facts().queue == audited.queue) {
            audited.filter = queue.facts().shown_filter(&audited.action, &audited.filter);
        }
        context.screen.object(|| of_report(&audited))?;
        table.line([
            Cell::new(context.screen.time(audited.at)),
            Cell::new(&audited.by),
            Cell::new(&audited.queue),
            Cell::new(&audited.action),
            Cell::new(count(audited.rows)),
            Cell::new(&audited.filter),
            Cell::new(&audited.reason),
        ]);
    }
    match table.is_empty() {
        true => context.screen.say("nobody has changed anything")?,
        false => context.screen.table(&table)?,
    }
    if let Some(next) = page.next {
        let cursor = serde_json::to_string(&next).map_err(std::io::Error::from)?;
        context.screen.object(|| json!({ "next": cursor }))?;
        context.screen.more(&cursor)?;
    }
    Ok(())
}

pub(super) fn environment<C: Database>(context: &mut Context<'_, C>, of: &cli::Environment) -> Answer {
    let now = control::environment(&mut context.connection)?;
    let said = now.as_deref().unwrap_or("none");
    let Some(name) = &of.adopt else {
        context.screen.object(|| json!({ "environment": now }))?;
        return context.screen.say(format!("environment: {}", crate::shown::visible(said)));
    };
    if now.as_ref() == Some(name) {
        context.screen.object(|| json!({ "environment": now }))?;
        return context.screen.say(format!("the database belongs to `{name}` already"));
    }
    let author = author(context, &of.author, "given from the console")?;
    let said = crate::shown::visible(said);
    let question = format!("The database belongs to `{said}`. Its pollers stop. Give it to `{name}`?");
    confirm(&context.screen, &question, of.yes)?;
    control::adopt_environment(&mut context.connection, name, &author.by, &author.reason)?;
    context.screen.object(|| json!({ "environment": name, "before": now }))?;
    context.screen.say(format!("the database belongs to `{name}` now"))
}
