use queueable::{Queueable, Stage};

#[derive(Debug, Clone, Copy, PartialEq, Stage)]
struct One;

#[derive(Debug, Clone, Copy, PartialEq, Stage)]
enum None {}

#[derive(Debug, Clone, Copy, PartialEq, Stage)]
enum WithField {
    Read,
    Wait(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Stage)]
enum Twice {
    Read,
    #[stage(name = "READ")]
    ReadAgain,
}

#[derive(Debug, Clone, Copy, PartialEq, Stage)]
enum Renamed {
    #[stage(text = "read")]
    Read,
}

// The entities with these stages are not accused.
diesel::table! { invoices (id) { id -> BigInt, } }

#[derive(diesel::Queryable, diesel::Selectable, Queueable)]
#[diesel(table_name = invoices)]
#[queue(stage = Twice)]
struct Invoice {
    id: i64,
}

#[derive(diesel::Queryable, diesel::Selectable, Queueable)]
#[diesel(table_name = invoices)]
#[queue(stage = Renamed, prefix = "renamed_")]
struct Reminder {
    id: i64,
}

fn main() {}
