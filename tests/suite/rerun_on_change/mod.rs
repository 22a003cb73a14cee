//! Rows whose content changes are due again, whoever changes it and whatever happens to the row meanwhile.

mod during;
mod migration;
mod periodic;
mod race;
mod sql;
mod trigger;
mod version;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::{Message, Migrations, QueueState, Queueable};

use crate::db::{AUTO_KEY, BIGINT, Conn, Database, LONG_TEXT, TEXT};

diesel::table! {
    documents (id) {
        id -> BigInt,
        title -> Text,
        body -> Nullable<Text>,
        note -> Nullable<Text>,
    }
}

diesel::table! {
    /// The result for a document: its index entry.
    entries (document_id) {
        document_id -> BigInt,
        content -> Text,
    }
}

/// An entity on the documents, in one of the modes.
macro_rules! document {
    ($name:ident, $module:ident $(, $settings:meta)*) => {
        #[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Queueable)]
        #[diesel(table_name = documents)]
        #[queue(module = $module, retry = fixed("1h"), max_tries = 5, timeout = "30s", rerun_on_change(title, body))]
        $(#[queue($settings)])*
        pub(crate) struct $name {
            pub(crate) id: i64,
            pub(crate) title: String,
            pub(crate) body: Option<String>,
        }

        impl $name {
            pub(crate) fn content(&self) -> String {
                format!("{}: {}", self.title, self.body.as_deref().unwrap_or("(nothing)"))
            }
        }
    };
}

document!(Document, document_queue);
document!(Grouped, grouped_queue, group = 20);
document!(Leased, leased_queue, lease = "60s");

/// A database with documents and their index.
pub(crate) struct Library {
    pub(crate) database: Database,
}

impl Library {
    pub(crate) fn new() -> Self {
        let database = Database::new();
        let mut connection = database.connect();
        connection
            .batch_execute(&format!(
                "CREATE TABLE documents (id {AUTO_KEY} NOT NULL, title {TEXT} NOT NULL, body {LONG_TEXT}, note {TEXT});
                 CREATE TABLE entries (document_id {BIGINT} PRIMARY KEY NOT NULL, content {LONG_TEXT} NOT NULL)"
            ))
            .unwrap();
        connection.run_pending_migrations(Migrations::new().entity::<Document>()).unwrap();
        Library { database }
    }

    pub(crate) fn connect(&self) -> Conn {
        self.database.connect()
    }

    pub(crate) fn pool(&self, workers: u32) -> Pool<ConnectionManager<Conn>> {
        self.database.pool(workers + 2)
    }

    /// Inserts documents that are due, with their titles as bodies, and returns their ids.
    pub(crate) fn enqueue<'t>(&self, titles: impl IntoIterator<Item = &'t str>) -> Vec<i64> {
        let mut connection = self.connect();
        for title in titles {
            diesel::insert_into(documents::table)
                .values((documents::title.eq(title), documents::body.eq(title), Document::due_now()))
                .execute(&mut connection)
                .unwrap();
        }
        documents::table.select(documents::id).order(documents::id).load(&mut connection).unwrap()
    }

    /// A writer that knows nothing of queues.
    pub(crate) fn write(&self, sql: &str) {
        self.connect().batch_execute(sql).unwrap();
    }

    pub(crate) fn state(&self, id: i64) -> QueueState {
        documents::table.find(id).select(Document::queue_state()).get_result(&mut self.connect()).unwrap()
    }

    pub(crate) fn change_count(&self, id: i64) -> i64 {
        documents::table.find(id).select(document_queue::change_count).get_result(&mut self.connect()).unwrap()
    }

    /// Returns the index entry of a document.
    pub(crate) fn entry(&self, id: i64) -> Option<String> {
        entries::table.find(id).select(entries::content).get_result(&mut self.connect()).optional().unwrap()
    }

    pub(crate) fn run(&self, handler: impl queueable::Handler<Document, Conn> + 'static) -> queueable::Tally {
        Document::poller(self.pool(1), handler).workers(1).run_until_idle().unwrap()
    }

    /// Puts rows into a state by plain SQL, as a writer might.
    pub(crate) fn set_state(&self, id: i64, state: &str) {
        self.write(&format!("UPDATE documents SET {state} WHERE id = {id}"));
    }
}

/// Writes a document's index entry, in the message's transaction.
pub(crate) fn index(id: i64, content: &str, message: &mut Message<'_, Conn>) -> QueryResult<()> {
    let connection = message.connection();
    diesel::delete(entries::table.find(id)).execute(connection)?;
    diesel::insert_into(entries::table)
        .values((entries::document_id.eq(id), entries::content.eq(content)))
        .execute(connection)?;
    Ok(())
}
