//! A key that PostgreSQL stores natively.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Failure, Message, Migrations, Outcome, Queueable, Status};
use uuid::Uuid;

use crate::db::{Conn, Database};

diesel::table! { documents (id) { id -> Uuid, } }

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = documents)]
struct Document {
    id: Uuid,
}

#[test]
fn a_key_may_be_a_uuid() {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute("CREATE TABLE documents (id UUID PRIMARY KEY)").unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Document>()).unwrap();
    let ids = [Uuid::nil(), Uuid::from_u128(7), Uuid::max()];
    let rows: Vec<_> = ids.iter().map(|id| (documents::id.eq(id), Document::due_now())).collect();
    diesel::insert_into(documents::table).values(rows).execute(&mut connection).unwrap();
    let handler = |document: &Document, message: &mut Message<'_, Conn>| {
        assert_eq!(message.idempotency_key(), format!("documents.status:{}", document.id));
        match message.try_number() {
            1 => Err(Failure::retry_after(std::time::Duration::ZERO, "not yet")),
            _ => Ok(Outcome::Done),
        }
    };
    let tally = Document::poller(database.pool(3), handler).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.retried, tally.interrupted), (3, 3, 0));
    let counts = Document::queue().counts_by_status(&mut connection).unwrap();
    assert_eq!((counts.of(Status::Success), counts.total()), (3, 3));
}
