//! `why`: why nothing happens.

use serde_json::json;

use super::{Context, condition};
use crate::cli::OfRows;
use crate::database::Database;
use crate::failure::Answer;
use crate::queue::Rows;
use crate::shown::{Cell, Table, of_report, rows};

pub(super) fn run<C: Database>(context: &mut Context<'_, C>, of: &OfRows) -> Answer {
    for queue in context.parts.queues(of.queue.as_deref())? {
        let facts = queue.facts();
        let filter = of.filter.as_deref().map(|text| condition(facts, text)).transpose()?;
        let asked = Rows { filter, ..Rows::default() };
        let explained = context.ask(queue, |queue, connection| queue.why(connection, &asked))?;
        context.screen.object(|| json!({ "queue": facts.queue, "why": of_report(&explained) }))?;
        context.screen.say(facts.name(context.parts))?;
        if let Some(unserved) = &explained.unserved {
            context.screen.say(format!("  {unserved}"))?;
        }
        let mut table = Table::default().number("rows").text("example").text("reason");
        for reason in &explained.reasons {
            let number = crate::shown::count(reason.rows);
            table.line([Cell::new(number), Cell::new(&reason.example), Cell::new(reason.explanation.to_string())]);
        }
        match table.is_empty() {
            true => context.screen.say("  no row is pending")?,
            false => context.screen.table(&table)?,
        }
        if explained.more {
            let read: usize = explained.reasons.iter().map(|reason| reason.rows).sum();
            context.screen.say(format!("  and more: {} were looked at", rows(read)))?;
        }
        context.screen.say("")?;
    }
    Ok(())
}
