use diesel::prelude::*;
use queueable::{Queueable, Stage};

diesel::table! { payments (id) { id -> BigInt, } }

#[derive(Queryable, Selectable, Queueable)]
#[queue(crate = "my_app::queueable")]
struct Payment {
    id: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
#[stage(crate = 5)]
enum First {
    Only,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
#[stage(name = "only")]
enum Second {
    Only,
}

fn main() {}
