//! `report_index`: reports find the rows that failed or were skipped along an index of their own, and say the same as without it.

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Nullable, Text};
use queue_core::internals::backend::{Schema, Sql, Statement};
use queue_core::internals::statement::{
    Claim, Condition, PageFrom, PageOrder, SplitBy, StateCondition, count_by_value, count_pending, error_sample,
    error_texts, read_page,
};
use queueable::report::{ErrorGroup, ErrorReport};
use queueable::{Failure, Message, Outcome, PollerSettings, Queueable, Status};

use super::NUMBERS;
use super::pages::{Plain, Ticket, insert, tickets, tickets_of};
use crate::db::{self, Conn, NAME, SHAPE};
use crate::suite::keyed::{erased, queue};

type Backend = <Conn as diesel::Connection>::Backend;

fn shape(connection: &mut Conn) -> Vec<String> {
    let rows: Vec<Option<String>> =
        diesel::dsl::sql::<Nullable<Text>>(&SHAPE.replace("$table", "tickets")).load(connection).unwrap();
    rows.into_iter().flatten().collect()
}

#[test]
fn the_index_comes_with_the_queue_and_goes_with_it() {
    let (_database, mut connection) = tickets_of();
    let with_queue = shape(&mut connection);
    let target = erased::<Ticket>().target().unwrap();
    connection.add_queue(&target).unwrap();
    assert_eq!(shape(&mut connection), with_queue);
    assert_eq!(connection.check(&target).unwrap(), []);
    connection.remove_queue(&target).unwrap();
    assert!(shape(&mut connection).iter().all(|line| !line.contains("queueable_report")));
    // The same, with the steps written out as files.
    let without_queue = shape(&mut connection);
    let steps = Conn::steps(&target);
    let mut execute = |sql: &String| connection.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    steps.iter().flat_map(|step| &step.up).for_each(&mut execute);
    steps.iter().rev().flat_map(|step| &step.down).for_each(&mut execute);
    steps.iter().flat_map(|step| &step.up).for_each(&mut execute);
    assert_eq!(connection.check(&target).unwrap(), []);
    steps.iter().rev().flat_map(|step| &step.down).for_each(|sql| connection.batch_execute(sql).unwrap());
    assert_eq!(shape(&mut connection), without_queue);
}

#[test]
fn a_start_without_the_index_says_what_makes_it() {
    let (_database, mut connection) = tickets_of();
    let target = erased::<Ticket>().target().unwrap();
    let steps = Conn::steps(&target);
    let step = steps.iter().find(|step| step.name == "reports").unwrap();
    let computed = steps.iter().find(|step| step.name == "reported");
    for gone in [vec![step], [Some(step), computed].into_iter().flatten().collect()] {
        gone.iter().flat_map(|step| &step.down).for_each(|sql| connection.batch_execute(sql).unwrap());
        let findings = connection.check(&target).unwrap();
        let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
        assert!(finding.problem.contains("queueable_report_tickets_"), "{}", finding.problem);
        finding.mend.split("; ").for_each(|sql| connection.batch_execute(sql).unwrap());
        assert_eq!(connection.check(&target).unwrap(), []);
    }
}

/// The same queue without the index.
#[derive(Debug, Clone, Queryable, Selectable, Queueable)]
#[diesel(table_name = tickets)]
#[queue(module = without_reports_queue)]
#[allow(dead_code, reason = "no row of it is loaded")]
struct WithoutReports {
    id: i64,
}

#[test]
fn a_queue_that_has_run_without_the_index_is_told_what_makes_it() {
    let (_database, mut connection) = tickets_of();
    let (target, before) = (erased::<Ticket>().target().unwrap(), erased::<WithoutReports>().target().unwrap());
    let with_reports = shape(&mut connection);
    connection.remove_queue(&target).unwrap();
    connection.add_queue(&before).unwrap();
    assert_eq!(connection.check(&before).unwrap(), []);
    let findings = connection.check(&target).unwrap();
    // On MySQL the index of due times becomes another one, in one statement: claims name it.
    let mends = |sql: &str| findings.iter().filter(|finding| finding.mend.contains(sql)).count();
    assert_eq!(findings.len(), if NAME == "mysql" { 2 } else { 1 }, "{findings:?}");
    assert_eq!(mends("DROP INDEX `queueable_tickets_"), findings.len() - 1, "{findings:?}");
    for sql in findings.iter().flat_map(|finding| finding.mend.split("; ")) {
        connection.batch_execute(sql).unwrap();
    }
    assert_eq!(connection.check(&target).unwrap(), []);
    assert_eq!(shape(&mut connection), with_reports);
    // Processes of the version before go on meanwhile.
    assert_eq!(connection.check(&before).unwrap(), []);
    connection.remove_queue(&target).unwrap();
    connection.add_queue(&before).unwrap();
    connection.add_queue(&target).unwrap();
    assert_eq!(connection.check(&target).unwrap(), []);
}

