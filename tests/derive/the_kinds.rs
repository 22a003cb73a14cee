//! The kinds of work: the requirements of each key.

use std::time::Duration;

use diesel::prelude::*;
use diesel::sqlite::Sqlite;
use queueable::__derive::{
    HasPriority, HasStages, HasVersion, Keep, Missed, OnFinish, OrderColumn, QueueTable, Timestamps,
};
use queueable::{Entity, Queueable, Stage};

diesel::table! {
    documents (id) {
        id -> BigInt,
        title -> Text,
        #[sql_name = "content"]
        body -> Text,
        approved -> Bool,
        content_version -> BigInt,
    }
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, diesel::expression::AsExpression, diesel::deserialize::FromSqlRow, Stage,
)]
#[diesel(sql_type = diesel::sql_types::Text)]
enum DocumentStage {
    Read,
    #[stage(name = "translated")]
    Translate,
    SendOut,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = documents)]
#[queue(prefix = "index_", priority(age = "1h"), claim_if = "documents::approved.eq(true)", version = content_version)]
#[queue(rerun_on_change(title, body), timestamps(begin, end), window = "Mon-Fri 22:00-06:00 Europe/Berlin")]
#[allow(dead_code, reason = "its queue is looked at")]
struct Indexed {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = documents)]
#[queue(stage = DocumentStage, stage_column = "step", archive(success = documents_done, failed = "documents_failed"))]
#[queue(claim_if = is_approved, order_by = body, exclusive, report_index = body)]
#[allow(dead_code, reason = "its queue is looked at")]
struct Published {
    id: i64,
}

fn is_approved() -> diesel::dsl::Eq<documents::approved, bool> {
    documents::approved.eq(true)
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = documents)]
#[queue(periodic(missed = all(3)), period = "every", priority = "urgency", timestamps)]
#[allow(dead_code, reason = "its queue is looked at")]
struct Checked {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = documents)]
#[queue(on_success = delete, order_by(content_version, age = "1d"), module = once_queue, wake = notify)]
#[queue(keep(failed = "1y", skipped = "36h"))]
#[allow(dead_code, reason = "its queue is looked at")]
struct Once {
    id: i64,
}

fn condition_of<T: QueueTable>() -> Option<String> {
    let condition = T::claim_condition::<Sqlite>()?;
    Some(diesel::debug_query::<Sqlite, _>(&condition).to_string())
}

#[test]
fn an_entity_that_asks_for_nothing_has_no_options() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = documents)]
    #[allow(dead_code, reason = "its queue is looked at")]
    struct Plain {
        id: i64,
    }
    assert_eq!(<Plain as Entity>::Queue::OPTIONS, queueable::__derive::Options::NONE);
    assert_eq!(condition_of::<plain_queue::Queue>(), None);
}

#[test]
fn each_key_asks_for_its_kind_and_the_prefix_goes_before_its_columns() {
    let options = indexed_queue::Queue::OPTIONS;
    assert_eq!(options.priority, Some("index_priority"));
    let order = options.order.unwrap();
    assert_eq!(order.columns, [OrderColumn { name: "index_priority", descending: false, is_long: false }]);
    assert_eq!(order.age, Some(Duration::from_secs(3600)));
    assert_eq!(options.version, Some("content_version"));
    let rerun = options.rerun_on_change.unwrap();
    assert_eq!((rerun.columns, rerun.change_count), (&["title", "content"][..], "index_change_count"));
    let kept = Timestamps { begin: Some("index_begin_time"), end: Some("index_end_time"), ..Timestamps::default() };
    assert_eq!(options.timestamps, kept);
    assert_eq!(options.window, Some("Mon-Fri 22:00-06:00 Europe/Berlin"));
    assert!(options.conditional && !options.exclusive && !options.notifies);
}

