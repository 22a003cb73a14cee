//! With one database's feature, the type of the connection follows from it.

use diesel::prelude::*;
use queueable::Queueable;
use queueable_console::Console;

diesel::table! { payments (id) { id -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    #[allow(dead_code)]
    id: i64,
}

fn main() {
    let console = Console::new().entity::<Payment>().read_only();
    let _ = console.subcommand();
}
