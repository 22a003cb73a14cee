//! Operations on rows, as forms name them.

use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDateTime, SubsecRound, TimeDelta, Utc};
use maud::{Markup, html};
use queue_core::internals::by_name::Operate;
use queueable::Status;

use super::search::{Fields, field, query};
use super::trouble::{Told, Trouble};
use crate::queue::Facts;

/// No database writes a later time as others read it.
const LAST_YEAR: i32 = 9_999;

/// An operation as people choose it.
struct Kind {
    name: &'static str,
    says: &'static str,
    /// What it does with rows, and with which.
    does: &'static str,
    /// Whether it cannot be undone.
    is_final: bool,
}

const KINDS: [Kind; 11] = [
    Kind {
        name: "retry",
        says: "Retry now",
        does: "Makes pending and failed rows due at once. The tries of a failed row start anew.",
        is_final: false,
    },
    Kind {
        name: "postpone",
        says: "Postpone",
        does: "Moves the next attempt of pending rows to another time.",
        is_final: false,
    },
    Kind {
        name: "stop",
        says: "Stop",
        does: "Pending rows are not attempted until they are resumed. An attempt that runs goes on to its end.",
        is_final: false,
    },
    Kind { name: "resume", says: "Resume", does: "Makes stopped rows due.", is_final: false },
    Kind {
        name: "rerun",
        says: "Run once more",
        does: "Enqueues succeeded and failed rows again, from their beginning.",
        is_final: false,
    },
    Kind {
        name: "enqueue",
        says: "Enqueue",
        does: "Makes rows due that were never enqueued, such as those from before the queue.",
        is_final: false,
    },
    Kind {
        name: "priority",
        says: "Set priority",
        does: "Changes which due rows come first: those with a lower number.",
        is_final: false,
    },
    Kind {
        name: "skip",
        says: "Skip",
        does: "Rows will not be attempted any more, and keep the status SKIPPED.",
        is_final: true,
    },
    Kind {
        name: "archive",
        says: "Archive",
        does: "Moves succeeded and failed rows to their archive.",
        is_final: false,
    },
    Kind {
        name: "redrive",
        says: "Redrive from the archive",
        does: "Moves rows back from the archive for failures, and makes them due.",
        is_final: false,
    },
    Kind { name: "delete", says: "Delete", does: "Removes the rows themselves from the table.", is_final: true },
];

/// Whether an entity has an operation.
fn has(facts: &Facts, name: &str) -> bool {
    use queue_core::OnFinish::Archive;
    let archives = matches!(facts.options.on_failure, Archive(_)) || matches!(facts.options.on_success, Archive(_));
    match name {
        "priority" => facts.options.priority.is_some(),
        "archive" => archives,
        "redrive" => matches!(facts.options.on_failure, Archive(_)),
        _ => true,
    }
}

/// The buttons under a list: they ask for a preview of the chosen rows, or of all that were found.
pub(super) fn buttons(facts: &Facts) -> Markup {
    html! {
        fieldset.actions {
            legend { "Do something" }
            label { input type="radio" name="of" value="ticked" checked; " with the ticked rows" }
            label { input type="radio" name="of" value="all"; " with all rows that were found, on other pages too" }
            @for kind in KINDS.iter().filter(|kind| has(facts, kind.name)) {
                button.danger[kind.is_final] type="submit" name="operation" value=(kind.name) title=(kind.does) { (kind.says) " …" }
            }
        }
        (explained(KINDS.iter().filter(|kind| has(facts, kind.name))))
    }
}

/// What the operations do, for people who do not see what a pointer shows.
fn explained<'k>(kinds: impl Iterator<Item = &'k Kind>) -> Markup {
    html! {
        details {
            summary { "What they do" }
            dl { @for kind in kinds { dt { strong { (kind.says) } } dd { (kind.does) } } }
        }
    }
}

/// The state of a row, as far as it decides what can be done with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowState<'r> {
    pub(super) status: &'r str,
    pub(super) is_pending: bool,
}

impl RowState<'_> {
    /// Whether an operation may change such a row. What is not certain may.
    fn allows(self, facts: &Facts, name: &str) -> bool {
        let RowState { status, is_pending } = self;
        let (is_periodic, is_done) = (facts.options.periodic.is_some(), matches!(status, "SUCCESS" | "FAILED"));
        if status.parse::<Status>().is_err() {
            return true;
        }
        match name {
            "retry" => is_pending || status == "FAILED",
            "postpone" | "stop" => is_pending,
            "resume" => !is_pending && (status != "SUCCESS" || is_periodic) && !matches!(status, "FAILED" | "SKIPPED"),
            "rerun" => is_done,
            "enqueue" => !is_pending && status == "NOT_ATTEMPTED",
            "priority" => status != "SKIPPED",
            "skip" => is_pending || is_periodic || !matches!(status, "SUCCESS" | "SKIPPED"),
            "archive" => !is_pending && is_done,
            // The table has a row with this key, so none comes back from the archive.
            "redrive" => false,
            _ => true,
        }
    }
}

