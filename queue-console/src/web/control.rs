//! Pauses and limits: who has asked for them and why, and forms that set and end them.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use chrono::{DateTime, Utc};
use queueable::report::Limited;
use queueable::{Error, Paused, control};

use super::change::see_other;
use super::control_view::page;
use super::guard::{Sent, Visit};
use super::layout::show;
use super::operation::lasting;
use super::search::{Fields, field};
use super::site::{FRESH, Site};
use super::trouble::{Told, Trouble};
use crate::change::is_recorded;
use crate::command::{condition, scope};
use crate::database::Database;
use crate::queue::{Author, Ends, Facts, Limiting, Queue, Scope};

/// More characters of a value the control table does not show.
const LONGEST_VALUE: usize = 200;

/// What the control table says.
pub(super) struct Controls {
    pub(super) pauses: Vec<Paused>,
    pub(super) limits: Vec<Limited>,
    pub(super) recorded: bool,
}

/// What was done, as the address of the next page says it: a word, so that no link can put a text onto the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Paused,
    Unpaused,
    NoPause,
    Limited,
    LimitsEnded,
    NoLimits,
}

/// What a form asks for.
#[derive(Debug)]
enum Step {
    Pause(Scope, Ends),
    /// `since`: the pause that was shown, and no other.
    Unpause {
        shown: Shown,
        scope: Scope,
        since: DateTime<Utc>,
    },
    Limit(Limiting),
    EndLimits,
}

/// The stage and the value of a pause, as the table shows them.
type Shown = (Option<String>, Option<String>);

/// Shows the pauses and limits of all queues.
pub(super) async fn show_all<C: Database>(
    State(site): State<Site<C>>,
    visit: Visit,
    Query(fields): Query<Fields>,
) -> Response {
    let done = field(&fields, "done").and_then(Done::of);
    shown(&site, &visit, done, None).await
}

/// Sets or ends a pause or limits, and leads back to the page.
pub(super) async fn change<C: Database>(State(site): State<Site<C>>, visit: Visit, Sent(fields): Sent) -> Response {
    match changed(&site, &visit, &fields).await {
        Ok(done) => {
            site.forget();
            see_other(&format!("{}pauses?done={}", visit.root, done.word()))
        }
        Err(trouble) => {
            // Whatever was refused may have been done in part, or by somebody else.
            site.forget();
            let status = trouble.status();
            let mut response = shown(&site, &visit, None, Some((&trouble, &fields))).await;
            *response.status_mut() = status;
            response
        }
    }
}

async fn shown<C: Database>(
    site: &Site<C>,
    visit: &Visit,
    done: Option<Done>,
    refused: Option<(&Trouble, &Fields)>,
) -> Response {
    let told = match visit.must_see_all() {
        Ok(()) => controls(site).await.map(|controls| page(site, visit, &controls, done, refused)),
        Err(trouble) => Err(trouble),
    };
    show(site, visit, ("Pauses and limits", None), told).await
}

/// Reads the control table; an error is what it lacks.
async fn controls<C: Database>(site: &Site<C>) -> Told<Arc<Result<Controls, String>>> {
    let read = site.read("controls".to_owned(), FRESH * 2, |_, connection| {
        let read = queueable::pauses(connection).and_then(|pauses| Ok((pauses, control::limits(connection)?)));
        match read {
            Ok((pauses, limits)) => Ok(Ok(Controls { pauses, limits, recorded: is_recorded(connection)? })),
            Err(Error::Control(lacks)) => Ok(Err(lacks)),
            Err(error) => Err(error.into()),
        }
    });
    read.await
}

async fn changed<C: Database>(site: &Site<C>, visit: &Visit, fields: &Fields) -> Told<Done> {
    visit.must_see_all()?;
    let wrong = |text: &str| Trouble::Wrong(text.to_owned());
    let name = field(fields, "queue").ok_or_else(|| wrong("Which queue?"))?;
    let named = site.queue(&visit.visitor, name)?;
    let reason = field(fields, "reason").map(str::trim).ok_or_else(|| wrong("Please say why."))?.to_owned();
    let step = step(site.of(&named).facts(), fields)?;
    let (parts, by) = (site.parts.clone(), visit.visitor.name.clone());
    let ask = site.connections.ask(move |connection| {
        let author = Author { by, reason, recorded: is_recorded(connection)? };
        take(&*parts.queues[named.place], connection, &step, &author)
    });
    ask.await.map_err(|trouble| if matches!(trouble, Trouble::Slow) { Trouble::Unsure } else { trouble })
}

