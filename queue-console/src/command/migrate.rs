//! `migrate`: the migrations of the queues, and the live tables compared with the entities.

use diesel::migration::{Migration, MigrationSource};
use serde_json::json;

use super::Context;
use crate::change::confirm;
use crate::cli::Migrate;
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::shown::{Cell, Table};

pub(super) fn run<C: Database>(context: &mut Context<'_, C>, of: &Migrate) -> Answer {
    match of {
        Migrate::List => list(context),
        Migrate::Write { directory } => {
            let written = context.parts.migrations().write_to(directory)?;
            for path in written {
                context.screen.object(|| json!({ "written": path }))?;
                context.screen.say(path.display().to_string())?;
            }
            Ok(())
        }
        Migrate::Run { yes } => {
            let pending = pending(context)?;
            if pending.is_empty() {
                return context.screen.say("all migrations have run");
            }
            let names: Vec<_> = pending.iter().map(|name| format!("  {name}")).collect();
            confirm(&context.screen, &format!("These migrations will run:\n{}\nRun them?", names.join("\n")), *yes)?;
            let migrations = context.parts.migrations();
            let ran = context.connection.run_pending_migrations(migrations).map_err(|error| failed(&*error))?;
            for version in ran.iter().map(ToString::to_string) {
                context.screen.object(|| json!({ "ran": version }))?;
                context.screen.say(format!("ran {version}"))?;
            }
            Ok(())
        }
        Migrate::Check => check(context),
    }
}

fn failed(error: &(dyn std::error::Error + Send + Sync)) -> Failure {
    Failure::Failed(error.to_string())
}

fn names<C: Database>(context: &Context<'_, C>) -> Answer<Vec<String>> {
    let all = context.parts.migrations().migrations().map_err(|error| failed(&*error))?;
    Ok(all.iter().map(|migration| migration.name().to_string()).collect())
}

fn pending<C: Database>(context: &mut Context<'_, C>) -> Answer<Vec<String>> {
    let migrations = context.parts.migrations();
    let pending = context.connection.pending_migrations(migrations).map_err(|error| failed(&*error))?;
    Ok(pending.iter().map(|migration| migration.name().to_string()).collect())
}

fn list<C: Database>(context: &mut Context<'_, C>) -> Answer {
    let pending = pending(context)?;
    let mut table = Table::default().text("migration").text("state");
    for name in names(context)? {
        let has_run = !pending.contains(&name);
        context.screen.object(|| json!({ "migration": name, "has_run": has_run }))?;
        let state = if has_run { Cell::new("has run") } else { Cell::new("pending").yellow() };
        table.line([Cell::new(name), state]);
    }
    context.screen.table(&table)
}

fn check<C: Database>(context: &mut Context<'_, C>) -> Answer {
    let mut found = 0;
    for queue in context.parts.queues(None)? {
        for finding in queue.check(&mut context.connection)? {
            found += 1;
            context.screen.object(|| json!({ "queue": queue.facts().queue, "finding": finding }))?;
            context.screen.say(format!("{}: {}\n  mend: {}", finding.entity, finding.problem, finding.mend))?;
        }
    }
    match found {
        0 => context.screen.say("the tables are as the entities declare them"),
        _ => Err(Failure::Found),
    }
}