/// The same for one row, without what cannot change it.
pub(super) fn links(facts: &Facts, base: &str, key: &str, state: RowState<'_>) -> Markup {
    let address = |name: &str| {
        let fields = [("operation", name), ("key", key)].map(|(name, value)| (name.to_owned(), value.to_owned()));
        format!("{base}/change?{}", query(&fields))
    };
    let kinds = || KINDS.iter().filter(|kind| has(facts, kind.name) && state.allows(facts, kind.name));
    html! {
        p.actions role="group" aria-label="Operations on this row" {
            @for kind in kinds() {
                a.button.danger[kind.is_final] href=(address(kind.name)) title=(kind.does) { (kind.says) " …" }
            }
        }
        (explained(kinds()))
    }
}

/// The name of an operation for people.
pub(super) fn says(name: &str) -> Told<&'static str> {
    let kind = KINDS.iter().find(|kind| kind.name == name);
    kind.map(|kind| kind.says).ok_or_else(|| Trouble::Wrong(format!("`{name}` is no operation.")))
}

pub(super) fn is_final(name: &str) -> bool {
    KINDS.iter().any(|kind| kind.name == name && kind.is_final)
}

/// Reads an operation and its argument; `None` if the argument is missing.
pub(super) fn operate(facts: &Facts, fields: &Fields) -> Told<Option<Operate>> {
    let name = field(fields, "operation").ok_or_else(|| Trouble::Wrong("Which operation?".to_owned()))?;
    says(name)?;
    if !has(facts, name) {
        return Err(Trouble::Wrong(format!("{} has no operation `{name}`.", facts.table)));
    }
    let is_answer = field(fields, "asked").is_some();
    Ok(Some(match name {
        "retry" => Operate::RetryNow,
        "stop" => Operate::Stop,
        "resume" => Operate::Restart,
        "rerun" => Operate::Rerun,
        "skip" => Operate::Skip,
        "delete" => Operate::Delete,
        "archive" => Operate::Archive,
        "redrive" => Operate::Redrive,
        "enqueue" => Operate::EnqueueExisting,
        "priority" => match field(fields, "to") {
            None if is_answer => return Err(Trouble::Wrong("To which priority?".to_owned())),
            None => return Ok(None),
            Some(text) => {
                let wrong = || Trouble::Wrong(format!("`{text}` is no priority: it is a whole number."));
                Operate::SetPriority(text.trim().parse().map_err(|_| wrong())?)
            }
        },
        _ => match (field(fields, "until"), field(fields, "for")) {
            (Some(_), Some(_)) => {
                return Err(Trouble::Wrong("Either for how long, or until when: not both.".to_owned()));
            }
            (Some(text), None) => Operate::PostponeUntil(future(text, until(text)?)?),
            (None, Some(text)) => {
                let time =
                    TimeDelta::from_std(lasting(text)?).ok().and_then(|time| Utc::now().checked_add_signed(time));
                let time = time.ok_or_else(|| Trouble::Wrong(format!("`{text}` is too long.")))?;
                Operate::PostponeUntil(future(text, time.trunc_subsecs(0))?)
            }
            (None, None) if is_answer => return Err(Trouble::Wrong("For how long, or until when?".to_owned())),
            (None, None) => return Ok(None),
        },
    }))
}

/// Refuses a time that has come, and one that is too late for a database.
fn future(text: &str, time: DateTime<Utc>) -> Told<DateTime<Utc>> {
    match time {
        time if time <= Utc::now() => {
            Err(Trouble::Wrong(format!("`{text}` is not in the future: `Retry now` makes rows due.")))
        }
        time if time.year() > LAST_YEAR => Err(Trouble::Wrong(format!("`{text}` is after the year {LAST_YEAR}."))),
        time => Ok(time),
    }
}

/// Reads a time as a browser or a link writes it.
pub(super) fn until(text: &str) -> Told<DateTime<Utc>> {
    let text = text.trim();
    let formats = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"];
    let naive = formats.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    naive
        .map(|time| time.and_utc())
        .or_else(|| text.parse().ok())
        .ok_or_else(|| Trouble::Wrong(format!("`{text}` is no time.")))
}

/// Reads a length of time: `2h`, `30m`.
pub(super) fn lasting(text: &str) -> Told<Duration> {
    let wrong = |error| Trouble::Wrong(format!("`{text}` is no length of time such as `2h`: {error}."));
    humantime::parse_duration(text.trim()).map_err(wrong)
}

/// The fields of an operation's argument.
pub(super) fn arguments(name: &str) -> Markup {
    html! {
        @match name {
            "postpone" => {
                div.field { label for="for" { "For how long (2h, 30m)" } input #for type="text" name="for" autocomplete="off"; }
                div.field { label for="until" { "Or until (UTC)" } input #until type="datetime-local" name="until"; }
            },
            "priority" => div.field {
                label for="to" { "Priority" } input #to type="text" inputmode="numeric" name="to" required autocomplete="off";
            },
            _ => {},
        }
    }
}
