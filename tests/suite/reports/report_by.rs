//! `report_index = company_id`: reports by this column read no rows, and say the same as without it.

use std::collections::HashMap;
use std::time::Duration;

use chrono::Utc;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};
use diesel_migrations::MigrationHarness;
use queue_core::internals::backend::{Schema, Sql, Statement};
use queue_core::internals::statement::{Condition, SplitBy, StateCondition, count_by_value, count_pending};
use queueable::report::{Backlog, By};
use queueable::{Migrations, Queueable, Status};

use super::NUMBERS;
use super::odd_times::odd;
use crate::db::{self, AUTO_KEY, BIGINT, Conn, Database, NAME, SHAPE, TEXT};
use crate::suite::keyed::{erased, queue};

type Backend = <Conn as diesel::Connection>::Backend;

diesel::table! {
    fees (id) {
        id -> BigInt,
        company_id -> Nullable<BigInt>,
        region -> Nullable<Text>,
    }
}

macro_rules! fees {
    ($($(#[$doc:meta])* $entity:ident($($attribute:tt)*);)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
        #[diesel(table_name = fees)]
        #[queue($($attribute)*)]
        #[allow(dead_code, reason = "no row of it is loaded")]
        struct $entity {
            id: i64,
        }
    )*};
}

fees! {
    /// A fee whose reports are by company.
    Fee(report_index = company_id);
    /// The same queue, whose reports are not split.
    Unsplit(module = unsplit_queue, report_index);
    /// The same queue, whose reports are by region.
    Elsewhere(module = elsewhere_queue, report_index = region);
    /// A fee under a lease, whose reports are by region.
    Charge(prefix = "charge_", lease = "60s", report_index(region));
    /// A fee without an index.
    Plain(prefix = "plain_");
    /// The same under a lease.
    PlainCharge(prefix = "plain_charge_", lease = "60s");
}

fn shape(connection: &mut Conn) -> Vec<String> {
    let rows: Vec<Option<String>> =
        diesel::dsl::sql::<Nullable<Text>>(&SHAPE.replace("$table", "fees")).load(connection).unwrap();
    rows.into_iter().flatten().collect()
}

fn fees_without_queues() -> (Database, Conn) {
    let database = Database::new();
    let mut connection = database.connect();
    let create = format!("CREATE TABLE fees (id {AUTO_KEY} NOT NULL, company_id {BIGINT}, region {TEXT})");
    connection.batch_execute(&create).unwrap();
    (database, connection)
}

fn fees_of() -> (Database, Conn) {
    let (database, mut connection) = fees_without_queues();
    let migrations = Migrations::new().entity::<Fee>().entity::<Charge>().entity::<Plain>().entity::<PlainCharge>();
    connection.run_pending_migrations(migrations).unwrap();
    (database, connection)
}

#[test]
fn a_queue_that_has_an_index_for_reports_is_told_what_adds_the_column() {
    let (_database, mut connection) = fees_without_queues();
    let [target, before, other] =
        [erased::<Fee>().target(), erased::<Unsplit>().target(), erased::<Elsewhere>().target()]
            .map(|target| target.unwrap());
    let without_queue = shape(&mut connection);
    connection.add_queue(&target).unwrap();
    assert_eq!(connection.check(&target).unwrap(), []);
    let with_column = shape(&mut connection);
    connection.remove_queue(&target).unwrap();
    assert_eq!(shape(&mut connection), without_queue);
    connection.add_queue(&before).unwrap();
    let narrow = shape(&mut connection);
    // An index of another column is none of this one.
    for from in [&before, &other] {
        connection.remove_queue(&target).unwrap();
        connection.add_queue(from).unwrap();
        let findings = connection.check(&target).unwrap();
        assert_eq!(findings.len(), if NAME == "mysql" { 2 } else { 0 }, "{findings:?}");
        for finding in findings {
            assert!(finding.problem.contains("with the columns that `report_index` needs"), "{}", finding.problem);
            finding.mend.split("; ").for_each(|sql| connection.batch_execute(sql).unwrap());
        }
        assert_eq!(connection.check(&target).unwrap(), []);
        assert_eq!(shape(&mut connection), with_column);
        // Processes of the version before go on meanwhile.
        assert_eq!(connection.check(&before).unwrap(), []);
    }
    // The same by a migration, and by the steps that are written out as files.
    connection.remove_queue(&target).unwrap();
    connection.add_queue(&before).unwrap();
    connection.add_queue(&target).unwrap();
    assert_eq!(shape(&mut connection), with_column);
    connection.remove_queue(&target).unwrap();
    connection.add_queue(&before).unwrap();
    let [old, new] = [Conn::steps(&before), Conn::steps(&target)];
    let added: Vec<_> = new.iter().filter(|step| !old.contains(step)).collect();
    let names: Vec<_> = added.iter().map(|step| step.name).collect();
    assert_eq!(names, if NAME == "mysql" { &["status", "reports_by"][..] } else { &[] });
    let mut execute = |sql: &String| connection.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    added.iter().flat_map(|step| &step.up).for_each(&mut execute);
    assert_eq!(shape(&mut connection), with_column);
    let mut execute = |sql: &String| connection.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    added.iter().rev().flat_map(|step| &step.down).for_each(&mut execute);
    assert_eq!(shape(&mut connection), narrow);
    let mut execute = |sql: &String| connection.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    old.iter().rev().flat_map(|step| &step.down).for_each(&mut execute);
    new.iter().flat_map(|step| &step.up).for_each(&mut execute);
    assert_eq!(shape(&mut connection), with_column);
}

/// Inserts rows in all states, also unknown ones, with times of all kinds, into all queues.
fn in_all_states(connection: &mut Conn) {
    let mut times = vec!["'2001-01-01 00:00:00.000'", "'2099-01-01 00:00:00.000'", "NULL"];
    times.extend(odd().into_iter().map(|(time, _)| time));
    let companies = [("NULL", "NULL"), ("7", "'Ost'"), ("3345", "'ost'"), ("-1", "'ost '"), ("7", "''")];
    let mut rows = Vec::new();
    for status in ["NOT_ATTEMPTED", "IN_PROGRESS", "SUCCESS", "ERROR", "FAILED", "SKIPPED", "DONE", "failed", "FAILED "]
    {
        for (place, next) in times.iter().enumerate() {
            for text in ["NULL", "'no route'"] {
                for (company, region) in &companies[..companies.len() - place % 2] {
                    let state = format!("'{status}', {next}, {text}");
                    rows.push(format!("({company}, {region}, {state}, {state}, {state}, {state})"));
                }
            }
        }
    }
    let columns = ["", "charge_", "plain_", "plain_charge_"].map(|prefix| {
        ["status", "next_attempt_time", "last_attempt_error_message"].map(|name| format!("{prefix}{name}")).join(", ")
    });
    // Strict mode refuses a zero date.
    let [loosely, strictly] = match NAME {
        "mysql" => ["SET SESSION sql_mode = ''; ", "; SET SESSION sql_mode = DEFAULT"],
        _ => ["", ""],
    };
    let (columns, rows) = (columns.join(", "), rows.join(", "));
    let insert = format!("{loosely}INSERT INTO fees (company_id, region, {columns}) VALUES {rows}{strictly}");
    connection.batch_execute(&insert).unwrap();
}

/// The due, scheduled, running, held and failed rows of each value, and the hour at which the oldest was due: its age grows between
/// two reports.
fn backlogs(by: &By<Backlog>) -> HashMap<Option<String>, [Option<i64>; 6]> {
    let hour_due = |age: Duration| (Utc::now().timestamp() - age.as_secs() as i64 + 1_800).div_euclid(3_600);
    let of = |backlog: &Backlog| {
        let Backlog { due, scheduled, running, held_back, failed, oldest_due, .. } = *backlog;
        [Some(due), Some(scheduled), running, Some(held_back), Some(failed), oldest_due.map(hour_due)]
    };
    assert_eq!(by.left_out, 0);
    by.parts.iter().map(|part| (part.value.clone(), of(&part.report))).collect()
}

#[test]
fn a_backlog_by_the_column_is_the_same_with_and_without_it() {
    let (_database, mut connection) = fees_of();
    in_all_states(&mut connection);
    let by_company = backlogs(&Fee::queue().backlog_by(&mut connection, fees::company_id).unwrap());
    let plain = backlogs(&Plain::queue().backlog_by(&mut connection, fees::company_id).unwrap());
    assert_eq!(by_company, plain);
    assert_eq!(by_company.len(), 4);
    assert!(by_company.values().all(|of| of[0] > Some(0) && of[4] > Some(0)), "{by_company:?}");
    let by_region = backlogs(&Charge::queue().backlog_by(&mut connection, fees::region).unwrap());
    let plain = backlogs(&PlainCharge::queue().backlog_by(&mut connection, fees::region).unwrap());
    assert_eq!(by_region, plain);
    assert_eq!(by_region.len(), 5, "upper case, a blank at the end, and no text make a difference: {by_region:?}");
    assert!(by_region[&Some("ost ".to_owned())][2] > Some(0), "{by_region:?}");
    // With a filter, and by another column.
    let of_seven = || fees::company_id.eq(7);
    let by_region = backlogs(&Fee::queue().filter(of_seven()).backlog_by(&mut connection, fees::region).unwrap());
    let plain = backlogs(&Plain::queue().filter(of_seven()).backlog_by(&mut connection, fees::region).unwrap());
    assert_eq!(by_region, plain);
    let by_company = backlogs(&Fee::queue().filter(of_seven()).backlog_by(&mut connection, fees::company_id).unwrap());
    assert_eq!(by_company.len(), 1);
    let failed = Fee::queue().failed().count(&mut connection).unwrap();
    assert_eq!(failed, Plain::queue().failed().count(&mut connection).unwrap());
}

fn plan_of(connection: &mut Conn, statement: &impl Statement<Backend>) -> String {
    let sql = diesel::debug_query::<Backend, _>(&Sql::new(statement)).to_string();
    let (sql, _) = sql.split_once(" -- binds: []").expect("the statement is planned as it is run");
    db::plan(connection, sql)
}

/// Inserts many finished rows, and some that are due, that wait and that have failed, of a hundred companies.
fn many(connection: &mut Conn) {
    let [past, future] = ["'2020-01-01 00:00:00.000'", "'2100-01-01 00:00:00.000'"];
    let insert = |columns: &str, values: &str, rows: i64| {
        format!(
            "INSERT INTO fees (company_id, status, {columns}) {NUMBERS} SELECT n % 100, {values} FROM n WHERE n < {rows};"
        )
    };
    connection
        .batch_execute(
            &[
                insert("last_attempt_time", &format!("'SUCCESS', {past}"), 50_000),
                insert("next_attempt_time", &format!("'NOT_ATTEMPTED', {past}"), 1_000),
                insert("next_attempt_time", &format!("'ERROR', {future}"), 300),
                insert("last_attempt_time, last_attempt_error_message", &format!("'FAILED', {past}, 'no route'"), 300),
                db::ANALYZE.replace("payments", "fees"),
            ]
            .concat(),
        )
        .unwrap();
}

#[test]
fn the_sql_of_reports_by_the_column() {
    let (split, other) = (Some(SplitBy::Column("company_id")), Some(SplitBy::Column("region")));
    let pending = [StateCondition::Pending, StateCondition::In(&Status::ALL)];
    let failed = [StateCondition::NotPending, StateCondition::Reported(&[Status::Failed])];
    let condition = |states| Condition::new(queue::<Fee>(), None, states);
    let of_text = Condition::new(queue::<Elsewhere>(), None, &pending);
    let mut listing = String::new();
    let mut add = |title: &str, statement: &dyn Statement<Backend>| {
        listing += &format!("{title}:\n{}\n\n", diesel::debug_query::<Backend, _>(&Sql::new(statement)));
    };
    add("pending", &count_pending(condition(&pending), split, 10));
    add("pending, by another column", &count_pending(condition(&pending), other, 10));
    add("pending, by a text", &count_pending(of_text, other, 10));
    add("failed", &count_by_value(condition(&failed), split, 10));
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("{NAME}_report_by"), listing);
    });
}

