use diesel::prelude::*;
use queueable::Queueable;

diesel::table! { payments (id) { id -> BigInt, round -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(occasion(round))]
struct Listed {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(occasion = 3)]
struct Numbered {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(occasion = "")]
struct Unnamed {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(occasion = "status")]
struct NamedAsAnother {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(occasion = "round")]
struct WithAField {
    id: i64,
    round: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(occasion, occasion)]
struct Twice {
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(ocasion)]
struct Misspelt {
    id: i64,
}

fn main() {}