/// Rows in all states, also unknown ones.
fn in_all_states(connection: &mut Conn) {
    let [long_ago, lately] = ["'2001-01-01 00:00:00.000'", "'2026-03-01 12:00:00.000'"];
    let mut rows = Vec::new();
    for status in ["NOT_ATTEMPTED", "IN_PROGRESS", "SUCCESS", "ERROR", "FAILED", "SKIPPED", "DONE", "failed", "FAILED "]
    {
        for next in [long_ago, "NULL"] {
            for last in [long_ago, lately, "NULL"] {
                for text in ["NULL", "'no route'", "'queueable: stopped'", "'<script>alert(1)</script>\u{1b}[2J'"] {
                    rows.push((status, next, last, text));
                }
            }
        }
    }
    insert(connection, &rows);
}

fn groups(report: &ErrorReport<i64>) -> Vec<(&str, i64, i64, i64, i64)> {
    let ErrorReport { groups, .. } = report;
    let line = |of: &ErrorGroup<i64>| (of.rows, of.retrying, of.failed, of.texts);
    let lines = groups.iter().map(|group| (group.pattern.as_str(), line(group)));
    lines.map(|(pattern, (rows, retrying, failed, texts))| (pattern, rows, retrying, failed, texts)).collect()
}

#[test]
fn the_reports_are_the_same_with_and_without_it() {
    let (_database, mut connection) = tickets_of();
    in_all_states(&mut connection);
    let of_late = Duration::from_secs(86_400 * 365 * 10);
    let (with, without) = (Ticket::queue(), Plain::queue());
    let backlog = with.backlog(&mut connection).unwrap();
    let plain = without.backlog(&mut connection).unwrap();
    assert_eq!((backlog.due, backlog.scheduled, backlog.failed), (plain.due, plain.scheduled, plain.failed));
    assert_eq!(backlog.failed, 12);
    for (with, without, number) in [
        (with.clone().failed(), without.clone().failed(), 24),
        (with.clone().skipped(), without.clone().skipped(), 24),
        (with.clone().failed().attempted_within(of_late), without.clone().failed().attempted_within(of_late), 8),
    ] {
        assert_eq!(with.count(&mut connection).unwrap(), number);
        assert_eq!(without.count(&mut connection).unwrap(), number);
    }
    // The index knows the queue's own statuses only.
    let status = if NAME == "mysql" { "CAST(plain_status AS BINARY)" } else { "plain_status" };
    let known = "('NOT_ATTEMPTED', 'IN_PROGRESS', 'SUCCESS', 'ERROR', 'FAILED', 'SKIPPED')";
    let is_known = || diesel::dsl::sql::<Bool>(&format!("{status} IN {known}"));
    let report = with.errors(&mut connection).unwrap();
    let plain = without.clone().filter(is_known()).errors(&mut connection).unwrap();
    assert_eq!(groups(&report), groups(&plain));
    assert_eq!((report.groups[0].rows, report.groups[0].examples.len()), (30, 3));
    let report = with.attempted_within(of_late).errors(&mut connection).unwrap();
    let plain = without.attempted_within(of_late).filter(is_known()).errors(&mut connection).unwrap();
    assert_eq!(groups(&report), groups(&plain));
    assert_eq!(report.groups[0].rows, 10);
}