#[test]
fn names_are_given_and_policies_have_defaults() {
    let options = published_queue::Queue::OPTIONS;
    let stages = options.stages.unwrap();
    assert_eq!((stages.column, stages.names), ("step", &["READ", "translated", "SEND_OUT"][..]));
    assert_eq!(options.on_success, OnFinish::Archive("documents_done"));
    assert_eq!(options.on_failure, OnFinish::Archive("documents_failed"));
    assert_eq!(options.order.unwrap().columns, [OrderColumn { name: "content", descending: false, is_long: true }]);
    assert!(options.exclusive);
    assert!(options.report_index && options.report_by.is_some_and(|(column, _)| column == "content"));
    let options = once_queue::Queue::OPTIONS;
    assert!(options.notifies);

    let options = checked_queue::Queue::OPTIONS;
    let periodic = options.periodic.unwrap();
    assert_eq!((periodic.period, periodic.cron), ("every", "cron"));
    assert_eq!(periodic.missed, Missed::All(3));
    assert_eq!(options.priority, Some("urgency"));
    assert_eq!(options.occasion, Some("occasion"));
    assert_eq!(options.timestamps.updated, Some("updated_time"));

    let options = once_queue::Queue::OPTIONS;
    assert_eq!((options.on_success, options.on_failure), (OnFinish::Delete, OnFinish::Keep));
    let hours = |hours: u64| Some(Duration::from_secs(hours * 3600));
    assert_eq!(options.keep, Keep { success: None, failed: hours(365 * 24), skipped: hours(36) });
    assert_eq!(options.order.unwrap().age, Some(Duration::from_secs(86_400)));
}

#[test]
fn an_order_may_begin_with_the_rows_that_were_created_first() {
    diesel::table! { letters (id) { id -> BigInt, created_time -> Timestamp, } }

    #[derive(Queryable, Selectable, Queueable)]
    #[queue(timestamps(created), order_by = created_time)]
    #[allow(dead_code, reason = "its queue is looked at")]
    struct Letter {
        id: i64,
    }

    let order = letter_queue::Queue::OPTIONS.order.unwrap();
    assert_eq!(order.columns, [OrderColumn { name: "created_time", descending: false, is_long: false }]);
}

#[test]
fn a_condition_is_an_expression_or_a_function() {
    let expected = "(`documents`.`approved` = ?)";
    for condition in [condition_of::<indexed_queue::Queue>(), condition_of::<published_queue::Queue>()] {
        assert!(condition.as_deref().is_some_and(|condition| condition.contains(expected)), "{condition:?}");
    }
}

#[test]
fn optional_columns_are_columns() {
    let query = documents::table.filter(published_queue::stage.eq(DocumentStage::SendOut)).select((
        indexed_queue::priority,
        checked_queue::period,
        checked_queue::created_time,
    ));
    let sql = diesel::debug_query::<Sqlite, _>(&query).to_string();
    assert!(sql.contains("`documents`.`index_priority`, `documents`.`every`, `documents`.`created_time`"), "{sql}");
    assert!(sql.contains("`documents`.`step` = ?") && sql.contains("SendOut"), "{sql}");
}

#[test]
fn the_queue_knows_what_was_asked_for() {
    fn has_priority<T: HasPriority>() {}
    fn stages<S: Stage>() -> &'static [&'static str]
    where
        published_queue::Queue: HasStages<S>,
    {
        S::NAMES
    }
    fn version<T: HasVersion>() -> &'static str {
        <T::Column as Column>::NAME
    }
    has_priority::<indexed_queue::Queue>();
    assert_eq!(stages().len(), 3);
    assert_eq!(version::<indexed_queue::Queue>(), "content_version");
    assert_eq!(DocumentStage::named("translated"), Some(DocumentStage::Translate));
}

/// Names that the derive must not take for its own.
mod any_names {
    diesel::table! { jobs (id) { id -> BigInt, name -> Text, value -> Text, stage -> Text, } }

    pub(super) mod imported {
        #![allow(unused_imports, non_camel_case_types, dead_code)]
        use super::jobs::dsl::*;

        pub(crate) struct str;
        pub(crate) struct bool;
        pub(crate) struct usize;

        #[derive(
            Debug,
            Clone,
            Copy,
            PartialEq,
            Eq,
            diesel::expression::AsExpression,
            diesel::deserialize::FromSqlRow,
            queueable::Stage,
        )]
        #[diesel(sql_type = diesel::sql_types::Text)]
        pub(crate) enum JobStage {
            First,
            Second,
        }
    }
}

#[test]
fn a_stage_may_stand_beside_columns_and_types_of_any_name() {
    use any_names::{imported::JobStage, jobs};

    #[derive(Queryable, Selectable, Queueable)]
    #[queue(stage = JobStage)]
    #[expect(dead_code)]
    struct Job {
        id: i64,
        name: String,
    }

    assert_eq!(<JobStage as Stage>::NAMES, ["FIRST", "SECOND"]);
    assert_eq!(Job::ENTITY, "Job");
}
