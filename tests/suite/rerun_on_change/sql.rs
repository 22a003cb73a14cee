//! The SQL of reruns, versions and times on each backend.

use chrono::DateTime;
use diesel::{Queryable, Selectable};
use queue_core::internals::backend::{Schema, Sql, Statement};
use queue_core::internals::statement::{Change, Next, Settle, enqueue_if_newer, read_details};
use queue_core::internals::{ErrorText, Fence};
use queueable::columns::Instant;
use queueable::{Queueable, Status};

use super::documents;
use crate::db::{Conn, NAME};
use crate::suite::keyed::{erased, fenced_rows, queue, row};

type Backend = <Conn as diesel::Connection>::Backend;

const FENCE: Fence = Fence { change_count: Some(3), ..Fence::new(Status::Error, 2) };

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = documents)]
#[queue(rerun_on_change(title, body), version = note, timestamps)]
struct Everything {
    #[expect(dead_code, reason = "only its statements are of interest")]
    id: i64,
}

#[derive(Default)]
struct Listing(String);

impl Listing {
    fn add(&mut self, title: &str, statement: &impl Statement<Backend>) {
        self.0 += &format!("{title}:\n{}\n\n", diesel::debug_query::<Backend, _>(&Sql::new(statement)));
    }
}

#[test]
fn the_sql_of_reruns_versions_and_times() {
    let success = Change {
        status: Some(Status::Success),
        next: Some(Next::Never),
        try_count: Some(3),
        attempted: true,
        begin: Some(Instant::from(DateTime::UNIX_EPOCH)),
        error: ErrorText::Clear,
        of_content: true,
        ..Change::default()
    };
    let mut listing = Listing::default();
    listing.add("read details", &read_details(row::<Everything>(&7)));
    listing.add("settle", &Settle::new(row::<Everything>(&7), FENCE, &success));
    let rows = fenced_rows::<Everything>([(7, FENCE), (8, Fence { change_count: Some(0), ..FENCE })]);
    listing.add("settle many", &Settle::many(queue::<Everything>(), &rows, &success));
    listing.add("remove", &Settle::remove(row::<Everything>(&7), FENCE));
    let version = diesel::dsl::sql::<diesel::sql_types::Nullable<diesel::sql_types::Text>>("'b'");
    listing.add("enqueue if newer", &enqueue_if_newer(row::<Everything>(&7), version));
    let target = erased::<Everything>().target().unwrap();
    for step in Conn::steps(&target).into_iter().filter(|step| ["rerun", "created"].contains(&step.name)) {
        listing.0 += &format!("{}, up:\n{}\n\n", step.name, step.up.join(";\n"));
        listing.0 += &format!("{}, down:\n{}\n\n", step.name, step.down.join(";\n"));
    }
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("{NAME}_rerun"), listing.0);
    });
}
