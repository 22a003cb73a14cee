use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, due_date -> Date, title -> Text, approved -> Bool, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(order_by = due_date, priority)]
struct Entity1 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(exclusive, group = 50)]
struct Entity2 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(exclusive, priority(age = "1h"))]
struct Entity3 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(on_success = delete, archive(success = done))]
struct Entity4 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(rerun_on_change(title), on_success = delete)]
struct Entity5 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(rerun_on_change(title), archive(failed = failures))]
struct Entity6 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(periodic, on_success = delete)]
struct Entity7 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(period = "every")]
struct Entity8 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(priority = "rank", timestamps, created_time = "rank")]
struct Entity9 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(prefix = "", order_by = next_attempt_time)]
struct Entity10 {
    id: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, queueable::Stage)]
enum Step {
    One,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(rerun_on_change(title), stage = Step)]
struct Entity11 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(exclusive, periodic)]
struct Entity12 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(on_success = delete, keep(success = "30d", failed = "1y"))]
struct Entity13 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(rerun_on_change(title), keep(failed = "1y"))]
struct Entity14 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(on_success = delete, keep(failed = "1y", skipped = "1d"))]
#[allow(dead_code)]
struct Entity15 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(timestamps, rerun_on_change(title, updated_time))]
struct Entity16 {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(prefix = "q_", occasion, order_by(due_date, Q_Occasion))]
struct Entity17 {
    id: i64,
}

fn main() {}
