//! A session that the server ends while it answers.

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Bool;

use crate::db::Database;

#[test]
fn a_session_that_ends_in_the_middle_of_an_answer_is_an_error() {
    let database = Database::new();
    let mut session = database.connect();
    let ends_itself = sql::<Bool>("SELECT pg_terminate_backend(pg_backend_pid())");
    assert!(ends_itself.load::<bool>(&mut session).is_err());
    assert!(sql::<Bool>("SELECT true").load::<bool>(&mut session).is_err());
}
