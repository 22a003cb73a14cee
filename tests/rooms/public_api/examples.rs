//! That everything is documented, and that the items of the root are shown in use.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::FACADE;

/// Where an item is shown that has no example of its own, or why it is not shown.
enum Why {
    /// An item, or a method as `Queue::purge`, which has an example.
    ShownAt(&'static str),
    Because(#[expect(dead_code, reason = "it is for the reader")] &'static str),
}

use Why::{Because, ShownAt};

#[rustfmt::skip]
const WITHOUT_EXAMPLE: [(Why, &[&str]); 34] = [
    (Because("the derive implements it, or writes it from the attributes that its documentation shows"), &[
        "ClaimCondition", "ColumnNames", "Entity", "GroupMode", "LaneValues", "Lanes", "Missed", "OnFinish", "Options", "Order",
        "OrderColumn", "Periodic", "QueueTable", "RerunOnChange", "Stages", "Timestamps", "ValueKind",
    ]),
    (Because("the type of a column or an expression, of which the derive writes the value"), &[
        "BeginTime", "ChangeCount", "ColumnKind", "CreatedTime", "Cron", "EndTime", "LastAttemptErrorMessage",
        "LastAttemptTime", "NextAttemptTime", "Occasion", "Period", "Priority", "QueueStateColumns",
        "ScheduledTime", "StageText", "StatusText", "TimeZone", "TimestampUtc", "TryCount", "UpdatedTime",
    ]),
    (Because("what the comparisons of `QueueColumn` take, which have an example"), &["TimeOperand"]),
    (Because("the type of what `due_now` and its like return"), &["Due", "Now", "NowPlus"]),
    (Because("a bound that is named as `ReadOn` at `AsQueueConnection`, by the call that wants it"), &[
        "ComparesSchema", "EnqueueByVersion", "Explains", "LoadOn",
    ]),
    (Because("a bound of bounds, which the library implements for all that Diesel can store"), &[
        "ConnectionFor", "HandlerFor", "QueueBackend", "SelectedIn", "StoredIn", "TableIn",
    ]),
    (Because("the type of a selection, which nobody writes out"), &["Chosen", "EveryRow", "Filtered", "NoFilter", "Selection"]),
    (Because("an error whose text is for people"), &["ConnectFailure", "InvalidSchedule", "InvalidWindow", "UnknownStatus"]),
    (Because("a limit, which the calls name that cut at it"), &["MAX_DELAY"]),
    (Because("a text"), &["modes"]),
    (ShownAt("AsQueueConnection"), &["AllFilters", "ReadOn"]),
    (ShownAt("AsyncPgSession"), &["DieselAsyncSession"]),
    (ShownAt("Error"), &["Finding"]),
    (ShownAt("Event"), &["AttemptEvent"]),
    (ShownAt("Handler"), &["HandlerResult"]),
    (ShownAt("Health"), &["EntityHealth"]),
    (ShownAt("Lease"), &["LeaseLost"]),
    (ShownAt("LeaseHandler"), &["LeaseMode"]),
    (ShownAt("Outcome"), &["When"]),
    (ShownAt("PollerHandle"), &["Shutdown", "Tally"]),
    (ShownAt("PollerSettings"), &["ClaimStyle"]),
    (ShownAt("Poller::redact"), &["Redact"]),
    (ShownAt("By"), &["Part"]),
    (ShownAt("Queue::enqueue_existing"), &["EnqueueExisting", "Progress"]),
    (ShownAt("Queue::errors"), &["ErrorGroup", "ErrorReport"]),
    (ShownAt("Queue::statistics"), &["Interval", "PeriodCounts", "Statistics"]),
    (ShownAt("Queueable::enqueue_if_newer"), &["HasVersion"]),
    (ShownAt("Queue::dry_run"), &["DryRun", "Preview", "PreviewedRow"]),
    (ShownAt("Queue::redrive"), &["HasArchive", "Redriven"]),
    (ShownAt("Queue::set_priority"), &["HasPriority"]),
    (ShownAt("Outcome::next"), &["HasStages"]),
    (ShownAt("Queueable::trigger_migration"), &["TriggerMigration"]),
    (ShownAt("Poller::serve_stages"), &["StageOf"]),
    (ShownAt("QueueOn"), &["QueueConnection", "TransactionMode"]),
];

#[test]
fn every_public_item_is_documented() {
    let mut missing = Vec::new();
    for item in FACADE.iter().filter(|item| !item.is_hidden) {
        missing.extend(item.docs.trim().is_empty().then(|| item.name.clone()));
        for part in item.parts.iter().filter(|part| !part.is_hidden && part.docs.trim().is_empty()) {
            missing.extend(part.name.as_ref().map(|name| format!("{}::{name}", item.name)));
        }
    }
    assert!(missing.is_empty(), "say what these are for:\n{}", missing.join("\n"));
}

#[test]
fn every_public_item_is_shown_in_an_example_or_has_a_reason_for_none() {
    let shown = shown();
    let reasons: HashMap<_, _> =
        WITHOUT_EXAMPLE.iter().flat_map(|(why, names)| names.iter().map(move |name| (*name, why))).collect();
    let names: BTreeSet<_> = FACADE.iter().filter(|item| !item.is_hidden).map(|item| item.name.as_str()).collect();
    let mut wrong = Vec::new();
    for name in &names {
        match reasons.get(name) {
            Some(_) if shown.contains(*name) => wrong.push(format!("{name}: has an example, and needs no reason")),
            Some(ShownAt(place)) if !shown.contains(*place) => wrong.push(format!("{name}: no example at {place}")),
            None if !shown.contains(*name) => wrong.push(format!("{name}: no example, and no reason for that")),
            _ => {}
        }
    }
    let gone = reasons.keys().filter(|name| !names.contains(*name));
    wrong.extend(gone.map(|name| format!("{name}: is on the list, and no public item")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The names of the items and of their parts whose documentation has an example.
fn shown() -> HashSet<String> {
    let has_example = |docs: &str| docs.contains("```");
    let mut shown = HashSet::new();
    for item in FACADE.iter() {
        shown.extend(has_example(&item.docs).then(|| item.name.clone()));
        let parts = item.parts.iter().filter(|part| has_example(&part.docs)).filter_map(|part| part.name.as_ref());
        shown.extend(parts.map(|name| format!("{}::{name}", item.name)));
    }
    shown
}