#[test]
fn no_report_reads_finished_rows() {
    let (_database, mut connection) = tickets_of();
    connection
        .batch_execute(&format!(
            "INSERT INTO tickets (status, last_attempt_time) {NUMBERS} SELECT 'SUCCESS', '2026-03-01 12:00:00.000' FROM n WHERE n < 50000;
             INSERT INTO tickets (status, last_attempt_time, last_attempt_error_message) {NUMBERS}
                 SELECT 'FAILED', '2026-03-01 12:00:00.000', 'no route' FROM n WHERE n < 300;
             INSERT INTO tickets (status, last_attempt_time) {NUMBERS} SELECT 'SKIPPED', '2026-03-01 12:00:00.000' FROM n WHERE n < 300;
             INSERT INTO tickets (next_attempt_time) {NUMBERS} SELECT '2020-01-01 00:00:00.000' FROM n WHERE n < 300;
             {}",
            db::ANALYZE.replace("payments", "tickets"),
        ))
        .unwrap();
    let failed = [StateCondition::NotPending, StateCondition::Reported(&[Status::Failed])];
    let skipped = [StateCondition::Reported(&[Status::Skipped])];
    let troubled = [
        StateCondition::WithFailure,
        StateCondition::Reported(&[Status::NotAttempted, Status::Error, Status::Failed]),
        StateCondition::AttemptedWithin(Duration::from_secs(86_400)),
    ];
    let due = [StateCondition::Due];
    let pending = [StateCondition::Pending, StateCondition::In(&Status::ALL)];
    let condition = |states| Condition::new(queue::<Ticket>(), None, states);
    let page = |states, order| {
        let from = PageFrom { order, backwards: false, timed: true, after: None };
        read_page(Claim::<Backend>::new::<Ticket>(), condition(states), from, 51)
    };
    let split = Some(SplitBy::Column("company_id"));
    let plans = [
        ("pending", plan_of(&mut connection, &count_pending(condition(&pending), None, 10)), "tickets"),
        ("count", plan_of(&mut connection, &count_by_value(condition(&failed), None, 10)), "report"),
        ("count by company", plan_of(&mut connection, &count_by_value(condition(&failed), split, 10)), "report"),
        ("errors", plan_of(&mut connection, &error_texts(condition(&troubled), None, 100)), "report"),
        ("examples", plan_of(&mut connection, &error_sample(condition(&troubled), 100)), "report"),
        ("failed", plan_of(&mut connection, &page(&failed, PageOrder::LatestAttempt)), "report"),
        ("skipped", plan_of(&mut connection, &page(&skipped, PageOrder::LatestAttempt)), "report"),
        ("due", plan_of(&mut connection, &page(&due, PageOrder::NextAttempt)), "tickets"),
    ];
    for (name, plan, index) in plans {
        assert!(plan.contains(&format!("queueable_{index}_")), "{name}:\n{plan}");
        // In the words of MariaDB. MySQL does not say so here.
        let reads_rows = name == "pending" && plan.contains("extra") && !plan.contains("Using where; Using index\"");
        assert!(!reads_rows, "the status of the pending rows is in their index: {plan}");
        // PostgreSQL, MySQL and SQLite, in this order. MySQL reads the results of inner queries in the same words.
        let inner = match name {
            "pending" => 2,
            "errors" => 1,
            _ => 0,
        };
        for (scan, allowed) in [("Seq Scan", 0), ("type ALL key None", inner), ("SCAN tickets\n", 0)] {
            assert!(format!("{plan}\n").matches(scan).count() <= allowed, "{name}:\n{plan}");
        }
    }
}

fn plan_of(connection: &mut Conn, statement: &impl Statement<Backend>) -> String {
    let sql = diesel::debug_query::<Backend, _>(&Sql::new(statement)).to_string();
    let (sql, _) = sql.split_once(" -- binds: []").expect("the statement is planned as it is run");
    db::plan(connection, sql)
}

/// Long texts lie beside the row, where a server computes a column from them.
#[test]
fn the_index_follows_what_handlers_do() {
    let (database, mut connection) = tickets_of();
    let tickets: Vec<_> = (0..60).map(|_| Ticket::due_now()).collect();
    diesel::insert_into(tickets::table).values(tickets).execute(&mut connection).unwrap();
    let handler = |ticket: &Ticket, message: &mut Message<'_, Conn>| match ticket.id % 4 {
        0 => Err(Failure::retry_after(Duration::from_secs(3_600), "no route ".repeat(4_000))),
        1 => Err(Failure::fatal("no account ".repeat(4_000))),
        2 if message.try_number() == 1 => Err(Failure::retry_after(Duration::ZERO, "once ".repeat(4_000))),
        2 => Ok(Outcome::Skip),
        _ => Ok(Outcome::Done),
    };
    let mut settings = PollerSettings::default();
    settings.error_text_limit = 40_000;
    let poller = Ticket::poller(database.pool(3), handler).settings(settings).workers(2);
    let tally = poller.run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.skipped, tally.failed, tally.retried), (15, 15, 15, 30));
    let rows = Ticket::queue();
    assert_eq!(rows.clone().failed().count(&mut connection).unwrap(), 15);
    assert_eq!(rows.clone().skipped().count(&mut connection).unwrap(), 15);
    let report = rows.errors(&mut connection).unwrap();
    assert_eq!(report.groups.iter().map(|group| (group.rows, group.failed)).collect::<Vec<_>>(), [(15, 15), (15, 0)]);
    assert_eq!(rows.clone().all_rows().retry_now(&mut connection).unwrap(), 30);
    let tally = Ticket::poller(database.pool(3), |_: &Ticket, _: &mut Message<'_, Conn>| Ok(Outcome::Done))
        .workers(2)
        .run_until_idle()
        .unwrap();
    assert_eq!(tally.succeeded, 30);
    assert_eq!(Ticket::queue().errors(&mut connection).unwrap().groups, []);
    assert_eq!(Ticket::queue().failed().count(&mut connection).unwrap(), 0);
}

