use diesel::prelude::*;
use queueable_console::Console;

diesel::table! { payments (id) { id -> BigInt, } }

#[derive(Queryable, Selectable)]
struct Payment {
    id: i64,
}

fn main() {
    let _ = Console::<SqliteConnection>::new().entity::<Payment>();
}