#[test]
fn reports_by_the_column_read_indexes_alone() {
    let (_database, mut connection) = fees_of();
    many(&mut connection);
    let split = Some(SplitBy::Column("company_id"));
    let pending = [StateCondition::Pending, StateCondition::In(&Status::ALL)];
    let failed = [StateCondition::NotPending, StateCondition::Reported(&[Status::Failed])];
    let condition = |states| Condition::new(queue::<Fee>(), None, states);
    for (name, plan, index) in [
        ("pending", plan_of(&mut connection, &count_pending(condition(&pending), split, 10)), "fees"),
        ("failed", plan_of(&mut connection, &count_by_value(condition(&failed), split, 10)), "report"),
    ] {
        assert!(plan.contains(&format!("queueable_{index}_")), "{name}:\n{plan}");
        // PostgreSQL, MySQL, where a result of the inner query is read in these words, and SQLite.
        let inner = if name == "pending" { 2 } else { 0 };
        for (scan, allowed) in [("Seq Scan", 0), ("type ALL key None", inner), ("SCAN fees\n", 0)] {
            assert!(format!("{plan}\n").matches(scan).count() <= allowed, "{name}:\n{plan}");
        }
        // In the words of MariaDB. MySQL does not say so here.
        let reads = plan.lines().filter(|line| line.contains("key Some") && line.contains("extra Some"));
        let reads_rows = reads.filter(|line| !line.contains("Using index")).count();
        assert_eq!(reads_rows, 0, "{name}:\n{plan}");
    }
}
