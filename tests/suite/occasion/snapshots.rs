//! The SQL of keys and occasions on each backend, so that a review shows what changed.

use chrono::DateTime;
use queue_core::internals::backend::{Schema, Sql, Statement};
use queue_core::internals::statement::{
    Change, Claim, Claimable, Next, Settle, due_keys, enqueue_if_newer, finish_block,
};
use queue_core::internals::{ErrorText, Fence};
use queueable::Status;
use queueable::columns::Instant;

use super::kinds::Whole;
use super::texts::Line;
use crate::db::{Conn, NAME};
use crate::suite::keyed::{erased, queue, row};

type Backend = <Conn as diesel::Connection>::Backend;

fn add(listing: &mut String, title: &str, statement: &impl Statement<Backend>) {
    *listing += &format!("{title}:\n{}\n\n", diesel::debug_query::<Backend, _>(&Sql::new(statement)));
}

#[test]
fn the_sql_of_occasions() {
    let mut sql = String::new();
    let due = Instant::from(DateTime::UNIX_EPOCH);
    let fence = Fence { due: Some(due), ..Fence::new(Status::NotAttempted, 0) };
    let ended = Change {
        status: Some(Status::Success),
        next: Some(Next::Never),
        next_occasion: true,
        error: ErrorText::Clear,
        ..Change::default()
    };
    add(&mut sql, "claim", &Claim::<Backend>::new::<Whole>());
    add(&mut sql, "claim by a key of two columns", &Claim::<Backend>::new::<Line>());
    add(&mut sql, "read keys of two columns", &due_keys(Claimable::new(queue::<Line>(), None), 16));
    add(&mut sql, "settle", &Settle::new(row::<Whole>(&7), fence, &ended));
    add(&mut sql, "end in a block", &finish_block(row::<Whole>(&7), fence, 1, true));
    let version = diesel::dsl::sql::<diesel::sql_types::BigInt>("12");
    add(&mut sql, "enqueue a newer version", &enqueue_if_newer(row::<Whole>(&7), version));
    let target = erased::<Whole>().target().unwrap();
    for step in Conn::steps(&target).iter().filter(|step| step.name == "round") {
        sql += &format!(
            "{}, up:\n{}\n\n{}, down:\n{}\n\n",
            step.name,
            step.up.join(";\n"),
            step.name,
            step.down.join(";\n")
        );
    }
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("{NAME}_occasion"), sql);
    });
}
