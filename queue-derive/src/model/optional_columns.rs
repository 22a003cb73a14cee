//! Model: the optional columns that an entity asks for, and the domain's columns that its attributes name.

use proc_macro2::Span;
use syn::Ident;
use syn::ext::IdentExt;

use super::model::Model;
use crate::parse::{OPTIONAL_COLUMNS, Written};

/// An optional column that the entity asks for.
pub(crate) struct OptionalColumn {
    /// The constant's name: the column's default name.
    pub(crate) constant: &'static str,
    /// The marker of its kind in the runtime.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    /// Where the name was given.
    pub(crate) span: Option<Span>,
    pub(crate) doc: &'static str,
}

/// The kinds and sentences of [`OPTIONAL_COLUMNS`].
const KINDS: [(&str, &str); 10] = [
    ("StageText", "the stage that the row has reached."),
    ("Period", "the seconds from run to run."),
    ("Cron", "the cron expression of the row's schedule."),
    ("TimeZone", "the IANA time zone of the cron expression; null is UTC."),
    ("ScheduledTime", "the scheduled time of the run that is due or running."),
    ("ChangeCount", "how often the columns have changed whose change makes the row due."),
    ("CreatedTime", "when the row was inserted."),
    ("UpdatedTime", "when the queue has written on the row last."),
    ("BeginTime", "when the last recorded attempt began."),
    ("EndTime", "when the last recorded attempt ended."),
];

impl OptionalColumn {
    /// Tells whether the queue changes it after the insert. The others change only if the application changes them.
    pub(crate) fn is_written_by_the_queue(&self) -> bool {
        !matches!(self.constant, "priority" | "traceparent" | "period" | "cron" | "time_zone" | "created_time")
    }
}

impl Model<'_> {
    /// Returns the optional columns that the entity asks for.
    pub(crate) fn optional_columns(&self) -> Vec<OptionalColumn> {
        let kinds = &self.attributes.kinds;
        let mut columns = Vec::new();
        if let Some(priority) = &kinds.priority {
            let (name, span) = self.optional_name("priority", priority.name.as_ref());
            let doc = "lower first among the rows that are due.";
            columns.push(OptionalColumn { constant: "priority", kind: "Priority", name, span, doc });
        }
        let occasion = kinds.occasion.as_ref();
        if occasion.is_some() || kinds.periodic.is_some() {
            let (name, span) = self.optional_name("occasion", occasion.and_then(|occasion| occasion.name.as_ref()));
            let doc = "how many occasions of the row have ended, by which one idempotency key is told from the next.";
            columns.push(OptionalColumn { constant: "occasion", kind: "Occasion", name, span, doc });
        }
        if let Some(traceparent) = &kinds.traceparent {
            let (name, span) = self.optional_name("traceparent", traceparent.name.as_ref());
            let doc = "the trace context in which the row was enqueued; null without one.";
            columns.push(OptionalColumn { constant: "traceparent", kind: "TraceParent", name, span, doc });
        }
        for (place, (_, constant, _)) in OPTIONAL_COLUMNS.into_iter().enumerate() {
            if !self.asks_for(place) {
                continue;
            }
            let (name, span) = self.optional_name(constant, kinds.columns[place].as_ref());
            let (kind, doc) = KINDS[place];
            columns.push(OptionalColumn { constant, kind, name, span, doc });
        }
        columns
    }

    /// Tells whether the entity asks for the column at this place of [`OPTIONAL_COLUMNS`].
    pub(crate) fn asks_for(&self, place: usize) -> bool {
        let kinds = &self.attributes.kinds;
        match OPTIONAL_COLUMNS[place].2 {
            "stage" => kinds.stage.is_some(),
            "periodic" => kinds.periodic.is_some(),
            "rerun_on_change" => kinds.rerun_on_change.is_some(),
            _ => kinds.timestamps.is_some_and(|kept| kept[place - (OPTIONAL_COLUMNS.len() - 4)]),
        }
    }

    fn optional_name(&self, default: &str, given: Option<&Written<String>>) -> (String, Option<Span>) {
        match (given, &self.attributes.prefix) {
            (Some(given), _) => (given.value.clone(), Some(given.span)),
            (None, Some(prefix)) => (format!("{}{default}", prefix.value), Some(prefix.span)),
            (None, None) => (default.to_owned(), None),
        }
    }
}

/// Returns the names of the domain's columns that the keys name, for the check.
pub(crate) fn named_columns<'a>(model: &'a Model<'_>) -> impl Iterator<Item = (&'static str, &'a Ident)> {
    let kinds = &model.attributes.kinds;
    let order = kinds.order_by.iter().flat_map(|order| &order.columns).map(|order| ("order_by", &order.column));
    let version = kinds.version.iter().map(|column| ("version", column));
    let rerun = kinds.rerun_on_change.iter().flat_map(|(_, columns)| columns).map(|column| ("rerun_on_change", column));
    let serial = kinds.serial_by.iter().map(|serial| ("serial_by", &serial.column));
    let fair = kinds.fair_by.iter().map(|column| ("fair_by", column));
    let limited = kinds.at_most.iter().filter_map(|(_, at_most)| Some(("at_most", at_most.by.as_ref()?)));
    let reported = kinds.report_by.iter().map(|column| ("report_index", column));
    order.chain(version).chain(rerun).chain(serial).chain(fair).chain(limited).chain(reported)
}

/// Returns the text of an identifier without `r#`.
pub(crate) fn plain(ident: &Ident) -> String {
    ident.unraw().to_string()
}