#[test]
fn of_many_failures_each_group_has_its_numbers_and_its_examples() {
    let (_database, mut connection) = tickets_of();
    let texts = ["no route", "no account", "the bank refuses"];
    let (early, late) = ("2026-03-01 11:00:00", "2026-03-01 13:00:00");
    let prefixes = ["", "plain_"];
    let columns =
        |prefix: &str| format!("{prefix}status, {prefix}last_attempt_time, {prefix}last_attempt_error_message");
    let columns = prefixes.map(columns).join(", ");
    let mut insert = |from: i64, to: i64, status: &str, time: &str, text: &str| {
        let state = format!("'{status}', '{time}.000', '{text}'");
        connection
            .batch_execute(&format!(
                "INSERT INTO tickets (company_id, {columns}) {NUMBERS} SELECT n % 7, {state}, {state} FROM n WHERE n >= {from} AND n < {to}"
            ))
            .unwrap();
    };
    // More than a report looks at first; one text is on few rows, before and behind all others.
    insert(0, 1, "FAILED", late, texts[1]);
    insert(0, 4_000, "FAILED", early, texts[0]);
    insert(0, 2, "ERROR", early, texts[2]);
    insert(0, 1, "FAILED", early, texts[1]);
    let report = Ticket::queue().errors(&mut connection).unwrap();
    let plain = Plain::queue().errors(&mut connection).unwrap();
    assert_eq!((report.left_out, plain.left_out), (0, 0));
    assert_eq!(report.groups.len(), 3);
    for (group, plain) in report.groups.iter().zip(&plain.groups) {
        assert_eq!((&group.pattern, &group.example_text), (&plain.pattern, &plain.example_text));
        assert_eq!((group.rows, group.retrying, group.failed), (plain.rows, plain.retrying, plain.failed));
        assert_eq!((group.texts, group.first, group.last), (plain.texts, plain.first, plain.last));
        assert_eq!(group.examples.len() as i64, group.rows.min(3));
        let texts: Vec<Option<String>> = diesel::dsl::sql::<Nullable<Text>>(&format!(
            "SELECT DISTINCT last_attempt_error_message FROM tickets WHERE id IN ({})",
            group.examples.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
        ))
        .load(&mut connection)
        .unwrap();
        assert_eq!(texts, [Some(group.pattern.clone())]);
    }
    let rare: Vec<_> = report.groups.iter().filter(|group| group.rows < 3).collect();
    assert_eq!(rare.iter().map(|group| group.examples.len()).sum::<usize>(), 4, "{report}");
    // By a column, the first rows of each text are looked for at once.
    let by = Ticket::queue().errors_by(&mut connection, tickets::company_id).unwrap();
    let plain = Plain::queue().errors_by(&mut connection, tickets::company_id).unwrap();
    assert_eq!(by, plain);
}

#[test]
fn of_many_texts_of_one_group_some_rows_are_examples() {
    let (_database, mut connection) = tickets_of();
    let text = match NAME {
        "mysql" => "CONCAT('order ', n, ': no route')",
        _ => "'order ' || n || ': no route'",
    };
    let insert = format!(
        "INSERT INTO tickets (status, last_attempt_error_message) {NUMBERS} SELECT 'FAILED', {text} FROM n WHERE n"
    );
    connection.batch_execute(&[format!("{insert} < 3000"), format!("{insert} IN (5, 6)")].join("; ")).unwrap();
    let report = Ticket::queue().errors(&mut connection).unwrap();
    let [group] = &report.groups[..] else { panic!("one group: {report}") };
    assert_eq!((group.pattern.as_str(), group.rows, group.texts), ("order <number>: no route", 3_002, 3_000));
    assert_eq!(group.examples.len(), 3);
    let of_first = diesel::dsl::sql::<Nullable<Text>>(&format!(
        "SELECT last_attempt_error_message FROM tickets WHERE id = {}",
        group.examples[0]
    ));
    assert_eq!(of_first.load::<Option<String>>(&mut connection).unwrap(), [Some(group.example_text.clone())]);
}
