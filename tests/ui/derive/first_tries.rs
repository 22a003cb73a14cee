//! What a new user writes: the right idea in the wrong place or form.

use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, due_date -> Date, title -> Text, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(serial_by = company_id, strict)]
struct StrictOutside {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(fair_by(company_id, strict))]
struct StrictForFair {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(serial_by = companies::name)]
struct ColumnWithItsTable {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(serial_by = "company_id")]
struct ColumnInQuotes {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(serial_by("company_id", strict))]
struct ColumnInQuotesInAList {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(at_most(company_id, 3))]
struct ColumnBeforeTheNumber {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(at_most(3, company_id))]
struct ColumnWithoutBy {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(at_most = 3, by = company_id)]
struct ByOutside {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(periodic = "0 3 * * *")]
struct CronForTheQueue {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(periodic, cron = "0 3 * * *")]
struct CronAsColumn {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(periodic, period = "1h")]
struct PeriodAsColumn {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(periodic, time_zone = "Europe/Berlin")]
struct ZoneAsColumn {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(periodic, missed = skip)]
struct MissedOutside {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(exclusive = true, occasion = true, timestamps = false, priority = true, periodic = true)]
struct SwitchedOn {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(timeout = 30s, lease = 60)]
struct DurationWithoutQuotes {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = exponential(10s, max = 1h))]
struct DelayWithoutQuotes {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = exponential("10s"), max = "1h")]
struct MaxOutside {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = exponential("10s", "1h"))]
struct MaxWithoutName {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = exponential("10s", jitter = "20%"))]
struct JitterInPercent {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry = 5)]
struct TriesAsRetry {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retry(fixed("10s")))]
struct PolicyInAList {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(fixed = "10s")]
struct PolicyAsKey {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(max_tries = "10")]
struct NumberInQuotes {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(max_tries(10))]
struct NumberInAList {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(lease("60s"))]
struct LeaseInAList {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(group = 50, optimistic)]
struct GroupWithWordOutside {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(order_by = due_date, company_id)]
struct ColumnsWithoutList {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(order_by = payments::due_date.desc())]
struct ColumnOfTheTable {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(order_by = due_date, age = "1h")]
struct AgeOutside {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(priority, age = "1h")]
struct AgeOfThePriorityOutside {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(priority(urgency))]
struct NameOfThePriority {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(rerun_on_change = title)]
struct ChangedColumnWithoutList {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(rerun_on_change("title", "company_id"))]
struct ChangedColumnsInQuotes {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(archive = payments_done)]
struct ArchiveWithoutList {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(archive(payments_done))]
struct ArchiveWithoutName {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(success = payments_done)]
struct SuccessOutside {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(on_success = "delete")]
struct WordInQuotes {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(wake(notify))]
struct WordInAList {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(notify, delete)]
struct WordAsKey {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(stage = "InvoiceStage")]
struct StageInQuotes {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(version = payments::company_id)]
struct VersionOfTheTable {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(claim_if = "company_id = 5")]
struct ConditionInSql {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(claim_if = "payments::company_id > 5")]
struct ConditionByOperator {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(table_name = payments, primary_key(id))]
struct DieselsAttributes {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(retries = 5, batch_size = 10, visibility_timeout = "60s", delete_on_success, stages = InvoiceStage)]
struct WordsOfOthers {
    id: i64,
}

fn main() {}