/// Reads what a form asks for.
fn step(facts: &Facts, fields: &Fields) -> Told<Step> {
    let number = |name: &str| field(fields, name).map(str::trim);
    let refused = |text: &str, what: &str| Trouble::Wrong(format!("`{text}` is no {what}: it is a whole number."));
    Ok(match field(fields, "change") {
        Some("pause") => {
            let ends = field(fields, "for").map(lasting).transpose()?.map_or(Ends::Never, Ends::After);
            let (stage, value) = (field(fields, "stage"), field(fields, "value"));
            if stage.is_some() && value.is_some() {
                return Err(Trouble::Wrong("A pause is of a stage or of a value, not of both.".to_owned()));
            }
            Step::Pause(scope(facts, stage, value)?, ends)
        }
        Some("unpause") => {
            let lacks = || Trouble::Wrong("The form lacks the pause's time.".to_owned());
            let since = field(fields, "since").and_then(|time| time.parse().ok()).ok_or_else(lacks)?;
            let shown = ["stage", "value"].map(|name| field(fields, name));
            let value = shown[1].map(|text| value_of(facts, text)).transpose()?;
            let scope = scope(facts, shown[0], None)?;
            let [stage, shown] = shown.map(|text| text.map(str::to_owned));
            Step::Unpause { shown: (stage, shown), scope: Scope { value, ..scope }, since }
        }
        Some("limit") if ["workers", "at_most", "retry_delay"].iter().all(|name| number(name).is_none()) => {
            let text =
                "Nothing would be limited: name the workers, the rows at the same time, or when rows are retried.";
            return Err(Trouble::Wrong(text.to_owned()));
        }
        Some("limit") => Step::Limit(Limiting {
            workers: number("workers")
                .map(|text| text.parse().map_err(|_| refused(text, "number of workers")))
                .transpose()?,
            at_most: number("at_most")
                .map(|text| text.parse().map_err(|_| refused(text, "number of rows")))
                .transpose()?,
            retry_delay: number("retry_delay").map(lasting).transpose()?,
        }),
        Some("end-limits") => Step::EndLimits,
        _ => return Err(Trouble::Wrong("What is to be changed?".to_owned())),
    })
}

/// Reads the value of a pause as the control table shows it, without quotes: `company_id = 3345`.
fn value_of(facts: &Facts, text: &str) -> Told<(String, crate::filter::Value)> {
    let unread = || {
        Trouble::Wrong(format!(
            "The pause of `{text}` cannot be ended here, because its value is not shown in full: the application ends it by \
             `unpause_where`."
        ))
    };
    let column = facts.options.lanes.ok_or_else(unread)?.column;
    let value = text.strip_prefix(column).and_then(|rest| rest.strip_prefix(" = ")).ok_or_else(unread)?;
    if value.chars().count() >= LONGEST_VALUE {
        return Err(unread());
    }
    condition(facts, &facts.is(column, value))?.into_equal().ok_or_else(unread)
}

fn take<C: Database>(queue: &dyn Queue<C>, connection: &mut C, step: &Step, author: &Author) -> Told<Done> {
    Ok(match step {
        Step::Pause(scope, ends) => {
            queue.pause(connection, scope, *ends, author)?;
            Done::Paused
        }
        Step::Unpause { shown: (stage, value), scope, since } => {
            let name = &queue.facts().queue;
            let is_it = |of: &Paused| of.queue == *name && of.stage == *stage && of.value == *value;
            match queueable::pauses(connection)?.into_iter().find(is_it) {
                None => Done::NoPause,
                Some(other) if other.since != *since => {
                    let by = crate::shown::visible(&other.by);
                    return Err(Trouble::Stale(format!("Nothing was changed: {by} has asked for this pause anew.")));
                }
                Some(_) if queue.unpause(connection, scope, author)? => Done::Unpaused,
                Some(_) => {
                    let text = "The pause stands: its value is not the one that is shown. The application ends it by \
                                `unpause_where`.";
                    return Err(Trouble::Refused(text.to_owned()));
                }
            }
        }
        Step::Limit(limiting) => {
            queue.limit(connection, *limiting, author)?;
            Done::Limited
        }
        Step::EndLimits => match queue.end_limits(connection, author)? {
            true => Done::LimitsEnded,
            false => Done::NoLimits,
        },
    })
}

impl Done {
    const ALL: [(Done, &'static str); 6] = [
        (Done::Paused, "paused"),
        (Done::Unpaused, "unpaused"),
        (Done::NoPause, "no-pause"),
        (Done::Limited, "limited"),
        (Done::LimitsEnded, "limits-ended"),
        (Done::NoLimits, "no-limits"),
    ];

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, of)| *of == word).map(|(done, _)| done)
    }

    fn word(self) -> &'static str {
        Self::ALL.into_iter().find(|(done, _)| *done == self).map_or("", |(_, word)| word)
    }

    pub(super) fn says(self) -> &'static str {
        match self {
            Done::Paused => "It is paused. No attempt begins from two seconds on; what runs goes on to its end.",
            Done::Unpaused => "The pause has ended.",
            Done::NoPause => "There was no such pause any more.",
            Done::Limited => "The limits are set. Pollers follow them within two seconds.",
            Done::LimitsEnded => "The limits have ended.",
            Done::NoLimits => "There were no limits any more.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_only_our_own_words() {
        for (done, word) in Done::ALL {
            assert_eq!((Done::of(word), done.word()), (Some(done), word));
        }
        assert_eq!(Done::of("<b>call +1 555</b>"), None);
    }
}
